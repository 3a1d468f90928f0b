// Runs each of `examples/` by the commands of its README, in headless Chromium or in Node, in front of a real LangGraph
// server, as a new user does. The content of a page must be that of LangGraph's thread.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { Editor } from "./editors.mjs";
import { LOGS } from "./logs.mjs";
import { freePort } from "./ports.mjs";
import { commandsOf, Example } from "./readme.mjs";

const OPTIONS = { timeout: 240_000 };
const SUITE = { timeout: 800_000 };
const SHOWN_MS = 60_000; // a run of twelve seconds, on a busy machine
const BUNDLED_MS = 90_000; // Vite builds a page of a thousand packages at the first request
const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"];
const JSON_BODY = { "content-type": "application/json" };
const README = { LANGGRAPH: "2024", THREADWAY: "8484", PAGE: "5173" }; // the ports that the READMEs name

let browser, langgraph;

before(async () => {
  if (!process.env.CHROMIUM) throw new Error("CHROMIUM names no browser: start this with integration/run examples");
  const port = await freePort();
  langgraph = `http://127.0.0.1:${port}`;
  const graph = await open("graph");
  // Another suite's lock file has installed the packages; this command shows that the README's packages are among them.
  await graph.run(graph.take(/pip install/));
  await graph.start(graph.take(/langgraph dev/), `${langgraph}/ok`, { LANGGRAPH_CLI_NO_ANALYTICS: "1", LANGSMITH_TRACING: "false" });
  const gateway = await graph.gateway();
  const threadId = randomUUID();
  const printed = await graph.run(graph.take(/^curl/, { "127.0.0.1:8484": gateway.slice("http://".length), '"t1"': `"${threadId}"` }));
  assert.match(printed, /21 degrees and sunny in Lisbon/);
  graph.isDone();
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM, headless: true, args: FLAGS });
}, OPTIONS);

after(() => browser?.close());

/** An example on free ports. */
async function open(name) {
  const page = await freePort();
  const example = await Example.open(name, { [README.LANGGRAPH]: new URL(langgraph).port, [README.PAGE]: page });
  return Object.assign(example, { page: `http://localhost:${page}` });
}

/** Opens a page in Chromium; records its errors and its console. */
async function visit(url, name) {
  const page = await browser.newPage({ viewport: { width: 1000, height: 760 } });
  page.setDefaultTimeout(SHOWN_MS);
  page.said = [];
  page.on("console", (message) => message.type() === "error" && page.said.push(message.text()));
  page.on("pageerror", (error) => page.said.push(error.stack));
  page.photo = (title) => page.screenshot({ path: fileURLToPath(new URL(`${name}-${title}.png`, LOGS)) });
  // Vite answers at once, and builds the page's modules at the first request.
  await page.goto(url, { waitUntil: "commit" });
  return page;
}

// ---------------------------------------------------------------- the thread in LangGraph
async function get(path) {
  const response = await fetch(langgraph + path, { headers: { connection: "close" } });
  assert.ok(response.ok, `GET ${path}: ${response.status}`);
  return response.json();
}

const TOLD = { human: "user", ai: "assistant", tool: "tool" };

/** The texts of a thread, each with the role that a client uses. */
async function told(threadId, roles) {
  const { values } = await get(`/threads/${threadId}/state`);
  const messages = values.messages.map(({ type, content }) => ({ role: TOLD[type], text: content.trim() }));
  return messages.filter(({ role, text }) => text && roles.includes(role));
}

const runsOf = (threadId) => get(`/threads/${threadId}/runs`);

/** Starts a run in LangGraph, past the gateway. */
async function start(threadId, content) {
  // Without `messages` LangGraph does not stream what the model says, so nobody can show it live.
  const body = { assistant_id: "agent", stream_mode: ["messages", "values"], input: { messages: [{ role: "user", content }] } };
  const response = await fetch(`${langgraph}/threads/${threadId}/runs`, { method: "POST", headers: JSON_BODY, body: JSON.stringify(body) });
  assert.ok(response.ok, `a run: ${response.status}`);
}

