// Feeds recorded AG-UI event lists through the official client; returns its final messages and state.
//
// stdin:  one JSON object per line, {"name", "messages", "state", "events"}
// stdout: one JSON object per line, {"name", "messages", "state", "error"}

import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { AbstractAgent } from "@ag-ui/client";
import { from } from "rxjs";

/** The official client's whole pipeline (boundary, enforcement, chunks, verifyEvents, apply) for a list of events. */
class ListAgent extends AbstractAgent {
  constructor(config, events) {
    super(config);
    this.events = events;
  }

  run() {
    return from(this.events);
  }
}

/** The client's content after the stream; `error` says why the client refused the stream, or is null. */
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

/** Drops the client's warnings about odd streams: a thousand of them would hide the result. */
export function silence() {
  console.warn = console.error = () => {};
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  silence();
  for await (const line of createInterface({ input: process.stdin })) {
    if (line) process.stdout.write(`${JSON.stringify(await reduce(JSON.parse(line)))}\n`);
  }
}
