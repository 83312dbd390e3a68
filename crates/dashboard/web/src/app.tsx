import { useState } from "preact/hooks";
import { Help } from "./help.tsx";
import { PageHeader } from "./header.tsx";
import { useKeys, useStore } from "./hooks.ts";
import { Panel } from "./panel.tsx";
import { type Column, SECTIONS } from "./sections/index.ts";
import type { Store } from "./store.ts";

const COLUMNS: Column[] = ["main", "side", "foot"];

export function App({ store }: { store: Store }) {
  useStore(store);
  const [isHelpOpen, setHelpOpen] = useState(false);
  useKeys((key) => {
    if (key !== "?") return false;
    setHelpOpen(true);
    return true;
  });
  return (
    <>
      <PageHeader store={store} openHelp={() => setHelpOpen(true)} />
      <main class="columns">
        {COLUMNS.map((column) => (
          <ColumnOfSections key={column} column={column} store={store} />
        ))}
      </main>
      <Footer store={store} />
      {isHelpOpen && <Help close={() => setHelpOpen(false)} />}
    </>
  );
}

function ColumnOfSections({ column, store }: { column: Column; store: Store }) {
  const shown = SECTIONS.filter((section) => section.column === column && section.isShown(store));
  if (!shown.length) return null;
  return (
    <div class={`column ${column}`}>
      {shown.map(({ id, title, isOpen, View }) => (
        <Panel key={id} id={id} title={title} isOpen={isOpen}>
          {() => <View store={store} />}
        </Panel>
      ))}
    </div>
  );
}

function Footer({ store }: { store: Store }) {
  const { malformed } = store;
  return (
    <footer>
      {malformed.count > 0 && (
        <p class="problem" role="status">
          {malformed.count} malformed {malformed.count === 1 ? "message" : "messages"} discarded; last: {malformed.last}
        </p>
      )}
      <p>
        {store.about?.program ?? "Shotline"} · <a href="metrics">metrics</a> · <a href="api/status">status as JSON</a>
      </p>
    </footer>
  );
}
