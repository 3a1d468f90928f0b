#!/usr/bin/env python3
"""Checks a LangGraph API server with LangGraph's own Python client: `threadway demo`, or a real server.

usage: DEMO_URL=http://127.0.0.1:2024 check.py

Each check is printed when it passes; the first failure ends the script with status 1. The checks are for behaviour that
both servers must share. A real server needs the graphs of `../upstream/python`, whose names and texts differ: the
graph that needs approval is `hitl` there. Features of the demo only, such as its texts and the thread on which it starts
runs by itself, are checked if `/info` says `scripted`.
"""

import json
import os
import sys
import threading
import time
import uuid

import httpx
from langgraph_sdk import get_sync_client
from langgraph_sdk.errors import ConflictError, NotFoundError

WATCHED_THREAD = "7e11ad3a-0000-4000-8000-00000000feed"
ALL_MODES = ["values", "messages-tuple", "updates", "custom"]
WORDS = "Where is it warm?"

url = os.environ["DEMO_URL"]
client = get_sync_client(url=url)
info = httpx.get(f"{url}/info").json()
is_demo = info.get("scripted", False)
APPROVAL = "approval" if is_demo else "hitl"
# A real agent of the tests must be told to be slow.
SLOW_WORDS = WORDS if is_demo else '{"delay": 0.05, "tokens": 60}'


# ---------------------------------------------------------------- tools
def human(text: str, **more) -> dict:
    return {"messages": [{"role": "user", "content": text, **more}]}


def new_thread(**more) -> str:
    return client.threads.create(**more)["thread_id"]


def stream(thread: str, graph: str, **more) -> list:
    return list(client.runs.stream(thread, graph, stream_mode=ALL_MODES, stream_resumable=True, **more))


def events(parts: list) -> list[str]:
    return [part.event for part in parts]


def messages(state: dict) -> list[dict]:
    return state["values"]["messages"]


def types(state: dict) -> list[str]:
    return [message["type"] for message in messages(state)]


def text(message: dict) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


def tokens(parts: list) -> dict[str, str]:
    """The streamed text, by message."""
    said: dict[str, str] = {}
    for part in parts:
        if part.event == "messages" and part.data[0]["type"] == "AIMessageChunk":
            said[part.data[0]["id"]] = said.get(part.data[0]["id"], "") + text(part.data[0])
    return said


def same(parts: list) -> list[tuple]:
    """Parts without their ids, to be compared."""
    return [(part.event, part.data) for part in parts]


def last_values(parts: list) -> dict:
    return [part.data for part in parts if part.event == "values"][-1]


