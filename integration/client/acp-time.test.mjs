// Time limits that users notice: the end of a cancelled turn under load, and the load of a long history. Few other tests
// run at the same time, so that the gateway's time is measured.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { assertSame, turn, withEditor, words } from "./acp.mjs";
import { SERVERS } from "./servers.mjs";
import { Langgraph } from "./langgraph.mjs";
import { Pipe } from "./proxy.mjs";

const OPTIONS = { concurrency: 2, timeout: 60_000 }; // for a suite and for each test
const CANCEL_MS = 1_000; // the limit for the end of a cancelled turn
const LOAD_MS = 3_000; // the limit for loading 1,000 messages
const SHORT_MS = 300; // after this time no more updates are expected

describe("time limits of an editor", { concurrency: 2, timeout: 2 * OPTIONS.timeout }, () => {
  for (const server of SERVERS) {
    describe(`cancel, ${server.name}`, OPTIONS, () => {
      for (const by of ["session/cancel", "$/cancel_request"]) {
        test(`${by} in mid-stream, while a second session continues`, () =>
          withEditor(server, { agent: "text" }, async (editor) => {
            const [one, two] = [await editor.new(), await editor.new()];
            const aborted = new AbortController();
            const first = one.prompt({ words: words(400), delay: 0.02 }, { cancellationSignal: aborted.signal });
            const second = two.prompt({ words: words(60, "other"), delay: 0.03 });
            await one.until("text", (session) => session.text().length > 20);
            await two.until("text", (session) => session.text().length > 20);
            const asked = performance.now();
            if (by === "session/cancel") await one.cancel();
            else aborted.abort();
            assert.deepEqual(await first, { stopReason: "cancelled" });
            const took = performance.now() - asked;
            assert.ok(took < CANCEL_MS, `after ${took} ms`);
            const told = one.updates.length;
            const lg = new Langgraph(server);
            const [run] = await lg.get(`/threads/${one.id}/runs`);
            await lg.ended(one.id, run.run_id);
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
          const prompt = session.prompt({ tool_sleep: 20 });
          await session.until("a running tool", ({ calls }) => [...calls.values()].some(({ rawInput }) => rawInput));
          const asked = performance.now();
          await session.cancel();
          assert.deepEqual(await prompt, { stopReason: "cancelled" });
          assert.ok(performance.now() - asked < CANCEL_MS);
          assert.deepEqual(editor.wire.judge.openCalls(session.id), []);
        }));

      test("right after the prompt, before there is a run", () =>
        withEditor(server, { agent: "text" }, async (editor) => {
          const session = await editor.new();
          const prompt = session.prompt({ words: words(400), delay: 0.02 });
          await session.cancel();
          assert.deepEqual(await prompt, { stopReason: "cancelled" });
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
            let cancelled;
            session.answers.permissions = (_, signal) =>
              new Promise((resolve) => {
                const answer = () => resolve({ outcome: { outcome: "cancelled" } });
                signal.addEventListener("abort", answer);
                setTimeout(answer, CANCEL_MS / 2);
                cancelled ??= performance.now();
                void session.cancel();
              });
            assert.deepEqual(await session.prompt({}), { stopReason: "cancelled" });
            const took = performance.now() - cancelled;
            assert.ok(took < CANCEL_MS, `after ${took} ms`);
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
            const prompt = session.prompt({ words: words(300), delay: 0.02 });
            await session.until("text", (session) => session.text().length > 20);
            pipe.freeze();
            const asked = performance.now();
            await session.cancel();
            if (trouble === "gone") {
              // Lines are handled in order. The answer to this request shows that the cancel was handled before the server
              // stops.
              await editor.request("session/close", { sessionId: "00000000-0000-4000-8000-000000000000" });
              pipe.close();
            }
            assert.deepEqual(await prompt, { stopReason: "cancelled" });
            const took = performance.now() - asked;
            assert.ok(took < CANCEL_MS, `after ${took} ms`);
          });
        });
      }
    });

    test(`a load of 1,000 messages, ${server.name}`, OPTIONS, async (t) => {
      const lg = new Langgraph(server);
      const said = Array.from({ length: 1_000 }, (_, n) => ({ type: n % 2 ? "ai" : "human", id: `message-${n}`, content: `This is message ${n}.` }));
      const id = await lg.thread("text", { said });
      await withEditor(server, { agent: "text" }, async (editor) => {
        const began = performance.now();
        const session = await editor.load(id);
        const took = performance.now() - began;
        assert.deepEqual(session.transcript(), said.map(({ type, id, content }) => [type === "ai" ? "agent" : "user", id, content]));
        t.diagnostic(`in ${Math.round(took)} ms`);
        assert.ok(took < LOAD_MS, `after ${took} ms`);
        await pause(SHORT_MS);
        assert.equal(session.said.size, 1_000);
      });
    });
  }
});
