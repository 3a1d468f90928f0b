// The browser's storage. If the browser refuses it, nothing is stored and everything else works.

const PREFIX = "threadway.";

export function remembered(name, otherwise) {
  try {
    const text = localStorage.getItem(PREFIX + name);
    return text === null ? otherwise : JSON.parse(text);
  } catch {
    return otherwise;
  }
}

export function remember(name, value) {
  try {
    localStorage.setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    // Stored for as long as the page is open.
  }
}

/** The user's key: for this tab only, until the tab is closed. */
export const credentials = {
  value: undefined,
  get() {
    if (this.value !== undefined) return this.value;
    try {
      this.value = JSON.parse(sessionStorage.getItem(`${PREFIX}key`));
    } catch {
      this.value = null;
    }
    return this.value;
  },
  set(value) {
    this.value = value;
    try {
      if (value) sessionStorage.setItem(`${PREFIX}key`, JSON.stringify(value));
      else sessionStorage.removeItem(`${PREFIX}key`);
    } catch {
      // As above.
    }
  },
};

/** The thread that was made here and has no message yet; kept across a reload. */
export const fresh = {
  get() {
    try {
      return sessionStorage.getItem(`${PREFIX}fresh`);
    } catch {
      return this.value;
    }
  },
  set(value) {
    this.value = value;
    try {
      if (value) sessionStorage.setItem(`${PREFIX}fresh`, value);
      else sessionStorage.removeItem(`${PREFIX}fresh`);
    } catch {
      // As above.
    }
  },
};

const MAX_KNOWN = 50; // threads of an agent

/** The threads of an agent that this browser has opened, the newest first. */
export function knownThreads(agent) {
  const known = remembered("threads", {})[agent];
  return Array.isArray(known) ? known : [];
}

export function knowThread(agent, id, name) {
  const all = remembered("threads", {});
  const known = knownThreads(agent);
  const before = known.find((thread) => thread.id === id);
  const now = { id, name: before?.name ?? name ?? null, updatedAt: new Date().toISOString() };
  all[agent] = [now, ...known.filter((thread) => thread.id !== id)].slice(0, MAX_KNOWN);
  remember("threads", all);
}
