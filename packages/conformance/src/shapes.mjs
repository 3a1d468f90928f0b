// The shapes of AG-UI 1.0's events and messages, and a check of a value against one. Pure.
//
// A shape is a predicate, or one of the objects that the functions below make.

const isString = (value) => typeof value === "string";
const isBoolean = (value) => typeof value === "boolean";
const isCount = (value) => Number.isSafeInteger(value) && value >= 0;
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const isAny = () => true;
const isOneOf = (...values) => (value) => values.includes(value);

/** An object. `mayHave` members may be absent, and are never null. */
const object = (has, mayHave = {}, { isOpen = false } = {}) => ({ kind: "object", has, mayHave, isOpen });
const list = (item) => ({ kind: "list", item });
/** One of several shapes, by the value of a member. */
const oneBy = (member, shapes) => ({ kind: "one", member, shapes });
/** A string, or else the shape. */
const stringOr = (shape) => ({ kind: "stringOr", shape });

export const POINTER = /^(\/([^/~]|~[01])*)*$/;

const metadata = isObject;
const source = oneBy("type", {
  data: object({ type: isString, value: isString, mimeType: isString }),
  url: object({ type: isString, value: isString }, { mimeType: isString }),
  file: object({ type: isString, value: isString }, { mimeType: isString, provider: isString }),
});
const media = object({ type: isString, source }, { id: isString, metadata: isAny });
const part = oneBy("type", {
  text: object({ type: isString, text: isString }, { id: isString, metadata: isAny }),
  image: media,
  audio: media,
  video: media,
  document: media,
});
const content = stringOr(list(part));

const call = object(
  { id: isString, type: isOneOf("function"), function: object({ name: isString, arguments: isString }) },
  { encryptedValue: isString, encryptedValueType: isString, metadata },
);
const ofAnyMessage = { subagentRunId: isString, name: isString, encryptedValue: isString, encryptedValueType: isString, metadata };
const spoken = object({ id: isString, role: isString, content: isString }, ofAnyMessage);
export const message = oneBy("role", {
  developer: spoken,
  system: spoken,
  assistant: object({ id: isString, role: isString }, { ...ofAnyMessage, content: isString, toolCalls: list(call) }),
  user: object({ id: isString, role: isString, content }, ofAnyMessage),
  tool: object({ id: isString, role: isString, content, toolCallId: isString }, { ...ofAnyMessage, error: isString }),
  activity: object({ id: isString, role: isString, activityType: isString, content: isObject }, { subagentRunId: isString, metadata }),
  reasoning: object({ id: isString, role: isString, content: isString }, ofAnyMessage),
});

const interrupt = object(
  { id: isString, reason: isString },
  { message: isString, toolCallId: isString, responseSchema: isObject, expiresAt: isString, metadata, subagentRunId: isString },
);
const outcome = oneBy("type", {
  success: object({ type: isString }, { pendingToolCallIds: list(isString) }),
  interrupt: object({ type: isString, interrupts: list(interrupt) }),
  cancelled: object({ type: isString }),
});
const subagentOutcome = oneBy("type", {
  success: object({ type: isString }),
  suspended: object({ type: isString }, { interruptIds: list(isString) }),
});
const usage = list(
  object(
    {},
    {
      provider: isString,
      model: isString,
      inputTokens: isCount,
      outputTokens: isCount,
      totalTokens: isCount,
      reasoningTokens: isCount,
      cachedInputTokens: isCount,
      cacheWriteInputTokens: isCount,
    },
  ),
);

const role = isOneOf("developer", "system", "assistant", "user");
/** The members of a patch are the judge's own subject. */
const patch = isAny;

