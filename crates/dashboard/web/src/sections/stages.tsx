import { formatNumber, formatPercent } from "../logic/format.ts";
import type { StageReading } from "../protocol.ts";
import type { Store } from "../store.ts";
import type { Section } from "./section.ts";

const PARTS = ["busy", "starved", "stalled"] as const;
const MEANINGS = { busy: "works", starved: "waits for input", stalled: "waits for space at its output" };

function View({ store }: { store: Store }) {
  const status = store.status;
  if (!status) return null;
  return (
    <>
      {status.limit !== null && (
        <p class="limit">
          <span class="muted">Limit:</span> {status.limit}
        </p>
      )}
      <ul class="stages">
        {status.stages.map((stage) => (
          <Stage key={stage.name} stage={stage} />
        ))}
      </ul>
      <ul class="legend" aria-hidden="true">
        {PARTS.map((part) => (
          <li key={part}>
            <span class={`swatch ${part}`} /> {part}: {MEANINGS[part]}
          </li>
        ))}
      </ul>
    </>
  );
}

function Stage({ stage }: { stage: StageReading }) {
  const fraction = (part: (typeof PARTS)[number]) => Math.min(1, Math.max(0, stage[part] || 0));
  return (
    <li>
      <span class="name">{stage.name}</span>
      <span
        class="stack"
        role="img"
        aria-label={PARTS.map((part) => `${part} ${formatPercent(fraction(part))}`).join(", ")}
      >
        {PARTS.map((part) => (
          <span key={part} class={part} style={{ width: `${100 * fraction(part)}%` }}>
            {fraction(part) >= 0.14 ? formatPercent(fraction(part)) : ""}
          </span>
        ))}
      </span>
      <span class="number">{formatNumber(stage.gbps)} Gbit/s</span>
    </li>
  );
}

export const stages: Section = {
  id: "stages",
  title: "Stages",
  column: "side",
  isOpen: true,
  isShown: ({ status }) => Boolean(status && (status.stages.length || status.limit)),
  View,
};
