// A small MCP server to try the agent `mcp` with, at http://127.0.0.1:8000/mcp.

import { createServer } from "node:http";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import * as z from "zod";

function dice() {
  const server = new McpServer({ name: "dice", version: "1.0.0" });
  server.registerTool("roll", { description: "Roll a die.", inputSchema: { sides: z.number().int() } }, ({ sides }) => ({
    content: [{ type: "text", text: `It shows ${1 + Math.floor(Math.random() * sides)} of ${sides}` }],
  }));
  return server;
}

createServer(async (request, response) => {
  // Without sessions each request has a server of its own.
  const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
  await dice().connect(transport);
  await transport.handleRequest(request, response);
}).listen(Number(process.env.PORT ?? 8000), "127.0.0.1");
