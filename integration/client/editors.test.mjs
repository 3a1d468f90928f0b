// Two editors and a page on one session: random walks of settings, titles, permissions, prompts and deletions, before a real
// LangGraph server. After each step nothing is lost in the thread, and both editors show the thread's content and settings.
// SEED=... repeats the walks, STEPS=... makes them longer; FULL=1 walks more often. VERBOSE=1 prints the steps.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { CWD, Editor, settled } from "./editors.mjs";
import { Langgraph } from "./langgraph.mjs";
import { SEED, seeded } from "./seeded.mjs";
import { PYTHON } from "./servers.mjs";
import { startThreadway } from "./threadway.mjs";

const WALKS = process.env.FULL ? 12 : 3; // for each transport
const STEPS = Number(process.env.STEPS ?? 14);
const OPTIONS = { timeout: 600_000 };
const MODES = ["ask", "careful", "quick"];
const MODELS = ["fast", "deep"];
const AGENTS = ["hitl", "configured"];
const TOOLS = { call_e: "send_email", call_d: "delete_file" };

const directory = mkdtempSync(join(tmpdir(), "threadway-editors-"));
const config = join(directory, "threadway.toml");
const langgraph = new Langgraph(PYTHON);
let gateway;

before(async () => {
  const modes = MODES.map((mode) => `[acp.modes.${mode}]\nconfigurable = { pace = "${mode}" }\n`).join("");
  writeFileSync(config, `[upstream]\nurl = "${PYTHON.langgraph}"\n[acp]\nagent = "hitl"\n${modes}`);
  gateway = await startThreadway("editors", undefined, "--config", config);
}, OPTIONS);

after(async () => {
  await gateway?.stop();
  rmSync(directory, { recursive: true, force: true });
});

const ROLES = { human: "user", ai: "agent" };
const textOf = (content) => (typeof content === "string" ? content : content.map(({ text = "" }) => text).join(""));

/** What all of them must agree on. */
class Walk {
  steps = [];
  faults = [];
  configured = {}; // the settings of the agent `configured`
  always = {}; // by the tool
  said = 0;
  mode = MODES[0];
  agent = "hitl";

  constructor(name, transport) {
    Object.assign(this, seeded(name), { name, transport });
  }

  async run() {
    const options = this.transport === "stdio" ? ["--config", config] : ["--gateway", gateway.url];
    this.editors = ["A", "B"].map((name) => new Editor(name, options));
    const [a, b] = this.editors;
    try {
      await Promise.all(this.editors.map((editor) => editor.initialize()));
      await a.new();
      await this.#step("prompt", a);
      await b.load(a.sessionId);
      await this.#judge();
      for (let n = 0; n < STEPS && !this.faults.length; n += 1) {
        const editor = this.one(this.editors);
        await this.#step(this.one(Object.keys(STEP)), editor, this.editors.find((other) => other !== editor));
        await this.#judge();
      }
      for (const editor of this.editors) {
        if (this.faults.length) break;
        await this.#step("prompt", editor);
        await this.#judge();
      }
      if (!this.faults.length) await this.#delete();
    } catch (error) {
      this.faults.push(error.stack);
    } finally {
      await Promise.all(this.editors.map((editor) => editor.stop()));
      for (const { name, judge } of this.editors) this.faults.push(...judge.faults.map((fault) => `${name}: ${fault}`));
    }
    return this.faults.length ? [`${this.name}, seed ${SEED}: ${this.steps.join("; ")}`, ...this.faults] : [];
  }

