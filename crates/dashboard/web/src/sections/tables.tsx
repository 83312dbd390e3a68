import type { Table } from "../protocol.ts";
import type { Store } from "../store.ts";
import type { Section } from "./section.ts";

/** A number, perhaps with a unit. */
const NUMERIC = /^[-+\u2212]?[\d.,\u202f ]+(e[-+]?\d+)?\s?(%|[\wµ/]{1,8})?$/;

function View({ store }: { store: Store }) {
  return (
    <>
      {store.status?.tables.map((table) => (
        <OneTable key={table.title} table={table} />
      ))}
    </>
  );
}

/** A column is aligned at the right if all of its cells are numbers; the first one names the row. */
function isNumeric(table: Table, column: number): boolean {
  return column > 0 && table.rows.length > 0 && table.rows.every((row) => NUMERIC.test(row[column] ?? ""));
}

function OneTable({ table }: { table: Table }) {
  const align = table.columns.map((_, column) => (isNumeric(table, column) ? "number" : ""));
  return (
    <div class="scroll">
      <table>
        <caption>{table.title}</caption>
        <thead>
          <tr>
            {table.columns.map((title, column) => (
              <th key={column} scope="col" class={align[column]}>
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {table.rows.map((row, index) => (
            <tr key={index}>
              {row.map((cell, column) => (
                <td key={column} class={align[column]}>
                  {cell}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export const tables: Section = {
  id: "tables",
  title: "Tables",
  column: "main",
  isOpen: true,
  isShown: ({ status }) => Boolean(status?.tables.length),
  View,
};
