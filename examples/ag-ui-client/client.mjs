// Runs the agent, prints its texts and tool calls, and approves its requests.
import { randomUUID } from "node:crypto";
import { HttpAgent } from "@ag-ui/client";

const [words = "weather", threadId = randomUUID()] = process.argv.slice(2);
const gateway = process.env.THREADWAY_URL ?? "http://127.0.0.1:8484";
const agent = new HttpAgent({ url: `${gateway}/agui/agent/agent/run`, threadId });
const print = {
  onTextMessageContentEvent: ({ event }) => void process.stdout.write(event.delta),
  onToolCallEndEvent: ({ toolCallName, toolCallArgs }) => console.log(`\n> ${toolCallName} ${JSON.stringify(toolCallArgs)}`),
  onToolCallResultEvent: ({ event }) => console.log(`< ${event.content}`),
  onRunErrorEvent: ({ event }) => console.log(`\n! ${event.code}: ${event.message}`),
};

console.log(`thread ${threadId}`);
agent.addMessage({ id: randomUUID(), role: "user", content: words });
await agent.runAgent({}, print);
while (agent.pendingInterrupts.length > 0) {
  const resume = agent.pendingInterrupts.map(({ id }) => ({ interruptId: id, status: "resolved", payload: { approved: true } }));
  await agent.runAgent({ resume }, print);
}
