// CopilotKit's chat for threads on threadway. `CopilotChat` alone ends with a lost connection, shows only the runs of its own
// page, and shows neither the agent's questions nor why a run has failed. Copy this file into your app.
import { useEffect, useState } from "react";
import { CopilotChat, useAgent, useCopilotKit, useInterrupt } from "@copilotkit/react-core/v2";

/** Belongs inside a `CopilotKitProvider` whose `runtimeUrl` is threadway's. Further props are passed to `CopilotChat`. */
export function ThreadwayChat({ agentId, threadId, ...props }) {
  const { copilotkit } = useCopilotKit();
  const { agent } = useAgent({ agentId, updates: [] });
  const [notice, setNotice] = useState(null);
  useInterrupt({ agentId, render: ({ interrupts, resolve }) => <Questions interrupts={interrupts} resolve={resolve} /> });
  useEffect(() => keepUp(copilotkit, agent, threadId, setNotice), [copilotkit, agent, threadId]);
  return (
    <>
      <style>{STYLE}</style>
      {notice && <p className="threadway-notice" {...notice} />}
      <CopilotChat agentId={agentId} threadId={threadId} {...props} />
    </>
  );
}

const LONGEST_PAUSE_MS = 30_000;
const MOST_TRIES = 10; // in about three minutes

/** Shows the thread again after a lost connection, and when a run begins that the chat does not show. Returns how to stop. */
function keepUp(copilotkit, agent, threadId, setNotice) {
  let shown; // the newest run that the chat has shown, by LangGraph's id: a client's id may name several runs
  let missed; // a newer one
  let doubtful = []; // messages that may have been lost with the connection
  let tries = 0;
  let timer;

  const warn = (text) => setNotice({ role: "alert", children: text });
  const failed = ({ message }) => warn(`Failed: ${message}`);
  const notSent = (messages) => `This message was not sent: ${messages.map(({ content }) => JSON.stringify(content)).join(", ")}`;

  const missing = (messages) => doubtful.filter(({ id }) => !messages.some((message) => message.id === id));

  /** Removes the messages that have no answer yet, and returns them. */
  const takeBack = () => {
    const from = agent.messages.findLastIndex(({ role }) => role !== "user") + 1;
    const taken = agent.messages.slice(from);
    if (taken.length) agent.setMessages(agent.messages.slice(0, from));
    return taken;
  };

  // `CopilotChat` does the same when it is mounted. A remount by another `key` would lose the message that is being written.
  const connect = () => {
    clearTimeout(timer);
    timer = undefined;
    if (agent.isRunning) return; // `onRunFinalized` follows
    missed = undefined;
    doubtful = takeBack(); // the thread brings back those that have arrived
    agent.pendingInterrupts = []; // with open questions the client would refuse to connect; the thread brings them back too
    copilotkit.connectAgent({ agent });
  };
  const catchUp = () => missed && connect();

  const errors = copilotkit.subscribe({
    onError: ({ error, context }) => {
      if (context.agentId !== agent.agentId) return;
      if (/pending interrupt/.test(error.message)) return warn(`The agent waits for answers. ${notSent(takeBack())}`);
      if (!isLostConnection(error, context.runtimeErrorCode ?? error.payload?.error)) return failed(error);
      if (timer) return; // CopilotKit reports one lost connection twice
      agent.setMessages([...agent.messages, ...missing(agent.messages)]);
      // CopilotKit requests the list of agents once. Without it the chat has no agent that could connect.
      if (tries === MOST_TRIES || !copilotkit.getAgent(agent.agentId)) return warn("The agent cannot be reached. Reload the page to try again.");
      setNotice({ role: "status", children: "The connection was lost. Connecting again .." });
      timer = setTimeout(connect, Math.min(1000 * 2 ** tries++, LONGEST_PAUSE_MS));
    },
  });

  const runs = agent.subscribe({
    onRunStartedEvent: ({ event }) => {
      const id = event.metadata?.langgraph?.run_id;
      shown = id ?? shown;
      if (missed === id) missed = undefined;
      setNotice(null);
    },
    onRunFinishedEvent: ({ event, messages }) => {
      tries = 0;
      if (missing(messages).length) warn(notSent(missing(messages)));
      doubtful = [];
      const failure = event.metadata?.langgraph?.error; // of a run that was over when the chat connected
      if (failure) failed(failure);
    },
    onRunFinalized: catchUp,
  });

  const thread = `${copilotkit.runtimeUrl}/agent/${encodeURIComponent(agent.agentId)}/threads/${encodeURIComponent(threadId)}`;
  let source, opening;
  let isFirst = true;
  const follow = () => {
    source = new EventSource(`${thread}/events?follow=thread`);
    source.onmessage = ({ data }) => {
      const { type, runId, metadata } = JSON.parse(data);
      if (type !== "RUN_STARTED") return;
      const id = metadata.langgraph.run_id ?? (isFirst ? shown : runId); // without a run: the thread has changed, or is there
      isFirst = false;
      if (id === shown) return;
      missed = id;
      catchUp();
    };
    // The browser connects again by itself, but not after a proxy's 502. An `EventSource` sends no headers: if threadway has
    // always refused it, its key is missing, and runs of others appear after a reload only.
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED && !isFirst) opening = setTimeout(follow, LONGEST_PAUSE_MS);
    };
  };
  follow();

  return () => {
    clearTimeout(timer);
    clearTimeout(opening);
    errors.unsubscribe();
    runs.unsubscribe();
    source.close();
    agent.pendingInterrupts = []; // those of this thread
    setNotice(null);
  };
}

// Browsers have no code for a lost connection: these are the messages of Chromium, Firefox and Safari.
const LOST_MESSAGES = /^(network error|Failed to fetch|NetworkError|Error in (input|body) stream|Load failed|The network connection was lost)/;
// Of docs/errors.md: the run goes on in LangGraph, or LangGraph is away for a while.
const LOST_CODES = ["gateway_shutdown", "reader_too_slow", "upstream_interrupted", "upstream_timeout", "upstream_unavailable", "upstream_unreachable"];
// A proxy's, with no gateway behind it.
const LOST_STATUSES = [502, 503, 504];

/** Any other error would come again and again, so it is shown. */
function isLostConnection({ message, status }, code) {
  return code ? LOST_CODES.includes(code) : LOST_MESSAGES.test(message) || LOST_STATUSES.includes(status);
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
  .threadway-notice[role=alert] { background: #c002 }
  .threadway-question { margin: .5rem 0; padding: .75rem 1rem; border: 1px solid #8886; border-radius: .75rem }
  .threadway-question:disabled { opacity: .5 }
  .threadway-question textarea { width: 100%; border: 1px solid #8883; font: 14px/1.5 ui-monospace, monospace }
  .threadway-question button, .threadway-question input { margin: .25rem; padding: .25rem .75rem; border: 1px solid #8886; border-radius: .5rem }
`;
