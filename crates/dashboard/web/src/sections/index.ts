/** Registry of the sections of the page, in the order in which a column shows them. */

import type { ComponentType } from "preact";
import type { Store } from "../store.ts";
import { counters } from "./counters.tsx";
import { latencies } from "./latencies.tsx";
import { levels } from "./levels.tsx";
import { log } from "./log.tsx";
import { losses } from "./losses.tsx";
import { pictures } from "./pictures.tsx";
import { presence } from "./presence.tsx";
import { rates } from "./rates.tsx";
import { settings } from "./settings.tsx";
import { stages } from "./stages.tsx";
import { tables } from "./tables.tsx";

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

export const SECTIONS: Section[] = [
  pictures,
  presence,
  rates,
  tables,
  losses,
  stages,
  latencies,
  levels,
  log,
  settings,
  counters,
];
