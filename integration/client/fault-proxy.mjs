// A proxy between a threadway and a LangGraph server that has one fault. It forwards everything until a test arms it; then
// the fault strikes the requests that the test names, and the streams that are open.

import { createServer, request } from "node:http";
import { createServer as createHttp2Server } from "node:http2";
import { gzipSync } from "node:zlib";

/** The pause of a server that is slow: longer than a list of agents may take, and shorter than any other limit. */
export const SLOW_MS = 6_000;
/** How far the clock of a server is off that has a wrong one. */
const CLOCK_OFF_MS = 10 * 60_000;

const STREAM = /^\/threads\/[^/]+\/runs\/([^/]+\/)?stream(\?|$)/;
const PAGE = "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n";

const later = (ms) => new Promise((wake) => setTimeout(wake, ms));

/** Answers a request without asking LangGraph. */
function answered(status, type, body, headers = {}) {
  return ({ response }) => {
    response.writeHead(status, { "content-type": type, ...headers });
    response.end(body);
  };
}

/** Forwards a request, and changes the answer: `change` gets the exchange and LangGraph's answer. */
function changed(change) {
  return (exchange) => exchange.forward((answer) => change(exchange, answer));
}

/** Writes bytes, and waits until they are sent. */
const written = (response, bytes) => new Promise((sent) => response.write(bytes, sent));

