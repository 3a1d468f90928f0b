// Runs every kind of agent on real LangGraph servers through threadway and both versions of the official client, and
// compares the result with LangGraph's thread.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { spawn } from "node:child_process";
import { describe, test } from "node:test";
import { text as textOf } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import jsonpatch from "fast-json-patch";
import { from, lastValueFrom } from "rxjs";
import { ASKED_BELOW, SUMMARISED, SUMMARY_WORDS } from "./cases.mjs";
import { bodies, cancel, clientOf, GENERATIONS, readThread, SERVERS } from "./gateway.mjs";
import { checkLegal } from "./judge.mjs";
import { isServed } from "./langgraph.mjs";
import { reasonOf } from "./servers.mjs";
import { exact, firstDifference, interruptIds, ofClient, ofThread, stateOf } from "./thread.mjs";
import { Viewer } from "./viewers.mjs";

const TERMINAL = ["RUN_FINISHED", "RUN_ERROR"];
const OPTIONS = { concurrency: 8, timeout: 600_000 }; // what hangs is noticed sooner, by its own limit
const PATCHES_BYTES = 10_000; // the limit for a run that changes a few rows of a big state
const VALIDATE_MS = 120_000; // for 230 streams, which take 3 s
const LEFT_RUN_MS = 90_000; // a run that has not ended by then does not end

/** The differences of the servers. */
const EXPECTED = {
  Python: {
    // The server hides the messages of exceptions that are not in its list.
    failures: {
      ValueError: "boom after 3 tokens",
      RuntimeError: "boom after 3 tokens",
      TimeoutError: "boom after 3 tokens",
      ConnectionError: "An internal error occurred",
      CustomBoom: "An internal error occurred",
    },
    big: ["12345678901234567891", "12345678901234567892"],
    halfDenied: { call_e: false, call_d: true },
    cancelled: ["interrupted"],
  },
  aegra: {
    failures: Object.fromEntries(["ValueError", "RuntimeError", "TimeoutError", "ConnectionError", "CustomBoom"].map((code) => [code, reasonOf({ hidesReasons: true }, code)])),
    big: ["12345678901234567891", "12345678901234567892"],
    halfDenied: { call_e: false, call_d: true },
    cancelled: ["idle"],
  },
  JavaScript: {
    failures: {
      Error: "boom after 3 tokens",
      TypeError: "boom after 3 tokens",
      RangeError: "boom after 3 tokens",
      CustomBoom: "boom after 3 tokens",
    },
    // The JavaScript server's numbers are doubles.
    big: ["12345678901234571000", "12345678901234575000"],
    // The JavaScript middleware removes the approved call from the message if another one is rejected.
    halfDenied: { call_d: true },
    // Before 1.4.4 the server says "error".
    cancelled: ["idle", "error"],
  },
};
EXPECTED["Python-Node"] = { ...EXPECTED.JavaScript, cancelled: EXPECTED.Python.cancelled };

// The client only warns of members that it drops and of patches that it cannot apply. Both are faults of the gateway.
const warnings = [];
console.warn = (...words) => void warnings.push(words.join(" "));
console.error = () => {}; // the client also throws these errors

// ---------------------------------------------------------------- checks of every run
/** Runs once; checks the stream, its end, and that the client's content equals LangGraph's. */
async function run(client, end, options) {
  const run = await client.record(options);
  try {
    assert.equal(run.refused, undefined, `the client refused the run: ${run.refused}`);
    await checkStream(client.generation, run);
    checkEnd(client, run, end);
    checkThread(client, run);
    checkStreamed(run);
  } catch (failure) {
    failure.message += `\nthe events were:\n${run.wire.map((event) => `  ${event}`).join("\n")}`;
    throw failure;
  }
  return run;
}

/** The stream is legal by the client's own rules, and the client's pipeline passed all of it unchanged. */
async function checkStream({ EventSchemas, verifyEvents }, { wire, events }) {
  const sent = wire.map((event) => JSON.parse(event));
  for (const event of sent) same(EventSchemas.parse(event), event, `schema of ${event.type}`);
  await lastValueFrom(from(sent).pipe(verifyEvents(false)));
  same(events, sent, "the events that subscribers saw");
}

