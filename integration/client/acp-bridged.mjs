// `threadway acp` in two halves: takes its options, starts `threadway serve` with them, and bridges stdin and stdout to it with
// `threadway acp --gateway`. Any client that starts an agent can so be tested over the gateway's WebSocket.

import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { parseArgs } from "node:util";
import { startThreadway } from "./threadway.mjs";

const GRACE_MS = 1_500;
const KINDS = { upstream: "string", agent: "string", config: "string", "upstream-api-key": "string" };
const options = Object.fromEntries(Object.entries(KINDS).map(([name, type]) => [name, { type }]));
const { values } = parseArgs({ args: process.argv.slice(2).filter((word) => word !== "acp"), options });

/** The config file of the gateway: the agent's own, with its agent as `acp.agent`. */
function configOf({ agent, config }) {
  const text = config ? readFileSync(config, "utf8") : "";
  if (!agent) return text;
  const line = `agent = ${JSON.stringify(agent)}\n`;
  return /^\[acp\]$/m.test(text) ? text.replace(/^\[acp\]\n/m, `[acp]\n${line}`) : `${text}\n[acp]\n${line}`;
}

const directory = mkdtempSync(join(tmpdir(), "threadway-bridged-"));
process.once("exit", () => rmSync(directory, { recursive: true, force: true }));
const file = join(directory, "config.toml");
writeFileSync(file, configOf(values));
const key = values["upstream-api-key"];
const gateway = await startThreadway(`bridged-${process.pid}`, values.upstream, "--config", file, ...(key ? ["--upstream-api-key", key] : []));
const child = spawn(process.env.THREADWAY_BIN, ["acp", "--gateway", gateway.url], { stdio: "inherit" });
for (const signal of ["SIGTERM", "SIGINT"]) process.once(signal, () => child.kill(signal));
child.once("close", async (code, signal) => {
  // The gateway waits for the client to return before it stops a run. As long as the tests' grace is not over, it must live.
  if (values.config && readFileSync(values.config, "utf8").includes("owner_grace_seconds")) await pause(GRACE_MS);
  await gateway.stop();
  process.exit(code ?? (signal ? 1 : 0));
});
