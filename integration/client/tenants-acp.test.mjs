// A tenant gets nothing of another tenant's at `/acp`: not by a session's id, not by a connection's, over no transport and
// through no replica. The answers are those for ids that never existed, and the other's prompts go on.

import { strict as assert } from "node:assert";
import { randomUUID } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { WebSocket } from "ws";
import { Gate } from "./gate.mjs";
import { startThreadway } from "./threadway.mjs";

const LANGGRAPH = process.env.LANGGRAPH_AUTH_URL;
const ALICE = { "x-api-key": "key-of-alice" };
const BOB = { "x-api-key": "key-of-bob" };
const STRANGERS = { "a wrong key": { "x-api-key": "key-of-eve" }, "no key": {} };
const TRANSPORTS = ["WebSocket", "HTTP"];
const CWD = "/srv/tenants";
const TOKENS = 10;
const HELD_AT = [5, 8]; // tokens before which a run is held: until all was asked, and until Alice stops it
const ANSWER_MS = 60_000;
const PROMPT_MS = 180_000; // Alice's prompts
const SILENCE_MS = 500; // in which a stream that shows something would have shown it
const POLL_MS = 20;
const MAIL = "a@example.com"; // in the arguments of the call that waits for Alice's approval

async function until(what, isTrue, limit = ANSWER_MS) {
  for (const end = Date.now() + limit; !isTrue(); await pause(POLL_MS)) assert.ok(Date.now() < end, `${what}: not after ${limit} ms`);
}

/** One client of `/acp`, without a library, so that it can send anything. */
class Client {
  received = []; // all messages
  last = 0; // the number of the last request

  /** Opens a connection. `refused` has the status if there is none. */
  static async open(gateway, transport, headers) {
    const client = Object.assign(new Client(), { gateway, transport, headers, ended: new AbortController() });
    await (transport === "HTTP" ? client.#post({ method: "initialize" }) : client.#upgrade());
    if (client.refused) return client;
    if (transport === "HTTP") await client.read();
    else await client.request("initialize", { protocolVersion: 1 });
    return client;
  }

  async #post() {
    const id = `i${(this.last += 1)}`;
    const body = { jsonrpc: "2.0", id, method: "initialize", params: { protocolVersion: 1 } };
    const response = await call(this.gateway, "POST", this.headers, body);
    this.id = response.headers.get("acp-connection-id");
    if (response.status !== 200) this.refused = response.status;
  }