/** RUN_STARTED is first and unique, the terminal event is last and unique, both have the client's ids; the end is as expected. */
function checkEnd(client, { events, runId, after }, end) {
  const { threadId } = client;
  const places = (types) => [...events.keys()].filter((place) => types.includes(events[place].type));
  same(places(["RUN_STARTED"]), [0], "places of RUN_STARTED");
  same(places(TERMINAL), [events.length - 1], "places of terminal events");
  same(pick(events[0], ["threadId", "runId"]), { threadId, runId }, "RUN_STARTED");
  const last = events.at(-1);
  if (end.error) {
    const code = end.error;
    // A message that is not known in advance is LangGraph's own.
    if (end.message) assert.match(after.thread.error.message, end.message);
    const message = end.message ? after.thread.error.message : EXPECTED[client.server.name].failures[code];
    // The JavaScript server and aegra store nothing of an error on the thread. An old Python server (0.7.0) stores it in base64.
    const { error } = after.thread;
    if (typeof error === "string") same(JSON.parse(Buffer.from(error, "base64").toString()).error, code, "LangGraph's own error");
    else if (client.server.software === "Python") same(error, { error: code, message }, "LangGraph's own error");
    same(pick(last, ["type", "code", "message"]), { type: "RUN_ERROR", code, message }, "the terminal event");
    return;
  }
  // A client that does not declare AG-UI 1.0 knows no outcome but an interrupt.
  const isOld = client.generation.version === "0.0.59";
  if (isOld && end.outcome === "cancelled") {
    same(pick(last, ["type", "code"]), { type: "RUN_ERROR", code: "abort" }, "the terminal event");
    return;
  }
  same(pick(last, ["type", "threadId", "runId"]), { type: "RUN_FINISHED", threadId, runId }, "the terminal event");
  const outcome = isOld && end.outcome === "success" ? undefined : end.outcome;
  assert.equal(last.outcome?.type, outcome, "outcome");
  const open = end.outcome === "interrupt" ? (end.ids ?? interruptIds(after.state)) : [];
  same((last.outcome?.interrupts ?? []).map(({ id }) => id).sort(), open.sort(), "interrupt ids");
  same(client.pendingInterrupts.map(({ id }) => id).sort(), open, "the client's pending interrupts");
}

/** The client's messages and state equal the thread's, and the wire had every digit of the state. */
function checkThread(client, { sent, wire, after }) {
  const { values } = after.state;
  same(ofClient(client.messages), ofThread(values, client.threadId), "the client's messages against the thread's");
  same(client.state, stateOf(values), "the client's state against the thread's");
  let state = exact(JSON.stringify(sent.state));
  for (const event of wire.map(exact)) {
    if (event.type === "STATE_SNAPSHOT") state = event.snapshot;
    if (event.type === "STATE_DELTA") state = jsonpatch.applyPatch(state, event.delta, true).newDocument;
  }
  same(state, stateOf(exact(after.text).values), "the state on the wire, digit by digit, against the thread's");
}

/** The run's new content was streamed, not only sent in a snapshot at the end. */
function checkStreamed({ events, sent, before, after }) {
  const deltas = (type, key, id) => events.filter((event) => event.type === type && event[key] === id).map((event) => event.delta).join("");
  const known = new Set([...sent.messages, ...(before.state.values.messages ?? [])].map(({ id }) => id));
  for (const message of ofThread(after.state.values).messages) {
    if (known.has(message.id)) continue;
    if (message.role === "assistant") {
      same(deltas("TEXT_MESSAGE_CONTENT", "messageId", message.id), message.content, `streamed text of ${message.id}`);
      for (const call of message.toolCalls) {
        same(JSON.parse(deltas("TOOL_CALL_ARGS", "toolCallId", call.id) || "{}"), call.arguments, `streamed arguments of ${call.id}`);
      }
    }
    if (message.role === "tool") {
      const results = events.filter((event) => event.type === "TOOL_CALL_RESULT" && event.messageId === message.id);
      const { toolCallId, content } = message;
      same(results.map((event) => pick(event, ["toolCallId", "content"])), [{ toolCallId, content }], `result ${message.id}`);
    }
  }
}

function same(actual, expected, what) {
  const difference = firstDifference(actual, expected);
  if (difference) assert.fail(`${what}: ${difference}`);
}

function pick(event, keys) {
  return Object.fromEntries(keys.map((key) => [key, event[key]]));
}

function count({ events }, type) {
  return events.filter((event) => event.type === type).length;
}

const success = { outcome: "success" };
const interrupt = { outcome: "interrupt" };
const cancelled = { outcome: "cancelled" };

