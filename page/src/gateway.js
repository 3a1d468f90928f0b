// The requests to the gateway other than streams.

import { credentials } from "./storage.js";

const FIRST_PAUSE_MS = 2_000;
const MAX_PAUSE_MS = 30_000;

/** The pause before a request is sent again that failed so many times before. */
export const pauseAfter = (failures) => Math.min(FIRST_PAUSE_MS * 2 ** failures, MAX_PAUSE_MS);

/** A refusal, with the gateway's code and message. The status is 0 if there was no answer. */
export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }

  static unreachable(error) {
    return new Refused(0, "unreachable", `the gateway cannot be reached; is it running?${error ? ` (${error.message})` : ""}`);
  }

  /** Whether the same request may succeed later. */
  get isPassing() {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }

  static async of(response) {
    const text = await response.text().catch(() => "");
    try {
      const { error, message } = JSON.parse(text);
      return new Refused(response.status, error ?? String(response.status), message ?? text);
    } catch {
      return new Refused(response.status, String(response.status), text.slice(0, 300) || response.statusText || `the answer was ${response.status}`);
    }
  }
}

/** The headers by which the gateway or LangGraph identifies the user. */
export function authHeaders() {
  const key = credentials.get();
  if (!key?.value) return {};
  return key.header === "authorization" ? { authorization: `Bearer ${key.value}` } : { [key.header]: key.value };
}

/** The gateway's own address, also if a proxy serves it under a path. */
export const BASE = new URL(".", document.baseURI).href;

export const agentUrl = (agent, rest) => `${BASE}agui/agent/${encodeURIComponent(agent)}/${rest}`;

export async function ask(path, init = {}) {
  const headers = { accept: "application/json", ...init.headers, ...authHeaders() };
  const response = await fetch(BASE + path, { ...init, headers }).catch((error) => {
    throw Refused.unreachable(error);
  });
  if (!response.ok) throw await Refused.of(response);
  return response.status === 204 ? null : response.json();
}

export const info = () => ask("agui/info");

/** What an agent can do; refused with 404 if there is no such agent. */
export const describe = (agent) => ask(`agui/agent/${encodeURIComponent(agent)}/capabilities`);

export const stopRun = (agent, thread) =>
  ask(`agui/agent/${encodeURIComponent(agent)}/stop/${encodeURIComponent(thread)}`, { method: "POST", headers: { "content-type": "application/json" }, body: "{}" });

/** A random UUID, also if the page's origin is not secure. */
export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}
