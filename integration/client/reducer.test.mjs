// Checks that the official client ends with the expected content for the streams of threadway's property tests.
//
// COUNT and SEED choose the streams. The default is 1,000 streams of a random seed, which a failure prints.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { reduce, silence } from "./reducer.mjs";
import { firstDifference } from "./thread.mjs";

const COUNT = Number(process.env.COUNT ?? 1000);
const SEED = process.env.SEED ?? String(randomInt(2 ** 32));
const DIFFERENCES_SHOWN = 10;

const started = { type: "RUN_STARTED", threadId: "t", runId: "r" };
const finished = { type: "RUN_FINISHED", threadId: "t", runId: "r", outcome: { type: "success" } };

/** The messages without the activities of tools and plans. A result marks its failure in one of two ways. */
function conversation(messages) {
  const said = messages.filter(({ activityType }) => !["threadway.tool", "threadway.plan"].includes(activityType));
  return said.map((message) => {
    if (message.role !== "tool") return message;
    const { error, metadata, ...rest } = message;
    return { ...rest, failed: error !== undefined || metadata?.langgraph?.status === "error" };
  });
}

silence();

test("the reducer gives what the client holds after a stream", async () => {
  const user = { id: "u", role: "user", content: "hi" };
  const result = await reduce({
    name: "text",
    messages: [user],
    state: { seen: 1 },
    events: [
      started,
      { type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" },
      { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "Hel" },
      { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "lo" },
      { type: "TEXT_MESSAGE_END", messageId: "m" },
      { type: "STATE_DELTA", delta: [{ op: "add", path: "/big", value: 2 }] },
      finished,
    ],
  });
  const messages = [user, { id: "m", role: "assistant", content: "Hello" }];
  assert.deepEqual(result, { name: "text", messages, state: { seen: 1, big: 2 }, error: null });
});

test("the reducer names the rule of verifyEvents that a stream breaks", async () => {
  const result = await reduce({
    name: "unopened",
    messages: [],
    state: {},
    events: [started, { type: "TEXT_MESSAGE_END", messageId: "m" }, finished],
  });
  assert.match(result.error, /TEXT_MESSAGE_END/);
});

test(`${COUNT} streams of seed ${SEED} leave the client with the expected content`, { timeout: 600_000 }, async () => {
  const differences = [];
  let streams = 0;
  const generator = spawn(process.env.REDUCER_STREAMS, ["--count", COUNT, "--seed", SEED], { stdio: ["ignore", "pipe", "inherit"] });
  const exit = new Promise((resolve, reject) => generator.once("exit", resolve).once("error", reject));
  for await (const line of createInterface({ input: generator.stdout })) {
    const stream = JSON.parse(line);
    const { error, messages, state } = await reduce(stream);
    const expected = { messages: conversation(stream.expect.messages), state: stream.expect.state };
    const difference = error ?? firstDifference({ messages: conversation(messages), state }, expected);
    streams += 1;
    if (difference) differences.push(`${stream.name} (seed ${SEED}): ${difference}`);
  }
  assert.equal(await exit, 0, "reducer-streams failed");
  assert.equal(streams, COUNT);
  assert.equal(differences.length, 0, [`${differences.length} streams differ`, ...differences.slice(0, DIFFERENCES_SHOWN)].join("\n"));
});