// ---------------------------------------------------------------- the runs
function oneTurn({ server, generation, Client }) {
  test("text is streamed token by token", async () => {
    const client = new Client("text");
    client.say({ tokens: 12 });
    const done = await run(client, success);
    assert.equal(count(done, "TEXT_MESSAGE_CONTENT"), 12);
    const { headers } = client.response;
    assert.match(headers.get("content-type"), /^text\/event-stream/);
    assert.equal(headers.get("cache-control"), "no-cache, no-transform");
    assert.equal(headers.get("x-accel-buffering"), "no");
    assert.match(done.body, /^retry:/);
    assert.doesNotMatch(done.body, /\r/);
  });

  test("developer and system messages keep their roles", async () => {
    const client = new Client("text");
    client.addMessage({ id: "s", role: "system", content: "be brief" });
    client.addMessage({ id: "d", role: "developer", content: "be kind" });
    client.say("go");
    const done = await run(client, success);
    assert.equal(count(done, "MESSAGES_SNAPSHOT"), 0);
  });

  test("a plain text is answered too", async () => {
    const client = new Client("text");
    client.say("What is the weather in Zürich? 🌦\u2028");
    await run(client, success);
  });

  // A Python string contains whole characters only.
  if (server.needsWholeCharacters) {
    test("half a character ends its run with LangGraph's error, and NUL is replaced", async () => {
      const client = new Client("text");
      client.say({ words: ["a\ud83d", "\ude00b"] });
      await run(client, { error: "JSONDecodeError", message: /^no low surrogate in string/ });
      client.say({ words: ["a😀b", "\n\u0000\u2028"] });
      await run(client, success);
      assert.equal(client.messages.at(-1).content, "a😀b\n\ufffd\u2028");
    });
  } else if (server.graphs === "JavaScript") {
    test("a character that is split between two tokens is whole at the end", async () => {
      const client = new Client("text");
      client.say({ words: ["a\ud83d", "\ude00b", "\ud83d", "\ude00", "\n\u0000\u2028"] });
      await run(client, success);
      assert.equal(client.messages.at(-1).content, "a😀b😀\n\u0000\u2028");
    });
  }

  for (const flavour of ["v1", "anthropic", "reasoning_content", "string"]) {
    test(`parallel tool calls, ${flavour} content`, async () => {
      const client = new Client("agent");
      client.say({ flavour });
      const done = await run(client, success);
      assert.equal(count(done, "TOOL_CALL_START"), 2);
      assert.equal(count(done, "REASONING_MESSAGE_CONTENT"), flavour === "string" ? 0 : 3);
      assert.equal(count(done, "CUSTOM"), 1);
    });
  }

  test("a tool that is slower than another one", async () => {
    const client = new Client("agent");
    client.say({ tool_sleep: 0.4, tool_index: 0 });
    await run(client, success);
  });

  test("failing tools are results with an error, and the model answers after them", async () => {
    const client = new Client("tool_error");
    client.say("go");
    const done = await run(client, success);
    const { messages } = ofThread(done.after.state.values);
    assert.deepEqual(messages.filter(({ role }) => role === "tool").map(({ failed }) => failed), [true, true, false]);
    assert.equal(messages.at(-1).role, "assistant");
  });

  for (const error of Object.keys(EXPECTED[server.name].failures)) {
    test(`a model that raises ${error} in the middle of its text`, async () => {
      const client = new Client("failing");
      client.say({ error });
      const done = await run(client, { error });
      assert.equal(count(done, "TEXT_MESSAGE_CONTENT"), 4, "one whole message, three tokens of another");
    });
  }

  test("subgraphs of subgraphs", async () => {
    const client = new Client("subgraphs");
    client.say("go");
    await run(client, success);
  });

  test("an agent that a tool runs", async () => {
    const client = new Client("subagent");
    client.say("go");
    await run(client, success);
  });

  if (isServed(server, "deep")) {
    test("a deep agent: its plan, its files, and two subagents at once that it does not speak for", async () => {
      const client = new Client("deep");
      client.say("go");
      const done = await run(client, success);
      const texts = Object.fromEntries(Object.entries(client.state.files).map(([path, { content }]) => [path, content]));
      same(texts, { "/report.md": "# Report\nBoth are warm.\n", "/paris.md": "# Paris\nwarm\n", "/lyon.md": "# Lyon\nwarm\n" }, "the files");
      assert.deepEqual(client.state.todos.map(({ status }) => status), ["completed", "completed"]);
      // A client before AG-UI 1.0 knows no subagents: their texts are messages that the snapshot at the end takes away.
      if (generation.version === "1.0.0") {
        const speakers = new Map(done.events.filter(({ type }) => type === "TEXT_MESSAGE_START").map((event) => [event.messageId, event.subagentRunId]));
        const textOf = (id) => done.events.filter((event) => event.type === "TEXT_MESSAGE_CONTENT" && speakers.get(event.messageId) === id).map(({ delta }) => delta).join("");
        same(textOf(undefined), "I plan first.Now both cities.The report is written.", "the agent's own text");
        const subagents = done.events.filter(({ type }) => type === "SUBAGENT_STARTED").sort((one, other) => (one.parentToolCallId < other.parentToolCallId ? -1 : 1));
        const seen = subagents.map(({ subagentRunId, name, parentToolCallId }) => [parentToolCallId, name, textOf(subagentRunId)]);
        same(seen, [["call_6_0", "researcher", "Looking up Paris.Paris is warm."], ["call_6_1", "researcher", "Looking up Lyon.Lyon is warm."]], "the subagents");
      }
      client.say("again");
      await run(client, success);
    });
  }

  test("todos in the state", async () => {
    const client = new Client("todos");
    client.say("go");
    const done = await run(client, success);
    assert.equal(client.state.todos.length, 2);
    assert.equal(count(done, "MESSAGES_SNAPSHOT"), 0, "what was streamed in its order needs no repetition");
  });

  test("state of many shapes, changed node by node", async () => {
    const client = new Client("counter");
    client.say("go");
    const done = await run(client, success);
    assert.ok(count(done, "STATE_DELTA") > 0, "deltas, not only snapshots");
    assert.match(done.body, new RegExp(`[^\\d]${EXPECTED[server.name].big[0]}[^\\d]`));
  });

  test("400 KB of state are sent once, and then the changes", async () => {
    const client = new Client("big");
    client.say({ tokens: 2 });
    for (const seen of [1, 2]) {
      const done = await run(client, success);
      const size = JSON.stringify(client.state).length;
      assert.ok(size > 400_000, `the state has ${size} bytes`);
      assert.ok(done.body.length < size + PATCHES_BYTES, `a state of ${size} bytes made ${done.body.length} bytes`);
      assert.equal(client.state.rows.find(({ id }) => id === "row-200").seen, seen);
      client.say({ tokens: 1 });
    }
  });

  test("a graph without messages, driven by the client's state", async () => {
    const client = new Client("slow", { state: { steps: 4, delay: 0.05, size: 2000 } });
    const done = await run(client, success);
    assert.equal(count(done, "CUSTOM"), 4);
    assert.equal(client.state.i, 4);
  });

  test("a flood of custom events, in order", async () => {
    const client = new Client("flood", { state: { n: 2000, size: 100, every: 50 } });
    const done = await run(client, success);
    const seen = done.events.filter(({ type }) => type === "CUSTOM").map(({ value }) => value.i);
    same(seen, [...Array(2000).keys()], "custom events");
  });
}

