// The content that an AG-UI client must have for a LangGraph thread, converted without threadway's code, and the
// comparison.

/** The state of a thread's values: all but the messages, which are sent as messages, and the open interrupts. */
export function stateOf(values) {
  const { messages, __interrupt__, ...state } = values ?? {};
  return state;
}

/** The messages of a thread's values, in the comparable form that `ofClient` returns for a client's. */
export function ofThread(values, threadId) {
  const owners = new Map(); // tool call id -> the message that had it first
  const latest = new Map(); // tool call id -> the comparable name of its newest call
  const messages = [];
  const reasoning = {};
  const attachments = {};
  for (const [index, message] of (values?.messages ?? []).entries()) {
    const id = message.id ?? `${threadId}:m${index}`;
    const isOfDeveloper = message.additional_kwargs?.__openai_role__ === "developer"; // LangChain stores developer messages as system messages
    const role = isOfDeveloper ? "developer" : ROLES[message.type ?? message.role];
    if (!role) throw new Error(`message ${id} has the unknown type ${message.type ?? message.role}`);
    const source = message.additional_kwargs?.lc_source; // LangChain's harness has added the message
    if (role === "user" && typeof source === "string") {
      messages.push({ id: `${id}:notice`, role: "notice", source, content: textOf(message.content) });
      continue;
    }
    if (role === "assistant") {
      const toolCalls = (message.tool_calls ?? []).map((call) => {
        if (!owners.has(call.id)) owners.set(call.id, id);
        latest.set(call.id, owners.get(call.id) === id ? call.id : `${call.id}~${id}`);
        return { id: latest.get(call.id), type: "function", name: call.name, arguments: call.args };
      });
      messages.push({ id, role, content: textOf(message.content), toolCalls });
      const thought = reasoningOf(message);
      if (thought) reasoning[id] = thought;
      const attached = attachmentsOf(message, id);
      if (attached.length > 0) attachments[id] = attached;
    } else if (role === "tool") {
      const toolCallId = latest.get(message.tool_call_id) ?? message.tool_call_id;
      messages.push({ id, role, content: textOf(message.content), toolCallId, failed: message.status === "error" });
    } else {
      messages.push({ id, role, content: textOf(message.content) });
    }
  }
  return { messages, reasoning, attachments };
}

/** The compared members of a client's messages: without attribution, names, metadata, and absent or empty content. */
export function ofClient(messages) {
  const comparable = { messages: [], reasoning: {}, attachments: {} };
  let behind; // the last message that is neither a tool's nor an activity
  // A result that came as an event has no `error`: the tool's activity says that the call failed.
  const isFailed = ({ activityType, content }) => activityType === "threadway.tool" && content.status === "failed";
  const failed = new Set(messages.filter(isFailed).map(({ content }) => content.toolCallId));
  for (const [index, message] of messages.entries()) {
    const { id, role } = message;
    if (role === "activity") {
      // A snapshot cannot delete the last attachment of a conversation, so the gateway empties it.
      const { activityType: type, content } = message;
      if (type === "threadway.notice") comparable.messages.push({ id, role: "notice", source: content.source, content: content.text });
      if (type === "threadway.notice") continue;
      if (type.startsWith("threadway.") && ![EMPTIED, ...GOING_ON].includes(type)) (comparable.attachments[content.messageId] ??= []).push({ type, content, behind });
      continue;
    }
    if (role !== "tool" && role !== "reasoning") behind = id;
    const content = textOf(message.content);
    if (role === "reasoning") {
      const owner = /^(.*):reasoning:\d+$/s.exec(id)?.[1] ?? messages.slice(index).find((next) => next.role === "assistant")?.id;
      // A snapshot cannot delete the last reasoning of a conversation, so the gateway empties it.
      if (content) comparable.reasoning[owner] = (comparable.reasoning[owner] ?? "") + content;
    } else if (role === "assistant") {
      const toolCalls = (message.toolCalls ?? []).map((call) => ({
        id: call.id,
        type: call.type,
        name: call.function.name,
        arguments: json(call.function.arguments),
      }));
      comparable.messages.push({ id, role, content, toolCalls });
    } else if (role === "tool") {
      comparable.messages.push({ id, role, content, toolCallId: message.toolCallId, failed: message.error !== undefined || failed.has(message.toolCallId) });
    } else {
      comparable.messages.push({ id, role, content });
    }
  }
  return comparable;
}

