import { useEffect, useRef, useState } from "preact/hooks";
import { savePng } from "../draw/canvas.ts";
import { useKeys, useWidth } from "../hooks.ts";
import { formatClock, formatCount } from "../logic/format.ts";
import { type PaletteName, PALETTES, valueAxis, type Window, windowEnds } from "../logic/palette.ts";
import type { Header, PictureInfo } from "../protocol.ts";
import type { Store } from "../store.ts";
import { cssColor, remember, remembered } from "../theme.ts";
import { isScatter, Lines, Points } from "./picture-views.tsx";
import type { Section } from "./section.ts";

const PALETTE_KEY = "shotline-palette";

function View({ store }: { store: Store }) {
  const host = useRef<HTMLDivElement>(null);
  const width = useWidth(host);
  const canvas = useRef<HTMLCanvasElement | null>(null);
  const [palette, setPalette] = useState<PaletteName>(
    PALETTES.find((name) => name === remembered(PALETTE_KEY)) ?? "gray",
  );
  const [windows, setWindows] = useState<Record<string, Window>>({});
  const [asLines, setAsLines] = useState(false);
  const header = useHeader(store);
  const kinds = store.about?.pictures ?? [];
  const kind = store.feed.kind ?? "";
  const window = windows[kind] ?? { range: 1, gain: 0 };
  const choosePalette = (name: PaletteName) => (setPalette(name), remember(PALETTE_KEY, name));
  const save = () =>
    canvas.current && header && savePng(canvas.current, cssColor("--panel"), `${header.kind}-shot-${header.shot}.png`);
  useEffect(() => {
    store.show(store.feed.kind ?? kinds[0]?.kind ?? null);
    // A folded section needs no pictures.
    return () => store.show(null);
  }, []);
  useKeys((key) => {
    const chosen = /^[1-9]$/.test(key) ? kinds[Number(key) - 1] : undefined;
    if (chosen) store.show(chosen.kind);
    else if (key === " ") store.pause(!store.feed.paused);
    else if (key === "s") save();
    else if (key === "p") choosePalette(PALETTES[(PALETTES.indexOf(palette) + 1) % PALETTES.length] ?? "gray");
    else return false;
    return true;
  });
  const info = kinds.find((info) => info.kind === kind);
  const keep = (element: HTMLCanvasElement) => (canvas.current = element);
  return (
    <>
      <Tabs store={store} kinds={kinds} />
      <div ref={host} id="picture" class="picture" role="tabpanel" aria-label={info?.label ?? "Picture"}>
        {!header && <p class="waiting">{store.feed.paused ? "Paused" : "Waiting for the first picture"}</p>}
        {header && width > 0 && (header.format !== "lines" || (isScatter(header) && !asLines)) && (
          <Points feed={store.feed} header={header} width={width} palette={palette} window={window} keep={keep} />
        )}
        {header && width > 0 && header.format === "lines" && (!isScatter(header) || asLines) && (
          <Lines feed={store.feed} width={width} keep={keep} />
        )}
      </div>
      {header && <Facts store={store} header={header} />}
      <div class="tools">
        <button
          type="button"
          aria-pressed={store.feed.paused}
          onClick={() => store.pause(!store.feed.paused)}
          title="space"
        >
          {store.feed.paused ? "Continue" : "Pause"}
        </button>
        <button type="button" onClick={save} disabled={!header} title="s">
          Save PNG
        </button>
        {header && isScatter(header) && (
          <button type="button" aria-pressed={asLines} onClick={() => setAsLines(!asLines)}>
            As lines
          </button>
        )}
        {header?.format === "gray8" && (
          <>
            <PaletteChoice palette={palette} choose={choosePalette} />
            <Sliders
              header={header}
              window={window}
              change={(changed) => setWindows({ ...windows, [kind]: changed })}
            />
          </>
        )}
      </div>
    </>
  );
}

