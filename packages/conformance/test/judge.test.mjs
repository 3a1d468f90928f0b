// A stream with each fault fails exactly the requirement that names it.

import assert from "node:assert/strict";
import { test } from "node:test";
import { AGUI, judge } from "../src/judge.mjs";

const input = {
  threadId: "t1",
  runId: "r1",
  messages: [
    { id: "u0", role: "user", content: "hi" },
    { id: "a0", role: "assistant", content: "hello", toolCalls: [{ id: "c0", type: "function", function: { name: "f", arguments: "{}" } }] },
    { id: "x0", role: "tool", toolCallId: "c0", content: "zero" },
  ],
  state: { n: 1 },
};

/** A legal stream with every kind of event. */
const legal = () => structuredClone(LEGAL);
const LEGAL = [
  { type: "RUN_STARTED", threadId: "t1", runId: "r1", protocolVersion: "1.0" },
  { type: "STEP_STARTED", stepName: "model", timestamp: 1 },
  { type: "REASONING_START", messageId: "th1" },
  { type: "REASONING_MESSAGE_START", messageId: "th1", role: "reasoning" },
  { type: "REASONING_MESSAGE_CONTENT", messageId: "th1", delta: "well" },
  { type: "REASONING_MESSAGE_END", messageId: "th1" },
  { type: "REASONING_ENCRYPTED_VALUE", subtype: "message", entityId: "th1", encryptedValue: "xyz" },
  { type: "REASONING_END", messageId: "th1" },
  { type: "TEXT_MESSAGE_START", messageId: "m1", role: "assistant" },
  { type: "TEXT_MESSAGE_CONTENT", messageId: "m1", delta: "one " },
  { type: "TOOL_CALL_START", toolCallId: "c1", toolCallName: "search", parentMessageId: "m1" },
  { type: "TOOL_CALL_ARGS", toolCallId: "c1", delta: "{}" },
  { type: "TOOL_CALL_END", toolCallId: "c1" },
  { type: "TEXT_MESSAGE_CONTENT", messageId: "m1", delta: "two" },
  { type: "TEXT_MESSAGE_END", messageId: "m1" },
  { type: "TOOL_CALL_RESULT", messageId: "x1", toolCallId: "c1", content: "found" },
  { type: "STEP_FINISHED", stepName: "model" },
  { type: "STATE_DELTA", delta: [{ op: "replace", path: "/n", value: 2 }] },
  { type: "STATE_SNAPSHOT", snapshot: { n: 3, list: [] } },
  { type: "STATE_DELTA", delta: [{ op: "add", path: "/list/-", value: "a" }] },
  { type: "ACTIVITY_SNAPSHOT", messageId: "ac1", activityType: "plan", content: { done: 0 } },
  { type: "ACTIVITY_DELTA", messageId: "ac1", activityType: "plan", patch: [{ op: "replace", path: "/done", value: 1 }] },
  { type: "SUBAGENT_STARTED", subagentRunId: "s1", name: "helper" },
  { type: "SUBAGENT_STARTED", subagentRunId: "s2", name: "helper", parentSubagentRunId: "s1" },
  { type: "TEXT_MESSAGE_START", messageId: "m2", subagentRunId: "s1" },
  { type: "TEXT_MESSAGE_CONTENT", messageId: "m2", delta: "sub", subagentRunId: "s1" },
  { type: "TEXT_MESSAGE_END", messageId: "m2" },
  { type: "SUBAGENT_FINISHED", subagentRunId: "s2" },
  { type: "SUBAGENT_FINISHED", subagentRunId: "s1", outcome: { type: "success" } },
  { type: "TEXT_MESSAGE_CHUNK", messageId: "m3", role: "assistant", delta: "chunk " },
  { type: "TEXT_MESSAGE_CHUNK", role: "assistant", delta: "by chunk" },
  { type: "TOOL_CALL_CHUNK", toolCallId: "c2", toolCallName: "ask", delta: "{" },
  { type: "TOOL_CALL_CHUNK", delta: "}" },
  { type: "REASONING_MESSAGE_CHUNK", messageId: "th2", delta: "hm" },
  { type: "CUSTOM", name: "com.example.x", value: null },
  { type: "RAW", event: null },
  { type: "TEXT_MESSAGE_START", messageId: "m1", role: "assistant" },
  { type: "TEXT_MESSAGE_CONTENT", messageId: "m1", delta: ", three" },
  { type: "TEXT_MESSAGE_END", messageId: "m1" },
  {
    type: "MESSAGES_SNAPSHOT",
    messages: [
      ...input.messages,
      { id: "m1", role: "assistant", content: "one two, three", toolCalls: [{ id: "c1", type: "function", function: { name: "search", arguments: "{}" } }] },
      { id: "x1", role: "tool", toolCallId: "c1", content: [{ type: "text", text: "found" }] },
      { id: "c2", role: "assistant", toolCalls: [{ id: "c2", type: "function", function: { name: "ask", arguments: "{}" } }] },
    ],
  },
  { type: "RUN_FINISHED", threadId: "t1", runId: "r1", outcome: { type: "success", pendingToolCallIds: ["c2"] }, usage: [{ inputTokens: 1 }] },
];

