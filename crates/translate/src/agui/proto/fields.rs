//! The fields of AG-UI's events in protobuf, as in `@ag-ui/proto` 1.0.0.

use super::write::{Field, FieldKind};
use FieldKind::{Arms, Bool, Count, Many, Message, Name, Struct, Value, Within};

const TEXT: FieldKind = FieldKind::Text;

/// The types of events, in the order of the enumeration.
const TYPES: [&str; 31] = [
    "TEXT_MESSAGE_START",
    "TEXT_MESSAGE_CONTENT",
    "TEXT_MESSAGE_END",
    "TOOL_CALL_START",
    "TOOL_CALL_ARGS",
    "TOOL_CALL_END",
    "STATE_SNAPSHOT",
    "STATE_DELTA",
    "MESSAGES_SNAPSHOT",
    "RAW",
    "CUSTOM",
    "RUN_STARTED",
    "RUN_FINISHED",
    "RUN_ERROR",
    "STEP_STARTED",
    "STEP_FINISHED",
    "SUBAGENT_STARTED",
    "SUBAGENT_FINISHED",
    "SUBAGENT_ERROR",
    "TEXT_MESSAGE_CHUNK",
    "TOOL_CALL_CHUNK",
    "TOOL_CALL_RESULT",
    "ACTIVITY_SNAPSHOT",
    "ACTIVITY_DELTA",
    "REASONING_START",
    "REASONING_MESSAGE_START",
    "REASONING_MESSAGE_CONTENT",
    "REASONING_MESSAGE_END",
    "REASONING_MESSAGE_CHUNK",
    "REASONING_END",
    "REASONING_ENCRYPTED_VALUE",
];

/// The members that every event may have.
pub(super) const BASE: &[Field] = &[
    Field("type", 1, Name(&TYPES)),
    Field("timestamp", 2, Count),
    Field("rawEvent", 3, Value),
    Field("metadata", 4, Struct),
];

/// The fields of the envelope, by event.
pub(super) const EVENT: &[Field] = &[
    Field("TEXT_MESSAGE_START", 1, Message(TEXT_MESSAGE_START)),
    Field("TEXT_MESSAGE_CONTENT", 2, Message(TEXT_MESSAGE_CONTENT)),
    Field("TEXT_MESSAGE_END", 3, Message(TEXT_MESSAGE_END)),
    Field("TOOL_CALL_START", 4, Message(TOOL_CALL_START)),
    Field("TOOL_CALL_ARGS", 5, Message(TOOL_CALL_ARGS)),
    Field("TOOL_CALL_END", 6, Message(TOOL_CALL_END)),
    Field("STATE_SNAPSHOT", 7, Message(STATE_SNAPSHOT)),
    Field("STATE_DELTA", 8, Message(STATE_DELTA)),
    Field("MESSAGES_SNAPSHOT", 9, Message(MESSAGES_SNAPSHOT)),
    Field("RAW", 10, Message(RAW)),
    Field("CUSTOM", 11, Message(CUSTOM)),
    Field("RUN_STARTED", 12, Message(RUN_STARTED)),
    Field("RUN_FINISHED", 13, Message(RUN_FINISHED)),
    Field("RUN_ERROR", 14, Message(RUN_ERROR)),
    Field("STEP_STARTED", 15, Message(STEP)),
    Field("STEP_FINISHED", 16, Message(STEP)),
    Field("TEXT_MESSAGE_CHUNK", 17, Message(TEXT_MESSAGE_CHUNK)),
    Field("TOOL_CALL_CHUNK", 18, Message(TOOL_CALL_CHUNK)),
    Field("SUBAGENT_STARTED", 19, Message(SUBAGENT_STARTED)),
    Field("SUBAGENT_FINISHED", 20, Message(SUBAGENT_FINISHED)),
    Field("SUBAGENT_ERROR", 21, Message(SUBAGENT_ERROR)),
    Field("TOOL_CALL_RESULT", 22, Message(TOOL_CALL_RESULT)),
    Field("ACTIVITY_SNAPSHOT", 23, Message(ACTIVITY_SNAPSHOT)),
    Field("ACTIVITY_DELTA", 24, Message(ACTIVITY_DELTA)),
    Field("REASONING_START", 25, Message(REASONING)),
    Field("REASONING_MESSAGE_START", 26, Message(REASONING)),
    Field("REASONING_MESSAGE_CONTENT", 27, Message(REASONING)),
    Field("REASONING_MESSAGE_END", 28, Message(REASONING)),
    Field("REASONING_MESSAGE_CHUNK", 29, Message(REASONING)),
    Field("REASONING_END", 30, Message(REASONING)),
    Field("REASONING_ENCRYPTED_VALUE", 31, Message(REASONING_ENCRYPTED_VALUE)),
];

