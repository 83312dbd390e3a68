//! What a sink is handed: shots, events and losses.

use shotline_memory::Buffer;
use shotline_wire::shot::{DropCause, DropCounters, Presence};
use std::sync::Arc;

/// Most links that one event can join.
pub const MAX_LINKS: usize = 8;

/// What is known of one assembled shot.
#[derive(Clone, Debug)]
pub struct ShotMeta {
    /// Its stream.
    pub stream: u32,
    /// Its number, unwrapped to 64 bits.
    pub number: u64,
    /// TAI nanoseconds of its first sample by the sender's clock, from the end-of-shot record; 0 if that is missing.
    pub stamp_tai_ns: u64,
    /// When the kernel received its first packet, in TAI nanoseconds; 0 if unknown.
    pub arrived_tai_ns: u64,
    /// When it was complete or given up, in TAI nanoseconds of the receiver's clock; 0 if unknown.
    pub completed_tai_ns: u64,
    /// The record's flags (bit 0 clock locked, bit 1 triggered); 0 if that is missing.
    pub flags: u8,
    /// The end-of-shot record arrived and its CRC holds over the whole shot. For shots that end in something else
    /// ([`shotline_wire::shot::Trailer`]): that arrived and is right, as far as it can tell; for those that end in
    /// nothing: all packets arrived.
    pub record_good: bool,
    /// Sample bytes that arrived.
    pub valid_bytes: u32,
    /// Which packets arrived.
    pub presence: Arc<Presence>,
    /// Packets of this shot that were dropped, by cause. `wire_gap` is what is missing and never came.
    pub drops: DropCounters,
}

impl ShotMeta {
    /// Whether every byte is there and proven.
    pub fn is_complete(&self) -> bool {
        self.record_good && self.presence.is_complete()
    }
}

/// One assembled shot: what is known of it, and its bytes by reference. Missing packets and the buffer's
/// tail are zeros.
#[derive(Clone, Debug)]
pub struct Shot {
    /// What is known of it.
    pub meta: ShotMeta,
    /// Its bytes, laid out as on the wire: samples, padding, end-of-shot record, zeros to the slot's end.
    pub buffer: Buffer,
}

/// Shots of several links that belong together: one row of a recording. Entry `i` is link `i`'s shot, or
/// none if nothing of it was received.
#[derive(Clone, Debug)]
pub struct Event {
    /// The shot number that they share.
    pub number: u64,
    /// The links' shots.
    pub shots: Vec<Option<Shot>>,
}

/// A run of shots of one stream that are in no row, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Their stream.
    pub stream: u32,
    /// Why.
    pub cause: DropCause,
    /// The first shot number.
    pub first: u64,
    /// How many, consecutive.
    pub count: u64,
}

/// What was counted of one stream over a run. Every packet and every shot is in exactly one of its counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamBooks {
    /// The stream.
    pub stream: u32,
    /// Packets that reached the receiver.
    pub packets_in: u64,
    /// Packets that were put into a shot buffer.
    pub packets_placed: u64,
    /// Packets that were not, by cause. Those that did not arrive ([`DropCause::has_arrived`]) are not in `packets_in`.
    pub packet_drops: DropCounters,
    /// Shot numbers that passed.
    pub shots_seen: u64,
    /// Shots handed to the recorder whole and proven.
    pub shots_complete: u64,
    /// Shots handed to the recorder with something missing or unproven.
    pub shots_partial: u64,
    /// Shots that were not handed to it, by cause.
    pub shot_drops: DropCounters,
    /// Further counts, which need not balance.
    pub more: Vec<(String, u64)>,
}

impl StreamBooks {
    /// Whether packets in = placed + dropped by cause, and shots seen = complete + partial + dropped by cause.
    pub fn balance(&self) -> bool {
        self.packets_in == self.packets_placed + self.packet_drops.arrived()
            && self.shots_seen == self.shots_complete + self.shots_partial + self.shot_drops.total()
    }

    /// Every count by the name that it has in a recording.
    pub fn entries(&self) -> Vec<(String, u64)> {
        let mut out = vec![
            ("packets_in".to_owned(), self.packets_in),
            ("packets_placed".to_owned(), self.packets_placed),
            ("shots_seen".to_owned(), self.shots_seen),
            ("shots_complete".to_owned(), self.shots_complete),
            ("shots_partial".to_owned(), self.shots_partial),
        ];
        out.extend(self.packet_drops.iter().map(|(cause, count)| (format!("packets_{cause}"), count)));
        out.extend(self.shot_drops.iter().map(|(cause, count)| (format!("shots_{cause}"), count)));
        out.extend(self.more.iter().cloned());
        out
    }

    /// Adds a count by its name; what is no name of ours goes to [`Self::more`].
    pub fn enter(&mut self, name: &str, count: u64) {
        let cause = |name: &str| DropCause::ALL.into_iter().find(|cause| cause.name() == name);
        match name {
            "packets_in" => self.packets_in += count,
            "packets_placed" => self.packets_placed += count,
            "shots_seen" => self.shots_seen += count,
            "shots_complete" => self.shots_complete += count,
            "shots_partial" => self.shots_partial += count,
            _ => {
                if let Some(cause) = name.strip_prefix("packets_").and_then(cause) {
                    self.packet_drops.add(cause, count);
                } else if let Some(cause) = name.strip_prefix("shots_").and_then(cause) {
                    self.shot_drops.add(cause, count);
                } else {
                    self.more.push((name.to_owned(), count));
                }
            }
        }
    }
}

/// The books of a run: one entry for each stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// The streams.
    pub streams: Vec<StreamBooks>,
}
