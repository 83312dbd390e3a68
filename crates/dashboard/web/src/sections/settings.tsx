import type { Store } from "../store.ts";
import type { Section } from "./section.ts";

function View({ store }: { store: Store }) {
  return (
    <dl class="settings">
      {store.about?.settings.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

export const settings: Section = {
  id: "settings",
  title: "Settings",
  column: "foot",
  isOpen: true,
  isShown: ({ about }) => Boolean(about?.settings.length),
  View,
};
