// Followers of threads and slow runs, for `integration/cluster --measure`.
//
// stdin: one command per line, {"do": "follow" | "run" | "leave", ...}; stdout: one answer per line. A follower's thread is one of
// `threads`. A run is of the graph `slow`, with `steps` steps of `delay` seconds.

import { randomUUID } from "node:crypto";
import { get, request } from "node:http";
import { createInterface } from "node:readline";

const EDGE = process.env.THREADWAY_URL;
const CONNECTING = 40; // followers that connect at a time
const RETRY_MS = 1000;
const AGENT = "slow";

const followers = new Map(); // by thread: { response, first, runs: [{ at, runId }] }
const starts = new Map(); // by thread: when its run was asked for
let reconnects = 0;
const lags = [];

/** The lines of a response's body. */
function onLines(response, take) {
  let rest = "";
  response.setEncoding("utf8").on("data", (text) => {
    const lines = (rest + text).split("\n");
    rest = lines.pop();
    for (const line of lines) take(line);
  });
}

/** Follows one thread until it leaves; resolves when the first event has come. */
function follow(threadId, follower = { isGone: false, events: 0 }) {
  followers.set(threadId, follower);
  return new Promise((resolve) => {
    const again = () => {
      if (follower.isGone) return;
      reconnects += 1;
      setTimeout(() => follow(threadId, follower).then(resolve), RETRY_MS);
    };
    const headers = { accept: "text/event-stream", ...(follower.lastId && { "last-event-id": follower.lastId }) };
    follower.request = get(`${EDGE}/agui/agent/${AGENT}/threads/${threadId}/events?follow=thread`, { agent: false, headers }, (response) => {
      if (response.statusCode !== 200) {
        response.resume();
        again();
        return;
      }
      onLines(response, (line) => {
        if (line.startsWith("id:")) follower.lastId = line.slice(3).trim();
        if (!line.startsWith("data:")) return;
        follower.events += 1;
        resolve();
        const started = line.includes('"RUN_STARTED"') && !line.includes('"runId":"connect-') && starts.get(threadId);
        if (started) {
          lags.push(Date.now() - started);
          starts.delete(threadId);
        }
      });
      response.once("close", again);
    });
    follower.request.once("error", again);
  });
}

/** Starts a run and reads it to its end; returns how it ended, and its times. */
function run(threadId, { steps, delay }) {
  const input = { protocolVersion: "1.0", threadId, runId: randomUUID(), messages: [], state: { steps, delay, size: 200 }, tools: [], context: [], forwardedProps: {} };
  const began = Date.now();
  starts.set(threadId, began);
  return new Promise((resolve) => {
    const done = { end: "cut", events: 0 };
    const finish = () => resolve({ ...done, seconds: (Date.now() - began) / 1000 });
    const asked = request(`${EDGE}/agui/agent/${AGENT}/run`, { method: "POST", agent: false, headers: { "content-type": "application/json" } }, (response) => {
      if (response.statusCode !== 200) done.end = `status ${response.statusCode}`;
      onLines(response, (line) => {
        if (!line.startsWith("data:")) return;
        done.first ??= (Date.now() - began) / 1000;
        done.events += 1;
        const type = /"type":"(RUN_FINISHED|RUN_ERROR)"/.exec(line)?.[1];
        if (type) done.end = type;
      });
      response.once("close", finish);
    });
    asked.once("error", finish);
    asked.end(JSON.stringify(input));
  });
}

async function inParallel(list, width, work) {
  const rest = [...list];
  await Promise.all(Array.from({ length: width }, async () => {
    while (rest.length > 0) await work(rest.shift());
  }));
}

const quantile = (list, part) => list.sort((a, b) => a - b)[Math.min(list.length - 1, Math.ceil(part * list.length) - 1)];

const COMMANDS = {
  async follow({ threads, seconds }) {
    const began = Date.now();
    const late = new Promise((resolve) => setTimeout(resolve, seconds * 1000));
    let shown = 0;
    await Promise.race([late, inParallel(threads, CONNECTING, (threadId) => Promise.race([late, follow(threadId).then(() => (shown += 1))]))]);
    return { shown, seconds: (Date.now() - began) / 1000, reconnects };
  },
  async run({ threads, steps, delay, spread }) {
    lags.length = 0;
    const all = threads.map(async (threadId, n) => {
      await new Promise((wake) => setTimeout(wake, (spread * 1000 * n) / threads.length));
      return run(threadId, { steps, delay });
    });
    const results = await Promise.all(all);
    const ends = {};
    for (const { end } of results) ends[end] = (ends[end] ?? 0) + 1;
    const seconds = results.map(({ seconds }) => seconds);
    const firsts = results.flatMap(({ first }) => (first === undefined ? [] : [first]));
    return {
      ends, median: quantile(seconds, 0.5), longest: Math.max(...seconds), first: quantile(firsts, 0.5), firstLongest: Math.max(...firsts),
      lags: { count: lags.length, median: quantile(lags, 0.5) / 1000, p99: quantile(lags, 0.99) / 1000 }, reconnects,
    };
  },
  async leave() {
    for (const follower of followers.values()) {
      follower.isGone = true;
      follower.request.destroy();
    }
    followers.clear();
    return { reconnects };
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  process.stdout.write(`${JSON.stringify(await COMMANDS[command.do](command))}\n`);
}
