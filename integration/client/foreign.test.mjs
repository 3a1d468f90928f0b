// Clients that connect at any moment to runs that they did not start, on real LangGraph servers, through a threadway with a
// counting proxy in front of LangGraph. LangGraph's checkpoints and records show the expected result.
//
// SEED=... repeats the choices of a run.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { writeFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { Gate } from "./gate.mjs";
import { clientOf, GENERATIONS, SERVERS } from "./gateway.mjs";
import { cancelled, Facts, failed, interrupt, judge, showsNow, success } from "./judge.mjs";
import { Langgraph, runOf } from "./langgraph.mjs";
import { without } from "./limits.mjs";
import { LOGS } from "./logs.mjs";
import { Proxy } from "./proxy.mjs";
import { SEED, seeded } from "./seeded.mjs";
import { startThreadway } from "./threadway.mjs";
import { KINDS, Viewer } from "./viewers.mjs";

const IS_FULL = process.env.FULL === "1"; // all combinations, each with all viewers; else a sample by the seed
const VIEWERS = IS_FULL ? 20 : 12;
const CONCURRENCY = 6; // runs at a time on each server
const OPTIONS = { concurrency: CONCURRENCY, timeout: 1_800_000 }; // for all runs on one server, on a busy machine
const TEST = { timeout: 240_000 };
const PATIENCE_MS = 90_000; // what has not come by then does not come
const MIDDLE = 4; // the number of a chunk that every model has, with others before and after it
console.log(`# SEED=${SEED}`);

// The client only warns of members that it drops and of patches that it cannot apply. Both are faults of the gateway.
const warnings = [];
console.warn = (...words) => void warnings.push(words.join(" "));
console.error = () => {}; // the client also throws these errors

const seconds = (count) => new Promise((wake) => setTimeout(wake, count * 1000));
const now = () => performance.now();

// ---------------------------------------------------------------- the runs
const MODES = {
  all: ["values", "updates", "messages", "messages-tuple", "custom", "events", "tasks", "checkpoints", "debug"],
  values: ["values"],
  updates: ["updates"],
  "messages-tuple": ["messages-tuple"],
  events: ["events"],
};
const SAYS_TOKENS = ["all", "messages-tuple", "events"];

/** The texts of a graph's models. */
function scriptOf(graph) {
  const nonce = randomUUID().slice(0, 8);
  const words = Array.from({ length: graph === "parallel" ? 12 : 20 }, (_, i) => `${nonce}.${i} `);
  const whole = words.join("");
  const texts = graph === "parallel" ? [`left: ${whole}`, `right: ${whole}`] : [whole];
  return { script: { words, delay: 0.01, fail_after: 10 }, texts };
}

/** A message that was in the thread before the run. */
function saidBefore() {
  return [
    { role: "user", id: randomUUID(), content: "before" },
    { role: "assistant", id: randomUUID(), content: "this was said before" },
  ];
}

const FAILURE = { Python: "ValueError", JavaScript: "Error" }; // by the graphs

/** The end of a failed run: the JavaScript server's record of a run without readers does not name the exception. */
function failureOn({ software, graphs }, resumable) {
  return software === "JavaScript" && !resumable ? failed(FAILURE[graphs], "run_failed") : failed(FAILURE[graphs]);
}

/** The graphs of each situation, and the end of their runs. */
const SITUATIONS = {
  running: { graphs: ["agent", "text", "counter", "subgraphs", "parallel"], end: () => success },
  pending: { graphs: ["agent", "text", "counter"], end: () => success },
  finished: { graphs: ["agent", "text", "counter", "subgraphs", "parallel"], end: () => success },
  interrupted: { graphs: ["hitl", "interrupt_child", "asking_node", "asking_tool", "asking_two"], end: () => interrupt },
  failed: { graphs: ["failing"], end: failureOn },
  cancelled: { graphs: ["text", "agent", "counter"], end: () => cancelled },
};

/**
 * A run of another client in one situation, and its viewers. They connect before the run, while it is held before its first
 * token, while it is held in the middle, right after it goes on from there, and after its end.
 */
