// A stream of events that survives lost connections: it resumes after the last event that arrived.
//
// The official client reads one response to its end and ignores event ids. So it gets a response whose body is fed from
// here, over as many connections as that takes. A lost connection is opened again, with the same request and
// `Last-Event-ID`.

import { authHeaders, Refused } from "./gateway.js";

const RETRY_MS = 3_000; // the pause after a lost connection; the run continues
const MAX_RETRY_MS = 20_000;
const MAX_SEEN = 20_000; // ids that are remembered, to find repeated events
const PAUSE_MS = 25; // events before the first pause were missed; events after it are live
const NOTHING_MS = 2_000; // a connection that has brought no event by then misses none

const encoder = new TextEncoder();

export class Line {
  /**
   * `observer` is called for frames, comments and connections:
   * `onConnection(what)`, `onComment(text)`, `onFrame({id, data, bytes, isAgain})`, which returns whether the frame is a
   * change.
   */
  constructor(url, init, lastId, observer) {
    Object.assign(this, { url, init, lastId, observer });
    this.seen = new Set();
    this.isClosed = false;
    this.isOver = (_) => false; // whether a frame is the last one
    this.away = null; // ends the wait for the next connection
  }

  /** Opens the first connection. Resolves with the gateway's refusal, or with `null`; then frames arrive. */
  async open() {
    const response = await this.connect();
    if (!response.ok) return response;
    this.reading = this.readAll(response);
    return null;
  }

  async connect() {
    this.controller = new AbortController();
    const headers = { ...this.init.headers, ...authHeaders(), ...(this.lastId ? { "last-event-id": this.lastId } : {}) };
    return fetch(this.url, { ...this.init, headers, signal: this.controller.signal, cache: "no-store" });
  }

  /** Reads one connection after the other, until the stream is over or closed. */
  async readAll(first) {
    let response = first;
    let pause = RETRY_MS;
    for (let connection = 1; ; connection += 1) {
      let fault = null;
      if (response) {
        const before = performance.now();
        try {
          if (response.status === 204 || (await this.read(response, connection))) break;
        } catch (error) {
          fault = error;
        }
        if (performance.now() - before > RETRY_MS) pause = RETRY_MS;
      }
      if (this.isClosed) return;
      if (this.init.method === "POST" && !this.lastId) {
        // If the request were sent again without an id, it would start another run.
        this.observer.onRefused(new Refused(0, "lost", "the connection was lost before the run began; look at the thread before you send the message again"));
        return;
      }
      this.observer.onConnection({ type: "lost", byHand: this.isCut === true, lastId: this.lastId, pause, fault });
      this.isCut = false;
      await new Promise((wake) => {
        const timer = setTimeout(wake, pause);
        this.away = () => (clearTimeout(timer), wake());
      });
      this.away = null;
      if (this.isClosed) return;
      pause = Math.min(pause * 2, MAX_RETRY_MS);
      response = await this.connect().catch(() => null);
      if (this.isClosed) return;
      if (response && !response.ok && response.status < 500 && response.status !== 429) {
        this.observer.onRefused(await Refused.of(response));
        return;
      }
      if (response && !response.ok) response = null;
      if (response) this.observer.onConnection({ type: "back", lastId: this.lastId, status: response.status });
    }
    if (!this.isClosed) this.observer.onEnd();
  }

  /** Reads one connection. Returns true if the stream is over. */
  async read(response, connection) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    let searched = 0; // the characters that were searched for the end of a frame
    let caughtUp = connection === 1 ? null : { frames: 0, events: 0, again: 0 };
    const tellCaughtUp = () => {
      if (caughtUp && !this.isClosed) this.observer.onConnection({ type: "caught-up", events: caughtUp.events, again: caughtUp.again });
      caughtUp = null;
    };
    try {
      for (let next = reader.read(); ; ) {
        if (caughtUp) {
          // A thread that has not changed sends nothing.
          const pause = caughtUp.frames > 0 ? PAUSE_MS : NOTHING_MS;
          const paused = await Promise.race([next.then(() => false), new Promise((late) => setTimeout(late, pause, true))]);
          if (paused) tellCaughtUp();
        }
        const { done, value } = await next;
        if (done) break;
        next = reader.read();
        text += value;
        for (let end; (end = text.indexOf("\n\n", searched)) >= 0; text = text.slice(end + 2)) {
          searched = 0;
          const is = this.frame(text.slice(0, end + 2));
          if (is && caughtUp) {
            caughtUp.frames += 1;
            caughtUp.events += is.isNews ? 1 : 0;
            caughtUp.again += is.isNews && is.isAgain ? 1 : 0;
          }
          if (this.isClosed) return true;
          if (is?.isOver) {
            tellCaughtUp();
            return true;
          }
        }
        searched = Math.max(0, text.length - 1);
      }
    } finally {
      tellCaughtUp();
      reader.cancel().catch(() => {});
    }
    return false;
  }

  frame(text) {
    let id;
    const data = [];
    for (const line of text.split("\n")) {
      if (line.startsWith("id: ")) id = line.slice(4);
      else if (line.startsWith("data: ")) data.push(line.slice(6));
      else if (line.startsWith(": ")) this.observer.onComment(line.slice(2));
    }
    if (data.length === 0) return null;
    const isAgain = id !== undefined && this.seen.has(id);
    if (id) {
      this.seen.add(id);
      if (this.seen.size > MAX_SEEN) this.seen.delete(this.seen.values().next().value);
      this.lastId = id;
    }
    const frame = { id, data: data.join("\n"), bytes: encoder.encode(text).length, isAgain };
    const isNews = this.observer.onFrame(frame);
    return { isAgain, isNews, isOver: this.isOver(frame) };
  }

  /** Cuts the connection without notice, as a lost network does. */
  cut() {
    this.isCut = true;
    this.controller.abort();
  }

  reconnect() {
    this.away?.();
  }

  close() {
    this.isClosed = true;
    this.controller?.abort();
    this.away?.();
  }
}
