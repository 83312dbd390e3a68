//! What the page shows of a command: sent as JSON, in the shapes of `web/src/protocol.ts`.

use serde::Serialize;
use std::borrow::Cow;

/// Words that are part of the program, or composed at run time.
pub type Text = Cow<'static, str>;

/// First message of a connection: what does not change.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct About {
    /// Name and version of the program.
    pub program: Text,
    /// Name of the command.
    pub command: Text,
    /// What it works on, in a few words.
    pub title: String,
    /// Settings of the command, in the order to show.
    pub settings: Vec<(Text, String)>,
    /// Controls that it has.
    pub controls: Vec<Control>,
    /// Pictures that it has.
    pub pictures: Vec<PictureInfo>,
}

/// A control of the page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Control {
    /// Name of its [`Action`](crate::Action).
    pub action: &'static str,
    /// Label for people.
    pub label: &'static str,
    /// What it does, in one sentence.
    pub about: Text,
    /// Phases in which it has an effect.
    pub phases: Vec<Phase>,
    /// Number that it takes.
    pub input: Option<Input>,
}

/// A whole number that a control takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Input {
    /// Name of the field of the [`Action`](crate::Action).
    pub field: &'static str,
    /// Label for people.
    pub label: &'static str,
    /// The value that is offered first; none: it may be omitted.
    pub value: Option<u32>,
    /// Smallest and largest value.
    pub range: [u32; 2],
}

/// A picture of the data that the page offers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PictureInfo {
    /// Name, by which a client requests it.
    pub kind: &'static str,
    /// Label for people.
    pub label: Text,
    /// What it shows, in one sentence.
    pub about: Text,
}

/// State of the command at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Status {
    /// Time since the start in seconds.
    pub seconds: f64,
    /// Phase of the command.
    pub phase: Phase,
    /// Progress to the requested end, 0 to 1; none without such an end.
    pub progress: Option<f64>,
    /// All counters and gauges, which are the metrics as well.
    pub families: Vec<Family>,
    /// Latencies.
    pub latencies: Vec<LatencyReading>,
    /// Load of the stages, in the order in which data passes them.
    pub stages: Vec<StageReading>,
    /// What limits the throughput; none if it is unknown.
    pub limit: Option<String>,
    /// Fill levels: pool, drive.
    pub levels: Vec<Level>,
    /// Presence of the last shots of each link, newest last.
    pub presence: Vec<ShotPresence>,
    /// Tables: links, queue pairs, clocks.
    pub tables: Vec<Table>,
    /// Newest messages, oldest first.
    pub log: Vec<LogEntry>,
}

/// Phase of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Waits for the page's Start.
    Standby,
    /// Not ready for data yet.
    #[default]
    Starting,
    /// Ready, without data yet.
    Waiting,
    /// Data arrive.
    Running,
    /// Over; the numbers are final.
    Ended,
}

impl Phase {
    /// All phases with their names.
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::Standby, "standby"),
        (Self::Starting, "starting"),
        (Self::Waiting, "waiting"),
        (Self::Running, "running"),
        (Self::Ended, "ended"),
    ];
}

/// Metrics of one name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Family {
    /// Name without the prefix `shotline_` and without the suffix `_total`.
    pub name: Text,
    /// What is counted, in one sentence without a full stop.
    pub help: Text,
    /// Kind.
    pub kind: FamilyKind,
    /// Unit of Prometheus (`bytes`, `seconds`); none for plain numbers.
    pub unit: Option<&'static str>,
    /// How the page shows its rate; none: only its value.
    pub rate: Option<Rate>,
    /// Set if any count means that data were lost.
    pub is_loss: bool,
    /// Values.
    pub samples: Vec<Sample>,
}

impl Family {
    /// Returns a family without values, which is no loss.
    pub fn new(name: impl Into<Text>, help: impl Into<Text>, kind: FamilyKind) -> Self {
        let (name, help) = (name.into(), help.into());
        Self { name, help, kind, unit: None, rate: None, is_loss: false, samples: Vec::new() }
    }

    /// Returns a counter without labels.
    pub fn counter(name: &'static str, help: &'static str, count: u64) -> Self {
        Self { samples: vec![Sample::count(Vec::new(), count)], ..Self::new(name, help, FamilyKind::Counter) }
    }

    /// Returns a gauge without labels.
    pub fn gauge(name: &'static str, help: &'static str, value: f64) -> Self {
        Self { samples: vec![Sample { labels: Vec::new(), value }], ..Self::new(name, help, FamilyKind::Gauge) }
    }
}

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FamilyKind {
    /// Only rises.
    Counter,
    /// Rises and falls.
    Gauge,
}

/// How the rate of a counter is shown.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rate {
    /// Label.
    pub label: &'static str,
    /// Unit.
    pub unit: &'static str,
    /// Factor from counts per second to the unit.
    pub factor: f64,
}

/// A value with its labels.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Labels and their values.
    pub labels: Vec<(&'static str, String)>,
    /// The value. A float holds counts up to 2^53 exactly.
    pub value: f64,
}

impl Sample {
    /// Returns the value of a counter.
    pub fn count(labels: Vec<(&'static str, String)>, count: u64) -> Self {
        Self { labels, value: count as f64 }
    }
}

/// Distribution of a duration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatencyReading {
    /// Name of the metric without the prefix and the unit.
    pub name: Text,
    /// What is measured, in one sentence without a full stop.
    pub help: Text,
    /// Labels and their values.
    pub labels: Vec<(&'static str, String)>,
    /// Number of durations.
    pub count: u64,
    /// Sum of the durations in seconds.
    pub sum_s: f64,
    /// Durations in seconds: minimum, 50 %, 99 %, 99.9 %, maximum.
    pub quantiles_s: [f64; 5],
    /// Upper ends of the bins in seconds, each with the number of durations up to there.
    pub bins: Vec<(f64, u64)>,
}

/// Load of a stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageReading {
    /// Name.
    pub name: Text,
    /// Fractions of the time: busy, without input, without space for output.
    pub busy: f64,
    /// Fraction of the time without input.
    pub starved: f64,
    /// Fraction of the time without space for output.
    pub stalled: f64,
    /// Throughput in Gbit/s.
    pub gbps: f64,
}

/// A fill level.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Level {
    /// Label.
    pub label: Text,
    /// Used amount.
    pub used: f64,
    /// Capacity.
    pub capacity: f64,
    /// Unit; `bytes` are shown with binary prefixes.
    pub unit: Text,
    /// A high level is a problem.
    pub high_is_bad: bool,
}

/// Presence of a shot's packets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShotPresence {
    /// Index of the link.
    pub link: u8,
    /// Number of the shot.
    pub shot: u64,
    /// Every byte arrived and the trailer is valid.
    pub complete: bool,
    /// 16 hexadecimal digits; bit `i` is set if the i-th of 64 parts has arrived. JSON numbers have 53 bits.
    pub parts: String,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// Title.
    pub title: Text,
    /// Titles of the columns.
    pub columns: Vec<Text>,
    /// Rows.
    pub rows: Vec<Vec<String>>,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LogEntry {
    /// Number of the message, from 0.
    pub number: u64,
    /// Time in ms since 1970.
    pub unix_ms: u64,
    /// Severity.
    pub level: LogLevel,
    /// The message.
    pub text: String,
}

/// Severity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Something happened.
    Info,
    /// Something was lost or is at risk.
    Warning,
    /// Something failed.
    Error,
}
