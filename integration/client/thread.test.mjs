// Checks the conversion and the comparison that the other tests use, on handwritten threads and streams.

import assert from "node:assert/strict";
import { test } from "node:test";
import { exact, firstDifference, interruptIds, ofClient, ofThread, stateOf } from "./thread.mjs";

const call = (id, args) => ({ id, name: "search", args, type: "tool_call" });
const toolCall = (id, text) => ({ id, type: "function", function: { name: "search", arguments: text } });

const activity = (id, activityType, content) => ({ role: "activity", id, activityType, content: { messageId: "d", ...content } });

const VALUES = {
  messages: [
    { type: "system", id: "s", content: "be brief" },
    { type: "human", id: "h", content: "hi", name: null },
    {
      type: "ai",
      id: "a",
      content: [{ type: "reasoning", reasoning: "Let me think.", index: 0 }, { type: "text", text: "Look" }, { type: "text", text: "ing." }],
      tool_calls: [call("c", { q: 1, deep: { b: [] } })],
    },
    { type: "tool", id: "t", content: "boom", tool_call_id: "c", status: "error" },
    { type: "ai", id: "b", content: "", additional_kwargs: { reasoning_content: "Again." }, tool_calls: [call("c", {})] },
    { type: "tool", id: "u", content: [{ type: "text", text: "fine" }], tool_call_id: "c", status: "success" },
    { type: "ai", id: "d", content: [{ type: "image", base64: "AA==", mime_type: "image/png" }, { type: "new", x: 1 }] },
  ],
  todos: [],
  __interrupt__: [{ id: "i" }],
};

const MESSAGES = [
  { role: "system", id: "s", content: "be brief" },
  { role: "user", id: "h", content: "hi" },
  { role: "reasoning", id: "a:reasoning:0", content: "Let me " },
  { role: "reasoning", id: "a:reasoning:1", content: "think." },
  { role: "assistant", id: "a", content: "Looking.", toolCalls: [toolCall("c", '{"deep": {"b": []}, "q": 1}')], metadata: { x: 1 } },
  { role: "tool", id: "t", content: "boom", toolCallId: "c", error: "boom" },
  { role: "reasoning", id: "rs_1", content: "Again." },
  { role: "assistant", id: "b", toolCalls: [toolCall("c~b", "{}")], subagentRunId: "r" },
  { role: "tool", id: "u", content: "fine", toolCallId: "c~b" },
  { role: "assistant", id: "d", content: "" },
  activity("d:attachment:0", "threadway.image", { source: { type: "data", value: "AA==", mimeType: "image/png" } }),
  activity("d:attachment:1", "threadway.block", { block: { type: "new", x: 1 } }),
  activity("gone:attachment:0", "threadway.empty", {}),
];

test("a client that holds the thread's messages is equal to it", () => {
  assert.equal(firstDifference(ofClient(MESSAGES), ofThread(VALUES, "thread")), undefined);
});

test("every difference that counts is found", () => {
  const changes = {
    "a missing attachment": (messages) => messages.splice(10, 1),
    "an attachment told twice": (messages) => messages.push({ ...messages[10], id: "other" }),
    "other bytes": (messages) => (messages[10].content.source.value = "AB=="),
    "an attachment in the place of another": (messages) => messages.splice(10, 2, messages[11], messages[10]),
    "an attachment behind another message": (messages) => messages.splice(9, 0, ...messages.splice(10, 2)),
    "a missing message": (messages) => messages.splice(8, 1),
    "a message too many": (messages) => messages.push({ role: "assistant", id: "x", content: "" }),
    "another order": (messages) => messages.splice(1, 0, messages.shift()),
    "another id": (messages) => (messages[1].id = "other"),
    "doubled text": (messages) => (messages[4].content += "Looking."),
    "doubled arguments": (messages) => (messages[4].toolCalls[0].function.arguments += "{}"),
    "other arguments": (messages) => (messages[4].toolCalls[0].function.arguments = '{"q": 2}'),
    "missing reasoning": (messages) => messages.splice(6, 1),
    "reasoning without its message": (messages) => (messages[2].id = "gone:reasoning:0"),
    "an error not told": (messages) => delete messages[5].error,
    "an error made up": (messages) => (messages[8].error = "what"),
    "a tool call id not made unique": (messages) => (messages[8].toolCallId = "c"),
  };
  for (const [name, change] of Object.entries(changes)) {
    const messages = structuredClone(MESSAGES);
    change(messages);
    assert.ok(firstDifference(ofClient(messages), ofThread(VALUES, "thread")), name);
  }
});

test("a message without an id is named by its place", () => {
  const { messages } = ofThread({ messages: [{ role: "user", content: "hi" }] }, "thread");
  assert.deepEqual(messages, [{ id: "thread:m0", role: "user", content: "hi" }]);
});

test("the state is the values without messages and interrupts", () => {
  assert.deepEqual(stateOf(VALUES), { todos: [] });
  assert.deepEqual(stateOf({}), {});
});

test("a batched approval has an interrupt for each action", () => {
  const interrupt = (id, actions) => ({ interrupts: [{ id, value: { action_requests: actions } }] });
  const ofJavaScript = { interrupts: [{ id: "d", value: { actionRequests: [{}, {}] } }] };
  const answered = { ...interrupt("e", []), result: { answers: [] } };
  const tasks = [interrupt("a", [{}, {}]), interrupt("b", [{}]), { interrupts: [{ id: "c", value: "why?" }] }, { interrupts: [] }, ofJavaScript, answered];
  assert.deepEqual(interruptIds({ tasks }), ["a:0", "a:1", "b", "c", "d:0", "d:1"]);
});

test("exact numbers keep every digit", () => {
  const big = exact('{"a":[12345678901234567890,-1.10e+5],"b":"12 \\"3\\"","c":1.0}');
  assert.deepEqual(big, { a: ["number 12345678901234567890", "number -1.10e+5"], b: '12 "3"', c: "number 1.0" });
  assert.notEqual(firstDifference(exact("12345678901234567890"), exact("12345678901234567891")), undefined);
});

test("a difference names its path", () => {
  assert.equal(firstDifference({ a: [1, { b: 2 }] }, { a: [1, { b: 2 }] }), undefined);
  assert.equal(firstDifference({ a: [1, { b: 2 }] }, { a: [1, { b: 3 }] }), "at /a/1/b: got 2, expected 3");
  assert.equal(firstDifference([], {}), "at /: got [], expected {}");
  assert.equal(firstDifference({}, { a: null }), "at /a: got nothing, expected null");
});
