// The official client's schemas would otherwise try whether they may make code at run time, which the page's policy forbids
// and the browser reports.

import { config } from "zod/v4/core";

config({ jitless: true });
