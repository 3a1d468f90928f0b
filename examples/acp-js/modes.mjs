// How a graph obeys the modes of an editor.

import { createMiddleware, ToolMessage } from "langchain";
import { getConfig } from "@langchain/langgraph";

// threadway sends the `configurable` of the session's mode with each run:
// { system_prompt: "..", allowed_tools: ["read_*", ..] }. Both keys may be missing.
const configurable = () => getConfig()?.configurable ?? {};

function allows(name) {
  const { allowed_tools: patterns } = configurable();
  return !patterns || patterns.some((pattern) => asExpression(pattern).test(name));
}

/** `*` stands for any text. */
const asExpression = (pattern) =>
  new RegExp(`^${pattern.split("*").map((text) => text.replace(/[.+?^${}()|[\]\\]/g, "\\$&")).join(".*")}$`, "s");

export const modes = createMiddleware({
  name: "Modes",
  wrapModelCall: (request, handler) => {
    const prompt = configurable().system_prompt;
    return handler({
      ...request,
      systemMessage: prompt ? request.systemMessage.concat(`\n\n${prompt}`) : request.systemMessage,
      tools: request.tools.filter((tool) => allows(tool.function?.name ?? tool.name)),
    });
  },
  wrapToolCall: (request, handler) => {
    // A model may name a tool of an earlier turn, when another mode allowed it.
    const { name, id } = request.toolCall;
    if (allows(name)) return handler(request);
    return new ToolMessage({ content: `The current mode does not allow the tool ${name}.`, name, tool_call_id: id, status: "error" });
  },
});
