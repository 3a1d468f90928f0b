// The cases that send requests of their own against a small server that fulfils it, and against the same with each fault: the case that names
// the fault fails.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { CASES, REQUIREMENTS, chosen, runAll } from "../src/runner.mjs";
import { OTHER, Server, TOKEN } from "./server.mjs";

const WITHOUT = ["A59", "A60", "A61", "A63", "T28.2", "T47", "T48", "T49", "T50", "T51"]; // the small server has no sockets, and asks nothing and stops nothing
const LONG = ["T37"]; // 15 s

/** The faults of `server.mjs`, and the case that each must fail. A case may have several. */
const FAULTS = {
  A1: "wrong-type",
  A2: "carriage-returns",
  A3: "done-sentinel",
  A4: "stays-open",
  A50: "takes-any-body",
  A51: "takes-any-input",
  A52: "takes-any-input",
  A53: "refuses-unknown",
  A54: "needs-tools",
  A55: "refuses-newer",
  A56: "refuses-parts",
  A57: "changes-ids",
  A58: "same-message",
  A62: "refuses-resume",
  T1: "no-id-on-state",
  T2: "id-after-data",
  T3: "ids-with-blanks",
  T4: "ids-twice",
  T5: "hole-after-snapshot",
  T6: "ids-of-one-process",
  T7: "ids-with-content",
  T8: "preludes-share-ids",
  "T8.2": "live-preludes-share-ids",
  T9: "header-ignored",
  T10: "query-id-ignored",
  T11: "body-id-ignored",
  T12: "body-before-header",
  "T12.2": "empty-id-counts",
  T13: "unknown-id-refused",
  T14: "skips-one",
  "T14.2": "repeats-one",
  T15: "always-over",
  T16: "over-without-partial",
  T17: "over-says-again",
  T18: "skips-one",
  "T18.2": "events-skip",
  "T18.3": "repeats-one",
  T19: "leaving-stops",
  T20: "repeat-starts-again",
  "T20.2": "repeat-tells-later",
  T21: "unknown-id-starts-again",
  "T21.2": "oldest-of-its-name",
  T22: "unknown-run-refused",
  T23: "same-run-id",
  T24: ["end-under-its-id", "end-under-one-id"],
  T25: "repeat-starts-again",
  T26: "over-without-messages",
  "T26.2": "connect-differs",
  T27: "connect-renames",
  T28: "idle-stays-open",
  "T28.3": "idle-comes-back",
  T29: "connect-creates",
  "T29.2": "missing-comes-back",
  T30: "end-starts-over",
  "T30.2": "old-end-starts-over",
  T56: "old-run-goes-on",
  T31: "events-differ",
  T32: "follow-ends",
  T33: "follower-repeats",
  "T33.2": "idle-comes-back",
  T34: "follower-misses-runs",
  T35: "any-follow",
  T36: "no-retry",
  T38: "cached",
  T39: "refusal-of-eventsource",
  T40: "stop-breaks-posts",
  "T40.2": "stop-breaks-connects",
  T41: "stop-ends-events",
  T42: "stop-stops-runs",
  T43: "lines-with-ids",
  "T43.2": "lines-without-ids",
  T44: "array-without-id",
  T45: "wait-loses",
  T46: "any-accept",
  T52: "id-as-key",
  "T52.2": "threads-of-all",
  T53: "ids-of-any-thread",
  T54: "long-id-crashes",
  T55: "no-capability",
};

async function judge(names, fault) {
  const needsKeys = names.some((name) => name.startsWith("T52"));
  const server = await Server.start(fault, { keys: needsKeys });
  const replica = await Server.start(fault, { replicaOf: server });
  if (names.includes("T39")) server.limit = 5;
  const options = {
    run: server.url,
    replica: replica.url,
    events: server.url.replace("/run", "/threads/{threadId}/events"),
    also: [],
    answer: {},
    headers: needsKeys ? { authorization: TOKEN } : {},
    other: needsKeys ? { authorization: OTHER } : undefined,
    shutdown: () => server.stop(),
    flood: names.includes("T39") ? 12 : undefined,
    message: "hi {mark}",
    jobs: 16,
    timeout: 3_000,
    seed: 7,
  };
  try {
    return await runAll(chosen(names), options);
  } finally {
    server.close();
    replica.close();
  }
}

const faults = (results) => results.filter(({ status }) => ["fail", "warn"].includes(status)).map(({ id, saw }) => `${id}: ${saw}`);

test("a server that fulfils the transport passes", async () => {
  const all = CASES.map(({ id }) => id).filter((id) => ![...WITHOUT, ...LONG, "T39", "T52", "T52.2"].includes(id));
  const results = await judge(all);
  assert.deepEqual(faults(results), []);
  const passed = results.filter(({ status, requirement }) => status === "pass" && requirement.startsWith("T")).map(({ id }) => id);
  assert.deepEqual(passed, all.filter((id) => id.startsWith("T")));
});

test("and so it does with keys and a limit", async () => {
  const results = await judge(["T39"]);
  results.push(...(await judge(["T52", "T52.2"])));
  assert.deepEqual(results.map(({ id, status }) => `${id} ${status}`), ["T39 pass", "T52 pass", "T52.2 pass"], JSON.stringify(results));
});

describe("a fault fails its case", { concurrency: 8 }, () => {
  for (const [id, fault] of Object.entries(FAULTS).flatMap(([id, faults]) => [faults].flat().map((fault) => [id, fault]))) {
    test(`${id}: ${fault}`, async () => {
      const [result] = await judge([id], fault);
      assert.ok(["fail", "warn"].includes(result.status), `${result.status}: ${result.saw}`);
    });
  }
});

test("a fault of `connect` is reported once, and a fault of AG-UI not by the transport", async () => {
  const saw = new Map((await judge(["T26", "T26.2", "T25"], "connect-differs")).map(({ id, saw }) => [id, saw]));
  assert.match(saw.get("T26.2"), /a new `connect` without an id/);
  for (const id of ["T25", "T26"]) assert.match(saw.get(id), /: see T26\.2$/);
  const results = await judge(["A16", "T16", "T26"], "no-version");
  assert.deepEqual(results.map(({ id, status }) => `${id} ${status}`), ["A16 fail", "T16 pass", "T26 pass", "T26.2 pass"]);
  for (const { saw } of results.slice(1, 3)) assert.match(saw, /\(see A16\)/);
});

test("each case that sends requests of its own has a fault", () => {
  const ids = CASES.filter(({ requirement }) => !REQUIREMENTS[requirement].judged).map(({ id }) => id);
  const without = [...LONG, ...WITHOUT].sort((a, b) => ids.indexOf(a) - ids.indexOf(b));
  assert.deepEqual(ids.filter((id) => !(id in FAULTS)), without);
});
