/** The WebSocket to the program: reconnects by itself, and requests the pictures that the page shows. */

export type ConnectionState =
  | { kind: "connecting" }
  | { kind: "open" }
  /** Lost at a time in ms since 1970; the next try is at `retryAt`. */
  | { kind: "lost"; since: number; retryAt: number };

export interface Receiver {
  text(message: string): void;
  binary(message: ArrayBuffer): void;
  changed(state: ConnectionState): void;
}

const FIRST_DELAY_MS = 500;
const MAX_DELAY_MS = 15_000;
/** The program sends four messages a second: after this silence the connection is dead. */
const SILENCE_MS = 8_000;

export class Connection {
  state: ConnectionState = { kind: "connecting" };
  private socket: WebSocket | null = null;
  private delay = FIRST_DELAY_MS;
  private timer: number | undefined;
  private heard = 0;
  private watched: string[] = [];

  constructor(
    private readonly url: string,
    private readonly receiver: Receiver,
  ) {}

  start(): void {
    this.open();
    setInterval(() => this.checkSilence(), 1000);
  }

  /** Requests exactly these kinds of pictures. */
  watch(kinds: string[]): void {
    if (kinds.join() === this.watched.join()) return;
    this.watched = kinds;
    this.sendWatch();
  }

  /** Tries again now. */
  retry(): void {
    if (this.state.kind !== "lost") return;
    clearTimeout(this.timer);
    this.delay = FIRST_DELAY_MS;
    this.open();
  }

  private open(): void {
    const socket = new WebSocket(this.url);
    socket.binaryType = "arraybuffer";
    this.socket = socket;
    this.heard = Date.now();
    socket.onopen = () => {
      this.sendWatch();
      this.change({ kind: "open" });
    };
    socket.onmessage = ({ data }: MessageEvent<string | ArrayBuffer>) => {
      if (socket !== this.socket) return;
      this.heard = Date.now();
      this.delay = FIRST_DELAY_MS;
      if (typeof data === "string") this.receiver.text(data);
      else this.receiver.binary(data);
    };
    socket.onclose = () => {
      if (socket === this.socket) this.lose();
    };
  }

  private lose(): void {
    this.socket = null;
    const since = this.state.kind === "lost" ? this.state.since : Date.now();
    // Pages that were open when a program ended must not all return at the same time.
    const delay = this.delay * (0.8 + 0.4 * Math.random());
    this.delay = Math.min(MAX_DELAY_MS, this.delay * 2);
    this.timer = setTimeout(() => this.open(), delay);
    this.change({ kind: "lost", since, retryAt: Date.now() + delay });
  }

  private checkSilence(): void {
    const { socket } = this;
    if (!socket || Date.now() - this.heard < SILENCE_MS) return;
    this.lose();
    socket.close();
  }

  private sendWatch(): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({ watch: this.watched }));
  }

  private change(state: ConnectionState): void {
    this.state = state;
    this.receiver.changed(state);
  }
}
