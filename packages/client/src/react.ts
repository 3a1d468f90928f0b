// For CopilotKit's pages whose `runtimeUrl` is threadway's.

import { useAgent, useCopilotKit } from "@copilotkit/react-core/v2";
import { useCallback, useLayoutEffect, useRef, useState } from "react";
import { keepLive, type ThreadState } from "./keep.js";
import type { Token } from "./line.js";
import type { Limits } from "./machine.js";

export type { Status, Token } from "./line.js";
export type { Limits } from "./machine.js";
export type { ThreadState } from "./keep.js";

export interface LiveThread extends ThreadState {
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
  const [thread, setThread] = useState<ThreadState>({ status: { state: "idle" }, isOthersRun: false, failure: undefined });
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
