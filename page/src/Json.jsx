// A JSON value in a readable form.

const MAX_SHOWN = 20_000; // characters

export function Json({ value, label }) {
  const text = typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? "");
  return (
    <pre class="json" tabIndex={0} role="group" aria-label={label ?? "JSON"}>
      {text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}\n… ${text.length - MAX_SHOWN} more characters` : text}
    </pre>
  );
}

/** Formats JSON text, which may be incomplete. */
export function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
