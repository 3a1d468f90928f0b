// Judges a viewer's events by LangGraph's checkpoints and records, without threadway's code.

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import jsonpatch from "fast-json-patch";
import { from, lastValueFrom } from "rxjs";
import { LOGS } from "./logs.mjs";
import { exact, firstDifference, interruptIds, ofClient, ofThread, stateOf } from "./thread.mjs";

const TERMINAL = ["RUN_FINISHED", "RUN_ERROR"];
const THOUGHT = "Let me think.";
const PRELUDE = "Looking up.";
const SHOWN_EVENTS = 80; // printed events of a wrong stream
const SHOWN_CHARACTERS = 400; // printed characters of each event

export const success = { outcome: "success" };
export const interrupt = { outcome: "interrupt" };
export const cancelled = { outcome: "cancelled" };
export const failed = (...codes) => ({ outcome: "error", codes });

/** LangGraph's data about a thread after all runs. */
export class Facts {
  /**
   * `runs`: the thread's runs in order, `{ runId, end, shownId }`. One of them was live at every moment from `answered` to
   * `lastAlive`, and none after `over`.
   */
  static async gather(langgraph, threadId, runs, { answered = Infinity, lastAlive = -Infinity } = {}) {
    await langgraph.settled(threadId);
    const facts = new Facts();
    Object.assign(facts, { threadId, answered, lastAlive, over: performance.now() });
    facts.history = await langgraph.history(threadId);
    facts.texts = facts.history.flatMap(({ values }) => assistantTexts(values, threadId));
    facts.runs = [];
    for (const [n, run] of runs.entries()) {
      const { status } = await langgraph.record(threadId, run.runId);
      facts.runs.push(facts.#fact(run, status, runs.slice(n + 1), langgraph.server));
    }
    return facts;
  }

  /** The facts about a thread that does not exist. */
  static ofNothing(threadId) {
    const never = { answered: Infinity, lastAlive: -Infinity, over: -Infinity };
    return Object.assign(new Facts(), { threadId, history: [], texts: [], runs: [], ...never });
  }

  get newest() {
    return this.history[0];
  }

  run(runId) {
    return this.runs.find((run) => run.runId === runId);
  }

  /** Checks that the run came into the situation that the test is about. */
  #fact({ runId, end, shownId = runId }, status, later, { asking }) {
    const isLater = ({ metadata }) => later.some((run) => run.runId === metadata.run_id);
    // A run that never began leaves the thread unchanged.
    const checkpoint = this.history.find(({ metadata }) => metadata.run_id === runId) ?? this.history.find((known) => !isLater(known));
    const open = checkpoint ? interruptIds(checkpoint) : [];
    const statuses = { success: ["success"], interrupt: [asking], cancelled: ["interrupted", "error"], error: ["error"] };
    assert.ok(statuses[end.outcome].includes(status), `run ${runId}, which was to end as ${end.outcome}, has the status ${status}`);
    assert.equal(open.length > 0, end.outcome === "interrupt", `run ${runId} has open interrupts`);
    return { runId, end, shownId, checkpoint, open };
  }
}

/** Judges all events of a viewer; `texts` are those of its thread's models. Writes a fault's details next to the logs. */
export async function judge(viewer, facts, texts) {
  try {
    if (!viewer.hasLeft) assert.equal(viewer.refused, undefined, `the client refused the stream: ${viewer.refused}`);
    await checkLegal(viewer);
    checkSpoken(viewer, facts, texts);
    if (!viewer.hasLeft) checkEnds(viewer, facts);
  } catch (failure) {
    const shown = viewer.frames.slice(-SHOWN_EVENTS).map(({ at, text }) => `  ${at.toFixed(0)} ${text.slice(0, SHOWN_CHARACTERS)}`);
    const told = [
      `${viewer.kind}, asked at ${viewer.asked.toFixed(0)}: ${failure.message}`,
      `the runs were started at ${facts.answered.toFixed(0)}, last seen alive at ${facts.lastAlive.toFixed(0)}, seen over at ${facts.over.toFixed(0)}`,
      `thread ${facts.threadId}, runs ${facts.runs.map(({ runId, end }) => `${runId} (${end.outcome})`).join(", ")}`,
      `the last ${shown.length} of ${viewer.frames.length} events, which are whole in ${keep(viewer)}:`,
      ...shown,
    ];
    throw new Error(told.join("\n"), { cause: failure });
  }
}

