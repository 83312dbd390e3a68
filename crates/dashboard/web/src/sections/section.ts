/** What a section of the page is. */

import type { ComponentType } from "preact";
import type { Store } from "../store.ts";

/** Place of a section: wide, narrow beside it, or below both. */
export type Column = "main" | "side" | "foot";

export interface Section {
  id: string;
  title: string;
  column: Column;
  /** Open at the first visit. */
  isOpen: boolean;
  isShown: (store: Store) => boolean;
  View: ComponentType<{ store: Store }>;
}
