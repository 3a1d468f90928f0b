// An editor for threadway: `threadway acp` as a subprocess, the official client on its pipes, and every frame judged.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { client, methods, ndJsonStream } from "@agentclientprotocol/sdk";
import { Judge } from "./acp-judge.mjs";
import { Langgraph } from "./langgraph.mjs";
import { ofThread } from "./thread.mjs";
import { withWaiting } from "./waiting.mjs";

const STOP_MS = 60_000; // a process that has not ended by then, after the end of its input, does not end
const WAIT_MS = 90_000; // an update that has not come by then does not come
const POLL_MS = 20;
const LAST_FRAMES = 60; // frames in the report of a failed test
const FRAME_CHARACTERS = 400;
const CONTENT_BLOCKS = ["text", "image", "audio", "resource", "resource_link"];

process.setMaxListeners(0); // each process and each directory has an exit listener

/** The capabilities that Zed and similar editors declare, except those that only threadway asks for. */
export const FULL = {
  fs: { readTextFile: true, writeTextFile: true },
  terminal: true,
  elicitation: { form: {} },
  session: { configOptions: { boolean: {} } },
};

/** The command that is `threadway acp`, without its options. With ACP_OVER=gateway it bridges to a gateway. */
export const AGENT =
  process.env.ACP_OVER === "gateway"
    ? [process.execPath, fileURLToPath(new URL("acp-bridged.mjs", import.meta.url)), "acp"]
    : [process.env.THREADWAY_BIN, "acp"];

/** `threadway acp` with its pipes, and the judge of both directions. */
export class Wire {
  judge = new Judge();
  stderr = "";
  isLeft = false; // whether the editor disconnects without waiting for responses

  constructor(server, { agent, config, args = [], upstream = server.langgraph, home } = {}) {
    const [program, ...command] = [...AGENT, "--upstream", upstream, ...(agent ? ["--agent", agent] : []), ...(config ? ["--config", file(config)] : []), ...args];
    const bare = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("THREADWAY_") || name === "THREADWAY_BIN"));
    if (home) Object.assign(bare, { HOME: home, XDG_CONFIG_HOME: home });
    this.child = spawn(program, command, { env: bare, stdio: ["pipe", "pipe", "pipe"] });
    this.child.stderr.setEncoding("utf8").on("data", (text) => (this.stderr += text));
    this.child.stdin.on("error", () => {}); // the process may have ended
    this.exit = new Promise((resolve, reject) => {
      this.child.once("error", reject);
      this.child.once("close", (code, signal) => resolve(code ?? signal));
    });
    const kill = () => this.child.kill("SIGKILL");
    process.once("exit", kill);
    this.exit.then(() => process.off("exit", kill), () => {});
    this.output = Readable.toWeb(this.child.stdout).pipeThrough(this.#tap("agent"));
    const tap = this.#tap("client");
    tap.readable.pipeTo(Writable.toWeb(this.child.stdin)).catch(() => {});
    this.input = tap.writable;
  }

  #tap(from) {
    const transform = (chunk, controller) => {
      this.judge.bytes(from, chunk);
      controller.enqueue(chunk);
    };
    return new TransformStream({ transform });
  }

  /** Closes the agent's input, as an editor does when it exits: the process must end by itself. */
  async stop() {
    const began = performance.now();
    this.child.stdin.end();
    const late = setTimeout(() => this.child.kill("SIGKILL"), STOP_MS);
    const code = await this.exit;
    clearTimeout(late);
    this.judge.end({ wasLeft: this.isLeft });
    assert.equal(code, 0, `the process ended with ${code} after ${Math.round(performance.now() - began)} ms:\n${this.stderr}`);
    assert.deepEqual(this.judge.faults, []);
  }

  async kill() {
    this.child.kill("SIGKILL");
    await this.exit;
    this.judge.end({ wasLeft: true });
  }

  /** The report of a failed test. */
  report() {
    const lines = this.judge.frames.slice(-LAST_FRAMES).map(({ from, message }) => `  ${from} ${JSON.stringify(message).slice(0, FRAME_CHARACTERS)}`);
    return `\nfaults: ${this.judge.faults.join("\n")}\nthe last frames were:\n${lines.join("\n")}\nstderr was:\n${this.stderr}`;
  }
}

