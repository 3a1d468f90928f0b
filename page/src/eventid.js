// The position of an event in its run, read from its id: `2`, then base64url of the run's UUID, a check, and numbers.

const PLACES = ["start", "part", "part", "close", "end"];

/** `{runId, place, part, n}`, or `null` for an id that cannot be resumed. */
export function readId(id) {
  if (!id?.startsWith("2") || id.startsWith("2.")) return null;
  let bytes;
  try {
    bytes = Uint8Array.from(atob(id.slice(1).replaceAll("-", "+").replaceAll("_", "/")), (char) => char.charCodeAt(0));
  } catch {
    return null;
  }
  let at = 18;
  const number = () => {
    let value = 0n;
    for (let shift = 0n; at < bytes.length; shift += 7n) {
      const byte = bytes[at++];
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    return value;
  };
  const head = Number(number());
  const kind = head & 7;
  const part = kind === 1 ? `${number()}` : kind === 2 ? `${number()}-${number()}` : null;
  const n = Number(number());
  const hex = Array.from(bytes.subarray(0, 16), (byte) => byte.toString(16).padStart(2, "0")).join("");
  return { runId: hex, attempt: head >> 3, place: PLACES[kind] ?? "?", part, n };
}
