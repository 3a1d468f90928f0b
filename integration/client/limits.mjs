// What a server cannot do, so that a test which needs it is skipped. limits.json is the only list, and docs/versioning.md shows
// it: tests/offline compares the two.

import { readFileSync } from "node:fs";

const LIMITS = JSON.parse(readFileSync(new URL("limits.json", import.meta.url), "utf8"));

/** The value of a test's `skip`: why this server cannot run a test that needs all of these abilities, or `false`. */
export function without(server, ...abilities) {
  for (const ability of abilities) {
    const limit = LIMITS.find((limit) => limit.ability === ability);
    if (!limit) throw new Error(`limits.json does not have ${ability}`);
    if (limit.servers.includes(server?.name)) return `${server.name}: ${limit.limit}`;
  }
  return false;
}

/** Whether a server can do all of these. */
export const can = (server, ...abilities) => without(server, ...abilities) === false;
