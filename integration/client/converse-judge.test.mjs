// The judge of `converse` on hand-made threads: each broken one is blamed for its fault and for no other, and no correct one is.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { judge, KINDS, openCalls, pairFault, plain } from "./converse-judge.mjs";

// ---------------------------------------------------------------- threads by hand
const human = (id, text = `plain ${id}`, more = {}) => ({ type: "human", id, content: text, ...more });
const ai = (id, text = `Answer ${id}`, calls = []) => ({ type: "ai", id, content: text, tool_calls: calls.map(([call, name]) => ({ id: call, name, args: {} })) });
const result = (id, callId, text = "pong", more = {}) => ({ type: "tool", id, content: text, tool_call_id: callId, ...more });
const summary = (id) => human(id, "Here is a summary", { additional_kwargs: { lc_source: "summarization" } });
const page = (id, call) => ai(id, "Let me see.", [[call, "confirm"]]);

const STATE = { count: 1, log: ["a"], note: "n", doc: { big: "large", small: "0" } };
const COUNTED = { ...STATE, count: 2, log: ["a", "b"] };

/** A thread whose checkpoints come one after the other; the last one is its state. */
function thread(...states) {
  const checkpoints = new Map();
  const ever = new Set();
  let parent;
  for (const [n, { messages, values = STATE }] of states.entries()) {
    const id = `c${n}`;
    checkpoints.set(id, { id, parent, messages: messages.map(plain), values });
    for (const message of messages) ever.add(message.id);
    parent = id;
  }
  const { messages, values = STATE, interrupts = [] } = states.at(-1) ?? { messages: [], values: {} };
  return { head: parent, messages: messages.map(plain), values, raw: { messages, ...values }, interrupts, checkpoints, fresh: [], runs: [], errors: [], ever };
}

/** The same thread after a step, which made these checkpoints after the one named `from`. */
function then(before, states, { from = before.head, runs = [], errors = [] } = {}) {
  if (states.length === 0) return { ...before, fresh: [], runs, errors };
  const made = [];
  let parent = from;
  for (const [n, { messages, values = COUNTED }] of states.entries()) {
    made.push({ id: `d${n}`, parent, messages: messages.map(plain), values });
    parent = `d${n}`;
  }
  const { messages, values = COUNTED, interrupts = [] } = states.at(-1);
  const checkpoints = new Map([...before.checkpoints, ...made.map((checkpoint) => [checkpoint.id, checkpoint])]);
  return { head: parent, messages: messages.map(plain), values, raw: { messages, ...values }, interrupts, checkpoints, fresh: made, runs, errors, ever: before.ever };
}

/** What a client sends: in the judge's form. */
const sent = (...messages) => messages.map(plain);
/** A client's messages, as the official client holds them. */
const held = (...messages) =>
  messages.map(({ type, id, content, tool_calls = [], tool_call_id: toolCallId, status }) => ({
    id,
    role: { human: "user", ai: "assistant", tool: "tool" }[type],
    content,
    ...(tool_calls.length > 0 && { toolCalls: tool_calls.map((call) => ({ id: call.id, type: "function", function: { name: call.name, arguments: "{}" } })) }),
    ...(toolCallId && { toolCallId }),
    ...(status === "error" && { error: content }),
  }));

const kindsOf = (...asked) => [...new Set(judge(...asked).map(({ kind }) => kind))].sort();
const right = (name, ...asked) => test(`right: ${name}`, () => assert.deepEqual(judge(...asked), []));
const wrong = (name, kinds, ...asked) => {
  for (const kind of kinds) assert.ok(kind in KINDS, kind);
  test(`wrong: ${name}`, () => assert.deepEqual(kindsOf(...asked), [...kinds].sort()));
};

// ---------------------------------------------------------------- conversations
describe("pairs", () => {
  const fault = (...messages) => pairFault(messages.map(plain));
  test("a provider accepts", () => {
    assert.equal(fault(human("u"), ai("a", "", [["x", "ping"], ["y", "ping"]]), result("1", "y"), result("2", "x"), ai("b")), undefined);
    assert.equal(fault(human("u"), page("a", "x")), undefined, "a call that waits at the end");
    assert.equal(fault(), undefined);
  });
  test("a provider refuses", () => {
    assert.match(fault(result("1", "x")), /does not wait/);
    assert.match(fault(human("u"), page("a", "x"), human("v"), result("1", "x")), /follows the call x/);
    assert.match(fault(page("a", "x"), result("1", "x"), result("2", "x")), /second result/);
    assert.match(fault(page("a", "x"), result("1", "x"), ai("b"), result("2", "x")), /second result/);
    assert.match(fault(page("a", "x"), result("1", "y")), /does not wait/);
    assert.match(fault(ai("a", "", [["x", "ping"], ["y", "ping"]]), result("1", "x"), ai("b")), /follows the call y/);
  });
  test("open calls", () => {
    assert.deepEqual(openCalls([human("u"), ai("a", "", [["x", "confirm"], ["y", "locate"]]), result("1", "x")].map(plain)), [{ id: "y", name: "locate" }]);
    assert.deepEqual(openCalls([page("a", "x"), human("u")].map(plain)), []);
    assert.deepEqual(openCalls([]), []);
  });
});

