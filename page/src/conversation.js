// One thread: the official client with its messages and state, and the stream that feeds the client.
//
// There is one stream at a time. While no message is sent, the stream follows the thread, so that it shows runs of any
// client. A message is sent with a POST, whose stream is that of the run. Then the thread is followed again, after the last
// event.

import { HttpAgent, runHttpRequest, transformHttpEventStream } from "@ag-ui/client";
import { agentUrl, newId, pauseAfter, Refused, stopRun } from "./gateway.js";
import { Inspector } from "./inspector.js";
import { Line } from "./wire.js";

const TERMINAL = ["RUN_FINISHED", "RUN_ERROR"];
const MAX_RUNS = 200; // runs whose outcome is shown
const MAX_NOTES = 50;

const encoder = new TextEncoder();

/** Whether the "run" is the snapshot of an idle thread. */
const isOfRest = (runId) => runId.startsWith("connect-");

/** The official client. A run that it has not started is fed to it as the response to `connect`. */
class ThreadAgent extends HttpAgent {
  connect() {
    const body = this.segment;
    return transformHttpEventStream(runHttpRequest(async () => new Response(body, { headers: { "content-type": "text/event-stream" } })));
  }
}

/** The frames of one run, from its start to its end, as the body of a response. */
class Segment {
  isStarted = false;
  body = new ReadableStream({ start: (controller) => (this.controller = controller) });

  push(text) {
    try {
      this.controller.enqueue(encoder.encode(text));
    } catch {
      // The client has left this run.
    }
  }

  close() {
    try {
      this.controller.close();
    } catch {
      // As above.
    }
  }
}

export class Conversation {
  inspector = new Inspector();
  runs = [];
  subagents = new Map(); // their names
  notes = []; // the custom events of graphs
  interrupts = [];
  link = { state: "closed" }; // the state of the connection
  failure = null; // why there is no connection, or why a message was not sent; `pause` if the page tries again by itself
  failures = 0; // the attempts to follow the thread that failed in a row
  rejected = new Set(); // the calls that the user has rejected in this page
  lastId = null;
  own = new Set(); // the runs that this page has started
  work = Promise.resolve(); // the client's pending work
  line = null;
  segment = null;
  isClosed = false;

  constructor({ agent, threadId, isNew, withParts, onChange, onRefused }) {
    Object.assign(this, { agent, threadId, isNew, withParts, onChange, onRefused });
    this.client = new ThreadAgent({ url: agentUrl(agent, "run"), agentId: agent, threadId, fetch: (url, init) => this.post(url, init) });
    this.client.subscribe({
      onEvent: ({ event }) => this.onEvent(event),
      onMessagesChanged: () => onChange(),
      onStateChanged: () => onChange(),
    });
    if (!isNew) this.follow();
  }

  get messages() {
    return this.client.messages;
  }

  get state() {
    return this.client.state;
  }

  get run() {
    const last = this.runs.at(-1);
    return last && !last.ended ? last : null;
  }

  get query() {
    return this.withParts ? "raw=true" : "";
  }

  // ------------------------------------------------------------- the stream
  observer(line) {
    const isCurrent = () => this.line === line() && !this.isClosed;
    return {
      onComment: (text) => isCurrent() && this.inspector.comment(text),
      onFrame: (frame) => isCurrent() && this.take(frame),
      onConnection: (what) => isCurrent() && this.connection(what),
      onRefused: (refused) => isCurrent() && this.refuse(refused),
      onEnd: () => isCurrent() && this.ended(),
    };
  }

  /** Shows the thread and its changes, after the last event that arrived. */
  async follow() {
    this.hangUp();
    const url = `${agentUrl(this.agent, `threads/${encodeURIComponent(this.threadId)}/events`)}?follow=thread&${this.query}`;
    const line = new Line(url, { headers: { accept: "text/event-stream" } }, this.lastId, this.observer(() => line));
    this.line = line;
    this.setLink({ state: "opening" });
    const refused = await line.open().then(
      (response) => (response ? Refused.of(response) : null),
      () => Refused.unreachable(),
    );
    if (this.line !== line) return;
    if (refused) return this.followLater(refused);
    this.failures = 0;
    if (this.failure?.pause) this.failure = null;
    this.setLink({ state: "open" });
  }

