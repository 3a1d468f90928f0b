// An editor in front of real LangGraph servers: every kind of turn, permission, option and session of ACP, compared with
// LangGraph's thread.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { createServer, request } from "node:http";
import { describe, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { assertSame, calling, FULL, output, ownCwd, read, refused, scratch, transcriptOf, turn, withEditor, words } from "./acp.mjs";
import { ASKED_BELOW, SUMMARISED, SUMMARY_WORDS } from "./cases.mjs";
import { Gate } from "./gate.mjs";
import { isServed, Langgraph } from "./langgraph.mjs";
import { without } from "./limits.mjs";
import { Pipe, Proxy } from "./proxy.mjs";
import { PYTHON, reasonOf, requestOf, SERVERS } from "./servers.mjs";
import { interruptIds } from "./thread.mjs";

const OPTIONS = { concurrency: 5, timeout: 600_000 }; // for a suite and for each test
const SUITES = SERVERS.some(({ name }) => name === "aegra") ? 1 : 3; // suites at the same time
// Behind a gateway the same code answers: the check has there what a connection can change, and --full the rest.
const SAMPLED = process.env.ACP_OVER === "gateway" && process.env.FULL !== "1" && "not in the sample";
const SHORT_MS = 300; // after this time no more updates are expected
const PAGED_SESSIONS = 130;
const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const MODES = ["values", "messages-tuple", "updates", "custom"];
const WARNING = "This goes to 5,000 customers and cannot be undone."; // the warning of the graphs `described` and `reviewed`
const BARE = { fs: { readTextFile: true, writeTextFile: true }, terminal: true }; // the capabilities of acpx

/** Checks that the calls of a session that was loaded and continued are the thread's. */
async function assertSameCalls(server, session) {
  const { values } = await read(server, session.id);
  const calls = (transcript) => transcript.filter(([role]) => role === "call");
  assert.deepEqual(calls(session.transcript()), calls(transcriptOf(values, session.id)));
}

/** The permanent permissions in a thread's metadata. */
const remembered = (metadata) => Object.entries(metadata).flatMap(([key, value]) => (key.startsWith("acp_always/") && value ? [value] : []));

/** Answers with this option if it is offered, and with this value if a form asks for more. */
function choose(session, id, answer) {
  session.answers.permissions = ({ options }) => {
    const option = options.find((option) => option.optionId === id) ?? options.find(({ kind }) => kind === "allow_once");
    return { outcome: { outcome: "selected", optionId: option.optionId } };
  };
  session.answers.elicitations = ({ requestedSchema }) => {
    const fields = Object.keys(requestedSchema.properties);
    const content = fields.length > 1 || fields[0] in Object(answer) ? answer : { [fields[0]]: typeof answer === "string" ? answer : JSON.stringify(answer) };
    return { action: "accept", content };
  };
}

// In parallel, because a run of the Python server waits up to a second before it starts.
describe("an editor", { concurrency: SUITES, timeout: 6 * OPTIONS.timeout }, () => {
  for (const server of SERVERS) {
    const isPython = server.graphs === "Python";

    // ---------------------------------------------------------------- turns
    describe(`a turn, ${server.name}`, OPTIONS, () => {
      for (const flavour of ["v1", "anthropic", "reasoning_content", "string"]) {
        test(`thoughts, text and parallel tools, ${flavour}`, () =>
          withEditor(server, { agent: "agent" }, async (editor) => {
            const session = await editor.new();
            await turn(server, session, { flavour });
            assert.equal(session.text("agent_thought"), flavour === "string" ? "" : "Let me think.");
            assert.equal(session.text(), `Looking up.${words(8, "tok").join("")}`);
            const calls = [...session.calls.values()];
            assert.deepEqual(calls.map(({ toolCallId, name }) => [toolCallId, name]), [["call_w", "get_weather"], ["call_s", "search"]]);
            assert.deepEqual(calls.map(output), ["sunny in Paris", 'results for naïve "quotes" ☃ 😀']);
            for (const { statuses, title } of calls) {
              assert.deepEqual(statuses.filter((status) => status !== "-"), ["completed"]);
              assert.ok(title);
            }
            // Both calls were announced before the arguments of either were complete.
            const kinds = session.updates.map(({ sessionUpdate }) => sessionUpdate);
            assert.ok(kinds.lastIndexOf("tool_call") < kinds.indexOf("tool_call_update"), `${kinds}`);
          }));
      }

      test("a failing tool next to one that works", () =>
        withEditor(server, { agent: "tool_error" }, async (editor) => {
          const session = await editor.new();
          await turn(server, session, {});
          const statuses = Object.fromEntries([...session.calls].map(([id, { status }]) => [id, status]));
          assert.deepEqual(statuses, { call_bad: "failed", call_args: "failed", call_ok: "completed" });
          if (isPython) assert.match(output(session.calls.get("call_bad")), /ZeroDivisionError/);
        }));

      test("todos are the plan", () =>
        withEditor(server, { agent: "todos" }, async (editor) => {
          const session = await editor.new();
          await turn(server, session, {});
          const plans = session.of("plan").map(({ entries }) => entries.map(({ content, status, priority }) => [content, status, priority]));
          assert.deepEqual(plans, [
            [["step one", "in_progress", "medium"], ["step two", "pending", "medium"]],
            [["step one", "completed", "medium"], ["step two", "completed", "medium"]],
          ]);
          for (const { kind } of session.calls.values()) assert.equal(kind, "think");
        }));

      if (isServed(server, "deep")) {
        test("a deep agent: its plan, and the calls of its subagents but not their text", () =>
          withEditor(server, { agent: "deep" }, async (editor) => {
            const session = await editor.new();
            assert.deepEqual(await session.prompt({}), { stopReason: "end_turn" });
            const plans = session.of("plan").map(({ entries }) => entries.map(({ status }) => status));
            assert.deepEqual(plans, [["in_progress", "pending"], ["completed", "in_progress"], ["completed", "completed"]]);
            assert.equal(session.text(), "I plan first.Now both cities.The report is written.");
            assert.equal(session.text("agent_thought"), "Let me plan.");
            const calls = [...session.calls.values()];
            assert.deepEqual([...new Set(calls.map(({ status }) => status))], ["completed"]);
            const own = ["write_todos", "write_file", "task", "task", "edit_file", "write_todos", "read_file", "write_todos"];
            assert.deepEqual(calls.map(({ name }) => name).sort(), [...own, "write_file", "write_file"].sort());
            // A thread holds the agent's own calls only.
            await editor.load(session.id);
            assert.deepEqual([...session.calls.values()].map(({ name }) => name), own);
            await assertSame(server, session);
          }));
      }

      test("a subagent's text is not sent, the call that started it is", () =>
        withEditor(server, { agent: "subagent" }, async (editor) => {
          const session = await editor.new();
          await turn(server, session, {});
          assert.deepEqual([...session.calls.values()].map(({ name, status }) => [name, status]), [["task", "completed"]]);
        }));

      test("the texts of subgraphs are sent", () =>
        withEditor(server, { agent: "subgraphs" }, async (editor) => {
          const session = await editor.new();
          assert.deepEqual(await session.prompt({}), { stopReason: "end_turn" });
          const { values } = await read(server, session.id);
          // The graph itself repeats the user's message.
          const shown = (transcript) => transcript.filter(([role]) => role !== "user");
          assert.deepEqual(shown(session.transcript()), shown(transcriptOf(values, session.id)));
        }));

      test("several turns, with call ids that the model repeats", () =>
        withEditor(server, { agent: "agent" }, async (editor) => {
          const session = await editor.new();
          for (let n = 0; n < 3; n++) await turn(server, session, { tokens: n + 1, delay: 0 });
          assert.equal(session.calls.size, 6);
          const live = session.transcript();
          await editor.load(session.id);
          await assertSame(server, session);
          assert.deepEqual(session.transcript().filter(([role]) => role !== "user"), live);
        }));

      // What an editor gets of a summary, by what it can show.
      for (const [kind, session] of [["compaction_update", { compaction: {}, notices: {} }], ["notice", { notices: {} }], ["agent_message_chunk", {}]]) {
        for (const [agent, shortens] of Object.entries(SUMMARISED).filter(([agent]) => isServed(server, agent))) {
          if (kind !== "compaction_update" && agent !== "talk_recapped") continue;
          test(`a summary is no words of the person or the agent, as ${kind}, ${agent}`, () =>
            withEditor(server, { agent, capabilities: { ...FULL, session: { ...FULL.session, ...session } } }, async (editor) => {
              const session = await editor.new();
              const answers = [];
              for (const words of ["one", "two", "three", "four", "five"]) {
                assert.deepEqual(await session.prompt(`say ${words}`), { stopReason: "end_turn" });
                const { values } = await read(server, session.id);
                answers.push(values.messages.at(-1).content);
              }
              const summaries = () => session.updates.filter((update) => update.sessionUpdate === kind && /summary|context|compact/i.test(JSON.stringify(update)));
              const check = (what) => {
                assert.equal(summaries().length, shortens ? 1 : 0, `${what}: ${JSON.stringify(summaries())}`);
                if (kind !== "agent_message_chunk") for (const update of summaries()) assert.match(JSON.stringify(update), SUMMARY_WORDS, what);
                assert.doesNotMatch(session.text() + session.text("user_message"), SUMMARY_WORDS, what);
              };
              check("live");
              const isTold = (line) => kind === "agent_message_chunk" && /summary/.test(line);
              const spoken = () => session.transcript().filter(([role, , text]) => role === "agent" && !isTold(text)).map(([, , text]) => text);
              assert.deepEqual(spoken(), answers, "what the agent has said");
              await editor.load(session.id);
              check("loaded");
              const { values } = await read(server, session.id);
              const kept = transcriptOf(values, session.id).filter(([role]) => role !== "notice");
              assert.deepEqual(session.transcript().filter(([, , text]) => !isTold(text)), kept);
              assert.deepEqual(await session.prompt("say six"), { stopReason: "end_turn" });
              assert.match(session.text(), /Answer to six/);
            }));
        }
      }

      test("a failure is an error with the reason, and the session can continue", () =>
        withEditor(server, { agent: "failing" }, async (editor) => {
          const session = await editor.new();
          const error = await refused(session.prompt({}), -32603);
          const code = isPython ? "ValueError" : "Error";
          assert.ok(error.data.details.includes(reasonOf(server, code, "boom after 3 tokens")), JSON.stringify(error.data));
          assert.deepEqual(Object.keys(error.data), ["details"]);
          assert.equal(session.text(), isPython ? "beforetok0 tok1 tok2 " : session.text());
          assert.deepEqual(await session.prompt({ fail_after: 100 }), { stopReason: "end_turn" });
        }));
    });

    // ---------------------------------------------------------------- permissions
    for (const agent of isPython ? ["hitl", "hitl_per_call"] : ["hitl"]) {
      describe(`permissions, ${server.name}, ${agent}`, OPTIONS, () => {
        test("approve", () =>
          withEditor(server, { agent }, async (editor) => {
            const session = await editor.new();
            session.permit("allow_once");
            await turn(server, session, {});
            assert.deepEqual(session.permissions.map(({ toolCall }) => toolCall.toolCallId).sort(), ["call_d", "call_e"]);
            for (const { options } of session.permissions) {
              const kinds = options.map(({ kind }) => kind);
              for (const kind of ["allow_once", "allow_always", "reject_once", "reject_always"]) assert.ok(kinds.includes(kind), `${kinds}`);
            }
            assert.deepEqual([...session.calls.values()].map(output), ["sent to a@example.com", "deleted /tmp/x"]);
            assert.deepEqual(remembered((await read(server, session.id)).thread.metadata), []);
          }));

        test("reject", () =>
          withEditor(server, { agent }, async (editor) => {
            const session = await editor.new();
            session.permit("reject_once");
            await turn(server, session, {});
            assert.equal(session.permissions.length, 2);
            for (const { status } of session.calls.values()) assert.equal(status, "failed");
          }));

        test("approve one, reject the other", () =>
          withEditor(server, { agent }, async (editor) => {
            const session = await editor.new();
            session.permit(({ name }) => (name === "send_email" ? "allow_once" : "reject_once"));
            assert.deepEqual(await session.prompt({}), { stopReason: "end_turn" });
            const statuses = Object.fromEntries([...session.calls.values()].map(({ name, status }) => [name, status]));
            // JavaScript's middleware removes the approved call from the message if another one is rejected.
            assert.deepEqual(statuses, { send_email: isPython ? "completed" : "failed", delete_file: "failed" });
            if (isPython) await assertSame(server, session, { isLive: true });
          }));

        for (const [kind, status] of [["allow_always", "completed"], ["reject_always", "failed"]]) {
          test(`${kind} is remembered for the session, in another process too`, async () => {
            const id = await withEditor(server, { agent }, async (editor) => {
              const session = await editor.new();
              session.permit(kind);
              await turn(server, session, {});
              assert.equal(session.permissions.length, 2);
              await turn(server, session, {});
              assert.equal(session.permissions.length, 2, "the second turn asks for nothing");
              return session.id;
            });
            const decision = kind === "allow_always" ? "allow" : "reject";
            const calls = remembered((await read(server, id)).thread.metadata).map((call) => [call.name, JSON.parse(call.args), call.decision]).sort();
            assert.deepEqual(calls, [["delete_file", { path: "/tmp/x" }, decision], ["send_email", { to: "a@example.com", body: "hi" }, decision]]);
            await withEditor(server, { agent }, async (editor) => {
              const session = await editor.load(id);
              assert.deepEqual(await session.prompt({}), { stopReason: "end_turn" });
              await assertSameCalls(server, session);
              assert.deepEqual([...session.calls.values()].slice(-2).map((call) => call.status), [status, status]);
              // Another session needs its own permission.
              const other = await editor.new();
              other.permit("allow_once");
              await other.prompt({});
              assert.equal(other.permissions.length, 2);
            });
          });
        }

        test("permissions of the config, within what is allowed", () => {
          const config = '[acp.permissions]\n"send_*" = "allow"\n"*" = "reject"\n';
          return withEditor(server, { agent, config }, async (editor) => {
            const session = await editor.new();
            assert.deepEqual(await session.prompt({}), { stopReason: "end_turn" });
            const statuses = Object.fromEntries([...session.calls.values()].map(({ name, status }) => [name, status]));
            assert.deepEqual(statuses, { send_email: isPython ? "completed" : "failed", delete_file: "failed" });
            assert.equal(session.permissions.length, 0);
          });
        });

        test("an open permission is asked again after a load, in another process", async () => {
          const lg = new Langgraph(server);
          const id = await lg.thread(agent);
          const run = await lg.run(id, agent, {}, { stream_mode: MODES, stream_resumable: true });
          await lg.ended(id, run.run_id);
          await withEditor(server, { agent }, async (editor) => {
            const session = editor.session(id);
            session.permit("allow_once");
            await editor.load(id);
            await session.until("both permissions", ({ permissions }) => permissions.length === 2);
            await session.until("both results", ({ calls }) => [...calls.values()].filter(({ status }) => status === "completed").length === 2);
            await session.until("the answer", (session) => session.text().endsWith("tok7 "));
            await lg.settled(id);
            await assertSame(server, session);
            assert.deepEqual(await session.prompt({ tools: false }), { stopReason: "end_turn" });
          });
        });

      });
    }

    describe(`permissions of agents below the root, ${server.name}`, OPTIONS, () => {
      for (const [agent, { asked, own }] of Object.entries(ASKED_BELOW).filter(([agent]) => isServed(server, agent))) {
        /** Allows each call that is asked about, and notes how the editor shows it at that moment. */
        const allow = (session) => {
          const cards = [];
          session.answers.permissions = ({ toolCall: { toolCallId }, options }) => {
            cards.push([toolCallId, session.calls.get(toolCallId)?.status]);
            return { outcome: { outcome: "selected", optionId: options.find(({ kind }) => kind === "allow_once").optionId } };
          };
          return cards;
        };
        /** There is one card for each call, and each call has been completed. */
        const check = (session, cards) => {
          assert.deepEqual(cards.sort(), asked.map((id) => [id, "pending"]).sort(), "the permissions, and the cards of their calls");
          assert.deepEqual([...session.calls.keys()].sort(), [...own, ...asked].sort(), "the cards");
          for (const id of asked) assert.deepEqual(session.calls.get(id).statuses.filter((status) => status !== "-").slice(-2), ["in_progress", "completed"], id);
          for (const id of own) assert.equal(session.calls.get(id).status, "completed", id);
        };

        test(`each names the call that is shown, ${agent}`, () =>
          withEditor(server, { agent }, async (editor) => {
            const session = await editor.new();
            const cards = allow(session);
            assert.deepEqual(await session.prompt("go"), { stopReason: "end_turn" });
            check(session, cards);
            if (agent === "asking_node") await assertSame(server, session, { isLive: true });
            await editor.load(session.id);
            await assertSame(server, session);
          }));

        test(`each is asked again after a load, in another process, ${agent}`, async () => {
          const lg = new Langgraph(server);
          const id = await lg.thread(agent);
          const run = await lg.run(id, agent, "go", { stream_mode: MODES, stream_resumable: true, stream_subgraphs: true });
          await lg.ended(id, run.run_id);
          await withEditor(server, { agent }, async (editor) => {
            const session = editor.session(id);
            const cards = allow(session);
            await editor.load(id);
            await session.until("the permissions", () => cards.length === asked.length);
            await session.until("the end", ({ calls }) => [...calls.values()].every(({ status }) => status === "completed"));
            await lg.settled(id);
            check(session, cards);
          });
          await withEditor(server, { agent }, async (editor) => assertSame(server, await editor.load(id)));
        });
      }
    });

    test(`the approver gets the description, and a call runs only after approval, ${server.name}`, { timeout: OPTIONS.timeout }, () =>
      withEditor(server, { agent: "described" }, async (editor) => {
        for (const [option, expected] of [["allow_once", ["in_progress", "completed"]], ["reject_once", ["failed"]]]) {
          const session = await editor.new();
          session.permit(option);
          await turn(server, session, {});
          assert.equal(session.permissions.length, 2);
          for (const { toolCall } of session.permissions) {
            assert.deepEqual(toolCall.content, [{ type: "content", content: { type: "text", text: WARNING } }]);
            assert.equal(toolCall.status, "pending");
          }
          for (const { statuses } of session.calls.values()) assert.deepEqual(statuses.filter((status) => status !== "-"), expected);
        }
      }));

    test(`a question is asked with its subject, and Agent Inbox's request as a permission, ${server.name}`, { timeout: OPTIONS.timeout }, () =>
      withEditor(server, { agent: "reviewed" }, async (editor) => {
        const session = await editor.new();
        session.permit("allow_once");
        session.answers.elicitations = () => ({ action: "accept", content: { answer: "yes" } });
        assert.deepEqual(await session.prompt("go"), { stopReason: "end_turn" });
        const [{ message }] = session.elicitations;
        assert.equal(message, "Is this right?\n\nllm_output:\n\nDear all,\nhello\n\nchoices:\n\n- yes\n- no");
        const [{ toolCall, options }] = session.permissions;
        assert.equal(toolCall.content[0].content.text, WARNING);
        assert.deepEqual(toolCall.rawInput, { to: "all" });
        assert.deepEqual(options.map(({ optionId }) => optionId), ["allow", "allow_always", "edit", "allow_always_tool", "reject", "reject_always", "reject_always_tool"]);
        assert.deepEqual((await read(server, session.id)).values.answers, ["yes", { type: "accept", args: null }]);
      }));

    // ---------------------------------------------------------------- questions
    describe(`a free-form interrupt, ${server.name}`, { ...OPTIONS, skip: SAMPLED }, () => {
      test("is a form where the client has them", () =>
        withEditor(server, { agent: "interrupt_node" }, async (editor) => {
          const session = await editor.new();
          session.answers.elicitations = ({ requestedSchema }) => {
            const [field] = Object.keys(requestedSchema.properties);
            return { action: "accept", content: { [field]: "blue" } };
          };
          assert.deepEqual(await session.prompt("go"), { stopReason: "end_turn" });
          assert.equal(session.elicitations.length, 1);
          assert.match(session.elicitations[0].message, /ask\?/);
          assert.deepEqual((await read(server, session.id)).values.answers, ["prep", { ask: "blue" }, "fin"]);
        }));

      test("is a question elsewhere, and the next prompt its answer", async () => {
        const id = await withEditor(server, { agent: "interrupt_node", capabilities: BARE }, async (editor) => {
          const session = await editor.new();
          assert.deepEqual(await session.prompt("go"), { stopReason: "end_turn" });
          assert.match(session.text(), /ask\?/);
          return session.id;
        });
        await withEditor(server, { agent: "interrupt_node", capabilities: BARE }, async (editor) => {
          const session = await editor.load(id);
          await session.until("the question again", (session) => /ask\?/.test(session.text()));
          assert.deepEqual(await session.prompt("blue"), { stopReason: "end_turn" });
          assert.deepEqual((await read(server, id)).values.answers, ["prep", { ask: "blue" }, "fin"]);
        });
      });

      test("two at once", () =>
        withEditor(server, { agent: "interrupt_parallel" }, async (editor) => {
          const session = await editor.new();
          session.answers.elicitations = ({ message, requestedSchema }) => {
            const [field] = Object.keys(requestedSchema.properties);
            return { action: "accept", content: { [field]: /left/.test(message) ? "L" : "R" } };
          };
          assert.deepEqual(await session.prompt("go"), { stopReason: "end_turn" });
          const { answers } = (await read(server, session.id)).values;
          assert.deepEqual(answers.map((answer) => JSON.stringify(answer)).sort(), ['"fin"', '{"left":"L"}', '{"right":"R"}']);
        }));

      test("of a subgraph", () =>
        withEditor(server, { agent: "interrupt_child" }, async (editor) => {
          const session = await editor.new();
          session.answers.elicitations = ({ requestedSchema }) => ({ action: "accept", content: { [Object.keys(requestedSchema.properties)[0]]: "blue" } });
          assert.deepEqual(await session.prompt({ tokens: 2 }), { stopReason: "end_turn" });
          assert.equal(session.elicitations.length, 1);
          assert.equal(session.text(), "tok0 tok1 ");
          assert.ok((await read(server, session.id)).values.answers.includes("child"));
        }));

      test("that is cancelled ends the turn", () =>
        withEditor(server, { agent: "interrupt_node" }, async (editor) => {
          const session = await editor.new();
          session.answers.elicitations = () => ({ action: "cancel" });
          assert.deepEqual(await session.prompt("go"), { stopReason: "cancelled" });
          assert.equal(interruptIds((await read(server, session.id)).state).length, 1);
        }));

      test("that is declined stays open", () =>
        withEditor(server, { agent: "interrupt_node" }, async (editor) => {
          const session = await editor.new();
          session.answers.elicitations = () => ({ action: "decline" });
          const { stopReason } = await session.prompt("go");
          assert.ok(["end_turn", "cancelled"].includes(stopReason), stopReason);
          const { state } = await read(server, session.id);
          assert.equal(interruptIds(state).length, 1);
        }));
    });

    test(`a breakpoint is a permission to continue, ${server.name}`, { timeout: OPTIONS.timeout }, () =>
      withEditor(server, { agent: "breakpoint" }, async (editor) => {
        const [on, off] = [await editor.new(), await editor.new()];
        on.permit("allow_once");
        assert.deepEqual(await on.prompt("go"), { stopReason: "end_turn" });
        assert.deepEqual((await read(server, on.id)).values.answers, ["prep", "fin"]);
        off.permit("reject_once");
        assert.deepEqual(await off.prompt("go"), { stopReason: "cancelled" });
        assert.deepEqual((await read(server, off.id)).values.answers, ["prep"]);
      }));

    test(`halves of characters, ${server.name}`, { timeout: OPTIONS.timeout, skip: isPython && "its models cannot say them" }, () =>
      withEditor(server, { agent: "text" }, async (editor) => {
        const session = await editor.new();
        await session.prompt('{"words": ["a\\ud83d", "\\ude00b", "\\ud83d\\ude00", "c"]}');
        assert.equal(session.text(), "a😀b😀c");
      }));

    // ---------------------------------------------------------------- load
    describe(`load, ${server.name}`, OPTIONS, () => {
      test("a thread with every kind of content of the providers", async () => {
        const lg = new Langgraph(server);
        const said = [
          { type: "system", id: "s1", content: "You are one who helps." },
          {
            type: "human",
            id: "h1",
            content: [
              { type: "text", text: "Look" },
              { type: "image", base64: PIXEL, mime_type: "image/png" },
              { type: "image_url", image_url: { url: "https://example.com/a.png" } },
              { type: "file", base64: "JVBERg==", mime_type: "application/pdf" },
              { type: "audio", base64: "UklGRg==", mime_type: "audio/wav" },
            ],
          },
          {
            type: "ai",
            id: "a1",
            content: [{ type: "thinking", thinking: "hm", signature: "x" }, { type: "redacted_thinking", data: "z" }, { type: "text", text: "I see" }],
            tool_calls: [
              { id: "c1", name: "read_file", args: { file_path: "a\nb" } },
              { id: "c2", name: "edit_file", args: { file_path: "x", old_string: 5, new_string: null } },
              { id: "", name: "", args: {} },
            ],
            invalid_tool_calls: [{ id: "c3", name: "execute", args: '{"comm', error: "cut off" }],
          },
          { type: "tool", id: "t1", tool_call_id: "c1", content: [{ type: "text", text: "read" }, { type: "image", base64: PIXEL, mime_type: "image/png" }] },
          { type: "tool", id: "t2", tool_call_id: "nobody's", content: "Nobody has asked.", name: "ghost" },
          { type: "ai", id: "a2", content: "" },
          { type: "ai", id: "a3", content: "x".repeat(1_000_000) },
          { type: "human", id: "h2", content: "" },
          {
            type: "ai",
            id: "a4",
            content: [{ type: "text", text: "It is so." }, { type: "server_tool_call", id: "s1", name: "web_search", args: {} }, { type: "non_standard", value: {} }],
          },
        ];
        const id = await lg.thread("text", { said });
        await withEditor(server, { agent: "text" }, async (editor) => {
          const session = await editor.load(id);
          assert.deepEqual(session.of("user_message_chunk").map(({ content }) => content.type), ["text", "image", "resource_link", "resource", "audio"]);
          assert.equal(session.text("agent_thought"), "hm");
          const said = `I see${"x".repeat(1_000_000)}It is so.`;
          assert.equal(session.text().slice(0, said.length), said);
          // Blocks of an unknown type are shown as text: their JSON.
          assert.match(session.text().slice(said.length), /"server_tool_call".*"non_standard"/s);
          const { c1, c2 } = Object.fromEntries(session.calls);
          assert.deepEqual([c1.status, c1.content.map(({ content }) => content.type)], ["completed", ["text", "image"]]);
          assert.deepEqual([c2.status, c2.rawInput], ["failed", { file_path: "x", old_string: 5, new_string: null }]);
          await pause(SHORT_MS);
          assert.deepEqual(await session.prompt({ words: ["Still here."] }), { stopReason: "end_turn" });
          assert.ok(session.text().endsWith("Still here."));
        });
      });

      for (const graph of ["text", "agent"]) {
        test(`while a background run of ${graph} is live`, async () => {
          const lg = new Langgraph(server);
          const gate = await Gate.before(10); // in the text, and in the arguments of the calls
          const id = await lg.thread(graph, { said: [{ type: "human", id: "h0", content: "hi" }, { type: "ai", id: "a0", content: "hello" }] });
          const script = { words: graph === "text" ? words(20) : undefined, ...gate.script };
          const run = await lg.run(id, graph, script, { stream_mode: MODES, stream_resumable: true });
          await gate.reached(10);
          await withEditor(server, { agent: graph }, async (editor) => {
            const session = await editor.load(id);
            assert.deepEqual(session.transcript()[1], ["agent", "a0", "hello"], "the history comes before the response");
            gate.open();
            await lg.ended(id, run.run_id);
            const { values } = await read(server, id);
            const whole = transcriptOf(values, id);
            await session.until("the tail", (session) => JSON.stringify(session.transcript()) === JSON.stringify(whole)).catch(() => {});
            assert.deepEqual(session.transcript(), whole);
            await pause(SHORT_MS);
            assert.deepEqual(session.transcript(), whole);
            assert.deepEqual(await session.prompt({ tokens: 1, tools: false }), { stopReason: "end_turn" });
          });
        });
      }

      test("of a thread that does not exist", () =>
        withEditor(server, { agent: "text" }, async (editor) => {
          for (const id of [randomUUID(), "no-uuid"]) {
            await refused(editor.load(id), -32002);
            await refused(editor.resume(id), -32002);
            const response = await fetch(`${server.langgraph}/threads/${id}`);
            assert.ok(!response.ok, "nothing was made of it");
          }
        }));

      test("of an open question: it is asked again", async () => {
        const lg = new Langgraph(server);
        const id = await lg.thread("interrupt_node");
        const run = await lg.run(id, "interrupt_node", {}, { stream_mode: MODES });
        await lg.ended(id, run.run_id);
        await withEditor(server, { agent: "interrupt_node" }, async (editor) => {
          const session = editor.session(id);
          session.answers.elicitations = ({ requestedSchema }) => ({ action: "accept", content: { [Object.keys(requestedSchema.properties)[0]]: "blue" } });
          await editor.load(id);
          await session.until("the question", ({ elicitations }) => elicitations.length === 1);
          await lg.settled(id);
          for (let n = 0; n < 300 && !(await read(server, id)).values.answers.includes("fin"); n++) await pause(SHORT_MS);
          assert.deepEqual((await read(server, id)).values.answers, ["prep", { ask: "blue" }, "fin"]);
        });
      });

      test("resume in another process sends no history, and continues", async () => {
        const id = await withEditor(server, { agent: "text" }, async (editor) => {
          const session = await editor.new();
          await turn(server, session, { tokens: 3 });
          return session.id;
        });
        await withEditor(server, { agent: "text" }, async (editor) => {
          const session = await editor.resume(id);
          await pause(SHORT_MS);
          assert.deepEqual(session.transcript(), []);
          assert.deepEqual(await session.prompt({ tokens: 2 }), { stopReason: "end_turn" });
          assert.equal(session.text(), "tok0 tok1 ");
          const { messages } = (await read(server, id)).values;
          assert.deepEqual(messages.map(({ type }) => type), ["human", "ai", "human", "ai"]);
        });
      });
    });

    // ---------------------------------------------------------------- sessions
    describe(`sessions, ${server.name}`, { ...OPTIONS, skip: SAMPLED }, () => {
      test("list by cwd, page by page", async () => {
        const lg = new Langgraph(server);
        const [cwd, other] = [ownCwd(), ownCwd()];
        const ids = [];
        const make = async (cwd, n) => {
          const { thread_id: id } = await lg.post("/threads", { metadata: { acp_session: true, cwd, title: `Session ${n}` } });
          return id;
        };
        for (let n = 0; n < PAGED_SESSIONS; n += 10) ids.push(...(await Promise.all(Array.from({ length: 10 }, (_, i) => make(cwd, n + i)))));
        const there = await make(other, 0);
        await lg.post("/threads", { metadata: { cwd } }); // a thread of a client other than ACP
        await withEditor(server, { agent: "text" }, async (editor) => {
          const listed = [];
          let pages = 0;
          for (let cursor; ; pages++) {
            const page = await editor.request("session/list", { cwd, ...(cursor ? { cursor } : {}) });
            listed.push(...page.sessions);
            if (!(cursor = page.nextCursor)) break;
          }
          assert.ok(pages > 0, "there is more than one page");
          assert.deepEqual(listed.map(({ sessionId }) => sessionId).sort(), ids.sort());
          for (const session of listed) {
            assert.equal(session.cwd, cwd);
            assert.match(session.title, /^Session \d+$/);
            assert.match(session.updatedAt, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/);
          }
          const times = listed.map(({ updatedAt }) => Date.parse(updatedAt));
          assert.deepEqual(times, [...times].sort((a, b) => b - a), "the newest first");
          const elsewhere = await editor.request("session/list", { cwd: other });
          assert.deepEqual(elsewhere.sessions.map(({ sessionId }) => sessionId), [there]);
          await refused(editor.request("session/list", { cursor: "no such place" }), -32602);
        });
      });

      test("a title from the first prompt", () =>
        withEditor(server, { agent: "text" }, async (editor) => {
          const cwd = ownCwd();
          const session = await editor.new({ cwd });
          const said = "Please tell me something about the sea, its waves\nand all the fish that live in it";
          await session.prompt(said);
          await session.prompt("And now of the land");
          const { sessions } = await editor.request("session/list", { cwd });
          assert.equal(sessions.length, 1);
          assert.equal([...sessions[0].title.replace(/…$/, "")].length <= 60, true, sessions[0].title);
          assert.match(sessions[0].title, /^Please tell me something about the sea, its waves and all/);
          assert.equal(session.info.title, sessions[0].title);
        }));

      test("cwd is kept, and one that is not absolute is refused", () =>
        withEditor(server, { agent: "text" }, async (editor) => {
          const session = await editor.new({ cwd: "/srv/a/" });
          await session.prompt("hello"); // this makes the thread
          assert.equal((await read(server, session.id)).thread.metadata.cwd, "/srv/a");
          await refused(editor.request("session/new", { cwd: "work/a", mcpServers: [] }), -32602);
        }));

      test("additional directories are the graph's too, and each opening names all of them", () =>
        withEditor(server, { agent: "text" }, async (editor) => {
          const cwd = ownCwd();
          const lg = new Langgraph(server);
          const session = await editor.new({ cwd, additionalDirectories: ["/srv/lib/", "/srv/data"] });
          const listed = async () => (await editor.request("session/list", { cwd })).sessions.map(({ additionalDirectories }) => additionalDirectories);
          const ofGraph = async () => {
            const runs = await lg.get(`/threads/${session.id}/runs`);
            const [newest] = runs.sort((a, b) => b.created_at.localeCompare(a.created_at));
            const { cwd, acp_additional_directories: additional } = requestOf(newest).config.metadata;
            return { cwd, additional };
          };
          await turn(server, session, "hello");
          assert.deepEqual(await ofGraph(), { cwd, additional: ["/srv/lib", "/srv/data"] });
          assert.deepEqual(await listed(), [["/srv/lib", "/srv/data"]]);
          await editor.request("session/close", { sessionId: session.id });
          await withEditor(server, { agent: "text" }, async (other) => {
            await other.load(session.id, { cwd, additionalDirectories: ["/srv/other"] });
            assert.deepEqual(await listed(), [["/srv/other"]]);
            await other.session(session.id).prompt("more");
            assert.deepEqual(await ofGraph(), { cwd, additional: ["/srv/other"] });
            await other.resume(session.id, { cwd });
            assert.deepEqual(await listed(), [undefined]);
          });
          await refused(editor.request("session/new", { cwd, mcpServers: [], additionalDirectories: ["lib"] }), -32602);
        }));

      test("a fork has the conversation, its own directories, and goes on by itself", { skip: without(server, "copy") }, async () => {
        const [cwd, elsewhere] = [ownCwd(), ownCwd()];
        const lg = new Langgraph(server);
        const id = await withEditor(server, { agent: "agent" }, async (editor) => {
          assert.deepEqual(editor.initialized.agentCapabilities.sessionCapabilities.fork, {});
          const source = await editor.new({ cwd, additionalDirectories: ["/srv/lib"] });
          await turn(server, source, { tokens: 2 });
          const fork = await editor.fork(source.id, { cwd: elsewhere, additionalDirectories: ["/srv/a"] });
          assert.notEqual(fork.id, source.id);
          assert.deepEqual(fork.opened.configOptions, source.opened.configOptions);
          const before = (await read(server, source.id)).values.messages;
          assert.deepEqual((await read(server, fork.id)).values.messages, before);
          await pause(SHORT_MS);
          assert.deepEqual(fork.transcript(), [], "the client has the conversation");
          assert.deepEqual(await fork.prompt({ tokens: 3, tools: false }), { stopReason: "end_turn" });
          assert.equal(fork.text(), "tok0 tok1 tok2 ");
          const { messages } = (await read(server, fork.id)).values;
          assert.deepEqual(messages.slice(0, before.length), before);
          assert.ok(messages.length > before.length);
          assert.deepEqual((await read(server, source.id)).values.messages, before, "the source is as it was");
          const [run] = await lg.get(`/threads/${fork.id}/runs`);
          const { cwd: ofGraph, acp_additional_directories: additional } = requestOf(run).config.metadata;
          assert.deepEqual([ofGraph, additional], [elsewhere, ["/srv/a"]]);
          for (const [at, session, additionalDirectories] of [[cwd, source, ["/srv/lib"]], [elsewhere, fork, ["/srv/a"]]]) {
            const { sessions } = await editor.request("session/list", { cwd: at });
            assert.deepEqual(sessions.map((listed) => [listed.sessionId, listed.additionalDirectories]), [[session.id, additionalDirectories]]);
          }
          await turn(server, source, { tokens: 1, tools: false });
          await refused(editor.fork(randomUUID()), -32002);
          return fork.id;
        });
        await withEditor(server, { agent: "agent" }, async (editor) => {
          const fork = await editor.load(id, { cwd: elsewhere });
          await assertSame(server, fork);
          // A fork of a fork.
          const third = await editor.fork(id, { cwd });
          assert.deepEqual((await read(server, third.id)).values, (await read(server, id)).values);
        });
      });

      test("a fork while a prompt runs has what is stored, and an unused session can be forked", { skip: without(server, "copy") }, () =>
        withEditor(server, { agent: "text" }, async (editor) => {
          const cwd = ownCwd();
          const unused = await editor.new({ cwd });
          const source = await editor.fork(unused.id, { cwd });
          assert.deepEqual((await editor.request("session/list", { cwd })).sessions, []);
          await turn(server, source, { words: ["First."] });
          const gate = await Gate.before(10);
          const running = source.prompt({ words: words(20), ...gate.script });
          await source.until("text", (session) => session.text().includes("word5 "));
          const fork = await editor.fork(source.id, { cwd });
          assert.deepEqual(await fork.prompt({ words: ["Aside."] }), { stopReason: "end_turn" });
          assert.equal(fork.text(), "Aside.");
          gate.open();
          assert.deepEqual(await running, { stopReason: "end_turn" });
          await assertSame(server, source, { isLive: true });
          await editor.load(fork.id, { cwd });
          await assertSame(server, fork);
          assert.equal(fork.text(), "First.Aside.");
        }));

      test("a fork at an open permission asks for it again, and both go on", { skip: without(server, "copy") }, () =>
        withEditor(server, { agent: "hitl" }, async (editor) => {
          const source = await editor.new();
          let fork;
          source.answers.permissions = async ({ options }) => {
            fork ??= editor.fork(source.id);
            await fork;
            return { outcome: { outcome: "selected", optionId: options.find(({ kind }) => kind === "allow_once").optionId } };
          };
          await turn(server, source, {});
          fork = await fork;
          fork.permit("reject_once");
          assert.deepEqual(await fork.prompt({}), { stopReason: "end_turn" });
          // The two calls of the source, and those of the fork's own prompt.
          assert.equal(fork.permissions.length, 4);
          await assertSame(server, source, { isLive: true });
        }));

      for (const secrets of [false, true]) {
        test(`the secrets of MCP servers are ${secrets ? "stored where the docs say, if they are forwarded" : "stored nowhere"}`, () => {
          const config = `[acp]\nforward_mcp_servers = "mcp_servers"\nforward_mcp_secrets = ${secrets}\n`;
          return withEditor(server, { agent: "text", config }, async (editor) => {
            const headers = [{ name: "authorization", value: "Bearer s3cr3t" }];
            const url = "https://me:s3cr3t@mcp.example/docs?key=s3cr3t";
            const session = await editor.new({ mcpServers: [{ type: "http", name: "docs", url, headers }] });
            assert.deepEqual(await session.prompt("hello"), { stopReason: "end_turn" });
            const lg = new Langgraph(server);
            const thread = `/threads/${session.id}`;
            const [run] = await lg.get(`${thread}/runs`);
            const { run_id } = run;
            const [docs] = requestOf(run).config.configurable.mcp_servers;
            assert.match(docs.url, secrets ? /s3cr3t/ : /^https:\/\/mcp\.example\/docs$/);
            const places = ["", "/state", "/history", "/runs", `/runs/${run_id}`, `/runs/${run_id}/join`];
            const holding = [];
            for (const place of places) if ((await lg.send("GET", thread + place)).includes("s3cr3t")) holding.push(place);
            const stored = {
              Python: ["/state", "/history", "/runs", `/runs/${run_id}`],
              JavaScript: ["", "/state", "/history", "/runs", `/runs/${run_id}`],
              aegra: ["/runs", `/runs/${run_id}`],
            }[server.name];
            assert.deepEqual(holding, secrets ? stored : []);
          });
        });
      }

      test("close ends the turn and the session, delete the thread", () =>
        withEditor(server, { agent: "text" }, async (editor) => {
          const cwd = ownCwd();
          const session = await editor.new({ cwd });
          const gate = await Gate.before(5);
          const prompt = session.prompt({ words: words(10), ...gate.script });
          await session.until("text", (session) => session.text().length > 20);
          const closed = editor.request("session/close", { sessionId: session.id });
          assert.deepEqual(await prompt, { stopReason: "cancelled" });
          assert.deepEqual(await closed, {});
          await refused(session.prompt("more"), -32002);
          const lg = new Langgraph(server);
          await lg.settled(session.id);
          // The session can be loaded until it is deleted.
          await editor.load(session.id, { cwd });
          assert.deepEqual(await editor.request("session/delete", { sessionId: session.id }), {});
          assert.equal((await fetch(`${server.langgraph}/threads/${session.id}`)).status, 404);
          assert.deepEqual((await editor.request("session/list", { cwd })).sessions, []);
          assert.deepEqual(await editor.request("session/delete", { sessionId: session.id }), {}, "a second time");
          await refused(editor.load(session.id), -32002);
        }));

      test("a prompt on a busy session is refused, and does not disturb it", () =>
        withEditor(server, { agent: "text" }, async (editor) => {
          const session = await editor.new();
          const gate = await Gate.before(5);
          const first = session.prompt({ words: words(10), ...gate.script });
          await session.until("text", (session) => session.text().length > 0);
          await refused(session.prompt("more"), -32600);
          gate.open();
          assert.deepEqual(await first, { stopReason: "end_turn" });
          await assertSame(server, session, { isLive: true });
        }));

      for (const when of ["at once", "once its session is followed"]) {
        test(`a prompt after another client's run shows that run too: ${when}`, () =>
          withEditor(server, { agent: "text" }, async (editor) => {
            const session = await editor.new();
            await session.prompt("hello"); // this makes the thread
            const lg = new Langgraph(server);
            editor.wire.judge.share(session.id);
            const gate = await Gate.before(5);
            await lg.run(session.id, "text", { words: words(10, "theirs"), ...gate.script }, { stream_mode: MODES, stream_resumable: true });
            await gate.reached(5);
            const isShown = () => session.until("their run", (session) => session.text().includes("theirs4 "));
            if (when !== "at once") await isShown();
            const prompt = session.prompt({ words: words(5, "mine") });
            await isShown();
            gate.open();
            assert.deepEqual(await prompt, { stopReason: "end_turn" });
            const { values } = await read(server, session.id);
            assert.deepEqual(values.messages.map(({ type }) => type), ["human", "ai", "human", "ai", "human", "ai"]);
            const answers = (transcript) => transcript.filter(([role]) => role === "agent");
            assert.deepEqual(answers(session.transcript()), answers(transcriptOf(values, session.id)));
          }));
      }

      test("a prompt that is cancelled while it waits for another client's run leaves that run, and no call open", () =>
        withEditor(server, { agent: "agent" }, async (editor) => {
          const session = await editor.new();
          await session.prompt({ tokens: 1 }); // this makes the thread
          const earlier = new Set(session.calls.keys());
          const lg = new Langgraph(server);
          editor.wire.judge.share(session.id);
          const gate = await Gate.before("tool");
          await lg.run(session.id, "agent", gate.script, { stream_mode: MODES, stream_resumable: true });
          await gate.reached("tool");
          const prompt = session.prompt({ tokens: 1 });
          await session.until("their call", ({ calls }) => [...calls].some(([id, { rawInput }]) => !earlier.has(id) && rawInput));
          await session.cancel();
          assert.deepEqual(await prompt, { stopReason: "cancelled" });
          assert.deepEqual(editor.wire.judge.openCalls(session.id), []);
          gate.open();
          // The next prompt waits for that run again, and shows its outcome.
          assert.deepEqual(await session.prompt({ tokens: 1 }), { stopReason: "end_turn" });
          for (const { status } of session.calls.values()) assert.equal(status, "completed");
          const { values } = await read(server, session.id);
          assert.equal(values.messages.filter(({ type }) => type === "human").length, 3, "our first prompt, theirs, and the last of ours");
        }));

      test("an empty prompt, and one with unknown content", () =>
        withEditor(server, { agent: "text" }, async (editor) => {
          const session = await editor.new();
          await refused(editor.request("session/prompt", { sessionId: session.id, prompt: [] }), -32602);
          await refused(session.prompt([{ type: "image", data: "", mimeType: "image/png" }]), -32602);
          await refused(editor.session(randomUUID()).prompt("hello"), -32002);
          await turn(server, session, {});
        }));

      test("a load in the middle of one's own prompt", () =>
        withEditor(server, { agent: "text" }, async (editor) => {
          const session = await editor.new();
          const gate = await Gate.before(5);
          const prompt = session.prompt({ words: words(10), ...gate.script }).catch((error) => error);
          await session.until("text", (session) => session.text().length > 20);
          const outcome = await editor.load(session.id).catch((error) => error);
          gate.open();
          const end = await prompt;
          if (outcome instanceof Error) return void assert.equal(outcome.code, -32600);
          assert.ok(["end_turn", "cancelled"].includes(end.stopReason), `${end.code} ${end.message}`);
          await new Langgraph(server).settled(session.id);
          await pause(SHORT_MS);
          await assertSame(server, session);
        }));

      test("a mode and an option can be set during a prompt", () => {
        const config = '[acp.modes.one]\n\n[acp.modes.two]\n';
        return withEditor(server, { agent: "text", config }, async (editor) => {
          const session = await editor.new();
          const gate = await Gate.before(5);
          const prompt = session.prompt({ words: words(10), ...gate.script });
          await session.until("text", (session) => session.text().length > 0);
          assert.deepEqual(await editor.request("session/set_mode", { sessionId: session.id, modeId: "two" }), {}, "while the run is held");
          gate.open();
          assert.deepEqual(await prompt, { stopReason: "end_turn" });
          assert.equal((await read(server, session.id)).thread.metadata.acp_mode, "two");
        });
      });

      for (const [policy, expected] of [["continue", ["success"]], ["cancel", ["interrupted", "error"]]]) {
        test(`an editor that disconnects in mid-prompt: ${policy}`, async () => {
          const config = `on_owner_disconnect = "${policy}"\n\n[limits]\nowner_grace_seconds = 1\n`;
          const gate = await Gate.before(5);
          const id = await withEditor(server, { agent: "text", config }, async (editor) => {
            const session = await editor.new();
            session.prompt({ words: words(10), ...gate.script }).catch(() => {});
            await session.until("text", (session) => session.text().length > 20);
            editor.wire.isLeft = true;
            return session.id;
          });
          const lg = new Langgraph(server);
          const [run] = await lg.get(`/threads/${id}/runs`);
          // The editor is gone. The run that goes on is held until now, and the one that is cancelled for good.
          if (policy === "continue") gate.open();
          const { record } = await lg.ended(id, run.run_id);
          gate.open();
          assert.ok(expected.includes(record.status), record.status);
        });
      }

      test("four sessions at once", () =>
        withEditor(server, { agent: "agent" }, async (editor) => {
          const sessions = await Promise.all(Array.from({ length: 4 }, () => editor.new()));
          await Promise.all(sessions.map((session, n) => turn(server, session, { words: words(10 * n + 1, `s${n}-`) })));
          for (const [n, session] of sessions.entries()) assert.ok(session.text().endsWith(words(10 * n + 1, `s${n}-`).join("")));
        }));

      test("modes of the config, and the assistant as an option", () => {
        const config = `
  [acp.modes.agentic]
  name = "Agentic"
  description = "Does it"
  assistant = "text"

  [acp.modes.planning]
  name = "Planning"
  assistant = "todos"
  `;
        return withEditor(server, { agent: "text", config }, async (editor) => {
          const session = await editor.new();
          const { modes, configOptions } = session.opened;
          assert.deepEqual(modes.availableModes.map(({ id, name }) => [id, name]), [["agentic", "Agentic"], ["planning", "Planning"]]);
          assert.equal(modes.currentModeId, "agentic");
          assert.deepEqual(await editor.request("session/set_mode", { sessionId: session.id, modeId: "planning" }), {});
          await turn(server, session, {});
          assert.ok(session.plan, "the assistant of the mode has answered");
          await refused(editor.request("session/set_mode", { sessionId: session.id, modeId: "nonsense" }), -32602);

          const assistant = configOptions.find(({ id }) => /assistant|agent/.test(id));
          assert.ok(assistant, JSON.stringify(configOptions));
          const other = await editor.new();
          const values = assistant.options.flatMap((option) => option.options ?? option);
          const { value } = values.find(({ value, name }) => [value, name].includes("todos"));
          const changed = await editor.request("session/set_config_option", { sessionId: other.id, configId: assistant.id, value });
          assert.deepEqual(changed.configOptions.map(({ id }) => id), other.opened.configOptions.map(({ id }) => id), "the whole list");
          assert.equal(changed.configOptions.find(({ id }) => id === assistant.id).currentValue, value);
          await other.prompt({});
          assert.ok(other.plan, "the assistant that was chosen has answered");
          for (const [configId, value] of [["nonsense", "x"], [assistant.id, "nonsense"]]) {
            await refused(editor.request("session/set_config_option", { sessionId: other.id, configId, value }), -32602);
          }
          return [session.id, other.id];
        }).then(([planned, chosen]) =>
          withEditor(server, { agent: "text", config }, async (editor) => {
            assert.equal((await editor.load(planned)).opened.modes.currentModeId, "planning", "the choice outlives the process");
            const { configOptions } = (await editor.resume(chosen)).opened;
            assert.match(JSON.stringify(configOptions.find(({ id }) => /assistant|agent/.test(id)).currentValue), /todos/);
          }),
        );
      });
    });

    test(`the graph's own settings, ${server.name}`, { timeout: OPTIONS.timeout }, async () => {
      const id = await withEditor(server, { agent: "configured" }, async (editor) => {
        const session = await editor.new();
        const option = (options, key) => options.find(({ id }) => id.endsWith(key));
        const [model, verbose] = ["model", "verbose"].map((key) => option(session.opened.configOptions, key));
        assert.deepEqual([model.type, model.currentValue, model.options.map(({ value }) => value)], ["select", "fast", ["fast", "deep"]]);
        assert.deepEqual([verbose.type, verbose.currentValue], ["boolean", false]);
        await session.prompt("which?");
        const set = (configId, value) => editor.request("session/set_config_option", { sessionId: session.id, configId, ...value });
        await set(model.id, { value: "deep" });
        const { configOptions } = await set(verbose.id, { type: "boolean", value: true });
        assert.deepEqual([option(configOptions, "model").currentValue, option(configOptions, "verbose").currentValue], ["deep", true]);
        await session.prompt("which?");
        assert.equal(session.text(), "fastdeep, verbosely");
        return session.id;
      });
      await withEditor(server, { agent: "configured", capabilities: BARE }, async (editor) => {
        const session = await editor.resume(id);
        // A client without switches gets a choice of two values.
        assert.deepEqual(session.opened.configOptions.filter(({ type }) => type !== "select"), []);
        await session.prompt("which?");
        assert.equal(session.text(), "deep, verbosely");
      });
    });

    test(`what is offered without configuration, ${server.name}`, { timeout: OPTIONS.timeout }, async (t) => {
      const image = { type: "image", data: PIXEL, mimeType: "image/png" };
      const audio = { type: "audio", data: "UklGRg==", mimeType: "audio/wav" };
      const capabilities = ({ initialized }) => initialized.agentCapabilities.promptCapabilities;
      await withEditor(server, { agent: "seeing" }, async (editor) => {
        assert.deepEqual([capabilities(editor).image, capabilities(editor).audio], [true, true]);
        const session = await editor.new();
        const { modes, configOptions } = session.opened;
        assert.deepEqual(modes, { currentModeId: "act", availableModes: [{ id: "act", name: "act" }, { id: "plan", name: "plan" }] });
        assert.deepEqual(configOptions.filter(({ category }) => category === "mode").map(({ id }) => id), ["config:mode"]);
        assert.deepEqual(await session.prompt([{ type: "text", text: "See" }, image, audio]), { stopReason: "end_turn" });
        await editor.request("session/set_mode", { sessionId: session.id, modeId: "plan" });
        await session.prompt("and now?");
        assert.equal(session.text(), "act: text, image, audioplan: text");
        await refused(editor.request("session/set_mode", { sessionId: session.id, modeId: "fly" }), -32602);
        assert.deepEqual(session.of("available_commands_update"), []);
      });
      const lg = new Langgraph(server);
      const config = { configurable: { model: "ollama:llama3" } };
      const made = await lg.post("/assistants", { graph_id: "seeing", name: "A blind one", config });
      t.after(() => lg.send("DELETE", `/assistants/${made.assistant_id}`));
      await withEditor(server, { agent: made.assistant_id }, async (editor) => {
        assert.deepEqual([capabilities(editor).image, capabilities(editor).audio], [false, false]);
        const session = await editor.new();
        const agent = session.opened.configOptions.find(({ id }) => id === "assistant");
        assert.equal(agent.currentValue, made.assistant_id);
        const ofGraph = agent.options.filter(({ value, name }) => [value, name].includes("seeing") || value === made.assistant_id);
        assert.deepEqual(ofGraph, [
          // aegra describes the graphs' own assistants.
          { value: "seeing", name: "seeing", ...(server.name === "aegra" && { description: "Default assistant for graph 'seeing'" }) },
          { value: made.assistant_id, name: "A blind one", description: "Runs the graph seeing" },
        ]);
        const error = await refused(session.prompt([image]), -32602);
        assert.match(error.message, /add "image" to `prompt` under `\[acp\]`/);
      });
    });

    // ---------------------------------------------------------------- the server
    describe(`the end of the server, ${server.name}`, OPTIONS, () => {
      test("in mid-turn: a pause, if the server returns within a minute", async (t) => {
        const pipes = [await Pipe.start(server.langgraph)];
        t.after(() => pipes.forEach((pipe) => pipe.close()));
        await withEditor(server, { agent: "text", upstream: pipes[0].url }, async (editor) => {
          const session = await editor.new();
          const gate = await Gate.before(5);
          const prompt = session.prompt({ words: words(60), ...gate.script });
          await session.until("text", (session) => session.text().length > 20);
          pipes[0].close();
          await refused(editor.request("session/new", { cwd: "/srv", mcpServers: [] }), -32603);
          gate.open();
          pipes.push(await Pipe.start(server.langgraph, pipes[0].port));
          assert.deepEqual(await prompt, { stopReason: "end_turn" });
          assert.ok(session.text().endsWith("word59 "));
          await assertSame(server, session, { isLive: true });
          assert.deepEqual(await session.prompt({ words: ["Here again."] }), { stopReason: "end_turn" });
          await editor.load(session.id);
          await assertSame(server, session);
        });
      });
    });
  }

  describe("an editor's tools", { ...OPTIONS, skip: !PYTHON || SAMPLED }, () => {
    test("files: kinds, locations and differences", () =>
      withEditor(PYTHON, { agent: "editor" }, async (editor) => {
        const session = await editor.new({ cwd: "/srv/project" });
        await turn(PYTHON, session, "please edit");
        const [reading, editing, writing] = session.calls.values();
        const shown = ({ name, kind, locations }) => [name, kind, locations.map(({ path }) => path)];
        assert.deepEqual(shown(reading), ["read_file", "read", ["/notes.txt"]]);
        assert.deepEqual(shown(editing), ["edit_file", "edit", ["/notes.txt"]]);
        assert.deepEqual(shown(writing), ["write_file", "edit", ["/srv/project/docs/new.md"]]);
        const differences = ({ content }) => content.filter(({ type }) => type === "diff").map(({ path, oldText, newText }) => [path, oldText ?? null, newText]);
        assert.deepEqual(differences(editing), [["/notes.txt", "one\ntwo", "one\n2"]]);
        assert.deepEqual(differences(writing), [["/srv/project/docs/new.md", null, "# New\n"]]);
        const live = session.transcript();
        await editor.load(session.id);
        assert.deepEqual(session.transcript().slice(1), live);
        const replayed = [...session.calls.values()];
        for (const { statuses } of replayed) assert.deepEqual(statuses, ["completed"], "one frame, with its final status");
        assert.deepEqual(differences(replayed[1]), [["/notes.txt", "one\ntwo", "one\n2"]]);
        assert.deepEqual(shown(replayed[2]), shown(writing));
      }));

    test("an edit that fails says why", () =>
      withEditor(PYTHON, { agent: "editor" }, async (editor) => {
        const session = await editor.new();
        await turn(PYTHON, session, calling(["edit_file", { file_path: "/a", old_string: "not there", new_string: "x" }], ["read_file", { file_path: "/b" }]));
        const [editing, reading] = session.calls.values();
        assert.deepEqual([editing.status, reading.status], ["failed", "completed"]);
        assert.match(output(editing), /String not found in \/a/);
      }));

    test("kinds of the config, by name and by glob", () => {
      const config = '[acp.tool_kinds]\nping = "search"\n"exec*" = "delete"\n';
      return withEditor(PYTHON, { agent: "editor", config }, async (editor) => {
        const session = await editor.new();
        await turn(PYTHON, session, calling(["ping", {}], ["execute", { command: "ls" }], ["read_file", { file_path: "/b" }]));
        assert.deepEqual([...session.calls.values()].map(({ kind }) => kind), ["search", "delete", "read"]);
      });
    });

    test("an approved edit shows its difference before it is approved", () =>
      withEditor(PYTHON, { agent: "guarded" }, async (editor) => {
        const session = await editor.new();
        session.answers.permissions = ({ toolCall, options }) => {
          const { content, status } = session.calls.get(toolCall.toolCallId);
          assert.ok(content.some(({ type }) => type === "diff"));
          assert.notEqual(status, "completed");
          return { outcome: { outcome: "selected", optionId: options.find(({ kind }) => kind === "allow_once").optionId } };
        };
        await turn(PYTHON, session, "please edit");
        assert.equal(session.permissions.length, 2);
      }));

    test("a mode's own permissions and settings", () => {
      const config = `
[acp.modes.reading]
permissions = { execute = "allow", "*" = "reject" }

[acp.modes.asking]
permissions = { execute = "ask" }

[acp.permissions]
"*" = "allow"
`;
      return withEditor(PYTHON, { agent: "guarded", config }, async (editor) => {
        const session = await editor.new();
        session.permit("reject_once");
        const calls = ["execute", { command: "ls" }];
        await session.prompt({ rounds: [{ calls: [calls, ["write_file", { file_path: "a", content: "" }]] }], delay: 0 });
        assert.deepEqual([...session.calls.values()].map(({ status }) => status), ["completed", "failed"]);
        assert.equal(session.permissions.length, 0);
        await editor.request("session/set_mode", { sessionId: session.id, modeId: "asking" });
        await session.prompt({ rounds: [{ calls: [calls, ["write_file", { file_path: "a", content: "" }]] }], delay: 0 });
        assert.deepEqual([...session.calls.values()].slice(2).map(({ status }) => status), ["failed", "completed"]);
        assert.equal(session.permissions.length, 1, "what the mode does not say, the rules for all say");
      });
    });

    test("commands of the config", () => {
      const config = `
[acp.commands.read]
description = "Read a file"
hint = "its name"
prompt = '{"rounds": [{"calls": [["read_file", {"file_path": "{args}"}]]}]}'
`;
      return withEditor(PYTHON, { agent: "editor", config }, async (editor) => {
        const session = await editor.new();
        await session.until("the commands", (session) => session.of("available_commands_update").length > 0);
        const [{ availableCommands }] = session.of("available_commands_update");
        assert.deepEqual(availableCommands, [{ name: "read", description: "Read a file", input: { hint: "its name" } }]);
        await session.prompt("/read src/main.rs");
        assert.deepEqual([...session.calls.values()].map(({ rawInput }) => rawInput), [{ file_path: "src/main.rs" }]);
        await session.prompt("/unknown thing");
        assert.equal((await read(PYTHON, session.id)).values.messages.findLast(({ type }) => type === "human").content, "/unknown thing");
      });
    });

    for (const agent of ["hitl", "hitl_per_call"]) {
      test(`a prompt after a resume with open permissions, ${agent}`, async () => {
        const lg = new Langgraph(PYTHON);
        const id = await lg.thread(agent);
        const run = await lg.run(id, agent, { delay: 0 }, { stream_mode: MODES });
        await lg.ended(id, run.run_id);
        await withEditor(PYTHON, { agent }, async (editor) => {
          const session = await editor.resume(id);
          session.permit("reject_once");
          assert.deepEqual(await session.prompt({ tools: false, delay: 0 }), { stopReason: "end_turn" });
          assert.deepEqual([...session.calls.values()].map(({ name, status }) => [name, status]), [["send_email", "failed"], ["delete_file", "failed"]]);
          const { messages } = (await read(PYTHON, id)).values;
          assert.deepEqual(messages.map(({ type }) => type), ["human", "ai", "tool", "tool", "ai", "human", "ai"], "the prompt comes after the answers");
        });
      });
    }

    test("always is for exactly these arguments", () =>
      withEditor(PYTHON, { agent: "guarded" }, async (editor) => {
        const session = await editor.new();
        session.permit("allow_always");
        for (const [command, asked] of [["ls", 1], ["ls", 1], ["ls -l", 2], ["ls", 2]]) {
          assert.deepEqual(await session.prompt(calling(["execute", { command }])), { stopReason: "end_turn" });
          assert.equal(session.permissions.length, asked, command);
        }
      }));

    test("other arguments, by a form", () =>
      withEditor(PYTHON, { agent: "guarded" }, async (editor) => {
        const session = await editor.new();
        choose(session, "edit", { command: "pwd" });
        assert.deepEqual(await session.prompt(calling(["execute", { command: "ls" }])), { stopReason: "end_turn" });
        const { messages } = (await read(PYTHON, session.id)).values;
        const [result] = messages.filter(({ type }) => type === "tool");
        assert.match(result.content, /\$ pwd$/);
        assert.equal(output([...session.calls.values()][0]), result.content);
      }));

    test("other arguments one by one, where calls are asked for one by one", { skip: without(PYTHON, "schema") }, () =>
      withEditor(PYTHON, { agent: "hitl_per_call" }, async (editor) => {
        const session = await editor.new();
        choose(session, "edit", { to: "b@example.com", body: "hi" });
        assert.deepEqual(await session.prompt({}), { stopReason: "end_turn" });
        assert.match(output(session.calls.get("call_e")), /sent to b@example\.com$/);
      }));

    test("an answer in the tool's place, by a form", () =>
      withEditor(PYTHON, { agent: "guarded" }, async (editor) => {
        const session = await editor.new();
        choose(session, "respond", "Do it yourself.");
        assert.deepEqual(await session.prompt(calling(["execute", { command: "ls" }])), { stopReason: "end_turn" });
        const { messages } = (await read(PYTHON, session.id)).values;
        assert.deepEqual(messages.filter(({ type }) => type === "tool").map(({ content }) => content), ["Do it yourself."]);
      }));

    test("a client without forms is offered nothing that needs one", () =>
      withEditor(PYTHON, { agent: "guarded", capabilities: BARE }, async (editor) => {
        const session = await editor.new();
        session.permit("allow_once");
        await session.prompt(calling(["execute", { command: "ls" }]));
        const ids = session.permissions[0].options.map(({ optionId }) => optionId);
        assert.deepEqual(ids, ["allow", "allow_always", "reject", "reject_always"]);
      }));

    test("a form by the interrupt's own schema", { skip: without(PYTHON, "schema") }, () =>
      withEditor(PYTHON, { agent: "interrupt_form" }, async (editor) => {
        const session = await editor.new();
        session.answers.elicitations = () => ({ action: "accept", content: { level: "low", count: 2, sure: false } });
        assert.deepEqual(await session.prompt("go"), { stopReason: "end_turn" });
        const [{ message, requestedSchema }] = session.elicitations;
        assert.match(message, /How shall it be done\?/);
        assert.deepEqual(Object.keys(requestedSchema.properties), ["level", "count", "sure"]);
        assert.deepEqual(requestedSchema.required, ["level"]);
        assert.deepEqual(requestedSchema.properties.level.enum, ["low", "high"]);
        assert.equal(session.text(), 'The answer is {"count": 2, "level": "low", "sure": false}');
      }));

    test("the text of a model that does not stream is sent as well", () =>
      withEditor(PYTHON, { agent: "silent" }, async (editor) => {
        const session = await editor.new();
        await turn(PYTHON, session, "please edit");
        assert.equal(session.calls.size, 3);
      }));
  });

  describe("a server in trouble", { ...OPTIONS, skip: !PYTHON }, () => {
    test("a stream that breaks: nothing is lost, and nothing sent twice", async (t) => {
      const proxy = await Proxy.start(PYTHON.langgraph);
      t.after(() => proxy.close());
      await withEditor(PYTHON, { agent: "text", upstream: proxy.url }, async (editor) => {
        const session = await editor.new();
        const gate = await Gate.before(10, 20);
        const prompt = session.prompt({ words: words(30), ...gate.script });
        for (const place of [10, 20]) {
          await session.until("text", (session) => session.text().includes(`word${place - 1} `));
          const open = proxy.exchanges.filter(({ path, ended }) => path.includes("/stream") && ended === Infinity);
          assert.equal(open.length, 1);
          open[0].response.destroy();
          gate.open(place);
        }
        assert.deepEqual(await prompt, { stopReason: "end_turn" });
        await assertSame(PYTHON, session, { isLive: true });
        assert.deepEqual(await session.prompt({ tokens: 1 }), { stopReason: "end_turn" });
      });
    });

    // A gateway has its key from its operator.
    test("a missing key is requested, and a given key is used", { skip: process.env.ACP_OVER === "gateway" }, async (t) => {
      const seen = [];
      const guard = createServer((asked, response) => {
        seen.push(asked.headers["x-api-key"]);
        if (asked.headers["x-api-key"] !== "secret") return void response.writeHead(401, { "content-type": "application/json" }).end('{"detail":"Unauthorized"}');
        const { hostname, port } = new URL(PYTHON.langgraph);
        const forwarded = request({ hostname, port, method: asked.method, path: asked.url, headers: asked.headers }, (answer) => {
          response.writeHead(answer.statusCode, answer.headers);
          answer.pipe(response);
        });
        asked.pipe(forwarded);
      });
      await new Promise((resolve) => guard.listen(0, "127.0.0.1", resolve));
      t.after(() => guard.close().closeAllConnections());
      const upstream = `http://127.0.0.1:${guard.address().port}`;
      const home = scratch();
      await withEditor(PYTHON, { agent: "text", upstream, home }, async (editor) => {
        assert.equal(editor.initialized.authMethods.length, 1);
        assert.notEqual(editor.initialized.authMethods[0].type, "terminal", "this client runs no terminals for it");
        const error = await refused(editor.request("session/new", { cwd: "/srv", mcpServers: [] }), -32000);
        assert.ok(error.message);
        await refused(editor.request("authenticate", { methodId: editor.initialized.authMethods[0].id }), -32000);
        await refused(editor.request("authenticate", { methodId: "nonsense" }), -32602);
      });
      await withEditor(PYTHON, { agent: "text", upstream, home, capabilities: { ...FULL, auth: { terminal: true } } }, async (editor) => {
        assert.equal(editor.initialized.authMethods[0].type, "terminal");
      });
      await withEditor(PYTHON, { agent: "text", upstream, home, args: ["--upstream-api-key", "secret"] }, async (editor) => {
        await turn(PYTHON, await editor.new(), { delay: 0 });
      });
      assert.ok(seen.includes("secret"));
    });
  });

  describe("why a turn ended", { ...OPTIONS, skip: !PYTHON || SAMPLED }, () => {
    const ending = (agent, script, stopReason) =>
      test(stopReason, () =>
        withEditor(PYTHON, { agent }, async (editor) => {
          const session = await editor.new();
          await turn(PYTHON, session, script, stopReason);
          assert.deepEqual(editor.wire.judge.openCalls(session.id), []);
        }));
    ending("editor", { rounds: [{ say: ["That ", "is ", "all"] }] }, "end_turn");
    ending("editor", { rounds: [{ say: ["And ", "then"], finish: "length" }] }, "max_tokens");
    ending("editor", { rounds: [{ say: ["I ", "cannot"], finish: "content_filter" }] }, "refusal");
    ending("endless", { rounds: [{ calls: [["ping", {}]] }], again: true, delay: 0 }, "max_turn_requests");
  });

  test("usage if the size of the context window is configured", { skip: !PYTHON, timeout: OPTIONS.timeout }, async () => {
    const withWindow = await withEditor(PYTHON, { agent: "editor", config: '[acp.context_windows]\n"fake-*" = 4000\n' }, async (editor) => {
      const session = await editor.new();
      await turn(PYTHON, session, "please edit");
      return session.of("usage_update").map(({ used, size }) => [used, size]);
    });
    assert.deepEqual(withWindow.at(-1), [33, 4000]);
    const without = await withEditor(PYTHON, { agent: "editor" }, async (editor) => {
      const session = await editor.new();
      await turn(PYTHON, session, "please edit");
      return session.of("usage_update");
    });
    assert.deepEqual(without, []);
  });
});
