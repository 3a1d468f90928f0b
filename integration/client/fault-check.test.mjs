// `threadway check` in front of real LangGraph servers, and of servers that are none: what it prints, and its status.

import assert from "node:assert/strict";
import { execFile, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { connect, createServer as createTcpServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { checkDocument, IS_UPDATE, store, stored } from "./fault-table.mjs";
import { freePort } from "./ports.mjs";
import { startThreadway } from "./threadway.mjs";

const READY_MS = 20_000;
const CHECK_MS = 60_000; // the longest limit of a request is 30 s
const OPTIONS = { timeout: 2 * CHECK_MS };
const LANGGRAPHS = { Python: process.env.LANGGRAPH_URL, JavaScript: process.env.LANGGRAPH_JS_URL, aegra: process.env.LANGGRAPH_AEGRA_URL };

const directory = mkdtempSync(join(tmpdir(), "threadway-check-"));
const stops = [];
after(async () => {
  for (const stop of stops.reverse()) await stop();
  rmSync(directory, { recursive: true, force: true });
});

function listen(server) {
  const sockets = new Set();
  server.on("connection", (socket) => sockets.add(socket.on("error", () => {})));
  stops.push(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server.address().port)));
}

/** Starts a program, and waits until its port accepts connections. */
async function program(port, command, ...options) {
  const child = spawn(command, options, { stdio: "ignore" });
  stops.push(() => child.kill("SIGKILL"));
  for (const end = performance.now() + READY_MS; ; ) {
    const socket = connect(port, "127.0.0.1");
    const isOpen = await Promise.race([once(socket, "connect").then(() => true), once(socket, "error").then(() => false)]).catch(() => false);
    socket.destroy();
    if (isOpen) return port;
    if (performance.now() > end) throw new Error(`${command} does not listen`);
    await new Promise((wake) => setTimeout(wake, 50));
  }
}

function certificate() {
  const [key, cert] = ["key.pem", "certificate.pem"].map((name) => join(directory, name));
  execFileSync("openssl", ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
    "-subj", "/CN=localhost", "-keyout", key, "-out", cert], { stdio: "pipe" });
  return { key: readFileSync(key), cert: readFileSync(cert) };
}

/** The API of a model's provider, as it answers unknown routes and requests without a key. */
function provider(asked, response) {
  const isKnown = asked.url.startsWith("/v1/");
  const message = isKnown ? "You didn't provide an API key." : `Invalid URL (${asked.method} ${asked.url})`;
  response.writeHead(isKnown ? 401 : 404, { "content-type": "application/json" });
  response.end(JSON.stringify({ error: { message, type: "invalid_request_error", param: null, code: null } }));
}

/** By what the server is, its port. */
const OTHERS = {
  "nginx with its default page": async () => {
    const port = await freePort();
    const file = join(directory, "nginx.conf");
    const paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((name) => `${name}_temp_path ${join(directory, name)};`);
    const user = process.getuid() === 0 ? "user root;" : "";
    writeFileSync(file, `${user} daemon off; pid ${join(directory, "pid")}; events {}
      http { access_log off; ${paths.join(" ")} server { listen 127.0.0.1:${port}; root /usr/share/nginx/html; } }`);
    return program(port, process.env.NGINX, "-p", directory, "-e", "stderr", "-c", file);
  },
  "a page that answers every path": () => listen(createServer((_, response) => response.writeHead(200, { "content-type": "text/html" }).end("<!doctype html><title>App</title>"))),
  "the API of a model's provider": () => listen(createServer(provider)),
  Redis: async () => {
    const port = await freePort();
    return program(port, process.env.REDIS, "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", directory);
  },
  "a TLS port, spoken to without TLS": () => listen(createTlsServer(certificate(), (_, response) => response.end("{}"))),
  "a server that answers nothing": () => listen(createTcpServer(() => {})),
  "a port without a server": freePort,
  "threadway itself": async () => {
    const gateway = await startThreadway("checked", Object.values(LANGGRAPHS).find((url) => url));
    stops.push(() => gateway.stop());
    return Number(new URL(gateway.url).port);
  },
};

function check(url) {
  const environment = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("THREADWAY_")));
  return new Promise((resolve, reject) => {
    execFile(process.env.THREADWAY_BIN, ["check", "--upstream", url], { env: environment, timeout: CHECK_MS }, (failure, stdout, stderr) => {
      if (failure?.killed) return reject(new Error(`the check took more than ${CHECK_MS} ms`));
      resolve({ status: failure?.code ?? 0, stdout, stderr });
    });
  });
}

describe("a LangGraph server", { concurrency: true }, () => {
  for (const [name, url] of Object.entries(LANGGRAPHS)) {
    test(name, { ...OPTIONS, skip: url ? undefined : "it is not started" }, async () => {
      const { status, stdout, stderr } = await check(url);
      assert.equal(status, 0, stdout + stderr);
      assert.match(stdout, /^upstream default \(http:\S+\): .*\bserver\b.*\b\d+ agents: .*\btext\b/);
    });
  }
});

const golden = stored("check");

describe("a server that is none", { concurrency: true }, () => {
  for (const [name, start] of Object.entries(OTHERS)) {
    const isMissing = { Redis: !process.env.REDIS, "nginx with its default page": !process.env.NGINX }[name];
    test(name, { ...OPTIONS, skip: isMissing ? "it is not installed" : undefined }, async () => {
      const url = `http://127.0.0.1:${await start()}`;
      const { status, stdout, stderr } = await check(url);
      assert.notEqual(status, 0, "the check is content");
      assert.match(stdout, new RegExp(`^upstream default \\(${url}`), stderr);
      const said = stdout.trim().replace(/^upstream default \(\S+\): /, "").replaceAll(url, "http://HOST:PORT");
      const expected = golden[name];
      golden[name] = said;
      if (!IS_UPDATE) assert.equal(said, expected);
    });
  }
});

describe("the table", () => {
  before(() => IS_UPDATE && store("check", golden));
  test("docs/faults.md shows what it says", checkDocument);
});
