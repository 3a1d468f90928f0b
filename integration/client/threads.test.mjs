// One stream about many threads, in front of real servers: what others do on each of them.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { SERVERS } from "./gateway.mjs";
import { Langgraph } from "./langgraph.mjs";

const OPTIONS = { concurrency: 4, timeout: 240_000 };
const TEST = { timeout: 120_000 };
const SLOW = { words: Array.from({ length: 60 }, (_, at) => `${at} `), delay: 0.1 }; // longer than two polls

/** The messages of a stream, as an `EventSource` gets them. */
async function* messagesOf(url, signal) {
  const response = await fetch(url, { headers: { accept: "text/event-stream" }, signal });
  assert.equal(response.status, 200);
  let text = "";
  for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
    text += chunk;
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const data = text.slice(0, end).split("\n").find((line) => line.startsWith("data: "));
      if (data) yield JSON.parse(data.slice(6));
    }
  }
}

/** The marks of threads, until the last of each is the expected one. */
async function marksUntil(messages, marks, expected) {
  const isThere = () => Object.entries(expected).every(([thread, mark]) => marks[thread].at(-1) === mark);
  while (!isThere()) {
    const { value, done } = await messages.next();
    assert.ok(!done, `the stream ended with ${JSON.stringify(marks)}`);
    marks[value.threadId].push(value.mark);
  }
}

for (const server of SERVERS) {
  describe(`one stream in front of ${server.name}`, OPTIONS, () => {
    const langgraph = new Langgraph(server);

    test("runs of others begin, end, ask, fail and are cancelled", TEST, async (t) => {
      const [works, asks, fails, stops] = await Promise.all(["text", "interrupt_child", "failing", "text"].map((graph) => langgraph.thread(graph)));
      const threads = [works, asks, fails, stops];
      const controller = new AbortController();
      t.after(() => controller.abort());
      const query = threads.map((thread) => `&thread=${thread}`).join("");
      const messages = messagesOf(`${server.threadway}/agui/events?agentId=text${query}`, controller.signal);
      const { value: first } = await messages.next();
      assert.deepEqual(first, { threads: threads.map((threadId) => ({ threadId, mark: "idle" })) });
      const marks = Object.fromEntries(threads.map((thread) => [thread, ["idle"]]));
      t.after(() => t.diagnostic(Object.values(marks).join("; ")));

      const [, , , cancelled] = await Promise.all([
        langgraph.run(works, "text", SLOW),
        langgraph.run(asks, "interrupt_child", { words: ["a"] }),
        langgraph.run(fails, "failing", { words: ["a"], fail_after: 0 }),
        langgraph.run(stops, "text", SLOW),
      ]);
      await marksUntil(messages, marks, { [works]: "running", [stops]: "running" });
      await langgraph.cancel(stops, cancelled.run_id);
      const { record } = await langgraph.ended(stops, cancelled.run_id);
      const stopped = record.status === "error" ? "failed" : "idle";
      await marksUntil(messages, marks, { [works]: "idle", [asks]: "waiting", [fails]: "failed", [stops]: stopped });
      assert.deepEqual(marks[works], ["idle", "running", "idle"]);
    });

    test("with events, each names its thread and has its id", TEST, async (t) => {
      const [one, two] = await Promise.all([langgraph.thread("text"), langgraph.thread("text")]);
      const controller = new AbortController();
      t.after(() => controller.abort());
      const messages = messagesOf(`${server.threadway}/agui/events?agentId=text&events=all&thread=${one}&thread=${two}`, controller.signal);
      await Promise.all([one, two].map((thread) => langgraph.run(thread, "text", { words: ["said ", "in ", thread], delay: 0.2 })));
      const texts = { [one]: "", [two]: "" };
      const ended = new Set();
      for await (const { threadId, id, event } of messages) {
        if (!event) continue;
        assert.ok(id, JSON.stringify(event));
        if (event.type === "MESSAGES_SNAPSHOT") texts[threadId] = event.messages.filter(({ role }) => role === "assistant").map(({ content }) => content).join("");
        if (event.type === "TEXT_MESSAGE_CONTENT" && !event.delta.startsWith("{")) texts[threadId] += event.delta;
        if (event.type === "RUN_FINISHED" && texts[threadId].endsWith(threadId)) ended.add(threadId);
        if (ended.size === 2) break;
      }
      assert.deepEqual(texts, { [one]: `said in ${one}`, [two]: `said in ${two}` });
    });
  });
}
