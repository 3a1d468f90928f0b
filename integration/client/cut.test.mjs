// Cuts runs anywhere, on real LangGraph servers through threadways, and compares the content of a client that reconnects
// with LangGraph's thread. Ended runs are resumed from every event; in live runs clients, upstreams or gateways break.
//
// SEED=... repeats the choices of a run, FULL=1 cuts at every event instead of a sample, CUT_CASES names some cases.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { buildResumeArray } from "@ag-ui/client";
import { casesOf, Play } from "./cases.mjs";
import { Breaker, compareTail, isCurtailed, isNumbered, judgeReader, Reader, ROUTES, truthOf } from "./cut.mjs";
import { cancel, SERVERS } from "./gateway.mjs";
import { Langgraph } from "./langgraph.mjs";
import { without } from "./limits.mjs";
import { SEED, seeded } from "./seeded.mjs";
import { Spare } from "./spare.mjs";
import { startThreadway } from "./threadway.mjs";

const IS_FULL = process.env.FULL === "1";
const CHOSEN = (process.env.CUT_CASES ?? "").split(/\s*,\s*/).filter(Boolean);
/** How many cuts each case gets, and in how many cases, if not in all. */
const PLAN = IS_FULL
  ? { indices: Infinity, connects: 10, live: 10, resets: 10, second: 5, kills: 2, cases: Infinity, batches: Infinity }
  : { indices: 5, connects: 1, live: 2, resets: 2, second: 1, kills: 1, cases: 4, batches: 1 };
const SIGNALS = ["SIGTERM", "SIGKILL"];
const QUICK = 0.01; // seconds between the tokens of a run that ends before it is cut
const SLOW = 0.05; // the same for a run that is cut
const SLOWEST = 0.25; // the same for a run whose server is killed
const MANNERS = ["reset", "reset", "cut", "end"]; // how an upstream connection breaks; silence takes half a minute
const CONCURRENCY = 5; // cases at a time on each server
const BATCH = 8; // runs of a server when it is killed: it runs ten at once
/** When to kill, from the start of the runs. A server writes its data every ten seconds, or after three quiet ones. */
const KILL_MS = { SIGTERM: [500, 4000], SIGKILL: [1000, 9000] };
/** How long to wait for a run of a killed server to end. The JavaScript server does not continue such runs. */
const GONE_MS = { Python: 90_000, JavaScript: 5_000, aegra: 5_000 };
const TIMEOUT = { timeout: IS_FULL ? 3_600_000 : 600_000 };
const SHOWN = 3; // printed differences of a part

const KNOWN = SERVERS.flatMap((server) => Object.keys(casesOf(server)));
for (const name of CHOSEN) assert.ok(KNOWN.includes(name), `there is no case ${name}, but ${[...new Set(KNOWN)].join(", ")}`);
console.log(`# SEED=${SEED}${IS_FULL ? ", every event" : ", a sample"}`);
// The client only warns of members that it drops and of patches that it cannot apply. Both are faults of the gateway.
const warnings = [];
console.warn = (...words) => void warnings.push(words.join(" "));
console.error = () => {}; // the client also throws these errors

/** The result of one part of the test, for its line. */
class Tally {
  counts = { runs: 0, cuts: 0, continued: 0, over: 0, ended: 0, lost: 0, spared: 0 };
  differences = [];
  notes = [];

  constructor(server, name, part) {
    Object.assign(this, { server, name, part, began: performance.now() });
  }

  add(reader) {
    for (const [how, count] of Object.entries(reader.counts)) this.counts[how] += count;
  }

  /** One comparison; an error is a difference. */
  async check(what, work) {
    try {
      return await work();
    } catch (failure) {
      this.differences.push(`${what}: ${failure.stack?.startsWith("TypeError") ? failure.stack : failure.message}`);
      return undefined;
    }
  }

  stop() {
    this.took ??= (performance.now() - this.began) / 1000;
    return this;
  }

