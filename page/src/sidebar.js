// The threads of the sidebar: one stream for all of them, since a browser has six connections for all its tabs.

import { BASE, pauseAfter, Refused } from "./gateway.js";
import { Line } from "./wire.js";

/**
 * Follows the threads that the gateway lists for the user, or the marks of the threads with these names. `onChange` gets
 * a map from names to `{mark, thread}` after each message, and `onRefused` a refusal. Returns a function that ends it.
 */
export function followThreads({ agent, names, onChange, onRefused }) {
  const wanted = names ? names.map((name) => ["thread", name]) : [["threads", "mine"]];
  const url = `${BASE}agui/events?${new URLSearchParams([["agentId", agent], ...wanted])}`;
  let threads = new Map();
  let isClosed = false;
  let timer = null;
  let line = null;
  const take = (message) => {
    // The first message of a connection has all threads.
    if (message.threads) threads = new Map();
    for (const { threadId, mark, thread, removed, error } of message.threads ?? [message]) {
      if (removed || error) threads.delete(threadId);
      else threads.set(threadId, { mark, thread });
    }
    onChange(new Map(threads));
  };
  const fail = (refused, failures) => {
    if (isClosed) return;
    onRefused(refused);
    if (refused.isPassing) timer = setTimeout(() => open(failures + 1), pauseAfter(failures));
    else onChange(null);
  };
  const open = async (failures) => {
    const observer = {
      onConnection: () => {},
      onComment: () => {},
      onEnd: () => {},
      onRefused: (refused) => fail(refused, 0),
      onFrame: ({ data }) => take(JSON.parse(data)),
    };
    line = new Line(url, { headers: { accept: "text/event-stream" } }, null, observer);
    try {
      const refusal = await line.open();
      if (refusal) fail(await Refused.of(refusal), failures);
    } catch (error) {
      fail(Refused.unreachable(error), failures);
    }
  };
  open(0);
  return () => {
    isClosed = true;
    clearTimeout(timer);
    line?.close();
  };
}
