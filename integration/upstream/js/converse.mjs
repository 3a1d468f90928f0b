// The graphs of the suite `converse`: agents that change their own conversation, before a model as strict as a provider.
//
// They equal those of ../python/converse.py, under the same names.

import { randomUUID } from "node:crypto";
import { BaseChatModel } from "@langchain/core/language_models/chat_models";
import { AIMessage, AIMessageChunk, HumanMessage, RemoveMessage } from "@langchain/core/messages";
import { ChatGenerationChunk } from "@langchain/core/outputs";
import { tool } from "@langchain/core/tools";
import { interrupt, REMOVE_ALL_MESSAGES } from "@langchain/langgraph";
import { withLangGraph } from "@langchain/langgraph/zod";
import { createAgent, createMiddleware, piiMiddleware, summarizationMiddleware } from "langchain";
import { z } from "zod";

const PAGE_TOOLS = ["confirm", "locate"]; // the client has them
const MAIL = /[\w.-]+@example\.com/g;
const BIG = "large ".repeat(100);

const nonce = (length) => randomUUID().replaceAll("-", "").slice(0, length);
const isHuman = (message) => message?.getType() === "human";

/** What OpenAI and Anthropic refuse about calls and their results. */
function refusal(messages) {
  let waiting = [];
  for (const [place, message] of messages.entries()) {
    if (message.getType() === "tool") {
      const at = waiting.indexOf(message.tool_call_id);
      if (at < 0) return `message ${place} is a result of ${message.tool_call_id}, which the message before it does not wait for`;
      waiting.splice(at, 1);
      continue;
    }
    if (waiting.length > 0) return `message ${place} follows the call ${waiting[0]}, which has no result`;
    if (message.getType() === "ai") waiting = (message.tool_calls ?? []).map(({ id }) => id);
  }
  return waiting.length > 0 ? `the call ${waiting[0]} at the end has no result` : undefined;
}

/** The words of the last human message. */
const commandOf = (messages) => messages.findLast(isHuman)?.text.split(/\s+/).filter(Boolean) ?? [];

const CALLS = { tool: ["ping"], tools: ["ping", "ping"], approve: ["ask_person"], page: ["confirm"], pages: ["confirm", "locate"] };

class TalkModel extends BaseChatModel {
  constructor() {
    super({});
  }

  _llmType() {
    return "talk";
  }

  bindTools() {
    return this;
  }

  async *_streamResponseChunks(messages, options, runManager) {
    const refused = refusal(messages);
    if (refused) throw Object.assign(new Error(`400: ${refused}`), { name: "Refused" });
    const words = commandOf(messages);
    const calls = isHuman(messages.at(-1)) ? CALLS[words[0]] : undefined;
    const mails = [...new Set(messages.flatMap(({ text }) => text.match(MAIL) ?? []))].sort();
    const said = words.length > 1 ? `to ${words[1]}` : "to nobody";
    const call = (name, n) => ({ type: "tool_call_chunk", name, args: JSON.stringify({ n }), id: `call_${nonce(12)}`, index: n });
    const chunks = calls
      ? [new AIMessageChunk("Let me see. "), ...calls.map((name, n) => new AIMessageChunk({ content: "", tool_call_chunks: [call(name, n)] }))]
      : ["Answer ", `${said}, `, `${nonce(8)}${mails.map((mail) => ` ${mail}`).join("")}`].map((text) => new AIMessageChunk(text));
    for (const [place, message] of chunks.entries()) {
      if (words[0] === "slow" && place === 1) await (await fetch(`${words[2]}/0`, { signal: options.signal })).text();
      const chunk = new ChatGenerationChunk({ message, text: message.text });
      yield chunk;
      await runManager?.handleLLMNewToken(message.text, undefined, undefined, undefined, undefined, { chunk });
    }
  }

  async _generate(messages, options, runManager) {
    let whole;
    for await (const chunk of this._streamResponseChunks(messages, options, runManager)) whole = whole?.concat(chunk) ?? chunk;
    return { generations: [{ message: whole.message, text: whole.text }] };
  }
}