  /** Prints the part's line; fails if there was a difference. */
  end() {
    const { runs, cuts, continued, over, ended, lost, spared } = this.counts;
    const told = [`${runs} runs`, `${cuts} cuts`, `${continued} continued`, `${over} started over`, `${ended} ended`];
    if (spared) told.push(`${spared} with snapshots that the starter was spared`);
    if (lost) told.push(`${lost} lost sight`);
    told.push(...this.notes, `${this.differences.length} differences`, `${this.stop().took.toFixed(1)} s`);
    console.log(`# ${this.server.name}, ${this.name}, ${this.part}: ${told.join(", ")}`);
    if (this.differences.length > 0) {
      assert.fail(`${this.name}, ${this.part}: ${this.differences.length} differences, the first:\n${this.differences.slice(0, SHOWN).join("\n")}`);
    }
  }
}

/** Works on a list, `width` items at a time. */
async function inParallel(list, width, work) {
  const rest = [...list.entries()];
  const workers = Array.from({ length: width }, async () => {
    for (let next; (next = rest.shift()); ) await work(next[1], next[0]);
  });
  await Promise.all(workers);
}

const pause = (ms) => new Promise((wake) => setTimeout(wake, ms));
const whole = (random, least, most) => Math.floor(random.between(least, most + 1));

/** Some of the numbers from 1 to `last`, in order. */
function some(random, count, last) {
  const all = Array.from({ length: last }, (_, n) => n + 1);
  if (count >= last) return all;
  while (all.length > count) all.splice(Math.floor(random.random() * all.length), 1);
  return all;
}

// ---------------------------------------------------------------- a play, turn by turn
/** A client's content between turns, and how it begins the next turn. */
class Actor {
  held;
  pending = [];

  constructor(play) {
    this.play = play;
    this.held = { messages: [], state: play.state };
  }

  /** The turn with its answers, and a client that is about to begin it. */
  enter(turn) {
    if (turn.content !== undefined) {
      const message = { id: crypto.randomUUID(), role: "user", content: turn.content };
      this.held = { ...this.held, messages: [...this.held.messages, message] };
    }
    const answers = turn.answer && Object.fromEntries(this.pending.map((one, n) => [one.id, { status: "resolved", payload: turn.answer(one, n) }]));
    return { ...turn, resume: answers && buildResumeArray(this.pending, answers) };
  }

  leave(reader, held) {
    this.held = held;
    this.pending = reader.frames.at(-1).event.outcome?.interrupts ?? [];
  }
}

/** Cancels the run at its `cancelAt`th change of the state. */
function canceller(at, turn) {
  let started;
  let changes = 0;
  return ({ type, metadata }) => {
    if (type === "RUN_STARTED") started ??= metadata?.langgraph;
    if (type === "STATE_DELTA" && ++changes === turn.cancelAt) return cancel({ langgraph: at.langgraph.url }, started.thread_id, started.run_id);
    return undefined;
  };
}

/** Runs the play's turns: `cut(reader, turn, n)` lets a client read each to its end; returns the last turn's client. */
async function perform(at, play, tally, cut) {
  const actor = new Actor(play);
  let last;
  tally.counts.runs += play.turns.length;
  for (const [n, one] of play.turns.entries()) {
    const turn = actor.enter(one);
    const reader = new Reader(play, actor.held);
    const onEvent = turn.cancelAt && canceller(at, turn);
    const readers = [reader, ...((await cut(reader, { ...turn, onEvent }, n)) ?? [])];
    const truth = await truthOf(at.langgraph, play);
    for (const one of readers) tally.add(one);
    for (const viewer of readers.slice(1)) await tally.check(`thread ${play.threadId}, a viewer of turn ${n}`, () => judgeReader(viewer, truth, turn.end));
    actor.leave(reader, await judgeReader(reader, truth, turn.end));
    last = { reader, truth, turn };
  }
  return last;
}

