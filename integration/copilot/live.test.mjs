// The package `threadway-client` with CopilotKit's own client: its agents survive lost connections, and get the runs of others.
// `keepLive` is what the hook `useLiveThread` calls; the hook itself is tested by the example.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { CopilotKitCore } from "@copilotkit/core";
import { Gate } from "../client/gate.mjs";
import { readThread, SERVERS } from "../client/gateway.mjs";
import { packageWith } from "../client/packed.mjs";
import { Cutter } from "../client/proxy.mjs";
import { seeded } from "../client/seeded.mjs";
import { firstDifference, ofClient, ofThread, stateOf } from "../client/thread.mjs";
import { keepLive } from "../../packages/client/dist/keep.js";

const [server] = SERVERS;
const OPTIONS = { timeout: 300_000 };
const PATIENCE_MS = 90_000; // what has not come by then does not come
const PLAYS = process.env.FULL === "1" ? 40 : 6;
const SPEECH = { tokens: 80, delay: 0.02 };
const HELD_AT = 40; // the token before which a run waits
const BYTES = 9_000; // of a response, in which its cut is

// Without a window the client sends no request to its runtime.
globalThis.window = {};
console.error = () => {}; // `onError` gets the same errors

/** CopilotKit's agent on a thread, which is kept live. */
async function open(t, gateway, transport) {
  const core = new CopilotKitCore({ runtimeUrl: `${gateway}/agui`, runtimeTransport: transport });
  const errors = [];
  core.subscribe({ onError: ({ code, error }) => void errors.push(`${code}: ${error.message}`) });
  await until("the list of agents", () => core.runtimeConnectionStatus === "connected");
  const agent = core.getAgent("agent");
  agent.threadId = randomUUID();
  const events = [];
  const changes = [];
  agent.subscribe({ onEvent: ({ event }) => void events.push(structuredClone(event)) });
  const kept = keepLive(agent, agent.threadId, { connect: () => core.connectAgent({ agent }), onChange: (change) => void changes.push(change) });
  t.after(kept.stop);
  const say = (script) => {
    agent.addMessage({ id: randomUUID(), role: "user", content: JSON.stringify(script) });
    return core.runAgent({ agent });
  };
  return { core, agent, events, changes, errors, kept, say };
}

async function until(what, isSo) {
  for (const end = performance.now() + PATIENCE_MS; !(await isSo()); ) {
    assert.ok(performance.now() < end, `not within ${PATIENCE_MS} ms: ${what}`);
    await new Promise((wake) => setTimeout(wake, 20));
  }
}

