// docs/faults.md: the stored results of `faults.test.mjs` and `fault-check.test.mjs` as tables for operators.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { FAULTS } from "./fault-proxy.mjs";

export const IS_UPDATE = process.env.UPDATE_GOLDEN !== undefined;
const DOCUMENT = new URL("../../docs/faults.md", import.meta.url);
const FILES = { cells: new URL("faults.json", import.meta.url), check: new URL("fault-check.json", import.meta.url) };
/** What follows this line of the document is generated. */
const MARK = "<!-- generated: UPDATE_GOLDEN=1 integration/faults -->\n";

/** The operations in the order of the table. */
export const OPERATIONS = ["run", "connect", "follow", "follow, lasting", "stop", "info"];

/** The stored results: `cells` by fault, operation and server, or `check` by server. */
export const stored = (kind) => JSON.parse(readFileSync(FILES[kind], "utf8"));

/** Stores results, and writes the document. */
export function store(kind, results) {
  writeFileSync(FILES[kind], `${JSON.stringify(sorted(results), null, 1)}\n`);
  writeFileSync(DOCUMENT, withTables(readFileSync(DOCUMENT, "utf8")));
}

/** A value whose objects have their members in order, so that results differ only where a result does. */
function sorted(value) {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.keys(value).sort().map((key) => [key, sorted(value[key])]));
}

/** Fails unless the document shows the stored results. */
export function checkDocument() {
  const document = readFileSync(DOCUMENT, "utf8");
  assert.equal(document, withTables(document), "docs/faults.md does not show the stored results: write it with UPDATE_GOLDEN=1");
}

function withTables(document) {
  const at = document.indexOf(MARK);
  assert.ok(at >= 0, `docs/faults.md has no line ${MARK}`);
  return `${document.slice(0, at)}${MARK}\n${[...matrix(stored("cells")), ...checks(stored("check"))].join("\n")}\n`;
}

function* matrix(cells) {
  for (const [fault, { about }] of Object.entries(FAULTS)) {
    if (!cells[fault]) continue;
    yield `### ${fault[0].toUpperCase()}${fault.slice(1)}`;
    yield `${about[0].toUpperCase()}${about.slice(1)}.\n`;
    yield "| operation | the client sees | the log says | metrics |";
    yield "|---|---|---|---|";
    for (const { places, cell } of rowsOf(cells[fault])) {
      const client = `${cell.client}, ${cell.time}`;
      yield row(places, client, cell.log.map(code).join("<br>") || "–", cell.metrics.map(code).join("<br>") || "–");
    }
    yield "";
  }
}

function* checks(check) {
  yield "## What `threadway check` says";
  yield "The command ends with a status other than 0 in front of each of these.\n";
  yield "| the server at the URL | `threadway check` |";
  yield "|---|---|";
  for (const [name, said] of Object.entries(check)) yield row(name, said);
}

const row = (...columns) => `| ${columns.map((text) => text.replaceAll("|", "\\|")).join(" | ")} |`;
const code = (text) => `\`${text.replaceAll("`", "'")}\``;

/** Rows of equal cells: operations and servers with one result share a row. */
function rowsOf(cells) {
  const rows = new Map();
  const all = new Set(Object.values(cells).flatMap((servers) => Object.keys(servers)));
  for (const operation of OPERATIONS) {
    for (const [server, cell] of Object.entries(cells[operation] ?? {})) {
      const key = JSON.stringify(cell);
      const row = rows.get(key) ?? { cell, operations: new Map() };
      rows.set(key, row);
      row.operations.set(operation, [...(row.operations.get(operation) ?? []), server]);
    }
  }
  return [...rows.values()].map(({ cell, operations }) => {
    const name = ([operation, servers]) => (servers.length === all.size ? operation : `${operation} (${servers.join(", ")})`);
    return { cell, places: [...operations].map(name).join("; ") };
  });
}
