// Runs each of `examples/` by the commands of its README, in headless Chromium or in Node, before a real LangGraph server, as a new
// user does; what a page shows is what LangGraph's thread holds.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { LOGS } from "./logs.mjs";
import { commandsOf, Example, freePort, stopAll } from "./readme.mjs";

const OPTIONS = { timeout: 240_000 };
const SHOWN_MS = 30_000; // a run of five seconds, on a busy machine
const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"];
const JSON_BODY = { "content-type": "application/json" };
const README = { LANGGRAPH: "2024", THREADWAY: "8484", PAGE: "5173" }; // the ports that the READMEs name

let browser, langgraph;

before(async () => {
  if (!process.env.CHROMIUM) throw new Error("CHROMIUM names no browser: start this with integration/run examples");
  const port = await freePort();
  langgraph = `http://127.0.0.1:${port}`;
  const graph = await open("graph");
  // It is installed by another suite's lock file: this shows that what the README installs is there.
  await graph.run(graph.take(/pip install/));
  await graph.start(graph.take(/langgraph dev/), `${langgraph}/ok`, { LANGGRAPH_CLI_NO_ANALYTICS: "1", LANGSMITH_TRACING: "false" });
  const gateway = await graph.gateway();
  const threadId = randomUUID();
  const printed = await graph.run(graph.take(/^curl/, { "127.0.0.1:8484": gateway.slice("http://".length), '"t1"': `"${threadId}"` }));
  assert.match(printed, /21 degrees and sunny in Lisbon/);
  graph.isDone();
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM, headless: true, args: FLAGS });
}, OPTIONS);

after(async () => {
  await browser?.close();
  stopAll();
});

/** An example whose ports are free ones. */
async function open(name) {
  const page = await freePort();
  const example = await Example.open(name, { [README.LANGGRAPH]: new URL(langgraph).port, [README.PAGE]: page });
  return Object.assign(example, { page: `http://localhost:${page}` });
}

/** A page in Chromium, and what it and its console said. */
async function visit(url, name) {
  const page = await browser.newPage({ viewport: { width: 1000, height: 760 } });
  page.setDefaultTimeout(SHOWN_MS);
  page.said = [];
  page.on("console", (message) => message.type() === "error" && page.said.push(message.text()));
  page.on("pageerror", (error) => page.said.push(error.stack));
  page.photo = (title) => page.screenshot({ path: fileURLToPath(new URL(`${name}-${title}.png`, LOGS)) });
  await page.goto(url);
  return page;
}

// ---------------------------------------------------------------- what LangGraph has
async function get(path) {
  const response = await fetch(langgraph + path, { headers: { connection: "close" } });
  assert.ok(response.ok, `GET ${path}: ${response.status}`);
  return response.json();
}

const TOLD = { human: "user", ai: "assistant", tool: "tool" };

/** The texts of a thread, each with the role that a client knows. */
async function told(threadId, roles) {
  const { values } = await get(`/threads/${threadId}/state`);
  const messages = values.messages.map(({ type, content }) => ({ role: TOLD[type], text: content.trim() }));
  return messages.filter(({ role, text }) => text && roles.includes(role));
}

const runsOf = (threadId) => get(`/threads/${threadId}/runs`);

/** Waits until a page shows exactly the thread. */
async function shows(read, threadId, roles) {
  const deadline = performance.now() + SHOWN_MS;
  for (;;) {
    const [shown, expected] = [await read(), await told(threadId, roles)];
    try {
      assert.deepEqual(shown, expected);
      return;
    } catch (difference) {
      if (performance.now() > deadline) throw difference;
    }
    await new Promise((wake) => setTimeout(wake, 100));
  }
}

// ---------------------------------------------------------------- the examples
test("a README's commands are found, those of other languages are not", () => {
  const text = "1. A\n   ```sh\n   one \\\n     -d two\n   three\n   ```\n```python\nfour\n```\n```sh\nfive\n```\n";
  assert.deepEqual(commandsOf(text), ["one -d two", "three", "five"]);
});

describe("the examples", { concurrency: 2, ...OPTIONS }, () => {
  test("ag-ui-client runs the agent, and answers two approvals by their ids", OPTIONS, async () => {
    const example = await open("ag-ui-client");
    const environment = { THREADWAY_URL: await example.gateway() };
    const weather = await example.run(example.take(/^node/), environment);
    assert.match(weather, /^thread [0-9a-f-]{36}\nLet me look\. \n> get_weather \{"city":"Lisbon"\}\n< It is 21 degrees and sunny in Lisbon\.\n/);
    const approved = await example.run(example.take(/^node/), environment);
    assert.match(approved, /\n< Sent to ada@example\.org: .*\n< Deleted \/reports\/2019\.pdf\nDone: /s);
    const [threadId] = approved.match(/[0-9a-f-]{36}/);
    assert.equal((await runsOf(threadId)).length, 2, "one run that asks, one that answers both");
    const failed = await example.run(`node client.mjs fail`, environment);
    assert.match(failed, /This is the last that \n! RuntimeError: the script says that this run fails\n/);
    example.isDone();
  });

  test("event-source follows a thread, whoever runs it, and comes back", OPTIONS, async () => {
    const example = await open("event-source");
    const gateway = await example.gateway();
    await example.start(example.take(/http\.server/), example.page);
    const threadId = randomUUID();
    const page = await visit(`${example.page}/?thread=${threadId}&gateway=${gateway}`, "event-source");
    const status = page.getByRole("status");
    await status.getByText("at rest").waitFor();
    const running = example.run(example.take(/^curl/, { "http://127.0.0.1:8484": gateway, '"t1"': `"${threadId}"` }));
    await page.getByText("1 2 3 4 5").waitFor();
    await status.getByText("running").waitFor();
    await page.photo("running");
    await running;
    await status.getByText("at rest").waitFor();
    const read = () =>
      page.locator("article:not([hidden], [data-role=call])").evaluateAll((all) => all.map(({ dataset: { role }, textContent }) => ({ role, text: textContent.trim() })));
    await shows(read, threadId, ["user", "assistant", "tool"]);
    // A page that comes later is shown the same.
    await page.reload();
    await shows(read, threadId, ["user", "assistant", "tool"]);
    assert.deepEqual(page.said, []);
    await page.close();
    example.isDone();
  });
});
