// Each requirement of docs/transport.md has a case, and each case names a requirement that exists.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { CASES, REQUIREMENTS, chosen } from "../src/runner.mjs";

const text = readFileSync(new URL("../../../docs/transport.md", import.meta.url), "utf8");
const written = new Map([...text.matchAll(/^- \*\*(T\d+)\*\* (.*)$/gm)].map(([, id, rule]) => [id, rule]));
const known = Object.keys(REQUIREMENTS);

test("the text and the suite have the same requirements, in one order", () => {
  assert.deepEqual(known.filter((id) => id.startsWith("T")), [...written.keys()]);
  assert.deepEqual([...written.keys()], [...written.keys()].map((_, n) => `T${n + 1}`));
  const agui = known.filter((id) => id.startsWith("A"));
  assert.deepEqual(agui, agui.map((_, n) => `A${n + 1}`));
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
