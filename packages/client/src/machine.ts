// What a client does next on its line to the gateway: a pure function of what it knows and of what has just happened. It
// reads no clock and sends nothing.

/** The limits of a line. */
export interface Limits {
  /** Connections in a row that may fail before the line gives up. */
  attempts: number;
  /** The pause after the first failure, if the gateway names none by `retry:`. */
  delayMs: number;
  maxDelayMs: number;
  /** A connection without a byte for so long counts as lost. The gateway sends a comment after 15 s of silence. */
  silenceMs: number;
}

export const LIMITS: Limits = { attempts: 10, delayMs: 1_000, maxDelayMs: 30_000, silenceMs: 40_000 };

/** A connection that has lived for so long was a good one, even if its events have no ids. */
const GOOD_MS = 10_000;

/** What is known between two connections. */
export interface Link {
  /** Of the last event that has arrived; empty if there is none. */
  lastId: string;
  /** Whether that event was the end of a run. */
  isAtRest: boolean;
  /** Connections in a row that brought nothing new. */
  failures: number;
  /** The gateway's own pause, from `retry:`. */
  retryMs: number | undefined;
  /** Whether the last request was sent with renewed credentials. */
  isRenewed: boolean;
}

export const newLink = (lastId = ""): Link => ({ lastId, isAtRest: lastId !== "", failures: 0, retryMs: undefined, isRenewed: false });

export type Input =
  | { type: "answer"; status: number; code?: string | undefined; retryAfterMs?: number | undefined; canRenew?: boolean }
  | { type: "frame"; id?: string | undefined; retryMs?: number | undefined; event?: string | undefined; code?: string | undefined }
  | { type: "break"; reason: string; lastedMs: number };

export type Step =
  /** Read on. A frame belongs to the client. */
  | { do: "read" }
  /** Send the same request again, with the last id. An infinite pause ends when the machine is online again. */
  | { do: "request"; afterMs: number; renew: boolean }
  /** All has arrived. */
  | { do: "end" }
  /** The gateway has refused, and would again. */
  | { do: "refuse" }
  | { do: "give up"; reason: string };

/** What the step depends on besides the link and the input. */
export interface Around {
  limits: Limits;
  /** In [0, 1). */
  random: number;
  isOffline: boolean;
  /** Whether the line ends with the run. Otherwise it follows the thread. */
  endsWithRun: boolean;
}

const TERMINAL = ["RUN_FINISHED", "RUN_ERROR"];
/** Errors of the line to the client or to LangGraph, not of the run, which goes on. */
const LOST = ["gateway_shutdown", "reader_too_slow", "upstream_unavailable", "internal_error"];
/** Of the statuses from 500 on, those that the same request would get again. */
const LASTING = ["upstream_unauthorized", "upstream_refused", "upstream_too_large", "not_langgraph"];
const PASSING = [408, 425, 429];

/** Whether nobody can resume after the event: the gateway numbers such events `0.`. */
const isVoid = (id: string | undefined) => !id || id.startsWith("0.");

export function next(link: Link, input: Input, around: Around): [Link, Step] {
  if (input.type === "answer") return answered(link, input, around);
  if (input.type === "frame") return arrived(link, input, around);
  return failed(input.lastedMs >= GOOD_MS ? { ...link, failures: 0 } : link, input.reason, 0, around);
}

function answered(link: Link, { status, code, retryAfterMs = 0, canRenew }: Input & { type: "answer" }, around: Around): [Link, Step] {
  // A new thread, which its first run makes, cannot be followed yet.
  if (status === 204 || (code === "unknown_thread" && !around.endsWithRun)) return [link, { do: "end" }];
  if (status >= 200 && status < 300) return [{ ...link, isRenewed: false }, { do: "read" }];
  if (status === 401 && canRenew && !link.isRenewed) return [{ ...link, isRenewed: true }, { do: "request", afterMs: 0, renew: true }];
  const passes = PASSING.includes(status) || (status >= 500 && !LASTING.includes(code ?? ""));
  if (!passes) return [link, { do: "refuse" }];
  const [after, step] = failed(link, `the gateway answered ${status}${code ? ` ${code}` : ""}`, retryAfterMs, around);
  return [after, step.do === "give up" ? { do: "refuse" } : step];
}

function arrived(link: Link, { id, retryMs, event, code }: Input & { type: "frame" }, around: Around): [Link, Step] {
  if (event === "RUN_ERROR" && LOST.includes(code ?? "") && isVoid(id)) {
    // The id of this error would let the stream start over, and the one before resumes it.
    const [after, step] = failed(link, `the gateway sent ${code}`, 0, around);
    return step.do === "give up" && around.endsWithRun ? [after, { do: "end" }] : [after, step];
  }
  const isAtRest = event === undefined ? link.isAtRest : TERMINAL.includes(event);
  const isNew = !isVoid(id) && id !== link.lastId;
  return [
    { ...link, lastId: id ?? link.lastId, isAtRest, retryMs: retryMs ?? link.retryMs, failures: isNew ? 0 : link.failures },
    { do: isAtRest && event !== undefined && around.endsWithRun ? "end" : "read" },
  ];
}

function failed(link: Link, reason: string, leastMs: number, { limits, random, isOffline }: Around): [Link, Step] {
  if (isOffline) return [link, { do: "request", afterMs: Infinity, renew: false }];
  const failures = link.failures + 1;
  const after = { ...link, failures };
  if (failures > limits.attempts) return [after, { do: "give up", reason }];
  const longest = Math.min((link.retryMs ?? limits.delayMs) * 2 ** (failures - 1), Math.max(limits.maxDelayMs, link.retryMs ?? 0));
  // At random, so that clients that were cut together do not come back together. The first pause may be short.
  const afterMs = Math.max(leastMs, longest * (failures === 1 ? random : 0.5 + random / 2));
  return [after, { do: "request", afterMs, renew: false }];
}
