//! Fault injection: seeded loss, duplication, reordering and corruption of single packets.
//!
//! An [`Injector`] sits between the packets that a link plans and those that it sends. It has no access to bytes or
//! sockets: it decides the faults and counts them exactly, for comparison with a receiver's counters. The four
//! faults are drawn independently for each packet and combine as follows:
//!
//! - a *lost* packet is not sent, regardless of the other faults drawn (only the loss is counted);
//! - a *duplicated* packet is sent a second time;
//! - a *reordered* packet is held back until a number of later packets of the link have been processed; for a
//!   duplicated packet, the second copy is held back;
//! - a *corrupted* packet has bits flipped after its ICRC was computed; for a duplicated packet, in the first copy.

use serde::{Deserialize, Serialize};
use shotline_random::SplitMix64;

/// Maximum number of bits flipped in one packet. CRC-32 detects every error of up to three bits in a packet of this
/// size, so no corrupted packet can pass as valid.
pub const MAX_FLIPS: usize = 3;

/// Probability of each fault.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FaultRates {
    /// Probability that a packet is lost.
    pub loss: f64,
    /// Probability that a packet is sent twice.
    pub duplicate: f64,
    /// Probability that a packet is held back.
    pub reorder: f64,
    /// Probability that a packet has flipped bits.
    pub corrupt: f64,
    /// Maximum number of packets that overtake a held-back packet (at least 1 does).
    pub reorder_depth: u16,
}

impl FaultRates {
    /// No faults.
    pub const NONE: Self = Self { loss: 0.0, duplicate: 0.0, reorder: 0.0, corrupt: 0.0, reorder_depth: 16 };

    /// Returns `true` if all probabilities are zero.
    pub fn is_none(&self) -> bool {
        [self.loss, self.duplicate, self.reorder, self.corrupt].iter().all(|p| *p == 0.0)
    }
}

impl Default for FaultRates {
    fn default() -> Self {
        Self::NONE
    }
}

/// A packet in its link's sending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedPacket {
    /// Shot number.
    pub shot: u64,
    /// Packet index in the shot.
    pub packet: u16,
    /// Packet sequence number.
    pub psn: u32,
}

/// Parts of a packet in which bits may be flipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Header length in bytes.
    pub header: u32,
    /// Payload length in bytes.
    pub payload: u32,
    /// Offset of a header byte that no checksum covers. It is never flipped, since the receiver could not detect it.
    pub uncovered: Option<u32>,
}

/// Positions of bits to flip, counted through header and payload; bit 0 of a byte is its least significant bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flips {
    bits: [u32; MAX_FLIPS],
    count: u8,
}

impl Flips {
    /// Returns the positions, which are distinct.
    pub fn bits(&self) -> &[u32] {
        &self.bits[..usize::from(self.count)]
    }
}

/// A packet to send now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutgoingPacket {
    /// The packet.
    pub planned: PlannedPacket,
    /// Bits to flip in it.
    pub flips: Option<Flips>,
}

/// Fault injected into a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Not sent.
    Lost,
    /// Sent twice.
    Duplicated,
    /// Held back until this number of later packets were processed.
    Reordered(u16),
    /// This number of bits flipped.
    Corrupted(u8),
}

/// An injected fault, as listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct InjectedFault {
    /// The link, counted from 0.
    pub link: u8,
    /// Shot number.
    pub shot: u64,
    /// Packet index in the shot.
    pub packet: u16,
    /// The fault.
    pub fault: Fault,
}

/// Counters of injected faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FaultCounters {
    /// Packets not sent.
    pub lost: u64,
    /// Packets sent twice.
    pub duplicated: u64,
    /// Packets held back.
    pub reordered: u64,
    /// Packets with flipped bits.
    pub corrupted: u64,
}

impl FaultCounters {
    /// Returns the difference to an earlier reading of the same counters.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            lost: self.lost - earlier.lost,
            duplicated: self.duplicated - earlier.duplicated,
            reordered: self.reordered - earlier.reordered,
            corrupted: self.corrupted - earlier.corrupted,
        }
    }
}

