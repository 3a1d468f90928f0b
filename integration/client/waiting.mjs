// What LangGraph holds while a thread waits for an answer: the root's messages, and those of the agents below it that ask.
// Only their own states have those.

const DEEPEST = 8; // levels of agents
const MADE_UP = ["human", "system"]; // words of a tool for its agent

/** The state of a thread with these messages behind the root's; a state without a question is the same. */
export async function withWaiting(url, threadId, state) {
  const messages = [...(state.values?.messages ?? [])];
  for (const { values } of await waitingBelow(`${url}/threads/${threadId}`, state.tasks ?? [])) {
    const known = new Set(messages.map(({ id }) => id));
    messages.push(...(values?.messages ?? []).filter(({ id, type }) => !known.has(id) && !MADE_UP.includes(type)));
  }
  return messages.length === (state.values?.messages ?? []).length ? state : { ...state, values: { ...state.values, messages } };
}

/** The states of the tasks that ask, a caller's before that of the agent which it calls. */
async function waitingBelow(url, tasks, outer = "", depth = DEEPEST) {
  const states = [];
  for (const { id, name, interrupts, result } of tasks) {
    // The JavaScript server keeps the question of a task that is done while others wait.
    if (!interrupts?.length || Object.keys(result ?? {}).length > 0 || depth === 0) continue;
    const namespace = `${outer}${outer && "|"}${name}:${id}`;
    const state = await stateOf(url, namespace);
    if (state) states.push(state, ...(await waitingBelow(url, state.tasks ?? [], namespace, depth - 1)));
  }
  return states;
}

/** The state under a namespace: of a node that is a graph, or of an agent that a tool has called. */
async function stateOf(url, namespace) {
  const body = JSON.stringify({ checkpoint: { checkpoint_ns: namespace } });
  const asked = { method: "POST", headers: { "content-type": "application/json", connection: "close" }, body };
  for (const [path, init] of [
    ["/state/checkpoint", asked],
    [`/state?checkpoint_ns=${encodeURIComponent(namespace)}`, { headers: { connection: "close" } }], // aegra has only this
  ]) {
    const response = await fetch(url + path, init);
    const state = response.ok ? await response.json() : await response.text();
    if (state.checkpoint?.checkpoint_id && state.checkpoint.checkpoint_ns === namespace) return state;
  }
  return undefined;
}
