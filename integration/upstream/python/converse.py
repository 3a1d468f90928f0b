"""The graphs of the suite `converse`: agents that change their own conversation, before a model as strict as a provider.

The first word of the last human message is the command: see `TalkModel`. The words after it are unique.
"""
from __future__ import annotations

import json
import operator
import re
import uuid
from typing import Annotated, Any, AsyncIterator
from urllib.parse import urlsplit

import asyncio
from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import AgentMiddleware, PIIMiddleware, SummarizationMiddleware, hook_config
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import interrupt
from typing_extensions import NotRequired

PAGE_TOOLS = ("confirm", "locate")  # the client has them
MAIL = re.compile(r"[\w.-]+@example\.com")
BIG = "large " * 100


class Refused(Exception):
    """A provider's 400."""


def refusal(messages: list[BaseMessage]) -> str | None:
    """What OpenAI and Anthropic refuse about calls and their results."""
    waiting: list[str] = []
    for place, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in waiting:
                return f"message {place} is a result of {message.tool_call_id}, which the message before it does not wait for"
            waiting.remove(message.tool_call_id)
            continue
        if waiting:
            return f"message {place} follows the call {waiting[0]}, which has no result"
        if isinstance(message, AIMessage):
            waiting = [call["id"] for call in message.tool_calls]
    if waiting:
        return f"the call {waiting[0]} at the end has no result"
    return None


def text_of(message: BaseMessage) -> str:
    return message.text if isinstance(message.text, str) else message.text()


def command_of(messages: list[BaseMessage]) -> list[str]:
    """The words of the last human message."""
    last = next((message for message in reversed(messages) if isinstance(message, HumanMessage)), None)
    return text_of(last).split() if last else []


async def passed(url: str) -> None:
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    try:
        writer.write(f"GET {place.path} HTTP/1.0\r\n\r\n".encode())
        await reader.read()
    finally:
        writer.close()


class TalkModel(BaseChatModel):
    """Calls a tool for the commands `tool`, `tools`, `approve`, `page`, `pages`; waits at a gate for `slow`; else answers.

    An answer quotes every mail address that the model has seen.
    """

    @property
    def _llm_type(self) -> str:
        return "talk"

    def bind_tools(self, tools, **kw):  # noqa: ANN001
        return self

    async def _astream(self, messages, stop=None, run_manager=None, **kw) -> AsyncIterator[ChatGenerationChunk]:
        if refused := refusal(messages):
            raise Refused(f"400: {refused}")
        words = command_of(messages)
        command = words[0] if words else ""
        is_new = bool(messages) and isinstance(messages[-1], HumanMessage)
        calls = {"tool": ["ping"], "tools": ["ping", "ping"], "approve": ["ask_person"], "page": ["confirm"], "pages": ["confirm", "locate"]}.get(command)
        if calls and is_new:
            chunks = [AIMessageChunk(content="Let me see. ")] + [
                AIMessageChunk(content="", tool_call_chunks=[{"name": name, "args": json.dumps({"n": n}), "id": f"call_{uuid.uuid4().hex[:12]}", "index": n, "type": "tool_call_chunk"}])
                for n, name in enumerate(calls)]
        else:
            mails = sorted({mail for message in messages for mail in MAIL.findall(text_of(message))})
            said = f"to {words[1]}" if len(words) > 1 else "to nobody"
            chunks = [AIMessageChunk(content="Answer "), AIMessageChunk(content=f"{said}, "), AIMessageChunk(content=f"{uuid.uuid4().hex[:8]}{''.join(f' {mail}' for mail in mails)}")]
        chunks[-1].chunk_position = "last"
        for place, chunk in enumerate(chunks):
            if command == "slow" and place == 1:
                await passed(f"{words[2]}/0")
            generation = ChatGenerationChunk(message=chunk)
            if run_manager:
                await run_manager.on_llm_new_token(text_of(chunk), chunk=generation)
            yield generation

    async def _agenerate(self, messages, stop=None, run_manager=None, **kw) -> ChatResult:
        whole = None
        async for generation in self._astream(messages, stop, run_manager, **kw):
            whole = generation if whole is None else whole + generation
        message = whole.message
        return ChatResult(generations=[ChatGeneration(message=AIMessage(content=message.content, tool_calls=message.tool_calls, id=message.id))])

    def _generate(self, messages, stop=None, run_manager=None, **kw) -> ChatResult:
        raise NotImplementedError


