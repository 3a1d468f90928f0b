// The whole page: the open thread, the panels next to it, and the connection.

import { useCallback, useEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";
import { Asked } from "./Asked.jsx";
import { Conversation } from "./conversation.js";
import { describe, info, newId, pauseAfter } from "./gateway.js";
import { InspectorView } from "./InspectorView.jsx";
import { Json } from "./Json.jsx";
import { KeyDialog } from "./KeyDialog.jsx";
import { inline } from "./markdown.jsx";
import { askerOf, Messages, Plan } from "./Messages.jsx";
import { followThreads } from "./sidebar.js";
import { startersOf } from "./starters.js";
import { credentials, fresh, knownThreads, knowThread, remember, remembered } from "./storage.js";
import { applyTheme, theme, THEMES } from "./theme.js";

const MAX_TITLE = 60; // characters, as the gateway names threads
const PANELS = { state: "State", inspector: "Inspector" };
const WIDE = "(min-width: 1100px)"; // wide enough for a panel next to the conversation

/** The agent and the thread of the address: `#/agent/thread`. */
function route() {
  const [, agent, thread] = location.hash.split("/");
  const decode = (part) => {
    try {
      return part ? decodeURIComponent(part) : null;
    } catch {
      return null;
    }
  };
  return { agent: decode(agent), thread: decode(thread) };
}

const hashOf = (agent, thread) => `#/${encodeURIComponent(agent)}${thread ? `/${encodeURIComponent(thread)}` : ""}`;

/** Renders at most once a frame, however many events arrive in it. */
function useFrame() {
  const [, tick] = useReducer((n) => n + 1, 0);
  const pending = useRef(0);
  return useCallback(() => {
    if (pending.current) return;
    const draw = () => {
      pending.current = 0;
      tick();
    };
    // A page in the background gets no frames.
    pending.current = document.hidden ? setTimeout(draw, 100) : requestAnimationFrame(draw);
  }, []);
}

export function App() {
  const changed = useFrame();
  const [at, setAt] = useState(route);
  const [agents, setAgents] = useState(null); // by name
  const [lists, setLists] = useState(false); // whether the gateway lists threads
  const [known, setKnown] = useState([]); // the threads that this browser has opened
  const [followed, setFollowed] = useState(null); // what the gateway says of threads, by name
  const [fault, setFault] = useState(null); // why there is no list of agents; `pause` if the page tries again by itself
  const [checked, setChecked] = useState(null); // an agent that is not listed, and whether it exists
  const [asking, setAsking] = useState(null); // whether the key dialog is open: the refusal, or `true`
  const [needsKey, setNeedsKey] = useState(credentials.get() !== null);
  const [panel, setPanel] = useState(() => (matchMedia(WIDE).matches ? remembered("panel", "inspector") : null));
  const [drawer, setDrawer] = useState(false);
  const [withParts, setWithParts] = useState(() => remembered("parts", true));
  const [generation, setGeneration] = useState(0); // a new key reloads everything

  const onRefused = useCallback((refused) => {
    if (refused?.status === 401 || refused?.status === 403) setNeedsKey(true);
    if (refused?.status === 401) setAsking(refused);
  }, []);

  useEffect(() => {
    const listen = () => setAt(route());
    addEventListener("hashchange", listen);
    return () => removeEventListener("hashchange", listen);
  }, []);

  useEffect(() => {
    let isOld = false;
    let timer = null;
    const load = async (failures) => {
      try {
        const told = await info();
        if (isOld) return;
        setAgents(told.agents ?? {});
        setLists(told.threadEndpoints?.list === true);
        setFault(null);
      } catch (error) {
        if (isOld) return;
        if (error.isPassing) {
          error.pause = pauseAfter(failures);
          timer = setTimeout(() => load(failures + 1), error.pause);
        }
        setFault(error);
        onRefused(error);
      }
    };
    load(0);
    return () => {
      isOld = true;
      clearTimeout(timer);
    };
  }, [generation]);

  const agentNames = Object.keys(agents ?? {});
  const agent = at.agent ?? agentNames[0] ?? null;

  const isListed = agents !== null && agent !== null && Object.hasOwn(agents, agent);
  useEffect(() => {
    if (!agents || !agent || isListed) return;
    let isOld = false;
    const set = (exists) => isOld || setChecked({ agent, exists });
    // An agent that is not listed may exist nevertheless: an assistant's id is a name too.
    describe(agent).then(() => set(true), (error) => set(error.status !== 404));
    return () => (isOld = true);
  }, [agents, agent, isListed]);
  const isKnown = isListed || (checked?.agent === agent && checked.exists);
  const isUnknown = !isListed && checked?.agent === agent && !checked.exists;

  const open = useCallback((name, thread) => {
    setDrawer(false);
    location.hash = hashOf(name, thread);
  }, []);
  const openNew = useCallback(
    (name) => {
      const id = newId();
      fresh.set(id);
      open(name, id);
    },
    [open],
  );
  useEffect(() => {
    if (agent && !at.thread) {
      const id = newId();
      fresh.set(id);
      history.replaceState(null, "", hashOf(agent, id));
      setAt(route());
    }
  }, [agent, at.thread]);

  const conversation = useMemo(() => {
    if (!agent || !at.thread || isUnknown) return null;
    return new Conversation({ agent, threadId: at.thread, isNew: fresh.get() === at.thread, withParts, onChange: changed, onRefused });
  }, [agent, at.thread, generation, withParts, isUnknown]);
  useEffect(() => {
    globalThis.threadway = conversation; // for the browser's console
    return () => conversation?.close();
  }, [conversation]);

  const shown = fault ? null : conversation;
  useEffect(() => {
    // The list of agents is there again, so the thread may be too.
    if (shown?.failure?.pause) shown.reconnect();
  }, [shown]);

  const readKnown = useCallback(() => setKnown(agent && !isUnknown ? knownThreads(agent) : []), [agent, isUnknown]);
  useEffect(readKnown, [readKnown, generation, at.thread]);

  // Opening a thread changes the order of the known ones, and not what is followed.
  const names = JSON.stringify(lists ? null : known.map(({ id }) => id).sort());
  useEffect(() => {
    setFollowed(null);
    if (!agents || !agent || isUnknown || names === "[]") return;
    return followThreads({ agent, names: JSON.parse(names), onChange: setFollowed, onRefused });
  }, [agents === null, agent, isUnknown, generation, names]);
  const threads = useMemo(() => {
    const titles = new Map(known.map(({ id, name }) => [id, name]));
    if (!lists || !followed) return known.map((thread) => ({ ...thread, mark: followed?.get(thread.id)?.mark }));
    const listed = [...followed.values()].map(({ mark, thread }) => ({ ...thread, mark, name: thread.name ?? titles.get(thread.id) }));
    return listed.sort((one, other) => other.updatedAt.localeCompare(one.updatedAt));
  }, [known, followed, lists]);

  // A thread is remembered as soon as it has content.
  const title = conversation?.messages.find(({ role }) => role === "user");
  useEffect(() => {
    if (!agent || !at.thread || !title) return;
    if (fresh.get() === at.thread) fresh.set(null);
    const text = typeof title.content === "string" ? title.content : "a message with media";
    knowThread(agent, at.thread, text.slice(0, MAX_TITLE));
    readKnown();
  }, [agent, at.thread, title?.id]);

  useEffect(() => {
    document.title = agent ? `${agent} · threadway` : "threadway";
  }, [agent]);

  const show = (which) => {
    const next = panel === which ? null : which;
    setPanel(next);
    setDrawer(false);
    remember("panel", next);
  };
  const onKey = (isChanged) => {
    setAsking(null);
    if (isChanged) setGeneration((n) => n + 1);
  };
  const retry = () => setGeneration((n) => n + 1);

  return (
    <div class={`app ${panel && shown ? "has-panel" : ""} ${drawer ? "has-drawer" : ""}`} onKeyDown={(event) => event.key === "Escape" && setDrawer(false)}>
      {shown ? (
        <a class="skip" href="#compose" onClick={(event) => (event.preventDefault(), document.getElementById("compose").focus())}>
          Skip to the message field
        </a>
      ) : null}
      <Header {...{ agent, names: agentNames, agents, conversation: shown, panel, show, openNew, drawer, setDrawer, onAskKey: needsKey ? () => setAsking(true) : null }} />
      {drawer ? <button type="button" class="scrim" aria-label="Close the threads" onClick={() => setDrawer(false)} /> : null}
      <Sidebar {...{ agent: isUnknown ? null : agent, threads, current: at.thread, open, openNew, lists }} />
      <main>
        {fault ? (
          <div class="card failure" role="alert">
            <h2>{fault.status === 401 ? "The gateway requires a key" : "The gateway returned no list of agents"}</h2>
            <p>{inline(fault.message)}</p>
            <Again pause={fault.pause} />
            <div class="buttons">
              {fault.status === 401 ? (
                <button type="button" class="primary" onClick={() => setAsking(fault)}>
                  Enter a key…
                </button>
              ) : null}
              <button type="button" onClick={retry}>
                Try again
              </button>
            </div>
          </div>
        ) : isUnknown || (agents && agent === null) ? (
          <NoAgent {...{ agent, names: agentNames }} />
        ) : conversation ? (
          <Thread key={`${agent}/${at.thread}/${generation}`} conversation={conversation} isKnown={isKnown} about={agents?.[agent]?.description} onAskKey={() => setAsking(true)} />
        ) : null}
      </main>
      {panel && shown ? (
        <aside class="panel" aria-label={PANELS[panel]}>
          <header>
            <h2>{PANELS[panel]}</h2>
            <button type="button" class="small" onClick={() => show(panel)}>
              Close
            </button>
          </header>
          {panel === "inspector" ? (
            <InspectorView
              inspector={conversation.inspector}
              onClear={() => (conversation.inspector.clear(), changed())}
              withParts={withParts}
              onParts={(isWanted) => {
                remember("parts", isWanted);
                setWithParts(isWanted);
              }}
            />
          ) : null}
          {panel === "state" ? <Json value={conversation.state ?? {}} label="The thread's state" /> : null}
        </aside>
      ) : null}
      {asking ? <KeyDialog refused={asking === true ? null : asking} onClose={onKey} /> : null}
    </div>
  );
}

function Again({ pause }) {
  return pause ? <p class="hint">{`The page tries again in ${Math.round(pause / 1000)} s.`}</p> : null;
}

/** The address names an agent that does not exist, or there is no agent at all. */
function NoAgent({ agent, names }) {
  return (
    <div class="card" role="alert" data-unknown-agent>
      <h2>{agent === null ? "There are no agents" : <>There is no agent <code>{agent}</code></>}</h2>
      {names.length === 0 ? (
        <p>The LangGraph server has no agents, or shows none to you.</p>
      ) : (
        <>
          <p>{names.length === 1 ? "This agent is there:" : "These agents are there:"}</p>
          <ul class="buttons">
            {names.map((name) => (
              <li key={name}>
                <a class="button" href={hashOf(name)}>
                  {name}
                </a>
              </li>
            ))}
          </ul>
        </>
      )}
    </div>
  );
}

function Header({ agent, names, agents, conversation, panel, show, openNew, drawer, setDrawer, onAskKey }) {
  const listed = agent && !names.includes(agent) ? [agent, ...names] : names;
  const link = conversation?.link.state;
  const isCut = link === "cut" || link === "lost";
  return (
    <header class="top">
      <button type="button" class="menu" aria-expanded={drawer} aria-controls="threads" onClick={() => setDrawer(!drawer)}>
        Threads
      </button>
      <h1>
        <svg viewBox="0 0 32 32" aria-hidden="true">
          <rect width="32" height="32" rx="8" />
          <path d="M7 11h8c5 0 5 10 10 10M7 16h18M7 21h8c5 0 5-10 10-10" />
        </svg>
        <span>threadway</span>
      </h1>
      {listed.length > 0 ? (
        <label class="agent">
          <span>Agent</span>
          <select value={agent ?? ""} onChange={(event) => openNew(event.currentTarget.value)} title={agents?.[agent]?.description ?? undefined}>
            {listed.map((name) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
        </label>
      ) : null}
      <div class="tools">
        {conversation ? (
          isCut || (link === "closed" && !conversation.isNew) ? (
            <button type="button" class="link is-cut" onClick={() => conversation.reconnect()}>
              Connect
            </button>
          ) : (
            <button type="button" class="link" disabled={link !== "open"} onClick={() => conversation.cut()} title="Cut the connection, as a lost network does">
              Cut<span class="wide"> the connection</span>
            </button>
          )
        ) : null}
        {conversation
          ? ["state", "inspector"].map((which) => (
              <button type="button" key={which} aria-pressed={panel === which} onClick={() => show(which)}>
                {PANELS[which]}
              </button>
            ))
          : null}
        {onAskKey ? (
          <button type="button" onClick={onAskKey}>
            Key{credentials.get() ? " ✓" : "…"}
          </button>
        ) : null}
      </div>
    </header>
  );
}

/** What the list says of a thread. An idle one needs no mark. */
const MARKS = { running: "The agent is working", waiting: "The agent waits for you", failed: "The last run failed" };

const DAY = 24 * 60 * 60 * 1000;

function ago(text) {
  const at = Date.parse(text);
  if (Number.isNaN(at)) return "";
  const date = new Date(at);
  return Date.now() - at < DAY ? date.toTimeString().slice(0, 5) : date.toISOString().slice(0, 10);
}

function Sidebar({ agent, threads, current, open, openNew, lists }) {
  const [shownTheme, setTheme] = useState(theme);
  return (
    <nav class="side" id="threads" aria-label="Threads">
      <button type="button" class="primary" disabled={!agent} onClick={() => openNew(agent)}>
        New chat
      </button>
      <h2>{lists ? "Threads" : "Threads of this browser"}</h2>
      {agent && threads.length === 0 ? <p class="empty">{lists ? "This agent has no threads yet." : "This browser lists the threads that you open."}</p> : null}
      <ul>
        {threads.map(({ id, name, updatedAt, mark }) => (
          <li key={id}>
            <a
              href={hashOf(agent, id)}
              aria-current={id === current ? "page" : undefined}
              onClick={(event) => {
                if (event.metaKey || event.ctrlKey || event.shiftKey) return;
                event.preventDefault();
                open(agent, id);
              }}
            >
              <span class="name">{name ?? id}</span>
              {MARKS[mark] ? (
                <span class="mark" data-mark={mark} title={MARKS[mark]}>
                  <span class="sr">{MARKS[mark]}</span>
                </span>
              ) : null}
              <span class="when">{ago(updatedAt)}</span>
            </a>
          </li>
        ))}
      </ul>
      <footer>
        <label>
          Theme{" "}
          <select
            value={shownTheme}
            onChange={(event) => {
              setTheme(event.currentTarget.value);
              applyTheme(event.currentTarget.value);
            }}
          >
            {THEMES.map((name) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <a href="page/licences.txt" target="_blank" rel="noopener">
          Licences
        </a>
      </footer>
    </nav>
  );
}

function Link({ link, onReconnect }) {
  if (link.state === "cut" || link.state === "lost") {
    return (
      <div class="notice warn" data-link={link.state}>
        <p>
          <strong>{link.state === "cut" ? "You have cut the connection." : "The connection is lost."}</strong> The run continues. The page reconnects in {Math.round(link.pause / 1000)} s, and resumes after its last event:
        </p>
        <div class="event">
          <p class="id">{`Last-Event-ID: ${link.lastId ?? "(none)"}`}</p>
          <button type="button" class="small" onClick={onReconnect}>
            Connect now
          </button>
        </div>
      </div>
    );
  }
  if (link.caughtUp) {
    const { events, again, seconds } = link.caughtUp;
    return (
      <div class="notice good" data-link="caught-up" data-events={events} data-again={again}>
        <p>
          <strong>Reconnected{seconds > 0 ? ` after ${seconds.toFixed(1)} s` : ""}.</strong> {events === 0 ? "Nothing was missed." : `${events === 1 ? "1 missed event arrived" : `${events} missed events arrived`}; ${again === 0 ? "none arrived twice" : `${again} arrived twice`}.`}
        </p>
      </div>
    );
  }
  return null;
}

function Thread({ conversation, isKnown, about, onAskKey }) {
  const log = useRef();
  const sticks = useRef(true);
  const { messages, runs, run, interrupts, link, failure } = conversation;
  const isEmpty = isKnown && messages.length === 0 && runs.every(({ isShown }) => !isShown);
  useEffect(() => {
    const element = log.current;
    if (element && sticks.current) element.scrollTop = element.scrollHeight;
  });
  const status = run
    ? run.isShown || messages.length > 0
      ? "The agent is working."
      : ""
    : interrupts.length > 0
      ? `The agent waits for ${interrupts.length === 1 ? "your decision" : `${interrupts.length} decisions from you`}.`
      : runs.at(-1)?.isShown
        ? `The run is over: ${runs.at(-1).outcome}.`
        : "";
  const isWorking = run !== null && run.isShown;
  return (
    <div class="thread">
      <h2 class="sr">Conversation</h2>
      <Link link={link} onReconnect={() => (log.current.focus(), conversation.reconnect())} />
      <Plan messages={messages} />
      <div class="log" role="log" aria-live="off" aria-label="Conversation" tabIndex={0} ref={log} onScroll={(event) => (sticks.current = event.currentTarget.scrollHeight - event.currentTarget.scrollTop - event.currentTarget.clientHeight < 80)}>
        <div class="column">
          {isEmpty ? (
            <div class="welcome">
              <h2>{conversation.agent}</h2>
              {about ? <p>This agent {about}.</p> : <p>A new thread. Your first message starts a run.</p>}
              <div class="buttons">
                {startersOf(about).map((words) => (
                  <button type="button" key={words} disabled={isWorking || interrupts.length > 0} onClick={() => (log.current.focus(), conversation.send(words))}>
                    {words}
                  </button>
                ))}
              </div>
              <p class="hint">While the agent answers, cut the connection or reload the page: the run continues, and the page resumes it.</p>
            </div>
          ) : null}
          <Messages messages={messages} subagents={conversation.subagents} runs={runs} interrupts={interrupts} rejected={conversation.rejected} isRunning={isWorking} />
          {isWorking ? (
            <p class="working" data-working>
              <span class="pulse" aria-hidden="true" />
              {link.state === "cut" || link.state === "lost" ? "The run continues; this page is not connected" : run.isOwn ? "The agent is working" : "The agent is working on a run that another client started"}
              {run.step && link.state === "open" ? `, in the step ${run.step}` : ""}
              {run.note && link.state === "open" ? `: ${brief(run.note.value)}` : ""}
            </p>
          ) : null}
          {interrupts.length > 0 ? <Asked interrupts={interrupts} asker={(interrupt) => askerOf(interrupt, messages, conversation.subagents)} isBusy={isWorking} onAnswer={(answers) => conversation.answer(answers)} log={log} /> : null}
          {failure ? (
            <div class="card failure" role="alert" data-refusal>
              <h3>{failure.status ? `${failure.status} ${failure.code ?? ""}` : "No connection"}</h3>
              <p>{inline(failure.message ?? "")}</p>
              <Again pause={failure.pause} />
              <div class="buttons">
                {failure.status === 401 || failure.status === 403 ? (
                  <button type="button" class="primary" onClick={onAskKey}>
                    Enter a key…
                  </button>
                ) : null}
                <button type="button" onClick={() => ((conversation.failure = null), conversation.follow())}>
                  Try again
                </button>
              </div>
            </div>
          ) : null}
        </div>
      </div>
      <p class="sr" role="status" aria-live="polite">
        {status}
      </p>
      <Composer conversation={conversation} isWorking={isWorking} hasQuestions={interrupts.length > 0} onSend={() => (sticks.current = true)} />
    </div>
  );
}

function brief(value) {
  const text = typeof value === "string" ? value : Object.values(value ?? {}).filter((one) => typeof one === "string" || typeof one === "number").join(" ");
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
}

function Composer({ conversation, isWorking, hasQuestions, onSend }) {
  const [text, setText] = useState("");
  const field = useRef();
  const canSend = text.trim() !== "" && !isWorking && !hasQuestions;
  useEffect(() => {
    // On a touch screen the focus would open the keyboard.
    if (matchMedia("(pointer: fine)").matches) field.current.focus();
  }, []);
  const submit = async () => {
    if (!canSend) return;
    setText("");
    onSend();
    const isSent = await conversation.send(text.trim());
    // The words of a message that was not sent are there again.
    if (!isSent) setText((written) => written || text);
  };
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}
    >
      <label class="sr" for="compose">
        Message
      </label>
      <textarea
        id="compose"
        ref={field}
        rows={Math.min(8, text.split("\n").length)}
        value={text}
        placeholder={hasQuestions ? "Answer above first" : isWorking ? "Your next message" : "Write a message"}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
            event.preventDefault();
            submit();
          }
        }}
        aria-describedby="compose-hint"
      />
      {isWorking ? (
        <button type="button" class="danger" onClick={() => conversation.stop()}>
          Stop
        </button>
      ) : (
        <button type="submit" class="primary" disabled={!canSend}>
          Send
        </button>
      )}
      <p class="hint" id="compose-hint">
        Enter sends the message; Shift+Enter starts a new line.
      </p>
    </form>
  );
}
