//! Faults on purpose: loss, duplication, reordering and corruption of single packets, by seed.
//!
//! An [`Injector`] sits between the packets that a link plans and those that it sends. It knows no bytes and
//! no sockets: it decides and keeps the exact log, so that a receiver's books can be held against it. For
//! each packet the four faults are drawn independently, and combine like this:
//!
//! - a *lost* packet is not sent, whatever else was drawn (only the loss is logged);
//! - a *duplicated* packet is sent a second time;
//! - a *reordered* packet is held back until so many later packets of the link have had their turn; of a
//!   duplicated one, the second copy is;
//! - a *corrupted* packet has bits flipped after its ICRC was made; of a duplicated one, the first copy has.

use serde::{Deserialize, Serialize};
use shotline_random::SplitMix64;

/// Most bits flipped in one packet. CRC-32 finds every error of up to three bits in a packet of this size,
/// so no corrupted packet can pass for a good one.
pub const MAX_FLIPS: usize = 3;

/// How often each fault happens.
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
    /// A held-back packet lets 1 to this many others pass.
    pub reorder_depth: u16,
}

impl FaultRates {
    /// No faults.
    pub const NONE: Self = Self { loss: 0.0, duplicate: 0.0, reorder: 0.0, corrupt: 0.0, reorder_depth: 16 };

    /// Whether no fault can happen.
    pub fn is_none(&self) -> bool {
        [self.loss, self.duplicate, self.reorder, self.corrupt].iter().all(|p| *p == 0.0)
    }
}

impl Default for FaultRates {
    fn default() -> Self {
        Self::NONE
    }
}

/// One packet in the order of its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Its shot.
    pub shot: u64,
    /// Its index in the shot.
    pub packet: u16,
    /// Its packet sequence number.
    pub psn: u32,
}

/// Where bits of a packet may be flipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes of its header.
    pub header: u32,
    /// Bytes of its payload.
    pub payload: u32,
    /// A header byte that no checksum covers: a flip there would be logged and never found, so none is made.
    pub uncovered: Option<u32>,
}

/// Bits to flip, counted from the first bit of the header through the payload; bit 0 of a byte is its least
/// significant one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flips {
    bits: [u32; MAX_FLIPS],
    count: u8,
}

impl Flips {
    /// The positions, all different.
    pub fn bits(&self) -> &[u32] {
        &self.bits[..usize::from(self.count)]
    }
}

/// One packet to send now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emit {
    /// Which.
    pub planned: Planned,
    /// What to break in it.
    pub flips: Option<Flips>,
}

/// What was done to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Not sent.
    Lost,
    /// Sent twice.
    Duplicated,
    /// Held back until so many others had their turn.
    Reordered(u16),
    /// So many bits flipped.
    Corrupted(u8),
}

/// One line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Injected {
    /// The link, counted from 0.
    pub link: u8,
    /// The shot.
    pub shot: u64,
    /// The packet's index in it.
    pub packet: u16,
    /// What was done.
    pub fault: Fault,
}

/// How often each fault was injected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FaultCounts {
    /// Packets not sent.
    pub lost: u64,
    /// Packets sent twice.
    pub duplicated: u64,
    /// Packets held back.
    pub reordered: u64,
    /// Packets with flipped bits.
    pub corrupted: u64,
}

impl FaultCounts {
    /// What was added since an earlier state of the same counts.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            lost: self.lost - earlier.lost,
            duplicated: self.duplicated - earlier.duplicated,
            reordered: self.reordered - earlier.reordered,
            corrupted: self.corrupted - earlier.corrupted,
        }
    }
}

/// Turns the packets of one link as planned into those that are sent.
#[derive(Debug)]
pub struct Injector {
    rates: FaultRates,
    random: SplitMix64,
    link: u8,
    turn: u64,
    held: Vec<Held>,
    counts: FaultCounts,
    list: Option<Vec<Injected>>,
}

#[derive(Debug)]
struct Held {
    until: u64,
    emit: Emit,
}

impl Injector {
    /// An injector for one link. With `listed` each fault is kept, else only the counts.
    pub fn new(rates: FaultRates, seed: u64, link: u8, listed: bool) -> Self {
        Self {
            rates,
            // Far apart, so that no link of one seed breaks what another link of the next seed does.
            random: SplitMix64::new(seed ^ u64::from(link) << 56),
            link,
            turn: 0,
            held: Vec::new(),
            counts: FaultCounts::default(),
            list: listed.then(Vec::new),
        }
    }

    /// The turn of a packet: appends what is to be sent now.
    pub fn push(&mut self, planned: Planned, extent: Extent, out: &mut Vec<Emit>) {
        self.turn += 1;
        let FaultRates { loss, duplicate, reorder, corrupt, reorder_depth } = self.rates;
        let [lost, duplicated, reordered, corrupted] =
            [loss, duplicate, reorder, corrupt].map(|probability| self.random.chance(probability));
        if lost {
            self.log(planned, Fault::Lost);
        } else {
            let flips = corrupted.then(|| self.flips(extent));
            if let Some(flips) = flips {
                self.log(planned, Fault::Corrupted(flips.count));
            }
            let mut last = Emit { planned, flips };
            if duplicated {
                self.log(planned, Fault::Duplicated);
                out.push(last);
                last.flips = None;
            }
            if reordered && reorder_depth > 0 {
                let passing = 1 + self.random.below(u64::from(reorder_depth));
                self.log(planned, Fault::Reordered(passing as u16));
                self.held.push(Held { until: self.turn + passing, emit: last });
            } else {
                out.push(last);
            }
        }
        let turn = self.turn;
        out.extend(self.held.extract_if(.., |held| held.until <= turn).map(|held| held.emit));
    }

