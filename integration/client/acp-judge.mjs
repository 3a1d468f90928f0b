// The rules for every frame between an ACP client and its agent: the v1 JSON Schema, and the order of a session's updates.

import { readFileSync } from "node:fs";
import Ajv from "ajv/dist/2020.js";
import addFormats from "ajv-formats";

// The SDK's own schema is older than that of the crate.
const schema = JSON.parse(readFileSync(new URL("../../tests/support/acp-v1.json", import.meta.url)));
// What the agent has of what is not stable yet: `session/fork`, and session cursors.
const unstable = JSON.parse(readFileSync(new URL("../../tests/support/acp-v1-unstable.json", import.meta.url)));
Object.assign(schema.$defs, unstable.$defs);
schema.$defs.SessionCapabilities.properties.fork = unstable.fork;
schema.$defs.ClientSessionCapabilities.properties.cursors = unstable.cursors;
schema.$defs.SessionUpdate.oneOf.push(unstable.cursorUpdate);
const ajv = new Ajv({ strict: false });
addFormats(ajv);
for (const format of ["int32", "int64", "uint16", "uint32", "uint64", "double"]) ajv.addFormat(format, true);
ajv.addSchema(schema, "acp");

/** The schema's definition of a method's request, notification or response. */
const DEFINITIONS = new Map();
for (const [name, { "x-method": method }] of Object.entries(schema.$defs)) {
  if (method) DEFINITIONS.set(`${method} ${/(Response|Notification)$/.exec(name)?.[1] ?? "Request"}`, name);
}

/** The updates that belong to a turn, live or in the history. */
const OF_A_TURN = ["user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan"];
const STANDARD_ERRORS = [-32700, -32600, -32601, -32602, -32603, -32000, -32002, -32800];
const SETTLED = ["completed", "failed"];
const OTHER = { client: "agent", agent: "client" };
const FAULT_CHARACTERS = 600;

/** Reads both directions of one connection. `faults` lists the violations, `frames` all frames. */
export class Judge {
  faults = [];
  frames = [];
  #rest = { client: Buffer.alloc(0), agent: Buffer.alloc(0) };
  #pending = { client: new Map(), agent: new Map() }; // the open requests of each side, by id
  #sessions = new Map();
  #readers = [];

  /** Called with each frame `{ from, message, asked, at }` after its check; `asked` is the request that a response answers. */
  onFrame(reader) {
    this.#readers.push(reader);
  }

