// Reads server-sent events and lines out of text that may be cut anywhere. Pure.

/** The frames of an SSE stream: what is between two empty lines. */
export class SseDecoder {
  /** Text after the last whole frame. */
  rest = "";

  /** Returns the frames that are whole with this text. */
  push(text) {
    const frames = [];
    this.rest += text;
    for (;;) {
      const end = /\r\n\r\n|\n\n|\r\r/.exec(this.rest);
      if (!end) return frames;
      const raw = this.rest.slice(0, end.index + end[0].length);
      this.rest = this.rest.slice(raw.length);
      frames.push(frameOf(raw));
    }
  }
}

function frameOf(raw) {
  const frame = { raw, hasCarriageReturn: raw.includes("\r"), fields: [], comments: 0, text: undefined };
  for (const line of raw.split(/\r\n|\n|\r/)) {
    if (line.startsWith(":")) frame.comments += 1;
    if (line === "" || line.startsWith(":")) continue;
    const [, name, value] = /^([^:]*)(?::\x20?([\s\S]*))?$/.exec(line);
    frame.fields.push(name);
    if (name === "data") frame.text = frame.text === undefined ? (value ?? "") : `${frame.text}\n${value ?? ""}`;
    if (name === "id") frame.id = value ?? "";
    if (name === "retry") frame.retry = value;
  }
  if (frame.text !== undefined) Object.assign(frame, eventOf(frame.text));
  return frame;
}

/** The event in a text, or why there is none. */
function eventOf(text) {
  try {
    const event = JSON.parse(text);
    const isEvent = typeof event === "object" && event !== null && !Array.isArray(event);
    return isEvent ? { event } : { fault: "it is no JSON object" };
  } catch (failure) {
    return { fault: failure.message };
  }
}

/** The lines of newline-delimited JSON: events, or `{ id, chunk }`. */
export class LineDecoder {
  rest = "";

  push(text) {
    const lines = (this.rest + text).split("\n");
    this.rest = lines.pop();
    return lines.map(chunkOf);
  }
}

/** A line or a socket's message as a frame. */
export function chunkOf(text) {
  const { event, fault } = eventOf(text);
  const frame = { raw: text, fields: ["data"], comments: 0, text };
  if (event && !Object.hasOwn(event, "type") && Object.hasOwn(event, "chunk")) {
    return { ...frame, isChunk: true, id: event.id, event: event.chunk, text: JSON.stringify(event.chunk) };
  }
  return { ...frame, event, fault };
}

const ID = /^[\x21-\x7e]+$/;
export const LONGEST_ID = 1024;

/**
 * What the ids of a stream's frames violate of the transport. `seen` has the ids of earlier responses with the text of their
 * events, and takes those of this stream. Returns `{ requirement, at, saw }` for each fault.
 */
export function judgeIds(frames, seen = new Map()) {
  const findings = [];
  const here = new Set();
  const events = frames.filter(({ event }) => event);
  for (const [at, { id, event, text, fields }] of events.entries()) {
    const fault = (requirement, saw) => findings.push({ requirement, at, saw });
    if (id === undefined) {
      fault("T1", `event ${at} (${event.type}) has no id`);
      continue;
    }
    if (fields.includes("id") && fields.indexOf("id") > fields.indexOf("data")) fault("T2", `event ${at} (${event.type}) has its id after its data`);
    if (!ID.test(id) || id.length > LONGEST_ID) fault("T3", `event ${at} (${event.type}) has the id ${JSON.stringify(id.slice(0, 80))} of ${id.length} characters`);
    if (here.has(id)) fault("T4", `the id ${id} is on two events of one response`);
    else if (seen.has(id) && seen.get(id) !== text) fault("T5", `the id ${id} names ${text.slice(0, 120)}, and before ${seen.get(id).slice(0, 120)}`);
    here.add(id);
    if (!seen.has(id)) seen.set(id, text);
  }
  return findings;
}