/** The official client on a wire: pipes, or a stream of messages. */
export class Editor {
  sessions = new Map();
  #delivered = 0;

  constructor(wire) {
    this.wire = wire;
    wire.judge.onFrame((frame) => this.#frame(frame));
    const { session, elicitation } = methods.client;
    this.connection = client({ name: "editor" })
      .onRequest(session.requestPermission, ({ params, signal }) => this.#ask("permissions", params, signal))
      .onRequest(elicitation.create, ({ params, signal }) => this.#ask("elicitations", params, signal))
      .onNotification(session.update, () => void (this.#delivered += 1))
      .connect(wire.stream ?? ndJsonStream(wire.input, wire.output));
  }

  request(method, params, options) {
    return this.connection.agent.request(method, params, options);
  }

  notify(method, params) {
    return this.connection.agent.notify(method, params);
  }

  initialize(clientCapabilities = FULL) {
    const clientInfo = { name: "integration", version: "1.0.0" };
    return this.request("initialize", { protocolVersion: 1, clientCapabilities, clientInfo });
  }

  async new({ cwd = "/srv/project", ...rest } = {}) {
    const opened = await this.request("session/new", { cwd, mcpServers: [], ...rest });
    return Object.assign(this.session(opened.sessionId), { cwd, opened });
  }

  load(sessionId, options) {
    return this.#again("session/load", sessionId, options);
  }

  resume(sessionId, options) {
    return this.#again("session/resume", sessionId, options);
  }

  async fork(sessionId, { cwd = "/srv/project", ...rest } = {}) {
    const opened = await this.request("session/fork", { sessionId, cwd, ...rest });
    return Object.assign(this.session(opened.sessionId), { cwd, opened });
  }

  async #again(method, sessionId, { cwd = "/srv/project", ...rest } = {}) {
    const session = this.session(sessionId);
    session.forget();
    session.opened = await this.request(method, { sessionId, cwd, mcpServers: [], ...rest });
    return Object.assign(session, { cwd });
  }

  session(id) {
    if (!this.sessions.has(id)) this.sessions.set(id, new Session(this, id));
    return this.sessions.get(id);
  }

  async #ask(what, params, signal) {
    const session = this.session(params.sessionId);
    session[what].push(params);
    session.wake();
    return session.answers[what](params, signal);
  }

  #frame({ from, message, asked }) {
    if (from !== "agent") return;
    if (message.method === "session/update") this.session(message.params.sessionId).update(message.params.update);
    if (asked?.params?.sessionId) this.session(asked.params.sessionId).wake();
  }

  /** Checks that the official client accepted every update that was on the wire. */
  async stop() {
    await this.wire.stop();
    const updates = this.wire.judge.frames.filter(({ from, message }) => from === "agent" && message.method === "session/update");
    assert.equal(this.#delivered, updates.length, "the updates that the official client took");
  }
}

/** A client without a library, which can send frames that the library would not. */
export class Raw {
  constructor(wire) {
    this.wire = wire;
    this.writer = wire.input.getWriter();
    wire.output.pipeTo(new WritableStream()).catch(() => {});
  }

  /** Sends JSON or text as a line. */
  send(message) {
    return this.writer.write(Buffer.from(`${typeof message === "string" ? message : JSON.stringify(message)}\n`));
  }

  /** Sends a request with a given id; resolves with the response. */
  async request(id, method, params) {
    await this.send({ jsonrpc: "2.0", id, method, params });
    return this.next(({ message }) => message.method === undefined && message.id === id);
  }

  /** The agent's first frame that fits. */
  async next(fits) {
    const end = performance.now() + WAIT_MS;
    for (;;) {
      const found = this.wire.judge.frames.find((frame) => frame.from === "agent" && fits(frame));
      if (found) return found.message;
      assert.ok(performance.now() < end, `no such frame after ${WAIT_MS} ms`);
      await pause(POLL_MS);
    }
  }
}

/** One session as a user sees it in an editor. */
export class Session {
  constructor(editor, id) {
    Object.assign(this, { editor, id, permissions: [], elicitations: [] });
    const unexpected = (what) => () => assert.fail(`${what} that no test expects`);
    this.answers = { permissions: unexpected("a permission"), elicitations: unexpected("an elicitation") };
    this.waiting = new Set();
    this.forget();
  }

  forget() {
    Object.assign(this, { updates: [], said: new Map(), calls: new Map(), shown: [], plan: undefined, usage: undefined, info: {} });
  }

  /** Sends a prompt and waits for the end of the turn. `said` is a text, a script for the scripted models, or content blocks. */
  prompt(said, options) {
    const isBlocks = Array.isArray(said) && CONTENT_BLOCKS.includes(said[0]?.type);
    const prompt = isBlocks ? said : [{ type: "text", text: typeof said === "string" ? said : JSON.stringify(said) }];
    return this.editor.request("session/prompt", { sessionId: this.id, prompt }, options);
  }

  cancel() {
    return this.editor.notify("session/cancel", { sessionId: this.id });
  }

  /** Answers every permission request with an option kind, such as `allow_once`, or with the result of a function. */
  permit(kindOf) {
    this.answers.permissions = ({ toolCall, options }) => {
      const kind = typeof kindOf === "function" ? kindOf(this.calls.get(toolCall.toolCallId)) : kindOf;
      const option = options.find((option) => option.kind === kind);
      assert.ok(option, `there is no option ${kind} in ${JSON.stringify(options)}`);
      return { outcome: { outcome: "selected", optionId: option.optionId } };
    };
  }

  /** Waits until a condition on this session is true. */
  async until(what, isTrue) {
    const end = performance.now() + WAIT_MS;
    while (!isTrue(this)) {
      const left = end - performance.now();
      assert.ok(left > 0, `${what}: not after ${WAIT_MS} ms`);
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, Math.min(left, 1_000));
        this.waiting.add(() => (clearTimeout(timer), resolve()));
      });
    }
  }

