// Session cursors before real servers: each turn's cursor, and forks there. What a fork has is compared with LangGraph's history.

import { strict as assert } from "node:assert";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { words } from "./acp.mjs";
import { CWD, Editor, settled } from "./editors.mjs";
import { Gate } from "./gate.mjs";
import { Langgraph } from "./langgraph.mjs";
import { SERVERS } from "./servers.mjs";
import { startThreadway } from "./threadway.mjs";

const directory = mkdtempSync(join(tmpdir(), "threadway-cursors-"));
const config = join(directory, "config.toml");
process.once("exit", () => rmSync(directory, { recursive: true, force: true }));
const STATES = 100; // more than the threads of these tests have

/** The cursors that an editor was told of in a session, in order. */
const cursorsOf = (editor, sessionId) =>
  editor.updates.filter((params) => params.sessionId === sessionId && params.update.sessionUpdate === "cursor_update").map(({ update }) => update);
const idsOf = (editor, sessionId) => [...new Set(cursorsOf(editor, sessionId).map(({ cursorId }) => cursorId))];
const fork = (editor, sessionId, cursorId) => editor.request("session/fork", { sessionId, cwd: CWD, cursorId });
const refused = async (editor, sessionId, cursorId) => assert.equal(await fork(editor, sessionId, cursorId).then(() => "forked", ({ code }) => code), -32602);

