/** Registry of the sections of the page, in the order in which a column shows them. */

import { counters } from "./counters.tsx";
import { latencies } from "./latencies.tsx";
import { levels } from "./levels.tsx";
import { log } from "./log.tsx";
import { losses } from "./losses.tsx";
import { pictures } from "./pictures.tsx";
import { presence } from "./presence.tsx";
import { rates } from "./rates.tsx";
import type { Section } from "./section.ts";
import { settings } from "./settings.tsx";
import { stages } from "./stages.tsx";
import { tables } from "./tables.tsx";

export type { Column } from "./section.ts";

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
