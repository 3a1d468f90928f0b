// Judges a stream of AG-UI events: a pure function of the events and of the request that asked for them.
//
// It goes on after a fault as a lenient client would, so that one fault is one finding and not all that follow from it.

import { AGUI } from "./agui.mjs";
import { apply, malformed } from "./patch.mjs";
import { Client } from "./reducer.mjs";
import { EVENTS, check, message as messageShape } from "./shapes.mjs";

export { AGUI } from "./agui.mjs";

const OUTCOMES = ["success", "interrupt", "cancelled"];
const VERSION = /^(0|[1-9]\d*)\.(0|[1-9]\d*)$/;
const PARENT = "the parent agent";
const SHOWN = 160; // characters of a value in a finding

/** The requirements that each type of event can violate; a stream without such an event says nothing about them. */
const EXERCISED = {
  STEP_STARTED: ["A19", "A20", "A21"],
  TEXT_MESSAGE_START: ["A22", "A23", "A24"],
  TEXT_MESSAGE_CHUNK: ["A34", "A35", "A36"],
  TOOL_CALL_START: ["A26", "A27", "A28"],
  TOOL_CALL_CHUNK: ["A34", "A35", "A36"],
  REASONING_MESSAGE_START: ["A30", "A31", "A33"],
  REASONING_MESSAGE_CHUNK: ["A34", "A35", "A36"],
  REASONING_START: ["A32", "A33"],
  SUBAGENT_STARTED: ["A37", "A38", "A39", "A40", "A41"],
  STATE_DELTA: ["A42", "A43"],
  ACTIVITY_DELTA: ["A42", "A44"],
  MESSAGES_SNAPSHOT: ["A46"],
};
const ALWAYS = ["A5", "A6", "A7", "A9", "A10", "A11", "A12", "A13", "A16", "A45", "A47", "A49"];

const show = (value) => {
  const text = value === undefined ? "absent" : JSON.stringify(value);
  return text.length > SHOWN ? `${text.slice(0, SHOWN)}..` : text;
};

/**
 * Judges the events of one stream.
 *
 * `input` is the RunAgentInput that asked for it, or only its `threadId` and what the client held. If `isRequested`, the last
 * run of the stream is the one that the input asks for. If `isPart`, the stream goes on with what an earlier one began, and so
 * may begin anywhere; `isOpen` means that the stream was left before its end.
 *
 * Returns `{ findings, exercised }`: findings are `{ requirement, at, saw }`, with the number of the event, from 0.
 */
export function judge(events, { input = {}, isRequested = false, isOpen = false } = {}) {
  const judging = new Judge(input);
  for (const [at, event] of events.entries()) judging.event(event, at);
  judging.end(events.length, { isRequested, isOpen });
  const order = Object.keys(AGUI);
  const exercised = order.filter((id) => judging.exercised.has(id));
  return { findings: judging.findings, exercised };
}

/** One kind of streamed items: which are open, and what was said of closed ones. */
class Items {
  constructor(noun, [twice, notOpen, unclosed, reopened]) {
    Object.assign(this, { noun, twice, notOpen, unclosed, reopened, open: new Map(), known: new Map() });
  }
}

class Judge {
  findings = [];
  exercised = new Set(ALWAYS);
  #at = 0;

  constructor(input) {
    this.input = input;
    this.client = new Client(input);
    this.kinds = new Map(); // of each message id
    for (const message of input.messages ?? []) this.#name(message.id, message.role);
    this.texts = new Items("text message", ["A22", "A23", "A24", "A25"]);
    this.calls = new Items("tool call", ["A26", "A27", "A28", "A29"]);
    this.thoughts = new Items("reasoning message", ["A30", "A31", "A33"]);
    this.spans = new Items("reasoning span", ["A32", "A32", "A33"]);
    this.families = [this.texts, this.calls, this.thoughts, this.spans];
    this.#reset();
    this.run = "none"; // or early (before RUN_STARTED), active, finished, failed
  }

  #fault(requirement, saw) {
    this.findings.push({ requirement, at: this.#at, saw });
  }

  #reset() {
    for (const items of this.families) items.open.clear();
    this.steps = new Map(); // by owner and name
    this.active = new Set(); // invocations of subagents
    this.announced = new Set();
    this.chunks = new Map(); // what chunks assemble, by lane
    this.unanswered = new Set(); // calls that this run has started
  }