/// Injects faults into the packets of one link.
#[derive(Debug)]
pub struct Injector {
    rates: FaultRates,
    random: SplitMix64,
    link: u8,
    /// Packets processed so far.
    position: u64,
    delayed: Vec<DelayedPacket>,
    counters: FaultCounters,
    list: Option<Vec<InjectedFault>>,
}

#[derive(Debug)]
struct DelayedPacket {
    /// Position of the packet that releases it.
    until: u64,
    packet: OutgoingPacket,
}

impl Injector {
    /// Creates an injector for one link. With `listed`, each fault is kept in a list in addition to the counters.
    pub fn new(rates: FaultRates, seed: u64, link: u8, listed: bool) -> Self {
        Self {
            rates,
            // Seeds of links are far apart, so links of consecutive seeds never draw the same faults.
            random: SplitMix64::new(seed ^ u64::from(link) << 56),
            link,
            position: 0,
            delayed: Vec::new(),
            counters: FaultCounters::default(),
            list: listed.then(Vec::new),
        }
    }

    /// Processes the next packet and appends the packets to send now.
    pub fn push(&mut self, planned: PlannedPacket, extent: Extent, out: &mut Vec<OutgoingPacket>) {
        self.position += 1;
        let FaultRates { loss, duplicate, reorder, corrupt, reorder_depth } = self.rates;
        let [lost, duplicated, reordered, corrupted] =
            [loss, duplicate, reorder, corrupt].map(|probability| self.random.chance(probability));
        if lost {
            self.record(planned, Fault::Lost);
        } else {
            let flips = corrupted.then(|| self.flips(extent));
            if let Some(flips) = flips {
                self.record(planned, Fault::Corrupted(flips.count));
            }
            let mut last = OutgoingPacket { planned, flips };
            if duplicated {
                self.record(planned, Fault::Duplicated);
                out.push(last);
                last.flips = None;
            }
            if reordered && reorder_depth > 0 {
                let overtaking = 1 + self.random.below(u64::from(reorder_depth));
                self.record(planned, Fault::Reordered(overtaking as u16));
                self.delayed.push(DelayedPacket { until: self.position + overtaking, packet: last });
            } else {
                out.push(last);
            }
        }
        let position = self.position;
        out.extend(self.delayed.extract_if(.., |delayed| delayed.until <= position).map(|delayed| delayed.packet));
    }

    /// Appends the packets that are still held back.
    pub fn flush(&mut self, out: &mut Vec<OutgoingPacket>) {
        out.extend(self.delayed.drain(..).map(|delayed| delayed.packet));
    }

    /// Returns the counters so far.
    pub fn counters(&self) -> FaultCounters {
        self.counters
    }

