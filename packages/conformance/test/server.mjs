// A small server of the transport for the suite's own tests: one scripted agent, threads in memory. `fault` names what it does
// wrong; without a fault it does nothing wrong.

import { randomUUID } from "node:crypto";
import http from "node:http";

const WORDS = Array.from({ length: 24 }, (_, n) => `word${n} `);
const WORD_MS = 20;
const RETRY = "retry: 3000\n\n";
const COMMENT_MS = 15_000;
const BUSY_MS = 500; // a request counts against the limit
const TOKEN = "Bearer one";
const OTHER = "Bearer two";

const idleEnd = ({ threadId, messages }) => `idle-${threadId}-${messages.length}`;
const isIdleEnd = (thread, id) => id !== undefined && id === idleEnd(thread);
const isTerminal = ({ type }) => type === "RUN_FINISHED" || type === "RUN_ERROR";

class Run {
  frames = [];
  readers = new Set();

  constructor(thread, input, fault) {
    Object.assign(this, { thread, input, fault, runId: input.runId, name: randomUUID().slice(0, 8) });
    this.play();
  }

  get isOver() {
    return this.frames.length > 0 && isTerminal(this.frames.at(-1).event);
  }

  idOf(n) {
    if (this.fault === "ids-with-blanks") return `${this.name} ${n}`;
    if (this.fault === "ids-twice" && n > 0) return `${this.name}.${Math.ceil(n / 2)}`;
    if (this.fault === "ids-with-content") return `${this.name}.${n}.${Buffer.from(this.input.messages.at(-1)?.content ?? "").toString("base64url")}`;
    return `${this.name}.${n}`;
  }

  add(event) {
    const frame = { id: this.idOf(this.frames.length), event };
    this.frames.push(frame);
    for (const reader of this.readers) reader(frame);
  }

  async play() {
    const { thread, runId } = this;
    const threadId = this.fault === "changes-ids" ? thread.threadId.replaceAll(" ", "-") : thread.threadId;
    const ends = this.input.fails ? { type: "RUN_ERROR", message: "x" } : { type: "RUN_FINISHED", threadId, runId, outcome: { type: "success" } };
    this.messageId = this.fault === "same-message" && thread.runs.length > 0 ? thread.runs[0].messageId : randomUUID();
    this.said = "";
    this.add({ type: "RUN_STARTED", threadId, runId, protocolVersion: "1.0" });
    this.add({ type: "STATE_SNAPSHOT", snapshot: { runs: thread.runs.length } });
    this.add({ type: "TEXT_MESSAGE_START", messageId: this.messageId, role: "assistant" });
    for (const delta of WORDS) {
      await new Promise((resolve) => setTimeout(resolve, WORD_MS));
      if (this.stopped) break;
      this.said += delta;
      this.add({ type: "TEXT_MESSAGE_CONTENT", messageId: this.messageId, delta });
    }
    this.add({ type: "TEXT_MESSAGE_END", messageId: this.messageId });
    thread.messages.push({ id: this.messageId, role: "assistant", content: this.said });
    thread.state = { runs: thread.runs.length };
    this.add(this.stopped ? { ...ends, outcome: { type: "cancelled" } } : ends);
    thread.changed();
  }
}

class Thread {
  messages = [];
  runs = [];
  state = {};
  followers = new Set();

  constructor(threadId) {
    this.threadId = threadId;
  }

  changed() {
    for (const follower of this.followers) follower();
  }

  start(input, fault) {
    for (const message of input.messages) {
      if (message.role === "user" && !this.messages.some(({ id }) => id === message.id)) this.messages.push(message);
    }
    const run = new Run(this, input, fault);
    this.runs.push(run);
    this.changed();
    return run;
  }

  find(id) {
    for (const run of this.runs) {
      const at = run.frames.findIndex((frame) => frame.id === id || id.startsWith(`${frame.id}~`));
      if (at >= 0) return { run, at };
    }
  }

  get live() {
    return this.runs.find((run) => !run.isOver);
  }
}

export class Server {
  static async start(fault, { keys = false, replicaOf } = {}) {
    const server = new Server();
    Object.assign(server, { fault, keys, threads: replicaOf?.threads ?? new Map(), open: new Set(), isReplica: replicaOf !== undefined });
    server.http = http.createServer((request, response) => server.answer(request, response));
    await new Promise((resolve) => server.http.listen(0, "127.0.0.1", resolve));
    server.url = `http://127.0.0.1:${server.http.address().port}/run`;
    return server;
  }

