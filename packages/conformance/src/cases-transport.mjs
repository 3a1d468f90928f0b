// The cases of the resumable transport, docs/transport.md. Each returns what it saw, or throws Fail or Skip.
//
// Nothing is compared with a fixed text, so any agent will do: what a client resumes is compared with what another client of the
// same run was sent without a cut.

import { setTimeout as pause } from "node:timers/promises";
import { Fail, Skip, difference, isTerminal, lastOf, must, types } from "./context.mjs";
import { judgeIds } from "./frames.mjs";
import { judge } from "./judge.mjs";
import { equal } from "./patch.mjs";
import { hold } from "./reducer.mjs";
import { Socket } from "./socket.mjs";

const OVER = "the run was over before another client could join it: name an agent that takes seconds";
const UNKNOWN = "conformance:an-id-of-nobody";
const MANNERS = ["reset", "close", "end"];
const CUTS = 8; // of one run
const CUT_RUNS = 3; // as long as so many runs a client may be cut and resume
const FIRST_BYTES = 800; // that a client has before its first cut
const SAMPLES = 10; // events of a run after which a client resumes
const QUIET_MS = 2_500; // without an event: silence
const ALONE_MS = 1_500; // a run without any client
const COMMENT_MS = 17_000;
const SHUTDOWN_MS = 15_000;

const startsOver = ({ told }) => told[0]?.event.type === "RUN_STARTED";
const shown = ({ status, type, body }) => `${status} ${type} ${JSON.stringify(body.slice(0, 160))}`;
/** An answer that starts over; `what` names the request. */
const mustStartOver = (answer, what) => must(answer.status === 200 && startsOver(answer), () => `${what} is answered with ${shown(answer)} instead of starting over: 200, and RUN_STARTED first`);
const mustBeNothing = (answer, what) => must(answer.status === 204 && answer.body === "", () => `${what} is answered with ${shown(answer)} instead of 204 without a body`);
const terminals = (events) => events.filter(isTerminal);

/** The findings of one requirement about the ids of recorded streams. */
const ids = (requirement) => async (context) => {
  await context.needs("ids");
  const { input, answer } = await context.alone();
  const streams = [["a run", answer]];
  const sample = answer.told[Math.floor(answer.told.length / 2)];
  for (const route of await context.routes()) streams.push([`a resumption by ${route}`, await context.resumed(route, input, sample.id)]);
  if (await context.isOffered("connect")) streams.push(["a connect", await context.posted(context.urls.connect, context.input({ threadId: input.threadId, messages: [] }))]);
  for (const [name, { frames }] of streams) {
    const found = judgeIds(frames).find((finding) => finding.requirement === requirement);
    if (found) throw new Fail(`${name}: ${found.saw}`);
  }
  return `${streams.length} streams, ${streams.reduce((sum, [, { told }]) => sum + told.length, 0)} events`;
};

/** Some places in a stream: spread by chance, and not after its end. */
function places(context, frames, count = SAMPLES) {
  const all = [...Array(Math.max(0, frames.length - 1)).keys()];
  while (all.length > count) all.splice(Math.floor(context.random() * all.length), 1);
  return all;
}

/** Resumes after an event of a stream. Returns `exact`, or `over` if the client starts over; anything else fails. */
async function compare(context, route, input, frames, at) {
  const answer = await context.resumed(route, input, frames[at].id);
  must(answer.status === 200, `${route} after event ${at} is answered with ${shown(answer)}`);
  if (startsOver(answer) && frames[at + 1]?.event.type !== "RUN_STARTED") {
    const { runId } = answer.told[0].event;
    return { how: "over", answer, runId };
  }
  const found = difference(answer.frames, frames.slice(at + 1));
  must(!found, `${route} after event ${at} (${frames[at].event.type}): ${found}`);
  return { how: "exact", answer };
}

/** A live run, a client of which was sent everything, and clients that resumed in its middle. */
async function liveRun(context, routes) {
  await context.needs("ids");
  const { input, answer } = await context.live(4);
  const resumptions = [];
  for (const [n, route] of routes.entries()) {
    await answer.until(({ told }) => told.length >= 4 + 2 * n, context.options.timeout);
    if (answer.ending) break;
    const at = Math.min(answer.told.length - 1, 1 + n);
    resumptions.push({ route, at, answer: await context.resume(route, input, answer.told[at].id) });
  }
  await Promise.all([answer, ...resumptions.map((resumption) => resumption.answer)].map((reading) => reading.read(context.options.timeout)));
  if (resumptions.length === 0) throw new Skip(OVER);
  return { input, answer, resumptions };
}

/** One run on the thread: its messages say whether the agent ran once. */
async function ranOnce(context, input, frames) {
  if (!(await context.isOffered("connect"))) return "";
  const held = hold(frames.flatMap(({ event }) => event ?? []), input);
  const count = await context.checkHeld(held, input.threadId);
  return `, ${count} messages on the thread`;
}

const shutdown = (context) =>
  context.share("shutdown", async () => {
    const { shutdown } = context.options;
    if (!shutdown) throw new Skip("no command that stops the server was named: --shutdown COMMAND");
    const { input, answer } = await context.live(4);
    if (answer.ending) throw new Skip("the run was over before the shutdown");
    const watched = (await context.isOffered("events")) ? await context.resume("events", input, answer.told[1].id) : undefined;
    const connected = (await context.isOffered("connect")) ? await context.post(context.urls.connect, context.input({ threadId: input.threadId, messages: [] })) : undefined;
    await Promise.all([watched, connected].map((stream) => stream?.until(({ told }) => told.length >= 2)));
    shutdown();
    await Promise.all([answer, watched, connected].map((stream) => stream?.read(SHUTDOWN_MS)));
    // A server may also let its runs end before it stops.
    if (lastOf(answer.told).type === "RUN_FINISHED") throw new Skip("the run was over before the server had stopped");
    return { input, answer, watched, connected };
  });

function replicaOf(context, target) {
  const { replica, run } = context.options;
  if (!replica) throw new Skip("no second process of the server was named: --replica URL");
  return target.replace(run.replace(/\/run\/?$/, ""), replica.replace(/\/run\/?$/, ""));
}

async function socketOf(context, query = "", protocols = ["threadway.chunks"]) {
  await context.plain();
  if (!context.urls.socket) throw new Skip("no URL of a WebSocket was named: --socket URL");
  try {
    return await Socket.open(context.urls.socket + query, { headers: context.headers, protocols });
  } catch (failure) {
    if (failure.status) throw new Skip(`the server has no socket here: it answers ${failure.status}`);
    throw failure;
  }
}

const chunks = ({ texts }) => texts.map((text) => JSON.parse(text));
const isEnd = ({ chunk }) => isTerminal(chunk);

/** A client that is cut again and again, by one route or by all. */
async function cutAgain(context, { routes, manners = MANNERS, cuts = CUTS, input = context.input() }) {
  const proxy = await context.proxy();
  const through = (url) => proxy.url(url);
  const frames = [];
  const seen = new Map();
  let made = 0;
  let tries = 0;
  const deadline = performance.now() + CUT_RUNS * context.options.timeout;
  const plan = () => {
    if (made >= cuts) return;
    // Without an event a client has no id to resume by: that is T21.
    const least = frames.length === 0 ? FIRST_BYTES : 40;
    proxy.plans.push({ after: least + Math.floor(context.random() * 2_500), manner: manners[made % manners.length] });
  };
  try {
    let answer;
    plan();
    answer = await context.post(through(context.urls.run), input);
    for (;;) {
      await answer.read(context.options.timeout);
      const here = answer.told;
      const fault = judgeIds(answer.frames).find(({ requirement }) => requirement === "T4");
      if (fault) throw new Fail(fault.saw);
      if (startsOver(answer) && frames.length > 0) seen.clear();
      for (const frame of here) {
        if (seen.has(frame.id)) throw new Fail(`the id ${frame.id} (${frame.event.type}) arrives twice: after ${frames.length} events, by ${frames.length ? "a resumption" : "the POST"}`);
        if (frame.id !== undefined) seen.set(frame.id, true);
        frames.push(frame);
      }
      if (isTerminal(lastOf(frames))) break;
      made = proxy.cuts;
      tries += 1;
      must(tries < 4 * cuts + 10 && performance.now() < deadline, `after ${tries} attempts the run has no end; the last answer is ${shown(answer)}`);
      plan();
      const last = frames.at(-1)?.id;
      const route = last === undefined ? "post" : routes[tries % routes.length];
      answer = await context.resume(route, input, last ?? UNKNOWN, { through }).catch(() => ({ told: [], frames: [], read: async () => {} , status: 0, type: "", body: "" }));
      must([0, 200].includes(answer.status), `${route} after a cut is answered with ${shown(answer)}`);
    }
  } finally {
    proxy.close();
  }
  return { input, frames, cuts: proxy.cuts, tries };
}

