import assert from "node:assert/strict";
import { test } from "node:test";
import { ColumnRing } from "../src/logic/ring.ts";
import { scrolledAxis, scrolledEnds } from "../src/logic/scroll.ts";

const axis = (label: string, unit: string, from: number, to: number) => ({ label, unit, from, to });

/** Returns a ring of 11 columns with pictures of two columns at these positions. */
function ring(...pictures: [number, number][]): ColumnRing {
  const columns = new ColumnRing(11, 1);
  for (const [from, to] of pictures) columns.append(Uint8Array.of(1, 2), 2, from, to);
  return columns;
}

test("times count back from the newest column", () => {
  const columns = ring([7, 7.25], [7.5, 7.75]);
  const shown = scrolledAxis({ x: axis("time", "s", 7.5, 7.75), width: 2 }, columns);
  assert.deepEqual(shown, axis("time", "s", -2.5, 0));
  assert.deepEqual(scrolledEnds(shown, columns), [-10 / 11, 0]);
});

test("other positions are their own", () => {
  const shown = scrolledAxis({ x: axis("shot", "", 12, 14), width: 2 }, ring([8, 10], [12, 14]));
  assert.deepEqual(shown, axis("shot", "", -6, 14));
});

test("a gap does not stretch the time of a column", () => {
  const columns = ring([1, 1.5]);
  columns.appendGap();
  columns.append(Uint8Array.of(1, 2), 2, 600, 600.5);
  const { from, to } = scrolledAxis({ x: axis("time", "s", 600, 600.5), width: 2 }, columns);
  assert.deepEqual([from, to], [-5, 0]);
});

test("columns without a time are counted", () => {
  const header = { x: axis("time", "s", 0, 0), width: 1 };
  const columns = new ColumnRing(11, 1);
  columns.append(Uint8Array.of(1), 1, 0, 0);
  assert.deepEqual(scrolledAxis(header, columns), axis("columns", "", -10, 0));
  columns.append(Uint8Array.of(1), 1, 0, 0);
  assert.deepEqual(scrolledAxis(header, columns), axis("columns", "", -10, 0));
});

test("positions that begin again with each picture end at zero", () => {
  const shown = scrolledAxis({ x: axis("lines", "", 0, 2), width: 2 }, ring([0, 2], [0, 2]));
  assert.deepEqual(shown, axis("lines", "", -11, 0));
});
