/** What was lost, in words and as rows. */

import type { Family, Sample, Status } from "../protocol.ts";
import { formatCount, formatName } from "./format.ts";
import { total } from "./rates.ts";

/** Time in seconds after which a loss is no longer "now". */
const NOW_S = 10;
/** A rate of losses is over this time: they are rare. */
const RATE_SPAN_S = 10;

/** Losses of one cause. */
export interface LossRow {
  family: string;
  help: string;
  /** What was lost: packets, shots. */
  noun: string;
  /** Name of the cause, and the other labels. */
  cause: string;
  labels: string;
  /** Set if the cause is one that `shotline --explain` has. */
  isNamed: boolean;
  count: number;
  /** Losses per second now. */
  rate: number;
}

/** How bad it is: no loss counters, nothing lost, lost before, being lost. */
export type LossState = "unknown" | "none" | "past" | "now";

const NOUNS: [RegExp, string, string][] = [
  [/packet/i, "packet", "packets"],
  [/datagram/i, "datagram", "datagrams"],
  [/frame/i, "frame", "frames"],
  [/event/i, "event", "events"],
  [/byte/i, "byte", "bytes"],
  [/shot/i, "shot", "shots"],
];

/** Returns what a family counts, by the first word of its name or help that is known. */
export function noun(family: Family, count: number): string {
  for (const source of [family.name, family.help]) {
    const known = NOUNS.filter(([pattern]) => pattern.test(source))
      .map((entry) => ({ entry, at: source.search(entry[0]) }))
      .sort((a, b) => a.at - b.at)[0];
    if (known) return count === 1 ? known.entry[1] : known.entry[2];
  }
  return count === 1 ? "loss" : "losses";
}

function hasCause(sample: Sample): boolean {
  return sample.labels.some(([name]) => name === "cause");
}

function cause(family: Family, sample: Sample): { name: string; isNamed: boolean; rest: string } {
  const named = sample.labels.find(([name]) => name === "cause");
  const rest = sample.labels.filter((label) => label !== named).map(([name, value]) => `${name} ${value}`);
  return { name: named?.[1] ?? family.name, isNamed: Boolean(named), rest: rest.join(", ") };
}

/** Returns one row for each loss that is not zero, largest first. */
export function lossRows(status: Status, rates: ReadonlyMap<string, number>): LossRow[] {
  const rows: LossRow[] = [];
  for (const family of status.families.filter((family) => family.is_loss)) {
    for (const sample of family.samples.filter((sample) => sample.value > 0)) {
      const { name, isNamed, rest } = cause(family, sample);
      const key = lossKey(family, sample);
      rows.push({
        family: family.name,
        help: family.help,
        noun: noun(family, sample.value),
        cause: name,
        labels: rest,
        isNamed,
        count: sample.value,
        rate: rates.get(key) ?? 0,
      });
    }
  }
  return rows.sort((a, b) => b.count - a.count);
}

function lossKey(family: Family, sample: Sample): string {
  return `${family.name} ${sample.labels.join(" ")}`;
}

/** Returns the one sentence about losses: "37 packets lost: wire_gap 30, late 7". */
export function lossSentence(status: Status): string {
  const families = status.families.filter((family) => family.is_loss);
  const sentences = families.filter((family) => total(family) > 0).map(familySentence);
  if (sentences.length) return sentences.join("; ");
  return families.length ? "No loss" : "No loss counters";
}

function familySentence(family: Family): string {
  const count = total(family);
  const causes = new Map<string, number>();
  for (const sample of family.samples.filter((sample) => sample.value > 0)) {
    const { name } = cause(family, sample);
    causes.set(name, (causes.get(name) ?? 0) + sample.value);
  }
  const sorted = [...causes].sort((a, b) => b[1] - a[1]);
  const what = noun(family, count);
  if (!family.samples.some(hasCause)) return plainSentence(family, count);
  const head = what.startsWith("loss") ? `${formatCount(count)} ${what}` : `${formatCount(count)} ${what} lost`;
  return `${head}: ${sorted.map(([name, value]) => `${name} ${formatCount(value)}`).join(", ")}`;
}

/** A loss without causes is named as its counter: `shots_partial` are "5 partial shots". */
function plainSentence(family: Family, count: number): string {
  const [, , plural] = NOUNS.find(([, , plural]) => family.name.startsWith(`${plural}_`)) ?? ["", "", ""];
  if (!plural) return `${formatName(family.name)} ${formatCount(count)}`;
  return `${formatCount(count)} ${formatName(family.name.slice(plural.length + 1))} ${noun(family, count)}`;
}

/** Follows the losses over time. */
export class LossMeter {
  /** Losses per second of each sample in the last seconds. */
  readonly rates = new Map<string, number>();
  private recent: { seconds: number; values: Map<string, number> }[] = [];
  private lastRise = -Infinity;
  private seconds = 0;
  private sum: number | null = null;
  private hasCounters = false;
  private isOver = false;

  add(status: Status): void {
    const values = new Map<string, number>();
    const families = status.families.filter((family) => family.is_loss);
    for (const family of families) {
      for (const sample of family.samples) values.set(lossKey(family, sample), sample.value);
    }
    const sum = families.reduce((sum, family) => sum + total(family), 0);
    // What was lost before the page was opened is not lost now.
    if (this.sum !== null && sum > this.sum) this.lastRise = status.seconds;
    this.sum = sum;
    this.seconds = status.seconds;
    this.hasCounters = families.length > 0;
    this.isOver = status.phase === "ended";
    this.updateRates(status.seconds, values);
  }

  state(): LossState {
    if (!this.hasCounters) return "unknown";
    if (!this.sum) return "none";
    return this.seconds - this.lastRise < NOW_S && !this.isOver ? "now" : "past";
  }

  /** Returns the seconds since the last loss; `null` without any since the page was opened. */
  sinceLast(): number | null {
    return Number.isFinite(this.lastRise) ? this.seconds - this.lastRise : null;
  }

  private updateRates(seconds: number, values: Map<string, number>): void {
    this.recent.push({ seconds, values });
    while (this.recent.length > 2 && seconds - (this.recent[1]?.seconds ?? seconds) >= RATE_SPAN_S) this.recent.shift();
    const [base] = this.recent;
    if (!base || seconds <= base.seconds) return;
    for (const [key, value] of values) {
      const lost = Math.max(0, value - (base.values.get(key) ?? 0));
      this.rates.set(key, this.isOver ? 0 : lost / (seconds - base.seconds));
    }
  }
}
