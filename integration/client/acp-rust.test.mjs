// The client of the Rust SDK, as a separate program (`../acp-rust`), with threadway as its agent and a judge between them.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { AGENT, scratch } from "./acp.mjs";
import { isServed } from "./langgraph.mjs";
import { PYTHON as server } from "./servers.mjs";

const TIMEOUT_MS = 300_000; // five scenarios of two seconds each
const TAP = fileURLToPath(new URL("acp-tap.mjs", import.meta.url));

/** Runs the program with the agent behind a judge. */
async function run(...args) {
  const report = join(scratch(), "report");
  const agent = [process.execPath, TAP, report, ...AGENT, "--upstream", server.langgraph];
  const environment = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("THREADWAY_") || name === "THREADWAY_BIN"));
  const options = { env: environment, timeout: TIMEOUT_MS };
  const { stdout } = await promisify(execFile)(process.env.ACP_RUST, [...args, ...agent], options).catch((error) =>
    assert.fail(`${error.message}\n${error.stdout}\n${error.stderr}`),
  );
  const lines = existsSync(report) ? readFileSync(report, "utf8").split("\n").filter(Boolean) : [];
  assert.deepEqual(lines.filter((line) => line.startsWith("fault")), []);
  return stdout;
}

test("the Rust SDK's client: a turn, loads, permissions, a cancel, a close", { skip: !server }, async () => {
  const stdout = await run();
  assert.equal(stdout.match(/^ok /gm)?.length, 5, stdout);
});

test("the Rust SDK's client: child sessions of real deep agents", { skip: !server || !isServed(server, "deep") }, async () => {
  const stdout = await run("--children");
  assert.equal(stdout.match(/^ok /gm)?.length, 2, stdout);
});