function interrupts({ server, generation, Client }) {
  /** Answers every pending interrupt, in the client's order. */
  const answer = (client, payload) => {
    const answers = client.pendingInterrupts.map((pending, n) => [pending.id, { status: "resolved", payload: payload(pending, n) }]);
    return { resume: generation.buildResumeArray(client.pendingInterrupts, Object.fromEntries(answers)) };
  };

  /** The calls that have a result, and whether it is an error. */
  const results = ({ after }) => {
    const tools = ofThread(after.state.values).messages.filter(({ role }) => role === "tool");
    return Object.fromEntries(tools.map(({ toolCallId, failed }) => [toolCallId, failed]));
  };

  test("one node raises an interrupt", async () => {
    const client = new Client("interrupt_node");
    client.say("go");
    await run(client, interrupt);
    assert.equal(client.pendingInterrupts.length, 1);
    await run(client, success, answer(client, () => "yes"));
    assert.deepEqual(client.state.answers, ["prep", { ask: "yes" }, "fin"]);
  });

  test("the approver gets the whole request, and Agent Inbox's request is an approval", async () => {
    const client = new Client("reviewed");
    client.say("go");
    await run(client, interrupt);
    const [question] = client.pendingInterrupts;
    assert.equal(question.message, "Is this right?");
    assert.deepEqual(question.metadata.langgraph.value.choices, ["yes", "no"]);
    await run(client, interrupt, answer(client, () => "yes"));
    const [approval] = client.pendingInterrupts;
    assert.equal(approval.message, "This goes to 5,000 customers and cannot be undone.");
    assert.deepEqual(approval.metadata.langgraph, { action: "publish", args: { to: "all" }, allowed_decisions: ["accept", "edit", "ignore"] });
    await run(client, success, answer(client, () => ({ approved: true })));
    assert.deepEqual(client.state.answers, ["yes", { type: "accept", args: null }]);
  });

  test("a node of a subgraph raises an interrupt", async () => {
    const client = new Client("interrupt_child");
    client.say({ tokens: 3 });
    await run(client, interrupt);
    const done = await run(client, success, answer(client, () => "yes"));
    assert.deepEqual(client.state.answers, ["prep", "child"]);
    assert.equal(done.after.state.values.messages.length, 2);
  });

  for (const [graph, { asked: calls }] of Object.entries(ASKED_BELOW).filter(([graph]) => isServed(server, graph))) {
    test(`an agent below the root asks, and everybody sees what it says and calls: ${graph}`, async () => {
      const client = new Client(graph);
      client.say("go");
      const { after } = await run(client, interrupt);
      await checkAsked(client, calls, after);
      const { events } = await run(client, success, answer(client, () => ({ approved: true })));
      const people = events.filter(({ type, role }) => type === "TEXT_MESSAGE_START" && role === "user");
      same(people, [], "words that nobody typed, such as a tool's for its agent");
      checkConverged(client);
      client.say("again");
      const again = await run(client, interrupt);
      await checkAsked(client, calls, again.after);
    });
  }

  test("of two agents below the root one is answered, and then the other", async () => {
    const client = new Client("asking_two");
    client.say("go");
    await run(client, interrupt);
    const [left, right] = ["left", "right"].map((side) => ASKED_BELOW.asking_two.asked.filter((id) => id.startsWith(side)));
    client.pendingInterrupts = client.pendingInterrupts.filter(({ toolCallId }) => right.includes(toolCallId));
    const { after } = await run(client, interrupt, answer(client, () => ({ approved: false, reason: "not now" })));
    await checkAsked(client, left, after);
    await run(client, success, answer(client, () => ({ approved: true })));
    checkConverged(client);
  });

  test("a static breakpoint is passed by any answer", async () => {
    const client = new Client("breakpoint");
    client.say("go");
    await run(client, { ...interrupt, ids: [`${client.threadId}:breakpoint`] });
    await run(client, success, answer(client, () => null));
    assert.deepEqual(client.state.answers, ["prep", "fin"]);
  });

  test("two nodes raise interrupts at once", async () => {
    const client = new Client("interrupt_parallel");
    client.say("go");
    await run(client, interrupt);
    assert.equal(client.pendingInterrupts.length, 2);
    await run(client, success, answer(client, ({ id }) => ({ answerTo: id })));
    assert.equal(client.state.answers.length, 3);
  });

  test("two nodes raise interrupts at once and are answered one after the other", async () => {
    const client = new Client("interrupt_parallel");
    client.say("go");
    await run(client, interrupt);
    client.pendingInterrupts = client.pendingInterrupts.slice(0, 1); // by default the client answers all or none
    await run(client, interrupt, answer(client, () => 1));
    assert.equal(client.pendingInterrupts.length, 1);
    await run(client, success, answer(client, () => 2));
    assert.equal(client.state.answers.length, 3);
  });

  test("two tool calls wait for approval; both are approved", async () => {
    const client = new Client("hitl");
    client.say("go");
    await run(client, interrupt);
    const done = await run(client, success, answer(client, () => ({ approved: true })));
    assert.deepEqual(results(done), { call_e: false, call_d: false });
  });

  test("two tool calls wait for approval; one is approved with other arguments", async () => {
    const client = new Client("hitl");
    client.say("go");
    await run(client, interrupt);
    const editedArgs = { to: "b@example.com", body: "edited" };
    const decide = ({ toolCallId }) => (toolCallId === "call_e" ? { approved: true, editedArgs } : { approved: true });
    const done = await run(client, success, answer(client, decide));
    assert.deepEqual(results(done), { call_e: false, call_d: false });
    assert.match(client.messages.find(({ toolCallId }) => toolCallId === "call_e").content, /sent to b@example\.com$/);
  });

  test("two tool calls wait for approval; one is approved, one denied", async () => {
    const client = new Client("hitl");
    client.say("go");
    await run(client, interrupt);
    const bound = client.pendingInterrupts.map(({ toolCallId }) => toolCallId);
    assert.deepEqual(bound, ["call_e", "call_d"]);
    const done = await run(client, success, answer(client, ({ toolCallId }) => ({ approved: toolCallId === "call_e" })));
    assert.deepEqual(results(done), EXPECTED[server.name].halfDenied);
  });
}

