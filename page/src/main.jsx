// The entry point of the page.

import "./zod.js"; // before all else
import { render } from "preact";
import { applyTheme } from "./theme.js";
import { App } from "./App.jsx";

applyTheme();
render(<App />, document.getElementById("app"));