    /// Nothing follows: appends what is still held back.
    pub fn flush(&mut self, out: &mut Vec<Emit>) {
        out.extend(self.held.drain(..).map(|held| held.emit));
    }

    /// What was injected so far.
    pub fn counts(&self) -> FaultCounts {
        self.counts
    }

    /// Each fault since the last call, if they are kept.
    pub fn take_list(&mut self) -> Vec<Injected> {
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

    fn log(&mut self, planned: Planned, fault: Fault) {
        let count = match fault {
            Fault::Lost => &mut self.counts.lost,
            Fault::Duplicated => &mut self.counts.duplicated,
            Fault::Reordered(_) => &mut self.counts.reordered,
            Fault::Corrupted(_) => &mut self.counts.corrupted,
        };
        *count += 1;
        if let Some(list) = &mut self.list {
            list.push(Injected { link: self.link, shot: planned.shot, packet: planned.packet, fault });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTENT: Extent = Extent { header: 24, payload: 4096, uncovered: Some(4) };

    fn run(rates: FaultRates, seed: u64, packets: u32) -> (Injector, Vec<Emit>) {
        let mut injector = Injector::new(rates, seed, 1, true);
        let mut out = Vec::new();
        for psn in 0..packets {
            injector.push(Planned { shot: u64::from(psn / 71), packet: (psn % 71) as u16, psn }, EXTENT, &mut out);
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
        assert!(out.iter().enumerate().all(|(i, emit)| emit.planned.psn == i as u32 && emit.flips.is_none()));
        assert_eq!((out.len(), injector.counts()), (1000, FaultCounts::default()));
    }

    #[test]
    fn the_log_is_what_was_emitted_for_every_seed() {
        for seed in shotline_testing::seeds(0..200) {
            let (mut injector, out) = run(all(0.1), seed, 3000);
            let counts = injector.counts();
            let list = injector.take_list();
            let mut copies = vec![0_u64; 3000];
            out.iter().for_each(|emit| copies[emit.planned.psn as usize] += 1);
            let of = |fault: fn(&Fault) -> bool| list.iter().filter(|i| fault(&i.fault)).count() as u64;
            assert_eq!(counts.lost, copies.iter().filter(|c| **c == 0).count() as u64);
            assert_eq!(counts.lost, of(|f| matches!(f, Fault::Lost)));
            assert_eq!(counts.duplicated, copies.iter().filter(|c| **c == 2).count() as u64);
            assert_eq!(counts.duplicated, of(|f| matches!(f, Fault::Duplicated)));
            assert_eq!(counts.corrupted, out.iter().filter(|emit| emit.flips.is_some()).count() as u64);
            assert_eq!(counts.corrupted, of(|f| matches!(f, Fault::Corrupted(_))));
            assert_eq!(counts.reordered, of(|f| matches!(f, Fault::Reordered(_))));
            assert!(list.iter().all(|i| i.link == 1 && i.packet < 71));
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_faults_and_another_seed_others() {
        assert_eq!(run(all(0.05), 9, 2000).1, run(all(0.05), 9, 2000).1);
        assert_ne!(run(all(0.05), 9, 2000).1, run(all(0.05), 10, 2000).1);
    }

    #[test]
    fn a_held_packet_lets_no_more_pass_than_the_depth() {
        let rates = FaultRates { reorder: 0.2, reorder_depth: 5, ..FaultRates::NONE };
        let (injector, out) = run(rates, 3, 5000);
        assert!(injector.counts().reordered > 800);
        for (position, emit) in out.iter().enumerate() {
            // Of the packets sent before it, those planned after it.
            let passed = out[..position].iter().filter(|other| other.planned.psn > emit.planned.psn).count();
            assert!(passed <= 5, "{passed} packets passed {:?}", emit.planned);
        }
    }

    #[test]
    fn rates_are_met() {
        let (injector, _) = run(all(0.01), 4, 200_000);
        let FaultCounts { lost, duplicated, reordered, corrupted } = injector.counts();
        for count in [lost, duplicated, reordered, corrupted] {
            assert!((1_800..2_200).contains(&count), "{:?}", injector.counts());
        }
    }

    #[test]
    fn flips_are_different_bits_inside_the_packet_and_never_in_an_uncovered_byte() {
        let (_, out) = run(FaultRates { corrupt: 1.0, ..FaultRates::NONE }, 8, 50_000);
        let mut header = 0;
        for flips in out.iter().filter_map(|emit| emit.flips) {
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
        assert_eq!((out.len(), injector.counts()), (0, FaultCounts { lost: 100, ..FaultCounts::default() }));
    }
}