// ---------------------------------------------------------------- steps
const one = thread({ messages: [] }, { messages: [human("u1"), ai("a1")] });
const talk = [human("u1"), ai("a1")];
const says = { adds: [{ id: "u2", text: "plain u2" }], sent: sent(...talk, human("u2")) };
const answered = [...talk, human("u2"), ai("a2")];

describe("a new message", () => {
  right("it is answered", one, then(one, [{ messages: [...talk, human("u2")] }, { messages: answered }]), says);
  right("the graph removes everything after it", one, then(one, [{ messages: [...talk, human("u2")] }, { messages: [] }]), says);
  right("the graph summarises what was before it", one, then(one, [{ messages: [...talk, human("u2")] }, { messages: [summary("s"), human("u2"), ai("a2")] }]), says);
  wrong("it is not there", ["missing-message"], one, then(one, [{ messages: [...talk, ai("a2")] }]), says);
  wrong("it is there twice", ["stray", "twice"], one, then(one, [{ messages: [...talk, human("u2"), human("u2-", "plain u2"), ai("a2")] }]), says);
  wrong("it is there with another text", ["changed"], one, then(one, [{ messages: [...talk, human("u2", "plain other"), ai("a2")] }]), says);
  wrong("the run began before the last answer", ["fork"], one, then(one, [{ messages: [human("u2"), ai("a2")], }], { from: "c0" }), says);
  wrong("the model refused", ["refused"], one, then(one, [{ messages: [...talk, human("u2")] }], { runs: [{ id: "r", status: "error" }], errors: ["Refused('400: no')"] }), says);
  wrong("the run failed otherwise", ["failed-run"], one, then(one, [{ messages: [...talk, human("u2")] }], { runs: [{ id: "r", status: "error" }], errors: ["boom"] }), says);
  wrong("an old answer has another text", ["changed"], one, then(one, [{ messages: [human("u1"), ai("a1", "other"), human("u2"), ai("a2")] }]), says);
});

const removed = thread({ messages: [] }, { messages: talk }, { messages: [...talk, human("u2"), ai("a2")] }, { messages: [human("u2"), ai("a2")] });
const later = { adds: [{ id: "u3", text: "plain u3" }], sent: sent(...talk, human("u3")) };

describe("a stale tab", () => {
  const rest = [human("u2"), ai("a2")];
  right("only the new message goes up", removed, then(removed, [{ messages: [...rest, human("u3"), ai("a3")] }]), later);
  wrong("a removed message is back", ["resurrected"], removed, then(removed, [{ messages: [...rest, human("u1"), human("u3"), ai("a3")] }]), later);
  wrong("a removed message was back for a while", ["resurrected"], removed, then(removed, [{ messages: [...rest, human("u1"), human("u3")] }, { messages: [summary("s"), human("u3"), ai("a3")] }]), later);
  const client = { threadId: "t", view: "quiet", messages: [], state: COUNTED, isStale: true };
  const back = (values) => then(one, [{ messages: answered, values }]);
  wrong("its older count", ["stale-state"], one, back({ ...COUNTED, count: 1 }), says, { client });
  wrong("its older log, appended", ["stale-state"], one, back({ ...COUNTED, log: ["a", "a", "b"] }), says, { client });
  wrong("its older note", ["stale-state"], one, back({ ...COUNTED, note: "old" }), says, { client });
  right("nothing of its state", one, back(COUNTED), says, { client });
});

describe("the person's change of the state", () => {
  const change = { note: "new" };
  right("it is there", one, then(one, [{ messages: answered, values: { ...COUNTED, note: "new" } }]), { ...says, change });
  wrong("it is not there", ["missing-change"], one, then(one, [{ messages: answered }]), { ...says, change });
  const inside = { small: "5" };
  right("inside a member", one, then(one, [{ messages: answered, values: { ...COUNTED, doc: { big: "large", small: "5" } } }]), { ...says, change: inside });
  wrong("the large member beside it is gone", ["state"], one, then(one, [{ messages: answered, values: { ...COUNTED, doc: { small: "5" } } }]), { ...says, change: inside });
});

