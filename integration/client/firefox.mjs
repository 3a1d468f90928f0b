// Firefox as it is installed, driven by WebDriver BiDi: the driver of the other browser needs a build of its own.

import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import WebSocket from "ws";

const READY_MS = 60_000;
const SHOWN_MS = 60_000;
const POLL_MS = 50;

export class Firefox {
  #answers = new Map();
  #count = 0;

  static async launch(executablePath) {
    const firefox = new Firefox();
    firefox.profile = await mkdtemp(join(tmpdir(), "threadway-firefox-"));
    const options = ["--headless", "--no-remote", "--remote-debugging-port=0", "--profile", firefox.profile];
    firefox.process = spawn(executablePath, options, { stdio: ["ignore", "ignore", "pipe"], env: { ...process.env, HOME: firefox.profile } });
    const url = await new Promise((resolve, reject) => {
      let said = "";
      const late = setTimeout(() => reject(new Error(`Firefox was not ready after ${READY_MS} ms:\n${said}`)), READY_MS);
      firefox.process.once("exit", (code) => reject(new Error(`Firefox ended with ${code}:\n${said}`)));
      firefox.process.stderr.setEncoding("utf8").on("data", (text) => {
        said += text;
        const told = /WebDriver BiDi listening on (ws:\/\/\S+)/.exec(said);
        if (!told) return;
        clearTimeout(late);
        resolve(told[1]);
      });
    });
    firefox.socket = new WebSocket(`${url}/session`);
    await new Promise((opened, failed) => firefox.socket.once("open", opened).once("error", failed));
    firefox.socket.on("message", (data) => firefox.#hear(JSON.parse(data)));
    await firefox.send("session.new", { capabilities: {} });
    return firefox;
  }

  send(method, params) {
    const id = ++this.#count;
    this.socket.send(JSON.stringify({ id, method, params }));
    return new Promise((resolve, reject) => this.#answers.set(id, { resolve, reject, method }));
  }

  #hear({ id, type, result, error, message }) {
    const waiting = this.#answers.get(id);
    if (!waiting) return;
    this.#answers.delete(id);
    if (type === "success") waiting.resolve(result);
    else waiting.reject(new Error(`${waiting.method}: ${error}: ${message}`));
  }

  async newPage() {
    const { context } = await this.send("browsingContext.create", { type: "tab" });
    return new Page(this, context);
  }

  async close() {
    const ended = new Promise((resolve) => this.process.once("exit", resolve));
    await this.send("browser.close", {}).catch(() => this.process.kill());
    await ended;
    await rm(this.profile, { recursive: true, force: true, maxRetries: 5 });
  }
}

/** The methods of the other browser's pages that the tests call. */
class Page {
  constructor(firefox, context) {
    Object.assign(this, { firefox, context });
  }

  async goto(url) {
    await this.firefox.send("browsingContext.navigate", { context: this.context, url, wait: "complete" });
  }

  /** Calls a function in the page; its result must be JSON. */
  async evaluate(called, argument) {
    const expression = `(async () => JSON.stringify((await (${called})(${JSON.stringify(argument)})) ?? null))()`;
    const evaluated = await this.firefox.send("script.evaluate", { expression, target: { context: this.context }, awaitPromise: true });
    if (evaluated.type === "exception") throw new Error(evaluated.exceptionDetails.text);
    return JSON.parse(evaluated.result.value);
  }

  async waitForFunction(isSo) {
    for (const end = performance.now() + SHOWN_MS; !(await this.evaluate(`async () => Boolean(await (${isSo})())`)); ) {
      if (performance.now() > end) throw new Error(`not within ${SHOWN_MS} ms: ${isSo}`);
      await new Promise((wake) => setTimeout(wake, POLL_MS));
    }
  }

  async close() {
    await this.firefox.send("browsingContext.close", { context: this.context });
  }
}
