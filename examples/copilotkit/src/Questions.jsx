import { useState } from "react";
import { useInterrupt } from "@copilotkit/react-core/v2";

/** Several questions may be open at once. Each is answered by its id; the run continues when all are answered. */
export function Questions() {
  useInterrupt({
    render: ({ interrupts, resolve }) => (
      <>
        {interrupts.map((interrupt) => (
          <Question key={interrupt.id} interrupt={interrupt} answer={(payload) => resolve(payload, interrupt.id)} />
        ))}
      </>
    ),
  });
  return null;
}

function Question({ interrupt, answer }) {
  const [isAnswered, setIsAnswered] = useState(false);
  const { action } = interrupt.metadata?.langgraph ?? {};
  const Form = action ? Approval : Text;
  return (
    <fieldset className="question" disabled={isAnswered}>
      <legend>{action ?? "Question"}</legend>
      <Form
        interrupt={interrupt}
        answer={(payload) => {
          setIsAnswered(true);
          answer(payload);
        }}
      />
    </fieldset>
  );
}

/** A tool that waits for approval. */
function Approval({ interrupt, answer }) {
  const { args, allowed_decisions: allowed } = interrupt.metadata.langgraph;
  const [text, setText] = useState(JSON.stringify(args, null, 2));
  const edit = () => {
    try {
      answer({ approved: true, editedArgs: JSON.parse(text) });
    } catch (error) {
      alert(error.message);
    }
  };
  return (
    <>
      <textarea value={text} onChange={({ target }) => setText(target.value)} readOnly={!allowed.includes("edit")} rows={text.split("\n").length} />
      {allowed.includes("approve") && <button onClick={() => answer({ approved: true })}>Approve</button>}
      {allowed.includes("edit") && <button onClick={edit}>Approve as edited</button>}
      {allowed.includes("reject") && <button onClick={() => answer({ approved: false, reason: "I would rather not." })}>Reject</button>}
    </>
  );
}

/** A question of `interrupt("..")`: its answer is any text. */
function Text({ interrupt, answer }) {
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
