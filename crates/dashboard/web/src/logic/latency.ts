/** Histograms of durations. */

import type { LatencyReading } from "../protocol.ts";

/** A bar of a histogram. */
export interface Bar {
  from: number;
  to: number;
  count: number;
}

/** Returns the bins from the first to the last that is not empty. The last bin may have no upper end: the maximum is its end. */
export function bars(reading: LatencyReading): Bar[] {
  const maximum = reading.quantiles_s[4] ?? NaN;
  const bars: Bar[] = [];
  let below = 0;
  let from = 0;
  for (const [end, cumulative] of reading.bins) {
    const to = Number.isFinite(end) && end < 1e6 ? end : Math.max(maximum, from * 2);
    const count = cumulative - below;
    if (to > from) bars.push({ from, to, count: Math.max(0, count) });
    below = Math.max(below, cumulative);
    from = Math.max(from, to);
  }
  const first = bars.findIndex((bar) => bar.count > 0);
  const last = bars.findLastIndex((bar) => bar.count > 0);
  return first < 0 ? [] : bars.slice(first, last + 1).map(withStart);
}

/** A logarithmic axis has no zero: the first bin begins at half of its end. */
function withStart(bar: Bar): Bar {
  return bar.from > 0 ? bar : { ...bar, from: bar.to / 2 };
}

/** Returns the position of a duration on the logarithmic axis of bars, 0 to 1. */
export function position(bars: Bar[], seconds: number): number {
  const low = Math.log(bars[0]?.from ?? 1);
  const high = Math.log(bars.at(-1)?.to ?? 2);
  return Math.min(1, Math.max(0, (Math.log(seconds) - low) / (high - low)));
}

/** Returns the mean duration. */
export function mean(reading: LatencyReading): number {
  return reading.count > 0 ? reading.sum_s / reading.count : NaN;
}