// ---------------------------------------------------------------- ended runs
/** One run after the other, each resumed from its events on the gateway that ran it and on another one. */
async function finished(at, name, random) {
  const tally = new Tally(at.server, name, "finished");
  const play = new Play(name, at.cases[name], QUICK);
  const shape = { events: [], bytes: [] };
  const older = [];
  const ends = new Set(); // ids of older runs' ends
  let idless = 0;
  let numbered = false;
  const resumes = async (reader, turn, truth) => {
    const uncut = reader.frames;
    const count = uncut.length;
    const ids = uncut.filter(isNumbered).map(({ id }) => id);
    idless += count - ids.length;
    numbered ||= ids.length > 1;
    if (new Set(ids).size < ids.length) tally.differences.push("an id is used twice");
    const asked = [];
    const bases = [at.threadway.url, at.second.url];
    const places = some(random, PLAN.indices, count);
    for (const place of places) {
      const chosen = IS_FULL ? bases : [random.one(bases)];
      for (const base of chosen) asked.push({ place, base, route: random.one(["events", "events", "query"]) });
    }
    for (const place of some(random, PLAN.connects, count)) asked.push({ place, base: random.one(bases), route: "connect" });
    await inParallel(asked, 3, async ({ place, base, route }) => {
      const what = `thread ${play.threadId}, run ${uncut[0].event.metadata?.langgraph?.run_id}, ${route} behind event ${place} of ${count}, ${base === at.second.url ? "second" : "first"} gateway`;
      await tally.check(what, () => resume(reader.cutAt(place), uncut, place, { base, route }, { turn, truth }, tally));
    });
    const id = ids.at(-1);
    const strange = ["garbage", id && `${id}.`, id && id.replace(/^2/, "3"), ...older].filter(Boolean);
    for (const id of strange) {
      await tally.check(`thread ${play.threadId}, behind the id ${id}`, async () => {
        const reader = new Reader(play, { messages: [], state: {} });
        const { how, status } = await reader.attach(random.one(bases), { id, route: random.one(ROUTES) });
        tally.counts.cuts += 1;
        // A client with the end of an older run gets nothing more.
        if (how === "ended" && ends.has(id)) return;
        assert.deepEqual([how, status], ["over", 200]);
        await judgeReader(reader, truth, turn.end);
      });
    }
    if (id === uncut.at(-1).id) ends.add(id);
    older.push(...[ids[Math.floor(ids.length / 2)], id].filter(Boolean));
  };
  await tally.check("uncut", async () => {
    const actor = new Actor(play);
    for (const [n, one] of play.turns.entries()) {
      const turn = actor.enter(one);
      const reader = new Reader(play, actor.held);
      const before = at.breaker.passed.get(play.threadId) ?? 0;
      await reader.post(at.threadway.url, turn, { onEvent: turn.cancelAt && canceller(at, turn) });
      tally.counts.runs += 1;
      const truth = await truthOf(at.langgraph, play);
      const held = await judgeReader(reader, truth, turn.end).catch((failure) => {
        throw new Error(`thread ${play.threadId}, turn ${n}: ${failure.message}`);
      });
      shape.events.push(reader.frames.length);
      shape.bytes.push(at.breaker.passed.get(play.threadId) - before);
      await resumes(reader, turn, truth);
      actor.leave(reader, held);
    }
  });
  if (numbered && tally.counts.cuts > 0 && tally.counts.continued === 0) tally.differences.push("nothing that has an id was gone on behind");
  if (idless) tally.notes.push(`${idless} events without an id`);
  return { tally, shape };
}

async function resume(reader, uncut, place, { base, route }, { turn, truth }, tally) {
  const { lastId } = reader;
  const isEnd = place === uncut.length;
  const { how, frames } = await reader.attach(base, { route });
  tally.add(reader);
  tally.counts.cuts += 1;
  if (isEnd && lastId === uncut.at(-1).id && isNumbered({ id: lastId })) {
    assert.equal(how, "ended", "the response after the end");
    return;
  }
  if (!isNumbered({ id: lastId })) assert.equal(how, "over", "the response to a client without an id");
  assert.ok(["continued", "over"].includes(how), `the response was ${how}`);
  // The server may store parts of a cancelled run that its live stream has not sent.
  const parts = (list) => list.filter((frame) => isNumbered(frame) && frame.event.type !== "MESSAGES_SNAPSHOT");
  const more = turn.cancelAt ? parts(frames).length - parts(uncut.slice(place)).length : 0;
  if (how === "continued" && more > 0) {
    compareTail(lastId, uncut.slice(0, -1), parts(frames).slice(0, -1 - more));
  } else if (how === "continued") {
    if (compareTail(lastId, uncut, frames)) tally.counts.spared += 1;
    if (frames.length === uncut.length - place) return; // its content is the uncut one's
  }
  await judgeReader(reader, truth, turn.end);
}

