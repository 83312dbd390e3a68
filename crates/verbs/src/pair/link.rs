//! What happens to packets on their way.

use crate::engine::Nanos;
use shotline_random::SplitMix64;
use std::net::SocketAddr;

/// The way out of a node. Chances are 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Chance that a packet is lost.
    pub loss: f64,
    /// Chance that it arrives twice.
    pub duplicate: f64,
    /// Chance that one to three of its bits change, which a CRC-32 always finds.
    pub corrupt: f64,
    /// Chance that it takes up to eight times as long, so that later ones overtake it.
    pub reorder: f64,
    /// How long a packet takes.
    pub delay: Nanos,
    /// How much longer it may take; packets stay in order.
    pub jitter: Nanos,
    /// Bytes a second that it carries; 0: any.
    pub rate: u64,
    /// Bytes that may wait for it; what comes beyond is lost.
    pub queue: u64,
    /// Packets that come when more bytes wait are marked (ECN).
    pub mark: u64,
    /// Longest UDP payload that it carries; longer ones are lost.
    pub mtu: usize,
    /// Packets arrive together in steps of this, as an interrupt that waits for more of them brings them; 0: singly.
    pub coalesce: Nanos,
}

impl Link {
    /// Loses nothing, changes nothing, keeps the order, takes 5 µs.
    pub const PERFECT: Self = Self {
        loss: 0.0,
        duplicate: 0.0,
        corrupt: 0.0,
        reorder: 0.0,
        delay: 5_000,
        jitter: 0,
        rate: 0,
        queue: u64::MAX,
        mark: u64::MAX,
        mtu: 65_507,
        coalesce: 0,
    };
    /// Loses everything: the peer has vanished.
    pub const CUT: Self = Self { loss: 1.0, ..Self::PERFECT };

    /// A link without loss, but with any delay, jitter and coalescing.
    pub fn random_lossless(random: &mut SplitMix64) -> Self {
        let (delay, jitter) = (random.between(100, 20_000), random.choose(&[0, 0, 3_000]));
        Self { delay, jitter, coalesce: random.choose(&[0, 2_000, 10_000]), ..Self::PERFECT }
    }

    /// A link on which anything may happen.
    pub fn random(random: &mut SplitMix64) -> Self {
        let mut chance = |most: &[f64]| random.choose(most);
        let (loss, duplicate) = (chance(&[0.0, 0.01, 0.05, 0.15]), chance(&[0.0, 0.0, 0.05, 0.2]));
        let (corrupt, reorder) = (chance(&[0.0, 0.0, 0.02, 0.1]), chance(&[0.0, 0.0, 0.05, 0.2]));
        Self { loss, duplicate, corrupt, reorder, ..Self::random_lossless(random) }
    }
}

/// What a link did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkBooks {
    /// Packets handed to it.
    pub sent: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Lost because too many waited.
    pub overflowed: u64,
    /// Lost because they were too long.
    pub too_long: u64,
    /// Packets that arrive twice.
    pub duplicated: u64,
    /// Packets with changed bits.
    pub corrupted: u64,
    /// Packets that took much longer.
    pub reordered: u64,
    /// Packets marked.
    pub marked: u64,
}

/// A UDP datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Who says to have sent it.
    pub source: SocketAddr,
    /// Where it goes.
    pub destination: SocketAddr,
    /// From the BTH to the ICRC.
    pub bytes: Vec<u8>,
    /// It met congestion.
    pub marked: bool,
}

/// A link and what it must remember.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub link: Link,
    pub books: LinkBooks,
    /// When it has carried what waits.
    free: Nanos,
    /// The last arrival that kept the order.
    last: Nanos,
}

impl Line {
    pub fn new(link: Link) -> Self {
        Self { link, books: LinkBooks::default(), free: 0, last: 0 }
    }

    /// Takes a packet and tells when it (and perhaps its copy) arrives, and how.
    pub fn carry(
        &mut self,
        now: Nanos,
        random: &mut SplitMix64,
        packet: Datagram,
        arrive: &mut dyn FnMut(Nanos, Datagram),
    ) {
        let (link, books) = (self.link, &mut self.books);
        books.sent += 1;
        if packet.bytes.len() > link.mtu {
            books.too_long += 1;
            return;
        }
        let mut packet = packet;
        let mut start = now;
        if link.rate > 0 {
            let per = |bytes: u64| (u128::from(bytes) * 1_000_000_000 / u128::from(link.rate)) as Nanos;
            let waiting = (u128::from(self.free.saturating_sub(now)) * u128::from(link.rate) / 1_000_000_000) as u64;
            if waiting > link.queue {
                books.overflowed += 1;
                return;
            }
            packet.marked |= waiting > link.mark;
            books.marked += u64::from(packet.marked);
            self.free = self.free.max(now) + per(packet.bytes.len() as u64);
            start = self.free;
        }
        if happens(random, link.loss) {
            books.lost += 1;
            return;
        }
        if happens(random, link.corrupt) {
            books.corrupted += 1;
            for _ in 0..random.between(1, 3) {
                let bit = random.below(packet.bytes.len() as u64 * 8) as usize;
                packet.bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
        let late = happens(random, link.reorder);
        let mut at = start + link.delay + random.below(link.jitter + 1);
        if late {
            books.reordered += 1;
            at += random.below(8 * (link.delay + 1));
        } else {
            at = at.max(self.last);
            self.last = at;
        }
        let at = at.next_multiple_of(link.coalesce.max(1));
        if happens(random, link.duplicate) {
            books.duplicated += 1;
            arrive(at + random.below(2 * link.delay + 1), packet.clone());
        }
        arrive(at, packet);
    }
}

/// Whether a fault of this probability happens. One that never does draws no number, so that the others of a seed stay
/// as they are without it.
fn happens(random: &mut SplitMix64, probability: f64) -> bool {
    probability > 0.0 && random.chance(probability)
}