  // -------------------------------------------------------------- one event
  event(event, at) {
    this.#at = at;
    const { type } = event;
    if (!Object.hasOwn(EVENTS, type)) return this.#fault("A5", `the type ${show(type)}`);
    for (const id of EXERCISED[type] ?? []) this.exercised.add(id);
    this.#checkShape(event);
    if (Object.hasOwn(event, "timestamp")) {
      this.exercised.add("A8");
      if (!Number.isSafeInteger(event.timestamp)) this.#fault("A8", `${type} has the timestamp ${show(event.timestamp)}`);
    }
    if (!this.#checkPlace(event)) return;
    this.#checkOwner(event);
    if (this.#chunk(event)) return;
    this.#take(event);
  }

  #checkShape(event) {
    check(EVENTS[event.type], event, event.type, (fault, path, value) => {
      // These have requirements of their own.
      if (path === "RUN_FINISHED.outcome.type") return;
      const requirement = { wrong: "A6", null: "A7", unknown: "A49" }[fault];
      this.#fault(requirement, fault === "unknown" ? `${path} is not described` : `${path} is ${show(value)}`);
    });
  }

  /** Whether the event counts where it is. */
  #checkPlace({ type }) {
    if (this.run === "active" || this.run === "early") return true;
    if (this.run === "none") {
      if (type !== "RUN_STARTED" && type !== "RUN_ERROR") {
        this.#fault("A9", `the first event is ${type}`);
        this.run = "early";
      }
      return true;
    }
    const isAllowed = type === "RUN_STARTED" || (type === "RUN_ERROR" && this.run === "finished");
    if (!isAllowed) this.#fault("A11", `${type} after the run has ${this.run}`);
    return isAllowed;
  }

