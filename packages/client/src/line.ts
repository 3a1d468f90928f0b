// The line to the gateway: makes and reads the connections that `machine.ts` decides on.

import { type Frame, Run, split } from "./frames.js";
import { type Input, type Limits, newLink, next, type Step } from "./machine.js";

/** The state of a line, to show to a person. */
export type Status =
  | { state: "idle" }
  | { state: "connecting" }
  | { state: "open" }
  /** `attempt` counts the failures in a row. While the machine is offline, the line waits. */
  | { state: "reconnecting"; attempt: number; reason: string; isOffline: boolean }
  | { state: "failed"; error: Error };

export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

/**
 * Returns the bearer token of a request. `isRefused` asks for a new one: the gateway has answered 401 to the last. Called for
 * each request, so keep a token that is still valid.
 */
export type Token = (why: { isRefused: boolean }) => string | undefined | Promise<string | undefined>;

export interface LineOptions {
  limits: Limits;
  fetch: Fetch;
  url: string;
  init: RequestInit;
  token?: Token | undefined;
  /** Whether the line ends with the run. Otherwise it follows the thread. */
  endsWithRun: boolean;
  /** Whether the request starts a run of its `runId`, so that two of them would start two. */
  startsRun?: boolean;
  lastId?: string;
  onStatus: (status: Status) => void;
}

/** The gateway could not be reached so often that the line gave up. The run may go on. */
export class ConnectionLostError extends Error {
  override name = "ConnectionLostError";

  constructor(
    /** Connections that failed in a row. */
    readonly attempts: number,
    reason: string,
  ) {
    super(`The connection was lost, and ${attempts} attempts to connect again have failed: ${reason}. The run may go on: connect again later.`);
  }
}

/** A refusal that the next request would get too. It has the members of the error that `HttpAgent` throws. */
export class RefusedError extends Error {
  override name = "RefusedError";

  constructor(
    readonly status: number,
    readonly payload: unknown,
  ) {
    super(`HTTP ${status}: ${typeof payload === "string" ? payload : JSON.stringify(payload)}`);
  }
}

/** Names no event: with it, the gateway looks for the run that an earlier request of the same `runId` has started. */
const NO_EVENT = "0.0";

/** A browser sends a POST again by itself, if a connection that it has used before ends without an answer. */
const resends = () => globalThis.navigator?.onLine !== undefined;

export class Line {
  link;
  private connection = new AbortController();
  private hasAsked = false;
  private isClosed = false;
  private isOver = false;
  private readAt = 0;
  private reason = "";
  private endPause = () => {};

  constructor(private readonly options: LineOptions) {
    this.link = newLink(options.lastId);
    const { signal } = options.init;
    if (signal?.aborted) this.close();
    else signal?.addEventListener("abort", () => this.close(), { once: true });
  }

  /** Ends the line. What has arrived is still delivered. */
  close() {
    this.isClosed = true;
    this.retryNow();
    if (!this.isOver) this.connection.abort();
  }

  /** Ends the line because its reader has left: what it has is unknown. */
  forget() {
    this.link = newLink();
    this.close();
  }

  /** Ends the pause before the next attempt. */
  retryNow() {
    this.endPause();
  }

  /** Connects; null if there is nothing to read. Throws what ends the line. */
  async open(step: Step = { do: "request", afterMs: 0, renew: false }): Promise<Response | null> {
    for (;;) {
      if (this.isClosed) return this.leave();
      if (step.do !== "request") throw new ConnectionLostError(this.options.limits.attempts, this.reason);
      if (step.afterMs > 0) {
        this.options.onStatus({ state: "reconnecting", attempt: this.link.failures, reason: this.reason, isOffline: step.afterMs === Infinity });
        if (!this.isClosed) await this.pause(step.afterMs);
        if (this.isClosed) continue;
      }
      let response: Response;
      try {
        response = await this.request(step.renew);
      } catch (error) {
        step = this.lost(error, 0);
        continue;
      }
      const { status, headers } = response;
      const payload = response.ok ? undefined : await payloadOf(response);
      const code = (payload as { error?: string } | undefined)?.error;
      this.reason = `the gateway answered ${status}${code ? ` ${code}` : ""}`;
      step = this.step({ type: "answer", status, code, retryAfterMs: Number(headers.get("retry-after")) * 1000 || 0, canRenew: !!this.options.token });
      if (step.do === "read") return response;
      if (step.do === "end") return null;
      if (step.do === "refuse") throw new RefusedError(status, payload);
    }
  }

