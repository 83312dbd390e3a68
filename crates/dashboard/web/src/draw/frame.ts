/** Axes, their labels, and the colour bar around a picture. */

import { axisTitle, fit, ticks, tickText } from "../logic/axis.ts";
import type { Axis } from "../protocol.ts";
import { cssColor } from "../theme.ts";
import { FONT } from "./canvas.ts";

/** A rectangle in CSS pixels. */
export interface Box {
  left: number;
  top: number;
  width: number;
  height: number;
}

const TOP = 10;
const BOTTOM = 40;
const BAR_WIDTH = 14;

/** Returns the place of a picture within a canvas, with its proportions (any if `null`). */
export function place(width: number, height: number, ratio: number | null, hasBar: boolean): Box {
  const isNarrow = width < 480;
  const left = isNarrow ? 50 : 60;
  const right = hasBar ? (isNarrow ? 76 : 92) : 16;
  const size = fit(width - left - right, height - TOP - BOTTOM, ratio);
  const spare = width - left - right - size.width;
  return { left: left + spare / 2, top: TOP, ...size };
}

/** What differs from a picture whose `y` increases downwards. */
interface AxesOptions {
  isUpwards?: boolean;
  /** Smallest and largest `x` that have data; ticks elsewhere are left out. */
  known?: [number, number];
}

/** Returns the height of a canvas that ends below the titles of a picture. */
export function heightAround(box: Box): number {
  return Math.ceil(box.top + box.height + BOTTOM);
}

/** Draws the frame, the ticks and the titles. */
export function drawAxes(
  context: CanvasRenderingContext2D,
  box: Box,
  x: Axis,
  y: Axis,
  options: AxesOptions = {},
): void {
  context.font = FONT;
  context.lineWidth = 1;
  context.strokeStyle = cssColor("--axis");
  context.fillStyle = cssColor("--muted");
  context.strokeRect(
    Math.round(box.left) - 0.5,
    Math.round(box.top) - 0.5,
    Math.round(box.width) + 1,
    Math.round(box.height) + 1,
  );
  drawHorizontal(context, box, x, options.known ?? [-Infinity, Infinity]);
  drawVertical(context, box, options.isUpwards ? { ...y, from: y.to, to: y.from } : y);
}

function drawHorizontal(context: CanvasRenderingContext2D, box: Box, axis: Axis, [low, high]: [number, number]): void {
  const bottom = box.top + box.height;
  const { values, digits } = ticks(axis.from, axis.to, Math.max(2, box.width / 70));
  context.textAlign = "center";
  context.textBaseline = "top";
  for (const value of values.filter((value) => value >= low && value <= high)) {
    const at = Math.round(box.left + (box.width * (value - axis.from)) / (axis.to - axis.from)) + 0.5;
    line(context, at, bottom + 1, at, bottom + 5);
    context.fillText(tickText(value, digits), at, bottom + 7);
  }
  context.fillText(axisTitle(axis), box.left + box.width / 2, bottom + 23);
}

function drawVertical(context: CanvasRenderingContext2D, box: Box, axis: Axis): void {
  const { values, digits } = ticks(axis.from, axis.to, Math.max(2, box.height / 44));
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const value of values) {
    const at = Math.round(box.top + (box.height * (value - axis.from)) / (axis.to - axis.from)) + 0.5;
    line(context, box.left - 5, at, box.left - 1, at);
    context.fillText(tickText(value, digits), box.left - 8, at);
  }
  drawUpwards(context, axisTitle(axis), box.left - 44, box);
}

function drawUpwards(context: CanvasRenderingContext2D, text: string, x: number, box: Box): void {
  context.save();
  context.translate(x, box.top + box.height / 2);
  context.rotate(-Math.PI / 2);
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillText(text, 0, 0, box.height);
  context.restore();
}

function line(context: CanvasRenderingContext2D, x0: number, y0: number, x1: number, y1: number): void {
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}

/** Draws the colours of a table beside a picture, with the values at the ends of the window. */
export function drawBar(
  context: CanvasRenderingContext2D,
  box: Box,
  axis: Axis,
  palette: (fraction: number) => string,
): void {
  const left = box.left + box.width + 14;
  const height = Math.round(box.height);
  for (let row = 0; row < height; row++) {
    context.fillStyle = palette(1 - row / Math.max(1, height - 1));
    context.fillRect(left, box.top + row, BAR_WIDTH, 1.5);
  }
  context.strokeStyle = cssColor("--axis");
  context.strokeRect(Math.round(left) - 0.5, box.top - 0.5, BAR_WIDTH + 1, height + 1);
  const { values, digits } = ticks(axis.from, axis.to, Math.max(2, box.height / 44));
  context.fillStyle = cssColor("--muted");
  context.textAlign = "left";
  context.textBaseline = "middle";
  for (const value of values) {
    const at = box.top + box.height * (1 - (value - axis.from) / (axis.to - axis.from));
    context.fillText(tickText(value, digits), left + BAR_WIDTH + 5, Math.round(at));
  }
  drawUpwards(context, axisTitle(axis), left + BAR_WIDTH + 42, box);
}
