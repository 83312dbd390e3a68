/** The canvas of a picture of points, and the chart of one of lines. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type uPlot from "uplot";
import { prepare } from "../draw/canvas.ts";
import { Chart } from "../draw/chart.tsx";
import { type Box, drawAxes, drawBar, heightAround, place } from "../draw/frame.ts";
import { Raster } from "../draw/image.ts";
import { drawScatter } from "../draw/scatter.ts";
import type { Feed } from "../feed.ts";
import { aspect, axisTitle, isProportional, unitText } from "../logic/axis.ts";
import { formatNumber } from "../logic/format.ts";
import {
  brightness,
  color,
  lookupTable,
  type PaletteName,
  valueAxis,
  type Window,
  windowEnds,
} from "../logic/palette.ts";
import type { Picture } from "../logic/picture.ts";
import { scrolledAxis, scrolledEnds } from "../logic/scroll.ts";
import type { Axis, Header } from "../protocol.ts";
import { themeVersion } from "../theme.ts";
import { shortNumber, Swatch } from "./rates.tsx";

const MAX_LINES = 16;
/** Lines of more points are drawn without dashes, which would only be noise. */
const MAX_DASHED = 600;

/** Returns `true` for samples of I and Q, which are points of a plane. */
export function isScatter({ format, lines }: Header): boolean {
  return format === "lines" && lines.length === 2 && lines[0] === "I" && lines[1] === "Q";
}

interface PointsProps {
  feed: Feed;
  header: Header;
  width: number;
  palette: PaletteName;
  window: Window;
  keep: (canvas: HTMLCanvasElement) => void;
}

/** Height of a picture: most of a screen at most. */
function heightFor(width: number): number {
  return Math.round(Math.max(260, Math.min(560, width * 0.8, globalThis.innerHeight * 0.68)));
}

/** A canvas that shows the newest picture at the next frame of the screen. */
export function Points({ feed, header, width, palette, window, keep }: PointsProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const raster = useMemo(() => new Raster(), []);
  const height = heightFor(width);
  useEffect(() => {
    if (canvas.current) keep(canvas.current);
  }, []);
  useFrames(feed, () => canvas.current && draw(canvas.current, raster, { feed, width, height, palette, window }), [
    width,
    height,
    palette,
    window,
    themeVersion(),
  ]);
  return <canvas ref={canvas} class="points" role="img" aria-label={`${header.kind}, shot ${header.shot}`} />;
}

/** Calls a function in the next frame of the screen after each change of the feed or of a dependency. */
function useFrames(feed: Feed, draw: () => void, dependencies: unknown[]): void {
  useEffect(() => {
    let request = 0;
    const schedule = () => {
      request ||= requestAnimationFrame(() => {
        request = 0;
        draw();
      });
    };
    const end = feed.subscribe(schedule);
    schedule();
    return () => {
      end();
      cancelAnimationFrame(request);
    };
  }, [feed, ...dependencies]);
}

interface DrawOptions {
  feed: Feed;
  width: number;
  height: number;
  palette: PaletteName;
  window: Window;
}

function draw(canvas: HTMLCanvasElement, raster: Raster, options: DrawOptions): void {
  const { feed, width, height } = options;
  const picture = feed.newest;
  if (picture && isScatter(picture.header)) {
    const context = prepare(canvas, width, height);
    if (context) drawScatter(context, picture, width, height);
  } else if (picture) drawPicture(canvas, raster, picture, options);
}

function drawPicture(canvas: HTMLCanvasElement, raster: Raster, picture: Picture, options: DrawOptions): void {
  const { feed, width, height, palette, window } = options;
  const { header } = picture;
  const isGray = header.format === "gray8";
  const x = feed.columns ? scrolledAxis(header, feed.columns) : header.x;
  const isKept = !feed.columns && isProportional(x, header.y);
  const box = place(width, height, isKept ? aspect(x, header.y) : null, isGray);
  const context = prepare(canvas, width, heightAround(box));
  if (!context) return;
  const image = rasterize(raster, picture, options);
  // Enlarged points stay visible as such; reduced pictures are averaged.
  context.imageSmoothingEnabled = image.width > box.width || image.height > box.height || isKept;
  context.imageSmoothingQuality = "high";
  context.drawImage(image, box.left, box.top, box.width, box.height);
  drawAxes(context, box, x, header.y, feed.columns ? { known: scrolledEnds(x, feed.columns) } : {});
  if (isGray) drawColorBar(context, box, header, palette, window);
}