SUMMARY = ["The talk ", "so far."]


class SummaryModel(BaseChatModel):
    @property
    def _llm_type(self) -> str:
        return "summary"

    async def _astream(self, messages, stop=None, run_manager=None, **kw) -> AsyncIterator[ChatGenerationChunk]:
        for word in SUMMARY:
            generation = ChatGenerationChunk(message=AIMessageChunk(content=word))
            if run_manager:
                await run_manager.on_llm_new_token(word, chunk=generation)
            yield generation

    def _generate(self, messages, stop=None, run_manager=None, **kw) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(content="".join(SUMMARY)))])


@tool
async def ping(n: int) -> str:
    """Answer."""
    return f"pong {n}"


@tool
async def ask_person(n: int) -> str:
    """Ask the person, within a call."""
    return f"approved: {interrupt({'question': 'May I?'})}"


class TalkState(AgentState):
    count: NotRequired[int]  # of runs
    log: NotRequired[Annotated[list[str], operator.add]]  # an entry for each run
    note: NotRequired[str]  # the person's
    doc: NotRequired[dict[str, Any]]  # a large member of the graph, a small one of the person
    tools: NotRequired[list[Any]]  # the client's


class Talk(AgentMiddleware):
    """Counts runs, asks (`ask`), leaves the client's calls to the client, and forgets (`forget`, `forget-all`)."""

    state_schema = TalkState

    async def abefore_agent(self, state, runtime):
        update = {"count": (state.get("count") or 0) + 1, "log": [uuid.uuid4().hex[:6]]}
        return update if state.get("doc") else {**update, "doc": {"big": BIG, "small": "0"}}

    async def abefore_model(self, state, runtime):
        messages = state["messages"]
        if messages and isinstance(messages[-1], HumanMessage) and command_of(messages)[:1] == ["ask"]:
            interrupt({"question": "Which one?"})
        return None

    @hook_config(can_jump_to=["end"])
    async def aafter_model(self, state, runtime):
        calls = getattr(state["messages"][-1], "tool_calls", None) or []
        return {"jump_to": "end"} if any(call["name"] in PAGE_TOOLS for call in calls) else None

    async def aafter_agent(self, state, runtime):
        messages = state["messages"]
        command = command_of(messages)[:1]
        if command == ["forget-all"]:
            return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES)]}
        people = [place for place, message in enumerate(messages) if isinstance(message, HumanMessage)]
        if command == ["forget"] and len(people) > 1:
            return {"messages": [RemoveMessage(id=message.id) for message in messages[: people[1]]]}
        return None


class Recap(AgentMiddleware):
    """Summarises as people's own middleware does: with LangChain's mark, and without the tag that keeps tokens out of the stream."""

    async def abefore_model(self, state, runtime):
        messages = state["messages"]
        if len(messages) < 7 or not isinstance(messages[-1], HumanMessage):
            return None
        told = await SummaryModel().ainvoke("Summarise.", config={"metadata": {"lc_source": "summarization"}})
        summary = HumanMessage(f"Here is a summary of the conversation to date:\n\n{text_of(told)}", additional_kwargs={"lc_source": "summarization"})
        return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), summary, *messages[-3:]]}


def talk_agent(*middleware: AgentMiddleware):
    return create_agent(TalkModel(), tools=[ping, ask_person], middleware=[*middleware, Talk()])


talk = talk_agent()
talk_redacted = talk_agent(PIIMiddleware("email", strategy="redact", apply_to_input=True))
talk_summarised = talk_agent(SummarizationMiddleware(SummaryModel(), trigger=("messages", 7), keep=("messages", 3)))
talk_both = talk_agent(
    PIIMiddleware("email", strategy="redact", apply_to_input=True),
    SummarizationMiddleware(SummaryModel(), trigger=("messages", 7), keep=("messages", 3)),
)
talk_recapped = talk_agent(Recap())
