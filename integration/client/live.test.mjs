// The package `threadway-client` before a real LangGraph server: its connections are cut anywhere, its process is paused, the
// gateway is restarted, its token expires. Each time the thread has one run, the client has the thread, and no event came
// twice. A failure is repeated with its SEED.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { generateKeyPairSync, randomUUID, sign } from "node:crypto";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Gate } from "./gate.mjs";
import { readThread, SERVERS } from "./gateway.mjs";
import { LOGS } from "./logs.mjs";
import { packageWith } from "./packed.mjs";
import { freePort } from "./ports.mjs";
import { Cutter, Pipe } from "./proxy.mjs";
import { SEED, seeded } from "./seeded.mjs";
import { firstDifference, ofClient, ofThread, stateOf } from "./thread.mjs";
import { startThreadway } from "./threadway.mjs";

const [server] = SERVERS;
const IS_FULL = process.env.FULL === "1";
const OPTIONS = { timeout: 300_000 };
const SWEEP = { timeout: IS_FULL ? 3_600_000 : 300_000 };
const PATIENCE_MS = 90_000; // what has not come by then does not come
const PLAYS = IS_FULL ? 60 : 8; // of each kind, and each version of the official client
const AT_A_TIME = 8;
const BYTES = 9_000; // of a response, in which its cut is
const TOKENS = 80;
const SPEECH = { tokens: TOKENS, delay: 0.02 };
const HELD_AT = 40; // the token before which a run waits
const VOID = /^0\./;
const FRAME = /^id: (\S+)\ndata: .*\n\n/gm;
const STREAMED = { stream_mode: ["values", "messages-tuple"], stream_resumable: true };

const packages = await Promise.all(["1.0.0", "0.0.59"].map(packageWith));
const [newest] = packages;
console.log(`# SEED=${SEED}`);

// ---------------------------------------------------------------- what a client does and has
/** An agent of the package, and the events that its subscribers got. */
function open({ ThreadwayAgent }, gateway, { graph = "agent", threadId = randomUUID(), ...config } = {}) {
  const agent = new ThreadwayAgent({ url: `${gateway}/agui/agent/${graph}/run`, threadId, ...config });
  agent.events = [];
  agent.states = [];
  agent.subscribe({ onEvent: ({ event }) => void agent.events.push(structuredClone(event)) });
  agent.onStatus((status) => agent.states.push(status));
  agent.say = (script) => agent.addMessage({ id: randomUUID(), role: "user", content: JSON.stringify(script) });
  return agent;
}

const runsOf = (events) => events.filter(({ type }) => type === "RUN_STARTED").map(({ runId }) => runId);

async function until(what, isSo) {
  for (const end = performance.now() + PATIENCE_MS; !(await isSo()); ) {
    assert.ok(performance.now() < end, `not within ${PATIENCE_MS} ms: ${what}`);
    await new Promise((wake) => setTimeout(wake, 20));
  }
}

/** Waits until a run of others is over and a client has the thread. If the run ended while its client was away, the client gets no run. */
async function shows(agent, runId) {
  await langgraph(`/threads/${agent.threadId}/runs/${runId}/join`);
  const { state } = await readThread(server, agent.threadId);
  const expected = ofThread(state.values, agent.threadId);
  await until(`run ${runId} in the client`, () => !agent.isRunning && !firstDifference(ofClient(agent.messages), expected));
}

