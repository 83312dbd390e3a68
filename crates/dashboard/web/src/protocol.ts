/**
 * Messages between the program and the page: the shapes of `status.rs`, `subject.rs` and `pictures/picture.rs`. Each
 * interface has the name and the fields of its Rust struct, one field per line; a test compares them.
 *
 * JSON has no infinity: where Rust has `f64`, `null` arrives for numbers that are not finite; `logic/check.ts` replaces it by NaN.
 */

export interface About {
  program: string;
  command: string;
  title: string;
  settings: [string, string][];
  controls: Control[];
  pictures: PictureInfo[];
}

export interface PictureInfo {
  kind: string;
  label: string;
  about: string;
}

export interface Control {
  action: string;
  label: string;
  about: string;
  phases: Phase[];
  input: Input | null;
}

export interface Input {
  field: string;
  label: string;
  value: number | null;
  range: [number, number];
}

export interface Status {
  seconds: number;
  phase: Phase;
  progress: number | null;
  families: Family[];
  latencies: LatencyReading[];
  stages: StageReading[];
  limit: string | null;
  levels: Level[];
  presence: ShotPresence[];
  tables: Table[];
  log: LogEntry[];
}

export type Phase = "standby" | "starting" | "waiting" | "running" | "ended";

export interface Family {
  name: string;
  help: string;
  kind: FamilyKind;
  unit: string | null;
  rate: Rate | null;
  is_loss: boolean;
  samples: Sample[];
}

export type FamilyKind = "counter" | "gauge";

export interface Rate {
  label: string;
  unit: string;
  factor: number;
}

export interface Sample {
  labels: [string, string][];
  value: number;
}

export interface LatencyReading {
  name: string;
  help: string;
  labels: [string, string][];
  count: number;
  sum_s: number;
  quantiles_s: number[];
  bins: [number, number][];
}

export interface StageReading {
  name: string;
  busy: number;
  starved: number;
  stalled: number;
  gbps: number;
}

export interface Level {
  label: string;
  used: number;
  capacity: number;
  unit: string;
  high_is_bad: boolean;
}

export interface ShotPresence {
  link: number;
  shot: number;
  complete: boolean;
  parts: string;
}

export interface Table {
  title: string;
  columns: string[];
  rows: string[][];
}

export interface LogEntry {
  number: number;
  unix_ms: number;
  level: LogLevel;
  text: string;
}

export type LogLevel = "info" | "warning" | "error";

export interface Header {
  kind: string;
  sequence: number;
  shot: number;
  unix_ms: number;
  format: Format;
  width: number;
  height: number;
  append: boolean;
  x: Axis;
  y: Axis;
  value: Axis;
  lines: string[];
  note: string;
}

export type Format = "gray8" | "rgb8" | "lines";

export interface Axis {
  label: string;
  unit: string;
  from: number;
  to: number;
}
