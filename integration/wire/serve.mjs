// Serves AG-UI's own LangGraph adapter over plain node:http, for the conformance suite: `@ag-ui/langgraph` is a library, and
// its host reads the input and writes the events.
//
// usage: LANGGRAPH_URL=URL node serve.mjs PORT        then POST /GRAPH

import { createServer } from "node:http";
import { json } from "node:stream/consumers";
import { RunAgentInputSchema } from "@ag-ui/core/schemas";
import { EventEncoder } from "@ag-ui/encoder";
import { LangGraphAgent } from "@ag-ui/langgraph";

const deploymentUrl = process.env.LANGGRAPH_URL;
if (!deploymentUrl) throw new Error("LANGGRAPH_URL is not set");

createServer(async (request, response) => {
  const input = RunAgentInputSchema.safeParse(await json(request).catch(() => undefined));
  if (request.method !== "POST" || !input.success) {
    response.writeHead(request.method === "POST" ? 400 : 405).end();
    return;
  }
  const encoder = new EventEncoder();
  response.writeHead(200, { "content-type": encoder.getContentType(), "cache-control": "no-cache" });
  // An agent keeps the state of its run, so each request has its own. Without the option an interrupted run ends as a successful
  // one does, for older clients.
  const agent = new LangGraphAgent({ deploymentUrl, graphId: request.url.slice(1), emitInterruptOutcome: true });
  const fail = (error) => response.end(encoder.encodeSSE({ type: "RUN_ERROR", message: String(error?.message ?? error) }));
  const run = agent.run(input.data).subscribe({ next: (event) => response.write(encoder.encodeSSE(event)), error: fail, complete: () => response.end() });
  response.once("close", () => run.unsubscribe());
}).listen(Number(process.argv[2]), "127.0.0.1");
