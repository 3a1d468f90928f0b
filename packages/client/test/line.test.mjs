// Lines over a `fetch` that a test answers.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Line } from "../dist/line.js";
import { Live } from "../dist/live.js";
import { LIMITS } from "../dist/machine.js";

const FAST = { ...LIMITS, attempts: 3, delayMs: 1, maxDelayMs: 2 };
const frame = (id, event) => `id: ${id}\ndata: ${JSON.stringify(event)}\n\n`;
const START = frame("2a", { type: "RUN_STARTED", threadId: "t", runId: "r" });
const WORD = frame("2b", { type: "CUSTOM", name: "word" });
const END = frame("2c", { type: "RUN_FINISHED", threadId: "t", runId: "r" });
const POST = { method: "POST", body: "{}", headers: { "content-type": "application/json" } };

/** A stream that sends these texts, and then breaks, ends, or stays silent. */
function stream(texts, { how = "end", signal } = {}) {
  const encoder = new TextEncoder();
  const left = [...texts];
  const body = {
    start(controller) {
      signal?.addEventListener("abort", () => controller.error(signal.reason));
    },
    pull(controller) {
      if (left.length > 0) controller.enqueue(encoder.encode(left.shift()));
      else if (how === "end") controller.close();
      else if (how === "break") controller.error(new TypeError("network error"));
    },
  };
  return new Response(new ReadableStream(body, { highWaterMark: 0 }), { headers: { "content-type": "text/event-stream" } });
}

/** A `fetch` with these answers in order, and what it was asked: the last event ids and the tokens. */
function answering(...answers) {
  const asked = [];
  const fetch = async (url, { headers, signal }) => {
    asked.push({ id: headers.get("last-event-id"), token: headers.get("authorization") });
    return answers.shift()(signal);
  };
  return { fetch, asked };
}

const json = (status, body, headers) => () => new Response(JSON.stringify(body), { status, headers });

test("a cut response goes on with the next one, after the last whole event", async () => {
  const { fetch, asked } = answering(
    () => stream([START, WORD.slice(0, 20)], { how: "break" }),
    () => stream([WORD]),
    () => stream([END.slice(0, 9), END.slice(9)], { how: "silence" }),
  );
  const states = [];
  const live = new Live({ fetch, limits: FAST, onStatus: ({ state }) => void states.push(state) });
  const response = await live.fetch("http://gateway/run", POST);
  assert.equal(await response.text(), START + WORD + END);
  assert.deepEqual(asked.map(({ id }) => id), [null, "2a", "2b"]);
  assert.deepEqual(states, ["connecting", "open", "reconnecting", "open", "reconnecting", "open", "idle"]);
});

test("a POST that is repeated without an event names none, so that it starts no second run", async () => {
  const { fetch, asked } = answering(() => Promise.reject(new TypeError("fetch failed")), json(503, { error: "upstream_crowded" }), () => stream([START, END]));
  const live = new Live({ fetch, limits: FAST, onStatus: () => {} });
  await (await live.fetch("http://gateway/run", POST)).text();
  assert.deepEqual(asked.map(({ id }) => id), [null, "0.0", "0.0"]);
});

test("an answer to a question is sent again as it is: its `runId` may be that of the run that asks", async () => {
  const { fetch, asked } = answering(() => Promise.reject(new TypeError("fetch failed")), () => stream([START, END]));
  const live = new Live({ fetch, limits: FAST, onStatus: () => {} });
  const body = JSON.stringify({ messages: [{ content: 'say "resume": please' }], resume: [{ interruptId: "i", status: "resolved" }] });
  await (await live.fetch("http://gateway/run", { ...POST, body })).text();
  assert.deepEqual(asked.map(({ id }) => id), [null, null]);
  const said = answering(() => Promise.reject(new TypeError("fetch failed")), () => stream([START, END]));
  const other = new Live({ fetch: said.fetch, limits: FAST, onStatus: () => {} });
  await (await other.fetch("http://gateway/run", { ...POST, body: JSON.stringify({ messages: [{ content: 'say "resume": please' }] }) })).text();
  assert.deepEqual(said.asked.map(({ id }) => id), [null, "0.0"]);
});

test("a browser, which may send a POST again by itself, names none from the first request on, but to connect", async (t) => {
  const before = Object.getOwnPropertyDescriptor(globalThis, "navigator");
  Object.defineProperty(globalThis, "navigator", { value: { onLine: true }, configurable: true });
  t.after(() => (before ? Object.defineProperty(globalThis, "navigator", before) : delete globalThis.navigator));
  const { fetch, asked } = answering(() => stream([START, END]), () => stream([START, END]));
  const live = new Live({ fetch, limits: FAST, onStatus: () => {} });
  for (const operation of ["run", "connect"]) await (await live.fetch(`http://gateway/agui/agent/a/${operation}`, POST)).text();
  assert.deepEqual(asked.map(({ id }) => id), ["0.0", null]);
});

