// Serves CopilotKit's runtime with its agent of LangGraph, as its documents show both.
//
// usage: LANGGRAPH_URL=URL node copilotkit.mjs PORT        then POST /api/copilotkit/agent/agent/run

import { createServer } from "node:http";
import { LangGraphAgent } from "@copilotkit/runtime/langgraph";
import { CopilotRuntime } from "@copilotkit/runtime/v2";
import { createCopilotNodeListener } from "@copilotkit/runtime/v2/node";

const agent = new LangGraphAgent({ deploymentUrl: process.env.LANGGRAPH_URL, graphId: "agent" });
const runtime = new CopilotRuntime({ agents: { agent } });
createServer(createCopilotNodeListener({ runtime, basePath: "/api/copilotkit" })).listen(Number(process.argv[2]), "127.0.0.1", 4096);
