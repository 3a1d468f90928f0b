// Clients that connect at any moment to runs that they did not start, on real LangGraph servers, through a threadway with a
// counting proxy in front of LangGraph. LangGraph's checkpoints and records show the expected result.
//
// SEED=... repeats the choices of a run.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { writeFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { clientOf, GENERATIONS, SERVERS } from "./gateway.mjs";
import { cancelled, Facts, failed, interrupt, judge, showsNow, success } from "./judge.mjs";
import { Langgraph, runOf } from "./langgraph.mjs";
import { without } from "./limits.mjs";
import { LOGS } from "./logs.mjs";
import { Proxy } from "./proxy.mjs";
import { SEED, seeded } from "./seeded.mjs";
import { startThreadway } from "./threadway.mjs";
import { KINDS, Viewer } from "./viewers.mjs";

const VIEWERS = 20;
const CONCURRENCY = 6; // runs at a time on each server
const OPTIONS = { concurrency: CONCURRENCY, timeout: 400_000 }; // for all runs on one server
const TEST = { timeout: 90_000 }; // a run of two seconds, its viewers, on a busy machine
const LEAD = 3; // seconds before the first token that a viewer must not miss: the viewer may be two seconds late
const CRON_MS = 20_000; // a cron of every fifth second, which fires up to three seconds late
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

/**
 * The texts and the pace of a graph's models, so that a run lasts about two seconds. `quick` runs end at once. `endless`
 * runs last twenty seconds and more, so that they are still live when a busy machine cancels them.
 */
function scriptOf(graph, { quick = false, endless = false } = {}) {
  const nonce = randomUUID().slice(0, 8);
  const say = (count) => Array.from({ length: endless ? 400 : count }, (_, i) => `${nonce}.${i} `);
  const [words, delay] = {
    agent: [say(8), 0.05],
    hitl: [say(20), 0.08],
    text: [say(20), 0.09],
    counter: [say(20), 0.09],
    subgraphs: [say(20), 0.09],
    parallel: [say(12), 0.08],
    interrupt_child: [say(20), 0.09],
    failing: [say(30), 0.09],
  }[graph];
  const whole = words.join("");
  const texts = graph === "parallel" ? [`left: ${whole}`, `right: ${whole}`] : [whole];
  return { script: { words, delay: quick ? 0.005 : delay, fail_after: 20 }, texts };
}

/** A message that was in the thread before the run. */
function saidBefore() {
  return [
    { role: "user", id: randomUUID(), content: "before" },
    { role: "assistant", id: randomUUID(), content: "this was said before" },
  ];
}

const FAILURE = { Python: "ValueError", JavaScript: "Error", aegra: "ValueError" };

/** The end of a failed run: the JavaScript server's record of a run without readers does not name the exception. */
function failureOn({ name }, resumable) {
  return name === "JavaScript" && !resumable ? failed(FAILURE[name], "run_failed") : failed(FAILURE[name]);
}

/** How each situation arises, and when its viewers connect, in seconds from the start of the run: `[graphs, end, from, to]`. */
const SITUATIONS = {
  running: { graphs: ["agent", "text", "counter", "subgraphs", "parallel"], end: () => success, come: [-0.4, 3] },
  pending: { graphs: ["agent", "text", "counter"], end: () => success, come: [-0.3, 5] },
  finished: { graphs: ["agent", "text", "counter", "subgraphs", "parallel"], end: () => success, come: [0, 0.6] },
  interrupted: { graphs: ["hitl", "interrupt_child"], end: () => interrupt, come: [-0.4, 3.5] },
  failed: { graphs: ["failing"], end: failureOn, come: [-0.4, 3.5] },
  cancelled: { graphs: ["text", "agent", "counter"], end: () => cancelled, come: [-0.4, 3] },
};

