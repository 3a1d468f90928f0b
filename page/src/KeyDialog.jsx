// Asks the user for the key that the gateway or LangGraph requires. The key stays in this tab.

import { useEffect, useRef, useState } from "preact/hooks";
import { inline } from "./markdown.jsx";
import { credentials } from "./storage.js";

export function KeyDialog({ refused, onClose }) {
  const dialog = useRef();
  const before = credentials.get();
  const isOther = before && !["authorization", "x-api-key"].includes(before.header);
  const [header, setHeader] = useState(isOther ? "other" : (before?.header ?? "authorization"));
  const [other, setOther] = useState(isOther ? before.header : "");
  const [value, setValue] = useState(before?.value ?? "");
  const [fault, setFault] = useState(null);
  useEffect(() => dialog.current.showModal(), []);
  const save = (event) => {
    event.preventDefault();
    const name = header === "other" ? other.trim().toLowerCase() : header;
    // The user may have copied the token with its scheme.
    const key = value.trim().replace(/^Bearer\s+/i, "");
    if (!/^[a-z0-9!#$%&'*+.^_`|~-]+$/.test(name)) return setFault("The name of a header has only letters, digits and dashes.");
    if (!/^[\x21-\x7e]+$/.test(key)) return setFault("A key has only ASCII characters and no spaces.");
    credentials.set({ header: name, value: key });
    onClose(true);
  };
  return (
    <dialog ref={dialog} aria-labelledby="key-title" onClose={() => onClose(false)}>
      <form onSubmit={save} noValidate>
        <h2 id="key-title">{refused ? "The gateway requires a key" : "Your key"}</h2>
        {refused ? (
          <p class="fault" role="alert">
            {`${refused.status} ${refused.code}: `}
            {inline(refused.message)}
          </p>
        ) : null}
        <p class="hint">This page sends the key with each request and keeps it until you close this tab. Ask the operator of the gateway which key it accepts.</p>
        <div class="field">
          <label for="key-header">Sent as</label>
          <select id="key-header" value={header} onChange={(event) => setHeader(event.currentTarget.value)}>
            <option value="authorization">a key or token: authorization: Bearer …</option>
            <option value="x-api-key">LangGraph’s API key: x-api-key</option>
            <option value="other">another header</option>
          </select>
        </div>
        {header === "other" ? (
          <div class="field">
            <label for="key-other">Name of the header</label>
            <input id="key-other" value={other} onInput={(event) => setOther(event.currentTarget.value)} autocomplete="off" />
          </div>
        ) : null}
        <div class="field">
          <label for="key-value">Key or token</label>
          <input id="key-value" type="password" autofocus value={value} onInput={(event) => setValue(event.currentTarget.value)} autocomplete="off" spellcheck={false} />
        </div>
        {fault ? (
          <p class="fault" role="alert">
            {fault}
          </p>
        ) : null}
        <div class="buttons">
          <button type="submit" class="primary">
            Use it
          </button>
          <button type="button" onClick={() => dialog.current.close()}>
            Close
          </button>
          {before ? (
            <button
              type="button"
              class="danger"
              onClick={() => {
                credentials.set(null);
                onClose(true);
              }}
            >
              Forget it
            </button>
          ) : null}
        </div>
      </form>
    </dialog>
  );
}
