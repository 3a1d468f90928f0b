"""A deep agent: its plan, its files in the state, and subagents that run by the tool `task`.

It is apart from the other graphs because older servers have no package `deepagents`.
"""
from __future__ import annotations

import json

from deepagents import create_deep_agent
from deepagents.backends import StateBackend
from deepagents.middleware.summarization import SummarizationMiddleware
from langchain.agents.middleware import TodoListMiddleware

from converse import SummaryModel, TalkModel, ask_person, ping
from graph import FakeStreamingModel, send_email

CITIES = ["Paris", "Lyon"]


def _plan(*statuses: str) -> list:
    steps = ["Ask the researchers", "Write the report"]
    return ["write_todos", {"todos": [{"content": step, "status": status} for step, status in zip(steps, statuses)]}]


def _task(city: str) -> list:
    """A call of `task` whose description scripts the subagent: it writes a file and answers."""
    rounds = [
        {"think": ["I ", "look."], "say": [f"Looking up {city}."], "calls": [
            ["write_file", {"file_path": f"/{city.lower()}.md", "content": f"# {city}\nwarm\n"}]]},
        {"say": [f"{city} ", "is ", "warm."]},
    ]
    return ["task", {"description": json.dumps({"rounds": rounds, "prefix": f"{city.lower()}_"}), "subagent_type": "researcher"}]


ROUNDS = [
    {"think": ["Let ", "me ", "plan."], "say": ["I plan ", "first."], "calls": [_plan("in_progress", "pending")]},
    {"calls": [["write_file", {"file_path": "/report.md", "content": "# Report\nnothing yet\n"}]]},
    {"say": ["Now ", "both ", "cities."], "calls": [_task(city) for city in CITIES]},
    {"calls": [["edit_file", {"file_path": "/report.md", "old_string": "nothing yet", "new_string": "Both are warm."}],
               _plan("completed", "in_progress")]},
    {"calls": [["read_file", {"file_path": "/lyon.md"}], _plan("completed", "completed")]},
    {"say": ["The report ", "is ", "written."]},
]

deep = create_deep_agent(
    FakeStreamingModel(script="editor", rounds=ROUNDS),
    system_prompt="Write a report.",
    middleware=[TodoListMiddleware()],  # deepagents 0.7 has no plan of its own
    subagents=[{
        "name": "researcher",
        "description": "Looks up one city.",
        "system_prompt": "Look it up.",
        "model": FakeStreamingModel(script="editor"),
    }],
)


# Two subagents at once that call equal tools, and ask before each.
MAIL = {"calls": [["send_email", {"to": "a@example.com", "body": "hi"}]]}
ASKING = [
    {"say": ["I ask ", "both."], "calls": [
        ["task", {"description": json.dumps({"rounds": [{"say": [f"{side} writes."], **MAIL}, {"say": [f"{side} wrote."]}], "prefix": f"{side}_"}),
                  "subagent_type": "writer"}] for side in ("left", "right")]},
    {"say": ["Both ", "wrote."]},
]

asking_deep = create_deep_agent(
    FakeStreamingModel(script="editor", rounds=ASKING),
    subagents=[{
        "name": "writer",
        "description": "Writes one letter.",
        "system_prompt": "Write it.",
        "model": FakeStreamingModel(script="editor"),
        "tools": [send_email],
        "interrupt_on": {"send_email": True},
    }],
)

# It shortens what its model reads, and leaves the thread's messages as they are.
talk_deep = create_deep_agent(TalkModel(), tools=[ping, ask_person], middleware=[
    SummarizationMiddleware(SummaryModel(), backend=StateBackend(), trigger=("messages", 7), keep=("messages", 3))])
