// The conversation: messages, reasoning, tools, images, the plan, and the outcomes of runs.

import { memo } from "preact/compat";
import { Json, pretty } from "./Json.jsx";
import { Markdown } from "./markdown.jsx";

const MEDIA = ["image", "audio", "video", "file"];
const MAX_TOOL_LINES = 12;

const textOf = (content) =>
  Array.isArray(content) ? content.map((part) => (typeof part === "string" ? part : part.type === "text" ? part.text : "")).join("") : (content ?? "");

/** The parts of a user's message other than text. */
const mediaOf = (content) => (Array.isArray(content) ? content.filter((part) => MEDIA.includes(part.type) || part.type === "document") : []);

/** The name of the subagent that made a message or a call; nothing for the agent itself. */
const subagentOf = (message, subagents) => message?.subagentRunId && (subagents.get(message.subagentRunId) ?? "subagent");

/** The name of the subagent that asks. */
export function askerOf({ toolCallId }, messages, subagents) {
  return toolCallId && subagentOf(messages.find(({ toolCalls }) => toolCalls?.some(({ id }) => id === toolCallId)), subagents);
}

export function Messages({ messages, subagents, runs, interrupts, rejected, isRunning }) {
  const asked = new Set(interrupts.map(({ toolCallId }) => toolCallId));
  const activities = new Map();
  const results = new Map();
  for (const message of messages) {
    if (message.role === "activity" && message.activityType === "threadway.tool") activities.set(message.content?.toolCallId, message.content);
    if (message.role === "tool") results.set(message.toolCallId, message);
  }
  const known = new Set(messages.map(({ id }) => id));
  const ended = runs.filter((run) => run.ended && run.isShown);
  const ends = new Map(); // by the last message
  for (const [at, run] of ended.entries()) {
    // If that message has left the conversation, the run's end stands before that of the next run.
    const place = ended.slice(at).find(({ after }) => known.has(after))?.after;
    ends.set(place, [...(ends.get(place) ?? []), run]);
  }
  const waiting = interrupts.length > 0 ? runs.findLast(({ isShown }) => isShown) : null;
  const last = messages.at(-1)?.id;
  return (
    <>
      {messages.map((message) => (
        <div class="turn" key={message.id}>
          <Message message={message} activities={activities} results={results} asked={asked} rejected={rejected} subagent={subagentOf(message, subagents)} isLast={isRunning && message.id === last} />
          {ends.get(message.id)?.map((run) => <RunEnd key={run.id} run={run} isWaiting={run === waiting} />)}
        </div>
      ))}
      {ends.get(undefined)?.map((run) => (
        <RunEnd key={run.id} run={run} isWaiting={run === waiting} />
      ))}
    </>
  );
}

function Message({ message, activities, results, asked, rejected, subagent, isLast }) {
  switch (message.role) {
    case "user":
      return (
        <article class="message user" aria-label="You">
          <div class="bubble">
            <Markdown text={textOf(message.content)} />
            {mediaOf(message.content).map((part) => (
              <Media kind={part.type} source={part.source} />
            ))}
          </div>
        </article>
      );
    case "assistant": {
      const text = textOf(message.content);
      return (
        <article class="message agent" aria-label={subagent ?? message.name ?? "Agent"}>
          {subagent ? <span class="chip">{subagent}</span> : null}
          {text ? (
            <div class={isLast ? "is-live" : ""}>
              <Text text={text} />
            </div>
          ) : null}
          {message.toolCalls?.map((call) => (
            <Tool key={call.id} call={call} activity={activities.get(call.id)} result={results.get(call.id)} isAsked={asked.has(call.id)} isRejected={rejected.has(call.id)} />
          ))}
        </article>
      );
    }
    case "reasoning":
      return textOf(message.content) ? (
        <details class="thought" open={isLast || undefined}>
          <summary>{isLast ? "Thinking…" : "Thought"}</summary>
          <p>{textOf(message.content)}</p>
        </details>
      ) : null;
    case "activity":
      return <Activity type={message.activityType} content={message.content} />;
    case "system":
    case "developer":
      return (
        <details class="thought">
          <summary>Instruction ({message.role})</summary>
          <p>{textOf(message.content)}</p>
        </details>
      );
    default:
      return null; // a tool's result is shown with its call
  }
}

const Text = memo(({ text }) => <Markdown text={text} />);

const STATUS = {
  running: "running",
  completed: "done",
  failed: "failed",
  rejected: "rejected",
  waiting: "waits for approval",
  requested: "waits for the client",
  stopped: "stopped",
};

/** The beginning of the result that LangChain's approval middleware writes for a call that a person rejected. */
const REJECTED = "User rejected the tool call";

/** A call and its result. While the call waits for approval, the approval shows its arguments. */
function Tool({ call, activity, result, isAsked, isRejected }) {
  const text = result ? textOf(result.content) : null;
  const hasFailed = activity?.status === "failed" || result?.error !== undefined;
  // LangGraph stores a rejection as a failure.
  const failure = isRejected || text?.startsWith(REJECTED) ? "rejected" : "failed";
  const status = hasFailed ? failure : (activity?.status ?? (result ? "completed" : "called"));
  const lines = text?.split("\n") ?? [];
  return (
    <div class={`tool is-${status}`} role="group" aria-label={`Tool ${call.function.name}`} data-tool={call.function.name} data-status={status}>
      <header>
        <span class="dot" aria-hidden="true" />
        <code>{call.function.name}</code>
        <span class="status">{STATUS[status] ?? status}</span>
      </header>
      {call.function.arguments && call.function.arguments !== "{}" && !isAsked ? <Json value={pretty(call.function.arguments)} label={`Arguments of ${call.function.name}`} /> : null}
      {text === null ? null : lines.length > MAX_TOOL_LINES || text.length > 1200 ? (
        <details>
          <summary>
            Result, {lines.length} lines, {text.length} characters
          </summary>
          <Json value={text} label={`Result of ${call.function.name}`} />
        </details>
      ) : (
        <p class="result">{text}</p>
      )}
    </div>
  );
}

