// AG-UI's protobuf binding, checked by the official decoder: every event of every golden file, and a run of the official
// client.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import { describe, test } from "node:test";
import { HttpAgent } from "@ag-ui/client";
import { AGUI_MEDIA_TYPE, decode, encode } from "@ag-ui/proto";

const TESTS = new URL("../../tests/", import.meta.url);
const FOLDERS = ["cases", "js-1.5.1", "js-1.5.1-v2events", "py-0.16.7", "py-0.16.7-node", "py-0.16.7-v2events"];
const EXAMPLES = new URL("support/ag-ui-proto-1.0.0.txt", TESTS);
const MAX_BYTES = 256 * 1024 * 1024;

/** The events of a golden file. */
function eventsOf(file) {
  const lines = readFileSync(file, "utf8").split("\n").filter((line) => line.startsWith("data: "));
  return lines.map((line) => line.slice("data: ".length));
}

/** The frames that threadway makes of events, without their lengths. */
function framed(events) {
  const options = { input: events.map((event) => `${event}\n`).join(""), maxBuffer: MAX_BYTES };
  const { status, stdout, stderr } = spawnSync(process.env.PROTO_FRAMES, options);
  assert.equal(status, 0, String(stderr));
  return split(stdout);
}

function split(bytes) {
  const frames = [];
  while (bytes.length > 0) {
    const end = 4 + bytes.readUInt32BE(0);
    assert.ok(end <= bytes.length, "a frame is cut");
    frames.push(bytes.subarray(4, end));
    bytes = bytes.subarray(end);
  }
  return frames;
}

/** The text of each message, reasoning and call, joined: a character whose halves came in two events is in the second one. */
function joined(events) {
  const texts = new Map();
  const rest = events.map((event) => {
    if (typeof event.delta !== "string") return event;
    const of = `${event.type} ${event.messageId ?? event.toolCallId}`;
    texts.set(of, (texts.get(of) ?? "") + event.delta);
    return { ...event, delta: undefined };
  });
  return { rest, texts: [...texts].map(([of, text]) => [of, text.toWellFormed?.() ?? text]) };
}

const plain = (value) => JSON.parse(JSON.stringify(value));

describe("the official decoder", () => {
  for (const folder of FOLDERS) {
    test(`reads every event of tests/golden/${folder}`, () => {
      const golden = new URL(`golden/${folder}/`, TESTS);
      const files = readdirSync(golden).filter((name) => name.endsWith(".sse"));
      assert.ok(files.length > 0);
      let [count, same] = [0, 0];
      for (const file of files) {
        const events = eventsOf(new URL(file, golden));
        const frames = framed(events);
        assert.equal(frames.length, events.length, file);
        const ours = frames.map((frame) => plain(decode(frame)));
        const theirs = events.map((event) => plain(decode(encode(JSON.parse(event)))));
        assert.deepEqual(joined(ours), joined(theirs), file);
        // Nothing that JSON has is lost: numbers are doubles in both.
        const told = events.map((event) => JSON.parse(event));
        assert.deepEqual(joined(ours), joined(told), file);
        count += events.length;
        same += frames.filter((frame, at) => frame.equals(encode(JSON.parse(events[at])))).length;
      }
      console.log(`# ${folder}: ${count} events of ${files.length} files, ${same} of them with the official encoder's bytes`);
      assert.ok(count > 100);
    });
  }
});

test("the examples of the Rust tests are the official encoder's", () => {
  const lines = readFileSync(EXAMPLES, "utf8").trimEnd().split("\n");
  for (const line of lines) {
    const [hex] = line.split(" ", 1);
    const event = JSON.parse(line.slice(hex.length + 1));
    assert.equal(Buffer.from(encode(event)).toString("hex"), hex, line);
    // The frames for an `Accept` header that names protobuf. The file's other events are for threadway's own tests.
    const [frame] = framed([JSON.stringify(event)]);
    assert.deepEqual(plain(decode(frame)), plain(decode(encode(event))), line);
  }
});

/** The official client, which by default requests SSE only. */
class ProtoAgent extends HttpAgent {
  requestInit(input) {
    const init = super.requestInit(input);
    return { ...init, headers: { ...init.headers, Accept: AGUI_MEDIA_TYPE } };
  }
}

test("the official client runs an agent over it as over SSE", async () => {
  const seen = {};
  for (const [name, Agent] of Object.entries({ proto: ProtoAgent, sse: HttpAgent })) {
    const types = [];
    const agent = new Agent({ url: `${process.env.DEMO_GATEWAY_URL}/agui/agent/agent/run`, threadId: randomUUID() });
    agent.messages = [{ id: "u", role: "user", content: "hi" }];
    await agent.runAgent({}, { onEvent: ({ event }) => void types.push(event.type) });
    // Each run calls its tools with ids of its own.
    const shown = (content) => (content?.toolCallId ? { ...content, toolCallId: "" } : content);
    const messages = agent.messages.map(({ role, content }) => ({ role, content: shown(content) }));
    seen[name] = { types: types.filter((type, at) => type !== types[at - 1]), messages };
  }
  assert.equal(seen.proto.types.at(-1), "RUN_FINISHED");
  assert.ok(seen.proto.messages.length > 1);
  assert.deepEqual(seen.proto, seen.sse);
});
