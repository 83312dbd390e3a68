/** Pictures of the kind that is shown. Only the newest is kept, and for scrolling pictures the newest columns. */

import { type Picture, SequenceMeter } from "./logic/picture.ts";
import { ColumnRing } from "./logic/ring.ts";

const COLUMNS = 800;
const MAX_RING_POINTS = 1 << 24;

export class Feed {
  kind: string | null = null;
  paused = false;
  newest: Picture | null = null;
  columns: ColumnRing | null = null;
  meter = new SequenceMeter();
  private readonly listeners = new Set<() => void>();
  private interrupted = false;

  /** Calls a function when there is something new to draw. Returns what ends that. */
  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  }

  /** Shows a kind of pictures. */
  select(kind: string | null): void {
    if (kind === this.kind) return;
    this.kind = kind;
    this.clear();
  }

  clear(): void {
    this.newest = null;
    this.columns = null;
    this.meter = new SequenceMeter();
    this.notify();
  }

  /** Pictures are not requested for some time: numbers that are missing then are no fault. */
  interrupt(): void {
    this.meter.interrupt();
    this.interrupted = true;
  }

  add(picture: Picture): void {
    if (picture.header.kind !== this.kind || this.paused) return;
    const missing = this.meter.add(picture.header.sequence, performance.now());
    this.newest = picture;
    if (picture.header.append && picture.header.format === "gray8")
      this.append(picture, missing > 0 || this.interrupted);
    else this.columns = null;
    this.interrupted = false;
    this.notify();
  }

  private notify(): void {
    for (const listener of this.listeners) listener();
  }

  private append({ header, bytes }: Picture, hasGap: boolean): void {
    const { width, height, x } = header;
    const capacity = Math.max(width, Math.min(COLUMNS, Math.floor(MAX_RING_POINTS / height)));
    if (!this.columns || this.columns.height !== height || this.columns.capacity < width) {
      this.columns = new ColumnRing(capacity, height);
    }
    if (hasGap && this.columns.length) this.columns.appendGap();
    this.columns.append(bytes, width, x.from, x.to);
  }
}
