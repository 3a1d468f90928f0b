// CopilotKit's own client, connected directly to threadway in front of the real Python server, over both of its transports.
// The result is compared with LangGraph's thread.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { describe, test } from "node:test";
import { buildResumeArray, EventSchemas } from "@ag-ui/client";
import { CopilotKitCore, ProxiedCopilotRuntimeAgent } from "@copilotkit/core";
import { z } from "zod";
import { SUMMARISED, SUMMARY_WORDS } from "../client/cases.mjs";
import { Gate } from "../client/gate.mjs";
import { readThread, SERVERS } from "../client/gateway.mjs";
import { without } from "../client/limits.mjs";
import { reasonOf } from "../client/servers.mjs";
import { firstDifference, interruptIds, ofClient, ofThread, stateOf } from "../client/thread.mjs";

const [server] = SERVERS;
const OPTIONS = { concurrency: 6, timeout: 600_000 }; // what hangs is noticed sooner, by its own limit
const CONNECT_MS = 60_000; // an `info`, which takes some milliseconds
const ANSWER_MS = 90_000; // what has not come by then does not come
const JSON_BODY = { "content-type": "application/json" };
const PAINT = { name: "paint", description: "Paints.", parameters: z.object({ about: z.string() }) };
const TERMINAL = ["RUN_FINISHED", "RUN_ERROR"];
const LONG = { tokens: 40, delay: 0.05 }; // a run of two seconds, long enough to disconnect in the middle and to reconnect

// Without a window the client sends no request to its runtime.
globalThis.window = {};

// The client only warns of members that it drops and of patches that it cannot apply. Both are faults of the gateway.
const warnings = [];
console.warn = (...words) => void warnings.push(words.join(" "));
console.error = () => {}; // `onError` gets the same errors

// ---------------------------------------------------------------- a page with CopilotKit's client
/** The requests to threadway, by page. */
class Page {
  constructor(transport) {
    this.requests = [];
    this.errors = [];
    this.core = new CopilotKitCore({
      runtimeUrl: `${server.threadway}/agui`,
      runtimeTransport: transport,
      headers: { [PAGE]: String(pages.push(this) - 1) },
    });
    this.core.subscribe({ onError: ({ code, error }) => void this.errors.push(`${code}: ${error.message}`) });
  }

  /** A loaded page: it has requested the list of agents. */
  static async load(transport) {
    const page = new Page(transport);
    await until(() => page.core.runtimeConnectionStatus !== "connecting", CONNECT_MS, "the page has connected");
    assert.deepEqual([page.core.runtimeConnectionStatus, ...page.errors], ["connected"]);
    return page;
  }

  /** The page's agent, on a thread. */
  agent(name, threadId = randomUUID()) {
    const agent = this.core.getAgent(name);
    agent.threadId = threadId;
    agent.events = [];
    agent.subscribe({ onEvent: ({ event }) => void agent.events.push(structuredClone(event)) });
    return agent;
  }

  async run(agent, content, parameters = {}) {
    if (content !== undefined) say(agent, content);
    return this.core.runAgent({ agent, ...parameters });
  }

  /** Closes the page's connections, as a reload does. */
  leave(agent) {
    agent.abortController.abort();
  }

  /** Every event of the last stream that was requested. */
  async wire() {
    const request = this.requests.findLast(({ response }) => /event-stream/.test(response.headers.get("content-type")));
    assert.ok(request, `no request was answered with a stream: ${this.requests.map(({ line, response }) => `${line}: ${response.status}`)}`);
    const lines = (await request.body).split("\n").filter((line) => line.startsWith("data: "));
    return lines.map((line) => JSON.parse(line.slice("data: ".length)));
  }
}

const PAGE = "x-page";
const pages = [];
const { fetch } = globalThis;
globalThis.fetch = async (url, init) => {
  const response = await fetch(url, init);
  const body = response.clone().text();
  body.catch(() => {}); // a page that disconnects has no whole body
  const page = pages[new Headers(init?.headers).get(PAGE) ?? -1];
  const { method = "GET", body: sent } = init ?? {};
  page?.requests.push({ line: `${method} ${url.slice(server.threadway.length)}`, sent: sent && JSON.parse(sent), response, body });
  return response;
};