  /** Follows the thread again after a pause, if the reason for the refusal may pass. */
  followLater(refused) {
    if (refused.isPassing) {
      refused.pause = pauseAfter(this.failures);
      this.failures += 1;
      this.timer = setTimeout(() => this.follow(), refused.pause);
    }
    this.refuse(refused);
  }

  /** Sends the official client's request. The response is the run, over as many connections as that takes. */
  async post(url, init) {
    const line = new Line(`${url}?${this.query}`, { ...init, signal: undefined }, null, this.observer(() => line));
    line.isOver = ({ data }) => TERMINAL.some((type) => data.startsWith(`{"type":"${type}"`));
    const segment = new Segment();
    [this.line, this.segment] = [line, segment];
    this.setLink({ state: "opening" });
    const refused = await line.open();
    if (refused) return refused;
    if (this.line === line) this.setLink({ state: "open" });
    return new Response(segment.body, { headers: { "content-type": "text/event-stream" } });
  }

  /**
   * Accepts a frame. The start of a run begins a new response for the client. Returns whether the frame is a change: the
   * snapshot of an idle thread, which is sent as a run, is none.
   */
  take(frame) {
    this.lastId = frame.id ?? this.lastId;
    let event;
    try {
      event = JSON.parse(frame.data);
    } catch {
      return false;
    }
    if (event.type === "RUN_STARTED") this.isAtRest = isOfRest(event.runId);
    const isNews = !this.isAtRest;
    this.inspector.frame(frame, event);
    if (event.type === "RUN_STARTED") {
      if (this.segment?.isStarted) {
        // The gateway could not resume after our last event, and sends everything again.
        this.segment.close();
        this.segment = null;
      }
      if (!this.segment) this.connect();
      this.segment.isStarted = true;
    }
    if (!this.segment) return isNews;
    this.segment.push(`data: ${frame.data}\n\n`);
    if (TERMINAL.includes(event.type)) {
      this.segment.close();
      this.segment = null;
    }
    this.onChange();
    return isNews;
  }

  connect() {
    const segment = new Segment();
    this.segment = segment;
    this.work = this.work.then(async () => {
      if (this.isClosed) return;
      this.client.segment = segment.body;
      this.client.pendingInterrupts = [];
      await this.client.connectAgent().catch((error) => this.refuse(error));
    });
  }

  connection(what) {
    const before = this.link;
    this.inspector.connection(what);
    if (what.type === "lost") {
      this.setLink({ state: what.byHand ? "cut" : "lost", since: Date.now(), after: before.after ?? this.inspector.total.events, lastId: what.lastId, pause: what.pause });
    } else if (what.type === "back") {
      this.setLink({ ...before, state: "open", back: Date.now() });
    } else if (what.type === "caught-up") {
      const { events, again } = what;
      this.setLink({ state: "open", caughtUp: { events, again, seconds: ((before.back ?? Date.now()) - (before.since ?? Date.now())) / 1000, lastId: before.lastId } });
    }
  }

  setLink(link) {
    this.link = link;
    this.onChange();
  }

  refuse(refused) {
    this.failure = refused;
    if (!(refused instanceof Refused) && refused.status) this.failure = new Refused(refused.status, refused.payload?.error, refused.payload?.message ?? refused.message);
    this.setLink({ state: "closed" });
    this.onRefused(this.failure);
  }

  /** The stream of a run is over: the thread is followed again. */
  async ended() {
    const { line } = this;
    await this.work;
    if (this.line === line && !this.isClosed) {
      const { caughtUp } = this.link;
      await this.follow();
      if (caughtUp && this.link.state === "open") this.setLink({ ...this.link, caughtUp });
    }
  }

  hangUp() {
    clearTimeout(this.timer);
    this.line?.close();
    this.line = null;
    this.segment?.close();
    this.segment = null;
  }

  close() {
    this.isClosed = true;
    this.hangUp();
  }

  cut() {
    this.line?.cut();
  }

  reconnect() {
    if (this.link.state === "closed") this.follow();
    else this.line?.reconnect();
  }

  // ------------------------------------------------------------- sending
  /** Returns whether the message was sent. */
  send(text) {
    return this.begin(() => this.client.addMessage({ id: newId(), role: "user", content: text }));
  }

