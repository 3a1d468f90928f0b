// The bytes that a client gets for one run, from threadway and from AG-UI's own LangGraph adapter, in front of one server:
// a tool result of 34,000 characters, ten changes of a state of 100 KB, and 200 tokens.
//
// The adapter is a library: its host writes the events as SSE, as CopilotKit's runtime does. AG-UI's own encoder makes the
// bytes of its events.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { get } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { json } from "node:stream/consumers";
import { describe, test } from "node:test";
import { AbstractAgent } from "@ag-ui/client";
import { EventEncoder } from "@ag-ui/encoder";
import { LangGraphAgent } from "@ag-ui/langgraph";
import { from } from "rxjs";
import { LOGS } from "../client/logs.mjs";
import { startThreadway } from "../client/threadway.mjs";

const GRAPH = "wire";
const WORDS = JSON.stringify({ tokens: 200, delay: 0 });
const TEXT = Array.from({ length: 200 }, (_, i) => `tok${i} `).join("");
const RESULT_CHARACTERS = 34_000;
const STATE_BYTES = [90_000, 110_000];
const CHANGES = 10;
const ADAPTER = "@ag-ui/langgraph";
const BARE_ADAPTER = `${ADAPTER}, without RAW and rawEvent`;

/** The `[emit]` options of each agent. */
const OPTIONS = {
  wire_final: 'state = "final"',
  wire_cut: "max_tool_result_bytes = 2000",
  wire_quiet: "activities = false\nsteps = false",
  wire_least: 'state = "final"\nmax_tool_result_bytes = 2000\nactivities = false\nsteps = false',
};

const langgraph = process.env.LANGGRAPH_URL;
if (!langgraph) throw new Error("LANGGRAPH_URL is not set: start this with integration/run");

function input() {
  return {
    threadId: randomUUID(),
    runId: randomUUID(),
    messages: [{ id: randomUUID(), role: "user", content: WORDS }],
    state: {},
    tools: [],
    context: [],
    forwardedProps: {},
  };
}

/** The frames of an SSE body, each with its size on the wire and that of its `data`. A frame without data is a comment or a pause. */
function framesOf(body) {
  return body.split(/(?<=\n\n)/).map((text) => {
    const data = text.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).replace(/^ /, "")).join("\n");
    return { bytes: Buffer.byteLength(text), dataBytes: Buffer.byteLength(data), event: data ? JSON.parse(data) : undefined };
  });
}

async function throughThreadway(url, agent) {
  const sent = input();
  const response = await fetch(`${url}/agui/agent/${agent}/run`, {
    method: "POST",
    headers: { "content-type": "application/json", accept: "text/event-stream", "accept-encoding": "identity" },
    body: JSON.stringify(sent),
  });
  const body = await response.text();
  assert.equal(response.status, 200, body);
  assert.equal(response.headers.get("content-encoding"), null);
  return { sent, frames: framesOf(body) };
}

/** The adapter's events, serialised at once, because the adapter later changes the objects in them. */
async function throughAdapter() {
  const sent = input();
  const encoder = new EventEncoder();
  const body = [];
  const agent = new LangGraphAgent({ deploymentUrl: langgraph, graphId: GRAPH });
  await new Promise((resolve, reject) => {
    agent.run(sent).subscribe({ next: (event) => void body.push(encoder.encodeSSE(event)), error: reject, complete: resolve });
  });
  return { sent, frames: framesOf(body.join("")) };
}

/** The adapter's events without the upstream's own parts, as if its server removed them. */
function bare({ sent, frames }) {
  const events = frames.map(({ event }) => event).filter(({ type }) => type !== "RAW");
  const encoder = new EventEncoder();
  return { sent, frames: framesOf(events.map(({ rawEvent, ...event }) => encoder.encodeSSE(event)).join("")) };
}

/** The official client's content after these events. */
async function held({ sent, frames }) {
  class Replayed extends AbstractAgent {
    run() {
      return from(frames.flatMap(({ event }) => event ?? []));
    }
  }
  const client = new Replayed({ threadId: sent.threadId, initialMessages: sent.messages });
  await client.runAgent({ runId: sent.runId });
  const { rows, changed } = client.state;
  const result = client.messages.find(({ role }) => role === "tool")?.content;
  return { rows, changed, text: client.messages.findLast(({ role }) => role === "assistant")?.content, result };
}

