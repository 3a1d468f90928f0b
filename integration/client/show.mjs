// Runs one agent through the official client and prints the AG-UI events as they arrive, one a line.
//
// usage: node show.mjs [GRAPH [WORDS]]

import { randomUUID } from "node:crypto";
import { HttpAgent } from "@ag-ui/client";

const LINE = 120;
const [graph = "agent", words = "What is the weather in Paris?"] = process.argv.slice(2);
const agent = new HttpAgent({
  url: `${process.env.THREADWAY_URL ?? process.env.THREADWAY_JS_URL}/agui/agent/${graph}/run`,
  threadId: randomUUID(),
  initialMessages: [{ id: randomUUID(), role: "user", content: words }],
});

const begin = performance.now();
console.log(`POST ${agent.url}\n`);
try {
  await agent.runAgent({ runId: randomUUID() }, { onEvent: ({ event }) => console.log(lineOf(event)) });
} catch (failure) {
  console.error(failure.message);
  process.exit(1);
}
console.log("\nThe client's messages:");
for (const { role, content, toolCalls = [] } of agent.messages) {
  const calls = toolCalls.map((call) => `${call.function.name}(${call.function.arguments})`);
  console.log(`  ${role.padEnd(10)} ${[content, ...calls].filter(Boolean).join(" ")}`);
}
console.log(`The client's state:\n  ${JSON.stringify(agent.state)}`);

function lineOf({ type, ...rest }) {
  const seconds = ((performance.now() - begin) / 1000).toFixed(2).padStart(5);
  const details = Object.entries(rest).map(([key, value]) => `${key}=${JSON.stringify(value)}`);
  const line = `${seconds} s  ${type.padEnd(25)} ${details.join(" ")}`;
  return line.length > LINE ? `${line.slice(0, LINE - 1)}…` : line;
}
