// nginx and Caddy, configured as in docs/operate.md, in front of `threadway demo`: real proxies with TLS and HTTP/2. Each
// event must arrive before the next one is sent, and each closed connection must be closed on the other side too.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { openSync, readFileSync, writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { connect as connectHttp2 } from "node:http2";
import { request as requestHttp1 } from "node:https";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { LOGS } from "./logs.mjs";
import { freePort } from "./ports.mjs";

const GATEWAY = new URL(process.env.DEMO_GATEWAY_URL);
const DOCUMENT = readFileSync(new URL("../../docs/operate.md", import.meta.url), "utf8");
const JSON_BODY = { "content-type": "application/json" };
const READY_MS = 60_000;
const HELD_BACK_MS = 30_000; // an event that has not arrived by then is held back
const KEEP_ALIVE_MS = 15_000; // threadway's interval
const CLOSED_MS = 60_000;
const LARGE = 2 * 1024 * 1024; // by default nginx refuses more than 1 MiB
const STREAMS = 12; // a browser opens six HTTP/1.1 connections to a host
const OPTIONS = { timeout: 600_000 }; // what hangs is noticed sooner, by its own limit

/** The document's one block of this language, with the changes that a test needs. */
function documented(language, changes) {
  const blocks = [...DOCUMENT.matchAll(new RegExp("^```" + language + "\n([^]*?)^```$", "gm"))];
  assert.equal(blocks.length, 1, `docs/operate.md has ${blocks.length} blocks of ${language}`);
  let [[, text]] = blocks;
  for (const [from, to] of Object.entries(changes)) {
    assert.equal(text.split(from).length, 2, `the block of ${language} does not have \`${from}\` once:\n${text}`);
    text = text.replace(from, to);
  }
  return text;
}

const PROXIES = {
  nginx: (directory, port, tap) => {
    const [key, certificate] = ["key.pem", "certificate.pem"].map((name) => join(directory, name));
    execFileSync("openssl", ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
      "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate], { stdio: "pipe" });
    const site = documented("nginx", {
      "127.0.0.1:8484": `127.0.0.1:${tap}`,
      "    listen 443 ": `    listen 127.0.0.1:${port} `,
      "chat.example.org": "localhost",
      "/etc/ssl/threadway/fullchain.pem": certificate,
      "/etc/ssl/threadway/privkey.pem": key,
    });
    const paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((name) => `${name}_temp_path ${join(directory, name)};`);
    const user = process.getuid() === 0 ? "user root;" : "";
    const file = join(directory, "nginx.conf");
    // As in distributions: the configuration around the block compresses as much as possible.
    writeFileSync(file, `${user} daemon off; pid ${join(directory, "pid")}; error_log stderr info; events {}
      http { access_log off; gzip on; gzip_types *; gzip_proxied any; ${paths.join(" ")}
      ${site} }`);
    return [process.env.NGINX, "-p", directory, "-e", "stderr", "-c", file];
  },
  caddy: (directory, port, tap) => {
    const site = documented("caddyfile", { "127.0.0.1:8484": `127.0.0.1:${tap}`, "chat.example.org": `https://localhost:${port}` });
    const file = join(directory, "Caddyfile");
    writeFileSync(file, `{\n admin off\n auto_https disable_redirects\n skip_install_trust\n storage file_system ${directory}\n}\n${site}`);
    return [process.env.CADDY, "run", "--adapter", "caddyfile", "--config", file];
  },
};

/** A proxy between the tested proxy and the gateway. It sees the gateway's bytes, and can wait until the client has them. */
class Tap {
  open = new Set(); // the proxy's connections
  pace = null; // waits until a piece has arrived

  async listen() {
    this.listener = createServer((inbound) => {
      const outbound = connect(Number(GATEWAY.port), GATEWAY.hostname);
      this.open.add(inbound);
      for (const [socket, other] of [[inbound, outbound], [outbound, inbound]]) {
        socket.setNoDelay(true);
        socket.on("error", () => other.destroy());
        socket.on("close", () => other.destroy());
      }
      inbound.on("close", () => this.open.delete(inbound));
      inbound.pipe(outbound);
      outbound.on("end", () => inbound.end());
      outbound.on("data", async (bytes) => {
        outbound.pause();
        inbound.write(bytes);
        await this.pace?.(bytes.toString("latin1"));
        outbound.resume();
      });
    });
    this.listener.listen(0, "127.0.0.1");
    await once(this.listener, "listening");
    return this.listener.address().port;
  }

  close() {
    for (const socket of this.open) socket.destroy();
    this.listener.close();
  }
}

/** One response as a client gets it. */
class Reading {
  text = "";
  waiting = new Set();

  constructor(stream) {
    this.stream = stream;
    this.ended = new Promise((resolve) => stream.once("close", resolve));
    stream.setEncoding("latin1").on("data", (text) => {
      this.text += text;
      for (const look of this.waiting) look();
    });
    stream.on("error", () => {}); // the client may disconnect
  }

  /** Whether the text fulfils the condition in time. */
  until(isTrue, milliseconds) {
    return new Promise((resolve) => {
      const done = (answer) => {
        this.waiting.delete(look);
        clearTimeout(late);
        resolve(answer);
      };
      const look = () => isTrue(this.text) && done(true);
      const late = setTimeout(done, milliseconds, false);
      this.waiting.add(look);
      look();
    });
  }

  count(mark) {
    return this.text.split(mark).length - 1;
  }

  get frames() {
    return this.text.split("\n\n").slice(0, -1).map((frame) => {
      const fields = frame.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1).trim()]);
      const { id, data } = Object.fromEntries(fields);
      return { id, event: data && JSON.parse(data) };
    });
  }

  get events() {
    return this.frames.filter(({ event }) => event).map(({ event }) => event);
  }
}

