// Clients that come and go while the parts of a cluster die, for `integration/cluster`. They start runs, watch them, cut
// themselves, come back through another replica, answer questions and stop runs. At the end each must hold LangGraph's thread.
//
// stdin: one JSON object per line, {"what": "killed" | "up" | "over", "part", "at"}. It prints the table of the kills, and exits
// with status 1 if something was lost, doubled or stuck.

import { createInterface } from "node:readline";
import { randomUUID } from "node:crypto";
import { appendFileSync } from "node:fs";
import { buildResumeArray } from "@ag-ui/client";
import { Play } from "./cases.mjs";
import { judgeReader, Reader, ROUTES, truthOf } from "./cut.mjs";
import { cancelled, interrupt, same, success } from "./judge.mjs";
import { Langgraph } from "./langgraph.mjs";
import { LOGS } from "./logs.mjs";
import { SEED, seeded } from "./seeded.mjs";
import { interruptIds, ofClient, ofThread } from "./thread.mjs";

const TALKS = Number(process.env.TALKS ?? 10);
const EDGE = process.env.THREADWAY_URL;
const REPLICAS = process.env.THREADWAYS.split(",");
const SERVER = { name: "Python", langgraph: process.env.LANGGRAPH_URL, threadway: EDGE };
const PACE = 0.25; // seconds between tokens
const RETRY_MS = 300; // between two attempts to connect
const DOUBT_MS = 1000; // before a client looks whether its request has started a run
const HELD_UP_MS = 1500; // a longer silence is a wait; tokens come every PACE
const BLAMED_MS = 60_000; // a cut or a failure after that has no kill to blame
const LEFT_MS = 180_000; // a run without progress for so long is stopped, as a user would. aegra retries a lost one within 135 s
const STUCK_MS = 400_000; // a client that has no end after so much silence is stuck
const PATIENCE_MS = 120_000; // how long a question to LangGraph is repeated
const RESPONSE_MS = 600_000;
const FOLLOWER_MS = 60_000; // until a follower shows the thread, after all runs
const AWAY = [404, 409, 500, 502, 503, 504];
const SHOWN = 12;

const say = (script, end = success) => ({ script, end });
/** The conversations. Their runs last 3 to 12 s, so that each kill finds some. */
const CASES = {
  text: { graph: "text", turns: [say({})], words: 30 },
  "text twice": { graph: "text", turns: [say({}), say({})], words: 16 },
  agent: { graph: "agent", turns: [say({ flavour: "v1" })], words: 24 },
  "agent slow tool": { graph: "agent", turns: [say({ tool_sleep: 1, tool_index: 0 })], words: 16 },
  counter: { graph: "counter", turns: [say({})], words: 20 },
  hitl: { graph: "hitl", turns: [say({}, interrupt), { answer: () => ({ approved: true }), end: success }], words: 16 },
  question: { graph: "interrupt_node", turns: [say({}, interrupt), { answer: () => "yes", end: success }] },
  slow: { graph: "slow", turns: [{ end: success }], state: (delay) => ({ steps: 20, delay: 2 * delay, size: 500 }) },
  stopped: { graph: "slow", turns: [{ end: cancelled, stopAt: 5 }], state: () => ({ steps: 200, delay: 0.5, size: 100 }) },
};

console.warn = console.error = () => {}; // the client also throws its errors
const langgraph = new Langgraph(SERVER);
const pause = (ms) => new Promise((wake) => setTimeout(wake, ms));

/** Repeats a request until its server is there. */
async function patiently(ask) {
  for (const end = Date.now() + PATIENCE_MS; ; await pause(RETRY_MS)) {
    try {
      return await ask();
    } catch (failure) {
      if (Date.now() > end) throw failure;
    }
  }
}

// ---------------------------------------------------------------- what happens
const kills = []; // { part, at, up }
const events = []; // { at, what, ... }: broken streams, failed runs
const clients = []; // every starter and watcher: { began, ended, gaps }
/** What is wrong, also in a file as soon as it is found. */
const faults = {
  list: [],
  push(fault) {
    this.list.push(fault);
    appendFileSync(new URL("faults.txt", LOGS), `${new Date().toISOString()} ${fault}\n\n`);
  },
  get length() {
    return this.list.length;
  },
};
const counts = {};
let isOver = false;
let overAt = Infinity;
const count = (what) => (counts[what] = (counts[what] ?? 0) + 1);
const note = (what, more) => events.push({ at: Date.now(), what, ...more });