/** On a connection of its own: the adapter works for seconds, and the server closes idle connections unnoticed meanwhile. */
async function threadOf({ sent }) {
  const request = get(`${langgraph}/threads/${sent.threadId}/state`, { agent: false });
  const [response] = await once(request, "response");
  assert.equal(response.statusCode, 200);
  return (await json(response)).values;
}

const sum = (frames, key) => frames.reduce((total, frame) => total + frame[key], 0);

function byType(frames) {
  const types = {};
  for (const { bytes, event } of frames) {
    const row = (types[event?.type ?? "(no event)"] ??= { events: 0, bytes: 0 });
    row.events += 1;
    row.bytes += bytes;
  }
  return types;
}

/** A Markdown table: the first column is text, the others are numbers. */
function table(head, rows) {
  const lines = [head, head.map((_, i) => (i === 0 ? "---" : "--:")), ...rows];
  return lines.map((cells) => `| ${cells.join(" | ")} |`).join("\n");
}

function report(runs) {
  const total = ({ frames }) => sum(frames, "bytes");
  const most = total(runs[ADAPTER]);
  const rows = Object.entries(runs).map(([name, run]) => {
    const events = run.frames.filter(({ event }) => event).length;
    return [name, events, total(run), sum(run.frames, "dataBytes"), `${((100 * total(run)) / most).toFixed(2)} %`];
  });
  const parts = ["threadway", BARE_ADAPTER, ADAPTER].map((name) => byType(runs[name].frames));
  const types = [...new Set(parts.flatMap(Object.keys))].sort();
  const cells = (type) => parts.flatMap((part) => [part[type]?.events ?? 0, part[type]?.bytes ?? 0]);
  return [
    table(["one run", "events", "bytes", "of them data", "of the adapter's"], rows),
    "",
    table(["event type", "threadway: events", "bytes", "adapter, bare: events", "bytes", "adapter: events", "bytes"], types.map((type) => [type, ...cells(type)])),
  ].join("\n");
}

/** The agents with options of their own, on the Python server. */
async function startConfigured() {
  const agents = Object.entries(OPTIONS).map(([name, emit]) => `[agents.${name}]\nagent = "${GRAPH}"\n[agents.${name}.emit]\n${emit}\n`);
  const config = join(tmpdir(), `threadway-wire-${process.pid}.toml`);
  writeFileSync(config, agents.join("\n"));
  return startThreadway("wire", langgraph, "--config", config);
}

describe("bytes for one run", { timeout: 120_000 }, () => {
  test("threadway sends no more than the adapter, and both send the whole thread", async (t) => {
    const configured = await startConfigured();
    t.after(() => configured.stop());
    const runs = { threadway: await throughThreadway(process.env.THREADWAY_URL, GRAPH) };
    for (const [name, emit] of Object.entries(OPTIONS)) {
      runs[`threadway, ${emit.replaceAll("\n", ", ")}`] = await throughThreadway(configured.url, name);
    }
    runs[ADAPTER] = await throughAdapter();
    runs[BARE_ADAPTER] = bare(runs[ADAPTER]);

    const text = report(runs);
    console.log(text);
    writeFileSync(new URL("wire.md", LOGS), `${text}\n`);

    for (const [name, run] of Object.entries(runs)) {
      const { rows, changed, messages } = await threadOf(run);
      // The run is the one that this file describes.
      const result = messages.find(({ type }) => type === "tool").content;
      const size = Buffer.byteLength(JSON.stringify(rows));
      assert.equal(result.length, RESULT_CHARACTERS);
      assert.ok(STATE_BYTES[0] < size && size < STATE_BYTES[1], `a state of ${size} bytes`);
      assert.equal(changed, CHANGES);
      assert.equal(rows.filter(({ status }) => status === "done").length, CHANGES);

      const client = await held(run);
      assert.deepEqual({ rows: client.rows, changed: client.changed }, { rows, changed }, `the state, ${name}`);
      assert.equal(client.text, TEXT, `the text, ${name}`);
      if (name.includes("max_tool_result_bytes")) assert.ok(client.result.length < 2_200, `${name}: a result of ${client.result.length}`);
      else assert.equal(client.result, result, `the result, ${name}`);
    }
    const bytes = (name) => sum(runs[name].frames, "bytes");
    assert.ok(bytes("threadway") <= bytes(ADAPTER), "more bytes than the adapter");
    assert.ok(bytes("threadway") <= bytes(BARE_ADAPTER), "more bytes than the adapter without what is the upstream's");
  });
});
