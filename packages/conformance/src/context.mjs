// What the cases share: the server's URLs, requests to it, and runs that several cases read.

import { randomUUID } from "node:crypto";
import { Answer, Proxy, ask } from "./http.mjs";
import { judge } from "./judge.mjs";
import { equal } from "./patch.mjs";
import { hold } from "./reducer.mjs";

/** A case that fails: `saw` says what happened, in place of what is required. */
export class Fail extends Error {}
/** A case that does not apply, and why. */
export class Skip extends Error {}

export function must(condition, saw) {
  if (!condition) throw new Fail(typeof saw === "function" ? saw() : saw);
}

const TERMINAL = ["RUN_FINISHED", "RUN_ERROR"];
export const isTerminal = ({ type } = {}) => TERMINAL.includes(type);
export const lastOf = (frames) => frames.at(-1)?.event;
export const types = (events, most = 12) => events.slice(0, most).map(({ type }) => type).join(", ") + (events.length > most ? ", .." : "");

/** Frames as they are compared: id and data. */
const told = (frames) => frames.filter(({ event }) => event).map(({ id, text }) => `${id} ${text}`);

/**
 * Where two lists of frames differ; undefined if they do not. T14 allows one difference: a MESSAGES_SNAPSHOT that the uncut
 * stream left out, because its client had sent these messages along.
 */
export function difference(actual, uncut) {
  const known = new Set(uncut.map(({ id }) => id));
  const [a, b] = [told(actual.filter(({ id, event }) => event?.type !== "MESSAGES_SNAPSHOT" || known.has(id))), told(uncut)];
  const at = [...Array(Math.max(a.length, b.length)).keys()].find((n) => a[n] !== b[n]);
  if (at === undefined) return undefined;
  const [one, two] = [a[at] ?? "nothing", b[at] ?? "nothing"];
  // Long texts are shown from where they differ.
  const from = Math.max(0, [...one].findIndex((letter, n) => letter !== two[n]) - 60);
  const show = (text) => `${text.slice(0, 100)}${from > 100 ? ` .. ${text.slice(from, from + 120)}` : text.slice(100, 220)}`;
  return `event ${at} of ${a.length} is ${show(one)} instead of ${show(two)} (of ${b.length})`;
}

/** Arguments as they are compared: a thread may keep them with other blanks than they were streamed with. */
function valueOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

export class Context {
  #shared = new Map();

  constructor(options, random) {
    this.options = options;
    this.random = random;
    this.urls = urlsOf(options);
    this.headers = options.headers;
    /** In what the person says: no other text contains it. */
    this.mark = `conformance-${randomUUID().slice(0, 8)}`;
    this.message = options.message.replaceAll("{mark}", this.mark);
  }

  // ---------------------------------------------------------------- requests
  input(more = {}) {
    return {
      threadId: randomUUID(),
      runId: randomUUID(),
      protocolVersion: "1.0",
      state: {},
      messages: [{ id: randomUUID(), role: "user", content: this.message }],
      tools: [],
      context: [],
      forwardedProps: {},
      ...more,
    };
  }

