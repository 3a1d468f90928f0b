// Clients that connect to threads of other clients, and the events and content of each.

import { randomUUID } from "node:crypto";
import { GENERATIONS } from "./gateway.mjs";

const FOLLOWER_MS = 90_000; // what has not come by then does not come
const POLL_MS = 50;

/** The routes by which a client connects, and the client version by whose rules it is judged. */
export const KINDS = {
  connect: { generation: GENERATIONS[0] },
  "connect 0.0.59": { generation: GENERATIONS[1] },
  events: { generation: GENERATIONS[0], query: "" },
  follow: { generation: GENERATIONS[0], query: "?follow=thread" },
};

/** A client of the official package that connects by one of the routes. */
function viewerClass(generation) {
  return class Viewer extends generation.HttpAgent {
    constructor(config, isGet) {
      super(config);
      this.isGet = isGet;
    }

    requestInit(input) {
      if (!this.isGet) return super.requestInit(input);
      return { method: "GET", headers: { accept: "text/event-stream" }, signal: this.abortController.signal };
    }
  };
}
const CLASSES = new Map(GENERATIONS.map((generation) => [generation, viewerClass(generation)]));

/** One client that connects to one thread. */
export class Viewer {
  /** The events, `{ at, text, event }`. */
  frames = [];
  /** The client's content at the end of each run. For a client that disconnects, the library makes an end that nobody sent. */
  held = [];
  hasLeft = false;

  constructor(threadway, graph, threadId, kind, { messages = [], state = {} } = {}) {
    const { generation, query } = KINDS[kind];
    const base = `${threadway}/agui/agent/${graph}`;
    const url = query === undefined ? `${base}/connect` : `${base}/threads/${threadId}/events${query}`;
    Object.assign(this, { kind, threadId, generation, runId: randomUUID(), sent: structuredClone({ messages, state }) });
    const config = { url, threadId, initialMessages: messages, initialState: state, fetch: (...asked) => this.#fetch(...asked) };
    this.client = new (CLASSES.get(generation))(config, query !== undefined);
  }

  get isFollower() {
    return this.kind === "follow";
  }

  /** Connects, and stays until the stream ends. */
  async watch({ onEvent } = {}) {
    this.asked = performance.now();
    const ended = ({ messages, state }) => {
      this.held.push(structuredClone({ messages, state }));
    };
    const subscriber = { onRunFinishedEvent: ended, onRunErrorEvent: ended };
    if (onEvent) subscriber.onEvent = ({ event }) => void onEvent(event, this);
    this.refused = await this.client.runAgent({ runId: this.runId }, subscriber).then(() => undefined, (error) => error);
    return this;
  }

  /** Disconnects in the middle. */
  leave() {
    this.hasLeft = true;
    this.client.abortRun();
  }

  /** Ends the stream as if the gateway had ended it: without an error, and with all events so far. */
  finish() {
    this.tap?.terminate();
  }

  /** The events of each run. */
  get runs() {
    const runs = [];
    for (const frame of this.frames) {
      if (frame.event.type === "RUN_STARTED" || runs.length === 0) runs.push([]);
      runs.at(-1).push(frame);
    }
    return runs;
  }

  /** Waits until the events so far are enough. */
  async until(what, isEnough) {
    const end = performance.now() + FOLLOWER_MS;
    while (!isEnough(this)) {
      if (performance.now() > end) {
        const since = end - FOLLOWER_MS;
        const shown = this.frames.map(({ at, event }) => `${event.type}${event.runId ? ` of ${event.runId}` : ""} ${Math.round(at - since)}`);
        throw new Error(`${this.kind} of ${this.threadId} was not shown ${what} in ${FOLLOWER_MS} ms, but: ${shown.join(", ")}`);
      }
      await new Promise((wake) => setTimeout(wake, POLL_MS));
    }
  }

  async #fetch(url, init) {
    const response = await fetch(url, init);
    if (!response.ok) return response;
    const decoder = new TextDecoder();
    let rest = "";
    const take = (text) => {
      const blocks = (rest + text).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const lines = block.split("\n").filter((line) => line.startsWith("data:"));
        if (lines.length === 0) continue;
        const data = lines.map((line) => line.slice(5).replace(/^ /, "")).join("\n");
        this.frames.push({ at: performance.now(), text: data, event: JSON.parse(data) });
      }
    };
    const tap = new TransformStream({
      start: (controller) => {
        this.tap = controller;
      },
      transform: (chunk, controller) => {
        take(decoder.decode(chunk, { stream: true }));
        controller.enqueue(chunk);
      },
    });
    return new Response(response.body.pipeThrough(tap), { status: response.status, headers: response.headers });
  }
}