createInterface({ input: process.stdin }).on("line", (line) => {
  const { what, part, at } = JSON.parse(line);
  if (what === "killed") kills.push({ part, at });
  if (what === "up") kills.findLast((kill) => kill.part === part).up = at;
  if (what === "over") {
    isOver = true;
    overAt = at;
  }
});

/** A client's silences while it waited for events of a run. */
class Watchdog {
  gaps = [];

  constructor(kind, where = "") {
    Object.assign(this, { kind, where, began: Date.now(), last: Date.now() });
    clients.push(this);
  }

  seen() {
    const now = Date.now();
    if (now - this.last > HELD_UP_MS) this.gaps.push({ from: this.last, to: now });
    this.last = now;
  }

  end() {
    this.seen();
    this.ended = Date.now();
  }
}

// ---------------------------------------------------------------- clients
function readerOf(play, sent) {
  return Object.assign(new Reader(play, sent), { began: Date.now(), awayStatuses: AWAY, responseMs: RESPONSE_MS });
}

const baseOf = (random) => (random.random() < 0.5 ? EDGE : random.one(REPLICAS));

/** Connects again and again until the run has ended. A run that LangGraph has left alone is stopped. */
async function finish(reader, dog, random, route, { stopAt = Infinity, onEvent } = {}) {
  let cut = stopAt;
  while (!reader.isDone) {
    const limit = cut;
    const { how, frames, status, text } = await watched(reader, dog, (signal) =>
      reader.attach(baseOf(random), { route, stopAt: cut, signal, onEvent: async (event) => (dog.seen(), await onEvent?.(event)) }));
    cut = Infinity;
    if (!reader.isDone && how !== "lost" && frames.length > 0 && frames.length < limit) note("cut");
    if (how === "lost") count("streams that the gateway gave up");
    if (how === "away" && status === 404 && dog.mayBeMissing) return "missing";
    if (how === "away" && status === 500) note("500", { text });
    if (!reader.isDone && frames.length === 0) await pause(RETRY_MS);
  }
  return "done";
}

/** Runs one request. A silence of LEFT_MS stops the run, and one of STUCK_MS ends the test of this client. */
async function watched(reader, dog, ask) {
  const leave = new AbortController();
  const { threadId, graph } = reader.play;
  const timer = setInterval(async () => {
    const silence = Date.now() - dog.last;
    if (silence > STUCK_MS) {
      dog.isStuck = true;
      leave.abort();
    }
    if (silence > LEFT_MS && !dog.hasStopped) {
      dog.hasStopped = true;
      const [run] = await patiently(() => langgraph.get(`/threads/${threadId}/runs?limit=1`));
      const stopped = await patiently(() => stop(graph, threadId));
      note("left", { threadId, status: run?.status, runId: run?.run_id, stopped });
    }
  }, 1000);
  try {
    const answer = await ask(leave.signal);
    if (dog.isStuck) throw new Error(`stuck: no event for ${STUCK_MS / 1000} s`);
    return answer;
  } finally {
    clearInterval(timer);
  }
}

async function stop(graph, threadId) {
  const response = await fetch(`${EDGE}/agui/agent/${graph}/stop/${threadId}`, { method: "POST", headers: { connection: "close" } });
  const text = await response.text();
  if (response.status >= 500) throw new Error(`stop: ${response.status} ${text}`);
  return response.status;
}

/** Starts the turn's run. A client whose request broke before its first event looks whether the run is there, and asks again if not. */
async function begin(reader, turn, dog, random, options) {
  for (const end = Date.now() + STUCK_MS; ; ) {
    if (Date.now() > end) throw new Error("stuck: the run could not be started");
    const answer = await watched(reader, dog, (signal) => reader.post(EDGE, turn, { ...options, signal }));
    if (reader.streams.length > 0) {
      if (answer.how !== "lost" && !reader.isDone && answer.frames.length < options.stopAt) note("cut");
      return;
    }
    if (answer.how === "away") note("refused", { status: answer.status, text: answer.text });
    count("requests to start a run that got no event");
    await pause(DOUBT_MS);
    const probe = readerOf(reader.play, { messages: [], state: {} });
    if ((await finish(probe, Object.assign(new Watchdog("probe"), { mayBeMissing: true }), random, "events")) === "missing") continue;
    if (await isStarted(probe, reader, turn)) {
      // The run is there, and may be over. The client holds what the probe got.
      reader.streams.push(...probe.streams);
      Object.assign(reader, { isDone: true, lastId: probe.lastId, isOfRun: false });
      return;
    }
    count("requests sent again");
  }
}

