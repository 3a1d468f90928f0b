// What is used of CopilotKit, so that the build does not install it.

declare module "@copilotkit/react-core/v2" {
  import type { HttpAgent } from "@ag-ui/client";

  export function useAgent(props: { agentId?: string | undefined; updates: [] }): { agent: HttpAgent; isReady: boolean };
  export function useCopilotKit(): { copilotkit: { connectAgent(what: { agent: HttpAgent }): Promise<unknown> } };
}
