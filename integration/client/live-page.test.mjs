// The package `threadway-client` in headless Chromium and Firefox, on a page of another origin: cuts, a browser that is offline, and
// reloads.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";
import { Firefox } from "./firefox.mjs";
import { Gate } from "./gate.mjs";
import { readThread, SERVERS } from "./gateway.mjs";
import { bundled, projectWith } from "./packed.mjs";
import { Cutter } from "./proxy.mjs";
import { seeded } from "./seeded.mjs";
import { firstDifference, ofClient, ofThread, stateOf } from "./thread.mjs";
import { startThreadway } from "./threadway.mjs";

const [server] = SERVERS;
const OPTIONS = { timeout: 300_000 };
const SHOWN_MS = 60_000;
const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-sync"];
const SPEECH = { tokens: 80, delay: 0.02 };
const HELD_AT = 40; // the token before which a run waits
const BYTES = 9_000; // of a response, in which its cut is
const PLAYS = process.env.FULL === "1" ? 30 : 4;

const SCRIPT = `
import { ThreadwayAgent } from "threadway-client";
globalThis.open = ({ gateway, threadId }) => {
  const agent = (globalThis.agent = new ThreadwayAgent({ url: \`\${gateway}/agui/agent/agent/run\`, threadId }));
  globalThis.events = [];
  globalThis.states = [];
  agent.subscribe({ onEvent: ({ event }) => void events.push(event) });
  agent.onStatus((status) => states.push(status));
  agent.follow();
};
globalThis.say = (script) => {
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content: script });
  globalThis.over = agent.runAgent();
};
`;

const BROWSERS = {
  Chromium: () => chromium.launch({ executablePath: process.env.CHROMIUM, headless: true, args: FLAGS }),
  Firefox: () => Firefox.launch(process.env.FIREFOX),
};
const browsers = {};
let pages, origin, gateway;

before(async () => {
  if (!process.env.CHROMIUM || !process.env.FIREFOX) throw new Error("CHROMIUM or FIREFOX names no browser: start this with integration/run live");
  const script = bundled(SCRIPT, projectWith("1.0.0"));
  pages = createServer(({ url }, response) => {
    const isScript = url === "/page.js";
    response.writeHead(200, { "content-type": isScript ? "text/javascript" : "text/html" });
    response.end(isScript ? script : '<!doctype html><title>a thread</title><script type="module" src="/page.js"></script>');
  });
  await new Promise((listening) => pages.listen(0, "127.0.0.1", listening));
  origin = `http://localhost:${pages.address().port}`;
  gateway = await startThreadway("live-page", server.langgraph, "--cors-origins", origin);
  for (const [name, launch] of Object.entries(BROWSERS)) browsers[name] = await launch();
}, OPTIONS);

after(async () => {
  for (const browser of Object.values(browsers)) await browser.close();
  pages?.closeAllConnections();
  pages?.close();
  await gateway?.stop();
});

