// The graphs that the tests run: deterministic, with scripted models, without network or keys.
//
// They equal those of ../python/graph.py, under the same names. Every graph with a model is driven by the last human
// message: if its text is a JSON object, its keys override DEFAULTS below; any other text means the defaults.

import { setTimeout as pause } from "node:timers/promises";
import { dispatchCustomEvent } from "@langchain/core/callbacks/dispatch";
import { BaseChatModel } from "@langchain/core/language_models/chat_models";
import { AIMessage, AIMessageChunk, HumanMessage } from "@langchain/core/messages";
import { ChatGenerationChunk } from "@langchain/core/outputs";
import { tool } from "@langchain/core/tools";
import { Annotation, END, interrupt, MessagesAnnotation, MessagesZodState, START, StateGraph } from "@langchain/langgraph";
import { createAgent, humanInTheLoopMiddleware, todoListMiddleware } from "langchain";
import { z } from "zod";

const DEFAULTS = {
  delay: 0.01, // seconds between chunks
  gate: undefined, // { url, at }: before each chunk of these numbers the model requests url/number, and waits for the answer; the agent's tools do so if `at` has "tool"
  tokens: 8, // text tokens of the final answer
  words: undefined, // the tokens themselves
  flavour: "v1", // v1 | anthropic | reasoning_content | string
  tools: true, // make tool calls in round 0
  tool_sleep: 0.05,
  tool_index: undefined, // index of the first tool_call_chunk; default: 2 with content blocks (Anthropic-like), 0 with string content (OpenAI-like)
  fail_after: 3, // failing graph: tokens before the exception
  error: "Error",
  media: true, // media: an image and more, else text
  prefix: "", // hitl: of the call ids
};

const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";

/** The model's output besides text, in chunks: chunks of one index are merged, their bytes too. */
const MEDIA = [
  { type: "server_tool_call", id: "srv_1", name: "web_search", args: { query: "maps" }, index: 1 },
  { type: "text", text: "Here ", index: 2 },
  { type: "text", text: "is a map.", index: 2 },
  {
    type: "text",
    text: "",
    index: 2,
    annotations: [{ type: "citation", url: "https://example.org/atlas", title: "An atlas", startIndex: 8, endIndex: 13 }],
  },
  { type: "image", data: PNG.slice(0, 40), mimeType: "image/png", index: 3 },
  { type: "image", data: PNG.slice(40), index: 3 },
  { type: "audio", data: WAV, mimeType: "audio/wav", index: 4 },
  { type: "file", url: "https://example.org/map.csv", mimeType: "text/csv", index: 5 },
];

class CustomBoom extends Error {
  name = "CustomBoom";
}

const ERRORS = { Error, TypeError, RangeError, CustomBoom };

const seconds = (count) => pause(count * 1000);

/** Waits at a gate until the test opens it, and so ends the response. */
async function passed(url, signal) {
  await (await fetch(url, { signal })).text();
}

// ---------------------------------------------------------------- the model
/** The script in the last human message, and the number of AI messages since. */
function script(messages) {
  const last = messages.findLastIndex((message) => message.getType() === "human");
  const round = messages.slice(last + 1).filter((message) => message.getType() === "ai").length;
  let asked = {};
  try {
    asked = JSON.parse(messages[last].text);
  } catch {
    // Any other text means the defaults.
  }
  return { ...DEFAULTS, ...asked, round };
}

function thought(flavour, text) {
  if (flavour === "anthropic") return new AIMessageChunk({ content: [{ type: "thinking", thinking: text, index: 0 }] });
  if (flavour === "reasoning_content") return new AIMessageChunk({ content: "", additional_kwargs: { reasoning_content: text } });
  return new AIMessageChunk({ content: [{ type: "reasoning", reasoning: text, index: 0 }] });
}

function token(flavour, text) {
  const isString = flavour === "string" || flavour === "reasoning_content";
  return new AIMessageChunk({ content: isString ? text : [{ type: "text", text, index: 1 }] });
}