// ---------------------------------------------------------------- live runs
/** Clients that are cut in the middle of the run, and reconnect by any route. */
async function live(at, name, random, shape) {
  const tally = new Tally(at.server, name, "clients cut");
  const viewersOf = 4;
  const plays = Math.ceil(PLAN.live / (viewersOf + 1));
  await inParallel(Array(plays).fill(), 2, () =>
    tally.check("live", async () => {
      const play = new Play(name, at.cases[name], SLOW);
      const base = at.threadway.url;
      await perform(at, play, tally, async (reader, turn, n) => {
        const leaves = (one, last) => async () => {
          tally.counts.cuts += 1;
          if (random.random() < 0.5) await pause(random.between(0, 300));
          await one.finish(() => base, { route: random.one(ROUTES), onEvent: last && turn.onEvent });
        };
        const views = [];
        const watch = async () => {
          const viewer = new Reader(play, { messages: [], state: {} });
          viewers.push(viewer);
          await viewer.attach(base, { stopAt: whole(random, 1, shape.events[n] - 1) });
          await leaves(viewer)();
        };
        const viewers = [];
        const onEvent = (event) => {
          const count = Math.min(viewersOf, PLAN.live - 1);
          if (event.type === "RUN_STARTED") views.push(...Array.from({ length: count }, watch));
          return turn.onEvent?.(event);
        };
        await reader.post(base, turn, { stopAt: stopOf(random, turn, shape.events[n]), onEvent });
        await leaves(reader, true)();
        await Promise.all(views);
        return viewers;
      });
    }),
  );
  return tally;
}

/** Where a client is cut; a client that must cancel its run does that before. */
function stopOf(random, turn, events) {
  return turn.cancelAt ? Infinity : whole(random, 1, events - 1);
}

/** The upstream's connections break, and the client does not notice. */
async function resets(at, name, random, shape) {
  const tally = new Tally(at.server, name, "upstream cut");
  const each = 2; // breaks of one run
  let broken = 0;
  let snapshots = 0;
  await inParallel(Array(Math.ceil(PLAN.resets / each)).fill(), 2, (_, run) =>
    tally.check("upstream cut", async () => {
      const play = new Play(name, at.cases[name], SLOW);
      await perform(at, play, tally, async (reader, turn, n) => {
        // A run that its client must cancel would end by itself in a silence of 30 s.
        const mayBeSilent = run === 0 && IS_FULL && !turn.cancelAt;
        const fuses = Array.from({ length: each }, () => ({
          after: whole(random, 1, shape.bytes[n]),
          manner: random.one(mayBeSilent ? [...MANNERS, "silence"] : MANNERS),
          awayMs: random.random() < 0.2 ? 1500 : 0,
        }));
        at.breaker.fuses.set(play.threadId, fuses);
        const told = fuses.map(({ after, manner, awayMs }) => `${manner} after ${after}${awayMs ? ", away" : ""}`).join("; ");
        const where = `thread ${play.threadId}, turn ${n} (${told})`;
        await reader.post(at.threadway.url, turn, { onEvent: turn.onEvent });
        at.breaker.fuses.delete(play.threadId);
        if (!reader.isDone) throw new Error(`${where}: the client saw the break`);
        await tally.check(where, async () => {
          assert.equal(reader.streams.length, 1);
          const id = reader.frames.find(isNumbered)?.id;
          if (id === undefined) return;
          const place = reader.frames.findIndex((frame) => frame.id === id) + 1;
          const other = reader.cutAt(place);
          const { how, frames } = await other.attach(at.second.url);
          tally.add(other);
          if (how !== "continued") return;
          await judgeReader(other, await truthOf(at.langgraph, play), turn.end);
          if (isCurtailed(reader.frames.slice(place), frames)) snapshots += 1;
          else if (compareTail(id, reader.frames, frames)) tally.counts.spared += 1;
        });
      }).catch((failure) => {
        throw new Error(`thread ${play.threadId}: ${failure.message}`);
      });
      broken += at.breaker.broken.get(play.threadId) ?? 0;
    }),
  );
  tally.counts.cuts += broken;
  if (snapshots) tally.notes.push(`${snapshots} whose rest was a snapshot`);
  return tally;
}