/** What LangChain's harness adds to a conversation, by the feature that adds it. */
const NOTICE = {
  summarization: "The model reads a summary of the conversation so far",
  pinned_skill: "The graph has added the instructions of a skill",
};

function Activity({ type, content }) {
  if (type === "threadway.tool" || type === "threadway.plan" || type === "threadway.empty") return null;
  const kind = type.replace("threadway.", "");
  if (MEDIA.includes(kind)) return <Media kind={kind} source={content?.source} filename={content?.filename} />;
  if (type === "threadway.annotations") {
    return (
      <ul class="sources" aria-label="Sources">
        {content?.annotations?.map((one, n) => (
          <li key={n}>
            <Markdown text={one.url ? `[${(one.title ?? one.url).replaceAll("]", "")}](${one.url})` : (one.title ?? JSON.stringify(one))} />
          </li>
        ))}
      </ul>
    );
  }
  if (type === "threadway.notice") {
    return (
      <details class="thought notice">
        <summary>{NOTICE[content?.source] ?? `The graph has added a message: ${content?.source ?? ""}`}</summary>
        <Markdown text={content?.text ?? ""} />
      </details>
    );
  }
  return (
    <details class="thought">
      <summary>{type === "threadway.block" ? `Block ${content?.block?.type ?? ""}` : type}</summary>
      <Json value={content?.block ?? content} label={type} />
    </details>
  );
}

const PLAYED = /^(image\/(png|jpeg|gif|webp|avif)|audio\/[\w.+-]+|video\/[\w.+-]+)$/;

/** Shows data that is in the message. A URL is not fetched, because a model could send data to any address with it. */
function Media({ kind, source, filename }) {
  if (!source) return null;
  const { type, value, mimeType } = source;
  if (type !== "data") {
    return (
      <p class="media">
        <span class="chip">{kind}</span> <Markdown text={type === "url" ? `[${value}](${value})` : `${value}`} />
      </p>
    );
  }
  const mime = mimeType ?? { image: "image/png", audio: "audio/wav", video: "video/mp4" }[kind] ?? "application/octet-stream";
  const url = `data:${mime};base64,${value}`;
  if (kind === "image" && PLAYED.test(mime)) {
    return (
      <figure class="media">
        <img src={url} alt={filename ?? "An image made by the agent"} />
      </figure>
    );
  }
  if (kind === "audio" && PLAYED.test(mime)) return <audio class="media" controls src={url} aria-label={filename ?? "A recording made by the agent"} />;
  if (kind === "video" && PLAYED.test(mime)) return <video class="media" controls src={url} aria-label={filename ?? "A video made by the agent"} />;
  return (
    <p class="media">
      <span class="chip">{kind}</span> {filename ?? mime}, {Math.round((value.length * 3) / 4)} bytes
    </p>
  );
}

const NARROW = "(max-width: 760px)"; // as in the style: the plan would leave little of the conversation

const MARKS = { completed: "✓", in_progress: "◐", pending: "○" };

/** The newest plan of a thread, with its progress. */
export function Plan({ messages }) {
  const plan = messages.findLast((message) => message.role === "activity" && message.activityType === "threadway.plan")?.content?.todos;
  if (!Array.isArray(plan) || plan.length === 0) return null;
  const done = plan.filter(({ status }) => status === "completed").length;
  return (
    <details class="plan" open={(done < plan.length && !matchMedia(NARROW).matches) || undefined}>
      <summary>
        Plan <span class="chip">{`${done} of ${plan.length} done`}</span>
      </summary>
      <ul>
        {plan.map(({ content, status }, n) => (
          <li key={n} class={`is-${status}`}>
            <span aria-hidden="true">{MARKS[status] ?? "○"}</span> {String(content)} <span class="sr">{`(${status})`}</span>
          </li>
        ))}
      </ul>
    </details>
  );
}

const OUTCOMES = { success: "done", interrupt: "answered", cancelled: "stopped", failed: "failed" };

/** The outcome of a run, and its cost. */
function RunEnd({ run, isWaiting }) {
  const seconds = ((run.ended - run.began) / 1000).toFixed(1);
  const usage = (run.usage ?? []).map(({ model, inputTokens, outputTokens }) => `${model ? `${model}: ` : ""}${inputTokens ?? 0} tokens in, ${outputTokens ?? 0} out`);
  return (
    <>
      {run.error ? (
        <div class="card failure" role="alert" data-failure>
          <h3>{run.isAtRest ? "The last run failed" : "The run failed"}{run.error.error ? `: ${run.error.error}` : ""}</h3>
          <p>{run.error.message ?? ""}</p>
        </div>
      ) : null}
      {run.isAtRest ? null : <p class="run-end">
        <span>{run.isOwn ? "your run" : "a run that another client started"}</span>
        <span>{isWaiting ? "waits for you" : (OUTCOMES[run.outcome] ?? run.outcome)}</span>
        <span>{seconds} s</span>
        {usage.map((one) => (
          <span key={one}>{one}</span>
        ))}
      </p>}
    </>
  );
}
