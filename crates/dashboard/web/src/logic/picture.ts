/** Parsing of picture messages. */

import type { Axis, Header } from "../protocol.ts";
import { type Check, flag, list, Mismatch, number, oneOf, record, text } from "./check.ts";

/** Largest header, and largest picture, that are accepted: bounds of the page's memory. */
const MAX_HEADER_BYTES = 1 << 16;
const MAX_SIDE = 1 << 16;
const MAX_POINTS = 1 << 24;

/** A picture: the payload is of `values` for lines, else of `bytes`. */
export interface Picture {
  header: Header;
  bytes: Uint8Array;
  /** Lines, one after the other; empty for other formats. */
  values: Float32Array;
}

const axis: Check<Axis> = record<Axis>({ label: text, unit: text, from: number, to: number });

const checkHeader: Check<Header> = record<Header>({
  kind: text,
  sequence: number,
  shot: number,
  unix_ms: number,
  format: oneOf("gray8", "rgb8", "lines"),
  width: number,
  height: number,
  append: flag,
  x: axis,
  y: axis,
  value: axis,
  lines: list(text),
  note: text,
});

/** Bytes of one point. */
const POINT_BYTES = { gray8: 1, rgb8: 3, lines: 4 } as const;

/** Parses a binary message. Throws an error with the reason if it is malformed. */
export function parsePicture(message: ArrayBuffer): Picture {
  if (message.byteLength < 4) throw new Mismatch(`picture: ${message.byteLength} bytes, expected at least 4`);
  const length = new DataView(message).getUint32(0, true);
  if (length % 4 !== 0 || length > MAX_HEADER_BYTES || 4 + length > message.byteLength) {
    throw new Mismatch(`picture: a header of ${length} bytes in a message of ${message.byteLength}`);
  }
  const json = new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array(message, 4, length));
  const header = checkHeader(JSON.parse(json), "picture");
  checkSize(header, message.byteLength - 4 - length);
  const bytes = new Uint8Array(message, 4 + length);
  return { header, bytes, values: header.format === "lines" ? floats(message, 4 + length) : new Float32Array() };
}

function checkSize({ format, width, height }: Header, bytes: number): void {
  for (const side of [width, height]) {
    if (!Number.isInteger(side) || side < 1 || side > MAX_SIDE)
      throw new Mismatch(`picture: ${width} x ${height} points`);
  }
  const expected = width * height * POINT_BYTES[format];
  if (width * height > MAX_POINTS || bytes !== expected) {
    throw new Mismatch(`picture: ${width} x ${height} points of ${format} in ${bytes} bytes, expected ${expected}`);
  }
}

/** Every browser's machine is little-endian today; the view keeps the page right on others. */
function floats(message: ArrayBuffer, offset: number): Float32Array {
  if (new Uint8Array(new Uint16Array([1]).buffer)[0] === 1) return new Float32Array(message, offset);
  const view = new DataView(message, offset);
  return Float32Array.from({ length: view.byteLength / 4 }, (_, index) => view.getFloat32(4 * index, true));
}

/** Counts the pictures of one kind: their rate, and those that are missing in the sequence. */
export class SequenceMeter {
  missed = 0;
  private last: number | null = null;
  private times: number[] = [];

  /** Adds a picture that arrived at a time in ms. Returns the number of pictures that are missing before it. */
  add(sequence: number, now: number): number {
    // A smaller number is of a new run of the program.
    const missing = this.last !== null && sequence > this.last ? sequence - this.last - 1 : 0;
    this.last = sequence;
    this.missed += missing;
    this.times.push(now);
    if (this.times.length > 128) this.times.splice(0, 64);
    return missing;
  }

  /** Forgets the last number: pictures that were not requested are not missing. */
  interrupt(): void {
    this.last = null;
    this.times = [];
  }

  /** Returns the pictures per second in the last two seconds. */
  rate(now: number): number {
    const recent = this.times.filter((time) => time > now - 2000);
    const [first] = recent;
    if (first === undefined || recent.length < 2) return 0;
    return (1000 * (recent.length - 1)) / Math.max(now - first, 1);
  }
}
