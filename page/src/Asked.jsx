// The open interrupts of a thread: approvals as buttons, questions as forms made of their schemas. The gateway expects the
// answers to all of them in one request, so an answer can be changed until the last one is given.
//
// The focus moves from card to card, and not to a card's first button: a key that is held down would decide that card too.

import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Json } from "./Json.jsx";
import { Markdown } from "./markdown.jsx";

const LABELS = { approve: "Approve", accept: "Approve", edit: "Edit", reject: "Reject", ignore: "Reject", respond: "Respond", response: "Respond" };

/** The decisions that an approval allows; `null` for a question. */
function decisionsOf({ metadata, responseSchema }) {
  const allowed = metadata?.langgraph?.allowed_decisions ?? responseSchema?.properties?.type?.enum;
  return Array.isArray(allowed) && allowed.some((decision) => LABELS[decision]) ? allowed : null;
}

/** `asker` names the subagent that asks. `log` is the conversation, which gets the focus after the last answer. */
export function Asked({ interrupts, asker, onAnswer, isBusy, log }) {
  const [answers, setAnswers] = useState(new Map());
  const cards = useRef(new Map()); // the elements, by interrupt
  const next = useRef(null); // the interrupt whose card gets the focus
  const key = interrupts.map(({ id }) => id).join();
  const [shownKey, setShownKey] = useState(key);
  // Further questions of a run that the user has just answered.
  useEffect(() => {
    if (document.activeElement === log.current) cards.current.get(interrupts[0].id)?.focus();
  }, [key]);
  useLayoutEffect(() => {
    cards.current.get(next.current)?.focus();
    next.current = null;
  });
  if (key !== shownKey) {
    setShownKey(key);
    setAnswers(new Map());
    return null;
  }
  const answer = (id, given) => {
    const all = new Map(answers).set(id, given);
    setAnswers(all);
    next.current = interrupts.find((interrupt) => !all.has(interrupt.id))?.id ?? null;
    if (next.current) return;
    log.current?.focus();
    onAnswer(new Map([...all].map(([of, { payload }]) => [of, payload])));
  };
  const change = (id) => {
    const all = new Map(answers);
    all.delete(id);
    setAnswers(all);
    next.current = id;
  };
  const left = interrupts.length - answers.size;
  return (
    <section class="asked" aria-label="The agent asks">
      {interrupts.map((interrupt) => {
        const { id } = interrupt;
        const Kind = decisionsOf(interrupt) ? Approval : Question;
        return <Kind key={id} interrupt={interrupt} asker={asker(interrupt)} answer={answers.get(id)} onAnswer={(given) => answer(id, given)} onChange={left > 0 ? () => change(id) : null} isBusy={isBusy} card={(element) => cards.current.set(id, element)} />;
      })}
      {interrupts.length > 1 && left > 0 && left < interrupts.length ? <p class="hint">{left} more to decide; then all answers are sent together.</p> : null}
    </section>
  );
}

/** A card: what is asked, whether it is answered, and a way back until all answers are sent. */
function Card({ kind, interrupt, asker, title, answer, open, onChange, card, children }) {
  const id = useId();
  return (
    <article class={`card ${kind} ${answer ? "is-decided" : ""}`} data-interrupt={interrupt.id} aria-labelledby={id} tabIndex={-1} ref={card}>
      <header>
        <h3 id={id}>
          {title}{" "}
          {asker ? <span class="chip">{asker}</span> : null}
        </h3>
        {answer ? <span class="chip">{answer.word}</span> : <span class="chip warn">{open}</span>}
      </header>
      {children}
      {answer && onChange ? (
        <div class="buttons">
          <button type="button" class="small" onClick={onChange}>
            Change…
          </button>
        </div>
      ) : null}
    </article>
  );
}