  /** Answers all open interrupts. `answers` has a payload by interrupt id, or `undefined` for an abandoned one. */
  async answer(answers) {
    const resume = this.interrupts.map(({ id, toolCallId }) => {
      const payload = answers.get(id);
      if (payload?.approved === false) this.rejected.add(toolCallId);
      return payload === undefined ? { interruptId: id, status: "cancelled" } : { interruptId: id, status: "resolved", payload };
    });
    await this.begin(() => {}, resume);
  }

  async begin(prepare, resume) {
    this.hangUp();
    this.failure = null;
    await this.work;
    if (!resume) this.client.pendingInterrupts = [];
    prepare();
    this.isNew = false;
    const asked = this.interrupts;
    this.interrupts = [];
    const runId = newId();
    this.own.add(runId);
    this.onChange();
    let isSent = true;
    const done = this.client.runAgent({ runId, ...(resume ? { resume } : {}) });
    this.work = done.catch((error) => {
      if (this.isClosed) return;
      isSent = false;
      this.interrupts = asked;
      // The connection failed before the run began: it is unknown whether the run was started.
      const what = error.status ? error : Refused.unreachable(error);
      const failed = this.line;
      this.refuse(what);
      if (failed && this.line === failed && error.status !== 401) this.followAfterRefusal();
    });
    await this.work;
    return isSent;
  }

  async followAfterRefusal() {
    const { failure } = this;
    this.lastId = null;
    await this.follow();
    // If the thread cannot be followed either, the page shows that it tries again.
    if (!this.failure?.pause) this.failure = failure;
    this.onChange();
  }

  async stop() {
    try {
      await stopRun(this.agent, this.threadId);
    } catch (error) {
      this.failure = error;
      this.onRefused(error);
      this.onChange();
    }
  }

  // ------------------------------------------------------------- events
  /** A name for a subagent: the second `helper` of a run is `helper 2`. */
  nameOf({ subagentRunId, name }, run) {
    run.helpers ??= new Map(); // the ids of the run's subagents, by name
    const ids = run.helpers.get(name) ?? [];
    if (!ids.includes(subagentRunId)) run.helpers.set(name, [...ids, subagentRunId]);
    const place = run.helpers.get(name).indexOf(subagentRunId);
    return place === 0 ? name : `${name} ${place + 1}`;
  }

  onEvent(event) {
    // Activities have no fixed position in a conversation.
    const last = this.messages.findLast(({ role }) => role !== "activity")?.id;
    if (event.type === "RUN_STARTED") {
      this.interrupts = [];
      const isShown = !isOfRest(event.runId);
      const again = this.runs.findIndex((run) => run.id === event.runId);
      if (again >= 0) this.runs.splice(again, 1);
      this.runs.push({ id: event.runId, isOwn: this.own.has(event.runId), isShown, began: Date.now(), langgraph: event.metadata?.langgraph, steps: [] });
      if (this.runs.length > MAX_RUNS) this.runs.shift();
    }
    const run = this.runs.at(-1);
    if (!run) return;
    if (event.type === "SUBAGENT_STARTED") this.subagents.set(event.subagentRunId, this.nameOf(event, run));
    if (event.type === "STEP_STARTED") run.step = event.stepName;
    if (event.type === "CUSTOM") {
      this.notes.push({ runId: run.id, name: event.name, value: event.value });
      if (this.notes.length > MAX_NOTES) this.notes.shift();
      run.note = this.notes.at(-1);
    }
    if (event.type === "RUN_FINISHED") {
      const { outcome, usage, metadata } = event;
      Object.assign(run, { ended: Date.now(), outcome: outcome?.type ?? "success", usage, after: last, error: metadata?.langgraph?.error });
      const before = this.runs.findLast(({ id, isShown }) => isShown && id !== run.id);
      // An idle thread repeats the error of its last run, which a client that saw the run has already.
      if (run.error && before?.outcome !== "failed") Object.assign(run, { isShown: true, isAtRest: true });
      this.interrupts = outcome?.type === "interrupt" ? outcome.interrupts : [];
    }
    if (event.type === "RUN_ERROR") {
      Object.assign(run, { ended: Date.now(), outcome: "failed", usage: event.usage, after: last, isShown: true, error: { message: event.message, error: event.code } });
    }
    this.onChange();
  }
}