async function combination(at, { situation, resumable, modes }) {
  const { server, langgraph, proxy } = at;
  const { random, between, one } = seeded(`${server.name} ${situation} ${resumable} ${modes}`);
  const { graphs, end: endOf } = SITUATIONS[situation];
  const graph = one(graphs);
  const end = endOf(server, resumable);
  const withSubgraphs = random() < 0.4;
  const options = { stream_mode: MODES[modes], stream_resumable: resumable, stream_subgraphs: withSubgraphs };
  const threadId = await langgraph.thread(graph, { said: random() < 0.5 ? saidBefore() : undefined });
  const audience = new Audience(at, graph, threadId);
  const kinds = Object.keys(KINDS);

  // The first viewer stays from the beginning to the end, so that the gateway keeps reading the run.
  const STAGES = ["before", "start", "flow", "middle", "flow again", "after"];
  const stages = Array.from({ length: VIEWERS }, () => (situation === "finished" ? "after" : one(STAGES)));
  const attach = (stage) => {
    const coming = [...stages.keys()].slice(1).filter((n) => stages[n] === stage);
    // Some leave in the middle, but none before the first viewer is in the run.
    const leavesAfter = (n) => (n % 5 === 4 && stage !== "before" ? Math.ceil(between(0, 12)) : undefined);
    return coming.flatMap((n) => audience.attach([kinds[n % kinds.length]], { leavesAfter: leavesAfter(n) }));
  };
  /** Each viewer of a run that is held must see that it is running, before the run goes on. */
  const seen = async (viewers, runId) => {
    for (const viewer of viewers) await viewer.until("the run", (viewer) => viewer.hasLeft || sees(runId)(viewer));
  };

  const runs = [];
  const texts = [];
  const start = async (end, gate, more) => {
    const { script, texts: own } = scriptOf(graph);
    const { run_id: runId } = await langgraph.run(threadId, graph, { ...script, ...gate?.script }, { ...options, ...more });
    runs.push({ runId, end });
    texts.push(...own);
    return runId;
  };
  let first;
  if (situation !== "finished") {
    [first] = audience.attach(["follow"]);
    await first.until("the thread", ({ frames }) => frames.length > 0);
    attach("before");
  }
  const isDelayed = situation === "pending" && random() < 0.4;
  const earlier = situation === "pending" && !isDelayed ? await Gate.before(0) : undefined;
  if (earlier) {
    const runId = await start(success, earlier);
    await earlier.reached(0);
    await seen([first], runId);
  }
  const gate = situation === "finished" ? undefined : await Gate.before(0, MIDDLE);
  const runId = await start(end, gate, isDelayed ? { after_seconds: 1 } : {});
  const answered = now();
  if (earlier) {
    await seen(audience.attach(["connect", "events"]), runs[0].runId);
    earlier.open();
  }
  if (gate) {
    await gate.reached(0);
    await seen([first], runId);
    await seen(attach("start"), runId);
    gate.open(0);
    attach("flow");
    await gate.reached(MIDDLE);
    await seen(attach("middle"), runId);
    if (situation === "cancelled") await langgraph.cancel(threadId, runId);
    else gate.open();
    attach("flow again");
  }
  const { last: lastAlive } = await langgraph.ended(threadId, runId);
  gate?.open();
  const facts = await Facts.gather(langgraph, threadId, runs, { answered, lastAlive });
  if (situation === "finished") audience.attach(["follow"]);
  attach("after");
  await audience.leaveAndJudge(facts, texts);
  const isJoined = resumable || server.software !== "JavaScript";
  for (const run of runs) checkJoins(at, run.runId, isJoined ? 1 : 0, run.runId === runId ? lastAlive : Infinity);

  // It was connected before the first token, so it must get the tokens, and not only the whole text.
  const mustSeeTokens = resumable && situation === "running" && SAYS_TOKENS.includes(modes) && (graph !== "subgraphs" || withSubgraphs || modes === "events");
  if (mustSeeTokens && !first.frames.some(({ event }) => event.type === "TEXT_MESSAGE_CONTENT")) {
    keepJoins(proxy, facts);
    const joins = proxy.joins(runId).map(({ began, ended, chunks }) => `  joined from ${began.toFixed(0)} to ${ended.toFixed(0)}, ${Buffer.concat(chunks).length} bytes`);
    const shown = [...joins, ...first.frames.map(({ at, text }) => `  ${at.toFixed(0)} ${text.slice(0, 600)}`)].join("\n");
    assert.fail(`the follower of ${graph} saw no token; the run was started at ${answered.toFixed(0)}:\n${shown}`);
  }
}

