"""The graphs that the tests run: deterministic, with scripted models, without network or keys.

Every graph with a model is driven by the first human message of the *current* turn: if its text is a JSON
object, its keys override DEFAULTS below; any other text means "defaults".
"""
from __future__ import annotations

import asyncio
import dataclasses
import inspect
import json
import operator
from typing import Annotated, Any, AsyncIterator, Iterator, Literal
from urllib.parse import urlsplit

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware, TodoListMiddleware
from langchain_core.callbacks.manager import adispatch_custom_event
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.runtime import Runtime, get_runtime
from langgraph.types import interrupt
from pydantic import Field
from typing_extensions import TypedDict

try:
    from langchain.agents.middleware import ToolErrorMiddleware
except ImportError:
    class ToolErrorMiddleware(AgentMiddleware):
        """The same for older versions of langchain, which have none."""

        def __init__(self, tell) -> None:
            super().__init__()
            self.tell = tell

        async def awrap_tool_call(self, request, handler):
            try:
                return await handler(request)
            except Exception as error:
                call = request.tool_call
                return ToolMessage(self.tell(error, request), tool_call_id=call["id"], name=call["name"], status="error")

DEFAULTS: dict[str, Any] = {
    "delay": 0.01,        # seconds between chunks
    "gate": None,         # {"url", "at"}: before each chunk of these numbers the model requests url/number, and waits for the answer; the agent's tools do so if `at` has "tool"
    "tokens": 8,          # text tokens of the final answer
    "words": None,        # the tokens themselves
    "flavour": "v1",      # v1 | anthropic | reasoning_content | string
    "tools": True,        # make tool calls in round 0
    "tool_sleep": 0.05,
    "tool_index": None,   # index of the first tool_call_chunk; default: 2 with content blocks (Anthropic-like), 0 with string content (OpenAI-like)
    "fail_after": 3,      # failing graph: tokens before the exception
    "error": "ValueError",
    "message": None,      # of that exception
    "rounds": None,       # editor: what the model does in each round of the turn, see EDIT
    "prefix": None,       # editor, hitl: of the call ids
    "again": False,       # editor: start over after the last round instead of ending
    "media": True,        # media: an image and more, else text
}


# The editor's script for an edit: `calls` are names and arguments, `finish` is the finish reason of the round.
EDIT = [
    {"think": ["Let ", "me ", "think."], "say": ["I read ", "it first."], "calls": [["read_file", {"file_path": "/notes.txt"}]]},
    {"calls": [["edit_file", {"file_path": "/notes.txt", "old_string": "one\ntwo", "new_string": "one\n2"}],
               ["write_file", {"file_path": "docs/new.md", "content": "# New\n"}]]},
    {"say": ["Both ", "files ", "are written."]},
]
SLOW = [{"say": [f"word{i} " for i in range(4000)]}]  # for a turn that is cancelled


PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="

# The model's output besides text, each block in chunks: chunks of one index are merged, their base64 too.
MEDIA = [
    [{"type": "server_tool_call", "id": "srv_1", "name": "web_search", "args": {"query": "maps"}, "index": 1}],
    [{"type": "text", "text": "Here ", "index": 2}, {"type": "text", "text": "is a map.", "index": 2},
     {"type": "text", "text": "", "index": 2, "annotations": [
         {"type": "citation", "url": "https://example.org/atlas", "title": "An atlas", "start_index": 8, "end_index": 13}]}],
    [{"type": "image", "base64": PNG[:40], "mime_type": "image/png", "index": 3}, {"type": "image", "base64": PNG[40:], "index": 3}],
    [{"type": "audio", "base64": WAV, "mime_type": "audio/wav", "index": 4}],
    [{"type": "file", "url": "https://example.org/map.csv", "mime_type": "text/csv", "index": 5}],
]


class CustomBoom(Exception):
    """Not in the server's allow-list of exception types."""


def params(messages: list[BaseMessage]) -> tuple[dict[str, Any], int]:
    """(params, round) where round = AI messages since the last human message."""
    p = dict(DEFAULTS)
    rnd = 0
    for m in reversed(messages):
        if isinstance(m, AIMessage):
            rnd += 1
        if isinstance(m, HumanMessage):
            text = m.text if isinstance(m.text, str) else m.text()
            try:
                d = json.loads(text)
                if isinstance(d, dict):
                    p.update(d)
            except ValueError:
                p["rounds"] = EDIT if "edit" in text else SLOW if "slow" in text else None
            break
    return p, rnd