async function langgraph(path, body) {
  const init = body && { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(server.langgraph + path, { ...init, headers: { connection: "close", ...init?.headers } });
  assert.ok(response.ok, `${path}: ${response.status}`);
  return response.json();
}

/** Starts a run past the gateway. */
async function foreign(threadId, script) {
  const message = { type: "human", id: randomUUID(), content: JSON.stringify(script) };
  const run = { assistant_id: "agent", input: { messages: [message] }, if_not_exists: "create", stream_mode: ["values", "messages-tuple"], stream_resumable: true };
  return (await langgraph(`/threads/${threadId}/runs`, run)).run_id;
}

/** Waits until the agent has the thread. */
async function shows({ agent }, runId) {
  if (runId) await langgraph(`/threads/${agent.threadId}/runs/${runId}/join`);
  const { state } = await readThread(server, agent.threadId);
  const expected = ofThread(state.values, agent.threadId);
  await until(`run ${runId} in the page`, () => !agent.isRunning && !firstDifference(ofClient(agent.messages), expected));
  assert.equal(firstDifference(agent.state, stateOf(state.values)), undefined);
}

const runsOf = async ({ agent }) => (await langgraph(`/threads/${agent.threadId}/runs`)).length;

/** Cuts the next connections after any byte of a stream. CopilotKit does not request its list of agents again, so that is left whole. */
function cutNext(cutter, random, count) {
  for (let n = 0; n < count; n++) {
    const byte = Math.floor(random.between(0, BYTES));
    const at = (text) => {
      const begin = text.lastIndexOf("HTTP/1.1 200");
      return begin >= 0 && text.slice(begin).includes("text/event-stream") && text.length >= begin + byte ? begin + byte : -1;
    };
    cutter.cuts.push({ at });
  }
}

for (const transport of ["rest", "single"]) {
  test(`a run that is cut anywhere goes on, and CopilotKit sees one run (${transport})`, { concurrency: 6, ...OPTIONS }, async (t) => {
    const play = async (t, n) => {
      const cutter = await Cutter.start(server.threadway);
      t.after(() => cutter.close());
      const page = await open(t, cutter.url, transport);
      await until("the thread as it is", () => page.events.at(-1)?.type === "RUN_FINISHED");
      page.events.length = 0;
      cutNext(cutter, seeded(`copilot ${transport} ${n}`), 3);
      const { newMessages } = await page.say(SPEECH);
      await shows(page);
      assert.ok(newMessages.some(({ role, content }) => role === "assistant" && content?.includes("tok79")), "the result has the whole answer");
      assert.deepEqual(page.events.filter(({ type }) => type === "RUN_STARTED").length, 1);
      assert.equal(await runsOf(page), 1);
      assert.deepEqual(page.errors, []);
      const texts = page.events.filter(({ type, delta }) => type === "TEXT_MESSAGE_CONTENT" && delta.startsWith("tok"));
      assert.equal(new Set(texts.map(({ delta }) => delta)).size, texts.length, "each word once");
    };
    await Promise.all(Array.from({ length: PLAYS }, (_, n) => t.test(`play ${n}`, OPTIONS, (t) => play(t, n))));
  });
}

test("runs of others are shown between the page's own, and told as such", OPTIONS, async (t) => {
  const page = await open(t, server.threadway, "rest");
  await until("the thread as it is", () => page.events.at(-1)?.type === "RUN_FINISHED");
  const gate = await Gate.before(HELD_AT);
  const first = await foreign(page.agent.threadId, { ...SPEECH, ...gate.script });
  await until("its words", () => page.events.some(({ delta }) => delta?.startsWith("tok9")));
  assert.equal(page.agent.isRunning, true);
  assert.equal(page.changes.findLast((change) => "isOthersRun" in change).isOthersRun, true);
  gate.open();
  await shows(page, first);
  await until("that it is over", () => page.changes.findLast((change) => "isOthersRun" in change).isOthersRun === false);
  await page.say({ tokens: 10 });
  await shows(page);
  await shows(page, await foreign(page.agent.threadId, { tokens: 10 }));
  assert.equal(await runsOf(page), 3);
  assert.deepEqual(page.errors, []);
});

test("an agent of the page's own, as `selfManagedAgents` takes one, is connected, cut, and follows", OPTIONS, async (t) => {
  const cutter = await Cutter.start(server.threadway);
  t.after(() => cutter.close());
  const { ThreadwayAgent } = await packageWith("0.0.59");
  const agent = new ThreadwayAgent({ url: `${cutter.url}/agui/agent/agent/run`, threadId: randomUUID() });
  const core = new CopilotKitCore({ agents__unsafe_dev_only: { mine: agent } });
  assert.equal(core.getAgent("mine"), agent);
  const errors = [];
  core.subscribe({ onError: ({ code, error }) => void errors.push(`${code}: ${error.message}`) });
  t.after(agent.follow());
  await core.connectAgent({ agent });
  cutNext(cutter, seeded("copilot own"), 3);
  agent.addMessage({ id: randomUUID(), role: "user", content: JSON.stringify(SPEECH) });
  const { newMessages } = await core.runAgent({ agent });
  assert.ok(newMessages.some(({ role, content }) => role === "assistant" && content?.includes("tok79")), "the result has the whole answer");
  await shows({ agent });
  await shows({ agent }, await foreign(agent.threadId, { tokens: 10 }));
  assert.equal(await runsOf({ agent }), 2);
  assert.deepEqual(errors, []);
});

test("after the limit the page's agent fails, and goes on when it is asked to", OPTIONS, async (t) => {
  const cutter = await Cutter.start(server.threadway);
  t.after(() => cutter.close());
  const core = new CopilotKitCore({ runtimeUrl: `${cutter.url}/agui`, runtimeTransport: "rest" });
  await until("the list of agents", () => core.runtimeConnectionStatus === "connected");
  const agent = core.getAgent("agent");
  agent.threadId = randomUUID();
  let status;
  const plain = agent.fetch;
  let isAway = true;
  agent.fetch = (url, init) => (isAway ? Promise.reject(new TypeError("Failed to fetch")) : plain(url, init));
  const onChange = (change) => (status = change.status ?? status);
  const kept = keepLive(agent, agent.threadId, { connect: () => core.connectAgent({ agent }), limits: { attempts: 2, delayMs: 10 }, onChange });
  t.after(kept.stop);
  await until("that it gives up", () => status?.state === "failed");
  assert.match(status.error.message, /2 attempts to connect again have failed: Failed to fetch/);
  isAway = false;
  kept.reconnect();
  await until("that it follows the thread", () => status.state === "open");
  await shows({ agent }, await foreign(agent.threadId, { tokens: 10 }));
});