/** A run of another client in one situation, and its viewers. */
async function combination(at, { situation, resumable, modes }) {
  const { server, langgraph, proxy } = at;
  const { random, between, one } = seeded(`${server.name} ${situation} ${resumable} ${modes}`);
  const { graphs, end: endOf, come } = SITUATIONS[situation];
  const graph = one(graphs);
  const end = endOf(server, resumable);
  // A JavaScript run with subgraphs and only the mode `values` fails.
  const withSubgraphs = random() < 0.4 && !(server.name === "JavaScript" && modes === "values");
  const options = { stream_mode: MODES[modes], stream_resumable: resumable, stream_subgraphs: withSubgraphs };
  const threadId = await langgraph.thread(graph, { said: random() < 0.5 ? saidBefore() : undefined });
  // A viewer that is connected from the beginning must get the tokens, not only the whole text.
  const mustSeeTokens = resumable && situation === "running" && SAYS_TOKENS.includes(modes) && (graph !== "subgraphs" || withSubgraphs || modes === "events");
  const lead = mustSeeTokens ? LEAD : 0;

  const viewers = [];
  const watching = [];
  const kinds = Object.keys(KINDS);
  const origin = now() + 1000 * Math.max(0, -come[0]);
  const attach = async (kind, moment, leaves) => {
    await seconds(Math.max(0, (origin - now()) / 1000 + moment));
    const viewer = new Viewer(server.threadway, graph, threadId, kind);
    viewers.push(viewer);
    const watched = viewer.watch();
    if (leaves !== undefined) await Promise.race([watched, seconds(leaves).then(() => viewer.leave())]);
    await watched;
  };
  const attachAll = () => {
    // One viewer stays from the beginning to the end, so that the gateway keeps reading the run.
    watching.push(attach("follow", come[0]));
    for (let n = 1; n < VIEWERS; n++) {
      watching.push(attach(kinds[n % kinds.length], between(come[0], come[1] + lead), n % 5 === 4 ? between(0.05, 1.2) : undefined));
    }
  };
  if (situation !== "finished") attachAll();
  await seconds(Math.max(0, (origin - now()) / 1000));

  const runs = [];
  const texts = [];
  const start = async (end, more) => {
    const { script, texts: own } = scriptOf(graph, { quick: situation === "finished", endless: situation === "cancelled" });
    const { run_id: runId } = await langgraph.run(threadId, graph, { ...script, lead }, { ...options, ...more });
    runs.push({ runId, end });
    texts.push(...own);
    return runId;
  };
  const isDelayed = situation === "pending" && random() < 0.4;
  if (situation === "pending" && !isDelayed) await start(success);
  const runId = await start(end, isDelayed ? { after_seconds: 1 } : {});
  const answered = now();
  if (situation === "cancelled") {
    await langgraph.started(threadId, runId);
    await seconds(between(0.5, 1.2));
    await langgraph.cancel(threadId, runId);
  }
  const { last: lastAlive } = await langgraph.ended(threadId, runId);
  const facts = await Facts.gather(langgraph, threadId, runs, { answered, lastAlive });
  if (situation === "finished") attachAll();

  const isOver = () => viewers.length === VIEWERS && viewers.every((viewer) => viewer.hasLeft || !viewer.isFollower || showsNow(viewer, facts));
  await untilShown(isOver, viewers, facts, texts);
  for (const viewer of viewers) if (viewer.isFollower) viewer.finish();
  await Promise.all(watching);

  await judgeAll(at, viewers, facts, texts);
  const isJoined = resumable || server.name !== "JavaScript";
  for (const run of runs) {
    checkJoins(at, run.runId, isJoined ? 1 : 0, viewers);
  }
  if (mustSeeTokens) {
    const { frames } = viewers[0];
    const hasTokens = frames.some(({ event }) => event.type === "TEXT_MESSAGE_CONTENT");
    const shown = () => {
      keepJoins(proxy, facts);
      const joins = proxy.joins(runId).map(({ began, ended, chunks }) => `  joined from ${began.toFixed(0)} to ${ended.toFixed(0)}, ${Buffer.concat(chunks).length} bytes`);
      return [...joins, ...frames.map(({ at, text }) => `  ${at.toFixed(0)} ${text.slice(0, 600)}`)].join("\n");
    };
    assert.ok(hasTokens, `the follower of ${graph} saw no token; the run was started at ${answered.toFixed(0)}:\n${hasTokens || shown()}`);
  }
}

/**
 * A run is joined once, however many viewers it has, and not at all if a join would take its owner's parts. Without viewers
 * the gateway stops reading, and the next viewer causes another join. Equal parts in one millisecond around a join may be
 * repeats, which only another join can show (docs/decisions.md): the log counts those.
 */