def wait_for(ready, seconds: float = 60.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if answer := ready():
            return answer
        time.sleep(0.05)
    raise AssertionError(f"{ready} did not come true within {seconds} s")


def in_background(function) -> tuple[threading.Thread, list]:
    """Runs a function that returns a list, in a thread."""
    out: list = []
    thread = threading.Thread(target=lambda: out.extend(function()), daemon=True)
    thread.start()
    return thread, out


# ---------------------------------------------------------------- checks
def check_assistants() -> None:
    found = client.assistants.search(limit=100)
    assert {"agent", APPROVAL, "failing"} <= {assistant["graph_id"] for assistant in found}
    [agent] = client.assistants.search(graph_id="agent")
    assert client.assistants.get(agent["assistant_id"]) == agent
    assert agent["assistant_id"] == "fe096781-5601-53d2-b2f6-0d3403f7e9ca"
    assert client.assistants.count(graph_id="agent") == 1
    schemas = client.assistants.get_schemas(agent["assistant_id"])
    assert schemas["graph_id"] == "agent" and "messages" in schemas["state_schema"]["properties"]
    assert len(client.assistants.search(limit=1, offset=1)) == 1
    try:
        client.assistants.get(str(uuid.uuid4()))
        raise AssertionError("an assistant that is not there was found")
    except NotFoundError:
        pass


def check_threads() -> None:
    thread_id = str(uuid.uuid4())
    thread = client.threads.create(thread_id=thread_id, metadata={"a": 1})
    assert thread["thread_id"] == thread_id and thread["status"] == "idle" and thread["values"] is None
    assert client.threads.create(thread_id=thread_id, if_exists="do_nothing") == thread
    try:
        client.threads.create(thread_id=thread_id)
        raise AssertionError("a thread was made twice")
    except ConflictError:
        pass
    client.threads.update(thread_id, metadata={"b": thread_id, "c": {"x": 1}})
    assert client.threads.update(thread_id, metadata={"c": {"y": None}}, return_minimal=True) is None
    changed = client.threads.get(thread_id)
    assert changed["metadata"] == {"a": 1, "b": thread_id, "c": {"y": None}}
    assert changed["updated_at"] > changed["state_updated_at"]
    [found] = client.threads.search(metadata={"b": thread_id})
    assert found["thread_id"] == thread_id
    [found] = client.threads.search(metadata={"b": thread_id}, select=["thread_id", "metadata", "interrupts"],
                                    sort_by="updated_at", sort_order="desc")
    assert found == {"thread_id": thread_id, "metadata": changed["metadata"]}, found
    later = client.threads.create(metadata={"b": thread_id})["thread_id"]
    for asked, expected in (({}, [later, thread_id]), ({"sort_order": "asc"}, [thread_id, later])):
        found = client.threads.search(metadata={"b": thread_id}, sort_by="updated_at", **asked)
        assert [thread["thread_id"] for thread in found] == expected
    client.threads.update(thread_id, metadata={})
    assert client.threads.search(metadata={"b": thread_id})[0]["thread_id"] == thread_id, "not the last changed first"
    client.threads.delete(later)
    assert client.threads.get_state(thread_id)["values"] == {}
    assert client.threads.get_history(thread_id) == []
    client.threads.delete(thread_id)
    for gone in (client.threads.get, client.threads.get_state, client.threads.get_history, client.threads.delete,
                 client.runs.list):
        try:
            gone(thread_id)
            raise AssertionError(f"{gone.__name__} found a thread that was deleted")
        except NotFoundError:
            pass


def check_agent() -> None:
    thread = new_thread()
    parts = stream(thread, "agent", input=human(WORDS), metadata={"mine": 1})
    assert events(parts)[:2] == ["metadata", "values"]
    assert {"messages", "updates", "custom"} <= set(events(parts))
    chunks = [part.data[0] for part in parts if part.event == "messages"]
    blocks = [block["type"] for chunk in chunks if isinstance(chunk["content"], list) for block in chunk["content"]]
    assert "reasoning" in blocks and "text" in blocks
    state = client.threads.get_state(thread)
    assert types(state) == ["human", "ai", "tool", "tool", "ai"]
    assert state["values"] == last_values(parts)
    calls = messages(state)[1]["tool_calls"]
    assert [call["name"] for call in calls] == ["get_weather", "search"]
    fragments: dict[int, str] = {}
    for chunk in chunks:
        for fragment in chunk.get("tool_call_chunks", []):
            fragments[fragment["index"]] = fragments.get(fragment["index"], "") + (fragment["args"] or "")
    assert [json.loads(args) for _, args in sorted(fragments.items())] == [call["args"] for call in calls]
    assert {m["tool_call_id"] for m in messages(state)[2:4]} == {call["id"] for call in calls}
    said = tokens(parts)
    for message in (messages(state)[1], messages(state)[4]):
        assert said[message["id"]] == text(message)
    assert state["next"] == [] and state["tasks"] == [] and state["interrupts"] == []
    run_id = parts[0].data["run_id"]
    assert state["metadata"]["run_id"] == run_id and state["metadata"]["source"] == "loop"
    record = client.runs.get(thread, run_id)
    assert record["status"] == "success" and record["metadata"]["mine"] == 1
    assert record["kwargs"]["resumable"] is True and record["multitask_strategy"] == "enqueue"
    assert client.runs.list(thread) == [record]
    assert client.threads.get(thread)["status"] == "idle"
    if is_demo:
        assert WORDS in text(messages(state)[4])
        assert state["values"]["todos"][1]["status"] == "completed"
        assert state["values"]["weather"]["Lisbon"]["sky"] == "sunny"


def check_wait_and_join() -> None:
    thread = new_thread()
    values = client.runs.wait(thread, "agent", input=human(WORDS))
    assert [message["type"] for message in values["messages"]] == ["human", "ai", "tool", "tool", "ai"]
    run = client.runs.create(thread, "agent", input=human("again"))
    assert run["status"] in ("pending", "running")
    joined = client.runs.join(thread, run["run_id"])
    assert joined == client.threads.get_state(thread)["values"] and len(joined["messages"]) == 10
    assert [run["status"] for run in client.runs.list(thread)] == ["success", "success"]
    assert len(client.runs.list(thread, limit=1)) == 1
    assert client.runs.list(thread, status="pending") == []


def check_replay() -> None:
    thread = new_thread()
    parts = stream(thread, "agent", input=human(WORDS))
    run_id = parts[0].data["run_id"]
    assert all(part.id for part in parts)

    def replay(**more) -> list:
        return list(client.runs.join_stream(thread, run_id, **more))

    assert same(replay(last_event_id="-1")) == same(parts)
    middle = parts[len(parts) // 2].id
    behind = [part for part in parts if part.id > middle]
    assert 0 < len(behind) < len(parts)
    assert same(replay(last_event_id=middle)) == same(behind)
    assert replay(last_event_id=parts[-1].id) == []
    assert replay() == []
    values = replay(last_event_id="-1", stream_mode="values")
    assert same(values) == same([part for part in parts if part.event == "values"])
    plain = list(client.runs.stream(thread, "agent", input=human("x"), stream_mode="values"))
    assert all(part.id is None for part in plain)
    assert list(client.runs.join_stream(thread, plain[0].data["run_id"], last_event_id="-1")) == []


def check_live_join() -> None:
    thread = new_thread()
    run = client.runs.create(thread, "agent", input=human(SLOW_WORDS), stream_mode=ALL_MODES, stream_resumable=True)
    run_id = run["run_id"]
    first, replayed = in_background(lambda: client.runs.join_stream(thread, run_id, last_event_id="-1"))
    wait_for(lambda: any(part.event == "messages" for part in list(replayed)))
    live = list(client.runs.join_stream(thread, run_id))
    first.join(30)
    whole = list(client.runs.join_stream(thread, run_id, last_event_id="-1"))
    assert whole[0].event == "metadata" and live[0].event != "metadata"
    assert 0 < len(live) < len(whole)
    assert same(live) == same(whole)[-len(live):]
    assert last_values(whole) == client.threads.get_state(thread)["values"]
    # The real server repeats parts where a replay meets the live stream, so only the set of parts is compared.
    assert {str(part) for part in same(replayed)} == {str(part) for part in same(whole)}
    if is_demo:
        assert same(replayed) == same(whole)


def check_cancel() -> None:
    thread = new_thread()
    run = client.runs.create(thread, "agent", input=human(SLOW_WORDS))
    wait_for(lambda: client.threads.get_state(thread)["next"] and client.runs.get(
        thread, run["run_id"])["status"] == "running")
    assert client.threads.get(thread)["status"] == "busy"
    client.runs.cancel(thread, run["run_id"], wait=True)
    assert client.runs.get(thread, run["run_id"])["status"] == "interrupted"
    after = wait_for(lambda: (lambda t: t["status"] != "busy" and t)(client.threads.get(thread)))
    assert after["status"] == "interrupted" and after["interrupts"] == {}
    assert after["error"]["error"] == "UserInterrupt"
    try:
        client.runs.cancel(thread, run["run_id"])
        raise AssertionError("a run was cancelled twice")
    except NotFoundError:
        pass
    # A thread can be continued after that.
    client.runs.wait(thread, "agent", input=human("go on"))
    assert client.threads.get(thread)["status"] == "idle"

    thread = new_thread()
    run = client.runs.create(thread, "agent", input=human(SLOW_WORDS))
    wait_for(lambda: client.threads.get_state(thread)["next"])
    client.runs.cancel(thread, run["run_id"], wait=True, action="rollback")
    try:
        client.runs.get(thread, run["run_id"])
        raise AssertionError("a run that was rolled back is still there")
    except NotFoundError:
        pass
    assert client.threads.get_state(thread)["values"] == {}


def check_multitask() -> None:
    thread = new_thread()
    first = client.runs.create(thread, "agent", input=human(SLOW_WORDS))
    try:
        client.runs.create(thread, "agent", input=human("no"), multitask_strategy="reject")
        raise AssertionError("a busy thread took a run")
    except ConflictError:
        pass
    second = client.runs.create(thread, "agent", input=human("then"))
    assert client.runs.get(thread, second["run_id"])["status"] == "pending"
    client.runs.join(thread, second["run_id"])
    assert client.runs.get(thread, first["run_id"])["status"] == "success"
    said = [text(m) for m in messages(client.threads.get_state(thread)) if m["type"] == "human"]
    assert said == [SLOW_WORDS, "then"]


def check_approval() -> None:
    decisions = {"approve": {"type": "approve"}, "reject": {"type": "reject", "message": "not now"}}
    for names, statuses in ((["approve", "approve"], ["success", "success"]),
                            (["reject", "approve"], ["error", "success"])):
        thread = new_thread()
        parts = stream(thread, APPROVAL, input=human(WORDS))
        assert events(parts)[-2:] == ["updates", "values"]
        [asked] = parts[-1].data["__interrupt__"]
        assert parts[-2].data["__interrupt__"] == [asked]
        assert len(asked["id"]) == 32 and len(asked["value"]["action_requests"]) == 2
        state = client.threads.get_state(thread)
        assert state["next"] == ["HumanInTheLoopMiddleware.after_model"]
        assert state["tasks"][0]["interrupts"] == [{"id": asked["id"], "value": asked["value"]}]
        thread_now = client.threads.get(thread)
        assert thread_now["status"] == "interrupted"
        assert thread_now["interrupts"][state["tasks"][0]["id"]][0]["id"] == asked["id"]
        assert client.runs.list(thread)[0]["status"] == "success"

        answer = {"decisions": [decisions[name] for name in names]}
        parts = stream(thread, APPROVAL, command={"resume": {asked["id"]: answer}})
        state = client.threads.get_state(thread)
        tools = {m["name"]: m["status"] for m in messages(state) if m["type"] == "tool"}
        assert [tools["send_email"], tools["delete_file"]] == statuses
        assert state["next"] == [] and types(state)[-1] == "ai"
        assert last_values(parts)["messages"] == messages(state)
        assert client.threads.get(thread)["status"] == "idle"

    thread = new_thread()
    client.runs.wait(thread, APPROVAL, input=human(WORDS))
    bad = client.runs.wait(thread, APPROVAL, command={"resume": {"decisions": []}}, raise_error=False)
    assert bad["__error__"]["error"] == "ValueError"
    assert client.threads.get(thread)["status"] == "error"


def check_failing() -> None:
    thread = new_thread()
    parts = stream(thread, "failing", input=human(WORDS))
    assert parts[-1].event == "error" and parts[-1].data["error"] == "ValueError"
    run_id = parts[0].data["run_id"]
    assert client.runs.get(thread, run_id)["status"] == "error"
    assert client.threads.get(thread)["status"] == "error"
    assert client.threads.get(thread)["error"] == parts[-1].data
    state = client.threads.get_state(thread)
    assert state["next"] == ["model"] and state["tasks"][0]["error"].startswith("ValueError(")
    assert types(state) == ["human", "ai"]
    assert client.runs.join(thread, run_id)["__error__"] == parts[-1].data
    replayed = list(client.runs.join_stream(thread, run_id, last_event_id="-1"))
    assert same(replayed) == same(parts[:-1])


def check_history_and_fork() -> None:
    thread = new_thread()
    client.runs.wait(thread, "agent", input=human("first"))
    first = client.threads.get_state(thread)
    client.runs.wait(thread, "agent", input=human("second"))
    history = client.threads.get_history(thread, limit=100)
    for newer, older in zip(history, history[1:]):
        assert newer["parent_checkpoint"] == older["checkpoint"]
    assert history[-1]["parent_checkpoint"] is None and history[-1]["metadata"]["source"] == "input"
    assert history[-1]["next"] == ["__start__"]
    assert any(state["next"] == ["tools", "tools"] for state in history)
    [at] = [at for at, state in enumerate(history) if state["checkpoint_id"] == first["checkpoint_id"]]
    assert client.threads.get_history(thread) == history[:10]

    again = client.threads.get_state(thread, checkpoint_id=first["checkpoint_id"])
    assert again == {**first, "checkpoint": {"checkpoint_id": first["checkpoint_id"], "thread_id": thread}}
    assert client.threads.get_state(thread, checkpoint=first["checkpoint"]) == first

    client.runs.wait(thread, "agent", input=human("instead"), checkpoint_id=first["checkpoint_id"])
    state = client.threads.get_state(thread)
    assert [text(m) for m in messages(state) if m["type"] == "human"] == ["first", "instead"]
    longer = client.threads.get_history(thread, limit=100)
    assert len(longer) == len(history) + at
    assert longer[at - 1]["parent_checkpoint"] == first["checkpoint"]
    assert longer[at]["checkpoint_id"] == history[0]["checkpoint_id"]

    made = client.threads.update_state(thread, human("by hand"))
    state = client.threads.get_state(thread)
    assert state["checkpoint"]["checkpoint_id"] == made["checkpoint"]["checkpoint_id"]
    assert text(messages(state)[-1]) == "by hand" and state["metadata"]["source"] == "update"


def check_leaving() -> None:
    for policy, status in (("cancel", "interrupted"), ("continue", "success")):
        thread = new_thread()
        run_ids: list[str] = []
        with httpx.stream("POST", f"{url}/threads/{thread}/runs/stream", timeout=30, json={
                "assistant_id": "agent", "input": human(SLOW_WORDS), "stream_mode": "messages-tuple",
                "on_disconnect": policy}) as response:
            run_ids.append(response.headers["content-location"].rsplit("/", 1)[1])
            for line in response.iter_lines():
                if line == "event: messages":
                    break
        wait_for(lambda: client.runs.get(thread, run_ids[0])["status"] == status)


def check_watched() -> None:
    """The demo starts a run by itself."""
    def newest() -> dict:
        return client.runs.list(WATCHED_THREAD, limit=1)[0]

    seen = newest()["run_id"]
    run = wait_for(lambda: (lambda run: run["run_id"] != seen and run)(newest()))
    assert run["kwargs"]["resumable"] is True and run["metadata"]["graph_id"] == "watched"
    time.sleep(1.0)
    parts = list(client.runs.join_stream(WATCHED_THREAD, run["run_id"], last_event_id="-1"))
    state = client.threads.get_state(WATCHED_THREAD)
    assert last_values(parts) == state["values"] and state["metadata"]["run_id"] == run["run_id"]


CHECKS = [check_assistants, check_threads, check_agent, check_wait_and_join, check_replay, check_live_join,
          check_cancel, check_multitask, check_approval, check_failing, check_history_and_fork, check_leaving]


def main() -> int:
    for check in CHECKS + [check_watched] * is_demo:
        started = time.monotonic()
        check()
        print(f"ok {check.__name__.removeprefix('check_')} ({time.monotonic() - started:.1f} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
