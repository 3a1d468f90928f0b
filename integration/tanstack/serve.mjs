// Serves TanStack AI's durable streams, for the conformance suite: a scripted model behind `chat()`, and a route for runs that
// are resumed, as its documents show both.
//
// usage: node serve.mjs PORT        then POST /

import { createServer } from "node:http";
import { Readable } from "node:stream";
import { setTimeout as pause } from "node:timers/promises";
import { chat, chatParamsFromRequest, memoryStream, resumeServerSentEventsResponse, toServerSentEventsResponse } from "@tanstack/ai";
import { BaseTextAdapter } from "@tanstack/ai/adapters";

const WORDS = Array.from({ length: 40 }, (_, n) => `word${n} `);
const WORD_MS = 60;

class Scripted extends BaseTextAdapter {
  kind = "text";
  name = "scripted";

  constructor() {
    super({}, "scripted-1");
  }

  async *chatStream({ threadId, runId }) {
    const messageId = crypto.randomUUID();
    const of = { model: "scripted-1", timestamp: Date.now() };
    yield { ...of, type: "RUN_STARTED", threadId, runId };
    yield { ...of, type: "TEXT_MESSAGE_START", messageId, role: "assistant" };
    for (const delta of WORDS) {
      await pause(WORD_MS);
      yield { ...of, type: "TEXT_MESSAGE_CONTENT", messageId, delta };
    }
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
  const stream = chat({ adapter: new Scripted(), messages, threadId, runId, tools });
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
}).listen(Number(process.argv[2]), "127.0.0.1");