/**
 * The ids under which a client must get a thread's open interrupts: a batched approval has one for each action. The
 * JavaScript server keeps an interrupt next to the result of its task while other tasks of the step wait. An old Python
 * server (0.7.0) has an empty result next to an open interrupt of a node that asks again.
 */
export function interruptIds(threadState) {
  const interrupts = threadState.tasks.filter(({ result }) => Object.keys(result ?? {}).length === 0).flatMap((task) => task.interrupts);
  return interrupts.flatMap(({ id, value }) => {
    const actions = value?.action_requests ?? value?.actionRequests ?? [];
    return actions.length > 1 ? actions.map((_, n) => `${id}:${n}`) : [id];
  });
}

/** JSON text as a value whose numbers are their literals, because doubles cannot represent them all. */
export function exact(text) {
  const token = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
  return JSON.parse(text.replace(token, (found) => (found.startsWith('"') ? found : `"number ${found}"`)));
}

/** The first difference of two JSON values, as one line that names its path; undefined if they are equal. */
export function firstDifference(actual, expected, path = "") {
  if (isObject(actual) && isObject(expected) && Array.isArray(actual) === Array.isArray(expected)) {
    for (const key of new Set([...Object.keys(expected), ...Object.keys(actual)])) {
      const difference = firstDifference(actual[key], expected[key], `${path}/${key}`);
      if (difference) return difference;
    }
    return undefined;
  }
  if (actual === expected) return undefined;
  return `at ${path || "/"}: got ${brief(actual)}, expected ${brief(expected)}`;
}

const EMPTIED = "threadway.empty";
const MEDIA = ["image", "audio", "video", "file"];
const GOING_ON = ["threadway.tool", "threadway.plan"]; // activities that do not belong to the conversation
const NOT_SHOWN = ["text", "reasoning", "thinking", "tool_use", "tool_call", "input_json_delta"]; // as attachments

const ROLES = {
  human: "user",
  user: "user",
  ai: "assistant",
  assistant: "assistant",
  AIMessageChunk: "assistant",
  tool: "tool",
  system: "system",
};

/** A string unchanged; the joined text of content blocks or parts. */
function textOf(content) {
  if (!Array.isArray(content)) return content ?? "";
  return content.map((block) => (typeof block === "string" ? block : block.type === "text" ? block.text : "")).join("");
}

/** The attachments of an assistant's message, in LangChain's standard forms; `behind` is the message before them. */
function attachmentsOf(message, id) {
  const blocks = Array.isArray(message.content) ? message.content.filter((block) => !NOT_SHOWN.includes(block.type)) : [];
  const attached = blocks.map((block) => {
    if (!MEDIA.includes(block.type)) return { type: "threadway.block", content: { messageId: id, block } };
    const mimeType = block.mime_type ?? block.mimeType;
    const value = block.base64 ?? block.data;
    const source = value === undefined ? { type: "url", value: block.url, mimeType } : { type: "data", value, mimeType };
    return { type: `threadway.${block.type}`, content: { messageId: id, source } };
  });
  const texts = Array.isArray(message.content) ? message.content.filter(({ type }) => type === "text") : [];
  const annotations = texts.flatMap((block) => [...(block.annotations ?? []), ...(block.citations ?? [])]);
  if (annotations.length > 0) attached.push({ type: "threadway.annotations", content: { messageId: id, annotations } });
  return attached.map((one) => ({ ...one, behind: id }));
}

function reasoningOf(message) {
  const blocks = Array.isArray(message.content) ? message.content : [];
  const thoughts = blocks.map((block) => (block.type === "reasoning" ? block.reasoning : block.type === "thinking" ? block.thinking : ""));
  return thoughts.join("") + (message.additional_kwargs?.reasoning_content ?? "");
}

function json(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function isObject(value) {
  return typeof value === "object" && value !== null;
}

function brief(value) {
  const text = JSON.stringify(value) ?? "nothing";
  return text.length > 200 ? `${text.slice(0, 200)}…` : text;
}
