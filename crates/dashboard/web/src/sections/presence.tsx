import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { prepare } from "../draw/canvas.ts";
import { useWidth } from "../hooks.ts";
import { formatCount } from "../logic/format.ts";
import { type Column, describeColumn, hasPart, type LinkPresence, PARTS } from "../logic/presence.ts";
import type { Store } from "../store.ts";
import { cssColor, themeVersion } from "../theme.ts";
import type { Section } from "./section.ts";

const COLUMN = 4;
/** A missing part is drawn larger by this at both ends: one of 64 must be visible. */
const MARGIN = 1;
/** Up to this number of links the parts are two pixels high, else one. */
const TALL_LINKS = 2;

function View({ store }: { store: Store }) {
  const links = [...store.presence.links].sort(([a], [b]) => a - b);
  return (
    <>
      {links.map(([link, presence]) => (
        <LinkMap
          key={link}
          link={link}
          presence={presence}
          row={links.length > TALL_LINKS ? 1 : 2}
          seconds={store.status?.seconds ?? 0}
        />
      ))}
      <ul class="legend">
        <li>
          <span class="swatch present" /> arrived
        </li>
        <li>
          <span class="swatch partial" /> incomplete shot
        </li>
        <li>
          <span class="swatch missing" /> its missing parts
        </li>
        <li>
          <span class="swatch lost" /> lost shot
        </li>
        <li>
          <span class="swatch unseen" /> not reported to this page
        </li>
      </ul>
    </>
  );
}

interface LinkMapProps {
  link: number;
  presence: LinkPresence;
  /** Height of a part in pixels. */
  row: number;
  seconds: number;
}

function LinkMap({ link, presence, row, seconds }: LinkMapProps) {
  const host = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const width = useWidth(host);
  const [hovered, setHovered] = useState<number | null>(null);
  const columns = useMemo(() => presence.columns(), [presence, seconds]);
  const shown = columns.slice(-Math.floor(width / COLUMN));
  useEffect(() => {
    if (!canvas.current || width === 0) return;
    const context = prepare(canvas.current, width, PARTS * row);
    if (context) drawMap(context, shown, width, row);
  }, [columns, width, row, themeVersion()]);
  const summary = presence.summary();
  const words = `${formatCount(summary.complete)} complete, ${formatCount(summary.partial)} incomplete, ${formatCount(summary.lost)} lost`;
  const under = hovered === null ? undefined : shown[shown.length - 1 - Math.floor((width - hovered) / COLUMN)];
  return (
    <figure class="map">
      <figcaption>
        <strong>link {link}</strong> <span class="muted">{words}</span>
        <span class="under" aria-live="off">
          {under ? describeColumn(under) : ""}
        </span>
      </figcaption>
      <div ref={host} class="strip">
        <canvas
          ref={canvas}
          role="img"
          aria-label={`Parts of the last shots of link ${link}: ${words}`}
          onPointerMove={(event) => setHovered(event.offsetX)}
          onPointerLeave={() => setHovered(null)}
        />
      </div>
      <p class="ends" aria-hidden="true">
        <span>{firstShot(shown)}</span>
        <span>shot {summary.newest ?? "–"}</span>
      </p>
    </figure>
  );
}

function firstShot([column]: Column[]): number | string {
  return column === undefined ? "" : column.kind === "shot" ? column.shot : column.from;
}

function drawMap(context: CanvasRenderingContext2D, columns: Column[], width: number, row: number): void {
  columns.forEach((column, index) => {
    const left = width - COLUMN * (columns.length - index);
    if (column.kind === "shot") drawShot(context, column, left, row);
    else drawGap(context, column.kind === "lost", left, PARTS * row);
  });
}

function drawShot(
  context: CanvasRenderingContext2D,
  shot: Extract<Column, { kind: "shot" }>,
  left: number,
  row: number,
): void {
  context.fillStyle = cssColor(shot.complete ? "--present" : "--partial");
  context.fillRect(left, 0, COLUMN, PARTS * row);
  if (shot.complete) return;
  context.fillStyle = cssColor("--missing");
  for (let part = 0; part < PARTS; part++) {
    if (!hasPart(shot, part)) context.fillRect(left, part * row - MARGIN, COLUMN, row + 2 * MARGIN);
  }
}

/** Lost shots are hatched, so that they differ from missing parts without their colour. */
function drawGap(context: CanvasRenderingContext2D, isLost: boolean, left: number, height: number): void {
  context.fillStyle = cssColor(isLost ? "--missing" : "--axis");
  if (!isLost) {
    for (let top = 0; top < height; top += 8) context.fillRect(left + 1, top, 1, 4);
    return;
  }
  for (let top = 0; top < height; top += 6) context.fillRect(left, top, COLUMN - 1, 4);
}

export const presence: Section = {
  id: "presence",
  title: "Presence of the last shots",
  column: "main",
  isOpen: true,
  isShown: ({ presence }) => presence.links.size > 0,
  View,
};