/** Some pages render the agent's text as Markdown. */
const plain = ({ role, text }) => ({ role, text: text.replaceAll("`", "").replace(/\s+/g, " ") });

/** Waits until a page shows exactly the thread. */
async function shows(read, threadId, roles) {
  const deadline = performance.now() + SHOWN_MS;
  for (;;) {
    const [shown, expected] = [await read(), await told(threadId, roles)];
    try {
      assert.deepEqual(shown.map(plain), expected.map(plain));
      return;
    } catch (difference) {
      if (performance.now() > deadline) throw difference;
    }
    await new Promise((wake) => setTimeout(wake, 100));
  }
}

// ---------------------------------------------------------------- the examples
test("a README's commands are found, those of other languages are not", () => {
  const text = "1. A\n   ```sh\n   one \\\n     -d two\n   three\n   ```\n```python\nfour\n```\n```sh\nfive\n```\n";
  assert.deepEqual(commandsOf(text), ["one -d two", "three", "five"]);
});

describe("the examples", { concurrency: 2, ...SUITE }, () => {
  test("ag-ui-client runs the agent, and answers two approvals by their ids", OPTIONS, async () => {
    const example = await open("ag-ui-client");
    const environment = { THREADWAY_URL: await example.gateway() };
    const weather = await example.run(example.take(/^node/), environment);
    assert.match(weather, /^thread [0-9a-f-]{36}\nLet me look\. \n> get_weather \{"city":"Lisbon"\}\n< It is 21 degrees and sunny in Lisbon\.\n/);
    const approved = await example.run(example.take(/^node/), environment);
    assert.match(approved, /\n< Sent to ada@example\.org: .*\n< Deleted \/reports\/2019\.pdf\nDone: /s);
    const [threadId] = approved.match(/[0-9a-f-]{36}/);
    assert.equal((await runsOf(threadId)).length, 2, "one run that asks, one that answers both");
    const failed = await example.run(`node client.mjs fail`, environment);
    assert.match(failed, /This is the last that \n! RuntimeError: the script says that this run fails\n/);
    example.isDone();
  });

  test("threadway-client chats in the terminal, over a gateway that is killed in mid-answer", OPTIONS, async () => {
    const example = await open("threadway-client");
    const environment = { THREADWAY_URL: await example.gateway() };
    const threadId = randomUUID();
    const chatting = example.run(`echo count | ${example.take(/^node/, { t1: threadId })}`, environment);
    const isRunning = () => runsOf(threadId).then((runs) => runs.some(({ status }) => status === "running"), () => false);
    while (!(await isRunning())) await new Promise((wake) => setTimeout(wake, 200));
    await example.end("SIGKILL");
    await example.serve();
    const printed = await chatting;
    assert.match(printed, /\n\(connecting again: /);
    const numbers = Array.from({ length: 150 }, (_, n) => n + 1).join(" ");
    assert.ok(printed.replace(/\n\(connecting again: .*\)\n/g, "").includes(numbers), printed);
    assert.equal((await runsOf(threadId)).length, 1);
    example.isDone();
  });

  for (const [name, { roll }] of Object.entries({ acp: { roll: "dice_roll" }, "acp-js": { roll: "dice__roll" } })) {
    test(`${name} obeys the modes of an editor, and uses its MCP servers`, OPTIONS, async () => {
      const port = await freePort();
      const example = await Example.open(name, { [README.LANGGRAPH]: port });
      if (name === "acp") await example.run(example.take(/pip install/));
      await example.start(example.take(/langgraph(js)? dev/), `http://127.0.0.1:${port}/ok`, { LANGGRAPH_CLI_NO_ANALYTICS: "1", LANGSMITH_TRACING: "false" });
      rmSync(`${example.folder}/threadway.toml`, { force: true });
      await example.run(example.take(/^threadway acp --init/));
      assert.match(await example.run(example.take(/^threadway acp --print-config/)), /threadway\.toml/);
      const mcp = await freePort();
      await example.start(example.take(/mcp_server/), `http://127.0.0.1:${mcp}/mcp`, { PORT: mcp }, () => true);

      const cwd = mkdtempSync(join(tmpdir(), "threadway-example-"));
      const editor = new Editor(name, ["--config", `${example.folder}/threadway.toml`]);
      try {
        await editor.initialize();
        const servers = { dice: `http://127.0.0.1:${mcp}/mcp`, away: "http://127.0.0.1:9/mcp" };
        await editor.new({ cwd, mcpServers: Object.entries(servers).map(([name, url]) => ({ type: "http", name, url, headers: [] })) });
        editor.answer = () => "allow_once";
        /** The titles of the permissions, and what the agent says. */
        const say = async (words) => {
          editor.asked.length = 0;
          editor.said.clear();
          assert.deepEqual(await editor.prompt(words), { stopReason: "end_turn" });
          const said = editor.shown().filter(([role]) => role === "agent");
          return { asked: editor.asked.map(({ toolCall }) => toolCall.title), said: said.map(([, text]) => text).join(" ") };
        };
        const asks = async (words, asked, said) => {
          const found = await say(words);
          assert.deepEqual(found.asked, asked);
          assert.match(found.said, said);
        };
        const notes = join(cwd, "notes.txt");

        assert.equal(editor.mode, "ask");
        await asks("write", ["Write notes.txt"], /Done: Wrote notes\.txt/);
        assert.equal(readFileSync(notes, "utf8"), "Buy milk.\n");
        await asks("read", [], /Done: Buy milk\./);

        await editor.setMode("accept_edits");
        await asks("write", [], /Done: Wrote notes\.txt/);
        editor.answer = () => "reject_once";
        await asks("delete", ["Delete notes.txt"], /Done: /);
        assert.ok(existsSync(notes));

        await editor.setMode("plan");
        await asks("who are you", [], /person's editor\.\s+Make a plan and explain it\./);
        await asks("write", [], /My tools: list_files, read_file\./);
        await asks("list", [], /Done: notes\.txt/);

        await editor.setMode("bypass");
        await asks("delete", [], /Done: Deleted notes\.txt/);
        assert.ok(!existsSync(notes));
        await asks("who are you", [], /person's editor\.$/);

        await editor.set("assistant", "mcp");
        await asks("hello", [], new RegExp(`My tools: ${roll}\\.`));
        await asks("roll", [], /Done: It shows [1-6] of 6/);
      } finally {
        await editor.stop();
        rmSync(cwd, { recursive: true, force: true });
      }
      assert.deepEqual(editor.judge.faults, []);

      if (name === "acp-js") {
        const gateway = await example.gateway();
        const painted = await example.run(example.take(/^curl/, { "http://127.0.0.1:8484": gateway, '"t1"': `"${randomUUID()}"` }));
        assert.match(painted, /"toolCallName":"paint"/);
        assert.match(painted, /"pendingToolCallIds":\["call_2"\]/);
      }
      example.isDone();
    });
  }

  test("event-source follows a thread with runs of any client, and reconnects", OPTIONS, async () => {
    const example = await open("event-source");
    const gateway = await example.gateway();
    await example.start(example.take(/http\.server/), example.page);
    const threadId = randomUUID();
    const page = await visit(`${example.page}/?thread=${threadId}&gateway=${gateway}`, "event-source");
    const status = page.getByRole("status");
    await status.getByText("at rest").waitFor();
    const running = example.run(example.take(/^curl/, { "http://127.0.0.1:8484": gateway, '"t1"': `"${threadId}"` }));
    await page.getByText("1 2 3 4 5").waitFor();
    await status.getByText("running").waitFor();
    await page.photo("running");
    await running;
    await status.getByText("at rest").waitFor();
    const read = () =>
      page.locator("article:not([hidden], [data-role=call])").evaluateAll((all) => all.map(({ dataset: { role }, textContent }) => ({ role, text: textContent.trim() })));
    await shows(read, threadId, ["user", "assistant", "tool"]);
    // A page that is opened later shows the same.
    await page.reload({ waitUntil: "commit" });
    await shows(read, threadId, ["user", "assistant", "tool"]);
    assert.deepEqual(page.said, []);
    await page.close();
    example.isDone();
  });

  describe("copilotkit", { concurrency: 1, ...SUITE }, () => {
    let example, gateway;

    before(async () => {
      example = await open("copilotkit");
      gateway = await example.gateway();
      await example.start(example.take(/^npm run dev/), example.page, { PORT: new URL(example.page).port, VITE_THREADWAY_URL: gateway });
      example.isDone();
    }, OPTIONS);

    /** The example's page on a thread, and what a person does and sees there. */
    async function chat(threadId, name) {
      const page = await visit(`${example.page}/?thread=${threadId}`, name);
      const box = page.getByTestId("copilot-chat-textarea");
      page.connects = 0;
      page.on("request", (request) => (page.connects += Number(request.method() === "POST" && request.url().endsWith("/connect"))));
      await box.waitFor({ timeout: BUNDLED_MS });
      const rests = () => page.locator("[data-copilot-running=false]").waitFor();
      const read = () =>
        page.locator("[data-testid=copilot-user-message], [data-testid=copilot-assistant-message]").evaluateAll((all) =>
          all.map((message) => {
            const role = message.dataset.testid.split("-")[1];
            return { role, text: (role === "user" ? message : message.querySelector("p")).innerText.trim() };
          }),
        );
      return Object.assign(page, {
        box,
        rests,
        answer: page.getByTestId("copilot-assistant-message"),
        alert: page.getByRole("alert"),
        lost: page.getByRole("status").getByText("The connection was lost"),
        questions: page.locator("fieldset"),
        ask: (name) => page.getByRole("group", { name }),
        say: async (words) => {
          await rests();
          await box.fill(words);
          await box.press("Enter");
        },
        /** Waits until the page shows exactly LangGraph's thread: nothing is missing, and nothing is there twice. */
        showsThread: () => shows(read, threadId, ["user", "assistant"]),
      });
    }

    test("chats, runs a tool of the page, answers two approvals by their ids, and reloads in mid-run", OPTIONS, async () => {
      const threadId = randomUUID();
      const page = await chat(threadId, "copilotkit");
      await page.say("weather");
      await page.answer.getByText("Done: It is 21 degrees").waitFor();
      // A gateway with a list of threads announces it; otherwise the page shows none.
      const info = await (await fetch(`${gateway}/agui/info`)).json();
      const thread = page.locator("nav li[aria-current=true]");
      if (info.threadEndpoints?.list) await thread.waitFor();
      else assert.equal(await thread.count(), 0);
      await page.say("paint it teal");
      await page.answer.getByText("Done: The page is teal now.").waitFor();
      assert.equal(await page.locator("main").evaluate((main) => getComputedStyle(main).borderTopColor), "rgb(0, 128, 128)");
      await page.say("where am i");
      await page.answer.getByText("The colour of the page: teal").waitFor();

      await page.say("clean up");
      await page.ask("delete_file").getByRole("button", { name: "Reject" }).click();
      const asked = (await runsOf(threadId)).length;
      await page.photo("asked");
      await page.ask("send_email").getByRole("textbox").fill('{"to": "ada@example.org", "body": "Edited."}');
      await page.ask("send_email").getByRole("button", { name: "Approve as edited" }).click();
      await page.answer.getByText("I would rather not.").waitFor();
      assert.equal((await runsOf(threadId)).length, asked + 1, "both are answered by one run");
      const { values } = await get(`/threads/${threadId}/state`);
      const [sent, deleted] = values.messages.filter(({ type }) => type === "tool").slice(-2);
      assert.match(sent.content, /Sent to ada@example\.org: Edited\./);
      assert.match(deleted.content, /I would rather not\./);

      await page.say("ask me");
      await page.getByLabel("What is your favourite colour?").fill("plum");
      await page.getByRole("button", { name: "Answer" }).click();
      await page.answer.getByText("Done: The person says: plum").waitFor();
      await page.showsThread();

      // Vite sends a page of a thousand packages again, which takes a while on a busy machine.
      await page.say("count to 300");
      await page.answer.getByText("1 2 3 4 5").waitFor();
      await page.reload({ waitUntil: "commit" });
      await page.answer.getByText("1 2 3 4 5").waitFor();
      assert.ok((await runsOf(threadId)).some(({ status }) => status === "running"), "the run continues");
      await page.answer.getByText("298 299 300").waitFor();
      await page.showsThread();
      await page.photo("reloaded");
      assert.deepEqual(page.said, []);
      await page.close();
    });

    test("shows a run live that another tab, or a cron job, has started", OPTIONS, async () => {
      const threadId = randomUUID();
      const [first, second] = [await chat(threadId, "copilotkit-first"), await chat(threadId, "copilotkit-second")];
      const counts = (page, at) => page.answer.nth(at).getByText(/^1 2 3 4 5(?!.*100)/).waitFor();
      const shown = async (at) => {
        for (const page of [first, second]) {
          await page.answer.nth(at).getByText("98 99 100").waitFor();
          await page.showsThread();
          await page.rests();
        }
      };

      await first.say("count to 100");
      await counts(second, 0);
      await second.photo("live");
      await shown(0);
      await second.box.fill("a draft");
      await first.say("count to 100");
      await counts(second, 1);
      await shown(1);
      assert.equal(await second.box.inputValue(), "a draft");
      await second.say("count to 100");
      await counts(first, 2);
      await first.photo("live");
      await shown(2);
      // A cron job is a client of LangGraph's own, as this one is.
      await start(threadId, "count to 100");
      await Promise.all([counts(first, 3), counts(second, 3)]);
      await first.photo("foreign");
      await shown(3);
      assert.deepEqual([...first.said, ...second.said], []);
      await Promise.all([first.close(), second.close()]);
    });

    test("shows an approval in each tab until one has answered, and leaves it behind with its thread", OPTIONS, async () => {
      const threadId = randomUUID();
      const [first, second] = [await chat(threadId, "copilotkit-asks"), await chat(threadId, "copilotkit-answers")];
      await first.say("clean up");
      for (const page of [first, second]) await page.ask("delete_file").waitFor();
      await second.photo("approval");
      await second.ask("send_email").getByRole("button", { name: "Approve", exact: true }).click();
      await second.ask("delete_file").getByRole("button", { name: "Reject" }).click();
      for (const page of [first, second]) {
        await page.answer.getByText("I would rather not.").waitFor();
        await page.showsThread();
        await page.rests();
        assert.equal(await page.questions.count(), 0);
      }
      // Nobody's message goes past open questions, and the page says so.
      await first.say("clean up");
      await first.ask("delete_file").waitFor();
      await first.say("weather");
      await first.alert.getByText('This message was not sent: "weather"').waitFor();
      await first.photo("pending");
      await first.showsThread();
      for (const name of ["send_email", "delete_file"]) await first.ask(name).getByRole("button", { name: "Reject" }).click();
      await first.answer.nth(3).getByText("I would rather not.").waitFor();
      await first.showsThread();
      await first.say("clean up");
      await first.ask("delete_file").waitFor();
      // Another thread has none.
      await first.getByRole("button", { name: "New chat" }).click();
      await first.say("weather");
      await first.answer.getByText("Done: It is 21 degrees").waitFor();
      assert.equal((await first.questions.count()) + (await first.alert.count()), 0);
      await Promise.all([first.close(), second.close()]);
    });

    test("says why a run has failed, in each tab and after a reload", OPTIONS, async () => {
      const threadId = randomUUID();
      const [first, second] = [await chat(threadId, "copilotkit-fails"), await chat(threadId, "copilotkit-watches")];
      await first.say("weather");
      await first.answer.getByText("Done: It is 21 degrees").waitFor();
      await first.rests();
      const connects = first.connects;
      await first.say("fail");
      await first.alert.getByText("Failed: the script says that this run fails").waitFor();
      assert.equal(first.connects, connects, "a real failure is not a lost connection");
      for (const page of [first, second]) await page.alert.getByText("the script says that this run fails").waitFor();
      await first.photo("failed");
      await first.reload({ waitUntil: "commit" });
      await first.alert.getByText("the script says that this run fails").waitFor();
      await second.say("weather");
      for (const page of [first, second]) {
        await page.answer.getByText("Done: It is 21 degrees").nth(1).waitFor();
        await page.rests();
        assert.equal(await page.alert.count(), 0);
      }
      await Promise.all([first.close(), second.close()]);
    });

    for (const signal of ["SIGKILL", "SIGTERM"]) {
      test(`continues an answer to its last word when threadway gets ${signal} in mid-answer and is started again`, OPTIONS, async () => {
        const threadId = randomUUID();
        const page = await chat(threadId, `copilotkit-${signal}`);
        await page.evaluate(() => (window.isThisOne = true));
        await page.say("count to 120");
        await page.answer.getByText("1 2 3 4 5").waitFor();
        await page.box.fill("a draft");
        await example.end(signal);
        await page.lost.waitFor();
        await page.photo("lost");
        await example.serve();
        await page.answer.getByText("118 119 120").waitFor();
        await page.showsThread();
        await page.rests();
        await page.photo("back");
        assert.equal(await page.lost.count(), 0);
        assert.equal(await page.box.inputValue(), "a draft");
        assert.equal((await runsOf(threadId)).length, 1);
        assert.ok(await page.evaluate(() => window.isThisOne), "the page was not reloaded");

        // A message that is sent while threadway is away arrives, once.
        await example.end(signal);
        await page.say("weather");
        await page.lost.waitFor();
        await page.photo("away");
        await example.serve();
        await page.answer.getByText("Done: It is 21 degrees").waitFor();
        await page.showsThread();
        assert.equal((await runsOf(threadId)).length, 2);
        assert.equal(await page.alert.count(), 0);
        await page.close();
      });
    }

    test("follows its thread again after a proxy's 502", OPTIONS, async () => {
      const threadId = randomUUID();
      const page = await chat(threadId, "copilotkit-proxied");
      await page.say("weather");
      await page.answer.getByText("Done: It is 21 degrees").waitFor();
      await page.rests();
      await page.route(/\/events\?/, (route) => route.fulfill({ status: 502, headers: { "access-control-allow-origin": "*" } }), { times: 1 });
      const answers = [502, 200].map((status) => page.waitForResponse((response) => /\/events\?/.test(response.url()) && response.status() === status));
      await example.end("SIGTERM");
      await example.serve();
      await Promise.all(answers);
      await start(threadId, "count to 30");
      await page.answer.getByText(/^1 2 3 4 5(?!.*30)/).waitFor();
      await page.answer.getByText("28 29 30").waitFor();
      await page.showsThread();
      await page.close();
    });

    test("stops to connect after ten times, says so, and goes on when it is asked to", OPTIONS, async () => {
      const threadId = randomUUID();
      const page = await chat(threadId, "copilotkit-away");
      await page.clock.install(); // the pauses between them are minutes
      let attempts = 0;
      await example.end("SIGKILL");
      await page.lost.waitFor();
      page.on("request", (request) => (attempts += Number(request.method() === "POST" && request.url().endsWith("/run"))));
      await page.say("weather");
      const given = page.alert.getByText("10 attempts to connect again have failed");
      while ((await given.count()) === 0) await page.clock.fastForward("00:31");
      assert.equal(attempts, 11);
      await page.clock.fastForward("10:00");
      assert.equal(attempts, 11);
      await page.photo("away");
      await example.serve();
      await page.getByRole("button", { name: "Try again" }).click();
      await given.waitFor({ state: "detached" });
      await page.say("weather");
      await page.answer.getByText("Done: It is 21 degrees").waitFor();
      await page.showsThread();
      await page.close();
    });
  });

  /** The tests for the chats of TanStack AI and assistant-ui, which show the same content in the same way. */
  async function chats(name) {
    const example = await open(name);
    const gateway = await example.gateway();
    await example.start(example.take(/^npm run dev/), example.page, { PORT: new URL(example.page).port, VITE_THREADWAY_URL: gateway });
    const page = await visit(example.page, name);
    const box = page.getByLabel("Message");
    await box.waitFor({ timeout: BUNDLED_MS });
    const threadId = new URL(page.url()).searchParams.get("thread");
    const say = async (words) => {
      await box.fill(words);
      await page.getByRole("button", { name: "Send" }).click(); // the button is enabled when the previous run is over
    };
    const answer = page.locator("article p");
    const read = () =>
      page.locator("article p").evaluateAll((all) => all.map((text) => ({ role: text.closest("article").dataset.role, text: text.innerText.trim() })));
    const showsThread = () => shows(read, threadId, ["user", "assistant"]);

    await say("weather");
    await answer.getByText("Done: It is 21 degrees").waitFor();
    await say("paint it teal");
    await answer.getByText("Done: The page is teal now.").waitFor();
    assert.equal(await page.locator("body").evaluate((body) => body.style.borderColor), "teal");
    await say("clean up");
    await page.getByRole("group", { name: "delete_file" }).getByRole("button", { name: "Reject" }).click();
    const asked = (await runsOf(threadId)).length;
    await page.photo("asked");
    await page.getByRole("group", { name: "send_email" }).getByRole("button", { name: "Approve" }).click();
    await answer.getByText("I would rather not.").waitFor();
    assert.equal((await runsOf(threadId)).length, asked + 1, "both are answered by one run");
    const { values } = await get(`/threads/${threadId}/state`);
    const [sent, deleted] = values.messages.filter(({ type }) => type === "tool").slice(-2);
    assert.match(sent.content, /Sent to ada@example\.org: The report is old\./);
    assert.match(deleted.content, /I would rather not\./);
    await say("ask me");
    await page.getByLabel("What is your favourite colour?").fill("plum");
    await page.getByRole("button", { name: "Answer" }).click();
    await answer.getByText("Done: The person says: plum").waitFor();
    await showsThread();
    await say("fail");
    await page.getByRole("alert").getByText("the script says that this run fails").waitFor();
    await page.photo("failed");
    return { example, gateway, page, threadId, say, answer, showsThread };
  }

  test("assistant-ui chats, runs a tool of the page, answers two approvals, shows a failed run, reloads in mid-run and while approvals are open, and survives a lost connection", OPTIONS, async () => {
    const { example, page, threadId, say, answer, showsThread } = await chats("assistant-ui");
    await say("count");
    await answer.getByText("1 2 3 4 5").waitFor();
    await page.reload({ waitUntil: "commit" });
    await answer.getByText("1 2 3 4 5").waitFor();
    assert.ok((await runsOf(threadId)).some(({ status }) => status === "running"), "the run continues");
    await answer.getByText("148 149 150").waitFor();
    await showsThread();
    await page.photo("reloaded");
    const before = (await runsOf(threadId)).length;
    await say("count");
    await answer.getByText(/^1 2 3 4 5(?!.*150)/).waitFor();
    await example.end("SIGKILL");
    await example.serve();
    await answer.getByText("148 149 150").nth(1).waitFor();
    await showsThread();
    assert.equal((await runsOf(threadId)).length, before + 1);
    page.said.length = 0; // the lost connection
    await say("ask me");
    await page.getByLabel("What is your favourite colour?").waitFor();
    await page.reload({ waitUntil: "commit" });
    await page.getByLabel("What is your favourite colour?").fill("jade");
    await page.getByRole("button", { name: "Answer" }).click();
    await answer.getByText("Done: The person says: jade").waitFor();
    await showsThread();
    assert.deepEqual(page.said, []);
    await page.close();
    example.isDone();
  });

  test("tanstack chats, runs a tool of the page, answers two approvals, and shows a failed run", OPTIONS, async () => {
    const { example, page, threadId, say, answer, showsThread } = await chats("tanstack");
    await say("count");
    await answer.getByText("148 149 150").waitFor();
    await showsThread();
    await page.photo("counted");
    // The client requests the thread when its page is loaded, and joins the live run.
    await say("count to 300");
    await answer.getByText(/^1 2 3 4 5(?!.*150)/).waitFor();
    await page.reload({ waitUntil: "commit" });
    await answer.getByText(/^1 2 3 4 5(?!.*150)/).waitFor();
    assert.ok((await runsOf(threadId)).some(({ status }) => status === "running"), "the run continues");
    await answer.getByText("298 299 300").waitFor();
    await showsThread();
    await page.photo("reloaded");
    await page.close();
    example.isDone();
  });
});
