/** Buttons for what the program can do. */

import { useEffect, useState } from "preact/hooks";
import { type ControlResult, hasToken, request, setToken } from "./control.ts";
import { Dialog } from "./dialog.tsx";
import type { Control, Input } from "./protocol.ts";
import type { Store } from "./store.ts";

/** Actions that cannot be undone. */
const CONFIRMED = ["stop"];

/** A control that is pressed, and what it still needs. */
type Pending = { control: Control; fields?: Record<string, number>; needs: "token" | "input" | "confirmation" };

export function Controls({ store }: { store: Store }) {
  const controls = store.about?.controls ?? [];
  const [pending, setPending] = useState<Pending | null>(null);
  const [result, setResult] = useState<ControlResult | null>(null);
  if (!controls.length) return null;
  const run = async (control: Control, fields?: Record<string, number>) => {
    if (!hasToken()) return setPending({ control, fields, needs: "token" });
    setPending(null);
    setResult(null);
    setResult(await request(control.action, fields));
  };
  const press = (control: Control) => {
    if (control.input) setPending({ control, needs: "input" });
    else if (CONFIRMED.includes(control.action)) setPending({ control, needs: "confirmation" });
    else void run(control);
  };
  const isUsable = (control: Control) => store.connection.kind === "open" && control.phases.includes(phase);
  const phase = store.status?.phase ?? "starting";
  const cancel = () => setPending(null);
  return (
    <div class="controls">
      {controls.map((control) => (
        <button
          key={control.action}
          type="button"
          class={control.action}
          title={control.about}
          disabled={!isUsable(control)}
          onClick={() => press(control)}
        >
          {control.label}
        </button>
      ))}
      {result && <Result result={result} close={() => setResult(null)} />}
      {pending?.needs === "confirmation" && (
        <Confirmation control={pending.control} cancel={cancel} confirm={() => run(pending.control)} />
      )}
      {pending?.needs === "input" && pending.control.input && (
        <NumberInput
          control={pending.control}
          input={pending.control.input}
          cancel={cancel}
          enter={(fields) => run(pending.control, fields)}
        />
      )}
      {pending?.needs === "token" && (
        <TokenInput cancel={cancel} enter={() => void run(pending.control, pending.fields)} />
      )}
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

interface NumberInputProps {
  control: Control;
  input: Input;
  cancel: () => void;
  enter: (fields: Record<string, number>) => void;
}

function NumberInput({ control, input, cancel, enter }: NumberInputProps) {
  const [value, setValue] = useState(String(input.value ?? ""));
  const [min, max] = input.range;
  const submit = (event: Event) => {
    event.preventDefault();
    enter(value === "" ? {} : { [input.field]: Number(value) });
  };
  return (
    <Dialog title={control.label} close={cancel}>
      <form onSubmit={submit}>
        <p>{control.about}</p>
        <label>
          {input.label}
          <input
            type="number"
            required={input.value !== null}
            placeholder={input.value === null ? "as the sender has them" : undefined}
            min={min}
            max={max}
            step={1}
            value={value}
            onInput={(event) => setValue(event.currentTarget.value)}
          />
        </label>
        <div class="buttons">
          <button type="button" onClick={cancel}>
            Cancel
          </button>
          <button type="submit" class={control.action}>
            {control.label}
          </button>
        </div>
      </form>
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