const two = thread({ messages: [] }, { messages: [human("u1")] }, { messages: talk }, { messages: [...talk, human("u2")], values: COUNTED }, { messages: answered, values: COUNTED });

describe("an edit, and again", () => {
  const edit = { target: { id: "u2", text: "edited u2", isEdit: true }, sent: sent(...talk, human("u2", "edited u2")) };
  const edited = [{ messages: [...talk, human("u2", "edited u2"), ai("a3")] }];
  right("the thread forks before it", two, then(two, edited, { from: "c2" }), edit);
  wrong("the edit replaces the message, and the answer is appended", ["changed", "missing-edit", "no-fork"], two, then(two, [{ messages: [...talk, human("u2", "edited u2"), ai("a2"), ai("a3")], values: { ...COUNTED, count: 3, log: ["a", "b", "c"] } }]), edit);
  wrong("nothing happened", ["missing-edit", "no-fork"], two, then(two, []), edit);
  wrong("an earlier answer is gone", ["wrong-fork"], two, then(two, [{ messages: [human("u2", "edited u2"), ai("a3")] }], { from: "c0" }), edit);
  wrong("the old answer is still there", ["resurrected"], two, then(two, [{ messages: [...talk, human("u2", "edited u2"), ai("a2"), ai("a3")] }], { from: "c2" }), edit);
  wrong("the fork has what the later run counted", ["state"], two, then(two, [{ ...edited[0], values: { ...COUNTED, count: 3 } }], { from: "c2" }), edit);
  const again = { target: { id: "u2", text: "plain u2", isEdit: false }, sent: sent(...talk, human("u2")) };
  right("asked again", two, then(two, [{ messages: [...talk, human("u2"), ai("a3")] }], { from: "c2" }), again);
  wrong("a second answer behind the first", ["no-fork"], two, then(two, [{ messages: [...answered, ai("a3")], values: { ...COUNTED, count: 3, log: ["a", "b", "c"] } }]), again);
  const kept = { target: { id: "u1", text: "edited u1", isEdit: true }, sent: sent(human("u1", "edited u1"), ai("a1"), human("u2"), ai("a2"), human("u3")), adds: [{ id: "u3", text: "plain u3" }] };
  const forkOf = (...messages) => then(two, [{ messages }], { from: "c0" });
  right("what follows the edit is sent, and the people's messages are kept", two, forkOf(human("u1", "edited u1"), human("u2"), human("u3"), ai("a3")), kept);
  right("what follows the edit is sent, and is not kept", two, forkOf(human("u1", "edited u1"), human("u3"), ai("a3")), kept);
  wrong("the new message behind the edit is lost", ["missing-message"], two, forkOf(human("u1", "edited u1"), human("u2"), ai("a3")), kept);
  right("the edit of a removed message changes nothing", removed, then(removed, []), { target: { id: "u1", text: "edited u1", isEdit: true }, sent: sent(human("u1", "edited u1")) });
});

const asks = [human("u1", "page u1"), page("a1", "x")];
const waits = thread({ messages: [] }, { messages: asks });
const done = [...asks, result("t1", "x", "yes"), ai("a2")];
const closed = thread({ messages: [] }, { messages: asks }, { messages: done });

