// A real agent with the human-in-the-loop middleware that waits for approval. Clients send a message, the same answer
// twice, one wrong answer of two, one answer of two, an edit. LangGraph's thread shows the result: its runs, its state, and
// how often each tool has run.

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { after, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { clientOf, GENERATIONS, readThread, SERVERS } from "./gateway.mjs";
import { isServed, Langgraph } from "./langgraph.mjs";
import { LOGS } from "./logs.mjs";
import { firstDifference, interruptIds, ofClient, ofThread } from "./thread.mjs";
import { startThreadway } from "./threadway.mjs";

const OPTIONS = { concurrency: 4, timeout: 600_000 }; // what hangs is noticed sooner, by its own limit
const KEPT = "threadway_answer:";
/** The calls of the root that have a result after both approvals. A tool's agent has results that the thread never gets. */
const APPROVED = { asking_tool: { call_task: 1 } };
const REASON = "no, write to nobody";

console.error = () => {}; // the client also throws these errors

// ---------------------------------------------------------------- the thread in LangGraph
class Judge {
  constructor(server, client) {
    Object.assign(this, { server, client, langgraph: new Langgraph(server) });
  }

  get path() {
    return `/threads/${this.client.threadId}`;
  }

  async runs() {
    return this.langgraph.get(`${this.path}/runs?limit=100`);
  }

  async state() {
    return (await readThread(this.server, this.client.threadId)).text;
  }

  async interrupts() {
    return interruptIds((await readThread(this.server, this.client.threadId)).state).sort();
  }

  /** How often each call was executed in the thread's whole history. Each execution makes a message with an id of its own. */
  async results() {
    const counts = {};
    const seen = new Set();
    for (const { values } of await this.langgraph.history(this.client.threadId)) {
      for (const { id, type, tool_call_id } of values.messages ?? []) {
        if (type !== "tool" || seen.has(id)) continue;
        seen.add(id);
        counts[tool_call_id] = (counts[tool_call_id] ?? 0) + 1;
      }
    }
    return counts;
  }

  /** Checks that a client's content is the thread's. */
  async same(client) {
    const { state } = await readThread(this.server, this.client.threadId);
    const difference = firstDifference(ofClient(client.messages), ofThread(state.values, client.threadId));
    assert.equal(difference, undefined, `the client's messages against the thread's: ${difference}`);
  }
}

// ---------------------------------------------------------------- the clients
/** Another client of the same thread with the same content, as a reloaded page or a second tab. */
function copy(Client, client, { pending = false } = {}) {
  const other = new Client(client.graph, { threadId: client.threadId });
  other.setMessages(structuredClone(client.messages));
  other.setState(structuredClone(client.state));
  if (pending) other.pendingInterrupts = structuredClone(client.pendingInterrupts);
  return other;
}

async function asked(Client, server, graph) {
  const client = new Client(graph);
  client.say("go");
  const { events } = await client.record();
  assert.equal(events.at(-1).outcome?.type, "interrupt");
  assert.equal(client.pendingInterrupts.length, 2);
  return { client, judge: new Judge(server, client) };
}

const ids = ({ events }) => (events.at(-1).outcome?.interrupts ?? []).map(({ id }) => id).sort();

function answer({ buildResumeArray }, client, payload = () => ({ approved: true })) {
  const answers = client.pendingInterrupts.map((pending) => [pending.id, { status: "resolved", payload: payload(pending) }]);
  return { resume: buildResumeArray(client.pendingInterrupts, Object.fromEntries(answers)) };
}

/** Waits for a condition that no event announces. */
async function until(isSo) {
  const deadline = Date.now() + 10_000;
  while (!(await isSo())) {
    assert.ok(Date.now() < deadline, "it did not happen");
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

function ended({ events, refused }, type) {
  assert.equal(refused, undefined, `the client refused the run: ${refused}`);
  const last = events.at(-1);
  assert.equal(last.type, "RUN_FINISHED", JSON.stringify(last));
  assert.equal(last.outcome?.type ?? "success", type, JSON.stringify(last));
}

// ---------------------------------------------------------------- the cases
function cases({ server, generation, Client, graph, rejecting }) {
  const approved = APPROVED[graph] ?? { call_e: 1, call_d: 1 };

  test("a message gets the question again, and changes nothing", async () => {
    const { client, judge } = await asked(Client, server, graph);
    const before = await judge.state();
    const other = copy(Client, client);
    other.say("and something else");
    const done = await other.record();
    ended(done, "interrupt");
    assert.deepEqual(ids(done), await judge.interrupts());
    assert.equal(await judge.state(), before);
    assert.equal((await judge.runs()).length, 1);
    await judge.same(other);
    // The client that gets the interrupt again can answer.
    ended(await other.record(answer(generation, other)), "success");
    assert.deepEqual(await judge.results(), approved);
    assert.equal((await judge.runs()).length, 2);
    await judge.same(other);
  });

  test("the same answer twice at once, and once more after", async () => {
    const { client, judge } = await asked(Client, server, graph);
    const [other, late] = [copy(Client, client, { pending: true }), copy(Client, client, { pending: true })];
    const resume = answer(generation, client);
    const both = await Promise.all([client.record(resume), other.record(resume)]);
    for (const done of both) ended(done, "success");
    ended(await late.record(resume), "success");
    assert.equal((await judge.runs()).length, 2);
    assert.deepEqual(await judge.results(), approved);
    for (const each of [client, other, late]) await judge.same(each);
  });

  test("a wrong answer among two is refused, and nothing is done", async () => {
    const { client, judge } = await asked(Client, server, graph);
    const before = await judge.state();
    const editedArgs = { path: "/tmp/y" }; // the call may be approved or rejected, not edited
    const wrong = answer(generation, client, ({ toolCallId }) => ({ approved: true, ...(toolCallId === "call_d" && { editedArgs }) }));
    const pending = structuredClone(client.pendingInterrupts);
    const done = await client.record(wrong);
    assert.match(String(done.refused), /409/);
    const { error, message } = JSON.parse(done.body);
    assert.equal(error, "cannot_resume");
    assert.match(message, /approve, reject/);
    assert.equal(await judge.state(), before);
    assert.equal((await judge.runs()).length, 1);
    client.pendingInterrupts = pending;
    ended(await client.record(answer(generation, client)), "success");
    assert.deepEqual(await judge.results(), approved);
  });

  /** A request with only these answers. The official client itself requires answers to all interrupts that it got. */
  const some = (entries) => ({
    resume: entries.map(([interrupt, payload]) => ({ interruptId: interrupt.id, status: "resolved", payload })),
  });

  test("some actions are answered now, and the rest later through another replica", async () => {
    const { client, judge } = await asked(Client, server, graph);
    const Replica = clientOf({ ...server, threadway: rejecting.url }, generation);
    const [email, file] = client.pendingInterrupts;
    const isBatch = graph !== "hitl_per_call";
    const before = await judge.state();

    const first = copy(Client, client);
    const kept = await first.record(some([[email, isBatch ? { approved: false, reason: REASON } : { approved: true }]]));
    ended(kept, "interrupt");
    assert.deepEqual(ids(kept), [file.id]);
    await judge.same(first);
    if (isBatch) {
      assert.equal(await judge.state(), before);
      assert.equal((await judge.runs()).length, 1);
      // A changed decision through another replica.
      const changed = copy(Replica, client);
      const editedArgs = { to: "b@example.com", body: "hi" };
      const done = await changed.record(some([[email, { approved: true, editedArgs }]]));
      ended(done, "interrupt");
      assert.deepEqual(ids(done), [file.id]);
    }
    // A client that connects later gets the open actions, and may answer them.
    const late = copy(Replica, client);
    const shown = await late.record();
    ended(shown, "interrupt");
    assert.deepEqual(ids(shown), [file.id]);
    ended(await late.record(answer(generation, late)), "success");
    assert.deepEqual(await judge.results(), approved);
    assert.equal((await judge.runs()).length, isBatch ? 2 : 3);
    await judge.same(late);
    if (!isBatch) return;
    if (graph === "asking_tool") return;
    const { state } = await readThread(server, client.threadId);
    const results = Object.fromEntries(state.values.messages.filter(({ type }) => type === "tool").map((result) => [result.tool_call_id, result]));
    assert.match(results.call_e.content, /sent to b@example.com/);
    assert.match(results.call_d.content, /deleted/);
    // The decision is deleted, and does not appear in the history.
    for (const { metadata } of [...(await judge.runs()), ...(await judge.langgraph.history(client.threadId))]) {
      for (const [key, value] of Object.entries(metadata)) if (key.startsWith(KEPT)) assert.equal(value, null);
    }
    const { metadata } = await judge.langgraph.get(judge.path);
    const keys = Object.keys(metadata).filter((key) => key.startsWith(KEPT));
    assert.equal(keys.length, 1);
    await until(async () => (await judge.langgraph.get(judge.path)).metadata[keys[0]] === null);
  });

  test("two clients answer different actions at once through two replicas", async () => {
    if (graph === "hitl_per_call") return;
    const { client, judge } = await asked(Client, server, graph);
    const Replica = clientOf({ ...server, threadway: rejecting.url }, generation);
    const [email, file] = client.pendingInterrupts;
    const [one, other] = [copy(Client, client), copy(Replica, client)];
    const both = await Promise.all([one.record(some([[email, { approved: true }]])), other.record(some([[file, { approved: true }]]))]);
    // The replica that saw both answers has sent them; the other client may have received the thread before.
    assert.ok(both.some(({ events }) => events.at(-1).outcome?.type !== "interrupt"));
    for (const { refused } of both) assert.equal(refused, undefined);
    assert.deepEqual(await judge.results(), approved);
    assert.equal((await judge.runs()).length, 2);
  });

  test("an edited message forks the thread before the question", async () => {
    const { client, judge } = await asked(Client, server, graph);
    const before = await judge.interrupts();
    const other = copy(Client, client);
    const [first] = other.messages;
    other.setMessages([{ ...first, content: JSON.stringify({ tools: false, tokens: 2 }) }]);
    ended(await other.record(), "success");
    assert.equal((await judge.runs()).length, 2);
    assert.notDeepEqual(await judge.interrupts(), before);
    assert.deepEqual(await judge.results(), {});
    await judge.same(other);
  });

  test("a message may reject the open calls", async () => {
    const { client, judge } = await asked(Client, server, graph);
    const Rejecting = clientOf({ ...server, threadway: rejecting.url }, generation);
    const other = copy(Rejecting, client);
    other.say(REASON);
    ended(await other.record(), "success");
    assert.equal((await judge.runs()).length, 2);
    await judge.same(other);
    if (graph === "asking_tool") return;
    const { state } = await readThread(server, client.threadId);
    const results = state.values.messages.filter(({ type }) => type === "tool");
    assert.equal(results.length, 2);
    for (const { content, status } of results) {
      assert.equal(status, "error");
      assert.ok(content.includes(REASON), content);
    }
    other.say({ tools: false, tokens: 1 });
    ended(await other.record(), "success");
    assert.equal((await judge.runs()).length, 3);
    await judge.same(other);
  });
}

/** On the Python server a graph may ask for each call separately. */
const GRAPHS = { Python: ["hitl", "hitl_per_call"], JavaScript: ["hitl"] };
const BELOW = ["asking_node", "asking_tool"]; // they ask below the root, with the newer client only

for (const server of SERVERS) {
  const config = fileURLToPath(new URL(`asked-${server.name}.toml`, LOGS));
  writeFileSync(config, 'on_message_while_interrupted = "reject"\n');
  const rejecting = await startThreadway(`asked-${server.name}`, server.langgraph, "--config", config);
  after(rejecting.stop);
  describe(`on the ${server.name} server`, { concurrency: GENERATIONS.length }, () => {
    for (const generation of GENERATIONS) {
      const graphs = [...GRAPHS[server.graphs], ...(generation === GENERATIONS[0] ? BELOW : [])];
      for (const graph of graphs.filter((graph) => isServed(server, graph))) {
        const Client = clientOf(server, generation);
        describe(`${graph}, with client ${generation.version}`, OPTIONS, () => cases({ server, generation, Client, graph, rejecting }));
      }
    }
  });
}
