// A model that makes an image, audio, a file, a block of an unknown type and text with annotations. Both versions of the
// official client and an editor get them, live, late and from the middle of the run. The result is compared with
// LangGraph's thread.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { describe, test } from "node:test";
import { withEditor } from "./acp.mjs";
import { clientOf, GENERATIONS, readThread, SERVERS } from "./gateway.mjs";
import { checkLegal, same } from "./judge.mjs";
import { Langgraph } from "./langgraph.mjs";
import { ofClient, ofThread } from "./thread.mjs";
import { Viewer } from "./viewers.mjs";

const OPTIONS = { concurrency: 6, timeout: 600_000 }; // what hangs is noticed sooner, by its own limit
const GRAPH = "media";
const KINDS = ["block", "image", "audio", "file", "annotations"].map((kind) => `threadway.${kind}`);
const SLOW = { delay: 0.2 }; // a run of two seconds, long enough to connect in the middle
const ROUTES = ["connect", "connect 0.0.59", "events"];

const activities = (messages) => messages.filter(({ role }) => role === "activity");
const shown = (events) => events.filter(({ type }) => type === "ACTIVITY_SNAPSHOT").map(({ activityType }) => activityType);

/** Checks that the client holds the thread, with each attachment in its position. */
async function checkHeld(server, messages, threadId) {
  const { state } = await readThread(server, threadId);
  const ofLanggraph = ofThread(state.values, threadId);
  same(ofClient(messages), ofLanggraph, "the client's messages against the thread's");
  const made = Object.values(ofLanggraph.attachments).flat();
  assert.deepEqual(made.map(({ type }) => type), KINDS);
  const [, image, audio] = made.map(({ content }) => content.source);
  assert.equal(Buffer.from(image.value, "base64").subarray(1, 4).toString(), "PNG");
  assert.equal(Buffer.from(audio.value, "base64").subarray(0, 4).toString(), "RIFF");
  return state;
}

/** Checks that the viewer's stream was legal, and that its content is the thread. */
async function checkViewer(server, viewer) {
  assert.equal(viewer.refused, undefined, `the client refused the stream: ${viewer.refused}`);
  await checkLegal(viewer);
  await checkHeld(server, viewer.held.at(-1).messages, viewer.threadId);
}

for (const server of SERVERS) {
  describe(`a model's attachments, ${server.name}`, OPTIONS, () => {
    for (const generation of GENERATIONS) {
      test(`are shown during the run, and stay, to ${generation.version}`, async () => {
        const client = new (clientOf(server, generation))(GRAPH);
        client.say("Draw a map.");
        const first = await client.record();
        assert.equal(first.refused, undefined, `the client refused the run: ${first.refused}`);
        await checkLegal({ frames: first.wire.map((text) => ({ event: JSON.parse(text) })), generation });
        assert.deepEqual(shown(first.events), KINDS, "each thing once, as it was made");
        await checkHeld(server, client.messages, client.threadId);

        // The next turn sends none of the attachments upstream, and leaves them in place.
        client.say({ media: false, tokens: 2 });
        const second = await client.record();
        await checkLegal({ frames: second.wire.map((text) => ({ event: JSON.parse(text) })), generation });
        const state = await checkHeld(server, client.messages, client.threadId);
        assert.deepEqual(state.values.messages.map(({ type }) => type), ["human", "ai", "human", "ai"]);
        assert.equal(client.messages.at(-1).content, "tok0 tok1 ");
      });

      test(`are shown to ${generation.version} if the page has kept only the texts`, async () => {
        const client = new (clientOf(server, generation))(GRAPH);
        client.say("Draw a map.");
        await client.record();
        const later = new (clientOf(server, generation))(GRAPH, { threadId: client.threadId });
        later.setMessages(client.messages.filter(({ role }) => role !== "activity"));
        later.say({ media: false, tokens: 2 });
        await later.record();
        await checkHeld(server, later.messages, client.threadId);
      });
    }

    for (const route of ROUTES) {
      test(`are shown to a client that connects later by ${route}, and in the middle`, async () => {
        const langgraph = new Langgraph(server);
        const threadId = await langgraph.thread(GRAPH);
        await langgraph.run(threadId, GRAPH, SLOW, { stream_mode: ["values", "messages-tuple", "updates"], stream_resumable: true });
        const live = new Viewer(server.threadway, GRAPH, threadId, route);
        await live.watch();
        await checkViewer(server, live);
        await langgraph.settled(threadId);
        const late = new Viewer(server.threadway, GRAPH, threadId, route);
        await late.watch();
        await checkViewer(server, late);
        assert.deepEqual(activities(late.held.at(-1).messages).map(({ activityType }) => activityType), KINDS);
      });
    }

    test("are shown to a follower with the next run, without the conversation again", async () => {
      const langgraph = new Langgraph(server);
      const threadId = await langgraph.thread(GRAPH);
      await langgraph.run(threadId, GRAPH, { media: false, tokens: 2 });
      await langgraph.settled(threadId);
      const follower = new Viewer(server.threadway, GRAPH, threadId, "follow");
      const watched = follower.watch();
      await follower.until("the thread", ({ held }) => held.length > 0);
      await langgraph.run(threadId, GRAPH, { media: true });
      await follower.until("what the model has made", ({ held }) => activities(held.at(-1).messages).length === KINDS.length);
      follower.finish();
      await watched;
      await checkHeld(server, follower.held.at(-1).messages, threadId);
      const [, next] = follower.runs;
      assert.ok(!next.some(({ event }) => event.type === "MESSAGES_SNAPSHOT"), "the next run is sent without a snapshot");
    });

    test("are shown to an editor, live and loaded", () =>
      withEditor(server, { agent: GRAPH }, async (editor) => {
        const session = await editor.new();
        assert.deepEqual(await session.prompt("Draw a map."), { stopReason: "end_turn" });
        const attached = () =>
          session
            .of("agent_message_chunk")
            .filter(({ messageId }) => messageId.includes(":attachment:"))
            .map(({ content }) => content);
        const live = attached();
        assert.deepEqual(live.map(({ type }) => type), ["text", "image", "audio", "resource_link", "resource_link"]);
        const [unknown, image, , file, source] = live;
        assert.match(unknown.text, /"server_tool_call"/);
        assert.equal(Buffer.from(image.data, "base64").subarray(1, 4).toString(), "PNG");
        assert.deepEqual([file.uri, source.uri, source.name], ["https://example.org/map.csv", "https://example.org/atlas", "An atlas"]);
        await editor.load(session.id);
        assert.deepEqual(attached(), live, "what is loaded is what was live");
      }));
  });
}
