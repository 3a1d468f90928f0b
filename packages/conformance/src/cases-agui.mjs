// The cases of AG-UI 1.0. Each returns what it saw, or throws Fail or Skip.

import { AGUI } from "./agui.mjs";
import { Fail, Skip, isTerminal, lastOf, must, types } from "./context.mjs";

const CLOSE_MS = 5_000; // between the last terminal event and the end of the body
const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

const isRefusal = ({ status, type }) => status >= 400 && type !== "text/event-stream";
const shown = ({ status, type, body }) => `${status} ${type} ${JSON.stringify(body.slice(0, 160))}`;

/** A run that was served to its end, without a failure. */
function served({ answer }) {
  const last = lastOf(answer.told);
  must(answer.status === 200, `the run is answered with ${shown(answer)}`);
  must(last?.type === "RUN_FINISHED", `the stream ends with ${JSON.stringify(last)?.slice(0, 300)}`);
  return `${answer.told.length} events, ${last.outcome?.type ?? "no outcome"}`;
}

/** Every judged requirement is a case: the findings of all streams of the session. */
const judged = Object.entries(AGUI)
  .filter(([, { judged }]) => judged)
  .map(([requirement]) => ({
    requirement,
    async run(context) {
      const all = await context.recordings();
      const faults = all.flatMap(({ name, findings }) => findings.filter((finding) => finding.requirement === requirement).map(({ at, saw }) => `${name}, event ${at}: ${saw}`));
      if (faults.length > 0) throw new Fail(`${faults[0]}${faults.length > 1 ? ` (and ${faults.length - 1} more)` : ""}`);
      const streams = all.filter(({ exercised }) => exercised.includes(requirement));
      if (streams.length === 0) throw new Skip(`no such event in ${all.length} streams`);
      const events = streams.reduce((sum, { events }) => sum + events.length, 0);
      return `${streams.length} streams, ${events} events`;
    },
  }));

const refuses = (bodies) => async (context) => {
  const saw = [];
  for (const [name, body] of bodies(context)) {
    const answer = await context.asked(context.urls.run, { body, headers: { "content-type": "application/json" } });
    must(isRefusal(answer), `${name} is answered with ${shown(answer)}`);
    saw.push(`${name}: ${answer.status}`);
  }
  return saw.join(", ");
};

const serves = (change) => async (context) => {
  const input = context.input();
  return served({ answer: await context.posted(context.urls.run, change(input) ?? input) });
};