function keep({ kind, threadId, runId, frames }) {
  const name = `foreign-${threadId}-${kind.replaceAll(" ", "-")}-${runId.slice(0, 8)}.ndjson`;
  writeFileSync(new URL(name, LOGS), frames.map(({ text }) => `${text}\n`).join(""));
  return name;
}

/** Checks that the stream is legal by the rules of the client's own version. */
export async function checkLegal({ frames, generation: { EventSchemas, verifyEvents } }) {
  for (const { event } of frames) same(EventSchemas.parse(event), event, `schema of ${event.type}`);
  await lastValueFrom(from(frames.map(({ event }) => event)).pipe(verifyEvents(false)), { defaultValue: undefined });
}

/** Checks the start, ids and end of each run, and that the client held LangGraph's content at the end of that run. */
function checkEnds(viewer, facts) {
  assert.ok(viewer.frames.length > 0, "the stream was empty");
  if (!viewer.isFollower) assert.equal(viewer.runs.length, 1, "runs in a stream of one");
  let literal = exact(JSON.stringify(viewer.sent.state));
  for (const [n, frames] of viewer.runs.entries()) {
    const events = frames.map(({ event }) => event);
    const places = (types) => [...events.keys()].filter((place) => types.includes(events[place].type));
    same(places(["RUN_STARTED"]), [0], `places of RUN_STARTED in run ${n} of the stream`);
    same(places(TERMINAL), [events.length - 1], `places of terminal events in run ${n} of the stream`);
    const [started, terminal] = [events[0], events.at(-1)];
    assert.equal(started.threadId, viewer.threadId);
    if (terminal.type === "RUN_FINISHED") same(pick(terminal, ["threadId", "runId"]), pick(started, ["threadId", "runId"]), "RUN_FINISHED");
    for (const { text } of frames) literal = applyState(literal, text);
    const held = { ...viewer.held[n], literal };
    const isAtRest = viewer.kind.startsWith("connect") ? started.runId === viewer.runId : started.runId.startsWith("connect-");
    if (isAtRest) checkRest(viewer, facts, { started, terminal, held, at: frames[0].at });
    else checkLive(viewer, facts, { started, terminal, held });
  }
}

function checkLive(viewer, facts, { started, terminal, held }) {
  const run = facts.run(started.metadata?.langgraph?.run_id);
  assert.ok(run, `RUN_STARTED names no run of the thread: ${JSON.stringify(started)}`);
  assert.equal(started.runId, run.shownId, "the run id");
  const { outcome, codes } = run.end;
  // A client that does not declare AG-UI 1.0 knows no outcome but an interrupt.
  const isOld = viewer.kind === "connect 0.0.59";
  if (outcome === "error") {
    assert.equal(terminal.type, "RUN_ERROR");
    assert.ok(codes.includes(terminal.code), `the error's code is ${terminal.code}, not ${codes}`);
  } else if (isOld && outcome === "cancelled") {
    same(pick(terminal, ["type", "code"]), { type: "RUN_ERROR", code: "abort" }, "the terminal event");
  } else {
    assert.equal(terminal.type, "RUN_FINISHED");
    assert.equal(terminal.outcome?.type, isOld && outcome === "success" ? undefined : outcome, "outcome");
    checkInterrupts(terminal, run.open);
  }
  checkHeld(held, run.checkpoint, facts.threadId, `at the end of run ${run.runId}`);
}

