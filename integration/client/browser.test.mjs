// Follows a thread in a real browser: a plain `EventSource` in headless Chromium, over every run of the thread,
// through threadway before the real Python server; what it was told, reduced by the official client, against LangGraph's thread.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";
import { clientOf, GENERATIONS, readThread, SERVERS } from "./gateway.mjs";
import { reduce } from "./reducer.mjs";
import { firstDifference, ofClient, ofThread, stateOf } from "./thread.mjs";

const [server] = SERVERS;
const Client = clientOf(server, GENERATIONS[0]);
const JSON_BODY = { "content-type": "application/json" };
const TERMINAL = ["RUN_FINISHED", "RUN_ERROR"];
const PAGE = "<!doctype html><title>a thread</title>";
const TOLD_MS = 30_000; // a run of two seconds, on a busy machine
const OPTIONS = { timeout: 120_000 };
const FLAGS = [
  "--no-sandbox", // it is root in a container
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

let browser, profile, origin, proxy;
const toThreadway = new Set(); // the proxy's connections

before(async () => {
  if (!process.env.CHROMIUM) throw new Error("CHROMIUM names no browser: start this with integration/run browser");
  proxy = await servePage();
  origin = `http://127.0.0.1:${proxy.address().port}`;
  profile = await mkdtemp(join(tmpdir(), "threadway-chromium-"));
  browser = await chromium.launchPersistentContext(profile, { executablePath: process.env.CHROMIUM, headless: true, args: FLAGS });
}, OPTIONS);

after(async () => {
  await browser?.close();
  proxy?.closeAllConnections();
  proxy?.close();
  if (profile) await rm(profile, { recursive: true, force: true });
});

/** The page's own server. It passes `/agui` on to threadway as it comes: another origin would have to allow the page. */
async function servePage() {
  const { hostname, port } = new URL(server.threadway);
  const listener = createServer((incoming, outgoing) => {
    if (!incoming.url.startsWith("/agui/")) {
      outgoing.writeHead(200, { "content-type": "text/html" }).end(PAGE);
      return;
    }
    const { method, url: path, headers } = incoming;
    const passed = request({ hostname, port, method, path, headers, agent: false }, (answer) => {
      outgoing.writeHead(answer.statusCode, answer.headers);
      answer.pipe(outgoing);
    });
    toThreadway.add(outgoing);
    outgoing.on("close", () => {
      toThreadway.delete(outgoing);
      passed.destroy();
    });
    passed.on("error", () => outgoing.destroy());
    incoming.pipe(passed);
  });
  await new Promise((listening) => listener.listen(0, "127.0.0.1", listening));
  return listener;
}

/** A page that follows a thread, and what it was told: by connection, in order. */
class Follower {
  streams = [];
  errors = 0;
  waiting = new Set();

  static async open(graph, threadId) {
    const follower = new Follower();
    follower.page = await browser.newPage();
    await follower.page.exposeFunction("say", (what, data) => follower.hear(what, data));
    await follower.page.goto(origin);
    await follower.page.evaluate((path) => {
      globalThis.source = new EventSource(path);
      // One queue: the calls must not overtake one another.
      let said = Promise.resolve();
      const say = (what, data) => void (said = said.then(() => globalThis.say(what, data)));
      source.onopen = () => say("open");
      source.onerror = () => say(source.readyState === EventSource.CLOSED ? "closed" : "error");
      source.onmessage = ({ data }) => say("event", data);
    }, `/agui/agent/${graph}/threads/${encodeURIComponent(threadId)}/events?follow=thread`);
    return follower;
  }

  hear(what, data) {
    if (what === "open") this.streams.push([]);
    if (what === "error") this.errors += 1;
    if (what === "closed") this.closed = true;
    if (what === "event") this.streams.at(-1).push(JSON.parse(data));
    for (const check of this.waiting) check();
  }

  /** Waits until the page has been told so. */
  async until(isSo, what) {
    let check, late;
    const told = new Promise((resolve, reject) => {
      const fail = (why) => {
        const streams = this.streams.map((stream) => stream.map((event) => `  ${JSON.stringify(event)}\n`).join(""));
        reject(new Error(`the page was not told of ${what}: ${why}; its events were:\n${streams.join("  -- connected again\n")}`));
      };
      check = () => (isSo(this) ? resolve() : this.closed && fail("its EventSource has given up"));
      late = setTimeout(() => fail(`not within ${TOLD_MS} ms`), TOLD_MS);
    });
    this.waiting.add(check);
    check();
    await told.finally(() => {
      this.waiting.delete(check);
      clearTimeout(late);
    });
  }

  /** Waits until it has been told the end of a run. */
  async ended(runId) {
    await this.until(({ streams }) => runsOf(streams.at(-1)).some((run) => run.runId === runId && run.end), `the end of run ${runId}`);
  }

  get readyState() {
    return this.page.evaluate(() => source.readyState);
  }
}

/** The runs of a stream: the id that each begins with, and its terminal event. */
function runsOf(events) {
  const runs = [];
  for (const event of events) {
    if (event.type === "RUN_STARTED") runs.push({ runId: event.runId });
    if (TERMINAL.includes(event.type)) runs.at(-1).end = event.type === "RUN_ERROR" ? "error" : event.outcome?.type;
  }
  return runs;
}

/** What a client holds that was told this is what LangGraph's thread holds, and no text was told twice. */
async function check(events, threadId) {
  const { messages, state, error } = await reduce({ messages: [], state: {}, events });
  const { state: thread } = await readThread(server, threadId);
  assert.equal(error, null);
  same(ofClient(messages), ofThread(thread.values, threadId), "the page's messages against the thread's");
  same(state, stateOf(thread.values), "the page's state against the thread's");
  for (const { id, role, content } of messages.filter(({ role }) => role === "assistant")) {
    const of = (type) => events.filter((event) => event.type === type && event.messageId === id);
    assert.ok(of("TEXT_MESSAGE_START").length <= 1, `${role} message ${id} begins once`);
    const streamed = of("TEXT_MESSAGE_CONTENT").map(({ delta }) => delta).join("");
    assert.ok((content ?? "").endsWith(streamed), `${id} was told as ${JSON.stringify(streamed)}, and is ${JSON.stringify(content)}`);
  }
}

function same(actual, expected, what) {
  const difference = firstDifference(actual, expected);
  if (difference) assert.fail(`${what}: ${difference}`);
}

async function post(path, body) {
  const response = await fetch(server.langgraph + path, { method: "POST", headers: JSON_BODY, body: JSON.stringify(body) });
  assert.ok(response.ok, `POST ${path}: ${response.status} ${await response.clone().text()}`);
  return response.json();
}

/** Have LangGraph itself run the agent, as a cron job or another service does; the run's id. */
async function background(threadId, words, options) {
  const message = { type: "human", id: randomUUID(), content: JSON.stringify(words) };
  const run = { assistant_id: "agent", input: { messages: [message] }, if_not_exists: "create", ...options };
  return (await post(`/threads/${threadId}/runs`, run)).run_id;
}

test("a page follows a thread over three runs, whoever starts them, and what changes without one", OPTIONS, async () => {
  const threadId = randomUUID();
  const follower = await Follower.open("agent", threadId);
  await follower.until(({ streams: [stream] }) => stream?.length, "the thread as it is");

  const first = await background(threadId, { flavour: "v1" }, { stream_mode: ["values"], stream_resumable: true });
  await follower.ended(first);
  const client = new Client("agent", { threadId });
  client.say({ flavour: "string" });
  const second = randomUUID();
  await client.runAgent({ runId: second });
  await follower.ended(second);
  const third = await background(threadId, { delay: 0.05 }, { stream_mode: ["updates"], stream_resumable: false });
  await follower.ended(third);

  const [events] = follower.streams;
  const told = runsOf(events);
  assert.deepEqual(told.slice(1), [first, second, third].map((runId) => ({ runId, end: "success" })));
  assert.deepEqual(told[0], { runId: `connect-${threadId}`, end: "success" }, "there was no thread yet");
  await check(events, threadId);
  assert.ok(events.filter(({ type }) => type === "TEXT_MESSAGE_CONTENT").length > 10, "it was told as it went on");

  const note = { type: "ai", id: randomUUID(), content: "what a person has put there" };
  const { checkpoint } = await post(`/threads/${threadId}/state`, { values: { messages: [note] } });
  await follower.ended(`connect-${checkpoint.checkpoint_id}`);
  await check(events, threadId);

  assert.equal(await follower.readyState, 1, "it is still open");
  assert.deepEqual([follower.streams.length, follower.errors], [1, 0]);
  await follower.page.close();
});

test("a page whose connection breaks in the middle of a run comes back by itself, and holds the thread", OPTIONS, async () => {
  const threadId = randomUUID();
  const follower = await Follower.open("agent", threadId);
  await follower.until(({ streams: [stream] }) => stream?.length, "the thread as it is");
  const runId = await background(threadId, { tokens: 200, delay: 0.05 }, { stream_resumable: true });
  await follower.until(({ streams: [stream] }) => stream.some(({ type }) => type === "TEXT_MESSAGE_CONTENT"), "the run's text");
  for (const connection of toThreadway) connection.destroy();
  await follower.until(({ streams }) => streams.length === 2, "its new connection");
  await follower.ended(runId);

  const [, events] = follower.streams;
  assert.deepEqual(runsOf(events), [{ runId, end: "success" }]);
  await check(events, threadId);
  assert.equal(await follower.readyState, 1, "it is still open");
  assert.equal(follower.errors, 1);
  await follower.page.close();
});
