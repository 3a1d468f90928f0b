// A streaming proxy between a threadway and a LangGraph server, which keeps book of every exchange.

import { Agent, createServer, request } from "node:http";

const JOIN = /^\/threads\/[^/]+\/runs\/([^/]+)\/stream(\?|$)/;

/** Forwards everything to `target`, byte by byte as it comes. */
export class Proxy {
  /** All exchanges so far, `{ method, path, response, isOpen }`; destroying a `response` cuts its exchange. */
  exchanges = [];
  #joins = new Map();
  #agent = new Agent({ keepAlive: true });
  #server = createServer((asked, response) => this.#forward(asked, response));

  static async start(target) {
    const proxy = new Proxy();
    proxy.target = new URL(target);
    await new Promise((resolve) => proxy.#server.listen(0, "127.0.0.1", resolve));
    proxy.url = `http://127.0.0.1:${proxy.#server.address().port}`;
    return proxy;
  }

  /** How often the stream of a run was joined: in all, and at most at one time. */
  joins(runId) {
    const { total, most } = this.#joins.get(runId) ?? { total: 0, most: 0 };
    return { total, most };
  }

  close() {
    this.#server.close();
    this.#server.closeAllConnections();
    this.#agent.destroy();
  }

  #forward(asked, response) {
    const { method, url: path, headers } = asked;
    const exchange = { method, path, response, isOpen: true };
    this.exchanges.push(exchange);
    const join = method === "GET" ? this.#countJoin(path) : undefined;
    const { hostname, port } = this.target;
    const forwarded = request({ hostname, port, method, path, headers, agent: this.#agent }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      response.flushHeaders();
      answer.pipe(response);
      answer.once("error", () => response.destroy()); // a cut stays a cut
    });
    forwarded.setNoDelay(true);
    forwarded.once("error", () => response.destroy());
    response.once("close", () => {
      exchange.isOpen = false;
      if (join) join.now -= 1;
      forwarded.destroy();
    });
    asked.pipe(forwarded);
  }

  #countJoin(path) {
    const runId = JOIN.exec(path)?.[1];
    if (!runId) return undefined;
    const join = this.#joins.get(runId) ?? { total: 0, now: 0, most: 0 };
    this.#joins.set(runId, join);
    join.total += 1;
    join.now += 1;
    join.most = Math.max(join.most, join.now);
    return join;
  }
}
