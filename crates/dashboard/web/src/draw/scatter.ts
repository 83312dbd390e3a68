/** Samples of I and Q as points of a plane. */

import type { Picture } from "../logic/picture.ts";
import { cssColor } from "../theme.ts";
import { type Box, drawAxes, place } from "./frame.ts";

/** Returns the largest value that is shown, so that the range does not follow every picture. */
function radius(picture: Picture): number {
  const { y } = picture.header;
  const declared = Math.max(Math.abs(y.from), Math.abs(y.to));
  if (declared > 0) return declared;
  const largest = picture.values.reduce((most, value) => Math.max(most, Math.abs(value) || 0), 0);
  return largest > 0 ? 2 ** Math.ceil(Math.log2(largest)) : 1;
}

export function drawScatter(context: CanvasRenderingContext2D, picture: Picture, width: number, height: number): void {
  const box = place(width, height, 1, false);
  const range = radius(picture);
  drawCross(context, box);
  const { width: count, lines, y } = picture.header;
  context.fillStyle = cssColor("--series-1");
  context.globalAlpha = 0.55;
  for (let index = 0; index < count; index++) {
    const i = picture.values[index] ?? NaN;
    const q = picture.values[count + index] ?? NaN;
    const x = box.left + (box.width * (i + range)) / (2 * range);
    const y = box.top + (box.height * (range - q)) / (2 * range);
    if (x >= box.left && x <= box.left + box.width && y >= box.top && y <= box.top + box.height)
      context.fillRect(x - 1, y - 1, 2, 2);
  }
  context.globalAlpha = 1;
  const axis = (label: string) => ({ label, unit: y.unit, from: -range, to: range });
  drawAxes(context, box, axis(lines[0] ?? "I"), axis(lines[1] ?? "Q"), { isUpwards: true });
}

function drawCross(context: CanvasRenderingContext2D, box: Box): void {
  context.strokeStyle = cssColor("--grid");
  context.beginPath();
  context.moveTo(box.left, box.top + box.height / 2);
  context.lineTo(box.left + box.width, box.top + box.height / 2);
  context.moveTo(box.left + box.width / 2, box.top);
  context.lineTo(box.left + box.width / 2, box.top + box.height);
  context.stroke();
}
