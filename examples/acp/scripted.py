"""A scripted model that streams an answer to the last message, without network and key."""
import asyncio
import itertools
import json

from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.chat_models import agenerate_from_stream
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult

SECONDS_A_WORD = 0.03
SCRIPT = {
    "list": ("list_files", {"path": "."}),
    "read": ("read_file", {"path": "notes.txt"}),
    "write": ("write_file", {"path": "notes.txt", "content": "Buy milk.\n"}),
    "delete": ("delete_file", {"path": "notes.txt"}),
    "roll": ("dice_roll", {"sides": 6}),
}


class ScriptedModel(BaseChatModel):
    tools: list[str] = []

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools, **options):
        return self.model_copy(update={"tools": [tool.name for tool in tools]})

    def _generate(self, messages, stop=None, run_manager=None, **options) -> ChatResult:
        raise NotImplementedError("the script is only read asynchronously")

    # LangGraph calls this in a run that nobody streams, such as a cron job's.
    async def _agenerate(self, messages, stop=None, run_manager=None, **options) -> ChatResult:
        return await agenerate_from_stream(self._astream(messages))

    async def _astream(self, messages, stop=None, run_manager=None, **options):
        text, call = self.answer(messages)
        for word in text.split():
            await asyncio.sleep(SECONDS_A_WORD)
            yield ChatGenerationChunk(message=AIMessageChunk(content=f"{word} "))
        if call:
            name, arguments = call
            chunk = {"name": name, "args": json.dumps(arguments), "id": f"call_{len(messages)}", "index": 0}
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[chunk]))

    def answer(self, messages) -> tuple[str, tuple[str, dict] | None]:
        """The model's text, and its tool call."""
        if messages[-1].type == "tool":
            results = itertools.takewhile(lambda message: message.type == "tool", reversed(messages))
            return f"Done: {'; '.join(message.text.strip() for message in results)}", None
        said = messages[-1].text.lower()
        if "who are you" in said:
            return f"My prompt: {messages[0].text}", None
        for word, (name, arguments) in SCRIPT.items():
            if word in said and name in self.tools:
                return "Let me do that.", (name, arguments)
        return f"My tools: {', '.join(self.tools) or 'none'}. Say: list, read, write, delete, roll, or who are you.", None