/** Clients that connect by each route now, and see a legal stream. */
async function lateViewers({ graph, threadId, server }, kinds = ["connect", "connect 0.0.59", "events"]) {
  const viewers = await Promise.all(kinds.map((kind) => new Viewer(server.threadway, graph, threadId, kind).watch()));
  for (const viewer of viewers) await checkLegal(viewer);
  return viewers;
}

/** A summary that replaces messages of the thread is a notice, and nobody's words. */
function checkSummary({ messages }, shortens) {
  const notices = messages.filter(({ activityType }) => activityType === "threadway.notice").map(({ content }) => content);
  assert.equal(notices.length, shortens ? 1 : 0, "notices");
  for (const { source, text } of notices) {
    assert.equal(source, "summarization");
    assert.match(text, SUMMARY_WORDS);
  }
  for (const { role, content } of messages) if (role !== "activity") assert.doesNotMatch(String(content), SUMMARY_WORDS, `a message of the role ${role}`);
}

/** While agents wait, this client and later ones hold their messages, and each question names a call that is shown once. */
async function checkAsked(client, calls, { state }) {
  const { threadId } = client;
  const seen = await lateViewers(client);
  const pages = [
    { kind: "the run's client", messages: client.messages, asked: client.pendingInterrupts, isLive: true },
    ...seen.map(({ kind, held, frames }) => ({ kind, messages: held.at(-1).messages, asked: frames.at(-1).event.outcome.interrupts })),
  ];
  for (const { kind, messages, asked, isLive } of pages) {
    same(ofClient(messages), ofThread(state.values, threadId), `${kind}: the messages against the thread's`);
    // In a second turn the calls of the first have the same ids.
    const named = asked.map(({ toolCallId }) => toolCallId);
    same(named.map((id) => id?.split("~")[0]).sort(), [...calls].sort(), `${kind}: the calls that are asked about`);
    const shown = messages.flatMap(({ toolCalls = [] }) => toolCalls.map(({ id }) => id));
    for (const id of named) assert.equal(shown.filter((one) => one === id).length, 1, `${kind}: how often ${id} is shown`);
    const tools = messages.filter(({ activityType }) => activityType === "threadway.tool").map(({ content }) => content);
    same(tools.filter(({ status }) => status === "running").map(({ toolCallId }) => toolCallId), [], `${kind}: running tools`);
    const waiting = tools.filter(({ status }) => status === "waiting").map(({ toolCallId }) => toolCallId);
    same(waiting.filter((id) => named.includes(id)).sort(), [...named].sort(), `${kind}: waiting tools${isLive ? "" : " of a late viewer"}`);
  }
}

