"""An agent with tools of its own, tools of its client, approvals and questions."""
import os

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain.chat_models import init_chat_model
from langchain_core.tools import tool
from langgraph.types import interrupt

from client_side import ClientSide
from scripted import ScriptedModel


@tool
def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f"It is 21 degrees and sunny in {city}."


@tool
def send_email(to: str, body: str) -> str:
    """Send an email."""
    return f"Sent to {to}: {body}"


@tool
def delete_file(path: str) -> str:
    """Delete a file."""
    return f"Deleted {path}"


@tool
def ask_person(question: str) -> str:
    """Ask the person a question."""
    return f"The person says: {interrupt(question)}"


agent = create_agent(
    # With MODEL=openai:gpt-5-mini the agent uses a real model. Without MODEL it follows a script and needs no key.
    init_chat_model(os.environ["MODEL"]) if os.environ.get("MODEL") else ScriptedModel(),
    tools=[get_weather, send_email, delete_file, ask_person],
    system_prompt="You are a helpful assistant.",
    middleware=[
        ClientSide(),
        # Each call needs its own approval: the client gets one interrupt for each, and answers it by its id.
        HumanInTheLoopMiddleware(interrupt_on={"send_email": True, "delete_file": True}, interrupt_mode="per_call"),
    ],
)
