// The package as it would be published: its size, its exports, and its types with both versions of its peer.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { publint } from "publint";

const PACKAGE = fileURLToPath(new URL("..", import.meta.url));
const MOST_BYTES = 6_000; // of each entry with all of its own code, minified and compressed
const run = promisify(execFile);

for (const entry of ["index", "react"]) {
  test(`the size of ${entry}.js`, async () => {
    const external = ["@ag-ui/client", "@copilotkit/react-core/v2", "react"];
    const { outputFiles } = await build({ entryPoints: [join(PACKAGE, "dist", `${entry}.js`)], bundle: true, minify: true, format: "esm", write: false, external });
    const bytes = gzipSync(outputFiles[0].contents, { level: 9 }).length;
    assert.ok(bytes <= MOST_BYTES, `${bytes} bytes`);
  });
}

test("its exports are right", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "threadway-pack-"));
  t.after(() => rm(folder, { recursive: true, force: true }));
  // Without its scripts, which would build the files anew that others are using.
  const { stdout } = await run("npm", ["pack", "--ignore-scripts", "--json", "--pack-destination", folder], { cwd: PACKAGE });
  const [{ filename, files }] = JSON.parse(stdout);
  const tarball = join(folder, filename);
  const { buffer, byteOffset, byteLength } = await readFile(tarball);
  const { messages } = await publint({ strict: true, pack: { tarball: buffer.slice(byteOffset, byteOffset + byteLength) } });
  assert.deepEqual(messages, []);
  await run(join(PACKAGE, "node_modules", ".bin", "attw"), [tarball, "--profile", "esm-only"]);
  const others = files.map(({ path }) => path).filter((path) => !path.startsWith("dist/"));
  assert.deepEqual(others.sort(), ["LICENSE", "README.md", "package.json"]);
});

const PAGE = `
import { type AbstractAgent, HttpAgent } from "@ag-ui/client";
import { ConnectionLostError, type Status, ThreadwayAgent } from "threadway-client";

const agent = new ThreadwayAgent({ url: "", threadId: "t", token: async ({ isRefused }) => String(isRefused), limits: { attempts: 3 } });
const agents: AbstractAgent[] = [agent, agent.clone(), new HttpAgent({ url: "" })];
agent.subscribe({ onRunFailed: ({ error }) => console.log(error instanceof ConnectionLostError && error.attempts, agents.length) });
agent.onStatus((status: Status) => console.log(status.state === "reconnecting" ? status.attempt : status.state));
export const stop: () => void = agent.follow();
export const stopped: Promise<boolean> = agent.stop();
agent.abortRun({ stop: true });
`;

for (const peer of ["client", "client-0"]) {
  test(`its types with @ag-ui/${peer === "client" ? "client 1.0.0" : "client 0.0.59"}`, async (t) => {
    const project = await mkdtemp(join(tmpdir(), "threadway-types-"));
    t.after(() => rm(project, { recursive: true, force: true }));
    const modules = join(project, "node_modules");
    await mkdir(join(modules, "@ag-ui"), { recursive: true });
    await cp(join(PACKAGE, "dist"), join(modules, "threadway-client", "dist"), { recursive: true });
    await cp(join(PACKAGE, "package.json"), join(modules, "threadway-client", "package.json"));
    await symlink(join(PACKAGE, "node_modules", peer === "client" ? "@ag-ui/client" : "ag-ui-client-0"), join(modules, "@ag-ui", "client"));
    await writeFile(join(project, "package.json"), '{"type": "module"}');
    await writeFile(join(project, "page.ts"), PAGE);
    const options = ["--noEmit", "--strict", "--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom", "--types", "", "page.ts"];
    const checked = await run(join(PACKAGE, "node_modules", ".bin", "tsc"), options, { cwd: project }).catch(({ stdout }) => ({ stdout }));
    const own = checked.stdout.split("\n").filter((line) => /^(page\.ts|node_modules\/threadway-client)/.test(line));
    assert.deepEqual(own, [], checked.stdout);
  });
}