  /** The frames for the client, beginning with those of an open connection. Throws what ends the line. */
  async *frames(response: Response | null): AsyncGenerator<Frame, void> {
    const run = new Run();
    const unlisten = listen(() => {
      // A machine that wakes up does not notice that its connection is gone.
      if (Date.now() - this.readAt > this.options.limits.silenceMs) this.connection.abort();
    });
    try {
      while (response) {
        this.options.onStatus({ state: "open" });
        const openedAt = Date.now();
        let step: Step | undefined;
        try {
          for await (const frame of this.read(response)) {
            const { id, retryMs, event } = frame;
            this.reason = `the gateway sent ${event?.code}`;
            step = this.step({ type: "frame", id, retryMs, event: event?.type, code: event?.code });
            if (step.do !== "read" && step.do !== "end") break;
            this.isOver = step.do === "end";
            // A follower gets the start of each run as it is.
            yield* this.options.endsWithRun ? run.take(frame) : [frame];
            if (this.isOver) return;
            step = undefined;
          }
          step ??= this.lost(new Error("the stream ended before the run"), this.readAt - openedAt);
        } catch (error) {
          step = this.lost(error, this.readAt - openedAt);
        }
        response = await this.open(step);
      }
    } finally {
      unlisten();
      this.close();
    }
  }

  private lost(error: unknown, lastedMs: number): Step {
    this.reason = (error as Error).message;
    return this.step({ type: "break", reason: this.reason, lastedMs });
  }

  private step(input: Input): Step {
    const { limits, endsWithRun } = this.options;
    const isOffline = globalThis.navigator?.onLine === false;
    const [link, step] = next(this.link, input, { limits, endsWithRun, isOffline, random: Math.random() });
    this.link = link;
    return step;
  }

  /** An abort is an error for `HttpAgent`, and a closed line ends as if all had arrived. */
  private leave(): null {
    this.options.init.signal?.throwIfAborted();
    return null;
  }

  private async request(isRefused: boolean): Promise<Response> {
    const { init, url, fetch, token, startsRun } = this.options;
    const headers = new Headers(init.headers);
    await authorize(headers, token, isRefused);
    const lastId = this.link.lastId || (startsRun && (this.hasAsked || resends()) ? NO_EVENT : "");
    if (lastId) headers.set("last-event-id", lastId);
    this.hasAsked = true;
    this.connection = new AbortController();
    if (this.isClosed) this.connection.abort(); // while the token was fetched
    const { signal } = this.connection;
    return this.unlessSilent(fetch(url, { ...init, headers, signal, cache: "no-store" }));
  }

  private async *read(response: Response): AsyncGenerator<Frame, void> {
    const reader = (response.body as ReadableStream<Uint8Array>).getReader();
    const decoder = new TextDecoder();
    let rest = "";
    try {
      for (;;) {
        const { done, value } = await this.unlessSilent(reader.read());
        if (done) return;
        let frames: Frame[];
        [frames, rest] = split(rest + decoder.decode(value, { stream: true }));
        yield* frames;
      }
    } finally {
      // The connection can be used again once the response has ended, which comes right after the run's end.
      (this.isOver ? reader.read() : reader.cancel()).catch(() => {});
    }
  }

  /** Cuts a connection that is silent for too long. */
  private async unlessSilent<T>(work: Promise<T>): Promise<T> {
    const { silenceMs } = this.options.limits;
    this.readAt = Date.now();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const silence = new Promise<never>((_, reject) => {
      timer = setTimeout(() => {
        reject(new Error(`nothing arrived for ${silenceMs} ms`));
        this.connection.abort();
      }, silenceMs);
    });
    work.catch(() => {}); // of a connection that was cut for its silence
    return Promise.race([work, silence]).finally(() => clearTimeout(timer));
  }

  private async pause(ms: number) {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let unlisten = () => {};
    await new Promise<void>((resolve) => {
      if (ms !== Infinity) timer = setTimeout(resolve, ms);
      unlisten = listen(resolve);
      this.endPause = resolve;
    });
    clearTimeout(timer);
    unlisten();
  }
}

/** Calls `wake` when a browser is online again, or its page is shown again. Returns how to stop. */
export function listen(wake: () => void): () => void {
  const { document } = globalThis;
  const shown = () => document.visibilityState === "visible" && wake();
  globalThis.addEventListener?.("online", wake);
  document?.addEventListener("visibilitychange", shown);
  return () => {
    globalThis.removeEventListener?.("online", wake);
    document?.removeEventListener("visibilitychange", shown);
  };
}

export async function authorize(headers: Headers, token: Token | undefined, isRefused: boolean) {
  const value = await token?.({ isRefused });
  if (value) headers.set("authorization", `Bearer ${value}`);
}

async function payloadOf(response: Response): Promise<unknown> {
  const text = await response.text().catch(() => "");
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
