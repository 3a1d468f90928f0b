// The package `threadway-client` as npm would install it beside each generation of `@ag-ui/client`.

import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

export const PACKAGE = fileURLToPath(new URL("../../packages/client/", import.meta.url));
const MODULES = fileURLToPath(new URL("node_modules/", import.meta.url));
const PEERS = { "1.0.0": "@ag-ui/client", "0.0.59": "ag-ui-client-0" };

const root = mkdtempSync(join(tmpdir(), "threadway-client-"));
process.once("exit", () => rmSync(root, { recursive: true, force: true }));

/** The folder of a project that has installed the package, and this version of its peer. */
export function projectWith(version) {
  const project = join(root, version);
  const modules = join(project, "node_modules");
  mkdirSync(join(modules, "@ag-ui"), { recursive: true });
  cpSync(join(PACKAGE, "dist"), join(modules, "threadway-client", "dist"), { recursive: true });
  cpSync(join(PACKAGE, "package.json"), join(modules, "threadway-client", "package.json"));
  symlinkSync(realpathSync(join(MODULES, PEERS[version])), join(modules, "@ag-ui", "client"));
  return project;
}

/** The package, and its peer of this version. */
export async function packageWith(version) {
  const modules = join(projectWith(version), "node_modules");
  const { ThreadwayAgent, ConnectionLostError, RefusedError } = await import(pathToFileURL(join(modules, "threadway-client", "dist", "index.js")));
  return { version, modules, ThreadwayAgent, ConnectionLostError, RefusedError };
}

/** A page's script and the packages of a project, in one file for browsers. */
export function bundled(script, project) {
  const esbuild = join(PACKAGE, "node_modules", ".bin", "esbuild");
  const command = ["--bundle", "--format=esm", "--log-level=error", "--loader=js", '--define:process.env.NODE_ENV="production"'];
  return execFileSync(esbuild, command, { cwd: project, input: script, encoding: "utf8", maxBuffer: 2 ** 26 });
}