const find = (events, type, n = 0) => [...events.keys()].filter((at) => events[at].type === type)[n];
/** Changes the nth event of a type. */
const change = (type, changes, n) => (events) => Object.assign(events[find(events, type, n)], changes);
const drop = (type, n) => (events) => events.splice(find(events, type, n), 1);
/** Removes a member. */
const lose = (type, name, n) => (events) => delete events[find(events, type, n)][name];
/** Inserts events before the nth of a type. */
const before = (type, inserted, n) => (events) => events.splice(find(events, type, n), 0, ...inserted);
const after = (type, inserted, n) => (events) => events.splice(find(events, type, n) + 1, 0, ...inserted);
const end = "RUN_FINISHED";
const text = (messageId, delta, more = {}) => [
  { type: "TEXT_MESSAGE_START", messageId, role: "assistant", ...more },
  { type: "TEXT_MESSAGE_CONTENT", messageId, delta },
  { type: "TEXT_MESSAGE_END", messageId },
];
const call = (toolCallId, more = {}) => [
  { type: "TOOL_CALL_START", toolCallId, toolCallName: "search", ...more },
  { type: "TOOL_CALL_END", toolCallId },
];
const asks = (interrupts) => change(end, { outcome: { type: "interrupt", interrupts } });

const MUTANTS = [
  ["A5", "an unknown type", before(end, [{ type: "THINKING_START" }])],
  ["A6", "a missing member", lose("TEXT_MESSAGE_CONTENT", "delta")],
  ["A6", "a member of another type", change("TEXT_MESSAGE_CONTENT", { delta: 7 })],
  ["A6", "an unknown role", change("TEXT_MESSAGE_START", { role: "tool" }, 1)],
  ["A6", "content that is an object", change("TOOL_CALL_RESULT", { content: { a: 1 } })],
  ["A6", "tokens that are no whole number", change(end, { usage: [{ inputTokens: 1.5 }] })],
  ["A6", "a reasoning message without its role", lose("REASONING_MESSAGE_START", "role")],
  ["A7", "null for an absent member", change("TOOL_CALL_START", { parentMessageId: null })],
  ["A7", "null for an absent rawEvent", change("CUSTOM", { rawEvent: null })],
  ["A8", "a fraction of a millisecond", change("STEP_STARTED", { timestamp: 1.5 })],
  ["A8", "a timestamp that is a string", change("STEP_STARTED", { timestamp: "2026-11-27T00:00:00Z" })],
  ["A9", "no RUN_STARTED", drop("RUN_STARTED")],
  ["A9", "an event before RUN_STARTED", before("RUN_STARTED", [{ type: "CUSTOM", name: "run.accepted", value: {} }])],
  ["A10", "no end", drop(end)],
  ["A11", "an event after the end", after(end, [{ type: "CUSTOM", name: "x", value: 1 }])],
  ["A11", "a second end", after(end, [{ type: "RUN_FINISHED", threadId: "t1", runId: "r1" }])],
  ["A12", "a run inside of a run", after("RUN_STARTED", [{ type: "RUN_STARTED", threadId: "t1", runId: "r1", protocolVersion: "1.0" }])],
  ["A13", "another thread at the start", change("RUN_STARTED", { threadId: "t2" })],
  ["A13", "another thread at the end", change(end, { threadId: "t2" })],
  ["A14", "another run at the end", change(end, { runId: "r2" })],
  ["A15", "another run than the requested one", (events) => [change("RUN_STARTED", { runId: "r2" })(events), change(end, { runId: "r2" })(events)]],
  ["A16", "no version", lose("RUN_STARTED", "protocolVersion")],
  ["A16", "no version's form", change("RUN_STARTED", { protocolVersion: "v1" })],
  ["A17", "an unknown outcome", change(end, { outcome: { type: "timeout" } })],
  ["A18", "a pending call that has a result", change(end, { outcome: { type: "success", pendingToolCallIds: ["c2", "c1"] } })],
  ["A18", "a pending call that is left out", change(end, { outcome: { type: "success", pendingToolCallIds: [] } })],
  ["A19", "a step twice", after("STEP_STARTED", [{ type: "STEP_STARTED", stepName: "model" }])],
  ["A20", "the end of an unknown step", before(end, [{ type: "STEP_FINISHED", stepName: "tools" }])],
  ["A21", "a step without its end", drop("STEP_FINISHED")],
  ["A22", "a message opened twice", after("TEXT_MESSAGE_START", [{ type: "TEXT_MESSAGE_START", messageId: "m1", role: "assistant" }])],
  ["A23", "content of no message", before(end, [{ type: "TEXT_MESSAGE_CONTENT", messageId: "m9", delta: "x" }])],
  ["A23", "a message without its start", drop("TEXT_MESSAGE_START", 1)],
  ["A24", "a message without its end", drop("TEXT_MESSAGE_END", 1)],
  ["A25", "a message reopened under another role", change("TEXT_MESSAGE_START", { role: "system" }, 2)],
  ["A26", "a call opened twice", after("TOOL_CALL_START", [{ type: "TOOL_CALL_START", toolCallId: "c1", toolCallName: "search", parentMessageId: "m1" }])],
  ["A27", "a call without its start", before(end, [{ type: "TOOL_CALL_ARGS", toolCallId: "c9", delta: "{" }])],
  ["A28", "a call without its end", drop("TOOL_CALL_END")],
  ["A29", "a call reopened under another name", before("MESSAGES_SNAPSHOT", call("c1", { toolCallName: "find", parentMessageId: "m1" }))],
  ["A30", "a thought opened twice", after("REASONING_MESSAGE_START", [{ type: "REASONING_MESSAGE_START", messageId: "th1", role: "reasoning" }])],
  ["A31", "a thought without its start", drop("REASONING_MESSAGE_START")],
  ["A32", "a span opened twice", after("REASONING_START", [{ type: "REASONING_START", messageId: "th1" }])],
  ["A32", "a span without its start", drop("REASONING_START")],
  ["A33", "a thought without its end", drop("REASONING_MESSAGE_END")],
  ["A33", "a span without its end", drop("REASONING_END")],
  ["A34", "a first chunk without an id", lose("TEXT_MESSAGE_CHUNK", "messageId")],
  ["A34", "a first chunk of a call without its name", lose("TOOL_CALL_CHUNK", "toolCallName")],
  ["A35", "a later chunk with another role", change("TEXT_MESSAGE_CHUNK", { role: "user" }, 1)],
  ["A36", "an explicit end of a chunked message", after("TEXT_MESSAGE_CHUNK", [{ type: "TEXT_MESSAGE_END", messageId: "m3" }])],
  ["A36", "a chunk of an explicit message", after("TEXT_MESSAGE_CONTENT", [{ type: "TEXT_MESSAGE_CHUNK", messageId: "m1", delta: "x" }])],
  ["A37", "an invocation announced twice", after("SUBAGENT_FINISHED", [{ type: "SUBAGENT_STARTED", subagentRunId: "s2", name: "helper" }, { type: "SUBAGENT_FINISHED", subagentRunId: "s2" }])],
  ["A37", "an event before its announcement", before("SUBAGENT_STARTED", [{ type: "CUSTOM", name: "x", value: 1, subagentRunId: "s1" }])],
  ["A38", "the end of an unknown invocation", before(end, [{ type: "SUBAGENT_ERROR", subagentRunId: "s9", message: "x" }])],
  ["A39", "an invocation without its end", drop("SUBAGENT_FINISHED")],
  ["A40", "an unknown parent", change("SUBAGENT_STARTED", { parentSubagentRunId: "s9" }, 1)],
  ["A41", "content of another owner", change("TEXT_MESSAGE_CONTENT", { subagentRunId: "s2" }, 2)],
  ["A42", "a pointer without a slash", change("STATE_DELTA", { delta: [{ op: "replace", path: "n", value: 2 }] })],
  ["A42", "an operation without its value", change("STATE_DELTA", { delta: [{ op: "replace", path: "/n" }] })],
  ["A42", "a patch that is no list", change("ACTIVITY_DELTA", { patch: {} })],
  ["A43", "a path that does not exist", change("STATE_DELTA", { delta: [{ op: "replace", path: "/m/n", value: 2 }] })],
  ["A44", "a delta of no activity", drop("ACTIVITY_SNAPSHOT")],
  ["A44", "an activity that becomes a number", change("ACTIVITY_DELTA", { patch: [{ op: "replace", path: "", value: 1 }] })],
  ["A45", "a thought with the id of a text", (events) => events.forEach((event) => event.messageId === "th2" && (event.messageId = "m1"))],
  ["A45", "a result with the id of a text", change("TOOL_CALL_RESULT", { messageId: "u0" })],
  ["A46", "a message without an id", (events) => delete events[find(events, "MESSAGES_SNAPSHOT")].messages[0].id],
  ["A46", "a message twice", (events) => events[find(events, "MESSAGES_SNAPSHOT")].messages.push(structuredClone(input.messages[0]))],
  ["A46", "an unknown role", (events) => (events[find(events, "MESSAGES_SNAPSHOT")].messages[0].role = "human")],
  ["A47", "a message of the input streamed again", before(end, text("a0", "hello"))],
  ["A47", "a call of the input streamed again", before(end, [{ type: "TOOL_CALL_START", toolCallId: "c0", toolCallName: "f", parentMessageId: "a0" }, { type: "TOOL_CALL_ARGS", toolCallId: "c0", delta: "{}" }, { type: "TOOL_CALL_END", toolCallId: "c0" }])],
  ["A47", "a result that the client holds", before(end, [{ type: "TOOL_CALL_RESULT", messageId: "x1", toolCallId: "c1", content: "found" }])],
  ["A48", "an interrupt outcome without interrupts", asks([])],
  ["A48", "two interrupts with one id", asks([{ id: "i", reason: "x" }, { id: "i", reason: "y" }])],
  ["A49", "a member that is not described", change("TEXT_MESSAGE_CONTENT", { model: "m" })],
];

