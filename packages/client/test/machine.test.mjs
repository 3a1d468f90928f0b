// What the client does next, without a network and without a clock.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { LIMITS, newLink, next } from "../dist/machine.js";

const AROUND = { limits: { ...LIMITS, attempts: 3, delayMs: 1_000, maxDelayMs: 4_000 }, random: 0.5, isOffline: false, endsWithRun: true };
const CUT = { type: "break", reason: "cut", lastedMs: 0 };

/** The steps after these inputs, and what is known then. */
function play(inputs, { link = newLink(), ...around } = {}) {
  const steps = inputs.map((input) => {
    const [after, step] = next(link, input, { ...AROUND, ...around });
    link = after;
    return step;
  });
  return { link, steps, last: steps.at(-1) };
}

const frame = (event, id, more) => ({ type: "frame", event, id, ...more });

test("a run that is not cut is read to its end", () => {
  const { link, steps } = play([{ type: "answer", status: 200 }, frame("RUN_STARTED", "2a"), frame("TEXT_MESSAGE_CONTENT", "2b"), frame("RUN_FINISHED", "2c")]);
  assert.deepEqual(steps.map((step) => step.do), ["read", "read", "read", "end"]);
  assert.deepEqual([link.lastId, link.isAtRest], ["2c", true]);
});

test("a follower reads on after the end of a run", () => {
  const { link, last } = play([frame("RUN_FINISHED", "2c")], { endsWithRun: false });
  assert.deepEqual([last.do, link.isAtRest], ["read", true]);
  assert.equal(play([frame("RUN_STARTED", "2d")], { link }).link.isAtRest, false);
});

test("a cut line asks again after the last event, and a comment changes nothing", () => {
  const { link, last } = play([frame("RUN_STARTED", "2a"), frame("TEXT_MESSAGE_CONTENT", "2b"), frame(undefined, undefined), CUT]);
  assert.equal(last.do, "request");
  assert.deepEqual([link.lastId, link.failures], ["2b", 1]);
});

test("an event without an id leaves the last one", () => {
  assert.equal(play([frame("RUN_STARTED", "2a"), frame("CUSTOM", undefined)]).link.lastId, "2a");
});

describe("pauses", () => {
  const pauses = (inputs, around) => play(inputs, around).steps.map(({ afterMs }) => afterMs);

  test("they double up to a limit, and are spread at random", () => {
    assert.deepEqual(pauses([CUT, CUT, CUT], { random: 0 }), [0, 1_000, 2_000]);
    assert.deepEqual(pauses([CUT, CUT, CUT], { random: 1 }), [1_000, 2_000, 4_000]);
    assert.deepEqual(pauses([CUT, CUT, CUT, CUT, CUT], { random: 1, limits: { ...AROUND.limits, attempts: 5 } }).slice(3), [4_000, 4_000]);
  });

  test("the gateway's `retry:` replaces the first one, even beyond the limit", () => {
    assert.deepEqual(pauses([frame(undefined, undefined, { retryMs: 3_000 }), CUT, CUT], { random: 1 }).slice(1), [3_000, 4_000]);
    assert.deepEqual(pauses([frame(undefined, undefined, { retryMs: 60_000 }), CUT, CUT], { random: 1 }).slice(1), [60_000, 60_000]);
  });

  test("`Retry-After` is the least", () => {
    const answer = { type: "answer", status: 429, code: "too_many_requests", retryAfterMs: 9_000 };
    assert.deepEqual(pauses([answer]), [9_000]);
  });

  test("a new event, or a connection that lived for long, begins them again", () => {
    assert.deepEqual(pauses([CUT, CUT, frame("CUSTOM", "2b"), CUT], { random: 1 }).at(-1), 1_000);
    assert.deepEqual(pauses([CUT, CUT, { ...CUT, lastedMs: 60_000 }], { random: 1 }).at(-1), 1_000);
    assert.deepEqual(pauses([CUT, CUT, frame("CUSTOM", "0.1.1"), CUT], { random: 1 }).at(-1), 4_000);
  });

  test("an offline machine waits for its network, and no attempt counts", () => {
    const { link, steps } = play([CUT, CUT, CUT, CUT, CUT], { isOffline: true });
    assert.ok(steps.every((step) => step.do === "request" && step.afterMs === Infinity));
    assert.equal(link.failures, 0);
  });
});

describe("limits", () => {
  test("the line gives up after so many failures in a row", () => {
    const { steps } = play([CUT, CUT, CUT, CUT]);
    assert.deepEqual(steps.map((step) => step.do), ["request", "request", "request", "give up"]);
  });

  test("events that cannot be resumed do not keep a broken line alive", () => {
    const again = [{ type: "answer", status: 200 }, frame("RUN_STARTED", "0.a.1"), frame("STATE_SNAPSHOT", "0.a.2"), CUT];
    assert.equal(play([...again, ...again, ...again, ...again]).last.do, "give up");
  });
});

describe("answers", () => {
  const answer = (status, code, more) => play([{ type: "answer", status, code, ...more }]).last.do;

  test("what passes is asked again, and what would come again is refused", () => {
    for (const [status, code] of [[429, "too_many_streams"], [502, "upstream_interrupted"], [502, undefined], [503, "gateway_shutdown"], [504, "upstream_timeout"]]) {
      assert.equal(answer(status, code), "request", `${status} ${code}`);
    }
    for (const [status, code] of [[400, "invalid_request"], [403, "cross_origin"], [404, "unknown_thread"], [409, "thread_busy"], [502, "upstream_unauthorized"], [502, "not_langgraph"]]) {
      assert.equal(answer(status, code), "refuse", `${status} ${code}`);
    }
  });

  test("a refusal that does not pass in time is a refusal", () => {
    const busy = { type: "answer", status: 503, code: "memory_full" };
    assert.equal(play([busy, busy, busy, busy]).last.do, "refuse");
  });

  test("204 is the end, and a thread that does not exist yet cannot be followed", () => {
    assert.equal(answer(204), "end");
    assert.equal(play([{ type: "answer", status: 404, code: "unknown_thread" }], { endsWithRun: false }).last.do, "end");
  });

  test("a token is renewed once for each time that it is refused", () => {
    assert.equal(answer(401), "refuse");
    const refused = { type: "answer", status: 401, code: "token_expired", canRenew: true };
    const { steps } = play([refused, { type: "answer", status: 200 }, CUT, refused, refused]);
    assert.deepEqual(steps.map((step) => [step.do, step.renew ?? false]), [["request", true], ["read", false], ["request", false], ["request", true], ["refuse", false]]);
  });
});

describe("errors of the line, which are sent as events", () => {
  const lost = frame("RUN_ERROR", "0.a.9", { code: "gateway_shutdown" });

  test("they are not the run's end, and the event before them is resumed", () => {
    const { link, last } = play([frame("TEXT_MESSAGE_CONTENT", "2b"), lost]);
    assert.deepEqual([last.do, link.lastId], ["request", "2b"]);
  });

  test("the run's own error is its end", () => {
    assert.equal(play([frame("RUN_ERROR", "2c", { code: "ValueError" })]).last.do, "end");
    assert.equal(play([frame("RUN_ERROR", "2c", { code: "upstream_unavailable" })]).last.do, "end");
  });

  test("the last one that is allowed is shown", () => {
    assert.deepEqual(play([lost, lost, lost, lost]).steps.map((step) => step.do), ["request", "request", "request", "end"]);
  });
});
