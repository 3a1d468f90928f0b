// Prints the table of docs/client.md: what a person sees of an answer whose connection is cut once, at 20 places, with stock clients and
// with `threadway-client`.
//
// usage, in integration/: python3 servers.py --name live-table --python --live --copilot --examples --chromium node client/live-table.mjs

import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { GENERATIONS, SERVERS } from "./gateway.mjs";
import { chromium } from "playwright-core";
import { bundled, packageWith, PACKAGE } from "./packed.mjs";
import { Cutter } from "./proxy.mjs";
import { startThreadway } from "./threadway.mjs";

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
// assistant-ui in Chromium, with the packages of its example.
const PAGE = `
import { HttpAgent } from "@ag-ui/client";
import { AssistantRuntimeProvider } from "@assistant-ui/react";
import { useAgUiRuntime } from "@assistant-ui/react-ag-ui";
import { createElement } from "react";
import { createRoot } from "react-dom/client";
import { ThreadwayAgent } from "threadway-client";

function Chat({ agent }) {
  globalThis.runtime = useAgUiRuntime({ agent });
  return createElement(AssistantRuntimeProvider, { runtime }, null);
}
globalThis.open = ({ gateway, threadId, isKept }) => {
  const agent = new (isKept ? ThreadwayAgent : HttpAgent)({ url: gateway + "/agui/agent/agent/run", threadId });
  createRoot(document.body).render(createElement(Chat, { agent }));
};
globalThis.say = (text) => runtime.thread.append({ role: "user", content: [{ type: "text", text }] });
globalThis.shown = () => runtime.thread.getState().messages.filter(({ role }) => role === "assistant");
globalThis.rests = () => !runtime.thread.getState().isRunning && shown().length > 0 && shown().at(-1).status.type !== "running";
`;
const script = bundled(PAGE, `${process.env.EXAMPLES}/assistant-ui`);
const pages = createServer(({ url }, response) => {
  response.writeHead(200, { "content-type": url === "/page.js" ? "text/javascript" : "text/html" });
  response.end(url === "/page.js" ? script : '<!doctype html><body></body><script type="module" src="/page.js"></script>');
});
await new Promise((listening) => pages.listen(0, "127.0.0.1", listening));
const origin = `http://localhost:${pages.address().port}`;
const open = await startThreadway("live-table", server.langgraph, "--cors-origins", origin);
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, headless: true, args: ["--no-sandbox", "--disable-gpu"] });
const assistantUi = (isKept) => async (gateway, threadId) => {
  const page = await browser.newPage();
  await page.goto(origin);
  await page.waitForFunction(() => globalThis.open);
  await page.evaluate((what) => globalThis.open(what), { gateway, threadId, isKept });
  await page.waitForFunction(() => globalThis.runtime);
  await page.evaluate((text) => void globalThis.say(text), SCRIPT);
  await page.waitForFunction(() => globalThis.rests());
  const messages = await page.evaluate(() => globalThis.shown().map(({ content, status }) => ({ text: content.map(({ text }) => text ?? "").join(""), status })));
  await page.close();
  const { status } = messages.at(-1);
  const error = status.type === "incomplete" ? String(status.error ?? status.reason) : undefined;
  return { agent: { messages: messages.map(({ text }) => ({ role: "assistant", content: text })) }, error };
};
const CLIENTS = {
  "`HttpAgent` 1.0.0": agentOf(GENERATIONS[0].HttpAgent),
  "`HttpAgent` 0.0.59": agentOf(GENERATIONS[1].HttpAgent),
  "CopilotKit 1.75": copilotWith(false),
  "assistant-ui": assistantUi(false),
  "`ThreadwayAgent` on 1.0.0": agentOf((await packageWith("1.0.0")).ThreadwayAgent),
  "`ThreadwayAgent` on 0.0.59": agentOf((await packageWith("0.0.59")).ThreadwayAgent),
  "CopilotKit 1.75 with `threadway-client`": copilotWith(true),
  "assistant-ui with `threadway-client`": assistantUi(true),
};

const wordsIn = (messages) => new Set(messages.filter(({ role }) => role === "assistant").flatMap(({ content }) => (content ?? "").match(/tok\d+/g) ?? [])).size;

/** Where the stream begins on a connection that may have had other answers before: the head of its answer. */
const streamIn = (text) => text.indexOf("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream");

/** One answer, cut at this byte of its stream. */
async function play(client, byte) {
  const cutter = await Cutter.start(open.url); // pages of other origins may call it
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
await browser.close();
await open.stop();
process.exit(0);
