#!/usr/bin/env node
// Checks an AG-UI server from outside: `threadway-conformance URL`.

import { exec } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { TIMEOUT_MS, reach } from "../src/http.mjs";
import { junit, markdown, plainLine, summary, tapLine, count } from "../src/report.mjs";
import { CASES, REQUIREMENTS, chosen, runAll } from "../src/runner.mjs";

const HELP = `usage: threadway-conformance [OPTION...] URL [CASE...]

Checks the AG-UI server that answers a POST of a RunAgentInput at URL. A CASE is an id such as T14 or T14.2; A names all cases of
AG-UI 1.0, T all of the resumable transport. Exits with 1 if a MUST is not fulfilled, with 2 if the arguments are wrong or no
server listens.

The agent has to answer within seconds. The suite starts some 55 runs.

What the server has:
  --ask URL              an agent that asks before it acts
  --answer JSON          the payload of an answer to it (default: {"approved": true})
  --also URL             another agent, one run of which is judged; may be repeated
  --connect URL          default: URL with /connect in place of /run
  --events URL           with {threadId}; default: .../threads/{threadId}/events
  --stop URL             with {threadId}; default: .../stop/{threadId}
  --socket URL           default: URL with ws
  --capabilities URL     default: .../capabilities
  --replica URL          the same agent at another process of the server
  --shutdown COMMAND     stops the server: the last cases see how. Needs --replica for T42
  --flood N              open N streams at once: the server must have a limit that refuses some of them

What the requests have:
  --header 'NAME: VALUE'        for each request, such as credentials; may be repeated
  --other-header 'NAME: VALUE'  the same for another caller, who must not see the first one's threads
  --run-id-header NAME          a header in which the server wants the run's id
  --message TEXT                what the person says; {mark} becomes a word of this session (default: Where is it warm? ({mark}))

How it runs:
  --jobs N               cases at a time (default: 8)
  --timeout SECONDS      for an answer to its end (default: ${TIMEOUT_MS / 1000})
  --seed N               repeats the places of the cuts
  --name TEXT            of the server, for the table
  --tap                  TAP on standard output
  --junit FILE           also a JUnit file
  --json FILE            also all results as JSON
  --markdown FILE        also a table to paste; - is standard output
  --list                 print the cases, and run none
  --version
`;

function fail(message) {
  process.stderr.write(`threadway-conformance: ${message}\n`);
  process.exit(2);
}

const texts = (...names) => Object.fromEntries(names.map((name) => [name, { type: "string" }]));
const lists = (...names) => Object.fromEntries(names.map((name) => [name, { type: "string", multiple: true, default: [] }]));
const flags = (...names) => Object.fromEntries(names.map((name) => [name, { type: "boolean" }]));

function parsed() {
  try {
    return parseArgs({
      allowPositionals: true,
      options: {
        ...texts("ask", "answer", "connect", "events", "stop", "socket", "capabilities", "replica", "shutdown", "flood", "run-id-header"),
        ...texts("message", "jobs", "timeout", "seed", "name", "junit", "json", "markdown"),
        ...lists("also", "header", "other-header"),
        ...flags("tap", "list", "version", "help"),
      },
    });
  } catch (failure) {
    return fail(`${failure.message}; --help lists the options`);
  }
}

function number(text, name, fallback) {
  if (text === undefined) return fallback;
  if (!/^\d+$/.test(text) || Number(text) === 0) fail(`--${name} is no number: ${text}`);
  return Number(text);
}

function headers(lines) {
  return Object.fromEntries(
    lines.map((line) => {
      const [, name, value] = /^([\w-]+):\s*(.*)$/.exec(line) ?? fail(`a header is NAME: VALUE, and not ${JSON.stringify(line)}`);
      return [name.toLowerCase(), value];
    }),
  );
}

function json(text) {
  try {
    return JSON.parse(text);
  } catch {
    return fail(`--answer is no JSON: ${text}`);
  }
}

const { values, positionals } = parsed();
const { version } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url)));
if (values.help) {
  process.stdout.write(HELP);
  process.exit(0);
}
if (values.version) {
  process.stdout.write(`${version}\n`);
  process.exit(0);
}
if (values.list) {
  for (const { id, requirement, level, title } of CASES) {
    const { of, part } = REQUIREMENTS[requirement];
    process.stdout.write(`${id.padEnd(6)} ${level.padEnd(6)} ${title} [${of ?? part}]\n`);
  }
  process.exit(0);
}
const [url, ...names] = positionals;
if (!url) fail("the URL of an agent is missing; --help lists the options");
for (const target of [url, values.ask, values.connect, values.replica, ...values.also]) {
  if (target !== undefined && !/^https?:\/\/[^/]/.test(target)) fail(`${target} is no http URL`);
}
let cases;
try {
  cases = chosen(names);
} catch (failure) {
  fail(failure.message);
}

const options = {
  run: url,
  ask: values.ask,
  answer: json(values.answer ?? '{"approved": true}'),
  also: values.also,
  connect: values.connect,
  events: values.events,
  stop: values.stop,
  socket: values.socket,
  capabilities: values.capabilities,
  replica: values.replica,
  shutdown: values.shutdown && (() => exec(values.shutdown)),
  flood: number(values.flood, "flood"),
  headers: headers(values.header),
  other: values["other-header"].length > 0 ? headers(values["other-header"]) : undefined,
  runIdHeader: values["run-id-header"],
  message: values.message ?? "Where is it warm? ({mark})",
  jobs: number(values.jobs, "jobs", 8),
  timeout: number(values.timeout, "timeout", TIMEOUT_MS / 1000) * 1000,
  seed: number(values.seed, "seed", 1 + Math.floor(Math.random() * 1e6)),
};

for (const target of [options.run, options.ask, options.replica, ...options.also]) {
  if (target !== undefined) await reach(target).catch((failure) => fail(`no server listens at ${target}: ${failure.message}`));
}
let printed = 0;
if (values.tap) process.stdout.write(`TAP version 14\n1..${cases.length}\n`);
const results = await runAll(cases, options, (result) => {
  printed += 1;
  process.stdout.write(values.tap ? tapLine(result, printed) : plainLine(result));
});
const about = { url, name: values.name ?? url, date: new Date().toISOString().slice(0, 10) };
if (values.junit) writeFileSync(values.junit, junit(results, about));
if (values.json) writeFileSync(values.json, `${JSON.stringify({ ...about, version, seed: options.seed, results }, null, 1)}\n`);
if (values.markdown) {
  if (values.markdown === "-") process.stdout.write(markdown(results, about));
  else writeFileSync(values.markdown, markdown(results, about));
}
const line = `${summary(results)} (seed ${options.seed})\n`;
process.stdout.write(values.tap ? `# ${line}` : `\n${line}`);
process.exit(count(results).fail > 0 ? 1 : 0);
