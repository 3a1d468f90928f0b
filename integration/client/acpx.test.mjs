// acpx, a headless ACP client for the shell, with threadway as its agent. Each command is a process, and so is each agent.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { text as textOf } from "node:stream/consumers";
import { after, describe, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { AGENT, scratch, words } from "./acp.mjs";
import { Gate } from "./gate.mjs";
import { Langgraph } from "./langgraph.mjs";
import { PYTHON as server } from "./servers.mjs";

const ACPX = fileURLToPath(import.meta.resolve("acpx/dist/cli.js"));
const TAP = fileURLToPath(new URL("acp-tap.mjs", import.meta.url));
const COMMAND_MS = 180_000; // one command: a second, but half a minute beside five others on two busy cores
const TTL_SECONDS = 180; // how long acpx keeps an agent after a prompt; the tests end the agent
const WAIT_MS = 90_000; // a process or a run that has not come by then does not come
const POLL_MS = 100;
const DENIED = 5; // acpx's exit status if every permission was denied
const lg = server && new Langgraph(server);

const home = scratch();
const report = join(home, "report");
writeFileSync(report, "");
const config = join(home, "config.toml");
writeFileSync(config, '[acp.modes.doing]\nname = "Doing"\n\n[acp.modes.planning]\nname = "Planning"\nassistant = "todos"\n');

/** A new working directory, and acpx in it. */
function workspace(agent) {
  const cwd = join(scratch(), randomUUID());
  mkdirSync(cwd);
  const command = [process.execPath, TAP, report, ...AGENT, "--upstream", server.langgraph, "--agent", agent, "--config", config];
  const start = (...args) => {
    const bare = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("THREADWAY_") || name === "THREADWAY_BIN"));
    const options = { cwd, env: { ...bare, HOME: home }, stdio: ["ignore", "pipe", "pipe"], timeout: COMMAND_MS };
    const child = spawn(process.execPath, [ACPX, "--cwd", cwd, "--ttl", TTL_SECONDS, "--agent", command.join(" "), ...args], options);
    const status = new Promise((resolve) => child.once("close", (code, signal) => resolve(code ?? signal)));
    const running = { out: "", result: undefined };
    child.stdout.setEncoding("utf8").on("data", (text) => (running.out += text));
    const err = textOf(child.stderr);
    running.result = status.then(async (status) => [status, running.out, await err]);
    return running;
  };
  const acpx = async (...args) => {
    const [status, out, err] = await start(...args).result;
    assert.equal(status, 0, `acpx ${args.join(" ")}: ${status}\n${out}\n${err}`);
    return out;
  };
  return { cwd, start, acpx };
}

/** The threads of a directory, the newest first. */
const threads = (cwd) => lg.post("/threads/search", { metadata: { acp_session: true, cwd }, limit: 10 });
const messages = async (id) => (await lg.get(`/threads/${id}/state`)).values.messages;

async function until(what, isTrue, limit = WAIT_MS) {
  for (const end = performance.now() + limit; !(await isTrue()); await pause(POLL_MS)) {
    assert.ok(performance.now() < end, `${what}: not after ${limit} ms`);
  }
}

describe("acpx", { skip: !server, concurrency: 3, timeout: 4 * COMMAND_MS }, () => {
  after(() => {
    const lines = readFileSync(report, "utf8").split("\n").filter(Boolean);
    assert.deepEqual(lines.filter((line) => line.startsWith("fault")), []);
    assert.ok(lines.length > 0, "the tap has read something");
  });

  test("one prompt, approved, denied, and as JSON", async () => {
    const { cwd, acpx, start } = workspace("guarded");
    const approved = await acpx("--approve-all", "exec", "please edit");
    assert.match(approved, /Both files are written\./);
    assert.match(approved, /\[done\] end_turn/);
    const results = async () => {
      const [{ thread_id: id }] = await threads(cwd);
      return (await messages(id)).filter(({ type }) => type === "tool").map(({ status }) => status);
    };
    assert.deepEqual(await results(), ["success", "success", "success"]);

    const [status, denied] = await start("--deny-all", "exec", "please edit").result;
    assert.equal(status, DENIED, denied);
    assert.match(denied, /\[done\] end_turn/);
    assert.deepEqual(await results(), ["success", "error", "error"]);

    const frames = (await acpx("--approve-all", "--format", "json", "--json-strict", "exec", "hi")).trim().split("\n").map((line) => JSON.parse(line));
    assert.equal(frames.at(-1).result.stopReason, "end_turn");
    const said = frames.filter(({ params }) => params?.update?.sessionUpdate === "agent_message_chunk").map(({ params }) => params.update.content.text);
    assert.equal(said.join(""), "tok0 tok1 tok2 tok3 tok4 tok5 tok6 tok7 ");
  });

  test("a named session: set, set-mode, list, close, and again in a new process", async () => {
    const { cwd, acpx } = workspace("editor");
    await acpx("sessions", "new", "--name", "one");
    assert.deepEqual(await threads(cwd), [], "a session without a prompt has no thread");
    assert.match(await acpx("prompt", "-s", "one", "hello"), /tok7 \n*\[done\] end_turn/);
    // acpx ends its agent after `new`. The next one does not know the session, so acpx opens another under that name.
    const [{ thread_id: id }] = await threads(cwd);
    assert.match(await acpx("set-mode", "-s", "one", "planning"), /mode set: planning/);
    assert.match(await acpx("prompt", "-s", "one", "plan it"), /step one/);
    assert.match(await acpx("set", "-s", "one", "assistant", "tool_error"), /config set: assistant=tool_error/);
    assert.match(await acpx("prompt", "-s", "one", "divide"), /divide 1 0 \(failed\)/);
    const listed = await acpx("sessions", "list", "--filter-cwd", cwd);
    assert.ok(listed.split("\n").some((line) => line.startsWith(id) && line.includes("hello")), listed);
    assert.equal((await threads(cwd)).length, 1);
    const said = async () => (await messages(id)).filter(({ type }) => type === "human").map(({ content }) => (typeof content === "string" ? content : content[0].text));
    assert.deepEqual(await said(), ["hello", "plan it", "divide"]);

    // The next process resumes the session, with its agent.
    const [, pid] = /pid: (\d+)\nstatus: running/.exec(await acpx("status", "-s", "one"));
    process.kill(Number(pid));
    await until("the end of the process", async () => !/status: running/.test(await acpx("status", "-s", "one")));
    assert.match(await acpx("prompt", "-s", "one", "divide again"), /divide 1 0 \(failed\)/);
    assert.deepEqual(await said(), ["hello", "plan it", "divide", "divide again"]);
    assert.equal((await threads(cwd)).length, 1, "no other session was made in its place");
    await acpx("sessions", "close", "one");
  });

  test("cancel", async () => {
    const { cwd, acpx, start } = workspace("editor");
    await acpx("sessions", "new", "--name", "one");
    const gate = await Gate.before(5);
    const slow = start("prompt", "-s", "one", JSON.stringify({ words: words(10), ...gate.script }));
    await until("some text", () => slow.out.includes("word0 "));
    await acpx("cancel", "-s", "one");
    const [, out] = await slow.result;
    const [{ thread_id: id }] = await threads(cwd);
    assert.match(out, /word0 /);
    assert.match(out, /\[done\] cancelled/);
    const [run] = await lg.get(`/threads/${id}/runs`);
    assert.equal((await lg.ended(id, run.run_id)).record.status, "interrupted");
    gate.open();
    assert.match(await acpx("prompt", "-s", "one", "hello"), /tok7 \n*\[done\] end_turn/);
    await acpx("sessions", "close", "one");
  });
});