// The events. Field 1 of each is `BASE`.

const TEXT_MESSAGE_START: &[Field] = &[
    Field("messageId", 2, TEXT),
    Field("role", 3, TEXT),
    Field("name", 4, TEXT),
    Field("subagentRunId", 5, TEXT),
];
const TEXT_MESSAGE_CONTENT: &[Field] =
    &[Field("messageId", 2, TEXT), Field("delta", 3, TEXT), Field("subagentRunId", 4, TEXT)];
const TEXT_MESSAGE_END: &[Field] = &[Field("messageId", 2, TEXT), Field("subagentRunId", 3, TEXT)];
const TEXT_MESSAGE_CHUNK: &[Field] = &[
    Field("messageId", 2, TEXT),
    Field("role", 3, TEXT),
    Field("delta", 4, TEXT),
    Field("name", 5, TEXT),
    Field("subagentRunId", 6, TEXT),
];
const TOOL_CALL_START: &[Field] = &[
    Field("toolCallId", 2, TEXT),
    Field("toolCallName", 3, TEXT),
    Field("parentMessageId", 4, TEXT),
    Field("subagentRunId", 5, TEXT),
];
const TOOL_CALL_ARGS: &[Field] =
    &[Field("toolCallId", 2, TEXT), Field("delta", 3, TEXT), Field("subagentRunId", 4, TEXT)];
const TOOL_CALL_END: &[Field] = &[Field("toolCallId", 2, TEXT), Field("subagentRunId", 3, TEXT)];
const TOOL_CALL_CHUNK: &[Field] = &[
    Field("toolCallId", 2, TEXT),
    Field("toolCallName", 3, TEXT),
    Field("parentMessageId", 4, TEXT),
    Field("delta", 5, TEXT),
    Field("subagentRunId", 6, TEXT),
];
const TOOL_CALL_RESULT: &[Field] = &[
    Field("subagentRunId", 2, TEXT),
    Field("messageId", 3, TEXT),
    Field("toolCallId", 4, TEXT),
    Field("content", 5, TEXT),
    Field("role", 6, TEXT),
    Field("content", 7, Many(&PART)),
];
const STATE_SNAPSHOT: &[Field] = &[Field("snapshot", 2, Value), Field("subagentRunId", 3, TEXT)];
const STATE_DELTA: &[Field] =
    &[Field("delta", 2, Many(&OPERATION)), Field("subagentRunId", 3, TEXT)];
const MESSAGES_SNAPSHOT: &[Field] = &[Field("messages", 2, Many(&MESSAGE))];
const ACTIVITY_SNAPSHOT: &[Field] = &[
    Field("subagentRunId", 2, TEXT),
    Field("messageId", 3, TEXT),
    Field("activityType", 4, TEXT),
    Field("content", 5, Struct),
    Field("replace", 6, Bool),
];
const ACTIVITY_DELTA: &[Field] = &[
    Field("subagentRunId", 2, TEXT),
    Field("messageId", 3, TEXT),
    Field("activityType", 4, TEXT),
    Field("patch", 5, Many(&OPERATION)),
];
const RAW: &[Field] =
    &[Field("event", 2, Value), Field("source", 3, TEXT), Field("subagentRunId", 4, TEXT)];
const CUSTOM: &[Field] =
    &[Field("name", 2, TEXT), Field("value", 3, Value), Field("subagentRunId", 4, TEXT)];
const RUN_STARTED: &[Field] = &[
    Field("threadId", 2, TEXT),
    Field("runId", 3, TEXT),
    Field("parentRunId", 4, TEXT),
    Field("protocolVersion", 6, TEXT),
];
const RUN_FINISHED: &[Field] = &[
    Field("threadId", 2, TEXT),
    Field("runId", 3, TEXT),
    Field("result", 4, Value),
    Field("outcome", 5, Within("type", &TEXT)),
    Field("outcome", 6, Within("interrupts", &Many(&INTERRUPT))),
    Field("usage", 7, Many(&USAGE)),
    Field("outcome", 8, Within("pendingToolCallIds", &Many(&TEXT))),
];
const RUN_ERROR: &[Field] =
    &[Field("code", 2, TEXT), Field("message", 3, TEXT), Field("usage", 4, Many(&USAGE))];
