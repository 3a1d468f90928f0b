// Runs on a WebSocket: with the `ws` package alone, and with TanStack AI's own `webSocket()` adapter. Sockets are cut at
// many positions: each event must arrive once, and LangGraph's thread must have one run.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, describe, test } from "node:test";
import { ChatClient, webSocket } from "@tanstack/ai-client";
import WebSocket from "ws";
import { Gate } from "../client/gate.mjs";
import { readThread, SERVERS } from "../client/gateway.mjs";
import { Langgraph } from "../client/langgraph.mjs";
import { ofThread } from "../client/thread.mjs";

const OPTIONS = { concurrency: 4, timeout: 600_000 }; // what hangs is noticed sooner, by its own limit
const TERMINAL = ["RUN_FINISHED", "RUN_ERROR"];
const SLOW = { graph: "agent", script: { tokens: 20, delay: 0.03 } };
const PLACES = [1, 2, 3, 5, 8, 12, 16, 20, 24, 28];

const urlOf = (server, graph, query = "") => `${server.threadway.replace(/^http/, "ws")}/agui/agent/${graph}/run${query}`;

/** All sockets, because TanStack AI closes none: an open one would keep this process running. */
const sockets = new Set();
after(() => sockets.forEach((socket) => socket.terminate()));

/** A socket that is cut without notice after its nth message, for each of `cuts` in turn. */
function cutting(cuts) {
  const counts = { opened: 0, cut: 0 };
  class Cutting extends WebSocket {
    left = cuts[counts.opened++] ?? Infinity;

    constructor(...parameters) {
      super(...parameters);
      sockets.add(this);
    }

    emit(name, ...values) {
      if (name !== "message") return super.emit(name, ...values);
      if (this.left <= 0) return false; // messages on the way are lost
      const emitted = super.emit(name, ...values);
      if (--this.left === 0) {
        counts.cut += 1;
        this.terminate();
      }
      return emitted;
    }
  }
  return { Impl: Cutting, counts };
}

/** A client that uses only the WebSocket protocol. */
class Client {
  events = [];
  #waiting = [];

