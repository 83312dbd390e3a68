/** The presence map: which of the last shots arrived, and which parts of them. */

import type { ShotPresence } from "../protocol.ts";

export const PARTS = 64;
/** Columns that are kept for each link. */
export const COLUMNS = 512;
/** Columns that a gap occupies at most. */
const MAX_GAP_COLUMNS = 12;
const MAX_LINKS = 16;

/** A column of the map. */
export type Column =
  | { kind: "shot"; shot: number; complete: boolean; low: number; high: number }
  /** Shots that are missing between two that the program reported together. */
  | { kind: "lost"; from: number; to: number }
  /** Shots that the program did not report, because more came between two messages than a message has. */
  | { kind: "unseen"; from: number; to: number };

type Shot = Extract<Column, { kind: "shot" }>;

interface Entry {
  shot: Shot;
  /** Set if the program reported this shot together with the one before. */
  joined: boolean;
}

/** Counts of the columns that are kept. */
export interface PresenceSummary {
  newest: number | null;
  complete: number;
  partial: number;
  lost: number;
}

/** Returns the two halves of the bits; `null` if the text is malformed. */
export function parseParts(parts: string): { low: number; high: number } | null {
  if (!/^[0-9a-fA-F]{16}$/.test(parts)) return null;
  return { high: parseInt(parts.slice(0, 8), 16), low: parseInt(parts.slice(8), 16) };
}

/** Returns `true` if a part of a shot has arrived. */
export function hasPart(shot: Shot, part: number): boolean {
  const half = part < 32 ? shot.low : shot.high;
  return ((half >>> (part % 32)) & 1) === 1;
}

/** The last shots of one link. */
export class LinkPresence {
  private entries: Entry[] = [];

  /** Merges the shots of a message, in ascending order. */
  merge(shots: Shot[]): void {
    const [first] = shots;
    const newest = shots.at(-1);
    const last = this.entries.at(-1)?.shot.shot;
    if (!first || !newest) return;
    // Numbers that fell are of a new run.
    if (last !== undefined && newest.shot < last) this.entries = [];
    const before = new Map(this.entries.map((entry) => [entry.shot.shot, entry]));
    const overlaps = last !== undefined && this.entries.length > 0 && first.shot <= last;
    const added = shots.map((shot, index) => ({
      shot,
      joined: index > 0 || (before.get(shot.shot)?.joined ?? overlaps),
    }));
    // A shot that was closed late is among those of earlier messages.
    for (const entry of added) before.set(entry.shot.shot, entry);
    this.entries = [...before.values()].sort((a, b) => a.shot.shot - b.shot.shot).slice(-COLUMNS);
  }

  /** Returns the newest columns, oldest first. */
  columns(): Column[] {
    const columns: Column[] = [];
    let before: Shot | null = null;
    for (const { shot, joined } of this.entries) {
      if (before && shot.shot > before.shot + 1) pushGap(columns, before.shot + 1, shot.shot - 1, joined);
      columns.push(shot);
      before = shot;
    }
    return columns.slice(-COLUMNS);
  }

  summary(): PresenceSummary {
    const summary: PresenceSummary = { newest: null, complete: 0, partial: 0, lost: 0 };
    let before: Shot | null = null;
    for (const { shot, joined } of this.entries) {
      if (before && joined) summary.lost += Math.max(0, shot.shot - before.shot - 1);
      if (shot.complete) summary.complete += 1;
      else summary.partial += 1;
      before = shot;
    }
    summary.newest = before?.shot ?? null;
    return summary;
  }
}

function pushGap(columns: Column[], from: number, to: number, isLost: boolean): void {
  if (!isLost) {
    columns.push({ kind: "unseen", from, to });
    return;
  }
  const count = to - from + 1;
  if (count > MAX_GAP_COLUMNS) {
    for (let index = 0; index < MAX_GAP_COLUMNS; index++) columns.push({ kind: "lost", from, to });
    return;
  }
  for (let shot = from; shot <= to; shot++) columns.push({ kind: "lost", from: shot, to: shot });
}

/** The last shots of all links. */
export class Presence {
  readonly links = new Map<number, LinkPresence>();
  /** Number of shots whose bits were malformed. */
  malformed = 0;

  add(shots: ShotPresence[]): void {
    const byLink = new Map<number, Map<number, Shot>>();
    for (const { link, shot, complete, parts } of shots) {
      const bits = parseParts(parts);
      if (!bits || !Number.isFinite(shot) || (!byLink.has(link) && byLink.size >= MAX_LINKS)) {
        this.malformed += 1;
        continue;
      }
      const known = byLink.get(link) ?? new Map<number, Shot>();
      known.set(shot, { kind: "shot", shot, complete, ...bits });
      byLink.set(link, known);
    }
    for (const [link, known] of byLink) this.link(link)?.merge([...known.values()].sort((a, b) => a.shot - b.shot));
  }

  private link(link: number): LinkPresence | undefined {
    const known = this.links.get(link);
    if (known || this.links.size >= MAX_LINKS) return known;
    const created = new LinkPresence();
    this.links.set(link, created);
    return created;
  }
}

/** Returns what a column shows, in words. */
export function describeColumn(column: Column): string {
  if (column.kind === "shot") {
    if (column.complete) return `shot ${column.shot}: complete`;
    const parts = Array.from({ length: PARTS }, (_, part) => hasPart(column, part)).filter(Boolean).length;
    return `shot ${column.shot}: incomplete, ${parts} of ${PARTS} parts arrived`;
  }
  const shots = column.from === column.to ? `shot ${column.from}` : `shots ${column.from} to ${column.to}`;
  return column.kind === "lost" ? `${shots}: lost` : `${shots}: not reported to this page`;
}
