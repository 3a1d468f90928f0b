import assert from "node:assert/strict";
import { test } from "node:test";
import { LONGEST_ID, LineDecoder, SseDecoder, judgeIds } from "../src/frames.mjs";
import { apply, malformed } from "../src/patch.mjs";

const event = (id, type = "CUSTOM") => `id: ${id}\ndata: {"type":"${type}"}\n\n`;
const frames = (text) => new SseDecoder().push(text);

test("frames are the same wherever their text is cut", () => {
  const text = `retry: 3000\n\n: keep-alive\n\n${event("1")}data: {"type":\ndata: "RAW"}\n\n${event("2", "é")}`;
  const whole = frames(text);
  assert.deepEqual(whole.map(({ id, event: it, retry, comments }) => [id, it?.type, retry, comments]), [
    [undefined, undefined, "3000", 0],
    [undefined, undefined, undefined, 1],
    ["1", "CUSTOM", undefined, 0],
    [undefined, "RAW", undefined, 0],
    ["2", "é", undefined, 0],
  ]);
  for (let at = 0; at <= text.length; at += 1) {
    const decoder = new SseDecoder();
    assert.deepEqual([...decoder.push(text.slice(0, at)), ...decoder.push(text.slice(at))], whole, String(at));
    assert.equal(decoder.rest, "");
  }
});

test("a frame without its empty line is not told", () => {
  const decoder = new SseDecoder();
  assert.deepEqual(decoder.push('id: 7\ndata: {"type":"RAW"}\n'), []);
});

test("data that is no event is named", () => {
  for (const data of ["", "[1]", "null", "{", "[DONE]"]) assert.ok(frames(`data: ${data}\n\n`)[0].fault, data);
  assert.ok(frames('data: {"type":"RAW"}\r\n\r\n')[0].hasCarriageReturn);
});

test("lines are events, or ids and events", () => {
  const decoder = new LineDecoder();
  const lines = [...decoder.push('{"type":"RAW"}\n{"id":"1","ch'), ...decoder.push('unk":{"type":"RAW"}}\n')];
  assert.deepEqual(lines.map(({ id, isChunk, event: { type } }) => [id, isChunk, type]), [[undefined, undefined, "RAW"], ["1", true, "RAW"]]);
});

test("each fault of ids is found", () => {
  const found = (text, seen) => judgeIds(frames(text), seen).map(({ requirement }) => requirement);
  assert.deepEqual(found(event("1") + event("2")), []);
  assert.deepEqual(found(`${event("1")}data: {"type":"RAW"}\n\n`), ["T1"]);
  assert.deepEqual(found('data: {"type":"RAW"}\nid: 1\n\n'), ["T2"]);
  assert.deepEqual(found(event("a b")), ["T3"]);
  assert.deepEqual(found(event("é")), ["T3"]);
  assert.deepEqual(found(event("")), ["T3"]);
  assert.deepEqual(found(event("x".repeat(LONGEST_ID + 1))), ["T3"]);
  assert.deepEqual(found(event("1") + event("1")), ["T4"]);
  const seen = new Map();
  assert.deepEqual(found(event("1"), seen), []);
  assert.deepEqual(found(event("1"), seen), []);
  assert.deepEqual(found(event("1", "RAW"), seen), ["T5"]);
});

test("patches are applied as a whole", () => {
  const document = { a: [1, { b: 2 }], "x/y": { "~": 1 } };
  assert.deepEqual(apply(document, [{ op: "add", path: "/a/1", value: 0 }, { op: "move", from: "/a/2/b", path: "/c" }, { op: "remove", path: "/x~1y/~0" }]), { a: [1, 0, {}], "x/y": {}, c: 2 });
  assert.deepEqual(apply(document, [{ op: "test", path: "/a/1", value: { b: 2 } }, { op: "copy", from: "/a/0", path: "/a/-" }, { op: "replace", path: "/a/0", value: null }]), { a: [null, { b: 2 }, 1], "x/y": { "~": 1 } });
  assert.equal(apply(document, [{ op: "replace", path: "", value: 7 }]), 7);
  for (const patch of [[{ op: "remove", path: "/z" }], [{ op: "test", path: "/a/0", value: 2 }], [{ op: "add", path: "/a/9", value: 0 }], [{ op: "replace", path: "/a/0/b", value: 0 }]]) {
    assert.throws(() => apply(document, patch), JSON.stringify(patch));
  }
  assert.equal(malformed([{ op: "move", from: "/a", path: "/b" }]), undefined);
  for (const patch of [{}, [1], [{ op: "put", path: "" }], [{ op: "move", path: "/a" }], [{ op: "remove", path: "/~2" }]]) assert.ok(malformed(patch), JSON.stringify(patch));
});
