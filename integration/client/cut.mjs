// A client that is cut and reconnects, as an EventSource does, and the check that its content is right.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { writeFileSync } from "node:fs";
import { GENERATIONS, readThread } from "./gateway.mjs";
import { checkLegal, checkSpoken, same } from "./judge.mjs";
import { LOGS } from "./logs.mjs";
import { Proxy } from "./proxy.mjs";
import { reduce } from "./reducer.mjs";
import { firstDifference, interruptIds, ofClient, ofThread, stateOf } from "./thread.mjs";

const TERMINAL = ["RUN_FINISHED", "RUN_ERROR"];
/** The errors for a gateway that lost the run, which continues: a client with an id reconnects. */
const LOST = ["upstream_unavailable", "gateway_shutdown", "reader_too_slow", "internal_error"];
const VOID = /^0\./; // the ids of events that cannot be resumed; each is used once
const RESPONSE_MS = 100_000; // a gateway waits a minute for its upstream
const FINISH_MS = 150_000; // until a client that reconnects again and again has the end
const RETRY_MS = 100;
const STREAM = /^\/threads\/([^/]+)\/runs\/([^/]+\/)?stream(\?|$)/;
export const ROUTES = ["events", "query", "connect"];

/** The stages in the ids of what closes a run, and of its end: see `src/runs/event_id/packed.rs`. */
const CLOSE = 3;
const END = 4;

/** Whether a client can resume after the event: it needs an id that is not empty and not void. */
export const isNumbered = ({ id }) => id !== undefined && id !== "" && !VOID.test(id);

/** The blocks of an SSE body as they arrive, `{ id, text, event }`, without comments and `retry`. */
async function* blocksOf(body) {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of body) {
    const blocks = (rest + decoder.decode(chunk, { stream: true })).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const lines = block.split("\n").filter((line) => !line.startsWith(":") && !line.startsWith("retry:"));
      if (lines.length === 0) continue;
      const field = (name) => lines.filter((line) => line.startsWith(`${name}:`)).map((line) => line.slice(name.length + 1).replace(/^ /, ""));
      const data = field("data").join("\n");
      yield { id: field("id").at(-1), text: lines.join("\n"), event: data === "" ? undefined : JSON.parse(data) };
    }
  }
  assert.equal(rest, "", "the body ends inside a block");
}

/** One client of one run. */
export class Reader {
  /** The events that the client received: a stream from each RUN_STARTED on. */
  streams = [];
  lastId = "";
  isDone = false;
  /** Whether the client must get the run's own end, and not the state of the idle thread after it. */
  isOfRun = false;
  /** Statuses of proxies and gateways that are away: a client that gets one reconnects. */
  awayStatuses = [];
  /** How long a response may take. */
  responseMs = RESPONSE_MS;
  /** Whether a response may have several runs, one after the other. */
  isFollower = false;
  counts = { continued: 0, over: 0, ended: 0, lost: 0 };

  /** `sent`: the messages and the state that the client holds before. */
  constructor(play, sent) {
    Object.assign(this, { play, sent, generation: GENERATIONS[0] });
  }

  get frames() {
    return this.streams.flat();
  }

  /** A client that has applied only the first events of this one's first stream. */
  cutAt(count) {
    const reader = Object.assign(new Reader(this.play, this.sent), { isOfRun: this.isOfRun });
    const frames = this.streams[0].slice(0, count);
    reader.streams = count > 0 ? [frames] : [];
    reader.lastId = frames.reduce((last, { id }) => id ?? last, "");
    return reader;
  }

  /** Starts a run, and reads until it ends or `stopAt` events are applied. */
  post(base, turn, options) {
    this.isOfRun = true;
    const { messages, state } = this.sent;
    const resume = turn.resume && { resume: turn.resume };
    return this.#ask(`${base}/agui/agent/${this.play.graph}/run`, this.#input({ messages, state, ...resume }), options);
  }

