// Judges one step of a session of `converse`: the thread before it and after it, what the person did, and what the client
// that ran holds. It reads LangGraph's checkpoints, and knows nothing of threadway's rules.

import { firstDifference, ofClient, ofThread, stateOf } from "./thread.mjs";

export const PAGE_TOOLS = ["confirm", "locate"];
export const MAIL = /[\w.-]+@example\.com/g;

/** What may be wrong. A sweep counts them, and may accept some. */
export const KINDS = {
  pairs: "a tool message does not follow its call, a call has two results, or something else follows a call",
  twice: "a message is in the thread twice",
  refused: "the model refused the conversation",
  "failed-run": "a run failed",
  "client-error": "the client got an error",
  busy: "the request was refused because the thread was busy",
  fork: "the thread was forked, and nobody changed an old message",
  "no-fork": "an old message was changed or asked again, and the thread was not forked before it",
  "wrong-fork": "the thread was forked at another place",
  resurrected: "a message that the graph had removed, or that the fork had left behind, is back",
  "redacted-back": "a text that the graph had redacted is back",
  stray: "the gateway added a message that the person did not send",
  "stray-result": "the gateway added a result for a call that was not open",
  "missing-message": "the person's message is not in the thread",
  "missing-edit": "the edit is not in the thread",
  "missing-result": "the result of an open call is not in the thread",
  "error-text": "the result of a failed tool does not say why",
  changed: "a message has another content",
  "needless-run": "the thread went on, though nothing was to be done",
  answers: "one message has no answer, or several",
  "asked-changed": "a message without an answer changed a thread that waits for one",
  restored: "a lost thread was not given the conversation in the expected form",
  state: "the state is not what the graph and the person made of it",
  "stale-state": "a tab that did not know the newest state changed it back",
  "missing-change": "the person's change of the state is not in the thread",
  "client-messages": "the client that ran does not hold the thread's messages",
  "client-state": "the client that ran does not hold the thread's state",
};

// ---------------------------------------------------------------- messages
/** A LangChain message in the judge's form. */
export function plain(message) {
  const { content } = message;
  const text = Array.isArray(content) ? content.map((block) => (typeof block === "string" ? block : (block.text ?? ""))).join("") : (content ?? "");
  const type = { AIMessageChunk: "ai", assistant: "ai", user: "human" }[message.type ?? message.role] ?? message.type ?? message.role;
  return {
    id: message.id,
    type,
    text,
    calls: (message.tool_calls ?? []).map(({ id, name }) => ({ id, name })),
    callId: message.tool_call_id,
    isError: message.status === "error",
    isSummary: message.additional_kwargs?.lc_source === "summarization",
  };
}

/** The calls that wait at the end of a conversation. */
export function openCalls(messages) {
  const last = messages.findLastIndex(({ type }) => type === "ai");
  const rest = messages.slice(last + 1);
  if (last < 0 || rest.some(({ type }) => type !== "tool")) return [];
  return messages[last].calls.filter(({ id }) => !rest.some(({ callId }) => callId === id));
}

/** What a provider refuses, but for calls that wait at the end. */
export function pairFault(messages) {
  let waiting = [];
  const answered = new Set();
  for (const { id, type, callId, calls } of messages) {
    if (type === "tool") {
      if (answered.has(callId)) return `message ${id} is a second result of ${callId}`;
      if (!waiting.includes(callId)) return `message ${id} is a result of ${callId}, which does not wait for it`;
      waiting = waiting.filter((call) => call !== callId);
      answered.add(callId);
      continue;
    }
    if (waiting.length > 0) return `message ${id} follows the call ${waiting[0]}, which has no result`;
    if (type === "ai") waiting = calls.map((call) => call.id);
  }
  return undefined;
}

/** An id, or a person's text, that is there twice. */
export function twiceFault(messages) {
  const seen = new Set();
  for (const { id, type, text, isSummary } of messages) {
    const keys = type === "human" && !isSummary ? [id, `the text ${JSON.stringify(text.split(" ")[1] ?? text)}`] : [id];
    for (const key of keys) {
      if (seen.has(key)) return `${key} is in the thread twice`;
      seen.add(key);
    }
  }
  return undefined;
}

