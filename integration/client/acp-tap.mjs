// A proxy between an ACP client and its agent that judges every frame and records the violations.
//
// usage: node acp-tap.mjs REPORT COMMAND [ARG...]    one line of REPORT for each fault and, at the end, the number of
// frames

import { spawn } from "node:child_process";
import { appendFileSync } from "node:fs";
import { Judge } from "./acp-judge.mjs";

const [report, command, ...args] = process.argv.slice(2);
const judge = new Judge();
let told = 0;
const tell = () => {
  for (; told < judge.faults.length; told++) appendFileSync(report, `fault: ${judge.faults[told]}\n`);
};

const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
child.stdin.on("error", () => {}); // the agent may have ended
process.stdin.on("data", (chunk) => {
  judge.bytes("client", chunk);
  tell();
  child.stdin.write(chunk);
});
process.stdin.once("end", () => child.stdin.end());
child.stdout.on("data", (chunk) => {
  judge.bytes("agent", chunk);
  tell();
  process.stdout.write(chunk);
});
for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.once("close", (code) => {
  judge.end({ wasLeft: code !== 0 });
  tell();
  appendFileSync(report, `frames: ${judge.frames.length}\n`);
  process.exit(code ?? 1);
});