  wake() {
    for (const resolve of this.waiting) resolve();
    this.waiting.clear();
  }

  update(update) {
    this.updates.push(update);
    const { sessionUpdate: kind } = update;
    if (kind.endsWith("_chunk")) {
      const key = `${kind} ${update.messageId}`;
      if (!this.said.has(key)) this.shown.push(key);
      this.said.set(key, (this.said.get(key) ?? "") + (update.content.text ?? `[${update.content.type}]`));
    } else if (kind.startsWith("tool_call")) {
      const { sessionUpdate, ...fields } = update;
      if (!this.calls.has(update.toolCallId)) this.shown.push(`call ${update.toolCallId}`);
      const before = this.calls.get(update.toolCallId) ?? { status: "pending", kind: "other", statuses: [] };
      const call = { ...before, ...fields, statuses: [...before.statuses, fields.status ?? "-"] };
      this.calls.set(update.toolCallId, call);
    } else if (kind === "plan") this.plan = update.entries;
    else if (kind === "usage_update") this.usage = update;
    else if (kind === "session_info_update") Object.assign(this.info, update);
    this.wake();
  }

  /** The joined text of one kind of chunk; `agent_message` by default. */
  text(kind = "agent_message") {
    return [...this.said].filter(([key]) => key.startsWith(`${kind}_chunk `)).map(([, text]) => text).join("");
  }

  of(kind) {
    return this.updates.filter(({ sessionUpdate }) => sessionUpdate === kind);
  }

