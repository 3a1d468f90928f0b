// How a graph passes its client's tools and context to the model.

import { createMiddleware } from "langchain";
import { Command } from "@langchain/langgraph";
import * as z from "zod";

// threadway sets this key of the state with each run: { tools: [..], context: [{ description: "..", value: ".." }] }.
const stateSchema = z.object({ "ag-ui": z.record(z.string(), z.any()).optional() });

export const clientSide = createMiddleware({
  name: "ClientSide",
  stateSchema,
  wrapModelCall: (request, handler) => {
    const { tools = [], context = [] } = request.state["ag-ui"] ?? {};
    const known = context.map(({ description, value }) => `\n${description}: ${value}`).join("");
    return handler({ ...request, systemMessage: request.systemMessage.concat(known), tools: [...request.tools, ...tools] });
  },
  // The graph does not run the client's tools. The client sends their results with its next run.
  wrapToolCall: (request, handler) => (request.tool ? handler(request) : new Command({})),
  beforeModel: {
    canJumpTo: ["end"],
    hook: ({ messages }) => {
      const answered = new Set(messages.filter(({ type }) => type === "tool").map(({ tool_call_id: id }) => id));
      const last = messages.findLast(({ type }) => type !== "tool");
      if (last?.tool_calls?.some(({ id }) => !answered.has(id))) return { jumpTo: "end" };
    },
  },
});