    /// Returns the faults since the last call; empty if they are not listed.
    pub fn take_list(&mut self) -> Vec<InjectedFault> {
        self.list.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn flips(&mut self, extent: Extent) -> Flips {
        let total = u64::from(extent.header + extent.payload) * 8;
        let wanted = 1 + self.random.below(MAX_FLIPS as u64) as usize;
        let mut flips = Flips { bits: [0; MAX_FLIPS], count: 0 };
        while flips.bits().len() < wanted {
            let bit = self.random.below(total) as u32;
            if extent.uncovered != Some(bit / 8) && !flips.bits().contains(&bit) {
                flips.bits[usize::from(flips.count)] = bit;
                flips.count += 1;
            }
        }
        flips
    }

    fn record(&mut self, planned: PlannedPacket, fault: Fault) {
        let count = match fault {
            Fault::Lost => &mut self.counters.lost,
            Fault::Duplicated => &mut self.counters.duplicated,
            Fault::Reordered(_) => &mut self.counters.reordered,
            Fault::Corrupted(_) => &mut self.counters.corrupted,
        };
        *count += 1;
        if let Some(list) = &mut self.list {
            list.push(InjectedFault { link: self.link, shot: planned.shot, packet: planned.packet, fault });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTENT: Extent = Extent { header: 24, payload: 4096, uncovered: Some(4) };

    fn run(rates: FaultRates, seed: u64, packets: u32) -> (Injector, Vec<OutgoingPacket>) {
        let mut injector = Injector::new(rates, seed, 1, true);
        let mut out = Vec::new();
        for psn in 0..packets {
            injector.push(
                PlannedPacket { shot: u64::from(psn / 71), packet: (psn % 71) as u16, psn },
                EXTENT,
                &mut out,
            );
        }
        injector.flush(&mut out);
        (injector, out)
    }

    fn all(p: f64) -> FaultRates {
        FaultRates { loss: p, duplicate: p, reorder: p, corrupt: p, reorder_depth: 100 }
    }

    #[test]
    fn without_faults_packets_pass_in_order() {
        let (injector, out) = run(FaultRates::NONE, 1, 1000);
        assert!(out.iter().enumerate().all(|(i, packet)| packet.planned.psn == i as u32 && packet.flips.is_none()));
        assert_eq!((out.len(), injector.counters()), (1000, FaultCounters::default()));
    }

    #[test]
    fn counters_and_list_match_the_sent_packets_for_every_seed() {
        for seed in shotline_testing::seeds(0..200) {
            let (mut injector, out) = run(all(0.1), seed, 3000);
            let counts = injector.counters();
            let list = injector.take_list();
            let mut copies = vec![0_u64; 3000];
            out.iter().for_each(|packet| copies[packet.planned.psn as usize] += 1);
            let of = |fault: fn(&Fault) -> bool| list.iter().filter(|i| fault(&i.fault)).count() as u64;
            assert_eq!(counts.lost, copies.iter().filter(|c| **c == 0).count() as u64);
            assert_eq!(counts.lost, of(|f| matches!(f, Fault::Lost)));
            assert_eq!(counts.duplicated, copies.iter().filter(|c| **c == 2).count() as u64);
            assert_eq!(counts.duplicated, of(|f| matches!(f, Fault::Duplicated)));
            assert_eq!(counts.corrupted, out.iter().filter(|packet| packet.flips.is_some()).count() as u64);
            assert_eq!(counts.corrupted, of(|f| matches!(f, Fault::Corrupted(_))));
            assert_eq!(counts.reordered, of(|f| matches!(f, Fault::Reordered(_))));
            assert!(list.iter().all(|i| i.link == 1 && i.packet < 71));
        }
    }

    #[test]
    fn faults_are_determined_by_the_seed() {
        assert_eq!(run(all(0.05), 9, 2000).1, run(all(0.05), 9, 2000).1);
        assert_ne!(run(all(0.05), 9, 2000).1, run(all(0.05), 10, 2000).1);
    }

    #[test]
    fn a_held_back_packet_is_overtaken_by_the_depth_at_most() {
        let rates = FaultRates { reorder: 0.2, reorder_depth: 5, ..FaultRates::NONE };
        let (injector, out) = run(rates, 3, 5000);
        assert!(injector.counters().reordered > 800);
        for (position, packet) in out.iter().enumerate() {
            // Packets sent before it but planned after it.
            let passed = out[..position].iter().filter(|other| other.planned.psn > packet.planned.psn).count();
            assert!(passed <= 5, "{passed} packets passed {:?}", packet.planned);
        }
    }

    #[test]
    fn rates_are_met() {
        let (injector, _) = run(all(0.01), 4, 200_000);
        let FaultCounters { lost, duplicated, reordered, corrupted } = injector.counters();
        for count in [lost, duplicated, reordered, corrupted] {
            assert!((1_800..2_200).contains(&count), "{:?}", injector.counters());
        }
    }

    #[test]
    fn flips_are_distinct_and_avoid_the_uncovered_byte() {
        let (_, out) = run(FaultRates { corrupt: 1.0, ..FaultRates::NONE }, 8, 50_000);
        let mut header = 0;
        for flips in out.iter().filter_map(|packet| packet.flips) {
            let mut bits = flips.bits().to_vec();
            assert!(bits.iter().all(|bit| *bit < (24 + 4096) * 8 && bit / 8 != 4));
            header += bits.iter().filter(|bit| **bit < 24 * 8).count();
            bits.sort_unstable();
            bits.dedup();
            assert_eq!(bits.len(), flips.bits().len());
        }
        assert!(header > 0);
    }

    #[test]
    fn certain_loss_sends_nothing() {
        let (injector, out) = run(all(1.0), 2, 100);
        assert_eq!((out.len(), injector.counters()), (0, FaultCounters { lost: 100, ..FaultCounters::default() }));
    }
}