  async #step(name, editor, other) {
    const told = `${name} ${editor.name}`;
    this.steps.push(told);
    const more = await STEP[name](this, editor, other);
    if (more) this.steps[this.steps.length - 1] = `${told} ${more}`;
    if (process.env.VERBOSE) console.log(`${this.name}: ${this.steps.at(-1)}`);
  }

  words() {
    this.said += 1;
    return `word${this.said}`;
  }

  /** A message for the scripted model, which answers with a word of its own. */
  message(script = { tools: false }) {
    const word = this.words();
    return JSON.stringify({ ...script, prefix: `${word}_`, words: [`${word}! `], delay: 0 });
  }

  async #judge() {
    const found = await settled(async () => (await this.#thread()) ?? this.#shown());
    if (found) this.faults.push(`after ${this.steps.at(-1)}: ${found}`);
  }

  /** What is lost in the thread. */
  async #thread() {
    const id = this.editors[0].sessionId;
    const [{ metadata, status }, { values }] = await Promise.all([langgraph.get(`/threads/${id}`), langgraph.get(`/threads/${id}/state`)]);
    this.messages = values.messages.map(({ type, content }) => [ROLES[type], textOf(content).trim()]).filter(([role, text]) => role && text);
    this.results = Object.fromEntries(values.messages.filter(({ type }) => type === "tool").map((m) => [m.tool_call_id, m.status === "error" ? "failed" : "completed"]));
    const humans = this.messages.filter(([role]) => role === "user").length;
    if (status === "busy") return "the thread is busy";
    if (humans !== this.said) return `the thread has ${humans} of ${this.said} messages of people`;
    if (this.title && metadata.title !== this.title) return `the thread's title is ${metadata.title}, not ${this.title}`;
    this.title ??= metadata.title;
    if ((metadata.acp_mode ?? MODES[0]) !== this.mode) return `the thread's mode is ${metadata.acp_mode}, not ${this.mode}`;
    if (metadata.cwd !== CWD || metadata.acp_session !== true) return `the thread is no session any more: ${JSON.stringify(metadata)}`;
    return undefined;
  }

  /** What an editor does not show, or shows otherwise. */
  #shown() {
    const text = (all) => JSON.stringify(all);
    for (const editor of this.editors) {
      const differs = (what, shown, expected) => `${editor.name} shows ${what} ${text(shown)}, not ${text(expected)}`;
      const all = editor.isInOrder ? (texts) => texts : (texts) => texts.map(text).sort();
      if (text(all(editor.shown())) !== text(all(this.messages))) return differs("the conversation", editor.shown(), this.messages);
      for (const [id, status] of editor.calls) if (status !== this.results[id]) return differs(`the call ${id}`, status, this.results[id]);
      if (editor.isBehind) continue; // it is sent the change with what it does next
      if (editor.mode !== this.mode) return differs("the mode", editor.mode, this.mode);
      if (editor.options.assistant !== this.agent) return differs("the agent", editor.options, this.agent);
      const { model = "fast", verbose = false } = this.agent === "configured" ? this.configured : {};
      // The settings of a graph are options of their own names after `config:`.
      const shown = this.agent === "configured" ? editor.options : { "config:model": "fast", "config:verbose": false };
      if (shown["config:model"] !== model) return differs("the model", editor.options, model);
      if (shown["config:verbose"] !== verbose) return differs("verbose", editor.options, verbose);
      if (editor.title && editor.title !== this.title) return differs("the title", editor.title, this.title);
    }
    return undefined;
  }

  /** One of them deletes the session. A prompt of the other is refused, and nothing comes back. */
  async #delete() {
    const [a, b] = this.editors;
    const id = a.sessionId;
    const isPage = this.random() < 0.5;
    this.steps.push(`deleted by ${isPage ? "the page" : "A"}`);
    if (isPage) await langgraph.send("DELETE", `/threads/${id}`);
    else await a.request("session/delete", { sessionId: id });
    const refused = await b.prompt(this.message()).then(() => "it ran", ({ code }) => code);
    if (refused !== -32002) this.faults.push(`a prompt of B in a deleted session: ${refused}, not -32002`);
    const there = await langgraph.send("GET", `/threads/${id}`).then(() => true, () => false);
    if (there) this.faults.push("the deleted thread is back");
    for (const editor of this.editors) if (await editor.listed()) this.faults.push(`${editor.name} lists the deleted session`);
  }
}

