// Faults between a threadway and a real LangGraph server, each during one operation of a client: what the client, the log and
// the metrics show. `faults.json` has the expected result of each cell, and `docs/faults.md` shows the cells as a table.
//
// FAULTS=all runs every cell, otherwise a sample. FAULT=reset,gzip OPERATION=run chooses some of them.
// UPDATE_GOLDEN=1 stores the results of the cells that ran, and writes the table.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { chmodSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { networkInterfaces } from "node:os";
import { fileURLToPath } from "node:url";
import { before, describe, test } from "node:test";
import { FAULTS, FaultProxy } from "./fault-proxy.mjs";
import { checkDocument, IS_UPDATE, OPERATIONS, store, stored } from "./fault-table.mjs";
import { Gate } from "./gate.mjs";
import { LOGS } from "./logs.mjs";
import { reduce, silence } from "./reducer.mjs";
import { firstDifference, ofClient, ofThread } from "./thread.mjs";
import { startProgram } from "./threadway.mjs";

silence();

const SERVERS = [
  ["Python", process.env.LANGGRAPH_URL],
  ["JavaScript", process.env.LANGGRAPH_JS_URL],
  ["aegra", process.env.LANGGRAPH_AEGRA_URL],
].flatMap(([name, url]) => (url ? [{ name, url }] : []));
if (SERVERS.length === 0) throw new Error("LANGGRAPH_URL is not set: start this with integration/run or integration/faults");

const IS_ALL = process.env.FAULTS === "all";

const GRAPH = "text";
const CELLS_AT_A_TIME = IS_ALL ? 8 : 4; // of all of them most wait
const HANGS_MS = 170_000; // no operation lasts as long
const OUTAGE_MS = 3_000; // of a fault that ends while a client follows a run
const LOG_MS = 500; // after this time no more log lines are expected
const SHORT = { tokens: 10, delay: 0.02 };
const REST = { tokens: 50, delay: 0.1 }; // longer than the outage
const ownMs = ({ tokens, delay }) => tokens * delay * 1000;
const BEGUN = 3; // tokens that a follower has before the fault
const HELD_AT = [5, 10]; // the run is held until the follower has joined it, and until the fault has begun

/** By operation, the requests that are struck, and whether the fault lasts. Otherwise it ends by itself. */
const STRUCK = {
  run: { lasts: true, strikes: (method, path) => method === "POST" && /\/runs\/stream$/.test(path) },
  connect: { lasts: true, strikes: (method, path) => method === "GET" && path.startsWith("/threads/") },
  follow: { lasts: false, strikes: (_, path) => path.startsWith("/threads/") },
  "follow, lasting": { lasts: true, strikes: (_, path) => path.startsWith("/threads/") },
  stop: { lasts: true, strikes: (method, path) => method === "POST" && /\/cancel(\?|$)/.test(path) },
  info: { lasts: true, strikes: (_, path) => path === "/assistants/search" },
};
/** A sample that shows each kind of result in less than a minute. */
const SAMPLE = { reset: ["run", "follow", "stop"], "429 without Retry-After": ["run"], "429 with Retry-After": ["run", "info"], "502 with HTML": ["run", "connect"],
  "truncated JSON": ["connect"], gzip: ["run", "connect"], redirect: ["run", "info"], refused: ["info", "follow"] };

/** Why a cell does not exist or cannot run here, if so. */
function isLeftOut(fault, operation) {
  if (!IS_ALL && !SAMPLE[fault]?.includes(operation)) return "not in the sample";
  const chosen = (variable, name) => !process.env[variable] || process.env[variable].split(",").includes(name);
  if (!chosen("FAULT", fault) || !chosen("OPERATION", operation)) return "not chosen";
  if (fault === "HTTP/2 only" && operation.startsWith("follow")) return "there is no run";
  if (operation === "follow, lasting" && FAULTS[fault].isAlways) return "the same as `follow`";
  return undefined;
}

const MISSING = {
  IPv6: () => Object.values(networkInterfaces()).flat().some(({ address }) => address === "::1") ? undefined : "this machine has no ::1",
  "name not found": () => (canRun("unshare", ...NAMESPACE, "true") ? undefined : "this machine allows no mount namespace"),
  "gateway's clock": () => (process.env.FAKETIME ? undefined : "there is no faketime"),
};

// ---------------------------------------------------------------- the gateway
const NAMESPACE = process.getuid() === 0 ? ["--mount"] : ["--user", "--map-root-user", "--mount"];
const NAME = "langgraph.test";

