import assert from "node:assert/strict";
import { test } from "node:test";
import { COLUMNS, describeColumn, hasPart, parseParts, Presence } from "../src/logic/presence.ts";
import type { ShotPresence } from "../src/protocol.ts";

const ALL = "ffffffffffffffff";
const shot = (number: number, parts = ALL, link = 0): ShotPresence => ({
  link,
  shot: number,
  complete: parts === ALL,
  parts,
});

function kinds(presence: Presence): string[] {
  return (presence.links.get(0)?.columns() ?? []).map((column) =>
    column.kind === "shot" ? String(column.shot) : `${column.kind} ${column.from}-${column.to}`,
  );
}

test("bit i is the i-th part", () => {
  const bits = parseParts("8000000100000006");
  assert.ok(bits);
  const entry = { kind: "shot" as const, shot: 1, complete: false, ...bits };
  assert.deepEqual(
    Array.from({ length: 64 }, (_, part) => part).filter((part) => hasPart(entry, part)),
    [1, 2, 32, 63],
  );
});

test("malformed bits are counted and left out", () => {
  const presence = new Presence();
  presence.add([shot(1), shot(2, "xyz"), shot(3, "ff"), { ...shot(4), shot: NaN }]);
  assert.equal(presence.malformed, 3);
  assert.deepEqual(kinds(presence), ["1"]);
});

test("numbers that are missing within a message are lost shots", () => {
  const presence = new Presence();
  presence.add([shot(1), shot(4)]);
  assert.deepEqual(kinds(presence), ["1", "lost 2-2", "lost 3-3", "4"]);
  assert.equal(presence.links.get(0)?.summary().lost, 2);
});

test("numbers that are missing between messages are only unknown", () => {
  const presence = new Presence();
  presence.add([shot(1), shot(2)]);
  presence.add([shot(50), shot(51)]);
  assert.deepEqual(kinds(presence), ["1", "2", "unseen 3-49", "50", "51"]);
  assert.equal(presence.links.get(0)?.summary().lost, 0);
});

test("unknown shots stay unknown when the shot after them is sent again", () => {
  const presence = new Presence();
  presence.add([shot(1), shot(2)]);
  presence.add([shot(50), shot(51)]);
  presence.add([shot(50), shot(51), shot(52)]);
  assert.deepEqual(kinds(presence), ["1", "2", "unseen 3-49", "50", "51", "52"]);
});

test("a shot that was closed late is in its place", () => {
  const presence = new Presence();
  presence.add([shot(89), shot(91), shot(92)]);
  presence.add([shot(90), shot(93)]);
  assert.deepEqual(kinds(presence), ["89", "90", "91", "92", "93"]);
});

test("overlapping messages add only what is new, and newer bits", () => {
  const presence = new Presence();
  presence.add([shot(1), shot(2, "00000000000000ff")]);
  presence.add([shot(2), shot(3), shot(5)]);
  assert.deepEqual(kinds(presence), ["1", "2", "3", "lost 4-4", "5"]);
  assert.deepEqual(presence.links.get(0)?.summary(), { newest: 5, complete: 4, partial: 0, lost: 1 });
});

test("a new run begins with an empty map", () => {
  const presence = new Presence();
  presence.add([shot(100), shot(101)]);
  presence.add([shot(1)]);
  assert.deepEqual(kinds(presence), ["1"]);
});

test("a long gap is a few columns, and memory is bounded", () => {
  const presence = new Presence();
  presence.add([shot(1), shot(1_000_000)]);
  assert.equal(kinds(presence).length, 14);
  for (let start = 0; start < 5000; start += 100)
    presence.add(Array.from({ length: 100 }, (_, index) => shot(1_000_001 + start + index)));
  assert.equal(kinds(presence).length, COLUMNS);
  presence.add(Array.from({ length: 200 }, (_, link) => shot(1, ALL, link)));
  assert.ok(presence.links.size <= 16);
});

test("a column is described in words", () => {
  const presence = new Presence();
  presence.add([shot(1, "000000000000000f"), shot(4)]);
  const words = presence.links.get(0)?.columns().map(describeColumn);
  assert.deepEqual(words, [
    "shot 1: incomplete, 4 of 64 parts arrived",
    "shot 2: lost",
    "shot 3: lost",
    "shot 4: complete",
  ]);
});