/** A setting of the session in this editor, as the editor's own person sets it. */
const SET = {
  async mode(walk, editor, other) {
    other.isBehind = true;
    walk.mode = walk.one(MODES);
    await editor.setMode(walk.mode);
    return walk.mode;
  },
  async agent(walk, editor, other) {
    other.isBehind = true;
    walk.agent = walk.one(AGENTS);
    await editor.set("assistant", walk.agent);
    return walk.agent;
  },
  async model(walk, editor, other) {
    if (walk.agent !== "configured") return "not offered";
    other.isBehind = true;
    const model = walk.one(MODELS);
    walk.configured.model = model;
    await editor.set("config:model", model);
    return model;
  },
  async verbose(walk, editor, other) {
    if (walk.agent !== "configured") return "not offered";
    other.isBehind = true;
    const verbose = walk.random() < 0.5;
    walk.configured.verbose = verbose;
    await editor.set("config:verbose", verbose);
    return verbose;
  },
};

const rename = async (walk) => {
  walk.title = `Renamed ${walk.random()}`;
  for (const editor of walk.editors) editor.isBehind = true;
  await langgraph.send("PATCH", `/threads/${walk.editors[0].sessionId}`, { metadata: { title: walk.title } });
  return walk.title;
};

/** A run of the page, through the gateway's AG-UI. */
async function say(walk) {
  const threadId = walk.editors[0].sessionId;
  const word = walk.message();
  const input = { threadId, runId: `r${walk.said}`, messages: [{ id: `page-${walk.said}`, role: "user", content: word }], state: {}, tools: [], context: [], forwardedProps: {} };
  const response = await fetch(`${gateway.url}/agui/agent/${walk.agent}/run`, { method: "POST", headers: { "content-type": "application/json", accept: "text/event-stream" }, body: JSON.stringify(input) });
  const events = await response.text();
  assert.match(events, /RUN_FINISHED/, `the page's run: ${response.status} ${events.slice(-500)}`);
}

const STEP = {
  ...SET,
  rename,
  "page-says": say,
  async prompt(walk, editor) {
    const { stopReason } = await editor.prompt(walk.message());
    assert.equal(stopReason, "end_turn");
  },
  /** Two calls that need approval, and a permanent answer about a tool that must be known to both from then on. */
  async approve(walk, editor, other) {
    if (walk.agent !== "hitl") return "no tools";
    const kinds = ["allow_once", "reject_once", "allow_always", "reject_always"];
    const asked = [];
    const answers = Object.fromEntries(Object.values(TOOLS).map((tool) => [tool, walk.one(kinds)]));
    const expected = Object.values(TOOLS).filter((tool) => !walk.always[tool]);
    editor.answer = ({ toolCall }) => {
      const tool = TOOLS[toolCall.toolCallId.slice(-"call_e".length)];
      asked.push(tool);
      if (answers[tool].endsWith("always")) walk.always[tool] = answers[tool];
      return answers[tool];
    };
    other.answer = () => undefined;
    const { stopReason } = await editor.prompt(walk.message({}));
    assert.equal(stopReason, "end_turn");
    assert.deepEqual(asked.sort(), expected.sort(), "the tools that were asked about");
    return JSON.stringify(answers);
  },
  async reload(walk, editor) {
    await editor.close();
    await editor.load(editor.sessionId);
  },
  /** Two settings at once, by two people. */
  async "both-set"(walk, editor, other) {
    const [one, two] = walk.agent === "configured" ? ["model", "verbose"] : ["mode", "rename"];
    const told = await Promise.all([STEP[one](walk, editor, other), STEP[two](walk, other, editor)]);
    other.isBehind = editor.isBehind = true;
    return `${one} ${told[0]}, ${two} ${told[1]}`;
  },
  /** Two prompts at once: the second runs after the first. */
  async "both-prompt"(walk, editor, other) {
    const [first, second] = [walk.message(), walk.message()];
    editor.isInOrder = other.isInOrder = false;
    const ends = await Promise.all([editor.prompt(first), other.prompt(second)]);
    assert.deepEqual(ends, [{ stopReason: "end_turn" }, { stopReason: "end_turn" }]);
  },
};

for (const transport of ["stdio", "a gateway"]) {
  describe(`two editors and a page over ${transport}`, { concurrency: 3, ...OPTIONS }, () => {
    for (let walk = 0; walk < WALKS; walk += 1) {
      test(`walk ${walk}`, OPTIONS, async () => {
        const faults = await new Walk(`walk ${walk} over ${transport}`, transport).run();
        assert.deepEqual(faults, []);
      });
    }
  });
}
