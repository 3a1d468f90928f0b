import { useEffect, useRef } from "react";
import { toolDefinition } from "@tanstack/ai/client";
import { fetchServerSentEvents, useChat } from "@tanstack/ai-react";
import { z } from "zod";
import { Questions } from "./Questions.jsx";
import "./style.css";

const GATEWAY = import.meta.env.VITE_THREADWAY_URL ?? "http://127.0.0.1:8484";

// The thread is in the page's address, so a reload shows it again and continues its run.
const threadId = new URLSearchParams(location.search).get("thread") ?? crypto.randomUUID();
history.replaceState(null, "", `?thread=${encodeURIComponent(threadId)}`);

// The thread is in this URL too, because a client that joins a run names only the run.
const connection = fetchServerSentEvents(`${GATEWAY}/agui/agent/agent/run?threadId=${encodeURIComponent(threadId)}`);

const paint = toolDefinition({
  name: "paint",
  description: "Paints the page.",
  inputSchema: z.object({ color: z.string() }),
}).client(({ color }) => {
  document.body.style.borderColor = color;
  return `The page is ${color} now.`;
});

/** The client runs tools by itself for servers alone that are written with TanStack AI. Here a run has ended that calls one. */
function useClientTool(tool, { messages, isLoading, addToolResult }) {
  const done = useRef(new Set());
  useEffect(() => {
    if (isLoading) return;
    const parts = messages.at(-1)?.parts ?? [];
    const results = parts.filter(({ type }) => type === "tool-result").map(({ toolCallId }) => toolCallId);
    for (const { type, id, name, arguments: input } of parts) {
      if (type !== "tool-call" || name !== tool.name || results.includes(id) || done.current.has(id)) continue;
      done.current.add(id);
      addToolResult({ toolCallId: id, tool: name, output: tool.execute(JSON.parse(input)) });
    }
  }, [messages, isLoading]);
}

export function App() {
  const chat = useChat({
    threadId,
    connection,
    persistence: true, // LangGraph keeps the thread: a page that is loaded asks for it
    tools: [paint],
  });
  const { messages, sendMessage, isLoading, stop, error, interrupts, resumeInterruptsUnsafe } = chat;
  useClientTool(paint, chat);
  const submit = (event) => {
    event.preventDefault();
    sendMessage(new FormData(event.target).get("words"));
    event.target.reset();
  };
  return (
    <>
      <main>
        <div>
          {messages.map((message) => (
            <article key={message.id} data-role={message.role}>
              {message.parts.map((part, at) => (
                <Part key={at} part={part} />
              ))}
            </article>
          ))}
          {interrupts.length > 0 && <Questions key={interrupts[0].id} interrupts={interrupts} resume={resumeInterruptsUnsafe} />}
          {error && <p role="alert">{error.message}</p>}
        </div>
      </main>
      <form className="composer" onSubmit={submit}>
        <input name="words" aria-label="Message" placeholder="weather, paint it teal, clean up, ask me, count, fail" autoComplete="off" required disabled={isLoading || interrupts.length > 0} />
        {isLoading ? <button type="button" onClick={stop}>Stop</button> : <button>Send</button>}
      </form>
    </>
  );
}

function Part({ part }) {
  if (part.type === "text") return <p>{part.content}</p>;
  if (part.type === "thinking") return <p className="thinking">{part.content}</p>;
  if (part.type === "tool-call") return <code>{`${part.name} ${part.arguments}`}</code>;
  if (part.type === "tool-result") return <code>{typeof part.content === "string" ? part.content : JSON.stringify(part.content)}</code>;
  return null;
}
