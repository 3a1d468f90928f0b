// A page that shows the threads of an agent with CopilotKit's own hook. threads.test.mjs bundles it.

import { CopilotKitContext, CopilotKitCoreReact } from "@copilotkit/react-core/v2/context";
import { useThreads } from "@copilotkit/react-core/v2/headless";
import { createElement } from "react";
import { createRoot } from "react-dom/client";

function Threads({ agentId, limit, includeArchived }) {
  globalThis.shown = useThreads({ agentId, limit, includeArchived });
  const { threads, error } = globalThis.shown;
  const row = ({ id, name, archived }) => createElement("li", { key: id, id }, `${name ?? "unnamed"}${archived ? " (archived)" : ""}`);
  return createElement("ul", { title: error?.message }, threads.map(row));
}

/** Shows the threads of a runtime; `shown` is the last return value of `useThreads`. */
globalThis.show = ({ runtimeUrl, runtimeTransport, headers, ...input }) => {
  const copilotkit = new CopilotKitCoreReact({ runtimeUrl, runtimeTransport, headers });
  const value = { copilotkit, executingToolCallIds: new Set() };
  const root = createRoot(document.getElementById("root"));
  root.render(createElement(CopilotKitContext.Provider, { value }, createElement(Threads, input)));
};
