// Clients of the TypeScript SDK over the network: its WebSocket and its streamable HTTP, at the gateway in front of real
// LangGraph servers.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { createHttpStream } from "@agentclientprotocol/sdk/experimental/http-client";
import { createWebSocketStream } from "@agentclientprotocol/sdk/experimental/ws-client";
import { WebSocket } from "ws";
import { assertSame, Editor, FULL, output, turn } from "./acp.mjs";
import { SERVERS } from "./servers.mjs";
import { Judge } from "./acp-judge.mjs";

const OPTIONS = { concurrency: 4, timeout: 600_000 }; // what hangs is noticed sooner, by its own limit
const LAST_FRAMES = 40;

/** The transports of the SDK. `cut` breaks the connection without a word. */
const TRANSPORTS = {
  WebSocket: (url) => {
    let socket;
    class Socket extends WebSocket {
      constructor(...options) {
        super(...options);
        socket = this;
      }
    }
    const stream = createWebSocketStream(url.replace("http", "ws"), { WebSocket: Socket });
    return { stream, cut: () => socket.terminate() };
  },
  HTTP: (url) => {
    const broken = new AbortController();
    const cutting = (input, init = {}) => {
      const signal = init.signal ? AbortSignal.any([init.signal, broken.signal]) : broken.signal;
      return fetch(input, { ...init, signal });
    };
    return { stream: createHttpStream(url, { fetch: cutting }), cut: () => broken.abort() };
  },
};

/** The SDK's transport, and the judge of every message of both directions. */
class RemoteWire {
  judge = new Judge();

  constructor(gateway, transport) {
    const { stream, cut } = TRANSPORTS[transport](`${gateway}/acp`);
    this.cut = cut;
    const tap = this.#tap("client");
    tap.readable.pipeTo(stream.writable).catch(() => {});
    this.writable = tap.writable;
    this.stream = { readable: stream.readable.pipeThrough(this.#tap("agent")), writable: this.writable };
  }

  #tap(from) {
    const transform = (message, controller) => {
      this.judge.bytes(from, Buffer.from(`${JSON.stringify(message)}\n`));
      controller.enqueue(message);
    };
    return new TransformStream({ transform });
  }

  /** Everything was answered, and every message was valid. */
  async stop() {
    this.judge.end();
    assert.deepEqual(this.judge.faults, []);
    this.cut();
  }

  report() {
    const lines = this.judge.frames.slice(-LAST_FRAMES).map(({ from, message }) => `  ${from} ${JSON.stringify(message).slice(0, 400)}`);
    return `\nfaults: ${this.judge.faults.join("\n")}\nthe last messages were:\n${lines.join("\n")}`;
  }
}

async function connect(gateway, transport) {
  const editor = new Editor(new RemoteWire(gateway, transport));
  editor.initialized = await editor.initialize(FULL);
  return editor;
}

/** Runs `body` with an editor, and closes it. */
async function withRemote(gateway, transport, body) {
  const editor = await connect(gateway, transport);
  try {
    await body(editor);
    await editor.stop();
  } catch (failure) {
    failure.stack += editor.wire.report();
    throw failure;
  } finally {
    editor.wire.cut();
  }
}

/** A new session with this agent. */
async function withAgent(editor, agent) {
  const session = await editor.new();
  const option = session.opened.configOptions.find(({ id }) => /assistant|agent/.test(id));
  const values = option.options.flatMap((choice) => choice.options ?? choice);
  const { value } = values.find(({ value, name }) => [value, name].includes(agent));
  await editor.request("session/set_config_option", { sessionId: session.id, configId: option.id, value });
  return session;
}

for (const server of SERVERS) {
  const gateway = server.threadway;
  for (const transport of Object.keys(TRANSPORTS)) {
    describe(`ACP over ${transport}, ${server.name}`, OPTIONS, () => {
      test("no authentication method and no logout is offered", () =>
        withRemote(gateway, transport, async ({ initialized }) => {
          assert.deepEqual(initialized.authMethods, []);
          assert.equal(initialized.agentCapabilities.auth?.logout ?? undefined, undefined);
          assert.equal(initialized.agentCapabilities.loadSession, true);
        }));

      test("turns with tools, loaded again", () =>
        withRemote(gateway, transport, async (editor) => {
          const session = await withAgent(editor, "agent");
          await turn(server, session, {});
          await turn(server, session, { tokens: 2, delay: 0 });
          await editor.load(session.id);
          await assertSame(server, session);
          await turnAfterLoad(server, session);
        }));

      test("an approval", () =>
        withRemote(gateway, transport, async (editor) => {
          const session = await withAgent(editor, "hitl");
          session.permit("allow_once");
          await turn(server, session, {});
          assert.deepEqual([...session.calls.values()].map(output), ["sent to a@example.com", "deleted /tmp/x"]);
        }));

      test("a prompt that is stopped", () =>
        withRemote(gateway, transport, async (editor) => {
          const session = await withAgent(editor, "agent");
          const prompted = session.prompt({ tokens: 400, delay: 0.05 });
          await session.until("the first words", () => session.text().length > 0);
          await session.cancel();
          assert.deepEqual(await prompted, { stopReason: "cancelled" });
        }));

      test("a connection that is cut in mid-permission is asked again after a load", async () => {
        const first = await connect(gateway, transport);
        const session = await withAgent(first, "hitl");
        const asked = new Promise((resolve) => {
          session.answers.permissions = () => (resolve(), new Promise(() => {}));
        });
        session.prompt({}).catch(() => {});
        await asked;
        first.wire.cut();
        await withRemote(gateway, transport, async (editor) => {
          const again = editor.session(session.id);
          again.permit("allow_once");
          await editor.load(session.id);
          await again.until("both results", () => [...again.calls.values()].filter(({ status }) => status === "completed").length === 2);
          assert.deepEqual([...again.calls.values()].map(output), ["sent to a@example.com", "deleted /tmp/x"]);
          // Its response comes after all updates of the run that was shown.
          assert.deepEqual(await again.prompt({}), { stopReason: "end_turn" });
          await editor.load(session.id);
          await assertSame(server, again);
        });
      });

      test("two sessions at once, and a list of them", () =>
        withRemote(gateway, transport, async (editor) => {
          const sessions = [await withAgent(editor, "agent"), await withAgent(editor, "agent")];
          await Promise.all(sessions.map((session) => turn(server, session, { tokens: 5, delay: 0 })));
          const { sessions: listed } = await editor.request("session/list", {});
          const ids = listed.map(({ sessionId }) => sessionId);
          for (const { id } of sessions) assert.ok(ids.includes(id), `${id} in ${ids}`);
          for (const { id } of sessions) assert.deepEqual(await editor.request("session/close", { sessionId: id }), {});
        }));
    });
  }
}

/** One more turn in a session that was loaded. */
async function turnAfterLoad(server, session) {
  assert.deepEqual(await session.prompt({ tokens: 1, delay: 0 }), { stopReason: "end_turn" });
  assert.ok(session.text().length > 0);
}
