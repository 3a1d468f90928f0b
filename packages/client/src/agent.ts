import { HttpAgent, type HttpAgentConfig } from "@ag-ui/client";
import { authorize, type Status, type Token } from "./line.js";
import { type FollowedRun, Live } from "./live.js";
import type { Limits } from "./machine.js";

type Message = HttpAgent["messages"][number];
type RunInput = Parameters<HttpAgent["run"]>[0];
type Events = ReturnType<HttpAgent["run"]>;
type RunParameters = Parameters<HttpAgent["runAgent"]>[0];
type Subscriber = Parameters<HttpAgent["runAgent"]>[1];
type Result = ReturnType<HttpAgent["runAgent"]>;

export interface ThreadwayAgentConfig extends HttpAgentConfig {
  /** The agent's `run` route: `https://HOST/agui/agent/NAME/run`. */
  url: string;
  token?: Token | undefined;
  /** Whether `abortRun()` also stops the run in LangGraph. Without it, `abortRun()` only stops to read. */
  stopOnAbort?: boolean | undefined;
  limits?: Partial<Limits> | undefined;
}

/** The official client of one thread, over lost connections, and for the runs of others. */
export class ThreadwayAgent extends HttpAgent {
  private config!: ThreadwayAgentConfig;
  private live!: Live;
  private listeners!: Set<(status: Status) => void>;
  private segment: Response | undefined;
  private follows: { threadId: string } | undefined;
  private own = 0;
  private statusNow!: Status;
  /** Added by the page since its last run. A run of others that is under way does not know them, and would drop them. */
  private unsent: Message[] = [];

  constructor(config: ThreadwayAgentConfig) {
    super(config);
    this.setUp(config);
  }

  /** The state of the connection. */
  get status(): Status {
    return this.statusNow;
  }

  /** Calls `listener` with each new status. Returns how to stop. */
  onStatus(listener: (status: Status) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  override addMessage(message: Message) {
    this.unsent.push(message);
    super.addMessage(message);
  }

  override addMessages(messages: Message[]) {
    this.unsent.push(...messages);
    super.addMessages(messages);
  }

  override setMessages(messages: Message[]) {
    this.unsent = [];
    super.setMessages(messages);
  }

  override runAgent(parameters?: RunParameters, subscriber?: Subscriber): Result {
    return this.alone(parameters, (controlled) => {
      this.messages.push(...this.unsent.filter(({ id }) => !this.messages.some((message) => message.id === id)));
      this.unsent = [];
      return super.runAgent(controlled, subscriber);
    });
  }

  /** Gets the thread as it is, and then its live run, if it has one, to the end. */
  override connectAgent(parameters?: RunParameters, subscriber?: Subscriber): Result {
    return this.alone(parameters, (controlled) => this.connectOnce(controlled, subscriber));
  }

  /**
   * Gets the thread, and each run that it has from now on, whoever starts it, as a run of this agent. Between the runs that
   * the agent starts itself, one connection stays open. Returns how to stop.
   */
  follow(): () => void {
    const follows = { threadId: this.threadId };
    this.follows = follows;
    void this.live.pause().then(() => {
      if (this.follows === follows && this.own === 0) this.resume();
    });
    return () => {
      if (this.follows !== follows) return;
      this.follows = undefined;
      void this.live.pause();
    };
  }

  /** Connects again now, also after the limit of attempts. */
  reconnect() {
    this.live.retryNow();
    if (this.own === 0) this.resume();
  }

  /** Stops the thread's live run in LangGraph, whoever has started it; its end then arrives. Resolves with whether there was one. */
  async stop(): Promise<boolean> {
    const send = async (isRefused: boolean) => {
      const headers = new Headers({ ...this.headers, "content-type": "application/json" });
      await authorize(headers, this.config.token, isRefused);
      return this.plainFetch(`${this.base}/stop/${encodeURIComponent(this.threadId)}`, { method: "POST", headers, body: "{}" });
    };
    let response = await send(false);
    if (response.status === 401 && this.config.token) response = await send(true);
    if (!response.ok) throw new Error(`The run was not stopped: HTTP ${response.status}: ${await response.text()}`);
    return ((await response.json()) as { stopped?: boolean }).stopped === true;
  }

  /** Stops to read. With `stop`, which is `stopOnAbort` by default, the run is stopped in LangGraph too. */
  override abortRun({ stop = this.config.stopOnAbort }: { stop?: boolean | undefined } = {}) {
    if (stop) this.stop().catch((error) => console.warn(error));
    super.abortRun();
  }

  override clone(): ThreadwayAgent {
    const cloned = super.clone() as ThreadwayAgent;
    cloned.setUp(this.config);
    return cloned;
  }

  protected override connect(input: RunInput): Events {
    const { segment } = this;
    this.segment = undefined;
    const other = { url: { value: `${this.base}/connect` }, ...(segment && { fetch: { value: async () => segment } }) };
    // The same agent, with another address: `requestInit` may be overridden.
    return super.run.call(Object.create(this, other), input);
  }

  // A clone has no constructor's fields.
  private setUp(config: ThreadwayAgentConfig) {
    this.config = config;
    this.listeners = new Set();
    this.statusNow = { state: "idle" };
    this.own = 0;
    this.unsent = [];
    this.follows = undefined;
    this.live = new Live({
      fetch: (url, init) => this.plainFetch(url, init),
      token: config.token,
      limits: config.limits,
      onStatus: (status) => {
        this.statusNow = status;
        for (const listener of this.listeners) listener(status);
      },
      onReturn: () => this.reconnect(),
    });
    this.fetch = this.live.fetch;
  }

  private get base(): string {
    return this.url.replace(/\/run\/?(\?.*)?$/, "");
  }

  private plainFetch(url: string, init: RequestInit): Promise<Response> {
    return (this.config.fetch ?? fetch)(url, init);
  }

  /** The agent's own request, while the thread is not followed. It can be aborted before it is sent. */
  private async alone(parameters: RunParameters, work: (controlled: RunParameters) => Result): Result {
    this.own += 1;
    this.abortController = parameters?.abortController ?? new AbortController();
    const controlled = { ...parameters, abortController: this.abortController };
    try {
      await this.live.pause();
      await this.detachActiveRun();
      return await work(controlled);
    } finally {
      this.own -= 1;
      if (this.own === 0) this.resume();
    }
  }

  private connectOnce(parameters?: RunParameters, subscriber?: Subscriber): Result {
    this.pendingInterrupts = []; // with open questions the client would refuse to connect; the thread brings them back
    this.abortController = parameters?.abortController ?? new AbortController();
    return super.connectAgent(parameters, subscriber);
  }

  private resume() {
    if (!this.follows) return;
    if (this.follows.threadId !== this.threadId) this.live.forget();
    this.follows.threadId = this.threadId;
    const url = `${this.base}/threads/${encodeURIComponent(this.threadId)}/events?follow=thread`;
    this.live.follow(url, { headers: { ...this.headers, accept: "text/event-stream" } }, (run) => this.show(run));
  }

  private async show({ response }: FollowedRun) {
    this.segment = response;
    // A failed run has told the subscribers.
    await this.connectOnce().catch(() => {});
  }
}