function Approval({ interrupt, asker, answer, onAnswer, onChange, isBusy, card }) {
  const { action, args, details } = interrupt.metadata?.langgraph ?? {};
  const allowed = decisionsOf(interrupt);
  const isInbox = allowed.some((decision) => ["accept", "ignore", "response"].includes(decision));
  const [mode, setMode] = useState(null);
  const [text, setText] = useState("");
  const [fault, setFault] = useState(null);
  const id = useId();
  const own = useRef();
  // What was typed last is kept for a user who changes the decision.
  const [typed, setTyped] = useState({});
  const open = (next) => {
    setMode(next);
    setFault(null);
    setText(typed[next] ?? (next === "edit" ? JSON.stringify(args ?? {}, null, 2) : ""));
  };
  const submit = (event) => {
    event.preventDefault();
    if (mode === "edit") {
      let edited;
      try {
        edited = JSON.parse(text);
      } catch (error) {
        return setFault(`This is not JSON: ${error.message}`);
      }
      if (typeof edited !== "object" || edited === null || Array.isArray(edited)) return setFault("The arguments must be a JSON object.");
      onAnswer({ word: "Edited", args: edited, payload: { approved: true, editedArgs: edited } });
    } else if (mode === "reject") {
      onAnswer({ word: "Rejected", text, payload: { approved: false, ...(text && !isInbox ? { reason: text } : {}) } });
    } else {
      onAnswer({ word: "Responded", text, payload: isInbox ? { type: "response", args: text } : { type: "respond", message: text } });
    }
    setTyped({ ...typed, [mode]: text });
    setMode(null);
  };
  const shownArgs = answer?.args ?? args;
  const approves = allowed.find((decision) => ["approve", "accept"].includes(decision));
  const rejects = allowed.find((decision) => ["reject", "ignore"].includes(decision));
  const responds = allowed.find((decision) => ["respond", "response"].includes(decision));
  const text_ = interrupt.message && !interrupt.message.startsWith("Tool execution requires approval") ? interrupt.message : null;
  const title = (
    <>
      May <code>{action ?? "this"}</code> run?
    </>
  );
  return (
    <Card kind="approval" title={title} open="needs your decision" {...{ interrupt, asker, answer, onChange }} card={(element) => ((own.current = element), card(element))}>
      {text_ ? <Markdown text={text_} /> : null}
      {shownArgs === undefined ? null : <Json value={shownArgs} label={`Arguments of ${action}`} />}
      {details ? <Json value={details} label="Details" /> : null}
      {answer?.text ? <p class="given">{answer.text}</p> : null}
      {answer ? null : (
        <div class="buttons">
          {approves ? (
            <button type="button" class="primary" disabled={isBusy} onClick={() => onAnswer({ word: "Approved", payload: { approved: true } })}>
              Approve
            </button>
          ) : null}
          {allowed.includes("edit") ? (
            <button type="button" aria-expanded={mode === "edit"} disabled={isBusy} onClick={() => open(mode === "edit" ? null : "edit")}>
              Edit…
            </button>
          ) : null}
          {rejects ? (
            <button type="button" class="danger" aria-expanded={isInbox ? undefined : mode === "reject"} disabled={isBusy} onClick={() => (isInbox ? onAnswer({ word: "Rejected", payload: { approved: false } }) : open(mode === "reject" ? null : "reject"))}>
              {isInbox ? "Reject" : "Reject…"}
            </button>
          ) : null}
          {responds ? (
            <button type="button" aria-expanded={mode === "respond"} disabled={isBusy} onClick={() => open(mode === "respond" ? null : "respond")}>
              Respond…
            </button>
          ) : null}
        </div>
      )}
      {mode && !answer ? (
        <form class="decision" onSubmit={submit}>
          <label for={id}>{{ edit: "Arguments (JSON)", reject: "Reason (optional)", respond: "Answer in place of the tool’s result" }[mode]}</label>
          <textarea id={id} class={mode === "edit" ? "code" : ""} rows={mode === "edit" ? Math.min(12, text.split("\n").length + 1) : 2} value={text} onInput={(event) => (setText(event.currentTarget.value), setFault(null))} aria-describedby={fault ? `${id}-fault` : undefined} aria-invalid={fault ? "true" : undefined} ref={(field) => field && field.dataset.focused !== mode && ((field.dataset.focused = mode), field.focus())} />
          {fault ? (
            <p class="fault" id={`${id}-fault`} role="alert">
              {fault}
            </p>
          ) : null}
          <div class="buttons">
            <button type="submit" class={mode === "reject" ? "danger" : "primary"}>
              {{ edit: "Run with these arguments", reject: "Reject", respond: "Send" }[mode]}
            </button>
            <button type="button" onClick={() => (setMode(null), own.current?.focus())}>
              Back
            </button>
          </div>
        </form>
      ) : null}
    </Card>
  );
}

