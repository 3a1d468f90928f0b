// JSON Patch (RFC 6902). Pure: a patch is applied as a whole or not at all.

import { POINTER } from "./shapes.mjs";

const MEMBERS = {
  add: ["value"],
  replace: ["value"],
  test: ["value"],
  remove: [],
  move: ["from"],
  copy: ["from"],
};

/** What is malformed in a patch; undefined if nothing is. */
export function malformed(patch) {
  if (!Array.isArray(patch)) return "the patch is no list";
  for (const [n, operation] of patch.entries()) {
    if (typeof operation !== "object" || operation === null || Array.isArray(operation)) return `operation ${n} is no object`;
    const { op } = operation;
    if (!Object.hasOwn(MEMBERS, op)) return `operation ${n} has the op ${JSON.stringify(op)}`;
    const missing = ["path", ...MEMBERS[op]].find((name) => !Object.hasOwn(operation, name));
    if (missing) return `operation ${n} (${op}) has no ${missing}`;
    const pointer = ["path", "from"].find((name) => Object.hasOwn(operation, name) && !isPointer(operation[name]));
    if (pointer) return `operation ${n} (${op}) has the ${pointer} ${JSON.stringify(operation[pointer])}`;
  }
}

const isPointer = (text) => typeof text === "string" && POINTER.test(text);

/** The document after the patch. Throws if an operation does not apply. */
export function apply(document, patch) {
  let result = structuredClone(document);
  for (const operation of patch) result = step(result, operation);
  return result;
}

function step(document, { op, path, from, value }) {
  if (op === "add") return put(document, path, structuredClone(value), true);
  if (op === "replace") return put(document, path, structuredClone(value), false);
  if (op === "remove") return without(document, path);
  if (op === "copy") return put(document, path, structuredClone(read(document, from)), true);
  if (op === "move") {
    const moved = read(document, from);
    return put(without(document, from), path, moved, true);
  }
  if (!equal(read(document, path), value)) throw new Error(`the test of ${path} fails`);
  return document;
}

const tokens = (pointer) => pointer.split("/").slice(1).map((token) => token.replaceAll("~1", "/").replaceAll("~0", "~"));

function read(document, pointer) {
  return tokens(pointer).reduce((at, token) => {
    if (typeof at !== "object" || at === null || !Object.hasOwn(at, token)) throw new Error(`there is no ${pointer}`);
    return at[token];
  }, document);
}

function parentOf(document, pointer) {
  const path = tokens(pointer);
  const last = path.pop();
  const parent = read(document, path.map((token) => `/${token.replaceAll("~", "~0").replaceAll("/", "~1")}`).join(""));
  if (typeof parent !== "object" || parent === null) throw new Error(`the parent of ${pointer} is no object and no list`);
  return [parent, last];
}

function put(document, pointer, value, isNew) {
  if (pointer === "") return value;
  const [parent, last] = parentOf(document, pointer);
  if (!isNew && !Object.hasOwn(parent, last)) throw new Error(`there is no ${pointer}`);
  if (!Array.isArray(parent) || !isNew) {
    Object.defineProperty(parent, last, { value, writable: true, enumerable: true, configurable: true });
    return document;
  }
  const at = last === "-" ? parent.length : Number(last);
  if (!/^(0|[1-9]\d*|-)$/.test(last) || at > parent.length) throw new Error(`${pointer} is no place in a list of ${parent.length}`);
  parent.splice(at, 0, value);
  return document;
}

function without(document, pointer) {
  read(document, pointer);
  if (pointer === "") return null;
  const [parent, last] = parentOf(document, pointer);
  if (Array.isArray(parent)) parent.splice(Number(last), 1);
  else delete parent[last];
  return document;
}

/** Whether two JSON values are the same; the order of members does not count. */
export function equal(a, b) {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  const names = Object.keys(a);
  return names.length === Object.keys(b).length && names.every((name) => Object.hasOwn(b, name) && equal(a[name], b[name]));
}