const SUMMARY = ["The talk ", "so far."];

class SummaryModel extends BaseChatModel {
  constructor() {
    super({});
  }

  _llmType() {
    return "summary";
  }

  async *_streamResponseChunks(messages, options, runManager) {
    for (const text of SUMMARY) {
      const chunk = new ChatGenerationChunk({ message: new AIMessageChunk(text), text });
      yield chunk;
      await runManager?.handleLLMNewToken(text, undefined, undefined, undefined, undefined, { chunk });
    }
  }

  async _generate() {
    const text = SUMMARY.join("");
    return { generations: [{ message: new AIMessage(text), text }] };
  }
}

const numbered = z.object({ n: z.number() });
const ping = tool(async ({ n }) => `pong ${n}`, { name: "ping", description: "Answer.", schema: numbered });
const askPerson = tool(async () => `approved: ${interrupt({ question: "May I?" })}`, { name: "ask_person", description: "Ask the person, within a call.", schema: numbered });

/** Appends. Some middleware returns the whole state that it was given, which must not double the list. */
const appended = (all = [], more = []) => (JSON.stringify(all) === JSON.stringify(more) ? all : all.concat(more));

const stateSchema = z.object({
  count: z.number().optional(), // of runs
  log: withLangGraph(z.array(z.string()).optional(), { reducer: { fn: appended } }), // an entry for each run
  note: z.string().optional(), // the person's
  doc: z.record(z.string(), z.any()).optional(), // a large member of the graph, a small one of the person
  copilotkit: z.record(z.string(), z.any()).optional(), // the client's tools; `tools` is the name of a node
});

const talking = createMiddleware({
  name: "Talk",
  stateSchema,
  beforeAgent: ({ count, doc }) => ({ count: (count ?? 0) + 1, log: [nonce(6)], ...(doc ? {} : { doc: { big: BIG, small: "0" } }) }),
  beforeModel: ({ messages }) => {
    if (isHuman(messages.at(-1)) && commandOf(messages)[0] === "ask") interrupt({ question: "Which one?" });
  },
  afterModel: {
    canJumpTo: ["end"],
    hook: ({ messages }) => ((messages.at(-1).tool_calls ?? []).some(({ name }) => PAGE_TOOLS.includes(name)) ? { jumpTo: "end" } : undefined),
  },
  afterAgent: ({ messages }) => {
    const [command] = commandOf(messages);
    if (command === "forget-all") return { messages: [new RemoveMessage({ id: REMOVE_ALL_MESSAGES })] };
    const second = messages.indexOf(messages.filter(isHuman)[1]);
    if (command === "forget" && second > 0) return { messages: messages.slice(0, second).map(({ id }) => new RemoveMessage({ id })) };
    return undefined;
  },
});

/** Summarises as people's own middleware does: with LangChain's mark, and without the tag that keeps tokens out of the stream. */
const recap = createMiddleware({
  name: "Recap",
  beforeModel: async ({ messages }) => {
    if (messages.length < 7 || !isHuman(messages.at(-1))) return undefined;
    const told = await new SummaryModel().invoke("Summarise.", { metadata: { lc_source: "summarization" } });
    const content = `Here is a summary of the conversation to date:\n\n${told.text}`;
    const summary = new HumanMessage({ content, additional_kwargs: { lc_source: "summarization" } });
    return { messages: [new RemoveMessage({ id: REMOVE_ALL_MESSAGES }), summary, ...messages.slice(-3)] };
  },
});

const talkAgent = (...middleware) => createAgent({ model: new TalkModel(), tools: [ping, askPerson], middleware: [...middleware, talking] });
const redaction = () => piiMiddleware("email", { strategy: "redact", applyToInput: true });
const summary = () => summarizationMiddleware({ model: new SummaryModel(), trigger: { messages: 7 }, keep: { messages: 3 } });

export const talk = talkAgent();
export const talkRedacted = talkAgent(redaction());
export const talkSummarised = talkAgent(summary());
export const talkBoth = talkAgent(redaction(), summary());
export const talkRecapped = talkAgent(recap);
