import { formatCount, formatDuration, formatName } from "../logic/format.ts";
import { type Bar, bars, mean, position } from "../logic/latency.ts";
import type { LatencyReading } from "../protocol.ts";
import type { Store } from "../store.ts";
import type { Section } from "./section.ts";

const QUANTILES = ["min", "50 %", "99 %", "99.9 %", "max"];
const [WIDTH, HEIGHT] = [320, 44];

function View({ store }: { store: Store }) {
  return (
    <>
      {store.status?.latencies.every(({ count }) => count === 0) && <p class="calm">No durations yet.</p>}
      {store.status?.latencies
        .filter(({ count }) => count > 0)
        .map((reading) => (
          <Latency key={`${reading.name} ${reading.labels.join()}`} reading={reading} />
        ))}
    </>
  );
}

function Latency({ reading }: { reading: LatencyReading }) {
  const labels = reading.labels.map((label) => label.join(" ")).join(", ");
  return (
    <figure class="latency">
      <figcaption>
        <strong title={reading.help}>{formatName(reading.name)}</strong>{" "}
        {labels && <span class="labels">{labels}</span>}
        <span class="muted">
          {formatCount(reading.count)}, mean {formatDuration(mean(reading))}
        </span>
      </figcaption>
      <Histogram reading={reading} />
      <dl class="quantiles">
        {QUANTILES.map((name, index) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{formatDuration(reading.quantiles_s[index] ?? NaN)}</dd>
          </div>
        ))}
      </dl>
    </figure>
  );
}

function Histogram({ reading }: { reading: LatencyReading }) {
  const shown = bars(reading);
  const [first] = shown;
  const last = shown.at(-1);
  if (!first || !last) return null;
  const most = Math.max(...shown.map((bar) => bar.count));
  const label = `Histogram from ${formatDuration(first.from)} to ${formatDuration(last.to)}, logarithmic axis`;
  return (
    <>
      <svg
        class="histogram"
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={label}
      >
        {shown.map((bar) => (
          <BarShape key={bar.from} bar={bar} all={shown} most={most} />
        ))}
        {[1, 2].map((index) => (
          <Mark key={index} at={WIDTH * position(shown, reading.quantiles_s[index] ?? NaN)} isMedian={index === 1} />
        ))}
      </svg>
      <p class="range" aria-hidden="true">
        <span>{formatDuration(first.from)}</span>
        <span>logarithmic</span>
        <span>{formatDuration(last.to)}</span>
      </p>
    </>
  );
}

function BarShape({ bar, all, most }: { bar: Bar; all: Bar[]; most: number }) {
  const left = WIDTH * position(all, bar.from);
  const right = WIDTH * position(all, bar.to);
  // The square root keeps bins with few durations visible: the tail is what matters.
  const height = bar.count > 0 ? Math.max(1.5, (HEIGHT - 2) * Math.sqrt(bar.count / most)) : 0;
  return (
    <rect x={left + 0.5} y={HEIGHT - height} width={Math.max(0.5, right - left - 1)} height={height}>
      <title>
        {formatDuration(bar.from)} to {formatDuration(bar.to)}: {formatCount(bar.count)}
      </title>
    </rect>
  );
}

function Mark({ at, isMedian }: { at: number; isMedian: boolean }) {
  if (!Number.isFinite(at)) return null;
  return <line class={isMedian ? "median" : "tail"} x1={at} x2={at} y1={0} y2={HEIGHT} />;
}

export const latencies: Section = {
  id: "latencies",
  title: "Latencies",
  column: "side",
  isOpen: true,
  isShown: ({ status }) => Boolean(status?.latencies.length),
  View,
};
