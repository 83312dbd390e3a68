/** Messages for tests. */

import type { Family, Status } from "../src/protocol.ts";

/** Returns a family with one sample for each cause. */
export function family(name: string, values: Record<string, number>, rest: Partial<Family> = {}): Family {
  const samples = Object.entries(values).map(([cause, value]): Family["samples"][0] => ({
    labels: cause ? [["cause", cause]] : [],
    value,
  }));
  return { name, help: "", kind: "counter", unit: null, rate: null, is_loss: true, samples, ...rest };
}

/** Returns a status of these families at a time. */
export function status(seconds: number, families: Family[]): Status {
  return {
    seconds,
    phase: "running",
    progress: null,
    families,
    latencies: [],
    stages: [],
    limit: null,
    levels: [],
    presence: [],
    tables: [],
    log: [],
  };
}