/** The whole body of an answer. */
async function whole(answer) {
  const chunks = [];
  for await (const chunk of answer) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** The headers of an answer whose body has another length. */
function unsized({ "content-length": _, "transfer-encoding": __, ...headers }) {
  return headers;
}

/**
 * By its name, what a fault does to a request (`strike`), and to a stream that is open when the fault begins (`strikeStream`).
 * Without `strikeStream` the stream is cut. `place` is what differs in the whole proxy, and not in some of its answers.
 */
export const FAULTS = {
  refused: { about: "the server accepts no connection", place: "closed" },
  "name not found": { about: "the server's name cannot be resolved", place: "unnamed" },
  reset: {
    about: "the server gets the request, then resets the connection",
    strike: changed(({ response }) => response.socket?.resetAndDestroy()),
    strikeStream: ({ response }) => response.socket?.resetAndDestroy(),
  },
  "half-closed": {
    about: "the server closes its side of the connection in the middle of the answer",
    strike: changed(async ({ response }, answer) => {
      response.writeHead(answer.statusCode, unsized(answer.headers));
      response.flushHeaders();
      const { value } = await answer[Symbol.asyncIterator]().next();
      if (value) await written(response, value.subarray(0, value.length >> 1));
      response.socket?.end();
    }),
    strikeStream: ({ response }) => response.socket?.end(),
  },
  "slow headers": {
    about: `the answer begins after ${SLOW_MS / 1000} s`,
    strike: async (exchange) => {
      await later(SLOW_MS);
      exchange.forward();
    },
  },
  "slow body": {
    about: `the answer pauses for ${SLOW_MS / 1000} s in the middle`,
    strike: changed(async ({ response }, answer) => {
      response.writeHead(answer.statusCode, unsized(answer.headers));
      response.flushHeaders();
      let isFirst = true;
      for await (const chunk of answer) {
        if (isFirst) await written(response, chunk.subarray(0, chunk.length >> 1));
        if (isFirst) await later(SLOW_MS);
        response.write(isFirst ? chunk.subarray(chunk.length >> 1) : chunk);
        isFirst = false;
      }
      response.end();
    }),
    strikeStream: async ({ answer, response }) => {
      answer.unpipe(response).pause();
      await later(SLOW_MS);
      answer.pipe(response);
    },
  },
  silent: {
    about: "the server accepts the request, and never answers",
    strike: () => {},
    strikeStream: ({ answer, response }) => answer.unpipe(response).resume(),
  },
  "429 without Retry-After": {
    about: "429 without `Retry-After`",
    strike: answered(429, "application/json", '{"detail":"Too many requests"}'),
  },
  "429 with Retry-After": {
    about: "429 with `Retry-After: 7`",
    strike: answered(429, "application/json", '{"detail":"Too many requests"}', { "retry-after": "7" }),
  },
  "500 with JSON": { about: "500 with JSON", strike: answered(500, "application/json", '{"detail":"Internal Server Error"}') },
  "502 with HTML": { about: "502 with a proxy's HTML page", strike: answered(502, "text/html", PAGE) },
  "truncated JSON": {
    about: "200 with the first half of the answer",
    strike: changed(async ({ path, response }, answer) => {
      if (!STREAM.test(path)) {
        const body = await whole(answer);
        response.writeHead(answer.statusCode, unsized(answer.headers));
        response.end(body.subarray(0, body.length >> 1));
        return;
      }
      response.writeHead(answer.statusCode, unsized(answer.headers));
      answer.once("data", (chunk) => {
        answer.destroy();
        response.end(chunk.subarray(0, chunk.length >> 1));
      });
    }),
    strikeStream: ({ answer, response }) => {
      answer.unpipe(response).resume();
      response.end("event: values\ndata: {\"messages\": [");
    },
  },
  "wrong content type": {
    about: "200 with the right body as `text/html`",
    strike: changed(({ response }, answer) => {
      response.writeHead(answer.statusCode, { ...answer.headers, "content-type": "text/html" });
      response.flushHeaders();
      answer.pipe(response);
    }),
  },
  "HTML page": { about: "200 with a login page", strike: answered(200, "text/html", "<!doctype html><title>Sign in</title>") },
  "server's clock": {
    about: "the clock in the `Date` header is 10 minutes slow",
    strike: changed(({ response }, answer) => {
      response.writeHead(answer.statusCode, { ...answer.headers, date: new Date(Date.now() - CLOCK_OFF_MS).toUTCString() });
      response.flushHeaders();
      answer.pipe(response);
    }),
    isAlways: true,
  },
  "gateway's clock": { about: "the gateway's own clock is 10 minutes slow", place: "faketime", isAlways: true },
  gzip: {
    about: "the answer is compressed, although the gateway did not ask for that",
    strike: changed(async ({ response }, answer) => {
      if (answer.statusCode === 204) return void response.writeHead(204, answer.headers).end();
      const body = gzipSync(await whole(answer));
      response.writeHead(answer.statusCode, { ...unsized(answer.headers), "content-encoding": "gzip" });
      response.end(body);
    }),
  },
  redirect: {
    about: "307 to another host",
    strike: ({ path, response, elsewhere }) => {
      response.writeHead(307, { location: `${elsewhere}${path}`, "content-length": 0 });
      response.end();
    },
  },
  "HTTP/2 only": { about: "the server speaks HTTP/2 without TLS, and nothing else", place: "http2", isAlways: true },
  IPv6: { about: "the server is at `[::1]`", place: "::1", isAlways: true },
};

/** A proxy in front of `target`, with the fault of this name. */
export class FaultProxy {
  #sockets = new Set();
  #streams = new Set();
  #forwarded = new Set();
  #isStruck = () => false;

  static async start(target, name, elsewhere) {
    const proxy = new FaultProxy();
    Object.assign(proxy, { target: new URL(target), fault: FAULTS[name], elsewhere });
    const { place } = proxy.fault;
    const host = place === "::1" ? "::1" : "127.0.0.1";
    proxy.server = place === "http2" ? createHttp2Server((_, response) => response.end("{}")) : createServer((asked, response) => proxy.#take(asked, response));
    proxy.server.keepAliveTimeout = 0;
    proxy.server.on("sessionError", () => {});
    proxy.server.on("session", (session) => proxy.#sockets.add(session.on("error", () => {})));
    proxy.server.on("connection", (socket) => {
      proxy.#sockets.add(socket.setNoDelay(true));
      socket.on("error", () => {}); // only its close matters
      socket.once("close", () => proxy.#sockets.delete(socket));
    });
    await proxy.#listen(0, host);
    proxy.port = proxy.server.address().port;
    proxy.url = `http://${host === "::1" ? "[::1]" : host}:${proxy.port}`;
    return proxy;
  }

  /** The fault begins: it strikes the requests for which `isStruck(method, path)` is true. */
  async arm(isStruck) {
    if (this.fault.place === "closed") {
      this.server.close();
      this.#cutAll();
      return;
    }
    if (this.fault.place === "unnamed") this.#cutAll();
    if (!this.fault.strike) return;
    this.#isStruck = isStruck;
    for (const exchange of this.#streams) {
      if (!isStruck(exchange.method, exchange.path)) continue;
      if (this.fault.strikeStream) this.fault.strikeStream(exchange);
      else if (!this.fault.isAlways) exchange.response.destroy();
    }
  }

  /** The fault is over. */
  async disarm() {
    this.#isStruck = () => false;
    if (this.fault.place === "closed" && !this.server.listening) await this.#listen(this.port, "127.0.0.1");
  }

  close() {
    this.server.close();
    for (const forwarded of this.#forwarded) forwarded.destroy();
    this.#cutAll();
  }

  #listen(port, host) {
    return new Promise((resolve, reject) => {
      this.server.once("error", reject);
      this.server.listen(port, host, () => {
        this.server.off("error", reject);
        resolve();
      });
    });
  }

  #cutAll() {
    for (const socket of this.#sockets) socket.resetAndDestroy?.() ?? socket.destroy();
  }

  #take(asked, response) {
    const exchange = { method: asked.method, path: asked.url, response, elsewhere: this.elsewhere };
    exchange.forward = (change) => this.#forward(asked, exchange, change);
    const { method, path } = exchange;
    if (this.fault.strike && this.#isStruck(method, path)) {
      this.fault.strike(exchange);
    } else exchange.forward();
  }

  #forward(asked, exchange, change) {
    const { method, path, response } = exchange;
    if (response.destroyed) return; // the client has left
    const { hostname, port, host } = this.target;
    const options = { hostname, port, method, path, headers: { ...asked.headers, host }, agent: false };
    const forwarded = request(options, (answer) => {
      answer.once("error", () => response.destroy()); // a cut is passed on
      if (change) return void Promise.resolve(change(answer)).catch(() => response.destroy()); // the client has left
      exchange.answer = answer;
      if (STREAM.test(path)) {
        this.#streams.add(exchange);
        response.once("close", () => this.#streams.delete(exchange));
      }
      response.writeHead(answer.statusCode, answer.headers);
      response.flushHeaders();
      answer.pipe(response);
    });
    this.#forwarded.add(forwarded);
    forwarded.once("close", () => this.#forwarded.delete(forwarded));
    forwarded.setNoDelay(true);
    forwarded.once("error", () => response.destroy());
    response.once("close", () => forwarded.destroy());
    asked.pipe(forwarded);
  }
}
