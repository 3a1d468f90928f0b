// The translation compiled to WebAssembly, under Node: its output for a recording equals that of `threadway translate`. A check has
// a fifth of the recordings, by the seed; FULL=1 all of them.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync, readdirSync } from "node:fs";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";

import { SEED, seeded } from "./seeded.mjs";

const CAPTURES = new URL("../../tests/captures/", import.meta.url);
const HOST = fileURLToPath(new URL("wasm-host.mjs", import.meta.url));
const MODULE = process.env.TRANSLATE_WASM;
const MAX_BYTES = 256 * 1024 * 1024;

/** The exit status of `threadway translate` for a recording that is cut; both then write the run as failed. */
const BROKEN_RECORDING = 2;

function outputOf(command, args, input) {
  const { status, stdout, stderr } = spawnSync(command, args, { input, maxBuffer: MAX_BYTES });
  assert.ok(status === 0 || status === BROKEN_RECORDING, String(stderr));
  return String(stdout);
}

test("the module imports nothing but WASI: no socket, no thread, nothing of its host", () => {
  const imports = WebAssembly.Module.imports(new WebAssembly.Module(readFileSync(MODULE)));
  assert.deepEqual([...new Set(imports.map((needed) => needed.module))], ["wasi_snapshot_preview1"]);
});

console.log(`# SEED=${SEED}`);

for (const server of readdirSync(CAPTURES)) {
  describe(server, () => {
    const folder = new URL(`${server}/`, CAPTURES);
    const { random } = seeded(server);
    const isChosen = () => random() < 0.2 || process.env.FULL === "1";
    for (const name of readdirSync(folder).filter((name) => name.endsWith(".sse") && isChosen())) {
      test(name, () => {
        const recording = readFileSync(new URL(name, folder));
        const translated = outputOf(process.execPath, ["--no-warnings", HOST, MODULE], recording);
        assert.ok(translated.includes("RUN_STARTED"), "the module wrote no run");
        assert.equal(translated, outputOf(process.env.THREADWAY_BIN, ["translate", "--to", "agui"], recording));
      });
    }
  });
}