const cutCase = (options) => async (context) => {
  await context.needs("ids");
  const routes = options.routes ?? (await context.routes());
  const { input, frames, cuts, tries } = await cutAgain(context, { ...options, routes });
  if (cuts === 0) throw new Skip("the run had no byte to cut at");
  // A stream that starts over begins a run again: that is this transport's, and not AG-UI's. What an uncut run violates too is
  // not due to the cuts.
  const uncut = await context.plain();
  const known = new Set(["A12", "A47", ...judge(uncut.answer.events, { input: uncut.input }).findings.map(({ requirement }) => requirement)]);
  const fault = judge(frames.map(({ event }) => event), { input }).findings.find(({ requirement }) => !known.has(requirement));
  must(!fault, () => `the events before and after the cuts, event ${fault.at}, violate ${fault.requirement} of AG-UI: ${fault.saw}`);
  const thread = await ranOnce(context, input, frames);
  return `${cuts} cuts, ${tries} resumptions by ${[...new Set(routes)].join(", ")}, ${frames.length} events${thread}`;
};

/** A POST without an id under the runId of an earlier run, whose body names its end: a run of its own. */
async function again(context, more) {
  await context.needs("ids");
  const first = await context.recorded("a run", context.urls.run, context.input());
  const { runId } = first.input;
  const input = context.next(first, { runId, forwardedProps: { lastEventId: first.answer.told.at(-1).id } });
  const answer = await context.posted(context.urls.run, input, more);
  const expected = "instead of a run of its own: RUN_STARTED, new messages and an end";
  must(answer.events.some(({ type }) => type === "RUN_STARTED"), `a POST with ${more.lastEventId === "" ? "an empty" : "no"} Last-Event-ID, whose forwardedProps.lastEventId is the end of an earlier run of its runId, is answered with ${shown(answer)} ${expected}`);
  const before = new Set(input.messages.map(({ id }) => id));
  const now = hold(answer.events, input).messages.find(({ id, role }) => role === "assistant" && !before.has(id));
  must(now, `the POST is sent ${types(answer.events)} without a new message ${expected}`);
  return `a second run under the same runId: ${answer.told.length} events`;
}

