import { useState } from "preact/hooks";
import { formatMetric } from "../logic/format.ts";
import { seriesName, TOTAL } from "../logic/rates.ts";
import type { Family } from "../protocol.ts";
import type { Store } from "../store.ts";
import type { Section } from "./section.ts";

const MAX_ROWS = 400;

function matches(family: Family, words: string[]): boolean {
  const labels = family.samples.flatMap((sample) => sample.labels.flat()).join(" ");
  const text = `${family.name} ${family.help} ${labels}`.toLowerCase();
  return words.every((word) => text.includes(word));
}

function View({ store }: { store: Store }) {
  const [search, setSearch] = useState("");
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const found = store.status?.families.filter((family) => matches(family, words)) ?? [];
  const rows = found.flatMap((family) => family.samples.map((sample) => ({ family, sample })));
  return (
    <>
      <div class="tools">
        <input
          type="search"
          placeholder="Search"
          aria-label="Search counters"
          value={search}
          onInput={(event) => setSearch(event.currentTarget.value)}
        />
        <span class="muted">
          {rows.length} {rows.length === 1 ? "value" : "values"}
          {rows.length > MAX_ROWS && `, the first ${MAX_ROWS} are shown`}
        </span>
      </div>
      <div class="scroll tall" tabIndex={0} role="region" aria-label="Counters">
        <table>
          <thead>
            <tr>
              <th scope="col">name</th>
              <th scope="col">labels</th>
              <th scope="col" class="number">
                value
              </th>
              <th scope="col">what it counts</th>
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, MAX_ROWS).map(({ family, sample }, index) => (
              <tr key={index}>
                <th scope="row">
                  <code>{family.name}</code>
                </th>
                <td>{seriesName(sample) === TOTAL ? "" : seriesName(sample)}</td>
                <td class="number">{formatMetric(sample.value, family.unit)}</td>
                <td class="muted">{family.help}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

export const counters: Section = {
  id: "counters",
  title: "All counters",
  column: "foot",
  isOpen: false,
  isShown: ({ status }) => Boolean(status?.families.length),
  View,
};