/** The second half of the run comes from another gateway. */
async function second(at, name, random, shape) {
  const tally = new Tally(at.server, name, "second gateway");
  await inParallel(Array(PLAN.second).fill(), 2, () =>
    tally.check("second gateway", async () => {
      const play = new Play(name, at.cases[name], SLOW);
      await perform(at, play, tally, async (reader, turn, n) => {
        const stopAt = stopOf(random, turn, shape.events[n]);
        await reader.post(at.threadway.url, turn, { stopAt, onEvent: turn.onEvent });
        tally.counts.cuts += 1;
        await tally.check(`thread ${play.threadId}, turn ${n}, cut at ${stopAt}`, () => reader.finish(() => at.second.url, { route: random.one(ROUTES) }));
      });
    }),
  );
  return tally;
}

/** The gateway is killed in the middle of the run, and started again. */
async function kills(at, name, random, shape) {
  const tally = new Tally(at.server, name, "gateway killed");
  for (let n = 0; n < PLAN.kills; n++) {
    await tally.check("gateway killed", async () => {
      const play = new Play(name, at.cases[name], SLOW);
      const log = `cut-${at.server.name}-${play.threadId.slice(0, 8)}`;
      let gateway = await startThreadway(log, at.langgraph.url);
      const killed = random.one(play.turns.map((_, turn) => turn));
      await perform(at, play, tally, async (reader, turn, n) => {
        if (n !== killed) {
          await reader.post(gateway.url, turn, { onEvent: turn.onEvent });
          return;
        }
        const stopAt = stopOf(random, turn, shape.events[n]);
        let seen = 0;
        const kill = () => {
          tally.counts.cuts += 1;
          process.kill(gateway.pid, "SIGKILL");
        };
        const onEvent = async (event) => {
          await turn.onEvent?.(event);
          if (++seen === stopAt) kill();
        };
        await reader.post(gateway.url, turn, { onEvent });
        if (seen < stopAt) kill();
        gateway = await startThreadway(log, at.langgraph.url);
        await reader.finish(() => gateway.url, { route: random.one(ROUTES) });
      }).finally(() => gateway.stop());
    });
  }
  return tally;
}

// ---------------------------------------------------------------- LangGraph is killed
/** All of these runs are live when their server is killed. It restarts with the data that it has stored, which then counts. */
async function dies(at, names, signal, random) {
  const tally = new Tally(at.server, names.join(" + "), `LangGraph ${signal}`);
  const gateway = await startThreadway(`cut-${at.server.name}-${signal}-${names[0]}`, at.spare.url);
  const ends = {};
  const readers = [];
  const over = new Set(); // readers that got the end from the server's first process
  const kill = async () => {
    await pause(random.between(...KILL_MS[signal]));
    await at.spare.kill(signal);
    for (const reader of readers) if (reader.isDone) over.add(reader);
    await at.spare.restart();
  };
  const actors = names.map((name) => new Actor(new Play(name, at.cases[name], SLOWEST, QUICK)));
  await inParallel(actors, actors.length, (actor) =>
    tally.check(actor.play.name, async () => {
      for (const one of actor.play.turns.slice(0, -1)) {
        const turn = actor.enter(one);
        const reader = new Reader(actor.play, actor.held);
        await reader.post(gateway.url, turn);
        actor.leave(reader, await reader.hold());
      }
    }),
  );
  let waiting = actors.length;
  let begin;
  const killed = new Promise((resolve) => {
    begin = resolve;
  }).then(kill);
  const isUnderWay = () => {
    if (--waiting === 0) begin();
  };
  await inParallel(actors, actors.length, async (actor) => {
    const { play } = actor;
    const turn = actor.enter(play.turns.at(-1));
    const reader = new Reader(play, actor.held);
    await tally.check(`${play.name}, thread ${play.threadId}`, async () => {
      const posted = reader.post(gateway.url, turn, { onEvent: ({ type }) => type === "RUN_STARTED" && isUnderWay() });
      tally.counts.runs += 1;
      readers.push(reader);
      await killed;
      if (over.has(reader)) {
        ends.over = (ends.over ?? 0) + 1;
        return;
      }
      const runId = reader.frames[0].event.metadata?.langgraph?.run_id;
      const status = await outcome(at, play.threadId, runId);
      await posted;
      await reader.finish(() => gateway.url);
      tally.add(reader);
      const terminal = reader.frames.at(-1).event;
      const end = `${status}: ${terminal.type === "RUN_ERROR" ? terminal.code : (terminal.outcome?.type ?? "finished")}`;
      ends[end] = (ends[end] ?? 0) + 1;
      const told = `the run: ${runId}, ${status}; its end: ${JSON.stringify(terminal).slice(0, 300)}`;
      if (status === "no thread") {
        assert.equal(terminal.type, "RUN_ERROR", `the thread is gone; ${told}`);
        return;
      }
      const truth = await truthOf(at.spareLanggraph, play, { isLeftBusy: status.includes("deleted") });
      await judgeReader(reader, truth, undefined, { isRestarted: true }).catch((failure) => {
        throw new Error(`${failure.message}; ${told}`);
      });
    });
  });
  tally.counts.cuts += names.length;
  tally.notes.push(...Object.entries(ends).map(([end, count]) => `${count} ${end}`));
  await gateway.stop();
  return tally.stop();
}

