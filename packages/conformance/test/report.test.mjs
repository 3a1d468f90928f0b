import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { test } from "node:test";
import { junit, markdown, plainLine, summary, tapLine } from "../src/report.mjs";

const one = (id, status, saw, level = "MUST") => ({ id, requirement: id.split(".")[0], level, title: `title of ${id} #1`, status, saw, ms: 12 });
const results = [
  one("A1", "pass", "200"),
  one("A2", "fail", 'a | b & "<c>"\nd\u0000'),
  one("A49", "warn", "x", "SHOULD"),
  one("T14.2", "skip", "no ids"),
];

test("TAP has a line for each case, and what was seen", () => {
  assert.deepEqual(results.map((result, n) => tapLine(result, n + 1)), [
    "ok 1 - A1 MUST title of A1 \\#1\n# saw: 200\n",
    'not ok 2 - A2 MUST title of A2 \\#1\n# saw: a | b & "<c>" d\u0000\n',
    "not ok 3 - A49 SHOULD title of A49 \\#1 # TODO SHOULD: x\n",
    "ok 4 - T14.2 MUST title of T14.2 \\#1 # SKIP no ids\n",
  ]);
  assert.match(plainLine(results[1]), /^FAIL A2/);
});

test("JUnit is escaped, and has a suite for AG-UI and one for the transport", () => {
  const text = junit(results, { url: "http://h/?a=1&b=2" });
  assert.match(text, /<testsuite name="AG-UI 1.0" tests="3" failures="1" skipped="0" hostname="http:\/\/h\/\?a=1&#38;b=2">/);
  assert.match(text, /<testsuite name="the resumable transport" tests="1" failures="0" skipped="1"/);
  assert.match(text, /<failure message="a \| b &#38; &#34;&#60;c&#62;&#34;\nd\?"\/>/);
  assert.equal((text.match(/<testcase /g) ?? []).length, 4);
});

test("the table counts, and lists what does not hold", () => {
  assert.equal(summary(results), "AG-UI 1.0: 1 passed, 1 failed, 1 warned, 0 skipped; the resumable transport: 0 passed, 0 failed, 0 warned, 1 skipped");
  const lines = markdown(results, { name: "a server", date: "2026-11-27" }).split("\n");
  assert.deepEqual(lines.slice(2, 4), ["| a server | 2026-11-27 | AG-UI 1.0 | 1 | 1 | 1 | 0 |", "| a server | 2026-11-27 | the resumable transport | 0 | 0 | 0 | 1 |"]);
  assert.equal(lines[7], '| A2 | MUST | The stream has LF line endings. | a \\| b & "<c>" d\u0000 |');
});

test("wrong arguments exit with 2 and say what is wrong", () => {
  const program = fileURLToPath(new URL("../bin/threadway-conformance.mjs", import.meta.url));
  const run = (...words) => spawnSync(process.execPath, [program, ...words], { encoding: "utf8" });
  for (const [words, said] of [
    [[], /URL of an agent is missing/],
    [["ftp://h/"], /no http URL/],
    [["http://h/", "T99"], /no case T99/],
    [["http://h/", "--answer", "{"], /--answer is no JSON/],
    [["http://h/", "--header", "x"], /NAME: VALUE/],
    [["http://h/", "--jobs", "0"], /--jobs is no number/],
    [["http://h/", "--frob"], /--frob/],
  ]) {
    const { status, stderr } = run(...words);
    assert.equal(status, 2, words.join(" "));
    assert.match(stderr, said);
  }
  const { status, stdout } = run("--list");
  assert.equal(status, 0);
  assert.match(stdout, /^T55 +SHOULD /m);
});

test("without a server there is one line, and no case", () => {
  const program = fileURLToPath(new URL("../bin/threadway-conformance.mjs", import.meta.url));
  const { status, stdout, stderr } = spawnSync(process.execPath, [program, "http://127.0.0.1:9/", "--tap"], { encoding: "utf8" });
  assert.equal(status, 2);
  assert.equal(stdout, "");
  assert.match(stderr, /^threadway-conformance: no server listens at http:\/\/127\.0\.0\.1:9\/: .*ECONNREFUSED.*\n$/);
});