/**
 * A run that somebody watches all the time is joined once, however many viewers it has, and not at all if a join would take
 * its owner's parts. It may be joined again once LangGraph has ended the first join, and after it was last seen alive. Equal
 * parts in one millisecond around a join may be repeats, which only another join can show (docs/decisions.md): the log counts
 * those.
 */
function checkJoins({ proxy, threadway }, runId, most, lastAlive = Infinity) {
  const joins = proxy.joins(runId);
  const isDoubt = (line) => line.includes(runId) && line.includes("the stream may repeat itself");
  const doubts = threadway.said().split("\n").filter(isDoubt).length;
  const again = joins.slice(1).filter(({ began }, n) => began < Math.min(joins[n].over, lastAlive));
  if (most === 0 ? joins.length === 0 : again.length <= doubts) return;
  const times = joins.map(({ began, over, ended }) => `${began.toFixed(0)} to ${ended.toFixed(0)} (over at ${over.toFixed(0)})`).join(", ");
  assert.fail(`run ${runId}, last seen alive at ${lastAlive.toFixed(0)}, was joined ${joins.length} times: ${times}`);
}

async function untilShown(isOver, viewers, facts, texts) {
  const end = now() + PATIENCE_MS;
  while (!isOver()) {
    if (now() > end) {
      const late = viewers.filter((viewer) => !viewer.hasLeft && viewer.isFollower && !showsNow(viewer, facts));
      if (late[0]) await judge(late[0], facts, texts);
      assert.fail(`${late.length} followers were not shown how the thread is now`);
    }
    await seconds(0.05);
  }
}

async function judgeAll({ proxy }, viewers, facts, texts) {
  const failures = [];
  for (const viewer of viewers) await judge(viewer, facts, texts).catch((failure) => failures.push(failure));
  if (failures.length === 0) return;
  keepJoins(proxy, facts);
  throw new Error(`${failures.length} of ${viewers.length} viewers; the first: ${failures[0].message}`, { cause: failures[0].cause });
}

/** Writes what threadway received next to what its viewers received. */
function keepJoins(proxy, { threadId, runs }) {
  for (const { runId } of runs) {
    for (const [n, { chunks }] of proxy.joins(runId).entries()) writeFileSync(new URL(`foreign-${threadId}-${runId}-${n}.sse`, LOGS), Buffer.concat(chunks));
  }
}

function combinations(at) {
  const all = Object.keys(MODES).flatMap((modes) => [true, false].map((resumable) => ({ modes, resumable })));
  const offset = Math.floor(seeded("sample").random() * all.length);
  for (const [n, situation] of Object.keys(SITUATIONS).entries()) {
    for (const [place, { modes, resumable }] of all.entries()) {
      // Of ten combinations a sample has two: of other modes in each situation, one of them resumable.
      const isSampled = [0, 3].includes((place + offset + 2 * n) % all.length);
      if (!IS_FULL && !isSampled) continue;
      const name = `a ${situation} run with ${modes}, ${resumable ? "" : "not "}resumable`;
      const skip = situation === "pending" && without(at.started, "queue", "delay");
      test(name, { ...TEST, skip }, () => combination(at, { situation, resumable, modes }));
    }
  }
}

// ---------------------------------------------------------------- one by one
/** The viewers of one thread, which connect at chosen moments. */
class Audience {
  viewers = [];
  #watching = [];

  constructor(at, graph, threadId) {
    Object.assign(this, { at, graph, threadId });
  }

  /** Connects one viewer of each kind, or of the kinds named, to this or another threadway. */
  attach(kinds = Object.keys(KINDS), { threadway = this.at.server.threadway, held, onEvent, leavesAfter } = {}) {
    const viewers = kinds.map((kind) => new Viewer(threadway, this.graph, this.threadId, kind, held));
    for (const viewer of viewers) {
      let events = 0;
      const leaves = () => {
        events += 1;
        if (events === leavesAfter) setImmediate(() => viewer.leave()); // the client may not be aborted within its last event
      };
      this.viewers.push(viewer);
      this.#watching.push(viewer.watch({ onEvent: leavesAfter === undefined ? onEvent : leaves }));
    }
    return viewers;
  }

