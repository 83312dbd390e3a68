/** Line charts by uPlot. */

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { cssColor, themeVersion } from "../theme.ts";
import { FONT } from "./canvas.ts";

/** Dashes, so that lines differ without their colours. */
const DASHES = [[], [7, 3], [2, 3], [9, 3, 2, 3], [], [7, 3], [2, 3], [9, 3, 2, 3]];
export const SERIES_COLORS = 8;

export interface ChartProps {
  label: string;
  width: number;
  height: number;
  names: string[];
  data: uPlot.AlignedData;
  x: { title?: string; range: [number, number]; format?: (value: number) => string; steps?: number[] };
  y: { title?: string; range?: [number, number] | undefined; fromZero?: boolean; format?: (value: number) => string };
  /** Lines differ by dashes as well. */
  isDashed: boolean;
  /** Called with the index of the point under the pointer. */
  onHover?: (index: number | null) => void;
  canvas?: (canvas: HTMLCanvasElement) => void;
}

/** Returns the colour of a series of a chart. */
export function seriesColor(index: number): string {
  return cssColor(`--series-${(index % SERIES_COLORS) + 1}`);
}

export function dash(index: number): number[] {
  return DASHES[index % DASHES.length] ?? [];
}

function axis(title: string | undefined, size: number, format?: (value: number) => string): uPlot.Axis {
  return {
    stroke: cssColor("--muted"),
    grid: { stroke: cssColor("--grid"), width: 1 },
    ticks: { stroke: cssColor("--axis"), width: 1, size: 4 },
    font: FONT,
    labelFont: FONT,
    size,
    gap: 4,
    ...(title ? { label: title, labelSize: 18, labelGap: 0 } : {}),
    ...(format ? { values: (_: uPlot, values: number[]) => values.map(format) } : {}),
  };
}

/** Range of the vertical axis: the given one, from zero, or that of the values with a margin. */
function verticalRange({ y }: ChartProps, low: number | null, high: number | null): [number, number] {
  if (y.range) return y.range;
  if (low === null || high === null) return [0, 1];
  if (y.fromZero) return [0, high > 0 ? high * 1.12 : 1];
  const margin = 0.06 * (high - low || Math.abs(high) || 1);
  return [low - margin, high + margin];
}

function options(latest: { current: ChartProps }): uPlot.Options {
  const props = latest.current;
  const { names, x, y } = props;
  return {
    width: props.width,
    height: props.height,
    padding: [8, 10, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 5 } },
    scales: {
      x: { time: false, range: () => latest.current.x.range },
      y: { range: (_, low, high) => verticalRange(latest.current, low, high) },
    },
    axes: [
      { ...axis(x.title, 26, x.format), space: 56, ...(x.steps ? { incrs: x.steps } : {}) },
      axis(y.title, 52, y.format),
    ],
    series: [
      {},
      ...names.map((label, index) => ({
        label,
        stroke: seriesColor(index),
        dash: props.isDashed ? dash(index) : [],
        width: 1.5,
        points: { show: false },
        spanGaps: false,
      })),
    ],
    hooks: { setCursor: [(plot) => latest.current.onHover?.(plot.cursor.idx ?? null)] },
  };
}

/** A chart. It is created again when its series, its axes or the colours change, not for new data. */
export function Chart(props: ChartProps) {
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const { names, x, y, width, height } = props;
  useEffect(() => {
    if (!host.current) return;
    const created = new uPlot(options(latest), props.data, host.current);
    plot.current = created;
    props.canvas?.(created.ctx.canvas);
    return () => created.destroy();
  }, [names.join("\n"), x.title, y.title, props.isDashed, themeVersion()]);
  useEffect(() => plot.current?.setSize({ width, height }), [width, height]);
  useEffect(() => plot.current?.setData(props.data), [props.data, ...x.range, ...(y.range ?? [NaN, NaN])]);
  return <div class="chart" ref={host} role="img" aria-label={props.label} />;
}
