/** Ticks of axes, and the place of a picture. */

import type { Axis } from "../protocol.ts";

/** Returns positions of at most about `count` ticks at round numbers within the axis, and the digits that they need. */
export function ticks(from: number, to: number, count: number): { values: number[]; digits: number } {
  const low = Math.min(from, to);
  const high = Math.max(from, to);
  const span = high - low;
  if (!(span > 0) || !Number.isFinite(span) || count < 1) return { values: [], digits: 0 };
  const power = 10 ** Math.floor(Math.log10(span / count));
  const step = power * ([1, 2, 5, 10].find((factor) => span / (power * factor) <= count) ?? 10);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  // -0 would print as "-0".
  const values = Array.from({ length: last - first + 1 }, (_, index) => (first + index) * step || 0);
  return { values, digits: Math.min(9, Math.max(0, -Math.floor(Math.log10(step) + 1e-9))) };
}

/** Returns the text of a tick. */
export function tickText(value: number, digits: number): string {
  const size = Math.abs(value);
  if (size >= 1e6 || (size > 0 && size < 1e-5)) return value.toExponential(1);
  return value.toFixed(digits).replace("-", "\u2212");
}

/** Returns the title of an axis: its label with the unit. */
export function axisTitle(axis: Axis): string {
  return axis.unit ? `${axis.label} (${unitText(axis.unit)})`.trim() : axis.label;
}

/** Returns a unit with the letter that ASCII lacks. */
export function unitText(unit: string): string {
  return unit.replace(/^u(?=[a-zA-Z])/, "µ");
}

/** Returns `true` if lengths along both axes can be compared, so that the picture keeps its proportions. */
export function isProportional(x: Axis, y: Axis): boolean {
  return x.unit !== "" && x.unit === y.unit && aspect(x, y) > 0 && Number.isFinite(aspect(x, y));
}

/** Returns width over height in units of the axes. */
export function aspect(x: Axis, y: Axis): number {
  return Math.abs(x.to - x.from) / Math.abs(y.to - y.from);
}

/** Returns the largest size with these proportions (any if `null`) that fits. */
export function fit(width: number, height: number, ratio: number | null): { width: number; height: number } {
  if (ratio === null) return { width, height };
  return width / height > ratio ? { width: height * ratio, height } : { width, height: width / ratio };
}
