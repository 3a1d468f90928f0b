// The frames of a stream of server-sent events, and the runs in them.

export interface Frame {
  /** The whole frame, with the empty line at its end. */
  text: string;
  id?: string;
  retryMs?: number;
  /** The frame's event; comments have none. */
  event?: AgUiEvent;
}

/** The members of AG-UI's events that matter here. */
export interface AgUiEvent {
  type: string;
  code?: string;
  runId?: string;
  metadata?: { langgraph?: { run_id?: string } };
  [member: string]: unknown;
}

export const frameOf = (event: AgUiEvent): Frame => ({ text: `data: ${JSON.stringify(event)}\n\n`, event });

/** Takes the frames that `text` has whole; returns them and the rest. */
export function split(text: string): [Frame[], string] {
  const parts = text.split("\n\n");
  const rest = parts.pop() as string;
  return [parts.map(parse), rest];
}

function parse(part: string): Frame {
  const frame: Frame = { text: `${part}\n\n` };
  const data: string[] = [];
  for (const line of part.split("\n")) {
    const [, field, value] = /^(\w+): ?(.*)$/s.exec(line) ?? [];
    if (field === "id") frame.id = value as string;
    else if (field === "data") data.push(value as string);
    else if (field === "retry" && /^\d+$/.test(value as string)) frame.retryMs = Number(value);
  }
  if (data.length > 0) frame.event = JSON.parse(data.join("\n"));
  return frame;
}

/** What ends an open item, by the type of the event that began it: its own type, and the member that names the item. */
const ENDS: Record<string, [end: string, member: string]> = {
  TEXT_MESSAGE_START: ["TEXT_MESSAGE_END", "messageId"],
  TOOL_CALL_START: ["TOOL_CALL_END", "toolCallId"],
  REASONING_START: ["REASONING_END", "messageId"],
  REASONING_MESSAGE_START: ["REASONING_MESSAGE_END", "messageId"],
  STEP_STARTED: ["STEP_FINISHED", "stepName"],
  SUBAGENT_STARTED: ["SUBAGENT_FINISHED", "subagentRunId"],
};
const SUBAGENT = ["SUBAGENT_STARTED", "SUBAGENT_FINISHED", "SUBAGENT_ERROR"];

/**
 * Joins the connections of one run to one legal stream. If the gateway cannot resume, it sends the run from its start: what
 * is open is ended then, the second start is left out, and the snapshots that follow replace what the client has.
 */
export class Run {
  private starts = 0;
  private open = new Map<string, AgUiEvent>();
  /** AG-UI lets a subagent begin and end once in a run. */
  private subagents = new Set<string>();

  /** The frames for the client, given the next one that has arrived. */
  take(frame: Frame): Frame[] {
    const { event } = frame;
    if (!event) return [frame];
    if (event.type === "RUN_STARTED") {
      this.starts += 1;
      if (this.starts > 1) return this.end((type) => !SUBAGENT.includes(type));
    }
    if (SUBAGENT.includes(event.type)) {
      const once = `${event.type === "SUBAGENT_STARTED"} ${event.subagentRunId}`;
      if (this.subagents.has(once)) return [];
      this.subagents.add(once);
    }
    // A subagent that began before the run was sent anew may be over by then.
    if (event.type === "RUN_FINISHED" && this.starts > 1) return [...this.end(() => true), frame];
    const began = ENDS[event.type];
    if (began) this.open.set(keyOf(began[0], event[began[1]], event), event);
    const ended = Object.values(ENDS).find(([end]) => end === event.type || (event.type === "SUBAGENT_ERROR" && end === "SUBAGENT_FINISHED"));
    if (ended) this.open.delete(keyOf(ended[0], event[ended[1]], event));
    return [frame];
  }

  /** Ends what is open, the newest first. */
  private end(isMeant: (type: string) => boolean): Frame[] {
    const frames: Frame[] = [];
    for (const [key, event] of [...this.open].reverse()) {
      if (!isMeant(event.type)) continue;
      const [end, member] = ENDS[event.type] as [string, string];
      const { subagentRunId } = event;
      frames.push(frameOf({ type: end, [member]: event[member], ...(subagentRunId === undefined ? {} : { subagentRunId }) }));
      this.open.delete(key);
    }
    return frames;
  }
}

const keyOf = (end: string, name: unknown, { subagentRunId }: AgUiEvent) => `${end} ${name}${end === "STEP_FINISHED" ? ` ${subagentRunId}` : ""}`;
