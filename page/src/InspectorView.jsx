// The inspector: each moment has a part of LangGraph's stream, its run events, and the events on the wire.

import { memo } from "preact/compat";
import { useState } from "preact/hooks";
import { Json } from "./Json.jsx";

const SHOWN = 60; // moments, at first

export function InspectorView({ inspector, onClear, withParts, onParts }) {
  const [shown, setShown] = useState(SHOWN);
  const { moments, total } = inspector;
  const rows = moments.slice(-shown).reverse();
  return (
    <div class="inspector">
      <div class="inspector-head">
        <p class="hint">
          LangGraph’s part → run events → events on the wire. {total.moments} moments, {total.events} events, {size(total.bytes)} over the wire. The newest is first.
        </p>
        <label class="inline">
          <input type="checkbox" checked={withParts} onChange={(event) => onParts(event.currentTarget.checked)} /> LangGraph’s parts
        </label>
        <button type="button" class="small" onClick={onClear}>
          Clear
        </button>
      </div>
      {rows.length === 0 ? <p class="empty">No events yet. Each row shows a moment of a run: LangGraph’s part, the gateway’s run events, and the events on the wire.</p> : null}
      <ol class="moments" reversed>
        {rows.map((moment) => (
          <Row key={moment.key} moment={moment} version={moment.version} />
        ))}
      </ol>
      {moments.length > shown ? (
        <button type="button" class="small" onClick={() => setShown(shown + 200)}>
          Show older
        </button>
      ) : null}
    </div>
  );
}

export const size = (bytes) => (bytes < 1000 ? `${bytes} B` : bytes < 1e6 ? `${(bytes / 1000).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`);

const clock = (at) => {
  const date = new Date(at);
  return `${date.toTimeString().slice(0, 8)}.${String(date.getMilliseconds()).padStart(3, "0")}`;
};

function runsOf(moment) {
  const counts = [];
  for (const { name, events } of moment.runs) {
    const last = counts.at(-1);
    if (last && last.name === name) last.n += 1;
    else counts.push({ name: name ?? events[0]?.type.toLowerCase().replaceAll("_", " ") ?? "…", n: 1 });
  }
  return counts.map(({ name, n }) => (n > 1 ? `${name} ×${n}` : name)).join(", ");
}

const CONNECTIONS = {
  lost: ({ byHand, lastId }) => `${byHand ? "cut by hand" : "connection lost"}; last event ${lastId ?? "none"}`,
  back: ({ lastId, status }) => `reconnected with Last-Event-ID ${lastId ?? "(none)"}: ${status}`,
  "caught-up": ({ events, again }) => (events === 0 ? "no event was missed" : `${events} missed events arrived, ${again} of them twice`),
};

const Row = memo(({ moment }) => {
  const [isOpen, setOpen] = useState(false);
  if (moment.connection) {
    return (
      <li class={`moment connection is-${moment.connection.type}`}>
        <span class="time">{clock(moment.at)}</span> {CONNECTIONS[moment.connection.type](moment.connection)}
      </li>
    );
  }
  const { place, part } = moment;
  const where = place ? (place.part ? `part ${place.part}` : place.place) : "thread";
  return (
    <li class="moment">
      <details onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>
          <span class="time">{clock(moment.at)}</span>
          <span class="lane part">{part ? part.event : place?.part ? "part" : where}</span>
          <span class="lane runs">{runsOf(moment)}</span>
          <span class="lane bytes">{`${moment.events} ev, ${size(moment.bytes)}`}</span>
        </summary>
        {isOpen ? (
          <div class="detail">
            <h3>LangGraph’s part</h3>
            {part ? (
              <>
                <p class="hint">{`${where}, ${size(moment.partBytes)} without metadata and configuration`}</p>
                <Json value={part} label="LangGraph's part" />
              </>
            ) : (
              <p class="hint">{place?.part ? `${where}; its text was not sent` : "None: the gateway made these events from the thread’s state, or for the start or the end of the run."}</p>
            )}
            <h3>Run events, and their events on the wire</h3>
            {moment.runs.map(({ name, events }, n) => (
              <div class="run-event" key={n}>
                <p class="name">{name ?? "run event"}</p>
                {events.length === 0 ? <p class="hint">no event on the wire</p> : null}
                {events.map(({ id, type, bytes, isAgain, event }) => (
                  <div key={id ?? type}>
                    <p class="wire">
                      <code>{type}</code> <span>{size(bytes)}</span> {isAgain ? <span class="chip warn">again</span> : null}
                    </p>
                    <p class="id">{id ? `id ${id}` : "without an id"}</p>
                    <Json value={event} label={type} />
                  </div>
                ))}
              </div>
            ))}
          </div>
        ) : null}
      </details>
    </li>
  );
});