/** Returns the header of the newest picture. Renders again when its layout changes, and with each status for its numbers. */
function useHeader(store: Store): Header | null {
  const [, setLayout] = useState("");
  useEffect(() => {
    const { feed } = store;
    return feed.subscribe(() => {
      const header = feed.newest?.header;
      setLayout(header ? `${header.kind} ${header.format} ${header.lines.join()}` : "");
    });
  }, [store]);
  return store.feed.newest?.header ?? null;
}

function Tabs({ store, kinds }: { store: Store; kinds: PictureInfo[] }) {
  const move = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = kinds.findIndex(({ kind }) => kind === store.feed.kind);
    const next = kinds[(at + step + kinds.length) % kinds.length];
    if (next) store.show(next.kind);
    const tabs = (event.currentTarget as HTMLElement).querySelectorAll("button");
    tabs[(at + step + kinds.length) % kinds.length]?.focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label="Pictures" onKeyDown={move}>
      {kinds.map(({ kind, label, about }, index) => {
        const isSelected = kind === store.feed.kind;
        return (
          <button
            key={kind}
            type="button"
            role="tab"
            aria-selected={isSelected}
            aria-controls="picture"
            tabIndex={isSelected ? 0 : -1}
            title={about}
            onClick={() => store.show(kind)}
          >
            {index < 9 && <kbd aria-hidden="true">{index + 1}</kbd>} {label}
          </button>
        );
      })}
    </div>
  );
}

function Facts({ store, header }: { store: Store; header: Header }) {
  const { meter, paused } = store.feed;
  return (
    <p class="facts">
      <span>shot {header.shot}</span>
      <span>{formatClock(header.unix_ms)}</span>
      <span>
        {header.width} × {header.height}
      </span>
      <span>{paused ? "paused" : `${meter.rate(performance.now()).toFixed(1)} pictures/s`}</span>
      <span
        class={meter.missed ? "warning" : "muted"}
        title="This page was too slow for them; the recording is not affected"
      >
        {formatCount(meter.missed)} missed
      </span>
      {header.note && <span class="note-of-picture">{header.note}</span>}
    </p>
  );
}

function PaletteChoice({ palette, choose }: { palette: PaletteName; choose: (name: PaletteName) => void }) {
  return (
    <label title="p">
      Palette
      <select value={palette} onChange={(event) => choose(event.currentTarget.value as PaletteName)}>
        {PALETTES.map((name) => (
          <option key={name}>{name}</option>
        ))}
      </select>
    </label>
  );
}

interface SlidersProps {
  header: Header;
  window: Window;
  change: (window: Window) => void;
}

function Sliders({ header, window, change }: SlidersProps) {
  const axis = valueAxis(header.value);
  const span = axis.to - axis.from;
  const { dark, bright } = windowEnds(axis, window);
  const round = (value: number) => `${+value.toPrecision(3)} ${axis.unit}`.trim();
  const slide = (name: keyof Window) => (event: Event) =>
    change({ ...window, [name]: Number((event.currentTarget as HTMLInputElement).value) });
  return (
    <>
      <label>
        Range
        <input
          type="range"
          min="0.05"
          max="1"
          step="0.01"
          value={window.range}
          onInput={slide("range")}
          aria-valuetext={round(bright - dark)}
        />
        <output>{round(bright - dark)}</output>
      </label>
      <label>
        Gain
        <input
          type="range"
          min="-0.5"
          max="0.5"
          step="0.01"
          value={window.gain}
          onInput={slide("gain")}
          aria-valuetext={round(window.gain * span)}
        />
        <output>{round(window.gain * span)}</output>
      </label>
      {(window.range !== 1 || window.gain !== 0) && (
        <button type="button" class="quiet" onClick={() => change({ range: 1, gain: 0 })}>
          Reset
        </button>
      )}
    </>
  );
}

export const pictures: Section = {
  id: "pictures",
  title: "Pictures",
  column: "main",
  isOpen: true,
  isShown: ({ about }) => Boolean(about?.pictures.length),
  View,
};
