// Runs a WASI module of which the path is the first argument, with this process's stdin and stdout.
// A process of its own: uvwasi closes the descriptors that it was given when it is collected.

import { readFileSync } from "node:fs";
import { WASI } from "node:wasi";

const wasi = new WASI({ version: "preview1", returnOnExit: true });
const { instance } = await WebAssembly.instantiate(readFileSync(process.argv[2]), wasi.getImportObject());
process.exitCode = wasi.start(instance);
