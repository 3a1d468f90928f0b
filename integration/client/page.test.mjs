// The page of the gateway in headless Chromium, in front of `threadway demo` and of the real Python server. Its client's
// content and its visible content are LangGraph's thread, its policy is never violated, and axe finds no fault. Screenshots
// are written next to the logs.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createSign, generateKeyPairSync, randomUUID } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { after, before, describe, test } from "node:test";
import { chromium } from "playwright-core";
import { readThread, SERVERS } from "./gateway.mjs";
import { Langgraph } from "./langgraph.mjs";
import { LOGS } from "./logs.mjs";
import { firstDifference, ofClient, ofThread, stateOf } from "./thread.mjs";
import { startThreadway } from "./threadway.mjs";

const [server] = SERVERS;
const DEMO = { threadway: process.env.DEMO_GATEWAY_URL, langgraph: process.env.DEMO_URL };
const PAGE = fileURLToPath(new URL("../../page/", import.meta.url));
const AXE = readFileSync(new URL("../../page/node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
const OPTIONS = { timeout: 120_000 };
const SHOWN_MS = 30_000; // a run of some seconds, on a busy machine
const FLAGS = [
  "--no-sandbox", // Chromium may run as root in a container
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];
const SPEECH = { tokens: 120, delay: 0.05, tools: false };
const WATCHED = "7e11ad3a-0000-4000-8000-00000000feed"; // the demo's thread on which runs start by themselves

const langgraph = new Langgraph(server);
let browser;

before(async () => {
  if (!process.env.CHROMIUM) throw new Error("CHROMIUM names no browser: start this with integration/run page");
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM, headless: true, args: FLAGS });
}, OPTIONS);

after(() => browser?.close());

/** A new user's visit of the page, and the faults that must never happen in it. */
class Visit {
  requests = [];
  faults = [];

