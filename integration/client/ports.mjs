// Ports for servers that bind them later, as in integration/ports.py, with which it shares its folder.

import { closeSync, mkdirSync, openSync, statSync, unlinkSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

const FIRST = 10_240;
const END = 32_768;
const KEPT_MS = 30 * 60_000;
const PICKED = join(tmpdir(), `threadway-ports-${process.getuid()}`);

/** A port that nobody uses, and that nobody else gets from here for 30 minutes. */
export async function freePort() {
  mkdirSync(PICKED, { recursive: true });
  const begin = Math.floor(Math.random() * (END - FIRST));
  for (let step = 0; step < END - FIRST; step += 1) {
    const port = FIRST + ((begin + step) % (END - FIRST));
    if (picks(join(PICKED, `${port}`)) && (await isFree(port))) return port;
  }
  throw new Error(`all ports from ${FIRST} to ${END} are in use; ${PICKED} lists those that were picked`);
}

/** Whether this call is the one that picked the port. */
function picks(mark) {
  const picked = statSync(mark, { throwIfNoEntry: false });
  if (picked && Date.now() - picked.mtimeMs < KEPT_MS) return false;
  try {
    if (picked) unlinkSync(mark);
    closeSync(openSync(mark, "wx"));
    return true;
  } catch (error) {
    if (error.code === "EEXIST" || error.code === "ENOENT") return false; // somebody else picks it now
    throw error;
  }
}

function isFree(port) {
  const probe = createServer();
  return new Promise((resolve) => {
    probe.once("error", () => resolve(false));
    probe.listen(port, "127.0.0.1", () => probe.close(() => resolve(true)));
  });
}
