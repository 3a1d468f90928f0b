"""The client of ACP's Python SDK over the network: its WebSocket and its streamable HTTP, at a gateway before a real LangGraph server.

The SDK parses each message by its own schema, and raises an error for one that does not fit.
"""

import asyncio
import os
import sys

import acp
from acp.http import create_http_stream
from acp.schema import AllowedOutcome, RequestPermissionResponse
from acp.ws import create_websocket_stream

GATEWAY = os.environ["THREADWAY_URL"]
LIMIT_SECONDS = 60.0
MAIL = "sent to a@example.com"


class Editor(acp.Client):
    """Keeps all updates, and allows each tool call once."""

    def __init__(self) -> None:
        self.updates = []
        self.asked = 0

    async def session_update(self, session_id, update, **_):
        self.updates.append(update)

    async def request_permission(self, options, session_id, tool_call, **_):
        self.asked += 1
        allowed = next(option for option in options if option.kind == "allow_once")
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=allowed.option_id))

    def text(self) -> str:
        chunks = (update for update in self.updates if update.session_update == "agent_message_chunk")
        return "".join(chunk.content.text for chunk in chunks if chunk.content.type == "text")

    async def until(self, what: str, is_true) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            while not is_true():
                await asyncio.sleep(0.02)
        print(f"ok   {what}")


async def opened(transport: str):
    if transport == "WebSocket":
        stream = await create_websocket_stream(GATEWAY.replace("http", "ws", 1) + "/acp")
    else:
        stream = create_http_stream(f"{GATEWAY}/acp")
    editor = Editor()
    connection = acp.connect_to_agent(editor, stream)
    answer = await connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
    assert answer.agent_capabilities.load_session and not answer.auth_methods, answer
    return editor, connection


async def session_of(connection, agent: str) -> str:
    session = await connection.new_session(cwd="/work", mcp_servers=[])
    await connection.set_config_option(config_id="assistant", session_id=session.session_id, value=agent)
    return session.session_id


async def scenarios(transport: str) -> None:
    editor, connection = await opened(transport)
    session = await session_of(connection, "text")
    answer = await connection.prompt(session_id=session, prompt=[acp.text_block("hello")])
    assert answer.stop_reason == "end_turn", answer
    # Over HTTP updates and answers have streams of their own, so their order is not fixed.
    await editor.until(f"{transport}: a turn", lambda: "tok7 " in editor.text())

    other = await session_of(connection, "hitl")
    answer = await connection.prompt(session_id=other, prompt=[acp.text_block("mail")])
    assert answer.stop_reason == "end_turn" and editor.asked > 0, (answer, editor.asked)
    await editor.until(f"{transport}: an approval", lambda: any(MAIL in str(update) for update in editor.updates))

    prompt = asyncio.ensure_future(connection.prompt(session_id=session, prompt=[acp.text_block('{"tokens": 400, "delay": 0.05}')]))
    length = len(editor.text())
    await editor.until(f"{transport}: the first words", lambda: len(editor.text()) > length)
    await connection.cancel(session)
    async with asyncio.timeout(LIMIT_SECONDS):
        assert (await prompt).stop_reason == "cancelled"
    print(f"ok   {transport}: a prompt that is stopped")
    await connection.close()

    if transport == "WebSocket":
        # Over HTTP this SDK reads a session's stream only after a message with the session's id, which a load has not.
        again, connection = await opened(transport)
        await connection.load_session(cwd="/work", session_id=session, mcp_servers=[])
        assert "tok7 " in again.text(), again.updates
        print(f"ok   {transport}: a session that is loaded")
        await connection.close()


async def main() -> None:
    for transport in ("WebSocket", "HTTP"):
        await scenarios(transport)


asyncio.run(main())
sys.exit(0)
