// The threads of two tenants in Chromium: `useThreads` of CopilotKit's React package lists, renames, archives, restores and
// deletes them through threadway, in front of a LangGraph server that shows each tenant its own. Over both transports.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { startThreadway } from "../client/threadway.mjs";

// The browser's driver is installed with the other client.
const { chromium } = createRequire(new URL("../client/package.json", import.meta.url))("playwright-core");

const LANGGRAPH = process.env.LANGGRAPH_AUTH_URL;
const ALICE = { "x-api-key": "key-of-alice" };
const BOB = { "x-api-key": "key-of-bob" };
const OPTIONS = { timeout: 600_000 }; // what hangs is noticed sooner, by its own limit
const SHOWN_MS = 90_000; // what is not shown by then is not shown
const FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"];

let browser, profile, pages, threadway, open;

before(async () => {
  if (!process.env.CHROMIUM || !LANGGRAPH) throw new Error("CHROMIUM or LANGGRAPH_AUTH_URL is not set: start this with integration/run copilot");
  const entry = fileURLToPath(new URL("threads-page.mjs", import.meta.url));
  const { outputFiles } = await build({
    entryPoints: [entry], bundle: true, format: "iife", write: false, define: { "process.env.NODE_ENV": '"production"' }, logLevel: "error",
  });
  const script = outputFiles[0].text;
  pages = createServer((request, response) => {
    const isScript = request.url === "/page.js";
    response.writeHead(200, { "content-type": isScript ? "text/javascript" : "text/html" });
    response.end(isScript ? script : '<!doctype html><title>threads</title><div id="root"></div><script src="/page.js"></script>');
  });
  await new Promise((listening) => pages.listen(0, "127.0.0.1", listening));
  const origin = `http://127.0.0.1:${pages.address().port}`;
  // The page has an origin of its own, so its preflights request PATCH and DELETE.
  threadway = await startThreadway("threads", LANGGRAPH, "--auth-mode", "upstream", "--cors-origins", origin);
  open = await startThreadway("threads-bearer", LANGGRAPH, "--auth-keys", "web=0123456789abcdef", "--auth-mode", "bearer", "--cors-origins", origin);
  profile = await mkdtemp(join(tmpdir(), "threadway-chromium-"));
  browser = await chromium.launchPersistentContext(profile, { executablePath: process.env.CHROMIUM, headless: true, args: FLAGS });
}, OPTIONS);

after(async () => {
  await browser?.close();
  pages?.closeAllConnections();
  pages?.close();
  await Promise.all([threadway?.stop(), open?.stop()]);
  if (profile) await rm(profile, { recursive: true, force: true });
});

/** Plays a run of one token on a thread, and reads it to its end. */
async function play(headers, threadId) {
  const messages = [{ id: randomUUID(), role: "user", content: JSON.stringify({ tokens: 1 }) }];
  const response = await fetch(`${threadway.url}/agui/agent/text/run`, {
    method: "POST",
    headers: { ...headers, "content-type": "application/json" },
    body: JSON.stringify({ threadId, runId: randomUUID(), protocolVersion: "1.0", messages, tools: [], context: [], state: {}, forwardedProps: {} }),
  });
  assert.match(await response.text(), /RUN_FINISHED/);
}

/** A page that shows the threads of one tenant. */
class List {
  static async open(headers, input = {}, runtimeUrl = `${threadway.url}/agui`) {
    const list = new List();
    list.page = await browser.newPage();
    list.requests = [];
    list.page.on("request", (request) => void list.requests.push(`${request.method()} ${new URL(request.url()).pathname}`));
    await list.page.goto(`http://127.0.0.1:${pages.address().port}/`);
    await list.page.evaluate((input) => globalThis.show(input), { runtimeUrl, runtimeTransport: "rest", headers, agentId: "text", ...input });
    return list;
  }

  /** Calls what the hook returns. */
  call(name, ...rest) {
    return this.page.evaluate(([name, rest]) => globalThis.shown[name](...rest), [name, rest]);
  }

  rows() {
    return this.page.evaluate(() => globalThis.shown.threads.map(({ id, name, archived }) => ({ id, name, archived })));
  }

