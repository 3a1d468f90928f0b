// The client of the Rust SDK over the network: its WebSocket and its streamable HTTP, at the gateway in front of a real
// LangGraph server. The scenarios are those of `acp-rust.test.mjs`, and every message is judged.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { scratch } from "./acp.mjs";
import { Judge } from "./acp-judge.mjs";

const TIMEOUT_MS = 300_000; // five scenarios of three seconds each
const SCENARIOS = ["Turn", "Permission", "Cancel", "Close", "Again"];
const CONNECTIONS = SCENARIOS.length + 1; // the last scenario has two
const gateway = process.env.THREADWAY_URL;

/** The faults of each connection's messages, and their number. */
function judged(recorded) {
  const [, ...connections] = recorded.split(/^--\n/m);
  return connections.map((lines) => {
    const judge = new Judge();
    for (const line of lines.split("\n").filter(Boolean)) {
      const [, from, message] = /^(client|agent) (.*)$/s.exec(line);
      judge.bytes(from, Buffer.from(`${message}\n`));
    }
    judge.end();
    return { faults: judge.faults, count: judge.frames.length };
  });
}

for (const [name, url] of Object.entries({ WebSocket: gateway?.replace("http", "ws"), HTTP: gateway })) {
  test(`the Rust SDK's ${name}: a turn, loads, permissions, a cancel, a close`, { skip: !gateway }, async () => {
    const frames = join(scratch(), "frames");
    const { stdout } = await promisify(execFile)(process.env.ACP_RUST, ["--remote", url, frames], { timeout: TIMEOUT_MS }).catch((error) =>
      assert.fail(`${error.message}\n${error.stdout}\n${error.stderr}`),
    );
    assert.deepEqual([...stdout.matchAll(/^ok (\w+)/gm)].map(([, scenario]) => scenario), SCENARIOS, stdout);
    const connections = judged(existsSync(frames) ? readFileSync(frames, "utf8") : "");
    assert.equal(connections.length, CONNECTIONS);
    for (const { faults, count } of connections) {
      assert.deepEqual(faults, []);
      assert.ok(count > 10, `${count} messages`);
    }
  });
}