describe("the client's tools", () => {
  const answers = { results: [{ id: "t1", callId: "x", text: "yes" }], sent: sent(...asks, result("t1", "x", "yes")) };
  right("an answer", waits, then(waits, [{ messages: [...asks, result("t1", "x", "yes")] }, { messages: done }]), answers);
  wrong("an answer that does not arrive", ["missing-result"], waits, then(waits, []), answers);
  wrong("an answer with another text", ["changed"], waits, then(waits, [{ messages: [...asks, result("t1", "x", "no"), ai("a2")] }]), answers);
  const failed = { results: [{ id: "t1", callId: "x", text: "", error: "no camera" }], sent: sent(...asks, result("t1", "x", "")) };
  const failure = (text, more) => then(waits, [{ messages: [...asks, result("t1", "x", text, more), ai("a2")] }]);
  right("a failure with its reason", waits, failure("no camera", { status: "error" }), failed);
  wrong("a failure without its reason", ["error-text"], waits, failure("", { status: "error" }), failed);
  wrong("a failure that looks like a success", ["error-text"], waits, failure("no camera"), failed);
  const second = { results: [{ id: "t2", callId: "x", text: "no" }], sent: sent(...asks, result("t2", "x", "no")) };
  right("a second answer changes nothing", closed, then(closed, []), second);
  wrong("a second answer is stored", ["needless-run", "pairs", "stray-result"], closed, then(closed, [{ messages: [...done, result("t2", "x", "no")] }]), second);
  wrong("a second answer makes the model speak again", ["needless-run"], closed, then(closed, [{ messages: [...done, ai("a3")] }]), second);
  const goesOn = { adds: [{ id: "u2", text: "plain u2" }], sent: sent(...asks, human("u2")) };
  const closing = result("e", "x", "The person went on.", { status: "error" });
  right("the person goes on, and the call is closed with an error", waits, then(waits, [{ messages: [...asks, closing, human("u2")] }, { messages: [...asks, closing, human("u2"), ai("a2")] }]), goesOn);
  wrong("the person goes on, and the call stays open", ["pairs"], waits, then(waits, [{ messages: [...asks, human("u2")] }]), goesOn);
  const past = [...asks, closing, human("u2"), ai("a2")];
  const went = thread({ messages: [] }, { messages: asks }, { messages: past });
  const changes = { target: { id: "u2", text: "edited u2", isEdit: true }, sent: sent(...asks, closing, human("u2", "edited u2")) };
  right("the message behind a closed call is edited, and the call is closed again", went, then(went, [{ messages: [...asks, closing, human("u2", "edited u2"), ai("a3")] }], { from: "c1" }), changes);
  wrong("the message behind a closed call is edited, and the call is open again", ["pairs"], went, then(went, [{ messages: [...asks, human("u2", "edited u2"), ai("a3")] }], { from: "c1" }), changes);
  wrong("the call is closed as if it had succeeded", ["stray-result"], waits, then(waits, [{ messages: [...asks, { ...closing, status: "success" }, human("u2"), ai("a2")] }]), goesOn);
  const edit = { target: { id: "u1", text: "edited u1", isEdit: true }, sent: sent(human("u1", "edited u1"), page("a1", "x"), result("t1", "x", "yes"), ai("a2")) };
  wrong("an edit takes a result along", ["pairs", "resurrected"], closed, then(closed, [{ messages: [human("u1", "edited u1"), result("t1", "x", "yes"), ai("a3")] }], { from: "c0" }), edit);
});

describe("a question", () => {
  const asked = thread({ messages: [] }, { messages: [human("u1", "ask u1")], interrupts: ["i"] });
  const step = { adds: [{ id: "u2", text: "plain u2" }], sent: sent(human("u1", "ask u1"), human("u2")) };
  right("a message leaves it open", asked, then(asked, []), step);
  wrong("a message runs into it", ["asked-changed"], asked, then(asked, [{ messages: [human("u1", "ask u1"), human("u2"), ai("a1")] }]), step);
  right("an answer goes on", asked, then(asked, [{ messages: [human("u1", "ask u1"), ai("a1")], values: STATE }]), { isResume: true, sent: sent(human("u1", "ask u1")) });
  wrong("a second answer goes on", ["needless-run"], one, then(one, [{ messages: [...talk, ai("a2")] }]), { isResume: true, isRepeat: true, sent: sent(...talk) });
});

describe("what was redacted", () => {
  const secret = thread({ messages: [] }, { messages: [human("u1", "plain u1 bob@example.com")] }, { messages: [human("u1", "plain u1 [REDACTED]"), ai("a1")] });
  const step = { adds: [{ id: "u2", text: "plain u2 eve@example.com" }], sent: sent(human("u1", "plain u1 bob@example.com"), ai("a1"), human("u2", "plain u2 eve@example.com")) };
  const after = (first, second = "plain u2 [REDACTED]") => [{ messages: [human("u1", first), ai("a1"), human("u2", "plain u2 eve@example.com")] }, { messages: [human("u1", first), ai("a1"), human("u2", second), ai("a2")] }];
  right("it stays so, and the new one is redacted", secret, then(secret, after("plain u1 [REDACTED]")), step, { redacts: true });
  wrong("it is back", ["changed", "redacted-back"], secret, then(secret, after("plain u1 bob@example.com").slice(0, 1)), step, { redacts: true, free: new Set(["eve@example.com"]) });
  wrong("the model quotes it", ["redacted-back"], secret, then(secret, [{ messages: [human("u1", "plain u1 [REDACTED]"), ai("a1"), human("u2", "plain u2 eve@example.com"), ai("a2", "bob@example.com")] }]), step, { redacts: true, free: new Set(["eve@example.com"]) });
  const quiet = then(secret, [{ messages: [human("u1", "plain u1 bob@example.com")] }, { messages: [human("u1", "plain u1 [REDACTED]"), human("u2", "plain u2 eve@example.com"), ai("a2")] }], { from: "c0" });
  wrong("a client that does not know it forks the thread", ["fork", "redacted-back", "resurrected"], secret, quiet, step, { redacts: true, free: new Set(["eve@example.com"]) });
});