test("a refusal is thrown with its status and its body", async () => {
  const { fetch } = answering(json(409, { error: "thread_busy", message: "wait" }));
  const live = new Live({ fetch, limits: FAST, onStatus: () => {} });
  await assert.rejects(live.fetch("http://gateway/run", POST), { status: 409, payload: { error: "thread_busy", message: "wait" } });
});

test("a token is asked for each request, and again after a 401", async () => {
  const { fetch, asked } = answering(json(401, { error: "token_expired" }), () => stream([START], { how: "break" }), () => stream([END]));
  const live = new Live({ fetch, limits: FAST, token: async ({ isRefused }) => (isRefused ? "new" : "kept"), onStatus: () => {} });
  await (await live.fetch("http://gateway/run", POST)).text();
  assert.deepEqual(asked.map(({ token }) => token), ["Bearer kept", "Bearer new", "Bearer kept"]);
});

test("an abort is an error, and ends a pause", async () => {
  const { fetch } = answering(() => stream([START], { how: "break" }));
  const live = new Live({ fetch, limits: { ...FAST, delayMs: 60_000, maxDelayMs: 60_000 }, onStatus: ({ state }) => state === "reconnecting" && abort.abort() });
  const abort = new AbortController();
  const response = await live.fetch("http://gateway/run", { ...POST, signal: abort.signal });
  await assert.rejects(response.text(), { name: "AbortError" });
});

test("a line that is closed while its token is fetched sends nothing that is read", async () => {
  let give;
  const line = new Line({ limits: FAST, url: "", init: {}, endsWithRun: false, onStatus: () => {}, token: () => new Promise((resolve) => (give = resolve)), fetch: async (_, { signal }) => signal.throwIfAborted() });
  const opened = line.open();
  line.close();
  give("late");
  assert.equal(await opened, null);
});

test("a line that gave up is tried again when the browser is online again", async (t) => {
  const browser = new EventTarget();
  for (const name of ["addEventListener", "removeEventListener"]) {
    globalThis[name] = browser[name].bind(browser);
    t.after(() => delete globalThis[name]);
  }
  const away = () => Promise.reject(new TypeError("fetch failed"));
  const { fetch, asked } = answering(away, away, away, away);
  let returns = 0;
  const live = new Live({ fetch, limits: FAST, onStatus: () => {}, onReturn: () => (returns += 1) });
  await assert.rejects(live.fetch("http://gateway/run", POST), { name: "ConnectionLostError", attempts: 3 });
  assert.equal(asked.length, 4);
  for (let event = 0; event < 2; event++) browser.dispatchEvent(new Event("online"));
  assert.equal(returns, 1);
});

test("a connection that stays silent is no good one, however long it was open", async () => {
  const { fetch } = answering(...Array.from({ length: 4 }, () => (signal) => stream([], { how: "silence", signal })));
  const live = new Live({ fetch, limits: { ...FAST, silenceMs: 5 }, onStatus: () => {} });
  const response = await live.fetch("http://gateway/run", POST);
  await assert.rejects(response.text(), /nothing arrived for 5 ms/);
});

test("a follower gets runs one after the other, and pauses between them without an error", async () => {
  const { fetch, asked } = answering(
    (signal) => stream([START, WORD, END, START, WORD], { how: "silence", signal }),
    (signal) => stream([], { how: "silence", signal }),
  );
  const states = [];
  const live = new Live({ fetch, limits: FAST, onStatus: ({ state }) => void states.push(state) });
  const runs = [];
  let isUnderWay;
  const second = new Promise((resolve) => (isUnderWay = resolve));
  live.follow("http://gateway/events", {}, async ({ response }) => {
    const at = runs.push("") - 1;
    for await (const bytes of response.body) {
      runs[at] += new TextDecoder().decode(bytes);
      if (runs[1] === START + WORD) isUnderWay();
    }
  });
  await second;
  await live.pause();
  assert.deepEqual(runs, [START + WORD + END, START + WORD]);
  // The second run was not read to its end, so what the client has is no place to follow after.
  live.follow("http://gateway/events", {}, async () => {});
  await new Promise((soon) => setImmediate(soon));
  await live.pause();
  assert.deepEqual(asked.map(({ id }) => id), [null, null]);
  assert.ok(!states.includes("failed"));
});