  /** Waits until the list fulfils a condition. */
  async shows(isSo, what) {
    await this.page.waitForFunction(() => globalThis.shown && !globalThis.shown.isLoading && !globalThis.shown.isMutating, undefined, { timeout: SHOWN_MS });
    const deadline = performance.now() + SHOWN_MS;
    let rows;
    do {
      rows = await this.rows();
      if (isSo(rows)) return rows;
      await new Promise((wake) => setTimeout(wake, 50));
    } while (performance.now() < deadline);
    assert.fail(`${what}: ${JSON.stringify(rows)}; ${await this.error()}`);
  }

  error() {
    return this.page.evaluate(() => globalThis.shown.error?.message);
  }

  async reload() {
    await this.call("refetchThreads");
  }
}

const ids = (rows) => rows.map(({ id }) => id).sort();
const are = (expected) => (rows) => JSON.stringify(ids(rows)) === JSON.stringify([...expected].sort());

for (const transport of ["rest", "single"]) {
  test(`each tenant lists, names, archives, restores and deletes its own threads (${transport})`, OPTIONS, async () => {
    const hers = [randomUUID(), `the thread of Alice ${randomUUID()}`];
    const his = [randomUUID()];
    for (const thread of hers) await play(ALICE, thread);
    for (const thread of his) await play(BOB, thread);
    const input = { runtimeTransport: transport };
    const [alice, bob] = await Promise.all([List.open(ALICE, input), List.open(BOB, input)]);
    await alice.shows(are(hers), "Alice's threads by her own names for them");
    await bob.shows(are(his), "Bob's");

    await alice.call("renameThread", hers[0], "Holidays");
    await alice.reload();
    await alice.shows((rows) => rows.find(({ id }) => id === hers[0])?.name === "Holidays", "the name");
    await alice.call("archiveThread", hers[1]);
    await alice.reload();
    await alice.shows(are([hers[0]]), "without what is archived");
    const all = await List.open(ALICE, { ...input, includeArchived: true });
    await all.shows((rows) => are(hers)(rows) && rows.find(({ id }) => id === hers[1]).archived, "with it");
    await all.call("unarchiveThread", hers[1]);
    await alice.reload();
    await alice.shows(are(hers), "restored");

    // Bob cannot do any of this to Alice's thread.
    for (const [name, ...rest] of [["renameThread", hers[0], "mine"], ["archiveThread", hers[0]], ["deleteThread", hers[0]]]) {
      await assert.rejects(bob.call(name, ...rest), /404/, `Bob: ${name}`);
    }
    await bob.reload();
    await bob.shows(are(his), "Bob's, as before");
    await alice.reload();
    await alice.shows((rows) => are(hers)(rows) && rows.some(({ name }) => name === "Holidays"), "Alice's, as before");

    for (const thread of hers) await alice.call("deleteThread", thread);
    await alice.reload();
    await alice.shows(are([]), "none");
    await bob.call("deleteThread", his[0]);
    await bob.reload();
    await bob.shows(are([]), "none of Bob's");
    const plain = alice.requests.filter((line) => line.startsWith("DELETE"));
    assert.equal(plain.length, transport === "rest" ? 2 : 0, alice.requests.join("\n"));
    await Promise.all([alice, bob, all].map(({ page }) => page.close()));
  });
}

test("each page begins after the previous one", OPTIONS, async () => {
  const threads = Array.from({ length: 7 }, () => randomUUID());
  for (const thread of threads) await play(ALICE, thread);
  const list = await List.open(ALICE, { limit: 3 });
  await list.shows((rows) => rows.length === 3, "a page");
  await list.call("deleteThread", threads[6]); // the newest, so that the others move up by one
  for (const count of [5, 6]) {
    await list.call("fetchMoreThreads");
    await list.shows((rows) => rows.length >= Math.min(count, 6), `${count} threads`);
  }
  await list.shows(are(threads.slice(0, 6)), "all, each once");
  for (const thread of threads.slice(0, 6)) await list.call("deleteThread", thread);
  await list.page.close();
});

test("if callers are not distinguished the hook reports it, and sends no request", OPTIONS, async () => {
  const list = await List.open({ authorization: "Bearer 0123456789abcdef", ...ALICE }, {}, `${open.url}/agui`);
  await list.page.waitForFunction(() => globalThis.shown?.error, undefined, { timeout: SHOWN_MS });
  assert.match(await list.error(), /not available on this CopilotKit runtime/);
  assert.deepEqual(list.requests.filter((line) => line.includes("/threads")), []);
  await list.page.close();
});
