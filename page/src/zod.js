// Otherwise the official client's schemas would test whether they may compile code at run time. The page's policy forbids
// that, and the browser would report it.

import { config } from "zod/v4/core";

config({ jitless: true });
