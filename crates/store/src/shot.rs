//! Input of a sink: shots, events and losses.

use shotline_memory::Buffer;
use shotline_wire::shot::{DropCause, DropCounters, Presence};
use std::sync::Arc;

/// Maximum number of links that an event can join.
pub const MAX_LINKS: usize = 8;

/// Metadata of one assembled shot.
#[derive(Clone, Debug)]
pub struct ShotMeta {
    /// Stream of the shot.
    pub stream: u32,
    /// Shot number, unwrapped to 64 bits.
    pub number: u64,
    /// Time of the first sample in TAI nanoseconds by the sender's clock, from the end-of-shot record; 0 if that is
    /// missing.
    pub stamp_tai_ns: u64,
    /// Time at which the kernel received the first packet, in TAI nanoseconds; 0 if unknown.
    pub arrived_tai_ns: u64,
    /// Time at which the shot was complete or its reassembly ended, in TAI nanoseconds of the receiver's clock; 0 if
    /// unknown.
    pub completed_tai_ns: u64,
    /// Flags of the end-of-shot record (bit 0 clock locked, bit 1 triggered); 0 if that is missing.
    pub flags: u8,
    /// The end-of-shot record arrived and its CRC holds over the whole shot. For other trailers
    /// ([`shotline_wire::shot::Trailer`]): the trailer arrived and is valid as far as it can be checked. Without a
    /// trailer: all packets arrived.
    pub record_good: bool,
    /// Sample bytes that arrived.
    pub valid_bytes: u32,
    /// Presence map of the packets.
    pub presence: Arc<Presence>,
    /// Packets of this shot that were dropped, by cause. `wire_gap` counts packets that never arrived.
    pub drops: DropCounters,
}

impl ShotMeta {
    /// Returns `true` if every byte arrived and the trailer is valid.
    pub fn is_complete(&self) -> bool {
        self.record_good && self.presence.is_complete()
    }
}

/// One assembled shot: metadata, and its bytes by reference. Missing packets and the buffer's tail are zeros.
#[derive(Clone, Debug)]
pub struct Shot {
    /// Metadata.
    pub meta: ShotMeta,
    /// Bytes in wire order: samples, padding, end-of-shot record, zeros to the end of the slot.
    pub buffer: Buffer,
}

/// Shots of several links that belong together: one row of a recording. Entry `i` is the shot of link `i`, or
/// `None` if no packet of it was received.
#[derive(Clone, Debug)]
pub struct Event {
    /// Shot number shared by all links.
    pub number: u64,
    /// Shots in link order.
    pub shots: Vec<Option<Shot>>,
}

/// Consecutive shots of one stream that are in no row, and the drop cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Stream of the shots.
    pub stream: u32,
    /// Drop cause.
    pub cause: DropCause,
    /// First shot number.
    pub first: u64,
    /// Number of consecutive shots.
    pub count: u64,
}

/// Counters of one stream over a run. Every packet and every shot is in exactly one counter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamRunCounters {
    /// Stream number.
    pub stream: u32,
    /// Packets that reached the receiver.
    pub packets_in: u64,
    /// Packets that were copied into a shot buffer.
    pub packets_placed: u64,
    /// Dropped packets by cause. Those that did not arrive ([`DropCause::has_arrived`]) are not in `packets_in`.
    pub packet_drops: DropCounters,
    /// Shot numbers seen.
    pub shots_seen: u64,
    /// Shots handed to the recorder complete and verified.
    pub shots_complete: u64,
    /// Shots handed to the recorder with missing or unverified packets.
    pub shots_partial: u64,
    /// Shots not handed to the recorder, by cause.
    pub shot_drops: DropCounters,
    /// Additional named counters, which need not balance.
    pub more: Vec<(String, u64)>,
}

impl StreamRunCounters {
    /// Returns `true` if packets in = placed + dropped, and shots seen = complete + partial + dropped.
    pub fn is_balanced(&self) -> bool {
        self.packets_in == self.packets_placed + self.packet_drops.arrived()
            && self.shots_seen == self.shots_complete + self.shots_partial + self.shot_drops.total()
    }

    /// Turns shots that were counted as handed to the recorder into dropped ones.
    pub fn retract(&mut self, complete: u64, partial: u64, cause: DropCause) {
        self.shots_complete = self.shots_complete.saturating_sub(complete);
        self.shots_partial = self.shots_partial.saturating_sub(partial);
        self.shot_drops.add(cause, complete + partial);
    }

    /// Returns every counter with the name that it has in a recording.
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

    /// Adds to a counter by name; unknown names are appended to [`Self::more`].
    pub fn add(&mut self, name: &str, count: u64) {
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

/// Counters of a run: one entry for each stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunCounters {
    /// Counters by stream.
    pub streams: Vec<StreamRunCounters>,
}