/** Whether the turn's message or answer is in what the probe holds. */
async function isStarted(probe, reader, turn) {
  const held = await probe.hold();
  if (turn.resume) {
    const open = (probe.frames.at(-1).event.outcome?.interrupts ?? []).map(({ id }) => id);
    return turn.resume.every(({ interruptId }) => !open.includes(interruptId));
  }
  if (turn.content === undefined) return held.state?.i > 0;
  const mine = reader.sent.messages.at(-1).id;
  return held.messages.some(({ id }) => id === mine);
}

/** A follower of a thread through all of its runs, as an EventSource. */
class Follower {
  constructor(play, random) {
    this.reader = Object.assign(readerOf(play, { messages: [], state: {} }), { isFollower: true });
    Object.assign(this, { random, leave: new AbortController() });
    this.done = this.#run();
  }

  async #run() {
    while (!this.leave.signal.aborted) {
      const { how, frames } = await this.reader.attach(baseOf(this.random), { route: "follow", signal: this.leave.signal });
      if (this.leave.signal.aborted) return;
      if (how !== "ended" && frames.length > 0) note("cut");
      await pause(RETRY_MS);
    }
  }

  /** Waits until it holds the thread. */
  async judge(truth, play) {
    let difference;
    for (const end = Date.now() + FOLLOWER_MS; Date.now() < end; await pause(500)) {
      try {
        const held = await this.reader.hold();
        same(ofClient(held.messages), ofThread(truth.state.values, play.threadId), "the follower's messages");
        return;
      } catch (failure) {
        difference = failure;
      }
    }
    difference.message += `; all of it: ${this.reader.keep()}`;
    throw difference;
  }

  async stop() {
    this.leave.abort();
    await this.done;
  }
}

// ---------------------------------------------------------------- conversations
/** The last run of the thread, once it is over, and the end that it has by LangGraph's record. */
async function endOf(threadId) {
  return patiently(async () => {
    const runs = await langgraph.get(`/threads/${threadId}/runs?limit=10`);
    if (["pending", "running"].includes(runs[0]?.status)) throw new Error(`run ${runs[0].run_id} is ${runs[0].status}`);
    return { run: runs[0], runs };
  });
}

function outcomeOf(run, state) {
  if (run.status === "success") return success;
  if (run.status === "interrupted") return interruptIds(state).length > 0 ? interrupt : cancelled;
  return undefined;
}

async function talk(name, random) {
  const play = new Play(name, CASES[name], PACE, PACE);
  let held = { messages: [], state: play.state };
  let pending = [];
  const follower = random.random() < 0.4 ? new Follower(play, random) : undefined;
  try {
    for (const [n, one] of play.turns.entries()) {
      const where = `${name}, turn ${n}, thread ${play.threadId}`;
      if (one.content !== undefined) held = { ...held, messages: [...held.messages, { id: randomUUID(), role: "user", content: one.content }] };
      const answers = one.answer && Object.fromEntries(pending.map((asked, k) => [asked.id, { status: "resolved", payload: one.answer(asked, k) }]));
      const turn = { ...one, resume: answers && buildResumeArray(pending, answers) };
      const result = await turnOf(play, turn, held, random, where);
      if (!result) return;
      const { reader, watchers, truth, run, runs } = result;
      if (!run) return;
      count("runs");
      if (runs.length > n + 1) count("runs that a client started twice, because its first request was in doubt");
      const end = outcomeOf(run, truth.state);
      const last = reader.frames.at(-1)?.event;
      if (!end) note("failed", { seen: `${last.type} ${last.code ?? last.metadata?.langgraph?.error?.code ?? ""}`, why: run.error_message });
      // LangGraph runs a turn again whose worker died, on top of what the first attempt has stored.
      const texts = play.texts.filter((text) => truth.messages.filter(({ role, content }) => role === "assistant" && content === text).length < 2);
      if (texts.length < play.texts.length) count("runs that LangGraph's thread holds twice, because a worker died after its last step");
      for (const [who, client] of [["starter", reader], ...watchers.map((watcher) => ["watcher", watcher])]) {
        client.play = Object.assign(Object.create(Object.getPrototypeOf(play)), play, { texts });
        try {
          const now = await judgeShown(client, truth, end);
          if (client === reader) held = now;
          count("clients judged");
        } catch (failure) {
          faults.push(`${where}, ${who}, run ${run.run_id} (${run.status}, ${runs.length} runs): ${failure.message}`);
          if (client === reader) return;
        }
      }
      pending = last.outcome?.interrupts ?? [];
      if (!end || end.outcome !== one.end.outcome) return; // the rest of the conversation would be another one
      if (n === play.turns.length - 1 && follower) {
        await follower.judge(truth, play).then(() => count("followers judged"), (failure) => faults.push(`${where}, follower: ${failure.message}`));
      }
    }
  } finally {
    await follower?.stop().catch((failure) => faults.push(`${name}, thread ${play.threadId}, follower: ${failure.message}`));
  }
}