export const AGUI_CASES = [
  {
    requirement: "A1",
    async run(context) {
      const { answer } = await context.plain();
      must(answer.status === 200 && answer.type === "text/event-stream", `a run is answered with ${shown(answer)}`);
      return `200 ${answer.headers["content-type"]}`;
    },
  },
  {
    requirement: "A2",
    async run(context) {
      const { answer } = await context.plain();
      const frame = answer.frames.find(({ hasCarriageReturn }) => hasCarriageReturn);
      must(!frame, () => `a frame has a carriage return: ${JSON.stringify(frame.raw.slice(0, 100))}`);
      return `${answer.frames.length} frames`;
    },
  },
  {
    requirement: "A3",
    async run(context) {
      const { answer } = await context.plain();
      const frame = answer.frames.find(({ fault }) => fault);
      must(!frame, () => `the data ${JSON.stringify(frame.text.slice(0, 100))} is no event: ${frame.fault}`);
      must(answer.told.length > 0, "the stream has no event");
      return `${answer.told.length} events`;
    },
  },
  {
    requirement: "A4",
    async run(context) {
      const { answer } = await context.plain();
      must(answer.ending === "end", `the body was not ended; it was ${answer.ending}`);
      const last = answer.told.findLast(({ event }) => isTerminal(event));
      if (!last) throw new Skip("the stream has no terminal event: A10");
      const ms = answer.endedAt - last.at;
      must(ms < CLOSE_MS, `the body ended ${(ms / 1000).toFixed(1)} s after ${last.event.type}`);
      return `${ms.toFixed(0)} ms after ${last.event.type}`;
    },
  },
  ...judged,
  { requirement: "A50", run: refuses(() => [["{", "{"], ["no body", ""], ["a list", "[]"]]) },
  {
    requirement: "A51",
    run: refuses((context) =>
      ["threadId", "runId", "messages"].map((name) => {
        const { [name]: _, ...input } = context.input();
        return [`without ${name}`, input];
      }),
    ),
  },
  {
    requirement: "A52",
    run: refuses((context) => [
      ["messages as a string", { ...context.input(), messages: "hi" }],
      ["threadId as a number", { ...context.input(), threadId: 7 }],
      ["tools as an object", { ...context.input(), tools: {} }],
      ["a message without a role", { ...context.input(), messages: [{ id: "1", content: "hi" }] }],
    ]),
  },
  { requirement: "A53", run: serves((input) => ({ ...input, conformanceMember: { a: null } })) },
  { requirement: "A54", run: serves(({ threadId, runId, messages, protocolVersion }) => ({ threadId, runId, messages, protocolVersion })) },
  { requirement: "A55", run: serves((input) => ({ ...input, protocolVersion: "1.9" })) },
  {
    requirement: "A56",
    run: serves((input) => {
      const [{ content }] = input.messages;
      input.messages[0].content = [
        { type: "text", text: content },
        { type: "image", source: { type: "data", value: PIXEL, mimeType: "image/png" } },
        { type: "document", source: { type: "file", value: "file-of-nobody", provider: "conformance" } },
      ];
    }),
  },
  {
    requirement: "A57",
    async run(context) {
      const input = context.input({ threadId: `conformance ${context.input().threadId} é`, runId: "run/é 1" });
      const answer = await context.posted(context.urls.run, input);
      const saw = served({ answer });
      for (const event of [answer.events.find(({ type }) => type === "RUN_STARTED"), lastOf(answer.told)]) {
        for (const name of ["threadId", "runId"]) must(event[name] === input[name], `${event.type} has the ${name} ${JSON.stringify(event[name])} instead of ${JSON.stringify(input[name])}`);
      }
      return saw;
    },
  },
  {
    requirement: "A58",
    async run(context) {
      const [first, second] = [await context.plain(), await context.second()];
      const saw = served(second);
      const ids = new Set(first.answer.events.filter(({ type }) => type === "TEXT_MESSAGE_START").map(({ messageId }) => messageId));
      const started = second.answer.events.filter(({ type }) => type === "TEXT_MESSAGE_START");
      const again = started.find(({ messageId }) => ids.has(messageId));
      must(!again, () => `the second run streams the message ${again.messageId} of the first`);
      return saw;
    },
  },
  {
    requirement: "A59",
    async run(context) {
      const { answer } = await context.asking();
      const last = lastOf(answer.told);
      must(last?.type === "RUN_FINISHED" && last.outcome?.type === "interrupt", `the run ends with ${JSON.stringify(last)?.slice(0, 300)}`);
      return `${last.outcome.interrupts.length} interrupts`;
    },
  },
  {
    requirement: "A60",
    async run(context) {
      const asked = await context.asking();
      const run = await context.share("answered", () => context.answered());
      const saw = served(run);
      const ids = lastOf(asked.answer.told).outcome.interrupts.map(({ id }) => id);
      const again = lastOf(run.answer.told).outcome?.interrupts?.find(({ id }) => ids.includes(id));
      must(!again, () => `the run asks ${again.id} again`);
      return saw;
    },
  },
  {
    requirement: "A61",
    async run(context) {
      if (!context.options.ask) throw new Skip("no agent that asks was named: --ask URL");
      const asked = await context.newQuestion("another run that asks");
      if (lastOf(asked.answer.told)?.outcome?.type !== "interrupt") throw new Skip("the agent of --ask did not ask");
      const answer = await context.posted(context.options.ask, context.next(asked));
      if (isRefusal(answer)) return `refused with ${answer.status}`;
      const last = lastOf(answer.told);
      const isSuccess = last?.type === "RUN_FINISHED" && (last.outcome === undefined || last.outcome.type === "success");
      must(!isSuccess, `a message in place of the answer gets ${types(answer.events)}, and ${JSON.stringify(last).slice(0, 200)}`);
      return last?.type === "RUN_ERROR" ? `RUN_ERROR: ${last.message}` : `the outcome ${last?.outcome?.type}`;
    },
  },
  { requirement: "A62", run: serves((input) => ({ ...input, resume: [{ interruptId: "of-nobody", status: "resolved", payload: true }] })) },
  {
    requirement: "A63",
    async run(context) {
      if (!context.urls.stop) throw new Skip("no route that stops a run was named: --stop URL");
      const { input, answer } = await context.live();
      if (answer.ending) throw new Skip("the run was over before it could be stopped");
      const stopped = await context.asked(context.urls.stop(input.threadId), { body: {} });
      if (stopped.status >= 400) throw new Skip(`the stop route answers ${stopped.status}`);
      await answer.read(context.options.timeout);
      const last = lastOf(answer.told);
      must(last?.type === "RUN_ERROR" || last?.outcome?.type === "cancelled", `the stopped run ends with ${JSON.stringify(last)?.slice(0, 200)}`);
      return last.type === "RUN_ERROR" ? `RUN_ERROR ${last.code ?? ""}` : "cancelled";
    },
  },
];
