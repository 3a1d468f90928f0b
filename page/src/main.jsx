// The entry point of the page.

import "./zod.js"; // must be the first import
import { render } from "preact";
import { applyTheme } from "./theme.js";
import { App } from "./App.jsx";

applyTheme();
render(<App />, document.getElementById("app"));
