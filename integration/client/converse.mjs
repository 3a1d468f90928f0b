// Sessions of `converse`: one to three tabs of the official clients in one thread, what the people at them do, drawn by a
// seed, and LangGraph's thread after each step.

import { randomUUID } from "node:crypto";
import { judge, MAIL, openCalls, PAGE_TOOLS, plain } from "./converse-judge.mjs";
import { Gate } from "./gate.mjs";
import { GENERATIONS } from "./gateway.mjs";
import { seeded } from "./seeded.mjs";
import { interruptIds } from "./thread.mjs";

const POLL_MS = 15;
const REST_MS = 60_000; // a thread that is not idle by then does not become so
const RUN_MS = 60_000; // the same for a client's run
const STOPPING_MS = 120; // how long a stopped run is held after the next request was sent
const HISTORY = 40; // checkpoints that are read at first
const SUMMARY = "Here is a summary";
const MOST_TABS = 3;
const STEPS = [4, 10];

export const GRAPHS = ["talk", "talk", "talk_redacted", "talk_redacted", "talk_summarised", "talk_summarised", "talk_both"];
const REDACTING = ["talk_redacted", "talk_both"];

/** The options of `[emit]` that a tab's agent may have. */
export const VIEWS = { full: {}, quiet: { messages: "none" }, stateless: { state: "none" }, initial: { state: "initial" }, short: { max_event_bytes: 200 } };
const BLIND = ["stateless", "initial"]; // their clients do not get the newest state
const VIEW_WEIGHTS = { full: 8, quiet: 3, stateless: 2, initial: 2, short: 2 };

/** The agents for a gateway's configuration. */
export function agentsConfig() {
  const lines = [];
  for (const graph of new Set(GRAPHS)) {
    for (const [view, emit] of Object.entries(VIEWS)) {
      if (view === "full") continue;
      lines.push(`[agents.${graph}-${view}]`, `agent = "${graph}"`, `[agents.${graph}-${view}.emit]`);
      lines.push(...Object.entries(emit).map(([key, value]) => `${key} = ${JSON.stringify(value)}`), "");
    }
  }
  return lines.join("\n");
}

const TOOLS = PAGE_TOOLS.map((name) => ({ name, description: "Of the page.", parameters: { type: "object", properties: { n: { type: "number" } } } }));
const pause = (ms) => new Promise((wake) => setTimeout(wake, ms));
const short = (text) => (text.length > 60 ? `${text.slice(0, 60)}…` : text);

/** A client's messages in the judge's form. */
function plainOfClient(messages) {
  const talk = messages.filter(({ role }) => role !== "activity" && role !== "reasoning");
  return talk.map(({ id, role, content, toolCalls, toolCallId, error }) =>
    plain({ id, role, content, tool_calls: (toolCalls ?? []).map((call) => ({ id: call.id, name: call.function.name })), tool_call_id: toolCallId, status: error === undefined ? undefined : "error" }),
  );
}

// ---------------------------------------------------------------- a tab
class Tab {
  /** The newest checkpoint that the tab has seen. */
  head;

  constructor(session, name, view, generation, state) {
    Object.assign(this, { session, name, view, generation });
    const { graph, at, threadId } = session;
    this.base = `${at.threadway}/agui/agent/${view === "full" ? graph : `${graph}-${view}`}`;
    this.agent = new generation.HttpAgent({
      url: `${this.base}/run`,
      threadId,
      initialState: state,
      fetch: async (url, init) => {
        this.response = await fetch(url, init);
        if (!this.response.ok) this.refusal = `${this.response.status} ${(await this.response.clone().text()).slice(0, 300)}`;
        return this.response;
      },
    });
  }

  get told() {
    return `${this.name} (${this.view}, ${this.generation.version})`;
  }

  get talk() {
    return plainOfClient(this.agent.messages);
  }

