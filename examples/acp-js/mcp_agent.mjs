// An agent with the tools of the MCP servers that are configured in the editor.

import { MultiServerMCPClient } from "@langchain/mcp-adapters";
import { createAgent } from "langchain";

import { model } from "./agent.mjs";

const LOAD_MS = 10_000;

/** The server's tools. None if it does not answer: the agent then works without it. */
async function toolsOf({ type, name, url, headers }) {
  const client = new MultiServerMCPClient({
    // With the server's name as a prefix, tools of two servers may have one name.
    prefixToolNameWithServerName: true,
    additionalToolNamePrefix: "",
    defaultToolTimeout: LOAD_MS,
    mcpServers: {
      // The headers are empty, unless `forward_mcp_secrets` is set.
      [name]: { transport: type, url, headers: Object.fromEntries(headers.map(({ name, value }) => [name, value])) },
    },
  });
  try {
    return await client.getTools();
  } catch (error) {
    console.error(`the MCP server ${name} is not used:`, error);
    return [];
  }
}

// LangGraph calls this function for each run, with the run's configuration.
export async function agent({ configurable }) {
  const loaded = await Promise.all((configurable?.mcp_servers ?? []).map(toolsOf));
  return createAgent({ model, tools: loaded.flat() });
}
