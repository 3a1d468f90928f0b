// The faults of deepagents-acp 0.0.13 and of the earlier middleware. Each test shows on the wire that threadway does not
// have one of them.
//
// Two of their faults do not show on a wire. Todos have no priority (threadway's is always "medium" too). Methods that ACP
// does not have (`session/close_all`, `permission_update`, ...) are refused by the judge of every frame.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import { describe, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { calling, FULL, output, Raw, withEditor, withWire, words } from "./acp.mjs";
import { Gate } from "./gate.mjs";
import { Langgraph } from "./langgraph.mjs";
import { PYTHON, reasonOf, requestOf } from "./servers.mjs";

const OPTIONS = { concurrency: PYTHON?.name === "aegra" ? 3 : 6, timeout: 600_000, skip: !PYTHON };
const SHORT_MS = 300;
const BARE = {};
const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const INITIALIZE = { protocolVersion: 1, clientCapabilities: {}, clientInfo: { name: "raw", version: "1" } };
const schema = createRequire(import.meta.url)("@agentclientprotocol/sdk/schema/v1/schema.json");
const lg = PYTHON && new Langgraph(PYTHON);
const failure = (promise) => promise.then((result) => assert.fail(`it answered ${JSON.stringify(result)}`), (error) => error);
const messagesOf = async (id) => (await lg.get(`/threads/${id}/state`)).values.messages;

