/** Ring buffers of fixed capacity. */

/** Times and the values of several series at each. Memory is allocated once for each series. */
export class SeriesRing {
  private readonly times: Float64Array;
  private readonly series = new Map<string, Float64Array>();
  private start = 0;
  length = 0;

  constructor(
    readonly capacity: number,
    readonly maxSeries: number,
  ) {
    this.times = new Float64Array(capacity);
  }

  /** Returns the names of the series, in the order of their first value. */
  names(): string[] {
    return [...this.series.keys()];
  }

  /** Adds the values at a time; series without a value get NaN. Series beyond the maximum are discarded. */
  push(time: number, values: ReadonlyMap<string, number>): void {
    for (const name of values.keys()) {
      if (!this.series.has(name) && this.series.size < this.maxSeries) {
        this.series.set(name, new Float64Array(this.capacity).fill(NaN));
      }
    }
    const full = this.length === this.capacity;
    const at = full ? this.start : (this.start + this.length) % this.capacity;
    if (full) this.start = (this.start + 1) % this.capacity;
    else this.length += 1;
    this.times[at] = time;
    for (const [name, buffer] of this.series) buffer[at] = values.get(name) ?? NaN;
  }

  /** Removes all that is older than a time. */
  dropBefore(time: number): void {
    while (this.length > 0 && (this.times[this.start] ?? 0) < time) {
      this.start = (this.start + 1) % this.capacity;
      this.length -= 1;
    }
  }

  clear(): void {
    this.start = 0;
    this.length = 0;
    this.series.clear();
  }

  /** Returns the newest time; `null` if there is none. */
  newestTime(): number | null {
    return this.length ? (this.times[(this.start + this.length - 1) % this.capacity] ?? null) : null;
  }

  /** Returns copies, oldest first: the times, and the values of each name with `null` for missing ones. */
  table(names: string[]): [number[], ...(number | null)[][]] {
    const rows: [number[], ...(number | null)[][]] = [this.unroll(this.times)];
    for (const name of names) {
      const buffer = this.series.get(name);
      const values = buffer ? this.unroll(buffer) : new Array<number>(this.length).fill(NaN);
      rows.push(values.map((value) => (Number.isFinite(value) ? value : null)));
    }
    return rows;
  }

  private unroll(buffer: Float64Array): number[] {
    return Array.from({ length: this.length }, (_, index) => buffer[(this.start + index) % this.capacity] ?? NaN);
  }
}

/** The newest columns of a scrolling picture, each of `height` bytes. */
export class ColumnRing {
  private readonly points: Uint8Array;
  private readonly positions: Float64Array;
  private readonly missing: Uint8Array;
  private start = 0;
  length = 0;
  /** Set if the positions of each picture begin again: they count from its first column. */
  isRelative = false;

  constructor(
    readonly capacity: number,
    readonly height: number,
  ) {
    this.points = new Uint8Array(capacity * height);
    this.positions = new Float64Array(capacity);
    this.missing = new Uint8Array(capacity);
  }

  /** Adds the columns of a picture, whose rows follow one another, with positions from `from` to `to`. */
  append(picture: Uint8Array, width: number, from: number, to: number): void {
    if (this.length && from < this.position(this.length - 1)) this.isRelative = true;
    for (let column = 0; column < width; column++) {
      const at = this.next();
      this.positions[at] = width > 1 ? from + ((to - from) * column) / (width - 1) : to;
      this.missing[at] = 0;
      const base = at * this.height;
      for (let row = 0; row < this.height; row++) this.points[base + row] = picture[row * width + column] ?? 0;
    }
  }

  /** Adds a column that stands for pictures that did not arrive. */
  appendGap(): void {
    const before = this.length ? this.position(this.length - 1) : NaN;
    const at = this.next();
    this.positions[at] = before;
    this.missing[at] = 1;
    this.points.fill(0, at * this.height, (at + 1) * this.height);
  }

  /** Returns the points of a column, counted from the oldest. */
  column(index: number): Uint8Array {
    const at = (this.start + index) % this.capacity;
    return this.points.subarray(at * this.height, (at + 1) * this.height);
  }
  /** Returns the position of a column, counted from the oldest. */
  position(index: number): number {
    return this.positions[(this.start + index) % this.capacity] ?? NaN;
  }
  /** Returns `true` if a column stands for pictures that did not arrive. */
  isGap(index: number): boolean {
    return this.missing[(this.start + index) % this.capacity] === 1;
  }

  private next(): number {
    if (this.length < this.capacity) {
      this.length += 1;
      return (this.start + this.length - 1) % this.capacity;
    }
    const at = this.start;
    this.start = (this.start + 1) % this.capacity;
    return at;
  }
}