function checkJoins({ proxy, threadway }, runId, most, viewers) {
  const joins = proxy.joins(runId);
  const isDoubt = (line) => line.includes(runId) && line.includes("the stream may repeat itself");
  const doubts = threadway.said().split("\n").filter(isDoubt).length;
  const watches = viewers.flatMap((viewer) => {
    const frames = viewer.runs.find(([{ event }]) => event.metadata?.langgraph?.run_id === runId);
    return frames ? [{ kind: viewer.kind, from: frames[0].at, to: viewer.left ?? frames.at(-1).at }] : [];
  });
  const isJoinedAgain = joins.slice(1).some(({ began }, n) => {
    const ended = joins[n].ended - SEEN_MS;
    return began < ended || watches.some(({ from, to }) => from < ended && to > joins[n].ended + LEAVING_MS);
  });
  if (joins.length <= most + doubts || (most > 0 && !isJoinedAgain)) return;
  const times = joins.map(({ began, ended }) => `${began.toFixed(0)} to ${ended.toFixed(0)}`).join(", ");
  const watched = watches.map(({ kind, from, to }) => `${kind} ${from.toFixed(0)} to ${to.toFixed(0)}`).join(", ");
  assert.fail(`run ${runId} was joined ${joins.length} times: ${times}; it was watched by ${watched}`);
}

const SEEN_MS = 100; // until the proxy notices that threadway has closed a join: meanwhile threadway may begin the next
const LEAVING_MS = 500; // until threadway and the proxy notice the disconnect, on a busy machine
const SHOWN_MS = 10_000; // until all viewers have the end, on a busy machine