  /** Connects to the run, after the last event of this client. */
  async attach(base, { route = "events", id = this.lastId, ...options } = {}) {
    const { graph, threadId } = this.play;
    if (route === "connect") {
      const input = this.#input({ ...(await this.hold()), forwardedProps: id === "" ? {} : { lastEventId: id } });
      return this.#ask(`${base}/agui/agent/${graph}/connect`, input, options);
    }
    const url = `${base}/agui/agent/${graph}/threads/${threadId}/events`;
    if (route === "follow") return this.#ask(`${url}?follow=thread`, { headers: id === "" ? {} : { "last-event-id": id } }, options);
    if (route === "query" && id !== "") return this.#ask(`${url}?last_event_id=${encodeURIComponent(id)}`, {}, options);
    return this.#ask(url, { headers: id === "" ? {} : { "last-event-id": id } }, options);
  }

  /** Writes the received events next to the logs; returns the file's name. */
  keep() {
    const name = `cut-${this.play.threadId}-${randomUUID().slice(0, 4)}.txt`;
    const told = this.streams.map((frames) => frames.map(({ text }) => text).join("\n\n"));
    writeFileSync(new URL(name, LOGS), [`${this.play.name}, held before: ${JSON.stringify(this.sent)}`, ...told].join("\n\n-- a new stream\n\n"));
    return name;
  }

  /** Reconnects until the run has ended; `baseOf` gives the address. */
  async finish(baseOf, options) {
    for (const end = performance.now() + FINISH_MS; !this.isDone; ) {
      if (performance.now() > end) throw new Error(`the run has no end after ${FINISH_MS} ms; all of it: ${this.keep()}`);
      const { frames } = await this.attach(baseOf(), options);
      if (frames.length === 0 && !this.isDone) await new Promise((wake) => setTimeout(wake, RETRY_MS));
    }
  }

  /** The client's content after all events; every stream must be legal. */
  async hold() {
    let held = this.sent;
    for (const frames of this.streams) {
      await checkLegal({ frames, generation: this.generation });
      const { messages, state, error } = await reduce({ ...held, events: frames.map(({ event }) => event) });
      assert.equal(error, null, "the client refused the stream");
      held = { messages, state };
    }
    return held;
  }

  #input({ messages, state, forwardedProps = {}, resume }) {
    const { threadId } = this.play;
    const input = { protocolVersion: "1.0", threadId, runId: randomUUID(), messages, state, tools: [], context: [], forwardedProps, resume };
    return { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(input) };
  }

  /** The frames of the response, and `how` the client continues. An unreachable or broken response has fewer frames. */
  async #ask(url, { headers, ...init }, { stopAt = Infinity, onEvent, signal: leaveSignal } = {}) {
    const leave = new AbortController();
    const signal = AbortSignal.any([leave.signal, AbortSignal.timeout(this.responseMs), ...(leaveSignal ? [leaveSignal] : [])]);
    const answer = { how: "broken", frames: [] };
    const isFirst = this.streams.length === 0;
    let began = this.frames.length;
    try {
      const response = await fetch(url, { ...init, headers: { accept: "text/event-stream", ...headers }, signal });
      answer.status = response.status;
      if (response.status === 204) {
        this.isDone = true;
        answer.how = "ended";
      } else if (this.awayStatuses.includes(response.status)) {
        answer.how = "away";
        answer.text = await response.text();
      } else if (response.status !== 200) {
        throw new assert.AssertionError({ message: `${url}: ${response.status} ${await response.text()}` });
      } else {
        for await (const frame of blocksOf(response.body)) {
          if (frame.id !== undefined) this.lastId = frame.id;
          if (!frame.event) continue;
          if (frame.event.type === "RUN_ERROR" && LOST.includes(frame.event.code) && !isNumbered(frame)) {
            answer.how = "lost";
            break;
          }
          if (answer.frames.length === 0 || (this.isFollower && frame.event.type === "RUN_STARTED")) this.#begin(frame, answer);
          answer.frames.push(frame);
          this.streams.at(-1).push(frame);
          if (TERMINAL.includes(frame.event.type)) this.isDone = true;
          await onEvent?.(frame.event, this);
          if (++began >= stopAt) {
            leave.abort();
            break;
          }
        }
      }
    } catch (failure) {
      if (failure instanceof assert.AssertionError || failure instanceof SyntaxError) throw failure;
      if (failure.name === "TimeoutError") throw new Error(`${url}: no end after ${this.responseMs} ms and ${answer.frames.length} events`);
    }
    if (answer.how in this.counts && !isFirst) this.counts[answer.how] += 1;
    return answer;
  }

  #begin({ event }, answer) {
    answer.how = event.type === "RUN_STARTED" ? "over" : "continued";
    if (answer.how === "over") {
      this.isOfRun &&= this.streams.length === 0;
      this.streams.push([]);
    } else assert.ok(this.streams.length > 0, `a stream without anything before it begins with ${event.type}`);
  }
}

