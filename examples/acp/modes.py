"""How a graph obeys the modes of an editor."""
from fnmatch import fnmatchcase

from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import SystemMessage, ToolMessage
from langgraph.config import get_config

# threadway sends the `configurable` of the session's mode with each run:
# {"system_prompt": "..", "allowed_tools": ["read_*", ..]}. Both keys may be missing.


def allows(name: str) -> bool:
    patterns = get_config()["configurable"].get("allowed_tools")
    return patterns is None or any(fnmatchcase(name, pattern) for pattern in patterns)


class Modes(AgentMiddleware):
    async def awrap_model_call(self, request, handler):
        prompts = [request.system_prompt, get_config()["configurable"].get("system_prompt")]
        return await handler(request.override(
            system_message=SystemMessage("\n\n".join(filter(None, prompts))),
            tools=[tool for tool in request.tools if allows(tool["name"] if isinstance(tool, dict) else tool.name)],
        ))

    async def awrap_tool_call(self, request, handler):
        # A model may name a tool of an earlier turn, when another mode allowed it.
        call = request.tool_call
        if allows(call["name"]):
            return await handler(request)
        text = f"The current mode does not allow the tool {call['name']}."
        return ToolMessage(text, name=call["name"], tool_call_id=call["id"], status="error")
