//! Messages about a run: what has changed since the last reading of its state.
//!
//! A thread that watches the run reads the [`Journal`] some times a second; the receive thread has no part in it.

use crate::align::LinkStatus;
use crate::live::{Details, Live, Refused};
use crate::run::{Cause, End};
use serde::{Serialize, Serializer};
use shotline_store::recorder::WHOLE_RUN;
use shotline_store::shot::StreamRunCounters;
use shotline_wire::shot::DropCause;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Minimum time between two messages about the same kind of loss, so that a lossy link does not fill a log.
const LOSS_INTERVAL: Duration = Duration::from_secs(1);

/// Severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Something happened.
    Info,
    /// Something was lost or is at risk.
    Warning,
    /// Something failed.
    Error,
}

/// Something that happened in a run. In JSON the field `event` has its name.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The run starts.
    RunStarted {},
    /// A page to watch the run is served.
    Serving {
        /// Address of the page.
        url: String,
    },
    /// Packets to this address are received from now on.
    Listening {
        /// The address.
        address: SocketAddr,
    },
    /// A sender cannot be received.
    SenderRefused(Refused),
    /// The sender and the shape of its shots are known.
    SenderKnown {
        /// Name of the sender.
        instrument: String,
        /// Name of the framing.
        framing: &'static str,
        /// Number of links.
        links: usize,
        /// Samples of a shot.
        samples: u32,
        /// Channels of a link.
        channels: u16,
        /// Bits of a sample.
        bits: u8,
    },
    /// The first packets have arrived.
    FirstPacket {},
    /// Packets that arrived were dropped.
    PacketsDropped(Loss<DropCause>),
    /// Shots are not in the file.
    ShotsDropped(Loss<DropCause>),
    /// Shots were closed without some of their packets.
    PacketsMissing(Loss<()>),
    /// The device or its driver dropped packets.
    DeviceDropped(Loss<String>),
    /// Nothing arrives from a link any more.
    LinkSilent {
        /// Index of the link.
        link: usize,
    },
    /// Packets arrive from a silent link again.
    LinkResumed {
        /// Index of the link.
        link: usize,
    },
    /// The receiver's clock follows a reference.
    ClockLocked {
        /// Upper bound of its error; 0 if unknown.
        max_error_ns: u64,
    },
    /// The receiver's clock follows no reference.
    ClockUnlocked {},
    /// The offset of a link's clock is known and stable.
    LinkClockLocked {
        /// Index of the link.
        link: usize,
        /// Lead over the clock that it is compared with.
        offset_ns: i64,
    },
    /// The offset of a link's clock is no longer stable.
    LinkClockUnlocked {
        /// Index of the link.
        link: usize,
    },
    /// The time around triggers is recorded.
    Triggered {
        /// Number of triggers since the last message.
        count: u64,
        /// Number of triggers so far.
        total: u64,
    },
    /// The file has no space for more rows.
    FileFull {},
    /// The probe no longer serves this run.
    ProbeLost {
        /// Why.
        cause: Cause,
    },
    /// The run is over.
    RunEnded(End),
    /// The run could not begin, or its counters do not match.
    RunFailed {
        /// Reason.
        error: String,
    },
}

/// Losses of one cause on one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss<C> {
    /// Number of the stream; none for packets that belong to no stream.
    pub stream: Option<u32>,
    /// Cause.
    pub cause: C,
    /// Losses since the last message.
    pub count: u64,
    /// Losses since the start.
    pub total: u64,
}

impl<C: CauseName> Serialize for Loss<C> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            stream: Option<u32>,
            #[serde(skip_serializing_if = "Option::is_none")]
            cause: Option<&'a str>,
            count: u64,
            total: u64,
        }
        let Self { stream, cause, count, total } = self;
        Fields { stream: *stream, cause: cause.cause_name(), count: *count, total: *total }.serialize(serializer)
    }
}

/// A cause of losses that can have a name.
pub trait CauseName {
    /// Returns the name, if there is one.
    fn cause_name(&self) -> Option<&str>;
}

impl CauseName for DropCause {
    fn cause_name(&self) -> Option<&str> {
        Some(self.name())
    }
}