  #head(input, { headers, lastEventId } = {}) {
    const named = this.options.runIdHeader && input?.runId ? { [this.options.runIdHeader]: input.runId } : {};
    return { ...this.headers, ...named, ...(lastEventId === undefined ? {} : { "last-event-id": lastEventId }), ...headers };
  }

  /** Opens a stream with a POST of an input. */
  post(url, input, more = {}) {
    return Answer.open(url, { body: input, timeout: this.options.timeout, ...more, headers: this.#head(input, more) });
  }

  /** Opens a stream with a GET. */
  get(url, more = {}) {
    return Answer.open(url, { method: "GET", timeout: this.options.timeout, ...more, headers: this.#head(undefined, more) });
  }

  /** A POST that is read to its end. */
  async posted(url, input, more = {}) {
    const answer = await this.post(url, input, more);
    return answer.read(this.options.timeout);
  }

  async got(url, more = {}) {
    const answer = await this.get(url, more);
    return answer.read(this.options.timeout);
  }

  /** A raw request, read to its end. */
  asked(url, options) {
    return ask(url, { timeout: this.options.timeout, ...options, headers: { ...this.headers, ...options.headers } });
  }

  events(threadId, query = "") {
    return this.urls.events(threadId) + query;
  }

  /** The ways in which a client names its last event, of those that the server has. */
  async routes() {
    const { isOffered } = this;
    const [connect, events] = await Promise.all([isOffered.call(this, "connect"), isOffered.call(this, "events")]);
    return ["post", ...(connect ? ["connect", "body"] : []), ...(events ? ["events", "query"] : [])];
  }

  /** Resumes after an event, by one of the routes. */
  resume(route, input, id, { through = (url) => url, ...more } = {}) {
    const { run, connect } = this.urls;
    const fresh = { ...input, runId: input.runId };
    if (route === "post") return this.post(through(run), input, { ...more, lastEventId: id });
    if (route === "connect") return this.post(through(connect), fresh, { ...more, lastEventId: id });
    if (route === "body") return this.post(through(connect), { ...fresh, forwardedProps: { lastEventId: id } }, more);
    if (route === "events") return this.get(through(this.events(input.threadId)), { ...more, lastEventId: id });
    return this.get(through(this.events(input.threadId, `?last_event_id=${encodeURIComponent(id)}`)), more);
  }

  /** The same, read to its end. */
  async resumed(route, input, id, more) {
    const answer = await this.resume(route, input, id, more);
    return answer.read(this.options.timeout);
  }

  proxy() {
    return Proxy.start(this.urls.run);
  }

  // ---------------------------------------------------------------- what the server has
  /** Whether the server has a part; its answer to a first request decides. */
  isOffered(part) {
    return this.share(`part ${part}`, async () => {
      const { input } = await this.plain();
      const { threadId } = input;
      if (part === "ids") return (await this.plain()).answer.told.some(({ id }) => id !== undefined);
      if (part === "connect") return this.urls.connect !== undefined && (await this.posted(this.urls.connect, this.input({ threadId, messages: [] }))).type === "text/event-stream";
      if (!this.urls.events) return false;
      if (part === "events") return (await this.got(this.events(threadId))).type === "text/event-stream";
      const answer = await this.get(this.events(threadId, "?follow=thread"));
      const isStream = answer.type === "text/event-stream";
      answer.leave();
      return isStream;
    });
  }

  async needs(...parts) {
    for (const part of parts) {
      if (!(await this.isOffered(part))) {
        const why = part === "ids" ? "the stream of a run has no ids" : `the server has no ${part} route here`;
        throw new Skip(why);
      }
    }
  }

  // ---------------------------------------------------------------- shared runs
  /** Does something once, however many cases want its result. */
  share(name, make) {
    if (!this.#shared.has(name)) this.#shared.set(name, make());
    return this.#shared.get(name);
  }

  /** A run on a new thread, read to its end. */
  plain() {
    return this.share("plain", () => this.recorded("a run", this.urls.run, this.input()));
  }

  /** A run on a thread that no other run follows. */
  alone() {
    return this.share("alone", () => this.recorded("a run", this.urls.run, this.input()));
  }

  /** A second turn on the thread of `plain`. */
  second() {
    return this.share("second", async () => this.recorded("a second turn", this.urls.run, this.next(await this.plain())));
  }

  /** The input of the next turn, from a client that holds the thread. */
  next({ input, answer }, more = {}) {
    const held = hold(answer.events, input);
    const spoken = held.messages.filter(({ role }) => role !== "activity");
    const said = more.resume ? [] : [{ id: randomUUID(), role: "user", content: this.message }];
    return this.input({ threadId: input.threadId, state: held.state, messages: [...spoken, ...said], ...more });
  }

  /** A run of the agent that asks. */
  asking() {
    if (!this.options.ask) throw new Skip("no agent that asks was named: --ask URL");
    return this.share("asking", () => this.newQuestion("a run that asks"));
  }

  newQuestion(name) {
    return this.recorded(name, this.options.ask, this.input());
  }

  async recorded(name, url, input) {
    const answer = await this.posted(url, input);
    const isStream = answer.type === "text/event-stream";
    return { name, input, answer, isStream };
  }

  /** All streams of this session that the judge reads, as `{ name, events, findings, exercised }`. */
  recordings() {
    return this.share("recordings", async () => {
      const all = [await this.plain(), await this.second()];
      for (const url of this.options.also) all.push(await this.recorded(`a run of ${url}`, url, this.input()));
      if (this.options.ask) {
        all.push(await this.asking());
        const answered = await this.share("answered", () => this.answered()).catch((failure) => {
          if (!(failure instanceof Skip)) throw failure;
        });
        if (answered) all.push(answered);
      }
      if (await this.isOffered("connect")) {
        const { threadId } = all[0].input;
        const input = this.input({ threadId, messages: [] });
        const connected = await this.recorded("a connect", this.urls.connect, input);
        all.push({ ...connected, isConnect: true });
      }
      return all.filter(({ isStream }) => isStream).map(({ name, input, answer, isConnect = false }) => {
        const isOpen = answer.ending === "late";
        return { name, events: answer.events, ...judge(answer.events, { input, isRequested: !isConnect, isOpen }) };
      });
    });
  }

  /** The run that answers the questions of `asking`. */
  async answered() {
    const asked = await this.asking();
    const { outcome } = lastOf(asked.answer.told) ?? {};
    if (outcome?.type !== "interrupt") throw new Skip("the agent of --ask did not ask");
    const resume = outcome.interrupts.map(({ id }) => ({ interruptId: id, status: "resolved", payload: this.options.answer }));
    return this.recorded("a run that answers", this.options.ask, this.next(asked, { resume }));
  }

  /** Starts a run, and waits until so many of its events are there. */
  async live(count = 3, input = this.input(), more) {
    const answer = await this.post(this.urls.run, input, more);
    must(answer.type === "text/event-stream", `a run is answered with ${answer.status} ${answer.type}: ${answer.body.slice(0, 200)}`);
    await answer.until(({ told }) => told.length >= count, this.options.timeout);
    return { input, answer };
  }

  /** What a client holds that connects to the thread now. */
  async thread(threadId) {
    const answer = await this.posted(this.urls.connect, this.input({ threadId, messages: [] }));
    must(answer.status === 200, `connect is answered with ${answer.status}`);
    return hold(answer.events, { messages: [] });
  }

  /** Checks that a client holds the thread's messages. What is wrong with an uncut run's thread too is named by T26.2 alone. */
  async checkHeld(held, threadId) {
    try {
      return await this.compareHeld(held, threadId);
    } catch (failure) {
      const isOwn = await this.share("uncut thread", () => this.uncutThread()).then(() => true, () => false);
      throw isOwn ? failure : new Fail("the thread that `connect` shows cannot be compared: see T26.2");
    }
  }

  /** The thread after a run whose client was not cut, as `connect` shows it and as the client holds it. */
  async uncutThread() {
    const { input, answer } = await this.alone();
    return this.compareHeld(hold(answer.events, input), input.threadId);
  }

  async compareHeld(held, threadId) {
    const spoken = ({ messages }) =>
      messages
        .filter(({ role }) => ["user", "assistant", "tool"].includes(role))
        .map(({ id, role, content = "", toolCalls = [], toolCallId }) => ({ id, role, content, toolCallId, calls: toolCalls.map((call) => [call.id, call.function.name, valueOf(call.function.arguments)]) }));
    const [mine, theirs] = [spoken(held), spoken(await this.thread(threadId))];
    const show = (message) => (message ? JSON.stringify(message).slice(0, 200) : "nothing");
    for (const message of theirs) {
      const own = mine.find(({ id }) => id === message.id);
      must(equal(JSON.parse(JSON.stringify(own ?? null)), JSON.parse(JSON.stringify(message))), `the client holds ${show(own)}, and a new \`connect\` without an id shows ${show(message)}`);
    }
    const extra = mine.find(({ id }) => !theirs.some((message) => message.id === id));
    must(!extra, `the client holds ${show(extra)}, which a new \`connect\` without an id does not show`);
    return theirs.length;
  }

  /** Checks a stream against AG-UI. What AG-UI's own cases report is named, and not a fault of the transport. */
  async checkLawful(name, events, options) {
    const { findings } = judge(events, options);
    if (findings.length === 0) return "";
    const reported = new Set((await this.recordings()).flatMap(({ findings }) => findings.map(({ requirement }) => requirement)));
    const own = findings.find(({ requirement }) => !reported.has(requirement));
    must(!own, () => `${name}, event ${own.at}, violates ${own.requirement} of AG-UI: ${own.saw}`);
    return ` (see ${[...new Set(findings.map(({ requirement }) => requirement))].join(", ")})`;
  }
}

function urlsOf(options) {
  const { run } = options;
  const base = /\/run\/?$/.test(new URL(run).pathname) ? run.replace(/\/run\/?(?=$|\?)/, "") : undefined;
  const at = (path) => (base === undefined ? undefined : base + path);
  const template = (text) => text && ((threadId) => text.replace("{threadId}", encodeURIComponent(threadId)));
  return {
    run,
    connect: options.connect ?? at("/connect"),
    events: template(options.events ?? at("/threads/{threadId}/events")),
    stop: template(options.stop ?? at("/stop/{threadId}")),
    socket: options.socket ?? (base && run.replace(/^http/, "ws")),
    capabilities: options.capabilities ?? at("/capabilities"),
  };
}
