// The page: what a person sees of a gateway. Its parts know one another only through `app.js`.

import "./zod.js"; // before all else
import { render } from "preact";
import { applyTheme } from "./theme.js";
import { App } from "./App.jsx";

applyTheme();
render(<App />, document.getElementById("app"));