/** After the answers no tool is shown as if it went on. */
function checkConverged(client) {
  const tools = client.messages.filter(({ activityType }) => activityType === "threadway.tool").map(({ content }) => content);
  same(tools.filter(({ status }) => ["running", "waiting"].includes(status)), [], "tools that have not ended");
}

function secondTurn({ server, Client }) {
  test("by the client of the first turn", async () => {
    const client = new Client("text");
    client.say({ tokens: 3 });
    await run(client, success);
    client.say({ tokens: 5 });
    const done = await run(client, success);
    assert.equal(done.after.state.values.messages.length, 4);
  });

  test("by a client that holds nothing of the first turn", async () => {
    const first = new Client("agent");
    first.say("go");
    await run(first, success);
    const client = new Client("agent", { threadId: first.threadId });
    client.say({ tools: false });
    const done = await run(client, success);
    assert.equal(done.after.state.values.messages.length, 7);
  });

  test("with the same tool call ids again", async () => {
    const client = new Client("agent");
    client.say("go");
    await run(client, success);
    client.say("again");
    await run(client, success);
    client.say("and again");
    await run(client, success);
  });

  test("with the state that the client received and sends back", async () => {
    const client = new Client("counter");
    client.say("go");
    await run(client, success);
    client.say("again");
    const done = await run(client, success);
    // A JavaScript client cannot represent the big integer: the number that it sends back is not the thread's.
    const { big, count, log } = exact(done.after.text).values;
    assert.equal(big, `number ${EXPECTED[server.name].big[1]}`);
    assert.equal(count, "number 6");
    assert.equal(log.length, 10);
  });

  test("with state that the client changed", async () => {
    const client = new Client("counter");
    client.say("go");
    await run(client, success);
    client.setState({ ...client.state, count: 40 });
    client.say("again");
    await run(client, success);
    assert.equal(client.state.count, 43);
  });

  test("with a message that was edited: the thread forks before it", async () => {
    const client = new Client("text");
    client.say({ tokens: 2 });
    await run(client, success);
    const edited = client.say({ tokens: 3 });
    await run(client, success);
    const kept = client.messages.slice(0, 2);
    client.setMessages([...kept, { id: edited, role: "user", content: JSON.stringify({ tokens: 1 }) }]);
    const done = await run(client, success);
    same(done.after.state.values.messages.length, 4, "messages of the fork");
    same(client.messages.at(-1).content, "tok0 ", "the new answer");
  });

  test("with the last answer removed: the agent answers again", async () => {
    const client = new Client("text");
    client.say({ tokens: 2 });
    await run(client, success);
    const before = client.messages.at(-1).id;
    client.setMessages(client.messages.slice(0, 1));
    const done = await run(client, success);
    same(done.after.state.values.messages.length, 2, "messages of the thread");
    assert.notEqual(client.messages.at(-1).id, before);
  });

  for (const [graph, shortens] of Object.entries(SUMMARISED).filter(([graph]) => isServed(server, graph))) {
    test(`of a conversation that is summarised on the way, by this client, a stale one and a reloaded one: ${graph}`, async () => {
      const client = new Client(graph);
      const turn = async (client, words) => {
        client.say(words);
        const done = await run(client, success);
        const said = done.events.filter(({ type }) => type === "TEXT_MESSAGE_CONTENT").map(({ delta }) => delta).join("");
        assert.doesNotMatch(said, SUMMARY_WORDS, "the summary is no words of the agent");
        return done.after.state.values.messages.map(({ id, content }) => `${id} ${content}`);
      };
      for (const words of ["one", "two", "three"]) await turn(client, `say ${words}`);
      const stale = new Client(graph, { threadId: client.threadId, state: structuredClone(client.state) });
      stale.setMessages(structuredClone(client.messages));
      const before = await turn(client, "say four");
      checkSummary(client, shortens);
      // It sends the messages that the thread has lost.
      const after = await turn(stale, "say five");
      same(after.slice(0, before.length), before, "what the thread has kept");
      assert.equal(after.length, before.length + 2, "the message and its answer");
      checkSummary(stale, shortens);
      const [later] = await lateViewers(client, ["connect"]);
      const reloaded = new Client(graph, { threadId: client.threadId, state: later.held.at(-1).state });
      reloaded.setMessages(later.held.at(-1).messages);
      checkSummary(reloaded, shortens);
      await turn(reloaded, "say six");
      checkSummary(reloaded, shortens);
      assert.ok(shortens || reloaded.state._summarization_event, "deepagents has summarised");
      const people = reloaded.messages.filter(({ role }) => role === "user").map(({ content }) => content);
      const all = ["one", "two", "three", "four", "five", "six"].map((words) => `say ${words}`);
      same(people, shortens ? all.slice(-people.length) : all, "what the person has said");
      for (const viewer of await lateViewers(client)) same(ofClient(viewer.held.at(-1).messages), ofClient(reloaded.messages), viewer.kind);
    });
  }

  test("after one that was cancelled", async () => {
    const client = new Client("slow", { state: { steps: 100, delay: 0.5 } });
    let started, stopped;
    const onEvent = ({ type, metadata }) => {
      if (type === "RUN_STARTED") started = metadata.langgraph;
      // A step has just ended and the next one sleeps, so nothing is committed while the cancel is on its way.
      if (type === "STATE_DELTA") stopped ??= cancel(server, started.thread_id, started.run_id);
    };
    const done = await run(client, cancelled, { onEvent });
    await stopped;
    const { status } = done.after.thread;
    assert.ok(EXPECTED[server.name].cancelled.includes(status), `the thread is ${status}`);
    client.setState({ ...client.state, steps: 1 });
    await run(client, success);
  });

  test("after one that failed", async () => {
    const client = new Client("failing");
    const [error] = Object.keys(EXPECTED[server.name].failures);
    client.say({ error });
    await run(client, { error });
    client.say({ fail_after: 100 });
    await run(client, success);
  });
}

