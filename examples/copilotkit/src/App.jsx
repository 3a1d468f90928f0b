import { useEffect, useState } from "react";
import { CopilotChat, CopilotKitProvider, useAgentContext, useDefaultRenderTool, useFrontendTool } from "@copilotkit/react-core/v2";
import "@copilotkit/react-core/v2/styles.css";
import { z } from "zod";
import { Questions } from "./Questions.jsx";
import { Threads } from "./Threads.jsx";
import "./style.css";

const GATEWAY = import.meta.env.VITE_THREADWAY_URL ?? "http://127.0.0.1:8484";
const AGENT = "agent";

/** The thread is in the page's address, so a reload shows it again and continues its run. */
function useThreadInAddress() {
  const [threadId, setThreadId] = useState(() => new URLSearchParams(location.search).get("thread") ?? crypto.randomUUID());
  useEffect(() => history.replaceState(null, "", `?thread=${encodeURIComponent(threadId)}`), [threadId]);
  return [threadId, setThreadId];
}

export function App() {
  const [threadId, openThread] = useThreadInAddress();
  const [failure, setFailure] = useState(null);
  return (
    // CopilotChat does not show a failed run, so `onError` does. The inspector would send requests to CopilotKit's own
    // servers.
    <CopilotKitProvider runtimeUrl={`${GATEWAY}/agui`} agentId={AGENT} onError={({ error }) => setFailure(error.message)} enableInspector={false}>
      <Threads agentId={AGENT} threadId={threadId} open={openThread} />
      <main>
        {failure && (
          <p role="alert">
            {failure} <button onClick={() => setFailure(null)}>Close</button>
          </p>
        )}
        <Abilities />
        <CopilotChat threadId={threadId} />
      </main>
    </CopilotKitProvider>
  );
}

/** The tools and the context that the page gives the agent, and the UI for its questions. */
function Abilities() {
  const [color, setColor] = useState("white");
  useAgentContext({ description: "The colour of the page", value: color });
  useFrontendTool({
    name: "paint",
    description: "Paints the page.",
    parameters: z.object({ color: z.string() }),
    handler: async ({ color }) => {
      setColor(color);
      return `The page is ${color} now.`;
    },
  });
  useDefaultRenderTool();
  return (
    <>
      <style>{`main { border-top: 1rem solid ${color} }`}</style>
      <Questions />
    </>
  );
}
