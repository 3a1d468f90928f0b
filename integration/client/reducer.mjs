// Feeds recorded AG-UI event lists through the official client and gives the messages and state that it ends with.
//
// stdin:  one JSON object per line, {"name", "messages", "state", "events"}
// stdout: one JSON object per line, {"name", "messages", "state", "error"}

import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { AbstractAgent } from "@ag-ui/client";
import { from } from "rxjs";

/** The official client's whole pipeline (boundary, enforcement, chunks, verifyEvents, apply) over a list of events. */
class ListAgent extends AbstractAgent {
  constructor(config, events) {
    super(config);
    this.events = events;
  }

  run() {
    return from(this.events);
  }
}

/** What the client holds after the stream; `error` is why it refused the stream, else null. */
export async function reduce({ name, messages, state, events }) {
  const agent = new ListAgent({ threadId: "reducer", initialMessages: messages, initialState: state }, events);
  let error = null;
  try {
    await agent.runAgent({ runId: "reducer" });
  } catch (refused) {
    error = String(refused?.message ?? refused);
  }
  return { name, messages: agent.messages, state: agent.state, error };
}

/** Drop what the client says about odd streams: a thousand of them would bury the result. */
export function silence() {
  console.warn = console.error = () => {};
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  silence();
  for await (const line of createInterface({ input: process.stdin })) {
    if (line) process.stdout.write(`${JSON.stringify(await reduce(JSON.parse(line)))}\n`);
  }
}
