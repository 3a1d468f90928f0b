// Subagents of a real deep agent as child sessions, for an editor with that capability; every frame is judged by the schema.

import { strict as assert } from "node:assert";
import { after, describe, test } from "node:test";
import { Editor } from "./editors.mjs";
import { PYTHON } from "./servers.mjs";

const SUBAGENTS = { subagents: {} };

/** An editor before an agent, which answers each permission with this kind of option. */
async function opened(agent, answer) {
  const editor = new Editor(agent, ["--upstream", PYTHON.langgraph, "--agent", agent]);
  editor.answer = () => answer;
  await editor.initialize(SUBAGENTS);
  await editor.new();
  return editor;
}

/** The child sessions, by id: the last of each member, the states in order, and the texts and calls of each. */
function childrenOf(editor) {
  const children = new Map();
  for (const { update } of editor.updates.filter(({ update }) => update.sessionUpdate === "subagent_update")) {
    const { sessionId, title, description, state } = update;
    const child = children.get(sessionId) ?? { states: [], text: "", calls: new Map(), asked: 0 };
    children.set(sessionId, Object.assign(child, title && { title }, description && { description }));
    if (state) child.states.push(state.state ?? state.type ?? state);
  }
  for (const { sessionId, update } of editor.updates) {
    const child = children.get(sessionId);
    if (!child) continue;
    if (update.sessionUpdate === "agent_message_chunk") child.text += update.content.text;
    if (update.sessionUpdate.startsWith("tool_call")) child.calls.set(update.toolCallId, update.status ?? child.calls.get(update.toolCallId));
  }
  for (const { sessionId } of editor.asked) if (children.has(sessionId)) children.get(sessionId).asked += 1;
  return children;
}

const referredTo = (editor) =>
  editor.updates.filter(({ sessionId }) => sessionId === editor.sessionId).flatMap(({ update }) => (Array.isArray(update.content) ? update.content : []))
    .filter(({ type }) => type === "session").map(({ sessionId }) => sessionId);

describe("subagents as child sessions", { skip: PYTHON ? false : "no server with deepagents" }, () => {
  let editor;
  after(() => editor?.stop());

  test("two researchers at once", async () => {
    editor = await opened("deep");
    const { stopReason } = await editor.prompt("{}");
    assert.equal(stopReason, "end_turn");
    const children = childrenOf(editor);
    if (process.env.VERBOSE) console.log(JSON.stringify([...children].map(([id, c]) => [id, { ...c, calls: [...c.calls] }]), null, 1));
    assert.equal(children.size, 2);
    assert.deepEqual(new Set(referredTo(editor)), new Set(children.keys()), "the calls name their children");
    for (const { title, text, calls, states } of children.values()) {
      assert.equal(title, "researcher");
      assert.match(text, /Looking up (Paris|Lyon)\./);
      assert.deepEqual([...calls.values()], ["completed"]);
      assert.deepEqual([states[0], states.at(-1)], ["running", "idle"]);
    }
    const own = [...editor.said].filter(([key]) => key.startsWith("agent")).map(([, text]) => text).join("");
    assert.ok(!own.includes("Looking up"), "a child's words are the child's");
    await editor.stop();
    assert.deepEqual(editor.judge.faults, []);
  });

  test("two writers that ask before each mail", async () => {
    editor = await opened("asking_deep", "allow_once");
    const { stopReason } = await editor.prompt("{}");
    assert.equal(stopReason, "end_turn");
    const children = childrenOf(editor);
    if (process.env.VERBOSE) console.log(JSON.stringify([...children].map(([id, c]) => [id, { ...c, calls: [...c.calls] }]), null, 1), JSON.stringify(editor.asked.map(({ sessionId, toolCall }) => [sessionId, toolCall.toolCallId])));
    assert.equal(children.size, 2);
    assert.deepEqual([...children.values()].map(({ asked }) => asked), [1, 1], "each child asks in its own session");
    for (const { text, calls } of children.values()) {
      assert.match(text, /(left|right) wrote\./);
      assert.deepEqual([...calls.values()], ["completed"]);
    }
    await editor.stop();
    assert.deepEqual(editor.judge.faults, []);
  });
});
