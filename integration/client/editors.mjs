// Two editors and a page on one session, and what each of them must show.

import { spawn } from "node:child_process";
import { setTimeout as pause } from "node:timers/promises";
import { Judge } from "./acp-judge.mjs";

const POLL_MS = 50;
const SETTLE_MS = 20_000; // an editor follows a session 2 s after its last prompt; a busy machine takes longer
const ANSWER_MS = 60_000;
const CAPABILITIES = { fs: { readTextFile: false, writeTextFile: false }, terminal: false, session: { configOptions: { boolean: {} } } };

export const CWD = "/srv/project";

/** Repeats until there is no difference; returns the last one. */
export async function settled(difference, ms = SETTLE_MS) {
  for (const end = performance.now() + ms; ; ) {
    const found = await difference();
    if (found === undefined || performance.now() > end) return found;
    await pause(POLL_MS);
  }
}

/** `threadway acp` and a client without a library, with what a person sees of one session. */
export class Editor {
  judge = new Judge();
  stderr = "";
  asked = []; // permissions of this session and of its children
  updates = []; // of all sessions, in order
  #open = new Map();
  #last = 0;

  constructor(name, options) {
    this.name = name;
    this.answer = () => undefined;
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("THREADWAY_")));
    this.child = spawn(process.env.THREADWAY_BIN, ["acp", ...options], { env, stdio: ["pipe", "pipe", "pipe"] });
    this.child.stdin.on("error", () => {}); // the process may have ended
    this.child.stderr.setEncoding("utf8").on("data", (text) => (this.stderr += text));
    let rest = "";
    this.child.stdout.setEncoding("utf8").on("data", (text) => {
      this.judge.bytes("agent", Buffer.from(text));
      const lines = (rest + text).split("\n");
      rest = lines.pop();
      for (const line of lines) this.#line(JSON.parse(line));
    });
    this.exit = new Promise((resolve) => this.child.once("close", resolve));
    const kill = () => this.child.kill("SIGKILL");
    process.once("exit", kill);
    this.exit.then(() => process.off("exit", kill));
    this.#forget();
  }

  #forget() {
    Object.assign(this, { said: new Map(), calls: new Map(), options: {}, mode: undefined, title: undefined });
    this.isBehind = false; // another client has changed a setting since this one has sent something
    this.isInOrder = true; // its person has typed while another's message was on its way
  }

  #line(message) {
    if (message.method === "session/update") {
      this.updates.push(message.params);
      return message.params.sessionId === this.sessionId ? this.#update(message.params.update) : undefined;
    }
    if (message.method === "session/request_permission") {
      this.asked.push(message.params);
      const kind = this.answer(message.params);
      // Without an answer the question stays open in this editor, whose person looks elsewhere.
      if (!kind) return;
      const { optionId } = message.params.options.find((option) => option.kind === kind);
      return this.#send({ id: message.id, result: { outcome: { outcome: "selected", optionId } } });
    }
    if (message.method) return message.id === undefined ? undefined : this.#send({ id: message.id, error: { code: -32601, message: "unknown" } });
    this.#open.get(message.id)?.(message);
    this.#open.delete(message.id);
  }

  #update(update) {
    const { sessionUpdate: kind } = update;
    if (kind === "user_message_chunk" || kind === "agent_message_chunk") {
      const key = `${kind.split("_")[0]} ${update.messageId}`;
      this.said.set(key, (this.said.get(key) ?? "") + (update.content.text ?? ""));
    } else if (kind.startsWith("tool_call")) this.calls.set(update.toolCallId, update.status ?? this.calls.get(update.toolCallId) ?? "pending");
    else if (kind === "current_mode_update") this.mode = update.currentModeId;
    else if (kind === "config_option_update") this.#options(update.configOptions);
    else if (kind === "session_info_update" && "title" in update) this.title = update.title;
  }

  #options(options = []) {
    this.options = Object.fromEntries(options.map(({ id, currentValue }) => [id, currentValue]));
  }

  #send(message) {
    const line = `${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`;
    this.judge.bytes("client", Buffer.from(line));
    this.child.stdin.write(line);
  }

  notify(method, params) {
    this.#send({ method, params });
  }

  /** The result of a request; its error is thrown. */
  async request(method, params) {
    const id = ++this.#last;
    const answered = new Promise((resolve) => this.#open.set(id, resolve));
    this.#send({ id, method, params });
    const late = pause(ANSWER_MS, { error: { code: 0, message: `no answer to ${method} after ${ANSWER_MS} ms` } }, { ref: false });
    const { result, error } = await Promise.race([answered, late]);
    if (error) throw Object.assign(new Error(`${this.name}: ${method}: ${error.code} ${error.message}`), { code: error.code });
    return result;
  }

  initialize(capabilities = {}) {
    return this.request("initialize", { protocolVersion: 1, clientCapabilities: { ...CAPABILITIES, ...capabilities }, clientInfo: { name: this.name, version: "1" } });
  }

  async new({ cwd = CWD, mcpServers = [] } = {}) {
    this.#forget();
    const opened = await this.request("session/new", { cwd, mcpServers });
    this.#opened(opened.sessionId, opened);
  }

  async load(sessionId) {
    this.#forget();
    this.sessionId = sessionId;
    this.#opened(sessionId, await this.request("session/load", { sessionId, cwd: CWD, mcpServers: [] }));
  }

  #opened(sessionId, { modes, configOptions }) {
    this.sessionId = sessionId;
    this.judge.share(sessionId);
    this.mode ??= modes?.currentModeId;
    this.#options(configOptions);
  }

  close() {
    return this.request("session/close", { sessionId: this.sessionId });
  }

  async prompt(text) {
    this.isBehind = false;
    this.said.set(`user own-${this.#last}`, text); // an editor shows what its person has typed
    return this.request("session/prompt", { sessionId: this.sessionId, prompt: [{ type: "text", text }] });
  }

  async set(configId, value) {
    this.isBehind = false;
    const typed = typeof value === "boolean" ? { type: "boolean" } : {};
    const { configOptions } = await this.request("session/set_config_option", { sessionId: this.sessionId, configId, value, ...typed });
    this.#options(configOptions);
  }

  async setMode(modeId) {
    this.isBehind = false;
    await this.request("session/set_mode", { sessionId: this.sessionId, modeId });
    this.mode = modeId;
  }

  async listed() {
    const { sessions } = await this.request("session/list", { cwd: CWD });
    return sessions.find(({ sessionId }) => sessionId === this.sessionId);
  }

  /** The conversation. */
  shown() {
    return [...this.said].map(([key, text]) => [key.split(" ")[0], text.trim()]).filter(([, text]) => text);
  }

  async stop() {
    this.child.stdin.end();
    await this.exit;
    this.judge.end({ wasLeft: true });
  }
}
