// A threadway for tests that need one in front of another server than LangGraph.

import { spawn } from "node:child_process";
import { createWriteStream } from "node:fs";
import { LOGS } from "./logs.mjs";

const READY_MS = 60_000;

/**
 * Starts the binary in THREADWAY_BIN in front of `upstream` on a free port; returns its URL, and a function that stops it.
 * Its log is in the same directory as the others. Without an `upstream` the options name a config file with upstreams.
 */
export function startThreadway(name, upstream, ...options) {
  return startProgram(process.env.THREADWAY_BIN, name, upstream, ...options);
}

/** The same with a program that starts the binary. */
export async function startProgram(program, name, upstream, ...options) {
  const bare = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("THREADWAY_")));
  const before = upstream === undefined ? [] : ["--upstream", upstream];
  const listen = options.includes("--listen") ? [] : ["--listen", "127.0.0.1:0"];
  const command = ["serve", ...before, ...listen, ...options];
  const child = spawn(program, command, { env: bare, stdio: ["ignore", "ignore", "pipe"] });
  const exit = new Promise((resolve) => child.once("exit", resolve));
  const kill = () => child.kill("SIGKILL");
  process.once("exit", kill);
  child.once("exit", () => process.off("exit", kill));
  const file = createWriteStream(new URL(`threadway-${name}.log`, LOGS));
  let log = "";
  let said = "";
  let isReady = false;
  const url = await new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new Error(`threadway was not ready after ${READY_MS} ms:\n${log}`)), READY_MS);
    child.once("error", reject);
    child.once("exit", (code) => reject(new Error(`threadway ended with ${code}:\n${log}`)));
    child.stderr.setEncoding("utf8").on("data", (text) => {
      file.write(text);
      said += text;
      if (isReady) return;
      log += text;
      const told = /listening on .*?(http:\/\/[\d.]+:\d+)/.exec(log);
      if (!told) return;
      isReady = true;
      clearTimeout(late);
      resolve(told[1]);
    });
  }).catch((error) => {
    kill(); // or this process would wait for it
    throw error;
  });
  const stop = () => {
    child.kill("SIGTERM");
    return exit;
  };
  return { url, pid: child.pid, stop, said: () => said };
}
