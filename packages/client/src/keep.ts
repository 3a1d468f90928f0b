// What an agent of CopilotKit gets beside its own: a `fetch` that survives lost connections, and the runs of others. No
// component is replaced or mounted again.

import type { HttpAgent } from "@ag-ui/client";
import type { Status, Token } from "./line.js";
import { Live, operationOf } from "./live.js";
import type { Limits } from "./machine.js";

/** `ProxiedCopilotRuntimeAgent`, which CopilotKit makes for a `runtimeUrl`. */
interface RuntimeAgent extends HttpAgent {
  runtimeUrl?: string;
  runtimeAgentId?: string;
  credentials?: RequestCredentials;
}

export interface ThreadState {
  /** The state of the connection. */
  status: Status;
  /** Whether a run is live that this page has not started. */
  isOthersRun: boolean;
  /** Why the thread's last run has failed. */
  failure: string | undefined;
}

export interface Keeping {
  connect: () => Promise<unknown>;
  token: Token | undefined;
  limits: Partial<Limits> | undefined;
  onChange: (change: Partial<ThreadState>) => void;
}

/** Keeps the thread of an agent that CopilotKit has made. */
export function keepLive(agent: HttpAgent, threadId: string, { connect, token, limits, onChange }: Keeping) {
  const plainFetch = agent.fetch;
  let followed: Response | undefined; // a run of others, until CopilotKit has connected to it
  let isStopped = false;
  const live = new Live({ fetch: plainFetch, token, limits, onStatus: (status) => onChange({ status }), onReturn: () => reconnect() });

  const liveFetch: typeof plainFetch = async (url, init) => {
    const operation = operationOf(url, init);
    if (operation === "connect" && followed) {
      const response = followed;
      followed = undefined;
      return response;
    }
    return operation ? live.fetch(url, init) : plainFetch(url, init);
  };
  agent.fetch = liveFetch;

  const follow = () => {
    if (isStopped || agent.isRunning || agent.threadId !== threadId) return;
    const { runtimeUrl, runtimeAgentId, agentId, headers, credentials } = agent as RuntimeAgent;
    const url = `${runtimeUrl}/agent/${encodeURIComponent(runtimeAgentId ?? agentId ?? "")}/threads/${encodeURIComponent(threadId)}/events?follow=thread`;
    const init = { headers: { ...headers, accept: "text/event-stream" }, ...(credentials && { credentials }) };
    live.follow(url, init, async ({ started, response }) => {
      followed = response;
      onChange({ isOthersRun: started.metadata?.langgraph?.run_id !== undefined }); // the thread as it is has none
      agent.pendingInterrupts = []; // with open questions the client would refuse to connect; the thread brings them back
      await connect();
      followed = undefined;
      onChange({ isOthersRun: false });
    });
  };

  let isOwn = false;
  const { unsubscribe } = agent.subscribe({
    onRunInitialized: async () => {
      isOwn = followed === undefined;
      if (isOwn) await live.pause();
    },
    onRunStartedEvent: () => onChange({ failure: undefined }),
    onRunErrorEvent: ({ event }) => onChange({ failure: event.message }),
    onRunFinishedEvent: ({ event }) => {
      const failure = (event as { metadata?: { langgraph?: { error?: { message: string } } } }).metadata?.langgraph?.error;
      if (failure) onChange({ failure: failure.message });
    },
    onRunFinalized: () => {
      if (isOwn) follow();
    },
  });
  // `CopilotChat` connects by itself, and a page without it does not.
  const start = setTimeout(follow);

  const reconnect = () => {
    live.retryNow();
    if (!isStopped && !agent.isRunning && !live.isFollowing) void connect();
  };

  return {
    reconnect,
    stop: () => {
      isStopped = true;
      clearTimeout(start);
      unsubscribe();
      void live.pause();
      if (agent.fetch === liveFetch) agent.fetch = plainFetch;
      agent.pendingInterrupts = []; // those of this thread
      onChange({ status: { state: "idle" }, isOthersRun: false, failure: undefined });
    },
  };
}