/** OpenAI-like: the names first with empty arguments, then fragments of the arguments, interleaved. */
function* toolCalls({ flavour, tool_index: first }, calls) {
  const base = first ?? (flavour === "string" || flavour === "reasoning_content" ? 0 : 2);
  const chunk = (fragment) => new AIMessageChunk({ content: "", tool_call_chunks: [{ type: "tool_call_chunk", ...fragment }] });
  for (const [n, [id, name]] of calls.entries()) yield chunk({ name, args: "", id, index: base + n });
  const fragments = calls.map(([, , args]) => JSON.stringify(args).match(/.{1,7}/gsu));
  for (let i = 0; fragments.some((all) => i < all.length); i++) {
    for (const [n, all] of fragments.entries()) if (i < all.length) yield chunk({ args: all[i], index: base + n });
  }
}

function usage(input, output) {
  return new AIMessageChunk({
    content: "",
    usage_metadata: {
      input_tokens: input,
      output_tokens: output,
      total_tokens: input + output,
      input_token_details: { cache_read: 1 },
      output_token_details: { reasoning: 3 },
    },
    response_metadata: { finish_reason: "stop", model_name: "fake-1", model_provider: "fake" },
  });
}

/** The calls of each role's first round. */
const CALLS = {
  agent: ({ tool_sleep: sleep, gate }) => {
    const more = { sleep, ...(gate?.at.includes("tool") && { gate: `${gate.url}/tool` }) };
    return [
      ["call_w", "get_weather", { city: "Paris", ...more }],
      ["call_s", "search", { query: 'naïve "quotes" ☃ 😀', ...more }],
    ];
  },
  hitl: ({ prefix }) => [
    [`${prefix}call_e`, "send_email", { to: "a@example.com", body: "hi" }],
    [`${prefix}call_d`, "delete_file", { path: "/tmp/x" }],
  ],
  todos: () => [["call_t1", "write_todos", { todos: todoList("in_progress", "pending") }]],
  tool_error: () => [
    ["call_bad", "divide", { dividend: 1, divisor: 0 }],
    ["call_args", "get_weather", { town: "Paris" }],
    ["call_ok", "divide", { dividend: 6, divisor: 3 }],
  ],
  subagent: () => [["call_task", "task", { description: "say hello", subagent_type: "helper" }]],
  supervisor: ({ words, delay }) =>
    ["left", "right"].map((side) => {
      const own = { prefix: `${side}_`, words: words?.map((word) => `${side} ${word}`), delay };
      return [`call_${side}`, "task", { description: JSON.stringify(own), subagent_type: "helper" }];
    }),
};

function todoList(one, two) {
  return [{ content: "step one", status: one }, { content: "step two", status: two }];
}

class ScriptedModel extends BaseChatModel {
  constructor(role) {
    super({});
    this.role = role;
  }

  _llmType() {
    return "scripted";
  }

  /** The script names its tools. */
  bindTools() {
    return this;
  }

  *chunks(asked) {
    const { role } = this;
    const { flavour, tokens, round } = asked;
    if (role in CALLS && round === 0 && asked.tools) {
      if (flavour !== "string") for (const word of ["Let ", "me ", "think."]) yield thought(flavour, word);
      for (const word of ["Look", "ing ", "up."]) yield token(flavour, word);
      yield* toolCalls(asked, CALLS[role](asked));
      yield usage(11, 22);
    } else if (role === "media" && asked.media) {
      for (const block of MEDIA) yield new AIMessageChunk({ content: [structuredClone(block)] });
      yield usage(11, 22);
    } else if (role === "todos" && round === 1) {
      yield* toolCalls(asked, [["call_t2", "write_todos", { todos: todoList("completed", "completed") }]]);
      yield usage(13, 5);
    } else {
      const words = asked.words ?? Array.from({ length: tokens }, (_, i) => `tok${i} `);
      for (const [i, word] of words.entries()) {
        if (role === "failing" && i === asked.fail_after) throw new ERRORS[asked.error](`boom after ${i} tokens`);
        yield token(flavour, word);
      }
      yield usage(17, tokens);
    }
  }

