// Where the tests write what explains a failure: the directory that servers.py names in LOGS.

import { pathToFileURL } from "node:url";

if (!process.env.LOGS) throw new Error("LOGS is not set: start this with integration/run");

export const LOGS = pathToFileURL(`${process.env.LOGS}/`);
