import { ExportedMessageRepository } from "@assistant-ui/react";
import { fromAgUiMessages } from "@assistant-ui/react-ag-ui";
import { ThreadwayAgent } from "threadway-client";

/**
 * LangGraph stores the thread. The gateway's `connect` answers with the thread as it is, and then with its live run to the
 * end. The messages before the last turn are loaded. The last turn is resumed if it is running or waits for answers.
 */
export function historyOf(agentUrl, threadId) {
  const agent = new ThreadwayAgent({ url: `${agentUrl}/run`, threadId });
  let status = { type: "running" };
  let metadata, wake;
  const known = Promise.withResolvers(); // whether the thread has a live run
  const changed = () => wake?.();

  const connect = () => {
    let isShown = false; // the thread as it is
    const onEvent = ({ event }) => {
      if (event.type === "RUN_ERROR") status = { type: "incomplete", reason: "error", error: event.message };
      if (event.type === "RUN_FINISHED") status = { type: "complete", reason: "unknown" };
      if (event.type === "RUN_FINISHED" && event.outcome?.type === "interrupt") {
        status = { type: "requires-action", reason: "interrupt" };
        metadata = { custom: { agui: { interrupts: event.outcome.interrupts } } };
      }
      if (isShown || status.type !== "running") known.resolve(status.type !== "complete");
      isShown ||= event.type === "MESSAGES_SNAPSHOT";
    };
    const over = agent.connectAgent({}, { onEvent, onMessagesChanged: changed });
    over.catch((error) => (status = { type: "incomplete", reason: "error", error: error.message })).finally(() => {
      known.resolve(status.type !== "complete");
      changed();
    });
  };

  const turn = () => agent.messages.findLastIndex(({ role }) => role === "user") + 1;
  const converted = (messages) => fromAgUiMessages(messages.filter(({ role }) => role !== "activity"));
  return {
    async load() {
      connect();
      const goesOn = await known.promise;
      const messages = goesOn ? agent.messages.slice(0, turn()) : agent.messages;
      return { ...ExportedMessageRepository.fromArray(converted(messages)), state: agent.state, unstable_resume: goesOn };
    },
    async *resume() {
      do {
        const next = new Promise((resolve) => (wake = resolve));
        yield { content: converted(agent.messages.slice(turn())).flatMap(({ content }) => content) };
        if (status.type === "running") await next;
      } while (status.type === "running");
      yield { content: converted(agent.messages.slice(turn())).flatMap(({ content }) => content), status, metadata };
    },
    async append() {}, // LangGraph has it already
  };
}
