// The runs that are cut: every kind of agent, its turns, and the texts of its models.

import { randomUUID } from "node:crypto";
import { cancelled, failed, interrupt, success } from "./judge.mjs";

const HELPED = Array.from({ length: 8 }, (_, i) => `tok${i} `).join(""); // the text of the helper of `subagent`
// Messages that no model makes. If a run is deleted, its thread does not have them, and a client has seen them.
const OF_A_NODE = "child pre";
const BEFORE = "before";
const beside = (own) => (whole) => [whole, own];

const ofTwo = (whole) => [whole, ...["left", "right"].map((side) => whole.replace(/\S+ /g, `${side} $&`))];

const BREAKPOINT = "breakpoint"; // its interrupt has no LangGraph id

const say = (script, end = success) => ({ script, end });
const answer = (payload, end = success) => ({ answer: payload, end });
const approve = answer(() => ({ approved: true }));

/**
 * Each case is a graph and its turns. A turn sends a message, answers interrupts, or does neither. `words` is the number of
 * tokens of the graph's last model; `texts` are all texts, if there are others.
 */
const BOTH = {
  text: { graph: "text", turns: [say({})], words: 12 },
  "text twice": { graph: "text", turns: [say({}), say({})], words: 6 },
  agent: { graph: "agent", turns: [say({ flavour: "v1" })], words: 8 },
  "agent anthropic": { graph: "agent", turns: [say({ flavour: "anthropic" })], words: 8 },
  "agent reasoning_content": { graph: "agent", turns: [say({ flavour: "reasoning_content" })], words: 8 },
  "agent string": { graph: "agent", turns: [say({ flavour: "string" })], words: 8 },
  "agent slow tool": { graph: "agent", turns: [say({ tool_sleep: 0.4, tool_index: 0 })], words: 4 },
  "agent twice": { graph: "agent", turns: [say({}), say({ flavour: "anthropic" })], words: 4 },
  tool_error: { graph: "tool_error", turns: [say({})], words: 4 },
  failing: { graph: "failing", turns: [say({ fail_after: 5 }, failed("ValueError", "Error"))], words: 10, texts: beside(BEFORE) },
  "failing, then not": { graph: "failing", turns: [say({ fail_after: 3 }, failed("ValueError", "Error")), say({ fail_after: 100 })], words: 6, texts: beside(BEFORE) },
  subgraphs: { graph: "subgraphs", turns: [say({})], words: 8, texts: beside(OF_A_NODE) },
  subagent: { graph: "subagent", turns: [say({})], words: 4, texts: beside(HELPED) },
  todos: { graph: "todos", turns: [say({})], words: 4 },
  counter: { graph: "counter", turns: [say({})], words: 4 },
  big: { graph: "big", turns: [say({})], words: 4 },
  parallel: { graph: "parallel", turns: [say({})], words: 8, texts: (whole) => [`left: ${whole}`, `right: ${whole}`] },
  slow: { graph: "slow", turns: [{ end: success }], state: (delay) => ({ steps: 8, delay: 3 * delay, size: 2000 }) },
  flood: { graph: "flood", turns: [{ end: success }], state: (delay) => ({ n: 150, size: 100, every: 10, pace: delay }) },
  cancelled: { graph: "slow", turns: [{ end: cancelled, cancelAt: 3 }], state: () => ({ steps: 100, delay: 0.5, size: 100 }) },
  interrupt_node: { graph: "interrupt_node", turns: [say({}, interrupt), answer(() => "yes")] },
  interrupt_child: { graph: "interrupt_child", turns: [say({}, interrupt), answer(() => "yes")], words: 6 },
  breakpoint: { graph: "breakpoint", turns: [say({}, interrupt), answer(() => null)], asked: BREAKPOINT },
  interrupt_parallel: { graph: "interrupt_parallel", turns: [say({}, interrupt), answer(({ id }) => ({ answerTo: id }))] },
  hitl: { graph: "hitl", turns: [say({}, interrupt), approve], words: 4 },
  asking_node: { graph: "asking_node", turns: [say({}, interrupt), approve], words: 4 },
  asking_tool: { graph: "asking_tool", turns: [say({}, interrupt), approve], words: 4, texts: beside(HELPED) },
  asking_two: { graph: "asking_two", turns: [say({}, interrupt), answer(({ toolCallId }) => ({ approved: toolCallId !== "left_call_e" }))], words: 4, texts: ofTwo },
  "hitl denied": { graph: "hitl", turns: [say({}, interrupt), answer(({ toolCallId }) => ({ approved: toolCallId === "call_e" }))], words: 4 },
};

/** Cases of the Python graphs only. */
const PYTHON = {
  hitl_per_call: { graph: "hitl_per_call", turns: [say({}, interrupt), approve], words: 4 },
  interrupt_form: { graph: "interrupt_form", turns: [say({}, interrupt), answer(() => ({ level: "low" }))] },
  configured: { graph: "configured", turns: [say({})] },
  editor: { graph: "editor", turns: [say("edit")] },
  silent: { graph: "silent", turns: [say("edit")] },
  two_editors: { graph: "two_editors", turns: [say("edit")] },
  endless: { graph: "endless", turns: [say({ rounds: [{ calls: [["ping", {}]] }], again: true }, failed("GraphRecursionError"))] },
};

/** The graphs with agents below the root that ask, the calls that they ask about, and the calls of the root. */
export const ASKED_BELOW = {
  asking_node: { asked: ["call_e", "call_d"], own: [] },
  asking_tool: { asked: ["call_e", "call_d"], own: ["call_task"] },
  asking_two: { asked: ["left_call_e", "left_call_d", "right_call_e", "right_call_d"], own: ["call_left", "call_right"] },
  asking_deep: { asked: ["left_call_2_0", "right_call_2_0"], own: ["call_2_0", "call_2_1"] },
};

/**
 * The graphs whose conversation is summarised in the fourth turn, and whether the thread loses the older messages: by
 * LangChain's middleware, by a graph's own, by that of deepagents.
 */
export const SUMMARISED = { talk_summarised: true, talk_recapped: true, talk_deep: false };
export const SUMMARY_WORDS = /The talk/;

export const casesOf = (server) => (server.graphs === "Python" ? { ...BOTH, ...PYTHON } : BOTH);

/**
 * One run of a case: the thread, the input and the end of each turn, and the texts that its models send, each once, with
 * `delay` seconds between the tokens of the last turn.
 */
export class Play {
  texts = [];

  constructor(name, { graph, turns, words = 0, texts = (whole) => [whole], state, asked }, delay, delayBefore = delay) {
    Object.assign(this, { name, graph, asked, threadId: randomUUID(), state: state?.(delay) ?? {} });
    this.turns = turns.map(({ script, ...turn }, n) => {
      if (script === undefined) return turn;
      if (typeof script === "string") return { ...turn, content: script };
      const nonce = randomUUID().slice(0, 8);
      const said = Array.from({ length: words }, (_, i) => `${nonce}.${i} `);
      if (words > 0) this.texts.push(...texts(said.join("")));
      return { ...turn, content: JSON.stringify({ delay: n < turns.length - 1 ? delayBefore : delay, ...(words > 0 && { words: said }), ...script }) };
    });
  }

  /** The ids of the thread's interrupts, as a client must get them. */
  askedIds(interruptIds) {
    return this.asked ? [`${this.threadId}:${this.asked}`] : interruptIds;
  }
}
