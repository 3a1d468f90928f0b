// For CopilotKit's pages whose `runtimeUrl` is threadway's: the agent that CopilotKit has made gets a `fetch` that survives lost
// connections, and the runs of others. No component is replaced or mounted again.

import { type RuntimeAgent, useAgent, useCopilotKit } from "@copilotkit/react-core/v2";
import { useCallback, useLayoutEffect, useRef, useState } from "react";
import type { Status, Token } from "./line.js";
import { Live } from "./live.js";
import type { Limits } from "./machine.js";

export interface LiveThread {
  /** The state of the connection. */
  status: Status;
  /** Whether a run is live that this page has not started. */
  isOthersRun: boolean;
  /** Why the thread's last run has failed. */
  failure: string | undefined;
  /** Connects again now, also after the limit of attempts. */
  reconnect: () => void;
}

export interface LiveThreadOptions {
  /** CopilotKit's agent; its default agent, if there is none. */
  agentId?: string | undefined;
  token?: Token | undefined;
  limits?: Partial<Limits> | undefined;
}

/** Keeps a thread of `CopilotChat`, or of another user of CopilotKit's agent, connected and up to date. */
export function useLiveThread(threadId: string, { agentId, token, limits }: LiveThreadOptions = {}): LiveThread {
  const { copilotkit } = useCopilotKit();
  const { agent, isReady } = useAgent({ agentId, updates: [] });
  const [thread, setThread] = useState<Omit<LiveThread, "reconnect">>({ status: { state: "idle" }, isOthersRun: false, failure: undefined });
  const options = useRef({ token, limits });
  options.current = { token, limits };
  const again = useRef(() => {});
  useLayoutEffect(() => {
    if (!isReady) return;
    const kept = keepLive(agent, threadId, {
      connect: () => copilotkit.connectAgent({ agent }),
      token: options.current.token && ((why) => options.current.token?.(why)),
      limits: options.current.limits,
      onChange: (change) => setThread((before) => ({ ...before, ...change })),
    });
    again.current = kept.reconnect;
    return kept.stop;
  }, [copilotkit, agent, isReady, threadId]);
  return { ...thread, reconnect: useCallback(() => again.current(), []) };
}

interface Keeping {
  connect: () => Promise<unknown>;
  token: Token | undefined;
  limits: Partial<Limits> | undefined;
  onChange: (change: Partial<LiveThread>) => void;
}

function keepLive(agent: RuntimeAgent, threadId: string, { connect, token, limits, onChange }: Keeping) {
  const plainFetch = agent.fetch;
  let followed: Response | undefined; // a run of others, until CopilotKit has connected to it
  let isStopped = false;
  const live = new Live({ fetch: plainFetch, token, limits, onStatus: (status) => onChange({ status }) });

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
    const { runtimeUrl, runtimeAgentId, agentId, headers, credentials } = agent;
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

  return {
    reconnect: () => {
      live.retryNow();
      if (!agent.isRunning && !live.isFollowing) void connect();
    },
    stop: () => {
      isStopped = true;
      clearTimeout(start);
      unsubscribe();
      void live.pause();
      if (agent.fetch === liveFetch) agent.fetch = plainFetch;
      onChange({ status: { state: "idle" }, isOthersRun: false, failure: undefined });
    },
  };
}

/** What CopilotKit requests: by the address, or by the body if there is a single route. */
function operationOf(url: string, { method, body }: RequestInit): "run" | "connect" | undefined {
  if (method !== "POST") return undefined;
  const path = new URL(url, globalThis.location?.href).pathname;
  const named = /\/agent\/[^/]+\/(run|connect)$/.exec(path) ?? /^\{"method":"agent\/(run|connect)"/.exec(String(body));
  return named?.[1] as "run" | "connect" | undefined;
}
