// LangGraph's own API, for clients that do not use a gateway.

import { randomUUID } from "node:crypto";
import { exact } from "./thread.mjs";
import { withWaiting } from "./waiting.mjs";

const POLL_MS = 60;
const RUN_MS = 90_000; // a run that has not ended by then does not end
const ALIVE = ["pending", "running"];
const ONLY_PYTHON = ["deep", "asking_deep", "talk_deep"];

/** Whether a server has this graph. LANGGRAPH_WITHOUT names the graphs that an older Python server cannot load. */
export function isServed({ graphs }, graph) {
  const lacking = (process.env.LANGGRAPH_WITHOUT ?? "").split(",");
  return !(graphs === "Python" ? lacking : ONLY_PYTHON).includes(graph);
}

/** The nodes in whose name a state is written so that the graph has nothing left to do. */
const LAST_NODES = {
  Python: { agent: "model", asking_tool: "model", asking_two: "model", hitl: "HumanInTheLoopMiddleware.after_model" },
  JavaScript: { agent: "model_request", asking_tool: "model_request", asking_two: "model_request", hitl: "HumanInTheLoopMiddleware.after_model" },
};
const LAST_NODE = { text: "model", counter: "finish", failing: "model", subgraphs: "child", asking_node: "sign", interrupt_child: "child", parallel: "left" };

export class Langgraph {
  constructor(server) {
    this.server = server;
    this.url = server.langgraph;
  }

  async send(method, path, body) {
    // On a connection of its own: the server may be closing a reused one at this moment, which is no fault.
    const headers = { connection: "close", ...(body === undefined ? {} : { "content-type": "application/json" }) };
    const response = await fetch(this.url + path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text;
  }

  async get(path) {
    return JSON.parse(await this.send("GET", path));
  }

  async post(path, body) {
    const text = await this.send("POST", path, body);
    return text && JSON.parse(text);
  }

  /** A new thread; `said` is a message that a scheduler has written before any run. */
  async thread(graph, { said } = {}) {
    const threadId = randomUUID();
    const [assistant] = await this.post("/assistants/search", { graph_id: graph, limit: 1 });
    const metadata = { graph_id: graph, assistant_id: assistant.assistant_id }; // LangGraph reads a state with the reducers of the thread's graph
    await this.post("/threads", { thread_id: threadId, metadata });
    if (said) await this.update(threadId, graph, { messages: said });
    return threadId;
  }

  /** Changes a thread's state without a run. */
  update(threadId, graph, values) {
    const node = LAST_NODES[this.server.graphs][graph] ?? LAST_NODE[graph];
    return this.post(`/threads/${threadId}/state`, { values, as_node: node });
  }

  /** Starts a run in the background, after the thread's others. */
  run(threadId, graph, script, options) {
    return this.post(`/threads/${threadId}/runs`, { ...runOf(graph, script), multitask_strategy: "enqueue", ...options });
  }

  record(threadId, runId) {
    return this.get(`/threads/${threadId}/runs/${runId}`);
  }

  cancel(threadId, runId) {
    return this.post(`/threads/${threadId}/runs/${runId}/cancel`, {});
  }

  /** Waits until a run has another status; returns the last moment with one of `statuses`, and the record. */
  async past(threadId, runId, statuses) {
    const end = performance.now() + RUN_MS;
    for (let last = performance.now(); ; ) {
      const asked = performance.now();
      const record = await this.record(threadId, runId);
      if (!statuses.includes(record.status)) return { last, record };
      if (asked > end) throw new Error(`run ${runId} is still ${record.status}`);
      last = asked;
      await new Promise((wake) => setTimeout(wake, POLL_MS));
    }
  }

  started(threadId, runId) {
    return this.past(threadId, runId, ["pending"]);
  }

  ended(threadId, runId) {
    return this.past(threadId, runId, ALIVE);
  }

  /** Waits until a thread is idle: a cancelled run continues for a moment after its record says that it has ended. */
  async settled(threadId) {
    const end = performance.now() + RUN_MS;
    while ((await this.get(`/threads/${threadId}`)).status === "busy") {
      if (performance.now() > end) throw new Error(`thread ${threadId} is still busy`);
      await new Promise((wake) => setTimeout(wake, POLL_MS));
    }
  }

  /**
   * All checkpoints of a thread, the newest first, each also with its numbers as they are written. The newest is the
   * thread's state, which alone has the writes of tasks that were done when their run was cancelled, with what the agents
   * below it hold while they wait.
   */
  async history(threadId) {
    const read = async (path) => {
      const text = await this.send("GET", `/threads/${threadId}${path}`);
      return [JSON.parse(text), exact(text)];
    };
    const [[history, literals], [state, literal]] = await Promise.all([read("/history?limit=1000"), read("/state")]);
    const checkpoints = history.map((checkpoint, at) => ({ ...checkpoint, literal: literals[at].values }));
    const { values } = await withWaiting(this.url, threadId, state);
    if (checkpoints.length > 0) Object.assign(checkpoints[0], { values, literal: literal.values });
    return checkpoints;
  }
}

/** The body of a run whose model follows `script`. */
export function runOf(graph, script) {
  const message = { role: "user", id: randomUUID(), content: JSON.stringify(script) };
  return { assistant_id: graph, input: { messages: [message] } };
}