// ---------------------------------------------------------------- questions

const MAX_FIELDS = 40;

/** The fields of an object's schema that a form can show; `null` if it has to be JSON. */
function fieldsOf(schema) {
  if (schema?.type !== "object" || typeof schema.properties !== "object") return null;
  const fields = Object.entries(schema.properties);
  return fields.length > 0 && fields.length <= MAX_FIELDS && fields.every(([, field]) => kindOf(field) !== null) ? fields : null;
}

/** The input for one value: a choice, a switch, a number, text, a list of choices; `null` if none of these fits. */
function kindOf(schema) {
  if (!schema || typeof schema !== "object") return null;
  if (Array.isArray(schema.enum) || schema.const !== undefined) return "choice";
  if (Array.isArray(schema.oneOf) && schema.oneOf.every((one) => one.const !== undefined)) return "choice";
  const type = Array.isArray(schema.type) ? schema.type.find((one) => one !== "null") : schema.type;
  if (type === "array" && Array.isArray(schema.items?.enum)) return "choices";
  return { boolean: "switch", number: "number", integer: "number", string: "text" }[type] ?? (type === "object" || type === "array" ? "json" : null);
}

const choicesOf = ({ enum: values, oneOf, const: only }) =>
  values?.map((value) => ({ value, title: String(value) })) ?? oneOf?.map((one) => ({ value: one.const, title: one.title ?? String(one.const) })) ?? [{ value: only, title: String(only) }];

function initial(schema, isRequired) {
  if (schema.default !== undefined) return kindOf(schema) === "json" ? JSON.stringify(schema.default) : schema.default;
  return { switch: isRequired ? false : undefined, choices: [], choice: undefined }[kindOf(schema)] ?? "";
}

function Question({ interrupt, asker, answer, onAnswer, onChange, isBusy, card }) {
  const schema = interrupt.responseSchema;
  const fields = fieldsOf(schema);
  const single = schema && !fields && kindOf(schema) && kindOf(schema) !== "json" ? schema : null;
  const value = interrupt.metadata?.langgraph?.value;
  const required = new Set(schema?.required ?? []);
  const [given, setGiven] = useState(() => (fields ? Object.fromEntries(fields.map(([name, field]) => [name, initial(field, required.has(name))])) : { "": single ? initial(single, true) : "" }));
  const [fault, setFault] = useState(null);
  const id = useId();
  const set = (name, next) => {
    setGiven({ ...given, [name]: next });
    setFault(null);
  };
  const rest = typeof value === "object" && value !== null ? Object.fromEntries(Object.entries(value).filter(([, shown]) => shown !== interrupt.message)) : null;
  const isBreakpoint = interrupt.reason === "langgraph:breakpoint";

  const submit = (event) => {
    event.preventDefault();
    try {
      if (fields) {
        const payload = {};
        for (const [name, field] of fields) {
          const read = readField(field, given[name], field.title ?? name, required.has(name));
          if (read !== undefined) payload[name] = read;
        }
        onAnswer({ word: "Answered", payload });
      } else if (single) {
        onAnswer({ word: "Answered", payload: readField(single, given[""], "The answer", true) });
      } else {
        onAnswer({ word: "Answered", payload: isBreakpoint ? {} : schema ? JSON.parse(given[""]) : given[""] });
      }
    } catch (error) {
      setFault(error.message);
    }
  };
  return (
    <Card kind="question" title={isBreakpoint ? "The graph stopped at a breakpoint" : (interrupt.message ?? "The agent asks")} open="needs your answer" {...{ interrupt, asker, answer, onChange, card }}>
      {rest && Object.keys(rest).length > 0 ? <Json value={rest} label="Details of the question" /> : null}
      {answer ? null : (
        <form onSubmit={submit} noValidate>
          {fields ? fields.map(([name, field]) => <Field key={name} schema={field} name={name} value={given[name]} isRequired={required.has(name)} onChange={(next) => set(name, next)} />) : null}
          {single ? <Field schema={{ title: "Answer", ...single }} name="answer" value={given[""]} isRequired onChange={(next) => set("", next)} /> : null}
          {!fields && !single && !isBreakpoint ? (
            <div class="field">
              <label for={id}>{schema ? "Answer (JSON)" : "Answer"}</label>
              <textarea id={id} rows={2} class={schema ? "code" : ""} value={given[""]} onInput={(event) => set("", event.currentTarget.value)} />
            </div>
          ) : null}
          {fault ? (
            <p class="fault" role="alert">
              {fault}
            </p>
          ) : null}
          <div class="buttons">
            <button type="submit" class="primary" disabled={isBusy}>
              {isBreakpoint ? "Continue" : "Send answer"}
            </button>
            {isBreakpoint ? null : (
              <button type="button" disabled={isBusy} onClick={() => onAnswer({ word: "Skipped", payload: undefined })}>
                Skip
              </button>
            )}
          </div>
        </form>
      )}
      {isBreakpoint || answer?.payload === undefined ? null : <Json value={answer.payload} label="Your answer" />}
    </Card>
  );
}

