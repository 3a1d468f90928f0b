// Requests whose answers are read while they arrive, and a proxy that cuts them.

import http from "node:http";
import https from "node:https";
import net from "node:net";
import { LineDecoder, SseDecoder } from "./frames.mjs";
import { waitUntil } from "./wait.mjs";

export const TIMEOUT_MS = 30_000;
const REACH_MS = 5_000;

const moduleOf = (url) => (url.protocol === "https:" ? https : http);

/** An answer: its head, and its body as it arrives. */
export class Answer {
  frames = [];
  body = "";
  /** How the body ended: `end`, `cut`, `left` by this client, or `late`. Undefined while it is read. */
  ending;
  #waiting = new Set();

  /** Sends a request; resolves with its answer once the head is there. */
  static async open(target, { method = "POST", headers = {}, body, timeout = TIMEOUT_MS } = {}) {
    const url = new URL(target);
    const data = body === undefined ? undefined : Buffer.from(typeof body === "string" ? body : JSON.stringify(body));
    const answer = new Answer();
    await new Promise((resolve, reject) => {
      const type = data && !Object.keys(headers).some((name) => name.toLowerCase() === "content-type") ? { "content-type": "application/json" } : {};
      const length = data ? { "content-length": data.length } : {};
      const request = moduleOf(url).request(url, { method, agent: false, headers: { accept: "text/event-stream", "accept-encoding": "identity", ...type, ...headers, ...length } });
      answer.request = request;
      const late = setTimeout(() => {
        answer.#finish("late");
        request.destroy();
        reject(new Error(`${method} ${url} was not answered to its end within ${timeout / 1000} s`));
      }, timeout);
      answer.stopTimer = () => clearTimeout(late);
      request.once("error", (failure) => {
        answer.#finish("cut");
        reject(new Error(`${method} ${url}: ${failure.message || failure.code}`));
      });
      request.once("response", (response) => {
        answer.#read(response);
        resolve();
      });
      request.end(data);
    });
    return answer;
  }

  #read(response) {
    this.status = response.statusCode;
    this.headers = response.headers;
    const type = this.type;
    const decoder = type === "application/x-ndjson" ? new LineDecoder() : type === "application/json" ? undefined : new SseDecoder();
    response.setEncoding("utf8");
    response.on("data", (text) => {
      this.body += text;
      for (const frame of decoder?.push(text) ?? []) this.frames.push({ ...frame, at: performance.now() });
      this.#wake();
    });
    response.once("end", () => this.#finish(response.complete ? "end" : "cut"));
    response.once("error", () => this.#finish("cut"));
    response.once("close", () => this.#finish("cut"));
  }

  #finish(ending) {
    if (this.ending) return;
    this.ending = ending;
    this.endedAt = performance.now();
    this.stopTimer?.();
    this.#wake();
  }

  #wake() {
    for (const wake of this.#waiting) wake();
    this.#waiting.clear();
  }

  get type() {
    return (this.headers["content-type"] ?? "").split(";")[0].trim().toLowerCase();
  }

  get events() {
    return this.frames.flatMap(({ event }) => event ?? []);
  }

  /** The frames that carry events. */
  get told() {
    return this.frames.filter(({ event }) => event);
  }

  /** Waits until this is true of the answer, or its end, or for a time. Returns whether it is true. */
  async until(isDone, ms = TIMEOUT_MS) {
    return waitUntil(() => isDone(this), () => this.ending, this.#waiting, ms);
  }

  /** Reads the body to its end, or for a time. */
  async read(ms = TIMEOUT_MS) {
    await this.until(({ ending }) => ending, ms);
    if (!this.ending) {
      this.#finish("late");
      this.request.destroy();
    }
    return this;
  }

  /** Goes away, as a page that is closed. */
  leave() {
    this.#finish("left");
    this.request.destroy();
  }
}

/** Sends a request and reads its answer to the end. */
export async function ask(target, options) {
  const answer = await Answer.open(target, options);
  return answer.read(options?.timeout);
}

/** Rejects if nothing listens at the host and port of a URL. */
export async function reach(target) {
  const { protocol, hostname, port } = new URL(target);
  const socket = net.connect({ host: hostname.replace(/^\[|\]$/g, ""), port: port || (protocol === "https:" ? 443 : 80) });
  try {
    await new Promise((resolve, reject) => {
      socket.once("connect", resolve);
      socket.once("error", (failure) => reject(new Error(failure.message || failure.code)));
      socket.setTimeout(REACH_MS, () => reject(new Error(`no connection within ${REACH_MS / 1000} s`)));
    });
  } finally {
    socket.destroy();
  }
}

/**
 * A proxy in front of one server. Each request takes the next of its plans, `{ after, manner }`: after that many bytes of the
 * body the answer is cut. The manners are `reset`, `close`, and `end`, as if the body were complete.
 */
export class Proxy {
  plans = [];
  cuts = 0;

  static async start(target) {
    const proxy = new Proxy();
    proxy.target = new URL(target);
    proxy.server = http.createServer((request, response) => proxy.#pass(request, response));
    await new Promise((resolve) => proxy.server.listen(0, "127.0.0.1", resolve));
    return proxy;
  }

  /** The URL of the server as it is behind this proxy. */
  url(target) {
    const { pathname, search } = new URL(target);
    return `http://127.0.0.1:${this.server.address().port}${pathname}${search}`;
  }

  #pass(request, response) {
    const { after = Infinity, manner = "reset" } = this.plans.shift() ?? {};
    const url = new URL(request.url, this.target);
    const headers = { ...request.headers, host: url.host };
    const upstream = moduleOf(url).request(url, { method: request.method, headers, agent: false }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      response.flushHeaders();
      let left = after;
      answer.on("data", (bytes) => {
        if (left === undefined) return;
        response.write(bytes.subarray(0, Math.min(left, bytes.length)));
        left -= bytes.length;
        if (left > 0) return;
        left = undefined;
        this.cuts += 1;
        // What was written leaves first.
        response.write("", () => setImmediate(() => this.#cut(manner, response, upstream)));
      });
      answer.once("end", () => left !== undefined && response.end());
      answer.once("error", () => response.destroy());
    });
    upstream.once("error", () => response.destroy());
    response.once("close", () => upstream.destroy());
    request.pipe(upstream);
  }

  #cut(manner, response, upstream) {
    if (manner === "end") response.end();
    else if (manner === "close") response.socket?.destroy();
    else response.socket?.resetAndDestroy();
    upstream.destroy();
  }

  close() {
    this.server.closeAllConnections();
    this.server.close();
  }
}
