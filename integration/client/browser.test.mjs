// Follows a thread in a real browser: a plain `EventSource` in headless Chromium, over every run of the thread and over
// connections that break, through threadway in front of the real Python server. The official client applies the events, and
// the result is compared with LangGraph's thread.

import assert from "node:assert/strict";
import { generateKeyPairSync, randomUUID, sign } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";
import { Gate } from "./gate.mjs";
import { clientOf, GENERATIONS, readThread, SERVERS } from "./gateway.mjs";
import { reduce } from "./reducer.mjs";
import { firstDifference, ofClient, ofThread, stateOf } from "./thread.mjs";
import { startThreadway } from "./threadway.mjs";

const [server] = SERVERS;
const Client = clientOf(server, GENERATIONS[0]);
const JSON_BODY = { "content-type": "application/json" };
const TERMINAL = ["RUN_FINISHED", "RUN_ERROR"];
const PAGE = "<!doctype html><title>a thread</title>";
const TOLD_MS = 90_000; // what has not come by then does not come
const OPTIONS = { timeout: 600_000 }; // what hangs is noticed sooner, by its own limit
const FLAGS = [
  "--no-sandbox", // Chromium may run as root in a container
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

// The bytes of a response after which it is cut. Two of these responses contain the events that the page missed.
const CUTS = [2_500, 1_001, 6_007];
const SPEECH = { tokens: 300, delay: 0.01 };
const JOINED_AT = 0; // the token before which a run waits until the page has its start: what comes later has ids of its own
const HELD_AT = 200; // the token before which a run waits until the page has reconnected

let browser, profile, origin, proxy;
let replicas = [server.threadway]; // the proxy sends its connections to these in turn
let cuts = []; // the cuts of the proxy's next responses
let taken = []; // the replica and the status of each response
let added = {}; // the headers that the proxy adds, since a page cannot set any on an `EventSource`
let latest; // the follower that was opened last
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

/** The page's own server. It forwards `/agui` to threadway unchanged, because another origin would need permission. */
async function servePage() {
  const listener = createServer((incoming, outgoing) => {
    if (!incoming.url.startsWith("/agui/")) {
      outgoing.writeHead(200, { "content-type": "text/html" }).end(PAGE);
      return;
    }
    const { method, url: path, headers } = incoming;
    const replica = replicas.shift();
    replicas.push(replica);
    const { hostname, port } = new URL(replica);
    const passed = request({ hostname, port, method, path, headers: { ...headers, ...added }, agent: false }, (answer) => {
      const at = taken.push({ replica, status: answer.statusCode }) - 1;
      outgoing.writeHead(answer.statusCode, answer.headers);
      let left = cuts.shift() ?? Infinity;
      answer.on("data", (bytes) => {
        if (left <= 0) return;
        if (bytes.length < left) outgoing.write(bytes);
        else outgoing.write(bytes.subarray(0, left), () => cut(outgoing, at));
        left -= bytes.length;
      });
      answer.on("end", () => left > 0 && outgoing.end());
      answer.on("error", () => outgoing.destroy());
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

/** Cuts a connection once the page has an event from it: a slow browser drops bytes that it has not read yet. */
async function cut(outgoing, connection) {
  await latest.until(({ streams }) => streams[connection]?.length, `anything by connection ${connection}`);
  outgoing.destroy();
}

/** A page that follows a thread, and the events that it got, by connection, in order. */
class Follower {
  streams = [];
  ids = []; // the last id after each event
  errors = 0;
  waiting = new Set();

  static async open(graph, threadId, query = "?follow=thread") {
    const follower = new Follower();
    latest = follower;
    follower.page = await browser.newPage();
    await follower.page.exposeFunction("say", (...words) => follower.hear(...words));
    await follower.page.goto(origin);
    await follower.page.evaluate((path) => {
      globalThis.source = new EventSource(path);
      // One queue keeps the calls in order.
      let said = Promise.resolve();
      const say = (...words) => void (said = said.then(() => globalThis.say(...words)));
      source.onopen = () => say("open");
      source.onerror = () => say(source.readyState === EventSource.CLOSED ? "closed" : "error");
      source.onmessage = ({ data, lastEventId }) => say("event", data, lastEventId);
    }, `/agui/agent/${graph}/threads/${encodeURIComponent(threadId)}/events${query}`);
    return follower;
  }

  hear(what, data, id) {
    if (what === "open") this.streams.push([]);
    if (what === "error") this.errors += 1;
    if (what === "closed") this.closed = true;
    if (what === "event") {
      this.streams.at(-1).push(JSON.parse(data));
      this.ids.push(id);
    }
    for (const check of this.waiting) check();
  }

  /** Waits until the page has these events. */
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

  /** Waits until the page has the start of a run. */
  async started(runId) {
    await this.until(({ streams }) => runsOf(streams.flat()).some((run) => run.runId === runId), `the start of run ${runId}`);
  }

  /** Waits until the page has the end of a run. */
  async ended(runId) {
    await this.until(({ streams }) => runsOf(streams.flat()).some((run) => run.runId === runId && run.end), `the end of run ${runId}`);
  }

  get readyState() {
    return this.page.evaluate(() => source.readyState);
  }
}

/** The runs of a stream: the id with which each begins, and its terminal event. */
function runsOf(events) {
  const runs = [];
  for (const event of events) {
    if (event.type === "RUN_STARTED") runs.push({ runId: event.runId });
    if (TERMINAL.includes(event.type)) runs.at(-1).end = event.type === "RUN_ERROR" ? "error" : event.outcome?.type;
  }
  return runs;
}

/** Checks that a client with these events holds LangGraph's thread, and got no text twice. */
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
    assert.ok((content ?? "").endsWith(streamed), `${id} was streamed as ${JSON.stringify(streamed)}, and is ${JSON.stringify(content)}`);
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

/** Lets LangGraph itself run the agent, as a cron job or another service does; returns the run's id. */
async function background(threadId, words, options) {
  const message = { type: "human", id: randomUUID(), content: JSON.stringify(words) };
  const run = { assistant_id: "agent", input: { messages: [message] }, if_not_exists: "create", ...options };
  return (await post(`/threads/${threadId}/runs`, run)).run_id;
}

test("a page follows a thread over three runs of any client, and over changes without a run", OPTIONS, async () => {
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
  assert.ok(events.filter(({ type }) => type === "TEXT_MESSAGE_CONTENT").length > 10, "the text was streamed");

  const note = { type: "ai", id: randomUUID(), content: "what a person has put there" };
  const { checkpoint } = await post(`/threads/${threadId}/state`, { values: { messages: [note] } });
  await follower.ended(`connect-${checkpoint.checkpoint_id}`);
  await check(events, threadId);

  assert.equal(await follower.readyState, 1, "it is still open");
  assert.deepEqual([follower.streams.length, follower.errors], [1, 0]);
  await follower.page.close();
});

test("a page whose connection breaks in the middle of a run reconnects by itself, and holds the thread", OPTIONS, async () => {
  const threadId = randomUUID();
  const follower = await Follower.open("agent", threadId);
  await follower.until(({ streams: [stream] }) => stream?.length, "the thread as it is");
  const gate = await Gate.before(JOINED_AT, HELD_AT);
  const runId = await background(threadId, { ...SPEECH, ...gate.script }, { stream_mode: ["values", "messages-tuple"], stream_resumable: true });
  await follower.started(runId);
  gate.open(JOINED_AT);
  const isToken = ({ type, delta }) => type === "TEXT_MESSAGE_CONTENT" && delta.startsWith("tok");
  await follower.until(({ streams: [stream] }) => stream.filter(isToken).length > 2, "the run's tokens");
  for (const connection of toThreadway) connection.destroy();
  await follower.until(({ streams }) => streams.length === 2, "its new connection");
  gate.open();
  await follower.ended(runId);

  const events = follower.streams.flat();
  assert.deepEqual(runsOf(events).slice(1), [{ runId, end: "success" }]);
  await check(events, threadId);
  assert.equal(await follower.readyState, 1, "it is still open");
  assert.equal(follower.errors, 1);
  await follower.page.close();
});

/** Checks that each response went to another replica than the one before. */
function alternated() {
  for (const [at, { replica }] of taken.entries()) assert.notEqual(replica, taken[at - 1]?.replica);
}

/** Checks that the events after the first `before` came over cut connections as one stream: each once, without a restart. */
function resumed(follower, before = 0) {
  const events = follower.streams.flat().slice(before);
  const [first, ...later] = events.map(({ type }) => type);
  assert.equal(first, "RUN_STARTED");
  assert.ok(!later.includes("RUN_STARTED"), "the client resumes, and does not start over");
  const streamed = follower.streams.slice(1).map(([event]) => event?.type);
  assert.ok(streamed.every((type) => type !== undefined), "each connection sent an event");
  const ids = follower.ids.slice(before).filter((id, at, all) => id && id !== all[at - 1]);
  assert.equal(new Set(ids).size, ids.length, "each id is sent once");
  const texts = events.flatMap(({ type }, at) => (type === "TEXT_MESSAGE_CONTENT" ? [follower.ids[before + at]] : []));
  assert.equal(new Set(texts).size, texts.length, "each text has an id of its own");
  assert.ok(texts.length > 100, `${texts.length} texts were streamed`);
}

test("a page that is cut three times, and served by another replica each time, holds the thread; after the end it does not reconnect", OPTIONS, async (t) => {
  const second = await startThreadway("second", server.langgraph);
  t.after(() => second.stop());
  const threadId = randomUUID();
  const gate = await Gate.before(HELD_AT);
  const runId = await background(threadId, { ...SPEECH, ...gate.script }, { stream_mode: ["values", "messages-tuple"], stream_resumable: true });
  [replicas, cuts, taken] = [[server.threadway, second.url], [...CUTS], []];
  const follower = await Follower.open("agent", threadId, "");
  await follower.until(({ streams }) => streams.length > CUTS.length, "its last connection");
  gate.open();
  await follower.until(({ streams }) => runsOf(streams.flat()).some(({ end }) => end), "the end of the run");
  await follower.until(({ closed }) => closed, "that there is no more");
  assert.equal(await follower.readyState, 2, "it stays away");

  assert.deepEqual(taken.map(({ status }) => status), [200, 200, 200, 200, 204]);
  alternated();
  const events = follower.streams.flat();
  assert.deepEqual(runsOf(events), [{ runId, end: "success" }]);
  resumed(follower);
  await check(events, threadId);
  await follower.page.close();
});

test("a page that follows a thread is cut three times in one run, and resumes after its last event, also over the next run", OPTIONS, async (t) => {
  const second = await startThreadway("second", server.langgraph);
  t.after(() => second.stop());
  const threadId = randomUUID();
  [replicas, cuts, taken] = [[server.threadway, second.url], [...CUTS], []];
  const follower = await Follower.open("agent", threadId);
  await follower.until(({ streams: [stream] }) => runsOf(stream ?? []).some(({ end }) => end), "the thread as it is");
  const before = follower.streams[0].length;
  const gate = await Gate.before(JOINED_AT, HELD_AT);
  const first = await background(threadId, { ...SPEECH, ...gate.script }, { stream_mode: ["values", "messages-tuple"], stream_resumable: true });
  await follower.started(first);
  gate.open(JOINED_AT);
  await follower.until(({ streams }) => streams.length > CUTS.length, "its last connection");
  gate.open();
  await follower.ended(first);
  resumed(follower, before);
  await check(follower.streams.flat(), threadId);
  const next = await background(threadId, { delay: 0.05 }, { stream_mode: ["values"], stream_resumable: true });
  await follower.ended(next);

  assert.deepEqual(taken.map(({ status }) => status), [200, 200, 200, 200]);
  alternated();
  const events = follower.streams.flat();
  assert.deepEqual(runsOf(events).slice(1), [first, next].map((runId) => ({ runId, end: "success" })));
  await check(events, threadId);
  assert.equal(await follower.readyState, 1, "it is still open");
  assert.equal(follower.errors, CUTS.length);
  await follower.page.close();
});

/** What can be away: LangGraph, which accepts one key, and the keys of an issuer. Each start has the same port. */
class Away {
  port = 0;

  constructor(key, keySet) {
    Object.assign(this, { key, keySet });
  }

  async start() {
    this.listener = createServer((incoming, outgoing) => {
      const { method, url: path, headers } = incoming;
      if (path === "/keys") return outgoing.end(JSON.stringify(this.keySet));
      if (this.key && headers["x-api-key"] !== this.key) return outgoing.writeHead(401, JSON_BODY).end('{"detail":"Unauthorized"}');
      const { hostname, port } = new URL(server.langgraph);
      const passed = request({ hostname, port, method, path, headers, agent: false }, (answer) => {
        outgoing.writeHead(answer.statusCode, answer.headers);
        answer.on("error", () => outgoing.destroy()).pipe(outgoing);
      });
      outgoing.on("close", () => passed.destroy());
      passed.on("error", () => outgoing.destroy());
      incoming.pipe(passed);
    });
    await new Promise((listening) => this.listener.listen(this.port, "127.0.0.1", listening));
    this.port = this.listener.address().port;
    this.url = `http://127.0.0.1:${this.port}`;
  }

  async stop() {
    const closed = new Promise((closed) => this.listener.close(closed));
    this.listener.closeAllConnections();
    await closed;
  }
}

/** A token of an issuer that has this key set. */
function issued() {
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  const text = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const claims = { iss: "issuer", aud: "threadway", sub: "ada", exp: Math.floor(Date.now() / 1000) + 3600 };
  const signed = `${text({ alg: "EdDSA", kid: "k" })}.${text(claims)}`;
  const token = `${signed}.${sign(null, Buffer.from(signed), privateKey).toString("base64url")}`;
  return { token, keySet: { keys: [{ ...publicKey.export({ format: "jwk" }), kid: "k", alg: "EdDSA", use: "sig" }] } };
}

const KEY = "0123456789abcdef";
const ISSUED = issued();
const MODES = {
  none: { headers: {}, options: () => [] },
  // On a non-loopback address nobody is admitted before LangGraph has refused an invented key.
  upstream: { headers: { "x-api-key": KEY }, key: KEY, host: "0.0.0.0", options: () => ["--auth-mode", "upstream"] },
  bearer: { headers: { authorization: `Bearer ${KEY}` }, options: () => ["--auth-mode", "bearer", "--auth-keys", `me=${KEY}`] },
  jwt: {
    headers: { authorization: `Bearer ${ISSUED.token}` },
    options: ({ url }) => ["--auth-mode", "jwt", "--auth-jwks", `${url}/keys`, "--auth-issuer", "issuer", "--auth-audience", "threadway"],
  },
};

for (const [mode, { headers, key, host = "127.0.0.1", options }] of Object.entries(MODES)) {
  test(`a page follows a thread on after the gateway and LangGraph have restarted together (auth.mode ${mode})`, OPTIONS, async (t) => {
    const away = new Away(key, ISSUED.keySet);
    await away.start();
    const start = (port) => startThreadway(`restarted-${mode}`, away.url, "--listen", `${host}:${port}`, ...options(away));
    let gateway = await start(0);
    t.after(async () => {
      added = {};
      replicas = [server.threadway];
      await gateway.stop();
      await away.stop();
    });
    const { port } = new URL(gateway.url);
    [replicas, cuts, taken, added] = [[`http://127.0.0.1:${port}`], [], [], headers];
    const threadId = randomUUID();
    const first = await background(threadId, { flavour: "v1" }, { stream_mode: ["values"], stream_resumable: true });
    const follower = await Follower.open("agent", threadId);
    await follower.until(({ streams }) => runsOf(streams.flat()).some(({ end }) => end), `the run ${first}`);

    await away.stop();
    await gateway.stop();
    const before = taken.length;
    gateway = await start(port);
    await follower.until(() => taken.length > before + 1, "two connections while LangGraph is away");
    await away.start();
    const second = await background(threadId, { flavour: "v1" }, { stream_mode: ["values"], stream_resumable: true });
    await fetch(`${server.langgraph}/threads/${threadId}/runs/${second}/join`).then((ended) => ended.text());
    const { id } = (await readThread(server, threadId)).state.values.messages.at(-1);
    // The page may have come back during the run, or after it.
    const isWhole = (events) => JSON.stringify(events).includes(id) && TERMINAL.includes(events.at(-1).type);
    await follower.until(({ streams }) => isWhole(streams.flat()), "the second run");

    assert.deepEqual([...new Set(taken.map(({ status }) => status))], [200]);
    assert.equal(await follower.readyState, 1, "it is still open");
    await check(follower.streams.flat(), threadId);
    await follower.page.close();
  });
}
