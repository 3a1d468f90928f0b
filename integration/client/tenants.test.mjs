// A tenant gets nothing of another tenant's: on no route, through no replica, even if the other's run is in the same
// process's log.

import { strict as assert } from "node:assert";
import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import http, { createServer } from "node:http";
import { networkInterfaces, tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Gate } from "./gate.mjs";
import { Proxy } from "./proxy.mjs";
import { PYTHON, requestOf, SERVERS } from "./servers.mjs";
import { startThreadway } from "./threadway.mjs";

const LANGGRAPH = process.env.LANGGRAPH_AUTH_URL;
const ALICE = { "x-api-key": "key-of-alice" };
const BOB = { "x-api-key": "key-of-bob" };
const SCRIPT = { tokens: 30, delay: 0.01 };
const ANSWER_MS = 60_000;

const gateways = [];
before(async () => {
  for (const name of ["one", "two"]) gateways.push(await startThreadway(`tenants-${name}`, LANGGRAPH));
});
after(() => Promise.all(gateways.map(({ stop }) => stop())));

function input(threadId, content, more = {}) {
  const messages = content === undefined ? [] : [{ id: randomUUID(), role: "user", content: JSON.stringify(content) }];
  return { threadId, runId: randomUUID(), protocolVersion: "1.0", messages, tools: [], context: [], state: {}, forwardedProps: {}, ...more };
}

function send(gateway, path, headers, body) {
  const init = { headers: { ...headers }, signal: AbortSignal.timeout(60_000) };
  if (body !== undefined) {
    init.method = "POST";
    init.headers["content-type"] = "application/json";
    init.body = JSON.stringify(body);
  }
  return fetch(gateway.url + path, init);
}

/** Reads a stream up to a text; the rest can be read later. */
class Stream {
  constructor(response) {
    this.response = response;
    this.reader = response.body.getReader();
    this.text = "";
  }

  async until(isEnough) {
    const decoder = new TextDecoder();
    while (!isEnough(this.text)) {
      const { done, value } = await this.reader.read();
      if (done) return this.text;
      this.text += decoder.decode(value, { stream: true });
    }
    return this.text;
  }

  leave() {
    return this.reader.cancel();
  }

  /** The ids of the events so far. */
  get ids() {
    return [...this.text.matchAll(/^id: (2.+)$/gm)].map(([, id]) => id);
  }
}