export const TRANSPORT_CASES = [
  // ---------------------------------------------------------------- ids
  { requirement: "T1", run: ids("T1") },
  { requirement: "T2", run: ids("T2") },
  { requirement: "T3", run: ids("T3") },
  { requirement: "T4", run: ids("T4") },
  {
    requirement: "T5",
    title: "two clients of a live run share ids, and what follows them",
    async run(context) {
      await context.needs("ids", "connect");
      const { input, answer } = await context.live(4);
      const other = await context.post(context.urls.connect, { ...input, messages: [] });
      if (answer.ending) throw new Skip(OVER);
      await Promise.all([answer.read(context.options.timeout), other.read(context.options.timeout)]);
      const [mine, theirs] = [answer.told, other.told];
      const at = theirs.findIndex(({ id }) => mine.some((frame) => frame.id === id));
      must(at >= 0, `the streams of one run share no id: ${types(answer.events)} and ${types(other.events)}`);
      const from = mine.findIndex(({ id }) => id === theirs[at].id);
      const found = difference(theirs.slice(at + 1), mine.slice(from + 1));
      must(!found, `after the id ${theirs[at].id}: ${found}`);
      return `${theirs.length - at} events after the first id that both have`;
    },
  },
  {
    requirement: "T6",
    async run(context) {
      await context.needs("ids");
      if (!context.options.replica) replicaOf(context, context.urls.run);
      const { input, answer } = await context.live(4);
      const at = Math.min(3, answer.told.length - 1);
      const through = (url) => replicaOf(context, url);
      const other = await context.resume("post", input, answer.told[at].id, { through });
      await Promise.all([answer.read(context.options.timeout), other.read(context.options.timeout)]);
      const found = difference(other.frames, answer.told.slice(at + 1));
      must(!found, `another process after event ${at}: ${found}`);
      return `${other.told.length} events from another process`;
    },
  },
  {
    requirement: "T7",
    async run(context) {
      await context.needs("ids");
      const { answer } = await context.plain();
      const secrets = [context.mark, context.message, ...Object.entries(context.headers).filter(([name]) => /auth|key|cookie|token/i.test(name)).map(([, value]) => value.replace(/^\w+ /, ""))];
      const readings = (id) => [id, decodeURIComponent(id.replaceAll("%", "%25")), ...["base64", "base64url", "hex"].flatMap((form) => [0, 1, 2, 3].map((skip) => Buffer.from(id.slice(skip), form).toString("latin1")))];
      for (const { id } of answer.told) {
        const secret = secrets.find((secret) => secret.length > 5 && readings(id).some((text) => text.includes(secret)));
        must(!secret, `the id ${id} contains ${JSON.stringify(secret)}`);
      }
      return `${answer.told.length} ids, none with the message or the credentials`;
    },
  },
  {
    requirement: "T8",
    async run(context) {
      await context.needs("ids", "connect");
      const { input } = await context.plain();
      const read = () => context.posted(context.urls.connect, context.input({ threadId: input.threadId, messages: [] }));
      const [one, two] = [await read(), await read()];
      const common = one.told.filter(({ id }) => two.told.some((frame) => frame.id === id));
      for (const { id, event } of common) {
        const answer = await context.resumed("connect", input, id);
        must(answer.status === 204 || !startsOver(answer), `the id ${id} (${event.type}) is in two responses, and cannot be resumed`);
      }
      const once = one.told.find(({ id }) => !common.some((frame) => frame.id === id));
      if (!once) return `${common.length} ids, each of which can be resumed`;
      const answer = await context.resumed("connect", input, once.id);
      mustStartOver(answer, `connect with the id ${once.id} of a snapshot`);
      return `${one.told.length - common.length} ids that are used once, ${common.length} that can be resumed`;
    },
  },
  {
    requirement: "T8",
    title: "clients of a live run that start over share no id but those that can be resumed",
    async run(context) {
      await context.needs("ids");
      const { input, answer } = await context.live(4);
      const [one, two] = [await context.resume("post", input, UNKNOWN), await context.resume("post", input, UNKNOWN)];
      if (answer.ending) throw new Skip(OVER);
      await Promise.all([answer, one, two].map((reading) => reading.read(context.options.timeout)));
      const known = new Set([...answer.told, ...two.told].map(({ id }) => id));
      const common = one.told.filter(({ id }) => two.told.some((frame) => frame.id === id) && !answer.told.some((frame) => frame.id === id));
      for (const { id, event } of common) {
        const again = await context.resumed("post", input, id);
        must(!startsOver(again), `the id ${id} (${event.type}) is in two responses of a live run, and cannot be resumed`);
      }
      const once = one.told.filter(({ id }) => !known.has(id));
      if (once.length > 0) mustStartOver(await context.resumed("post", input, once[0].id), `a POST with the id ${once[0].id} of the ${once[0].event.type} of a client that started over`);
      return `${once.length} ids that are used once, ${one.told.length - once.length} that can be resumed`;
    },
  },

  // ---------------------------------------------------------------- how a client names its last event
  {
    requirement: "T9",
    async run(context) {
      const routes = (await context.routes()).filter((route) => ["post", "connect", "events"].includes(route));
      const { answer, resumptions } = await liveRun(context, routes);
      for (const { route, at, answer: other } of resumptions) {
        must(!startsOver(other), `${route} with the header after event ${at} of a live run is answered as without it: ${types(other.events, 4)}`);
        const found = difference(other.frames, answer.told.slice(at + 1));
        must(!found, `${route} after event ${at}: ${found}`);
      }
      return resumptions.map(({ route, at }) => `${route} after event ${at}`).join(", ");
    },
  },
  ...[["T10", "query", "events"], ["T11", "body", "connect"]].map(([requirement, route, part]) => ({
    requirement,
    async run(context) {
      await context.needs("ids", part);
      const { input, answer, resumptions } = await liveRun(context, [route]);
      const [{ at, answer: other }] = resumptions;
      must(!startsOver(other), `${route} after event ${at} of a live run starts over, as without an id`);
      const found = difference(other.frames, answer.told.slice(at + 1));
      must(!found, `${route} after event ${at} of thread ${input.threadId}: ${found}`);
      return `${other.told.length} events after event ${at}`;
    },
  })),
  {
    requirement: "T12",
    title: "the header counts before the query and the body",
    async run(context) {
      await context.needs("ids", "connect");
      const { input, answer } = await context.alone();
      const end = answer.told.at(-1).id;
      const body = { ...input, forwardedProps: { lastEventId: UNKNOWN } };
      const saw = [];
      const connected = await context.posted(context.urls.connect, body, { lastEventId: end });
      must(connected.status === 204, `connect with the header of an end and another id in its body is answered with ${shown(connected)}`);
      saw.push("the body does not count");
      if (await context.isOffered("events")) {
        const got = await context.got(context.events(input.threadId, `?last_event_id=${UNKNOWN}`), { lastEventId: end });
        must(got.status === 204, `events with the header of an end and another id in its query is answered with ${shown(got)}`);
        saw.push("the query does not count");
      }
      return saw.join(", ");
    },
  },
  {
    requirement: "T12",
    title: "an empty header is none",
    run: (context) => again(context, { lastEventId: "" }),
  },
  {
    requirement: "T13",
    async run(context) {
      await context.needs("ids");
      const { input } = await context.alone();
      const saw = [];
      for (const route of await context.routes()) {
        const answer = await context.resumed(route, input, UNKNOWN);
        mustStartOver(answer, `${route} with an unknown id`);
        saw.push(`${route}: ${answer.told.length} events`);
      }
      return saw.join(", ");
    },
  },

  // ---------------------------------------------------------------- resuming
  {
    requirement: "T14",
    title: "a live run goes on after an event, by each route",
    async run(context) {
      const { answer, resumptions } = await liveRun(context, await context.routes());
      let exact = 0;
      for (const { route, at, answer: other } of resumptions) {
        if (startsOver(other)) continue;
        const found = difference(other.frames, answer.told.slice(at + 1));
        must(!found, `${route} after event ${at} (${answer.told[at].event.type}): ${found}`);
        exact += 1;
      }
      must(exact > 0, `${resumptions.length} clients resumed a live run, and each started over`);
      return `${exact} of ${resumptions.length} clients got the bytes of the uncut stream; the others started over`;
    },
  },
  {
    requirement: "T14",
    title: "a run that is over goes on after an event, by each route",
    async run(context) {
      await context.needs("ids");
      const { input, answer } = await context.alone();
      const routes = await context.routes();
      const count = { exact: 0, over: 0 };
      for (const [n, at] of places(context, answer.told).entries()) {
        const { how, runId } = await compare(context, routes[n % routes.length], input, answer.told, at);
        must(how === "exact" || runId === input.runId || routes[n % routes.length] !== "post", `a client starts over with the run ${runId}`);
        count[how] += 1;
      }
      return `${count.exact} resumed exactly, ${count.over} started over`;
    },
  },
  {
    requirement: "T15",
    async run(context) {
      const { input, answer, resumptions } = await liveRun(context, ["post"]);
      const [{ at, answer: during }] = resumptions;
      const after = await context.resumed("post", input, answer.told[at].id);
      must(!startsOver(during), `during the run, a client that resumes after event ${at} starts over`);
      if (startsOver(after)) return "exact during the run; the server does not keep it after its end";
      const found = difference(after.frames, during.frames);
      must(!found, `after the end of the run, after event ${at}: ${found}`);
      return `${after.told.length} events, the same during the run and after its end`;
    },
  },
  {
    requirement: "T16",
    title: "a client of a live run starts over",
    async run(context) {
      await context.needs("ids");
      const routes = (await context.routes()).filter((route) => route !== "query");
      const { input, answer } = await context.live(4);
      await answer.until(({ events }) => events.some(({ type }) => type === "TEXT_MESSAGE_CONTENT"), context.options.timeout);
      const others = [];
      const notes = new Set();
      for (const route of routes) {
        const other = await context.resume(route, input, UNKNOWN);
        if (!answer.ending) others.push([route, other]);
      }
      if (others.length === 0) throw new Skip(OVER);
      await Promise.all([answer, ...others.map(([, other]) => other)].map((reading) => reading.read(context.options.timeout)));
      for (const [route, other] of others) {
        const first = other.told[0]?.event;
        must(first?.type === "RUN_STARTED" && first.runId === input.runId, `${route} with an unknown id begins with ${JSON.stringify(first)?.slice(0, 160)}`);
        notes.add(await context.checkLawful(`${route} with an unknown id`, other.events, { input: { threadId: input.threadId } }));
        const [mine, theirs] = [hold(answer.events, input), hold(other.events, input)];
        const texts = (held) => held.messages.filter(({ role }) => role === "assistant").map(({ content = "" }) => content).filter(Boolean);
        must(equal(texts(mine), texts(theirs)), () => `${route}: the client that starts over reads ${JSON.stringify(texts(theirs)).slice(0, 160)} instead of ${JSON.stringify(texts(mine)).slice(0, 160)}`);
      }
      return `${others.map(([route, other]) => `${route}: ${types(other.events, 4)}`).join("; ")}${[...notes].join("")}`;
    },
  },
  {
    requirement: "T17",
    async run(context) {
      await context.needs("ids");
      const { input, answer } = await context.live(4);
      await answer.until(({ events }) => events.filter(({ type }) => type === "TEXT_MESSAGE_CONTENT").length >= 3, context.options.timeout);
      const other = await context.resume("post", input, UNKNOWN);
      if (answer.ending) throw new Skip(OVER);
      await Promise.all([answer.read(context.options.timeout), other.read(context.options.timeout)]);
      const snapshot = other.events.findLast(({ type }) => type === "MESSAGES_SNAPSHOT");
      must(snapshot, `a client that starts over gets no MESSAGES_SNAPSHOT: ${types(other.events)}`);
      const sent = (events) => events.filter(({ type }) => /_CONTENT$|_ARGS$/.test(type)).map(({ delta }) => delta).join("");
      must(answer.ending === "end" && sent(answer.events).length > sent(other.events).length, "a client that starts over is streamed as much as one from the beginning");
      const { findings } = judge(other.events, { input });
      const again = findings.find(({ requirement }) => requirement === "A47");
      must(!again, () => again.saw);
      return `${sent(other.events).length} of ${sent(answer.events).length} characters are streamed after the snapshot`;
    },
  },
  { requirement: "T18", title: "cut and resumed by the same POST", run: cutCase({ routes: ["post"] }) },
  { requirement: "T18", title: "cut and resumed by every route in turn", run: cutCase({}) },
  { requirement: "T18", title: "a proxy ends the answer as if it were complete", run: cutCase({ manners: ["end"], cuts: 4 }) },
  {
    requirement: "T19",
    async run(context) {
      await context.needs("ids");
      const { input, answer } = await context.live(4);
      if (answer.ending) throw new Skip("the run was over before its client could leave");
      const last = answer.told.at(-1);
      const count = answer.told.length;
      answer.leave();
      await pause(ALONE_MS);
      const rest = await context.resumed("post", input, last.id);
      const end = lastOf(rest.told);
      must(end?.type === "RUN_FINISHED" && end.outcome?.type !== "cancelled", `after ${ALONE_MS} ms without a client the run ends with ${JSON.stringify(end)?.slice(0, 200)}`);
      const thread = startsOver(rest) ? "" : await ranOnce(context, input, [...answer.told.slice(0, count), ...rest.told]);
      return `the run went on without a client: ${rest.told.length} more events${thread}`;
    },
  },

  // ---------------------------------------------------------------- a repeated POST
  {
    requirement: "T20",
    title: "a repeat during the run starts nothing",
    async run(context) {
      const { input, answer, resumptions } = await liveRun(context, ["post"]);
      const [{ at, answer: other }] = resumptions;
      must(other.events.filter(({ type }) => type === "RUN_STARTED").length === (startsOver(other) ? 1 : 0), `the repeat is sent ${types(other.events)}`);
      const thread = await ranOnce(context, input, answer.told);
      return `${other.told.length} events after event ${at}${thread}`;
    },
  },
  {
    requirement: "T20",
    title: "a repeat gets its own run, and nothing of a later one",
    async run(context) {
      await context.needs("ids");
      const { input, answer } = await context.plain();
      const second = await context.second();
      const at = Math.floor(answer.told.length / 2);
      const again = await context.resumed("post", input, answer.told[at].id);
      const foreign = again.events.find(({ runId }) => runId === second.input.runId);
      must(!foreign, `the repeat of the first run is sent ${JSON.stringify(foreign)?.slice(0, 160)}`);
      must(terminals(again.events).length === 1, `the repeat is sent ${terminals(again.events).length} ends: ${types(again.events)}`);
      return `${again.told.length} events, one end`;
    },
  },
  {
    requirement: "T21",
    async run(context) {
      await context.needs("ids");
      const { input, answer } = await context.live(4);
      const again = await context.post(context.urls.run, input, { lastEventId: UNKNOWN });
      await Promise.all([answer.read(context.options.timeout), again.read(context.options.timeout)]);
      const first = again.told[0]?.event;
      must(first?.type === "RUN_STARTED" && first.runId === input.runId, `the repeat begins with ${JSON.stringify(first)?.slice(0, 160)}`);
      const thread = await ranOnce(context, input, answer.told);
      return `${again.told.length} events of the run ${input.runId}${thread}`;
    },
  },
  {
    requirement: "T21",
    title: "of two runs with one `runId`, a repeat gets the newest",
    async run(context) {
      await context.needs("ids");
      const first = await context.recorded("a run", context.urls.run, context.input());
      const input = context.next(first, { runId: first.input.runId });
      const second = await context.posted(context.urls.run, input);
      const before = new Set([...input.messages, ...first.answer.events.map(({ messageId }) => ({ id: messageId }))].map(({ id }) => id));
      const said = hold(second.events, input).messages.find(({ id, role }) => role === "assistant" && !before.has(id));
      if (!said) throw new Skip("the server starts no second run under one runId: T23");
      const again = await context.resumed("post", input, UNKNOWN);
      mustStartOver(again, "a POST with an unknown id");
      const last = again.told.at(-1).id;
      must(last !== first.answer.told.at(-1).id, `the repeat of the second run ends with the id ${last} of the first run's end`);
      const shows = hold(again.events, { messages: [] }).messages.some(({ id }) => id === said.id);
      must(shows, `the repeat of the second run shows nothing of the message ${said.id} of that run: ${types(again.events)}`);
      return `the second run: ${types(again.events)}`;
    },
  },
  {
    requirement: "T22",
    async run(context) {
      await context.needs("ids");
      const input = context.input();
      const answer = await context.posted(context.urls.run, input, { lastEventId: UNKNOWN });
      must(startsOver(answer) && lastOf(answer.told)?.type === "RUN_FINISHED", `a POST whose first copy was lost is answered with ${shown(answer)}`);
      const thread = await ranOnce(context, input, answer.told);
      return `${answer.told.length} events${thread}`;
    },
  },
  {
    requirement: "T23",
    isLong: true,
    run: (context) => again(context, {}),
  },
  {
    requirement: "T24",
    async run(context) {
      await context.needs("ids");
      const { input, answer } = await context.alone();
      const end = answer.told.at(-1);
      const again = await context.resumed("post", input, end.id);
      must(again.status === 200, `the repeat after the end is answered with ${shown(again)}`);
      must(again.told.length === 1 && again.told[0].event.type === end.event.type, `the repeat after the end is sent ${types(again.events)}`);
      must(again.told[0].id !== end.id, `the end is sent again under the same id ${end.id}, which clients drop`);
      const other = again.told[0].id;
      const third = await context.resumed("post", input, other);
      must(third.told.length === 1 && isTerminal(third.told[0].event), `a second repeat, with the id ${other} of the repeated end, is answered with ${shown(third)} instead of the end alone`);
      must(third.told[0].id !== other, `a second repeat is sent the end under its own id ${other}, which clients drop`);
      for (const route of (await context.routes()).filter((route) => route !== "post")) {
        mustBeNothing(await context.resumed(route, input, other), `${route} with the id ${other} of the repeated end`);
      }
      return `${end.event.type} again, twice`;
    },
  },
  {
    requirement: "T25",
    async run(context) {
      await context.needs("ids");
      const { input, answer } = await context.live(3);
      const { id } = answer.told[0];
      const all = await Promise.all([id, id, id, id].map((last) => context.post(context.urls.run, input, { lastEventId: last })));
      await Promise.all([answer, ...all].map((reading) => reading.read(context.options.timeout)));
      const wrong = all.find(({ told }) => !isTerminal(lastOf(told)));
      must(!wrong, () => `a repeat is answered with ${shown(wrong)}`);
      const thread = await ranOnce(context, input, answer.told);
      return `4 repeats at once${thread}`;
    },
  },

  // ---------------------------------------------------------------- connect and events
  {
    requirement: "T26",
    async run(context) {
      await context.needs("connect");
      const { input, answer } = await context.live(4);
      await answer.until(({ events }) => events.some(({ type }) => type === "TEXT_MESSAGE_CONTENT"), context.options.timeout);
      const other = await context.post(context.urls.connect, context.input({ threadId: input.threadId, messages: [] }));
      if (answer.ending) throw new Skip(OVER);
      await Promise.all([answer.read(context.options.timeout), other.read(context.options.timeout)]);
      const first = other.events[0]?.type;
      must(first === "RUN_STARTED", `connect begins with ${first}`);
      const before = other.events.slice(0, other.events.findIndex(({ type }) => /_CONTENT$|_ARGS$/.test(type)));
      for (const type of ["STATE_SNAPSHOT", "MESSAGES_SNAPSHOT"]) {
        must(before.some((event) => event.type === type), `connect to a live run begins without ${type}: ${types(other.events)}`);
      }
      must(isTerminal(lastOf(other.told)), `connect to a live run ends with ${lastOf(other.told)?.type}`);
      await context.checkHeld(hold(other.events, { messages: [] }), input.threadId);
      const note = await context.checkLawful("connect to a live run", other.events, { input: { threadId: input.threadId } });
      return `${types(other.events, 5)}${note}`;
    },
  },
  {
    requirement: "T26",
    title: "an idle thread is shown as the client of an uncut run holds it",
    async run(context) {
      await context.needs("connect");
      return `${await context.uncutThread()} messages`;
    },
  },
  {
    requirement: "T27",
    async run(context) {
      await context.needs("connect");
      const { input, answer } = await context.live(3);
      const during = await context.post(context.urls.connect, context.input({ threadId: input.threadId, messages: [] }));
      if (answer.ending) throw new Skip(OVER);
      await Promise.all([answer.read(context.options.timeout), during.read(context.options.timeout)]);
      const live = during.events[0]?.runId;
      must(live === input.runId, `connect to the live run ${input.runId} names the run ${live}`);
      const asked = context.input({ threadId: input.threadId, messages: [] });
      const idle = await context.posted(context.urls.connect, asked);
      must(idle.events[0]?.runId === asked.runId, `connect to an idle thread with the runId ${asked.runId} names the run ${idle.events[0]?.runId}`);
      return "the live run's id, then the request's";
    },
  },
  {
    requirement: "T28",
    title: "an idle thread is closed",
    async run(context) {
      await context.needs("connect");
      const { input, answer } = await context.plain();
      const idle = await context.posted(context.urls.connect, context.input({ threadId: input.threadId, messages: [] }));
      must(lastOf(idle.told)?.type === "RUN_FINISHED" && idle.ending === "end", `connect to an idle thread ends with ${JSON.stringify(lastOf(idle.told))?.slice(0, 160)}, and is ${idle.ending}`);
      return `${types(idle.events, 5)} (the run had ${answer.told.length} events)`;
    },
  },
  {
    requirement: "T28",
    title: "an idle thread that waits shows its interrupts",
    async run(context) {
      if (!context.options.ask) throw new Skip("no agent that asks was named: --ask URL");
      const interrupts = (answer) => (lastOf(answer.told)?.outcome?.interrupts ?? []).map(({ id }) => id).sort();
      await context.needs("connect");
      const url = context.options.ask.replace(/\/run\/?$/, "/connect");
      if (url === context.options.ask) throw new Skip("the URL of --ask does not end with /run");
      const asked = await context.newQuestion("a run that waits");
      const expected = interrupts(asked.answer);
      if (expected.length === 0) throw new Skip("the agent of --ask did not ask");
      const idle = await context.posted(url, context.input({ threadId: asked.input.threadId, messages: [] }));
      if (idle.type !== "text/event-stream") throw new Skip(`there is no connect beside --ask: ${idle.status}`);
      must(equal(interrupts(idle), expected), `connect shows the interrupts ${interrupts(idle)} instead of ${expected}`);
      return `${expected.length} interrupts under their ids`;
    },
  },
  {
    requirement: "T28",
    title: "after the end of an idle thread there is nothing",
    async run(context) {
      await context.needs("ids", "connect");
      const { input } = await context.alone();
      const routes = (await context.routes()).filter((route) => route !== "post");
      const sources = [["connect", await context.posted(context.urls.connect, context.input({ threadId: input.threadId, messages: [] }))]];
      if (routes.includes("events")) sources.push(["events", await context.got(context.events(input.threadId))]);
      for (const [source, idle] of sources) {
        const last = idle.told.at(-1);
        must(last?.id, `the last event that ${source} sends of an idle thread has no id: ${shown(idle)}`);
        for (const route of routes) {
          mustBeNothing(await context.resumed(route, input, last.id), `${route} with the id ${last.id} of the ${last.event.type} with which ${source} closes an idle thread`);
        }
      }
      return `204 by ${routes.join(", ")}`;
    },
  },
  {
    requirement: "T29",
    async run(context) {
      await context.needs("connect");
      const asked = context.input({ messages: [] });
      const read = async () => context.posted(context.urls.connect, asked);
      const [one, two] = [await read(), await read()];
      if (one.status === 404 && two.status === 404) return "404";
      for (const answer of [one, two]) {
        const messages = hold(answer.events, { messages: [] }).messages.length;
        must(answer.status === 200 && startsOver(answer) && lastOf(answer.told)?.type === "RUN_FINISHED" && messages === 0, `a missing thread is answered with ${shown(answer)}`);
      }
      must(types(one.events) === types(two.events), `a missing thread is sent ${types(one.events)}, and then ${types(two.events)}`);
      return types(one.events);
    },
  },
  {
    requirement: "T29",
    title: "after the end of a missing thread there is nothing",
    async run(context) {
      await context.needs("ids", "connect");
      const input = context.input({ messages: [] });
      const routes = (await context.routes()).filter((route) => route !== "post");
      const sources = [["connect", () => context.posted(context.urls.connect, input)]];
      if (routes.includes("events")) sources.push(["events", () => context.got(context.events(input.threadId))]);
      const saw = [];
      for (const [source, read] of sources) {
        const missing = await read();
        saw.push(`${source}: ${missing.status}`);
        if (missing.status === 404) continue;
        const last = missing.told.at(-1);
        must(last?.id, `the last event that ${source} sends of a missing thread has no id: ${shown(missing)}`);
        for (const route of routes) {
          mustBeNothing(await context.resumed(route, input, last.id), `${route} with the id ${last.id} of the ${last.event.type} with which ${source} closes a missing thread`);
        }
      }
      return saw.join(", ");
    },
  },
  {
    requirement: "T30",
    async run(context) {
      await context.needs("ids", "connect");
      const { input, answer } = await context.recorded("a run", context.urls.run, context.input());
      const end = answer.told.at(-1).id;
      const saw = [];
      for (const route of (await context.routes()).filter((route) => route !== "post")) {
        const after = await context.resumed(route, input, end);
        mustBeNothing(after, `${route} after the end of a run`);
        saw.push(`${route}: 204`);
      }
      return saw.join(", ");
    },
  },
  {
    requirement: "T30",
    title: "after the end of an older run there is nothing",
    async run(context) {
      await context.needs("ids", "connect");
      const { input, answer } = await context.plain();
      await context.second();
      const routes = (await context.routes()).filter((route) => route !== "post");
      for (const route of routes) mustBeNothing(await context.resumed(route, input, answer.told.at(-1).id), `${route} after the end of an older run`);
      return `204 by ${routes.join(", ")}`;
    },
  },
  {
    requirement: "T56",
    async run(context) {
      await context.needs("ids", "connect");
      const { input, answer } = await context.plain();
      await context.second();
      const { id, event } = answer.told[Math.floor(answer.told.length / 2)];
      const saw = [];
      for (const route of (await context.routes()).filter((route) => route !== "post")) {
        const over = await context.resumed(route, input, id);
        mustStartOver(over, `${route} with the id ${id} of a ${event.type} inside of an older run`);
        saw.push(`${route}: ${await context.checkHeld(hold(over.events, { messages: [] }), input.threadId)} messages`);
      }
      return saw.join(", ");
    },
  },
  {
    requirement: "T31",
    async run(context) {
      await context.needs("ids", "connect", "events");
      const { answer, resumptions } = await liveRun(context, ["connect", "events"]);
      if (resumptions.length < 2) throw new Skip("the run was over too early");
      const [one, two] = resumptions;
      const from = one.answer.told.findIndex(({ id }) => id === answer.told[two.at].id);
      const found = difference(two.answer.frames, one.answer.told.slice(from + 1));
      must(!found, `events and connect after events ${one.at} and ${two.at} of one run: ${found}`);
      const { threadId } = (await context.alone()).input;
      const idle = await context.got(context.events(threadId));
      must(lastOf(idle.told)?.type === "RUN_FINISHED", `events of an idle thread are ${types(idle.events)}`);
      const count = await context.checkHeld(hold(idle.events, { messages: [] }), threadId);
      return `${two.answer.told.length} events of a live run, ${count} messages of an idle thread`;
    },
  },

  // ---------------------------------------------------------------- follow
  {
    requirement: "T32",
    isLong: true,
    async run(context) {
      await context.needs("follow");
      const { input, answer } = await context.live(3);
      const follower = await context.get(context.events(input.threadId, "?follow=thread"));
      await answer.read(context.options.timeout);
      const more = context.next({ input, answer });
      await context.recorded("a run", context.urls.run, more);
      const isOver = (runId) => (event) => isTerminal(event) && event.runId === runId;
      await follower.until(({ events }) => events.some(isOver(more.runId)), context.options.timeout);
      const { ending } = follower;
      follower.leave();
      must(!ending, `the stream of a follower was ended: ${ending}`);
      for (const { runId } of [input, more]) {
        const count = follower.events.filter((event) => event.type === "RUN_STARTED" && event.runId === runId).length;
        must(count === 1, `a follower saw ${count} starts of the run ${runId}: ${types(follower.events.filter(({ type }) => type.startsWith("RUN_")))}`);
      }
      const note = await context.checkLawful("a followed thread", follower.events, { input: { threadId: input.threadId }, isOpen: true });
      return `2 runs on one stream, ${follower.told.length} events${note}`;
    },
  },
  {
    requirement: "T33",
    isLong: true,
    async run(context) {
      await context.needs("ids", "follow");
      const { input, answer } = await context.recorded("a run", context.urls.run, context.input());
      const follower = await context.get(context.events(input.threadId, "?follow=thread"), { lastEventId: answer.told.at(-1).id, timeout: QUIET_MS + context.options.timeout });
      must(follower.status === 200, `a follower after the end is answered with ${shown(follower)}`);
      await follower.until(({ told }) => told.length > 0, QUIET_MS);
      must(follower.told.length === 0 && !follower.ending, `a follower after the end is sent ${types(follower.events)}, and its stream is ${follower.ending ?? "open"}`);
      const more = context.next({ input, answer });
      await context.recorded("a run", context.urls.run, more);
      await follower.until(({ events }) => events.some(({ type, runId }) => type === "RUN_STARTED" && runId === more.runId), context.options.timeout);
      follower.leave();
      must(follower.events[0]?.runId === more.runId, `then it is sent ${types(follower.events)}`);
      return `silence for ${QUIET_MS} ms, then the next run`;
    },
  },
  {
    requirement: "T33",
    title: "after the end of an idle thread a follower gets silence too",
    isLong: true,
    async run(context) {
      await context.needs("ids", "follow");
      const { input } = await context.alone();
      const url = context.events(input.threadId, "?follow=thread");
      const first = await context.get(url);
      await first.until(({ events }) => events.some(isTerminal), context.options.timeout);
      first.leave();
      const last = first.told.at(-1);
      must(isTerminal(last?.event), `a follower of an idle thread is sent ${types(first.events)}, and no end`);
      const follower = await context.get(url, { lastEventId: last.id, timeout: QUIET_MS + context.options.timeout });
      await follower.until(({ told }) => told.length > 0, QUIET_MS);
      follower.leave();
      must(follower.status === 200 && follower.told.length === 0, `a follower with the id ${last.id} of the end of an idle thread is answered with ${shown(follower)} instead of silence`);
      return `silence for ${QUIET_MS} ms`;
    },
  },
  {
    requirement: "T34",
    isLong: true,
    async run(context) {
      await context.needs("ids", "follow", "connect");
      const { input, answer } = await context.recorded("a run", context.urls.run, context.input());
      const held = hold(answer.events, input);
      const missed = await context.recorded("a run", context.urls.run, context.next({ input, answer }));
      must(lastOf(missed.answer.told)?.type === "RUN_FINISHED", `the second run is answered with ${shown(missed.answer)}`);
      const follower = await context.get(context.events(input.threadId, "?follow=thread"), { lastEventId: answer.told.at(-1).id });
      await follower.until(({ events }) => events.some(isTerminal), context.options.timeout);
      follower.leave();
      for (const event of follower.events) held.apply(event);
      const count = await context.checkHeld(held, input.threadId);
      return `after a missed run: ${types(follower.events, 5)}, ${count} messages`;
    },
  },
  {
    requirement: "T35",
    async run(context) {
      await context.needs("follow");
      const { threadId } = (await context.plain()).input;
      const answer = await context.got(context.events(threadId, "?follow=conformance"));
      must(answer.status === 400, `follow=conformance is answered with ${shown(answer)}`);
      return "400";
    },
  },

  // ---------------------------------------------------------------- time and proxies
  {
    requirement: "T36",
    async run(context) {
      await context.needs("ids");
      const { answer } = await context.plain();
      const first = answer.frames[0];
      must(/^\d+$/.test(first?.retry ?? ""), `the stream begins with ${JSON.stringify(first?.raw.slice(0, 100))}`);
      return `retry: ${first.retry}`;
    },
  },
  {
    requirement: "T37",
    isLong: true,
    async run(context) {
      await context.needs("ids", "follow");
      const { input, answer } = await context.recorded("a run", context.urls.run, context.input());
      const follower = await context.get(context.events(input.threadId, "?follow=thread"), { lastEventId: answer.told.at(-1).id });
      const began = performance.now();
      const hasComment = await follower.until(({ frames }) => frames.some(({ comments }) => comments > 0), COMMENT_MS);
      follower.leave();
      must(hasComment, `no comment within ${COMMENT_MS / 1000} s of silence`);
      return `a comment after ${((performance.now() - began) / 1000).toFixed(1)} s`;
    },
  },
  {
    requirement: "T38",
    async run(context) {
      await context.needs("ids");
      const { headers } = (await context.plain()).answer;
      const cache = headers["cache-control"] ?? "";
      must(/no-cache|no-store/.test(cache), `cache-control is ${JSON.stringify(cache)}`);
      return `cache-control: ${cache}; x-accel-buffering: ${headers["x-accel-buffering"] ?? "absent"}`;
    },
  },
  {
    requirement: "T39",
    async run(context) {
      const { flood } = context.options;
      if (!flood) throw new Skip("the server was not flooded: --flood N, with a limit of requests on the server");
      await context.needs("ids", "events");
      const { input, answer } = await context.plain();
      const { id } = answer.told[0];
      const all = await Promise.all(Array.from({ length: flood }, () => context.get(context.events(input.threadId), { lastEventId: id }).catch((failure) => failure)));
      const fresh = await context.get(context.events(input.threadId)).catch((failure) => failure);
      await Promise.all([...all, fresh].map((reading) => reading.read?.(context.options.timeout)));
      const refused = all.find(({ status }) => status !== 200);
      must(!refused, () => `one of ${flood} clients that resume is answered with ${refused.status ?? refused.message}`);
      const empty = all.filter(({ told }) => told.length === 0);
      if (empty.length === 0) throw new Skip(`none of ${flood} clients was refused`);
      must(empty.every(({ frames }) => /^\d+$/.test(frames[0]?.retry ?? "")), `an empty stream is ${JSON.stringify(empty[0].body)}`);
      return `${empty.length} of ${flood} clients got an empty stream with retry; a client without an id then got ${fresh.status}`;
    },
  },

  // ---------------------------------------------------------------- other forms
  {
    requirement: "T43",
    title: "lines without ids",
    async run(context) {
      await context.plain();
      const answer = await context.posted(context.urls.run, context.input(), { headers: { accept: "application/x-ndjson" } });
      if (answer.type !== "application/x-ndjson") throw new Skip(`the server sends no lines: ${answer.status} ${answer.type}`);
      must(answer.frames.every(({ event, isChunk }) => event && !isChunk), `a line is ${JSON.stringify(answer.frames.find(({ event, isChunk }) => !event || isChunk)?.raw.slice(0, 100))}`);
      must(isTerminal(lastOf(answer.told)), `the lines end with ${lastOf(answer.told)?.type}`);
      return `${answer.told.length} lines`;
    },
  },
  {
    requirement: "T43",
    title: "lines with ids, which can be resumed",
    async run(context) {
      await context.needs("ids");
      const input = context.input();
      const headers = { accept: "application/x-ndjson", "x-run-id": input.runId };
      const answer = await context.posted(context.urls.run, input, { headers });
      if (answer.type !== "application/x-ndjson") throw new Skip(`the server sends no lines: ${answer.status} ${answer.type}`);
      must(answer.frames.every(({ isChunk, id }) => isChunk && typeof id === "string"), `a line is ${JSON.stringify(answer.frames.find(({ isChunk }) => !isChunk)?.raw.slice(0, 100))}`);
      const at = Math.floor(answer.told.length / 2);
      const lines = await context.resumed("post", input, answer.told[at].id, { headers });
      const stream = await context.resumed("post", input, answer.told[at].id);
      if (!startsOver(stream)) {
        const found = difference(lines.frames, answer.told.slice(at + 1)) ?? difference(stream.frames, lines.frames);
        must(!found, `lines and SSE after event ${at}: ${found}`);
      }
      return `${answer.told.length} lines, resumed after event ${at} as lines and as SSE`;
    },
  },
  {
    requirement: "T44",
    async run(context) {
      await context.needs("ids");
      const input = context.input();
      const answer = await context.posted(context.urls.run, input, { headers: { accept: "application/json" } });
      if (answer.status !== 200 || answer.type !== "application/json") throw new Skip(`the server sends no array: ${answer.status} ${answer.type}`);
      const events = JSON.parse(answer.body);
      must(Array.isArray(events) && events[0]?.type === "RUN_STARTED" && isTerminal(events.at(-1)), `the array is ${answer.body.slice(0, 160)}`);
      const stream = await context.resumed("post", input, UNKNOWN);
      const last = answer.headers["last-event-id"];
      must(last === stream.told.at(-1).id, `last-event-id is ${last}, and the stream's last id ${stream.told.at(-1).id}`);
      return `${events.length} events, last-event-id ${last.slice(0, 24)}..`;
    },
  },
  {
    requirement: "T45",
    async run(context) {
      await context.needs("ids");
      const input = context.input();
      const url = `${context.urls.run}${context.urls.run.includes("?") ? "&" : "?"}wait=1`;
      const headers = { accept: "application/json" };
      const events = [];
      let last;
      let requests = 0;
      for (; !isTerminal(events.at(-1)) && requests < 60; requests += 1) {
        const answer = await context.posted(url, input, { headers, lastEventId: last });
        if (answer.status !== 200 || answer.type !== "application/json") {
          if (requests === 0) throw new Skip(`the server sends no array: ${answer.status} ${answer.type}`);
          throw new Fail(`request ${requests} is answered with ${shown(answer)}`);
        }
        const more = JSON.parse(answer.body);
        if (more[0]?.type === "RUN_STARTED") events.length = 0;
        events.push(...more);
        last = answer.headers["last-event-id"];
        must(last, `array ${requests} has no last-event-id`);
      }
      must(isTerminal(events.at(-1)), `${requests} arrays have no end`);
      const note = await context.checkLawful("the arrays", events, { input, isRequested: true });
      const thread = (await context.isOffered("connect")) ? `, ${await context.checkHeld(hold(events, input), input.threadId)} messages on the thread` : "";
      return `${events.length} events in ${requests} arrays${thread}${note}`;
    },
  },
  {
    requirement: "T46",
    async run(context) {
      await context.needs("ids");
      const input = context.input();
      const answer = await context.posted(context.urls.run, input, { headers: { accept: "image/png" } });
      must(answer.status === 406, `accept: image/png is answered with ${shown(answer)}`);
      if (await context.isOffered("connect")) {
        const idle = await context.posted(context.urls.connect, context.input({ threadId: input.threadId, messages: [] }));
        const { messages } = hold(idle.events, { messages: [] });
        must(messages.length === 0, `the refused request left ${messages.length} messages`);
      }
      return "406, and nothing on the thread";
    },
  },
  {
    requirement: "T47",
    async run(context) {
      const socket = await socketOf(context);
      const inputs = [context.input(), context.input()];
      for (const input of inputs) {
        const before = socket.texts.length;
        socket.send(input);
        await socket.until((open) => chunks(open).slice(before).some(isEnd), context.options.timeout);
        const turn = chunks(socket).slice(before);
        must(turn.every(({ id, chunk }) => typeof id === "string" && chunk?.type), `a message is ${JSON.stringify(turn[0])?.slice(0, 160)}`);
        await context.checkLawful("a turn", turn.map(({ chunk }) => chunk), { input, isRequested: true });
      }
      socket.break();
      must(socket.protocol === "threadway.chunks", `the subprotocol is ${socket.protocol}`);
      return `2 turns, ${socket.texts.length} messages`;
    },
  },
  {
    requirement: "T48",
    async run(context) {
      const input = context.input();
      const first = await socketOf(context);
      first.send(input);
      await first.until(({ texts }) => texts.length >= 5, context.options.timeout);
      first.break();
      const before = chunks(first);
      const last = before.at(-1);
      if (isEnd(last)) throw new Skip("the run was over before its socket could be cut");
      const second = await socketOf(context);
      second.send({ ...input, lastEventId: last.id });
      await second.until((open) => chunks(open).some(isEnd), context.options.timeout);
      const after = chunks(second);
      second.break();
      const events = [...before, ...after].map(({ chunk }) => chunk);
      if (after[0]?.chunk.type !== "RUN_STARTED") {
        const again = after.find(({ id }) => before.some((chunk) => chunk.id === id));
        must(!again, () => `the id ${again.id} arrives twice`);
      }
      const thread = await ranOnce(context, input, events.map((event) => ({ event })));
      return `${before.length} messages, and ${after.length} after the cut${thread}`;
    },
  },
  {
    requirement: "T49",
    async run(context) {
      const socket = await socketOf(context);
      socket.send("conformance: no JSON");
      await socket.until(({ texts }) => texts.length > 0, context.options.timeout);
      const { chunk = chunks(socket)[0] } = chunks(socket)[0] ?? {};
      must(chunk?.type === "RUN_ERROR" && typeof chunk.code === "string", `a turn that is no JSON is answered with ${JSON.stringify(chunk)}`);
      must(!socket.closed, "the socket was closed");
      socket.send(context.input());
      const isServed = await socket.until((open) => chunks(open).some(({ chunk }) => chunk?.type === "RUN_FINISHED"), context.options.timeout);
      socket.break();
      must(isServed, "the next turn was not served");
      return `RUN_ERROR ${chunk.code}, then a turn`;
    },
  },
  {
    requirement: "T50",
    async run(context) {
      const socket = await socketOf(context);
      const { runId, threadId, ...rest } = context.input();
      socket.send({ runId, threadId, ...rest });
      await socket.until(({ texts }) => texts.length >= 4, context.options.timeout);
      if (chunks(socket).some(isEnd)) throw new Skip("the run was over before it could be stopped");
      socket.send({ type: "abort", runId, threadId });
      await socket.until((open) => chunks(open).some(isEnd), context.options.timeout);
      socket.break();
      const end = chunks(socket).find(isEnd)?.chunk;
      must(end?.outcome?.type === "cancelled", `the run that was aborted ends with ${JSON.stringify(end)?.slice(0, 160)}`);
      return "cancelled";
    },
  },
  {
    requirement: "T51",
    async run(context) {
      await context.needs("ids");
      const { input, answer } = await context.alone();
      const at = Math.floor(answer.told.length / 2);
      const query = (offset, runId) => `?offset=${encodeURIComponent(offset)}&threadId=${encodeURIComponent(input.threadId)}&runId=${encodeURIComponent(runId)}`;
      const socket = await socketOf(context, query(answer.told[at].id, input.runId));
      await socket.until(({ closed }) => closed, context.options.timeout);
      const rest = chunks(socket);
      must(socket.closed?.code === 1000, `the socket is closed with ${JSON.stringify(socket.closed)}`);
      must(isEnd(rest.at(-1) ?? {}), `the socket sends ${rest.length} messages, the last of them ${JSON.stringify(rest.at(-1))?.slice(0, 120)}`);
      if (rest[0].chunk.type !== "RUN_STARTED") {
        // The query declares no version, so events may have the form for older clients.
        const found = difference(rest.map(({ id, chunk }) => ({ id, event: chunk, text: chunk.type })), answer.told.slice(at + 1).map(({ id, event }) => ({ id, event, text: event.type })));
        must(!found, `the rest of the run after event ${at}: ${found}`);
      }
      const none = await socketOf(context, query(UNKNOWN, "conformance:no-run"));
      await none.until(({ closed }) => closed, context.options.timeout);
      must(none.closed?.code === 1008, `a socket of a run that does not exist is closed with ${JSON.stringify(none.closed)}`);
      return `${rest.length} messages and 1000; 1008 without such a run`;
    },
  },

  // ---------------------------------------------------------------- security
  {
    requirement: "T52",
    title: "an id does not replace the credentials",
    async run(context) {
      await context.needs("ids");
      if (Object.keys(context.headers).length === 0) throw new Skip("the requests have no credentials: --header");
      const { input, answer } = await context.plain();
      const bare = (url, options) => context.asked(url, { ...options, headers: { ...Object.fromEntries(Object.keys(context.headers).map((name) => [name, ""])), ...options.headers } });
      const without = await bare(context.urls.run, { body: input });
      if (without.status < 400) throw new Skip("the server serves callers without credentials");
      const again = await bare(context.urls.run, { body: input, headers: { "last-event-id": answer.told[1].id } });
      must(again.status === without.status, `without credentials a run gets ${without.status}, and with an id ${again.status}`);
      return `${without.status} with an id and without`;
    },
  },
  {
    requirement: "T52",
    title: "another caller gets nothing by an id",
    async run(context) {
      await context.needs("ids");
      const { other } = context.options;
      if (!other) throw new Skip("no other caller was named: --other-header");
      const { input, answer } = await context.plain();
      const read = (id) => context.asked(context.urls.connect ?? context.urls.run, { body: { ...input, messages: [] }, headers: { ...other, "last-event-id": id } });
      const [known, unknown] = [await read(answer.told[1].id), await read(UNKNOWN)];
      const text = JSON.stringify(context.message).slice(1, -1);
      const secret = [known, unknown].find(({ body }) => body.includes(text));
      must(!secret, "another caller is sent content of the thread");
      must(known.status === unknown.status, `another caller gets ${known.status} with an id of the thread, and ${unknown.status} with an unknown one`);
      return `${known.status} with an id of the thread, as with an unknown one`;
    },
  },
  {
    requirement: "T53",
    async run(context) {
      await context.needs("ids");
      const { answer } = await context.plain();
      const text = answer.events.filter(({ type }) => type === "TEXT_MESSAGE_CONTENT").map(({ messageId }) => messageId);
      const other = await context.recorded("a run", context.urls.run, context.input());
      const at = Math.floor(answer.told.length / 2);
      const saw = [];
      for (const route of await context.routes()) {
        const again = await context.resumed(route, other.input, answer.told[at].id);
        mustStartOver(again, `${route} with an id of another thread`);
        const foreign = again.events.find(({ messageId, threadId }) => text.includes(messageId) || (threadId !== undefined && threadId !== other.input.threadId));
        must(!foreign, () => `${route} shows ${JSON.stringify(foreign).slice(0, 160)} of the other thread`);
        saw.push(route);
      }
      const ended = await context.resumed("post", other.input, answer.told.at(-1).id);
      mustStartOver(ended, "a POST with the end of another thread's run");
      return `starts over by ${saw.join(", ")}`;
    },
  },
  {
    requirement: "T54",
    async run(context) {
      await context.needs("ids");
      const { input, answer } = await context.alone();
      const { id } = answer.told[Math.floor(answer.told.length / 2)];
      const flip = (at) => id.slice(0, at) + (id[at] === "A" ? "B" : "A") + id.slice(at + 1);
      const forged = [id.slice(0, -1), `${id}A`, flip(1), flip(id.length - 1), id.repeat(20), "A".repeat(6_000), "0", "-1", "../../etc/passwd", "%00", "'", "{}"];
      const inQuery = ["\u0000", "\r\nx: y", "é", "\u{10ffff}", "😀".repeat(200)];
      let count = 0;
      for (const [bad, routes] of [...forged.map((bad) => [bad, ["post", "events"]]), ...inQuery.map((bad) => [bad, ["query", "body"]])]) {
        for (const route of (await context.routes()).filter((route) => routes.includes(route))) {
          const again = await context.resumed(route, input, bad);
          must(again.status < 500, `${route} with the id ${JSON.stringify(bad.slice(0, 60))} is answered with ${shown(again)}`);
          count += 1;
        }
      }
      return `${count} garbled ids`;
    },
  },
  {
    requirement: "T55",
    async run(context) {
      await context.needs("ids");
      const url = context.urls.capabilities;
      if (!url) throw new Skip("no URL of the capabilities was named: --capabilities URL");
      const answer = await context.asked(url, { method: "GET", headers: { accept: "application/json" } });
      if (answer.status !== 200) throw new Skip(`the server has no capabilities here: ${answer.status}`);
      const { transport } = JSON.parse(answer.body);
      must(transport?.resumable === true, `transport is ${JSON.stringify(transport)}`);
      return JSON.stringify(transport);
    },
  },

  // ---------------------------------------------------------------- shutdown: it ends the server, so it is last
  ...[[undefined, "answer"], ["a server that stops ends the stream of `connect` with RUN_ERROR too", "connected"]].map(([title, name]) => ({
    requirement: "T40",
    title,
    isLast: true,
    async run(context) {
      await context.needs("ids", ...(name === "connected" ? ["connect"] : []));
      const { [name]: stream } = await shutdown(context);
      const end = stream.told.at(-1);
      must(end?.event.type === "RUN_ERROR" && typeof end.event.code === "string", `the stream of a POST ends with ${JSON.stringify(end?.event)?.slice(0, 160)} instead of RUN_ERROR and a code`);
      must(stream.ending === "end", `the body was ${stream.ending}`);
      return `RUN_ERROR ${end.event.code} under the id ${end.id}`;
    },
  })),
  {
    requirement: "T41",
    isLast: true,
    async run(context) {
      await context.needs("ids", "events");
      const { watched } = await shutdown(context);
      const end = watched.told.at(-1)?.event;
      must(watched.ending && watched.ending !== "late", "the stream stays open");
      must(!isTerminal(end), `the stream of events ends with ${JSON.stringify(end)?.slice(0, 160)}`);
      return `${watched.ending} after ${end?.type}`;
    },
  },
  {
    requirement: "T42",
    isLast: true,
    async run(context) {
      await context.needs("ids");
      const { input, answer } = await shutdown(context);
      const through = (url) => replicaOf(context, url);
      through(context.urls.run);
      const before = answer.told.slice(0, -1).findLast(({ id }) => id !== undefined);
      const rest = await context.resumed("post", input, before.id, { through });
      const end = lastOf(rest.told);
      must(end?.type === "RUN_FINISHED" && end.outcome?.type !== "cancelled", `at another process the run ends with ${JSON.stringify(end)?.slice(0, 160) ?? shown(rest)}`);
      return `${rest.told.length} more events from another process, ${startsOver(rest) ? "starting over" : "after the last id"}`;
    },
  },
];