  close() {
    this.http.closeAllConnections();
    this.http.close();
  }

  /** Stops as a server does: POSTs get an error, others are broken off. */
  stop() {
    for (const stream of this.open) stream.stop();
    if (this.is("stop-stops-runs")) for (const { runs } of this.threads.values()) for (const run of runs) run.stopped = true;
  }

  is(...faults) {
    return faults.includes(this.fault);
  }

  async answer(request, response) {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const url = new URL(request.url, "http://h");
    const header = request.headers["last-event-id"];
    const refuse = (status, error) => response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify({ error }));
    const caller = request.headers.authorization;
    if (this.keys && ![TOKEN, OTHER].includes(caller) && !(this.is("id-as-key") && header)) return refuse(401, "unauthenticated");
    if (url.pathname === "/capabilities") {
      return response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ transport: { resumable: !this.is("no-capability") } }));
    }
    let input;
    if (request.method === "POST") {
      try {
        input = JSON.parse(Buffer.concat(chunks));
      } catch {
        return refuse(this.is("takes-any-body") ? 200 : 400, "not_json");
      }
    }
    const accept = request.headers.accept ?? "";
    const form = ["text/event-stream", "application/x-ndjson", "application/json"].find((type) => accept.includes(type)) ?? (this.is("any-accept") || accept.includes("*/*") ? "text/event-stream" : undefined);
    if (!form) return refuse(406, "not_acceptable");
    const events = /^\/threads\/([^/]+)\/events$/.exec(url.pathname);
    if (events) return this.events(decodeURIComponent(events[1]), { url, header, request, response, refuse, caller });
    const isShaped = typeof input === "object" && input !== null && typeof input.threadId === "string" && typeof input.runId === "string" && Array.isArray(input.messages) && input.messages.every(({ role }) => role) && (input.tools === undefined || Array.isArray(input.tools));
    if (!isShaped) return refuse(this.is("takes-any-input") ? 200 : 400, "invalid_request");
    const isRefused =
      (this.is("refuses-unknown") && Object.hasOwn(input, "conformanceMember")) ||
      (this.is("needs-tools") && !input.tools) ||
      (this.is("refuses-newer") && input.protocolVersion !== "1.0") ||
      (this.is("refuses-parts") && Array.isArray(input.messages[0]?.content)) ||
      (this.is("refuses-resume") && input.resume);
    if (isRefused) return refuse(400, "invalid_request");
    const stop = /^\/stop\/(.+)$/.exec(url.pathname);
    if (stop) return refuse(404, "unknown_route");
    const sending = { input, url, header, request, response, refuse, form, caller };
    if (url.pathname === "/connect") return this.connect(sending);
    if (url.pathname === "/run") return this.run(sending);
    return refuse(404, "unknown_route");
  }

  thread(threadId, caller = TOKEN) {
    const key = this.keyOf(threadId, caller);
    if (!this.threads.has(key)) this.threads.set(key, new Thread(threadId));
    return this.threads.get(key);
  }

  isKnown(threadId, caller = TOKEN) {
    return this.threads.has(this.keyOf(threadId, caller));
  }

  keyOf(threadId, caller = TOKEN) {
    return this.keys && !this.is("threads-of-all") ? `${caller} ${threadId}` : threadId;
  }

  /** Where the client's last event is: `{ run, at }`, `unknown`, or undefined without an id. */
  find(thread, id) {
    if (id === undefined || (id === "" && !this.is("empty-id-counts"))) return undefined;
    if (this.is("ids-of-any-thread")) for (const other of this.threads.values()) if (other.find(id)) return other.find(id);
    if (this.isReplica && this.is("ids-of-one-process")) return "unknown";
    return thread.find(id) ?? "unknown";
  }

  // ---------------------------------------------------------------- routes
  run({ input, url, header, request, response, refuse, form, caller }) {
    const thread = this.thread(input.threadId, caller);
    const id = header ?? (this.is("body-id-on-run") ? input.forwardedProps?.lastEventId : undefined);
    const last = this.is("header-ignored") ? undefined : this.find(thread, id);
    if (last === "unknown" && this.is("unknown-id-refused")) return refuse(400, "unknown id");
    if (last === "unknown" && id.length > 5_000 && this.is("long-id-crashes")) return refuse(500, "crash");
    const wait = form === "application/json" ? Number(url.searchParams.get("wait") ?? Infinity) : undefined;
    if (last === "unknown" && this.is("unknown-run-refused") && !thread.runs.some(({ runId }) => runId === input.runId)) return refuse(404, "unknown run");
    const out = this.stream(request, response, form, { wait, isPost: true, id });
    if (last === undefined) {
      // A run that is asked for again without a header is a new one.
      return this.send(out, (this.is("same-run-id") && thread.runs.find(({ runId }) => runId === input.runId)) || thread.start(input, this.fault), 0);
    }
    if (last !== "unknown") {
      const { run, at } = last;
      if (at === run.frames.length - 1 && isTerminal(run.frames[at].event)) {
        const other = this.is("end-under-one-id") ? "same" : randomUUID().slice(0, 4);
        return out.end({ id: this.is("end-under-its-id") ? run.frames[at].id : `${run.frames[at].id}~${other}`, event: run.frames[at].event });
      }
      if (this.is("repeat-starts-again")) return this.send(out, thread.start({ ...input, messages: [...input.messages, { id: randomUUID(), role: "user", content: "again" }] }, this.fault), 0);
      return this.resume(out, run, at, thread);
    }
    const isNamed = ({ runId }) => runId === input.runId;
    const named = this.is("unknown-id-starts-again") ? undefined : this.is("oldest-of-its-name") ? thread.runs.find(isNamed) : thread.runs.findLast(isNamed);
    if (named) return this.restart(out, named, named.runId);
    return this.send(out, thread.start(this.is("unknown-id-starts-again") ? { ...input, messages: [...input.messages, { id: randomUUID(), role: "user", content: "again" }] } : input, this.fault), 0);
  }

  connect({ input, header, request, response, refuse, form, caller }) {
    const body = this.is("body-id-ignored") ? undefined : input.forwardedProps?.lastEventId;
    const id = this.is("body-before-header") ? (body ?? header) : (header ?? body);
    if (!this.isKnown(input.threadId, caller)) return this.missing(input, id, { request, response, form, caller });
    return this.show(this.thread(input.threadId, caller), id, { request, response, refuse, form, runId: input.runId });
  }

  missing(input, id, { request, response, form, caller }) {
    const end = this.is("missing-comes-back") ? randomUUID() : `missing-${input.threadId}`;
    if (id === end) return response.writeHead(204).end();
    const out = this.stream(request, response, form, {});
    const { threadId, runId } = input;
    if (this.is("connect-creates")) {
      const thread = this.thread(threadId, caller);
      thread.messages.push({ id: "x", role: "user", content: "x" });
    }
    out.put({ id: `0.${randomUUID().slice(0, 8)}`, event: { type: "RUN_STARTED", threadId, runId, protocolVersion: "1.0" } });
    out.end({ id: end, event: { type: "RUN_FINISHED", threadId, runId } });
  }

  events(threadId, { url, header, request, response, refuse, caller }) {
    const follow = url.searchParams.get("follow");
    if (follow !== null && follow !== "thread" && !this.is("any-follow")) return refuse(400, "invalid_request");
    const query = this.is("query-id-ignored") ? undefined : (url.searchParams.get("last_event_id") ?? undefined);
    const id = this.is("query-before-header") ? (query ?? header) : (header ?? query);
    this.busy = (this.busy ?? 0) + 1;
    setTimeout(() => (this.busy -= 1), BUSY_MS);
    if (this.limit && this.busy > this.limit) {
      if (id === undefined || this.is("refusal-of-eventsource")) return refuse(429, "too_many_requests");
      return response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-cache" }).end(RETRY);
    }
    if (follow) return this.follow(this.thread(threadId, caller), id, { request, response });
    const isMissing = !this.isKnown(threadId, caller);
    if (isMissing) return this.missing({ threadId, runId: `connect-${threadId}` }, id, { request, response, form: "text/event-stream", caller });
    return this.show(this.thread(threadId, caller), id, { request, response, refuse, form: "text/event-stream", runId: `connect-${threadId}`, isEvents: true });
  }

  show(thread, id, { request, response, form, runId, isEvents = false }) {
    const last = this.find(thread, id);
    const newest = thread.runs.at(-1);
    const isEnd = last?.run && isTerminal(last.run.frames[last.at].event) && (last.run === newest || !this.is("old-end-starts-over"));
    if ((isEnd || isIdleEnd(thread, id)) && !this.is("end-starts-over")) return response.writeHead(204).end();
    const out = this.stream(request, response, form, { isPost: !isEvents, isConnect: !isEvents });
    const { live } = thread;
    if (last?.run && (last.run === newest || last.run === live || this.is("old-run-goes-on"))) return this.resume(out, last.run, last.at, thread, isEvents);
    if (live) return this.restart(out, live, this.is("connect-renames") ? runId : live.runId);
    return this.idle(out, thread, runId, isEvents);
  }

  idle(out, thread, runId, isEvents) {
    const { threadId } = thread;
    const isLess = isEvents ? this.is("events-differ") : this.is("connect-differs");
    const messages = isLess ? thread.messages.slice(1) : thread.messages;
    const once = this.prelude();
    out.put({ id: once(), event: { type: "RUN_STARTED", threadId, runId: this.is("idle-renames") ? "another" : runId, protocolVersion: "1.0" } });
    out.put({ id: once(), event: { type: "STATE_SNAPSHOT", snapshot: thread.state } });
    out.put({ id: once(), event: { type: "MESSAGES_SNAPSHOT", messages } });
    if (this.is("idle-stays-open")) return;
    out.end({ id: this.is("idle-comes-back") ? once() : idleEnd(thread), event: { type: "RUN_FINISHED", threadId, runId, outcome: { type: "success" } } });
  }

  follow(thread, id, { request, response }) {
    const out = this.stream(request, response, "text/event-stream", {});
    const shown = new Set();
    const last = this.find(thread, id);
    let current;
    if (last?.run) for (const run of thread.runs.slice(0, thread.runs.indexOf(last.run) + (isTerminal(last.run.frames[last.at].event) ? 1 : 0))) shown.add(run);
    else if (thread.live === undefined) {
      for (const run of thread.runs) shown.add(run);
      if (!isIdleEnd(thread, id)) this.snapshot(out, thread, "idle");
    }
    if (last?.run && this.is("follower-repeats")) this.snapshot(out, thread, "idle");
    const next = () => {
      if (current && !current.isOver) return;
      const run = thread.runs.find((run) => !shown.has(run));
      if (!run) return;
      shown.add(run);
      current = run;
      if (this.is("follower-misses-runs") && run.isOver) return;
      if (run.isOver) this.snapshot(out, thread, run.runId, run);
      else this.send(out, run, last?.run === run ? last.at + 1 : 0, { isFollowed: !this.is("follow-ends") });
    };
    thread.followers.add(next);
    if (!this.is("no-comments")) out.timer = setInterval(() => response.write(": keep-alive\n\n"), COMMENT_MS);
    out.onClose = () => thread.followers.delete(next);
    next();
  }

  snapshot(out, thread, runId, run) {
    const once = this.prelude();
    const { threadId } = thread;
    out.put({ id: once(), event: { type: "RUN_STARTED", threadId, runId, protocolVersion: "1.0" } });
    out.put({ id: once(), event: { type: "MESSAGES_SNAPSHOT", messages: thread.messages } });
    out.put({ id: run?.frames.at(-1).id ?? (this.is("idle-comes-back") ? once() : idleEnd(thread)), event: { type: "RUN_FINISHED", threadId, runId } });
  }

  // ---------------------------------------------------------------- streams
  /** Ids of events that cannot be resumed. */
  prelude(name = this.is("preludes-share-ids") ? "same" : randomUUID().slice(0, 8)) {
    const stream = `0.${name}`;
    let n = 0;
    return () => `${stream}.${n++}`;
  }

  resume(out, run, at, thread, isEvents = false) {
    if (this.is("always-over")) return this.restart(out, run, run.runId);
    if (this.is("over-after-end") && run.isOver) return this.restart(out, run, run.runId);
    if (this.is("repeat-tells-later") && run !== thread.runs.at(-1)) {
      for (const frame of thread.runs.at(-1).frames) out.put(frame);
      return out.end();
    }
    const skip = this.is("skips-one") ? 2 : this.is("repeats-one") ? 0 : this.is("events-skip") && isEvents ? 2 : 1;
    return this.send(out, run, at + skip);
  }

  /** Starts over: the run as it is now, and then its further events. */
  restart(out, run, runId) {
    const { thread, messageId, said, isOver, frames } = run;
    const { threadId } = thread;
    const once = this.is("live-preludes-share-ids") ? this.prelude("same") : this.prelude();
    if (!this.is("over-without-start")) out.put({ id: once(), event: { type: "RUN_STARTED", threadId, runId, protocolVersion: "1.0" } });
    const isSaid = thread.messages.some(({ id }) => id === messageId);
    const partly = isSaid || said === "" ? [] : [{ id: messageId, role: "assistant", content: said }];
    out.put({ id: once(), event: { type: "STATE_SNAPSHOT", snapshot: thread.state } });
    if (!this.is("over-without-messages")) out.put({ id: once(), event: { type: "MESSAGES_SNAPSHOT", messages: [...thread.messages, ...(this.is("over-without-partial") ? [] : partly)] } });
    if (isOver) return out.end(frames.at(-1));
    if (frames.length > 3) out.put({ id: once(), event: { type: "TEXT_MESSAGE_START", messageId, role: "assistant" } });
    if (this.is("over-says-again")) for (const { event } of frames.filter(({ event }) => event.type === "TEXT_MESSAGE_CONTENT")) out.put({ id: once(), event });
    // A hole in what comes later.
    const { put } = out;
    let count = 0;
    if (this.is("hole-after-snapshot")) out.put = (frame) => (count += 1) !== 9 && put(frame);
    return this.send(out, run, Math.max(2, frames.length));
  }

  /** Sends a run from one of its events to its end. */
  send(out, run, from, { isFollowed = false } = {}) {
    const put = (frame) => {
      const isLast = isTerminal(frame.event);
      if (isLast && !isFollowed) out.end(frame);
      else out.put(frame);
      if (isLast) run.readers.delete(put);
    };
    for (const frame of run.frames.slice(from)) put(frame);
    if (run.isOver) return;
    run.readers.add(put);
    const { onClose } = out;
    out.onClose = () => {
      run.readers.delete(put);
      onClose?.();
      if (this.is("leaving-stops") && run.readers.size === 0) run.stopped = true;
    };
  }

  stream(request, response, form, { wait, isPost = false, isConnect = false, id: asked } = {}) {
    const isChunked = request.headers["x-run-id"] !== undefined || this.is("lines-with-ids");
    const frames = [];
    const headers = { "content-type": this.is("wrong-type") ? "text/plain" : form, "cache-control": this.is("cached") ? "max-age=60" : "no-cache, no-transform" };
    const finish = () => {
      if (out.isOver) return;
      out.isOver = true;
      clearInterval(out.timer);
      this.open.delete(out);
      out.onClose?.();
      if (form !== "application/json") return this.is("stays-open") ? undefined : response.end();
      const last = frames.at(-1)?.id ?? asked;
      response.writeHead(200, { ...headers, ...(last && !this.is("array-without-id") && { "last-event-id": last }) }).end(JSON.stringify(frames.map(({ event }) => event)));
    };
    const out = {
      put: (frame) => {
        if (out.isOver) return;
        frames.push(frame);
        if (form === "text/event-stream") response.write(this.sse(frame));
        if (form === "application/x-ndjson") response.write(`${JSON.stringify(isChunked && !this.is("lines-without-ids") ? { id: frame.id, chunk: frame.event } : frame.event)}\n`);
      },
      end: (frame) => {
        if (frame) out.put(frame);
        finish();
      },
      stop: () => {
        if (isPost ? !this.is(isConnect ? "stop-breaks-connects" : "stop-breaks-posts") : this.is("stop-ends-events")) out.put({ id: `0.${randomUUID()}`, event: { type: "RUN_ERROR", message: "stopping", code: "shutdown" } });
        finish();
      },
    };
    this.open.add(out);
    response.once("close", finish);
    if (form !== "application/json") {
      response.writeHead(200, headers);
      response.write(form === "text/event-stream" && !this.is("no-retry") ? RETRY : "");
    } else if (wait !== undefined && wait !== Infinity) {
      setTimeout(() => (this.is("wait-loses") ? frames.splice(-2, 1) && finish() : finish()), wait * 100);
    }
    return out;
  }

  sse({ id, event: { ...event } }) {
    if (this.is("no-version")) delete event.protocolVersion;
    const lines = [`id: ${id}`, `data: ${JSON.stringify(event)}`];
    if (this.is("no-id-on-state") && event.type === "STATE_SNAPSHOT") lines.shift();
    if (this.is("id-after-data")) lines.reverse();
    if (this.is("done-sentinel") && isTerminal(event)) lines.push("", "data: [DONE]");
    const end = this.is("carriage-returns") ? "\r\n" : "\n";
    return `${lines.join(end)}${end}${end}`;
  }
}

export { OTHER, TOKEN };
