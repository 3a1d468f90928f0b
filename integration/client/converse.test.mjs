// Plays sessions of people at tabs of the official clients, drawn by a seed, on real LangGraph servers through a threadway,
// and judges LangGraph's thread after each step. The graphs redact, summarise, remove, ask, and call the client's tools, before
// a model that refuses what providers refuse.
//
// SEED=... repeats the sessions of a run; SESSIONS=... is their number, SESSION=... plays one; ACCEPT=... names kinds of
// faults that do not fail the test; STEPS=... names the only steps (with `-` for spaces) and views; LOST_THREAD=restore|newest is the form in which a lost thread goes up, if only one is right.

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { after, before, describe, test } from "node:test";
import { agentsConfig, Session } from "./converse.mjs";
import { KINDS } from "./converse-judge.mjs";
import { SERVERS } from "./gateway.mjs";
import { LOGS } from "./logs.mjs";
import { SEED } from "./seeded.mjs";
import { startThreadway } from "./threadway.mjs";

const COUNT = Number(process.env.SESSIONS ?? (process.env.FULL === "1" ? 2000 : 48)); // over all servers
const ONLY = process.env.SESSION === undefined ? undefined : Number(process.env.SESSION);
const ACCEPTED = (process.env.ACCEPT ?? "").split(/[\s,]+/).filter(Boolean);
const ONLY_THESE = (process.env.STEPS ?? "").split(/[\s,]+/).filter(Boolean);
const LOST_THREAD = process.env.LOST_THREAD ?? "either";
const CONCURRENCY = Number(process.env.CONCURRENCY ?? 8); // sessions at a time on each server
const SHOWN = Number(process.env.SHOWN ?? 5); // failed sessions that are printed; all are in the logs
const PROGRESS = 100; // sessions between two lines of output
const TIMEOUT = { timeout: 7_200_000 };

for (const kind of ACCEPTED) assert.ok(kind in KINDS, `there is no kind ${kind}, but ${Object.keys(KINDS).join(", ")}`);
console.log(`# SEED=${SEED}, ${ONLY === undefined ? `${COUNT} sessions` : `session ${ONLY}`}`);
console.warn = () => {};
console.error = () => {}; // the clients throw these errors too

const brief = (messages) => messages.map(({ id, type, text, calls, callId, isError }) => `    ${type.padEnd(5)} ${id} ${JSON.stringify(text)}${calls.map((call) => ` calls ${call.name} ${call.id}`).join("")}${callId ? ` of ${callId}${isError ? ", an error" : ""}` : ""}`).join("\n");

const stateOf = ({ values: { count, log, note, doc } }) => JSON.stringify({ count, log, note, small: doc?.small });

/** What a person needs to understand a failed session. */
function tell(session) {
  const { failed, faults, number, at } = session;
  const lines = [session.told, ...faults.map(({ kind, text }) => `  ${kind}: ${KINDS[kind]}: ${text}`)];
  if (failed) {
    lines.push("  the thread before the step:", brief(failed.before.messages), "  sent by the client:", brief(failed.step.sent ?? []), "  the thread after it:", brief(failed.after.messages));
    lines.push(`  its state before: ${stateOf(failed.before)}`, `  its state after: ${stateOf(failed.after)}`);
  }
  return [...lines, `  again: SEED=${SEED} integration/converse --server ${SERVER_NAMES[at.name]} --session ${number}`].join("\n");
}

const SERVER_NAMES = { Python: "python", JavaScript: "js", "Python-Node": "python-js", aegra: "aegra" };

async function inParallel(numbers, width, work) {
  const rest = [...numbers];
  const workers = Array.from({ length: width }, async () => {
    while (rest.length > 0) await work(rest.shift());
  });
  await Promise.all(workers);
}

describe("sessions", { concurrency: SERVERS.length, ...TIMEOUT }, () => {
  for (const [place, started] of SERVERS.entries()) {
    const at = { name: started.name, langgraph: started.langgraph };
    describe(`on the ${started.name} server`, TIMEOUT, () => {
      before(async () => {
        const config = new URL(`converse-${started.name}.toml`, LOGS);
        writeFileSync(config, agentsConfig());
        at.gateway = await startThreadway(`converse-${started.name}`, started.langgraph, "--config", fileURLToPath(config));
        at.threadway = at.gateway.url;
      });
      after(() => at.gateway?.stop());

      test("no thread is broken", TIMEOUT, async () => {
        const all = Array.from({ length: COUNT }, (_, n) => n).filter((n) => n % SERVERS.length === place);
        const began = performance.now();
        const counts = new Map();
        const failures = [];
        let [steps, played] = [0, 0];
        await inParallel(ONLY === undefined ? all : [ONLY], CONCURRENCY, async (number) => {
          const session = new Session(at, number, { lostThread: LOST_THREAD, accepted: ACCEPTED, only: ONLY_THESE });
          try {
            await session.play();
          } catch (failure) {
            session.faults.push({ kind: "failed-run", text: `the session broke: ${failure.stack}` });
          }
          steps += session.words.length;
          played += 1;
          if (played % PROGRESS === 0) console.log(`# ${started.name}: ${played} sessions, ${failures.length} failed, ${((performance.now() - began) / 1000).toFixed(0)} s`);
          const kinds = new Set(session.faults.map(({ kind }) => kind));
          for (const kind of kinds) counts.set(kind, (counts.get(kind) ?? 0) + 1);
          if (kinds.size > 0) failures.push(tell(session));
          if (process.env.VERBOSE) console.log(session.told);
        });
        const seconds = (performance.now() - began) / 1000;
        console.log(`# ${started.name}: ${ONLY === undefined ? all.length : 1} sessions, ${steps} steps, ${failures.length} failed, ${seconds.toFixed(1)} s`);
        for (const [kind, count] of [...counts].sort(([, a], [, b]) => b - a)) console.log(`#   ${String(count).padStart(5)} ${kind}: ${KINDS[kind]}`);
        const name = `converse-${started.name}-failures.txt`;
        writeFileSync(new URL(name, LOGS), failures.join("\n\n"));
        if (failures.length > 0) assert.fail(`${failures.length} sessions failed, all of them in ${name}:\n\n${failures.slice(0, SHOWN).join("\n\n")}`);
      });
    });
  }
});