/** LangGraph's id of the run, from an event's id. */
function runOf(eventId) {
  const hex = Buffer.from(eventId.slice(1), "base64url").subarray(0, 16).toString("hex");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

/** All requests about a thread, by name. */
function routes(threadId, eventId) {
  const agent = "/agui/agent/text";
  const thread = `${agent}/threads/${encodeURIComponent(threadId)}`;
  const resumed = { forwardedProps: { lastEventId: eventId } };
  const single = (method, body) => ["/agui", { method, params: { agentId: "text", threadId }, body }];
  return {
    run: [`${agent}/run`, input(threadId, { tokens: 1 })],
    "run, with state": [`${agent}/run`, input(threadId, { tokens: 1 }, { state: { a: 1 } })],
    "run, as a resume": [`${agent}/run`, input(threadId, undefined, { resume: [{ interruptId: "i", status: "resolved", payload: 1 }] })],
    connect: [`${agent}/connect`, input(threadId)],
    "connect behind an event": [`${agent}/connect`, input(threadId, undefined, resumed)],
    events: [`${thread}/events`],
    "events behind one": [`${thread}/events`, undefined, { "last-event-id": eventId }],
    "events behind one, by query": [`${thread}/events?last_event_id=${encodeURIComponent(eventId)}`],
    "events, followed": [`${thread}/events?follow=thread`],
    "events behind one, followed": [`${thread}/events?follow=thread`, undefined, { "last-event-id": eventId }],
    stop: [`${agent}/stop/${encodeURIComponent(threadId)}`, {}],
    "single run": single("agent/run", input(threadId, { tokens: 1 })),
    "single connect": single("agent/connect", input(threadId)),
    "single connect behind an event": single("agent/connect", input(threadId, undefined, resumed)),
    "single stop": single("agent/stop", {}),
  };
}

/** The answers of all routes to a caller, as far as they come at once. */
async function answers(gateway, threadId, eventId, headers) {
  const told = {};
  for (const [name, [path, body, more]] of Object.entries(routes(threadId, eventId))) {
    const response = await send(gateway, path, { ...headers, ...more }, body);
    if (response.ok && response.status !== 204) {
      const stream = new Stream(response);
      const late = setTimeout(() => stream.leave(), ANSWER_MS);
      told[name] = { status: response.status, body: await stream.until((text) => text.includes("RUN_STARTED")) };
      clearTimeout(late);
      await stream.leave();
    } else {
      told[name] = { status: response.status, body: await response.text() };
    }
  }
  return told;
}

/** Whether this is what the gateway answers about a thread that does not exist, before a server that hides threads so. */
function isOfNoThread({ status, body }) {
  return PYTHON.hidesAsUnknown && (status === 204 || (status === 200 && !body.includes('"run_id"') && !body.includes('"stopped":true')));
}

function refusedAll(told, secrets, statuses, where) {
  for (const [name, answer] of Object.entries(told)) {
    for (const secret of secrets) assert.ok(!answer.body.includes(secret), `${where}: ${name} reveals ${secret}`);
    if (statuses.includes(404) && isOfNoThread(answer)) continue;
    // A stream that resumes gets an empty answer instead of a refusal that passes.
    if (statuses.includes(429) && answer.status === 200 && /^retry: \d+\s*$/.test(answer.body)) continue;
    assert.ok(statuses.includes(answer.status), `${where}: ${name}: ${answer.status} ${answer.body}`);
    assert.ok(JSON.parse(answer.body).error, `${where}: ${name}`);
  }
}

for (const threadId of [randomUUID(), `the thread of Alice ${randomUUID()}`]) {
  test(`a tenant sees nothing of another's thread (${threadId.slice(0, 12)})`, async () => {
    const [one, two] = gateways;
    const gate = await Gate.before(5, 15); // the run is held until all was asked, and until it is stopped
    const started = await send(one, "/agui/agent/text/run", ALICE, input(threadId, { ...SCRIPT, ...gate.script }));
    assert.equal(started.status, 200);
    const alice = new Stream(started);
    await alice.until(() => alice.ids.length > 4 && alice.text.includes("tok1 "));
    const secrets = ["tok1 ", "tok2 ", alice.ids[0].split(".")[1]];
    // The other replica reads the run too, and both follow the thread.
    const path = `/agui/agent/text/threads/${encodeURIComponent(threadId)}/events`;
    const viewers = [];
    for (const gateway of gateways) {
      const viewer = new Stream(await send(gateway, `${path}?follow=thread`, ALICE));
      await viewer.until((text) => text.includes("tok1 "));
      viewers.push(viewer);
    }

    for (const [at, gateway] of gateways.entries()) {
      const bob = await answers(gateway, threadId, alice.ids[3], BOB);
      refusedAll(bob, secrets, [404], `replica ${at + 1}, while it runs`);
      const eve = await answers(gateway, threadId, alice.ids[3], { "x-api-key": "key-of-eve" });
      // A caller that tries too often must wait.
      refusedAll(eve, secrets, [401, 429], `replica ${at + 1}, with a wrong key`);
    }

    // Alice's run is not disturbed: it continues, also on the other replica.
    assert.ok(!alice.text.includes("RUN_FINISHED"));
    gate.open(5);
    const back = new Stream(await send(two, path, { ...ALICE, "last-event-id": alice.ids[3] }));
    assert.equal(back.response.status, 200);
    await back.until((text) => text.includes("tok9 "));
    assert.ok(!back.text.includes("RUN_STARTED"), "the client resumes after the event");
    await back.leave();
    const stopped = await send(two, `/agui/agent/text/stop/${encodeURIComponent(threadId)}`, ALICE, {});
    assert.deepEqual(await stopped.json().then(({ stopped }) => stopped), true);
    await alice.until(() => false);
    assert.match(alice.text, /"type":"RUN_FINISHED".*"cancelled"|RUN_ERROR/);
    gate.open();

    // Nor after its end: from the stored run, or by the last event's id.
    for (const [at, gateway] of gateways.entries()) {
      for (const id of [alice.ids[3], alice.ids.at(-1)]) {
        refusedAll(await answers(gateway, threadId, id, BOB), secrets, [404], `replica ${at + 1}, behind ${id}`);
      }
    }
    const rest = await send(one, path, ALICE);
    assert.match(await rest.text(), /\\"tokens\\":30,/, "Alice has what was committed");
    for (const viewer of viewers) await viewer.leave();
  });
}

// ---------------------------------------------------------------- tokens that expire
/** A token of Alice's that LangGraph refuses with a status in `ms`, and a promise of that moment. */
function token(ms, status) {
  const until = Date.now() + ms;
  return { headers: { "x-api-key": `until-${until}-${status}-of-alice` }, expired: new Promise((resolve) => setTimeout(resolve, ms + 500)) };
}

const ofTokens = (count) => Array.from({ length: count }, (_, at) => `tok${at} `).join("");

for (const status of [401, 403, 404]) {
  test(`a viewer whose token is refused with ${status} takes nothing from the others, on two replicas`, async () => {
    const TOKENS = 30;
    const gate = await Gate.before(10, 20);
    const proxy = await Proxy.start(LANGGRAPH);
    const replicas = await Promise.all(["five", "six"].map((name) => startThreadway(`tenants-${name}-${status}`, proxy.url)));
    try {
      const threadId = randomUUID();
      const path = `/agui/agent/text/threads/${threadId}/events`;
      const open = async (replica, query, headers) => {
        const stream = new Stream(await send(replica, path + query, headers));
        await stream.until((text) => text.includes("tok9 "));
        return stream;
      };
      const owner = new Stream(await send(replicas[0], "/agui/agent/text/run", ALICE, input(threadId, { tokens: TOKENS, ...gate.script })));
      await owner.until((text) => text.includes("tok9 "));
      await gate.reached(10);
      const good = { owner, follower: await open(replicas[0], "?follow=thread", ALICE), viewer: await open(replicas[1], "", ALICE) };
      const short = token(4_000, status);
      const refused = [];
      for (const replica of replicas) for (const query of ["", "?follow=thread"]) refused.push(await open(replica, query, short.headers));
      await short.expired;
      gate.open(10);
      await gate.reached(20);
      const live = proxy.exchanges.filter(({ path, ended }) => ended === Infinity && path.includes(threadId) && path.includes("/runs/"));
      assert.ok(live.length >= 2, "both replicas read the run");
      for (const { response } of live) response.destroy();
      const ended = refused.map((stream) => stream.until(() => false));
      await Promise.all(ended);
      gate.open(20);
      for (const [name, stream] of Object.entries(good)) {
        await stream.until((text) => text.includes("RUN_FINISHED"));
        assert.ok(!stream.text.includes("RUN_ERROR"), `${name}: ${/.*RUN_ERROR.*/.exec(stream.text)?.[0]}`);
        assert.equal(shown(stream).at(-1), ofTokens(TOKENS), name);
      }
      for (const { text } of refused) {
        assert.match(text, /RUN_ERROR.*upstream_unavailable/);
        assert.ok(!text.includes("tok20 "), "what others' credentials read is not for a refused caller");
      }
      const again = await send(replicas[1], path, short.headers);
      assert.equal(again.status, status === 403 ? PYTHON.forbidden : status);
      await good.follower.leave();
    } finally {
      await Promise.all(replicas.map(({ stop }) => stop()));
      proxy.close();
    }
  });

  test(`a run that outlives its token, which is then refused with ${status}, ends with the whole answer`, async () => {
    const gate = await Gate.before(10);
    const short = token(3_000, status);
    const owner = new Stream(await send(gateways[0], "/agui/agent/text/run", short.headers, input(randomUUID(), { tokens: 20, ...gate.script })));
    await owner.until((text) => text.includes("tok9 "));
    await short.expired;
    gate.open(10);
    const began = performance.now();
    await owner.until(() => false);
    assert.match(owner.text, /RUN_FINISHED/);
    assert.equal(shown(owner).at(-1), ofTokens(20));
    assert.ok(performance.now() - began < 15_000, "within seconds");
  });
}

// ---------------------------------------------------------------- one tenant and another
/** Each answer that a client of the stream has shown, in order. */
function shown(stream) {
  const events = stream.text.split("\n").filter((line) => line.startsWith("data: ")).map((line) => JSON.parse(line.slice(6)));
  let answer = "";
  return events.flatMap(({ type, delta, messages }) => {
    // A viewer that joins in the middle of a message gets its beginning in the snapshot.
    if (type === "MESSAGES_SNAPSHOT") answer = messages.findLast(({ role }) => role === "assistant")?.content ?? "";
    else if (type === "TEXT_MESSAGE_CONTENT") answer += delta;
    else return [];
    return [answer];
  });
}

test("a tenant that names another's run leaves that run's stream whole, also when its upstream connection is cut", async () => {
  const TOKENS = 60;
  const gate = await Gate.before(20, 30, 40); // in each round the run is held
  const proxy = await Proxy.start(LANGGRAPH);
  const replicas = await Promise.all(["three", "four"].map((name) => startThreadway(`tenants-${name}`, proxy.url)));
  try {
    const own = randomUUID();
    const mine = new Stream(await send(replicas[0], "/agui/agent/text/run", BOB, input(own, { tokens: 1 })));
    await mine.until(() => false);
    const threadId = randomUUID();
    const alice = new Stream(await send(replicas[0], "/agui/agent/text/run", ALICE, input(threadId, { tokens: TOKENS, ...gate.script })));
    await alice.until((text) => text.includes("tok1 "));
    const runId = runOf(alice.ids[0]);
    const viewer = new Stream(await send(replicas[1], `/agui/agent/text/threads/${threadId}/events`, ALICE));
    await viewer.until((text) => text.includes("tok1 "));

    /** Bob names Alice's run on a thread of his own, in every possible way. */
    const intrude = async () => {
      for (const replica of replicas) {
        // The first is the run's start, made of its id alone.
        const start = `2${Buffer.from(`${runId.replaceAll("-", "")}00000800`, "hex").toString("base64url")}`;
        for (const id of [start, alice.ids[3], alice.ids.at(-1)]) {
          const events = `/agui/agent/text/threads/${own}/events`;
          const connect = input(own, undefined, { forwardedProps: { lastEventId: id } });
          for (const asked of [
            send(replica, events, { ...BOB, "last-event-id": id }),
            send(replica, `${events}?last_event_id=${id}`, BOB),
            send(replica, `${events}?follow=thread`, { ...BOB, "last-event-id": id }),
            send(replica, "/agui/agent/text/connect", BOB, connect),
          ]) {
            const response = await asked;
            assert.ok([200, 204].includes(response.status), `${response.status}`);
            if (response.status === 204) continue;
            const stream = new Stream(response);
            const seen = await stream.until((text) => text.includes("RUN_FINISHED"));
            assert.ok(!seen.includes("tok1 ") && !seen.includes(threadId), seen);
            await stream.leave();
          }
        }
      }
    };
    for (const place of [20, 30, 40]) {
      await gate.reached(place);
      await intrude();
      const live = proxy.exchanges.filter(({ path, ended }) => ended === Infinity && path.includes(threadId) && path.includes("/runs/"));
      assert.ok(live.length >= 2, "both replicas read the run");
      for (const { response } of live) response.destroy();
      await intrude();
      gate.open(place);
    }
    await Promise.all([alice, viewer].map((stream) => stream.until(() => false)));
    const whole = Array.from({ length: TOKENS }, (_, at) => `tok${at} `).join("");
    for (const [name, stream] of Object.entries({ alice, viewer })) {
      assert.ok(!stream.text.includes("RUN_ERROR"), `${name}: ${/.*RUN_ERROR.*/.exec(stream.text)?.[0]}`);
      const answers = shown(stream);
      assert.equal(answers.at(-1), whole, name);
      assert.deepEqual(answers.filter((answer, at) => !whole.startsWith(answer) || answer.length < (answers[at - 1]?.length ?? 0)), [], name);
      assert.match(stream.text, /RUN_FINISHED.*"success"/, name);
    }
    const stolen = proxy.exchanges.filter(({ path, key }) => path.includes(threadId) && key !== ALICE["x-api-key"]);
    assert.deepEqual(stolen.map(({ method, path, key }) => `${method} ${path} as ${key}`), [], "no other's key was used for the thread");
  } finally {
    await Promise.all(replicas.map(({ stop }) => stop()));
    proxy.close();
  }
});

test("a second upstream gets no caller's key", async () => {
  const asked = [];
  const recorder = createServer((request, response) => {
    asked.push({ path: request.url, headers: request.headers });
    request.resume();
    response.statusCode = request.url.endsWith("/state") ? 404 : 200;
    response.setHeader("content-type", "application/json").end(request.url === "/info" ? '{"version":"1","langgraph_py_version":"1"}' : "[]");
  });
  await new Promise((resolve) => recorder.listen(0, "127.0.0.1", resolve));
  const directory = mkdtempSync(join(tmpdir(), "threadway-tenants-"));
  const file = join(directory, "config.toml");
  const second = `http://127.0.0.1:${recorder.address().port}`;
  // The first upstream of the file is the last by name.
  writeFileSync(file, `forward_headers = ["x-tenant"]\n[upstreams.own]\nurl = "${LANGGRAPH}"\n[upstreams.foreign]\nurl = "${second}"\n`);
  const replicas = await Promise.all(["five", "six"].map((name) => startThreadway(`tenants-${name}`, undefined, "--config", file)));
  try {
    for (const replica of replicas) {
      const headers = { ...ALICE, authorization: "Bearer of-alice", "x-tenant": "of-alice", baggage: "user=of-alice" };
      const { agents } = await (await send(replica, "/agui/info", headers)).json();
      assert.ok(agents["own:text"], "the first knows her");
      const run = await send(replica, "/agui/agent/foreign:text/run", headers, input(randomUUID(), { tokens: 1 }));
      await run.text();
      const connected = await send(replica, "/agui/agent/foreign:text/connect", headers, input(randomUUID()));
      await connected.body.cancel();
      await send(replica, "/readyz", headers);
    }
    assert.ok(asked.filter(({ path }) => path === "/assistants/search").length >= 2 && asked.some(({ path }) => path.includes("/runs/stream")));
    for (const { path, headers } of asked) {
      assert.doesNotMatch(JSON.stringify(headers), /alice/, path);
    }
  } finally {
    await Promise.all(replicas.map(({ stop }) => stop()));
    recorder.close();
    recorder.closeAllConnections();
    rmSync(directory, { recursive: true });
  }
});

test("a client changes only the members that it sets of an assistant's configuration", async () => {
  const { langgraph } = PYTHON;
  const directory = mkdtempSync(join(tmpdir(), "threadway-configured-"));
  const file = join(directory, "config.toml");
  writeFileSync(file, 'forward_configurable = ["model"]\n');
  const gateway = await startThreadway("tenants-configured", langgraph, "--config", file);
  try {
    const configurable = { model: "deep", verbose: true };
    const body = JSON.stringify({ graph_id: "configured", config: { configurable } });
    const made = await fetch(`${langgraph}/assistants`, { method: "POST", headers: { "content-type": "application/json" }, body });
    const { assistant_id } = await made.json();
    const answered = async (config) => {
      const asked = input(randomUUID(), {}, { forwardedProps: { config } });
      const run = await send(gateway, `/agui/agent/${assistant_id}/run`, {}, asked);
      const events = [...(await run.text()).matchAll(/^data: (.+)$/gm)].map(([, event]) => JSON.parse(event));
      assert.equal(events.at(-1).outcome?.type, "success", JSON.stringify(events.at(-1)));
      return events.filter(({ type }) => type === "TEXT_MESSAGE_CONTENT").map(({ delta }) => delta).join("");
    };
    assert.equal(await answered(undefined), "deep, verbosely");
    assert.equal(await answered({ configurable: { model: "fast" } }), "fast, verbosely");
    // Members that are not on the list keep the assistant's values.
    assert.equal(await answered({ configurable: { model: "fast", verbose: false } }), "fast, verbosely");
  } finally {
    await gateway.stop();
    rmSync(directory, { recursive: true });
  }
});

test("an agent that is hidden from one tenant opens no filter for the other", async () => {
  const state = { steps: 1, delay: 0.01 };
  const sentUp = async (gateway, headers) => {
    const threadId = randomUUID();
    const run = await send(gateway, "/agui/agent/slow/run", headers, input(threadId, undefined, { state: { ...state, internal_role: "admin" } }));
    assert.match(await run.text(), /RUN_FINISHED/);
    const [record] = await (await fetch(`${LANGGRAPH}/threads/${threadId}/runs`, { headers })).json();
    return requestOf(record).input;
  };
  for (const gateway of gateways) {
    // LangGraph also runs a graph's own assistant for callers who may not see it.
    assert.deepEqual(await sentUp(gateway, BOB), { messages: [] });
    assert.deepEqual(await sentUp(gateway, ALICE), { ...state, messages: [] });
  }
});

// ---------------------------------------------------------------- one tenant alone
test("a follower with a key gets the thread's next run, which another replica has started", async () => {
  const threadId = randomUUID();
  const [one, two] = gateways;
  const run = async (tokens) => {
    const asked = input(threadId, { tokens });
    const stream = new Stream(await send(one, "/agui/agent/text/run", ALICE, asked));
    assert.match(await stream.until(() => false), /RUN_FINISHED/);
    return asked.runId;
  };
  await run(2);
  const viewer = new Stream(await send(two, `/agui/agent/text/threads/${threadId}/events?follow=thread`, ALICE));
  await viewer.until((text) => text.includes("RUN_FINISHED"));
  const runId = await run(3);
  const isOver = (text) => text.split("\n").some((line) => line.includes("RUN_FINISHED") && line.includes(runId));
  assert.ok(isOver(await viewer.until(isOver)), viewer.text);
  await viewer.leave();
});

test("a tenant's new thread belongs to the tenant", async () => {
  const threadId = randomUUID();
  const [one] = gateways;
  const first = new Stream(await send(one, "/agui/agent/text/run", BOB, input(threadId, { tokens: 2 })));
  assert.match(await first.until(() => false), /RUN_FINISHED/);
  const connected = await send(one, "/agui/agent/text/connect", BOB, input(threadId));
  assert.match(await connected.text(), /tok1 /);
  const hidden = await send(one, "/agui/agent/text/connect", ALICE, input(threadId));
  const answer = { status: hidden.status, body: await hidden.text() };
  assert.ok(answer.status === 404 || isOfNoThread(answer), `${answer.status} ${answer.body}`);
  assert.doesNotMatch(answer.body, /tok1 /);
});

test("only callers with a key get the list of agents", async () => {
  for (const gateway of gateways) {
    const info = await send(gateway, "/agui/info", BOB);
    assert.ok((await info.json()).agents.text);
    assert.equal((await send(gateway, "/agui/info", {})).status, 502);
  }
});

describe("access", () => {
  const OPEN = Object.fromEntries(SERVERS.map(({ name, langgraph }) => [name, langgraph]));
  const JUDGED = ["--auth-mode", "upstream"];
  const FOREVER_MS = 60_000;

  /** Sends a request with headers that `fetch` would not send; returns the response, or as much of a stream as comes at once. */
  function ask(url, headers, { method = "GET", body } = {}) {
    return new Promise((resolve, reject) => {
      const request = http.request(url, { method, headers, agent: false }, (response) => {
        let text = "";
        const isStream = String(response.headers["content-type"]).startsWith("text/event-stream");
        response.setEncoding("utf8").on("data", (chunk) => {
          text += chunk;
          if (!isStream) return;
          resolve({ status: response.statusCode, text });
          response.destroy();
        });
        response.on("end", () => resolve({ status: response.statusCode, text }));
      });
      request.on("error", reject);
      request.end(body);
    });
  }

  /** Runs the binary to its end. */
  function ended(...arguments_) {
    const bare = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("THREADWAY_")));
    return new Promise((resolve) => {
      execFile(process.env.THREADWAY_BIN, arguments_, { env: bare, timeout: FOREVER_MS }, (error, stdout, stderr) => {
        resolve({ code: error ? error.code : 0, said: stdout + stderr });
      });
    });
  }

  /** Runs `use` with two replicas. */
  async function withReplicas(name, upstream, options, use) {
    const replicas = [];
    try {
      for (const at of [1, 2]) replicas.push(await startThreadway(`tenants-${name}-${at}`, upstream, ...options));
      for (const [at, replica] of replicas.entries()) await use(replica, `replica ${at + 1}`);
    } finally {
      await Promise.all(replicas.map(({ stop }) => stop()));
    }
  }

  test("a header named in Connection is not checked", async () => {
    const threadId = randomUUID();
    const made = await send(gateways[0], "/agui/agent/text/run", ALICE, input(threadId, { tokens: 2 }));
    assert.match(await made.text(), /RUN_FINISHED/);
    const check = async (gateway, where) => {
      for (const connection of ["x-api-key", "keep-alive, X-API-Key", "close ,\tcookie"]) {
        for (const [name, [path, body, more]] of Object.entries(routes(threadId, "1.a.1.b.0.0000"))) {
          const headers = { ...ALICE, ...more, connection, "content-type": "application/json" };
          const asked = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
          const { status, text } = await ask(gateway.url + path, headers, asked);
          assert.equal(status, 400, `${where}: ${name}, connection: ${connection}: ${text}`);
          assert.match(text, /`connection` names the header/, `${where}: ${name}`);
        }
      }
      const { status } = await ask(`${gateway.url}/agui/info`, { ...ALICE, connection: "keep-alive, x-other" });
      assert.equal(status, 200, where);
    };
    for (const [at, gateway] of gateways.entries()) await check(gateway, `replica ${at + 1}`);
    await withReplicas("connection", LANGGRAPH, JUDGED, check);
  });

  test("check and serve report whether LangGraph distinguishes callers", async () => {
    const everywhere = ["--listen", "0.0.0.0:0"];
    const guarded = await ended("check", "--upstream", LANGGRAPH, ...JUDGED);
    assert.equal(guarded.code, 0, guarded.said);
    assert.match(guarded.said, /requires credentials of each caller/);
    await withReplicas("guarded", LANGGRAPH, [...JUDGED, ...everywhere], async ({ url, said }, where) => {
      assert.equal((await ask(`${url}/agui/info`, ALICE)).status, 200, where);
      assert.equal((await ask(`${url}/agui/info`, { "x-api-key": "invented" })).status, 401, where);
      assert.doesNotMatch(said(), /not distinguished|all requests are refused/, where);
    });
    for (const [kind, open] of Object.entries(OPEN)) {
      const checked = await ended("check", "--upstream", open, ...JUDGED);
      assert.equal(checked.code, 1, `${kind}: ${checked.said}`);
      assert.match(checked.said, /accepts invented credentials in authorization/, kind);
      const refused = await ended("serve", "--upstream", open, ...JUDGED, ...everywhere);
      assert.equal(refused.code, 1, `${kind}: ${refused.said}`);
      assert.match(refused.said, /or pass --insecure/, kind);
      for (const options of [[], [...everywhere, "--insecure"]]) {
        const gateway = await startThreadway(`tenants-open-${kind}-${options.length}`, open, ...JUDGED, ...options);
        const late = Date.now() + ANSWER_MS;
        while (!gateway.said().includes("callers are not distinguished") && Date.now() < late) {
          await new Promise((resolve) => setTimeout(resolve, 50));
        }
        await gateway.stop();
        assert.match(gateway.said(), /callers are not distinguished/, `${kind} ${options}`);
      }
    }
  });

  test("no additional header raises a caller's limit", async () => {
    const directory = await mkdtemp(join(tmpdir(), "threadway-tenants-"));
    const file = join(directory, "config.toml");
    await writeFile(file, `auth = { mode = "upstream", credential_header = "x-api-key" }\nlimits = { requests_per_second = 1, request_burst = 3, streams_per_caller = 1 }\nforward_headers = ["x-tenant"]\n`);
    try {
      await withReplicas("limits", LANGGRAPH, ["--config", file], async ({ url }, where) => {
        const count = async (headers) => {
          const began = Date.now();
          const statuses = [];
          for (let at = 0; at < 12; at += 1) statuses.push((await ask(`${url}/agui/info`, headers(at))).status);
          // Three at once, and one more each second.
          return { statuses, most: 3 + Math.ceil((Date.now() - began) / 1000) };
        };
        const alice = await count((at) => ({ ...ALICE, authorization: `Bearer ${at}`, "x-tenant": `${at}` }));
        const answered = alice.statuses.filter((status) => status === 200).length;
        assert.ok(answered >= 3 && answered <= alice.most && alice.statuses.includes(429), `${where}: ${alice.statuses}`);
        // Invented keys give no caller more, and take nothing of Bob's.
        const invented = await count((at) => ({ "x-api-key": `invented-${at}` }));
        const judged = invented.statuses.filter((status) => status === 401).length;
        assert.ok(judged >= 1 && judged <= invented.most && invented.statuses.includes(429), `${where}: ${invented.statuses}`);
        await new Promise((resolve) => setTimeout(resolve, 1_100));
        assert.equal((await ask(`${url}/agui/info`, BOB)).status, 200, where);
        const limited = await Gate.before(0);
        const run = await send({ url }, "/agui/agent/text/run", BOB, input(randomUUID(), limited.script));
        assert.equal(run.status, 200, where);
        const second = await send({ url }, "/agui/agent/text/run", { ...BOB, authorization: "Bearer x" }, input(randomUUID(), { tokens: 1 }));
        assert.equal(second.status, 429, where);
        assert.match(await second.text(), /too_many_streams/, where);
        limited.open();
        await run.body.cancel();
      });
    } finally {
      await rm(directory, { recursive: true });
    }
  });

  test("no page of another site gets an answer, wherever its browser is", async () => {
    const own = Object.values(networkInterfaces()).flat().find(({ family, internal }) => family === "IPv4" && !internal)?.address;
    const check = async ({ url, said }, where) => {
      const { port } = new URL(url);
      const places = ["127.0.0.1", ...(said().includes("on all other addresses") && own ? [own] : [])];
      for (const place of places) {
        const [events, info] = [`http://${place}:${port}/agui/agent/text/threads/${randomUUID()}/events?follow=thread`, `http://${place}:${port}/agui/info`];
        const refused = async (headers, code) => {
          for (const target of [events, info]) {
            const { status, text } = await ask(target, { ...ALICE, ...headers });
            assert.equal(status, 403, `${where} at ${place}: ${JSON.stringify(headers)}: ${text}`);
            assert.equal(JSON.parse(text).error, code, where);
          }
        };
        await refused({ host: `evil.example:${port}`, origin: `http://evil.example:${port}` }, "wrong_host");
        await refused({ host: "evil.example" }, "wrong_host");
        await refused({ origin: `evil://${place}:${port}` }, "cross_origin");
        await refused({ "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors" }, "cross_origin");
        await refused({ "sec-fetch-site": "same-site" }, "cross_origin");
        for (const headers of [{}, { origin: `http://${place}:${port}` }, { "sec-fetch-site": "same-origin" }, { "sec-fetch-site": "none" }, { host: "localhost" }]) {
          assert.equal((await ask(info, { ...ALICE, ...headers })).status, 200, `${where} at ${place}: ${JSON.stringify(headers)}`);
        }
      }
    };
    for (const [at, gateway] of gateways.entries()) await check(gateway, `replica ${at + 1}`);
    await withReplicas("rebinding", LANGGRAPH, ["--listen", "0.0.0.0:0", "--insecure"], check);
  });
});