  #checkOwner(event) {
    const owner = event.subagentRunId;
    if (owner === undefined || event.type.startsWith("SUBAGENT_")) return;
    this.exercised.add("A41");
    // Events of an invocation that is never announced are legal; those before its announcement are not.
    if (!this.announced.has(owner)) (this.unannounced ??= new Set()).add(owner);
  }

  // -------------------------------------------------------------- chunks
  /** Takes a chunk as the events that it stands for. Returns whether the event was taken. */
  #chunk(event) {
    const { type } = event;
    const form = { TEXT_MESSAGE_CHUNK: this.texts, TOOL_CALL_CHUNK: this.calls, REASONING_MESSAGE_CHUNK: this.thoughts }[type];
    if (!form) {
      if (this.#isMixed(event)) return true;
      this.#closeChunks(event);
      return false;
    }
    const isCall = form === this.calls;
    const idOf = isCall ? "toolCallId" : "messageId";
    const lane = this.#laneOf(event, form, event[idOf]);
    let stream = this.chunks.get(lane);
    if (stream && (stream.form !== form || (event[idOf] !== undefined && event[idOf] !== stream.id))) {
      this.#endChunk(lane);
      stream = undefined;
    }
    if (!stream) {
      const missing = (isCall ? ["toolCallId", "toolCallName"] : ["messageId"]).find((name) => typeof event[name] !== "string");
      if (missing) {
        this.#fault("A34", `the first ${type} of an item has no ${missing}`);
        return true;
      }
      const id = event[idOf];
      if (form.open.has(id)) {
        this.#fault("A36", `a chunk continues the ${form.noun} ${id}, which was opened by a START`);
        return true;
      }
      const { type: _, delta: __, ...opener } = event;
      this.#take({ ...opener, type: isCall ? "TOOL_CALL_START" : form === this.texts ? "TEXT_MESSAGE_START" : "REASONING_MESSAGE_START", ...(form === this.thoughts && { role: "reasoning" }) });
      stream = { form, id, opener: { role: form === this.texts ? "assistant" : undefined, ...opener } };
      this.chunks.set(lane, stream);
    } else {
      for (const name of ["role", "name", "toolCallName", "parentMessageId"]) {
        if (event[name] !== undefined && event[name] !== stream.opener[name]) {
          this.#fault("A35", `a later chunk of ${stream.id} has the ${name} ${show(event[name])} instead of ${show(stream.opener[name])}`);
        }
      }
    }
    if (event.delta !== undefined) {
      const content = isCall ? "TOOL_CALL_ARGS" : form === this.texts ? "TEXT_MESSAGE_CONTENT" : "REASONING_MESSAGE_CONTENT";
      this.#take({ type: content, [idOf]: stream.id, delta: event.delta });
    }
    return true;
  }

  #laneOf(event, form, id) {
    const known = [...this.chunks].find(([, stream]) => stream.form === form && (id === undefined || stream.id === id));
    if (event.subagentRunId !== undefined) return event.subagentRunId;
    if (this.chunks.get(PARENT)?.form === form || id !== undefined || !known) return PARENT;
    return known[0];
  }

  /** Whether an explicit event names an item that chunks assemble. */
  #isMixed({ type, messageId, toolCallId }) {
    const isOf = (stream) => {
      if (stream.form === this.calls) return type.startsWith("TOOL_CALL_") && type !== "TOOL_CALL_RESULT" && toolCallId === stream.id;
      const prefix = stream.form === this.texts ? "TEXT_MESSAGE_" : "REASONING_MESSAGE_";
      return type.startsWith(prefix) && messageId === stream.id;
    };
    const mixed = [...this.chunks.values()].find(isOf);
    if (mixed) this.#fault("A36", `${type} names ${mixed.id}, which chunks assemble`);
    return mixed !== undefined;
  }

  #closeChunks({ type, subagentRunId = PARENT }) {
    if (["RAW", "ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA", "REASONING_ENCRYPTED_VALUE", "SUBAGENT_STARTED"].includes(type)) return;
    const isOfAll = type.startsWith("RUN_") || type === "MESSAGES_SNAPSHOT";
    for (const lane of [...this.chunks.keys()]) if (isOfAll || lane === subagentRunId) this.#endChunk(lane);
  }

  #endChunk(lane) {
    const { form, id } = this.chunks.get(lane);
    this.chunks.delete(lane);
    const isCall = form === this.calls;
    const type = isCall ? "TOOL_CALL_END" : form === this.texts ? "TEXT_MESSAGE_END" : "REASONING_MESSAGE_END";
    this.#take({ type, [isCall ? "toolCallId" : "messageId"]: id });
  }

  // -------------------------------------------------------------- what an event does
  #take(event) {
    const { type, messageId, toolCallId } = event;
    const owner = event.subagentRunId ?? PARENT;
    switch (type) {
      case "RUN_STARTED":
        this.#started(event);
        break;
      case "RUN_FINISHED":
        this.#finished(event);
        break;
      case "RUN_ERROR":
        this.run = "failed";
        break;
      case "STEP_STARTED":
        if (this.steps.has(`${owner} ${event.stepName}`)) this.#fault("A19", `the step ${show(event.stepName)} is open already`);
        this.steps.set(`${owner} ${event.stepName}`, event.stepName);
        break;
      case "STEP_FINISHED":
        if (!this.steps.delete(`${owner} ${event.stepName}`)) this.#fault("A20", `the step ${show(event.stepName)} is not open`);
        break;
      case "TEXT_MESSAGE_START": {
        const { role = "assistant", name } = event;
        this.#open(this.texts, messageId, owner, { role, name });
        this.#name(messageId, "assistant");
        break;
      }
      case "TEXT_MESSAGE_CONTENT":
        this.#continue(this.texts, messageId, event);
        break;
      case "TEXT_MESSAGE_END":
        this.#close(this.texts, messageId, event);
        break;
      case "TOOL_CALL_START": {
        const { toolCallName, parentMessageId } = event;
        this.#open(this.calls, toolCallId, owner, { toolCallName, parentMessageId });
        if (!this.client.call(toolCallId)) this.unanswered.add(toolCallId);
        break;
      }
      case "TOOL_CALL_ARGS":
        this.#continue(this.calls, toolCallId, event);
        break;
      case "TOOL_CALL_END":
        this.#close(this.calls, toolCallId, event);
        break;
      case "TOOL_CALL_RESULT":
        this.unanswered.delete(toolCallId);
        if (this.client.message(messageId)?.role === "tool") this.#fault("A47", `the result ${messageId} is streamed, and the client holds it`);
        this.#name(messageId, "tool");
        break;
      case "REASONING_START":
        this.#open(this.spans, messageId, owner, {});
        break;
      case "REASONING_END":
        this.#close(this.spans, messageId, event);
        break;
      case "REASONING_MESSAGE_START":
        this.#open(this.thoughts, messageId, owner, {});
        this.#name(messageId, "reasoning");
        break;
      case "REASONING_MESSAGE_CONTENT":
        this.#continue(this.thoughts, messageId, event);
        break;
      case "REASONING_MESSAGE_END":
        this.#close(this.thoughts, messageId, event);
        break;
      case "SUBAGENT_STARTED":
        this.#announce(event);
        break;
      case "SUBAGENT_FINISHED":
      case "SUBAGENT_ERROR":
        if (!this.active.delete(event.subagentRunId)) this.#fault("A38", `${type} of ${show(event.subagentRunId)}, which is not active`);
        break;
      case "STATE_DELTA":
        this.#patch("A43", this.client.state, event.delta, "the state");
        break;
      case "ACTIVITY_SNAPSHOT":
        this.#name(messageId, "activity");
        break;
      case "ACTIVITY_DELTA": {
        const held = this.client.message(messageId);
        if (held?.role !== "activity") this.#fault("A44", `no snapshot has created the activity ${messageId}`);
        else this.#patch("A44", held.content, event.patch, `the activity ${messageId}`);
        break;
      }
      case "MESSAGES_SNAPSHOT":
        this.#snapshot(event);
        break;
      default:
    }
    this.#apply(event);
  }

  #apply(event) {
    try {
      this.client.apply(event);
    } catch {
      // The finding is there already.
    }
  }

  #started({ threadId, runId, protocolVersion }) {
    if (this.run === "active") {
      this.#fault("A12", `the run ${show(runId)} starts inside of ${show(this.started?.runId)}`);
    }
    this.#reset();
    this.run = "active";
    this.started = { threadId, runId };
    if (this.input.threadId !== undefined && threadId !== this.input.threadId && typeof threadId === "string") {
      this.#fault("A13", `RUN_STARTED has the threadId ${show(threadId)}, and the input ${show(this.input.threadId)}`);
    }
    if (protocolVersion === undefined) this.#fault("A16", "RUN_STARTED has no protocolVersion");
    else if (typeof protocolVersion === "string" && !VERSION.test(protocolVersion)) this.#fault("A16", `RUN_STARTED has the protocolVersion ${show(protocolVersion)}`);
  }

  #finished({ threadId, runId, outcome }) {
    this.run = "finished";
    for (const id of ["A14", "A17"]) this.exercised.add(id);
    if (this.started && typeof runId === "string" && runId !== this.started.runId) {
      this.#fault("A14", `RUN_FINISHED has the runId ${show(runId)}, and RUN_STARTED ${show(this.started.runId)}`);
    }
    const expected = this.input.threadId ?? this.started?.threadId;
    if (expected !== undefined && typeof threadId === "string" && threadId !== expected) {
      this.#fault("A13", `RUN_FINISHED has the threadId ${show(threadId)} instead of ${show(expected)}`);
    }
    for (const items of this.families) {
      for (const id of items.open.keys()) this.#fault(items.unclosed, `the ${items.noun} ${id} is open at RUN_FINISHED`);
      items.open.clear();
    }
    for (const name of this.steps.values()) this.#fault("A21", `the step ${show(name)} is open at RUN_FINISHED`);
    for (const id of this.active) this.#fault("A39", `the invocation ${id} is active at RUN_FINISHED`);
    this.#outcome(outcome);
  }

  #outcome(outcome) {
    if (outcome === undefined || outcome === null || typeof outcome !== "object") return;
    const { type, interrupts, pendingToolCallIds: pending } = outcome;
    if (!OUTCOMES.includes(type)) return this.#fault("A17", `the outcome ${show(type)}`);
    if (type === "interrupt" && Array.isArray(interrupts)) {
      this.exercised.add("A48");
      const ids = interrupts.map((interrupt) => interrupt?.id);
      if (ids.length === 0) this.#fault("A48", "the outcome has no interrupts");
      const twice = ids.find((id, n) => ids.indexOf(id) !== n);
      if (twice !== undefined) this.#fault("A48", `two interrupts have the id ${show(twice)}`);
    }
    if (Array.isArray(pending)) {
      this.exercised.add("A18");
      const answered = new Set(this.client.messages.filter(({ role }) => role === "tool").map((message) => message.toolCallId));
      const missing = [...this.unanswered].find((id) => !answered.has(id) && !pending.includes(id));
      const wrong = pending.find((id) => !this.client.call(id) || answered.has(id));
      if (missing !== undefined) this.#fault("A18", `the call ${missing} has no result, and pendingToolCallIds does not name it`);
      if (wrong !== undefined) this.#fault("A18", `pendingToolCallIds names ${show(wrong)}, which is no call without a result`);
    }
  }

  #open(items, id, owner, terms) {
    if (items.open.has(id)) return this.#fault(items.twice, `the ${items.noun} ${show(id)} is open already`);
    const before = items.known.get(id);
    if (before && items.reopened) {
      this.exercised.add(items.reopened);
      const changed = Object.keys(terms).find((name) => before.terms[name] !== terms[name]);
      if (changed) this.#fault(items.reopened, `the ${items.noun} ${id} is reopened with the ${changed} ${show(terms[changed])} instead of ${show(before.terms[changed])}`);
    }
    const item = { owner, terms, said: "", before: this.#heldText(items, id, terms) };
    items.open.set(id, item);
    items.known.set(id, item);
  }

  /** What the client holds of an item. A call of another message is another call, though models may give it the same id. */
  #heldText(items, id, { parentMessageId }) {
    if (items === this.spans) return "";
    const isOwner = ({ id: owner, toolCalls = [] }) => toolCalls.some((call) => call.id === id) && [owner, undefined].includes(parentMessageId);
    if (items === this.calls) return this.client.messages.some(isOwner) ? this.client.call(id).function.arguments : "";
    const content = this.client.message(id)?.content;
    return typeof content === "string" ? content : "";
  }

  #continue(items, id, event) {
    const item = items.open.get(id);
    if (!item) return this.#fault(items.notOpen, `${event.type} of ${show(id)}, which is not open`);
    if (typeof event.delta === "string") item.said += event.delta;
    this.#agree(item, id, event);
  }

  #close(items, id, event) {
    const item = items.open.get(id);
    if (!item) return this.#fault(items.notOpen, `${event.type} of ${show(id)}, which is not open`);
    this.#agree(item, id, event);
    items.open.delete(id);
    if (item.said !== "" && item.said === item.before) this.#fault("A47", `the ${items.noun} ${id} is streamed again: ${show(item.said)}`);
  }

  #agree(item, id, { type, subagentRunId }) {
    if (subagentRunId !== undefined && subagentRunId !== item.owner) {
      this.#fault("A41", `${type} of ${show(id)} belongs to ${subagentRunId}, and the item to ${item.owner}`);
    }
  }

  #announce({ subagentRunId: id, parentSubagentRunId: parent }) {
    if (this.announced.has(id)) this.#fault("A37", `the invocation ${show(id)} is announced twice in a run`);
    else if (this.unannounced?.has(id)) this.#fault("A37", `events of ${show(id)} precede its announcement`);
    if (parent !== undefined && parent !== null && !this.announced.has(parent)) this.#fault("A40", `the parent invocation ${show(parent)} was not announced`);
    this.announced.add(id);
    this.active.add(id);
  }

  #patch(requirement, document, patch, noun) {
    const fault = malformed(patch);
    if (fault) return this.#fault("A42", fault);
    try {
      const result = apply(document, patch);
      const isObject = typeof result === "object" && result !== null && !Array.isArray(result);
      if (requirement === "A44" && !isObject) this.#fault("A44", `after the patch ${noun} is no object`);
    } catch (failure) {
      this.#fault(requirement, `the patch does not apply to ${noun}: ${failure.message}`);
    }
  }

  #snapshot({ messages }) {
    if (!Array.isArray(messages)) return;
    const ids = new Set();
    for (const [n, message] of messages.entries()) {
      check(messageShape, message, `messages[${n}]`, (fault, path, value) => {
        const requirement = { wrong: "A46", null: "A7", unknown: "A49" }[fault];
        this.#fault(requirement, fault === "unknown" ? `${path} is not described` : `${path} is ${show(value)}`);
      });
      if (ids.has(message?.id)) this.#fault("A46", `messages has the id ${show(message.id)} twice`);
      ids.add(message?.id);
      if (typeof message?.id === "string") this.#name(message.id, message.role);
    }
  }

  /** Notes of which kind a message is. */
  #name(id, role) {
    const kind = ["reasoning", "tool", "activity"].includes(role) ? role : "text";
    const before = this.kinds.get(id);
    if (before !== undefined && before !== kind) this.#fault("A45", `the id ${show(id)} names a message of the kind ${kind}, and before one of the kind ${before}`);
    this.kinds.set(id, kind);
  }

  // -------------------------------------------------------------- the end of the stream
  end(count, { isRequested, isOpen }) {
    this.#at = count;
    if (this.run === "none") this.#fault("A9", "the stream has no event");
    if (["early", "active"].includes(this.run) && !isOpen) this.#fault("A10", "the stream ends without RUN_FINISHED and RUN_ERROR");
    if (isRequested && this.started) {
      this.exercised.add("A15");
      if (this.started.runId !== this.input.runId) this.#fault("A15", `the run has the runId ${show(this.started.runId)}, and the input ${show(this.input.runId)}`);
    }
  }
}
