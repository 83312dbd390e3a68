import { type RefObject } from "preact";
import { useEffect, useReducer, useRef, useState } from "preact/hooks";
import type { Store } from "./store.ts";

/** Renders the component again after each change of the store. */
export function useStore(store: Store): void {
  const [, render] = useReducer((count: number) => count + 1, 0);
  useEffect(() => store.subscribe(() => render(undefined)), [store]);
}

/** Returns the width of an element in CSS pixels, 0 before it is known. */
export function useWidth(element: RefObject<HTMLElement | null>): number {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    if (!element.current) return;
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry?.contentRect.width ?? 0)));
    observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  return width;
}

/** Calls a function for each key that is pressed outside of inputs. It returns `true` for keys that it handled. */
export function useKeys(handle: (key: string) => boolean): void {
  const latest = useRef(handle);
  latest.current = handle;
  useEffect(() => {
    const listen = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || belongsToElement(event)) return;
      if (latest.current(event.key)) event.preventDefault();
    };
    addEventListener("keydown", listen);
    return () => removeEventListener("keydown", listen);
  }, []);
}

/** Returns `true` for keys that the element with the focus uses, and for all keys while a window is open. */
function belongsToElement(event: KeyboardEvent): boolean {
  const element = event.target instanceof HTMLElement ? event.target : null;
  if (element?.closest("dialog")) return true;
  if (element?.matches("input:not([type=range], [type=checkbox]), textarea, select")) return true;
  return event.key === " " && Boolean(element?.closest("button, a, input"));
}
