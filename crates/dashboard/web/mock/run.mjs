// State of the mock program: a recorder of two links at 400 shots a second.

const SHOTS = 400;
const PACKETS = 180;
const BYTES = PACKETS * 1024;
const POOL = 512 * 1024 ** 2;

const family = (name, help, rest) => ({
  name,
  help,
  kind: "counter",
  unit: null,
  rate: null,
  is_loss: false,
  samples: [{ labels: [], value: 0 }],
  ...rest,
});
const rate = (label, unit, factor) => ({ label, unit, factor });

/** A run that began at a time; `hasLoss` lets some packets and shots get lost. */
export class Run {
  constructor({ hasLoss = true, seconds = 600 } = {}) {
    this.began = Date.now();
    this.hasLoss = hasLoss;
    this.length = seconds;
    this.log = [];
    this.stopped = null;
    this.triggers = 0;
    this.say("info", "listening on 127.0.0.1:4791, pool of 512 MiB in huge pages");
    this.say("info", "link 0: first packet of shot 1");
  }

  say(level, text) {
    this.log.push({ number: (this.log.at(-1)?.number ?? -1) + 1, unix_ms: Date.now(), level, text });
    this.log = this.log.slice(-50);
  }

  seconds() {
    return ((this.stopped ?? Date.now()) - this.began) / 1000;
  }

  phase() {
    if (this.stopped !== null || this.seconds() >= this.length) return "ended";
    return this.seconds() < 1 ? "waiting" : "running";
  }

  shots() {
    return Math.floor(Math.min(this.seconds(), this.length) * SHOTS);
  }

  about(pictures) {
    return {
      program: "shotline 0.9.0",
      command: "record",
      title: "two links of a 256-channel probe into run-0042.h5",
      settings: [
        ["transport", "udp, 127.0.0.1:4791"],
        ["framing", "roce"],
        ["links", "2"],
        ["shot", "180 packets of 1024 bytes"],
        ["pool", "512 MiB, huge pages"],
        ["policy", "drop-newest"],
        ["output", "run-0042.h5, 4 GiB a part"],
        ["format", "int16, 256 channels x 360 samples"],
      ],
      controls: [
        {
          action: "start",
          label: "Start",
          about: "Starts a run, which is written to a new file.",
          phases: ["standby", "ended"],
          input: { field: "samples", label: "Samples per channel and shot", value: 360, range: [1, 4096] },
        },
        {
          action: "stop",
          label: "Stop",
          about: "Ends the run cleanly: shots in progress are written, and the file is closed.",
          phases: ["starting", "waiting", "running"],
          input: null,
        },
        {
          action: "trigger",
          label: "Trigger",
          about: "Keeps the shots around this moment.",
          phases: ["waiting", "running"],
          input: null,
        },
      ],
      pictures,
    };
  }

  /** Lost packets by cause, and lost shots. */
  lost() {
    const seconds = this.hasLoss ? Math.max(0, this.seconds() - 4) : 0;
    return {
      wire_gap: Math.floor(seconds / 3) * 3,
      late: Math.floor(seconds / 9),
      sink_busy: Math.floor(seconds / 20),
    };
  }

  families() {
    const shots = this.shots();
    const wobble = Math.floor(60 * Math.sin(this.seconds()));
    const lost = this.lost();
    const link = (name, value) => ({ labels: [["link", name]], value });
    const cause = (name, value) => ({ labels: [["cause", name]], value });
    return [
      family("packets_received", "Packets that reached the receiver", {
        rate: rate("packets", "packets/s", 1),
        samples: [
          link("0", shots * PACKETS - lost.wire_gap),
          link("1", Math.floor(shots * PACKETS * 0.8) + wobble * 40),
        ],
      }),
      family("payload_bytes", "Bytes of samples that were received", {
        unit: "bytes",
        rate: rate("payload", "Gbit/s", 8e-9),
        samples: [link("0", shots * BYTES), link("1", Math.floor(shots * BYTES * 0.8) + wobble * 40000)],
      }),
      family("shots_recorded", "Shots that are in the file", {
        rate: rate("shots", "shots/s", 1),
        samples: [{ labels: [], value: shots - lost.sink_busy }],
      }),
      family("bytes_written", "Bytes that the drive has accepted", {
        unit: "bytes",
        rate: rate("written", "MB/s", 1e-6),
        samples: [{ labels: [], value: Math.floor(shots / 40) * 40 * BYTES * 1.8 }],
      }),
      family("packets_dropped", "Packets that are not in the recording", {
        is_loss: true,
        samples: [
          cause("wire_gap", lost.wire_gap),
          cause("late", lost.late),
          cause("bad_icrc", 0),
          cause("duplicate", 0),
        ],
      }),
      family("shots_dropped", "Shots that are not in the recording", {
        is_loss: true,
        samples: [cause("sink_busy", lost.sink_busy), cause("no_buffer", 0)],
      }),
      family("triggers", "Triggers that arrived", { samples: [{ labels: [], value: this.triggers }] }),
      family("pool_free", "Free shot buffers", { kind: "gauge", samples: [{ labels: [], value: 2900 + wobble }] }),
      family("uptime", "Time since the start", {
        kind: "gauge",
        unit: "seconds",
        samples: [{ labels: [], value: this.seconds() }],
      }),
    ];
  }

