// Prints the table of docs/client.md: what a person sees of an answer whose connection is cut once, at 20 places, with stock clients and
// with `threadway-client`.
//
// usage: integration/servers.py --name live-table --python --live --copilot node client/live-table.mjs

import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { GENERATIONS, SERVERS } from "./gateway.mjs";
import { packageWith, PACKAGE } from "./packed.mjs";
import { Cutter } from "./proxy.mjs";

const [server] = SERVERS;
const PLACES = 20;
const TOKENS = 100;
const SCRIPT = JSON.stringify({ tokens: TOKENS, delay: 0.02 });
const AT_A_TIME = 5;
const HEAD = 200; // bytes of a response's head

globalThis.window = {}; // without a window CopilotKit's client sends no request
console.error = () => {};
// The official client throws the reason of a cut once more, where nobody can catch it. A process ends by that.
let unhandled = 0;
process.on("unhandledRejection", () => (unhandled += 1));

const copilot = createRequire(new URL("../copilot/package.json", import.meta.url));
const { CopilotKitCore } = await import(pathToFileURL(copilot.resolve("@copilotkit/core")));
const { keepLive } = await import(pathToFileURL(`${PACKAGE}dist/keep.js`));

/** A client that sends one message; returns why it failed, if it says so. */
const agentOf = (Agent) => async (gateway, threadId) => {
  const agent = new Agent({ url: `${gateway}/agui/agent/agent/run`, threadId });
  agent.addMessage({ id: randomUUID(), role: "user", content: SCRIPT });
  const error = await agent.runAgent().then(() => undefined, ({ message }) => message);
  return { agent, error };
};
const copilotWith = (isKept) => async (gateway, threadId) => {
  const core = new CopilotKitCore({ runtimeUrl: `${gateway}/agui`, runtimeTransport: "rest" });
  let error;
  core.subscribe({ onError: (failure) => void (error = failure.error.message) });
  while (core.runtimeConnectionStatus !== "connected") await new Promise((wake) => setTimeout(wake, 20));
  const agent = core.getAgent("agent");
  agent.threadId = threadId;
  const kept = isKept && keepLive(agent, threadId, { connect: () => core.connectAgent({ agent }), onChange: () => {} });
  agent.addMessage({ id: randomUUID(), role: "user", content: SCRIPT });
  await core.runAgent({ agent });
  if (kept) kept.stop();
  return { agent, error };
};
const CLIENTS = {
  "`HttpAgent` 1.0.0": agentOf(GENERATIONS[0].HttpAgent),
  "`HttpAgent` 0.0.59": agentOf(GENERATIONS[1].HttpAgent),
  "CopilotKit 1.75": copilotWith(false),
  "`ThreadwayAgent` on 1.0.0": agentOf((await packageWith("1.0.0")).ThreadwayAgent),
  "`ThreadwayAgent` on 0.0.59": agentOf((await packageWith("0.0.59")).ThreadwayAgent),
  "CopilotKit 1.75 with `threadway-client`": copilotWith(true),
};

const wordsIn = (messages) => new Set(messages.filter(({ role }) => role === "assistant").flatMap(({ content }) => (content ?? "").match(/tok\d+/g) ?? [])).size;

/** Where the stream begins on a connection that may have had other answers before: the head of its answer. */
const streamIn = (text) => text.indexOf("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream");

/** One answer, cut at this byte of its stream. */
async function play(client, byte) {
  const cutter = await Cutter.start(server.threadway);
  const threadId = randomUUID();
  let isDone = false;
  const at = (text) => {
    const begin = streamIn(text);
    if (isDone || begin < 0 || text.length < begin + byte) return -1;
    isDone = true;
    return begin + byte;
  };
  const cut = { at };
  // CopilotKit requests the list of agents first.
  cutter.cuts.push(cut, cut, cut);
  const { agent, error } = await client(cutter.url, threadId);
  const seen = wordsIn(agent.messages);
  cutter.close();
  await new Promise((wake) => setTimeout(wake, 100));
  const runs = await (await fetch(`${server.langgraph}/threads/${threadId}/runs`, { headers: { connection: "close" } })).json();
  return { seen, error, isDone, runs: Array.isArray(runs) ? runs.length : 0, bytes: cutter.exchanges.at(-1)?.answered.length };
}

const whole = await play(CLIENTS["`HttpAgent` 1.0.0"], Infinity);
const places = Array.from({ length: PLACES }, (_, n) => Math.floor(HEAD + ((whole.bytes - HEAD) * (n + 0.5)) / PLACES));
const columns = Object.entries(CLIENTS);
const rows = places.map(() => []);
const rejections = [];
for (const [at, [, client]] of columns.entries()) {
  const before = unhandled;
  const left = [...places.keys()];
  const work = async () => {
    for (let n; (n = left.shift()) !== undefined; ) rows[n][at] = await play(client, places[n]);
  };
  await Promise.all(Array.from({ length: AT_A_TIME }, work));
  rejections.push(unhandled - before);
}
const cell = ({ seen, error, isDone, runs }) => `${seen}${error ? ", error" : ""}${isDone ? "" : ", uncut"}${runs === 1 ? "" : `, ${runs} runs`}`;
console.log(`${TOKENS} words, ${whole.bytes} bytes; seen uncut: ${whole.seen}`);
console.log(`| cut at | ${columns.map(([name]) => name).join(" | ")} |\n|---|${columns.map(() => "---").join("|")}|`);
for (const [n, row] of rows.entries()) console.log(`| ${Math.round(((n + 0.5) * 100) / PLACES)} % | ${row.map(cell).join(" | ")} |`);
const errors = columns.map(([name], at) => `${name}: ${rejections[at]} unhandled rejections; ${[...new Set(rows.map((row) => row[at].error))].join("; ")}`);
console.log(errors.join("\n"));
process.exit(0);
