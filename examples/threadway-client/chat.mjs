// A chat in the terminal: each line is a message. It survives lost connections, and shows what others say on the thread.
import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";
import { ThreadwayAgent } from "threadway-client";

const [threadId = randomUUID()] = process.argv.slice(2);
const gateway = process.env.THREADWAY_URL ?? "http://127.0.0.1:8484";
const agent = new ThreadwayAgent({ url: `${gateway}/agui/agent/agent/run`, threadId });
agent.subscribe({
  onTextMessageStartEvent: ({ event }) => void process.stdout.write(`${event.role ?? "assistant"}: `),
  onTextMessageContentEvent: ({ event }) => void process.stdout.write(event.delta),
  onTextMessageEndEvent: () => console.log(),
  onRunErrorEvent: ({ event }) => console.log(`! ${event.code}: ${event.message}`),
});
agent.onStatus(({ state, reason }) => state === "reconnecting" && console.log(`\n(connecting again: ${reason})`));

console.log(`thread ${threadId}`);
const stopFollowing = agent.follow();
for await (const content of createInterface({ input: process.stdin })) {
  agent.addMessage({ id: randomUUID(), role: "user", content });
  await agent.runAgent();
}
stopFollowing();