const idsOf = (messages) => new Set(messages.map(({ id }) => id));
const mailsIn = (text) => text.match(MAIL) ?? [];

// ---------------------------------------------------------------- the thread's history
/** The new checkpoints that lead to the thread's newest one, the oldest first, and the known one from which they go on. */
export function chainOf(before, after) {
  const fresh = new Map(after.fresh.map((checkpoint) => [checkpoint.id, checkpoint]));
  const chain = [];
  let id = after.head;
  while (fresh.has(id)) {
    chain.unshift(fresh.get(id));
    id = fresh.get(id).parent;
  }
  return { chain, base: before.checkpoints.get(id) };
}

/** The oldest checkpoint of the thread's present history that has a message, and the one before it. */
function arrivalOf(before, messageId) {
  let arrival;
  let id = before.head;
  for (; before.checkpoints.has(id); id = before.checkpoints.get(id).parent) {
    const checkpoint = before.checkpoints.get(id);
    if (checkpoint.messages.some((message) => message.id === messageId)) arrival = checkpoint;
  }
  return { arrival, earlier: before.checkpoints.get(arrival?.parent) };
}

// ---------------------------------------------------------------- the verdict
/**
 * The faults of a step, `[{ kind, text }]`.
 *
 * `before`, `after`: `{ head, messages, values, interrupts, checkpoints, fresh, runs, errors, ever }`, where `checkpoints`
 * are all that were known by then, and `fresh` those of this step.
 * `step`: what the person did.
 * - `adds`: new messages, `{ id, text }`.
 * - `target`: an old message that was edited (`isEdit`) or asked again, `{ id, text, isEdit }`.
 * - `results`: results of the client's tools, `{ id, callId, text, error }`.
 * - `change`: of the state, `{ note }` or `{ small }`.
 * - `sent`: the client's conversation as it was sent, in the judge's form; `welcome`: the id of a greeting in it.
 * - `isLost`: the server had lost the thread; `wasLost`: now or earlier. `isResume`: the step answers a question; `isRepeat`: which was answered before.
 * - `isStopped`: the step stops a run and asks again at once; `error`: what the client got. `isForeign`: the step
 *   has no client. `isUncompared`: the client may have been refused, and holds what it held.
 * `client`: what the client that ran holds, `{ messages, state, view, isStale }`.
 * `free`: mail addresses that the graph itself would not have redacted.
 */
