//! The books: every packet and every shot is somewhere, and the sums say so.

use shotline_wire::shot::{DropCause, Drops};
use std::fmt;

/// Counts of one stream, or of packets that belong to none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// Packets that arrived.
    pub packets: u64,
    /// Of those, packets whose payload is in its shot.
    pub placed: u64,
    /// The others, by cause.
    pub packet_drops: Drops,
    /// Packets missing in closed shots: they never arrived, or were dropped for a cause above.
    pub packets_missing: u64,
    /// Payloads that were copied once more, because they did not land in their place.
    pub repaired: u64,
    /// Payload bytes of the packets placed.
    pub placed_bytes: u64,
    /// Bytes copied again by repairs.
    pub repaired_bytes: u64,
    /// Packets whose ICRC matched with every input known.
    pub icrc_good: u64,
    /// Packets whose ICRC matched for one IPv4 identification that was solved for.
    pub icrc_solved: u64,
    /// Packets whose ICRC the device has checked.
    pub icrc_device: u64,
    /// Packets whose ICRC could not be judged.
    pub icrc_unverified: u64,
    /// Shots whose number has passed.
    pub shots: u64,
    /// Of those, handed on whole and proven.
    pub complete: u64,
    /// Handed on with packets missing or an end-of-shot record that does not fit.
    pub partial: u64,
    /// Not handed on, by cause.
    pub shot_drops: Drops,
    /// Times that the sender began anew.
    pub restarts: u64,
}

/// Sums that do not add up: a defect of this program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Imbalance(Box<Books>);

impl fmt::Display for Imbalance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let b = &self.0;
        write!(
            f,
            "the books do not balance: {} packets in, {} placed + {} dropped; {} shots, {} complete + {} partial + {} dropped",
            b.packets,
            b.placed,
            b.packet_drops.total(),
            b.shots,
            b.complete,
            b.partial,
            b.shot_drops.total()
        )
    }
}

impl Books {
    /// Packets in = placed + dropped; shots = complete + partial + dropped.
    pub fn balance(&self) -> Result<(), Imbalance> {
        let packets = self.placed + self.packet_drops.total();
        let shots = self.complete + self.partial + self.shot_drops.total();
        if packets == self.packets && shots == self.shots { Ok(()) } else { Err(Imbalance(Box::new(*self))) }
    }

    /// Adds the counts of another stream.
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

    /// Takes back a shot that was counted as handed on, because the sink gave it up after all.
    pub fn give_up(&mut self, complete: bool, cause: DropCause) {
        let counted = if complete { &mut self.complete } else { &mut self.partial };
        *counted -= 1;
        self.shot_drops.add(cause, 1);
    }

    /// Takes back shots that were counted as handed on: so many complete and partial ones.
    pub fn take_back(&mut self, complete: u64, partial: u64, cause: DropCause) {
        self.complete -= complete.min(self.complete);
        self.partial -= partial.min(self.partial);
        self.shot_drops.add(cause, complete + partial);
    }

    /// Copies per payload byte: the kernel's one, where no device writes payloads to their places, and repairs.
    pub fn copies_per_byte(&self) -> f64 {
        if self.placed_bytes == 0 {
            return 0.0;
        }
        let received = if self.icrc_device > 0 { 0.0 } else { 1.0 };
        received + self.repaired_bytes as f64 / self.placed_bytes as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_that_is_nowhere_is_an_imbalance() {
        let mut books = Books { packets: 3, placed: 1, ..Books::default() };
        books.packet_drops.add(DropCause::Late, 1);
        assert!(books.balance().is_err());
        books.packet_drops.add(DropCause::BadIcrc, 1);
        assert_eq!(books.balance(), Ok(()));
    }
}
