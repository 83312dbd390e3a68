/** Buttons for what the program can do. */

import { useEffect, useState } from "preact/hooks";
import { type ControlResult, hasToken, request, setToken } from "./control.ts";
import { Dialog } from "./dialog.tsx";
import type { Control } from "./protocol.ts";
import type { Store } from "./store.ts";

/** Actions that cannot be undone. */
const CONFIRMED = ["stop"];

export function Controls({ store }: { store: Store }) {
  const controls = store.about?.controls ?? [];
  const [confirmed, setConfirmed] = useState<Control | null>(null);
  const [wanted, setWanted] = useState<Control | null>(null);
  const [result, setResult] = useState<ControlResult | null>(null);
  if (!controls.length) return null;
  const run = async (control: Control) => {
    setConfirmed(null);
    if (!hasToken()) return setWanted(control);
    setResult(null);
    setResult(await request(control.action));
  };
  const isOver = store.connection.kind !== "open" || store.status?.phase === "ended";
  return (
    <div class="controls">
      {controls.map((control) => (
        <button
          key={control.action}
          type="button"
          class={control.action}
          title={control.about}
          disabled={isOver}
          onClick={() => (CONFIRMED.includes(control.action) ? setConfirmed(control) : run(control))}
        >
          {control.label}
        </button>
      ))}
      {result && <Result result={result} close={() => setResult(null)} />}
      {confirmed && (
        <Confirmation control={confirmed} cancel={() => setConfirmed(null)} confirm={() => run(confirmed)} />
      )}
      {wanted && <TokenInput cancel={() => setWanted(null)} enter={() => (setWanted(null), void run(wanted))} />}
    </div>
  );
}

/** Milliseconds after which a success disappears; an error stays until it is closed. */
const SHOWN_MS = 6000;

function Result({ result, close }: { result: ControlResult; close: () => void }) {
  useEffect(() => {
    if (!result.isDone) return;
    const timer = setTimeout(close, SHOWN_MS);
    return () => clearTimeout(timer);
  }, [result]);
  return (
    <p class={`result ${result.isDone ? "done" : "failed"}`} role="status">
      <span aria-hidden="true">{result.isDone ? "✓" : "✕"}</span> {result.text}
      <button type="button" class="quiet" aria-label="Close the message" onClick={close}>
        ×
      </button>
    </p>
  );
}

interface ConfirmationProps {
  control: Control;
  cancel: () => void;
  confirm: () => void;
}

function Confirmation({ control, cancel, confirm }: ConfirmationProps) {
  return (
    <Dialog title={`${control.label}?`} close={cancel}>
      <p>{control.about}</p>
      <div class="buttons">
        <button type="button" onClick={cancel}>
          Cancel
        </button>
        <button type="button" class="stop" onClick={confirm}>
          {control.label}
        </button>
      </div>
    </Dialog>
  );
}

function TokenInput({ cancel, enter }: { cancel: () => void; enter: () => void }) {
  const [value, setValue] = useState("");
  const submit = (event: Event) => {
    event.preventDefault();
    if (!value.trim()) return;
    setToken(value);
    enter();
  };
  return (
    <Dialog title="Token" close={cancel}>
      <form onSubmit={submit}>
        <p>Controls need the token. It is in the address that the program printed in its terminal, after #token=.</p>
        <label>
          Token
          <input
            type="password"
            autocomplete="off"
            value={value}
            onInput={(event) => setValue(event.currentTarget.value)}
          />
        </label>
        <div class="buttons">
          <button type="button" onClick={cancel}>
            Cancel
          </button>
          <button type="submit">Continue</button>
        </div>
      </form>
    </Dialog>
  );
}
