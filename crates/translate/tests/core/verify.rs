//! Tests of the judges themselves: each rule accepts legal streams and rejects illegal ones.

use serde_json::{Map, Value};

use crate::support::schema::Schema;
use crate::support::verify::Verifier;

/// A name, a stream, and a part of the complaint if the stream must be rejected.
///
/// A stream is written one event a line: its type, then `field=value`. A value is JSON, or else a
/// string.
type Case = (&'static str, &'static str, Option<&'static str>);

/// Whole streams.
const STREAMS: &[Case] = &[
    ("nothing", "", Some("without any event")),
    ("a run", "RUN_STARTED threadId=t runId=r\nRUN_FINISHED threadId=t runId=r", None),
    ("an error alone", "RUN_ERROR message=no", None),
    ("a run that fails", "RUN_STARTED threadId=t runId=r\nRUN_ERROR message=no", None),
    ("a wrong first event", "TEXT_MESSAGE_START messageId=m", Some("first event")),
    ("an end first", "RUN_FINISHED threadId=t runId=r", Some("first event")),
    ("an event without a type", "type=null", Some("type is missing")),
    (
        "a truncated stream",
        "RUN_STARTED threadId=t runId=r\nCUSTOM name=n value=1",
        Some("without a terminal event"),
    ),
    (
        "a run while a run is active",
        "RUN_STARTED threadId=t runId=r\nRUN_STARTED threadId=t runId=s",
        Some("while a run is active"),
    ),
    (
        "several runs",
        "RUN_STARTED threadId=t runId=r\nRUN_FINISHED threadId=t runId=r\n\
         RUN_STARTED threadId=t runId=s\nRUN_ERROR message=no\n\
         RUN_STARTED threadId=t runId=r\nRUN_FINISHED threadId=t runId=r",
        None,
    ),
    (
        "a run after an error alone",
        "RUN_ERROR message=no\nRUN_STARTED threadId=t runId=r\nRUN_FINISHED threadId=t runId=r",
        None,
    ),
    (
        "a second run on another thread",
        "RUN_STARTED threadId=t runId=r\nRUN_FINISHED threadId=t runId=r\n\
         RUN_STARTED threadId=u runId=s",
        Some("in a stream of thread"),
    ),
    (
        "an event after the end",
        "RUN_STARTED threadId=t runId=r\nRUN_FINISHED threadId=t runId=r\nCUSTOM name=n value=1",
        Some("CUSTOM after RUN_FINISHED"),
    ),
    (
        "two ends",
        "RUN_STARTED threadId=t runId=r\nRUN_FINISHED threadId=t runId=r\n\
         RUN_FINISHED threadId=t runId=r",
        Some("RUN_FINISHED after RUN_FINISHED"),
    ),
    (
        "a late error",
        "RUN_STARTED threadId=t runId=r\nRUN_FINISHED threadId=t runId=r\nRUN_ERROR message=no",
        None,
    ),
    (
        "an event after an error",
        "RUN_STARTED threadId=t runId=r\nRUN_ERROR message=no\nCUSTOM name=n value=1",
        Some("CUSTOM after RUN_ERROR"),
    ),
    ("two errors", "RUN_ERROR message=no\nRUN_ERROR message=no", Some("RUN_ERROR after RUN_ERROR")),
    (
        "an end after an error",
        "RUN_STARTED threadId=t runId=r\nRUN_ERROR message=no\nRUN_FINISHED threadId=t runId=r",
        Some("RUN_FINISHED after RUN_ERROR"),
    ),
    (
        "an error may leave everything open",
        "RUN_STARTED threadId=t runId=r\nTEXT_MESSAGE_START messageId=m\n\
         TOOL_CALL_START toolCallId=c toolCallName=n\nSTEP_STARTED stepName=a\n\
         REASONING_START messageId=m\nREASONING_MESSAGE_START messageId=m role=reasoning\n\
         SUBAGENT_STARTED subagentRunId=s name=n\nRUN_ERROR message=no",
        None,
    ),
    (
        "a new run forgets what was open and who owned it",
        "RUN_STARTED threadId=t runId=r\nTEXT_MESSAGE_START messageId=m\n\
         SUBAGENT_STARTED subagentRunId=s name=n\nRUN_ERROR message=no\n\
         RUN_STARTED threadId=t runId=q\nTEXT_MESSAGE_START messageId=m subagentRunId=s\n\
         TEXT_MESSAGE_END messageId=m\nSUBAGENT_STARTED subagentRunId=s name=n\n\
         SUBAGENT_FINISHED subagentRunId=s\nRUN_FINISHED threadId=t runId=q",
        None,
    ),
    (
        "an end with another run id",
        "RUN_STARTED threadId=t runId=r\nRUN_FINISHED threadId=t runId=s",
        Some(r#"runId "s", not "r""#),
    ),
    (
        "an end with another thread id",
        "RUN_STARTED threadId=t runId=r\nRUN_FINISHED threadId=u runId=r",
        Some(r#"threadId "u", not "t""#),
    ),
    (
        "interrupts",
        r#"RUN_STARTED threadId=t runId=r
           RUN_FINISHED threadId=t runId=r outcome={"type":"interrupt","interrupts":[{"id":"1","reason":"x"},{"id":"2","reason":"x"}]}"#,
        None,
    ),
    (
        "two interrupts with one id",
        r#"RUN_STARTED threadId=t runId=r
           RUN_FINISHED threadId=t runId=r outcome={"type":"interrupt","interrupts":[{"id":"1","reason":"x"},{"id":"1","reason":"x"}]}"#,
        Some("two interrupts"),
    ),
    (
        "an interrupt with a null tag",
        r#"RUN_STARTED threadId=t runId=r
           RUN_FINISHED threadId=t runId=r outcome={"type":"interrupt","interrupts":[{"id":"1","reason":"x","subagentRunId":null}]}"#,
        Some("subagentRunId is null"),
    ),
    (
        "the echo of the input with a null tag",
        r#"RUN_STARTED threadId=t runId=r input={"messages":[{"id":"m","role":"user","subagentRunId":null}]}"#,
        Some("subagentRunId is null"),
    ),
    (
        "the echo of the input gives owners",
        r#"RUN_STARTED threadId=t runId=r input={"messages":[{"id":"m","role":"assistant","subagentRunId":"s","toolCalls":[{"id":"c"}]}]}
           TOOL_CALL_START toolCallId=c toolCallName=n subagentRunId=u"#,
        Some("belongs to"),
    ),
];

/// The events between `RUN_STARTED` and `RUN_FINISHED`.
const RUNS: &[Case] = &[
    // Text messages.
    (
        "a text message",
        "TEXT_MESSAGE_START messageId=m\nTEXT_MESSAGE_CONTENT messageId=m delta=a\n\
         TEXT_MESSAGE_END messageId=m",
        None,
    ),
    (
        "a text message may be reopened",
        "TEXT_MESSAGE_START messageId=m\nTEXT_MESSAGE_END messageId=m\n\
         TEXT_MESSAGE_START messageId=m\nTEXT_MESSAGE_END messageId=m",
        None,
    ),
    (
        "everything may interleave, and ids are unique within a kind only",
        "TEXT_MESSAGE_START messageId=x\nTOOL_CALL_START toolCallId=x toolCallName=n\n\
         REASONING_START messageId=x\nREASONING_MESSAGE_START messageId=x role=reasoning\n\
         STEP_STARTED stepName=x\nTEXT_MESSAGE_START messageId=y\nSTEP_FINISHED stepName=x\n\
         REASONING_END messageId=x\nTEXT_MESSAGE_END messageId=x\nTOOL_CALL_END toolCallId=x\n\
         TEXT_MESSAGE_END messageId=y\nREASONING_MESSAGE_END messageId=x",
        None,
    ),
    (
        "a text message opened twice",
        "TEXT_MESSAGE_START messageId=m\nTEXT_MESSAGE_START messageId=m",
        Some("is already open"),
    ),
    ("text without a message", "TEXT_MESSAGE_CONTENT messageId=m delta=a", Some("is not open")),
    ("the end of no message", "TEXT_MESSAGE_END messageId=m", Some("is not open")),
    ("an open text message", "TEXT_MESSAGE_START messageId=m", Some("text messages are open")),
    ("a text message without an id", "TEXT_MESSAGE_START", Some("messageId is missing")),
    // Tool calls.
    (
        "a tool call and its result",
        "TOOL_CALL_START toolCallId=c toolCallName=n\nTOOL_CALL_ARGS toolCallId=c delta=a\n\
         TOOL_CALL_END toolCallId=c\nTOOL_CALL_RESULT messageId=m toolCallId=c content=ok",
        None,
    ),
    ("the result of an unknown call", "TOOL_CALL_RESULT messageId=m toolCallId=c content=ok", None),
    (
        "a tool call opened twice",
        "TOOL_CALL_START toolCallId=c toolCallName=n\nTOOL_CALL_START toolCallId=c toolCallName=n",
        Some("is already open"),
    ),
    ("arguments without a call", "TOOL_CALL_ARGS toolCallId=c delta=a", Some("is not open")),
    ("the end of no call", "TOOL_CALL_END toolCallId=c", Some("is not open")),
    (
        "an open tool call",
        "TOOL_CALL_START toolCallId=c toolCallName=n",
        Some("tool calls are open"),
    ),
    // Steps.
    (
        "steps",
        "STEP_STARTED stepName=a\nSTEP_STARTED stepName=b\nSTEP_FINISHED stepName=a\n\
         STEP_FINISHED stepName=b\nSTEP_STARTED stepName=a\nSTEP_FINISHED stepName=a",
        None,
    ),
    (
        "a step started twice",
        "STEP_STARTED stepName=a\nSTEP_STARTED stepName=a",
        Some("already active"),
    ),
    (
        "one step name of two owners",
        "STEP_STARTED stepName=a\nSTEP_STARTED stepName=a subagentRunId=s\n\
         STEP_STARTED stepName=a subagentRunId=\"\"\nSTEP_FINISHED stepName=a subagentRunId=\"\"\n\
         STEP_FINISHED stepName=a subagentRunId=s\nSTEP_FINISHED stepName=a",
        None,
    ),
    ("a step that was not started", "STEP_FINISHED stepName=a", Some("was not started")),
    (
        "a step finished by another owner",
        "STEP_STARTED stepName=a\nSTEP_FINISHED stepName=a subagentRunId=s",
        Some("started by another owner"),
    ),
    ("an open step", "STEP_STARTED stepName=a", Some("steps are open")),
    // Reasoning.
    (
        "a reasoning span with a message of the same id",
        "REASONING_START messageId=m\nREASONING_MESSAGE_START messageId=m role=reasoning\n\
         REASONING_MESSAGE_CONTENT messageId=m delta=a\nREASONING_MESSAGE_END messageId=m\n\
         REASONING_END messageId=m",
        None,
    ),
    (
        "a reasoning message without a span",
        "REASONING_MESSAGE_START messageId=m role=reasoning\nREASONING_MESSAGE_END messageId=m",
        None,
    ),
    (
        "a span opened twice",
        "REASONING_START messageId=m\nREASONING_START messageId=m",
        Some("reasoning span \"m\" is already open"),
    ),
    (
        "a reasoning message opened twice",
        "REASONING_MESSAGE_START messageId=m role=reasoning\n\
         REASONING_MESSAGE_START messageId=m role=reasoning",
        Some("reasoning message \"m\" is already open"),
    ),
    (
        "reasoning without a message",
        "REASONING_START messageId=m\nREASONING_MESSAGE_CONTENT messageId=m delta=a",
        Some("reasoning message \"m\" is not open"),
    ),
    (
        "the end of no reasoning message",
        "REASONING_START messageId=m\nREASONING_MESSAGE_END messageId=m",
        Some("reasoning message \"m\" is not open"),
    ),
    (
        "the end of no span",
        "REASONING_MESSAGE_START messageId=m role=reasoning\nREASONING_END messageId=m",
        Some("reasoning span \"m\" is not open"),
    ),
    ("an open span", "REASONING_START messageId=m", Some("reasoning spans are open")),
    (
        "an open reasoning message",
        "REASONING_MESSAGE_START messageId=m role=reasoning",
        Some("reasoning messages are open"),
    ),
    // Owners.
    (
        "a tag that agrees, and none",
        "TEXT_MESSAGE_START messageId=m subagentRunId=s\n\
         TEXT_MESSAGE_CONTENT messageId=m delta=a subagentRunId=s\n\
         TEXT_MESSAGE_CONTENT messageId=m delta=a\nTEXT_MESSAGE_END messageId=m",
        None,
    ),
    (
        "text by another subagent",
        "TEXT_MESSAGE_START messageId=m subagentRunId=s\n\
         TEXT_MESSAGE_CONTENT messageId=m delta=a subagentRunId=u",
        Some("belongs to"),
    ),
    (
        "the end of a message by another subagent",
        "TEXT_MESSAGE_START messageId=m subagentRunId=s\n\
         TEXT_MESSAGE_END messageId=m subagentRunId=u",
        Some("belongs to"),
    ),
    (
        "text by a subagent in the parent's message",
        "TEXT_MESSAGE_START messageId=m\nTEXT_MESSAGE_CONTENT messageId=m delta=a subagentRunId=s",
        Some("belongs to None"),
    ),
    (
        "a message reopened by another owner",
        "TEXT_MESSAGE_START messageId=m subagentRunId=s\nTEXT_MESSAGE_END messageId=m\n\
         TEXT_MESSAGE_START messageId=m\nTEXT_MESSAGE_END messageId=m\n\
         TEXT_MESSAGE_START messageId=m subagentRunId=u",
        Some("belongs to"),
    ),
    (
        "a result makes a message of its own owner",
        "TOOL_CALL_RESULT messageId=m toolCallId=c content=ok subagentRunId=s\n\
         TEXT_MESSAGE_START messageId=m subagentRunId=u",
        Some("belongs to"),
    ),
    (
        "the newest result owns the message",
        "TOOL_CALL_RESULT messageId=m toolCallId=c content=ok subagentRunId=s\n\
         TOOL_CALL_RESULT messageId=m toolCallId=c content=ok\n\
         TEXT_MESSAGE_START messageId=m subagentRunId=s",
        Some("belongs to None"),
    ),
    (
        "arguments by another subagent",
        "TOOL_CALL_START toolCallId=c toolCallName=n subagentRunId=s\n\
         TOOL_CALL_ARGS toolCallId=c delta=a subagentRunId=u",
        Some("belongs to"),
    ),
    (
        "the end of a call by another subagent",
        "TOOL_CALL_START toolCallId=c toolCallName=n subagentRunId=s\n\
         TOOL_CALL_END toolCallId=c subagentRunId=u",
        Some("belongs to"),
    ),
    (
        "a call inherits the owner of its parent message",
        "TEXT_MESSAGE_START messageId=m subagentRunId=s\nTEXT_MESSAGE_END messageId=m\n\
         TOOL_CALL_START toolCallId=c toolCallName=n parentMessageId=m\n\
         TOOL_CALL_END toolCallId=c subagentRunId=s",
        None,
    ),
    (
        "a call in a message of another owner",
        "TEXT_MESSAGE_START messageId=m subagentRunId=s\nTEXT_MESSAGE_END messageId=m\n\
         TOOL_CALL_START toolCallId=c toolCallName=n parentMessageId=m subagentRunId=u",
        Some("parent message"),
    ),
    (
        "a call in an unknown message",
        "TOOL_CALL_START toolCallId=c toolCallName=n parentMessageId=m subagentRunId=u\n\
         TOOL_CALL_END toolCallId=c",
        None,
    ),
    (
        "a call that moves to a message of another owner",
        "TOOL_CALL_START toolCallId=c toolCallName=n\nTOOL_CALL_END toolCallId=c\n\
         TEXT_MESSAGE_START messageId=m subagentRunId=s\nTEXT_MESSAGE_END messageId=m\n\
         TOOL_CALL_START toolCallId=c toolCallName=n parentMessageId=m",
        Some("moves to a message"),
    ),
    (
        "a call reopened by another owner",
        "TOOL_CALL_START toolCallId=c toolCallName=n subagentRunId=s\nTOOL_CALL_END toolCallId=c\n\
         TOOL_CALL_START toolCallId=c toolCallName=n subagentRunId=u",
        Some("belongs to"),
    ),
    (
        "reasoning by another owner than its span",
        "REASONING_START messageId=m subagentRunId=s\n\
         REASONING_MESSAGE_START messageId=m role=reasoning subagentRunId=u",
        Some("belongs to"),
    ),
    (
        "reasoning text by another owner",
        "REASONING_MESSAGE_START messageId=m role=reasoning subagentRunId=s\n\
         REASONING_MESSAGE_CONTENT messageId=m delta=a subagentRunId=u",
        Some("belongs to"),
    ),
    (
        "an encrypted value for a call, after it closed",
        "TOOL_CALL_START toolCallId=x toolCallName=n subagentRunId=s\nTOOL_CALL_END toolCallId=x\n\
         TEXT_MESSAGE_START messageId=x\nTEXT_MESSAGE_END messageId=x\n\
         REASONING_ENCRYPTED_VALUE subtype=tool-call entityId=x encryptedValue=e subagentRunId=s",
        None,
    ),
    (
        "an encrypted value for another's call",
        "TOOL_CALL_START toolCallId=x toolCallName=n subagentRunId=s\nTOOL_CALL_END toolCallId=x\n\
         REASONING_ENCRYPTED_VALUE subtype=tool-call entityId=x encryptedValue=e subagentRunId=u",
        Some("belongs to"),
    ),
    (
        "an encrypted value for another's reasoning",
        "REASONING_START messageId=x subagentRunId=s\nREASONING_END messageId=x\n\
         REASONING_ENCRYPTED_VALUE subtype=message entityId=x encryptedValue=e subagentRunId=u",
        Some("belongs to"),
    ),
    (
        "an encrypted value for another's text",
        "TEXT_MESSAGE_START messageId=x subagentRunId=s\nTEXT_MESSAGE_END messageId=x\n\
         REASONING_ENCRYPTED_VALUE subtype=message entityId=x encryptedValue=e subagentRunId=u",
        Some("belongs to"),
    ),
    (
        "an activity patched by another owner",
        "ACTIVITY_SNAPSHOT messageId=a activityType=x content={} subagentRunId=s\n\
         ACTIVITY_DELTA messageId=a activityType=x patch=[] subagentRunId=u",
        Some("belongs to"),
    ),
    (
        "an activity that changes its owner",
        "ACTIVITY_SNAPSHOT messageId=a activityType=x content={} subagentRunId=s\n\
         ACTIVITY_SNAPSHOT messageId=a activityType=x content={} subagentRunId=u\n\
         ACTIVITY_DELTA messageId=a activityType=x patch=[] subagentRunId=u",
        None,
    ),
    (
        "an activity that is not replaced keeps its owner",
        "ACTIVITY_SNAPSHOT messageId=a activityType=x content={} subagentRunId=s\n\
         ACTIVITY_SNAPSHOT messageId=a activityType=x content={} replace=false subagentRunId=u\n\
         ACTIVITY_DELTA messageId=a activityType=x patch=[] subagentRunId=u",
        Some("belongs to"),
    ),
    (
        "a patch of an unknown activity",
        "ACTIVITY_DELTA messageId=a activityType=x patch=[] subagentRunId=u",
        None,
    ),
    (
        "a snapshot gives owners by role",
        r#"MESSAGES_SNAPSHOT messages=[{"id":"m","role":"reasoning","subagentRunId":"s"}]
           TEXT_MESSAGE_START messageId=m subagentRunId=u
           TEXT_MESSAGE_END messageId=m
           REASONING_MESSAGE_START messageId=m role=reasoning subagentRunId=u"#,
        Some("reasoning message \"m\" belongs to"),
    ),
    (
        "a snapshot gives owners to activities",
        r#"MESSAGES_SNAPSHOT messages=[{"id":"a","role":"activity","subagentRunId":"s"}]
           ACTIVITY_DELTA messageId=a activityType=x patch=[] subagentRunId=u"#,
        Some("belongs to"),
    ),
    (
        "a snapshot replaces owners",
        r#"TEXT_MESSAGE_START messageId=m subagentRunId=s
           TEXT_MESSAGE_END messageId=m
           MESSAGES_SNAPSHOT messages=[{"id":"m","role":"assistant","subagentRunId":"u"}]
           TEXT_MESSAGE_START messageId=m subagentRunId=u
           TEXT_MESSAGE_END messageId=m"#,
        None,
    ),
    (
        "a snapshot gives owners to tool calls",
        r#"MESSAGES_SNAPSHOT messages=[{"id":"m","role":"assistant","subagentRunId":"s","toolCalls":[{"id":"c"}]}]
           TOOL_CALL_START toolCallId=c toolCallName=n subagentRunId=u"#,
        Some("tool call \"c\" belongs to"),
    ),
    (
        "a snapshot with a null tag",
        r#"MESSAGES_SNAPSHOT messages=[{"id":"m","role":"assistant","subagentRunId":null}]"#,
        Some("subagentRunId is null"),
    ),
    ("a null tag", "CUSTOM name=n value=1 subagentRunId=null", Some("subagentRunId is null")),
    ("a tag on state is where it came from", "STATE_DELTA delta=[] subagentRunId=s", None),
    // Subagents.
    (
        "subagents, one inside another, the inner one outliving the outer",
        "SUBAGENT_STARTED subagentRunId=s name=n\n\
         SUBAGENT_STARTED subagentRunId=u name=n parentSubagentRunId=s\n\
         SUBAGENT_FINISHED subagentRunId=s outcome={\"type\":\"success\"}\n\
         SUBAGENT_STARTED subagentRunId=v name=n parentSubagentRunId=s\n\
         SUBAGENT_FINISHED subagentRunId=u outcome={\"type\":\"suspended\",\"interruptIds\":[\"i\"]}\n\
         SUBAGENT_ERROR subagentRunId=v message=no",
        None,
    ),
    ("a tag without a subagent's start", "CUSTOM name=n value=1 subagentRunId=s", None),
    ("a subagent without an id", "SUBAGENT_STARTED name=n", Some("subagentRunId is missing")),
    ("a subagent without a name", "SUBAGENT_STARTED subagentRunId=s", Some("name is missing")),
    (
        "a subagent started twice",
        "SUBAGENT_STARTED subagentRunId=s name=n\nSUBAGENT_STARTED subagentRunId=s name=n",
        Some("already active"),
    ),
    (
        "a subagent started again",
        "SUBAGENT_STARTED subagentRunId=s name=n\nSUBAGENT_FINISHED subagentRunId=s\n\
         SUBAGENT_STARTED subagentRunId=s name=n",
        Some("already finished"),
    ),
    (
        "a subagent of an unknown parent",
        "SUBAGENT_STARTED subagentRunId=s name=n parentSubagentRunId=u",
        Some("was not started in this run"),
    ),
    ("the end of no subagent", "SUBAGENT_FINISHED subagentRunId=s", Some("not active")),
    ("the end of a subagent without an id", "SUBAGENT_FINISHED", Some("subagentRunId is missing")),
    ("the failure of no subagent", "SUBAGENT_ERROR subagentRunId=s message=no", Some("not active")),
    (
        "a failure without a message",
        "SUBAGENT_STARTED subagentRunId=s name=n\nSUBAGENT_ERROR subagentRunId=s",
        Some("message is missing"),
    ),
    ("an active subagent", "SUBAGENT_STARTED subagentRunId=s name=n", Some("subagents are open")),
    (
        "a subagent with a null description",
        "SUBAGENT_STARTED subagentRunId=s name=n description=null",
        Some("description is null"),
    ),
    (
        "a subagent with a null parent",
        "SUBAGENT_STARTED subagentRunId=s name=n parentSubagentRunId=null",
        Some("parentSubagentRunId is null"),
    ),
    (
        "a subagent with a null parent call",
        "SUBAGENT_STARTED subagentRunId=s name=n parentToolCallId=null",
        Some("parentToolCallId is null"),
    ),
    (
        "a subagent with a null parent message",
        "SUBAGENT_STARTED subagentRunId=s name=n parentMessageId=null",
        Some("parentMessageId is null"),
    ),
    (
        "a subagent's null outcome",
        "SUBAGENT_STARTED subagentRunId=s name=n\nSUBAGENT_FINISHED subagentRunId=s outcome=null",
        Some("outcome is null"),
    ),
    (
        "a subagent's null code",
        "SUBAGENT_STARTED subagentRunId=s name=n\nSUBAGENT_ERROR subagentRunId=s message=no code=null",
        Some("code is null"),
    ),
    (
        "a subagent's unknown outcome",
        "SUBAGENT_STARTED subagentRunId=s name=n\n\
         SUBAGENT_FINISHED subagentRunId=s outcome={\"type\":\"cancelled\"}",
        Some("neither success nor suspended"),
    ),
    (
        "a subagent's outcome that is no object",
        "SUBAGENT_STARTED subagentRunId=s name=n\nSUBAGENT_FINISHED subagentRunId=s outcome=false",
        Some("neither success nor suspended"),
    ),
    (
        "null interrupt ids",
        "SUBAGENT_STARTED subagentRunId=s name=n\n\
         SUBAGENT_FINISHED subagentRunId=s outcome={\"type\":\"suspended\",\"interruptIds\":null}",
        Some("interruptIds is null"),
    ),
    (
        "an interrupt id that is no string",
        "SUBAGENT_STARTED subagentRunId=s name=n\n\
         SUBAGENT_FINISHED subagentRunId=s outcome={\"type\":\"suspended\",\"interruptIds\":[1]}",
        Some("not a string"),
    ),
];

/// One event, and a part of the complaint if its form must be rejected.
const SHAPES: &[(&str, Option<&str>)] = &[
    ("RUN_STARTED threadId=t runId=r protocolVersion=1.0", None),
    ("RUN_STARTED threadId=t", Some("runId")),
    (
        r#"RUN_STARTED threadId=t runId=r input={"threadId":"t","runId":"r","messages":[],"state":null}"#,
        None,
    ),
    (
        r#"RUN_STARTED threadId=t runId=r input={"threadId":"t","runId":"r","messages":[],"forwardedProps":null}"#,
        Some("forwardedProps"),
    ),
    ("RUN_FINISHED threadId=t runId=r result={}", None),
    ("RUN_FINISHED threadId=t runId=r result=null", Some("/result")),
    ("RUN_FINISHED threadId=t runId=r outcome=null", Some("/outcome")),
    (r#"RUN_FINISHED threadId=t runId=r outcome={"type":"cancelled"}"#, None),
    (r#"RUN_FINISHED threadId=t runId=r outcome={"type":"stopped"}"#, Some("/outcome")),
    (
        r#"RUN_FINISHED threadId=t runId=r outcome={"type":"interrupt","interrupts":[]}"#,
        Some("/outcome"),
    ),
    (
        r#"RUN_FINISHED threadId=t runId=r outcome={"type":"interrupt","interrupts":[{"id":"1","reason":"x","responseSchema":{}}]}"#,
        None,
    ),
    (
        r#"RUN_FINISHED threadId=t runId=r outcome={"type":"interrupt","interrupts":[{"id":"1","reason":"x","responseSchema":null}]}"#,
        Some("/outcome"),
    ),
    (r#"RUN_FINISHED threadId=t runId=r usage=[{"inputTokens":1}]"#, None),
    (r#"RUN_FINISHED threadId=t runId=r usage=[{"inputTokens":1.5}]"#, Some("/usage")),
    ("RUN_ERROR message=no code=null", Some("/code")),
    ("CUSTOM name=n value=null", None),
    ("CUSTOM name=n", Some("value")),
    ("CUSTOM name=n value=1 rawEvent=null", Some("/rawEvent")),
    ("CUSTOM name=n value=1 rawEvent={}", None),
    ("CUSTOM name=n value=1 metadata={\"a\":null}", None),
    ("CUSTOM name=n value=1 metadata=null", Some("/metadata")),
    ("CUSTOM name=n value=1 metadata=[]", Some("/metadata")),
    ("CUSTOM name=n value=1 timestamp=1795305649395", None),
    ("CUSTOM name=n value=1 timestamp=1.5", Some("/timestamp")),
    ("CUSTOM name=n value=1 timestamp=null", Some("/timestamp")),
    ("CUSTOM name=n value=1 subagentRunId=null", Some("/subagentRunId")),
    ("STATE_SNAPSHOT snapshot=null", None),
    ("STATE_SNAPSHOT", Some("snapshot")),
    (r#"STATE_DELTA delta=[{"op":"add","path":"/a~1b","value":null,"note":1}]"#, None),
    (r#"STATE_DELTA delta=[{"op":"add","path":"/a"}]"#, Some("/delta/0")),
    (r#"STATE_DELTA delta=[{"op":"add","path":"a","value":1}]"#, Some("/delta/0")),
    (r#"STATE_DELTA delta=[{"op":"set","path":"/a","value":1}]"#, Some("/delta/0")),
    ("TEXT_MESSAGE_START messageId=m role=assistant", None),
    ("TEXT_MESSAGE_START messageId=m role=tool", Some("/role")),
    ("TEXT_MESSAGE_START messageId=m mesageRole=assistant", Some("mesageRole")),
    ("TEXT_MESSAGE_CONTENT messageId=m delta=\"\"", None),
    ("TEXT_MESSAGE_CONTENT messageId=m delta=null", Some("/delta")),
    ("REASONING_MESSAGE_START messageId=m", Some("role")),
    ("TOOL_CALL_START toolCallId=c toolCallName=n parentMessageId=null", Some("/parentMessageId")),
    (r#"TOOL_CALL_RESULT messageId=m toolCallId=c content=[{"type":"text","text":"a"}]"#, None),
    (r#"TOOL_CALL_RESULT messageId=m toolCallId=c content={"a":1}"#, Some("/content")),
    (r#"MESSAGES_SNAPSHOT messages=[{"id":"m","role":"user","content":"a"}]"#, None),
    (
        r#"MESSAGES_SNAPSHOT messages=[{"id":"m","role":"assistant","content":null}]"#,
        Some("/messages/0"),
    ),
    (
        r#"MESSAGES_SNAPSHOT messages=[{"id":"m","role":"assistant","tool_calls":[]}]"#,
        Some("/messages/0"),
    ),
    (
        r#"MESSAGES_SNAPSHOT messages=[{"id":"m","role":"user","content":[{"type":"image","source":{"type":"url","value":"u"},"metadata":1}]}]"#,
        None,
    ),
    (
        r#"MESSAGES_SNAPSHOT messages=[{"id":"m","role":"user","content":[{"type":"image","source":{"type":"url","value":"u"},"metadata":null}]}]"#,
        Some("/messages/0"),
    ),
    ("ACTIVITY_SNAPSHOT messageId=a activityType=x content={}", None),
    ("ACTIVITY_SNAPSHOT messageId=a activityType=x content=text", Some("/content")),
    ("THINKING_START", Some("not a type of event")),
    ("type=1", Some("not an event")),
];

/// Reads one event from its line.
fn event(line: &str) -> Value {
    let mut event = Map::new();
    for word in line.split_whitespace() {
        match word.split_once('=') {
            None => event.insert("type".to_owned(), Value::from(word)),
            Some((field, value)) => {
                let value = match value.parse() {
                    Ok(Value::Number(_)) if field.ends_with("Version") => Value::from(value),
                    Ok(value) => value,
                    Err(_) => Value::from(value),
                };
                event.insert(field.to_owned(), value)
            }
        };
    }
    Value::Object(event)
}

fn verify(stream: &str) -> Result<(), String> {
    let mut verifier = Verifier::new();
    for line in stream.lines() {
        verifier.check(&event(line))?;
    }
    verifier.finish()
}

fn assert_verdict(name: &str, verdict: &Result<(), String>, complaint: Option<&str>) {
    match (verdict, complaint) {
        (Ok(()), None) => {}
        (Err(error), Some(part)) if error.contains(part) => {}
        _ => panic!("{name}: expected {complaint:?}, got {verdict:?}"),
    }
}

#[test]
fn whole_streams_are_judged_by_the_rules() {
    for (name, stream, complaint) in STREAMS {
        assert_verdict(name, &verify(stream), *complaint);
    }
}

#[test]
fn what_happens_inside_a_run_is_judged_by_the_rules() {
    for (name, stream, complaint) in RUNS {
        let start = "RUN_STARTED threadId=t runId=r";
        let stream = format!("{start}\n{stream}\nRUN_FINISHED threadId=t runId=r");
        assert_verdict(name, &verify(&stream), *complaint);
    }
}

#[test]
fn events_have_the_shape_that_the_schema_demands() {
    let schema = Schema::load();
    for (line, complaint) in SHAPES {
        assert_verdict(line, &schema.check_event(&event(line)), *complaint);
    }
}
