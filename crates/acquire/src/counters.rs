//! Counters of packets and shots. Each packet and each shot is in exactly one of them, so the sums must match.

use shotline_wire::shot::{DropCause, DropCounters};
use std::fmt;

/// Counters of one stream, or of packets that belong to none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounters {
    /// Packets that arrived.
    pub packets: u64,
    /// Of these, packets whose payload is in its shot.
    pub placed: u64,
    /// Of these, packets that were dropped, by cause.
    pub packet_drops: DropCounters,
    /// Packets missing in closed shots: they never arrived, or were dropped for a cause above.
    pub packets_missing: u64,
    /// Payloads that were copied once more, because the first copy was not to their destination.
    pub repaired: u64,
    /// Payload bytes of the placed packets.
    pub placed_bytes: u64,
    /// Bytes copied again by repairs.
    pub repaired_bytes: u64,
    /// Packets whose ICRC matched with all of its input known.
    pub icrc_good: u64,
    /// Packets whose ICRC matched for exactly one IPv4 identification, which a socket does not expose.
    pub icrc_solved: u64,
    /// Packets whose ICRC the device has checked.
    pub icrc_device: u64,
    /// Packets whose ICRC could not be checked.
    pub icrc_unverified: u64,
    /// Shots that were closed, whether any of their packets arrived or not.
    pub shots: u64,
    /// Of these, shots passed to the sink with every packet and a matching end-of-shot record.
    pub complete: u64,
    /// Shots passed to the sink with packets missing or a wrong end-of-shot record.
    pub partial: u64,
    /// Shots that were not passed to the sink, by cause.
    pub shot_drops: DropCounters,
    /// Number of times that the sender restarted.
    pub restarts: u64,
}

/// Counters whose sums do not match: a defect of this program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Imbalance(Box<StreamCounters>);

impl fmt::Display for Imbalance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counters = &self.0;
        write!(
            f,
            "the counters do not match: {} packets in, {} placed + {} dropped; {} shots, {} complete + {} partial + {} dropped",
            counters.packets,
            counters.placed,
            counters.packet_drops.total(),
            counters.shots,
            counters.complete,
            counters.partial,
            counters.shot_drops.total()
        )
    }
}

impl StreamCounters {
    /// Checks that packets = placed + dropped, and shots = complete + partial + dropped.
    ///
    /// # Errors
    /// If one of the sums does not match.
    pub fn balance(&self) -> Result<(), Imbalance> {
        let packets = self.placed + self.packet_drops.total();
        let shots = self.complete + self.partial + self.shot_drops.total();
        if packets == self.packets && shots == self.shots { Ok(()) } else { Err(Imbalance(Box::new(*self))) }
    }

    /// Adds the counters of another stream.
    pub fn merge(&mut self, other: &Self) {
        self.packets += other.packets;
        self.placed += other.placed;
        self.packet_drops.merge(&other.packet_drops);
        self.packets_missing += other.packets_missing;
        self.repaired += other.repaired;
        self.placed_bytes += other.placed_bytes;
        self.repaired_bytes += other.repaired_bytes;
        self.icrc_good += other.icrc_good;
        self.icrc_solved += other.icrc_solved;
        self.icrc_device += other.icrc_device;
        self.icrc_unverified += other.icrc_unverified;
        self.shots += other.shots;
        self.complete += other.complete;
        self.partial += other.partial;
        self.shot_drops.merge(&other.shot_drops);
        self.restarts += other.restarts;
    }

    /// Turns a shot that was counted as handed on into a dropped one, because the sink discarded it.
    pub fn retract(&mut self, complete: bool, cause: DropCause) {
        let counted = if complete { &mut self.complete } else { &mut self.partial };
        *counted -= 1;
        self.shot_drops.add(cause, 1);
    }

    /// Turns shots that were counted as handed on into dropped ones.
    pub fn retract_all(&mut self, complete: u64, partial: u64, cause: DropCause) {
        self.complete -= complete.min(self.complete);
        self.partial -= partial.min(self.partial);
        self.shot_drops.add(cause, complete + partial);
    }

    /// Returns the copies per payload byte: `copied_bytes` by the transport if it counts them
    /// ([`DeviceCounters::copied_bytes`](shotline_transport::DeviceCounters::copied_bytes)), otherwise one, unless an RDMA
    /// device writes payloads to their destinations; plus repairs.
    pub fn copies_per_byte(&self, copied_bytes: Option<u64>) -> f64 {
        if self.placed_bytes == 0 {
            return 0.0;
        }
        let by_default = if self.icrc_device > 0 { 0 } else { self.placed_bytes };
        (copied_bytes.unwrap_or(by_default) + self.repaired_bytes) as f64 / self.placed_bytes as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_those_of_the_transport_and_of_repairs() {
        let counters = StreamCounters { placed_bytes: 8000, repaired_bytes: 2000, ..StreamCounters::default() };
        assert_eq!(counters.copies_per_byte(None), 1.25);
        assert_eq!([0, 4000].map(|copied| counters.copies_per_byte(Some(copied))), [0.25, 0.75]);
        assert_eq!(StreamCounters { icrc_device: 2, ..counters }.copies_per_byte(None), 0.25);
    }

    #[test]
    fn a_packet_in_no_counter_is_an_imbalance() {
        let mut counters = StreamCounters { packets: 3, placed: 1, ..StreamCounters::default() };
        counters.packet_drops.add(DropCause::Late, 1);
        assert!(counters.balance().is_err());
        counters.packet_drops.add(DropCause::BadIcrc, 1);
        assert_eq!(counters.balance(), Ok(()));
    }
}
