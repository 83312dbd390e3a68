import { useState } from "preact/hooks";
import { formatClock } from "../logic/format.ts";
import type { LogEntry, LogLevel } from "../protocol.ts";
import type { Store } from "../store.ts";
import type { Section } from "./section.ts";

const LEVELS: LogLevel[] = ["info", "warning", "error"];
const SYMBOLS: Record<LogLevel, string> = { info: "·", warning: "▲", error: "✕" };
/** Rows in the page; older ones are found by the filter. */
const MAX_ROWS = 200;

function View({ store }: { store: Store }) {
  const [least, setLeast] = useState<LogLevel>("info");
  const [words, setWords] = useState("");
  const wanted = words.toLowerCase();
  const matches = (entry: LogEntry) =>
    LEVELS.indexOf(entry.level) >= LEVELS.indexOf(least) && entry.text.toLowerCase().includes(wanted);
  const found = store.log.filter(matches).reverse();
  return (
    <>
      <div class="tools">
        <label>
          <span class="only-read">Least level</span>
          <select value={least} onChange={(event) => setLeast(event.currentTarget.value as LogLevel)}>
            <option value="info">all messages</option>
            <option value="warning">warnings and errors</option>
            <option value="error">errors</option>
          </select>
        </label>
        <input
          type="search"
          placeholder="Filter"
          aria-label="Filter messages"
          value={words}
          onInput={(event) => setWords(event.currentTarget.value)}
        />
      </div>
      {found.length === 0 && <p class="calm">{store.log.length ? "No message matches." : "No messages."}</p>}
      <ol class="log" tabIndex={0} aria-label="Messages, newest first">
        {found.slice(0, MAX_ROWS).map((entry) => (
          <li key={entry.number} class={entry.level}>
            <time>{formatClock(entry.unix_ms)}</time>
            <span class="symbol" title={entry.level} aria-label={entry.level} role="img">
              {SYMBOLS[entry.level]}
            </span>
            <span class="text">{entry.text}</span>
          </li>
        ))}
      </ol>
    </>
  );
}

export const log: Section = {
  id: "log",
  title: "Log",
  column: "side",
  isOpen: true,
  isShown: ({ status }) => status !== null,
  View,
};
