// Runs a WASI module, whose path is the first argument, with this process's stdin and stdout. It is a process of its own,
// because uvwasi closes the descriptors that it was given when it is garbage-collected.

import { readFileSync } from "node:fs";
import { WASI } from "node:wasi";

const wasi = new WASI({ version: "preview1", returnOnExit: true });
const { instance } = await WebAssembly.instantiate(readFileSync(process.argv[2]), wasi.getImportObject());
process.exitCode = wasi.start(instance);