const input = (threadId, content, forwardedProps = {}) => JSON.stringify({ threadId, runId: randomUUID(), protocolVersion: "1.0",
  forwardedProps, messages: [{ id: randomUUID(), role: "user", content }] });
// Caddy listens before it has its certificate.
const connected = (port) => new Promise((resolve) => {
  const session = connectHttp2(`https://localhost:${port}`, { rejectUnauthorized: false }, () => resolve(session));
  session.on("error", () => resolve(null));
});
const told = (events, type) => events.filter((event) => event.type === type);
const textOf = (events) => told(events, "TEXT_MESSAGE_CONTENT").map(({ delta }) => delta).join("");
const pause = (milliseconds) => new Promise((over) => setTimeout(over, milliseconds));

describe("proxies", { concurrency: true }, () => {
  for (const [name, configure] of Object.entries(PROXIES)) {
    describe(name, { concurrency: 1 }, () => {
      let directory, proxy, port, session;
      const tap = new Tap();

      before(async () => {
        directory = await mkdtemp(join(tmpdir(), `threadway-${name}-`));
        port = await freePort();
        const [program, ...options] = configure(directory, port, await tap.listen());
        const log = openSync(new URL(`proxy-${name}.log`, LOGS), "w");
        proxy = spawn(program, options, { stdio: ["ignore", log, log], env: { ...process.env, HOME: directory } });
        proxy.once("error", () => {});
        process.once("exit", () => proxy.kill("SIGKILL"));
        const late = Date.now() + READY_MS;
        while (!(session = await connected(port))) {
          if (proxy.exitCode !== null || Date.now() > late) throw new Error(`${name} does not serve; see proxy-${name}.log`);
          await pause(50);
        }
      }, OPTIONS);

      after(async () => {
        session?.destroy();
        tap.close();
        proxy?.kill("SIGTERM");
        if (proxy?.exitCode === null) await once(proxy, "exit");
        if (directory) await rm(directory, { recursive: true, force: true });
      });

      /** Sends a request over HTTP/2, on the one connection. */
      const ask = async (path, headers = {}, body) => {
        const stream = session.request({ ":path": path, ":method": body ? "POST" : "GET", ...(body && JSON_BODY), ...headers });
        stream.end(body);
        const reading = new Reading(stream);
        [reading.headers] = await once(stream, "response");
        return reading;
      };
      const run = (threadId, words, headers) => ask("/agui/agent/agent/run", headers, input(threadId, words));
      const eventsOf = (threadId) => `/agui/agent/agent/threads/${threadId}/events`;

      /** Sends the next event only when the client has all earlier bytes. */
      const inStep = async (mark, start) => {
        let sent = 0;
        let reading;
        const held = [];
        let opened;
        const isOpen = new Promise((resolve) => (opened = resolve));
        tap.pace = async (bytes) => {
          sent += bytes.split(mark).length - 1;
          await isOpen;
          const count = sent;
          const has = reading && (await reading.until(() => reading.count(mark) >= count, HELD_BACK_MS));
          if (reading && !has) held.push(`${reading.count(mark)} of ${count}`);
          // One proof is enough.
          if (held.length) tap.pace = null;
        };
        try {
          // The head of the response is waited for as well.
          const late = setTimeout(() => opened(held.push("no head")), HELD_BACK_MS);
          reading = await start();
          clearTimeout(late);
          opened();
          await reading.ended;
          assert.deepEqual(held, [], `${name} holds back: the client had`);
          assert.equal(reading.count(mark), sent);
          return reading;
        } finally {
          tap.pace = null;
        }
      };

      test("each event arrives before the next is sent", OPTIONS, async () => {
        const reading = await inStep("\n\n", () => run(randomUUID(), "Where is it warm?"));
        assert.equal(reading.headers["content-type"], "text/event-stream");
        assert.equal(reading.headers["content-encoding"], undefined);
        assert.equal(reading.events.at(0).type, "RUN_STARTED");
        assert.equal(reading.events.at(-1).type, "RUN_FINISHED");
        assert.ok(told(reading.events, "TEXT_MESSAGE_CONTENT").length > 20);
      });

      test("so does each line of NDJSON", OPTIONS, async () => {
        const reading = await inStep("}\n", () => run(randomUUID(), "Where is it warm?", { accept: "application/x-ndjson" }));
        assert.equal(reading.headers["content-type"], "application/x-ndjson");
        assert.match(reading.text, /RUN_FINISHED/);
      });

      test("over HTTP/1.1 too", OPTIONS, async () => {
        const reading = await inStep("\n\n", async () => {
          const headers = { ...JSON_BODY, "accept-encoding": "gzip, br, zstd" };
          const asked = requestHttp1(`https://localhost:${port}/agui/agent/agent/run`, { method: "POST", headers, rejectUnauthorized: false });
          asked.end(input(randomUUID(), "Where is it warm?"));
          const [response] = await once(asked, "response");
          assert.equal(response.headers["content-encoding"], undefined);
          return new Reading(response);
        });
        assert.equal(reading.events.at(-1).type, "RUN_FINISHED");
      });

      test("a silent stream sends heartbeats", OPTIONS, async () => {
        const threadId = randomUUID();
        await (await run(threadId, "Hello")).ended;
        const reading = await ask(`${eventsOf(threadId)}?follow=thread`);
        assert.ok(await reading.until((text) => text.includes("RUN_FINISHED"), HELD_BACK_MS));
        const lives = reading.count("\n:");
        assert.ok(await reading.until(() => reading.count("\n:") > lives, KEEP_ALIVE_MS + HELD_BACK_MS), "no comment came");
        reading.stream.close();
      });

      test("a client that was cut resumes after its last event", OPTIONS, async () => {
        const threadId = randomUUID();
        const cut = await run(threadId, "Where is it warm?");
        assert.ok(await cut.until(() => told(cut.events, "TEXT_MESSAGE_CONTENT").length >= 5, HELD_BACK_MS));
        const { frames: before } = cut;
        cut.stream.close();
        const last = before.findLast(({ id }) => id).id;
        const seen = before.slice(0, before.findLastIndex(({ id }) => id) + 1).filter(({ event }) => event).map(({ event }) => event);
        const rest = await ask(eventsOf(threadId), { "last-event-id": last });
        await rest.ended;
        assert.notEqual(rest.events.at(0).type, "RUN_STARTED", "it started over");
        assert.equal(rest.events.at(-1).type, "RUN_FINISHED");
        const whole = await ask(eventsOf(threadId));
        await whole.ended;
        const [{ messages }] = told(whole.events, "MESSAGES_SNAPSHOT").slice(-1);
        const spoken = messages.filter(({ role, content }) => role === "assistant" && content).map(({ content }) => content);
        assert.equal(textOf([...seen, ...rest.events]), spoken.join(""));
      });

      test("the gateway notices a client that disconnects", OPTIONS, async () => {
        const threadId = randomUUID();
        await (await run(threadId, "Hello")).ended;
        const rested = new Set(tap.open);
        const reading = await ask(`${eventsOf(threadId)}?follow=thread`);
        assert.ok(await reading.until((text) => text.includes("RUN_FINISHED"), HELD_BACK_MS));
        // The connection that closes is the stream's: the proxy may have reused an idle one.
        const before = tap.open.size;
        const closed = Promise.race([...tap.open].map((socket) => once(socket, "close")));
        reading.stream.close();
        const late = new Promise((resolve) => setTimeout(resolve, CLOSED_MS, "late").unref());
        assert.notEqual(await Promise.race([closed, late]), "late", `${before} connections stay open, ${rested.size} of them rested`);
      });

      test("a long conversation is accepted", OPTIONS, async () => {
        // Members that a client may not set are not forwarded: the demo's LangGraph accepts less than this.
        const body = input(randomUUID(), "Where is it warm?", { unknown: "x".repeat(LARGE) });
        const reading = await ask("/agui/agent/agent/run", {}, body);
        assert.equal(reading.headers[":status"], 200);
        await reading.ended;
        assert.equal(reading.events.at(-1).type, "RUN_FINISHED");
      });

      test("a page of this host may send requests, and no other's", OPTIONS, async () => {
        for (const [origin, status] of [[`https://localhost:${port}`, 200], ["https://other.example", 403]]) {
          const reading = await ask("/agui/info", { origin });
          assert.equal(reading.headers[":status"], status, origin);
          await reading.ended;
        }
      });

      test("one connection carries many streams", OPTIONS, async () => {
        const threadId = randomUUID();
        await (await run(threadId, "Hello")).ended;
        const readings = await Promise.all(Array.from({ length: STREAMS }, () => ask(`${eventsOf(threadId)}?follow=thread`)));
        for (const reading of readings) assert.ok(await reading.until((text) => text.includes("RUN_FINISHED"), HELD_BACK_MS));
        for (const reading of readings) reading.stream.close();
      });
    });
  }
});