  /** The places of the person's own messages. */
  get people() {
    const { said } = this.session;
    // LangChain's middleware for JavaScript gives a summary the id of a message that it replaces.
    const isPersons = ({ id, role, content }) => role === "user" && said.has(id) && !content.startsWith(SUMMARY);
    return this.agent.messages.flatMap((message, place) => (isPersons(message) ? [place] : []));
  }

  /** Calls of the page's tools that have no result here. */
  get unanswered() {
    const answered = new Set(this.agent.messages.map(({ toolCallId }) => toolCallId));
    return this.agent.messages.flatMap((message, place) =>
      (message.toolCalls ?? []).filter((call) => PAGE_TOOLS.includes(call.function.name) && !answered.has(call.id)).map(({ id }) => ({ id, place })),
    );
  }

  /** Runs, and returns the client's error. */
  async run(more = {}) {
    const { agent } = this;
    // A client refuses to run while it knows of a question. A person who does something else leaves the question.
    if (!more.resume) agent.pendingInterrupts = [];
    this.refusal = undefined;
    let failure;
    const timer = setTimeout(() => agent.abortRun(), RUN_MS);
    const onEvent = ({ event }) => {
      if (event.type === "RUN_ERROR") failure = `RUN_ERROR ${event.code ?? ""} ${event.message ?? ""}`;
      more.onEvent?.(event);
    };
    const { onEvent: _, ...parameters } = more;
    const thrown = await agent.runAgent({ runId: randomUUID(), tools: TOOLS, ...parameters }, { onEvent }).then(() => undefined, (error) => error);
    clearTimeout(timer);
    return this.refusal ?? failure ?? (thrown && `${thrown.name}: ${thrown.message}`);
  }

  /** Learns the thread as it is. */
  async connect() {
    this.agent.url = `${this.base}/connect`;
    const error = await this.run();
    this.agent.url = `${this.base}/run`;
    return error;
  }
}

// ---------------------------------------------------------------- LangGraph's thread
/** A thread that the server does not have. */
const NOTHING = () => ({ head: undefined, messages: [], values: {}, raw: {}, interrupts: [], checkpoints: new Map(), fresh: [], runs: [], errors: [], ever: new Set() });

async function get(url) {
  // On a connection of its own: the server may be closing a reused one at this moment, which is no fault.
  const response = await fetch(url, { headers: { connection: "close" } });
  if (response.status === 404) return undefined;
  if (!response.ok) throw new Error(`GET ${url}: ${response.status} ${await response.text()}`);
  return response.json();
}

const idOf = (checkpoint) => checkpoint?.checkpoint?.checkpoint_id ?? checkpoint?.checkpoint_id ?? undefined;

function stateIn(values) {
  const { messages, __interrupt__, ...rest } = values ?? {};
  return rest;
}

/** Waits until the thread is idle, and reads what is new in it since `before`. */
async function look(at, threadId, before) {
  const url = `${at.langgraph}/threads/${threadId}`;
  let runs;
  for (const end = performance.now() + REST_MS; ; ) {
    const [thread, listed] = await Promise.all([get(url), get(`${url}/runs?limit=100`)]);
    if (!thread) return NOTHING();
    runs = listed ?? [];
    if (thread.status !== "busy" && runs.every(({ status }) => !["pending", "running"].includes(status))) break;
    if (performance.now() > end) throw new Error(`thread ${threadId} is still busy: ${runs.map(({ status }) => status)}`);
    await pause(POLL_MS);
  }
  const [state, first] = await Promise.all([get(`${url}/state`), get(`${url}/history?limit=${HISTORY}`)]);
  let history = first ?? [];
  if (history.length === HISTORY && !history.some((checkpoint) => before.checkpoints.has(idOf(checkpoint)))) history = await get(`${url}/history?limit=1000`);
  const fresh = history
    .filter((checkpoint) => !before.checkpoints.has(idOf(checkpoint)))
    .reverse()
    .map((checkpoint) => ({
      id: idOf(checkpoint),
      parent: checkpoint.parent_checkpoint?.checkpoint_id ?? undefined,
      messages: (checkpoint.values?.messages ?? []).map(plain),
      values: stateIn(checkpoint.values),
      source: checkpoint.metadata?.source,
    }));
  const messages = (state?.values?.messages ?? []).map(plain);
  const ever = new Set(before.ever);
  for (const { id } of [...fresh.flatMap((checkpoint) => checkpoint.messages), ...messages]) ever.add(id);
  return {
    head: idOf(state),
    messages,
    values: stateIn(state?.values),
    raw: state?.values ?? {},
    interrupts: interruptIds({ tasks: [], ...state }),
    checkpoints: new Map([...before.checkpoints, ...fresh.map((checkpoint) => [checkpoint.id, checkpoint])]),
    fresh,
    runs: runs.map(({ run_id: id, status }) => ({ id, status })),
    errors: (state?.tasks ?? []).map(({ error }) => (typeof error === "string" ? error : error && JSON.stringify(error))).filter(Boolean),
    ever,
  };
}

