import { formatBytes, formatMetric, formatPercent } from "../logic/format.ts";
import type { Level } from "../protocol.ts";
import type { Store } from "../store.ts";
import type { Section } from "./section.ts";

/** From this fraction on a level is high. */
const HIGH = 0.85;

function View({ store }: { store: Store }) {
  return (
    <ul class="levels">
      {store.status?.levels.map((level) => (
        <Bar key={level.label} level={level} />
      ))}
    </ul>
  );
}

function amount(value: number, unit: string): string {
  return unit === "bytes" ? formatBytes(value) : formatMetric(value, null);
}

function Bar({ level }: { level: Level }) {
  const { label, used, capacity, unit, high_is_bad } = level;
  const fraction = capacity > 0 ? Math.min(1, Math.max(0, used / capacity)) : 0;
  const isHigh = high_is_bad && fraction >= HIGH;
  return (
    <li>
      <span class="name">{label}</span>
      <span class="number">
        {amount(used, unit)} of {amount(capacity, unit)} {unit !== "bytes" && `${unit} `}
        <strong>{formatPercent(fraction)}</strong>
        {isHigh && <span class="warning"> ▲ high</span>}
      </span>
      <span
        class={`level ${isHigh ? "high" : ""}`}
        role="meter"
        aria-label={label}
        aria-valuenow={Math.round(100 * fraction)}
        aria-valuemin={0}
        aria-valuemax={100}
      >
        <span style={{ width: `${100 * fraction}%` }} />
      </span>
    </li>
  );
}

export const levels: Section = {
  id: "levels",
  title: "Fill levels",
  column: "side",
  isOpen: true,
  isShown: ({ status }) => Boolean(status?.levels.length),
  View,
};
