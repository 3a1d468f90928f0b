// Runs cases side by side.

import { AGUI } from "./agui.mjs";
import { AGUI_CASES } from "./cases-agui.mjs";
import { TRANSPORT_CASES } from "./cases-transport.mjs";
import { Context, Fail, Skip } from "./context.mjs";
import { TRANSPORT } from "./transport.mjs";

export const REQUIREMENTS = { ...AGUI, ...TRANSPORT };

/** Numbers the cases of each requirement: `T14`, and `T14.2` for a second one. */
export const CASES = (() => {
  const counts = new Map();
  return [...AGUI_CASES, ...TRANSPORT_CASES].map((one) => {
    const count = (counts.get(one.requirement) ?? 0) + 1;
    counts.set(one.requirement, count);
    const { level, text } = REQUIREMENTS[one.requirement];
    return { ...one, id: count === 1 ? one.requirement : `${one.requirement}.${count}`, level, title: one.title ?? text };
  });
})();

/** The cases that the words name: an id, a requirement, or a letter for all of AG-UI (A) or of the transport (T). */
export function chosen(words) {
  if (words.length === 0) return CASES;
  const isNamed = ({ id, requirement }) => words.some((word) => word === id || word === requirement || word === requirement[0]);
  const unknown = words.find((word) => !CASES.some(({ id, requirement }) => [id, requirement, requirement[0]].includes(word)));
  if (unknown !== undefined) throw new Error(`there is no case ${unknown}: --list prints all of them`);
  return CASES.filter(isNamed);
}

/** A generator of random numbers from 0 to 1 (mulberry32), so that a seed repeats a session. */
export function seeded(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

async function runOne(one, context) {
  const began = performance.now();
  const result = (status, saw) => ({ id: one.id, requirement: one.requirement, level: one.level, title: one.title, status, saw, ms: Math.round(performance.now() - began) });
  try {
    return result("pass", await one.run(context));
  } catch (failure) {
    if (failure instanceof Skip) return result("skip", failure.message);
    if (failure instanceof Fail) return result(one.level === "SHOULD" ? "warn" : "fail", failure.message);
    if (failure instanceof ReferenceError) throw failure;
    // An answer that does not arrive, or bytes that are not HTTP: what the server did, and not a fault of the suite.
    return result(one.level === "SHOULD" ? "warn" : "fail", `${failure.message}${process.env.DEBUG ? ` ${failure.stack}` : ""}`);
  }
}

/** Runs the cases, `jobs` at a time; those that end the server come last. Calls `onResult` in the order of the cases. */
export async function runAll(cases, options, onResult = () => {}) {
  const context = new Context(options, seeded(options.seed));
  const results = new Map();
  let shown = 0;
  const done = (one, result) => {
    results.set(one.id, result);
    while (shown < cases.length && results.has(cases[shown].id)) onResult(results.get(cases[shown++].id));
  };
  for (const group of [cases.filter(({ isLast }) => !isLast), cases.filter(({ isLast }) => isLast)]) {
    // The longest begin first, so that none of them is alone at the end.
    const waiting = [...group.filter(({ isLong }) => isLong), ...group.filter(({ isLong }) => !isLong)];
    const work = async () => {
      for (let one = waiting.shift(); one; one = waiting.shift()) done(one, await runOne(one, context));
    };
    await Promise.all(Array.from({ length: options.jobs }, work));
  }
  return cases.map(({ id }) => results.get(id));
}
