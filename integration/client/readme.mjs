// An example of `examples/`, run by the commands of its README: new users copy these commands, so the tests run them.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { dirname } from "node:path";
import { LOGS } from "./logs.mjs";
import { freePort } from "./ports.mjs";

const READY_MS = 90_000; // a LangGraph server starts in 5 s, on a busy machine in ten times as many
const RUN_MS = 90_000;
const INSTALLS = /^(python3 -m venv|npm ci|npm --prefix)\b/; // servers.py has run these

/** The shell commands of a README, in order: the lines of its `sh` blocks, joined after a backslash. */
export function commandsOf(text) {
  const blocks = [...text.matchAll(/^( *)```sh\n(.*?)^\1```$/gms)].map(([, , block]) => block);
  return blocks.flatMap((block) => block.replace(/\\\n\s*/g, "").split("\n")).map((line) => line.trim()).filter(Boolean);
}

/** An example with ports of its own. */
export class Example {
  /** `ports` replace the ports in the README. */
  static async open(name, ports) {
    const example = new Example();
    Object.assign(example, { name, ports, folder: `${process.env.EXAMPLES}/${name}` });
    example.commands = commandsOf(await readFile(`${example.folder}/README.md`, "utf8")).filter((command) => !INSTALLS.test(command));
    return example;
  }

  /** Takes the README's first command that matches, with this example's ports and other replacements. */
  take(pattern, replaced = {}) {
    const at = this.commands.findIndex((command) => pattern.test(command));
    assert.notEqual(at, -1, `the README of ${this.name} has no command ${pattern} (left are: ${this.commands.join("; ")})`);
    const [command] = this.commands.splice(at, 1);
    const all = { ...this.ports, ...replaced };
    return Object.entries(all).reduce((text, [from, to]) => text.replaceAll(from, to), command);
  }

  /** Starts a server, and waits until it answers at this address; returns its process. */
  async start(command, url, environment, isReady = ({ ok }) => ok) {
    const child = this.spawn(command, environment);
    child.unref(); // servers.py stops the process at the end, with its process group
    const deadline = performance.now() + READY_MS;
    while (!(await fetch(url).then(isReady, () => false))) {
      assert.equal(child.exitCode, null, `\`${command}\` of ${this.name} has ended`);
      assert.ok(performance.now() < deadline, `\`${command}\` of ${this.name} does not answer at ${url}`);
      await new Promise((wake) => setTimeout(wake, 100));
    }
    return child;
  }

  /** Runs a command to its end; returns its output. */
  async run(command, environment) {
    const child = this.spawn(command, environment, "pipe");
    const late = setTimeout(() => child.kill(), RUN_MS);
    let printed = "";
    child.stdout.setEncoding("utf8").on("data", (text) => void (printed += text));
    const status = await new Promise((resolve) => child.once("close", resolve));
    clearTimeout(late);
    assert.equal(status, 0, `\`${command}\` of ${this.name}:\n${printed}`);
    return printed;
  }

  spawn(command, environment, stdout) {
    const log = openSync(new URL(`${this.name}-${command.match(/[a-z]+(?= )/)[0]}.log`, LOGS), "a");
    const env = { ...BARE, PATH: `${dirname(process.env.THREADWAY_BIN)}:${process.env.PATH}`, ...environment };
    const child = spawn("bash", ["-c", command], { cwd: this.folder, env, stdio: ["ignore", stdout ?? log, log] });
    closeSync(log);
    return child;
  }

  /** Starts the gateway by the README's command, on a port of its own; returns its URL. */
  async gateway() {
    const url = `http://127.0.0.1:${await freePort()}`;
    const command = this.take(/^threadway serve /);
    this.serve = async () => (this.server = await this.start(command, `${url}/readyz`, { THREADWAY_LISTEN: url.slice("http://".length) }));
    await this.serve();
    return url;
  }

  /** Ends the gateway by this signal. `serve` starts another one at its address. */
  async end(signal) {
    const ended = once(this.server, "exit");
    this.server.kill(signal);
    await ended;
  }

  /** Whether every command of the README has been run. */
  isDone() {
    assert.deepEqual(this.commands, [], `commands of the README of ${this.name} that were not run`);
  }
}

const BARE = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("THREADWAY_")));
