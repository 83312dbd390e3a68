/** The top of the page: what runs, and whether anything was lost. */

import { useEffect, useRef, useState } from "preact/hooks";
import { Controls } from "./controls.tsx";
import { useKeys } from "./hooks.ts";
import { formatClock, formatElapsed, formatPercent } from "./logic/format.ts";
import { lossSentence, type LossState } from "./logic/losses.ts";
import type { Phase } from "./protocol.ts";
import type { Store } from "./store.ts";
import { nextTheme, theme } from "./theme.ts";

const PHASES: Record<Phase, string> = {
  standby: "Standing by",
  starting: "Starting",
  waiting: "Waiting for data",
  running: "Running",
  ended: "Ended",
};

const SYMBOLS: Record<LossState, string> = { unknown: "–", none: "✓", past: "▲", now: "✕" };
/** A screen reader must not be interrupted four times a second. */
const ANNOUNCE_MS = 10_000;

export function PageHeader({ store, openHelp }: { store: Store; openHelp: () => void }) {
  const { about, status } = store;
  useTitle(store);
  return (
    <header class="top">
      <div class="bar">
        <h1>
          <span class="brand">shotline</span> {about?.command ?? ""}
        </h1>
        {about && <p class="subject">{about.title}</p>}
        <PhaseBadge store={store} />
        {status && (
          <span class="elapsed" title="Time since the start">
            {formatElapsed(status.seconds)}
          </span>
        )}
        <div class="actions">
          <Controls store={store} />
          <ThemeButton />
          <button type="button" class="quiet" onClick={openHelp} title="Keys (?)" aria-label="Keys">
            ?
          </button>
        </div>
      </div>
      <LossLine store={store} />
      {status?.progress != null && <Progress fraction={status.progress} />}
      <ConnectionLine store={store} />
    </header>
  );
}

function useTitle(store: Store): void {
  const { about, status } = store;
  const loss = store.losses.state();
  const state = status && (loss === "past" || loss === "now") ? lossSentence(status).split(":")[0] : "";
  const title = [state, about?.command, "Shotline"].filter(Boolean).join(" · ");
  useEffect(() => {
    document.title = title;
  }, [title]);
}

function PhaseBadge({ store }: { store: Store }) {
  const isLost = store.connection.kind === "lost";
  const phase = store.status?.phase;
  if (phase === "ended") return <span class="badge ended">{PHASES.ended}</span>;
  if (isLost) return <span class="badge lost">Connection lost</span>;
  if (!phase) return <span class="badge">Connecting</span>;
  return <span class={`badge ${phase}`}>{PHASES[phase]}</span>;
}

function Progress({ fraction }: { fraction: number }) {
  const value = Math.min(1, Math.max(0, fraction || 0));
  return (
    <div
      class="progress"
      role="progressbar"
      aria-label="Progress"
      aria-valuenow={Math.round(100 * value)}
      aria-valuemin={0}
      aria-valuemax={100}
    >
      <span class="track">
        <span class="done" style={{ width: `${100 * value}%` }} />
      </span>
      <span class="number">{formatPercent(value)}</span>
    </div>
  );
}

function LossLine({ store }: { store: Store }) {
  const { status, losses } = store;
  const state = losses.state();
  const sentence = status ? lossSentence(status) : "No numbers yet";
  const since = losses.sinceLast();
  const isOver = status?.phase === "ended";
  const age = isOver
    ? "at the end"
    : state === "now"
      ? "rising now"
      : state === "past" && since !== null
        ? `last loss ${formatElapsed(since)} ago`
        : "";
  const announced = useAnnouncement(`${sentence} ${state === "now" ? age : ""}`, state);
  const isStale = store.connection.kind === "lost" && !isOver;
  // A command that loses nothing has no line about it.
  if (status && state === "unknown") return null;
  return (
    <div class={`loss ${status ? state : "unknown"} ${isStale ? "stale" : ""}`}>
      <p>
        <span class="symbol" aria-hidden="true">
          {SYMBOLS[status ? state : "unknown"]}
        </span>
        <span>
          <strong>{sentence}</strong> {age && <span class="age">{age}</span>}
        </span>
      </p>
      <span class="only-read" aria-live="polite" role="status">
        {announced}
      </span>
    </div>
  );
}

/** Returns the text to announce: at once when the state changes, else only from time to time. */
function useAnnouncement(text: string, state: LossState): string {
  const last = useRef({ at: 0, state, text: "" });
  const now = Date.now();
  if (text !== last.current.text && (state !== last.current.state || now - last.current.at > ANNOUNCE_MS)) {
    last.current = { at: now, state, text };
  }
  return last.current.text;
}

function ConnectionLine({ store }: { store: Store }) {
  const { connection } = store;
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    if (connection.kind !== "lost") return;
    const timer = setInterval(() => setNow(Date.now()), 500);
    return () => clearInterval(timer);
  }, [connection.kind]);
  if (connection.kind !== "lost") return null;
  const seconds = Math.max(0, Math.ceil((connection.retryAt - Math.max(now, Date.now())) / 1000));
  const what =
    store.status?.phase === "ended" ? "The program has ended; the numbers are final." : "The numbers are from then.";
  return (
    <p class="connection" role="status">
      Connection lost at {formatClock(connection.since)}. {what} <span aria-live="off">Next try in {seconds} s.</span>{" "}
      <button type="button" onClick={() => store.retry()}>
        Try now
      </button>
    </p>
  );
}

function ThemeButton() {
  const label = { auto: "as the system", light: "light", dark: "dark" }[theme()];
  useKeys((key) => {
    if (key !== "t") return false;
    nextTheme();
    return true;
  });
  return (
    <button
      type="button"
      class="quiet"
      onClick={nextTheme}
      title={`Colours: ${label} (t)`}
      aria-label={`Colours: ${label}`}
    >
      {{ auto: "◐", light: "☀", dark: "☾" }[theme()]}
    </button>
  );
}
