// Random choices that can be repeated: the environment variable SEED determines them.

import { createHash } from "node:crypto";

export const SEED = process.env.SEED ?? String(Date.now() % 100_000);

/** Numbers in [0, 1), the same for the same name and SEED. */
export function seeded(name) {
  let state = createHash("sha256").update(`${SEED} ${name}`).digest().readUInt32LE();
  const random = () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  return { random, between: (least, most) => least + random() * (most - least), one: (list) => list[Math.floor(random() * list.length)] };
}