function rasterize(raster: Raster, picture: Picture, { feed, palette, window }: DrawOptions): HTMLCanvasElement {
  if (picture.header.format === "rgb8") return raster.rgb(picture);
  const table = lookupTable(palette, window);
  if (feed.columns) return raster.scroll(feed.columns, table, gapPixels());
  return raster.gray(picture, table);
}

/** Pixels of a column whose pictures did not arrive: dashes in a colour that no palette has. */
function gapPixels(): Uint32Array {
  const bytes = new Uint8Array([220, 60, 60, 255, 0, 0, 0, 0]);
  return new Uint32Array(bytes.buffer);
}

function drawColorBar(
  context: CanvasRenderingContext2D,
  box: Box,
  header: Header,
  palette: PaletteName,
  window: Window,
): void {
  const axis = valueAxis(header.value);
  const { dark, bright } = windowEnds(axis, window);
  const shade = (fraction: number) => {
    // The bar is of the window, so that its whole palette is visible.
    const [red, green, blue] = color(palette, brightness(fraction, { range: 1, gain: 0 }));
    return `rgb(${red} ${green} ${blue})`;
  };
  drawBar(context, box, { ...axis, from: dark, to: bright }, shade);
}

interface LinesProps {
  feed: Feed;
  width: number;
  keep: (canvas: HTMLCanvasElement) => void;
}

/** A chart of the newest picture of lines. */
export function Lines({ feed, width, keep }: LinesProps) {
  const [picture, setPicture] = useState(feed.newest);
  const [hovered, setHovered] = useState<number | null>(null);
  const [isFitted, setFitted] = useState(false);
  useFrames(feed, () => setPicture(feed.newest), []);
  const data = useMemo(() => chartData(picture), [picture]);
  if (!picture || picture.header.format !== "lines") return null;
  const { x, y, lines, height, kind, shot } = picture.header;
  const isDashed = picture.header.width <= MAX_DASHED;
  const names = Array.from(
    { length: Math.min(height, MAX_LINES) },
    (_, line) => lines[line] ?? (height > 1 ? `line ${line}` : axisTitle(y)),
  );
  return (
    <>
      <Chart
        label={`${kind}, shot ${shot}`}
        width={width}
        height={Math.min(420, heightFor(width))}
        names={names}
        data={data}
        x={{ title: axisTitle(x), range: [Math.min(x.from, x.to), Math.max(x.from, x.to)] }}
        y={{ title: axisTitle(y), range: isFitted ? undefined : fixedRange(y), format: shortNumber }}
        isDashed={isDashed}
        onHover={setHovered}
        canvas={keep}
      />
      <p class="legend-line">
        {fixedRange(y) && (
          <button type="button" class="small" aria-pressed={isFitted} onClick={() => setFitted(!isFitted)}>
            Fit to the values
          </button>
        )}
        {names.map((name, line) => (
          <span key={name}>
            <Swatch index={line} isDashed={isDashed} /> {name}{" "}
            {hovered !== null && <strong>{formatNumber(data[line + 1]?.[hovered] ?? NaN)}</strong>}
          </span>
        ))}
        {hovered !== null && (
          <span class="muted">
            at {formatNumber(data[0][hovered] ?? NaN)} {unitText(x.unit)}
          </span>
        )}
        {height > MAX_LINES && (
          <span class="muted">
            the first {MAX_LINES} of {height} lines
          </span>
        )}
      </p>
    </>
  );
}

function fixedRange(axis: Axis): [number, number] | undefined {
  if (axis.from === axis.to || !Number.isFinite(axis.to - axis.from)) return undefined;
  return [Math.min(axis.from, axis.to), Math.max(axis.from, axis.to)];
}

function chartData(picture: Picture | null): uPlot.AlignedData {
  if (!picture) return [[]];
  const { width, height, x } = picture.header;
  const positions = Array.from(
    { length: width },
    (_, index) => x.from + ((x.to - x.from) * index) / Math.max(1, width - 1),
  );
  const isReversed = x.to < x.from;
  const lines = Array.from({ length: Math.min(height, MAX_LINES) }, (_, line) => {
    const values = Array.from(picture.values.subarray(line * width, (line + 1) * width), (value) =>
      Number.isFinite(value) ? value : null,
    );
    return isReversed ? values.reverse() : values;
  });
  return [isReversed ? positions.reverse() : positions, ...lines];
}