  /** Reads bytes of one direction. */
  bytes(from, chunk) {
    let rest = Buffer.concat([this.#rest[from], chunk]);
    for (let end; (end = rest.indexOf(10)) >= 0; rest = rest.subarray(end + 1)) this.#line(from, rest.subarray(0, end));
    this.#rest[from] = rest;
  }

  /** Another client starts runs of the session: the agent may show them between the editor's turns. */
  share(sessionId) {
    this.#session(sessionId).isShared = true;
  }

  /** The agent sends nothing more. */
  end({ wasLeft = false } = {}) {
    if (this.#rest.agent.length > 0) this.#fault("agent", "an end without a line's end", this.#rest.agent);
    if (wasLeft) return;
    for (const { method, id } of this.#pending.client.values()) this.#fault("agent", `no answer to ${method} ${id}`, "");
  }

  /** The calls of a session that have neither a result nor a failure. */
  openCalls(sessionId) {
    return [...this.#session(sessionId).calls].filter(([, status]) => !SETTLED.includes(status)).map(([id]) => id);
  }

  #fault(from, what, frame) {
    this.faults.push(`${from}: ${what}: ${(Buffer.isBuffer(frame) ? frame.toString() : JSON.stringify(frame)).slice(0, FAULT_CHARACTERS)}`);
  }

  #session(id) {
    if (!this.#sessions.has(id)) this.#sessions.set(id, { isKnown: false, prompts: 0, isShowing: false, isShared: false, calls: new Map(), withdrawn: new Map(), cutShort: new Set(), ids: new Map() });
    return this.#sessions.get(id);
  }

  #line(from, line) {
    let message;
    try {
      message = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(line));
    } catch {
      return this.#fault(from, "no JSON", line);
    }
    const frame = { from, message, at: performance.now() };
    this.frames.push(frame);
    // Half a surrogate pair is not valid text: parsers in other languages refuse the whole line.
    if (!isWhole(message)) this.#fault(from, "half a character", message);
    if (message?.jsonrpc !== "2.0") this.#fault(from, "no JSON-RPC", message);
    if (message?.method === undefined) this.#response(from, message, frame);
    else this.#call(from, message);
    for (const reader of this.#readers) reader(frame);
  }

  #valid(from, definition, value, message) {
    const isValid = ajv.getSchema(`acp#/$defs/${definition}`);
    if (!isValid(value)) this.#fault(from, `no ${definition} (${ajv.errorsText(isValid.errors).slice(0, FAULT_CHARACTERS)})`, message);
    // The definitions are open. A member that they do not name is not part of this version, so it is refused here.
    const properties = schema.$defs[definition].properties;
    const strangers = properties && value && typeof value === "object" ? Object.keys(value).filter((key) => !(key in properties)) : [];
    if (from === "agent" && strangers.length > 0 && definition !== "Error" && !hasVariants(definition)) {
      this.#fault(from, `${definition} has no ${strangers}`, message);
    }
  }

  #call(from, message) {
    const { id, method, params } = message;
    const definition = DEFINITIONS.get(`${method} ${id === undefined ? "Notification" : "Request"}`);
    if (id !== undefined) {
      const key = JSON.stringify(id);
      if (this.#pending[from].has(key)) this.#fault(from, "the id of another open request", message);
      this.#pending[from].set(key, message);
    }
    if (method.startsWith("_")) return;
    if (!definition || !["protocol", "both", OTHER[from]].includes(schema.$defs[definition]["x-side"])) {
      return this.#fault(from, "not a method of this side", message);
    }
    this.#valid(from, definition, params ?? {}, message);
    if (from === "client") this.#ofClient(method, params);
    else this.#ofAgent(method, params, message);
  }

  #response(from, message, frame) {
    const key = JSON.stringify(message?.id);
    const asked = this.#pending[OTHER[from]].get(key);
    this.#pending[OTHER[from]].delete(key);
    if (!asked) return void (from === "agent" && message?.id === null && message.error) || this.#fault(from, "an answer to nothing", message);
    frame.asked = asked;
    if ("result" in message === "error" in message) this.#fault(from, "neither result nor error, or both", message);
    if (message.error) {
      this.#valid(from, "Error", message.error, message);
      if (!STANDARD_ERRORS.includes(message.error.code)) this.#fault(from, "an error code of nobody's", message);
    } else if (!asked.method.startsWith("_")) {
      const definition = DEFINITIONS.get(`${asked.method} Response`);
      if (definition) this.#valid(from, definition, message.result, message);
    }
    if (from === "agent") this.#answered(asked, message);
  }

  #ofClient(method, params) {
    if (method === "session/load" || method === "session/resume") {
      const before = this.#session(params.sessionId);
      this.#sessions.delete(params.sessionId);
      Object.assign(this.#session(params.sessionId), { isKnown: true, isShowing: true, before });
    } else if (method === "session/prompt") {
      this.#session(params.sessionId).prompts += 1;
    }
  }

  #answered({ method, params }, { result }) {
    if (method === "session/new" && result) this.#session(result.sessionId).isKnown = true;
    // A fork is opened as by `session/resume`: its thread may have open calls.
    if (method === "session/fork" && result) Object.assign(this.#session(result.sessionId), { isKnown: true, isShowing: true });
    if (method === "session/prompt") {
      const session = this.#session(params.sessionId);
      session.prompts -= 1;
      // A cancelled prompt may have waited for another client's run, which continues: its calls may still be completed.
      if (result?.stopReason === "cancelled") for (const [id, status] of session.calls) if (status === "failed") session.cutShort.add(id);
      if (session.prompts === 0) session.isShowing = false;
    }
    if (method === "session/load" || method === "session/resume") {
      const { before } = this.#session(params.sessionId);
      if (!result && before) this.#sessions.set(params.sessionId, before); // as if there had been no request
    }
    if ((method === "session/close" || method === "session/delete") && result) this.#session(params.sessionId).isKnown = false;
  }

  #ofAgent(method, params, message) {
    if (params?.sessionId === undefined) return;
    const session = this.#session(params.sessionId);
    if (!session.isKnown) this.#fault("agent", "of a session that the client does not know", message);
    const isInTurn = session.prompts > 0 || session.isShowing || session.isShared;
    if (method === "session/request_permission") {
      if (!isInTurn) this.#fault("agent", "a permission outside a turn", message);
      this.#permission(session, params, message);
    }
    if (method !== "session/update") return;
    const { update } = params;
    // A child session works as long as a run does that the client may not have started.
    if (update.sessionUpdate === "subagent_update") Object.assign(this.#session(update.sessionId), { isKnown: true, isShared: true });
    if (!isInTurn && OF_A_TURN.includes(update.sessionUpdate)) this.#fault("agent", "after the turn's response", message);
    if (update.sessionUpdate.endsWith("_chunk")) this.#chunk(session, update, message);
    if (update.sessionUpdate.startsWith("tool_call")) this.#toolCall(session, update, message);
  }

  #chunk({ ids }, { sessionUpdate: kind, messageId }, message) {
    if (!messageId) return this.#fault("agent", "a chunk of no message", message);
    if ((ids.get(messageId) ?? kind) !== kind) this.#fault("agent", `the id of a ${ids.get(messageId)}`, message);
    ids.set(messageId, kind);
  }

