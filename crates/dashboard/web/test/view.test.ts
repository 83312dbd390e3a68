import assert from "node:assert/strict";
import { test } from "node:test";
import { axisTitle, fit, isProportional, ticks, tickText } from "../src/logic/axis.ts";
import {
  formatBytes,
  formatCount,
  formatDuration,
  formatElapsed,
  formatNumber,
  formatPercent,
} from "../src/logic/format.ts";
import { bars, position } from "../src/logic/latency.ts";
import { brightness, color, lookupTable, windowEnds } from "../src/logic/palette.ts";

test("numbers are short and exact where it matters", () => {
  assert.equal(formatCount(1234567), "1\u202f234\u202f567");
  assert.deepEqual([0, 0.5, 12.345, 999.96, NaN].map(formatNumber), ["0", "0.500", "12.35", "1000.0", "–"]);
  assert.deepEqual([0, 1.5e-9, 420e-6, 0.0099999, 2].map(formatDuration), [
    "0 s",
    "1.50 ns",
    "420 µs",
    "10.0 ms",
    "2.00 s",
  ]);
  assert.deepEqual([0, 1023, 1536, 2 ** 40].map(formatBytes), ["0 B", "1023 B", "1.50 KiB", "1.00 TiB"]);
  assert.deepEqual([0, 0.021, 0.78, 1].map(formatPercent), ["0 %", "2.1 %", "78 %", "100 %"]);
  assert.deepEqual(
    [5, 65, 3723].map((seconds) => formatElapsed(seconds)),
    ["0:05", "1:05", "1:02:03"],
  );
});

test("ticks are at round numbers within the axis", () => {
  assert.deepEqual(ticks(-19, 19, 4), { values: [-10, 0, 10], digits: 0 });
  assert.deepEqual(ticks(0, 0.05, 5), { values: [0, 0.01, 0.02, 0.03, 0.04, 0.05], digits: 2 });
  assert.deepEqual(ticks(20, 0, 2).values, [0, 10, 20], "a reversed axis");
  assert.deepEqual(ticks(1, 1, 5).values, []);
  assert.deepEqual(ticks(0, NaN, 5).values, []);
  assert.equal(tickText(-0.5, 1), "\u22120.5");
});

test("the title of an axis has its unit", () => {
  const title = (unit: string) => axisTitle({ label: "time", unit, from: 0, to: 1 });
  assert.deepEqual(["", "us", "s", "V"].map(title), ["time", "time (µs)", "time (s)", "time (V)"]);
});

test("proportions are kept only for equal units", () => {
  const axis = (unit: string, to: number) => ({ label: "", unit, from: 0, to });
  assert.ok(isProportional(axis("mm", 40), axis("mm", 45)));
  assert.ok(!isProportional(axis("s", 40), axis("mm", 45)));
  assert.ok(!isProportional(axis("", 40), axis("", 45)));
  assert.ok(!isProportional(axis("mm", 40), axis("mm", 0)));
  assert.deepEqual(fit(100, 100, 2), { width: 100, height: 50 });
  assert.deepEqual(fit(100, 100, 0.5), { width: 50, height: 100 });
});

test("viridis has matplotlib's ends and rises in luminance", () => {
  const near = (value: number[], expected: number[]) =>
    value.every((channel, index) => Math.abs(channel - (expected[index] ?? 0)) <= 4);
  assert.ok(near(color("viridis", 0), [68, 1, 84]));
  assert.ok(near(color("viridis", 0.5), [33, 145, 140]));
  assert.ok(near(color("viridis", 1), [253, 231, 37]));
  const luminance = Array.from({ length: 256 }, (_, index) => color("viridis", index / 255)).map(
    ([r, g, b]) => 0.2126 * r + 0.7152 * g + 0.0722 * b,
  );
  assert.ok(luminance.every((value, index) => index === 0 || value >= (luminance[index - 1] ?? 0) - 1));
});

test("range and gain move the window of the values", () => {
  const decibels = { label: "echo", unit: "dB", from: -60, to: 0 };
  assert.deepEqual(windowEnds(decibels, { range: 1, gain: 0 }), { dark: -60, bright: 0 });
  assert.deepEqual(windowEnds(decibels, { range: 0.5, gain: 0.1 }), { dark: -36, bright: -6 });
  assert.equal(brightness(0.5, { range: 0.5, gain: 0 }), 0);
  assert.equal(brightness(0.75, { range: 0.5, gain: 0 }), 0.5);
  const table = lookupTable("gray", { range: 1, gain: 0 });
  assert.deepEqual([...table.slice(4 * 77, 4 * 78)], [77, 77, 77, 255]);
});

test("bars are the differences of cumulative bins", () => {
  const reading = { name: "", help: "", labels: [], count: 10, sum_s: 1, quantiles_s: [0, 0, 0, 0, 9] };
  const found = bars({
    ...reading,
    bins: [
      [1, 0],
      [2, 3],
      [4, 3],
      [8, 8],
      [NaN, 10],
    ],
  });
  assert.deepEqual(found, [
    { from: 1, to: 2, count: 3 },
    { from: 2, to: 4, count: 0 },
    { from: 4, to: 8, count: 5 },
    { from: 8, to: 16, count: 2 },
  ]);
  assert.equal(position(found, 4), 0.5);
  assert.deepEqual(bars({ ...reading, bins: [] }), []);
});