export function judge(before, after, step, { client, redacts = false, free = new Set(), lostThread = "either" } = {}) {
  const faults = [];
  const fault = (kind, text) => faults.push({ kind, text });
  const { adds = [], target, results = [], change = {}, sent = [], isLost = false } = step;
  const wasAsked = before.interrupts.length > 0;
  const waiting = openCalls(before.messages);
  const { chain, base } = chainOf(before, after);
  const isForked = before.head !== undefined && chain.length > 0 && base?.id !== before.head;
  const known = idsOf(base?.messages ?? (isForked ? [] : before.messages));
  const sentIds = idsOf(sent);

  // (a) Every conversation that a model may have seen is one that providers accept.
  const conversations = [...after.fresh.map(({ messages }) => messages), after.messages];
  const broken = conversations.map(pairFault).find(Boolean);
  if (broken) fault("pairs", broken);
  const twice = conversations.map(twiceFault).find(Boolean);
  if (twice) fault("twice", twice);
  const failed = after.runs.filter(({ id, status }) => status === "error" && !before.runs.some((run) => run.id === id));
  const refused = after.errors.find((text) => text.includes("400:"));
  if (refused && (failed.length > 0 || !step.isStopped)) fault("refused", refused);
  else if (failed.length > 0 && !step.isStopped) fault("failed-run", after.errors.join("; ") || `run ${failed[0].id}`);
  if (step.error && faults.length === 0) fault(step.error.includes("thread_busy") ? "busy" : "client-error", step.error);

  // (c), (d) A fork is where a person has changed something, and nowhere else.
  const isKnownTarget = target && before.messages.some(({ id }) => id === target.id);
  const wasEverThere = (id) => before.ever.has(id);
  if (!target && isForked) fault("fork", `the run began at ${base?.id ?? "nothing"}, not at ${before.head}`);
  if (isKnownTarget) {
    const place = before.messages.findIndex(({ id }) => id === target.id);
    const { arrival, earlier } = arrivalOf(before, target.id);
    if (!isForked) {
      const later = before.messages.slice(place + 1);
      if (later.length > 0 || target.isEdit) fault("no-fork", `${later.length} messages after ${target.id} are still there`);
    } else if (arrival) {
      const older = arrival.messages.slice(0, arrival.messages.findIndex(({ id }) => id === target.id));
      const cameBefore = idsOf(earlier?.messages ?? []);
      const missing = older.filter(({ id }) => cameBefore.has(id) && !known.has(id));
      if (missing.length > 0) fault("wrong-fork", `${missing.map(({ id }) => id)} came before ${target.id}, and are gone`);
      if (known.has(target.id)) fault("wrong-fork", `the fork began after ${target.id}`);
    }
  }

  // (b) What is added is what the person sent, or what the graph made.
  const targetPlace = sent.findIndex(({ id }) => id === target?.id);
  const lastKnown = sent.findLastIndex(({ id }) => wasEverThere(id));
  const isMine = (id) => adds.some((add) => add.id === id) || id === target?.id;
  const isNewFromClient = (id) => sentIds.has(id) && (isLost || sent.findIndex((message) => message.id === id) > lastKnown);
  const added = new Map(); // by id, as it was when it was added
  for (const { messages } of chain) for (const message of messages) if (!known.has(message.id) && !added.has(message.id)) added.set(message.id, message);
  const callNames = new Map(conversations.flat().flatMap(({ calls }) => calls.map(({ id, name }) => [id, name])));
  const openAtBase = idsOf(base ? openCalls(base.messages) : waiting);
  for (const message of added.values()) {
    const { id, type, text, callId } = message;
    const told = `${type} ${id} ${JSON.stringify(text.slice(0, 60))}`;
    // A call that waits where the run begins may be closed, as it was before.
    const isClosing = type === "tool" && message.isError && (openAtBase.has(callId) || (isLost && !sentIds.has(id)));
    if (id === step.welcome) fault("stray", `the greeting: ${told}`);
    else if (isClosing) continue;
    else if (wasEverThere(id)) {
      const isKept = target && type === "human" && sent.findIndex((one) => one.id === id) > targetPlace;
      if (!isMine(id) && !isKept) fault("resurrected", told);
    } else if (type === "human") {
      if (!message.isSummary && !isMine(id) && !isNewFromClient(id)) fault("stray", told);
    } else if (type === "tool") {
      if (!PAGE_TOOLS.includes(callNames.get(callId))) {
        if (sentIds.has(id) && !isLost) fault("stray-result", told);
        continue;
      }
      const isGiven = (openAtBase.has(callId) && results.some((result) => result.callId === callId)) || (isLost && sentIds.has(id));
      if (!isGiven) fault("stray-result", told);
    } else if (sentIds.has(id) && !isLost) fault("stray", told);
    const copy = isLost ? sent.find((one) => one.id === id) : undefined;
    if (copy && type !== "tool" && copy.text !== text) fault("restored", `${told} was ${JSON.stringify(copy.text)} at the client`);
  }
  if (isLost && chain.length > 0) judgeRestored({ sent, added, step, lostThread, fault });

  // (d) The person's wishes arrive.
  const isUnsent = target !== undefined && !wasEverThere(target.id); // it was written while a question waited
  const isSilent = wasAsked && !step.isResume && !isForked && !isLost && (!target || isUnsent);
  if (isSilent && !step.isForeign) {
    if (firstDifference(shapeOf(after.messages), shapeOf(before.messages))) fault("asked-changed", `${after.fresh.length} new checkpoints`);
  } else if (!step.isRepeat) {
    for (const { id, text } of adds) {
      if (!added.has(id)) fault("missing-message", `${id} ${JSON.stringify(text)}`);
      else if (added.get(id).text !== text) fault("changed", `${id} is ${JSON.stringify(added.get(id).text)}, not ${JSON.stringify(text)}`);
    }
    const isNewTarget = target && (isKnownTarget || (isUnsent && targetPlace > lastKnown));
    if (isNewTarget && target.isEdit && added.get(target.id)?.text !== target.text) fault("missing-edit", `${target.id} ${JSON.stringify(target.text)}`);
    if (isNewTarget && !target.isEdit && !added.has(target.id) && !after.messages.some(({ id }) => id === target.id)) fault("missing-message", `${target.id}, asked again`);
  }
  const isOpen = ({ callId }) => waiting.some(({ id }) => id === callId);
  for (const result of results.filter(isOpen)) {
    const found = [...added.values()].find(({ callId }) => callId === result.callId);
    if (!found) fault("missing-result", `of ${result.callId}`);
    else if (result.error) {
      // The content says why, or the error does.
      if (!found.isError || found.text === "" || ![result.text || result.error, result.error].some((text) => found.text.includes(text))) fault("error-text", `the result is ${JSON.stringify(found.text)}, ${found.isError ? "an" : "no"} error`);
    } else if (found.text !== result.text) fault("changed", `the result of ${result.callId} is ${JSON.stringify(found.text)}`);
  }
  const isDropped = (results.length > 0 && !results.some(isOpen)) || step.isRepeat;
  const hasNews = sent.some(({ id, type }, place) => type === "human" && place > lastKnown && !wasEverThere(id));
  if (isDropped && !hasNews && adds.length === 0 && !target && !isLost && firstDifference(shapeOf(after.messages), shapeOf(before.messages))) {
    fault("needless-run", `${before.messages.length} messages became ${after.messages.length}`);
  }
  if (step.isStopped) {
    const [{ id }] = adds;
    const place = after.messages.findIndex((message) => message.id === id);
    const rest = place < 0 ? [] : after.messages.slice(place + 1);
    if (rest.length !== 1 || rest[0].type !== "ai") fault("answers", `${rest.length} messages follow ${id}: ${rest.map(({ type, text }) => `${type} ${text}`).join(" | ")}`);
  }
  for (const message of after.messages) {
    const old = known.has(message.id) && (base?.messages ?? before.messages).find(({ id }) => id === message.id);
    // LangChain's middleware for JavaScript gives a summary the id of a message that it replaces.
    if (old && old.text !== message.text && mailsIn(old.text).length === 0 && !message.isSummary) fault("changed", `${message.id} was ${JSON.stringify(old.text)}, and is ${JSON.stringify(message.text)}`);
  }

  // (b) What was redacted stays so.
  if (redacts) judgeRedacted({ after, chain, known, isMine, isNewFromClient, free, fault });

  // (c) The state is the graph's, but for the person's change.
  if (!isLost) judgeState({ before, after, base, isForked, step, change, client, fault });

  // (e) The client that ran holds the thread.
  if (client && !step.error && !step.isUncompared && faults.length === 0) judgeClient({ after, step, client, isSilent, fault });
  return faults;
}