describe("a lost thread", () => {
  const lost = thread();
  const talked = [human("u1"), ai("a1", "Let me see.", [["x", "ping"]]), result("t1", "x"), ai("a2")];
  const step = { adds: [{ id: "u2", text: "plain u2" }], sent: sent({ type: "ai", id: "w", content: "Welcome" }, ...talked, human("u2")), welcome: "w", isLost: true };
  const whole = then(lost, [{ messages: [...talked, human("u2")] }, { messages: [...talked, human("u2"), ai("a3")] }]);
  const newest = then(lost, [{ messages: [human("u2")] }, { messages: [human("u2"), ai("a3")] }]);
  for (const lostThread of ["either", "restore"]) right(`all of it goes up (${lostThread})`, lost, whole, step, { lostThread });
  for (const lostThread of ["either", "newest"]) right(`its newest turn goes up (${lostThread})`, lost, newest, step, { lostThread });
  wrong("all of it goes up, and only the newest turn may", ["restored"], lost, whole, step, { lostThread: "newest" });
  wrong("its newest turn goes up, and all must", ["restored"], lost, newest, step, { lostThread: "restore" });
  wrong("a result without its call goes up", ["pairs", "restored"], lost, then(lost, [{ messages: [human("u1"), result("t1", "x"), human("u2")] }]), step);
  wrong("the greeting goes up", ["restored", "stray"], lost, then(lost, [{ messages: [ai("w", "Welcome"), human("u2"), ai("a3")] }]), step, { lostThread: "newest" });
  const atEnd = { ...step, sent: sent(human("u1"), ai("a1", "Let me see.", [["x", "ping"]]), ai("a2"), result("t1", "x"), human("u2")) };
  right("a result goes up behind its call, wherever the client has it", lost, whole, { ...atEnd, welcome: undefined }, { lostThread: "restore" });
  wrong("the conversation is in another order", ["restored"], lost, then(lost, [{ messages: [human("u2"), human("u1"), ai("a1", "Let me see.", [["x", "ping"]]), result("t1", "x"), ai("a2")] }]), step);
  const open = { ...step, sent: sent(human("u1"), page("a1", "x"), human("u2")), welcome: undefined };
  right("a call without a result stays out", lost, then(lost, [{ messages: [human("u1"), human("u2"), ai("a3")] }]), open, { lostThread: "restore" });
  right("a call without a result stays out, and its text does not", lost, then(lost, [{ messages: [human("u1"), ai("a1", "Let me see."), human("u2"), ai("a3")] }]), open, { lostThread: "restore" });
});

describe("a stopped run, asked again at once", () => {
  const step = { ...says, isStopped: true };
  const counted = { ...STATE, count: 3, log: ["a", "b", "c"] };
  right("one answer", one, then(one, [{ messages: answered, values: counted }], { runs: [{ id: "r", status: "error" }] }), step);
  wrong("two answers", ["answers"], one, then(one, [{ messages: [...answered, ai("a3")], values: counted }]), step);
  wrong("no answer", ["answers"], one, then(one, [{ messages: [...talk, human("u2")] }]), step);
  wrong("the request was refused", ["busy"], one, then(one, [{ messages: answered }]), { ...step, error: "409 thread_busy" });
});

describe("the client that ran", () => {
  const after = then(one, [{ messages: answered }]);
  const client = { threadId: "t", view: "full", messages: held(...answered), state: COUNTED };
  right("it holds the thread", one, after, says, { client });
  right("with its greeting", one, after, { ...says, welcome: "w" }, { client: { ...client, messages: [{ id: "w", role: "assistant", content: "Welcome" }, ...held(...answered)] } });
  wrong("it lacks the answer", ["client-messages"], one, after, says, { client: { ...client, messages: held(...talk, human("u2")) } });
  wrong("it has another state", ["client-state"], one, after, says, { client: { ...client, state: STATE } });
  right("it gets no state", one, after, says, { client: { ...client, view: "stateless", state: {} } });
  right("it gets no messages", one, after, says, { client: { ...client, view: "quiet", messages: [] } });
  wrong("it got an error", ["client-error"], one, after, { ...says, error: "502 bad gateway" }, { client });
});