function say(agent, content) {
  agent.addMessage({ id: randomUUID(), role: "user", content: typeof content === "string" ? content : JSON.stringify(content) });
}

/** Waits until an agent's stream has such an event. */
async function reaches(agent, done, isSo) {
  let isOver = false;
  const over = () => void (isOver = true);
  done.then(over, over);
  await until(() => isOver || agent.events.some(isSo), ANSWER_MS, "the event");
  assert.ok(agent.events.some(isSo), `the stream has ended before: ${types(agent.events)}`);
}

async function until(isSo, milliseconds, what) {
  const deadline = performance.now() + milliseconds;
  while (!(await isSo())) {
    assert.ok(performance.now() < deadline, `${what}: not within ${milliseconds} ms`);
    await new Promise((wake) => setTimeout(wake, 20));
  }
}

const isStart = ({ type }) => type === "RUN_STARTED";
const isText = ({ type }) => type === "TEXT_MESSAGE_CONTENT";
const isArguments = ({ type }) => type === "TOOL_CALL_ARGS";
const isEnd = ({ type }) => TERMINAL.includes(type);
const isReasoning = ({ type }) => type === "REASONING_MESSAGE_CONTENT";
const types = (events) => events.map(({ type }) => type);
const ends = (events) => events.filter(isEnd);

function same(actual, expected, what) {
  const difference = firstDifference(actual, expected);
  if (difference) assert.fail(`${what}: ${difference}`);
}

// ---------------------------------------------------------------- checks of every page
/** Checks that the page holds LangGraph's thread, has lost nothing of its stream, and has shown no error. */
async function check(page, agent) {
  const wire = await page.wire();
  try {
    for (const event of wire) same(EventSchemas.parse(event), event, `schema of ${event.type}`);
    same(agent.events.slice(-wire.length), wire, "the events that subscribers saw");
    assert.deepEqual(page.errors, [], "what the page shows as an error");
    assert.equal(agent.isRunning, false);
    const { state } = await readThread(server, agent.threadId);
    same(ofClient(agent.messages), ofThread(state.values, agent.threadId), "the page's messages against the thread's");
    same(agent.state, stateOf(state.values), "the page's state against the thread's");
    same(agent.pendingInterrupts.map(({ id }) => id), interruptIds(state), "the page's interrupts against the thread's");
  } catch (failure) {
    failure.message += `\nthe events were:\n${wire.map((event) => `  ${JSON.stringify(event)}`).join("\n")}`;
    throw failure;
  }
  return wire;
}

/** The runs of a thread, oldest first. */
async function runsOf(threadId) {
  const response = await fetch(`${server.langgraph}/threads/${threadId}/runs`);
  return (await response.json()).reverse();
}

/** The input of a run with this human message. */
function asked(words) {
  return { messages: [{ type: "human", id: "h", content: JSON.stringify(words) }] };
}

/** Lets LangGraph itself run an agent in the background, without a gateway. */
async function background(graph, input, options) {
  const threadId = randomUUID();
  const post = (path, body) =>
    fetch(server.langgraph + path, { method: "POST", headers: JSON_BODY, body: JSON.stringify(body) });
  await post("/threads", { thread_id: threadId, if_exists: "do_nothing" });
  const response = await post(`/threads/${threadId}/runs`, { assistant_id: graph, input, stream_mode: ["values"], stream_resumable: true, ...options });
  assert.equal(response.status, 200, await response.clone().text());
  return { threadId, runId: (await response.json()).run_id };
}

