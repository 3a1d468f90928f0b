// TanStack AI's durable streams on a port: a scripted model behind `chat()`, and a route for runs that are resumed, as its
// documents show both.

import { createServer } from "node:http";
import { Readable } from "node:stream";
import { chat, chatParamsFromRequest, memoryStream, resumeServerSentEventsResponse, toServerSentEventsResponse } from "@tanstack/ai";
import { BaseTextAdapter } from "@tanstack/ai/adapters";

const MOST_WAITING = 4096; // connections that are not accepted yet: a benchmark opens many at once

class Scripted extends BaseTextAdapter {
  kind = "text";
  name = "scripted";

  constructor(deltas) {
    super({}, "scripted-1");
    this.deltas = deltas;
  }

  async *chatStream({ threadId, runId }) {
    const messageId = crypto.randomUUID();
    const of = { model: "scripted-1", timestamp: Date.now() };
    yield { ...of, type: "RUN_STARTED", threadId, runId };
    yield { ...of, type: "TEXT_MESSAGE_START", messageId, role: "assistant" };
    for await (const delta of this.deltas) yield { ...of, type: "TEXT_MESSAGE_CONTENT", messageId, delta };
    yield { ...of, type: "TEXT_MESSAGE_END", messageId };
    yield { ...of, type: "RUN_FINISHED", threadId, runId, finishReason: "stop" };
  }

  structuredOutput() {
    throw new Error("not needed");
  }
}

async function answer(request, speak) {
  const adapter = memoryStream(request);
  if (request.method === "GET") return resumeServerSentEventsResponse({ adapter });
  const { messages, threadId, runId, tools } = await chatParamsFromRequest(request.clone());
  const stream = chat({ adapter: new Scripted(speak(messages)), messages, threadId, runId, tools });
  return toServerSentEventsResponse(stream, { durability: { adapter, batch: 1 } });
}

/** Serves POST / and GET /. `speak` makes the model's deltas, an async iterable, from a run's messages. */
export function serve(port, speak) {
  createServer(async (incoming, outgoing) => {
    const hasBody = incoming.method === "POST";
    const headers = Object.entries(incoming.headers).filter(([name]) => !name.startsWith(":"));
    const request = new Request(`http://127.0.0.1${incoming.url}`, { method: incoming.method, headers, ...(hasBody && { body: Readable.toWeb(incoming), duplex: "half" }) });
    // A handler may throw its answer.
    const response = await answer(request, speak).catch((thrown) => (thrown instanceof Response ? thrown : new Response(String(thrown), { status: 500 })));
    outgoing.writeHead(response.status, Object.fromEntries(response.headers));
    if (response.body) Readable.fromWeb(response.body).on("error", () => outgoing.destroy()).pipe(outgoing);
    else outgoing.end();
  }).listen(port, "127.0.0.1", MOST_WAITING);
}