/** LangGraph's data about a play's thread that is idle, even if the server still says that it is busy. */
export async function truthOf(langgraph, play, { isLeftBusy = false } = {}) {
  if (!isLeftBusy) await langgraph.settled(play.threadId);
  const { state } = await readThread({ langgraph: langgraph.url }, play.threadId);
  return { state, ...ofThread(state.values, play.threadId) };
}

/**
 * Judges the content of a client whose run ended as `end`, or in any way if that is not given. `isFinalOnly` leaves out
 * what the client was shown before the end. `isRestarted`: LangGraph was killed and started again.
 */
export async function judgeReader(reader, truth, end, options = {}) {
  try {
    return await judged(reader, truth, end, options);
  } catch (failure) {
    failure.message += `; all of it: ${reader.keep()}`;
    throw failure;
  }
}

async function judged(reader, truth, end, { isFinalOnly = false, isRestarted = false }) {
  const { play, streams } = reader;
  assert.ok(streams.length > 0, "no event was sent");
  const held = await reader.hold();
  checkEnd(reader, truth, end);
  same(ofClient(held.messages), ofThread(truth.state.values, play.threadId), "the client's messages against the thread's");
  same(held.state, stateOf(truth.state.values), "the client's state against the thread's");
  if (isFinalOnly) return held;
  const texts = truth.messages.filter(({ role }) => role === "assistant").map(({ content }) => content);
  // Brackets that were open at the end of the run are closed early, and the whole text comes in a snapshot.
  const isWhole = end && !reader.frames.some((frame) => isNumbered(frame) && stageOf(frame.id) === CLOSE);
  checkSpoken(reader, { texts, isRestarted, runs: [{ end: isWhole ? end : { outcome: "unknown" } }] }, play.texts);
  return held;
}

function checkEnd({ play, streams, isOfRun }, { state }, end) {
  for (const frames of streams) {
    const places = frames.flatMap(({ event }, place) => (TERMINAL.includes(event.type) ? [place] : []));
    // A client that has the end, but no id, may ask again.
    const isEnded = frames === streams.at(-1) || places.includes(frames.length - 1);
    same(places, isEnded ? [frames.length - 1] : [], "places of terminal events");
  }
  const [started, terminal] = [streams.at(-1)[0].event, streams.at(-1).at(-1).event];
  assert.equal(started.threadId, play.threadId);
  if (terminal.type === "RUN_FINISHED") same([terminal.threadId, terminal.runId], [started.threadId, started.runId], "the ids of the end");
  if (!end) return;
  // An idle thread's stream ends without an error, and has the last run's error as metadata.
  const code = terminal.type === "RUN_ERROR" ? terminal.code : terminal.metadata?.langgraph?.error?.code;
  if (end.outcome === "error") {
    if (isOfRun) assert.equal(terminal.type, "RUN_ERROR");
    assert.ok(end.codes.includes(code), `the error's code is ${code}, not ${end.codes}`);
    return;
  }
  assert.equal(terminal.type, "RUN_FINISHED", `the end is ${JSON.stringify(terminal)}`);
  if (isOfRun) assert.equal(terminal.outcome?.type, end.outcome, "outcome");
  const open = end.outcome === "interrupt" ? play.askedIds(interruptIds(state)) : [];
  same((terminal.outcome?.interrupts ?? []).map(({ id }) => id).sort(), open.sort(), "interrupt ids");
}