impl CauseName for String {
    fn cause_name(&self) -> Option<&str> {
        Some(self)
    }
}

impl CauseName for () {
    fn cause_name(&self) -> Option<&str> {
        None
    }
}

impl Event {
    /// Returns the severity.
    pub fn level(&self) -> Level {
        match self {
            Self::PacketsDropped(Loss { cause, .. }) | Self::ShotsDropped(Loss { cause, .. }) if !cause.is_loss() => {
                Level::Info
            }
            Self::PacketsDropped(_)
            | Self::ShotsDropped(_)
            | Self::PacketsMissing(_)
            | Self::DeviceDropped(_)
            | Self::SenderRefused(_)
            | Self::LinkSilent { .. }
            | Self::ClockUnlocked {}
            | Self::LinkClockUnlocked { .. }
            | Self::FileFull {} => Level::Warning,
            Self::RunEnded(End { early: true, .. }) | Self::ProbeLost { .. } | Self::RunFailed { .. } => Level::Error,
            _ => Level::Info,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = |stream: &Option<u32>| stream.map_or("No stream".into(), |stream| format!("Stream {stream}"));
        match self {
            Self::RunStarted {} => f.write_str("The run starts."),
            Self::Serving { url } => write!(f, "Page to watch the run: {url}"),
            Self::Listening { address } => write!(f, "Listening on {address}."),
            Self::SenderRefused(Refused { from, framing, reason }) => {
                write!(f, "{from}: cannot receive its {framing} packets: {reason}.")
            }
            Self::SenderKnown { instrument, framing, links, samples, channels, bits } => write!(
                f,
                "{instrument} ({framing}): {links} links, shots of {samples} samples x {channels} channels, {bits} bit."
            ),
            Self::FirstPacket {} => f.write_str("Packets arrive."),
            Self::PacketsDropped(Loss { stream, cause, count, .. }) => {
                write!(f, "{}: {count} packets dropped, {cause}: {}.", from(stream), cause.meaning())
            }
            Self::ShotsDropped(Loss { stream, cause, count, .. }) => {
                write!(f, "{}: {count} shots dropped, {cause}: {}.", from(stream), cause.meaning())
            }
            Self::PacketsMissing(Loss { stream, count, .. }) => {
                write!(f, "{}: {count} packets are missing in closed shots.", from(stream))
            }
            Self::DeviceDropped(Loss { cause, count, .. }) => {
                write!(f, "The device or its driver dropped {count} packets: {cause}.")
            }
            Self::LinkSilent { link } => write!(f, "Link {link}: nothing arrives any more."),
            Self::LinkResumed { link } => write!(f, "Link {link}: packets arrive again."),
            Self::ClockLocked { max_error_ns } => {
                write!(f, "The clock follows a reference, within {:.1} us.", *max_error_ns as f64 / 1e3)
            }
            Self::ClockUnlocked {} => f.write_str("The clock follows no reference: times may be wrong."),
            Self::LinkClockLocked { link, offset_ns } => {
                write!(f, "Link {link}: clock locked, {:+.1} us.", *offset_ns as f64 / 1e3)
            }
            Self::LinkClockUnlocked { link } => write!(f, "Link {link}: clock unlocked."),
            Self::Triggered { count: 1, total } => write!(f, "Trigger {total}."),
            Self::Triggered { count, total } => write!(f, "{count} triggers, {total} in all."),
            Self::FileFull {} => f.write_str("The file has no space for more shots."),
            Self::ProbeLost { cause } => f.write_str(cause.meaning()),
            Self::RunEnded(end) => write!(f, "The run has {end}."),
            Self::RunFailed { error } => write!(f, "The run has failed: {error}."),
        }
    }
}

/// A kind of loss.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Packets(DropCause),
    Shots(DropCause),
    Missing,
    Device(String),
}

impl Kind {
    fn event(self, stream: Option<u32>, count: u64, total: u64) -> Event {
        match self {
            Self::Packets(cause) => Event::PacketsDropped(Loss { stream, cause, count, total }),
            Self::Shots(cause) => Event::ShotsDropped(Loss { stream, cause, count, total }),
            Self::Missing => Event::PacketsMissing(Loss { stream, cause: (), count, total }),
            Self::Device(cause) => Event::DeviceDropped(Loss { stream, cause, count, total }),
        }
    }
}

