import assert from "node:assert/strict";
import { test } from "node:test";
import { ColumnRing, SeriesRing } from "../src/logic/ring.ts";

test("a ring of series keeps the newest values", () => {
  const ring = new SeriesRing(3, 2);
  for (let time = 0; time < 5; time++) ring.push(time, new Map([["a", 10 * time]]));
  assert.deepEqual(ring.table(["a"]), [
    [2, 3, 4],
    [20, 30, 40],
  ]);
  assert.equal(ring.newestTime(), 4);
});

test("a series that begins later has no values before", () => {
  const ring = new SeriesRing(4, 2);
  ring.push(0, new Map([["a", 1]]));
  ring.push(
    1,
    new Map([
      ["a", 2],
      ["b", 5],
    ]),
  );
  ring.push(
    2,
    new Map([
      ["b", 6],
      ["too many", 7],
    ]),
  );
  assert.deepEqual(ring.names(), ["a", "b"]);
  assert.deepEqual(ring.table(["a", "b", "unknown"]), [
    [0, 1, 2],
    [1, 2, null],
    [null, 5, 6],
    [null, null, null],
  ]);
});

test("old values are removed by their time", () => {
  const ring = new SeriesRing(4, 1);
  for (let time = 0; time < 6; time++) ring.push(time, new Map([["a", time]]));
  ring.dropBefore(4);
  assert.deepEqual(ring.table(["a"]), [
    [4, 5],
    [4, 5],
  ]);
  ring.dropBefore(100);
  assert.equal(ring.newestTime(), null);
});

test("columns are those of the picture, oldest first", () => {
  const ring = new ColumnRing(3, 2);
  ring.append(Uint8Array.of(1, 2, 3, 4), 2, 10, 11); // rows 1 2 and 3 4
  assert.deepEqual([...ring.column(0)], [1, 3]);
  assert.deepEqual([...ring.column(1)], [2, 4]);
  ring.append(Uint8Array.of(5, 6, 7, 8), 2, 12, 13);
  assert.equal(ring.length, 3);
  assert.deepEqual([...ring.column(0)], [2, 4]);
  assert.deepEqual([ring.position(0), ring.position(2)], [11, 13]);
});

test("a gap is a column of its own", () => {
  const ring = new ColumnRing(4, 1);
  ring.append(Uint8Array.of(9), 1, 0, 1);
  ring.appendGap();
  ring.append(Uint8Array.of(8), 1, 5, 6);
  assert.deepEqual(
    [0, 1, 2].map((index) => ring.isGap(index)),
    [false, true, false],
  );
  assert.equal(ring.position(1), 1, "at the place of the column before");
});

test("positions that begin again with each picture are relative", () => {
  const ring = new ColumnRing(8, 1);
  ring.append(Uint8Array.of(1, 2), 2, 0, 1);
  ring.append(Uint8Array.of(1, 2), 2, 2, 3);
  assert.equal(ring.isRelative, false);
  ring.append(Uint8Array.of(1, 2), 2, 0, 1);
  assert.equal(ring.isRelative, true);
});

test("a picture wider than the ring leaves its last columns", () => {
  const ring = new ColumnRing(2, 1);
  ring.append(Uint8Array.of(1, 2, 3, 4, 5), 5, 1, 5);
  assert.deepEqual([[...ring.column(0)], [...ring.column(1)]], [[4], [5]]);
});
