// TanStack AI's own client, through a proxy that cuts its responses. The client then sends the same POST again, with the id
// of its last event. That must resume the run, and never start another one.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { describe, test } from "node:test";
import { ChatClient, fetchServerSentEvents } from "@tanstack/ai-client";
import { readThread, SERVERS } from "../client/gateway.mjs";
import { Langgraph } from "../client/langgraph.mjs";
import { Cutter } from "../client/proxy.mjs";
import { ofThread } from "../client/thread.mjs";

const OPTIONS = { concurrency: 4, timeout: 600_000 }; // what hangs is noticed sooner, by its own limit

/** One run continues while its client is disconnected, the other is over by then. */
const RUNS = {
  "a run of a second": { graph: "agent", script: { tokens: 20, delay: 0.03 } },
  "a run that is over at once": { graph: "text", script: { tokens: 12, delay: 0 } },
};

// The id may come before or after the data: the cuts are the same.
const frame = (data) => `(?:id: [^\\n]*\\n)?data: ${data}[^\\n]*\\n(?:id: [^\\n]*\\n)?\\n`;
const ANY = frame("");
const TOKEN = frame('{"type":"TEXT_MESSAGE_CONTENT"');
const END = frame('{"type":"RUN_FINISHED"');
const CHUNK = "\\n\\n\\r\\n";

/** A cut in the `nth` match of a pattern: `place` returns how many characters of the match are forwarded. */
function cut(pattern, place, { nth = 1, end = false } = {}) {
  const at = (text) => {
    const found = [...text.matchAll(new RegExp(pattern, "g"))][nth - 1];
    return found ? found.index + place(found[0]) : -1;
  };
  return { at, end };
}
const before = () => 0;
const inId = () => 30;
const afterLine = (frame) => frame.indexOf("\n") + 1;
const inData = (frame) => frame.length - 12;
const afterData = (frame) => frame.length - 1;
const after = (frame) => frame.length;
const inHeaders = cut("content-type", (name) => name.length - 4);

/** The cuts of one client's connections, in order. */
const PLACES = {
  "after the first event": [cut(ANY, after)],
  "in the headers of the next answer": [cut(TOKEN, after), inHeaders],
  "in the first event of the next answer": [cut(TOKEN, after), cut(ANY, inData)],
  "in an id": [cut(TOKEN, inId, { nth: 2 })],
  "between an id and its data": [cut(TOKEN, afterLine, { nth: 2 })],
  "in the middle of a token": [cut(TOKEN, inData, { nth: 3 })],
  "after a token's data": [cut(TOKEN, afterData, { nth: 3 })],
  "between two events": [cut(TOKEN, before, { nth: 4 })],
  "between two events, as if that were all": [cut(CHUNK, after, { nth: 2, end: true })],
  "before the terminal event": [cut(END, before)],
  "in the terminal event": [cut(END, inData)],
  "after the terminal event's data": [cut(END, afterData)],
  "after the terminal event": [cut(END, after)],
  "ten times, after the first event of each answer": Array.from({ length: 10 }, () => cut(ANY, after)),
};

async function play(server, { graph, script }, cuts) {
  const cutter = await Cutter.start(server.threadway);
  try {
    cutter.cuts = [...cuts];
    const threadId = randomUUID();
    const chunks = [];
    const errors = [];
    const client = new ChatClient({
      threadId,
      connection: fetchServerSentEvents(`${cutter.url}/agui/agent/${graph}/run`),
      onChunk: (chunk) => void chunks.push(chunk),
      onError: (error) => void errors.push(error),
    });
    await client.sendMessage(JSON.stringify(script));
    const langgraph = new Langgraph(server);
    await langgraph.settled(threadId).catch(() => {}); // without a run there is no thread
    const runs = await langgraph.get(`/threads/${threadId}/runs?limit=100`);
    const { state } = await readThread(server, threadId);
    return { client, chunks, errors, runs, state, threadId, exchanges: cutter.exchanges };
  } finally {
    cutter.close();
  }
}

const said = (role, text) => `${role}: ${text}`;

/** The visible content of the client: a line for each message with a text. */
const shown = (client) =>
  client
    .getMessages()
    .map(({ role, parts }) => said(role, parts.map((part) => (part.type === "text" ? part.content : "")).join("")))
    .filter((line) => !line.endsWith(": "));

const held = ({ state, threadId }) =>
  ofThread(state.values, threadId)
    .messages.filter(({ role, content }) => role !== "tool" && content)
    .map(({ role, content }) => said(role, content));

for (const server of SERVERS) {
  for (const [name, run] of Object.entries(RUNS)) {
    describe(`${server.name}: ${name}, cut`, OPTIONS, () => {
      for (const [place, cuts] of Object.entries(PLACES)) {
        test(place, OPTIONS, async () => {
          const played = await play(server, run, cuts);
          const { client, errors, runs, exchanges } = played;
          const asked = exchanges.map(({ asked }) => /^last-event-id: (.*)\r$/im.exec(asked)?.[1] ?? "no id").join(", ");
          assert.equal(runs.length, 1, `${runs.length} runs on the thread; asked for after ${asked}`);
          assert.equal(exchanges.filter(({ isCut }) => isCut).length, cuts.length, `asked for after ${asked}`);
          assert.ok(held(played).length >= 2, "no message was sent");
          assert.deepEqual(shown(client), held(played), `asked for after ${asked}`);
          assert.deepEqual([...errors, client.getError()], [undefined], `asked for after ${asked}`);
          assert.equal(client.getStatus(), "ready");
        });
      }

      // The client reconnects only after an event with an id.
      for (const [place, first] of Object.entries({ "in the headers": inHeaders, "in the first event": cut(ANY, inData) })) {
        test(`${place} of its first answer: the client reports an error, and does not reconnect`, OPTIONS, async () => {
          const { client, runs, exchanges } = await play(server, run, [first]);
          assert.deepEqual([runs.length, exchanges.length], [1, 1]);
          assert.equal(client.getStatus(), "error");
        });
      }
    });
  }
}