/// Losses that were reported.
#[derive(Clone, Copy, Debug)]
struct Reported {
    total: u64,
    at: Instant,
}

/// States of a link that were reported.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    stopped: bool,
    locked: bool,
}

/// What was reported of a run.
#[derive(Debug, Default)]
pub struct Journal {
    started: bool,
    refused: usize,
    listening: bool,
    known: bool,
    packets: bool,
    clock: Option<bool>,
    links: Vec<Link>,
    losses: BTreeMap<(Kind, u32), Reported>,
    triggers: u64,
    full: bool,
    probe_lost: bool,
    over: bool,
}

/// Sets a flag. Returns `true` if it was not set before.
fn first(flag: &mut bool, now: bool) -> bool {
    now && !std::mem::replace(flag, *flag || now)
}

impl Journal {
    /// Returns what has happened in a run since the last call. Counts of losses need [`Live::want_details`].
    pub fn read(&mut self, live: &Live, now: Instant) -> Vec<Event> {
        let mut events = Vec::new();
        // Read first: what is read after an end is final.
        let end = live.end();
        events.extend(first(&mut self.started, true).then_some(Event::RunStarted {}));
        let refused: Vec<_> = live.refused().skip(self.refused).cloned().collect();
        self.refused += refused.len();
        events.extend(refused.into_iter().map(Event::SenderRefused));
        let listening = live.listening();
        if first(&mut self.listening, listening.is_some()) {
            events.extend(listening.map(|address| Event::Listening { address }));
        }
        if first(&mut self.known, live.about().is_some()) {
            events.extend(live.about().map(|about| Event::SenderKnown {
                instrument: about.instrument.clone(),
                framing: about.framing,
                links: about.links,
                samples: about.geometry.samples(),
                channels: about.geometry.channels(),
                bits: about.geometry.bits(),
            }));
        }
        events.extend(first(&mut self.packets, live.read().packets > 0).then_some(Event::FirstPacket {}));
        for (index, link) in live.alignment().links.iter().enumerate() {
            self.note_link(index, link, &mut events);
        }
        if let Some(details) = live.details() {
            self.note_details(&details, now, end.is_some(), &mut events);
        }
        let triggers = live.triggers();
        let before = std::mem::replace(&mut self.triggers, triggers);
        if triggers > before {
            events.push(Event::Triggered { count: triggers - before, total: triggers });
        }
        events.extend(first(&mut self.full, live.is_full()).then_some(Event::FileFull {}));
        let lost = live.probe_lost();
        if first(&mut self.probe_lost, lost.is_some()) {
            events.extend(lost.map(|cause| Event::ProbeLost { cause }));
        }
        if first(&mut self.over, end.is_some()) {
            events.extend(end.map(|end| match end {
                Ok(end) => Event::RunEnded(end.clone()),
                Err(error) => Event::RunFailed { error: error.clone() },
            }));
        }
        events
    }

    fn note_link(&mut self, index: usize, link: &LinkStatus, events: &mut Vec<Event>) {
        if self.links.len() <= index {
            self.links.resize(index + 1, Link::default());
        }
        let known = &mut self.links[index];
        if std::mem::replace(&mut known.stopped, link.stopped) != link.stopped {
            events.push(match link.stopped {
                true => Event::LinkSilent { link: index },
                false => Event::LinkResumed { link: index },
            });
        }
        // A clock that is not locked yet is no event: that takes some shots.
        let locked = link.clock.at_ns > 0 && link.clock.locked;
        if std::mem::replace(&mut known.locked, locked) != locked {
            events.push(match locked {
                true => Event::LinkClockLocked { link: index, offset_ns: link.clock.offset_ns },
                false => Event::LinkClockUnlocked { link: index },
            });
        }
    }

