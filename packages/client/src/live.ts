// One agent's lines to the gateway, one at a time: that of its own request, or one that follows the thread in between.

import type { AgUiEvent, Frame } from "./frames.js";
import { ConnectionLostError, type Fetch, Line, listen, type LineOptions, type Status, type Token } from "./line.js";
import { type Limits, LIMITS } from "./machine.js";

/** A run that the thread has, with its events as the response that `HttpAgent` reads. */
export interface FollowedRun {
  started: AgUiEvent;
  response: Response;
}

export interface LiveOptions {
  fetch: Fetch;
  token?: Token | undefined;
  limits?: Partial<Limits> | undefined;
  onStatus: (status: Status) => void;
  /** Called when the person comes back after the line has given up. */
  onReturn?: () => void;
}

const TERMINAL = ["RUN_FINISHED", "RUN_ERROR"];

export class Live {
  private readonly limits: Limits;
  private line: Line | undefined;
  /** The last event that the client has, if that is the end of a run: the thread can be followed after it. */
  private restId = "";
  private following: Promise<void> | undefined;
  /** Whether a line has given up: then the thread is followed again only when somebody asks for it. */
  private isLost = false;

  constructor(private readonly options: LiveOptions) {
    this.limits = { ...LIMITS, ...options.limits };
  }

  /** A `fetch` for requests that stream a run: its response is the whole run, over as many connections as that takes. */
  readonly fetch: Fetch = async (url, init) => {
    this.restId = "";
    this.isLost = false;
    // The gateway takes an answer to a question once, and its `runId` may be that of the run that asks.
    const startsRun = operationOf(url, init) !== "connect" && !/"resume":/.test(String(init.body));
    const line = this.newLine({ url, init, endsWithRun: true, startsRun });
    try {
      const opened = await line.open();
      const frames = line.frames(opened);
      return responseOf(this.untilEnd(line, frames), () => line.forget());
    } catch (error) {
      this.failed(line, error);
      throw error;
    }
  };

  /** Follows a thread until `pause`. `onRun` gets each run, and resolves when the client has read it. */
  follow(url: string, init: RequestInit, onRun: (run: FollowedRun) => Promise<void>) {
    if (this.following || this.isLost) return;
    const line = this.newLine({ url, init, endsWithRun: false, lastId: this.restId });
    const work = async () => {
      const frames = line.frames(await line.open());
      for await (const run of runsOf(frames, () => line.forget())) await onRun(run);
      if (line.link.isAtRest) this.restId = line.link.lastId;
    };
    this.following = work()
      .then(() => this.idle(line), (error) => this.failed(line, error))
      .finally(() => (this.following = undefined));
  }

  get isFollowing(): boolean {
    return this.following !== undefined;
  }

  /** Ends the line that follows the thread. Resolves when its last run has been read. */
  async pause() {
    if (!this.following) return;
    this.restId = "";
    this.line?.close();
    await this.following;
  }

  /** What the client has shows another thread now, or is unknown. */
  forget() {
    this.restId = "";
  }

  /** Ends the pause before the next attempt, and allows to follow again. */
  retryNow() {
    this.isLost = false;
    this.line?.retryNow();
  }

  private newLine(options: Pick<LineOptions, "url" | "init" | "endsWithRun" | "startsRun" | "lastId">): Line {
    const { fetch, token, onStatus } = this.options;
    const line: Line = new Line({ ...options, fetch, token, limits: this.limits, onStatus: (status) => this.line === line && onStatus(status) });
    this.line = line;
    onStatus({ state: "connecting" });
    return line;
  }

  private async *untilEnd(line: Line, frames: AsyncGenerator<Frame, void>): AsyncGenerator<Frame, void> {
    try {
      yield* frames;
      if (line.link.isAtRest) this.restId = line.link.lastId;
      this.idle(line);
    } catch (error) {
      this.failed(line, error);
      throw error;
    }
  }

  private idle(line: Line) {
    if (this.line === line) this.options.onStatus({ state: "idle" });
  }

  private failed(line: Line, error: unknown) {
    const isAbort = (error as Error)?.name === "AbortError";
    if (this.line === line) this.options.onStatus(isAbort ? { state: "idle" } : { state: "failed", error: error as Error });
    this.isLost = error instanceof ConnectionLostError;
    if (!this.isLost) return;
    const unlisten = listen(() => {
      unlisten();
      if (this.isLost && this.line === line) this.options.onReturn?.();
    });
  }
}

/** What a request is for: by its address, or by its body if CopilotKit uses a single route. */
export function operationOf(url: string, { method, body }: RequestInit): "run" | "connect" | undefined {
  if (method !== "POST") return undefined;
  const named = /\/agent\/[^/]+\/(run|connect)\/?(?:\?.*)?$/.exec(url) ?? /^\{"method":"agent\/(run|connect)"/.exec(String(body));
  return named?.[1] as "run" | "connect" | undefined;
}

/** The runs in a stream, one after the other. `onLeft` is called if one of them is not read to its end. */
async function* runsOf(frames: AsyncGenerator<Frame, void>, onLeft: () => void): AsyncGenerator<FollowedRun, void> {
  let start: Frame | undefined;
  const run = async function* (first: Frame): AsyncGenerator<Frame, void> {
    yield first;
    for (;;) {
      const { done, value } = await frames.next();
      if (done) return;
      // The gateway could not resume the run that was under way.
      if (value.event?.type === "RUN_STARTED") return void (start = value);
      yield value;
      if (value.event && TERMINAL.includes(value.event.type)) return;
    }
  };
  for (;;) {
    while (!start) {
      const { done, value } = await frames.next();
      if (done) return;
      if (value.event?.type === "RUN_STARTED") start = value;
    }
    const first: Frame = start;
    start = undefined;
    yield { started: first.event as AgUiEvent, response: responseOf(run(first), onLeft) };
  }
}

const encoder = new TextEncoder();

/** Frames as a response. `onLeft` is called if its reader cancels it. */
function responseOf(frames: AsyncGenerator<Frame, void>, onLeft: () => void): Response {
  const body = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          const { done, value } = await frames.next();
          if (done) controller.close();
          else controller.enqueue(encoder.encode(value.text));
        } catch (error) {
          controller.error(error);
        }
      },
      cancel() {
        onLeft();
        frames.return().catch(() => {});
      },
    },
    { highWaterMark: 0 },
  );
  return new Response(body, { headers: { "content-type": "text/event-stream" } });
}
