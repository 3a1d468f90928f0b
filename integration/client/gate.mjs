// Gates hold the scripted models in mid-run, so that a test knows where a run is, however fast the machine is.
//
// The script of a model names the gate. Before some of its chunks the model requests the gate's place of that number, and waits
// for the answer: the test sees that the model has arrived, and answers when it opens the place.

import { randomUUID } from "node:crypto";
import { EventEmitter, once } from "node:events";
import { createServer } from "node:http";

const PATIENCE_MS = 90_000; // a run that never arrives fails its test by then

const gates = new Map();
let listening;

/** The URL of all gates of this process. Their server does not keep the process alive. */
function listen() {
  listening ??= new Promise((resolve) => {
    const server = createServer(({ url }, response) => {
      const [, id, ...place] = url.split("/");
      gates.get(id).arrive(place.join("/"), response);
    });
    server.on("connection", (socket) => socket.unref());
    server.listen(0, "127.0.0.1", () => resolve(`http://127.0.0.1:${server.address().port}`)).unref();
  });
  return listening;
}

/** The places of one run. Where several models run at the same time, the node's name comes before the number: `left/3`. */
export class Gate {
  /** The responses of the models that wait, by place. */
  #arrived = new Map();
  #opened = [];
  #arrivals = new EventEmitter();

  /** `at`: the numbers of the chunks before which each model waits. The result's `script` is part of the run's. */
  static async before(...at) {
    const gate = new Gate();
    const id = randomUUID();
    gates.set(id, gate);
    gate.script = { gate: { url: `${await listen()}/${id}`, at } };
    return gate;
  }

  /** Waits until a model has arrived at a place, or any model at a number. */
  async reached(place) {
    const signal = AbortSignal.timeout(PATIENCE_MS);
    while (![...this.#arrived.keys()].some((known) => isAt(known, place))) {
      await once(this.#arrivals, "one", { signal }).catch(() => {
        throw new Error(`no model has reached ${place} after ${PATIENCE_MS} ms`);
      });
    }
  }

  /** Opens a place, or a number for all models, or everything. It stays open. */
  open(place) {
    this.#opened.push(place);
    for (const [known, responses] of this.#arrived) if (this.#isOpen(known)) for (const response of responses.splice(0)) response.end();
  }

  arrive(place, response) {
    const waiting = this.#arrived.get(place) ?? [];
    this.#arrived.set(place, waiting);
    if (this.#isOpen(place)) response.end();
    else waiting.push(response);
    this.#arrivals.emit("one");
  }

  #isOpen(known) {
    return this.#opened.some((place) => place === undefined || isAt(known, place));
  }
}

function isAt(known, place) {
  return known === String(place) || known.endsWith(`/${place}`);
}
