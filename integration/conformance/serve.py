"""Serves the graphs of upstream/python with AG-UI's own Python adapter in FastAPI, for the conformance suite.

usage: PYTHONPATH=integration/upstream/python PYTHON serve.py PORT        then POST /GRAPH

PYTHON has ag-ui-langgraph, fastapi, uvicorn and langchain.
"""

import sys

import graph
import uvicorn
from ag_ui_langgraph import LangGraphAgent, add_langgraph_fastapi_endpoint
from fastapi import FastAPI
from langgraph.checkpoint.memory import InMemorySaver

GRAPHS = ("agent", "hitl", "failing", "nested", "todos", "subagent", "interrupt_form", "client_tools")


def agent_of(name, compiled):
    # Without the option an interrupted run ends as a successful one does, for older clients.
    return LangGraphAgent(name=name, graph=compiled, emit_interrupt_outcome=True)


app = FastAPI()
for name in GRAPHS:
    compiled = getattr(graph, name)
    # Their server gives the graphs a checkpointer; here nobody else does.
    compiled.checkpointer = InMemorySaver()
    add_langgraph_fastapi_endpoint(app, agent_of(name, compiled), f"/{name}")
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