/** A page that follows a thread; `cutter` is its way to the gateway. */
async function visit(t, name) {
  const cutter = await Cutter.start(gateway.url);
  const page = await browsers[name].newPage();
  page.setDefaultTimeout?.(SHOWN_MS);
  t.after(async () => {
    await page.close();
    cutter.close();
  });
  const threadId = randomUUID();
  const load = async () => {
    await page.goto(origin);
    await page.waitForFunction(() => globalThis.open && globalThis.say);
    await page.evaluate((what) => globalThis.open(what), { gateway: cutter.url, threadId });
    await page.waitForFunction(() => events.length > 0);
  };
  await load();
  await page.waitForFunction(() => events.at(-1)?.type === "RUN_FINISHED" && !agent.isRunning);
  const say = (script) => page.evaluate((script) => globalThis.say(script), JSON.stringify(script));
  const words = () => page.waitForFunction(() => events.some(({ delta }) => delta?.startsWith("tok9")));
  const rests = () => page.waitForFunction(() => !agent.isRunning && events.at(-1)?.type === "RUN_FINISHED");
  /** Checks that the page has LangGraph's thread, with one run. */
  const holds = async () => {
    const { messages, state } = await page.evaluate(() => ({ messages: agent.messages, state: agent.state }));
    const { state: thread } = await readThread(server, threadId);
    assert.equal(firstDifference(ofClient(messages), ofThread(thread.values, threadId)), undefined);
    assert.equal(firstDifference(state, stateOf(thread.values)), undefined);
    const runs = await (await fetch(`${server.langgraph}/threads/${threadId}/runs`, { headers: { connection: "close" } })).json();
    assert.equal(runs.length, 1);
  };
  /** Checks that no word of the run came twice, and that a snapshot had those that did not come: a client that is cut before its first id starts over. */
  const once = async () => {
    const { tokens, shown } = await page.evaluate(() => ({
      tokens: events.flatMap(({ type, delta }) => (type === "TEXT_MESSAGE_CONTENT" && delta.startsWith("tok") ? [delta] : [])),
      shown: JSON.stringify(events.filter(({ type }) => type === "MESSAGES_SNAPSHOT")),
    }));
    const all = Array.from({ length: SPEECH.tokens }, (_, n) => `tok${n} `);
    assert.deepEqual(tokens, all.filter((word) => tokens.includes(word)));
    const missing = all.filter((word) => !tokens.includes(word) && !shown.includes(word));
    assert.deepEqual(missing, []);
  };
  return { page, cutter, load, say, words, rests, holds, once };
}

for (const name of Object.keys(BROWSERS)) {
  for (let n = 0; n < PLAYS; n++) {
    test(`a page in ${name} that is cut anywhere has each word once (${n})`, OPTIONS, async (t) => {
      const { page, cutter, say, holds, once } = await visit(t, name);
      const random = seeded(`page ${name} ${n}`);
      for (let cut = 0; cut < 3; cut++) {
        const byte = Math.floor(random.between(0, BYTES));
        cutter.cuts.push({ at: (text) => (text.includes("text/event-stream") && text.length >= byte ? text.length : -1) });
      }
      await say(SPEECH);
      await page.waitForFunction(() => over.then(() => true));
      await holds();
      await once();
      assert.ok(await page.evaluate(() => states.some(({ state }) => state === "reconnecting")));
    });
  }

  // The browser itself sends such a request again, if it has used the connection before.
  test(`a request of ${name} that gets no answer starts one run`, OPTIONS, async (t) => {
    const { page, cutter, say, holds } = await visit(t, name);
    let isCut = false;
    const at = (text) => {
      const begin = text.lastIndexOf("HTTP/1.1 200");
      if (isCut || begin < 0 || !text.slice(begin).includes("text/event-stream")) return -1;
      isCut = true;
      return begin;
    };
    cutter.cuts.push(...Array.from({ length: 5 }, () => ({ at })));
    await say({ tokens: 20 });
    await page.waitForFunction(() => over.then(() => true));
    assert.ok(isCut);
    await holds();
  });

  test(`a page in ${name} that is reloaded in mid-run shows the run to its end`, OPTIONS, async (t) => {
    const { page, load, say, words, rests, holds } = await visit(t, name);
    const gate = await Gate.before(HELD_AT);
    await say({ ...SPEECH, ...gate.script });
    await words();
    await load();
    await page.waitForFunction(() => agent.isRunning && agent.messages.length > 1);
    gate.open();
    await rests();
    await holds();
  });
}

test("a page that is offline waits, and goes on as soon as it is online", OPTIONS, async (t) => {
  const { page, cutter, say, words, holds, once } = await visit(t, "Chromium");
  const gate = await Gate.before(HELD_AT);
  await say({ ...SPEECH, ...gate.script });
  await words();
  await page.context().setOffline(true);
  cutter.cutNow();
  await page.waitForFunction(() => states.at(-1).isOffline === true);
  gate.open();
  const asked = cutter.exchanges.length;
  await page.context().setOffline(false);
  await page.waitForFunction(() => over.then(() => true));
  assert.ok(cutter.exchanges.length > asked);
  await holds();
  await once();
});
