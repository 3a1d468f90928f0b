// Results as TAP, JUnit, JSON and Markdown. Pure.

import { REQUIREMENTS } from "./runner.mjs";

const GROUPS = { A: "AG-UI 1.0", T: "the resumable transport" };
const STATUSES = ["pass", "fail", "warn", "skip"];

export function count(results) {
  return Object.fromEntries(STATUSES.map((status) => [status, results.filter((result) => result.status === status).length]));
}

const words = ({ pass, fail, warn, skip }) => `${pass} passed, ${fail} failed, ${warn} warned, ${skip} skipped`;

/** One line of TAP; what was seen follows as a comment. */
export function tapLine({ id, level, title, status, saw }, number) {
  const oneLine = String(saw).replaceAll("\n", " ");
  // A `not ok` with TODO does not fail a session of TAP.
  const isOk = ["pass", "skip"].includes(status);
  const directive = status === "skip" ? ` # SKIP ${oneLine}` : status === "warn" ? ` # TODO ${level}: ${oneLine}` : "";
  const line = `${isOk ? "ok" : "not ok"} ${number} - ${id} ${level} ${title.replaceAll("#", "\\#")}${directive}\n`;
  return ["pass", "fail"].includes(status) ? `${line}# saw: ${oneLine}\n` : line;
}

/** One line for people. */
export function plainLine({ id, status, title, saw, ms }) {
  const mark = { pass: "ok  ", fail: "FAIL", warn: "warn", skip: "skip" }[status];
  return `${mark} ${id.padEnd(6)} ${title}\n            ${status === "pass" ? "saw" : status}: ${saw} (${ms} ms)\n`;
}

const escape = (text) =>
  String(text).replace(/[<>&"']/g, (letter) => `&#${letter.charCodeAt(0)};`).replace(/[^\t\n\r\x20-\ud7ff\ue000-\uffff]/g, "?");

export function junit(results, { url }) {
  const suites = Object.entries(GROUPS).map(([letter, name]) => {
    const group = results.filter(({ requirement }) => requirement.startsWith(letter));
    const { fail, skip } = count(group);
    const cases = group.map(({ id, title, status, saw, ms, level }) => {
      const inner = {
        pass: `<system-out>${escape(saw)}</system-out>`,
        fail: `<failure message="${escape(saw)}"/>`,
        warn: `<system-out>${escape(`${level} is not fulfilled: ${saw}`)}</system-out>`,
        skip: `<skipped message="${escape(saw)}"/>`,
      }[status];
      return `    <testcase classname="${escape(name)}" name="${escape(`${id} ${title}`)}" time="${ms / 1000}">${inner}</testcase>`;
    });
    return [`  <testsuite name="${escape(name)}" tests="${group.length}" failures="${fail}" skipped="${skip}" hostname="${escape(url)}">`, ...cases, "  </testsuite>"].join("\n");
  });
  return `<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n${suites.join("\n")}\n</testsuites>\n`;
}

export function summary(results) {
  return Object.entries(GROUPS)
    .map(([letter, name]) => `${name}: ${words(count(results.filter(({ requirement }) => requirement.startsWith(letter))))}`)
    .join("; ");
}

/** A table to paste: the counts, and a line for each case that is not fulfilled. */
export function markdown(results, { name, date }) {
  const cell = (text) => String(text).replaceAll("|", "\\|").replaceAll("\n", " ");
  const head = ["| server | date | | passed | failed | warned | skipped |", "|---|---|---|---|---|---|---|"];
  const rows = Object.entries(GROUPS).map(([letter, group]) => {
    const { pass, fail, warn, skip } = count(results.filter(({ requirement }) => requirement.startsWith(letter)));
    return `| ${cell(name)} | ${date} | ${group} | ${pass} | ${fail} | ${warn} | ${skip} |`;
  });
  const wrong = results.filter(({ status }) => ["fail", "warn"].includes(status));
  const table = wrong.map(({ id, requirement, level, saw }) => `| ${id} | ${level} | ${cell(REQUIREMENTS[requirement].text)} | ${cell(saw)} |`);
  const faults = table.length > 0 ? ["", "| case | level | requirement | seen |", "|---|---|---|---|", ...table] : [];
  return [...head, ...rows, ...faults, ""].join("\n");
}
