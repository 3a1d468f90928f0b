// Serves TanStack AI's durable streams. TanStack AI has no adapter of LangGraph, so its model says the script's tokens by itself:
// those of bench/load/text.rs. `bench/peers/run` copies integration/tanstack/scripted.mjs beside this file.
//
// usage: node tanstack.mjs PORT        then POST /?runId=ID, and GET /?runId=ID&offset=-1

import { setTimeout as pause } from "node:timers/promises";
import { serve } from "./scripted.mjs";

const TURN = 64; // tokens at full speed, before other streams have their turn

const now = () => `${Math.round((performance.timeOrigin + performance.now()) * 1000)}000`;

/** FNV-1a of 64 bits, in two halves: the prime is 2^40 + 0x1b3. */
function sum([high, low], text) {
  for (let at = 0; at < text.length; at += 1) {
    low = (low ^ text.charCodeAt(at)) >>> 0;
    const product = low * 0x1b3;
    high = (Math.imul(high, 0x1b3) + Math.floor(product / 2 ** 32) + (low << 8)) >>> 0;
    low = product >>> 0;
  }
  return [high, low];
}

async function* tokens({ tokens, interval_us, pause_us }) {
  let all = [0xcbf29ce4, 0x84222325];
  const begin = performance.now() + pause_us / 1000;
  if (pause_us) await pause(pause_us / 1000);
  for (let place = 0; place < tokens; place += 1) {
    if (interval_us) await pause(begin + (place * interval_us) / 1000 - performance.now());
    else if (place % TURN === 0) await pause(0);
    const token = `${place}@${now()} `;
    all = sum(all, token);
    yield token;
  }
  yield `${tokens}#${(BigInt(all[0]) << 32n) | BigInt(all[1])} `;
}

function speak(messages) {
  const said = messages.at(-1).content ?? messages.at(-1).parts;
  return tokens(JSON.parse(typeof said === "string" ? said : said.map((part) => part.content ?? part.text).join("")));
}

serve(Number(process.argv[2]), speak);
