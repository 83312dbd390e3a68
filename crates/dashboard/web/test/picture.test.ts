import assert from "node:assert/strict";
import { test } from "node:test";
import { parsePicture, SequenceMeter } from "../src/logic/picture.ts";

const AXIS = { label: "depth", unit: "mm", from: 0, to: 45 };
const HEADER = {
  kind: "bmode",
  sequence: 7,
  shot: 12,
  unix_ms: 1,
  format: "gray8",
  width: 3,
  height: 2,
  append: false,
  x: AXIS,
  y: AXIS,
  value: AXIS,
  lines: [],
  note: "",
};

function message(header: unknown, payload: number[]): ArrayBuffer {
  let json = JSON.stringify(header);
  json = json.padEnd(4 * Math.ceil(json.length / 4));
  const bytes = new Uint8Array(4 + json.length + payload.length);
  new DataView(bytes.buffer).setUint32(0, json.length, true);
  bytes.set(new TextEncoder().encode(json), 4);
  bytes.set(payload, 4 + json.length);
  return bytes.buffer;
}

test("a picture has its header and its points", () => {
  const picture = parsePicture(message(HEADER, [1, 2, 3, 4, 5, 6]));
  assert.equal(picture.header.y.unit, "mm");
  assert.deepEqual([...picture.bytes], [1, 2, 3, 4, 5, 6]);
});

test("lines are little-endian floats", () => {
  const floats = new Uint8Array(new Float32Array([1.5, -2]).buffer);
  const picture = parsePicture(message({ ...HEADER, format: "lines", width: 1 }, [...floats]));
  assert.deepEqual([...picture.values], [1.5, -2]);
});

test("axes that are not finite arrive as NaN", () => {
  const picture = parsePicture(message({ ...HEADER, value: { ...AXIS, from: null } }, [1, 2, 3, 4, 5, 6]));
  assert.ok(Number.isNaN(picture.header.value.from));
});

test("a payload of another size is refused", () => {
  assert.throws(() => parsePicture(message(HEADER, [1, 2, 3])), /3 x 2 points of gray8 in 3 bytes, expected 6/);
  assert.throws(() => parsePicture(message({ ...HEADER, format: "rgb8" }, [1, 2, 3])), /expected 18/);
});

test("sizes beyond the bounds are refused", () => {
  for (const size of [
    { width: 0 },
    { width: 1.5 },
    { width: -3 },
    { height: 1e9 },
    { width: 60000, height: 60000 },
    { width: null },
  ]) {
    assert.throws(() => parsePicture(message({ ...HEADER, ...size }, [])), /points/);
  }
});

test("every truncation is refused", () => {
  const whole = message(HEADER, [1, 2, 3, 4, 5, 6]);
  for (let length = 0; length < whole.byteLength; length++)
    assert.throws(() => parsePicture(whole.slice(0, length)), Error, `${length}`);
});

test("garbage throws an error, and nothing else happens", () => {
  const whole = new Uint8Array(message(HEADER, [1, 2, 3, 4, 5, 6]));
  let seed = 1;
  const random = (below: number) => (seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0) % below;
  for (let round = 0; round < 3000; round++) {
    const bytes = whole.slice();
    for (let change = 0; change <= random(4); change++) bytes[random(bytes.length)] = random(256);
    try {
      const { header, bytes: points } = parsePicture(bytes.buffer);
      assert.ok(points.length >= header.width * header.height);
    } catch (error) {
      assert.ok(error instanceof Error && error.name !== "RangeError", String(error));
    }
  }
});

test("each field must have its type", () => {
  for (const name of Object.keys(HEADER)) {
    assert.throws(
      () => parsePicture(message({ ...HEADER, [name]: { no: 1 } }, [1, 2, 3, 4, 5, 6])),
      new RegExp(`picture.${name}`),
    );
  }
});

test("missing sequence numbers are counted", () => {
  const meter = new SequenceMeter();
  assert.deepEqual([meter.add(5, 0), meter.add(6, 100), meter.add(9, 200)], [0, 0, 2]);
  assert.equal(meter.missed, 2);
  assert.equal(meter.add(1, 300), 0, "a new run");
  meter.interrupt();
  assert.equal(meter.add(80, 400), 0, "not requested meanwhile");
});

test("the rate is that of the last two seconds", () => {
  const meter = new SequenceMeter();
  for (let time = 0; time <= 5000; time += 100) meter.add(time, time);
  assert.ok(Math.abs(meter.rate(5000) - 10) < 0.6);
  assert.equal(meter.rate(9000), 0);
});