  #toolCall({ calls, withdrawn, cutShort }, update, message) {
    const { toolCallId: id, status, locations = [], content = [] } = update;
    const isNew = update.sessionUpdate === "tool_call";
    if (isNew === calls.has(id)) this.#fault("agent", isNew ? "a call that was announced before" : "a call that was not announced", message);
    const before = calls.get(id);
    // The agent asks again about a call that a cancelled turn has left open. A call that has run never waits again.
    const isWithdrawn = before === "failed" && status === "pending";
    if (before === "in_progress" && status === "pending") this.#fault("agent", "a call that was in progress waits again", message);
    const isLate = status === "completed" && cutShort.delete(id);
    if (SETTLED.includes(before) && (status ?? before) !== before && !isWithdrawn && !isLate) this.#fault("agent", `a call that was ${before} before`, message);
    if (isWithdrawn) withdrawn.set(id, message);
    else if (withdrawn.has(id)) this.#fault("agent", "a call that was taken back to pending, and not asked about", message);
    calls.set(id, status ?? before ?? "pending");
    const paths = [...(locations ?? []), ...(content ?? []).filter(({ type }) => type === "diff")].map(({ path }) => path);
    for (const path of paths) if (!path.startsWith("/")) this.#fault("agent", "a path that is not absolute", message);
  }

  #permission({ calls, withdrawn }, { toolCall, options }, message) {
    withdrawn.delete(toolCall.toolCallId);
    if (!calls.has(toolCall.toolCallId)) this.#fault("agent", "a permission for a call that was not announced", message);
    if (SETTLED.includes(calls.get(toolCall.toolCallId))) this.#fault("agent", "a permission for a call that is over", message);
    if (new Set(options.map(({ optionId }) => optionId)).size !== options.length || options.length === 0) this.#fault("agent", "options", message);
  }
}

/** Whether no text of a message has half a surrogate pair. */
function isWhole(message) {
  if (typeof message === "string") return message.isWellFormed();
  return message === null || typeof message !== "object" || Object.values(message).every(isWhole);
}

/** Whether a definition is one of several forms, each with members of its own. */
function hasVariants(definition) {
  const { anyOf, oneOf, allOf } = schema.$defs[definition];
  return Boolean(anyOf ?? oneOf ?? allOf);
}