async def passed(url: str) -> None:
    """Waits at a gate until the test opens it, and so ends the response."""
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    try:
        writer.write(f"GET {place.path} HTTP/1.0\r\n\r\n".encode())
        await reader.read()
    finally:
        writer.close()


def reasoning_chunk(flavour: str, text: str, i: int) -> AIMessageChunk:
    if flavour == "anthropic":
        return AIMessageChunk(content=[{"type": "thinking", "thinking": text, "index": 0}])
    if flavour == "reasoning_content":
        return AIMessageChunk(content="", additional_kwargs={"reasoning_content": text})
    return AIMessageChunk(content=[{"type": "reasoning", "reasoning": text, "index": 0}])


def text_chunk(flavour: str, text: str) -> AIMessageChunk:
    if flavour in ("string", "reasoning_content"):
        return AIMessageChunk(content=text)
    return AIMessageChunk(content=[{"type": "text", "text": text, "index": 1}])


class FakeStreamingModel(BaseChatModel):
    """script: the behaviour. Bound tools are ignored."""

    script: str = "agent"
    prefix: str = ""      # of the editor's call ids, where several models speak in one turn
    rounds: list | None = None  # of the editor, if the message names none

    @property
    def _llm_type(self) -> str:
        return "fake-streaming"

    def bind_tools(self, tools, **kw):  # noqa: ANN001
        return self

    def _chunks(self, messages: list[BaseMessage]) -> list[AIMessageChunk | BaseException]:
        p, rnd = params(messages)
        f = p["flavour"]
        out: list[Any] = []

        def tool_calls(calls: list[tuple[str, str, dict]]):
            # OpenAI-like: name first with empty args, then argument fragments, interleaved
            frags = []
            base = p["tool_index"] if p["tool_index"] is not None else (0 if f in ("string", "reasoning_content") else 2)
            for idx, (cid, name, args) in enumerate(calls):
                out.append(AIMessageChunk(content="", tool_call_chunks=[
                    {"name": name, "args": "", "id": cid, "index": base + idx, "type": "tool_call_chunk"}]))
                s = json.dumps(args)
                frags.append([s[i:i + 7] for i in range(0, len(s), 7)])
            for i in range(max(len(x) for x in frags)):
                for idx, x in enumerate(frags):
                    if i < len(x):
                        out.append(AIMessageChunk(content="", tool_call_chunks=[
                            {"name": None, "args": x[i], "id": None, "index": base + idx, "type": "tool_call_chunk"}]))

        def usage(inp: int, outp: int, finish: str = "stop"):
            out.append(AIMessageChunk(content="", usage_metadata={
                "input_tokens": inp, "output_tokens": outp, "total_tokens": inp + outp,
                "input_token_details": {"cache_read": 1}, "output_token_details": {"reasoning": 3}},
                response_metadata={"finish_reason": finish, "model_name": "fake-1", "model_provider": "fake"}))

        s = self.script
        rounds = p["rounds"] or self.rounds if s == "editor" else None
        if rounds and (rnd < len(rounds) or p["again"]):
            r = rounds[rnd % len(rounds)]
            out += [reasoning_chunk(f, w, i) for i, w in enumerate(r.get("think", []))]
            out += [text_chunk(f, w) for w in r.get("say", [])]
            if calls := r.get("calls"):
                tool_calls([(f"{p['prefix'] or self.prefix}call_{len(messages)}_{i}", name, args) for i, (name, args) in enumerate(calls)])
            usage(11, 22, r.get("finish", "tool_calls" if calls else "stop"))
        elif s in ("agent", "hitl", "todos", "subagent", "supervisor", "tool_error") and rnd == 0 and p["tools"]:
            if f != "string":
                for i, w in enumerate(["Let ", "me ", "think."]):
                    out.append(reasoning_chunk(f, w, i))
            for w in ["Look", "ing ", "up."]:
                out.append(text_chunk(f, w))
            if s == "agent":
                gate = p["gate"] or {"at": []}
                more = {"sleep": p["tool_sleep"], **({"gate": f"{gate['url']}/tool"} if "tool" in gate["at"] else {})}
                tool_calls([("call_w", "get_weather", {"city": "Paris", **more}),
                            ("call_s", "search", {"query": "naïve \"quotes\" \u2603 \U0001f600", **more})])
            elif s == "hitl":
                prefix = p["prefix"] or ""
                tool_calls([(f"{prefix}call_e", "send_email", {"to": "a@example.com", "body": "hi"}),
                            (f"{prefix}call_d", "delete_file", {"path": "/tmp/x"})])
            elif s == "todos":
                tool_calls([("call_t1", "write_todos", {"todos": [
                    {"content": "step one", "status": "in_progress"}, {"content": "step two", "status": "pending"}]})])
            elif s == "tool_error":
                tool_calls([("call_bad", "divide", {"dividend": 1, "divisor": 0}),
                            ("call_args", "get_weather", {"town": "Paris"}),
                            ("call_ok", "divide", {"dividend": 6, "divisor": 3})])
            elif s == "supervisor":
                own = lambda side: {"prefix": f"{side}_", "words": p["words"] and [f"{side} {word}" for word in p["words"]], "delay": p["delay"]}
                tool_calls([(f"call_{side}", "task", {"description": json.dumps(own(side)), "subagent_type": "helper"}) for side in ("left", "right")])
            else:
                tool_calls([("call_task", "task", {"description": "say hello", "subagent_type": "helper"})])
            usage(11, 22)
        elif s == "media" and p["media"]:
            out += [AIMessageChunk(content=[dict(block)]) for blocks in MEDIA for block in blocks]
            usage(11, 22)
        elif s == "wire" and rnd == 0:
            tool_calls([("call_r", "read_log", {"lines": 500})])
            usage(11, 22)
        elif s == "todos" and rnd == 1:
            tool_calls([("call_t2", "write_todos", {"todos": [
                {"content": "step one", "status": "completed"}, {"content": "step two", "status": "completed"}]})])
            usage(13, 5)
        else:
            words = p["words"] or [f"tok{i} " for i in range(int(p["tokens"]))]
            for i, word in enumerate(words):
                if s == "failing" and i == int(p["fail_after"]):
                    e = p["error"]
                    out.append({"ValueError": ValueError, "RuntimeError": RuntimeError, "CustomBoom": CustomBoom,
                                "TimeoutError": TimeoutError, "ConnectionError": ConnectionError}[e](p["message"] or f"boom after {i} tokens"))
                    return out
                out.append(text_chunk(f, word))
            usage(17, int(p["tokens"]))
        out[-1].chunk_position = "last"
        return out

    async def _astream(self, messages, stop=None, run_manager=None, **kw) -> AsyncIterator[ChatGenerationChunk]:
        p, _ = params(messages)
        gate = p["gate"] or {"at": []}
        for i, c in enumerate(self._chunks(messages)):
            if i in gate["at"]:
                await passed(f"{gate['url']}/{i}")
            if p["delay"]:
                await asyncio.sleep(p["delay"])
            if isinstance(c, BaseException):
                raise c
            g = ChatGenerationChunk(message=c)
            if run_manager:
                await run_manager.on_llm_new_token(c.text if isinstance(c.text, str) else "", chunk=g)
            yield g

    def _stream(self, messages, stop=None, run_manager=None, **kw) -> Iterator[ChatGenerationChunk]:
        for c in self._chunks(messages):
            if isinstance(c, BaseException):
                raise c
            yield ChatGenerationChunk(message=c)

    async def _agenerate(self, messages, stop=None, run_manager=None, **kw) -> ChatResult:
        acc = None
        async for g in self._astream(messages, stop, None if self.disable_streaming else run_manager, **kw):
            acc = g if acc is None else acc + g
        m = acc.message
        return ChatResult(generations=[ChatGeneration(message=AIMessage(
            content=m.content, tool_calls=m.tool_calls, usage_metadata=m.usage_metadata,
            additional_kwargs=m.additional_kwargs, response_metadata=m.response_metadata, id=m.id))])

    def _generate(self, messages, stop=None, run_manager=None, **kw) -> ChatResult:
        acc = None
        for g in self._stream(messages, stop, run_manager, **kw):
            acc = g if acc is None else acc + g
        return ChatResult(generations=[ChatGeneration(message=acc.message)])


