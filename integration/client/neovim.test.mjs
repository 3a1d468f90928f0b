// A real editor: Neovim without a screen, with CodeCompanion and the settings that `threadway acp --print-config neovim` prints.
// What a person reads in the chat's buffer is written to `.cache/logs/neovim/`.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { LOGS } from "./logs.mjs";
import { PYTHON } from "./servers.mjs";

const OPTIONS = { timeout: 300_000 };
const DRIVER = fileURLToPath(new URL("../neovim/drive.lua", import.meta.url));
const skip = process.env.NEOVIM_MISSING || false;

const home = mkdtempSync(join(tmpdir(), "threadway-neovim-"));
after(() => rmSync(home, { recursive: true, force: true }));

/** The output of a program. */
async function output(cwd, program, args) {
  const bare = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("THREADWAY_")));
  const child = spawn(program, args, { cwd, env: { ...bare, HOME: home, XDG_CONFIG_HOME: home, XDG_STATE_HOME: home }, stdio: ["ignore", "pipe", "pipe"] });
  const said = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"]) child[name].setEncoding("utf8").on("data", (text) => (said[name] += text));
  const status = await new Promise((resolve) => child.once("close", resolve));
  assert.equal(status, 0, `${program} ${args}: ${said.stderr}`);
  return said.stdout;
}

/** What the buffer shows after each step. */
async function drive(name, agent, steps) {
  const cwd = join(home, name); // the sessions of a directory are listed together
  mkdirSync(cwd);
  const [adapter, list] = ["adapter.lua", "steps.json"].map((file) => join(cwd, file));
  writeFileSync(adapter, await output(cwd, process.env.THREADWAY_BIN, ["acp", "--print-config", "neovim", "--upstream", PYTHON.langgraph, "--agent", agent]));
  writeFileSync(list, JSON.stringify(steps));
  const printed = await output(cwd, process.env.NEOVIM, ["--headless", "-u", "NONE", "-i", "NONE", "-l", DRIVER, process.env.NEOVIM_PLUGINS, adapter, list]);
  const found = printed.split("\n").filter(Boolean).map((line) => JSON.parse(line));
  const told = found.map(({ step, shown, notices, fault }) => [`===== ${JSON.stringify(step)}`, ...notices.map((text) => `notice: ${text}`), fault ?? "", shown].join("\n"));
  writeFileSync(new URL(`${name}.txt`, LOGS), told.join("\n"));
  assert.deepEqual(found.filter(({ fault }) => fault), []);
  assert.equal(found.length, steps.length);
  return found.map(({ shown }, at) => {
    const before = at > 0 && shown.startsWith(found[at - 1].shown.trimEnd()) ? found[at - 1].shown.trimEnd().length : 0;
    return { shown, added: shown.slice(before) };
  });
}

const say = (script) => ({ say: JSON.stringify({ delay: 0, ...script }) });
const times = (text, part) => text.split(part).length - 1;

describe("Neovim with CodeCompanion", { skip, concurrency: 2, ...OPTIONS }, () => {
  test("chats, and shows the conversation again in another chat", OPTIONS, async () => {
    const steps = [say({ words: ["The first", " answer."] }), say({ words: ["The second", " answer."] }), { again: true }, { resume: 1 }];
    const [first, second, again, resumed] = await drive("chat", "text", steps);
    assert.match(first.added, /## CodeCompanion \(threadway\)\s+The first answer\./);
    assert.match(second.added, /The second answer\./);
    assert.doesNotMatch(again.shown, /answer\./);
    for (const text of ["The first answer.", "The second answer."]) assert.equal(times(resumed.shown, text), 1, resumed.shown);
    assert.ok(resumed.shown.indexOf("The first answer.") < resumed.shown.indexOf("The second answer."));
  });

  test("asks before a tool: accept, always accept, reject", OPTIONS, async () => {
    const calls = (prefix) => say({ prefix, words: ["Both are", " decided."] });
    const steps = [
      ...[calls("a_"), { press: "Accept" }, { press: "Always accept" }],
      ...[calls("b_"), { press: "Reject" }],
    ];
    const [asked, accepted, always, askedAgain, rejected] = await drive("approval", "hitl", steps);
    assert.match(asked.added, /Approval Required\*\*\s+Other: send_email a@example\.com hi/);
    for (const label of ["Accept", "Always accept", "Reject", "Cancel"]) assert.ok(asked.added.includes(`- ${label}\n`), asked.added);
    assert.match(accepted.added, /You selected: Accept[^]*Delete: Delete \/tmp\/x/);
    assert.match(always.added, /You selected: Always accept[^]*Both are decided\./);
    // The second call is allowed for good.
    assert.match(askedAgain.added, /Other: send_email a@example\.com hi\s+Please select/);
    assert.match(rejected.added, /You selected: Reject[^]*Both are decided\./);
    assert.equal(times(rejected.added, "Approval Required"), 0, rejected.added);
  });

  test("says why a run has failed, and goes on", OPTIONS, async () => {
    // CodeCompanion appends the error to the last line, as a fence of Markdown. In mid-line it would end no fence, and the next
    // message would be a part of the block.
    const failing = { words: ["half an answer\n", "lost"], fail_after: 1, message: "The model is out of credit" };
    const [failed, next] = await drive("failed", "failing", [say(failing), say({ fail_after: 99 })]);
    const [, answer] = failed.added.split("## CodeCompanion (threadway)");
    assert.match(answer, /half an answer\n[^]*The model is out of credit/);
    assert.match(next.added, /tok0 tok1/);
  });
});