/** The gateway's other routes, and the parts of a request besides messages and state. */
function gateway({ server, Client }) {
  test("a run that is stopped ends as cancelled, and as LangGraph holds it", async () => {
    const client = new Client("slow", { state: { steps: 100, delay: 0.5 } });
    let stopped, began, ended;
    const stop = async () => {
      began = performance.now();
      const response = await fetch(`${server.threadway}/agui/agent/slow/stop/${client.threadId}`, { method: "POST" });
      return response.json();
    };
    const onEvent = ({ type }) => {
      if (type === "STATE_DELTA") stopped ??= stop();
      if (TERMINAL.includes(type)) ended = performance.now();
    };
    await run(client, cancelled, { onEvent });
    assert.equal((await stopped).stopped, true);
    console.log(`# stopped on the ${server.name} server after ${(ended - began).toFixed(0)} ms`);
    const again = await fetch(`${server.threadway}/agui/agent/slow/stop/${client.threadId}`, { method: "POST", body: "{}" });
    assert.deepEqual(await again.json(), { stopped: false, message: "the thread has no live run" });
  });

  test("the agents are listed as CopilotKit's client reads them", async () => {
    const info = await (await fetch(`${server.threadway}/agui/info`)).json();
    assert.equal(info.mode, "sse");
    for (const graph of ["agent", "failing", "slow"]) assert.equal(info.agents[graph].name, graph);
  });

  for (const [whose, threadId] of [["LangGraph's", randomUUID()], ["the client's", `thread ${randomUUID()}`]]) {
    test(`a thread under ${whose} id is listed with its first words as its name`, async () => {
      const client = new Client("text", { threadId });
      for (const words of [`Is it ${"very ".repeat(20)}warm?`, "And tomorrow?"]) {
        client.say(words);
        await client.runAgent({});
        const { threads } = await (await fetch(`${server.threadway}/agui/threads?agentId=text&limit=200`)).json();
        assert.equal(threads.find(({ id }) => id === threadId)?.name, `Is it ${"very ".repeat(10)}ver…`);
      }
    });
  }

  // The JavaScript server cannot read the schema of a graph whose state is an `Annotation`.
  if (server.graphs === "Python") {
    test("the client's own tools and context are sent to the graph, and removed again", async () => {
      const client = new Client("client_tools");
      client.say("paint");
      const tools = [{ name: "paint", description: "Paints.", parameters: { type: "object", properties: {} } }];
      const context = [{ description: "time", value: "noon" }];
      await run(client, success, { tools, context });
      const [call] = client.messages.at(-1).toolCalls;
      assert.equal(call.function.name, "paint");
      assert.deepEqual(JSON.parse(call.function.arguments), { about: "noon" });
      client.addMessage({ id: randomUUID(), role: "tool", toolCallId: call.id, content: "a tree" });
      await run(client, success, { tools, context });
      assert.equal(client.messages.at(-1).content, "The client says: a tree");
      client.say("paint again");
      await run(client, success);
      assert.equal(client.messages.at(-1).content, "There is no tool.");
    });
  }

  test("an agent below a graph without a key finds the client's tools, and no longer in the next run", async () => {
    const tools = [{ name: "paint", description: "Paints.", parameters: { type: "object", properties: {} } }];
    const context = [{ description: "time", value: "noon" }];
    const none = { tools: [], context: [] };
    for (const [agent, found] of [["nested", { tools: ["paint"], context }], ["nested_fixed", none]]) {
      const client = new Client(agent);
      client.say("look");
      await run(client, success, { tools, context });
      assert.deepEqual(JSON.parse(client.messages.at(-1).content), found);
      client.say("look again");
      await run(client, success);
      assert.deepEqual(JSON.parse(client.messages.at(-1).content), none);
    }
  });
}

