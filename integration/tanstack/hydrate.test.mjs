// TanStack AI's own client loads a thread from threadway (`persistence: true`), joins the thread's live run, and reconnects
// when the join is cut. Its content must be LangGraph's thread, and it must start no run.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { describe, test } from "node:test";
import { ChatClient, fetchHttpStream, fetchServerSentEvents } from "@tanstack/ai-client";
import { Gate } from "../client/gate.mjs";
import { readThread, SERVERS } from "../client/gateway.mjs";
import { Langgraph } from "../client/langgraph.mjs";
import { Cutter } from "../client/proxy.mjs";
import { ofThread } from "../client/thread.mjs";

const OPTIONS = { concurrency: 4, timeout: 600_000 }; // what hangs is noticed sooner, by its own limit
const SHOWN_MS = 90_000; // what is not shown by then is not shown
const LONG = { tokens: 40, delay: 0.01 };
const HELD_AT = 10; // the token before which a run waits until the next page has joined it

// No client declares which of its framings it reads: the application chooses.
const FRAMINGS = {
  "server-sent events": (url) => fetchServerSentEvents(url),
  lines: (url) => fetchHttpStream(url, { headers: { Accept: "application/x-ndjson" } }),
};

/** A page: the client's own, which loads its thread as soon as it is attached. */
class Page {
  constructor(url, connect, threadId, more = {}) {
    this.chunks = [];
    this.errors = [];
    this.client = new ChatClient({
      threadId,
      persistence: true,
      connection: connect(url),
      onChunk: (chunk) => void this.chunks.push(chunk),
      onError: (error) => void this.errors.push(error),
      ...more,
    });
    this.client.attach();
  }

  get shown() {
    return shown(this.client.getMessages());
  }

  /** Disconnects in the middle. */
  leave() {
    this.client.detach();
  }
}

const textOf = ({ parts }) => parts.map((part) => (part.type === "text" ? part.content : "")).join("");
const shown = (messages) => messages.map((message) => `${message.role}: ${textOf(message)}`).filter((line) => !line.endsWith(": "));

async function until(isSo, what) {
  const deadline = performance.now() + SHOWN_MS;
  while (!(await isSo())) {
    assert.ok(performance.now() < deadline, typeof what === "function" ? what() : what);
    await new Promise((wake) => setTimeout(wake, 20));
  }
}

/** The content of LangGraph's thread, and the number of its runs. */
async function held(server, threadId) {
  const langgraph = new Langgraph(server);
  await langgraph.settled(threadId);
  const runs = await langgraph.get(`/threads/${threadId}/runs?limit=100`);
  const { state } = await readThread(server, threadId);
  const messages = ofThread(state.values, threadId).messages.filter(({ role, content }) => role !== "tool" && content);
  return { runs: runs.length, said: messages.map(({ role, content }) => `${role}: ${content}`) };
}

const url = (base, graph) => `${base}/agui/agent/${graph}/run`;

