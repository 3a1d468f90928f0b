// A LangGraph server for one test, which may kill it and restart it with its stored data.

import { execFileSync, spawn } from "node:child_process";
import { createWriteStream } from "node:fs";
import { LOGS } from "./logs.mjs";
import { freePort } from "./ports.mjs";

const READY_MS = 240_000; // 3 s on an idle machine; 74 s seen on a busy one, which imports the module once for each graph
const STOP_MS = 20_000; // 5 s on an idle machine
const POLL_MS = 50;

export class Spare {
  /** `how`: the value that servers.py sets in LANGGRAPH_SPARE. */
  static async start(name, how) {
    const spare = new Spare();
    const port = await freePort();
    Object.assign(spare, { how: JSON.parse(how), port, url: `http://127.0.0.1:${port}` });
    spare.log = createWriteStream(new URL(`langgraph-${name}-spare.log`, LOGS));
    process.once("exit", () => send(descendants(spare.child.pid), "SIGKILL"));
    await spare.restart();
    return spare;
  }

  /** Kills all of its processes, or stops the first one and waits until all have ended. */
  async kill(signal) {
    const pids = descendants(this.child.pid);
    send(signal === "SIGKILL" ? pids : [this.child.pid], signal);
    const end = performance.now() + STOP_MS;
    while (pids.some(isAlive)) {
      if (performance.now() > end) send(pids, "SIGKILL");
      await new Promise((wake) => setTimeout(wake, POLL_MS));
    }
  }

  async restart() {
    const { command, cwd, env, health } = this.how;
    const [program, ...options] = command;
    this.child = spawn(program, [...options, "--port", this.port], { cwd, env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"] });
    this.child.stdout.pipe(this.log, { end: false });
    this.child.stderr.pipe(this.log, { end: false });
    const end = performance.now() + READY_MS;
    while (!(await fetch(this.url + health).then(({ ok }) => ok, () => false))) {
      if (performance.now() > end) throw new Error(`the spare LangGraph server was not ready after ${READY_MS} ms`);
      await new Promise((wake) => setTimeout(wake, POLL_MS));
    }
  }
}

function send(pids, signal) {
  for (const pid of pids) {
    try {
      process.kill(pid, signal);
    } catch {
      // The process has just ended.
    }
  }
}

function isAlive(pid) {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

/** A process and its descendants: the JavaScript server's first process would leave the others running. */
function descendants(pid) {
  const known = execFileSync("ps", ["-A", "-o", "pid=,ppid="], { encoding: "utf8" });
  const pairs = known.trim().split("\n").map((line) => line.trim().split(/\s+/).map(Number));
  const found = [pid];
  for (const parent of found) found.push(...pairs.filter(([, of]) => of === parent).map(([child]) => child));
  return found;
}