  static async open(t, gateway, hash = "", { width = 1360, height = 860, colorScheme = "light" } = {}) {
    const visit = new Visit();
    visit.gateway = gateway;
    visit.context = await browser.newContext({ viewport: { width, height }, colorScheme, reducedMotion: "reduce" });
    visit.page = await visit.context.newPage();
    visit.page.setDefaultTimeout(SHOWN_MS);
    await visit.context.exposeFunction("reportViolation", (violation) => visit.faults.push(`policy: ${violation}`));
    await visit.context.addInitScript(() => {
      addEventListener("securitypolicyviolation", (event) => globalThis.reportViolation(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
    });
    visit.page.on("pageerror", (error) => visit.faults.push(`error: ${error.stack}`));
    visit.page.on("request", (request) => visit.requests.push(request.url()));
    t.after(async () => {
      await visit.context.close();
      const origin = new URL(gateway).origin;
      assert.deepEqual(visit.requests.filter((url) => !url.startsWith("data:") && !url.startsWith("blob:") && new URL(url).origin !== origin), [], "nothing but the gateway is asked");
      assert.deepEqual(visit.faults, []);
    });
    await visit.go(hash);
    return visit;
  }

  go(hash) {
    return this.page.goto(`${this.gateway}/${hash}`);
  }

  get threadId() {
    return decodeURIComponent(new URL(this.page.url()).hash.split("/")[2]);
  }

  find(selector, options) {
    return this.page.locator(selector, options);
  }

  button(name) {
    return this.page.getByRole("button", { name, exact: true });
  }

  async say(words) {
    const field = this.page.getByRole("textbox", { name: "Message" });
    await field.fill(typeof words === "string" ? words : JSON.stringify(words));
    await field.press("Enter");
  }

  /** Waits until the page shows this many ended runs. */
  async over(runs = 1) {
    await this.page.waitForFunction((n) => globalThis.threadway?.runs.filter(({ ended, isShown }) => ended && isShown).length >= n, runs);
    await this.page.waitForFunction(() => !document.querySelector("[data-working]"));
    // The thread is followed again.
    await this.page.waitForFunction(() => globalThis.threadway.link.state === "open" && globalThis.threadway.runs.at(-1).ended);
  }

  /** Waits until tokens arrive. */
  async speaking(tokens = 5) {
    await this.page.waitForFunction((n) => (document.querySelector(".message.agent:last-of-type, .turn:last-of-type .message.agent")?.textContent.match(/tok\d+/g)?.length ?? 0) >= n, tokens);
  }

  /** Waits until the focus is where it should be; `what` finds the element. */
  async focusIs(what) {
    await this.page.waitForFunction((selector) => document.activeElement?.matches(selector), what).catch(async (error) => {
      error.message += `; the focus is on ${await this.page.evaluate(() => document.activeElement?.outerHTML.slice(0, 200))}`;
      throw error;
    });
  }

  async press(...keys) {
    for (const key of keys) await this.page.keyboard.press(key);
  }

  /** Whether the text in the empty message field is shown whole. */
  placeholderFits() {
    return this.find("#compose").evaluate((field) => {
      const style = getComputedStyle(field);
      const canvas = document.createElement("canvas").getContext("2d");
      canvas.font = style.font;
      return canvas.measureText(field.placeholder).width <= field.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    });
  }

  picture(name, options) {
    return this.page.screenshot({ path: fileURLToPath(new URL(`${name}.png`, LOGS)), ...options });
  }

  async isAccessible(where) {
    // A script element would be refused by the page's policy.
    await this.page.evaluate(AXE);
    const { violations } = await this.page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
    const told = violations.flatMap(({ id, help, nodes }) => nodes.map(({ html, failureSummary }) => `${id}: ${help}: ${html.slice(0, 200)}: ${failureSummary}`));
    assert.deepEqual(told, [], where);
  }

  /** Checks that the page's client and the page itself have LangGraph's thread, each message once. */
  async holds(of, threadId = this.threadId) {
    const { messages, state } = await this.page.evaluate(() => ({ messages: globalThis.threadway.messages, state: globalThis.threadway.state }));
    const uuid = /^[0-9a-f-]{36}$/.test(threadId) ? threadId : null;
    const { state: thread } = await readThread(of, uuid ?? threadId);
    same(ofClient(messages), ofThread(thread.values, threadId), "the page's messages against the thread's");
    same(state, stateOf(thread.values), "the page's state against the thread's");
    const ids = messages.map(({ id }) => id);
    assert.equal(new Set(ids).size, ids.length, "each message once");
    const plain = (text) => text.replace(/[\s*`_#]+/g, "");
    const said = messages.filter(({ role, content }) => role === "user" || (role === "assistant" && content)).map(({ content }) => plain(content));
    const shown = await this.find(".message > .bubble, .message.agent > div:not(.tool)").allTextContents();
    assert.deepEqual(shown.map(plain), said, "each message is shown once, in order");
  }
}

function same(actual, expected, what) {
  const difference = firstDifference(actual, expected);
  if (difference) assert.fail(`${what}: ${difference}`);
}

test("the committed bundle is the build of its sources", OPTIONS, async () => {
  await promisify(execFile)("node", ["build.mjs", "--verify"], { cwd: PAGE });
});

describe("in front of the demo", () => {
  test("a new user sees an answer with two clicks: thoughts, tools, the plan, state and usage as they arrive", OPTIONS, async (t) => {
    const visit = await Visit.open(t, DEMO.threadway);
    await visit.find(".welcome").waitFor();
    await visit.focusIs("#compose");
    await visit.isAccessible("welcome");
    await visit.picture("welcome");
    await visit.button("Where is it warm?").click();
    await visit.find("[data-working]").waitFor();
    await visit.find(".plan").waitFor();
    await visit.find(".tool").first().waitFor();
    await visit.over();
    assert.deepEqual(await visit.find(".tool").evaluateAll((tools) => tools.map(({ dataset }) => [dataset.tool, dataset.status])), [
      ["get_weather", "completed"],
      ["search", "completed"],
    ]);
    assert.match(await visit.find(".plan").textContent(), /2 of 2 done/);
    assert.match(await visit.find(".run-end").textContent(), /your run.*done.*34 tokens in, 77 out/);
    assert.match(await visit.find(".thought").first().textContent(), /Thought/);
    await visit.holds(DEMO);
    await visit.picture("chat");
    await visit.isAccessible("after a run");
    await visit.button("State").click();
    assert.match(await visit.find(".panel .json").textContent(), /"celsius": 21/);
    await visit.isAccessible("with the state");
  });

  test("a new user cuts the connection, and sees the missed events arrive, in the inspector too", OPTIONS, async (t) => {
    const visit = await Visit.open(t, DEMO.threadway, "#/agent", { width: 1280, height: 900 });
    await visit.button("Where is it warm?").click();
    await visit.find(".tool").first().waitFor();
    await visit.button("Cut the connection").click();
    await visit.find('[data-link="caught-up"]').waitFor();
    await visit.over();
    assert.match(await visit.find('[data-link="caught-up"]').textContent(), /missed events arrived; none arrived twice/);
    await visit.holds(DEMO);
    await visit.picture("page");
    // An idle thread has no events to miss.
    await visit.button("Cut the connection").click();
    await visit.button("Connect now").click();
    await visit.find('[data-link="caught-up"][data-events="0"]').waitFor();
    await visit.holds(DEMO);
  });

  test("the threads are those that the gateway lists, if it lists any", OPTIONS, async (t) => {
    const visit = await Visit.open(t, DEMO.threadway, "#/agent");
    await visit.context.route("**/agui/info", async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, json: { ...(await response.json()), threadEndpoints: { list: true } } });
    });
    const row = { organizationId: "o", agentId: "watched", createdById: "c", archived: false, createdAt: "2026-11-01T08:00:00Z", updatedAt: "2026-11-02T08:00:00Z" };
    const asked = [];
    await visit.context.route("**/agui/events?*", (route) => {
      asked.push(new URL(route.request().url()).search);
      const threads = [{ ...row, id: WATCHED, name: "The service" }, { ...row, id: "other", name: null }];
      const messages = [
        { threads: threads.map((thread) => ({ threadId: thread.id, mark: "idle", thread })) },
        { threadId: "other", mark: "waiting", thread: threads[1] },
      ];
      const body = messages.map((message) => `data: ${JSON.stringify(message)}\n\n`).join("");
      return route.fulfill({ contentType: "text/event-stream", body });
    });
    await visit.go("?#/watched");
    await visit.find(".side li a", { hasText: "The service" }).waitFor();
    assert.deepEqual(await visit.find(".side li .name").allTextContents(), ["The service", "other"]);
    assert.deepEqual(await visit.find(".side li .when").allTextContents(), ["2026-11-02", "2026-11-02"]);
    await visit.find('.side li:last-child .mark[data-mark="waiting"]').waitFor();
    assert.equal(await visit.find(".side .mark").count(), 1, "an idle thread has no mark");
    // The first page may also have requested the threads of its own agent.
    assert.equal(asked.at(-1), "?agentId=watched&threads=mine");
    await visit.find(".side li a", { hasText: "The service" }).click();
    await visit.find(".message.agent").first().waitFor();
    assert.equal(visit.threadId, WATCHED);
  });

  test("a new thread is listed during its first run under its first words, in another browser too", OPTIONS, async (t) => {
    const words = `Where is it ${"really ".repeat(10)}warm?`;
    const name = `${words.slice(0, 59)}…`;
    const visit = await Visit.open(t, DEMO.threadway, "#/agent");
    await visit.say(words);
    await visit.find(".side li a[aria-current] .name", { hasText: name }).waitFor();
    assert.equal(await visit.find("[data-working]").count(), 1, "the run goes on");
    const other = await Visit.open(t, DEMO.threadway, "#/agent");
    await other.find(".side li a", { hasText: name }).first().click();
    await other.find(".message.user", { hasText: words }).waitFor();
    assert.equal(other.threadId, visit.threadId);
    await visit.over();
  });

  test("an agent that does not exist is named as such, and the others are offered", OPTIONS, async (t) => {
    const visit = await Visit.open(t, DEMO.threadway, `#/nope/${randomUUID()}`);
    await visit.find("[data-unknown-agent]").waitFor();
    assert.match(await visit.find("[data-unknown-agent]").textContent(), /There is no agent nope/);
    assert.deepEqual(await visit.find("[data-unknown-agent] a").allTextContents(), ["agent", "approval", "failing", "watched"]);
    assert.equal(await visit.find(".welcome, #compose, .panel").count(), 0);
    await visit.picture("unknown-agent");
    await visit.isAccessible("an unknown agent");
    for (const [agent, words] of [["agent", "Where is it warm?"], ["approval", "Clean up"], ["failing", "Try it"], ["watched", "How is the service?"]]) {
      await visit.go("#/nope");
      await visit.find("[data-unknown-agent] a", { hasText: agent }).click();
      await visit.button(words).waitFor();
      await visit.focusIs("#compose");
    }
  });

  test("LangGraph is away at first: the page tries again by itself", OPTIONS, async (t) => {
    const { hostname, port } = new URL(DEMO.langgraph);
    let isAway = true;
    const way = createServer((socket) => {
      if (isAway) return socket.destroy();
      const onward = connect(Number(port), hostname);
      for (const [one, other] of [[socket, onward], [onward, socket]]) one.pipe(other).on("error", () => one.destroy());
    });
    await new Promise((listening) => way.listen(0, "127.0.0.1", listening));
    t.after(() => way.close());
    const gateway = await startThreadway("page-away", `http://127.0.0.1:${way.address().port}`);
    t.after(() => gateway.stop());
    const visit = await Visit.open(t, gateway.url, `#/agent/${randomUUID()}`);
    await visit.page.getByRole("alert").filter({ hasText: "The page tries again in 4 s." }).waitFor();
    assert.equal(await visit.page.getByRole("alert").count(), 1, "one reason is enough");
    assert.equal(await visit.find(".panel, #compose").count(), 0);
    await visit.picture("away");
    await visit.isAccessible("LangGraph is away");
    isAway = false;
    await visit.find("#compose").waitFor();
    await visit.page.waitForFunction(() => globalThis.threadway.link.state === "open");
    assert.equal(await visit.page.getByRole("alert").count(), 0);
    await visit.find(".welcome").waitFor();
  });

  test("the words of a message that was not sent are in the field again", OPTIONS, async (t) => {
    const visit = await Visit.open(t, DEMO.threadway, "#/agent");
    await visit.find(".welcome").waitFor();
    await visit.context.route("**/agui/agent/agent/run*", (route) => route.abort());
    await visit.say("Where is it warm?");
    await visit.find("[data-refusal]").waitFor();
    await visit.page.waitForFunction(() => document.getElementById("compose").value === "Where is it warm?");
    await visit.context.unroute("**/agui/agent/agent/run*");
    await visit.say("Where is it warm?");
    await visit.over();
    await visit.holds(DEMO);
  });

  test("a failure is shown", OPTIONS, async (t) => {
    const visit = await Visit.open(t, DEMO.threadway, "#/failing");
    await visit.button("Try it").click();
    await visit.find("[data-failure]").waitFor();
    assert.match(await visit.find("[data-failure]").textContent(), /ValueError.*cut after 9 tokens/);
    assert.equal(await visit.find("[data-failure]").count(), 1);
    await visit.over();
    assert.equal(await visit.find("[data-failure]").count(), 1, "the thread at rest does not say it again");
  });

  test("by keys alone: a call is edited, the decision changed, another call rejected", OPTIONS, async (t) => {
    const visit = await Visit.open(t, DEMO.threadway, "#/approval");
    await visit.say("Tell Ada.");
    await visit.find(".approval").nth(1).waitFor();
    await visit.find('.side li a[aria-current] .mark[data-mark="waiting"]').waitFor();
    await visit.over();
    assert.match(await visit.find(".run-end").textContent(), /your run.*waits for you/);
    await visit.picture("approval");
    await visit.isAccessible("with approvals");
    const [first, second] = [0, 1].map((n) => visit.find(".approval").nth(n));
    const [firstCard, secondCard] = [".approval:nth-of-type(1)", ".approval:nth-of-type(2)"];
    await first.getByRole("button", { name: "Edit…" }).focus();
    await visit.press("Enter");
    await visit.focusIs(`${firstCard} textarea`);
    const field = first.getByRole("textbox");
    await field.fill("{");
    await visit.press("Tab", "Enter");
    assert.match(await first.getByRole("alert").textContent(), /not JSON/);
    await visit.isAccessible("with a fault in a form");
    await field.fill('{"to": "eve@example.com", "body": "Hello"}');
    await first.getByRole("button", { name: "Run with these arguments" }).focus();
    await visit.press("Enter");
    await visit.focusIs(secondCard);
    assert.match(await first.textContent(), /Edited.*eve@example\.com/s);
    await visit.picture("approval-edited");
    await visit.isAccessible("with a decided card");
    // Nothing is sent yet, so the decision can be changed.
    await visit.press("Shift+Tab", "Enter");
    await visit.focusIs(firstCard);
    assert.match(await first.textContent(), /needs your decision/);
    await first.getByRole("button", { name: "Edit…" }).focus();
    await visit.press("Enter");
    assert.match(await field.inputValue(), /eve@example\.com/, "what was typed is kept");
    await first.getByRole("button", { name: "Back" }).focus();
    await visit.press("Enter");
    await visit.focusIs(firstCard);
    await first.getByRole("button", { name: "Edit…" }).focus();
    await visit.press("Enter");
    await field.fill('{"to": "bob@example.com", "body": "Hello"}');
    await visit.press("Tab", "Enter");
    await visit.focusIs(secondCard);
    await second.getByRole("button", { name: "Reject…" }).focus();
    await visit.press("Enter");
    await second.getByRole("textbox").fill("Not today.");
    await visit.press("Tab", "Enter");
    await visit.focusIs(".log");
    await visit.over(2);
    const log = await visit.find(".log").textContent();
    assert.match(log, /sent to bob@example\.com/);
    assert.match(log, /with reason: Not today\./);
    assert.doesNotMatch(log, /eve@example\.com|waits for you/);
    const statuses = () => visit.find(".tool").evaluateAll((tools) => tools.map(({ dataset }) => dataset.status));
    assert.deepEqual(await statuses(), ["completed", "rejected"]);
    await visit.holds(DEMO);
    await visit.picture("rejected");
    await visit.page.reload();
    await visit.find(".tool").nth(1).waitFor();
    assert.deepEqual(await statuses(), ["completed", "rejected"], "after a reload");
  });

  test("on a phone, a cut connection and the plan leave room for the conversation", OPTIONS, async (t) => {
    const visit = await Visit.open(t, DEMO.threadway, "#/agent", { width: 390, height: 844 });
    await visit.button("Where is it warm?").click();
    await visit.find(".tool").first().waitFor();
    await visit.button("Cut").click();
    for (const state of ["cut", "caught-up"]) {
      await visit.find(`[data-link="${state}"]`).waitFor();
      await visit.find(".plan").waitFor();
      await visit.picture(`phone-${state}`);
      const log = await visit.find(".log").evaluate((element) => element.clientHeight);
      assert.ok(log > 844 * 0.6, `${state}: the conversation has ${log} of 844 pixels`);
    }
    await visit.over();
    await visit.isAccessible("on a phone");
  });

  test("a thread with runs of other clients is followed live", OPTIONS, async (t) => {
    const visit = await Visit.open(t, DEMO.threadway, `#/watched/${WATCHED}`);
    await visit.page.waitForFunction(() => globalThis.threadway?.runs.some(({ isOwn, isShown }) => isShown && !isOwn));
    await visit.page.waitForFunction(() => document.querySelector("[data-working]"), null, { timeout: 45_000 });
    assert.match(await visit.find("[data-working]").textContent(), /a run that another client started/);
    const before = await visit.find(".log").textContent();
    await visit.page.waitForFunction((text) => document.querySelector(".log").textContent !== text, before);
    await visit.picture("follow");
  });
});

describe("in front of the Python server", () => {
  test("an agent has suggestions only in the demo, and may be named by its assistant's id", OPTIONS, async (t) => {
    const [{ assistant_id: id }] = await (await fetch(`${server.langgraph}/assistants/search`, { method: "POST", headers: { "content-type": "application/json" }, body: '{"graph_id": "agent"}' })).json();
    for (const agent of ["agent", id]) {
      const visit = await Visit.open(t, server.threadway, `#/${agent}`);
      await visit.find(".welcome").waitFor();
      assert.equal(await visit.find(".welcome button").count(), 0);
      assert.equal(await visit.button("Key…").count(), 0, "no key is needed");
    }
  });

  test("cut in the middle of a run, the page reconnects, gets the missed events, and none twice", OPTIONS, async (t) => {
    const visit = await Visit.open(t, server.threadway, "#/agent");
    await visit.say(SPEECH);
    await visit.speaking();
    await visit.button("Cut the connection").click();
    await visit.find('[data-link="cut"]').waitFor();
    assert.match(await visit.find('[data-link="cut"]').textContent(), /Last-Event-ID: 2/);
    await visit.picture("cut");
    await visit.isAccessible("cut");
    await visit.find('[data-link="caught-up"]').waitFor();
    const { events, again } = await visit.find('[data-link="caught-up"]').evaluate(({ dataset }) => dataset);
    assert.ok(Number(events) > 10, `${events} events were missed`);
    assert.equal(again, "0");
    // A second cut, reconnected at once with the button.
    await visit.button("Cut the connection").click();
    await visit.button("Connect now").click();
    await visit.over();
    await visit.picture("resumed");
    await visit.holds(server);
    assert.equal((await langgraph.get(`/threads/${visit.threadId}/runs`)).length, 1, "the message was sent once");
    // The newest moments are shown at first. How many follow the cut depends on when it came.
    const older = visit.button("Show older");
    if (await older.isVisible()) await older.click();
    assert.match(await visit.find(".moments").textContent(), /reconnected with Last-Event-ID 2.*cut by hand/);
  });

  test("the inspector has each moment: LangGraph's part, the run events, the events on the wire, with ids, times and bytes", OPTIONS, async (t) => {
    const visit = await Visit.open(t, server.threadway, "#/agent");
    await visit.say({ flavour: "v1" });
    await visit.over();
    const rows = await visit.find(".moment summary").allTextContents();
    assert.ok(rows.length > 20, `${rows.length} moments`);
    for (const row of rows) assert.match(row, /^\d\d:\d\d:\d\d\.\d{3}.+\d+ ev, [\d.]+ k?B$/, row);
    assert.ok(rows.some((row) => /messages.*thought/.test(row)), rows.join("\n"));
    assert.ok(rows.some((row) => /updates.*step finished/.test(row)), rows.join("\n"));
    await visit.page.locator(".moment summary", { hasText: /messagestext\d/ }).first().click();
    const detail = visit.find(".moment .detail");
    assert.match(await detail.textContent(), /"event": "messages"/, "LangGraph's part");
    assert.match(await detail.textContent(), /TEXT_MESSAGE_CONTENT/, "the event on the wire");
    assert.match(await detail.textContent(), /id 2[\w-]{20,}/, "its id");
    await visit.picture("inspector");
    await visit.isAccessible("the inspector");
    await visit.page.getByRole("checkbox", { name: "LangGraph’s parts" }).click();
    await visit.page.waitForFunction(() => globalThis.threadway.runs.at(-1)?.ended);
    await visit.say({ flavour: "v1" });
    await visit.over();
    await visit.find(".moment summary").first().click();
    assert.ok(await visit.page.evaluate(() => globalThis.threadway.inspector.moments.every(({ part }) => !part)), "no parts where they are not wanted");
    await visit.holds(server);
  });

  test("a page that is reloaded in the middle of a run resumes it", OPTIONS, async (t) => {
    const visit = await Visit.open(t, server.threadway, "#/agent");
    await visit.say(SPEECH);
    await visit.speaking();
    const link = visit.page.url();
    await visit.page.reload();
    assert.equal(visit.page.url(), link);
    await visit.find("[data-working]").waitFor();
    await visit.speaking();
    await visit.over();
    await visit.holds(server);
    assert.equal(await visit.find(".side li a[aria-current]").count(), 1, "it is among the threads");
  });

  test("a run that another client has started is shown live, and the next one", OPTIONS, async (t) => {
    const threadId = await langgraph.thread("agent");
    const visit = await Visit.open(t, server.threadway, `#/agent/${threadId}`);
    await visit.page.waitForFunction(() => globalThis.threadway?.runs.at(-1)?.ended);
    for (const runs of [1, 2]) {
      const { run_id: runId } = await langgraph.run(threadId, "agent", SPEECH, { stream_resumable: true, stream_mode: ["values", "messages-tuple"] });
      await visit.speaking();
      assert.match(await visit.find("[data-working]").textContent(), /a run that another client started/);
      await visit.over(runs);
      await langgraph.ended(threadId, runId);
      await visit.page.waitForFunction((n) => document.querySelectorAll(".message.user").length === n, runs);
      await visit.holds(server, threadId);
    }
  });

  test("a message that nobody typed is a notice, closed at first", OPTIONS, async (t) => {
    const said = [
      { type: "human", id: "s", content: "Here is a summary of the conversation to date:", additional_kwargs: { lc_source: "summarization" } },
      { type: "human", id: "h", content: "hi" },
      { type: "ai", id: "a", content: "yo" },
    ];
    const threadId = await langgraph.thread("agent", { said });
    const visit = await Visit.open(t, server.threadway, `#/agent/${threadId}`);
    const notice = visit.find("details.notice");
    await notice.waitFor();
    assert.equal(await notice.getAttribute("open"), null);
    assert.equal(await notice.locator("summary").textContent(), "The model reads a summary of the conversation so far");
    assert.equal(await visit.find(".message.user").count(), 1);
    await visit.holds(server, threadId);
    await notice.locator("summary").click();
    await visit.picture("notice");
    await visit.isAccessible("a notice");
  });

  test("a conversation that is summarised while the page is open shows a notice, and all that the thread still has", OPTIONS, async (t) => {
    const threadId = await langgraph.thread("talk_recapped");
    for (const words of ["one", "two", "three"]) {
      const input = { messages: [{ role: "user", id: randomUUID(), content: `say ${words}` }] };
      await langgraph.post(`/threads/${threadId}/runs/wait`, { assistant_id: "talk_recapped", input });
    }
    const visit = await Visit.open(t, server.threadway, `#/talk_recapped/${threadId}`);
    await visit.page.waitForFunction(() => document.querySelectorAll(".message.user").length === 3);
    await visit.picture("summary-before");
    await visit.say("say four");
    await visit.over();
    const notice = visit.find("details.notice");
    await notice.waitFor();
    await visit.holds(server, threadId);
    await visit.picture("summary");
    await notice.locator("summary").click();
    assert.match(await notice.textContent(), /The talk so far/);
    await visit.picture("summary-open");
    await visit.page.reload();
    await notice.waitFor();
    await visit.holds(server, threadId);
    await visit.say("say five");
    await visit.find(".message.agent", { hasText: "Answer to five" }).waitFor();
    await visit.over();
    await visit.holds(server, threadId);
    assert.equal(await notice.count(), 1);
  });

  for (const [graph, calls] of [["asking_node", 2], ["asking_two", 4]]) {
    test(`an agent below the root asks, and the page shows what it says and calls: ${graph}`, OPTIONS, async (t) => {
      const size = { height: 1800 };
      const visit = await Visit.open(t, server.threadway, `#/${graph}`, size);
      const threadId = () => visit.threadId;
      const isWhole = async (visit, name) => {
        await visit.find(".approval").nth(calls - 1).waitFor();
        await visit.page.waitForFunction(() => globalThis.threadway.runs.at(-1)?.ended);
        await visit.holds(server, threadId());
        await visit.picture(name);
        assert.ok((await visit.find(".tool.is-waiting").count()) >= calls, "the calls wait");
      };
      await visit.say({});
      await visit.over();
      await isWhole(visit, graph);
      await visit.isAccessible(graph);
      const second = await Visit.open(t, server.threadway, `#/${graph}/${threadId()}`, size);
      await isWhole(second, `${graph}-second-tab`);
      for (let n = 0; n < calls; n++) await visit.find(".approval").nth(n).getByRole("button", { name: "Approve" }).click();
      await visit.over(2);
      await visit.holds(server);
      assert.equal(await visit.find(".asked").count(), 0);
      await visit.picture(`${graph}-answered`);
    });
  }

  test("approvals are buttons: one is approved, one rejected", OPTIONS, async (t) => {
    const visit = await Visit.open(t, server.threadway, "#/hitl");
    await visit.say({});
    await visit.find('.approval:has(code:text-is("delete_file"))').waitFor();
    await visit.over();
    const email = visit.find('.approval:has(code:text-is("send_email"))');
    const remove = visit.find('.approval:has(code:text-is("delete_file"))');
    assert.equal(await remove.getByRole("button", { name: "Edit…" }).count(), 0, "what the graph does not allow is not offered");
    // The page asks again after a reload.
    await visit.page.reload();
    await email.getByRole("button", { name: "Approve" }).click();
    assert.match(await visit.find(".asked").textContent(), /1 more to decide/);
    await remove.getByRole("button", { name: "Reject…" }).click();
    await remove.getByRole("button", { name: "Reject", exact: true }).click();
    await visit.page.waitForFunction(() => /sent to a@example\.com/.test(document.querySelector(".log").textContent));
    await visit.over();
    await visit.holds(server);
    assert.equal(await visit.find(".asked").count(), 0);
  });

  test("a question is a form made of its schema", OPTIONS, async (t) => {
    const visit = await Visit.open(t, server.threadway, "#/interrupt_form");
    await visit.say("Do it.");
    const form = visit.find(".question");
    await form.waitFor();
    await visit.over();
    await form.getByRole("button", { name: "Send answer" }).click();
    assert.match(await form.getByRole("alert").textContent(), /Level has no value yet/);
    await form.getByLabel("Level").selectOption({ label: "high" });
    await form.getByLabel("count").fill("0");
    await form.getByRole("button", { name: "Send answer" }).click();
    assert.match(await form.getByRole("alert").textContent(), /count has to be at least 1/);
    await visit.picture("question");
    await visit.isAccessible("a form");
    await form.getByLabel("count").fill("3");
    await form.getByRole("button", { name: "Send answer" }).click();
    await visit.over(2);
    assert.match(await visit.find(".log").textContent(), /The answer is \{"count": 3, "level": "high", "sure": true\}/);
    await visit.holds(server);
  });

  test("embedded images are shown, and no URL is fetched", OPTIONS, async (t) => {
    const visit = await Visit.open(t, server.threadway, "#/media");
    await visit.say({});
    await visit.over();
    const image = visit.find("figure.media img");
    await image.waitFor();
    assert.equal(await image.evaluate((element) => element.decode().then(() => element.naturalWidth)), 1);
    assert.equal(await visit.find('a[href="https://example.org/map.csv"]').count(), 1);
    assert.equal(await visit.find('.sources a[href="https://example.org/atlas"]').count(), 1);
    await visit.isAccessible("media");
  });

  test("a model's output is text, and never markup", OPTIONS, async (t) => {
    const visit = await Visit.open(t, server.threadway, "#/agent");
    const words = ["<img src=x onerror=reportViolation('ran')>", "\n\n[go](javascript:reportViolation('ran')) ", "**bold** `code`\n\n", "- one\n- two\n\n", "![x](https://evil.example/p.png)\n\n", "```\n<b>\n```"];
    await visit.say({ words, tools: false });
    await visit.over();
    const answer = visit.find(".message.agent .markdown").last();
    assert.equal(await answer.locator("img").count(), 0);
    assert.match(await answer.textContent(), /<img src=x/);
    assert.deepEqual(await answer.locator("a").evaluateAll((links) => links.map((link) => link.getAttribute("href"))), ["https://evil.example/p.png"]);
    assert.deepEqual(await answer.locator("strong, li, pre").allTextContents(), ["bold", "one", "two", "<b>"]);
  });

  test("a run is stopped", OPTIONS, async (t) => {
    const visit = await Visit.open(t, server.threadway, "#/agent");
    await visit.say({ ...SPEECH, tokens: 400 });
    await visit.speaking();
    await visit.button("Stop").click();
    await visit.over();
    assert.match(await visit.find(".run-end").textContent(), /stopped/);
  });

  for (const [name, options] of [
    ["dark", { colorScheme: "dark" }],
    ["narrow", { width: 360, height: 740 }],
    ["narrow and dark", { width: 320, height: 640, colorScheme: "dark" }],
  ]) {
    test(`it is legible and whole: ${name}`, OPTIONS, async (t) => {
      const visit = await Visit.open(t, server.threadway, "#/hitl", options);
      await visit.find(".welcome").waitFor();
      await visit.isAccessible(`${name}, welcome`);
      await visit.say("Send the mail, please.");
      await visit.find(".approval").nth(1).waitFor();
      await visit.over();
      await visit.isAccessible(`${name}, approvals`);
      await visit.picture(name.replaceAll(" ", "-"));
      const { width } = visit.page.viewportSize();
      assert.equal(await visit.page.evaluate(() => document.scrollingElement.scrollWidth), width, "nothing is wider than the screen");
      assert.ok(await visit.placeholderFits(), "the text in the message field is whole");
      const isWhole = (selector) => visit.find(selector).evaluateAll((elements, right) => elements.length > 0 && elements.every((element) => element.getBoundingClientRect().right <= right), width);
      assert.ok(await isWhole(".top button, .top select"), "the header is whole");
      if (width < 761) {
        await visit.button("Threads").click();
        await visit.find(".has-drawer").waitFor();
        await visit.picture(`${name.replaceAll(" ", "-")}-threads`);
        assert.ok(await isWhole(".side select"), "the choice of the theme is whole");
        await visit.isAccessible(`${name}, threads`);
        await visit.page.keyboard.press("Escape");
        assert.equal(await visit.find(".has-drawer").count(), 0);
        await visit.button("Inspector").click();
        await visit.isAccessible(`${name}, inspector`);
        await visit.picture(`${name.replaceAll(" ", "-")}-inspector`);
        await visit.find(".panel header button").click();
      }
      await visit.context.route("**/agui/info", (route) => route.fulfill({ status: 401, json: { error: "unauthenticated", message: "send a key" } }));
      await visit.page.reload();
      await visit.page.getByRole("dialog").waitFor();
      await visit.isAccessible(`${name}, key`);
    });
  }

  test("the theme is the user's choice, and is stored", OPTIONS, async (t) => {
    const visit = await Visit.open(t, server.threadway, "#/agent");
    const ground = () => visit.page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const light = await ground();
    await visit.page.getByRole("combobox", { name: "Theme" }).selectOption("dark");
    const dark = await ground();
    assert.notEqual(dark, light);
    await visit.page.reload();
    await visit.find(".welcome").waitFor();
    assert.equal(await ground(), dark);
  });
});

describe("with a key", () => {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const jwks = fileURLToPath(new URL("page-jwks.json", LOGS));

  function token(seconds) {
    const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
    const now = Math.floor(Date.now() / 1000);
    const signed = `${part({ alg: "ES256", kid: "k" })}.${part({ iss: "https://id.example", aud: "threadway", sub: "ada", exp: now + seconds })}`;
    const signature = createSign("sha256").update(signed).sign({ key: privateKey, dsaEncoding: "ieee-p1363" }).toString("base64url");
    return `${signed}.${signature}`;
  }

  before(() => writeFileSync(jwks, JSON.stringify({ keys: [{ ...publicKey.export({ format: "jwk" }), kid: "k", alg: "ES256", use: "sig" }] })));

  const KEY = "0123456789abcdef0123456789abcdef";
  for (const { mode, options, upstream, header, wrong, right } of [
    { mode: "bearer", options: ["--auth-keys", `ada=${KEY}`], upstream: server.langgraph, header: "authorization", wrong: "x".repeat(32), right: () => `Bearer ${KEY}` },
    {
      mode: "jwt",
      options: ["--auth-jwks", jwks, "--auth-issuer", "https://id.example", "--auth-audience", "threadway"],
      upstream: server.langgraph,
      header: "authorization",
      wrong: token(-3600),
      right: () => token(3600),
    },
    { mode: "upstream", options: [], upstream: process.env.LANGGRAPH_AUTH_URL, header: "x-api-key", wrong: "key-of-nobody", right: () => "key-of-alice" },
  ]) {
    test(`of auth.mode ${mode}: the page asks for the key, keeps it for this tab, and runs with it`, OPTIONS, async (t) => {
      const gateway = await startThreadway(`page-${mode}`, upstream, "--auth-mode", mode, "--page", ...options);
      t.after(() => gateway.stop());
      const visit = await Visit.open(t, gateway.url, "#/agent");
      const dialog = visit.page.getByRole("dialog");
      await dialog.waitFor();
      assert.match(await dialog.getByRole("alert").textContent(), /^401 \w+: .*send/);
      if (mode === "bearer") await visit.picture("key");
      await visit.isAccessible("a key is wanted");
      const give = async (key) => {
        await dialog.getByLabel("Sent as").selectOption(header);
        await dialog.getByLabel("Key or token").fill(key);
        await dialog.getByRole("button", { name: "Use it" }).click();
      };
      await give(wrong);
      await dialog.getByRole("alert").filter({ hasText: mode === "upstream" ? "401" : /token_expired|invalid_token/ }).waitFor();
      await give(right());
      await dialog.waitFor({ state: "detached" });
      await visit.find(".welcome").waitFor();
      await visit.say({ ...SPEECH, tokens: 60 });
      await visit.speaking();
      await visit.button("Cut the connection").click();
      await visit.button("Connect now").click();
      await visit.over();
      const messages = await visit.page.evaluate(() => globalThis.threadway.messages.length);
      assert.ok(messages >= 2, `${messages} messages`);
      if (mode !== "upstream") await visit.holds(server);
      assert.equal(await visit.page.evaluate(() => Object.values({ ...localStorage }).join().includes("key-of") || Object.values({ ...localStorage }).join().includes("012345")), false, "the key is kept in the tab alone");
      await visit.page.reload();
      await visit.find(".message.agent").first().waitFor();
      const other = await visit.context.newPage();
      await other.goto(`${gateway.url}/#/agent`);
      await other.getByRole("dialog").waitFor();
    });
  }

  test("auth.mode none: a gateway with an API key serves no page unless the option is set", OPTIONS, async (t) => {
    const gateway = await startThreadway("page-none", server.langgraph, "--auth-mode", "bearer", "--auth-keys", `ada=${KEY}`);
    t.after(() => gateway.stop());
    const response = await fetch(`${gateway.url}/`);
    assert.equal(response.status, 404);
    assert.equal((await response.json()).error, "unknown_route");
  });
});
