// Builds the page into dist/, which the gateway embeds. dist/ is committed, so that building the gateway needs only Rust.
//
// usage: node build.mjs            writes dist/
//        node build.mjs --verify   fails if dist/ differs from the build
//        node build.mjs --sizes    also prints the size of each package
//
// The same sources and the same lock file give the same bytes. esbuild and fflate are pinned, and fflate compresses in
// JavaScript, because the zlib of another Node version could write other bytes.

import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { gzipSync } from "fflate";

const HERE = dirname(fileURLToPath(import.meta.url));
const DIST = join(HERE, "dist");
const MAX_BYTES = 300 * 1024; // the limit for all files, compressed

/** The packages whose code is in a bundle, as folders of node_modules. */
function packagesOf(metafile) {
  const found = new Set();
  for (const output of Object.values(metafile.outputs)) {
    for (const [input, { bytesInOutput }] of Object.entries(output.inputs)) {
      const name = /(?:^|\/)node_modules\/((?:@[^/]+\/)?[^/]+)\/(?!.*node_modules\/)/.exec(input)?.[1];
      if (name && bytesInOutput > 0) found.add(name);
    }
  }
  return [...found].sort();
}

/** The licences of these packages in one text. */
async function licencesOf(packages) {
  const texts = [];
  for (const name of packages) {
    const folder = join(HERE, "node_modules", name);
    const { version, license, author } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
    const file = (await readdir(folder)).sort().find((entry) => /^licen[cs]e/i.test(entry));
    const by = typeof author === "string" ? author : author?.name;
    const text = file ? await readFile(join(folder, file), "utf8") : `Licensed under ${license}${by ? `, by ${by}` : ""}.`;
    texts.push(`${name} ${version} (${license})\n\n${text.replaceAll("\r\n", "\n").trim()}\n`);
  }
  return `The page of threadway contains the code of these packages.\n\n${texts.join(`\n${"-".repeat(72)}\n\n`)}`;
}

const options = {
  absWorkingDir: HERE,
  bundle: true,
  minify: true,
  write: false,
  metafile: true,
  legalComments: "none", // licences.txt has them
  preserveSymlinks: true, // node_modules may be a link
  charset: "utf8",
  logLevel: "warning",
};
const script = await build({
  ...options,
  entryPoints: ["src/main.jsx"],
  format: "esm",
  target: ["chrome123", "firefox120", "safari17.5"],
  jsx: "automatic",
  jsxImportSource: "preact",
  define: { "process.env.NODE_ENV": '"production"' },
});
const style = await build({ ...options, entryPoints: ["src/page.css"], target: ["chrome123", "firefox120", "safari17.5"] });
const read = (name) => readFile(join(HERE, "src", name));

const files = {
  "index.html": await read("index.html"),
  "icon.svg": await read("icon.svg"),
  "page.js": script.outputFiles[0].contents,
  "page.css": style.outputFiles[0].contents,
  "licences.txt": Buffer.from(await licencesOf(packagesOf(script.metafile))),
};

const isVerifying = process.argv.includes("--verify");
if (process.argv.includes("--sizes")) {
  const sizes = {};
  for (const [input, { bytesInOutput }] of Object.entries(Object.values(script.metafile.outputs)[0].inputs)) {
    const name = /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(input)?.[1] ?? "page";
    sizes[name] = (sizes[name] ?? 0) + bytesInOutput;
  }
  console.table(sizes);
}
let total = 0;
const stale = [];
await mkdir(DIST, { recursive: true });
for (const [name, contents] of Object.entries(files)) {
  const packed = gzipSync(contents, { level: 9, mtime: 0 });
  packed[9] = 255; // gzip's operating system field: unknown
  total += packed.length;
  console.log(`${name.padEnd(14)} ${String(contents.length).padStart(8)} bytes, ${String(packed.length).padStart(7)} compressed`);
  const path = join(DIST, `${name}.gz`);
  if (!isVerifying) await writeFile(path, packed);
  else if (!Buffer.from(packed).equals(await readFile(path).catch(() => Buffer.alloc(0)))) stale.push(name);
}
const unknown = (await readdir(DIST)).filter((entry) => !(entry.replace(/\.gz$/, "") in files));
console.log(`${"all".padEnd(14)} ${String(total).padStart(24)} compressed, of at most ${MAX_BYTES}`);
if (total > MAX_BYTES) throw new Error("the page is too large");
if (unknown.length > 0) throw new Error(`dist/ has ${unknown.join(", ")}, which nothing makes`);
if (stale.length > 0) throw new Error(`dist/ has other bytes of ${stale.join(", ")} than its sources make: run \`npm ci && npm run build\` in page/, and commit dist/`);
