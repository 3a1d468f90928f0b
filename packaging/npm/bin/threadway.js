#!/usr/bin/env node
"use strict";

// Starts the binary of the platform package that npm installed next to this package. Arguments, environment, stdin, stdout
// and stderr are passed to the binary: the launcher does not read or write them.

const { spawn } = require("node:child_process");
const { existsSync } = require("node:fs");
const { constants } = require("node:os");
const { optionalDependencies, version } = require("../package.json");

const MUSL_LOADERS = { x64: "/lib/ld-musl-x86_64.so.1", arm64: "/lib/ld-musl-aarch64.so.1" };

/** The platform packages that run here, the preferred one first. */
function candidates() {
  const { platform, arch } = process;
  const names = [`${platform}-${arch}`];
  if (platform === "linux") {
    names.splice(0, 1, `linux-${arch}-gnu`, `linux-${arch}-musl`);
    // A package manager that ignores `libc` installs both. The musl binary is static, so it also runs on glibc.
    if (existsSync(MUSL_LOADERS[arch] ?? "")) names.reverse();
  }
  return names.map((name) => `@threadway/cli-${name}`).filter((name) => name in optionalDependencies);
}

function find(packages) {
  const file = process.platform === "win32" ? "threadway.exe" : "threadway";
  for (const name of packages) {
    try {
      return require.resolve(`${name}/bin/${file}`);
    } catch (error) {
      if (error.code !== "MODULE_NOT_FOUND") throw error;
    }
  }
}

function fail(lines) {
  for (const line of lines) console.error(`threadway: ${line}`);
  process.exit(1);
}

const packages = candidates();
if (packages.length === 0) {
  fail([
    `there is no npm package for ${process.platform} ${process.arch}`,
    "build it from source: cargo install --locked threadway",
  ]);
}
const binary = find(packages);
if (binary === undefined) {
  const missing = packages.join(" or ");
  fail([
    `the package ${missing} is not installed`,
    "npm installs it as an optional dependency of threadway: install again without --omit=optional",
    "a lock file from another platform may lack it: delete node_modules and the lock file, and install again",
    `or install it by name: npm install ${packages[0]}@${version}`,
  ]);
}

let child;
const isWindows = process.platform === "win32";
for (const signal of isWindows ? ["SIGINT", "SIGBREAK"] : ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"]) {
  // On Windows the console sends ctrl-c to the binary too, and kill() would end the binary without a graceful stop.
  process.on(signal, () => isWindows || child.kill(signal));
}
child = spawn(binary, process.argv.slice(2), { stdio: "inherit" });
child.on("error", (error) => fail([`${binary} cannot be started: ${error.message}`]));
child.on("exit", (code, signal) => {
  process.exitCode = code ?? 128 + constants.signals[signal];
});