  /** The content of the screen, in order. A live client shows the user's own messages without an update. */
  transcript() {
    return this.shown.map((key) => {
      const [, kind, id] = /^(\S+) (.*)$/s.exec(key);
      if (kind === "call") {
        const { name, rawInput, status } = this.calls.get(id);
        return ["call", id, name, rawInput, status];
      }
      const text = this.said.get(key);
      return kind === "agent_thought_chunk" ? ["thought", text] : [kind === "user_message_chunk" ? "user" : "agent", id, text];
    });
  }
}

/** The content that a client must show for a thread's values, in order. */
export function transcriptOf(values, threadId, { isLive = false } = {}) {
  const { messages, reasoning } = ofThread(values, threadId);
  const results = new Map(messages.filter(({ role }) => role === "tool").map(({ toolCallId, failed }) => [toolCallId, failed ? "failed" : "completed"]));
  return messages.flatMap(({ id, role, content, toolCalls = [] }) => {
    if (role === "user") return isLive ? [] : [["user", id, content]];
    if (role !== "assistant") return [];
    const thought = reasoning[id] ? [["thought", reasoning[id]]] : [];
    const text = content ? [["agent", id, content]] : [];
    return [...thought, ...text, ...toolCalls.map((call) => ["call", call.id, call.name, call.arguments, results.get(call.id) ?? "pending"])];
  });
}

/** The text of a scripted model, one word a token. */
export const words = (count, word = "word") => Array.from({ length: count }, (_, i) => `${word}${i} `);

/** A script with some calls, and a second round that says "Done." */
export const calling = (...calls) => ({ rounds: [{ calls }, { say: ["Done."] }], delay: 0 });

/** Reads a thread and its state directly from LangGraph, with what agents below it hold while they wait. */
export async function read(server, id) {
  const lg = new Langgraph(server);
  const [thread, root] = await Promise.all([lg.get(`/threads/${id}`), lg.get(`/threads/${id}/state`)]);
  const state = await withWaiting(lg.url, id, root);
  return { thread, state, values: state.values };
}

/** Checks that the session's content equals the thread's, including the ids of the calls. */
export async function assertSame(server, session, { isLive = false } = {}) {
  const { values } = await read(server, session.id);
  assert.deepEqual(session.transcript(), transcriptOf(values, session.id, { isLive }));
}

/** A turn that ends as expected, and whose content is the thread's. */
export async function turn(server, session, said, stopReason = "end_turn") {
  assert.deepEqual(await session.prompt(said), { stopReason });
  await assertSame(server, session, { isLive: true });
}

/** Checks that a request is refused with this code. */
export async function refused(promise, code) {
  const error = await promise.then((result) => assert.fail(`not refused, but ${JSON.stringify(result)}`), (error) => error);
  assert.equal(error.code, code, `the code of ${JSON.stringify(error)} ${error.message}`);
  return error;
}

/** The text of a call's content. */
export function output(call) {
  return (call.content ?? []).filter(({ type }) => type === "content").map(({ content }) => content.text).join("");
}

/** A new temporary directory, deleted when the tests end. */
export function scratch() {
  const directory = mkdtempSync(join(tmpdir(), "threadway-acp-"));
  process.once("exit", () => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

function file(text) {
  const path = join(scratch(), "config.toml");
  writeFileSync(path, text);
  return path;
}

/** Runs `body` with an editor, and then closes the editor. */
export function withEditor(server, { capabilities, ...options }, body) {
  return withWire(server, options, async (wire) => {
    const editor = new Editor(wire);
    editor.initialized = await editor.initialize(capabilities);
    const result = await body(editor);
    await editor.stop();
    return result;
  });
}

/** Runs `body` with the bare pipes. */
export async function withWire(server, options, body) {
  const wire = new Wire(server, options);
  try {
    return await body(wire);
  } catch (failure) {
    failure.stack += wire.report(); // test reporters print the stack, which includes the message
    throw failure;
  } finally {
    await wire.kill();
  }
}

/** A working directory that no other test's sessions have. */
export const ownCwd = () => `/srv/${randomUUID()}`;