  async #upgrade() {
    this.socket = new WebSocket(`${this.gateway.url.replace("http", "ws")}/acp`, { headers: this.headers });
    this.socket.on("message", (data) => this.received.push(JSON.parse(data)));
    await new Promise((resolve, reject) => {
      this.socket.once("upgrade", ({ headers }) => (this.id = headers["acp-connection-id"]));
      this.socket.once("unexpected-response", (_, { statusCode }) => resolve((this.refused = statusCode)));
      this.socket.once("open", resolve);
      this.socket.once("error", reject);
    });
  }

  /** Reads the stream of the connection, or of one session; over a socket there is only one. */
  async read(session) {
    if (this.transport !== "HTTP") return;
    const response = await call(this.gateway, "GET", { ...this.#ids(session), ...this.headers }, undefined, this.ended.signal);
    assert.equal(response.status, 200);
    const shown = [];
    (async () => {
      let rest = "";
      for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
        const lines = (rest + chunk).split("\n");
        rest = lines.pop();
        const messages = lines.filter((line) => line.startsWith("data: ")).map((line) => JSON.parse(line.slice(6)));
        shown.push(...messages);
        this.received.push(...messages);
      }
    })().catch(() => {}); // the client has left
    return shown;
  }

  #ids(session) {
    return { "acp-connection-id": this.id, ...(session && { "acp-session-id": session }) };
  }

  /** Sends a message that gets no answer of its own; returns the status of its response. */
  async send(message) {
    if (this.transport !== "HTTP") return this.socket.send(JSON.stringify({ jsonrpc: "2.0", ...message }));
    const response = await call(this.gateway, "POST", { ...this.#ids(), ...this.headers }, { jsonrpc: "2.0", ...message });
    return `${response.status} ${await response.text()}`;
  }

  /** Sends a request; returns its answer without its id. */
  async request(method, params, limit = ANSWER_MS) {
    const id = `r${(this.last += 1)}`;
    const sent = await this.send({ id, method, params });
    const answers = () => this.received.filter((message) => message.method === undefined && message.id === id);
    await until(`the answer to ${method}`, () => answers().length > 0 || this.ended.signal.aborted, limit);
    assert.ok(answers().length > 0, `the client left before the answer to ${method}`);
    const [{ result, error }] = answers();
    return { sent, result, error };
  }

  async new(agent) {
    const { result } = await this.request("session/new", { cwd: CWD, mcpServers: [] });
    await this.read(result.sessionId);
    const set = await this.request("session/set_config_option", { sessionId: result.sessionId, configId: "assistant", value: agent });
    assert.ok(set.result, JSON.stringify(set));
    return result.sessionId;
  }

  updates(session) {
    return this.received.filter(({ method, params }) => method === "session/update" && params.sessionId === session).map(({ params }) => params.update);
  }

  text(session) {
    const chunks = this.updates(session).filter(({ sessionUpdate }) => sessionUpdate === "agent_message_chunk");
    return chunks.map(({ content }) => content.text).join("");
  }

  questions() {
    return this.received.filter(({ method }) => method === "session/request_permission");
  }

  leave() {
    this.ended.abort();
    this.socket?.terminate();
  }
}

function call({ url }, method, headers, body, signal = AbortSignal.timeout(ANSWER_MS)) {
  const kind = method === "GET" ? { accept: "text/event-stream" } : body && { "content-type": "application/json" };
  return fetch(`${url}/acp`, { method, headers: { ...kind, ...headers }, body: body && JSON.stringify(body), signal });
}

const prompt = (sessionId, said, promptId) => ({
  sessionId,
  prompt: [{ type: "text", text: JSON.stringify(said) }],
  ...(promptId && { _meta: { threadway: { promptId } } }),
});

/** A client of Alice's with two prompts in progress: one streams, and one waits for an approval. */
async function victim(gateway, transport) {
  const client = await Client.open(gateway, transport, ALICE);
  const [streaming, asking] = [await client.new("text"), await client.new("hitl")];
  const promptId = randomUUID();
  const gate = await Gate.before(...HELD_AT);
  const streamed = client.request("session/prompt", prompt(streaming, { tokens: TOKENS, ...gate.script }, promptId), PROMPT_MS);
  const requestId = `r${client.last}`;
  const asked = client.request("session/prompt", prompt(asking, {}), PROMPT_MS);
  for (const answer of [streamed, asked]) answer.catch(() => {}); // a failed test leaves them
  await until("Alice's text and her questions", () => client.text(streaming).includes("tok1 ") && client.questions().length === 2);
  return { client, transport, gate, sessions: { streaming, asking }, promptId, requestId, permissions: client.questions(), streamed, asked };
}

/** Answers each of Alice's questions, until the prompt that asks them is over. */
async function allowAll({ client, asked }) {
  const answered = new Set();
  let isOver = false;
  asked.finally(() => (isOver = true)).catch(() => {});
  while (!isOver) {
    for (const { id, params } of client.questions().filter(({ id }) => !answered.has(id))) {
      answered.add(id);
      const { optionId } = params.options.find(({ kind }) => kind === "allow_once");
      await client.send({ id, result: { outcome: { outcome: "selected", optionId } } });
    }
    await pause(POLL_MS);
  }
}

/** All messages about a session, and about what hangs on it. `own` is a session of the sender. */
function messages({ session, promptId, permissionId, requestId }, own) {
  const at = { sessionId: session };
  const opened = { ...at, cwd: CWD, mcpServers: [] };
  const request = (method, params) => ({ id: `f-${method}`, method, params });
  return {
    load: request("session/load", opened),
    "load elsewhere": request("session/load", { ...opened, cwd: "/elsewhere" }),
    resume: request("session/resume", opened),
    prompt: request("session/prompt", prompt(session, { tokens: 1 })),
    close: request("session/close", at),
    delete: request("session/delete", at),
    "set_mode": request("session/set_mode", { ...at, modeId: "default" }),
    "set_config_option": request("session/set_config_option", { ...at, configId: "assistant", value: "text" }),
    "prompt_end": request("_threadway/prompt_end", { ...at, promptId }),
    "prompt_end, cancelling": request("_threadway/prompt_end", { ...at, promptId, cancel: true }),
    ...(own && { "prompt_end of the own session": request("_threadway/prompt_end", { sessionId: own, promptId, cancel: true }) }),
    cancel: { method: "session/cancel", params: at },
    "cancel of a request": { method: "$/cancel_request", params: { requestId } },
    allow: { id: permissionId, result: { outcome: { outcome: "selected", optionId: "allow" } } },
    deny: { id: permissionId, result: { outcome: { outcome: "selected", optionId: "reject" } } },
  };
}

/** The ids of something of Alice's, and ids of the same form that never existed. */
const idsOf = ({ promptId, permissions, requestId }, session) => ({ session, promptId, permissionId: permissions[0].id, requestId });
const inventedIds = () => ({ session: randomUUID(), promptId: randomUUID(), permissionId: 4_711_000 + Math.floor(Math.random() * 1000), requestId: "r4711" });

/** An answer without the ids that the sender has named. */
const masked = (answer, ...ids) => ids.reduce((text, id) => text.replaceAll(id, "ID"), typeof answer === "string" ? answer : JSON.stringify(answer ?? null));

/** What a client with a connection of its own gets by these ids. */
async function byOwnConnection(client, ids, own) {
  const told = {};
  const { session, promptId } = ids;
  const shown = await client.read(session);
  for (const [name, { id, method, params, ...rest }] of Object.entries(messages(ids, own))) {
    const isRequest = method && id;
    const answer = isRequest ? await client.request(method, params) : await client.send({ ...(id && { id }), method, params, ...rest });
    told[name] = masked(answer, session, promptId);
  }
  if (shown) {
    await pause(SILENCE_MS);
    // Answers go there too; the numbers of the requests differ.
    told.stream = masked(shown.map(({ id, ...message }) => message), session);
  }
  return told;
}

/** What a caller gets by the id of a connection. */
async function byConnection(gateway, headers, connection, ids) {
  const told = {};
  const at = { ...headers, "acp-connection-id": connection };
  const tell = async (name, response) => {
    const text = response.status === 200 ? "a stream" : await response.text();
    if (response.status === 200) await response.body.cancel();
    told[name] = masked(`${response.status} ${text}`, connection, ids.session, ids.promptId);
  };
  await tell("the connection's stream", await call(gateway, "GET", at));
  await tell("the session's stream", await call(gateway, "GET", { ...at, "acp-session-id": ids.session }));
  for (const [name, message] of Object.entries(messages(ids))) {
    for (const named of [{}, { "acp-session-id": ids.session }]) {
      await tell(`${name}, ${Object.keys(named)}`, await call(gateway, "POST", { ...at, ...named }, { jsonrpc: "2.0", ...message }));
    }
  }
  await tell("new", await call(gateway, "POST", at, { jsonrpc: "2.0", id: 1, method: "session/new", params: { cwd: CWD, mcpServers: [] } }));
  await tell("list", await call(gateway, "POST", at, { jsonrpc: "2.0", id: 1, method: "session/list", params: {} }));
  await tell("DELETE", await call(gateway, "DELETE", at));
  return told;
}

function refusedAll(told, secrets, where) {
  for (const [name, answer] of Object.entries(told)) {
    for (const secret of secrets) assert.ok(!answer.includes(secret), `${where}: ${name} shows ${secret}: ${answer}`);
  }
}

const MODES = {
  "callers whom only LangGraph checks": "",
  'auth.mode = "upstream"': 'auth = { mode = "upstream", credential_header = "x-api-key" }\n',
};

describe("ACP between tenants", { concurrency: 2, timeout: 600_000 }, () => {
  for (const [mode, settings] of Object.entries(MODES)) {
    test(`a tenant gets nothing of another's sessions and connections: ${mode}`, async () => {
      const directory = mkdtempSync(join(tmpdir(), "threadway-tenants-acp-"));
      const file = join(directory, "config.toml");
      writeFileSync(file, settings);
      const at = Object.keys(MODES).indexOf(mode);
      const replicas = await Promise.all([1, 2].map((n) => startThreadway(`tenants-acp-${at}-${n}`, LANGGRAPH, "--config", file)));
      const clients = [];
      const opened = async (...options) => {
        const client = await Client.open(...options);
        clients.push(client);
        return client;
      };
      try {
        const victims = [];
        for (const transport of TRANSPORTS) victims.push(await victim(replicas[0], transport));
        clients.push(...victims.map(({ client }) => client));
        const secrets = ["tok1 ", MAIL, ...victims.flatMap(({ client, sessions }) => [client.id, ...Object.values(sessions)])];

        for (const [n, replica] of replicas.entries()) {
          const where = `replica ${n + 1}`;
          for (const transport of TRANSPORTS) {
            const bob = await opened(replica, transport, BOB);
            const own = await bob.new("text");
            assert.deepEqual((await bob.request("session/prompt", prompt(own, { tokens: 1 }))).result, { stopReason: "end_turn" });
            const targets = victims.flatMap((target) => Object.entries(target.sessions).map(([kind, session]) => ({ target, kind, session })));
            const [unknown, ...all] = await Promise.all([inventedIds(), ...targets.map(({ target, session }) => idsOf(target, session))].map((ids) => byOwnConnection(bob, ids, own)));
            for (const [n, { target, kind }] of targets.entries()) {
              const what = `${where}, ${transport}: Alice's ${kind} session over ${target.transport}`;
              assert.deepEqual(all[n], unknown, what);
              refusedAll(all[n], secrets, what);
            }
            for (const params of [{}, { cwd: CWD }]) {
              const listed = await bob.request("session/list", params);
              refusedAll({ list: JSON.stringify(listed) }, secrets, `${where}, ${transport}`);
            }
            // Bob's connection still works, and has got nothing but what he asked for.
            assert.deepEqual((await bob.request("session/prompt", prompt(own, { tokens: 2 }))).result, { stopReason: "end_turn" });
            const strange = bob.received.filter(({ method, params }) => method && params.sessionId !== own);
            assert.deepEqual(strange, [], `${where}, ${transport}`);
          }

          for (const [name, headers] of Object.entries({ Bob: BOB, ...STRANGERS })) {
            const unknown = await byConnection(replica, headers, randomUUID(), inventedIds());
            const expected = name === "Bob" ? /^404 / : /^(404|401|429|502) /;
            for (const answer of Object.values(unknown)) assert.match(answer, expected, `${where}: ${name}`);
            for (const target of victims) {
              const told = await byConnection(replica, headers, target.client.id, idsOf(target, target.sessions.asking));
              const what = `${where}: ${name} with the id of Alice's connection over ${target.transport}`;
              refusedAll(told, secrets, what);
              for (const answer of Object.values(told)) assert.match(answer, expected, what);
              // Who guesses keys is refused sooner or later with 429.
              if (!Object.values({ ...told, ...unknown }).some((answer) => answer.startsWith("429"))) assert.deepEqual(told, unknown, what);
            }
            for (const transport of name === "Bob" ? [] : TRANSPORTS) {
              const stranger = await opened(replica, transport, headers);
              if (stranger.refused) {
                assert.ok([401, 429].includes(stranger.refused), `${where}: ${name}: ${stranger.refused}`);
                continue;
              }
              const ids = [inventedIds(), ...victims.map((target) => idsOf(target, target.sessions.streaming))];
              const [nothing, ...all] = await Promise.all(ids.map((ids) => byOwnConnection(stranger, ids)));
              for (const told of all) {
                refusedAll(told, secrets, `${where}, ${transport}: ${name}`);
                assert.deepEqual(told, nothing, `${where}, ${transport}: ${name}`);
              }
              // Without a key there is no list.
              refusedAll({ list: JSON.stringify(await stranger.request("session/list", {})) }, secrets, `${where}: ${name}`);
            }
          }
        }

        for (const { transport, client, sessions, permissions } of victims) {
          const isOver = client.received.some(({ result }) => result?.stopReason);
          assert.ok(!isOver, `a prompt of Alice's over ${transport} was over before all was asked: make it longer`);
          // The same requests give Alice her session.
          for (const replica of replicas) {
            for (const transport of TRANSPORTS) {
              const again = await opened(replica, transport, ALICE);
              await again.read(sessions.streaming);
              const loaded = await again.request("session/load", { sessionId: sessions.streaming, cwd: CWD, mcpServers: [] });
              assert.ok(loaded.result, JSON.stringify(loaded));
              await until("the run that Alice loads", () => again.text(sessions.streaming).includes("tok1 "));
              const { result } = await again.request("session/list", { cwd: CWD });
              assert.ok(result.sessions.some(({ sessionId }) => sessionId === sessions.streaming));
            }
          }
          assert.deepEqual(client.questions(), permissions, "her questions are open, and none was asked again");
        }

        for (const target of victims) {
          await allowAll(target);
          assert.deepEqual((await target.asked).result, { stopReason: "end_turn" });
          const results = target.client.updates(target.sessions.asking).filter(({ status }) => status === "completed");
          assert.ok(JSON.stringify(results).includes(`sent to ${MAIL}`), JSON.stringify(results));
        }
        for (const { transport, client, gate, sessions, streamed } of victims) {
          const text = () => client.text(sessions.streaming);
          const { length } = text();
          gate.open(HELD_AT[0]);
          await until(`more of the text over ${transport}`, () => text().length > length);
          await client.send({ method: "session/cancel", params: { sessionId: sessions.streaming } });
          assert.deepEqual((await streamed).result, { stopReason: "cancelled" }, transport);
          const whole = Array.from({ length: TOKENS }, (_, at) => `tok${at} `).join("");
          assert.ok(whole.startsWith(text()), `${transport}: ${text()}`);
        }
      } finally {
        for (const client of clients) client.leave();
        await Promise.all(replicas.map(({ stop }) => stop()));
        rmSync(directory, { recursive: true });
      }
    });
  }
});
