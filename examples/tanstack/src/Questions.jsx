import { useState } from "react";

/** Several questions may be open at once. They are answered together, each by its id. */
export function Questions({ interrupts, resume }) {
  const [answers, setAnswers] = useState({});
  const answer = (id, payload) => {
    const all = { ...answers, [id]: payload };
    setAnswers(all);
    // The client's own `resolveInterrupt` works only with servers that are written with TanStack AI.
    if (Object.keys(all).length === interrupts.length) resume(Object.entries(all).map(([interruptId, payload]) => ({ interruptId, status: "resolved", payload })));
  };
  return interrupts.map((interrupt) => (
    <fieldset key={interrupt.id} disabled={interrupt.id in answers}>
      <legend>{interrupt.metadata?.langgraph?.action ?? "Question"}</legend>
      <Question interrupt={interrupt} answer={(payload) => answer(interrupt.id, payload)} />
    </fieldset>
  ));
}

function Question({ interrupt, answer }) {
  const { action, args } = interrupt.metadata?.langgraph ?? {};
  if (action) {
    return (
      <>
        <pre>{JSON.stringify(args, null, 2)}</pre>
        <button onClick={() => answer({ approved: true })}>Approve</button>
        <button onClick={() => answer({ approved: false, reason: "I would rather not." })}>Reject</button>
      </>
    );
  }
  const submit = (event) => {
    event.preventDefault();
    answer(new FormData(event.target).get("answer"));
  };
  return (
    <form onSubmit={submit}>
      <label>
        {interrupt.message} <input name="answer" required />
      </label>
      <button>Answer</button>
    </form>
  );
}
