// packages/conformance runs against threadway before the demo's scripted LangGraph server: each requirement of
// docs/transport.md holds. The suite's own tests are in its package.
//
// One gateway is judged and at last stopped; a second one before the same server is its replica; a third has credentials and a
// limit of requests.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, test } from "node:test";
import { LOGS } from "./logs.mjs";
import { startThreadway } from "./threadway.mjs";

const SUITE = fileURLToPath(new URL("../../packages/conformance/bin/threadway-conformance.mjs", import.meta.url));
const JOBS = "32"; // most cases wait for their runs
const REQUESTS_PER_SECOND = 20;
const KEY = "key-of-the-conformance-suite";
const MIN_CASES = 100; // that are not skipped

/** No agent of the demo has such events; other agents have, in front of other servers: docs/conformance.md. */
const UNSEEN = ["A8", "A18", "A25", "A29", "A34", "A35", "A36", "A37", "A38", "A39", "A40", "A41"];

const langgraph = process.env.DEMO_URL;
if (!langgraph) throw new Error("DEMO_URL is not set: start this with integration/run conformance");

/** Runs the suite; returns its results, and what it printed. */
async function judge(name, url, ...options) {
  const file = fileURLToPath(new URL(`conformance-${name}.json`, LOGS));
  const command = [SUITE, "--jobs", JOBS, "--seed", process.env.SEED ?? "1", "--json", file, ...options];
  const child = spawn(process.execPath, [...command.slice(0, 1), url, ...command.slice(1)], { stdio: ["ignore", "pipe", "inherit"] });
  let said = "";
  child.stdout.setEncoding("utf8").on("data", (text) => (said += text));
  const code = await new Promise((resolve) => child.once("close", resolve));
  const { results } = JSON.parse(readFileSync(file, "utf8"));
  const wrong = results.filter(({ status }) => ["fail", "warn"].includes(status));
  assert.deepEqual(wrong.map(({ id, title, saw }) => `${id} ${title}: ${saw}`), []);
  assert.equal(code, 0, said);
  return results;
}

const idsOf = (results, status) => results.filter((result) => result.status === status).map(({ id }) => id);

describe("threadway before the scripted server", { concurrency: true }, () => {
  test("threadway fulfils AG-UI 1.0 and the transport", async () => {
    const [judged, replica] = [await startThreadway("conformance", langgraph), await startThreadway("conformance-replica", langgraph)];
    const of = (agent, { url } = judged) => `${url}/agui/agent/${agent}/run`;
    const results = await judge("threadway", of("agent"), "--ask", of("approval"), "--also", of("failing"), "--also", of("watched"),
      "--replica", of("agent", replica), "--shutdown", `kill -TERM ${judged.pid}`);
    // These need a limit, credentials and another caller.
    assert.deepEqual(idsOf(results, "skip"), [...UNSEEN, "T39", "T52", "T52.2"]);
    assert.ok(idsOf(results, "pass").length >= MIN_CASES);
    await Promise.all([judged.stop(), replica.stop()]);
  });

  test("a gateway with keys and a limit defers clients that resume, and refuses those without credentials", async () => {
    const options = ["--auth-mode", "bearer", "--auth-keys", `suite=${KEY}`];
    const limited = await startThreadway("conformance-limited", langgraph, ...options, "--limit-requests-per-second", String(REQUESTS_PER_SECOND));
    const url = `${limited.url}/agui/agent/agent/run`;
    const results = await judge("limited", url, "T52", "T7", "T39", "--header", `authorization: Bearer ${KEY}`, "--flood", String(3 * REQUESTS_PER_SECOND));
    assert.deepEqual(idsOf(results, "pass"), ["T7", "T39", "T52"]);
    await limited.stop();
  });
});
