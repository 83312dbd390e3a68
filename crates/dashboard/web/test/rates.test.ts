import assert from "node:assert/strict";
import { test } from "node:test";
import { LossMeter, lossRows, lossSentence, noun } from "../src/logic/losses.ts";
import { counts, rate, RateHistory, Rates, TOTAL } from "../src/logic/rates.ts";
import { family, status } from "./messages.ts";

test("a rate is the difference over time, times the factor", () => {
  const rates = rate({ seconds: 10, values: new Map([["a", 100]]) }, { seconds: 12, values: new Map([["a", 300]]) }, 8);
  assert.equal(rates.get("a"), 800);
});

test("the rate of a counter that fell is unknown", () => {
  const rates = rate({ seconds: 1, values: new Map([["a", 100]]) }, { seconds: 2, values: new Map([["a", 5]]) }, 1);
  assert.ok(Number.isNaN(rates.get("a")));
});

test("messages close in time do not make a rate jump", () => {
  const history = new RateHistory();
  const times = [0, 0.25, 0.27, 0.75, 1, 1.25, 1.26, 1.75, 2];
  for (const time of times) history.add(time, new Map([[TOTAL, 1000 * time]]), 1);
  const [, values] = history.ring.table([TOTAL]);
  assert.ok(values?.every((value) => value !== null && Math.abs(value - 1000) < 1e-6));
});

test("the curve has a gap while there were no messages", () => {
  const history = new RateHistory();
  for (const time of [0, 1, 2, 60, 61]) history.add(time, new Map([[TOTAL, time]]), 1);
  assert.deepEqual(history.ring.table([TOTAL])[1], [1, 1, null, 1]);
});

test("no more than five minutes are kept", () => {
  const history = new RateHistory();
  for (let time = 0; time < 2000; time += 0.25) history.add(time, new Map([[TOTAL, time]]), 1);
  const [times] = history.ring.table([TOTAL]);
  assert.ok(times.length <= 1400 && (times.at(-1) ?? 0) - (times[0] ?? 0) <= 300);
});

test("two to eight samples have curves of their own", () => {
  assert.deepEqual([...counts(family("n", { a: 1, b: 2 })).keys()], [TOTAL, "cause a", "cause b"]);
  assert.deepEqual([...counts(family("n", { a: 1 })).keys()], [TOTAL]);
  const many = Object.fromEntries(Array.from({ length: 9 }, (_, index) => [`c${index}`, 1]));
  assert.deepEqual([...counts(family("n", many))], [[TOTAL, 9]]);
});

test("the number of histories is bounded", () => {
  const rates = new Rates();
  const one = { label: "", unit: "", factor: 1 };
  rates.add(
    status(
      1,
      Array.from({ length: 500 }, (_, index) => family(`f${index}`, { a: 1 }, { rate: one })),
    ),
  );
  assert.equal(rates.histories.size, 48);
});

test("the sentence names what was lost and why, most first", () => {
  const lost = family("packets_dropped", { late: 7, wire_gap: 30, bad_icrc: 0 });
  assert.equal(lossSentence(status(1, [lost])), "37 packets lost: wire_gap 30, late 7");
  assert.equal(lossSentence(status(1, [family("packets_dropped", { late: 0 })])), "No loss");
  assert.equal(lossSentence(status(1, [family("shots_dropped", { sink_busy: 1 })])), "1 shot lost: sink_busy 1");
  assert.equal(lossSentence(status(1, [family("shots_partial", { "": 5 })])), "5 partial shots");
  assert.equal(lossSentence(status(1, [family("device_overflows", { "": 5 })])), "device overflows 5");
  assert.equal(lossSentence(status(1, [])), "No loss counters");
});

test("what a family counts is read from its name, else its help", () => {
  assert.equal(noun(family("packets_lost_in_shots", {}), 2), "packets");
  assert.equal(noun(family("dropped", {}, { help: "Shots that no file has" }), 1), "shot");
  assert.equal(noun(family("dropped", {}), 2), "losses");
});

test("losses are now, then past, and none before the first", () => {
  const meter = new LossMeter();
  const at = (seconds: number, late: number) => meter.add(status(seconds, [family("packets_dropped", { late })]));
  assert.equal(meter.state(), "unknown");
  at(1, 0);
  assert.equal(meter.state(), "none");
  at(2, 5);
  assert.equal(meter.state(), "now");
  at(30, 5);
  assert.deepEqual([meter.state(), meter.sinceLast()], ["past", 28]);
});

test("losses before the page was opened are past", () => {
  const meter = new LossMeter();
  meter.add(status(100, [family("packets_dropped", { late: 5 })]));
  assert.deepEqual([meter.state(), meter.sinceLast()], ["past", null]);
});

test("rows have the counts and rates of causes that occurred", () => {
  const meter = new LossMeter();
  const last = status(3, [family("packets_dropped", { late: 9, wire_gap: 40, bad_icrc: 0 })]);
  meter.add(status(1, [family("packets_dropped", { late: 5, wire_gap: 40, bad_icrc: 0 })]));
  meter.add(last);
  const rows = lossRows(last, meter.rates).map(({ cause, count, rate }) => [cause, count, rate]);
  assert.deepEqual(rows, [
    ["wire_gap", 40, 0],
    ["late", 9, 2],
  ]);
});