/**
 * Judges a client. If Redis died during the run and has forgotten the tokens before, the client may be shown a text with a
 * hole until the text's message is whole. The end counts then.
 */
async function judgeShown(client, truth, end) {
  try {
    return await judgeReader(client, truth, end);
  } catch (failure) {
    const redis = kills.some(({ part, at }) => part === "redis" && at > client.began - BLAMED_MS);
    if (!redis) throw failure;
    const held = await judgeReader(client, truth, end, { isFinalOnly: true });
    note("hole", { why: failure.message });
    return held;
  }
}

/** One turn: its starter, and watchers that come at any moment. */
async function turnOf(play, turn, held, random, where) {
  const reader = readerOf(play, held);
  const dog = new Watchdog("starter", where);
  const watchers = [];
  const views = [];
  const route = random.one(ROUTES);
  const watch = async (kind, wait) => {
    await pause(wait);
    const watcher = readerOf(play, { messages: [], state: {} });
    const own = new Watchdog("watcher", where);
    watchers.push(watcher);
    try {
      await finish(watcher, own, random, kind, { stopAt: random.random() < 0.5 ? 1 + Math.floor(random.between(0, 20)) : Infinity });
    } catch (failure) {
      faults.push(`${where}, watcher: ${failure.message}`);
    } finally {
      own.end();
    }
  };
  let changes = 0;
  let stopped;
  const onEvent = async ({ type }) => {
    dog.seen();
    if (type === "RUN_STARTED" && views.length === 0) {
      const number = Math.floor(random.between(0, 3));
      for (let k = 0; k < number; k++) views.push(watch(random.one(ROUTES), random.between(0, 4000)));
    }
    if (turn.stopAt && type.startsWith("STATE_") && ++changes >= turn.stopAt && !stopped) stopped = stopUntilDone(play, reader);
  };
  const isCut = random.random() < 0.5;
  try {
    await begin(reader, turn, dog, random, { onEvent, stopAt: isCut ? 1 + Math.floor(random.between(0, 25)) : Infinity });
    if (!reader.isDone && isCut && random.random() < 0.5) await pause(random.between(0, 2000));
    await finish(reader, dog, random, route, { onEvent });
    dog.end();
    await Promise.all(views);
    await stopped;
    const { run, runs } = await endOf(play.threadId);
    if (!run) {
      // The run was never there. Its client must have been told.
      const { type, code } = reader.frames.at(-1).event;
      note("failed", { seen: `${type} ${code}`, why: "LangGraph has no such run" });
      if (type !== "RUN_ERROR") throw new Error(`LangGraph has no run, and the client got ${type}`);
      return {};
    }
    const truth = await patiently(() => truthOf(langgraph, play));
    return { reader, watchers, truth, run, runs };
  } catch (failure) {
    dog.end();
    await Promise.all(views);
    const record = await patiently(() => langgraph.get(`/threads/${play.threadId}/runs?limit=1`)).catch(() => []);
    faults.push(`${where}, starter (${record[0]?.run_id} is ${record[0]?.status}): ${failure.message}`);
    return undefined;
  }
}

/** Stops the run as a user does: a press of the button that had no effect is repeated. */
async function stopUntilDone(play, reader) {
  for (let presses = 1; !reader.isDone; presses++) {
    await patiently(() => stop(play.graph, play.threadId)).catch((failure) => faults.push(`${play.name}, thread ${play.threadId}: ${failure.message}`));
    if (presses === 2) count("stops that had to be repeated after 15 s");
    for (const end = Date.now() + 15_000; Date.now() < end && !reader.isDone; ) await pause(200);
  }
}

// ---------------------------------------------------------------- the table
const percentile = (list, part) => (list.length === 0 ? 0 : list[Math.min(list.length - 1, Math.ceil(part * list.length) - 1)]);
const seconds = (ms) => (ms / 1000).toFixed(1);
const blamed = (at) => kills.findLast((kill) => kill.at <= at && at - kill.at < BLAMED_MS);

/** How often each word comes. */
function tally(words) {
  const found = new Map();
  for (const word of words) found.set(word, (found.get(word) ?? 0) + 1);
  return [...found];
}

