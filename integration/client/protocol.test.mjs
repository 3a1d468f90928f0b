// Runs that a client of LangGraph's newer protocol starts (`POST /threads/{id}/commands`), watched through a threadway. What
// each viewer holds in the end is compared with LangGraph's thread.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { describe, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { clientOf, GENERATIONS, readThread, SERVERS } from "./gateway.mjs";
import { checkLegal, same } from "./judge.mjs";
import { Langgraph } from "./langgraph.mjs";
import { interruptIds, ofClient, ofThread } from "./thread.mjs";
import { KINDS, Viewer } from "./viewers.mjs";

const OPTIONS = { concurrency: 4, timeout: 120_000 }; // for a suite and for each test
const MID_RUN_MS = 700; // a run lasts two seconds
const words = Array.from({ length: 20 }, (_, i) => `word${i} `);

/** The last event of each graph's run, as `type/outcome`. */
const GRAPHS = {
  text: "RUN_FINISHED",
  agent: "RUN_FINISHED",
  subgraphs: "RUN_FINISHED",
  todos: "RUN_FINISHED",
  interrupt_child: "RUN_FINISHED/interrupt",
  failing: "RUN_ERROR",
};

class Commands extends Langgraph {
  #id = 0;

  async command(threadId, method, params) {
    const answer = await this.post(`/threads/${threadId}/commands`, { id: ++this.#id, method, params });
    assert.equal(answer.type, "success", JSON.stringify(answer));
    return answer.result;
  }

  start(threadId, graph, script) {
    const input = { messages: [{ role: "user", id: randomUUID(), content: JSON.stringify(script) }] };
    return this.command(threadId, "run.start", { assistant_id: graph, input });
  }
}

const ending = ({ type, outcome }) => (outcome?.type === "interrupt" ? `${type}/interrupt` : type);

/** Checks that a viewer's stream was legal, and that the viewer holds the thread. */
async function checkHeld(server, viewer) {
  await checkLegal(viewer);
  const { values } = (await readThread(server, viewer.threadId)).state;
  const { messages, state } = viewer.held.at(-1);
  same(ofClient(messages), ofThread(values, viewer.threadId), `the messages of ${viewer.kind} against the thread's`);
  const { messages: _, ...rest } = values;
  same(state, rest, `the state of ${viewer.kind} against the thread's`);
}

for (const server of SERVERS) {
  const langgraph = new Commands(server);

  describe(`runs of the newer protocol, ${server.name}`, OPTIONS, () => {
    for (const [graph, end] of Object.entries(GRAPHS)) {
      test(`${graph}: seen from its start, from its middle, and after its end`, async () => {
        const threadId = await langgraph.thread(graph);
        await langgraph.start(threadId, graph, { words, delay: 0.08, fail_after: 15 });
        const kinds = Object.keys(KINDS).filter((kind) => kind !== "follow");
        const watched = [0, MID_RUN_MS].flatMap((ms) =>
          kinds.map(async (kind) => {
            await pause(ms);
            return new Viewer(server.threadway, graph, threadId, kind).watch();
          }),
        );
        await langgraph.settled(threadId);
        const live = await Promise.all(watched);
        const late = await Promise.all(kinds.map((kind) => new Viewer(server.threadway, graph, threadId, kind).watch()));
        for (const viewer of live) {
          assert.equal(ending(viewer.frames.at(-1).event), end, viewer.kind);
          const tokens = viewer.frames.filter(({ event }) => event.type === "TEXT_MESSAGE_CONTENT").length;
          if (graph === "text") assert.ok(tokens > 3, `${viewer.kind} has seen ${tokens} tokens`);
        }
        for (const viewer of [...live, ...late]) await checkHeld(server, viewer);
      });
    }

    for (const answer of ["by the gateway", "by the newer protocol"]) {
      test(`a question, answered ${answer}, for a follower too`, async () => {
        const graph = "interrupt_child";
        const threadId = await langgraph.thread(graph);
        await langgraph.start(threadId, graph, { words, delay: 0.05 });
        const follower = new Viewer(server.threadway, graph, threadId, "follow");
        const followed = follower.watch();
        await follower.until("the question", ({ frames }) => frames.some(({ event }) => ending(event) === "RUN_FINISHED/interrupt"));
        const [interruptId] = interruptIds((await readThread(server, threadId)).state);
        if (answer === "by the gateway") {
          const client = new (clientOf(server, GENERATIONS[0]))(graph, { threadId });
          const done = await client.record({ resume: [{ interruptId, status: "resolved", payload: "yes" }] });
          assert.equal(ending(done.events.at(-1)), "RUN_FINISHED");
        } else {
          await langgraph.command(threadId, "input.respond", { interrupt_id: interruptId, response: "yes", namespace: [] });
        }
        await follower.until("the answer's run", ({ held, frames }) => held.length > 1 && ending(frames.at(-1).event) === "RUN_FINISHED");
        follower.finish();
        await followed;
        await checkHeld(server, follower);
      });
    }
  });
}
