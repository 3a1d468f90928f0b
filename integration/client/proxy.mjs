// A streaming proxy between a threadway and a LangGraph server, which records every exchange.

import { Agent, createServer, request } from "node:http";
import { connect, createServer as createTcpServer } from "node:net";

const JOIN = /^\/threads\/[^/]+\/runs\/([^/]+)\/stream(\?|$)/;

/** Forwards everything to `target`, byte by byte as it arrives. */
export class Proxy {
  /**
   * All exchanges so far, `{ method, path, key, response, began, over, ended, chunks }`; `key` is the `x-api-key`. `over` is
   * when the server ended its answer, and `ended` when threadway was gone or had all of it. Destroying `response` cuts the
   * exchange.
   */
  exchanges = [];
  /** Called with each exchange at its start. */
  onExchange = () => {};
  // Each connection is used once: a server that closes one while a request is on its way would look like a fault.
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

  /** The joins of a run's stream: the exchanges whose bytes are recorded too. */
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
    const exchange = { method, path, key: headers["x-api-key"], response, began: performance.now(), over: Infinity, ended: Infinity, chunks: [] };
    this.exchanges.push(exchange);
    this.onExchange(exchange);
    const { hostname, port } = this.target;
    const forwarded = request({ hostname, port, method, path, headers, agent: this.#agent }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      response.flushHeaders();
      if (method === "GET" && JOIN.test(path)) answer.on("data", (chunk) => exchange.chunks.push(chunk));
      answer.once("end", () => (exchange.over = performance.now()));
      answer.pipe(response);
      answer.once("error", () => response.destroy()); // a cut is passed on
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

/** Forwards connections until it is frozen: then it accepts connections and forwards nothing. */
export class Pipe {
  #sockets = new Set();
  #isFrozen = false;
  #server = createTcpServer((socket) => this.#forward(socket));

  static async start(target, port = 0) {
    const pipe = new Pipe();
    pipe.target = new URL(target);
    await new Promise((resolve) => pipe.#server.listen(port, "127.0.0.1", resolve));
    pipe.port = pipe.#server.address().port;
    pipe.url = `http://127.0.0.1:${pipe.port}`;
    return pipe;
  }

  freeze() {
    this.#isFrozen = true;
    for (const socket of this.#sockets) socket.unpipe().pause();
  }

  close() {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  #forward(socket) {
    keep(this.#sockets, socket);
    if (this.#isFrozen) return;
    const other = keep(this.#sockets, connect(this.target.port, this.target.hostname));
    socket.pipe(other).pipe(socket);
    socket.once("close", () => other.destroy());
    other.once("close", () => socket.destroy());
  }
}

/** Forwards connections, and cuts their responses. */
export class Cutter {
  /**
   * The cuts of the next connections, one each. `at` gets all bytes so far as text. It returns how many of them are
   * forwarded before the cut, or -1 for no cut yet. `end` ends the body in order instead of closing the connection; the cut
   * must then be between two chunks.
   */
  cuts = [];
  /** The request and the response of each connection as text, and whether the connection was cut. */
  exchanges = [];
  #sockets = new Set();
  #server = createTcpServer((socket) => this.#forward(socket));

  static async start(target) {
    const cutter = new Cutter();
    cutter.target = new URL(target);
    await new Promise((resolve) => cutter.#server.listen(0, "127.0.0.1", resolve));
    cutter.url = `http://127.0.0.1:${cutter.#server.address().port}`;
    return cutter;
  }

  close() {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  /** Cuts all connections. */
  cutNow() {
    for (const socket of this.#sockets) socket.destroy();
  }

  #forward(socket) {
    const exchange = { asked: "", answered: "", isCut: false };
    const cut = this.cuts.shift();
    this.exchanges.push(exchange);
    keep(this.#sockets, socket).setEncoding("latin1");
    const other = keep(this.#sockets, connect(this.target.port, this.target.hostname)).setEncoding("latin1");
    socket.on("data", (text) => {
      exchange.asked += text;
      other.write(text, "latin1");
    });
    other.on("data", (text) => {
      if (exchange.isCut) return;
      const before = exchange.answered.length;
      exchange.answered += text;
      const at = cut ? cut.at(exchange.answered) : -1;
      if (at < 0) return void socket.write(text, "latin1");
      exchange.isCut = true;
      exchange.answered = exchange.answered.slice(0, at);
      if (cut.end) socket.write(exchange.answered.slice(before), "latin1", () => socket.end("0\r\n\r\n"));
      else socket.end(exchange.answered.slice(before), "latin1", () => socket.destroy());
      other.destroy();
    });
    socket.once("close", () => other.destroy());
    other.once("close", () => exchange.isCut || socket.destroy());
  }
}

/** Keeps a socket in a set until the socket closes. */
function keep(sockets, socket) {
  sockets.add(socket);
  socket.setNoDelay(true);
  socket.on("error", () => {}); // only its close matters
  socket.once("close", () => sockets.delete(socket));
  return socket;
}
