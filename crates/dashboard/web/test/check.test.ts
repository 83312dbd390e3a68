import assert from "node:assert/strict";
import { test } from "node:test";
import { parseMessage } from "../src/logic/check.ts";
import { family, status } from "./messages.ts";

const STATUS = {
  ...status(1, [family("packets_dropped", { late: 1 }, { rate: { label: "packets", unit: "1/s", factor: 1 } })]),
  latencies: [
    {
      name: "l",
      help: "",
      labels: [["link", "0"]],
      count: 1,
      sum_s: 1,
      quantiles_s: [1, 1, 1, 1, 1],
      bins: [
        [1, 1],
        [null, 1],
      ],
    },
  ],
  stages: [{ name: "receive", busy: 0.5, starved: 0.5, stalled: 0, gbps: 1 }],
  levels: [{ label: "pool", used: 1, capacity: 2, unit: "bytes", high_is_bad: true }],
  presence: [{ link: 0, shot: 1, complete: true, parts: "ffffffffffffffff" }],
  tables: [{ title: "Links", columns: ["a"], rows: [["1"]] }],
  log: [{ number: 0, unix_ms: 1, level: "info", text: "started" }],
};

test("a status is accepted with all of its parts", () => {
  const message = parseMessage(JSON.stringify({ status: STATUS }));
  assert.ok("status" in message && message.status.families[0]?.rate?.unit === "1/s");
  assert.ok(Number.isNaN(message.status.latencies[0]?.bins[1]?.[0]), "null is not finite");
});

test("unknown fields of a newer program are ignored", () => {
  const message = parseMessage(JSON.stringify({ status: { ...STATUS, weather: "fine" } }));
  assert.ok("status" in message && !("weather" in message.status));
});

test("an error names the place", () => {
  const broken = structuredClone(STATUS) as unknown as { families: { samples: { value: unknown }[] }[] };
  broken.families[0]!.samples[0]!.value = "many";
  assert.throws(
    () => parseMessage(JSON.stringify({ status: broken })),
    /status\.families\[0\]\.samples\[0\]\.value: expected a number, found string/,
  );
});

/** Returns every copy of a value in which one part is another value. */
function* broken(value: unknown): Generator<unknown> {
  yield* [undefined, null, 7, "x", [], {}, [[[]]]];
  if (typeof value !== "object" || value === null) return;
  for (const key of Object.keys(value)) {
    for (const part of broken((value as Record<string, unknown>)[key])) {
      yield Array.isArray(value) ? value.with(Number(key), part) : { ...value, [key]: part };
    }
  }
}

test("any broken part is an error or a valid message, never a crash later", () => {
  let refused = 0;
  for (const value of broken({ status: STATUS })) {
    try {
      const message = parseMessage(JSON.stringify(value) ?? "");
      assert.ok("status" in message && Array.isArray(message.status.log));
    } catch (error) {
      assert.ok(error instanceof Error);
      refused += 1;
    }
  }
  assert.ok(refused > 100);
});

test("text that is not JSON is an error", () => {
  for (const text of ["", "{", "null", "[]", "7", '{"other": 1}']) assert.throws(() => parseMessage(text));
});
