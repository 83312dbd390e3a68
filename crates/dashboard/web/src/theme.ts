/** Dark or light, and the colours of what is drawn on canvases. */

export type Theme = "auto" | "light" | "dark";
const THEMES: Theme[] = ["auto", "light", "dark"];
const KEY = "shotline-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

let chosen: Theme = THEMES.find((theme) => theme === remembered(KEY)) ?? "auto";
let version = 0;
const listeners = new Set<() => void>();
const cache = new Map<string, string>();

/** Storage may be disabled in a browser. */
export function remembered(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

export function remember(key: string, value: string): void {
  try {
    localStorage.setItem(key, value);
  } catch {
    // The choice is then of this visit only.
  }
}

function apply(): void {
  const resolved = chosen === "auto" ? (dark.matches ? "dark" : "light") : chosen;
  document.documentElement.dataset.theme = resolved;
  cache.clear();
  version += 1;
  for (const listener of listeners) listener();
}

export function startTheme(changed: () => void): void {
  listeners.add(changed);
  dark.addEventListener("change", apply);
  apply();
}

export function theme(): Theme {
  return chosen;
}

/** Number that changes with the colours. */
export function themeVersion(): number {
  return version;
}

export function nextTheme(): void {
  chosen = THEMES[(THEMES.indexOf(chosen) + 1) % THEMES.length] ?? "auto";
  remember(KEY, chosen);
  apply();
}

/** Returns the value of a custom property of style/base.css, such as `--text`. */
export function cssColor(name: string): string {
  const known = cache.get(name);
  if (known !== undefined) return known;
  const value = getComputedStyle(document.documentElement).getPropertyValue(name).trim() || "#888";
  cache.set(name, value);
  return value;
}

export const prefersLessMotion = matchMedia("(prefers-reduced-motion: reduce)");
