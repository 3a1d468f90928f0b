// Serves TanStack AI's durable streams, as integration/tanstack/serve.mjs does. TanStack AI has no adapter of LangGraph, so its
// model says the script's tokens by itself: those of bench/load/text.rs.
//
// usage: node tanstack.mjs PORT        then POST /?runId=ID, and GET /?runId=ID&offset=-1

import { createServer } from "node:http";
import { Readable } from "node:stream";
import { setTimeout as pause } from "node:timers/promises";
import { chat, chatParamsFromRequest, memoryStream, resumeServerSentEventsResponse, toServerSentEventsResponse } from "@tanstack/ai";
import { BaseTextAdapter } from "@tanstack/ai/adapters";

const TURN = 64; // tokens at full speed, before other streams have their turn

const now = () => `${Math.round((performance.timeOrigin + performance.now()) * 1000)}000`;

/** FNV-1a of 64 bits, in two halves: the prime is 2^40 + 0x1b3. */
function sum([high, low], text) {
  for (let at = 0; at < text.length; at += 1) {
    low = (low ^ text.charCodeAt(at)) >>> 0;
    const product = low * 0x1b3;
    high = (Math.imul(high, 0x1b3) + Math.floor(product / 2 ** 32) + (low << 8)) >>> 0;
    low = product >>> 0;
  }
  return [high, low];
}

async function* tokens({ tokens, interval_us, pause_us }) {
  let all = [0xcbf29ce4, 0x84222325];
  const begin = performance.now() + pause_us / 1000;
  if (pause_us) await pause(pause_us / 1000);
  for (let place = 0; place < tokens; place += 1) {
    if (interval_us) await pause(begin + (place * interval_us) / 1000 - performance.now());
    else if (place % TURN === 0) await pause(0);
    const token = `${place}@${now()} `;
    all = sum(all, token);
    yield token;
  }
  yield `${tokens}#${(BigInt(all[0]) << 32n) | BigInt(all[1])} `;
}

class Scripted extends BaseTextAdapter {
  kind = "text";
  name = "scripted";

  constructor(script) {
    super({}, "scripted-1");
    this.script = script;
  }

  async *chatStream({ threadId, runId }) {
    const messageId = crypto.randomUUID();
    const of = { model: "scripted-1", timestamp: Date.now() };
    yield { ...of, type: "RUN_STARTED", threadId, runId };
    yield { ...of, type: "TEXT_MESSAGE_START", messageId, role: "assistant" };
    for await (const delta of tokens(this.script)) yield { ...of, type: "TEXT_MESSAGE_CONTENT", messageId, delta };
    yield { ...of, type: "TEXT_MESSAGE_END", messageId };
    yield { ...of, type: "RUN_FINISHED", threadId, runId, finishReason: "stop" };
  }

  structuredOutput() {
    throw new Error("not needed");
  }
}

async function answer(request) {
  const adapter = memoryStream(request);
  if (request.method === "GET") return resumeServerSentEventsResponse({ adapter });
  const { messages, threadId, runId, tools } = await chatParamsFromRequest(request.clone());
  const said = messages.at(-1).content ?? messages.at(-1).parts;
  const script = JSON.parse(typeof said === "string" ? said : said.map((part) => part.content ?? part.text).join(""));
  const stream = chat({ adapter: new Scripted(script), messages, threadId, runId, tools });
  return toServerSentEventsResponse(stream, { durability: { adapter, batch: 1 } });
}

createServer(async (incoming, outgoing) => {
  const hasBody = incoming.method === "POST";
  const headers = Object.entries(incoming.headers).filter(([name]) => !name.startsWith(":"));
  const request = new Request(`http://127.0.0.1${incoming.url}`, { method: incoming.method, headers, ...(hasBody && { body: Readable.toWeb(incoming), duplex: "half" }) });
  // A handler may throw its answer.
  const response = await answer(request).catch((thrown) => (thrown instanceof Response ? thrown : new Response(String(thrown), { status: 500 })));
  outgoing.writeHead(response.status, Object.fromEntries(response.headers));
  if (response.body) Readable.fromWeb(response.body).on("error", () => outgoing.destroy()).pipe(outgoing);
  else outgoing.end();
}).listen(Number(process.argv[2]), "127.0.0.1", 4096);