// aegra copies no threads.
for (const server of SERVERS.filter(({ software }) => software !== "aegra")) {
  const lg = new Langgraph(server);
  const historyOf = (thread) => lg.get(`/threads/${thread}/history?limit=${STATES}`);
  const stateOf = (thread) => lg.get(`/threads/${thread}/state`);
  const opened = [];

  /** An editor, which is told of cursors, directly or behind a gateway. */
  async function open(agent, gateway) {
    writeFileSync(config, '[acp]\nunstable = ["cursors"]\n');
    const editor = new Editor(agent, gateway ? ["--gateway", gateway] : ["--upstream", server.langgraph, "--agent", agent, "--config", config]);
    opened.push(editor);
    await editor.initialize({ session: { cursors: {} } });
    return editor;
  }

  /** Waits for this many cursors of a session. */
  const told = async (editor, sessionId, count) => {
    const missing = await settled(async () => (idsOf(editor, sessionId).length >= count ? undefined : `${idsOf(editor, sessionId)}`));
    assert.equal(missing, undefined, `${count} cursors`);
    return idsOf(editor, sessionId);
  };

  describe(`session cursors before ${server.name}`, { timeout: 600_000 }, () => {
    after(async () => {
      for (const editor of opened) await editor.stop();
    });

    test("each turn's cursor is a checkpoint, and a fork there is exactly that turn", async () => {
      const editor = await open("agent");
      await editor.new();
      const source = editor.sessionId;
      const ends = [];
      for (const text of ["one", "two", "three"]) {
        await editor.prompt(text);
        ends.push((await stateOf(source)).checkpoint.checkpoint_id);
        // Before the response.
        assert.deepEqual(idsOf(editor, source), ends);
      }
      const history = await historyOf(source);
      const at = (id) => history.find(({ checkpoint }) => checkpoint.checkpoint_id === id);

      const other = await open("agent");
      await other.load(source);
      assert.deepEqual(await told(other, source, 3), ends);
      assert.deepEqual(cursorsOf(other, source), cursorsOf(editor, source));
      for (const { anchor, capabilities } of cursorsOf(other, source)) {
        assert.deepEqual(capabilities, { fork: {} });
        assert.ok(other.said.has(`agent ${anchor.messageId}`), "the anchor is what the editor shows");
      }

      const { sessionId: copy } = await fork(other, source, ends[1]);
      const { values, next } = await stateOf(copy);
      assert.deepEqual({ values, next }, { values: at(ends[1]).values, next: at(ends[1]).next });
      const reader = await open("agent");
      await reader.load(copy);
      const shown = reader.shown();
      assert.deepEqual(shown, other.shown().slice(0, shown.length));
      assert.deepEqual(shown.filter(([who]) => who === "user").map(([, text]) => text), ["one", "two"]);
      // The fork has cursors of its own.
      const own = await told(reader, copy, 2);
      assert.equal(own[0], ends[0]);
      assert.ok(!ends.includes(own[1]));
      for (const foreign of [ends[1], ends[2], "unknown"]) await refused(reader, copy, foreign);

      await reader.prompt("and then");
      const messages = (await stateOf(copy)).values.messages;
      assert.deepEqual(messages.slice(0, values.messages.length), values.messages, "the next prompt goes on from there");
      assert.deepEqual(messages.filter(({ type }) => type === "human").length, 3);
      assert.equal(idsOf(reader, copy).length, 3);

      // A fork of the fork, at a cursor of its own and at one that it has from its source.
      for (const [cursor, turns] of [[own[1], 2], [own[0], 1]]) {
        const { sessionId: again } = await fork(reader, copy, cursor);
        const state = await stateOf(again);
        assert.deepEqual(state.values, (turns === 2 ? at(ends[1]) : at(ends[0])).values);
      }
      assert.deepEqual(await historyOf(source), history, "the source is as it was");

      await refused(editor, source, own[1]);
      await editor.request("session/delete", { sessionId: source });
      await refused(other, source, ends[0]);
    });

    test("a stopped turn has a cursor, and one that asks has none", async () => {
      const editor = await open("text");
      await editor.new();
      const session = editor.sessionId;
      await editor.prompt("hello");
      const gate = await Gate.before(5);
      const stopped = editor.prompt(JSON.stringify({ words: words(10), ...gate.script }));
      await settled(async () => ([...editor.said.values()].some((text) => text.includes("word0 ")) ? undefined : "no text"));
      editor.notify("session/cancel", { sessionId: session });
      assert.equal((await stopped).stopReason, "cancelled");
      gate.open();
      await editor.prompt("hello again");
      const live = idsOf(editor, session);
      // The servers may have stored nothing of the stopped run. Then its words are in no state, and it has no cursor.
      const history = await historyOf(session);
      const before = history.filter(({ metadata, parent_checkpoint: parent }) => metadata.source === "input" && parent).map(({ parent_checkpoint: parent }) => parent.checkpoint_id);
      const ends = [history[0].checkpoint.checkpoint_id, ...before].reverse();
      const other = await open("text");
      await other.load(session);
      assert.deepEqual(await told(other, session, new Set(ends).size), [...new Set(ends)]);
      assert.deepEqual([live[0], live.at(-1)], [ends[0], ends.at(-1)]);
      for (const end of new Set(ends)) {
        const { sessionId: copy } = await fork(other, session, end);
        const { values, next } = history.find(({ checkpoint }) => checkpoint.checkpoint_id === end);
        const state = await stateOf(copy);
        assert.deepEqual({ values: state.values, next: state.next }, { values, next });
      }

      const asking = await open("hitl");
      await asking.new();
      const open_ = asking.prompt("go");
      await settled(async () => (asking.asked.length > 0 ? undefined : "no question"));
      asking.notify("session/cancel", { sessionId: asking.sessionId });
      assert.equal((await open_).stopReason, "cancelled");
      await asking.load(asking.sessionId);
      assert.deepEqual(idsOf(asking, asking.sessionId), []);
    });

    test("behind a gateway", async () => {
      writeFileSync(config, '[acp]\nagent = "agent"\nunstable = ["cursors"]\n');
      const gateway = await startThreadway(`cursors-${server.name}`, server.langgraph, "--config", config);
      const editor = await open("agent", gateway.url);
      await editor.new();
      await editor.prompt("one");
      await editor.prompt("two");
      const source = editor.sessionId;
      const [first] = await told(editor, source, 2);
      const { sessionId: copy } = await fork(editor, source, first);
      assert.equal((await stateOf(copy)).values.messages.filter(({ type }) => type === "human").length, 1);
      assert.equal((await told(editor, copy, 1)).length, 1);
      await editor.load(source);
      assert.equal(idsOf(editor, source).length, 2);
      await editor.stop();
      await gateway.stop();
      for (const { judge } of opened) assert.deepEqual(judge.faults, []);
    });
  });
}
