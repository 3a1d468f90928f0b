"""An agent for editors: it works on the files of the session's directory, and obeys the session's mode."""
import os
from pathlib import Path

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain.chat_models import init_chat_model
from langchain_core.tools import tool
from langgraph.config import get_config

from modes import Modes
from scripted import ScriptedModel


def inside(path: str) -> Path:
    """The path, which must be in the directory that the editor has opened."""
    directory = Path(get_config()["metadata"]["cwd"]).resolve()
    found = (directory / path).resolve()
    if not found.is_relative_to(directory):
        raise ValueError(f"{path} is outside of {directory}")
    return found


@tool
def list_files(path: str = ".") -> str:
    """List the files of a directory."""
    return "\n".join(sorted(entry.name for entry in inside(path).iterdir()))


@tool
def read_file(path: str) -> str:
    """Read a text file."""
    return inside(path).read_text()


@tool
def write_file(path: str, content: str) -> str:
    """Write a text file."""
    inside(path).write_text(content)
    return f"Wrote {path}"


@tool
def delete_file(path: str) -> str:
    """Delete a file."""
    inside(path).unlink()
    return f"Deleted {path}"


TOOLS = [list_files, read_file, write_file, delete_file]


def model():
    # With MODEL=openai:gpt-5-mini the agent uses a real model. Without MODEL it follows a script and needs no key.
    return init_chat_model(os.environ["MODEL"]) if os.environ.get("MODEL") else ScriptedModel()


agent = create_agent(
    model(),
    tools=TOOLS,
    system_prompt="You work on the files of the person's editor.",
    middleware=[
        Modes(),
        # The graph asks about every tool, and the modes' permissions answer where no person has to.
        HumanInTheLoopMiddleware({tool.name: True for tool in TOOLS}, interrupt_mode="per_call"),
    ],
)
