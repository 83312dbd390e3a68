/** Rates of counters: the difference of their values over time. */

import type { Family, Sample, Status } from "../protocol.ts";
import { SeriesRing } from "./ring.ts";

export const TOTAL = "total";
/** Seconds that are kept, and the points that suffice for them at four a second. */
export const WINDOW_S = 300;
const CAPACITY = 1400;
/** A rate is over at least this time: shorter differences show the jitter of the messages. */
const SPAN_S = 0.9;
/** After a longer time without messages the curve has a gap. */
const GAP_S = 5;
const MAX_SERIES = 8;
const MAX_FAMILIES = 48;

interface Counts {
  seconds: number;
  values: Map<string, number>;
}

/** Returns the name of a series: the values of its labels. */
export function seriesName(sample: Sample): string {
  return sample.labels.map(([name, value]) => `${name} ${value}`).join(", ") || TOTAL;
}

/** Returns the sum of a family's samples. */
export function total(family: Family): number {
  return family.samples.reduce((sum, sample) => sum + (Number.isFinite(sample.value) ? sample.value : 0), 0);
}

/** Returns the values of the total and, if there are two to eight, of each sample. */
export function counts(family: Family): Map<string, number> {
  const values = new Map([[TOTAL, total(family)]]);
  if (family.samples.length >= 2 && family.samples.length <= MAX_SERIES) {
    for (const sample of family.samples) values.set(seriesName(sample), sample.value);
  }
  return values;
}

/** Rates of one counter over the last minutes. */
export class RateHistory {
  readonly ring = new SeriesRing(CAPACITY, MAX_SERIES + 1);
  private recent: Counts[] = [];
  current = NaN;

  add(seconds: number, values: Map<string, number>, factor: number): void {
    const last = this.recent.at(-1);
    if (last && seconds <= last.seconds) return;
    if (last && seconds - last.seconds > GAP_S) {
      this.ring.push(last.seconds + 0.001, new Map());
      this.recent = [];
    }
    this.recent.push({ seconds, values });
    // The oldest one is the newest that is at least a span old.
    while (this.recent.length > 2 && seconds - (this.recent[1]?.seconds ?? seconds) >= SPAN_S) this.recent.shift();
    const base = this.recent[0];
    if (!base || base.seconds === seconds) return;
    const rates = rate(base, { seconds, values }, factor);
    this.current = rates.get(TOTAL) ?? NaN;
    this.ring.push(seconds, rates);
    this.ring.dropBefore(seconds - WINDOW_S);
  }
}

/** Returns the rates between two times. A counter that fell was restarted: its rate is unknown. */
export function rate(from: Counts, to: Counts, factor: number): Map<string, number> {
  const rates = new Map<string, number>();
  for (const [name, value] of to.values) {
    const change = value - (from.values.get(name) ?? 0);
    rates.set(name, change >= 0 ? (change * factor) / (to.seconds - from.seconds) : NaN);
  }
  return rates;
}

/** Histories of all families that have a rate, and of the losses. */
export class Rates {
  readonly histories = new Map<string, RateHistory>();

  add(status: Status): void {
    for (const family of status.families) {
      if (!family.rate) continue;
      const history = this.history(family.name);
      history?.add(status.seconds, counts(family), family.rate.factor);
    }
  }

  private history(name: string): RateHistory | undefined {
    const known = this.histories.get(name);
    if (known || this.histories.size >= MAX_FAMILIES) return known;
    const created = new RateHistory();
    this.histories.set(name, created);
    return created;
  }
}