function checkRest(viewer, facts, { started, terminal, held, at }) {
  assert.equal(terminal.type, "RUN_FINISHED", "a thread at rest ends without an error");
  const { threadId, newest } = facts;
  if (!viewer.kind.startsWith("connect")) {
    const id = started.runId.slice("connect-".length);
    if (id === threadId) {
      // There was no checkpoint yet.
      checkHeld(held, undefined, threadId, "at rest");
      return;
    }
    const checkpoint = facts.history.find((known) => checkpointId(known) === id);
    assert.ok(checkpoint, `there is no checkpoint ${id}`);
    checkHeld(held, checkpoint, threadId, `at checkpoint ${id}`);
    // A run's interrupts are in the checkpoint that the run has made before.
    const later = at > facts.over ? [] : interruptIds(checkpoint).filter((asked) => !interruptsOf(terminal).includes(asked));
    same([...interruptsOf(terminal), ...later].sort(), interruptIds(checkpoint).sort(), "interrupt ids");
  }
  if (!viewer.isFollower && viewer.asked > facts.answered) {
    assert.ok(at > facts.lastAlive, `the thread was shown at rest ${(facts.lastAlive - at).toFixed(0)} ms before its last run was seen alive`);
  }
  if (viewer.asked > facts.over) {
    checkHeld(held, newest, threadId, "after all runs");
    const last = facts.runs.at(-1);
    if (!last || newest.metadata.run_id !== last.runId) return; // the state was changed without a run
    checkInterrupts(terminal, last.open);
    const code = terminal.metadata?.langgraph?.error?.code;
    if (last.end.outcome === "error") assert.ok(last.end.codes.includes(code), `the last run's error is sent as ${code}, not ${last.end.codes}`);
    else assert.equal(code, undefined, "the error of the last run, which did not fail");
    return;
  }
  // A client that asks before there is a run may get the state of any moment until the answer.
  const differences = [undefined, ...facts.history].map((checkpoint) => differenceOf(held, checkpoint, threadId));
  assert.ok(differences.includes(undefined), `what is held at rest is no checkpoint's: ${differences.join("; ")}`);
}

function checkInterrupts(terminal, open) {
  same(interruptsOf(terminal).sort(), [...open].sort(), "interrupt ids");
}

function interruptsOf({ outcome }) {
  return (outcome?.interrupts ?? []).map(({ id }) => id);
}

function checkHeld(held, checkpoint, threadId, when) {
  const difference = differenceOf(held, checkpoint, threadId);
  if (difference) assert.fail(`${when}, checkpoint ${checkpointId(checkpoint)}: ${difference}`);
}

function differenceOf(held, checkpoint, threadId) {
  const { values, literal } = checkpoint ?? { values: {}, literal: {} };
  const messages = firstDifference(ofClient(held.messages), ofThread(values, threadId));
  if (messages) return `the client's messages ${messages}`;
  const state = firstDifference(held.state, stateOf(values));
  if (state) return `the client's state ${state}`;
  const digits = firstDifference(held.literal, stateOf(literal));
  return digits && `the state on the wire, digit by digit, ${digits}`;
}

/** The state with its numbers as they are written, after one more event. */
function applyState(state, text) {
  if (!text.includes('"STATE_')) return state;
  const event = exact(text);
  if (event.type === "STATE_SNAPSHOT") return event.snapshot;
  if (event.type === "STATE_DELTA") return jsonpatch.applyPatch(state, event.delta, true).newDocument;
  return state;
}

/**
 * At each moment every text and every reasoning is a prefix of the model's, under one id. Arguments that were closed are
 * complete, except those of an attempt that the server has given up: a snapshot deletes them. No result is sent to a client
 * that holds it.
 *
 * A LangGraph that was killed (`facts.isRestarted`) may have sent the state of a step that it had not stored. It runs the
 * step again, so a whole text may be said once more until a snapshot deletes the first.
 */
