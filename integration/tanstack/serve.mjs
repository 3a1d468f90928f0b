// Serves TanStack AI's durable streams, for the conformance suite.
//
// usage: node serve.mjs PORT        then POST /

import { setTimeout as pause } from "node:timers/promises";
import { serve } from "./scripted.mjs";

const WORDS = 40;
const WORD_MS = 60;

async function* words() {
  for (let n = 0; n < WORDS; n += 1) {
    await pause(WORD_MS);
    yield `word${n} `;
  }
}

serve(Number(process.argv[2]), words);
