// Frames as they are cut from bytes, and the joined stream of a run that was sent anew.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { verifyEvents } from "@ag-ui/client";
import { from, lastValueFrom } from "rxjs";
import { Run, split } from "../dist/frames.js";

test("only whole frames are taken, and all fields are read", () => {
  const [frames, rest] = split('retry: 3000\n\n: still here\n\nid: 2a\ndata: {"type":"CUSTOM",\ndata: "name":"a\u2028b"}\n\nid: 2b\ndata: {"ty');
  assert.equal(rest, 'id: 2b\ndata: {"ty');
  assert.deepEqual(frames.map(({ id, retryMs, event }) => ({ id, retryMs, event })), [
    { id: undefined, retryMs: 3000, event: undefined },
    { id: undefined, retryMs: undefined, event: undefined },
    { id: "2a", retryMs: undefined, event: { type: "CUSTOM", name: "a\u2028b" } },
  ]);
});

/** What a client gets of these events, which must be legal. */
async function joined(events) {
  const run = new Run();
  const taken = events.flatMap((event) => run.take({ text: "", event })).map(({ event }) => event);
  await lastValueFrom(from(taken).pipe(verifyEvents(false)));
  return taken;
}

const START = { type: "RUN_STARTED", threadId: "t", runId: "r" };
const END = { type: "RUN_FINISHED", threadId: "t", runId: "r" };

describe("a run that is sent anew", () => {
  test("without a second start nothing is changed", async () => {
    const events = [START, { type: "STEP_STARTED", stepName: "model" }, { type: "TEXT_MESSAGE_START", messageId: "m" }, { type: "TEXT_MESSAGE_END", messageId: "m" }, { type: "STEP_FINISHED", stepName: "model" }, END];
    assert.deepEqual(await joined(events), events);
  });

  test("what was open is ended, and may begin again", async () => {
    const again = [
      START,
      { type: "STEP_STARTED", stepName: "model" },
      { type: "REASONING_START", messageId: "t" },
      { type: "REASONING_MESSAGE_START", messageId: "t", role: "reasoning" },
    ];
    const ends = [
      { type: "REASONING_MESSAGE_END", messageId: "t" },
      { type: "REASONING_END", messageId: "t" },
      { type: "STEP_FINISHED", stepName: "model" },
    ];
    assert.deepEqual(await joined([...again, ...again, ...ends, END]), [...again, ...ends, ...again.slice(1), ...ends, END]);
  });

  test("a subagent begins once, and what it left open is ended with the run", async () => {
    const began = [
      { type: "SUBAGENT_STARTED", subagentRunId: "s", name: "helper" },
      { type: "STEP_STARTED", stepName: "model", subagentRunId: "s" },
      { type: "TOOL_CALL_START", toolCallId: "c", toolCallName: "search", subagentRunId: "s" },
    ];
    assert.deepEqual(await joined([START, ...began, START, began[0], END]), [
      START,
      ...began,
      { type: "TOOL_CALL_END", toolCallId: "c", subagentRunId: "s" },
      { type: "STEP_FINISHED", stepName: "model", subagentRunId: "s" },
      { type: "SUBAGENT_FINISHED", subagentRunId: "s" },
      END,
    ]);
  });

  test("a subagent that has failed is over", async () => {
    const events = [{ type: "SUBAGENT_STARTED", subagentRunId: "s", name: "helper" }, { type: "SUBAGENT_ERROR", subagentRunId: "s", message: "no" }];
    assert.deepEqual(await joined([START, ...events, START, ...events, END]), [START, ...events, END]);
  });
});