const STEP: &[Field] = &[Field("stepName", 2, TEXT), Field("subagentRunId", 3, TEXT)];
/// The events of reasoning. No event has both members of field 4.
const REASONING: &[Field] = &[
    Field("subagentRunId", 2, TEXT),
    Field("messageId", 3, TEXT),
    Field("role", 4, TEXT),
    Field("delta", 4, TEXT),
];
const REASONING_ENCRYPTED_VALUE: &[Field] = &[
    Field("subagentRunId", 2, TEXT),
    Field("subtype", 3, TEXT),
    Field("entityId", 4, TEXT),
    Field("encryptedValue", 5, TEXT),
];
const SUBAGENT_STARTED: &[Field] = &[
    Field("subagentRunId", 2, TEXT),
    Field("name", 3, TEXT),
    Field("description", 4, TEXT),
    Field("parentSubagentRunId", 5, TEXT),
    Field("parentToolCallId", 6, TEXT),
    Field("parentMessageId", 7, TEXT),
];
const SUBAGENT_FINISHED: &[Field] = &[
    Field("subagentRunId", 2, TEXT),
    Field("result", 3, Value),
    Field("outcome", 4, Within("type", &TEXT)),
    Field("outcome", 5, Within("interruptIds", &Many(&TEXT))),
];
const SUBAGENT_ERROR: &[Field] =
    &[Field("subagentRunId", 2, TEXT), Field("message", 3, TEXT), Field("code", 4, TEXT)];

// The messages inside events.

const OPERATION: FieldKind = Message(&[
    Field("op", 1, Name(&["add", "remove", "replace", "move", "copy", "test"])),
    Field("path", 2, TEXT),
    Field("from", 3, TEXT),
    Field("value", 4, Value),
]);
const MESSAGE: FieldKind = Message(&[
    Field("id", 1, TEXT),
    Field("role", 2, TEXT),
    Field("content", 3, TEXT),
    Field("name", 4, TEXT),
    Field("toolCalls", 5, Many(&TOOL_CALL)),
    Field("toolCallId", 6, TEXT),
    Field("error", 7, TEXT),
    Field("content", 8, Many(&PART)),
    Field("metadata", 9, Struct),
    Field("subagentRunId", 10, TEXT),
    Field("encryptedValue", 11, TEXT),
    Field("activityType", 12, TEXT),
    Field("content", 13, Struct),
]);
const TOOL_CALL: FieldKind = Message(&[
    Field("id", 1, TEXT),
    Field("type", 2, TEXT),
    Field("function", 3, Message(&[Field("name", 1, TEXT), Field("arguments", 2, TEXT)])),
    Field("metadata", 4, Struct),
    Field("encryptedValue", 5, TEXT),
]);
const PART: FieldKind = Arms(&[
    Field(
        "text",
        1,
        Message(&[Field("text", 1, TEXT), Field("id", 2, TEXT), Field("metadata", 3, Value)]),
    ),
    Field("image", 2, Message(MEDIA)),
    Field("audio", 3, Message(MEDIA)),
    Field("video", 4, Message(MEDIA)),
    Field("document", 5, Message(MEDIA)),
]);
const MEDIA: &[Field] =
    &[Field("source", 1, SOURCE), Field("metadata", 2, Value), Field("id", 3, TEXT)];
const SOURCE: FieldKind = Arms(&[
    Field("data", 1, Message(&[Field("value", 1, TEXT), Field("mimeType", 2, TEXT)])),
    Field("url", 2, Message(&[Field("value", 1, TEXT), Field("mimeType", 2, TEXT)])),
    Field(
        "file",
        3,
        Message(&[Field("value", 1, TEXT), Field("provider", 2, TEXT), Field("mimeType", 3, TEXT)]),
    ),
]);
const INTERRUPT: FieldKind = Message(&[
    Field("id", 1, TEXT),
    Field("reason", 2, TEXT),
    Field("message", 3, TEXT),
    Field("toolCallId", 4, TEXT),
    Field("responseSchema", 5, Value),
    Field("expiresAt", 6, TEXT),
    Field("metadata", 7, Value),
    Field("subagentRunId", 8, TEXT),
]);
const USAGE: FieldKind = Message(&[
    Field("provider", 1, TEXT),
    Field("model", 2, TEXT),
    Field("inputTokens", 3, Count),
    Field("outputTokens", 4, Count),
    Field("totalTokens", 5, Count),
    Field("reasoningTokens", 6, Count),
    Field("cachedInputTokens", 7, Count),
    Field("cacheWriteInputTokens", 8, Count),
]);