  /** Lets all viewers get the end, and judges each. */
  async leaveAndJudge(facts, texts) {
    const isOver = () => this.viewers.every((viewer) => viewer.hasLeft || !viewer.isFollower || showsNow(viewer, facts));
    await untilShown(isOver, this.viewers, facts, texts);
    for (const viewer of this.viewers) if (viewer.isFollower) viewer.finish();
    await Promise.all(this.#watching);
    await judgeAll(this.at, this.viewers, facts, texts);
  }
}

/** LangGraph's ids of the runs that a viewer got. */
function shownRuns(viewer) {
  return viewer.runs.map(([{ event }]) => event.metadata?.langgraph?.run_id).filter((runId) => runId !== undefined);
}

/** Whether a viewer has an event of a run. */
const sees = (runId) => (viewer) => shownRuns(viewer).includes(runId);

/** Starts a run as a client does that does not use the gateway. */
async function startForeign({ langgraph }, threadId, graph, options = {}, script = {}) {
  const { script: own, texts } = scriptOf(graph);
  const modes = { stream_mode: MODES.all, stream_resumable: true };
  const { run_id: runId } = await langgraph.run(threadId, graph, { ...own, ...script }, { ...modes, ...options });
  return { runId, texts };
}

function named(at) {
  const { software } = at.started;
  const resumables = [true, false];

  test("an unknown thread is empty, and is not created", TEST, async () => {
    const threadId = randomUUID();
    const audience = new Audience(at, "text", threadId);
    const viewers = audience.attach(["connect", "connect 0.0.59", "events"]);
    await audience.leaveAndJudge(Facts.ofNothing(threadId), []);
    for (const { frames } of viewers) assert.deepEqual(frames.map(({ event }) => event.type), ["RUN_STARTED", "RUN_FINISHED"]);
    await assert.rejects(at.langgraph.get(`/threads/${threadId}`), /404/);
  });

  test("a state change without a run", TEST, async () => {
    const threadId = await at.langgraph.thread("counter", { said: saidBefore() });
    const audience = new Audience(at, "counter", threadId);
    const followers = audience.attach().filter((viewer) => viewer.isFollower);
    const shown = async () => {
      const facts = await Facts.gather(at.langgraph, threadId, []);
      await untilShown(() => followers.every((viewer) => showsNow(viewer, facts)), followers, facts, []);
      audience.attach(["connect", "connect 0.0.59", "events"]);
    };
    await shown();
    const note = { role: "assistant", id: randomUUID(), content: "noted" };
    await at.langgraph.update(threadId, "counter", { messages: [note], count: 41 });
    await shown();
    await at.langgraph.update(threadId, "counter", { messages: [{ ...note, content: "noted again, in other words" }], count: 42 });
    await shown();
    const { runId, texts } = await startForeign(at, threadId, "counter");
    await at.langgraph.ended(threadId, runId);
    const facts = await Facts.gather(at.langgraph, threadId, [{ runId, end: success }]);
    await audience.leaveAndJudge(facts, texts);
    for (const follower of followers) {
      assert.equal(follower.runs.length, 4, "what was there, two changes, and a run");
      assert.deepEqual(shownRuns(follower).slice(-1), [runId]);
    }
  });

  for (const resumable of resumables) {
    const how = resumable ? "" : ", not resumable";
    const options = { stream_resumable: resumable };

    /** Starts two runs, the second one while the first is held, and judges all viewers. */
    const queue = async (graph, ends, { between = async () => {}, secondStrategy = "enqueue", isStopped = false } = {}) => {
      const threadId = await at.langgraph.thread(graph, { said: saidBefore() });
      const audience = new Audience(at, graph, threadId);
      const [follower] = audience.attach(["follow"]);
      // A follower does not get runs that ended before its first read.
      await follower.until("the thread", ({ frames }) => frames.length > 0);
      const [one, two] = [await Gate.before(MIDDLE), await Gate.before(0)];
      const first = await startForeign(at, threadId, graph, options, one.script);
      await one.reached(MIDDLE);
      const early = audience.attach(["connect", "connect 0.0.59", "events", "follow"]);
      for (const viewer of [follower, ...early]) await viewer.until("the first run", sees(first.runId));
      const second = await startForeign(at, threadId, graph, { ...options, multitask_strategy: secondStrategy }, { tools: false, ...two.script });
      await between(threadId, first.runId);
      if (!isStopped) one.open();
      await at.langgraph.ended(threadId, first.runId);
      one.open();
      await two.reached(0);
      const late = audience.attach(["connect", "connect 0.0.59", "events"]);
      for (const viewer of [follower, ...late]) await viewer.until("the second run", sees(second.runId));
      two.open();
      await at.langgraph.ended(threadId, second.runId);
      const runs = [first, second].map(({ runId }, n) => ({ runId, end: ends[n] }));
      await audience.leaveAndJudge(await Facts.gather(at.langgraph, threadId, runs), [...first.texts, ...second.texts]);
      for (const viewer of early.slice(0, 3)) assert.deepEqual(shownRuns(viewer), [first.runId]);
      for (const viewer of late) assert.deepEqual(shownRuns(viewer), [second.runId]);
      assert.deepEqual(shownRuns(follower), [first.runId, second.runId]);
    };

    const QUEUED = { ...TEST, skip: without(at.started, "queue") };
    test(`a run queued after another${how}`, QUEUED, () => queue("text", [success, success]));
    test(`a run that raises an interrupt while the next is queued${how}`, QUEUED, () => queue("hitl", [interrupt, success]));
    test(`a run interrupted by the next${how}`, QUEUED, () => queue("text", [cancelled, success], { secondStrategy: "interrupt", isStopped: true }));
    test(`a run cancelled while the next is queued${how}`, QUEUED, () => {
      const cancel = (threadId, runId) => at.langgraph.cancel(threadId, runId);
      return queue("text", [cancelled, success], { between: cancel, isStopped: true });
    });

    test(`a run that is cancelled while it is pending${how}`, { ...TEST, skip: without(at.started, "delay") }, async () => {
      const threadId = await at.langgraph.thread("text", { said: saidBefore() });
      const audience = new Audience(at, "text", threadId);
      const { runId, texts } = await startForeign(at, threadId, "text", { ...options, after_seconds: 60 });
      const viewers = audience.attach(["connect", "connect 0.0.59", "events"]);
      for (const viewer of viewers) await viewer.until("the waiting run", sees(runId));
      await at.langgraph.cancel(threadId, runId);
      await at.langgraph.ended(threadId, runId);
      await audience.leaveAndJudge(await Facts.gather(at.langgraph, threadId, [{ runId, end: cancelled }]), texts);
    });

    test(`every viewer sees a stopped run as cancelled${how}`, TEST, async () => {
      const threadId = await at.langgraph.thread("text");
      const audience = new Audience(at, "text", threadId);
      audience.attach(["follow"]);
      const gate = await Gate.before(MIDDLE);
      const { runId, texts } = await startForeign(at, threadId, "text", options, gate.script);
      await gate.reached(MIDDLE);
      const viewers = audience.attach();
      for (const viewer of viewers) await viewer.until("the run", sees(runId));
      const answer = await fetch(`${at.server.threadway}/agui/agent/text/stop/${threadId}`, { method: "POST" });
      assert.equal((await answer.json()).stopped, true);
      await at.langgraph.ended(threadId, runId);
      gate.open();
      await audience.leaveAndJudge(await Facts.gather(at.langgraph, threadId, [{ runId, end: cancelled }]), texts);
      for (const viewer of viewers) assert.deepEqual(shownRuns(viewer), [runId]);
    });
  }

  for (const modes of SAYS_TOKENS) {
    test(`parallel nodes that finish out of order, with ${modes}`, TEST, async () => {
      const threadId = await at.langgraph.thread("parallel", { said: saidBefore() });
      const audience = new Audience(at, "parallel", threadId);
      const [follower] = audience.attach(["follow"]);
      const gate = await Gate.before(0, MIDDLE);
      const { runId, texts } = await startForeign(at, threadId, "parallel", { stream_mode: MODES[modes] }, gate.script);
      const attach = async () => {
        for (const viewer of audience.attach()) await viewer.until("the run", sees(runId));
      };
      const count = (type) => ({ frames }) => frames.filter(({ event }) => event.type === type).length;
      await gate.reached(0);
      await follower.until("the run", sees(runId));
      await attach();
      gate.open(0);
      // While both are streaming, and when one message is complete.
      for (const side of ["left", "right"]) await gate.reached(`${side}/${MIDDLE}`);
      await follower.until("both models", (viewer) => count("TEXT_MESSAGE_START")(viewer) >= 2);
      await attach();
      gate.open(`right/${MIDDLE}`);
      await follower.until("the end of one", (viewer) => count("TEXT_MESSAGE_END")(viewer) >= 1);
      await attach();
      gate.open();
      await at.langgraph.ended(threadId, runId);
      await audience.leaveAndJudge(await Facts.gather(at.langgraph, threadId, [{ runId, end: success }]), texts);
    });
  }

  const thought = "REASONING_MESSAGE_CONTENT";
  const sentence = "TEXT_MESSAGE_CONTENT";
  // The model is held before a chunk in the middle of its thought (three chunks), or of the sentence after it.
  for (const [where, type, held, company, flavour] of [
    ["thought", thought, 1, "alone", "v1"],
    ["thought", thought, 1, "alone", "anthropic"],
    ["thought", thought, 1, "alone", "reasoning_content"],
    ["thought", thought, 1, "while another one watches", "v1"],
    ["sentence", sentence, 4, "alone", "v1"],
    ["sentence", sentence, 4, "while another one watches", "v1"],
  ]) {
    test(`a client that kept its content connects again in mid-${where}, ${company}, ${flavour} content`, TEST, async () => {
      const threadId = await at.langgraph.thread("agent", { said: saidBefore() });
      const audience = new Audience(at, "agent", threadId);
      if (company !== "alone") audience.attach(["follow"]);
      const gate = await Gate.before(0, held);
      const script = { flavour, words: undefined, tokens: 2, ...gate.script };
      // The gateway sends RUN_STARTED before it has joined the run. Parts of a stream that is not stored would be lost until then.
      const { runId } = await startForeign(at, threadId, "agent", { stream_mode: ["values", "messages-tuple"], stream_resumable: true }, script);
      await gate.reached(0);
      // A client that is attached late gets the beginning in its snapshot.
      const start = type.replace("CONTENT", "START");
      const isShown = (event, { client }) => event.type === type || (event.type === start && (client.messages.at(-1)?.content ?? "") !== "");
      const onEvent = (event, viewer) => void (isShown(event, viewer) && !viewer.hasLeft && viewer.leave());
      const first = audience.attach(["connect", "connect 0.0.59"], { onEvent });
      for (const viewer of audience.viewers) await viewer.until("the run", sees(runId));
      gate.open(0);
      for (const viewer of first) await viewer.until(`a ${where}`, ({ hasLeft }) => hasLeft);
      const again = first.flatMap(({ kind, client }) => {
        const { messages, state } = client;
        assert.ok(messages.some(({ role }) => role === "reasoning"), "the client holds a thought");
        return audience.attach([kind], { held: structuredClone({ messages, state }) });
      });
      for (const viewer of again) await viewer.until("the run", sees(runId));
      gate.open();
      await at.langgraph.ended(threadId, runId);
      await audience.leaveAndJudge(await Facts.gather(at.langgraph, threadId, [{ runId, end: success }]), ["tok0 tok1 "]);
    });
  }

  test("the viewers of a run that a gateway started see its client's run id, also through a second threadway", TEST, async () => {
    const Client = clientOf(at.server, GENERATIONS[0]);
    const owner = new Client("text");
    const { script, texts } = scriptOf("text");
    const audience = new Audience(at, "text", owner.threadId);
    audience.attach(["follow"]);
    audience.attach(["follow"], { threadway: at.server.second });
    const gate = await Gate.before(MIDDLE);
    owner.say({ ...script, ...gate.script });
    let runId;
    const shownId = `run of a client ${randomUUID()}`;
    let ran;
    await new Promise((resolve, reject) => {
      const onEvent = ({ event: { type, metadata } }) => {
        if (type === "RUN_STARTED") runId = metadata.langgraph.run_id;
        if (type === "TEXT_MESSAGE_START") resolve();
      };
      ran = owner.runAgent({ runId: shownId }, { onEvent });
      ran.catch(reject);
    });
    audience.attach();
    audience.attach(Object.keys(KINDS), { threadway: at.server.second });
    for (const viewer of audience.viewers) await viewer.until("the run", sees(runId));
    gate.open();
    await ran;
    const facts = await Facts.gather(at.langgraph, owner.threadId, [{ runId, end: success, shownId }]);
    await audience.leaveAndJudge(facts, texts);
    for (const viewer of audience.viewers) assert.deepEqual(shownRuns(viewer), [runId]);
  });

  if (software === "JavaScript") {
    test("the client that started a run that is not resumable loses no event while 20 viewers watch", TEST, async () => {
      const { script, texts } = scriptOf("agent");
      const gate = await Gate.before(MIDDLE);
      const threads = [await at.langgraph.thread("agent"), await at.langgraph.thread("agent")];
      const stream = async (threadId, more = {}, onFrame = () => {}) => {
        const body = { ...runOf("agent", { ...script, ...more }), stream_mode: ["values", "updates", "messages-tuple", "custom"], stream_resumable: false };
        const headers = { "content-type": "application/json" };
        const response = await fetch(`${at.langgraph.url}/threads/${threadId}/runs/stream`, { method: "POST", headers, body: JSON.stringify(body) });
        const names = [];
        let rest = "";
        for await (const text of response.body.pipeThrough(new TextDecoderStream())) {
          const blocks = (rest + text).split("\n\n");
          rest = blocks.pop();
          names.push(...blocks.map((block) => /^event: (.*)$/m.exec(block)?.[1]));
          onFrame();
        }
        return names.filter((name) => name !== undefined); // a held run has heartbeats
      };
      const undisturbed = await stream(threads[0]);
      const audience = new Audience(at, "agent", threads[1]);
      let streamed;
      await new Promise((resolve, reject) => {
        streamed = stream(threads[1], gate.script, resolve);
        streamed.catch(reject);
      });
      const [{ run_id: runId }] = await at.langgraph.get(`/threads/${threads[1]}/runs`);
      for (let n = 0; n < 5; n++) audience.attach();
      for (const viewer of audience.viewers) await viewer.until("the run", sees(runId));
      gate.open();
      const names = await streamed;
      await audience.leaveAndJudge(await Facts.gather(at.langgraph, threads[1], [{ runId, end: success }]), texts);
      for (const viewer of audience.viewers) assert.deepEqual(shownRuns(viewer), [runId]);
      assert.deepEqual(names, undisturbed);
      checkJoins(at, runId, 0);
    });
  }

  // The JavaScript server has no crons.
  if (software !== "JavaScript") {
    test("a cron's run", TEST, async () => {
      const threadId = await at.langgraph.thread("text", { said: saidBefore() });
      const audience = new Audience(at, "text", threadId);
      audience.attach(["follow"]);
      const { script, texts } = scriptOf("text");
      const gate = await Gate.before(0, MIDDLE);
      // Once a minute, and first in four seconds. aegra starts the first run at once, and answers with it instead of the cron.
      const second = (new Date().getUTCSeconds() + 4) % 60;
      const schedule = { Python: `* * * * * ${second}`, aegra: "0 0 1 1 *" }[software];
      const cron = { schedule, ...runOf("text", { ...script, ...gate.script }), stream_mode: MODES["messages-tuple"] };
      const made = await at.langgraph.post(`/threads/${threadId}/runs/crons`, cron);
      const cronId = made.cron_id ?? (await at.langgraph.post("/runs/crons/search", { thread_id: threadId }))[0].cron_id;
      await gate.reached(0);
      await at.langgraph.send("DELETE", `/runs/crons/${cronId}`);
      const [{ run_id: runId, kwargs }] = await at.langgraph.get(`/threads/${threadId}/runs`);
      assert.equal(kwargs?.resumable ?? false, false);
      for (const place of [0, MIDDLE]) {
        await gate.reached(place);
        audience.attach();
        for (const viewer of audience.viewers) await viewer.until("the run", sees(runId));
        gate.open(place);
      }
      await at.langgraph.ended(threadId, runId);
      await audience.leaveAndJudge(await Facts.gather(at.langgraph, threadId, [{ runId, end: success }]), texts);
      checkJoins(at, runId, 1);
    });
  }
}

// ---------------------------------------------------------------- the suites
describe("foreign runs", { concurrency: SERVERS.length }, () => {
  for (const started of SERVERS) {
    describe(`on the ${started.name} server`, OPTIONS, () => {
      const at = { name: started.name, started, langgraph: new Langgraph(started) };
      before(async () => {
        at.proxy = await Proxy.start(started.langgraph);
        at.threadway = await startThreadway(`foreign-${started.name}`, at.proxy.url, "--log", "info,threadway::runs::reading=debug");
        at.server = { ...started, threadway: at.threadway.url, second: started.threadway };
      });
      after(async () => {
        await at.threadway?.stop();
        at.proxy?.close();
      });
      named(at);
      combinations(at);
    });
  }
});

test("the clients warned of nothing", () => {
  assert.deepEqual(warnings, []);
});