async function untilShown(isOver, viewers, facts, texts) {
  const end = now() + SHOWN_MS;
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
  for (const situation of Object.keys(SITUATIONS)) {
    for (const modes of Object.keys(MODES)) {
      for (const resumable of [true, false]) {
        const name = `a ${situation} run with ${modes}, ${resumable ? "" : "not "}resumable`;
        const skip = situation === "pending" && without(at.started, "queue", "delay");
        test(name, { ...TEST, skip }, () => combination(at, { situation, resumable, modes }));
      }
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
  attach(kinds = Object.keys(KINDS), { threadway = this.at.server.threadway, held, onEvent } = {}) {
    const viewers = kinds.map((kind) => new Viewer(threadway, this.graph, this.threadId, kind, held));
    for (const viewer of viewers) {
      this.viewers.push(viewer);
      this.#watching.push(viewer.watch({ onEvent }));
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
  const { name } = at;
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

    /** Starts two runs, one after the other, waits for their ends, and judges all viewers. */
    const queue = async (graph, ends, { between = async () => {}, secondStrategy = "enqueue", waits = true, delay = 0.09 } = {}) => {
      const threadId = await at.langgraph.thread(graph, { said: saidBefore() });
      const audience = new Audience(at, graph, threadId);
      const [follower] = audience.attach(["follow"]);
      // A follower does not get runs that ended before its first read, and an interrupted run lasts 100 ms.
      await follower.until("the thread", ({ frames }) => frames.length > 0);
      const first = await startForeign(at, threadId, graph, options, { delay });
      if (!waits) await at.langgraph.started(threadId, first.runId);
      const early = audience.attach(["connect", "connect 0.0.59", "events", "follow"]).slice(0, 3);
      for (const viewer of early) await viewer.until("the first run", sees(first.runId));
      const second = await startForeign(at, threadId, graph, { ...options, multitask_strategy: secondStrategy }, { tools: false });
      await between(threadId, first.runId);
      await at.langgraph.ended(threadId, first.runId);
      await at.langgraph.started(threadId, second.runId);
      const late = audience.attach(["connect", "connect 0.0.59", "events"]);
      await at.langgraph.ended(threadId, second.runId);
      const runs = [first, second].map(({ runId }, n) => ({ runId, end: ends[n] }));
      await audience.leaveAndJudge(await Facts.gather(at.langgraph, threadId, runs), [...first.texts, ...second.texts]);
      for (const viewer of early) assert.deepEqual(shownRuns(viewer), [first.runId]);
      for (const viewer of late) assert.deepEqual(shownRuns(viewer), [second.runId]);
      assert.deepEqual(shownRuns(follower), [first.runId, second.runId]);
    };

    const QUEUED = { ...TEST, skip: without(at.started, "queue") };
    test(`a run queued after another${how}`, QUEUED, () => queue("text", [success, success]));
    test(`a run that raises an interrupt while the next is queued${how}`, QUEUED, () => queue("hitl", [interrupt, success]));
    test(`a run interrupted by the next${how}`, QUEUED, () => queue("text", [cancelled, success], { secondStrategy: "interrupt", waits: false, delay: 0.5 }));
    test(`a run cancelled while the next is queued${how}`, QUEUED, () => {
      const cancel = (threadId, runId) => at.langgraph.cancel(threadId, runId);
      return queue("text", [cancelled, success], { between: cancel, waits: false, delay: 0.5 });
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
      // The run continues until it is stopped, also on a busy machine.
      const { runId, texts } = await startForeign(at, threadId, "text", options, { delay: 0.5 });
      await at.langgraph.started(threadId, runId);
      const viewers = audience.attach();
      for (const viewer of viewers) await viewer.until("the run", sees(runId));
      const answer = await fetch(`${at.server.threadway}/agui/agent/text/stop/${threadId}`, { method: "POST" });
      assert.equal((await answer.json()).stopped, true);
      await at.langgraph.ended(threadId, runId);
      await audience.leaveAndJudge(await Facts.gather(at.langgraph, threadId, [{ runId, end: cancelled }]), texts);
      for (const viewer of viewers) assert.deepEqual(shownRuns(viewer), [runId]);
    });
  }

  for (const modes of SAYS_TOKENS) {
    test(`parallel nodes that finish out of order, with ${modes}`, TEST, async () => {
      const threadId = await at.langgraph.thread("parallel", { said: saidBefore() });
      const audience = new Audience(at, "parallel", threadId);
      const [follower] = audience.attach(["follow"]);
      const { runId, texts } = await startForeign(at, threadId, "parallel", { stream_mode: MODES[modes] }, { lead: LEAD });
      await at.langgraph.started(threadId, runId);
      audience.attach();
      // While both are streaming, when one message is complete, and when both are.
      const isOpen = (viewer) => {
        const count = (type) => viewer.frames.filter(({ event }) => event.type === type).length;
        return { begun: count("TEXT_MESSAGE_START"), ended: count("TEXT_MESSAGE_END") };
      };
      await follower.until("both models", (viewer) => isOpen(viewer).begun >= 2);
      audience.attach();
      await follower.until("the end of one", (viewer) => isOpen(viewer).ended >= 1);
      audience.attach();
      await at.langgraph.ended(threadId, runId);
      await audience.leaveAndJudge(await Facts.gather(at.langgraph, threadId, [{ runId, end: success }]), texts);
    });
  }

  const thought = "REASONING_MESSAGE_CONTENT";
  const sentence = "TEXT_MESSAGE_CONTENT";
  for (const [where, type, company, flavour] of [
    ["thought", thought, "alone", "v1"],
    ["thought", thought, "alone", "anthropic"],
    ["thought", thought, "alone", "reasoning_content"],
    ["thought", thought, "while another one watches", "v1"],
    ["sentence", sentence, "alone", "v1"],
    ["sentence", sentence, "while another one watches", "v1"],
  ]) {
    test(`a client that kept its content connects again in mid-${where}, ${company}, ${flavour} content`, TEST, async () => {
      const threadId = await at.langgraph.thread("agent", { said: saidBefore() });
      const audience = new Audience(at, "agent", threadId);
      if (company !== "alone") audience.attach(["follow"]);
      const slow = { flavour, delay: 0.2, lead: LEAD, words: undefined, tokens: 2 };
      const { runId } = await startForeign(at, threadId, "agent", { stream_mode: ["values", "messages-tuple"] }, slow);
      const onEvent = (event, viewer) => void (event.type === type && !viewer.hasLeft && viewer.leave());
      const first = audience.attach(["connect", "connect 0.0.59"], { onEvent });
      for (const viewer of first) await viewer.until(`a ${where}`, ({ hasLeft }) => hasLeft);
      for (const { kind, client } of first) {
        const { messages, state } = client;
        assert.ok(messages.some(({ role }) => role === "reasoning"), "the client holds a thought");
        audience.attach([kind], { held: structuredClone({ messages, state }) });
      }
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
    owner.say(script);
    let runId;
    const shownId = `run of a client ${randomUUID()}`;
    const onEvent = ({ type, metadata }) => {
      if (type === "RUN_STARTED") runId = metadata.langgraph.run_id;
      if (type !== "TEXT_MESSAGE_START") return;
      audience.attach();
      audience.attach(Object.keys(KINDS), { threadway: at.server.second });
    };
    await owner.runAgent({ runId: shownId }, { onEvent: ({ event }) => onEvent(event) });
    const facts = await Facts.gather(at.langgraph, owner.threadId, [{ runId, end: success, shownId }]);
    await audience.leaveAndJudge(facts, texts);
    for (const viewer of audience.viewers) assert.deepEqual(shownRuns(viewer), [runId]);
  });

  if (name === "JavaScript") {
    test("the client that started a run that is not resumable loses no event while 20 viewers watch", TEST, async () => {
      const { script, texts } = scriptOf("agent");
      const threads = [await at.langgraph.thread("agent"), await at.langgraph.thread("agent")];
      const stream = async (threadId, onFrame = () => {}) => {
        const body = { ...runOf("agent", script), stream_mode: ["values", "updates", "messages-tuple", "custom"], stream_resumable: false };
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
        return names;
      };
      const undisturbed = await stream(threads[0]);
      const audience = new Audience(at, "agent", threads[1]);
      let watched;
      const names = await stream(threads[1], () => {
        watched ??= Array.from({ length: VIEWERS / 4 }, () => audience.attach());
      });
      const [{ run_id: runId }] = await at.langgraph.get(`/threads/${threads[1]}/runs`);
      await audience.leaveAndJudge(await Facts.gather(at.langgraph, threads[1], [{ runId, end: success }]), texts);
      assert.equal(audience.viewers.length, VIEWERS);
      for (const viewer of audience.viewers) assert.deepEqual(shownRuns(viewer), [runId]);
      assert.deepEqual(names, undisturbed);
      checkJoins(at, runId, 0, audience.viewers);
    });
  }

  // The JavaScript server has no crons.
  if (name !== "JavaScript") {
    test("a cron's run", TEST, async () => {
      const threadId = await at.langgraph.thread("text", { said: saidBefore() });
      const audience = new Audience(at, "text", threadId);
      audience.attach(["follow"]);
      const { script, texts } = scriptOf("text");
      // aegra starts the first run at once, and answers with it instead of the cron.
      const schedule = { Python: "* * * * * */5", aegra: "0 0 1 1 *" }[name];
      const cron = { schedule, ...runOf("text", script), stream_mode: MODES["messages-tuple"] };
      const made = await at.langgraph.post(`/threads/${threadId}/runs/crons`, cron);
      const cronId = made.cron_id ?? (await at.langgraph.post("/runs/crons/search", { thread_id: threadId }))[0].cron_id;
      const end = now() + CRON_MS;
      let runs = [];
      while (runs.length === 0) {
        assert.ok(now() < end, `the cron has not fired in ${CRON_MS} ms`);
        await seconds(0.05);
        runs = await at.langgraph.get(`/threads/${threadId}/runs`);
      }
      await at.langgraph.send("DELETE", `/runs/crons/${cronId}`);
      const [{ run_id: runId, kwargs }] = runs;
      assert.equal(kwargs?.resumable ?? false, false);
      const { between } = seeded("cron");
      const kinds = Object.keys(KINDS);
      const coming = Array.from({ length: VIEWERS - 1 }, (_, n) => seconds(between(0, 2)).then(() => audience.attach([kinds[n % kinds.length]])));
      await Promise.all(coming);
      await at.langgraph.ended(threadId, runId);
      await audience.leaveAndJudge(await Facts.gather(at.langgraph, threadId, [{ runId, end: success }]), texts);
      checkJoins(at, runId, 1, audience.viewers);
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
