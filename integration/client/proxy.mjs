// A streaming proxy between a threadway and a LangGraph server, which keeps book of every exchange.

import { Agent, createServer, request } from "node:http";

const JOIN = /^\/threads\/[^/]+\/runs\/([^/]+)\/stream(\?|$)/;

/** Forwards everything to `target`, byte by byte as it comes. */
export class Proxy {
  /** All exchanges so far, `{ method, path, response, began, ended, chunks }`; destroying a `response` cuts its exchange. */
  exchanges = [];
  // A connection is used once: one that the server closes while a request is on its way would look like a fault.
  #agent = new Agent({ keepAlive: false });
  #server = createServer((asked, response) => this.#forward(asked, response));

  static async start(target) {
    const proxy = new Proxy();
    proxy.target = new URL(target);
    proxy.#server.keepAliveTimeout = 0;
    await new Promise((resolve) => proxy.#server.listen(0, "127.0.0.1", resolve));
    proxy.url = `http://127.0.0.1:${proxy.#server.address().port}`;
    return proxy;
  }

  /** The joins of a run's stream: exchanges of which also the bytes that came are kept. */
  joins(runId) {
    return this.exchanges.filter(({ method, path }) => method === "GET" && JOIN.exec(path)?.[1] === runId);
  }

  close() {
    this.#server.close();
    this.#server.closeAllConnections();
    this.#agent.destroy();
  }

  #forward(asked, response) {
    const { method, url: path, headers } = asked;
    const exchange = { method, path, response, began: performance.now(), ended: Infinity, chunks: [] };
    this.exchanges.push(exchange);
    const { hostname, port } = this.target;
    const forwarded = request({ hostname, port, method, path, headers, agent: this.#agent }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      response.flushHeaders();
      if (method === "GET" && JOIN.test(path)) answer.on("data", (chunk) => exchange.chunks.push(chunk));
      answer.pipe(response);
      answer.once("error", () => response.destroy()); // a cut stays a cut
    });
    forwarded.setNoDelay(true);
    forwarded.once("error", () => response.destroy());
    response.once("close", () => {
      exchange.ended = performance.now();
      forwarded.destroy();
    });
    asked.pipe(forwarded);
  }
}
