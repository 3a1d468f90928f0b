// What an editor does not wait for: a cancelled turn ends though its run is held, its server is away, or its dialog is open.
// No test measures time: what must not be waited for never comes while the test waits for the end of the turn.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { assertSame, turn, withEditor, words } from "./acp.mjs";
import { Gate } from "./gate.mjs";
import { Langgraph } from "./langgraph.mjs";
import { Pipe } from "./proxy.mjs";
import { SERVERS } from "./servers.mjs";

const OPTIONS = { concurrency: 4, timeout: 600_000 }; // for a suite and for each test
const FIVE = 5; // the words before a run is held

describe("what an editor does not wait for", { concurrency: 2, timeout: 2 * OPTIONS.timeout }, () => {
  for (const server of SERVERS) {
    describe(`cancel, ${server.name}`, OPTIONS, () => {
      for (const by of ["session/cancel", "$/cancel_request"]) {
        test(`${by} in mid-stream, while a second session continues`, () =>
          withEditor(server, { agent: "text" }, async (editor) => {
            const [one, two] = [await editor.new(), await editor.new()];
            const [gate, other] = [await Gate.before(FIVE), await Gate.before(FIVE)];
            const aborted = new AbortController();
            const first = one.prompt({ words: words(10), ...gate.script }, { cancellationSignal: aborted.signal });
            const second = two.prompt({ words: words(10, "other"), ...other.script });
            await one.until("text", (session) => session.text().length > 20);
            await two.until("text", (session) => session.text().length > 20);
            if (by === "session/cancel") await one.cancel();
            else aborted.abort();
            assert.deepEqual(await first, { stopReason: "cancelled" });
            const told = one.updates.length;
            other.open();
            const lg = new Langgraph(server);
            const [run] = await lg.get(`/threads/${one.id}/runs`);
            await lg.ended(one.id, run.run_id);
            gate.open();
            assert.deepEqual(await second, { stopReason: "end_turn" });
            await assertSame(server, two, { isLive: true });
            assert.equal(one.updates.length, told, "no update came after the turn's end");
            // The session accepts a new prompt at once.
            assert.deepEqual(await one.prompt({ tokens: 2 }), { stopReason: "end_turn" });
            assert.ok(one.text().endsWith("tok0 tok1 "));
          }));
      }

      test("in the middle of a tool: its call ends", () =>
        withEditor(server, { agent: "agent" }, async (editor) => {
          const session = await editor.new();
          const gate = await Gate.before("tool");
          const prompt = session.prompt(gate.script);
          await gate.reached("tool");
          await session.until("a running tool", ({ calls }) => [...calls.values()].some(({ rawInput }) => rawInput));
          await session.cancel();
          assert.deepEqual(await prompt, { stopReason: "cancelled" });
          gate.open();
          assert.deepEqual(editor.wire.judge.openCalls(session.id), []);
        }));

      test("right after the prompt, before there is a run", () =>
        withEditor(server, { agent: "text" }, async (editor) => {
          const session = await editor.new();
          const gate = await Gate.before(0);
          const prompt = session.prompt(gate.script);
          await session.cancel();
          assert.deepEqual(await prompt, { stopReason: "cancelled" });
          gate.open();
        }));

      test("of an idle session is harmless", () =>
        withEditor(server, { agent: "text" }, async (editor) => {
          const session = await editor.new();
          await session.cancel();
          await turn(server, session, {});
        }));

      for (const agent of server.name === "Python" ? ["hitl", "hitl_per_call"] : ["hitl"]) {
        test(`while a permission is open, ${agent}`, () =>
          withEditor(server, { agent }, async (editor) => {
            const session = await editor.new();
            // The dialog closes when the agent takes its question back, and not before.
            session.answers.permissions = (_, signal) =>
              new Promise((resolve) => {
                signal.addEventListener("abort", () => resolve({ outcome: { outcome: "cancelled" } }));
                void session.cancel();
              });
            assert.deepEqual(await session.prompt({}), { stopReason: "cancelled" });
            for (const { status } of session.calls.values()) assert.equal(status, "failed");
            session.permit("allow_once");
            assert.deepEqual(await session.prompt({ tools: false }), { stopReason: "end_turn" });
          }));
      }

      for (const trouble of ["gone", "frozen"]) {
        test(`that does not wait for a server that is ${trouble}`, async (t) => {
          const pipe = await Pipe.start(server.langgraph);
          t.after(() => pipe.close());
          await withEditor(server, { agent: "text", upstream: pipe.url }, async (editor) => {
            const session = await editor.new();
            const gate = await Gate.before(FIVE);
            t.after(() => gate.open());
            const prompt = session.prompt({ words: words(10), ...gate.script });
            await session.until("text", (session) => session.text().length > 20);
            pipe.freeze();
            await session.cancel();
            if (trouble === "gone") {
              // Lines are handled in order. The answer to this request shows that the cancel was handled before the server
              // stops.
              await editor.request("session/close", { sessionId: "00000000-0000-4000-8000-000000000000" });
              pipe.close();
            }
            assert.deepEqual(await prompt, { stopReason: "cancelled" });
          });
        });
      }
    });

    test(`a load of 1,000 messages, ${server.name}`, OPTIONS, async () => {
      const lg = new Langgraph(server);
      const said = Array.from({ length: 1_000 }, (_, n) => ({ type: n % 2 ? "ai" : "human", id: `message-${n}`, content: `This is message ${n}.` }));
      const id = await lg.thread("text", { said });
      await withEditor(server, { agent: "text" }, async (editor) => {
        const session = await editor.load(id);
        assert.deepEqual(session.transcript(), said.map(({ type, id, content }) => [type === "ai" ? "agent" : "user", id, content]));
      });
    });
  }
});
