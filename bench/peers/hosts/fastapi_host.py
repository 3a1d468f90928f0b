"""Serves one graph with AG-UI's own Python adapter in FastAPI. The adapter runs the graph in its own process, without a LangGraph
server, so the graph's model says the script's tokens by itself: those of bench/load/text.rs.

usage: python fastapi_host.py PORT        then POST /agent
"""

import asyncio
import json
import sys
import time

import uvicorn
from ag_ui_langgraph import LangGraphAgent, add_langgraph_fastapi_endpoint
from fastapi import FastAPI
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph


async def tokens(script):
    total = 0xCBF29CE484222325
    begin = time.monotonic() + script["pause_us"] / 1e6
    await asyncio.sleep(script["pause_us"] / 1e6)
    for place in range(script["tokens"]):
        await asyncio.sleep(max(0.0, begin + place * script["interval_us"] / 1e6 - time.monotonic()))
        token = f"{place}@{time.time_ns()} "
        for byte in token.encode():
            total = (total ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
        yield token
    yield f"{script['tokens']}#{total} "


class Scripted(BaseChatModel):
    @property
    def _llm_type(self):
        return "scripted"

    def _generate(self, *arguments, **options):
        raise NotImplementedError

    async def _astream(self, messages, stop=None, run_manager=None, **options):
        async for token in tokens(json.loads(messages[-1].text)):
            chunk = ChatGenerationChunk(message=AIMessageChunk(content=token))
            if run_manager:
                await run_manager.on_llm_new_token(token, chunk=chunk)
            yield chunk


async def answer(state):
    return {"messages": [await Scripted().ainvoke(state["messages"])]}


graph = StateGraph(MessagesState)
graph.add_node("agent", answer)
graph.add_edge(START, "agent")
graph.add_edge("agent", END)
app = FastAPI()
agent = LangGraphAgent(name="agent", graph=graph.compile(checkpointer=InMemorySaver()))
add_langgraph_fastapi_endpoint(app, agent, "/agent")
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", backlog=4096)
