/** Numbers, durations and amounts as text. The decimal separator is a point, as in the program's own output. */

const GROUP = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const PREFIXES = ["", "k", "M", "G", "T", "P", "E"];
const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const NONE = "–";

/** Returns a count with thin spaces between groups of digits. */
export function formatCount(value: number): string {
  return Number.isFinite(value) ? GROUP.format(value).replaceAll(",", "\u202f") : NONE;
}

/** Returns a number with three to four significant digits. */
export function formatNumber(value: number): string {
  if (!Number.isFinite(value)) return NONE;
  const size = Math.abs(value);
  if (size >= 1000 || value === 0) return formatCount(value);
  if (size < 0.001) return value.toExponential(2);
  return value.toFixed(size >= 100 ? 1 : size >= 10 ? 2 : 3);
}

/** Returns a number with a decimal prefix: `1.250 M`. */
export function formatPrefixed(value: number, unit: string): string {
  if (!Number.isFinite(value)) return `${NONE} ${unit}`.trim();
  let step = 0;
  let scaled = Math.abs(value);
  while (scaled >= 1000 && step < PREFIXES.length - 1) {
    scaled /= 1000;
    step += 1;
  }
  const digits = step === 0 && Number.isInteger(value) ? 0 : scaled >= 100 ? 1 : scaled >= 10 ? 2 : 3;
  return `${(Math.sign(value) * scaled).toFixed(digits)} ${PREFIXES[step]}${unit}`.trim();
}

/** Returns an amount of bytes with a binary prefix. */
export function formatBytes(bytes: number): string {
  if (!Number.isFinite(bytes)) return NONE;
  let step = 0;
  let scaled = bytes;
  while (scaled >= 1024 && step < BINARY.length - 1) {
    scaled /= 1024;
    step += 1;
  }
  return `${step === 0 ? scaled.toFixed(0) : scaled.toFixed(scaled >= 100 ? 0 : scaled >= 10 ? 1 : 2)} ${BINARY[step]}`;
}

/** Returns a short duration in ns, µs, ms or s with three significant digits. */
export function formatDuration(seconds: number): string {
  if (!Number.isFinite(seconds)) return NONE;
  const steps: [number, string][] = [
    [1, "s"],
    [1e-3, "ms"],
    [1e-6, "µs"],
    [1e-9, "ns"],
  ];
  if (seconds === 0) return "0 s";
  const [size, unit] = steps.find(([size]) => seconds >= size * 0.9995) ?? [1e-9, "ns"];
  const value = seconds / size;
  return `${value.toFixed(value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2)} ${unit}`;
}

/** Returns a time since the start: `1:02:03`, or with tenths `2:03.4`. */
export function formatElapsed(seconds: number, tenths = false): string {
  if (!Number.isFinite(seconds)) return NONE;
  const whole = tenths ? Math.floor(seconds * 10) / 10 : Math.floor(seconds);
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor(whole / 60) % 60;
  const rest = tenths ? (whole % 60).toFixed(1).padStart(4, "0") : String(whole % 60).padStart(2, "0");
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${rest}` : `${minutes}:${rest}`;
}

/** Returns a fraction in percent. */
export function formatPercent(fraction: number): string {
  return Number.isFinite(fraction) ? `${(100 * fraction).toFixed(fraction < 0.1 && fraction > 0 ? 1 : 0)} %` : NONE;
}

/** Returns the time of day of a time in ms since 1970. */
export function formatClock(ms: number): string {
  const date = new Date(ms);
  if (Number.isNaN(date.getTime())) return NONE;
  const two = (value: number) => String(value).padStart(2, "0");
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** Returns an identifier with spaces. */
export function formatName(name: string): string {
  return name.replaceAll("_", " ");
}

/** Returns a value of a metric in its unit. */
export function formatMetric(value: number, unit: string | null): string {
  if (unit === "bytes") return formatBytes(value);
  if (unit === "seconds") return formatDuration(value);
  return Number.isInteger(value) ? formatCount(value) : formatNumber(value);
}
