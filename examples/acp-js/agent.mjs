// An agent for editors: it works on the files of the session's directory, and obeys the session's mode.

import { readFile, readdir, rm, writeFile } from "node:fs/promises";
import { relative, resolve } from "node:path";
import { createAgent, humanInTheLoopMiddleware, initChatModel, tool } from "langchain";
import * as z from "zod";

import { clientSide } from "./client_side.mjs";
import { modes } from "./modes.mjs";
import { ScriptedModel } from "./scripted.mjs";

// With MODEL=openai:gpt-5-mini the agent uses a real model. Without MODEL it follows a script and needs no key.
export const model = process.env.MODEL ? await initChatModel(process.env.MODEL) : new ScriptedModel();

/** The path, which must be in the directory that the editor has opened. */
function inside(path, { metadata }) {
  const found = resolve(metadata.cwd, path);
  if (/^\.\.(\/|$)/.test(relative(metadata.cwd, found))) throw new Error(`${path} is outside of ${metadata.cwd}`);
  return found;
}

const path = z.string();
const tools = [
  tool(async ({ path }, config) => (await readdir(inside(path, config))).sort().join("\n"), {
    name: "list_files",
    description: "List the files of a directory.",
    schema: z.object({ path }),
  }),
  tool(({ path }, config) => readFile(inside(path, config), "utf8"), {
    name: "read_file",
    description: "Read a text file.",
    schema: z.object({ path }),
  }),
  tool(
    async ({ path, content }, config) => {
      await writeFile(inside(path, config), content);
      return `Wrote ${path}`;
    },
    { name: "write_file", description: "Write a text file.", schema: z.object({ path, content: z.string() }) },
  ),
  tool(
    async ({ path }, config) => {
      await rm(inside(path, config));
      return `Deleted ${path}`;
    },
    { name: "delete_file", description: "Delete a file.", schema: z.object({ path }) },
  ),
];

export const agent = createAgent({
  model,
  tools,
  systemPrompt: "You work on the files of the person's editor.",
  middleware: [
    clientSide,
    modes,
    // The graph asks about every tool, and the modes' permissions answer where no person has to.
    humanInTheLoopMiddleware({ interruptOn: Object.fromEntries(tools.map(({ name }) => [name, true])) }),
  ],
});