// ---------------------------------------------------------------- a session
/** The result: what was done in words, and the first faults. */
export class Session {
  words = [];
  tabs = [];
  said = new Map(); // the people's messages, by id
  free = new Set(); // mail addresses that the graph does not redact
  isLost = false;
  wasLost = false;
  faults = [];

  /** `accepted`: kinds of faults that are none; `only`: the steps that may be drawn, and the views of the tabs. */
  constructor(at, number, { lostThread, accepted = [], only = [] } = {}) {
    Object.assign(this, { at, number, lostThread, accepted, only, threadId: randomUUID() });
    this.now = NOTHING();
    const { one, random } = this.draw("session");
    this.graph = one(GRAPHS);
    this.welcome = random() < 0.2 ? `welcome-${randomUUID()}` : undefined;
    this.first = randomUUID().slice(0, 6);
    const count = one([1, 2, 2, 3]);
    for (let n = 0; n < count; n++) this.#addTab(n, true);
  }

  /** Choices of one purpose, which do not depend on those of another. */
  draw(purpose) {
    return seeded(`converse ${this.at.name} ${this.number} ${purpose}`);
  }

  #addTab(n, isFirst) {
    const { random, one } = this.draw(`tab ${n}`);
    const views = Object.entries(VIEW_WEIGHTS).flatMap(([view, weight]) => Array(weight).fill(view));
    const wanted = views.filter((view) => this.only.includes(view));
    const view = one(wanted.length > 0 ? wanted : views);
    // A first state is the person's if the thread has none, or if the client is never sent the thread's.
    const hasFirst = BLIND.includes(view) || (n === 0 && isFirst && random() < 0.4);
    const tab = new Tab(this, String.fromCharCode(65 + n), view, one(GENERATIONS), hasFirst ? { count: 0, note: `first-${this.first}` } : {});
    if (this.welcome && isFirst) tab.agent.addMessage({ id: this.welcome, role: "assistant", content: "Welcome! What can I do?" });
    this.tabs.push(tab);
    return tab;
  }

  async play() {
    const { between } = this.draw("length");
    const steps = Math.floor(between(...STEPS));
    for (let n = 0; n < steps && this.faults.length === 0; n++) await this.#step(this.draw(`step ${n}`));
    return this;
  }

  get told() {
    const tabs = this.tabs.map(({ told }) => told).join(", ");
    return [`session ${this.number} on ${this.at.name}, graph ${this.graph}, thread ${this.threadId}, tabs ${tabs}`, ...this.words.map((line, n) => `  ${n + 1}. ${line}`)].join("\n");
  }

  // -------------------------------------------------------------- one step
  /** What can be done now, with weights. */
  #choices() {
    const { now, tabs } = this;
    if (now.head === undefined && !this.isLost) return [[1, "say"]];
    const isAsked = now.interrupts.length > 0;
    const waiting = openCalls(now.messages).filter(({ name }) => PAGE_TOOLS.includes(name));
    const isOpen = waiting.length > 0 && !isAsked;
    const holds = (tab) => tab.unanswered.some(({ id }) => waiting.some((call) => call.id === id));
    const choices = [[isOpen || isAsked ? 2 : 6, "say"]];
    const add = (weight, name, isPossible) => isPossible && choices.push([weight, name]);
    add(1, "nothing", tabs.some((tab) => tab.talk.length > 0 && tab.talk.at(-1).type !== "human"));
    add(2, "edit", tabs.some(({ people }) => people.length > 0));
    add(2, "again", tabs.some(({ people }) => people.length > 0));
    add(8, "answer", isOpen && tabs.some(holds));
    add(3, "answer late", tabs.some((tab) => tab.unanswered.length > 0 && !holds(tab)));
    add(1.5, "change", !isAsked && tabs.some(({ view, head }) => ["full", "short", "quiet"].includes(view) && head !== undefined));
    add(1.5, "connect", !this.isLost && tabs.some(({ head }) => head !== now.head));
    add(0.8, "new tab", tabs.length < MOST_TABS);
    if (this.isLost) return choices;
    add(0.5, "lose", true);
    add(0.8, "stop", !isAsked && !isOpen);
    add(1, "foreign run", !isAsked && !isOpen);
    add(0.6, "foreign change", !isAsked && !isOpen);
    add(8, "resolve", isAsked && tabs.some((tab) => this.#asks(tab)));
    add(2, "resolve late", tabs.some((tab) => tab.agent.pendingInterrupts.length > 0 && !this.#asks(tab)));
    return choices;
  }

  /** Whether a tab knows the thread's present question. */
  #asks(tab) {
    const known = tab.agent.pendingInterrupts.map(({ id }) => id);
    return known.length > 0 && known.every((id) => this.now.interrupts.includes(id));
  }

  async #step(draw) {
    const all = this.#choices();
    const wanted = all.filter(([, kind]) => this.only.includes(kind.replaceAll(" ", "-")));
    const choices = wanted.length > 0 ? wanted : this.only.length > 0 ? [[1, "say"]] : all;
    let point = draw.random() * choices.reduce((sum, [weight]) => sum + weight, 0);
    const [, kind] = choices.find(([weight]) => (point -= weight) < 0) ?? choices[0];
    const step = await this.#act(kind, draw);
    this.words.push(step.words);
    const before = this.now;
    const after = await look(this.at, this.threadId, before);
    step.isLost = this.isLost && !step.isNoRun;
    step.wasLost = this.wasLost;
    if (after.head !== undefined) this.isLost = false;
    this.now = after;
    if (step.isLoss) {
      this.isLost = true;
      this.wasLost = true;
      this.now = NOTHING();
      return;
    }
    if (step.isNoRun && !step.isConnect) return;
    const { tab } = step;
    const isStale = tab !== undefined && !BLIND.includes(tab.view) && step.seen !== before.head;
    const client = tab && { threadId: this.threadId, view: tab.view, messages: structuredClone(tab.agent.messages), state: structuredClone(tab.agent.state), isStale };
    this.#free(step, before.ever);
    step.welcome = this.welcome;
    const options = { client, redacts: REDACTING.includes(this.graph), free: this.free, lostThread: this.lostThread };
    // After a loss nothing shows that a tab's copy is old. A fork gets the result that its tab holds of a call which is open there.
    const lost = this.wasLost ? ["stale-state", "fork", "resurrected"] : [];
    const forked = /asks|edits/.test(step.words) ? ["stray-result"] : [];
    const accepted = [...this.accepted, ...lost, ...forked];
    this.faults = judge(before, after, step, options).filter(({ kind }) => !accepted.includes(kind));
    if (tab && !step.error) tab.head = after.head;
    if (this.faults.length > 0) this.failed = { before, after, step, held: client };
  }

  /** Of several new messages LangChain's middleware redacts the last one, and none when a question has been answered. */
  #free({ target, sent = [], isLost, isResume }, everBefore) {
    const isNew = ({ id }) => isLost || !everBefore.has(id);
    const place = target ? sent.findIndex(({ id }) => id === target.id) : sent.length;
    const going = sent.filter((message, n) => message.type === "human" && (isNew(message) || n >= place));
    if (going.length < 2 && !isResume) return;
    // An old text that the person did not write again is not free: it would be back.
    const written = going.filter((message) => isNew(message) || (target?.isEdit && message.id === target.id));
    for (const { text } of written) for (const mail of text.match(MAIL) ?? []) this.free.add(mail);
  }

  #content({ random, one }, command) {
    const nonce = randomUUID().replaceAll("-", "").slice(0, 6);
    const chosen = command ?? one(["plain", "plain", "plain", "tool", "tool", "tools", "page", "page", "page", "pages", "ask", "approve", "forget", "forget", "forget-all"]);
    const mail = REDACTING.includes(this.graph) && random() < 0.5 ? ` bob-${nonce}@example.com` : "";
    return `${chosen} ${nonce}${mail}`;
  }

  #say(tab, text) {
    const message = { id: randomUUID(), role: "user", content: text };
    this.said.set(message.id, text);
    tab.agent.addMessage(message);
    return { id: message.id, text };
  }

  async #act(kind, draw) {
    const { random, one } = draw;
    const { tabs, now } = this;
    const waiting = openCalls(now.messages);
    const holds = (tab) => tab.unanswered.some(({ id }) => waiting.some((call) => call.id === id));
    const which = (isGood) => one(tabs.filter(isGood));
    /** Runs a tab that has been prepared. */
    const run = async (tab, words, step, more) => {
      const sent = tab.talk;
      const seen = tab.head;
      const sentState = structuredClone(tab.agent.state);
      const error = await tab.run(more);
      return { tab, sent, sentState, seen, error, ...step, words: `${tab.told} ${words}${seen !== now.head && now.head !== undefined ? ", without having seen the newest state" : ""}${error ? ` -> ${error}` : ""}` };
    };
    switch (kind) {
      case "say": {
        const tab = one(tabs);
        // A first state is the person's only in a new thread.
        if (now.head === undefined && !this.isLost) {
          for (const other of tabs) if (other !== tab && !BLIND.includes(other.view)) other.agent.setState({});
        }
        const add = this.#say(tab, this.#content(draw));
        return run(tab, `says ${JSON.stringify(add.text)}`, { adds: [add] });
      }
      case "nothing": {
        const tab = which(({ talk }) => talk.length > 0 && talk.at(-1).type !== "human");
        return run(tab, "runs with nothing new", {});
      }
      case "edit":
      case "again": {
        const tab = which(({ people }) => people.length > 0);
        const isThere = (place) => this.now.messages.some(({ id }) => id === tab.agent.messages[place].id);
        // Nothing shows which messages a lost thread had.
        const places = this.wasLost ? tab.people.filter(isThere) : tab.people;
        if (places.length === 0) return this.#act("say", draw);
        const place = one(places);
        const messages = structuredClone(tab.agent.messages);
        const message = messages[place];
        const old = message.content;
        const isEdit = kind === "edit";
        if (isEdit) message.content = this.#content(draw);
        const isKept = isEdit && random() < 0.4;
        tab.agent.setMessages(isKept ? messages : messages.slice(0, place + 1));
        // While a question is open, new words are not stored: the question is sent again.
        const isStored = this.now.interrupts.length === 0 || isThere(place);
        const adds = isKept && isStored && random() < 0.5 ? [this.#say(tab, this.#content(draw, "plain"))] : [];
        const target = { id: message.id, text: message.content, isEdit };
        const what = isEdit ? `edits ${JSON.stringify(short(old))} to ${JSON.stringify(message.content)}, and ${isKept ? `sends what follows it${adds.map(({ text }) => `, and ${JSON.stringify(text)}`)}` : "drops what follows it"}` : `asks ${JSON.stringify(short(old))} again`;
        return run(tab, what, { target, adds });
      }
      case "answer": {
        const tab = which(holds);
        const results = this.#answer(tab, tab.unanswered.filter(({ id }) => waiting.some((call) => call.id === id)), draw);
        return run(tab, `answers its tool${results.length > 1 ? "s" : ""}: ${results.map(({ text, error }) => error ?? text).join(", ")}`, { results });
      }
      case "answer late": {
        const tab = which((tab) => tab.unanswered.length > 0 && !holds(tab));
        const { place } = tab.unanswered.at(-1);
        const results = this.#answer(tab, tab.unanswered.filter((call) => call.place === place), draw);
        return run(tab, `answers ${results.map(({ callId }) => callId).join(", ")}, which no longer waits`, { results });
      }
      case "change": {
        const tab = which(({ view, head }) => ["full", "short", "quiet"].includes(view) && head !== undefined);
        const value = randomUUID().slice(0, 6);
        const state = structuredClone(tab.agent.state) ?? {};
        const isInside = state.doc !== undefined && random() < 0.5;
        if (isInside) state.doc.small = value;
        else state.note = value;
        tab.agent.setState(state);
        const change = isInside ? { small: value } : { note: value };
        const add = this.#say(tab, this.#content(draw));
        return run(tab, `sets ${isInside ? "doc.small" : "note"} to ${value}, and says ${JSON.stringify(add.text)}`, { adds: [add], change });
      }
      case "connect": {
        const tab = which(({ head }) => head !== now.head);
        return this.#connect(tab);
      }
      case "new tab": {
        const tab = this.#addTab(tabs.length, false);
        if (!this.isLost && random() < 0.6) return this.#connect(tab, "opens, and");
        const add = this.#say(tab, this.#content(draw));
        return run(tab, `opens without the conversation, and says ${JSON.stringify(add.text)}`, { adds: [add] });
      }
      case "lose": {
        const response = await fetch(`${this.at.langgraph}/threads/${this.threadId}`, { method: "DELETE", headers: { connection: "close" } });
        if (!response.ok && response.status !== 404) throw new Error(`DELETE: ${response.status} ${await response.text()}`);
        // Its clients hold what the thread had, as they were told it.
        for (const { talk } of tabs) for (const { text } of talk) for (const mail of text.match(MAIL) ?? []) this.free.add(mail);
        return { words: "the server loses the thread", isNoRun: true, isLoss: true };
      }
      case "stop":
        return this.#stop(draw);
      case "foreign run": {
        const id = randomUUID();
        const text = this.#content(draw, one(["plain", "tool", "forget"]));
        this.said.set(id, text);
        // After a fork the JavaScript server begins each run at the fork again, unless the run says otherwise.
        const config = this.at.name === "JavaScript" ? { configurable: { checkpoint_id: null } } : undefined;
        await this.#post("/runs", { assistant_id: this.graph, config, input: { messages: [{ role: "user", id, content: text }] } });
        return { words: `another program runs the thread with ${JSON.stringify(text)}`, adds: [{ id, text }], isForeign: true };
      }
      case "foreign change": {
        const note = randomUUID().slice(0, 6);
        await this.#post("/state", { values: { note }, as_node: "Talk.after_agent" });
        return { words: `another program sets note to ${note}`, change: { note }, isForeign: true };
      }
      case "resolve":
      case "resolve late": {
        const isLate = kind === "resolve late";
        const tab = which((tab) => (isLate ? tab.agent.pendingInterrupts.length > 0 && !this.#asks(tab) : this.#asks(tab)));
        // While a call waits, answers go up alone: the gateway refuses them with new messages.
        const isSent = ({ id }) => !this.said.has(id) || now.ever.has(id);
        if (waiting.length > 0) tab.agent.setMessages(tab.agent.messages.filter(isSent));
        const answers = Object.fromEntries(tab.agent.pendingInterrupts.map(({ id }) => [id, { status: "resolved", payload: "yes" }]));
        const resume = tab.generation.buildResumeArray(tab.agent.pendingInterrupts, answers);
        const step = await run(tab, isLate ? "answers a question that no longer waits" : "answers the question", { isResume: true, isRepeat: isLate }, { resume });
        // A second answer may be refused.
        if (isLate) {
          tab.agent.pendingInterrupts = [];
          step.error = undefined;
          step.isUncompared = true;
        }
        return step;
      }
      default:
        throw new Error(`there is no step ${kind}`);
    }
  }

  async #connect(tab, words = "") {
    const sent = tab.talk;
    const error = await tab.connect();
    return { tab, sent, seen: this.now.head, error, isNoRun: true, isConnect: true, words: `${tab.told} ${words} connects${error ? ` -> ${error}` : ""}` };
  }

  /** Adds results to a tab: at the end, or behind their message, as clients do. */
  #answer(tab, calls, { random, one }) {
    const isBehind = random() < 0.5;
    const results = calls.map(({ id }) => {
      const said = `result-${randomUUID().slice(0, 6)}`;
      const failure = random() < 0.25 ? `NotAllowed-${said}` : undefined;
      return { id: randomUUID(), callId: id, text: failure && random() < 0.5 ? "" : said, error: failure };
    });
    if (random() < 0.3) results.reverse();
    const messages = results.map(({ id, callId, text, error }) => ({ id, role: "tool", toolCallId: callId, content: text, ...(error && { error }) }));
    const held = [...tab.agent.messages];
    held.splice(isBehind ? calls[0].place + 1 : held.length, 0, ...messages);
    tab.agent.setMessages(held);
    return results;
  }

  async #post(path, body) {
    const headers = { connection: "close", "content-type": "application/json" };
    const response = await fetch(`${this.at.langgraph}/threads/${this.threadId}${path}`, { method: "POST", headers, body: JSON.stringify(body) });
    if (!response.ok) throw new Error(`POST ${path}: ${response.status} ${await response.text()}`);
    return response.json();
  }

  /** The person stops an answer, and asks for another one at once. */
  async #stop({ random, one }) {
    const tab = one(this.tabs);
    const gate = await Gate.before(0);
    const seen = tab.head;
    const add = this.#say(tab, `slow ${randomUUID().slice(0, 6)} ${gate.script.gate.url}`);
    const before = structuredClone(tab.agent.messages);
    const first = tab.run();
    const isReached = await Promise.race([gate.reached(0).then(() => true), first.then(() => false)]);
    if (!isReached) {
      gate.open();
      const error = await first;
      return { tab, seen, sent: plainOfClient(before), error, adds: [add], words: `${tab.told} says "slow"${error ? ` -> ${error}` : ""}` };
    }
    tab.agent.abortRun();
    await first;
    const isTold = random() < 0.5;
    if (isTold) await fetch(`${tab.base}/stop/${this.threadId}`, { method: "POST", headers: { connection: "close" } }).then((response) => response.text());
    const place = tab.agent.messages.findIndex(({ id }) => id === add.id);
    tab.agent.setMessages(place < 0 ? before : tab.agent.messages.slice(0, place + 1));
    const sent = tab.talk;
    setTimeout(() => gate.open(), STOPPING_MS);
    const error = await tab.run();
    gate.open();
    const words = `${tab.told} says "slow", ${isTold ? "stops the run" : "leaves the run"}, and asks again at once${error ? ` -> ${error}` : ""}`;
    return { tab, seen, sent, error, adds: [add], isStopped: true, words };
  }
}