// ---------------------------------------------------------------- deepagents-acp
describe("deepagents-acp", OPTIONS, () => {
  test("echoes any protocol version", async () => {
    for (const protocolVersion of [1, 2, 99, 0]) {
      await withWire(PYTHON, { agent: "text" }, async (wire) => {
        const raw = new Raw(wire);
        const { result } = await raw.request(0, "initialize", { ...INITIALIZE, protocolVersion });
        assert.equal(result.protocolVersion, 1);
        await wire.stop();
      });
    }
  });

  test("has no agentInfo, and neither list nor resume, close or delete", () =>
    withEditor(PYTHON, { agent: "text" }, async ({ initialized }) => {
      assert.equal(initialized.agentInfo.name, "threadway");
      assert.match(initialized.agentInfo.version, /^\d+\.\d+\.\d+/);
      const { loadSession, sessionCapabilities } = initialized.agentCapabilities;
      assert.equal(loadSession, true);
      for (const name of ["list", "resume", "close", "delete"]) assert.deepEqual(sessionCapabilities[name], {}, name);
    }));

  for (const config of ["", '[acp]\nprompt = ["image", "audio", "embedded_context"]\n', "[acp]\nprompt = []\n"]) {
    const said = config.split("\n")[1] ?? "by default";
    test(`assumes that images are accepted and fails at audio (${said})`, () =>
      withEditor(PYTHON, { agent: "text", config }, async (editor) => {
        const { promptCapabilities = {} } = editor.initialized.agentCapabilities;
        const blocks = {
          image: { type: "image", data: PIXEL, mimeType: "image/png" },
          audio: { type: "audio", data: "UklGRg==", mimeType: "audio/wav" },
          embeddedContext: { type: "resource", resource: { uri: "file:///srv/a.txt", mimeType: "text/plain", text: "what it says" } },
        };
        for (const [capability, block] of Object.entries(blocks)) {
          const session = await editor.new();
          const prompt = session.prompt([{ type: "text", text: "Look at this" }, block]);
          if (promptCapabilities[capability]) {
            assert.deepEqual(await prompt, { stopReason: "end_turn" }, capability);
            const [{ content }] = await messagesOf(session.id);
            assert.match(JSON.stringify(content), { image: /"image/, audio: /"audio/, embeddedContext: /what it says/ }[capability]);
            await editor.load(session.id);
            assert.match(session.text("user_message"), /^Look at this/);
          } else {
            assert.equal((await failure(prompt)).code, -32602, capability);
            assert.deepEqual(await session.prompt("hello"), { stopReason: "end_turn" });
          }
        }
        const session = await editor.new();
        const link = { type: "resource_link", name: "a.txt", uri: "file:///srv/a.txt" };
        assert.deepEqual(await session.prompt([{ type: "text", text: "Look at this" }, link]), { stopReason: "end_turn" });
        assert.match(JSON.stringify((await messagesOf(session.id))[0].content), /file:\/\/\/srv\/a\.txt/);
      }));
  }

  test("has one agent and one cwd for all sessions", () =>
    withEditor(PYTHON, { agent: "editor" }, async (editor) => {
      const sessions = await Promise.all(["/srv/one", "/srv/two", "/srv/three"].map((cwd) => editor.new({ cwd })));
      await Promise.all(sessions.map((session) => session.prompt("please edit")));
      for (const session of sessions) {
        const [, , writing] = session.calls.values();
        assert.deepEqual(writing.locations.map(({ path }) => path), [`${session.cwd}/docs/new.md`]);
        assert.equal(session.text(), "I read it first.Both files are written.");
      }
    }));

  test("reports paths of the graph's own disk as paths of the editor's", () =>
    withEditor(PYTHON, { agent: "editor", config: '[acp]\npaths = "virtual"\n' }, async (editor) => {
      const session = await editor.new({ cwd: "/srv/here" });
      await session.prompt("please edit");
      const [reading, editing] = session.calls.values();
      assert.deepEqual(reading.locations, [{ path: "/srv/here/notes.txt" }]);
      assert.deepEqual(editing.content.filter(({ type }) => type === "diff").map(({ path }) => path), ["/srv/here/notes.txt"]);
    }));

  test("takes MCP servers and uses none", async () => {
    const mcpServers = [{ type: "http", name: "docs", url: "https://mcp.example/docs", headers: [{ name: "x-key", value: "k" }] }];
    await withEditor(PYTHON, { agent: "text" }, async (editor) => {
      const { mcpCapabilities = {} } = editor.initialized.agentCapabilities;
      assert.deepEqual([mcpCapabilities.http ?? false, mcpCapabilities.sse ?? false], [false, false]);
    });
    await withEditor(PYTHON, { agent: "text", config: '[acp]\nforward_mcp_servers = "mcp_servers"\n' }, async (editor) => {
      const { mcpCapabilities } = editor.initialized.agentCapabilities;
      assert.deepEqual([mcpCapabilities.http, mcpCapabilities.sse], [true, true]);
      const session = await editor.new({ mcpServers });
      assert.deepEqual(await session.prompt("hello"), { stopReason: "end_turn" });
      const [run] = await lg.get(`/threads/${session.id}/runs`);
      assert.match(JSON.stringify(requestOf(run).config.configurable.mcp_servers), /https:\/\/mcp\.example\/docs/);
    });
  });

  test("lets a cancelled run continue", () =>
    withEditor(PYTHON, { agent: "text" }, async (editor) => {
      const session = await editor.new();
      const gate = await Gate.before(5);
      const prompt = session.prompt({ words: words(10), ...gate.script });
      await session.until("text", (session) => session.text().length > 20);
      await session.cancel();
      assert.deepEqual(await prompt, { stopReason: "cancelled" });
      const [run] = await lg.get(`/threads/${session.id}/runs`);
      const { record } = await lg.ended(session.id, run.run_id);
      assert.equal(record.status, "interrupted");
      gate.open();
    }));

  test("does not see a cancel while it waits for a permission", () =>
    withEditor(PYTHON, { agent: "hitl" }, async (editor) => {
      const session = await editor.new();
      // A client that answers its dialog too late, even after the turn.
      const late = [];
      session.answers.permissions = () => new Promise((resolve) => late.push(() => resolve({ outcome: { outcome: "cancelled" } })));
      const prompt = session.prompt({});
      await session.until("a permission", ({ permissions }) => permissions.length > 0);
      await session.cancel();
      assert.deepEqual(await prompt, { stopReason: "cancelled" }, "before the answer");
      for (const answer of late) answer();
      await editor.request("session/list", {}); // the answers have come, too late
    }));

  test("asks for a permission by the interrupt's id, the same for several calls", async () => {
    for (const agent of ["hitl", "hitl_per_call"]) {
      await withEditor(PYTHON, { agent }, async (editor) => {
        const session = await editor.new();
        session.permit("allow_once");
        await session.prompt({});
        assert.deepEqual(session.permissions.map(({ toolCall }) => toolCall.toolCallId).sort(), ["call_d", "call_e"]);
      });
    }
  });

  test("never completes an edit", () =>
    withEditor(PYTHON, { agent: "editor" }, async (editor) => {
      const session = await editor.new();
      await session.prompt("please edit");
      for (const { statuses } of session.calls.values()) {
        assert.deepEqual(statuses.filter((status) => status !== "-"), ["completed"]);
      }
    }));

  test("reports a tool's failure as success", () =>
    withEditor(PYTHON, { agent: "tool_error" }, async (editor) => {
      const session = await editor.new();
      await session.prompt({});
      assert.equal(session.calls.get("call_bad").status, "failed");
    }));

  test("reports no location but an edit's", () =>
    withEditor(PYTHON, { agent: "editor" }, async (editor) => {
      const session = await editor.new();
      await session.prompt(calling(["read_file", { file_path: "/a.txt" }], ["write_file", { file_path: "/b.txt", content: "b" }]));
      assert.deepEqual([...session.calls.values()].map(({ locations }) => locations), [[{ path: "/a.txt" }], [{ path: "/b.txt" }]]);
    }));

  test("does not announce a call without streamed arguments, nor one of a model that does not stream", async () => {
    await withEditor(PYTHON, { agent: "editor" }, async (editor) => {
      const session = await editor.new();
      await session.prompt(calling(["ping", {}]));
      assert.deepEqual([...session.calls.values()].map(({ name, status }) => [name, status]), [["ping", "completed"]]);
    });
    await withEditor(PYTHON, { agent: "silent" }, async (editor) => {
      const session = await editor.new();
      await session.prompt(calling(["ping", {}], ["execute", { command: "ls" }]));
      const shown = [...session.calls.values()].map(({ name, status, rawInput }) => [name, status, rawInput]);
      assert.deepEqual(shown, [["ping", "completed", {}], ["execute", "completed", { command: "ls" }]]);
    });
  });

  test("mixes the calls of agents that stream at once", () =>
    withEditor(PYTHON, { agent: "two_editors" }, async (editor) => {
      const session = await editor.new();
      await session.prompt("please edit");
      const inputs = Object.fromEntries([...session.calls].map(([id, { name, rawInput, status }]) => [id, [name, rawInput, status]]));
      const expected = {};
      for (const message of await messagesOf(session.id)) for (const { id, name, args } of message.tool_calls ?? []) expected[id] = [name, args, "completed"];
      assert.equal(Object.keys(expected).length, 6);
      assert.deepEqual(inputs, expected);
    }));

  test("gives messages an id only when they are loaded", () =>
    withEditor(PYTHON, { agent: "agent" }, async (editor) => {
      const session = await editor.new();
      await session.prompt({});
      const live = [...session.said.keys()];
      assert.equal(live.length, 3);
      await editor.load(session.id);
      assert.deepEqual([...session.said.keys()].filter((key) => !key.startsWith("user_")), live);
    }));

  test("sends the plan as a message too", () =>
    withEditor(PYTHON, { agent: "todos" }, async (editor) => {
      const session = await editor.new();
      await session.prompt({});
      assert.equal(session.plan.length, 2);
      assert.doesNotMatch(session.text(), /step one/);
    }));

  test("knows only approve and reject, and calls the reason `feedback`", () =>
    withEditor(PYTHON, { agent: "guarded" }, async (editor) => {
      const session = await editor.new();
      const ids = [];
      session.answers.permissions = ({ options }) => {
        ids.push(...options.map(({ optionId }) => optionId));
        return { outcome: { outcome: "selected", optionId: "respond" } };
      };
      session.answers.elicitations = ({ requestedSchema }) => ({ action: "accept", content: { [Object.keys(requestedSchema.properties)[0]]: "Rather not." } });
      await session.prompt(calling(["execute", { command: "ls" }]));
      assert.deepEqual(ids, ["allow", "allow_always", "edit", "reject", "reject_always", "respond"]);
      const results = (await messagesOf(session.id)).filter(({ type }) => type === "tool").map(({ content }) => content);
      assert.deepEqual(results, ["Rather not."]);
    }));

  test("resumes several interrupts with one value", async () => {
    await withEditor(PYTHON, { agent: "hitl_per_call" }, async (editor) => {
      const session = await editor.new();
      session.permit(({ name }) => (name === "send_email" ? "reject_once" : "allow_once"));
      assert.deepEqual(await session.prompt({}), { stopReason: "end_turn" });
      assert.deepEqual([session.calls.get("call_e").status, session.calls.get("call_d").status], ["failed", "completed"]);
    });
    await withEditor(PYTHON, { agent: "interrupt_parallel" }, async (editor) => {
      const session = await editor.new();
      let n = 0;
      session.answers.elicitations = ({ requestedSchema }) => ({ action: "accept", content: { [Object.keys(requestedSchema.properties)[0]]: `${(n += 1)}` } });
      assert.deepEqual(await session.prompt("go"), { stopReason: "end_turn" });
      const { answers } = (await lg.get(`/threads/${session.id}/state`)).values;
      assert.deepEqual(answers.flatMap((answer) => (answer === "fin" ? [] : Object.values(answer))).sort(), ["1", "2"]);
    });
  });

  test("fails at a free-form interrupt", async () => {
    for (const capabilities of [FULL, BARE]) {
      await withEditor(PYTHON, { agent: "interrupt_node", capabilities }, async (editor) => {
        const session = await editor.new();
        session.answers.elicitations = ({ requestedSchema }) => ({ action: "accept", content: { [Object.keys(requestedSchema.properties)[0]]: "yes" } });
        assert.deepEqual(await session.prompt("go"), { stopReason: "end_turn" });
        if (capabilities === BARE) assert.deepEqual(await session.prompt("yes"), { stopReason: "end_turn" });
        assert.deepEqual((await lg.get(`/threads/${session.id}/state`)).values.answers, ["prep", { ask: "yes" }, "fin"]);
      });
    }
  });

  test("sends neither usage nor title nor commands", () => {
    const config = '[acp.context_windows]\n"*" = 1000\n\n[acp.commands.fix]\ndescription = "Fix the tests"\nprompt = "please edit"\n';
    return withEditor(PYTHON, { agent: "editor", config }, async (editor) => {
      const session = await editor.new();
      await session.until("the commands", (session) => session.of("available_commands_update").length > 0);
      const [{ availableCommands }] = session.of("available_commands_update");
      assert.deepEqual(availableCommands.map(({ name, description }) => [name, description]), [["fix", "Fix the tests"]]);
      await session.prompt("hello");
      assert.equal(session.usage.size, 1000);
      assert.equal(session.info.title, "hello");
    });
  });

  test("ends every turn with end_turn", () =>
    withEditor(PYTHON, { agent: "editor" }, async (editor) => {
      const session = await editor.new();
      assert.deepEqual(await session.prompt({ rounds: [{ say: ["a"], finish: "length" }] }), { stopReason: "max_tokens" });
      assert.deepEqual(await session.prompt({ rounds: [{ say: ["a"], finish: "content_filter" }] }), { stopReason: "refusal" });
    }));

  test("treats a dialog that was closed as a rejection", async () => {
    for (const agent of ["hitl", "hitl_per_call"]) {
      await withEditor(PYTHON, { agent }, async (editor) => {
        const session = await editor.new();
        session.answers.permissions = () => ({ outcome: { outcome: "cancelled" } });
        assert.deepEqual(await session.prompt({}), { stopReason: "cancelled" });
        assert.deepEqual((await messagesOf(session.id)).map(({ type }) => type), ["human", "ai"], "nothing was resumed");
      });
    }
  });
});

