// What is used of CopilotKit, so that the build does not install it.

declare module "@copilotkit/react-core/v2" {
  import type { HttpAgent } from "@ag-ui/client";

  /** `ProxiedCopilotRuntimeAgent` */
  export interface RuntimeAgent extends HttpAgent {
    runtimeUrl?: string;
    runtimeAgentId?: string;
    credentials?: RequestCredentials;
  }
  export function useAgent(props: { agentId?: string | undefined; updates: [] }): { agent: RuntimeAgent; isReady: boolean };
  export function useCopilotKit(): { copilotkit: { connectAgent(what: { agent: RuntimeAgent }): Promise<unknown> } };
}
