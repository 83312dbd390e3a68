/** A section of the page that can be folded, and that fails without the others. */

import { Component, type ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { remember, remembered } from "./theme.ts";

interface PanelProps {
  id: string;
  title: string;
  isOpen: boolean;
  children: () => ComponentChildren;
}

export function Panel({ id, title, isOpen, children }: PanelProps) {
  const key = `shotline-open-${id}`;
  const [open, setOpen] = useState(remembered(key) === null ? isOpen : remembered(key) === "1");
  const toggle = () => {
    remember(key, open ? "0" : "1");
    setOpen(!open);
  };
  return (
    <section class="panel" id={id} aria-labelledby={`${id}-title`}>
      <h2 id={`${id}-title`}>
        <button type="button" class="fold" aria-expanded={open} aria-controls={`${id}-body`} onClick={toggle}>
          {title}
        </button>
      </h2>
      <div class="body" id={`${id}-body`} hidden={!open}>
        {open && <Guard>{children()}</Guard>}
      </div>
    </section>
  );
}

/** Shows an error in place of what failed. */
export class Guard extends Component<{ children: ComponentChildren }, { error: string | null }> {
  override state = { error: null };

  static override getDerivedStateFromError(error: unknown) {
    return { error: error instanceof Error ? error.message : String(error) };
  }

  override render() {
    const { error } = this.state;
    if (error === null) return this.props.children;
    return <p class="problem">This section failed: {error}</p>;
  }
}