  async *_streamResponseChunks(messages, options, runManager) {
    const asked = script(messages);
    let n = 0;
    for (const message of this.chunks(asked)) {
      if (asked.gate?.at.includes(n)) await passed(`${asked.gate.url}/${n}`, options.signal);
      n += 1;
      if (asked.delay) await seconds(asked.delay);
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

const modelNode = (role) => async ({ messages }) => ({ messages: [await new ScriptedModel(role).invoke(messages)] });

// ---------------------------------------------------------------- agents
const optionalSleep = z.number().default(0.05);

const getWeather = tool(
  async ({ city, sleep, gate }, { signal }) => {
    await seconds(sleep);
    if (gate) await passed(gate, signal);
    return `sunny in ${city}`;
  },
  { name: "get_weather", description: "Weather.", schema: z.object({ city: z.string(), sleep: optionalSleep, gate: z.string().optional() }) },
);

const search = tool(
  async ({ query, sleep, gate }, config) => {
    config.writer({ progress: "searching", query });
    await seconds(sleep);
    if (gate) await passed(gate, config.signal);
    return `results for ${query}`;
  },
  { name: "search", description: "Search.", schema: z.object({ query: z.string(), sleep: optionalSleep, gate: z.string().optional() }) },
);

const sendEmail = tool(async ({ to }) => `sent to ${to}`, {
  name: "send_email",
  description: "Send.",
  schema: z.object({ to: z.string(), body: z.string() }),
});

const deleteFile = tool(async ({ path }) => `deleted ${path}`, {
  name: "delete_file",
  description: "Delete.",
  schema: z.object({ path: z.string() }),
});

const divide = tool(
  async ({ dividend, divisor }) => {
    if (divisor === 0) throw new RangeError("division by zero");
    return String(dividend / divisor);
  },
  { name: "divide", description: "Divide.", schema: z.object({ dividend: z.number(), divisor: z.number() }) },
);

const taskOf = (helper) =>
  tool(
    async ({ description }) => {
      const { messages } = await helper.invoke({ messages: [new HumanMessage(description)] });
      return messages.at(-1).text;
    },
    { name: "task", description: "Run a subagent.", schema: z.object({ description: z.string(), subagent_type: z.string() }) },
  );

export const agent = createAgent({ model: new ScriptedModel("agent"), tools: [getWeather, search] });
export const media = createAgent({ model: new ScriptedModel("media"), tools: [] });
export const todos = createAgent({ model: new ScriptedModel("todos"), tools: [], middleware: [todoListMiddleware()] });
export const subagent = createAgent({
  model: new ScriptedModel("subagent"),
  tools: [taskOf(createAgent({ model: new ScriptedModel("plain"), tools: [], name: "helper" }))],
});

// Without any middleware, an exception of a tool becomes a ToolMessage with status "error" here.
export const toolError = createAgent({ model: new ScriptedModel("tool_error"), tools: [divide, getWeather] });

export const hitl = createAgent({
  model: new ScriptedModel("hitl"),
  tools: [sendEmail, deleteFile],
  middleware: [
    humanInTheLoopMiddleware({ interruptOn: { send_email: true, delete_file: { allowedDecisions: ["approve", "reject"] } } }),
  ],
});

// Agents below the root that ask.
const askingHelper = createAgent({
  model: new ScriptedModel("hitl"),
  tools: [sendEmail, deleteFile],
  middleware: [humanInTheLoopMiddleware({ interruptOn: { send_email: true, delete_file: { allowedDecisions: ["approve", "reject"] } } })],
  name: "helper",
});
export const askingTool = createAgent({ model: new ScriptedModel("subagent"), tools: [taskOf(askingHelper)] });
export const askingTwo = createAgent({ model: new ScriptedModel("supervisor"), tools: [taskOf(askingHelper)] }); // two at once, with equal calls
export const askingNode = new StateGraph(MessagesAnnotation)
  .addNode("writer", hitl.graph)
  .addNode("sign", () => ({ messages: [new AIMessage("Signed.")] }))
  .addEdge(START, "writer")
  .addEdge("writer", "sign")
  .compile();

const WARNING = "This goes to 5,000 customers and cannot be undone.";
const warned = { allowedDecisions: ["approve", "reject"], description: WARNING };

export const described = createAgent({
  model: new ScriptedModel("hitl"),
  tools: [sendEmail, deleteFile],
  middleware: [humanInTheLoopMiddleware({ interruptOn: { send_email: warned, delete_file: warned } })],
});

// ---------------------------------------------------------------- plain interrupts
const appended = Annotation({ reducer: (all, more) => all.concat(more), default: () => [] });
const Asking = Annotation.Root({ messages: Annotation(), answers: appended });
const ask = (name) => () => ({ answers: [{ [name]: interrupt({ question: `${name}?`, node: name }) }] });

export const interruptNode = new StateGraph(Asking)
  .addNode("prep", () => ({ answers: ["prep"] }))
  .addNode("ask", ask("ask"))
  .addNode("fin", () => ({ answers: ["fin"] }))
  .addEdge(START, "prep")
  .addEdge("prep", "ask")
  .addEdge("ask", "fin")
  .compile();

/** Raises an interrupt about a text, and then one in Agent Inbox's form. */
function review() {
  const answer = interrupt({ question: "Is this right?", llm_output: "Dear all,\nhello", choices: ["yes", "no"] });
  const request = {
    action_request: { action: "publish", args: { to: "all" } },
    description: WARNING,
    config: { allow_accept: true, allow_edit: true, allow_respond: false, allow_ignore: true },
  };
  return { answers: [answer, interrupt([request])[0]] };
}

export const reviewed = new StateGraph(Asking).addNode("review", review).addEdge(START, "review").compile();

export const interruptParallel = new StateGraph(Asking)
  .addNode("left", ask("left"))
  .addNode("right", ask("right"))
  .addNode("fin", () => ({ answers: ["fin"] }))
  .addEdge(START, "left")
  .addEdge(START, "right")
  .addEdge("left", "fin")
  .addEdge("right", "fin")
  .compile();

export const breakpoint = new StateGraph(Asking)
  .addNode("prep", () => ({ answers: ["prep"] }))
  .addNode("fin", () => ({ answers: ["fin"] }))
  .addEdge(START, "prep")
  .addEdge("prep", "fin")
  .compile({ interruptBefore: ["fin"] });

// ---------------------------------------------------------------- text, and a model that fails
export const text = new StateGraph(MessagesAnnotation).addNode("model", modelNode("plain")).addEdge(START, "model").compile();

export const failing = new StateGraph(MessagesAnnotation)
  .addNode("ok", () => ({ messages: [new AIMessage({ content: "before", id: "before-fail" })] }))
  .addNode("model", modelNode("failing"))
  .addEdge(START, "ok")
  .addEdge("ok", "model")
  .compile();

// ---------------------------------------------------------------- state of many shapes
const Counted = Annotation.Root({
  ...MessagesAnnotation.spec,
  count: Annotation(),
  big: Annotation(), // beyond 2**53, where not every integer is a double
  ratio: Annotation(),
  whole: Annotation(),
  profile: Annotation(),
  log: appended,
});

export const counter = new StateGraph(Counted)
  .addNode("begin", ({ count = 0, big = 12345678901234567890n }) => ({
    count: count + 1,
    big: Number(big),
    ratio: 1.1,
    whole: 1,
    profile: { name: "Ada", address: { city: "Paris", "zip/code": "75001" }, tags: ["a", "b"], note: null, draft: true },
    log: ["begin"],
  }))
  .addNode("speak", async (state) => ({ ...(await modelNode("plain")(state)), count: state.count + 1, log: ["speak"] }))
  // A changed leaf, a removed key, keys that a JSON pointer escapes, a shorter list, null to value.
  .addNode("adjust", ({ count, ratio }) => ({
    profile: { name: "Ada", address: { city: "Lyon", "zip/code": "69001", "~": {} }, tags: ["b"], note: "é\u2028☃" },
    ratio: ratio + 2.2,
    log: [{ event: "adjust", at: count }],
  }))
  .addNode("finish", ({ count, big }) => ({ count: count + 1, big: big + 4096, log: ["finish", 0.1] }))
  .addEdge(START, "begin")
  .addEdge("begin", "speak")
  .addEdge("speak", "adjust")
  .addEdge("adjust", "finish")
  .compile();

// ---------------------------------------------------------------- 400 KB of state
const ROWS = 2800;
const NOTE = "An entry of some length, as a document or a table holds them by the thousand; nothing in it changes but its number. ";

const Big = Annotation.Root({ ...MessagesAnnotation.spec, rows: Annotation(), index: Annotation() });

const touch = (n) => ({ rows }) => ({
  rows: rows.map((row, at) => (at === n * 100 ? { ...row, seen: (row.seen ?? 0) + 1 } : row)),
  index: { last: n },
});

export const big = new StateGraph(Big)
  .addNode("fill", ({ rows }) => ({ rows: rows ?? Array.from({ length: ROWS }, (_, n) => ({ id: `row-${n}`, note: `${NOTE}${n}` })) }))
  .addNode("first", touch(1))
  .addNode("model", modelNode("plain"))
  .addNode("second", touch(2))
  .addNode("third", ({ rows }) => touch(3)({ rows: [...rows, { id: `row-${rows.length}`, note: "" }] }))
  .addEdge(START, "fill")
  .addEdge("fill", "first")
  .addEdge("first", "model")
  .addEdge("model", "second")
  .addEdge("second", "third")
  .compile();

// ---------------------------------------------------------------- two models at once
/** Streams its own half of the words, `pace` times as slowly; a step commits in the order of its nodes, not of their ends. */
const speakAt = (name, pace) => async ({ messages }) => {
  const { words, delay, gate, flavour } = script(messages);
  const own = { words: [`${name}: `, ...(words ?? ["tok0 ", "tok1 "])], delay: delay * pace, gate: gate && { ...gate, url: `${gate.url}/${name}` }, flavour };
  return { messages: [await new ScriptedModel("plain").invoke([new HumanMessage(JSON.stringify(own))])] };
};

export const parallel = new StateGraph(MessagesAnnotation)
  .addNode("left", speakAt("left", 2))
  .addNode("right", speakAt("right", 1))
  .addEdge(START, "left")
  .addEdge(START, "right")
  .compile();

// ---------------------------------------------------------------- subgraphs
const grandchild = new StateGraph(MessagesAnnotation).addNode("gc_model", modelNode("plain")).addEdge(START, "gc_model").compile();

const child = new StateGraph(MessagesAnnotation)
  .addNode("child_pre", () => ({ messages: [new AIMessage({ content: "child pre", id: "child-pre" })] }))
  .addNode("grandchild", grandchild)
  .addEdge(START, "child_pre")
  .addEdge("child_pre", "grandchild")
  .compile();

export const subgraphs = new StateGraph(MessagesAnnotation)
  .addNode("parent_pre", ({ messages }) => ({ messages: [new HumanMessage(messages.at(-1).content)] }))
  .addNode("child", child)
  .addEdge(START, "parent_pre")
  .addEdge("parent_pre", "child")
  .compile();

const AskingChild = Annotation.Root({ ...MessagesAnnotation.spec, answers: appended });

const askingChild = new StateGraph(AskingChild)
  .addNode("model", modelNode("plain"))
  .addNode("ask", ask("ask"))
  .addEdge(START, "model")
  .addEdge("model", "ask")
  .compile();

export const interruptChild = new StateGraph(AskingChild)
  .addNode("prep", () => ({ answers: ["prep"] }))
  .addNode("child", async (state) => ({ messages: (await askingChild.invoke({ messages: state.messages })).messages, answers: ["child"] }))
  .addEdge(START, "prep")
  .addEdge("prep", "child")
  .compile();

// ---------------------------------------------------------------- slow, flood
const Slow = Annotation.Root({
  steps: Annotation(), // loop steps
  delay: Annotation(), // seconds per step
  size: Annotation(), // bytes of blob in state
  i: Annotation(),
  blob: Annotation(),
});

export const slow = new StateGraph(Slow)
  .addNode("tick", async ({ i = 0, delay = 0.1, size = 100 }, config) => {
    await seconds(delay);
    config.writer({ kind: "tick", i });
    await dispatchCustomEvent("tick_event", { i }, config);
    return { i: i + 1, blob: "x".repeat(size) };
  })
  .addEdge(START, "tick")
  .addConditionalEdges("tick", ({ i = 0, steps = 5 }) => (i < steps ? "tick" : END), ["tick", END])
  .compile();

const Flood = Annotation.Root({
  n: Annotation(),
  size: Annotation(),
  every: Annotation(), // yield to the loop every k events
  pace: Annotation(), // seconds between batches
  done: Annotation(),
});

export const flood = new StateGraph(Flood)
  .addNode("flood", async ({ n = 1000, size = 64, every = 10, pace = 0 }, config) => {
    const pad = "y".repeat(size);
    for (let i = 0; i < n; i++) {
      config.writer({ i, pad });
      if (i % every === 0) await seconds(pace);
    }
    return { done: true };
  })
  .addEdge(START, "flood")
  .compile();

// ---------------------------------------------------------------- configurable fields
const Configured = z.object({
  model: z.enum(["fast", "deep"]).default("fast").describe("Which model answers."),
  verbose: z.boolean().default(false).describe("Whether it says more."),
  limit: z.number().optional(),
});

export const configured = new StateGraph(MessagesAnnotation, Configured)
  .addNode("tell", (_, { context }) => {
    const { model = "fast", verbose = false } = context ?? {};
    return { messages: [new AIMessage(`${model}${verbose ? ", verbosely" : ""}`)] };
  })
  .addEdge(START, "tell")
  .compile();

// An agent below a graph whose state has no key for the page: it finds the page's tools in the context of the run.
const look = (_, { context }) => {
  const { actions = [], context: about = [] } = context?.copilotkit ?? {};
  const found = { tools: actions.map((tool) => tool.function.name), context: about };
  return { messages: [new AIMessage(JSON.stringify(found))] };
};
const looking = new StateGraph(MessagesZodState).addNode("look", look).addEdge(START, "look").compile();
const outer = async ({ messages }) => ({ messages: [(await looking.invoke({ messages })).messages.at(-1)] });
export const nested = new StateGraph(MessagesZodState).addNode("outer", outer).addEdge(START, "outer").compile();

// The same with a context of its own, which takes no other member.
export const nestedFixed = new StateGraph(MessagesZodState, z.object({}).strict())
  .addNode("outer", outer)
  .addEdge(START, "outer")
  .compile();

// What an editor is offered without configuration. No model is called.
const Seeing = z.object({
  model: z.string().default("google_genai:gemini-2.5-pro"),
  mode: z.enum(["act", "plan"]).default("act"),
});

export const seeing = new StateGraph(MessagesAnnotation, Seeing)
  .addNode("tell", ({ messages }, { context }) => {
    const { content } = messages.at(-1);
    const kinds = typeof content === "string" ? ["text"] : content.map(({ type }) => type);
    return { messages: [new AIMessage(`${context?.mode ?? "act"}: ${kinds.join(", ")}`)] };
  })
  .addEdge(START, "tell")
  .compile();
