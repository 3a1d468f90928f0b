// CopilotKit's chat for threads on threadway. `CopilotChat` alone ends with a lost connection, shows only the runs of its own
// page, and shows neither the agent's questions nor why a run has failed. Copy this file into your app.
import { useEffect, useState } from "react";
import { CopilotChat, useAgent, useCopilotKit, useInterrupt } from "@copilotkit/react-core/v2";
import { useLiveThread } from "threadway-client/react";

/** Belongs inside a `CopilotKitProvider` whose `runtimeUrl` is threadway's. Further props are passed to `CopilotChat`. */
export function ThreadwayChat({ agentId, threadId, ...props }) {
  const thread = useLiveThread(threadId, { agentId });
  const unsent = useUnsent(agentId);
  useInterrupt({ agentId, render: ({ interrupts, resolve }) => <Questions interrupts={interrupts} resolve={resolve} /> });
  return (
    <>
      <style>{STYLE}</style>
      <Notice {...thread} unsent={unsent} />
      <CopilotChat agentId={agentId} threadId={threadId} {...props} />
    </>
  );
}

/** What a person must know of the connection and of the thread. */
function Notice({ status, failure, reconnect, unsent }) {
  if (status.state === "reconnecting") return <Line role="status">The connection was lost. Connecting again ..</Line>;
  if (status.state === "failed") {
    return (
      <Line role="alert">
        {status.error.message} <button onClick={reconnect}>Try again</button>
      </Line>
    );
  }
  if (unsent) return <Line role="alert">The agent waits for answers. This message was not sent: {unsent}</Line>;
  return failure && <Line role="alert">Failed: {failure}</Line>;
}

const Line = (props) => <p className="threadway-notice" {...props} />;

/** CopilotKit shows a message while questions are open, and does not send it: it is taken out of the chat, and returned. */
function useUnsent(agentId) {
  const { copilotkit } = useCopilotKit();
  const { agent } = useAgent({ agentId, updates: [] });
  const [unsent, setUnsent] = useState("");
  useEffect(() => {
    const errors = copilotkit.subscribe({
      onError: ({ error }) => {
        if (!/pending interrupt/.test(error.message)) return;
        const from = agent.messages.findLastIndex(({ role }) => role !== "user") + 1;
        setUnsent(agent.messages.slice(from).map(({ content }) => JSON.stringify(content)).join(", "));
        agent.setMessages(agent.messages.slice(0, from));
      },
    });
    const runs = agent.subscribe({ onRunStartedEvent: () => setUnsent("") });
    return () => [errors, runs].forEach((subscription) => subscription.unsubscribe());
  }, [copilotkit, agent]);
  return unsent;
}

/** Several questions may be open at once. Each is answered by its id; the run continues when all are answered. */
function Questions({ interrupts, resolve }) {
  return interrupts.map((interrupt) => <Question key={interrupt.id} interrupt={interrupt} answer={(payload) => resolve(payload, interrupt.id)} />);
}

function Question({ interrupt, answer }) {
  const [isAnswered, setIsAnswered] = useState(false);
  const { action } = interrupt.metadata?.langgraph ?? {};
  const Form = action ? Approval : Text;
  return (
    <fieldset className="threadway-question" disabled={isAnswered}>
      <legend>{action ?? "Question"}</legend>
      <Form
        interrupt={interrupt}
        answer={(payload) => {
          setIsAnswered(true);
          answer(payload);
        }}
      />
    </fieldset>
  );
}

/** A tool that waits for approval. */
function Approval({ interrupt, answer }) {
  const { args, allowed_decisions: allowed } = interrupt.metadata.langgraph;
  const [text, setText] = useState(JSON.stringify(args, null, 2));
  const edit = () => {
    try {
      answer({ approved: true, editedArgs: JSON.parse(text) });
    } catch (error) {
      alert(error.message);
    }
  };
  return (
    <>
      <textarea value={text} onChange={({ target }) => setText(target.value)} readOnly={!allowed.includes("edit")} rows={text.split("\n").length} />
      {allowed.includes("approve") && <button onClick={() => answer({ approved: true })}>Approve</button>}
      {allowed.includes("edit") && <button onClick={edit}>Approve as edited</button>}
      {allowed.includes("reject") && <button onClick={() => answer({ approved: false, reason: "I would rather not." })}>Reject</button>}
    </>
  );
}

/** A question of `interrupt("..")`: its answer is any text. */
function Text({ interrupt, answer }) {
  const submit = (event) => {
    event.preventDefault();
    answer(new FormData(event.target).get("answer"));
  };
  return (
    <form onSubmit={submit}>
      <label>
        {interrupt.message} <input name="answer" required />
      </label>
      <button>Answer</button>
    </form>
  );
}

const STYLE = `
  .threadway-notice { margin: 0; padding: .5rem 1rem; background: #8882 }
  .threadway-notice button { padding: .25rem .75rem; border: 1px solid #8886; border-radius: .5rem }
  .threadway-notice[role=alert] { background: #c002 }
  .threadway-question { margin: .5rem 0; padding: .75rem 1rem; border: 1px solid #8886; border-radius: .75rem }
  .threadway-question:disabled { opacity: .5 }
  .threadway-question textarea { width: 100%; border: 1px solid #8883; font: 14px/1.5 ui-monospace, monospace }
  .threadway-question button, .threadway-question input { margin: .25rem; padding: .25rem .75rem; border: 1px solid #8886; border-radius: .5rem }
`;