# ---------------------------------------------------------------- tools
@tool
async def get_weather(city: str, sleep: float = 0.05, gate: str | None = None) -> str:
    """Weather."""
    await asyncio.sleep(sleep)
    if gate:
        await passed(gate)
    return f"sunny in {city}"


@tool
async def search(query: str, sleep: float = 0.05, gate: str | None = None) -> str:
    """Search."""
    get_stream_writer()({"progress": "searching", "query": query})
    await asyncio.sleep(sleep)
    if gate:
        await passed(gate)
    return f"results for {query}"


@tool
async def send_email(to: str, body: str) -> str:
    """Send."""
    return f"sent to {to}"


@tool
async def delete_file(path: str) -> str:
    """Delete."""
    return f"deleted {path}"


@tool
async def divide(dividend: int, divisor: int) -> str:
    """Divide."""
    return str(dividend // divisor)


agent = create_agent(FakeStreamingModel(script="agent"), tools=[get_weather, search])
hitl = create_agent(FakeStreamingModel(script="hitl"), tools=[send_email, delete_file], middleware=[
    HumanInTheLoopMiddleware(interrupt_on={"send_email": True, "delete_file": {"allowed_decisions": ["approve", "reject"]}})])
if "interrupt_mode" in inspect.signature(HumanInTheLoopMiddleware).parameters:  # older versions of langchain have none
    hitl_per_call = create_agent(FakeStreamingModel(script="hitl"), tools=[send_email, delete_file], middleware=[HumanInTheLoopMiddleware(
        interrupt_on={"send_email": True, "delete_file": {"allowed_decisions": ["approve", "reject"]}}, interrupt_mode="per_call")])
WARNING = "This goes to 5,000 customers and cannot be undone."
described = create_agent(FakeStreamingModel(script="hitl"), tools=[send_email, delete_file], middleware=[HumanInTheLoopMiddleware(
    interrupt_on={name: {"allowed_decisions": ["approve", "reject"], "description": WARNING} for name in ("send_email", "delete_file")})])
media = create_agent(FakeStreamingModel(script="media"), tools=[])
todos = create_agent(FakeStreamingModel(script="todos"), tools=[], middleware=[TodoListMiddleware()])

# create_agent's ToolNode answers only for arguments that do not fit the tool. An exception of a tool ends the run, unless
# this middleware turns it into a ToolMessage with status "error".
tool_error = create_agent(FakeStreamingModel(script="tool_error"), tools=[divide, get_weather], middleware=[
    ToolErrorMiddleware(lambda error, request: f"{type(error).__name__}: {error}")])


@tool
async def read_file(file_path: str) -> str:
    """Read."""
    return "zero\none\ntwo\nthree\n"


@tool
async def edit_file(file_path: str, old_string: str, new_string: str) -> str:
    """Edit."""
    if old_string not in "zero\none\ntwo\nthree\n":
        raise ValueError(f"String not found in {file_path}")
    return f"Edited {file_path}"


@tool
async def write_file(file_path: str, content: str) -> str:
    """Write."""
    return f"Wrote {file_path}"


@tool
async def execute(command: str) -> str:
    """Run."""
    return f"$ {command}"


@tool
async def fetch_url(url: str) -> str:
    """Fetch."""
    return f"<p>{url}</p>"


@tool
async def ping() -> str:
    """Take nothing."""
    return "pong"


_EDITOR = {"tools": [read_file, edit_file, write_file, execute, fetch_url, ping], "middleware": [
    TodoListMiddleware(), ToolErrorMiddleware(lambda error, request: f"{type(error).__name__}: {error}")]}
editor = create_agent(FakeStreamingModel(script="editor"), **_EDITOR)
endless = create_agent(FakeStreamingModel(script="editor"), **_EDITOR).with_config(recursion_limit=9)
silent = create_agent(FakeStreamingModel(script="editor", disable_streaming=True), **_EDITOR)
guarded = create_agent(FakeStreamingModel(script="editor"), tools=_EDITOR["tools"], middleware=[
    HumanInTheLoopMiddleware(interrupt_on={name: True for name in ("edit_file", "write_file", "execute")})])

# Two agents that call their tools at the same time, with the same indexes.
_g = StateGraph(MessagesState)
for _side in ("left", "right"):
    _g.add_node(_side, create_agent(FakeStreamingModel(script="editor", prefix=f"{_side}_"), **_EDITOR))
    _g.add_edge(START, _side)
two_editors = _g.compile()

def _task_of(helper):
    @tool
    async def task(description: str, subagent_type: str) -> str:
        """Run a subagent."""
        r = await helper.ainvoke({"messages": [HumanMessage(description)]})
        m = r["messages"][-1]
        return m.text if isinstance(m.text, str) else m.text()
    return task


subagent = create_agent(FakeStreamingModel(script="subagent"), tools=[_task_of(create_agent(FakeStreamingModel(script="plain"), tools=[], name="helper"))])

# ---------------------------------------------------------------- agents below the root that ask
_approved = HumanInTheLoopMiddleware(interrupt_on={"send_email": True, "delete_file": {"allowed_decisions": ["approve", "reject"]}})
_asking_helper = create_agent(FakeStreamingModel(script="hitl"), tools=[send_email, delete_file], middleware=[_approved], name="helper")
asking_tool = create_agent(FakeStreamingModel(script="subagent"), tools=[_task_of(_asking_helper)])
asking_two = create_agent(FakeStreamingModel(script="supervisor"), tools=[_task_of(_asking_helper)])  # two at once, with equal calls

_g = StateGraph(MessagesState)
_g.add_node("writer", hitl)
_g.add_node("sign", lambda s: {"messages": [AIMessage("Signed.")]})
_g.add_edge(START, "writer"); _g.add_edge("writer", "sign")
asking_node = _g.compile()


# ---------------------------------------------------------------- plain interrupts
class IState(TypedDict, total=False):
    messages: list[Any]
    answers: Annotated[list[Any], operator.add]


def _ask(name: str):
    async def node(state: IState):
        a = interrupt({"question": f"{name}?", "node": name})
        return {"answers": [{name: a}]}
    return node


_g = StateGraph(IState)
_g.add_node("prep", lambda s: {"answers": ["prep"]})
_g.add_node("ask", _ask("ask"))
_g.add_node("fin", lambda s: {"answers": ["fin"]})
_g.add_edge(START, "prep"); _g.add_edge("prep", "ask"); _g.add_edge("ask", "fin"); _g.add_edge("fin", END)
interrupt_node = _g.compile()



def _review(state: IState):
    """Raises an interrupt about a text, and then one in Agent Inbox's form."""
    answer = interrupt({"question": "Is this right?", "llm_output": "Dear all,\nhello", "choices": ["yes", "no"]})
    request = {"action_request": {"action": "publish", "args": {"to": "all"}}, "description": WARNING,
               "config": {"allow_accept": True, "allow_edit": True, "allow_respond": False, "allow_ignore": True}}
    return {"answers": [answer, interrupt([request])[0]]}


_g = StateGraph(IState)
_g.add_node("review", _review)
_g.add_edge(START, "review")
reviewed = _g.compile()

FORM = {"type": "object", "required": ["level"], "properties": {
    "level": {"type": "string", "title": "Level", "enum": ["low", "high"]},
    "count": {"type": "integer", "minimum": 1},
    "sure": {"type": "boolean", "default": True}}}


async def _ask_form(state: MessagesState):
    answer = interrupt("How shall it be done?", response_schema=FORM)
    return {"messages": [AIMessage(f"The answer is {json.dumps(answer, sort_keys=True)}")]}


_g = StateGraph(MessagesState)
_g.add_node("ask", _ask_form)
_g.add_edge(START, "ask")
interrupt_form = _g.compile()

_g = StateGraph(IState)
_g.add_node("left", _ask("left"))
_g.add_node("right", _ask("right"))
_g.add_node("fin", lambda s: {"answers": ["fin"]})
_g.add_edge(START, "left"); _g.add_edge(START, "right"); _g.add_edge("left", "fin"); _g.add_edge("right", "fin")
interrupt_parallel = _g.compile()

_g = StateGraph(IState)
_g.add_node("prep", lambda s: {"answers": ["prep"]})
_g.add_node("fin", lambda s: {"answers": ["fin"]})
_g.add_edge(START, "prep"); _g.add_edge("prep", "fin")
breakpoint_graph = _g.compile(interrupt_before=["fin"])

# ---------------------------------------------------------------- text
_model = FakeStreamingModel(script="plain")


async def _call_model(state: MessagesState):
    return {"messages": [await _model.ainvoke(state["messages"])]}


_t = StateGraph(MessagesState)
_t.add_node("model", _call_model)
_t.add_edge(START, "model")
text = _t.compile()


# ---------------------------------------------------------------- the client's own tools and context
# One key has a dash, which a class cannot have.
TState = TypedDict("TState", {"messages": Annotated[list, add_messages], "tools": list, "ag-ui": dict, "copilotkit": dict}, total=False)


def _use(state):
    last = state["messages"][-1]
    if last.type == "tool":
        return {"messages": [AIMessage(f"The client says: {last.content}")]}
    tools = state.get("tools")
    if not tools:
        return {"messages": [AIMessage("There is no tool.")]}
    about = state["copilotkit"]["context"][0]["value"]
    call = {"name": tools[0]["function"]["name"], "args": {"about": about}, "id": f"call_{last.id}"}
    return {"messages": [AIMessage("", tool_calls=[call])]}


_ct = StateGraph(TState)
_ct.add_node("use", _use)
_ct.add_edge(START, "use")
client_tools = _ct.compile()

# ---------------------------------------------------------------- a conversation under another key than `messages`, which is a list of notes
# An agent below a graph whose state has no key for the page. It looks for the page's tools where CopilotKit's middleware
# (copilotkit 0.1.96) looks for them: in its state, then in the context of the run, then in `configurable`.
class Page(MessagesState, total=False):
    copilotkit: dict


def _look(state: Page, config: RunnableConfig):
    context = get_runtime().context
    places = (state, context if isinstance(context, dict) else {}, config.get("configurable", {}))
    page = next((place["copilotkit"] for place in places if place.get("copilotkit")), {"actions": [], "context": []})
    names = [tool["function"]["name"] for tool in page["actions"]]
    return {"messages": [AIMessage(json.dumps({"tools": names, "context": page["context"]}))]}


_in = StateGraph(Page)
_in.add_node("look", _look)
_in.add_edge(START, "look")
_inner = _in.compile()


async def _outer(state: MessagesState):
    return {"messages": [(await _inner.ainvoke({"messages": state["messages"]}))["messages"][-1]]}


_ne = StateGraph(MessagesState)
_ne.add_node("outer", _outer)
_ne.add_edge(START, "outer")
nested = _ne.compile()


# The same with a context of its own, which takes no other member.
@dataclasses.dataclass
class Fixed:
    pass


_fx = StateGraph(MessagesState, context_schema=Fixed)
_fx.add_node("outer", _outer)
_fx.add_edge(START, "outer")
nested_fixed = _fx.compile()


class HState(TypedDict, total=False):
    chat_history: Annotated[list[AnyMessage], add_messages]
    messages: list[str]


_hm = FakeStreamingModel(script="agent")
_ht = [get_weather, search]


async def _talk(state: HState):
    notes = state.get("messages", [])
    return {"chat_history": [await _hm.ainvoke(state["chat_history"])], "messages": [*notes, f"note {len(notes)}"]}


def _sign(state: HState):
    return {"chat_history": [AIMessage("Signed.")]}  # no token tells it


_h = StateGraph(HState)
_h.add_node("talk", _talk)
_h.add_node("tools", ToolNode(_ht, messages_key="chat_history"))
_h.add_node("sign", _sign)
_h.add_edge(START, "talk"); _h.add_edge("tools", "talk"); _h.add_edge("sign", END)
_h.add_conditional_edges("talk", lambda s: "tools" if s["chat_history"][-1].tool_calls else "sign", ["tools", "sign"])
elsewhere = _h.compile()

# ---------------------------------------------------------------- counter
class CState(MessagesState, total=False):
    count: int
    big: int          # beyond 2**53: exact only where numbers are never read as doubles
    ratio: float
    whole: float      # 1.0 on the wire
    profile: dict[str, Any]
    log: Annotated[list[Any], operator.add]


def _begin(state: CState):
    return {"count": state.get("count", 0) + 1, "big": state.get("big", 12345678901234567890), "ratio": 1.10, "whole": 1.0,
            "profile": {"name": "Ada", "address": {"city": "Paris", "zip/code": "75001"}, "tags": ["a", "b"], "note": None, "draft": True},
            "log": ["begin"]}


async def _speak(state: CState):
    return {"messages": [await _model.ainvoke(state["messages"])], "count": state["count"] + 1, "log": ["speak"]}


def _adjust(state: CState):
    # A changed leaf, a removed key, keys that a JSON pointer escapes, a shorter list, null to value.
    return {"profile": {"name": "Ada", "address": {"city": "Lyon", "zip/code": "69001", "~": {}}, "tags": ["b"], "note": "é\u2028☃"},
            "ratio": state["ratio"] + 2.2, "log": [{"event": "adjust", "at": state["count"]}]}


def _finish(state: CState):
    return {"count": state["count"] + 1, "big": state["big"] + 1, "log": ["finish", 0.1]}


_ct = StateGraph(CState)
_ct.add_sequence([("begin", _begin), ("speak", _speak), ("adjust", _adjust), ("finish", _finish)])
_ct.add_edge(START, "begin")
counter = _ct.compile()

# ---------------------------------------------------------------- 400 KB of state
ROWS = 2800
NOTE = ("An entry of some length, as a document or a table holds them by the thousand; "
        "nothing in it changes but its number. ")


class BState(MessagesState, total=False):
    rows: list[dict[str, Any]]
    index: dict[str, Any]


def _touched(state: BState, n: int):
    rows = list(state["rows"])
    rows[n * 100] = {**rows[n * 100], "seen": rows[n * 100].get("seen", 0) + 1}
    return {"rows": rows, "index": {"last": n}}


_b = StateGraph(BState)
_b.add_sequence([
    ("fill", lambda s: {"rows": s.get("rows") or [{"id": f"row-{n}", "note": f"{NOTE}{n}"} for n in range(ROWS)]}),
    ("first", lambda s: _touched(s, 1)),
    ("model", _call_model),
    ("second", lambda s: _touched(s, 2)),
    ("third", lambda s: _touched({**s, "rows": [*s["rows"], {"id": f"row-{len(s['rows'])}", "note": ""}]}, 3)),
])
_b.add_edge(START, "fill")
big = _b.compile()

# ---------------------------------------------------------------- two models at once
def _speak_at(pace: float):
    """
    Streams its own half of the words, `pace` times as slowly; a step commits in the order of its nodes, not of their ends.
    The node's name is part of its gate's URL.
    """
    async def node(state: MessagesState, config: RunnableConfig):
        p, _ = params(state["messages"])
        name = config["metadata"]["langgraph_node"]
        own = [f"{name}: ", *(p["words"] or ["tok0 ", "tok1 "])]
        gate = p["gate"] and {**p["gate"], "url": f"{p['gate']['url']}/{name}"}
        script = json.dumps({"words": own, "delay": p["delay"] * pace, "gate": gate, "flavour": p["flavour"]})
        return {"messages": [await _model.ainvoke([HumanMessage(script)])]}
    return node


_pl = StateGraph(MessagesState)
_pl.add_node("left", _speak_at(2))
_pl.add_node("right", _speak_at(1))
_pl.add_edge(START, "left"); _pl.add_edge(START, "right")
parallel = _pl.compile()

# ---------------------------------------------------------------- subgraphs

_gc = StateGraph(MessagesState)
_gc.add_node("gc_model", _call_model)
_gc.add_edge(START, "gc_model")
grandchild = _gc.compile()
_c = StateGraph(MessagesState)
_c.add_node("child_pre", lambda s: {"messages": [AIMessage("child pre", id="child-pre")]})
_c.add_node("grandchild", grandchild)
_c.add_edge(START, "child_pre"); _c.add_edge("child_pre", "grandchild")
child = _c.compile()
_p = StateGraph(MessagesState)
_p.add_node("parent_pre", lambda s: {"messages": [HumanMessage(s["messages"][-1].content)]})
_p.add_node("child", child)
_p.add_edge(START, "parent_pre"); _p.add_edge("parent_pre", "child")
subgraphs = _p.compile()

class AState(MessagesState, total=False):
    answers: Annotated[list[Any], operator.add]


_ac = StateGraph(AState)
_ac.add_sequence([("model", _call_model), ("ask", _ask("ask"))])
_ac.add_edge(START, "model")
_asking_child = _ac.compile()


async def _call_child(state: AState):
    return {"messages": (await _asking_child.ainvoke({"messages": state["messages"]}))["messages"], "answers": ["child"]}


_ap = StateGraph(AState)
_ap.add_sequence([("prep", lambda s: {"answers": ["prep"]}), ("child", _call_child)])
_ap.add_edge(START, "prep")
interrupt_child = _ap.compile()

# ---------------------------------------------------------------- failing
_fm = FakeStreamingModel(script="failing")


async def _fail_model(state: MessagesState):
    return {"messages": [await _fm.ainvoke(state["messages"])]}


_f = StateGraph(MessagesState)
_f.add_node("ok", lambda s: {"messages": [AIMessage("before", id="before-fail")]})
_f.add_node("model", _fail_model)
_f.add_edge(START, "ok"); _f.add_edge("ok", "model")
failing = _f.compile()


# ---------------------------------------------------------------- slow / flood
class SState(TypedDict, total=False):
    steps: int        # loop steps
    delay: float      # seconds per step
    size: int         # bytes of blob in state
    i: int
    blob: str


async def _tick(state: SState):
    i = state.get("i", 0)
    await asyncio.sleep(state.get("delay", 0.1))
    get_stream_writer()({"kind": "tick", "i": i})
    await adispatch_custom_event("tick_event", {"i": i})
    return {"i": i + 1, "blob": "x" * state.get("size", 100)}


_s = StateGraph(SState)
_s.add_node("tick", _tick)
_s.add_edge(START, "tick")
_s.add_conditional_edges("tick", lambda s: "tick" if s.get("i", 0) < s.get("steps", 5) else END, ["tick", END])
slow = _s.compile().with_config(recursion_limit=100000)


class FState(TypedDict, total=False):
    n: int
    size: int
    every: int     # yield to the loop every k events
    pace: float    # sleep between batches
    done: bool


async def _flood(state: FState):
    w = get_stream_writer()
    pad = "y" * state.get("size", 64)
    every = state.get("every", 10)
    for i in range(state.get("n", 1000)):
        w({"i": i, "pad": pad})
        if i % every == 0:
            await asyncio.sleep(state.get("pace", 0))
    return {"done": True}


_fl = StateGraph(FState)
_fl.add_node("flood", _flood)
_fl.add_edge(START, "flood")
flood = _fl.compile()


# ---------------------------------------------------------------- wire: a long result, a large state, a long answer
class WState(MessagesState, total=False):
    rows: list[dict[str, Any]]   # about 100 KB
    changed: int


@tool
async def read_log(lines: int) -> str:
    """Read: 68 characters a line."""
    return "".join(f"{i:06} worker took the next of its jobs and has written the result.\n" for i in range(lines))


_wm = FakeStreamingModel(script="wire")
CHANGES = 10


async def _say_wire(state: WState):
    return {"messages": [await _wm.ainvoke(state["messages"])]}


def _fill_rows(state: WState):
    note = "A row as a table of a page shows it, of which an agent changes one member or two while it works. "
    return {"rows": [{"id": i, "status": "open", "count": 0, "note": note + note} for i in range(400)], "changed": 0}


def _change_row(state: WState):
    changed = state["changed"]
    rows = [{**row, "status": "done", "count": changed} if row["id"] == 37 * changed else row for row in state["rows"]]
    return {"rows": rows, "changed": changed + 1}


_w = StateGraph(WState)
_w.add_node("fill", _fill_rows)
_w.add_node("ask", _say_wire)
_w.add_node("tools", ToolNode([read_log]))
_w.add_node("change", _change_row)
_w.add_node("answer", _say_wire)
_w.add_edge(START, "fill"); _w.add_edge("fill", "ask"); _w.add_edge("ask", "tools"); _w.add_edge("tools", "change")
_w.add_conditional_edges("change", lambda s: "change" if s["changed"] < CHANGES else "answer", ["change", "answer"])
_w.add_edge("answer", END)
wire = _w.compile()


# ---------------------------------------------------------------- configurable fields
class Configured(TypedDict, total=False):
    model: Annotated[Literal["fast", "deep"], Field(default="fast", title="Model", description="Which model answers.")]
    verbose: Annotated[bool, Field(default=False, description="Whether it says more.")]
    limit: int


def _tell_choice(state: MessagesState, runtime: Runtime[Configured]):
    chosen = {"model": "fast", "verbose": False, **(runtime.context or {})}
    return {"messages": [AIMessage(f"{chosen['model']}{', verbosely' if chosen['verbose'] else ''}")]}


_cf = StateGraph(MessagesState, context_schema=Configured)
_cf.add_node("tell", _tell_choice)
_cf.add_edge(START, "tell")
configured = _cf.compile()


@dataclasses.dataclass
class Seeing:
    """What an editor is offered without configuration. No model is called."""

    model: str = "google_genai:gemini-2.5-pro"
    mode: Literal["act", "plan"] = "act"


def _tell_content(state: MessagesState, runtime: Runtime[Seeing]):
    content = state["messages"][-1].content
    kinds = ["text"] if isinstance(content, str) else [block["type"] for block in content]
    return {"messages": [AIMessage(f"{(runtime.context or Seeing()).mode}: {', '.join(kinds)}")]}


_se = StateGraph(MessagesState, context_schema=Seeing)
_se.add_node("tell", _tell_content)
_se.add_edge(START, "tell")
seeing = _se.compile()
