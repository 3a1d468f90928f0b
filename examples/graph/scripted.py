"""A scripted model that streams an answer to the last message, without network and key."""
import asyncio
import itertools
import json

from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.chat_models import agenerate_from_stream
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult

SECONDS_A_WORD = 0.08
HELP = "I follow a script. Say: weather, paint it teal, where am I, clean up, ask me, count, or fail."


class ScriptedModel(BaseChatModel):
    tools: list[str] = []

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools, **options):
        # The graph's tools are objects; the client's are JSON in OpenAI's form.
        return self.model_copy(update={"tools": [tool["name"] if isinstance(tool, dict) else tool.name for tool in tools]})

    def _generate(self, messages, stop=None, run_manager=None, **options) -> ChatResult:
        raise NotImplementedError("the script is only read asynchronously")

    # LangGraph calls this in a run that nobody streams, such as a cron job's.
    async def _agenerate(self, messages, stop=None, run_manager=None, **options) -> ChatResult:
        return await agenerate_from_stream(self._astream(messages))

    async def _astream(self, messages, stop=None, run_manager=None, **options):
        text, calls = self.answer(messages)
        for word in text.split():
            await asyncio.sleep(SECONDS_A_WORD)
            if word == "FAIL":
                raise RuntimeError("the script says that this run fails")
            yield ChatGenerationChunk(message=AIMessageChunk(content=f"{word} "))
        for index, (name, arguments) in enumerate(calls):
            call = {"name": name, "args": json.dumps(arguments), "id": f"call_{len(messages)}_{index}", "index": index}
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[call]))

    def answer(self, messages) -> tuple[str, list[tuple[str, dict]]]:
        """The model's text, and its tool calls with their arguments."""
        if messages[-1].type == "tool":
            results = itertools.takewhile(lambda message: message.type == "tool", reversed(messages))
            return f"Done: {'; '.join(reversed([message.text for message in results]))}", []
        said = messages[-1].text.lower()
        if "weather" in said:
            return "Let me look.", [("get_weather", {"city": "Lisbon"})]
        if "paint" in said and "paint" in self.tools:
            return "With pleasure.", [("paint", {"color": said.split()[-1].strip(".!")})]
        if "where am i" in said:
            return f"I was told: {messages[0].text}", []
        if "clean up" in said:
            return "That takes two things.", [
                ("send_email", {"to": "ada@example.org", "body": "The report is old."}),
                ("delete_file", {"path": "/reports/2019.pdf"}),
            ]
        if "ask me" in said:
            return "Let me see.", [("ask_person", {"question": "What is your favourite colour?"})]
        if "count" in said:
            end = int(said.split()[-1]) if said.split()[-1].isdecimal() else 150
            return " ".join(str(number) for number in range(1, end + 1)), []
        if "fail" in said:
            return "This is the last that FAIL", []
        return HELP, []