for (const server of SERVERS) {
  for (const [framing, connect] of Object.entries(FRAMINGS)) {
    describe(`${server.name}, ${framing}`, OPTIONS, () => {
      test("a page that is reloaded in the middle of a run shows it to its end", OPTIONS, async () => {
        const threadId = randomUUID();
        const first = new Page(url(server.threadway, "text"), connect, threadId);
        const gate = await Gate.before(HELD_AT);
        first.client.sendMessage(JSON.stringify({ ...LONG, ...gate.script })).catch(() => {});
        await until(() => /tok3 /.test(first.shown.at(-1)), () => `the first words: ${first.shown} ${first.errors}`);
        first.leave();
        const second = new Page(url(server.threadway, "text"), connect, threadId);
        await until(() => second.chunks.length > 0, () => `the run: ${second.shown} ${second.errors}`);
        gate.open();
        await until(() => second.shown.length >= 2 && second.client.getStatus() === "ready", () => `the end: ${second.shown} ${second.errors}`);
        const thread = await held(server, threadId);
        assert.equal(thread.runs, 1);
        assert.deepEqual(second.shown, thread.said);
        assert.deepEqual(second.errors, []);
        assert.ok(second.chunks.length > 3, "it was joined");
        // Once more, without a live run.
        const third = new Page(url(server.threadway, "text"), connect, threadId);
        await until(() => third.shown.length >= 2, () => `the thread: ${third.shown}`);
        assert.deepEqual(third.shown, thread.said);
        assert.deepEqual(third.chunks, []);
        await third.client.sendMessage(JSON.stringify({ tokens: 2 }));
        const later = await held(server, threadId);
        assert.deepEqual([third.shown, later.runs], [later.said, 2]);
      });

      test("a join that is cut is resumed", OPTIONS, async () => {
        const cutter = await Cutter.start(server.threadway);
        try {
          const threadId = randomUUID();
          const first = new Page(url(server.threadway, "text"), connect, threadId);
          const gate = await Gate.before(HELD_AT);
          first.client.sendMessage(JSON.stringify({ ...LONG, ...gate.script })).catch(() => {});
          await until(() => /tok3 /.test(first.shown.at(-1)), () => `the first words: ${first.shown}`);
          first.leave();
          // After the third token of an answer: the load of the thread has none.
          const third = (text) => [...text.matchAll(/{"type":"TEXT_MESSAGE_CONTENT"/g)][2]?.index ?? -1;
          cutter.cuts = [{ at: third, end: false }, { at: third, end: false }];
          const second = new Page(url(cutter.url, "text"), connect, threadId);
          await until(() => second.chunks.length > 0, () => `the run: ${second.shown} ${second.errors}`);
          gate.open();
          await until(() => second.shown.length >= 2 && second.client.getStatus() === "ready", () => `the end: ${second.shown} ${second.errors}`);
          const thread = await held(server, threadId);
          assert.deepEqual([second.shown, thread.runs, second.errors], [thread.said, 1, []]);
          assert.ok(cutter.exchanges.some(({ isCut }) => isCut), "nothing was cut");
          assert.ok(cutter.exchanges.some(({ asked }) => /^last-event-id: /im.test(asked)), "nothing was resumed");
        } finally {
          cutter.close();
        }
      });

      test("the loaded content equals the streamed content, with its tools", OPTIONS, async () => {
        const threadId = randomUUID();
        const first = new Page(url(server.threadway, "agent"), connect, threadId);
        await first.client.sendMessage(JSON.stringify({ tokens: 3 }));
        await held(server, threadId);
        const second = new Page(url(server.threadway, "agent"), connect, threadId);
        await until(() => second.client.getMessages().length >= 2, () => `the thread: ${second.shown}`);
        const calls = ({ client }) =>
          client.getMessages().flatMap(({ parts }) => parts).filter(({ type }) => type === "tool-call").map(({ id, name, arguments: args, output }) => ({ id, name, args: JSON.parse(args), output }));
        assert.deepEqual([second.shown, calls(second)], [first.shown, calls(first)]);
        assert.ok(calls(second).length > 0, "no tool was called");
      });

      test("a window of a long thread, and the messages before it", OPTIONS, async () => {
        const threadId = randomUUID();
        const first = new Page(url(server.threadway, "text"), connect, threadId);
        for (const tokens of [1, 2, 3]) await first.client.sendMessage(JSON.stringify({ tokens }));
        const thread = await held(server, threadId);
        assert.equal(thread.said.length, 6);
        const loaded = await connect(url(server.threadway, "text")).hydrate(threadId, { limit: 4 });
        assert.deepEqual(shown(loaded.messages), thread.said.slice(2));
        assert.equal(loaded.page.truncated, true);
        const before = await connect(url(server.threadway, "text")).hydrate(threadId, { limit: 4, before: loaded.page.cursor });
        assert.deepEqual([shown(before.messages), before.page.truncated], [thread.said.slice(0, 2), false]);
      });

      test("an open question is asked again after a reload", OPTIONS, async () => {
        const threadId = randomUUID();
        const first = new Page(url(server.threadway, "interrupt_node"), connect, threadId);
        await first.client.sendMessage("hi").catch(() => {});
        await held(server, threadId);
        const loaded = await connect(url(server.threadway, "interrupt_node")).hydrate(threadId);
        assert.equal(loaded.activeRun, null);
        assert.ok(loaded.interrupts.runId);
        assert.ok(loaded.interrupts.pending[0].id);
      });
    });
  }
}