const shapeOf = (messages) => messages.map(({ id, type, text }) => ({ id, type, text }));

/** The forms in which the conversation of a lost thread may go up: all of it, or its newest turn. */
function judgeRestored({ sent, added, step, lostThread, fault }) {
  const first = sent.findIndex(({ type }) => type === "human");
  const isAnswered = (call) => sent.some(({ callId }) => callId === call.id);
  const talk = sent.slice(Math.max(first, 0)).filter(({ id }) => id !== step.welcome);
  const whole = talk.filter(({ type, text, calls }) => type === "human" || (type === "ai" && (text !== "" || calls.some(isAnswered))));
  const newest = talk.slice(talk.findLastIndex(({ type }) => type === "ai" || type === "tool") + 1);
  const lacks = (list) => list.filter(({ id }) => !added.has(id));
  const old = [...added.values()].filter(({ id }) => sent.some((one) => one.id === id) && !newest.some((one) => one.id === id));
  if (lostThread === "newest" && old.length > 0) fault("restored", `${old.length} old messages went up`);
  // Calls without a result stay out, and with them a message that has nothing else.
  const needed = whole.filter(({ calls }) => calls.every(isAnswered));
  if (lostThread === "restore" && lacks(needed).length > 0) fault("restored", `${lacks(needed).map(({ id }) => id)} are not in the thread`);
  if (lostThread === "either" && old.length > 0 && lacks(needed).length > 0) fault("restored", `a part went up, and ${lacks(needed).map(({ id }) => id)} did not`);
  // A result belongs behind its call, wherever the client has it.
  const ordered = sent.filter(({ id, type }) => type !== "tool" && added.has(id)).map(({ id }) => id);
  const order = [...added.keys()].filter((id) => ordered.includes(id));
  const wanted = ordered;
  const difference = firstDifference(order, wanted);
  if (difference) fault("restored", `the order of the messages: ${difference}`);
}

