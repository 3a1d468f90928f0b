// The directory for files that explain a failure: servers.py names it in LOGS.

import { pathToFileURL } from "node:url";

if (!process.env.LOGS) throw new Error("LOGS is not set: start this with integration/run");

export const LOGS = pathToFileURL(`${process.env.LOGS}/`);
