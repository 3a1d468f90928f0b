import { useEffect } from "react";
import { useAgent, useCopilotKit, useThreads } from "@copilotkit/react-core/v2";

/** The person's threads, where the gateway lists them: it says so in `/agui/info`. */
export function Threads({ agentId, threadId, open }) {
  const { copilotkit } = useCopilotKit();
  const isListed = copilotkit.threadEndpoints?.list === true;
  const { threads, refetchThreads, renameThread, deleteThread } = useThreads({ agentId, enabled: isListed });
  const { agent } = useAgent({ agentId });
  useEffect(() => {
    if (isListed && !agent.isRunning) refetchThreads();
  }, [isListed, agent.isRunning]);

  const rename = ({ id, name }) => {
    const renamed = prompt("Name", name ?? "");
    if (renamed) renameThread(id, renamed);
  };
  return (
    <nav>
      <button onClick={() => open(crypto.randomUUID())}>New chat</button>
      <ul>
        {threads.map((thread) => (
          <li key={thread.id} aria-current={thread.id === threadId}>
            <button onClick={() => open(thread.id)}>{thread.name ?? new Date(thread.updatedAt).toLocaleString()}</button>
            <button onClick={() => rename(thread)} aria-label="Rename">✎</button>
            <button onClick={() => deleteThread(thread.id)} aria-label="Delete">✕</button>
          </li>
        ))}
      </ul>
    </nav>
  );
}
