/** Axes of scrolling pictures, whose newest column is at the right edge. */

import type { Axis, Header } from "../protocol.ts";
import type { ColumnRing } from "./ring.ts";

/**
 * Returns the axis of a scrolling picture: from the place of its first column, were it full, to the newest. Times count
 * back from the newest column, as on an ultrasound scanner.
 */
export function scrolledAxis({ x, width }: Pick<Header, "x" | "width">, columns: ColumnRing): Axis {
  const { capacity, isRelative } = columns;
  // The newest column is at 0 if positions have no common origin.
  if (isRelative && x.to !== x.from) return { ...x, from: (-capacity * (x.to - x.from)) / width, to: 0 };
  const step = columnStep(columns);
  if (!Number.isFinite(step) || step === 0) return { label: "columns", unit: "", from: 1 - capacity, to: 0 };
  const to = x.unit === "s" ? 0 : columns.position(columns.length - 1);
  return { ...x, from: to - step * (capacity - 1), to };
}

/** Returns the ends of the part of the axis that has columns, in ascending order. */
export function scrolledEnds({ from, to }: Axis, { length, capacity }: ColumnRing): [number, number] {
  const oldest = to - ((to - from) * length) / capacity;
  return oldest <= to ? [oldest, to] : [to, oldest];
}

/** Returns the mean distance of neighbouring columns; what was not received between two of them does not count. */
function columnStep(columns: ColumnRing): number {
  let [sum, count] = [0, 0];
  for (let at = 1; at < columns.length; at++) {
    if (columns.isGap(at) || columns.isGap(at - 1)) continue;
    sum += columns.position(at) - columns.position(at - 1);
    count += 1;
  }
  return sum / count;
}