function leaving({ server, Client }) {
  test("a client that disconnects does not stop its run", async () => {
    const client = new Client("slow", { state: { steps: 10, delay: 0.1 } });
    const leaving = client.runAgent({ runId: "leaves" }, { onStepFinishedEvent: () => client.abortRun() });
    await leaving.catch(() => {});
    const end = Date.now() + LEFT_RUN_MS;
    for (;;) {
      const { state } = await readThread(server, client.threadId);
      if (state.values.i === 10) break;
      assert.ok(Date.now() < end, `the run stands at step ${state.values.i}`);
      await new Promise((wake) => setTimeout(wake, 100));
    }
  });
}

describe("agents", { concurrency: SERVERS.length }, () => {
  for (const server of SERVERS) {
    describe(`on the ${server.name} server`, () => {
      for (const generation of GENERATIONS) {
        const at = { server, generation, Client: clientOf(server, generation) };
        describe(`with client ${generation.version}`, () => {
          describe("one turn", OPTIONS, () => oneTurn(at));
          describe("interrupts", OPTIONS, () => interrupts(at));
          describe("a second turn on the same thread", OPTIONS, () => secondTurn(at));
          describe("the gateway", OPTIONS, () => gateway(at));
          leaving(at);
        });
      }
    });
  }
});

test("the clients warned of nothing", () => {
  assert.deepEqual(warnings, []);
});

test("ag-ui-validate finds nothing in what was recorded, or live, that is not explained", { timeout: VALIDATE_MS }, async () => {
  const script = fileURLToPath(new URL("../validate/validate.py", import.meta.url));
  const live = SERVERS.map(({ threadway }) => `${threadway}/agui/agent/agent/run`);
  const validate = spawn(process.env.VALIDATE_PYTHON, [script, ...live], { stdio: ["pipe", "pipe", "inherit"] });
  const exit = new Promise((resolve, reject) => validate.once("exit", resolve).once("error", reject));
  validate.stdin.end(bodies.map((recorded) => `${JSON.stringify(recorded)}\n`).join(""));
  const [found, status] = await Promise.all([textOf(validate.stdout), exit]);
  assert.equal(status, 0, found);
});
