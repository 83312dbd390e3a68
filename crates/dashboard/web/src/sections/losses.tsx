import { formatCount, formatName, formatNumber } from "../logic/format.ts";
import { type LossRow, lossRows } from "../logic/losses.ts";
import type { Store } from "../store.ts";
import type { Section } from "./section.ts";

function View({ store }: { store: Store }) {
  if (!store.status) return null;
  const rows = lossRows(store.status, store.losses.rates);
  if (!rows.length) return <p class="calm">None. Every packet and every shot is accounted for.</p>;
  const [named] = rows.filter((row) => row.isNamed);
  return (
    <>
      <div class="scroll">
        <table>
          <thead>
            <tr>
              <th scope="col">cause</th>
              <th scope="col" class="number">
                lost
              </th>
              <th scope="col" class="number">
                now
              </th>
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <Row key={`${row.family} ${row.cause} ${row.labels}`} row={row} />
            ))}
          </tbody>
        </table>
      </div>
      {named && (
        <p class="note">
          What a cause means and what to do: <code>shotline --explain {named.cause}</code>
        </p>
      )}
    </>
  );
}

function Row({ row }: { row: LossRow }) {
  return (
    <tr>
      <th scope="row" title={row.help}>
        {row.isNamed ? <code>{row.cause}</code> : formatName(row.cause)}
        {row.labels && <span class="labels">{row.labels}</span>}
      </th>
      <td class="number">
        {formatCount(row.count)} {row.noun}
      </td>
      <td class="number">
        {row.rate > 0 ? <strong>{formatNumber(row.rate)}/s</strong> : <span class="muted">0/s</span>}
      </td>
    </tr>
  );
}

export const losses: Section = {
  id: "losses",
  title: "Losses",
  column: "side",
  isOpen: true,
  isShown: ({ status }) => Boolean(status?.families.some((family) => family.is_loss)),
  View,
};
