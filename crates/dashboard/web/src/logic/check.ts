/** Validation of JSON messages. A shape that differs from `protocol.ts` is an error with its place, never a crash later. */

import type { About, Status } from "../protocol.ts";

/** Returns the value if it has the shape; throws `Mismatch` otherwise. */
export type Check<T> = (value: unknown, at: string) => T;

/** A message that has not the expected shape. */
export class Mismatch extends Error {}

function fail(at: string, expected: string, value: unknown): never {
  const found = value === null ? "null" : Array.isArray(value) ? "a list" : typeof value;
  throw new Mismatch(`${at}: expected ${expected}, found ${found}`);
}

export const text: Check<string> = (value, at) => (typeof value === "string" ? value : fail(at, "text", value));

export const flag: Check<boolean> = (value, at) =>
  typeof value === "boolean" ? value : fail(at, "true or false", value);

/** JSON has no infinity: `null` becomes NaN. */
export const number: Check<number> = (value, at) =>
  typeof value === "number" ? value : value === null ? NaN : fail(at, "a number", value);

export function oneOf<T extends string>(...words: T[]): Check<T> {
  return (value, at) => {
    const found = words.find((word) => word === value);
    return found ?? fail(at, words.join(" or "), value);
  };
}

export function orNull<T>(check: Check<T>): Check<T | null> {
  return (value, at) => (value === null || value === undefined ? null : check(value, at));
}

export function list<T>(check: Check<T>): Check<T[]> {
  return (value, at) =>
    Array.isArray(value) ? value.map((item, index) => check(item, `${at}[${index}]`)) : fail(at, "a list", value);
}

export function pair<A, B>(first: Check<A>, second: Check<B>): Check<[A, B]> {
  return (value, at) =>
    Array.isArray(value) && value.length === 2
      ? [first(value[0], `${at}[0]`), second(value[1], `${at}[1]`)]
      : fail(at, "a pair", value);
}

/** Checks each named field. Further fields are ignored: a newer program may send more. */
export function record<T extends object>(fields: { [K in keyof T]: Check<T[K]> }): Check<T> {
  const names = Object.keys(fields) as (keyof T & string)[];
  return (value, at) => {
    if (typeof value !== "object" || value === null || Array.isArray(value)) return fail(at, "an object", value);
    const source = value as Record<string, unknown>;
    const checked: Partial<T> = {};
    for (const name of names) checked[name] = fields[name](source[name], `${at}.${name}`);
    return checked as T;
  };
}

const labels = list(pair(text, text));
const phase = oneOf("standby", "starting", "waiting", "running", "ended");
const input = record({ field: text, label: text, value: orNull(number), range: pair(number, number) });

export const about: Check<About> = record<About>({
  program: text,
  command: text,
  title: text,
  settings: list(pair(text, text)),
  controls: list(record({ action: text, label: text, about: text, phases: list(phase), input: orNull(input) })),
  pictures: list(record({ kind: text, label: text, about: text })),
});

export const status: Check<Status> = record<Status>({
  seconds: number,
  phase,
  progress: orNull(number),
  families: list(
    record({
      name: text,
      help: text,
      kind: oneOf("counter", "gauge"),
      unit: orNull(text),
      rate: orNull(record({ label: text, unit: text, factor: number })),
      is_loss: flag,
      samples: list(record({ labels, value: number })),
    }),
  ),
  latencies: list(
    record({
      name: text,
      help: text,
      labels,
      count: number,
      sum_s: number,
      quantiles_s: list(number),
      bins: list(pair(number, number)),
    }),
  ),
  stages: list(record({ name: text, busy: number, starved: number, stalled: number, gbps: number })),
  limit: orNull(text),
  levels: list(record({ label: text, used: number, capacity: number, unit: text, high_is_bad: flag })),
  presence: list(record({ link: number, shot: number, complete: flag, parts: text })),
  tables: list(record({ title: text, columns: list(text), rows: list(list(text)) })),
  log: list(record({ number, unix_ms: number, level: oneOf("info", "warning", "error"), text })),
});

/** A text message. */
export type Message = { about: About } | { status: Status };

/** Parses a text message. Throws an error with the reason if it is malformed. */
export function parseMessage(json: string): Message {
  const value: unknown = JSON.parse(json);
  if (typeof value === "object" && value !== null) {
    if ("about" in value) return { about: about(value.about, "about") };
    if ("status" in value) return { status: status(value.status, "status") };
  }
  throw new Mismatch("message: expected an object with about or status");
}
