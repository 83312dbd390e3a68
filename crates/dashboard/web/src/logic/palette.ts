/** Palettes, and the table from the values of a picture to colours. */

import type { Axis } from "../protocol.ts";

export type PaletteName = "gray" | "viridis";
export const PALETTES: PaletteName[] = ["gray", "viridis"];

type Rgb = [number, number, number];

/** Coefficients of polynomials of the sixth degree that approximate matplotlib's viridis within 1/255 to 3/255 a channel. */
const VIRIDIS: Rgb[] = [
  [0.2777273272234177, 0.005407344544966578, 0.3340998053353061],
  [0.1050930431085774, 1.404613529898575, 1.384590162594685],
  [-0.3308618287255563, 0.214847559468213, 0.09509516302823659],
  [-4.634230498983486, -5.799100973351585, -19.33244095627987],
  [6.228269936347081, 14.17993336680509, 56.69055260068105],
  [4.776384997670288, -13.74514537774601, -65.35303263337234],
  [-5.435455855934631, 4.645852612178535, 26.3124352495832],
];

/** Returns the colour of a value from 0 to 1, each channel from 0 to 255. */
export function color(palette: PaletteName, value: number): Rgb {
  const at = Math.min(1, Math.max(0, value));
  if (palette === "gray") {
    const gray = Math.round(255 * at);
    return [gray, gray, gray];
  }
  const channel = (index: 0 | 1 | 2) => VIRIDIS.reduceRight((sum, row) => sum * at + row[index], 0);
  const byte = (value: number) => Math.round(255 * Math.min(1, Math.max(0, value)));
  return [byte(channel(0)), byte(channel(1)), byte(channel(2))];
}

/** How values become brightness: as fractions of the axis of the values. */
export interface Window {
  /** Part of the axis that is shown, from 0 to 1. */
  range: number;
  /** Added to every value, from -0.5 to 0.5. */
  gain: number;
}

/** Returns the brightness, 0 to 1, of a value at a fraction of its axis. The window ends at the largest value. */
export function brightness(fraction: number, { range, gain }: Window): number {
  return Math.min(1, Math.max(0, (fraction + gain - (1 - range)) / range));
}

/** Returns the colour of each of the 256 values of `gray8`, as bytes red, green, blue, 255. */
export function lookupTable(palette: PaletteName, window: Window): Uint8Array {
  const table = new Uint8Array(256 * 4);
  for (let value = 0; value < 256; value++) {
    table.set([...color(palette, brightness(value / 255, window)), 255], 4 * value);
  }
  return table;
}

/** Returns the values at the dark and the bright end of the window, in the unit of the axis. */
export function windowEnds(axis: Axis, { range, gain }: Window): { dark: number; bright: number } {
  const span = axis.to - axis.from;
  return { dark: axis.to - span * (range + gain), bright: axis.to - span * gain };
}

/** Returns the axis of the values, or 0 to 255 if a picture has none. */
export function valueAxis(axis: Axis): Axis {
  return axis.from === axis.to || !Number.isFinite(axis.to - axis.from) ? { ...axis, from: 0, to: 255 } : axis;
}