function canRun(...command) {
  try {
    execFileSync(command[0], command.slice(1), { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

/** A script that starts the binary, with the name of the server in an `/etc/hosts` of its own. The system's file stays as it is. */
function inNamespace(id) {
  const hosts = fileURLToPath(new URL(`${id}.hosts`, LOGS));
  const lookup = fileURLToPath(new URL(`${id}.nsswitch`, LOGS));
  writeFileSync(lookup, "hosts: files\n");
  const name = (isKnown) => writeFileSync(hosts, isKnown ? `127.0.0.1 localhost ${NAME}\n` : "127.0.0.1 localhost\n");
  name(true);
  const mounts = `mount --bind '${hosts}' /etc/hosts && mount --bind '${lookup}' /etc/nsswitch.conf`;
  const inner = `${mounts} && exec '${process.env.THREADWAY_BIN}' "$@"`;
  return { program: script(id, `exec unshare ${NAMESPACE.join(" ")} sh -c ${JSON.stringify(inner).replaceAll("$", "\\$")} sh "$@"`), name };
}

function script(id, line) {
  const path = fileURLToPath(new URL(`${id}.sh`, LOGS));
  writeFileSync(path, `#!/bin/sh\n${line}\n`);
  chmodSync(path, 0o755);
  return path;
}

/** A threadway behind a proxy with a fault, and a server to which a redirect leads. */
class Scene {
  static async start(server, fault, operation) {
    const scene = Object.assign(new Scene(), { server, fault, operation, elsewhere: [] });
    try {
      await scene.#start();
    } catch (error) {
      await scene.close(); // or this process would not end
      throw error;
    }
    return scene;
  }

  async #start() {
    const { server, fault, operation } = this;
    const id = `${server.name}-${fault}-${operation}`.replaceAll(/[^A-Za-z0-9]+/g, "-");
    this.trap = createServer((asked, response) => {
      this.elsewhere.push(`${asked.method} ${asked.url}`);
      response.end("{}");
    });
    await new Promise((resolve) => this.trap.listen(0, "127.0.0.1", resolve));
    this.proxy = await FaultProxy.start(server.url, fault, `http://127.0.0.1:${this.trap.address().port}`);
    const { place } = FAULTS[fault];
    let program = process.env.THREADWAY_BIN;
    let upstream = this.proxy.url;
    if (place === "unnamed") {
      const namespace = inNamespace(id);
      program = namespace.program;
      this.name = namespace.name;
      upstream = `http://${NAME}:${this.proxy.port}`;
    }
    // `faketime` starts the program as a child, which would outlive it. So the script sets its variables, and becomes the program.
    const faked = `'${process.env.FAKETIME}' -f -10m printenv LD_PRELOAD`;
    const clock = `export LD_PRELOAD="$(${faked})" FAKETIME=-10m FAKETIME_DONT_FAKE_MONOTONIC=1`;
    if (place === "faketime") program = script(id, `${clock}\nexec '${process.env.THREADWAY_BIN}' "$@"`);
    this.upstream = upstream;
    this.gateway = await startProgram(program, `faults-${id}`, upstream, "--admin-listen", "127.0.0.1:0");
    // The gateway has listed the agents once, or has logged why it cannot.
    await until(() => this.gateway.said().includes("CopilotKit: runtimeUrl") && /admin: metrics on/.test(this.gateway.said()));
    if (place === "http2") Object.assign(this, { before: new Map(), logged: 0 }); // the fault is there from the start
    this.metricsUrl = /metrics on (http:\S+)/.exec(this.gateway.said())[1];
  }

  async close() {
    this.isClosed = true;
    await this.gateway?.stop();
    this.proxy?.close();
    this.trap?.close();
  }

  async arm() {
    this.before ??= await this.metrics();
    this.logged ??= this.gateway.said().length;
    this.name?.(false);
    await this.proxy.arm(STRUCK[this.operation].strikes);
  }

  async disarm() {
    if (this.isClosed) return;
    this.name?.(true);
    await this.proxy.disarm();
  }

  async ask(path, init) {
    const signal = AbortSignal.timeout(HANGS_MS);
    const response = await fetch(this.gateway.url + path, { ...init, signal });
    return response;
  }

  post(path, body) {
    return this.ask(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  }

  run(threadId, script) {
    const message = { id: randomUUID(), role: "user", content: JSON.stringify(script) };
    return this.post(`/agui/agent/${GRAPH}/run`, input(threadId, [message]));
  }

  /** LangGraph's own answer, without a proxy; `undefined` for what does not exist. */
  async truth(path) {
    const response = await fetch(this.server.url + path, { headers: { connection: "close" } });
    if (response.status === 404) return undefined;
    if (!response.ok) throw new Error(`GET ${path}: ${response.status} ${await response.text()}`);
    return response.json();
  }

  async runs(threadId) {
    return (await this.truth(`/threads/${threadId}/runs?limit=10`)) ?? [];
  }

  /** Waits until no run of the thread is live. */
  async settled(threadId) {
    await until(async () => (await this.runs(threadId)).every(({ status }) => !["pending", "running"].includes(status)));
    await until(async () => (await this.truth(`/threads/${threadId}`))?.status !== "busy");
  }

  async cancelAll(threadId) {
    for (const { run_id: runId, status } of await this.runs(threadId)) {
      if (!["pending", "running"].includes(status)) continue;
      await fetch(`${this.server.url}/threads/${threadId}/runs/${runId}/cancel`, { method: "POST", headers: { connection: "close" } });
    }
  }

  /** The values of the counters, by name and labels. */
  async metrics() {
    const text = await (await fetch(this.metricsUrl, { headers: { connection: "close" } })).text();
    const lines = text.split("\n").filter((line) => line && !line.startsWith("#"));
    return new Map(lines.map((line) => [line.slice(0, line.lastIndexOf(" ")), Number(line.slice(line.lastIndexOf(" ") + 1))]));
  }

  /** The counters of faults that have changed since the fault began. */
  async counted() {
    const names = [];
    for (const [name, value] of await this.metrics()) {
      const isCounted = COUNTERS.some((counter) => counter.test(name));
      if (isCounted && value > (this.before.get(name) ?? 0)) names.push(name.replace(/^threadway_/, "").replace("_total{", "{"));
    }
    return names.sort();
  }

  /** The log lines since the fault began that are warnings or errors, without what differs in each run. */
  warnings() {
    const lines = this.gateway.said().slice(this.logged).split("\n");
    const found = lines.flatMap((line) => {
      const told = /\b(WARN|ERROR) (.*)$/.exec(line.replaceAll(/\x1b\[\d+m/g, ""));
      return told ? [this.#normal(`${told[1]} ${told[2]}`)] : [];
    });
    // Three requests in a row may fail within a short outage, or fewer.
    const isShort = this.operation === "follow" && this.fault !== "refused" && this.fault !== "name not found";
    return [...new Set(found)].filter((line) => !(isShort && line.includes("is unavailable: "))).sort();
  }

  #normal(line) {
    return line
      .replaceAll(this.upstream, "http://UPSTREAM")
      .replaceAll(`http://127.0.0.1:${this.trap.address().port}`, "http://ELSEWHERE")
      .replaceAll(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}/g, "ID")
      .replaceAll(/[0-9a-f]{32}/g, "ID")
      .replace(/threadway\S*: /, "")
      .replaceAll(UNTOLD, "")
      .replaceAll(/ url=http:\/\/UPSTREAM\/?/g, "");
  }

  /** The log and the metrics since the fault began. What is expected may come late. */
  async seen({ log = [], metrics = [] } = {}) {
    await pause(LOG_MS);
    const lacks = (list, expected) => expected.some((one) => !list.includes(one));
    await until(async () => !lacks(this.warnings(), log) && !lacks(await this.counted(), metrics)).catch(() => {});
    return { log: this.warnings(), metrics: await this.counted() };
  }

  /** A message for a client, without what differs in each run. */
  told(text) {
    return this.#normal(text);
  }
}

/** The fields of log lines that the table leaves out: they repeat the client's column, or name ids. */
const UNTOLD = / (?:status|code|route|agent|peer|thread_id|run_id)=(?:"[^"]*"|\S+)/g;

/** The counters that count faults. */
const COUNTERS = [
  /^threadway_upstream_errors_total/,
  /^threadway_requests_refused_total/,
  /^threadway_upstream_rejoins_total\{reason="(cut|silent)"/, // the others depend on the moment of the fault
  /^threadway_runs_ended_total\{outcome="(failed|lost)"/,
];

function input(threadId, messages) {
  return { protocolVersion: "1.0", threadId, runId: randomUUID(), messages, state: {}, tools: [], context: [], forwardedProps: {} };
}

const pause = (ms) => new Promise((wake) => setTimeout(wake, ms));

async function until(isTrue, ms = 90_000) {
  for (const end = performance.now() + ms; !(await isTrue()); await pause(50)) {
    if (performance.now() > end) throw new Error(`not within ${ms} ms: ${isTrue}`);
  }
}

/** Reads the events of a stream. */
async function read(response, onEvent = () => {}) {
  const events = [];
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of response.body) {
    const blocks = (rest + decoder.decode(chunk, { stream: true })).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const data = block.split("\n").flatMap((line) => (line.startsWith("data:") ? [line.slice(5)] : [])).join("\n");
      if (!data) continue;
      events.push(JSON.parse(data));
      if (onEvent(events.at(-1), events) === "leave") return events;
    }
  }
  return events;
}

/** A time as a class, because a figure would differ each time. The sample compares none: a time depends on the machine too. */
function classOf(ms, operation) {
  if (ms < 3_800 && !operation.startsWith("follow")) return "at once";
  if (ms < 20_000) return "in seconds";
  if (ms < 50_000) return "in half a minute";
  assert.ok(ms < HANGS_MS, `the operation took ${(ms / 1000).toFixed(0)} s`);
  return "in a minute or two";
}

// ---------------------------------------------------------------- the operations
async function refusal(scene, response) {
  const { error, message } = JSON.parse(await response.text());
  const wait = response.headers.get("retry-after");
  return `${response.status} \`${error}\`${wait ? `, \`Retry-After: ${wait}\`` : ""}: ${scene.told(message)}`;
}

/** How a stream ended, and whether the client then has LangGraph's messages. */
async function outcome(scene, threadId, events, sent = []) {
  const last = events.at(-1);
  const { messages, error } = await reduce({ name: threadId, messages: sent, state: {}, events });
  assert.equal(error, null, `the client refused the stream: ${error}`);
  const end = last.type === "RUN_ERROR" ? `\`RUN_ERROR ${last.code}\`: ${scene.told(last.message)}` : `\`${last.type}\``;
  await scene.settled(threadId);
  const { values } = await scene.truth(`/threads/${threadId}/state`);
  if (last.type === "RUN_ERROR") return end;
  const difference = firstDifference(ofClient(messages).messages, ofThread(values, threadId).messages);
  assert.equal(difference, undefined, `the client's messages are not the thread's: ${difference}`);
  return `${end}, all messages`;
}

const PERFORM = {
  async run(scene, threadId) {
    await scene.arm();
    const began = performance.now();
    const message = { id: randomUUID(), role: "user", content: JSON.stringify(SHORT) };
    const response = await scene.post(`/agui/agent/${GRAPH}/run`, input(threadId, [message]));
    let client;
    if (response.status === 200) {
      const events = await read(response);
      scene.took = performance.now() - began - ownMs(SHORT);
      client = await outcome(scene, threadId, events, [message]);
    } else {
      client = await refusal(scene, response);
      scene.took = performance.now() - began;
    }
    await scene.settled(threadId);
    const runs = await scene.runs(threadId);
    assert.ok(runs.length <= 1, `${runs.length} runs were started for one message`);
    return response.status === 200 ? client : `${client} (${runs.length === 1 ? "the run was started" : "no run was started"})`;
  },

  async connect(scene, threadId) {
    const response = await scene.run(threadId, SHORT);
    if (scene.fault !== "HTTP/2 only") {
      await read(response);
      await scene.settled(threadId);
    }
    await scene.arm();
    const began = performance.now();
    const connected = await scene.post(`/agui/agent/${GRAPH}/connect`, input(threadId, []));
    if (connected.status !== 200) {
      const client = await refusal(scene, connected);
      scene.took = performance.now() - began;
      return client;
    }
    const events = await read(connected);
    scene.took = performance.now() - began;
    return outcome(scene, threadId, events);
  },

  async follow(scene, threadId) {
    const isBegun = (events) => events.filter(({ type }) => type === "TEXT_MESSAGE_CONTENT").length >= BEGUN;
    if (FAULTS[scene.fault].isAlways) await scene.arm();
    const began = performance.now();
    let isOwnerBegun = false;
    const gate = await Gate.before(...HELD_AT);
    const owner = read(await scene.run(threadId, { ...REST, ...gate.script }), (_, events) => void (isOwnerBegun ||= isBegun(events)));
    owner.catch(() => {}); // it is awaited later
    await until(() => isOwnerBegun);
    const response = await scene.ask(`/agui/agent/${GRAPH}/threads/${threadId}/events?follow=thread`);
    assert.equal(response.status, 200);
    let struck;
    const following = read(response, (event, events) => {
      if (event.type === "RUN_STARTED") gate.open(HELD_AT[0]);
      if (!struck && isBegun(events)) struck = FAULTS[scene.fault].isAlways ? true : scene.arm();
      return ["RUN_FINISHED", "RUN_ERROR"].includes(event.type) ? "leave" : undefined;
    });
    await until(() => struck !== undefined);
    await struck;
    gate.open();
    if (!STRUCK[scene.operation].lasts) setTimeout(() => scene.disarm(), OUTAGE_MS);
    const events = await following;
    scene.took = performance.now() - began - ownMs(REST);
    if (STRUCK[scene.operation].lasts) await scene.disarm();
    const [client, ownEvents] = [await outcome(scene, threadId, events), await owner];
    const ends = [events, ownEvents].map((list) => ({ type: list.at(-1).type, code: list.at(-1).code }));
    assert.deepEqual(ends[1], ends[0], "the client that started the run and the follower see another end");
    return client;
  },

  async stop(scene, threadId, expected) {
    let owner;
    const gate = await Gate.before(BEGUN);
    if (scene.fault !== "HTTP/2 only") {
      owner = read(await scene.run(threadId, { ...SHORT, ...gate.script })).catch(() => {});
      await gate.reached(BEGUN);
    }
    await scene.arm();
    const began = performance.now();
    const response = await scene.ask(`/agui/agent/${GRAPH}/stop/${threadId}`, { method: "POST" });
    const client = response.status === 200 ? `200 \`stopped: ${JSON.parse(await response.text()).stopped}\`` : await refusal(scene, response);
    scene.took = performance.now() - began;
    if (!owner) return client;
    // The run is held, so it goes on unless it was stopped. What was stopped may end late.
    const isLive = async () => (await scene.runs(threadId)).some(({ status }) => ["pending", "running"].includes(status));
    if (/was stopped/.test(expected?.client)) await until(async () => !(await isLive())).catch(() => {});
    else await pause(1_000);
    const goesOn = await isLive();
    scene.result = await scene.seen(expected);
    await scene.disarm();
    await scene.cancelAll(threadId);
    gate.open();
    await owner;
    return `${client} (the run ${goesOn ? "goes on" : "was stopped"})`;
  },

  async info(scene) {
    await scene.arm();
    const began = performance.now();
    const response = await scene.ask("/agui/info");
    const client = response.status === 200 ? `200, ${Object.keys(JSON.parse(await response.text()).agents).length > 0 ? "the agents" : "no agents"}` : await refusal(scene, response);
    scene.took = performance.now() - began;
    return client;
  },
};
PERFORM["follow, lasting"] = PERFORM.follow;

async function cell(server, fault, operation, expected) {
  const scene = await Scene.start(server, fault, operation);
  const threadId = randomUUID();
  try {
    const client = await PERFORM[operation](scene, threadId, expected);
    const { log, metrics } = scene.result ?? (await scene.seen(expected));
    assert.deepEqual(scene.elsewhere, [], "a redirect was followed");
    await scene.disarm();
    if (fault !== "HTTP/2 only") {
      // On a busy machine a list may take longer than the gateway waits.
      await until(async () => (await scene.ask("/agui/info")).ok);
    }
    return { client, time: classOf(scene.took, operation), log, metrics };
  } finally {
    await scene.disarm().catch(() => {});
    await scene.cancelAll(threadId).catch(() => {});
    await scene.close();
  }
}

// ---------------------------------------------------------------- the matrix
const golden = stored("cells");

/** A result without the difference that a busy machine makes. */
function comparable(result) {
  if (!result || !IS_ALL) return { ...result, time: undefined };
  return { ...result, time: result.time === "at once" ? "in seconds" : result.time };
}

for (const server of SERVERS) {
  describe(server.name, { concurrency: CELLS_AT_A_TIME }, () => {
    for (const fault of Object.keys(FAULTS)) {
      for (const operation of OPERATIONS) {
        if (isLeftOut(fault, operation)) continue;
        const options = { skip: MISSING[fault]?.(), timeout: 2 * HANGS_MS };
        test(`${fault}: ${operation}`, options, async () => {
          const expected = golden[fault]?.[operation]?.[server.name];
          const result = await cell(server, fault, operation, IS_UPDATE ? undefined : expected);
          ((golden[fault] ??= {})[operation] ??= {})[server.name] = result;
          if (!IS_UPDATE) assert.deepEqual(comparable(result), comparable(expected));
        });
      }
    }
  });
}

describe("the table", () => {
  before(() => IS_UPDATE && store("cells", golden));
  test("docs/faults.md shows the results", checkDocument);
});