/**
 * Checks that the bytes of a resumed response are those of the uncut stream after the same event; events without an id may
 * be missing. The client that started the run does not get snapshots of the messages that it has just sent, but others do.
 * Returns whether that is the only difference.
 */
export function compareTail(lastId, uncut, frames) {
  const at = uncut.findLastIndex(({ id }) => id === lastId);
  const tail = uncut.slice(at + 1);
  const texts = (list) => list.map(({ text }) => text);
  if (!firstDifference(texts(frames), texts(tail))) return false;
  const numbered = (list) => list.filter(isNumbered);
  if (!firstDifference(texts(numbered(frames)), texts(numbered(tail)))) return false;
  const spared = (list) => numbered(list).filter(({ event }) => event.type !== "MESSAGES_SNAPSHOT");
  same(texts(spared(frames)), texts(spared(tail)), `the response after ${lastId}`);
  return true;
}

/** Whether two recordings of one run differ only in that the first lacks the rest, because the run was over before it resumed. */
export function isCurtailed(frames, whole) {
  const numbered = (list) => list.filter((frame) => isNumbered(frame) && frame.event.type !== "MESSAGES_SNAPSHOT");
  const [first, second] = [numbered(frames), numbered(whole)];
  const place = first.findIndex(({ text }, n) => text !== second[n]?.text);
  return place >= 0 && [CLOSE, END].includes(stageOf(first[place].id));
}

/** The stage in the id of an event of a run whose id is a UUID: the low bits of the number after the UUID and the check. */
function stageOf(id) {
  const UUID_AND_CHECK_BYTES = 16 + 2;
  return Buffer.from(id.slice("2".length), "base64url")[UUID_AND_CHECK_BYTES] & 7;
}

/** A proxy in front of a LangGraph server that breaks the streams of some threads' runs. */
export class Breaker {
  /** By thread, for its next streams in order, `{ after, manner }`: how many bytes pass, and how the stream breaks. */
  fuses = new Map();
  /** By thread: how many streams broke. */
  broken = new Map();
  /** By thread: how many bytes of streams have passed. */
  passed = new Map();
  #away = new Map();

  static async start(target) {
    const breaker = new Breaker();
    breaker.proxy = await Proxy.start(target);
    breaker.proxy.onExchange = (exchange) => breaker.#watch(exchange);
    breaker.url = breaker.proxy.url;
    return breaker;
  }

  close() {
    this.proxy.close();
  }

  #watch({ path, response }) {
    const threadId = /^\/threads\/([^/?]+)/.exec(path)?.[1];
    if (performance.now() < (this.#away.get(threadId) ?? 0)) {
      response.socket.resetAndDestroy();
      return;
    }
    if (!STREAM.test(path)) return;
    const fuse = this.fuses.get(threadId)?.shift();
    const write = response.write.bind(response);
    let left = fuse?.after ?? Infinity;
    response.write = (chunk, ...rest) => {
      if (left <= 0) return true;
      this.passed.set(threadId, (this.passed.get(threadId) ?? 0) + Math.min(left, chunk.length));
      left -= chunk.length;
      if (left > 0) return write(chunk, ...rest);
      this.broken.set(threadId, (this.broken.get(threadId) ?? 0) + 1);
      return write(chunk.subarray(0, chunk.length + left), () => this.#break(response, fuse, threadId));
    };
  }

  #break(response, { manner, awayMs = 0 }, threadId) {
    if (awayMs) this.#away.set(threadId, performance.now() + awayMs);
    if (manner === "reset") response.socket?.resetAndDestroy();
    if (manner === "cut") response.socket?.destroy();
    if (manner === "end") response.end(); // as if the response were complete
    // The remaining manner is silence.
  }
}
