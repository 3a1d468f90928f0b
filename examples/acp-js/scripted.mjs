// A scripted model that streams an answer to the last message, without network and key.

import { setTimeout as sleep } from "node:timers/promises";
import { BaseChatModel } from "@langchain/core/language_models/chat_models";
import { AIMessageChunk } from "@langchain/core/messages";
import { ChatGenerationChunk } from "@langchain/core/outputs";

const MS_A_WORD = 30;
const SCRIPT = {
  list: ["list_files", { path: "." }],
  read: ["read_file", { path: "notes.txt" }],
  write: ["write_file", { path: "notes.txt", content: "Buy milk.\n" }],
  delete: ["delete_file", { path: "notes.txt" }],
  roll: ["dice__roll", { sides: 6 }],
  paint: ["paint", { color: "teal" }],
};

export class ScriptedModel extends BaseChatModel {
  tools = [];

  constructor(fields = {}) {
    super(fields);
    this.tools = fields.tools ?? [];
  }

  _llmType() {
    return "scripted";
  }

  bindTools(tools) {
    // The graph's tools are objects; the client's are JSON in OpenAI's form.
    return new ScriptedModel({ tools: tools.map((tool) => tool.function?.name ?? tool.name) });
  }

  async _generate(messages, options, manager) {
    const chunks = [];
    for await (const { message } of this._streamResponseChunks(messages, options, manager)) chunks.push(message);
    const message = chunks.reduce((all, chunk) => all.concat(chunk));
    return { generations: [{ message, text: message.text }] };
  }

  async *_streamResponseChunks(messages, _options, manager) {
    const [text, call] = this.answer(messages);
    for (const word of text.split(/\s+/)) {
      await sleep(MS_A_WORD);
      yield new ChatGenerationChunk({ message: new AIMessageChunk(`${word} `), text: `${word} ` });
      await manager?.handleLLMNewToken(`${word} `);
    }
    if (call) {
      const [name, args] = call;
      const chunk = { name, args: JSON.stringify(args), id: `call_${messages.length}`, index: 0, type: "tool_call_chunk" };
      yield new ChatGenerationChunk({ message: new AIMessageChunk({ content: "", tool_call_chunks: [chunk] }), text: "" });
    }
  }

  /** The model's text, and its tool call. */
  answer(messages) {
    const last = messages.at(-1);
    if (last.type === "tool") {
      const results = messages.slice(messages.findLastIndex(({ type }) => type !== "tool") + 1);
      return [`Done: ${results.map(({ text }) => text.trim()).join("; ")}`];
    }
    const said = last.text.toLowerCase();
    if (said.includes("who are you")) return [`My prompt: ${messages[0].text}`];
    const found = Object.entries(SCRIPT).find(([word, [name]]) => said.includes(word) && this.tools.includes(name));
    if (found) return ["Let me do that.", found[1]];
    return [`My tools: ${this.tools.join(", ") || "none"}. Say: list, read, write, delete, roll, or who are you.`];
  }
}