const shapes = {
  TEXT_MESSAGE_START: [{ messageId: isString }, { role, name: isString }],
  TEXT_MESSAGE_CONTENT: [{ messageId: isString, delta: isString }],
  TEXT_MESSAGE_END: [{ messageId: isString }],
  TEXT_MESSAGE_CHUNK: [{}, { messageId: isString, role, delta: isString, name: isString }],
  TOOL_CALL_START: [{ toolCallId: isString, toolCallName: isString }, { parentMessageId: isString }],
  TOOL_CALL_ARGS: [{ toolCallId: isString, delta: isString }],
  TOOL_CALL_END: [{ toolCallId: isString }],
  TOOL_CALL_CHUNK: [{}, { toolCallId: isString, toolCallName: isString, parentMessageId: isString, delta: isString }],
  TOOL_CALL_RESULT: [{ messageId: isString, toolCallId: isString, content }, { role: isOneOf("tool") }],
  STATE_SNAPSHOT: [{ snapshot: isAny }],
  STATE_DELTA: [{ delta: patch }],
  MESSAGES_SNAPSHOT: [{ messages: Array.isArray }],
  ACTIVITY_SNAPSHOT: [{ messageId: isString, activityType: isString, content: isObject }, { replace: isBoolean }],
  ACTIVITY_DELTA: [{ messageId: isString, activityType: isString, patch }],
  RAW: [{ event: isAny }, { source: isString }],
  CUSTOM: [{ name: isString, value: isAny }],
  RUN_STARTED: [{ threadId: isString, runId: isString }, { protocolVersion: isString, parentRunId: isString, input: isObject }],
  RUN_FINISHED: [{ threadId: isString, runId: isString }, { result: isAny, outcome, usage }],
  RUN_ERROR: [{ message: isString }, { code: isString, usage }],
  STEP_STARTED: [{ stepName: isString }],
  STEP_FINISHED: [{ stepName: isString }],
  REASONING_START: [{ messageId: isString }],
  REASONING_MESSAGE_START: [{ messageId: isString, role: isOneOf("reasoning") }],
  REASONING_MESSAGE_CONTENT: [{ messageId: isString, delta: isString }],
  REASONING_MESSAGE_END: [{ messageId: isString }],
  REASONING_MESSAGE_CHUNK: [{}, { messageId: isString, delta: isString }],
  REASONING_END: [{ messageId: isString }],
  REASONING_ENCRYPTED_VALUE: [
    { subtype: isOneOf("tool-call", "message"), entityId: isString, encryptedValue: isString },
    { encryptedValueType: isString },
  ],
  SUBAGENT_STARTED: [
    { subagentRunId: isString, name: isString },
    { description: isString, parentSubagentRunId: isString, parentToolCallId: isString, parentMessageId: isString },
  ],
  SUBAGENT_FINISHED: [{ subagentRunId: isString }, { result: isAny, outcome: subagentOutcome }],
  SUBAGENT_ERROR: [{ subagentRunId: isString, message: isString }, { code: isString }],
};

/** Events of a run as a whole, which belong to no subagent. */
const OF_THE_RUN = ["RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "MESSAGES_SNAPSHOT"];

export const EVENTS = Object.fromEntries(
  Object.entries(shapes).map(([type, [has, mayHave = {}]]) => {
    const tag = OF_THE_RUN.includes(type) || has.subagentRunId ? {} : { subagentRunId: isString };
    // `timestamp` has a requirement of its own.
    const envelope = { timestamp: isAny, rawEvent: isAny, metadata };
    return [type, object({ type: isString, ...has }, { ...envelope, ...tag, ...mayHave })];
  }),
);

/**
 * Calls `report(fault, path, value)` for each difference. A fault is `wrong` (a type, or a missing member), `null` (in place of
 * an absent member) or `unknown` (a member that the schema does not describe).
 */
export function check(shape, value, path, report) {
  if (typeof shape === "function") {
    if (!shape(value)) report("wrong", path, value);
    return;
  }
  if (shape.kind === "stringOr") {
    if (!isString(value)) check(shape.shape, value, path, report);
    return;
  }
  if (shape.kind === "list") {
    if (!Array.isArray(value)) return report("wrong", path, value);
    for (const [n, item] of value.entries()) check(shape.item, item, `${path}[${n}]`, report);
    return;
  }
  if (!isObject(value)) return report("wrong", path, value);
  if (shape.kind === "one") {
    const chosen = Object.hasOwn(shape.shapes, value[shape.member]) && shape.shapes[value[shape.member]];
    if (!chosen) return report("wrong", `${path}.${shape.member}`, value[shape.member]);
    return check(chosen, value, path, report);
  }
  for (const [name, member] of Object.entries(shape.has)) {
    if (!Object.hasOwn(value, name)) report("wrong", `${path}.${name}`, undefined);
    else check(member, value[name], `${path}.${name}`, report);
  }
  for (const [name, member] of Object.entries(value)) {
    if (Object.hasOwn(shape.has, name)) continue;
    if (!Object.hasOwn(shape.mayHave, name)) {
      if (!shape.isOpen) report("unknown", `${path}.${name}`, member);
    } else if (member === null) {
      report("null", `${path}.${name}`, null);
    } else {
      check(shape.mayHave[name], member, `${path}.${name}`, report);
    }
  }
}
