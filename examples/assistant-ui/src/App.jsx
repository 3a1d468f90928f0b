import { useMemo } from "react";
import { AssistantRuntimeProvider, ComposerPrimitive, ErrorPrimitive, MessagePrimitive, ThreadPrimitive, useAssistantTool } from "@assistant-ui/react";
import { useAgUiRuntime } from "@assistant-ui/react-ag-ui";
import { ThreadwayAgent } from "threadway-client";
import { z } from "zod";
import { historyOf } from "./history.js";
import { Questions } from "./Questions.jsx";
import "./style.css";

const AGENT = `${import.meta.env.VITE_THREADWAY_URL ?? "http://127.0.0.1:8484"}/agui/agent/agent`;

// The thread is in the page's address, so a reload shows it again and continues its run.
const threadId = new URLSearchParams(location.search).get("thread") ?? crypto.randomUUID();
history.replaceState(null, "", `?thread=${encodeURIComponent(threadId)}`);

export function App() {
  const agent = useMemo(() => new ThreadwayAgent({ url: `${AGENT}/run`, threadId }), []);
  const adapters = useMemo(() => ({ history: historyOf(AGENT, threadId) }), []);
  const runtime = useAgUiRuntime({ agent, adapters });
  return (
    <AssistantRuntimeProvider runtime={runtime}>
      <Paint />
      <ThreadPrimitive.Root className="thread">
        <ThreadPrimitive.Viewport className="viewport">
          <ThreadPrimitive.Messages components={{ UserMessage, AssistantMessage }} />
          <Questions />
        </ThreadPrimitive.Viewport>
        <ComposerPrimitive.Root className="composer">
          <ComposerPrimitive.Input aria-label="Message" placeholder="weather, paint it teal, clean up, ask me, count, fail" submitMode="enter" />
          <ComposerPrimitive.Send>Send</ComposerPrimitive.Send>
        </ComposerPrimitive.Root>
      </ThreadPrimitive.Root>
    </AssistantRuntimeProvider>
  );
}

/** A tool that the agent may call and that runs in the page. */
function Paint() {
  useAssistantTool({
    toolName: "paint",
    description: "Paints the page.",
    parameters: z.object({ color: z.string() }),
    execute: async ({ color }) => {
      document.body.style.borderColor = color;
      return `The page is ${color} now.`;
    },
  });
  return null;
}

const UserMessage = () => <Message role="user" />;
const AssistantMessage = () => <Message role="assistant" />;

function Message({ role }) {
  return (
    <MessagePrimitive.Root asChild>
      <article data-role={role}>
        <MessagePrimitive.Parts components={{ Text, tools: { Fallback: Tool } }} />
        <MessagePrimitive.Error>
          <ErrorPrimitive.Root role="alert">
            <ErrorPrimitive.Message />
          </ErrorPrimitive.Root>
        </MessagePrimitive.Error>
      </article>
    </MessagePrimitive.Root>
  );
}

const Text = ({ text }) => <p>{text}</p>;

function Tool({ toolName, argsText, result }) {
  return (
    <>
      <code>{`${toolName} ${argsText}`}</code>
      {result !== undefined && <code>{typeof result === "string" ? result : JSON.stringify(result)}</code>}
    </>
  );
}
