import { Dialog } from "./dialog.tsx";

const KEYS: [string, string][] = [
  ["1 … 9", "show this picture"],
  ["space", "pause the picture, continue"],
  ["s", "save the picture as a PNG file"],
  ["p", "next palette"],
  ["t", "dark, light, or as the system"],
  ["?", "this help"],
  ["Esc", "close a window"],
];

export function Help({ close }: { close: () => void }) {
  return (
    <Dialog title="Keys" close={close}>
      <dl class="keys">
        {KEYS.map(([key, meaning]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
      <p class="note">Only the picture that is visible is computed and sent. Numbers arrive four times a second.</p>
      <div class="buttons">
        <button type="button" onClick={close}>
          Close
        </button>
      </div>
    </Dialog>
  );
}