export function checkSpoken({ frames, sent }, facts, texts) {
  const isWhole = facts.runs.every(({ end }) => ["success", "interrupt"].includes(end.outcome));
  const allowed = [...texts, PRELUDE, ...facts.texts];
  let held = new Map(sent.messages.map((message) => [message.id, copy(message)]));
  const activities = new Map();
  const halves = new Set(); // the calls that were closed before their arguments were complete
  const repeated = new Set(); // the messages that are said again
  const beginsWell = ({ id, role, content }) => {
    const whole = { assistant: allowed, reasoning: [THOUGHT] }[role];
    assert.ok(!whole || whole.some((text) => text.startsWith(content)), `message ${id} (${role}) says ${JSON.stringify(content)}`);
  };
  const isSaidOnce = () => {
    for (const text of texts) {
      const speakers = [...held.values()].filter(({ role, content }) => role === "assistant" && content !== "" && text.startsWith(content));
      if (facts.isRestarted && speakers.length === 2 && speakers[0].content === text) {
        repeated.add(speakers[0].id);
        continue;
      }
      assert.ok(speakers.length <= 1, `${speakers.map(({ id }) => id).join(" and ")} say the same: ${JSON.stringify(text)}`);
    }
  };
  const open = (id, role) => {
    if (!held.has(id)) held.set(id, { id, role, content: "", calls: new Map() });
    return held.get(id);
  };
  const callOf = (id) => [...held.values()].find(({ calls }) => calls?.has(id));
  for (const { event } of frames) {
    const { type, messageId: id } = event;
    if (type === "TEXT_MESSAGE_START") open(id, event.role ?? "assistant");
    if (type === "REASONING_MESSAGE_START") open(id, "reasoning");
    if (type === "TEXT_MESSAGE_CONTENT" || type === "REASONING_MESSAGE_CONTENT") {
      held.get(id).content += event.delta;
      beginsWell(held.get(id));
      isSaidOnce();
    }
    if (type === "ACTIVITY_SNAPSHOT") {
      const shown = JSON.stringify(event.content);
      assert.notEqual(activities.get(id), shown, `activity ${id} is sent twice`);
      activities.set(id, shown);
    }
    if (type === "MESSAGES_SNAPSHOT") {
      activities.clear();
      const keepsThoughts = !event.messages.some(({ role }) => role === "reasoning");
      const thoughts = [...held].filter(([, { role }]) => keepsThoughts && role === "reasoning");
      held = new Map([...event.messages.map((message) => [message.id, copy(message)]), ...thoughts]);
      for (const id of repeated) if (!held.has(id)) repeated.delete(id);
      for (const id of halves) if (!callOf(id)) halves.delete(id); // of an attempt that the server has given up
      for (const message of held.values()) beginsWell(message);
      isSaidOnce();
    }
    if (type === "TOOL_CALL_START" && !callOf(event.toolCallId)) {
      open(event.parentMessageId ?? event.toolCallId, "assistant").calls.set(event.toolCallId, "");
    }
    if (type === "TOOL_CALL_ARGS") {
      const { calls } = callOf(event.toolCallId);
      calls.set(event.toolCallId, calls.get(event.toolCallId) + event.delta);
    }
    if (type === "TOOL_CALL_END" && !isJson(callOf(event.toolCallId).calls.get(event.toolCallId) || "{}")) halves.add(event.toolCallId);
    if (type === "TOOL_CALL_RESULT") {
      assert.ok(!held.has(id), `result ${id} is sent twice`);
      held.set(id, { id, role: "tool", content: event.content, calls: new Map() });
    }
  }
  assert.deepEqual([...repeated], [], "what is said again is deleted");
  if (isWhole) assert.deepEqual([...halves], [], "arguments that were closed are complete");
}

function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function copy({ id, role, content, toolCalls = [] }) {
  const calls = new Map(toolCalls.map((call) => [call.id, call.function.arguments]));
  return { id, role, content: typeof content === "string" ? content : "", calls };
}

function assistantTexts(values, threadId) {
  return ofThread(values, threadId)
    .messages.filter(({ role }) => role === "assistant")
    .map(({ content }) => content);
}

function checkpointId(checkpoint) {
  return checkpoint?.checkpoint?.checkpoint_id ?? checkpoint?.checkpoint_id;
}

/** Whether a follower's last content is the current thread. */
export function showsNow(viewer, { newest, threadId }) {
  const last = viewer.runs.at(-1)?.map(({ event }) => event);
  if (!last || !TERMINAL.includes(last.at(-1).type) || viewer.held.length < viewer.runs.length) return false;
  if (firstDifference(interruptsOf(last.at(-1)).sort(), interruptIds(newest).sort())) return false;
  const runId = last[0].metadata?.langgraph?.run_id;
  const isOfNow = runId ? runId === newest.metadata.run_id : last[0].runId === `connect-${checkpointId(newest)}`;
  return isOfNow && !firstDifference(ofClient(viewer.held.at(-1).messages), ofThread(newest.values, threadId));
}

export function same(actual, expected, what) {
  const difference = firstDifference(actual, expected);
  if (difference) assert.fail(`${what}: ${difference}`);
}

function pick(event, keys) {
  return Object.fromEntries(keys.map((key) => [key, event[key]]));
}