// ---------------------------------------------------------------- the earlier middleware
describe("the earlier middleware", OPTIONS, () => {
  test("declares MCP that it does not have, as `mcpCapabilities` and as `mcp`", () =>
    withEditor(PYTHON, { agent: "text" }, async ({ initialized: { agentCapabilities } }) => {
      assert.ok(!agentCapabilities.mcpCapabilities?.http && !agentCapabilities.mcpCapabilities?.sse);
      assert.deepEqual(Object.keys(agentCapabilities).filter((key) => !(key in schema.$defs.AgentCapabilities.properties)), []);
    }));

  test("answers session/new with `models` and `authMethods`", () =>
    withEditor(PYTHON, { agent: "text" }, async (editor) => {
      const { opened } = await editor.new();
      assert.deepEqual(Object.keys(opened).filter((key) => !["sessionId", "modes", "configOptions"].includes(key)), []);
    }));

  test("has modes of another shape, and reports their change in another shape", () => {
    const config = '[acp.modes.one]\nname = "One"\nassistant = "text"\n\n[acp.modes.two]\nname = "Two"\nassistant = "text"\n';
    return withEditor(PYTHON, { agent: "text", config }, async (editor) => {
      const session = await editor.new();
      const { modes, configOptions = [] } = session.opened;
      assert.deepEqual(Object.keys(modes).sort(), ["availableModes", "currentModeId"]);
      assert.deepEqual(modes.availableModes.map(({ id }) => id), ["one", "two"]);
      await editor.request("session/set_mode", { sessionId: session.id, modeId: "two" });
      // If the mode is also an option, a change of one changes the other.
      const mode = configOptions.find(({ category }) => category === "mode");
      if (mode && mode.options.some(({ value }) => value === "one")) {
        await editor.request("session/set_config_option", { sessionId: session.id, configId: mode.id, value: "one" });
        await session.until("the mode", (session) => session.of("current_mode_update").at(-1)?.currentModeId === "one");
      }
      for (const update of session.of("current_mode_update")) assert.deepEqual(Object.keys(update).sort(), ["currentModeId", "sessionUpdate"]);
    });
  });

  test("wraps a message's content twice", () =>
    withEditor(PYTHON, { agent: "text" }, async (editor) => {
      const session = await editor.new();
      await session.prompt({});
      for (const { content } of session.of("agent_message_chunk")) {
        assert.equal(content.type, "text");
        assert.equal(typeof content.text, "string");
      }
    }));

  test("sends thoughts as messages for another audience", () =>
    withEditor(PYTHON, { agent: "agent" }, async (editor) => {
      const session = await editor.new();
      await session.prompt({});
      const thoughts = session.of("agent_thought_chunk");
      assert.equal(thoughts.map(({ content }) => content.text).join(""), "Let me think.");
      for (const { content } of thoughts) assert.deepEqual(Object.keys(content).sort(), ["text", "type"]);
      assert.doesNotMatch(session.text(), /Let me think/);
    }));

  test("notifies of a permission for the first call instead of asking for each", () =>
    withEditor(PYTHON, { agent: "hitl" }, async (editor) => {
      const session = await editor.new();
      session.permit("reject_once");
      await session.prompt({});
      assert.equal(session.permissions.length, 2);
      for (const { status } of session.calls.values()) assert.equal(status, "failed", "the answer is what decides");
    }));

  test("offers an edit that no answer can carry", () =>
    withEditor(PYTHON, { agent: "hitl", capabilities: BARE }, async (editor) => {
      const session = await editor.new();
      session.permit("allow_once");
      await session.prompt({});
      for (const { options } of session.permissions) for (const { name, optionId } of options) assert.doesNotMatch(`${name} ${optionId}`, /edit/i);
    }));

  test("reports a turn whose permission was denied as cancelled", () =>
    withEditor(PYTHON, { agent: "hitl" }, async (editor) => {
      const session = await editor.new();
      session.permit("reject_once");
      assert.deepEqual(await session.prompt({}), { stopReason: "end_turn" });
    }));

  test("reads stop reasons and codes out of an error's text, and sends errors as messages", () =>
    withEditor(PYTHON, { agent: "failing" }, async (editor) => {
      for (const message of ["the token limit of this step is over", "permission denied: no auth", "cancelled by refusal", "401 Unauthorized"]) {
        const session = await editor.new();
        const error = await failure(session.prompt({ error: "RuntimeError", message }));
        assert.equal(error.code, -32603, message);
        assert.deepEqual(error.data, { details: error.data.details });
        assert.ok(error.data.details.includes(reasonOf(PYTHON, "RuntimeError", message)), JSON.stringify(error.data));
        assert.ok(!session.text().includes(message));
      }
    }));

  test("announces tools as commands, before the session is known, with an input of null", async () => {
    await withEditor(PYTHON, { agent: "agent" }, async (editor) => {
      const session = await editor.new();
      await session.prompt({});
      const names = session.of("available_commands_update").flatMap(({ availableCommands }) => availableCommands.map(({ name }) => name));
      assert.ok(!names.includes("get_weather"));
    });
    const config = '[acp.commands.fix]\ndescription = "Fix it"\nprompt = "please edit"\n';
    await withEditor(PYTHON, { agent: "agent", config }, async (editor) => {
      const session = await editor.new(); // the judge refuses an update before the response with the session's id
      await session.until("the commands", (session) => session.of("available_commands_update").length > 0);
      const [{ availableCommands }] = session.of("available_commands_update");
      for (const command of availableCommands) assert.notEqual(command.input, null);
    });
  });

  test("declares loadSession, replays nothing, and makes a session of any id", () =>
    withEditor(PYTHON, { agent: "text" }, async (editor) => {
      const session = await editor.new();
      await session.prompt("hello");
      await editor.load(session.id);
      assert.equal(session.text("user_message"), "hello");
      assert.ok(session.text().endsWith("tok7 "));
      const id = randomUUID();
      assert.equal((await failure(editor.load(id))).code, -32002);
      assert.equal((await fetch(`${PYTHON.langgraph}/threads/${id}`)).status, 404);
    }));

  test("flips a flag at a cancel, and answers end_turn", () =>
    withEditor(PYTHON, { agent: "text" }, async (editor) => {
      const session = await editor.new();
      const gate = await Gate.before(5);
      const prompt = session.prompt({ words: words(10), ...gate.script });
      await session.until("text", (session) => session.text().length > 0);
      await session.cancel();
      assert.deepEqual(await prompt, { stopReason: "cancelled" });
      const told = session.updates.length;
      gate.open();
      await pause(SHORT_MS);
      assert.equal(session.updates.length, told);
    }));

  test("answers with ids of another type", () =>
    withWire(PYTHON, { agent: "text" }, async (wire) => {
      const raw = new Raw(wire);
      for (const id of ["a string", 0, -5, 9007199254740991, "7"]) {
        const method = id === "a string" ? "initialize" : "session/list";
        const answer = await raw.request(id, method, method === "initialize" ? INITIALIZE : {});
        assert.ok(answer.result, JSON.stringify(answer));
        assert.equal(answer.id, id);
      }
      await wire.stop();
    }));

  test("has one current call and one current session for everything", () =>
    withEditor(PYTHON, { agent: "agent" }, async (editor) => {
      const sessions = await Promise.all([editor.new(), editor.new(), editor.new()]);
      await Promise.all(sessions.map((session) => session.prompt({ tool_sleep: 0.2 })));
      for (const session of sessions) {
        assert.deepEqual([...session.calls].map(([id, call]) => [id, output(call)]), [
          ["call_w", "sunny in Paris"],
          ["call_s", 'results for naïve "quotes" ☃ 😀'],
        ]);
      }
    }));

  test("makes up ids for calls and sends their arguments as text", () =>
    withEditor(PYTHON, { agent: "agent" }, async (editor) => {
      const session = await editor.new();
      await session.prompt({});
      const [, { tool_calls: calls }] = await messagesOf(session.id);
      assert.deepEqual([...session.calls].map(([id, { rawInput }]) => [id, rawInput]), calls.map(({ id, args }) => [id, args]));
    }));

  test("takes every tool with `file` in its name for a reading one", () =>
    withEditor(PYTHON, { agent: "editor" }, async (editor) => {
      const session = await editor.new();
      await session.prompt("please edit");
      assert.deepEqual([...session.calls.values()].map(({ name, kind }) => [name, kind]), [
        ["read_file", "read"],
        ["edit_file", "edit"],
        ["write_file", "edit"],
      ]);
    }));

  test("sends URLs and relative paths as locations", () =>
    withEditor(PYTHON, { agent: "editor" }, async (editor) => {
      const session = await editor.new({ cwd: "/srv/here" });
      await session.prompt(calling(["fetch_url", { url: "https://example.com/a" }], ["read_file", { file_path: "src/a.rs" }]));
      const [fetching, reading] = session.calls.values();
      assert.deepEqual(fetching.locations ?? [], []);
      assert.deepEqual(reading.locations, [{ path: "/srv/here/src/a.rs" }]);
    }));

  test("computes message ids and does not send them", () =>
    withEditor(PYTHON, { agent: "text" }, async (editor) => {
      const session = await editor.new();
      await session.prompt({});
      const [, { id }] = await messagesOf(session.id);
      for (const update of session.of("agent_message_chunk")) assert.equal(update.messageId, id);
    }));

  test("guesses thoughts from text", () =>
    withEditor(PYTHON, { agent: "text" }, async (editor) => {
      const session = await editor.new();
      await session.prompt({ words: ["<think>", "not a thought", "</think>", " said"] });
      assert.equal(session.text(), "<think>not a thought</think> said");
      assert.equal(session.text("agent_thought"), "");
    }));
});
