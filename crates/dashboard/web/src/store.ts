/** State of the page: what the program sent, and what follows from it over time. All of it is bounded. */

import { Connection, type ConnectionState } from "./connection.ts";
import { Feed } from "./feed.ts";
import { parseMessage } from "./logic/check.ts";
import { LossMeter } from "./logic/losses.ts";
import { parsePicture } from "./logic/picture.ts";
import { Presence } from "./logic/presence.ts";
import { Rates } from "./logic/rates.ts";
import type { About, LogEntry, Status } from "./protocol.ts";

const MAX_LOG = 500;

export class Store {
  about: About | null = null;
  status: Status | null = null;
  connection: ConnectionState = { kind: "connecting" };
  malformed = { count: 0, last: "" };
  rates = new Rates();
  losses = new LossMeter();
  presence = new Presence();
  log: LogEntry[] = [];
  readonly feed = new Feed();
  private readonly socket: Connection;
  private readonly listeners = new Set<() => void>();

  constructor(url: string) {
    this.socket = new Connection(url, {
      text: (message) => this.guard(() => this.receiveText(message)),
      binary: (message) => this.guard(() => this.feed.add(parsePicture(message))),
      changed: (state) => this.receiveState(state),
    });
  }

  start(): void {
    document.addEventListener("visibilitychange", () => this.updateWatch());
    this.socket.start();
  }

  /** Calls a function after each change. Returns what ends that. */
  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  }

  retry(): void {
    this.socket.retry();
  }

  /** Shows a kind of pictures, or none. */
  show(kind: string | null): void {
    this.feed.select(kind);
    this.updateWatch();
    this.notify();
  }

  pause(paused: boolean): void {
    this.feed.paused = paused;
    this.updateWatch();
    this.notify();
  }

  private updateWatch(): void {
    const { kind, paused } = this.feed;
    const wanted = kind !== null && !paused && document.visibilityState === "visible";
    if (!wanted) this.feed.interrupt();
    this.socket.watch(wanted ? [kind] : []);
  }

  private receiveText(json: string): void {
    const message = parseMessage(json);
    if ("about" in message) this.receiveAbout(message.about);
    else this.receiveStatus(message.status);
    this.notify();
  }

  private receiveAbout(about: About): void {
    if (this.about && (this.about.command !== about.command || this.about.title !== about.title)) this.reset();
    this.about = about;
    if (!about.pictures.some(({ kind }) => kind === this.feed.kind)) this.show(about.pictures[0]?.kind ?? null);
  }

  private receiveStatus(status: Status): void {
    // A program that was started again begins at 0.
    if (this.status && status.seconds < this.status.seconds) this.reset();
    this.status = status;
    this.rates.add(status);
    this.losses.add(status);
    this.presence.add(status.presence);
    this.addLog(status.log);
  }

  private addLog(entries: LogEntry[]): void {
    const newest = this.log.at(-1)?.number ?? -1;
    const added = entries.filter((entry) => entry.number > newest);
    if (added.length) this.log = [...this.log, ...added].slice(-MAX_LOG);
  }

  private receiveState(state: ConnectionState): void {
    this.connection = state;
    if (state.kind === "lost") this.feed.interrupt();
    this.notify();
  }

  private reset(): void {
    this.status = null;
    this.rates = new Rates();
    this.losses = new LossMeter();
    this.presence = new Presence();
    this.log = [];
    this.feed.clear();
  }

  private guard(receive: () => void): void {
    try {
      receive();
    } catch (error) {
      this.malformed = {
        count: this.malformed.count + 1,
        last: error instanceof Error ? error.message : String(error),
      };
      this.notify();
    }
  }

  private notify(): void {
    for (const listener of this.listeners) listener();
  }
}
