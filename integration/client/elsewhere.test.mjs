// A graph that keeps its conversation under `chat_history`, and a list of notes under `messages`. Both versions of the
// official client run it and connect to it through a threadway with `messages_key`, and so does an editor. Each result is
// compared with LangGraph's thread.

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { scratch, transcriptOf, withEditor } from "./acp.mjs";
import { clientOf, GENERATIONS, readThread, SERVERS } from "./gateway.mjs";
import { checkLegal, same } from "./judge.mjs";
import { Langgraph } from "./langgraph.mjs";
import { startThreadway } from "./threadway.mjs";
import { ofClient, ofThread } from "./thread.mjs";
import { KINDS, Viewer } from "./viewers.mjs";

const OPTIONS = { concurrency: 6, timeout: 600_000 }; // what hangs is noticed sooner, by its own limit
const GRAPH = "elsewhere";
const CONFIG = `[agents.${GRAPH}]\nmessages_key = "chat_history"\n`;
const SLOW = JSON.stringify({ delay: 0.1 }); // a run of two seconds, long enough to connect in the middle

const python = SERVERS.find(({ name }) => name === "Python");
const server = { ...python }; // the test has its own gateway
let gateway;

before(async () => {
  const config = join(scratch(), "config.toml");
  writeFileSync(config, CONFIG);
  gateway = await startThreadway("elsewhere", python.langgraph, "--config", config);
  server.threadway = gateway.url;
});
after(() => gateway?.stop());

/** The values of a thread, renamed to those of a graph that keeps its conversation under `messages`. */
const renamed = ({ chat_history: messages, ...values }) => ({ ...values, messages });

/** Checks that a client holds the thread: the conversation as messages, the notes as state. */
async function checkHeld({ messages, state }, threadId) {
  const { values } = (await readThread(server, threadId)).state;
  assert.ok(values.chat_history.length > 0, "the thread has a conversation");
  same(ofClient(messages), ofThread(renamed(values), threadId), "the client's messages against the thread's");
  const { chat_history: _, ...rest } = values;
  same(state, rest, "the client's state against the thread's");
  return values;
}

async function run(client) {
  const done = await client.record();
  assert.equal(done.refused, undefined, `the client refused the run: ${done.refused}`);
  await checkLegal({ frames: done.wire.map((text) => ({ event: JSON.parse(text) })), generation: client.generation });
  assert.equal(done.events.at(-1).type, "RUN_FINISHED");
  return checkHeld(client, client.threadId);
}

describe("a conversation under another key", OPTIONS, () => {
  for (const generation of GENERATIONS) {
    test(`is the client's, turn by turn, for ${generation.version}`, async () => {
      const client = new (clientOf(server, generation))(GRAPH);
      client.say("go");
      const first = await run(client);
      assert.deepEqual(first.chat_history.map(({ type }) => type), ["human", "ai", "tool", "tool", "ai", "ai"]);
      assert.deepEqual(first.messages, ["note 0", "note 1"]);
      client.say(JSON.stringify({ tools: false }));
      const second = await run(client);
      assert.equal(second.chat_history.length, 9, "only what is new went up");
      assert.equal(second.messages.length, 3, "the notes are the graph's own");
    });

    test(`is forked before a message that ${generation.version} has edited`, async () => {
      const client = new (clientOf(server, generation))(GRAPH);
      client.say("one");
      await run(client);
      const id = client.say("two");
      await run(client);
      const at = client.messages.findIndex((message) => message.id === id);
      const edited = { ...client.messages[at], content: JSON.stringify({ tools: false, tokens: 2 }) };
      client.setMessages([...client.messages.slice(0, at), edited]);
      const values = await run(client);
      assert.deepEqual(values.chat_history.filter(({ type }) => type === "human").map(({ content }) => content), ["one", edited.content]);
    });
  }

  for (const kind of Object.keys(KINDS)) {
    test(`is shown to a client that connects by ${kind}, live and late`, async () => {
      const langgraph = new Langgraph(server);
      const threadId = await langgraph.thread(GRAPH);
      const start = (content) =>
        langgraph.post(`/threads/${threadId}/runs`, {
          assistant_id: GRAPH,
          input: { chat_history: [{ type: "human", content }] },
          stream_mode: ["values", "messages-tuple", "updates"],
          stream_resumable: true,
          multitask_strategy: "enqueue",
        });
      await start(SLOW);
      await start("and more"); // the run is pending
      const live = new Viewer(server.threadway, GRAPH, threadId, kind);
      const watched = live.watch();
      await langgraph.settled(threadId);
      if (live.isFollower) {
        await live.until("both runs", ({ client }) => client.messages.filter(({ role }) => role === "user").length === 2 && client.messages.at(-1).content === "Signed.");
        live.finish();
      }
      await watched;
      assert.equal(live.refused, undefined, `the client refused the stream: ${live.refused}`);
      await checkLegal(live);
      const late = new Viewer(server.threadway, GRAPH, threadId, kind);
      const seen = late.watch();
      if (late.isFollower) {
        await late.until("the thread", ({ held }) => held.length > 0);
        late.finish();
      }
      await seen;
      await checkLegal(late);
      await checkHeld(late.held.at(-1), threadId);
    });
  }

  test("is an editor's session, live and loaded", () =>
    withEditor(server, { agent: GRAPH, config: CONFIG }, async (editor) => {
      const session = await editor.new();
      assert.deepEqual(await session.prompt("go"), { stopReason: "end_turn" });
      const values = async () => renamed((await readThread(server, session.id)).state.values);
      assert.deepEqual(session.transcript(), transcriptOf(await values(), session.id, { isLive: true }));
      await session.prompt(JSON.stringify({ tools: false }));
      const again = await editor.load(session.id);
      assert.deepEqual(again.transcript(), transcriptOf(await values(), session.id));
    }));

  test("is state without the option, and gets no message", async () => {
    const client = new (clientOf(python, GENERATIONS[0]))(GRAPH);
    client.say("go");
    await client.record();
    assert.ok(client.state.chat_history.length > 0, "the client is shown the key as state");
    assert.ok(client.state.chat_history.every(({ type }) => type !== "human"), "the message went up under another key");
  });
});