async function langgraph(path, body) {
  const init = body && { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(server.langgraph + path, { ...init, headers: { connection: "close", ...init?.headers } });
  assert.ok(response.ok, `${path}: ${response.status} ${await response.clone().text()}`);
  return response.json();
}

/** Starts a run past the gateway, as a cron job or another service does; returns its id. */
async function foreign(threadId, script) {
  const message = { type: "human", id: randomUUID(), content: JSON.stringify(script) };
  const run = await langgraph(`/threads/${threadId}/runs`, { assistant_id: "agent", input: { messages: [message] }, if_not_exists: "create", ...STREAMED });
  return run.run_id;
}

/** Checks that a client has LangGraph's thread, and was sent each word once. */
async function holds(agent, { runs = 1, isWhole = true } = {}) {
  const { threadId, events, messages, state } = agent;
  const { state: thread } = await readThread(server, threadId);
  same(ofClient(messages), ofThread(thread.values, threadId), "the client's messages against the thread's");
  same(state, stateOf(thread.values), "the client's state against the thread's");
  assert.equal((await langgraph(`/threads/${threadId}/runs`)).length, runs, "runs of the thread");
  assert.equal(agent.isRunning, false);
  if (!isWhole) return;
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

/** Checks that no event that can be resumed was sent to the client twice. */
function eachOnce({ exchanges }) {
  const ids = exchanges.flatMap(({ answered }) => [...answered.matchAll(FRAME)].map(([, id]) => id)).filter((id) => !VOID.test(id));
  assert.deepEqual(ids.filter((id, at) => ids.indexOf(id) !== at), [], "events that were sent twice");
  return ids.length;
}

const cutsOf = (cutter) => cutter.exchanges.filter(({ isCut }) => isCut).length;

/** The cuts that took something from the client: after the last event of its run, it has no use for the connection. */
const lossesOf = (cutter) => cutter.exchanges.filter(({ isCut, answered }) => isCut && !answered.includes('"type":"RUN_FINISHED"')).length;

/** Cuts in the next connections: after any byte, also of the head, or in order, between two events. */
function cutsAt(random, count, bytes = BYTES) {
  return Array.from({ length: count }, () => {
    const byte = Math.floor(random.between(0, bytes));
    if (random.random() < 0.7) return { at: (text) => (text.length >= byte ? byte : -1) };
    const behind = "\n\n\r\n";
    return { end: true, at: (text) => (text.indexOf(behind, byte) < 0 ? -1 : text.indexOf(behind, byte) + behind.length) };
  });
}

// ---------------------------------------------------------------- cuts
for (const { version, ...found } of packages) {
  const { ThreadwayAgent, ConnectionLostError } = found;
  const mine = { ThreadwayAgent };

  describe(`cuts anywhere, with @ag-ui/client ${version}`, { concurrency: AT_A_TIME, ...SWEEP }, () => {
    for (let n = 0; n < PLAYS; n++) {
      test(`of its own run (${n})`, OPTIONS, async (t) => {
        const random = seeded(`own ${version} ${n}`);
        const cutter = await Cutter.start(server.threadway);
        t.after(() => cutter.close());
        cutter.cuts.push(...cutsAt(random, 3));
        const agent = open(mine, cutter.url);
        agent.say({ ...SPEECH, flavour: random.one(["v1", "anthropic", "reasoning_content", "string"]) });
        await agent.runAgent();
        await holds(agent);
        eachOnce(cutter);
        assert.equal(runsOf(agent.events).length, 1, "one run for its subscribers");
        assert.ok(cutsOf(cutter) > 0, "nothing was cut");
        assert.ok(agent.states.filter(({ state }) => state === "reconnecting").length >= lossesOf(cutter), "each loss is in its status");
        assert.deepEqual(agent.status, { state: "idle" });
      });

      test(`of a thread that it follows over runs of others and its own (${n})`, OPTIONS, async (t) => {
        const random = seeded(`follow ${version} ${n}`);
        const cutter = await Cutter.start(server.threadway);
        t.after(() => cutter.close());
        const agent = open(mine, cutter.url);
        t.after(agent.follow());
        await until("the empty thread", () => agent.events.at(-1)?.type === "RUN_FINISHED");
        cutter.cuts.push(...cutsAt(random, 4));
        await shows(agent, await foreign(agent.threadId, SPEECH));
        agent.say({ tokens: 12 });
        const runId = randomUUID();
        await agent.runAgent({ runId });
        assert.equal(agent.events.findLast(({ type }) => type === "RUN_FINISHED").runId, runId, "its own run has ended");
        await shows(agent, await foreign(agent.threadId, SPEECH));
        await holds(agent, { runs: 3, isWhole: false });
        assert.ok(cutsOf(cutter) > 0, "nothing was cut");
      });
    }

    test("a line that cannot be resumed starts over, and the run stays one run", OPTIONS, async (t) => {
      const cutter = await Cutter.start(server.threadway);
      t.after(() => cutter.close());
      const gate = await Gate.before(HELD_AT);
      const fetch_ = (url, init) => {
        if (init.headers.has("last-event-id")) init.headers.set("last-event-id", "0.lost");
        return fetch(url, init);
      };
      const agent = open(mine, cutter.url, { fetch: fetch_ });
      for (let cut = 0; cut < 2; cut++) cutter.cuts.push({ at: (text) => (text.includes("tok9 ") ? text.length : -1) });
      agent.say({ ...SPEECH, flavour: "anthropic", ...gate.script });
      const over = agent.runAgent();
      await until("both cuts", () => cutsOf(cutter) === 2 && agent.status.state === "open");
      gate.open();
      await over;
      await holds(agent, { isWhole: false });
      assert.equal(runsOf(agent.events).length, 1, "one run for its subscribers");
      assert.equal(agent.messages.find(({ role }) => role === "reasoning").content, "Let me think.", "a thought is not repeated");
    });

    test("questions stay open over cuts, and their answers start one run", OPTIONS, async (t) => {
      const cutter = await Cutter.start(server.threadway);
      t.after(() => cutter.close());
      const agent = open(mine, cutter.url, { graph: "hitl" });
      t.after(agent.follow());
      await until("the empty thread", () => agent.events.at(-1)?.type === "RUN_FINISHED");
      const random = seeded(`asked ${version}`);
      cutter.cuts.push(...cutsAt(random, 2, 3_000));
      agent.say({ tokens: 20 });
      await agent.runAgent();
      await until("that it follows", () => agent.status.state === "open");
      const resume = agent.pendingInterrupts.map(({ id }) => ({ interruptId: id, status: "resolved", payload: { approved: true } }));
      assert.ok(resume.length > 0, "it asks");
      cutter.cuts.push(...cutsAt(random, 2, 3_000));
      await agent.runAgent({ resume });
      assert.deepEqual(agent.pendingInterrupts, []);
      await holds(agent, { runs: 2, isWhole: false });
      assert.ok(cutsOf(cutter) > 0, "nothing was cut");
    });

    test("after the limit it says so, to each subscriber and in its status", OPTIONS, async () => {
      const agent = open(mine, `http://127.0.0.1:${await freePort()}`, { limits: { attempts: 2, delayMs: 20 } });
      const failures = [];
      agent.subscribe({ onRunFailed: ({ error }) => void failures.push(error) });
      agent.say({});
      await quietly(() => assert.rejects(agent.runAgent(), (error) => error instanceof ConnectionLostError && /2 attempts/.test(error.message)));
      assert.equal(failures.length, 1);
      assert.equal(agent.status.state, "failed");
      assert.deepEqual(agent.states.map(({ state }) => state), ["connecting", "reconnecting", "reconnecting", "failed"]);
    });

    test("a refusal is the official client's own error", OPTIONS, async () => {
      const agent = open(mine, server.threadway);
      agent.url = agent.url.replace("agent/agent/", "agent/nobody/");
      agent.say({});
      await quietly(() => assert.rejects(agent.runAgent(), ({ status, payload, message }) => status === 404 && payload.error === "unknown_agent" && /^HTTP 404: /.test(message)));
    });
  });
}

/** Without the official client's own lines about failures. */
async function quietly(work) {
  const { error } = console;
  console.error = () => {};
  try {
    await work();
  } finally {
    console.error = error;
  }
}

// ---------------------------------------------------------------- requests that are lost
describe("a request whose answer is lost", OPTIONS, () => {
  for (const [what, byte] of Object.entries({ "before its head": 0, "in its head": 30 })) {
    test(`${what} starts one run`, OPTIONS, async (t) => {
      const cutter = await Cutter.start(server.threadway);
      t.after(() => cutter.close());
      cutter.cuts.push({ at: (text) => (text.length >= byte ? byte : -1) });
      const agent = open(newest, cutter.url);
      agent.say({ tokens: 20 });
      await agent.runAgent();
      await holds(agent, { isWhole: false });
      assert.deepEqual([cutsOf(cutter), runsOf(agent.events).length], [1, 1]);
    });
  }
});

// ---------------------------------------------------------------- the gateway is away
describe("a gateway that is restarted", { concurrency: AT_A_TIME, ...OPTIONS }, () => {
  for (const signal of ["SIGKILL", "SIGTERM"]) {
    test(`after ${signal} in mid-run, and in the silence behind it`, OPTIONS, async (t) => {
      const listen = `127.0.0.1:${await freePort()}`;
      const start = () => startThreadway(`live-${signal}`, server.langgraph, "--listen", listen);
      let gateway = await start();
      t.after(() => gateway.stop());
      const restart = async () => {
        process.kill(gateway.pid, signal);
        await until("that it is away", () => fetch(`${gateway.url}/healthz`).then(() => false, () => true));
        gateway = await start();
      };
      const gate = await Gate.before(HELD_AT);
      const agent = open(newest, gateway.url);
      t.after(agent.follow());
      await until("the empty thread", () => agent.events.at(-1)?.type === "RUN_FINISHED");
      agent.say({ ...SPEECH, ...gate.script });
      const over = agent.runAgent();
      await until("its first words", () => agent.events.some(({ delta }) => delta?.startsWith("tok9")));
      await restart();
      gate.open();
      await over;
      // A gateway that stops in order ends the open message, so the rest of it comes in a snapshot.
      await holds(agent, { isWhole: signal === "SIGKILL" });
      await restart();
      await shows(agent, await foreign(agent.threadId, { tokens: 20 }));
      await holds(agent, { runs: 2, isWhole: false });
    });
  }

  test("a message that is sent while it is away arrives once", OPTIONS, async (t) => {
    const port = await freePort();
    const agent = open(newest, `http://127.0.0.1:${port}`, { limits: { delayMs: 200 } });
    agent.say({ tokens: 20 });
    const over = agent.runAgent();
    await until("two attempts", () => agent.states.filter(({ state }) => state === "reconnecting").length >= 2);
    const gateway = await startThreadway("live-late", server.langgraph, "--listen", `127.0.0.1:${port}`);
    t.after(() => gateway.stop());
    await over;
    await holds(agent);
  });
});

// ---------------------------------------------------------------- silence and pauses
test("a connection that is silent for too long is cut", OPTIONS, async (t) => {
  const pipe = await Pipe.start(server.threadway);
  t.after(() => pipe.close());
  let isBack = false;
  const gate = await Gate.before(HELD_AT);
  const agent = open(newest, pipe.url, {
    limits: { silenceMs: 1_500 },
    fetch: (url, init) => fetch(isBack ? url.replace(pipe.url, server.threadway) : url, init),
  });
  agent.say({ ...SPEECH, ...gate.script });
  const over = agent.runAgent();
  await until("its first words", () => agent.events.some(({ delta }) => delta?.startsWith("tok9")));
  isBack = true;
  pipe.freeze();
  gate.open();
  await over;
  await holds(agent);
  assert.ok(agent.states.some(({ reason }) => /nothing arrived for 1500 ms/.test(reason)));
});

test("a process that is paused over a cut, as by a laptop's lid, goes on", OPTIONS, async (t) => {
  const cutter = await Cutter.start(server.threadway);
  t.after(() => cutter.close());
  const gate = await Gate.before(HELD_AT);
  const threadId = randomUUID();
  const script = JSON.stringify({ ...SPEECH, ...gate.script });
  const child = spawn(process.execPath, [fileURLToPath(new URL("live-child.mjs", import.meta.url)), newest.modules, cutter.url, threadId, script], { stdio: ["ignore", "pipe", "inherit"] });
  t.after(() => child.kill("SIGKILL"));
  let printed = "";
  child.stdout.setEncoding("utf8").on("data", (text) => (printed += text));
  await until("its first words", () => printed.includes("tok9 "));
  child.kill("SIGSTOP");
  cutter.cuts = []; // the next connection is not cut
  const reset = cutter.exchanges.length;
  cutter.cutNow();
  gate.open();
  const [run] = await langgraph(`/threads/${threadId}/runs`);
  await langgraph(`/threads/${threadId}/runs/${run.run_id}/join`);
  child.kill("SIGCONT");
  const [status] = await once(child, "close");
  assert.equal(status, 0, printed);
  assert.ok(cutter.exchanges.length > reset, "it has connected again");
  const { messages, state } = JSON.parse(printed.trim().split("\n").at(-1));
  const { state: thread } = await readThread(server, threadId);
  same(ofClient(messages), ofThread(thread.values, threadId), "the messages of the paused process");
  same(state, stateOf(thread.values), "its state");
  eachOnce(cutter);
});

test("a new client, as after a reload, gets the live run to its end", OPTIONS, async () => {
  const gate = await Gate.before(HELD_AT);
  const first = open(newest, server.threadway);
  first.say({ ...SPEECH, ...gate.script });
  const left = first.runAgent();
  await until("its first words", () => first.events.some(({ delta }) => delta?.startsWith("tok9")));
  first.abortRun();
  await left;
  const { threadId } = first;
  const [connected, following] = [open(newest, server.threadway, { threadId }), open(newest, server.threadway, { threadId })];
  const over = connected.connectAgent();
  const stop = following.follow();
  await until("the run in both", () => [connected, following].every(({ isRunning, events }) => isRunning && events.length > 0));
  gate.open();
  await over;
  await holds(connected, { isWhole: false });
  await until("the end in the follower", () => following.events.at(-1)?.type === "RUN_FINISHED" && !following.isRunning);
  stop();
  await holds(following, { isWhole: false });
});

test("a message that is sent during a run of others is answered after it", OPTIONS, async (t) => {
  const agent = open(newest, server.threadway);
  t.after(agent.follow());
  await until("the empty thread", () => agent.events.at(-1)?.type === "RUN_FINISHED");
  const gate = await Gate.before(HELD_AT, HELD_AT + 20);
  const first = await foreign(agent.threadId, { ...SPEECH, ...gate.script });
  await until("its words", () => agent.events.some(({ delta }) => delta?.startsWith("tok9")));
  agent.say({ tokens: 10 });
  const { id } = agent.messages.at(-1);
  gate.open(HELD_AT); // the words that come now do not know the message
  await until("more words", () => agent.events.some(({ delta }) => delta?.startsWith(`tok${HELD_AT + 5} `)));
  const over = agent.runAgent();
  gate.open();
  await over;
  await shows(agent, first);
  await holds(agent, { runs: 2, isWhole: false });
  assert.ok(agent.messages.some((message) => message.id === id));
});

// ---------------------------------------------------------------- stopping
test("`stop` ends the run for everybody, and `abortRun` stops it if asked", OPTIONS, async (t) => {
  for (const how of ["stop", "abort", "leave"]) {
    const gate = await Gate.before(HELD_AT);
    t.after(() => gate.open());
    const agent = open(newest, server.threadway, { stopOnAbort: how === "abort" });
    agent.say({ ...SPEECH, ...gate.script });
    const over = agent.runAgent();
    await until("its first words", () => agent.events.some(({ delta }) => delta?.startsWith("tok9")));
    if (how === "stop") assert.equal(await agent.stop(), true);
    else agent.abortRun();
    await over;
    const { type, outcome, code } = agent.events.at(-1);
    assert.deepEqual([type, outcome?.type, code], how === "stop" ? ["RUN_FINISHED", "cancelled", undefined] : ["RUN_ERROR", undefined, "abort"]);
    const status = async () => (await langgraph(`/threads/${agent.threadId}/runs`))[0].status;
    if (how === "leave") assert.equal(await status(), "running");
    else await until("the end of the run", async () => (await status()) === "interrupted");
  }
});

test("a run that is aborted before it is sent is not sent", OPTIONS, async (t) => {
  const agent = open(newest, server.threadway);
  t.after(agent.follow());
  await until("the empty thread", () => agent.events.at(-1)?.type === "RUN_FINISHED");
  agent.say({});
  const over = agent.runAgent();
  agent.abortRun();
  await over;
  assert.equal((await fetch(`${server.langgraph}/threads/${agent.threadId}`, { headers: { connection: "close" } })).status, 404);
});

test("a clone has the same configuration, and a line of its own", OPTIONS, async (t) => {
  const agent = open(newest, server.threadway);
  t.after(agent.follow());
  await until("the empty thread", () => agent.events.at(-1)?.type === "RUN_FINISHED");
  const clone = agent.clone();
  assert.ok(clone instanceof newest.ThreadwayAgent);
  Object.assign(clone, { events: [], threadId: randomUUID(), subscribers: [] });
  clone.addMessage({ id: randomUUID(), role: "user", content: JSON.stringify({ tokens: 4 }) });
  await clone.runAgent();
  await holds(clone);
  assert.equal(agent.status.state, "open");
});

test("an agent that changes its thread follows the new one", OPTIONS, async (t) => {
  const agent = open(newest, server.threadway);
  t.after(agent.follow());
  await until("the first thread", () => agent.events.at(-1)?.type === "RUN_FINISHED");
  agent.threadId = randomUUID();
  agent.setMessages([]);
  await agent.connectAgent();
  await shows(agent, await foreign(agent.threadId, { tokens: 10 }));
  await holds(agent, { isWhole: false });
});

// ---------------------------------------------------------------- tokens
describe("tokens", OPTIONS, () => {
  const TOKEN_S = 4;
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  const keys = { keys: [{ ...publicKey.export({ format: "jwk" }), kid: "k", alg: "EdDSA", use: "sig" }] };
  let issuer, gateway;

  before(async () => {
    issuer = createServer((_, response) => response.end(JSON.stringify(keys))).listen(0, "127.0.0.1");
    await once(issuer, "listening");
    const config = new URL("live-jwt.toml", LOGS);
    const jwks = `http://127.0.0.1:${issuer.address().port}/keys`;
    writeFileSync(config, `[auth]\nmode = "jwt"\njwks = "${jwks}"\nissuer = "issuer"\naudience = "threadway"\nclock_skew_seconds = 0\n`);
    gateway = await startThreadway("live-jwt", server.langgraph, "--config", fileURLToPath(config));
  }, OPTIONS);

  after(async () => {
    await gateway?.stop();
    issuer?.close();
  });

  const issue = (seconds) => {
    const text = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
    const claims = { iss: "issuer", aud: "threadway", sub: "ada", exp: Math.floor(Date.now() / 1000) + seconds };
    const signed = `${text({ alg: "EdDSA", kid: "k" })}.${text(claims)}`;
    return `${signed}.${sign(null, Buffer.from(signed), privateKey).toString("base64url")}`;
  };

  test("a follower renews a token that expires, and goes on", OPTIONS, async (t) => {
    const cutter = await Cutter.start(gateway.url);
    t.after(() => cutter.close());
    const asked = [];
    let kept = issue(TOKEN_S);
    const token = async ({ isRefused }) => {
      asked.push(isRefused);
      if (isRefused) kept = issue(TOKEN_S);
      return kept;
    };
    const agent = open(newest, cutter.url, { token });
    t.after(agent.follow()); // there is no thread yet, which a caller with a token must not see
    await until("that there is nothing to follow", () => agent.status.state === "idle");
    agent.say({ tokens: 5 });
    await agent.runAgent();
    await until("two renewals", () => asked.filter(Boolean).length >= 2);
    await shows(agent, await foreign(agent.threadId, { tokens: 20 }));
    await holds(agent, { runs: 2, isWhole: false });
    eachOnce(cutter);
    kept = issue(-1);
    agent.say({ tokens: 5 });
    await agent.runAgent();
    await holds(agent, { runs: 3, isWhole: false });
  });

  test("a token that stays refused is an error, at once", OPTIONS, async () => {
    const agent = open(newest, gateway.url, { token: () => "nonsense" });
    agent.say({});
    await quietly(() => assert.rejects(agent.runAgent(), ({ status, payload }) => status === 401 && payload.error === "invalid_token"));
    assert.equal(agent.status.state, "failed");
  });
});
