// Runs agents of the gateway through the official client, records every byte and event, and reads threads directly from
// LangGraph.

import { randomUUID } from "node:crypto";
import * as client1 from "@ag-ui/client";
import * as schemas1 from "@ag-ui/core/schemas";
import * as client0 from "ag-ui-client-0";
import { SERVERS as STARTED } from "./servers.mjs";
import { withWaiting } from "./waiting.mjs";

/** The LangGraph servers that were started, each with the threadway in front of it. */
export const SERVERS = STARTED.filter(({ threadway }) => threadway);
if (SERVERS.length === 0) throw new Error("LANGGRAPH_URL and THREADWAY_URL are not set: start this with integration/run");

const { HttpAgent, verifyEvents, buildResumeArray } = client1;

/** The versions of the official client. The first declares AG-UI 1.0 in its requests, the second declares nothing. */
export const GENERATIONS = [
  { version: "1.0.0", HttpAgent, verifyEvents, buildResumeArray, EventSchemas: schemas1.EventSchemas },
  { version: "0.0.59", ...client0 },
];

/** Every response body of the clients, by its purpose. */
export const bodies = [];

/** The class of the clients of one version that run the agents of one server. */
export function clientOf(server, generation) {
  /** A client of one thread, which keeps the body of its last response. */
  return class Client extends generation.HttpAgent {
    constructor(graph, { threadId = randomUUID(), state } = {}) {
      super({
        url: `${server.threadway}/agui/agent/${graph}/run`,
        threadId,
        initialState: state,
        fetch: async (url, init) => {
          const response = await fetch(url, init);
          this.response = response;
          this.body = response.clone().text();
          this.body.catch(() => {}); // a client that disconnects has no whole body
          return response;
        },
      });
      Object.assign(this, { graph, server, generation });
    }

    say(content) {
      const message = { id: randomUUID(), role: "user", content: typeof content === "string" ? content : JSON.stringify(content) };
      this.addMessage(message);
      return message.id;
    }

    /** Runs once; returns the client's content before, the bytes, the events for subscribers, and the client's error, if any. */
    async record({ runId = randomUUID(), onEvent, ...parameters } = {}) {
      const sent = { messages: structuredClone(this.messages), state: structuredClone(this.state) };
      const before = await readThread(server, this.threadId);
      const events = [];
      const seen = ({ event }) => {
        events.push(structuredClone(event));
        onEvent?.(event);
      };
      const refused = await this.runAgent({ runId, ...parameters }, { onEvent: seen }).then(() => undefined, (error) => error);
      const body = (await this.body) ?? "";
      bodies.push({ name: `${server.name}, ${this.graph}, ${generation.version}`, agent: this.graph, body });
      const after = await readThread(server, this.threadId);
      return { runId, sent, before, events, refused, body, wire: frames(body), after };
    }
  };
}

/** Lets LangGraph cancel a run. */
export async function cancel(server, threadId, runId) {
  const response = await fetch(`${server.langgraph}/threads/${threadId}/runs/${runId}/cancel`, { method: "POST" });
  if (!response.ok) throw new Error(`POST cancel: ${response.status} ${await response.text()}`);
}

/** The `data` of each frame of an SSE body, as text. */
function frames(body) {
  return body
    .split("\n\n")
    .map((frame) => frame.split("\n").filter((line) => line.startsWith("data:")))
    .filter((lines) => lines.length > 0)
    .map((lines) => lines.map((line) => line.slice(5).replace(/^ /, "")).join("\n"));
}

/** A thread and its state with what agents below it hold while they wait, and the root's state as text; a thread that does not exist has no values. */
export async function readThread(server, threadId) {
  const [thread, state] = await Promise.all([get(server, `/threads/${threadId}`), get(server, `/threads/${threadId}/state`)]);
  return { thread: JSON.parse(thread), state: await withWaiting(server.langgraph, threadId, JSON.parse(state)), text: state };
}

async function get(server, path) {
  // On a connection of its own: the server may be closing a reused one at this moment, which is no fault.
  const response = await fetch(server.langgraph + path, { headers: { connection: "close" } });
  if (response.status === 404) return '{"values":{},"tasks":[]}';
  if (!response.ok) throw new Error(`GET ${path}: ${response.status} ${await response.text()}`);
  return response.text();
}