/** LangGraph's final data about a run; a run that does not end is deleted. */
async function outcome(at, threadId, runId) {
  const path = `/threads/${threadId}/runs/${runId}`;
  const status = async () => {
    const record = await fetch(at.spare.url + path);
    if (record.ok) return (await record.json()).status;
    return (await fetch(`${at.spare.url}/threads/${threadId}`)).ok ? "no run" : "no thread";
  };
  for (const end = performance.now() + GONE_MS[at.server.software]; performance.now() < end; await pause(200)) {
    const now = await status();
    if (!["pending", "running"].includes(now)) return now;
  }
  const before = await status();
  const deleted = await fetch(`${at.spare.url}${path}`, { method: "DELETE" });
  // aegra deletes a run that it takes for a live one only so.
  if (deleted.status === 409) await fetch(`${at.spare.url}${path}?force=1`, { method: "DELETE" });
  return `${before} until it was deleted, ${await status()}`;
}

// ---------------------------------------------------------------- the suites
describe("cut", { concurrency: SERVERS.length, ...TIMEOUT }, () => {
  for (const server of SERVERS) {
    const random = seeded(server.name);
    const cases = casesOf(server);
    const names = Object.keys(cases).filter((name) => CHOSEN.length === 0 || CHOSEN.includes(name));
    if (names.length === 0) continue;
    const at = { server, cases, langgraph: new Langgraph(server) };
    const shuffled = () => names.map((name) => [random.random(), name]).sort(([a], [b]) => a - b).map(([, name]) => name);
    const chosen = Object.fromEntries(["live", "resets", "second", "kills"].map((part) => [part, shuffled().slice(0, PLAN.cases)]));

    describe(`on the ${server.name} server`, { concurrency: CONCURRENCY, ...TIMEOUT }, () => {
      before(async () => {
        at.breaker = await Breaker.start(server.langgraph);
        at.threadway = await startThreadway(`cut-${server.name}-first`, at.breaker.url);
        at.second = await startThreadway(`cut-${server.name}-second`, server.langgraph);
      });

      after(async () => {
        await Promise.all([at.threadway?.stop(), at.second?.stop()]);
        at.breaker?.close();
        at.spare?.kill("SIGKILL");
      });

      test("when LangGraph dies", TIMEOUT, async (context) => {
        at.spare = await Spare.start(server.name, server.spare);
        at.spareLanggraph = new Langgraph({ ...server, langgraph: at.spare.url });
        const able = shuffled().filter((name) => !cases[name].turns.some(({ cancelAt }) => cancelAt));
        const batches = [];
        while (able.length > 0 && batches.length < PLAN.batches) batches.push(able.splice(0, BATCH));
        const tallies = [];
        for (const batch of batches) {
          for (const signal of SIGNALS) tallies.push(await dies(at, batch, signal, seeded(`${server.name} ${signal} ${batch}`)));
        }
        for (const tally of tallies) await context.test(tally.part, () => tally.end());
      });

      for (const name of names) {
        const skip = name === "endless" && without(server, "error");
        test(name, { ...TIMEOUT, skip }, async (context) => {
          const { tally, shape } = await finished(at, name, seeded(`${server.name} ${name} finished`));
          await context.test("finished", () => tally.end());
          if (shape.events.length < cases[name].turns.length) return;
          for (const [part, work] of Object.entries({ live, resets, second, kills })) {
            if (!chosen[part].includes(name)) continue;
            const tally = await work(at, name, seeded(`${server.name} ${name} ${part}`), shape);
            await context.test(part, () => tally.end());
          }
        });
      }
    });
  }
});

test("the clients warned of nothing", () => {
  assert.deepEqual(warnings, []);
});
