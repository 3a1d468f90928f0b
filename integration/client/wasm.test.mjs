// The translation compiled to WebAssembly, under Node: of every recording it makes what `threadway translate` makes.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { closeSync, mkdtempSync, openSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { WASI } from "node:wasi";

const CAPTURES = fileURLToPath(new URL("../../tests/captures", import.meta.url));
const MAX_BYTES = 256 * 1024 * 1024;

const module = new WebAssembly.Module(readFileSync(process.env.TRANSLATE_WASM));
const scratch = mkdtempSync(join(tmpdir(), "threadway-wasm-"));
after(() => rmSync(scratch, { recursive: true }));

/** What the module writes to stdout for a file on stdin. */
function translated(file) {
  const output = join(scratch, "out.sse");
  const [stdin, stdout] = [openSync(file, "r"), openSync(output, "w")];
  const wasi = new WASI({ version: "preview1", stdin, stdout, returnOnExit: true });
  const status = wasi.start(new WebAssembly.Instance(module, wasi.getImportObject()));
  closeSync(stdin);
  closeSync(stdout);
  assert.equal(status, 0);
  return readFileSync(output, "utf8");
}

/** What the native binary writes for the same. */
function expected(file) {
  const options = { input: readFileSync(file), maxBuffer: MAX_BYTES };
  const { status, stdout, stderr } = spawnSync(process.env.THREADWAY_BIN, ["translate"], options);
  assert.equal(status, 0, String(stderr));
  return String(stdout);
}

test("the module imports nothing but WASI: no socket, no thread, no host of its own", () => {
  const modules = new Set(WebAssembly.Module.imports(module).map((needed) => needed.module));
  assert.deepEqual([...modules], ["wasi_snapshot_preview1"]);
});

for (const server of readdirSync(CAPTURES)) {
  describe(server, () => {
    for (const name of readdirSync(join(CAPTURES, server)).filter((name) => name.endsWith(".sse"))) {
      test(name, () => {
        const file = join(CAPTURES, server, name);
        const bytes = translated(file);
        assert.ok(bytes.includes("RUN_STARTED"), "the module wrote no run");
        assert.equal(bytes, expected(file));
      });
    }
  });
}
