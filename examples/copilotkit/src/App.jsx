import { useEffect, useState } from "react";
import { CopilotKitProvider, useAgentContext, useDefaultRenderTool, useFrontendTool } from "@copilotkit/react-core/v2";
import "@copilotkit/react-core/v2/styles.css";
import { z } from "zod";
import { Threads } from "./Threads.jsx";
import { ThreadwayChat } from "./ThreadwayChat.jsx";
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
  return (
    // The inspector would send requests to CopilotKit's own servers.
    <CopilotKitProvider runtimeUrl={`${GATEWAY}/agui`} agentId={AGENT} enableInspector={false}>
      <Threads agentId={AGENT} threadId={threadId} open={openThread} />
      <Page>
        <ThreadwayChat agentId={AGENT} threadId={threadId} />
      </Page>
    </CopilotKitProvider>
  );
}

/** Gives the agent a tool of the page, and context. */
function Page({ children }) {
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
  return <main style={{ borderTop: `1rem solid ${color}` }}>{children}</main>;
}