function judgeRedacted({ after, chain, known, isMine, isNewFromClient, free, fault }) {
  const isFree = (mail) => free.has(mail);
  for (const { id, text } of after.messages) {
    const mails = mailsIn(text).filter((mail) => !isFree(mail));
    if (mails.length > 0) return fault("redacted-back", `${id} ${JSON.stringify(text)}`);
  }
  for (const { messages } of chain) {
    for (const { id, type, text } of messages) {
      const mails = mailsIn(text).filter((mail) => !isFree(mail));
      if (mails.length > 0 && (known.has(id) || type !== "human" || !(isMine(id) || isNewFromClient(id)))) return fault("redacted-back", `for a while: ${id} ${JSON.stringify(text)}`);
    }
  }
  return undefined;
}

/** The graph counts its runs in `count`, and adds an entry for each to `log`. It changes neither `note` nor `doc.small`. */
function judgeState({ before, after, base, isForked, step, change, client, fault }) {
  const kind = client?.isStale ? "stale-state" : "state";
  const [was, is] = [base?.values ?? (isForked ? {} : before.values), after.values];
  // A state without the graph's members is a new one, which may begin with the client's.
  if (was.count === undefined) return;
  const [log, old] = [is.log ?? [], was.log ?? []];
  const more = log.slice(old.length);
  if (new Set([...old, ...more]).size !== new Set(old).size + more.length) fault(kind, `the log repeats itself: ${log}`);
  if (firstDifference(log.slice(0, old.length), old)) fault(kind, `the log was ${old}, and is ${log}`);
  else if (is.count - was.count !== log.length - old.length) fault(kind, `the count was ${was.count}, and is ${is.count}, after ${log.length - old.length} runs`);
  if (firstDifference(is.doc?.big, was.doc?.big)) fault(kind, `the large member is ${JSON.stringify(is.doc?.big)?.slice(0, 80)}`);
  const wish = change.note ?? change.small;
  if (change.note !== undefined && is.note !== change.note) fault("missing-change", `note is ${is.note}, not ${wish}`);
  if (change.small !== undefined && is.doc?.small !== change.small) fault("missing-change", `doc.small is ${is.doc?.small}, not ${wish}`);
  // A fork's state that has no note yet may get the client's.
  const isOpen = isForked && was.note === undefined && is.note === step.sentState?.note;
  if (change.note === undefined && is.note !== was.note && !isOpen) fault(kind, `note was ${was.note}, and is ${is.note}`);
  if (change.small === undefined && is.doc?.small !== was.doc?.small) fault(kind, `doc.small was ${was.doc?.small}, and is ${is.doc?.small}`);
}

function judgeClient({ after, step, client, isSilent, fault }) {
  const { view, threadId } = client;
  const unsent = isSilent ? (step.adds ?? []).map(({ id }) => id) : [];
  const isCompared = ({ id }) => id !== step.welcome && (!unsent.includes(id) || after.messages.some((message) => message.id === id));
  if (view !== "quiet") {
    const thread = ofThread(after.raw, threadId).messages;
    // A client sends no notices along, so a thread that is restored from it has none, and the client keeps its own.
    const isOfLoss = ({ id, role }) => step.wasLost && role === "notice" && !thread.some((message) => message.id === id);
    const held = ofClient(client.messages.filter(isCompared)).messages.filter((message) => !isOfLoss(message));
    const difference = firstDifference(held, thread);
    if (difference) fault("client-messages", difference);
  }
  if (view === "full" || view === "quiet") {
    const difference = firstDifference(client.state ?? {}, stateOf(after.raw));
    if (difference) fault("client-state", difference);
  }
}
