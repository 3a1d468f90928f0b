// A WebSocket client: Node 20 has none. It reads and sends texts, and answers pings.

import { createHash, randomBytes } from "node:crypto";
import http from "node:http";
import https from "node:https";
import { TIMEOUT_MS } from "./http.mjs";
import { waitUntil } from "./wait.mjs";

const GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const [CONTINUATION, TEXT, CLOSE, PING, PONG] = [0, 1, 8, 9, 10];

export class Socket {
  /** The texts that have arrived. */
  texts = [];
  #bytes = Buffer.alloc(0);
  #text = [];
  #waiting = new Set();

  /** Opens a socket. Throws with `status` if the server answers something else. */
  static async open(target, { headers = {}, protocols = [] } = {}) {
    const url = new URL(target.replace(/^ws/, "http"));
    const key = randomBytes(16).toString("base64");
    const socket = new Socket();
    await new Promise((resolve, reject) => {
      const offered = protocols.length > 0 ? { "sec-websocket-protocol": protocols.join(", ") } : {};
      const request = (url.protocol === "https:" ? https : http).request(url, {
        agent: false,
        headers: { ...headers, ...offered, connection: "Upgrade", upgrade: "websocket", "sec-websocket-version": "13", "sec-websocket-key": key },
      });
      const late = setTimeout(() => request.destroy(new Error("the handshake was not answered")), TIMEOUT_MS);
      request.once("error", reject);
      request.once("response", (response) => {
        response.resume();
        reject(Object.assign(new Error(`the handshake is answered with ${response.statusCode}`), { status: response.statusCode }));
      });
      request.once("upgrade", (response, connection, head) => {
        const expected = createHash("sha1").update(key + GUID).digest("base64");
        if (response.headers["sec-websocket-accept"] !== expected) reject(new Error("the handshake has a wrong sec-websocket-accept"));
        socket.protocol = response.headers["sec-websocket-protocol"];
        socket.connection = connection;
        connection.on("data", (bytes) => socket.#read(bytes));
        connection.once("error", () => socket.#end());
        connection.once("close", () => socket.#end());
        socket.#read(head);
        resolve();
      });
      request.once("close", () => clearTimeout(late));
      request.end();
    });
    return socket;
  }

  #read(bytes) {
    this.#bytes = Buffer.concat([this.#bytes, bytes]);
    for (;;) {
      const frame = frameIn(this.#bytes);
      if (!frame) break;
      this.#bytes = this.#bytes.subarray(frame.length);
      this.#take(frame);
    }
    for (const wake of this.#waiting) wake();
    this.#waiting.clear();
  }

  #take({ isLast, code, payload }) {
    if (code === PING) this.#send(PONG, payload);
    if (code === CLOSE) {
      this.closed = { code: payload.length >= 2 ? payload.readUInt16BE(0) : undefined, reason: payload.subarray(2).toString() };
      this.connection.end();
    }
    if (code === TEXT || code === CONTINUATION) {
      this.#text.push(payload);
      if (!isLast) return;
      this.texts.push(Buffer.concat(this.#text).toString());
      this.#text = [];
    }
  }

  #end() {
    this.closed ??= {};
    for (const wake of this.#waiting) wake();
    this.#waiting.clear();
  }

  #send(code, payload) {
    const mask = randomBytes(4);
    const size = payload.length < 126 ? [0x80 | payload.length] : payload.length < 65536 ? [0xfe, payload.length >> 8, payload.length & 255] : undefined;
    if (!size) throw new Error("the message is too long for this client");
    const masked = Buffer.from(payload.map((byte, n) => byte ^ mask[n % 4]));
    this.connection.write(Buffer.concat([Buffer.from([0x80 | code, ...size]), mask, masked]));
  }

  send(value) {
    this.#send(TEXT, Buffer.from(typeof value === "string" ? value : JSON.stringify(value)));
  }

  async until(isDone, ms = TIMEOUT_MS) {
    return waitUntil(() => isDone(this), () => this.closed, this.#waiting, ms);
  }

  /** Breaks the connection, without a closing handshake. */
  break() {
    this.connection.destroy();
  }
}

/** The first frame of the bytes; undefined if it is not whole. */
function frameIn(bytes) {
  if (bytes.length < 2) return undefined;
  const short = bytes[1] & 0x7f;
  const head = 2 + (short === 126 ? 2 : short === 127 ? 8 : 0);
  if (bytes.length < head) return undefined;
  const size = short === 126 ? bytes.readUInt16BE(2) : short === 127 ? Number(bytes.readBigUInt64BE(2)) : short;
  const length = head + size;
  if (bytes.length < length) return undefined;
  return { isLast: (bytes[0] & 0x80) !== 0, code: bytes[0] & 0xf, payload: Buffer.from(bytes.subarray(head, length)), length };
}