  latency(name, help, labels, centre, tail) {
    const count = this.shots();
    const bins = [];
    for (let octave = 10; octave < 34; octave++) {
      const at = (Math.log2(centre) - octave) / 1.1;
      const below = 1 / (1 + Math.exp(2.2 * at));
      bins.push([
        2 ** octave / 1e9,
        Math.round(count * Math.min(1, below * (1 - tail) + tail * (octave > 22 ? 1 : 0))),
      ]);
    }
    bins.push([null, count]);
    const seconds = centre / 1e9;
    return {
      name,
      help,
      labels,
      count,
      sum_s: count * seconds * 1.1,
      quantiles_s: [seconds / 6, seconds, seconds * 5, seconds * 14, seconds * 60],
      bins,
    };
  }

  presence() {
    const newest = this.shots();
    const shots = [];
    for (const link of [0, 1]) {
      for (let shot = Math.max(1, newest - 127); shot <= newest; shot++) {
        const isLost = this.hasLoss && (shot % 397 < 3 || (link === 1 && shot % 151 === 9));
        if (isLost) continue;
        const isPartial = this.hasLoss && shot % 67 === 5 + link;
        shots.push({ link, shot, complete: !isPartial, parts: isPartial ? "fffffff00fff3fff" : "ffffffffffffffff" });
      }
    }
    return shots;
  }

  stages() {
    const wobble = 0.04 * Math.sin(this.seconds());
    const stage = (name, busy, stalled, gbps) => ({
      name,
      busy: busy + wobble,
      starved: 1 - busy - stalled - wobble,
      stalled,
      gbps,
    });
    return [
      stage("receive", 0.42, 0, 1.06),
      stage("assemble", 0.31, 0.02, 1.06),
      stage("compress", 0.78, 0.06, 1.05),
      stage("write", 0.55, 0, 0.94),
    ];
  }

  tables() {
    return [
      {
        title: "Links",
        columns: ["link", "sender", "framing", "shots", "lost", "rate"],
        rows: [
          ["0", "10.0.0.7:4791", "roce", String(this.shots()), String(this.lost().wire_gap), "0.59 Gbit/s"],
          ["1", "10.0.1.7:4791", "roce", String(this.shots()), "0", "0.47 Gbit/s"],
        ],
      },
      {
        title: "Clocks",
        columns: ["link", "offset", "drift"],
        rows: [
          ["0", "12.1 µs", "0.3 ppm"],
          ["1", "-4.0 µs", "1.9 ppm"],
        ],
      },
    ];
  }

  tick() {
    const { wire_gap } = this.lost();
    if (wire_gap !== this.reported && wire_gap > 0)
      this.say("warning", `link 0, shot ${this.shots()}: 3 packets never arrived (wire_gap)`);
    this.reported = wire_gap;
  }

  status() {
    this.tick();
    return {
      seconds: this.seconds(),
      phase: this.phase(),
      progress: Math.min(1, this.seconds() / this.length),
      families: this.families(),
      latencies: [
        this.latency(
          "shot_assembly",
          "Time from the first packet of a shot to its last",
          [["link", "0"]],
          420_000,
          0.002,
        ),
        this.latency("shot_to_disk", "Time from a complete shot to its place in the file", [], 9_000_000, 0.01),
      ],
      stages: this.stages(),
      limit: "compress: 78 % busy; one more thread would raise the throughput by up to 28 %",
      levels: [
        {
          label: "pool",
          used: POOL * (0.2 + 0.1 * Math.sin(this.seconds() / 4)),
          capacity: POOL,
          unit: "bytes",
          high_is_bad: true,
        },
        { label: "queue", used: 58, capacity: 64, unit: "shots", high_is_bad: true },
        { label: "drive", used: 1.31e12, capacity: 2e12, unit: "bytes", high_is_bad: true },
      ],
      presence: this.presence(),
      tables: this.tables(),
      log: this.log,
    };
  }

  control({ action, samples }) {
    if (action === "start" && this.phase() === "ended") {
      this.say("info", `started with ${samples} samples`);
      return { done: `the run starts with ${samples} samples` };
    }
    if (this.phase() === "ended") return { error: "the run has ended" };
    if (action === "trigger") {
      this.triggers += 1;
      this.say("info", `trigger at shot ${this.shots()}`);
      return { done: `triggered at shot ${this.shots()}` };
    }
    if (action === "stop") {
      this.stopped = Date.now();
      this.say("info", "stopped by the page; the file is closed");
      return { done: "stopping: shots in progress are written" };
    }
    return { error: `unknown action ${action}` };
  }
}
