// Each requirement of docs/transport.md has a case, and each case names a requirement that exists.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { CASES, REQUIREMENTS, chosen } from "../src/runner.mjs";

const text = readFileSync(new URL("../../../docs/transport.md", import.meta.url), "utf8");
const written = new Map([...text.matchAll(/^- \*\*(T\d+)\*\* (.*)$/gm)].map(([, id, rule]) => [id, rule]));
const known = Object.keys(REQUIREMENTS);

const numberOf = (id) => Number(id.slice(1));

test("the text and the suite have the same requirements, without a gap", () => {
  // A requirement that was added later has a higher number than those after it.
  const inOrder = [...written.keys()].sort((a, b) => numberOf(a) - numberOf(b));
  assert.deepEqual(known.filter((id) => id.startsWith("T")), inOrder);
  assert.deepEqual(inOrder, inOrder.map((_, n) => `T${n + 1}`));
  const agui = known.filter((id) => id.startsWith("A"));
  assert.deepEqual(agui, agui.map((_, n) => `A${n + 1}`));
});

test("the suite marks as core what the text defines as core", () => {
  const [, first, last, rest, more] = text.match(/\*core\* is `POST B\/run` with sections (\d) to (\d), ([\d, and]+?), and (T\d+);/);
  const sections = [...Array(last - first + 1).keys()].map((n) => n + Number(first)).concat(rest.match(/\d+/g).map(Number));
  let section;
  for (const line of text.split("\n")) {
    section = Number(/^## (\d+)/.exec(line)?.[1] ?? section);
    const [, id, rule] = /^- \*\*(T\d+)\*\* (.*)$/.exec(line) ?? [];
    if (!id) continue;
    const isCore = sections.includes(section) || id === more;
    // A rule about one optional route is that route's.
    const route = isCore && REQUIREMENTS[id].part !== "core";
    if (route) assert.match(rule, /^(GET routes|`connect`|`events`|.*stream of `events`)/, `${id} is marked ${REQUIREMENTS[id].part}`);
    else assert.equal(REQUIREMENTS[id].part === "core", isCore, `${id}, section ${section}: ${REQUIREMENTS[id].part}`);
  }
});

test("a requirement has the level that the text gives it", () => {
  for (const [id, rule] of written) {
    const [first] = rule.match(/MUST|SHOULD|MAY/g) ?? [];
    assert.equal(first === "MAY" ? rule.match(/MUST|SHOULD/)?.[0] : first, REQUIREMENTS[id].level, `${id}: ${rule}`);
  }
});

test("each requirement has a case, and each case a requirement", () => {
  assert.deepEqual(known.filter((id) => !CASES.some(({ requirement }) => requirement === id)), []);
  assert.deepEqual(CASES.filter(({ requirement }) => !known.includes(requirement)), []);
  assert.ok(CASES.length >= 60, `there are ${CASES.length} cases`);
});

test("a case can be chosen by its id, its requirement or its letter", () => {
  assert.deepEqual(chosen(["T14.2", "A3"]).map(({ id }) => id), ["A3", "T14.2"]);
  assert.deepEqual(chosen(["T14"]).map(({ id }) => id), ["T14", "T14.2"]);
  assert.equal(chosen(["A"]).length + chosen(["T"]).length, CASES.length);
  assert.throws(() => chosen(["T99"]), /no case T99/);
});
