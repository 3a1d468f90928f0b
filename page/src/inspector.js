// The moments of the inspector. Each is a part of LangGraph's stream with the run events that the gateway made of it, and
// the events that were sent to the client.

import { readId } from "./eventid.js";

// Older moments are dropped.
export const MAX_MOMENTS = 1_500;
export const MAX_BYTES = 16_000_000; // bytes of parts and events

/** The position of an event in its run, and a key that distinguishes it from others. */
function whereIs(id) {
  const place = readId(id);
  return { place, of: place ? `${place.runId}/${place.attempt}/${place.place}/${place.part}` : "none" };
}

export class Inspector {
  moments = [];
  total = { moments: 0, events: 0, bytes: 0 };
  kept = 0; // bytes

  clear() {
    this.moments = [];
    this.total = { moments: 0, events: 0, bytes: 0 };
    this.kept = 0;
  }

  begin(moment) {
    this.total.moments += 1;
    this.moments.push({ key: this.total.moments, at: Date.now(), runs: [], events: 0, bytes: 0, version: 0, ...moment });
    while (this.moments.length > MAX_MOMENTS || (this.kept > MAX_BYTES && this.moments.length > 1)) {
      const { bytes, partBytes } = this.moments.shift();
      this.kept -= bytes + (partBytes ?? 0);
    }
    return this.moments.at(-1);
  }

  connection(what) {
    this.begin({ connection: what });
  }

  /** A comment of the stream: `run ID NAME` names the next run event, which may have no event on the wire. */
  comment(text) {
    const [, id, name] = /^run (\S+) (.+)$/.exec(text) ?? [];
    if (!name) return;
    const { of, place } = whereIs(id);
    let moment = this.moments.at(-1);
    if (!moment || moment.of !== of) moment = this.begin({ of, place, part: null, partBytes: 0 });
    moment.runs.push({ name, events: [] });
    moment.version += 1;
  }

  frame({ id, bytes, isAgain }, event) {
    const { of, place } = whereIs(id);
    const { rawEvent: part } = event;
    let moment = this.moments.at(-1);
    if (!moment || moment.of !== of) {
      moment = this.begin({ of, place, part: null, partBytes: 0 });
    } else if (part && moment.part) {
      // Several parts may have the same id: each is a moment.
      const run = moment.runs.at(-1)?.events.length === 0 ? [moment.runs.pop()] : [];
      moment.version += 1;
      moment = this.begin({ of, place, part: null, partBytes: 0, runs: run });
    }
    if (part) {
      Object.assign(moment, { part, partBytes: JSON.stringify(part).length });
      this.kept += moment.partBytes;
    }
    if (moment.runs.length === 0) moment.runs.push({ name: null, events: [] });
    const { rawEvent, ...shown } = event;
    const own = rawEvent === undefined ? bytes : bytes - JSON.stringify(rawEvent).length - 12;
    moment.runs.at(-1).events.push({ id, type: event.type, bytes: own, isAgain, event: shown, n: place?.n });
    moment.events += 1;
    moment.bytes += own;
    moment.version += 1;
    this.total.events += 1;
    this.total.bytes += own;
    this.kept += own;
  }
}