// ---------------------------------------------------------------- the pages
function onTransport(transport) {
  const load = () => Page.load(transport);

  /** The input of the last request of a page. */
  const sentLast = ({ requests }) => {
    const { sent } = requests.at(-1);
    return transport === "single" ? sent.body : sent;
  };

  /** A page with a live run that has got the expected event. */
  const underWay = async (graph, content, isSo) => {
    const page = await load();
    const agent = page.agent(graph);
    const done = page.run(agent, content);
    await reaches(agent, done, isSo);
    return { page, agent, done };
  };

  /** A page that opens a thread. */
  const open = async (graph, threadId) => {
    const page = await load();
    const agent = page.agent(graph, threadId);
    const done = page.core.connectAgent({ agent });
    return { page, agent, done };
  };

  test("knows the agents", async () => {
    const page = await load();
    const response = await fetch(`${server.langgraph}/assistants/search`, { method: "POST", headers: JSON_BODY, body: JSON.stringify({ limit: 100 }) });
    const graphs = (await response.json()).map(({ graph_id: graph }) => graph);
    assert.ok(graphs.length > 10);
    assert.deepEqual(Object.keys(page.core.agents).sort(), graphs.sort());
    assert.equal(page.core.runtimeTransport, transport === "auto" ? "rest" : transport);
    const asked = { auto: "GET /agui/info", single: "POST /agui" }[transport];
    assert.deepEqual(page.requests.map(({ line }) => line), [asked]);
  });

  test("runs an agent, turn by turn", async () => {
    const page = await load();
    const agent = page.agent("agent");
    for (const flavour of ["v1", "string"]) {
      await page.run(agent, { flavour });
      const wire = await check(page, agent);
      assert.ok(wire.filter(isText).length > 4);
    }
    assert.deepEqual((await runsOf(agent.threadId)).map(({ status }) => status), ["success", "success"]);
  });

  test("shows a model's attachments, live, in the next turn and on a reload", async () => {
    const page = await load();
    const agent = page.agent("media");
    await page.run(agent, "Draw a map.");
    await check(page, agent);
    const made = ({ messages }) => messages.filter(({ role }) => role === "activity").map(({ activityType }) => activityType);
    const kinds = ["block", "image", "audio", "file", "annotations"].map((kind) => `threadway.${kind}`);
    assert.deepEqual(made(agent), kinds);
    await page.run(agent, { media: false, tokens: 2 });
    await check(page, agent);
    const after = await open("media", agent.threadId);
    await after.done;
    await check(after.page, after.agent);
    assert.deepEqual(made(after.agent), kinds);
  });

  for (const [graph, shortens] of Object.entries(SUMMARISED)) {
    test(`shows a conversation that is summarised on the way, live, on a reload and in the next turn: ${graph}`, async () => {
      const page = await load();
      const agent = page.agent(graph);
      const notices = ({ messages }) => messages.filter(({ activityType }) => activityType === "threadway.notice").map(({ content }) => content);
      const shown = ({ messages }) => messages.map(({ role, content }) => `${role}: ${JSON.stringify(content)}`);
      for (const words of ["one", "two", "three", "four"]) {
        await page.run(agent, `say ${words}`);
        const wire = await check(page, agent);
        assert.doesNotMatch(wire.filter(isText).map(({ delta }) => delta).join(""), SUMMARY_WORDS);
      }
      const after = await open(graph, agent.threadId);
      await after.done;
      await check(after.page, after.agent);
      assert.deepEqual(shown(after.agent), shown(agent));
      await after.page.run(after.agent, "say five");
      await check(after.page, after.agent);
      for (const each of [agent, after.agent]) {
        assert.deepEqual(notices(each).map(({ source }) => source), shortens ? ["summarization"] : []);
        assert.doesNotMatch(shown(each).filter((line) => !line.startsWith("activity")).join("\n"), SUMMARY_WORDS);
      }
    });
  }

  test("runs an agent with state, and changes the state", async () => {
    const page = await load();
    const agent = page.agent("counter");
    await page.run(agent, "go");
    await check(page, agent);
    agent.setState({ ...agent.state, count: 40 });
    await page.run(agent, "again");
    await check(page, agent);
    assert.equal(agent.state.count, 43);
  });

  test("executes its own tool, and continues", async () => {
    const page = await load();
    page.core.addContext({ description: "time", value: "noon" });
    page.core.addTool({ ...PAINT, handler: async ({ about }) => `a tree at ${about}` });
    const agent = page.agent("client_tools");
    await page.run(agent, "paint");
    await check(page, agent);
    assert.equal(agent.messages.at(-1).content, "The client says: a tree at noon");
    assert.equal((await runsOf(agent.threadId)).length, 2);
  });

  test("gets an error once", async () => {
    const page = await load();
    const agent = page.agent("failing");
    await page.run(agent, { error: "ValueError" });
    assert.deepEqual(page.errors, [`agent_run_error_event: ${reasonOf(server, "ValueError", "boom after 3 tokens")}`]);
    page.errors.length = 0;
    await check(page, agent);

    // A thread whose last run has failed can be read nevertheless.
    const later = await open("failing", agent.threadId);
    await later.done;
    await check(later.page, later.agent);
  });

  // The model, or its tools, are held at a place until the page is there again.
  for (const [what, graph, place, isSo] of [
    ["its text", "text", 5, isText],
    ["the model's reasoning", "agent", 1, isReasoning],
    ["a tool call's arguments", "agent", 10, isArguments],
    ["a tool's work", "agent", "tool", ({ type }) => type === "TOOL_CALL_END"],
  ]) {
    test(`is reloaded in the middle of ${what}`, async () => {
      const gate = await Gate.before(place);
      const before = await underWay(graph, gate.script, isSo);
      before.page.leave(before.agent);
      await before.done;
      assert.deepEqual(before.page.errors, []);

      const after = await open(graph, before.agent.threadId);
      await reaches(after.agent, after.done, isStart);
      gate.open();
      await after.done;
      const wire = await check(after.page, after.agent);
      const [run, ...none] = await runsOf(before.agent.threadId);
      assert.deepEqual([run.status, none], ["success", []], "a disconnect stops no run, and a connect starts none");
      assert.equal(wire[0].runId, before.agent.events[0].runId, "it is the run that the first page has started");
      assert.ok(wire.some(isText), "it was followed while it went on");
      assert.equal(types(wire).filter((type) => type === "RUN_STARTED").length, 1);
      assert.equal(ends(wire).length, 1);

      // The thread can be continued.
      await after.page.run(after.agent, { tokens: 2 });
      await check(after.page, after.agent);
    });
  }

  for (const [what, place, content, isSo] of [
    ["a thought", 1, {}, isReasoning],
    ["a tool call's arguments", 10, {}, isArguments],
    ["its text", 5, { tools: false }, isText],
  ]) {
    test(`connects again in the middle of ${what}, and holds half of the content`, async () => {
      // The client keeps its content of a thread that it has connected to before.
      const { page, agent, done: connected } = await open("agent", randomUUID());
      await connected;
      const gate = await Gate.before(place);
      const done = page.run(agent, { ...content, ...gate.script });
      await reaches(agent, done, isSo);
      const held = structuredClone(agent.messages);
      const starts = agent.events.filter(isStart).length;
      const connecting = page.core.connectAgent({ agent });
      await until(() => agent.events.filter(isStart).length > starts, ANSWER_MS, "the run, again");
      gate.open();
      await connecting;
      await done;
      const wire = await check(page, agent);
      const input = sentLast(page);
      assert.deepEqual(input.messages.map(({ id }) => id), held.map(({ id }) => id));
      assert.ok(held.length > 1, "it holds half a message");
      assert.ok(wire.some(isText), "it was followed while it went on");
    });
  }

  test("watches a run that another page has started, both to the end", async () => {
    const first = await underWay("agent", { delay: 0.05 }, isText);
    const second = await open("agent", first.agent.threadId);
    await Promise.all([first.done, second.done]);
    await check(first.page, first.agent);
    await check(second.page, second.agent);
    assert.equal((await runsOf(first.agent.threadId)).length, 1);
  });

  test("watches a run that no gateway has started", async () => {
    const { threadId, runId } = await background("text", asked(LONG));
    const { page, agent, done } = await open("text", threadId);
    await done;
    const wire = await check(page, agent);
    assert.equal(wire[0].runId, runId);
    assert.equal(agent.messages.length, 2);
  });

  test("waits for a pending run", { skip: without(server, "delay") }, async () => {
    const { threadId, runId } = await background("text", asked({ tokens: 4 }), { after_seconds: 2 });
    const { page, agent, done } = await open("text", threadId);
    await reaches(agent, done, ({ type, messages }) => type === "MESSAGES_SNAPSHOT" && messages[0]?.id === "h");
    assert.deepEqual((await runsOf(threadId)).map(({ status }) => status), ["pending"]);
    await done;
    const wire = await check(page, agent);
    assert.equal(wire[0].runId, runId);
    assert.ok(wire.some(isText), "it was followed while it went on");
  });

  test("stops a pending run", { skip: without(server, "delay") }, async () => {
    const { threadId } = await background("text", asked({ tokens: 4 }), { after_seconds: 60 });
    const { page, agent, done } = await open("text", threadId);
    await reaches(agent, done, ({ type }) => type === "MESSAGES_SNAPSHOT");
    page.core.stopAgent({ agent });
    await done;
    const wire = await check(page, agent);
    assert.deepEqual(ends(wire).map(({ type, code }) => [type, code]), [["RUN_ERROR", "abort"]]);
    assert.deepEqual(agent.messages, [], "the prompt is not in the thread");
  });

  test("opens an idle thread, twice", async () => {
    const first = await underWay("agent", { flavour: "v1" }, isEnd);
    await first.done;
    const { threadId } = first.agent;
    const { page, agent, done } = await open("agent", threadId);
    await done;
    const wire = await check(page, agent);
    const input = sentLast(page);
    assert.equal(wire[0].runId, input.runId);
    assert.deepEqual(types(ends(wire)), ["RUN_FINISHED"]);

    // The client holds all of it when it connects again.
    await page.core.connectAgent({ agent });
    await check(page, agent);

    await page.run(agent, { tools: false, tokens: 2 });
    await check(page, agent);
  });

  for (const threadId of [randomUUID(), `a thread / of ${randomUUID()}`]) {
    test(`opens a thread that does not exist yet: ${threadId.length > 36 ? "by a name" : "by an id"}`, async () => {
      const count = async () => {
        const response = await fetch(`${server.langgraph}/threads/search`, {
          method: "POST",
          headers: JSON_BODY,
          body: JSON.stringify({ metadata: { threadway_thread_id: threadId } }),
        });
        return (await response.json()).length;
      };
      const { page, agent, done } = await open("text", threadId);
      await done;
      assert.deepEqual([agent.messages, agent.state, page.errors], [[], {}, []]);
      assert.deepEqual(types(await page.wire()), ["RUN_STARTED", "RUN_FINISHED"]);
      assert.equal(await count(), 0);
      assert.deepEqual((await readThread(server, threadId).catch(() => ({ state: { values: {} } }))).state.values, {});

      await page.run(agent, { tokens: 2 });
      assert.equal(agent.messages.at(-1).content, "tok0 tok1 ");
      const again = await open("text", threadId);
      await again.done;
      same(ofClient(again.agent.messages), ofClient(agent.messages), "the messages of a page that connects later");
      assert.deepEqual([...page.errors, ...again.page.errors], []);
    });
  }

  for (const who of ["the page that started it", "a page that watches it"]) {
    test(`a run is stopped by ${who}, and all see it`, async () => {
      const gate = await Gate.before(5);
      const first = await underWay("text", gate.script, isText);
      const second = await open("text", first.agent.threadId);
      const third = await open("text", first.agent.threadId);
      // The text so far comes to them in a snapshot.
      await Promise.all([second, third].map(({ agent, done }) => reaches(agent, done, isStart)));
      const stopper = who.startsWith("the page") ? first : second;
      stopper.page.core.stopAgent({ agent: stopper.agent });
      await Promise.all([first, second, third].map(({ done }) => done));
      const stop = () => stopper.page.requests.find(({ line, sent }) => line.includes("/stop/") || sent?.method === "agent/stop");
      await until(stop, ANSWER_MS, "the answer to the stop");
      gate.open();
      const { sent, body } = stop();
      const scope = transport === "single" ? sent.body : sent;
      assert.deepEqual(scope, stopper === first ? { runId: first.agent.events[0].runId } : undefined);
      assert.equal(JSON.parse(await body).stopped, true);
      for (const { page, agent } of [first, second, third]) {
        const wire = await check(page, agent);
        assert.deepEqual(ends(wire).map(({ type, code }) => [type, code]), [["RUN_ERROR", "abort"]]);
      }
      const [{ status }] = await runsOf(first.agent.threadId);
      assert.equal(status, "interrupted");
    });
  }

  test("answers the interrupts of a thread that it has opened", async () => {
    const first = await underWay("interrupt_node", "go", isEnd);
    await first.done;
    await check(first.page, first.agent);
    const { page, agent, done } = await open("interrupt_node", first.agent.threadId);
    await done;
    await check(page, agent);
    assert.equal(agent.pendingInterrupts.length, 1);
    const [{ id }] = agent.pendingInterrupts;
    const resume = buildResumeArray(agent.pendingInterrupts, { [id]: { status: "resolved", payload: "yes" } });
    await page.run(agent, undefined, { resume });
    await check(page, agent);
    assert.deepEqual(agent.state.answers, ["prep", { ask: "yes" }, "fin"]);
  });

  test("approves the tool calls of a thread that it has opened", async () => {
    const first = await underWay("hitl", "go", isEnd);
    await first.done;
    const { page, agent, done } = await open("hitl", first.agent.threadId);
    await done;
    await check(page, agent);
    const pending = agent.pendingInterrupts;
    assert.equal(pending.length, 2);
    const approve = { status: "resolved", payload: { type: "approve" } };
    const resume = buildResumeArray(pending, Object.fromEntries(pending.map(({ id }) => [id, approve])));
    await page.run(agent, undefined, { resume });
    await check(page, agent);
    assert.equal(agent.messages.filter(({ role }) => role === "tool").length, 2);
  });

  test("asks the user again after a reload: the call of its own tool has no answer", async () => {
    const context = { description: "time", value: "noon" };
    const first = await load();
    first.core.addContext(context);
    // Nobody has answered in this page.
    first.core.addTool({ ...PAINT, type: "human-in-the-loop", handler: () => new Promise(() => {}) });
    const painter = first.agent("client_tools");
    const forever = first.run(painter, "paint");
    await reaches(painter, forever, isEnd);

    const page = await load();
    page.core.addContext(context);
    const agent = page.agent("client_tools", painter.threadId);
    page.core.addTool({ ...PAINT, type: "human-in-the-loop", handler: async () => "a tree" });
    await page.core.connectAgent({ agent });
    await until(() => !agent.isRunning && agent.messages.length === 4, ANSWER_MS, "the tool's answer and the agent's");
    await check(page, agent);
    assert.equal(agent.messages.at(-1).content, "The client says: a tree");
  });

  test("gets an error for an unknown agent", async () => {
    const page = await load();
    const agent = new ProxiedCopilotRuntimeAgent({
      runtimeUrl: page.core.runtimeUrl,
      transport: page.core.runtimeTransport,
      agentId: "nobody / here",
    });
    await page.run(agent, "hi");
    assert.ok(page.errors.length > 0);
    for (const error of page.errors) assert.match(error, /agent_run_failed.*: HTTP 404: .*unknown_agent/);
    assert.equal(page.core.runtimeConnectionStatus, "connected");
  });
}

describe("CopilotKit's client", { concurrency: 2 }, () => {
  for (const transport of ["auto", "single"]) {
    describe(`over its transport "${transport}"`, OPTIONS, () => onTransport(transport));
  }
});

test("no member was dropped, and every patch applied", () => {
  assert.deepEqual(warnings, []);
});