  constructor(server, { graph, protocol, Impl, threadId = randomUUID() }) {
    Object.assign(this, { threadId, messages: [] });
    this.socket = new Impl(urlOf(server, graph), protocol);
    this.socket.on("message", (data) => this.#put(JSON.parse(data)));
    this.socket.on("error", () => this.#put(undefined));
    this.closed = new Promise((resolve) => this.socket.on("close", (code) => {
      this.#put(undefined);
      resolve(code);
    }));
    this.opened = new Promise((resolve, reject) => this.socket.once("open", resolve).once("error", reject));
  }

  #put(event) {
    this.events.push(event);
    this.#waiting.shift()?.();
  }

  async #next() {
    while (this.events.length === 0) await new Promise((resolve) => this.#waiting.push(resolve));
    return this.events.shift();
  }

  async send(frame) {
    await this.opened;
    this.socket.send(JSON.stringify(frame));
  }

  /** The frames up to the end of a turn, or of the socket. */
  async turn() {
    const frames = [];
    for (;;) {
      const frame = await this.#next();
      if (frame === undefined) return frames;
      frames.push(frame);
      if (TERMINAL.includes((frame.chunk ?? frame).type)) return frames;
    }
  }
}

const input = (threadId, words, runId = randomUUID()) => ({
  protocolVersion: "1.0", threadId, runId, state: {}, tools: [], context: [], forwardedProps: {},
  messages: [{ id: randomUUID(), role: "user", content: JSON.stringify(words) }],
});

const textOf = (events) => events.filter(({ type }) => type === "TEXT_MESSAGE_CONTENT").map(({ delta }) => delta).join("");

async function threadOf(server, threadId) {
  const langgraph = new Langgraph(server);
  await langgraph.settled(threadId);
  const runs = await langgraph.get(`/threads/${threadId}/runs?limit=100`);
  const { state } = await readThread(server, threadId);
  const { messages } = ofThread(state.values, threadId);
  const said = messages.filter(({ role }) => role === "assistant").map(({ content }) => content ?? "").join("");
  return { runs, said, messages };
}

const shown = (client) =>
  client
    .getMessages()
    .map(({ role, parts }) => `${role}: ${parts.map((part) => (part.type === "text" ? part.content : "")).join("")}`)
    .filter((line) => !line.endsWith(": "));

const held = ({ messages }) => messages.filter(({ role, content }) => role !== "tool" && content).map(({ role, content }) => `${role}: ${content}`);

for (const server of SERVERS) {
  describe(`${server.name}: a socket`, OPTIONS, () => {
    test("two turns, with ids and without", OPTIONS, async () => {
      for (const protocol of ["threadway.chunks", "threadway.events"]) {
        const client = new Client(server, { graph: "text", protocol, Impl: cutting([]).Impl });
        await client.opened;
        assert.equal(client.socket.protocol, protocol);
        let said = "";
        for (const tokens of [3, 5]) {
          await client.send(input(client.threadId, { tokens, delay: 0 }));
          const frames = await client.turn();
          const events = frames.map((frame) => frame.chunk ?? frame);
          assert.ok(frames.every(({ id }) => (id === undefined) === (protocol === "threadway.events")));
          assert.deepEqual([events[0].type, events.at(-1).type], ["RUN_STARTED", "RUN_FINISHED"]);
          said += textOf(events);
        }
        const thread = await threadOf(server, client.threadId);
        assert.equal(thread.runs.length, 2);
        assert.equal(said, thread.said);
        client.socket.close();
        await client.closed;
      }
    });

    test("an abort cancels the run", OPTIONS, async () => {
      const client = new Client(server, { graph: "text", Impl: cutting([]).Impl });
      const gate = await Gate.before(5);
      const asked = input(client.threadId, gate.script);
      await client.send(asked);
      while (!client.events.some(({ chunk }) => chunk.type === "TEXT_MESSAGE_CONTENT")) await new Promise((wake) => setTimeout(wake, 10));
      await client.send({ type: "abort", runId: asked.runId });
      const { chunk } = (await client.turn()).at(-1);
      assert.deepEqual([chunk.type, chunk.outcome], ["RUN_FINISHED", { type: "cancelled" }]);
      gate.open();
      client.socket.close();
    });

    test("cut at ten positions, a client gets each event once", OPTIONS, async () => {
      const { Impl, counts } = cutting(PLACES.map((place, at) => place - (PLACES[at - 1] ?? 0)));
      const threadId = randomUUID();
      const asked = input(threadId, SLOW.script);
      const told = [];
      do {
        const client = new Client(server, { graph: SLOW.graph, Impl, threadId });
        await client.send({ ...asked, lastEventId: told.at(-1)?.id });
        told.push(...(await client.turn()));
        if (counts.opened > PLACES.length) client.socket.close();
        await client.closed;
      } while (!TERMINAL.includes(told.at(-1).chunk.type));
      const thread = await threadOf(server, threadId);
      assert.equal(counts.cut, PLACES.length);
      assert.equal(thread.runs.length, 1, "the run was started again");
      assert.equal(new Set(told.map(({ id }) => id)).size, told.length, "an event was sent twice");
      assert.equal(textOf(told.map(({ chunk }) => chunk)), thread.said);
    });
  });

  describe(`${server.name}: TanStack AI's webSocket()`, OPTIONS, () => {
    const chat = (threadId, graph, Impl, errors) =>
      new ChatClient({
        threadId,
        // A socket that reads the rest of a run names the thread in its query.
        connection: webSocket(urlOf(server, graph, `?threadId=${threadId}`), { WebSocketImpl: Impl, reconnect: { delayMs: 50 } }),
        onError: (error) => void errors.push(error),
      });

    test("two messages on one socket", OPTIONS, async () => {
      const { Impl, counts } = cutting([]);
      const [threadId, errors] = [randomUUID(), []];
      const client = chat(threadId, "text", Impl, errors);
      for (const tokens of [3, 5]) await client.sendMessage(JSON.stringify({ tokens, delay: 0 }));
      const thread = await threadOf(server, threadId);
      assert.deepEqual([thread.runs.length, counts.opened, errors], [2, 1, []]);
      assert.deepEqual(shown(client), held(thread));
    });

    for (const [name, cuts] of Object.entries({ "after its first event": [1], "in the middle": [9], "five times": [2, 2, 3, 3, 4] })) {
      test(`cut ${name}, it shows what the thread holds`, OPTIONS, async () => {
        const { Impl, counts } = cutting(cuts);
        const [threadId, errors] = [randomUUID(), []];
        const client = chat(threadId, SLOW.graph, Impl, errors);
        await client.sendMessage(JSON.stringify(SLOW.script));
        const thread = await threadOf(server, threadId);
        assert.deepEqual([thread.runs.length, counts.cut, errors], [1, cuts.length, []]);
        assert.deepEqual(shown(client), held(thread));
        assert.equal(client.getStatus(), "ready");
      });
    }

    test("stopped, the run is cancelled", OPTIONS, async () => {
      const { Impl } = cutting([]);
      const [threadId, errors] = [randomUUID(), []];
      const client = chat(threadId, "text", Impl, errors);
      const gate = await Gate.before(5);
      const sent = client.sendMessage(JSON.stringify(gate.script));
      while (shown(client).length < 2) await new Promise((wake) => setTimeout(wake, 10));
      client.stop();
      await sent;
      const { runs } = await threadOf(server, threadId);
      gate.open();
      assert.deepEqual(runs.map(({ status }) => status), ["interrupted"]);
    });
  });
}
