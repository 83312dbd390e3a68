import { useMemo, useRef, useState } from "preact/hooks";
import { Chart, dash, seriesColor } from "../draw/chart.tsx";
import { useWidth } from "../hooks.ts";
import { formatCount, formatElapsed, formatMetric, formatNumber } from "../logic/format.ts";
import { type RateHistory, total, TOTAL, WINDOW_S } from "../logic/rates.ts";
import type { Family } from "../protocol.ts";
import type { Store } from "../store.ts";
import { prefersLessMotion } from "../theme.ts";
import type { Section } from "./section.ts";

const HEIGHT = 120;
/** From this width on there are two charts beside each other, with this gap. */
const TWO_COLUMNS = 620;
const GAP = 20;
/** Seconds between ticks. */
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300];
/** The curves begin with at least this time. */
const MIN_SPAN_S = 30;

function View({ store }: { store: Store }) {
  const host = useRef<HTMLDivElement>(null);
  const width = useWidth(host);
  const shown = store.status?.families.filter((family) => family.rate && store.rates.histories.has(family.name)) ?? [];
  return (
    <div ref={host} class={`rates ${width < TWO_COLUMNS ? "" : "two"}`}>
      {width > 0 &&
        shown.map((family) => (
          <RateChart
            key={family.name}
            family={family}
            history={store.rates.histories.get(family.name)}
            width={width < TWO_COLUMNS ? width : Math.floor((width - GAP) / 2)}
            seconds={store.status?.seconds ?? 0}
            isOver={store.status?.phase === "ended"}
          />
        ))}
    </div>
  );
}

interface RateChartProps {
  family: Family;
  history: RateHistory | undefined;
  width: number;
  seconds: number;
  isOver: boolean;
}

function RateChart({ family, history, width, seconds, isOver }: RateChartProps) {
  const [hovered, setHovered] = useState<number | null>(null);
  const names = history?.ring.names() ?? [];
  const series = names.length > 1 ? names.filter((name) => name !== TOTAL) : names;
  // Each message has a new point; with reduced motion the curve moves once a second.
  const step = prefersLessMotion.matches ? Math.floor(seconds) : seconds;
  const data = useMemo(
    (): [number[], ...(number | null)[][]] => history?.ring.table(series) ?? [[]],
    [history, step, series.join("\n")],
  );
  const oldest = data[0][0] ?? step;
  const span = Math.min(WINDOW_S, Math.max(MIN_SPAN_S, step - oldest));
  const { rate } = family;
  if (!rate || !history) return null;
  // At the end nothing flows: the mean is what remains of interest.
  const value = isOver ? (total(family) * rate.factor) / seconds : history.current;
  const valueAt = (index: number) => (hovered !== null ? data[index + 1]?.[hovered] : data[index + 1]?.at(-1)) ?? NaN;
  return (
    <div class="rate">
      <div class="value" title={family.help}>
        <span class="label">{rate.label}</span>
        <span class="big">{formatNumber(value)}</span>
        <span class="unit">
          {rate.unit}
          {isOver && " on average"}
        </span>
        <span class="muted sum">
          {family.unit ? formatMetric(total(family), family.unit) : formatCount(total(family))} in total
        </span>
      </div>
      <Chart
        label={`${rate.label} over the last minutes, ${isOver ? "on average" : "now"} ${formatNumber(value)} ${rate.unit}`}
        width={width}
        height={HEIGHT}
        names={series}
        data={data}
        x={{ range: [step - span, step], steps: STEPS, format: (value) => (value < 0 ? "" : formatElapsed(value)) }}
        y={{ fromZero: true, format: shortNumber }}
        isDashed
        onHover={setHovered}
      />
      <p class="legend-line">
        {hovered !== null && <span class="muted">at {formatElapsed(data[0][hovered] ?? NaN)}</span>}
        {(series.length > 1 || hovered !== null) &&
          series.map((name, index) => (
            <span key={name}>
              <Swatch index={index} isDashed /> {name === TOTAL ? "" : name}{" "}
              <strong>{formatNumber(valueAt(index))}</strong>
            </span>
          ))}
      </p>
    </div>
  );
}

/** Returns a number of an axis: few characters. */
export function shortNumber(value: number): string {
  const size = Math.abs(value);
  if (size >= 1e9) return `${+(value / 1e9).toPrecision(3)}G`;
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
  if (size >= 1e4) return `${+(value / 1e3).toPrecision(3)}k`;
  return String(+value.toPrecision(4)).replace("-", "\u2212");
}

/** The line of a series, as in the chart. */
export function Swatch({ index, isDashed }: { index: number; isDashed: boolean }) {
  return (
    <svg class="line" width="22" height="8" aria-hidden="true">
      <line
        x1="0"
        x2="22"
        y1="4"
        y2="4"
        stroke={seriesColor(index)}
        stroke-width="2"
        stroke-dasharray={isDashed ? dash(index).join(" ") : ""}
      />
    </svg>
  );
}

export const rates: Section = {
  id: "rates",
  title: "Rates",
  column: "main",
  isOpen: true,
  isShown: ({ status }) => Boolean(status?.families.some((family) => family.rate)),
  View,
};