/** A field's value in the type of the schema; `undefined` if the field is left out. */
function readField(schema, value, title, isRequired) {
  const kind = kindOf(schema);
  if (kind === "switch") return value;
  if (value === "" || value === undefined) {
    if (isRequired && kind !== "text") throw new Error(`${title} has no value yet.`);
    return isRequired && kind === "text" ? "" : undefined;
  }
  if (kind === "number") {
    const number = Number(value);
    if (Number.isNaN(number) || (schema.type === "integer" && !Number.isInteger(number))) throw new Error(`${title} has to be ${schema.type === "integer" ? "a whole number" : "a number"}.`);
    if (number < schema.minimum || number > schema.maximum) throw new Error(`${title} has to be ${schema.minimum === undefined ? "" : `at least ${schema.minimum} `}${schema.maximum === undefined ? "" : `at most ${schema.maximum}`}.`.replace(" .", "."));
    return number;
  }
  if (kind === "json") {
    try {
      return JSON.parse(value);
    } catch {
      throw new Error(`${title} has to be JSON.`);
    }
  }
  return value;
}

function Field({ schema, name, value, isRequired, onChange }) {
  const id = useId();
  const kind = kindOf(schema);
  const title = schema.title ?? name;
  const label = (
    <label for={id}>
      {title}
      {isRequired ? null : <span class="optional"> (optional)</span>}
    </label>
  );
  const about = schema.description ? (
    <p class="hint" id={`${id}-about`}>
      {schema.description}
    </p>
  ) : null;
  const common = { id, name, "aria-describedby": about ? `${id}-about` : undefined };
  if (kind === "switch") {
    return (
      <div class="field switch">
        <input {...common} type="checkbox" checked={value === true} onChange={(event) => onChange(event.currentTarget.checked)} />
        {label}
        {about}
      </div>
    );
  }
  if (kind === "choice") {
    const choices = choicesOf(schema);
    return (
      <div class="field">
        {label}
        <select {...common} value={choices.findIndex((choice) => choice.value === value)} onChange={(event) => onChange(choices[Number(event.currentTarget.value)]?.value)}>
          <option value={-1}>choose…</option>
          {choices.map((choice, n) => (
            <option value={n}>{choice.title}</option>
          ))}
        </select>
        {about}
      </div>
    );
  }
  if (kind === "choices") {
    return (
      <fieldset class="field">
        <legend>{title}</legend>
        {schema.items.enum.map((choice) => (
          <label class="inline">
            <input type="checkbox" checked={value.includes(choice)} onChange={(event) => onChange(event.currentTarget.checked ? [...value, choice] : value.filter((one) => one !== choice))} />
            {String(choice)}
          </label>
        ))}
        {about}
      </fieldset>
    );
  }
  if (kind === "json" || (schema.maxLength ?? 0) > 120) {
    return (
      <div class="field">
        {label}
        <textarea {...common} rows={3} class={kind === "json" ? "code" : ""} value={value} onInput={(event) => onChange(event.currentTarget.value)} />
        {about}
      </div>
    );
  }
  const type = kind === "number" ? "number" : ({ email: "email", date: "date", uri: "url", time: "time" }[schema.format] ?? "text");
  return (
    <div class="field">
      {label}
      <input {...common} type={type} value={value} min={schema.minimum} max={schema.maximum} step={schema.type === "integer" ? 1 : "any"} onInput={(event) => onChange(event.currentTarget.value)} />
      {about}
    </div>
  );
}