function table() {
  const rows = new Map();
  const row = (part) => {
    if (!rows.has(part)) rows.set(part, { kills: 0, cut: 0, failed: [], present: 0, waits: [], down: [] });
    return rows.get(part);
  };
  for (const { part, at, up } of kills) {
    row(part).kills += 1;
    if (up) row(part).down.push(up - at);
  }
  for (const { at, what, seen } of events) {
    if (what === "cut") row(blamed(at)?.part ?? "none").cut += 1;
    if (what === "failed") row(blamed(at)?.part ?? "none").failed.push(seen);
  }
  for (const { began, ended = Date.now(), gaps, kind } of clients) {
    if (kind === "probe") continue;
    for (const kill of kills) {
      if (kill.at < began || kill.at > ended) continue;
      const gap = gaps.find(({ from, to }) => from <= kill.at && kill.at < to);
      if (gap && kills.some((other) => other !== kill && other.at >= gap.from - HELD_UP_MS && other.at < kill.at)) continue; // the wait is that one's
      row(kill.part).present += 1;
      if (gap) row(kill.part).waits.push(gap.to - kill.at);
    }
  }
  console.log("| part | kills | back after, median | streams cut | runs that failed, as the client saw it | clients that read a run | of them waited | median | p99 | longest |");
  console.log("|---|--:|--:|--:|---|--:|--:|--:|--:|--:|");
  for (const [part, { kills: number, cut, failed, present, waits, down }] of [...rows].sort(([a], [b]) => (a < b ? -1 : 1))) {
    const sorted = waits.sort((a, b) => a - b);
    const ends = tally(failed).map(([one, number]) => `${number} ${one}`).join(", ") || "none";
    const times = [0.5, 0.99, 1].map((part) => `${seconds(percentile(sorted, part))} s`);
    console.log(`| ${[part, number, `${seconds(percentile(down.sort((a, b) => a - b), 0.5))} s`, cut, ends, present, sorted.length, ...times].join(" | ")} |`);
  }
}

function report() {
  table();
  for (const [what, number] of Object.entries(counts)) console.log(`# ${number} ${what}`);
  const of = (what) => events.filter((event) => event.what === what);
  console.log(`# ${of("left").length} runs that LangGraph left alone, and a client stopped: ${JSON.stringify(of("left").map(({ status, stopped }) => `${status}, stop answered ${stopped}`))}`);
  const refusals = tally(of("refused").map(({ status, text }) => `${status} ${text.slice(0, 160)}`)).map(([what, number]) => `${number} times ${what}`);
  console.log(`# requests to start a run that were refused: ${refusals.join("; ") || "none"}`);
  console.log(`# ${of("hole").length} clients were shown a text with a hole, until it was whole: Redis had forgotten it`);
  for (const { why, seen } of of("failed").slice(0, SHOWN)) console.log(`# a failed run: ${seen}, by its record: ${why}`);
  for (const { text } of of("500").slice(0, 3)) console.log(`# a 500: ${text}`);
  const waits = clients.flatMap(({ kind, where, gaps }) => gaps.map(({ from, to }) => ({ kind, where, from, to, ms: to - from })));
  for (const { kind, where, from, to, ms } of waits.sort((a, b) => b.ms - a.ms).slice(0, 6)) {
    const dead = kills.filter(({ at }) => at > from - 1000 && at < to).map(({ part }) => part);
    console.log(`# a long wait: ${seconds(ms)} s from ${new Date(from).toISOString()}, ${kind} of ${where}; killed: ${dead.join(", ")}`);
  }
  console.log(faults.length === 0 ? "# nothing lost, nothing doubled, nobody stuck" : `# ${faults.length} FAULTS`);
  for (const fault of faults.list.slice(0, SHOWN)) console.log(`- ${fault}`);
}

// ---------------------------------------------------------------- all of it
async function talker(n) {
  const random = seeded(`talker ${n}`);
  const names = Object.keys(CASES);
  await pause(random.between(0, 3000));
  for (let k = 0; !isOver; k++) {
    await talk(random.one(names), seeded(`talker ${n} talk ${k}`)).catch((failure) => faults.push(`talker ${n}: ${failure.stack}`));
  }
}

const status = setInterval(() => {
  console.log(`# ${counts.runs ?? 0} runs, ${counts["clients judged"] ?? 0} clients judged, ${kills.length} kills, ${faults.length} faults`);
}, 30_000);
await Promise.all(Array.from({ length: TALKS }, (_, n) => talker(n)));
clearInterval(status);
console.log(`# seed ${SEED}; the last client was whole ${seconds(Math.max(0, Date.now() - overAt))} s after the end of the kills`);
report();
process.exit(faults.length === 0 ? 0 : 1);
