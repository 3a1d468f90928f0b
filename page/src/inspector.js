// What the inspector shows: moments, each a part of LangGraph's stream with the run events that the gateway made of it, and
// what of these came over the wire.

import { readId } from "./eventid.js";

export const MAX_MOMENTS = 1_500; // older ones are dropped

export class Inspector {
  moments = [];
  total = { moments: 0, events: 0, bytes: 0 };
  run = null; // the run event that a comment has named, and of which nothing has come yet

  clear() {
    this.moments = [];
    this.total = { moments: 0, events: 0, bytes: 0 };
    this.run = null;
  }

  begin(moment) {
    this.total.moments += 1;
    this.moments.push({ key: this.total.moments, at: Date.now(), runs: [], events: 0, bytes: 0, version: 0, ...moment });
    if (this.moments.length > MAX_MOMENTS) this.moments.shift();
    return this.moments.at(-1);
  }

  connection(what) {
    this.run = null;
    this.begin({ connection: what });
  }

  /** A comment of the stream: `run text` names the run event that follows. */
  comment(text) {
    if (text.startsWith("run ")) {
      this.flush();
      this.run = { name: text.slice(4), events: [] };
    }
  }

  /** A run event of which nothing comes belongs to what came before it. */
  flush() {
    const last = this.moments.at(-1);
    if (this.run && last && !last.connection) {
      last.runs.push(this.run);
      last.version += 1;
    }
    this.run = null;
  }

  frame({ id, data, bytes, isAgain }, event) {
    const place = readId(id);
    const { rawEvent: part } = event;
    const of = place ? `${place.runId}/${place.attempt}/${place.place}/${place.part}` : "none";
    let moment = this.moments.at(-1);
    const { run } = this;
    if (!moment || moment.connection || moment.of !== of || (part && run !== null)) {
      moment = this.begin({ of, place, part: part ?? null, partBytes: part ? JSON.stringify(part).length : 0 });
    } else if (part && !moment.part) {
      Object.assign(moment, { part, partBytes: JSON.stringify(part).length });
    }
    if (run) moment.runs.push(run);
    else if (moment.runs.length === 0) moment.runs.push({ name: null, events: [] });
    this.run = null;
    const { rawEvent, ...shown } = event;
    const own = rawEvent === undefined ? bytes : bytes - JSON.stringify(rawEvent).length - 12;
    moment.runs.at(-1).events.push({ id, type: event.type, bytes: own, isAgain, event: shown, n: place?.n });
    moment.events += 1;
    moment.bytes += own;
    moment.version += 1;
    this.total.events += 1;
    this.total.bytes += own;
  }
}
