// Runs agents of the gateway through the official client, records every byte and event, and reads threads straight from LangGraph.

import { randomUUID } from "node:crypto";
import { HttpAgent } from "@ag-ui/client";

const { LANGGRAPH_URL, THREADWAY_URL } = process.env;
if (!LANGGRAPH_URL || !THREADWAY_URL) throw new Error("LANGGRAPH_URL and THREADWAY_URL are not set: start this with integration/run");

/** A client of one thread, which keeps the body of its last response. */
export class Client extends HttpAgent {
  constructor(graph, { threadId = randomUUID(), state } = {}) {
    super({
      url: `${THREADWAY_URL}/agui/agent/${graph}/run`,
      threadId,
      initialState: state,
      fetch: async (url, init) => {
        const response = await fetch(url, init);
        this.response = response;
        this.body = response.clone().text();
        this.body.catch(() => {}); // a client that leaves has no whole body
        return response;
      },
    });
  }

  say(content) {
    const message = { id: randomUUID(), role: "user", content: typeof content === "string" ? content : JSON.stringify(content) };
    this.addMessage(message);
    return message.id;
  }

  /** Run once: what the client held before, what was on the wire, what subscribers saw, why the client refused it if it did. */
  async record({ runId = randomUUID(), resume } = {}) {
    const sent = { messages: structuredClone(this.messages), state: structuredClone(this.state) };
    const before = await readThread(this.threadId);
    const events = [];
    const seen = ({ event }) => void events.push(structuredClone(event));
    const refused = await this.runAgent({ runId, resume }, { onEvent: seen }).then(() => undefined, (error) => error);
    const body = (await this.body) ?? "";
    return { runId, sent, before, events, refused, body, wire: frames(body), after: await readThread(this.threadId) };
  }
}

/** The `data` of each frame of an SSE body, as text. */
function frames(body) {
  return body
    .split("\n\n")
    .map((frame) => frame.split("\n").filter((line) => line.startsWith("data:")))
    .filter((lines) => lines.length > 0)
    .map((lines) => lines.map((line) => line.slice(5).replace(/^ /, "")).join("\n"));
}

/** A thread and its state, also as text; a thread that does not exist has no values. */
export async function readThread(threadId) {
  const [thread, state] = await Promise.all([get(`/threads/${threadId}`), get(`/threads/${threadId}/state`)]);
  return { thread: JSON.parse(thread), state: JSON.parse(state), text: state };
}

async function get(path) {
  const response = await fetch(LANGGRAPH_URL + path);
  if (response.status === 404) return '{"values":{},"tasks":[]}';
  if (!response.ok) throw new Error(`GET ${path}: ${response.status} ${await response.text()}`);
  return response.text();
}