    fn note_details(&mut self, details: &Details, now: Instant, is_last: bool, events: &mut Vec<Event>) {
        let locked = details.clock.locked;
        if self.clock.replace(locked) != Some(locked) {
            events.push(match locked {
                true => Event::ClockLocked { max_error_ns: details.clock.max_error_ns },
                false => Event::ClockUnlocked {},
            });
        }
        for stream in &details.counters.streams {
            for (kind, total) in losses(stream) {
                let stream = stream.stream;
                let reported = self.losses.get(&(kind.clone(), stream)).copied();
                let count = total.saturating_sub(reported.map_or(0, |reported| reported.total));
                let is_due = reported.is_none_or(|reported| now.duration_since(reported.at) >= LOSS_INTERVAL);
                if count > 0 && (is_due || is_last) {
                    self.losses.insert((kind.clone(), stream), Reported { total, at: now });
                    events.push(kind.event((stream != WHOLE_RUN).then_some(stream), count, total));
                }
            }
        }
    }
}

/// Returns the losses of a stream. What is discarded by request, or never was a shot, is none.
fn losses(stream: &StreamRunCounters) -> impl Iterator<Item = (Kind, u64)> + '_ {
    let is_loss = |cause: &DropCause| !matches!(cause, DropCause::NotData | DropCause::NotTriggered);
    let packets = stream.packet_drops.iter().filter(move |(cause, _)| is_loss(cause));
    let shots = stream.shot_drops.iter().filter(move |(cause, _)| is_loss(cause));
    let more = stream.more.iter().filter_map(|(name, count)| match name.strip_prefix("device_") {
        Some(cause) => Some((Kind::Device(cause.to_owned()), *count)),
        None => (name == "missing_packets").then_some((Kind::Missing, *count)),
    });
    let packets = packets.map(|(cause, count)| (Kind::Packets(cause), count));
    packets.chain(shots.map(|(cause, count)| (Kind::Shots(cause), count))).chain(more)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::align::AlignmentStatus;
    use crate::clock::Health;
    use crate::run::RequestedEnd;
    use serde_json::{Value, json};
    use shotline_store::shot::RunCounters;
    use shotline_wire::shot::DropCounters;

    fn drops(counts: &[(DropCause, u64)]) -> DropCounters {
        let mut drops = DropCounters::default();
        counts.iter().for_each(|(cause, count)| drops.add(*cause, *count));
        drops
    }

    fn details(locked: bool, late: u64, device: u64) -> Details {
        let shot_drops = drops(&[(DropCause::NotTriggered, 5 * late)]);
        let stream = StreamRunCounters {
            stream: 3,
            packet_drops: drops(&[(DropCause::Late, late)]),
            shot_drops,
            ..StreamRunCounters::default()
        };
        let more = vec![("device_imissed".to_owned(), device), ("icrc_good".to_owned(), 9)];
        let whole = StreamRunCounters { stream: WHOLE_RUN, more, ..StreamRunCounters::default() };
        Details {
            counters: RunCounters { streams: vec![stream, whole] },
            latencies: Default::default(),
            pool: (1, 2),
            clock: Health { locked, max_error_ns: 1500, tai_minus_utc_s: 37 },
        }
    }

    fn names(events: &[Event]) -> Vec<String> {
        let name = |event| serde_json::to_value(event).map(|value: Value| value["event"].as_str().map(str::to_owned));
        events.iter().map(|event| name(event).unwrap().unwrap()).collect()
    }

    #[test]
    fn each_step_of_a_run_is_one_event() {
        let (mut journal, live, now) = (Journal::default(), Live::default(), Instant::now());
        assert_eq!(names(&journal.read(&live, now)), ["run_started"]);
        let from = "[::1]:9".parse().unwrap();
        let refused = Refused { from, framing: "spead".into(), reason: "no heap".into() };
        live.notice(crate::live::Notice::Refused(refused));
        live.set_listening("[::1]:7".parse().unwrap());
        let events = journal.read(&live, now);
        assert_eq!(names(&events), ["sender_refused", "listening"]);
        assert_eq!(serde_json::to_value(&events[1]).unwrap(), json!({"event": "listening", "address": "[::1]:7"}));
        live.set_triggers(2);
        live.set_full();
        live.set_probe_lost(Cause::TakenOver);
        assert_eq!(names(&journal.read(&live, now)), ["triggered", "file_full", "probe_lost"]);
        assert!(journal.read(&live, now).is_empty(), "nothing twice");
        live.set_triggers(3);
        assert_eq!(journal.read(&live, now)[0].to_string(), "Trigger 3.");
        let (requested, error) = (RequestedEnd::default(), None);
        let (cause, after_shots, shots_without_space) = (Cause::TakenOver, 7, 0);
        live.set_end(Ok(End { cause, early: true, after_shots, shots_without_space, after_s: 0.5, requested, error }));
        let events = journal.read(&live, now);
        assert_eq!(events[0].level(), Level::Error);
        assert_eq!(
            serde_json::to_value(&events[0]).unwrap(),
            json!({"event": "run_ended", "cause": "taken-over", "early": true, "after_shots": 7, "after_s": 0.5})
        );
        assert_eq!(events[0].to_string(), "The run has ended after 0.5 s: another receiver has taken over the probe.");
    }

    #[test]
    fn an_error_before_a_run_is_its_end() {
        let (mut journal, live) = (Journal::default(), Live::default());
        live.set_end(Err("no such probe".into()));
        assert_eq!(names(&journal.read(&live, Instant::now())), ["run_started", "run_failed"]);
    }

    #[test]
    fn losses_are_summed_over_a_second() {
        let (mut journal, live, start) = (Journal::default(), Live::default(), Instant::now());
        journal.read(&live, start);
        let mut read = |late, device, ms| {
            live.set_details(details(true, late, device));
            journal.read(&live, start + Duration::from_millis(ms))
        };
        assert_eq!(names(&read(0, 0, 0)), ["clock_locked"]);
        let first = read(2, 0, 200);
        let expected = json!({"event": "packets_dropped", "stream": 3, "cause": "late", "count": 2, "total": 2});
        assert_eq!((serde_json::to_value(&first[0]).unwrap(), first.len()), (expected, 1), "not triggered: no loss");
        assert_eq!(names(&read(5, 4, 400)), ["device_dropped"], "another kind is reported at once");
        assert!(read(9, 4, 1199).is_empty());
        let sum = read(9, 4, 1200);
        assert_eq!(sum[0].to_string(), format!("Stream 3: 7 packets dropped, late: {}.", DropCause::Late.meaning()));
        assert!(read(11, 4, 1300).is_empty());
        live.set_end(Err("over".into()));
        assert_eq!(names(&journal.read(&live, start + Duration::from_millis(1300))), ["packets_dropped", "run_failed"]);
    }

    #[test]
    fn states_of_links_and_clocks_are_events_when_they_change() {
        let (mut journal, live, now) = (Journal::default(), Live::default(), Instant::now());
        journal.read(&live, now);
        let mut read = |receiver, stopped, at_ns, locked| {
            live.set_details(details(receiver, 0, 0));
            let mut link = LinkStatus { stopped, ..LinkStatus::default() };
            (link.clock.at_ns, link.clock.locked) = (at_ns, locked);
            let links = std::iter::once(link).collect();
            live.set_alignment(AlignmentStatus { links, ..AlignmentStatus::default() });
            names(&journal.read(&live, now))
        };
        assert_eq!(read(false, false, 0, false), ["clock_unlocked"]);
        assert_eq!(read(true, false, 1, true), ["link_clock_locked", "clock_locked"]);
        assert!(read(true, false, 2, true).is_empty());
        assert_eq!(read(true, true, 2, true), ["link_silent"]);
        assert_eq!(read(true, false, 3, false), ["link_resumed", "link_clock_unlocked"]);
    }

    #[test]
    fn refused_senders_are_kept_up_to_a_limit() {
        let (mut journal, live, now) = (Journal::default(), Live::default(), Instant::now());
        for port in 1..100 {
            let from = (std::net::Ipv6Addr::LOCALHOST, port).into();
            live.notice(crate::live::Notice::Refused(Refused { from, framing: "udp".into(), reason: "no".into() }));
        }
        let events = journal.read(&live, now);
        assert_eq!(events.len(), 1 + 16);
        assert!(events[1].to_string().starts_with("[::1]:1: cannot receive its udp packets"), "{}", events[1]);
    }
}
