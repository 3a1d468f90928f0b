// What a client holds after some events, by AG-UI's rules for consumers. Pure.

import { apply } from "./patch.mjs";

export class Client {
  /** What the client sent, and so held before the events. */
  constructor({ messages = [], state = {} } = {}) {
    this.messages = structuredClone(messages);
    this.state = structuredClone(state);
    /** The ids of messages that stream. */
    this.open = new Set();
  }

  message(id) {
    return this.messages.find((message) => message.id === id);
  }

  call(id) {
    return this.messages.flatMap(({ toolCalls = [] }) => toolCalls).find((call) => call.id === id);
  }

  /** Applies an event. Throws if a patch does not apply. */
  apply(event) {
    const { type, messageId, toolCallId, delta } = event;
    switch (type) {
      case "RUN_STARTED":
        // The transport's rule for a stream that starts over: what was half said is dropped.
        for (const id of this.open) this.messages = this.messages.filter((message) => message.id !== id);
        this.open.clear();
        for (const message of event.input?.messages ?? []) if (!this.message(message.id)) this.messages.push(structuredClone(message));
        break;
      case "RUN_FINISHED":
      case "RUN_ERROR":
        this.open.clear();
        break;
      case "TEXT_MESSAGE_START":
        this.#begin({ id: messageId, role: event.role ?? "assistant", content: "" });
        break;
      case "REASONING_MESSAGE_START":
        this.#begin({ id: messageId, role: "reasoning", content: "" });
        break;
      case "TEXT_MESSAGE_CONTENT":
      case "REASONING_MESSAGE_CONTENT": {
        const message = this.message(messageId);
        if (message) message.content = `${typeof message.content === "string" ? message.content : ""}${delta}`;
        break;
      }
      case "TEXT_MESSAGE_END":
      case "REASONING_MESSAGE_END":
        this.open.delete(messageId);
        break;
      case "TOOL_CALL_START": {
        if (this.call(toolCallId)) break;
        const parent = event.parentMessageId ?? toolCallId;
        if (this.message(parent)?.role !== "assistant") this.messages.push({ id: parent, role: "assistant" });
        const owner = this.messages.findLast(({ id, role }) => id === parent && role === "assistant");
        (owner.toolCalls ??= []).push({ id: toolCallId, type: "function", function: { name: event.toolCallName, arguments: "" } });
        break;
      }
      case "TOOL_CALL_ARGS": {
        const call = this.call(toolCallId);
        if (call) call.function.arguments += delta;
        break;
      }
      case "TOOL_CALL_RESULT":
        this.messages.push({ id: messageId, role: "tool", toolCallId, content: structuredClone(event.content) });
        break;
      case "STATE_SNAPSHOT":
        this.state = structuredClone(event.snapshot);
        break;
      case "STATE_DELTA":
        this.state = apply(this.state, delta);
        break;
      case "MESSAGES_SNAPSHOT":
        this.#reconcile(event.messages);
        break;
      case "ACTIVITY_SNAPSHOT": {
        const { activityType, content, replace = true } = event;
        const held = this.message(messageId);
        const shown = { id: messageId, role: "activity", activityType, content: structuredClone(content) };
        if (!held) this.messages.push(shown);
        else if (replace) Object.assign(held, shown);
        break;
      }
      case "ACTIVITY_DELTA": {
        const held = this.message(messageId);
        if (held?.role !== "activity") throw new Error(`there is no activity ${messageId}`);
        held.content = apply(held.content, event.patch);
        held.activityType = event.activityType;
        break;
      }
      default:
    }
  }

  #begin(message) {
    this.open.add(message.id);
    if (!this.message(message.id)) this.messages.push(message);
  }

  #reconcile(snapshot) {
    const has = (role) => snapshot.some((message) => message.role === role);
    const known = new Map(snapshot.map((message) => [message.id, structuredClone(message)]));
    const isKept = ({ id, role }) => known.has(id) || (["activity", "reasoning"].includes(role) && !has(role));
    const kept = this.messages.filter(isKept).map((message) => known.get(message.id) ?? message);
    const held = new Set(kept.map(({ id }) => id));
    this.messages = [...kept, ...[...known.values()].filter(({ id }) => !held.has(id))];
  }
}

/** What a client holds after all of these events; patches that do not apply are left out. */
export function hold(events, input) {
  const client = new Client(input);
  for (const event of events) {
    try {
      client.apply(event);
    } catch {
      // The judge reports it.
    }
  }
  return client;
}