test("a legal stream has no finding", () => {
  const { findings } = judge(legal(), { input, isRequested: true });
  assert.deepEqual(findings, []);
});

for (const [requirement, name, mutate] of MUTANTS) {
  test(`${requirement}: ${name}`, () => {
    const events = legal();
    mutate(events);
    const { findings } = judge(events, { input, isRequested: true });
    const found = [...new Set(findings.map((finding) => finding.requirement))];
    assert.deepEqual(found, [requirement], JSON.stringify(findings, null, 1));
  });
}

test("each judged requirement has a mutant", () => {
  const judged = Object.keys(AGUI).filter((id) => AGUI[id].judged);
  assert.deepEqual(judged.filter((id) => !MUTANTS.some(([requirement]) => requirement === id)), []);
});

test("a legal stream exercises every judged requirement but interrupts and reopened calls", () => {
  const { exercised } = judge(legal(), { input, isRequested: true });
  const judged = Object.keys(AGUI).filter((id) => AGUI[id].judged);
  assert.deepEqual(judged.filter((id) => !exercised.includes(id)), ["A29", "A48"]);
});

test("other legal streams have no finding", () => {
  const started = { type: "RUN_STARTED", threadId: "t1", runId: "r1", protocolVersion: "1.0" };
  const finished = { type: "RUN_FINISHED", threadId: "t1", runId: "r1" };
  const error = { type: "RUN_ERROR", message: "x" };
  for (const events of [
    [error],
    [started, finished],
    [started, finished, error],
    [started, finished, { ...started, runId: "r0" }, { ...finished, runId: "r0" }, started, finished],
    [started, { type: "TEXT_MESSAGE_START", messageId: "m" }, error, started, finished],
    [started, ...text("a0", " again"), finished], // a closed message goes on
    [started, { type: "STEP_STARTED", stepName: "x" }, { type: "STEP_STARTED", stepName: "x", subagentRunId: "s" }, { type: "STEP_FINISHED", stepName: "x", subagentRunId: "s" }, { type: "STEP_FINISHED", stepName: "x" }, finished],
    [started, { type: "CUSTOM", name: "x", value: 1, subagentRunId: "never announced" }, finished],
    [started, { ...finished, outcome: { type: "cancelled" } }],
    [started, { ...finished, outcome: { type: "interrupt", interrupts: [{ id: "i", reason: "input_required" }] } }],
  ]) {
    assert.deepEqual(judge(events, { input, isRequested: events.at(-1).runId === "r1" }).findings, [], JSON.stringify(events));
  }
});

test("a stream that was left is not truncated", () => {
  const events = legal().slice(0, 4);
  assert.deepEqual(judge(events, { input, isOpen: true }).findings, []);
  assert.deepEqual(judge([], { input, isOpen: true }).findings.map(({ requirement }) => requirement), ["A9"]);
});
