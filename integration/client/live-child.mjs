// An agent in a process of its own, which the tests pause. Prints each word as it arrives, and then what it has.

import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [modules, gateway, threadId, script] = process.argv.slice(2);
const { ThreadwayAgent } = await import(pathToFileURL(join(modules, "threadway-client", "dist", "index.js")));

const agent = new ThreadwayAgent({ url: `${gateway}/agui/agent/agent/run`, threadId });
agent.addMessage({ id: randomUUID(), role: "user", content: script });
await agent.runAgent({}, { onTextMessageContentEvent: ({ event }) => void process.stdout.write(`${event.delta}\n`) });
const { messages, state } = agent;
process.stdout.write(`${JSON.stringify({ messages, state })}\n`);
