"""How a graph passes its client's tools and context to the model."""
from typing import NotRequired, TypedDict

from langchain.agents.middleware import AgentMiddleware, hook_config
from langchain_core.messages import SystemMessage
from langgraph.types import Command

# threadway sets this key of the state with each run: {"tools": [...], "context": [{"description": .., "value": ..}]}.
ClientState = TypedDict("ClientState", {"ag-ui": NotRequired[dict]})


class ClientSide(AgentMiddleware):
    state_schema = ClientState

    async def awrap_model_call(self, request, handler):
        client = request.state.get("ag-ui", {})
        known = [f"{entry['description']}: {entry['value']}" for entry in client.get("context", [])]
        prompt = SystemMessage("\n".join([request.system_prompt or "", *known]))
        return await handler(request.override(system_message=prompt, tools=[*request.tools, *client.get("tools", [])]))

    async def awrap_tool_call(self, request, handler):
        # The graph does not run the client's tools. The client sends their results with its next run.
        return await handler(request) if request.tool else Command()

    @hook_config(can_jump_to=["end"])
    async def abefore_model(self, state, runtime):
        answered = {message.tool_call_id for message in state["messages"] if message.type == "tool"}
        last = next((message for message in reversed(state["messages"]) if message.type != "tool"), None)
        waits = any(call["id"] not in answered for call in getattr(last, "tool_calls", []))
        return {"jump_to": "end"} if waits else None
