//! Simulated links: faults, delays and rates.

use crate::engine::Nanos;
use shotline_random::SplitMix64;
use std::net::SocketAddr;

/// Properties of the outgoing link of a node. Probabilities are 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Probability that a packet is lost.
    pub loss: f64,
    /// Probability that a packet is duplicated.
    pub duplicate: f64,
    /// Probability that one to three bits of a packet change, which a CRC-32 always detects.
    pub corrupt: f64,
    /// Probability that a packet takes up to eight times as long, so that later ones overtake it.
    pub reorder: f64,
    /// Delay of a packet, in nanoseconds.
    pub delay: Nanos,
    /// Maximum additional delay, in nanoseconds; packets stay in order.
    pub jitter: Nanos,
    /// Rate in bytes per second; 0: unlimited.
    pub rate: u64,
    /// Queue capacity in bytes; packets beyond it are lost.
    pub queue: u64,
    /// Queue length in bytes above which packets are marked (ECN).
    pub mark: u64,
    /// Maximum UDP payload in bytes; longer packets are lost.
    pub mtu: usize,
    /// Packets arrive together at multiples of this time in nanoseconds, as with interrupt coalescing; 0: individually.
    pub coalesce: Nanos,
}

impl Link {
    /// A link without faults and with a delay of 5 µs.
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
    /// A link that loses every packet, as if the peer had disappeared.
    pub const CUT: Self = Self { loss: 1.0, ..Self::PERFECT };

    /// Returns a link without loss, with random delay, jitter and coalescing.
    pub fn random_lossless(random: &mut SplitMix64) -> Self {
        let (delay, jitter) = (random.between(100, 20_000), random.choose(&[0, 0, 3_000]));
        Self { delay, jitter, coalesce: random.choose(&[0, 2_000, 10_000]), ..Self::PERFECT }
    }

    /// Returns a link with random faults.
    pub fn random(random: &mut SplitMix64) -> Self {
        let mut chance = |values: &[f64]| random.choose(values);
        let (loss, duplicate) = (chance(&[0.0, 0.01, 0.05, 0.15]), chance(&[0.0, 0.0, 0.05, 0.2]));
        let (corrupt, reorder) = (chance(&[0.0, 0.0, 0.02, 0.1]), chance(&[0.0, 0.0, 0.05, 0.2]));
        Self { loss, duplicate, corrupt, reorder, ..Self::random_lossless(random) }
    }
}

/// Counters of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets sent on it.
    pub sent: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Lost because the queue was full.
    pub overflowed: u64,
    /// Lost because they were longer than the MTU.
    pub too_long: u64,
    /// Packets duplicated.
    pub duplicated: u64,
    /// Packets corrupted.
    pub corrupted: u64,
    /// Packets delayed so that later ones may overtake them.
    pub reordered: u64,
    /// Packets marked (ECN).
    pub marked: u64,
}

/// A UDP datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Source address as stated in the packet (not validated).
    pub source: SocketAddr,
    /// Destination address.
    pub destination: SocketAddr,
    /// UDP payload: from the BTH to the ICRC.
    pub bytes: Vec<u8>,
    /// Marked by a congested queue (ECN).
    pub marked: bool,
}

/// A link and its queue state.
#[derive(Clone, Debug)]
pub(super) struct LinkState {
    pub link: Link,
    pub counters: LinkCounters,
    /// Time at which the queue is empty.
    idle_at: Nanos,
    /// Time of the last in-order arrival.
    last_in_order: Nanos,
}

impl LinkState {
    pub fn new(link: Link) -> Self {
        Self { link, counters: LinkCounters::default(), idle_at: 0, last_in_order: 0 }
    }

    /// Sends a packet at `now`: calls `arrive` with the arrival time of the packet, and with that of its duplicate if
    /// there is one.
    pub fn carry(
        &mut self,
        now: Nanos,
        random: &mut SplitMix64,
        packet: Datagram,
        arrive: &mut dyn FnMut(Nanos, Datagram),
    ) {
        let (link, counters) = (self.link, &mut self.counters);
        counters.sent += 1;
        if packet.bytes.len() > link.mtu {
            counters.too_long += 1;
            return;
        }
        let mut packet = packet;
        let mut start = now;
        if link.rate > 0 {
            let transmission_time = |bytes: u64| (u128::from(bytes) * 1_000_000_000 / u128::from(link.rate)) as Nanos;
            let queued_bytes =
                (u128::from(self.idle_at.saturating_sub(now)) * u128::from(link.rate) / 1_000_000_000) as u64;
            if queued_bytes > link.queue {
                counters.overflowed += 1;
                return;
            }
            packet.marked |= queued_bytes > link.mark;
            counters.marked += u64::from(packet.marked);
            self.idle_at = self.idle_at.max(now) + transmission_time(packet.bytes.len() as u64);
            start = self.idle_at;
        }
        if happens(random, link.loss) {
            counters.lost += 1;
            return;
        }
        if happens(random, link.corrupt) {
            counters.corrupted += 1;
            for _ in 0..random.between(1, 3) {
                let bit = random.below(packet.bytes.len() as u64 * 8) as usize;
                packet.bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
        let late = happens(random, link.reorder);
        let mut arrival = start + link.delay + random.below(link.jitter + 1);
        if late {
            counters.reordered += 1;
            arrival += random.below(8 * (link.delay + 1));
        } else {
            arrival = arrival.max(self.last_in_order);
            self.last_in_order = arrival;
        }
        let arrival = arrival.next_multiple_of(link.coalesce.max(1));
        if happens(random, link.duplicate) {
            counters.duplicated += 1;
            arrive(arrival + random.below(2 * link.delay + 1), packet.clone());
        }
        arrive(arrival, packet);
    }
}

/// Returns `true` if a fault of this probability happens. A probability of 0 draws no random number, so that the other
/// faults of a seed do not change.
fn happens(random: &mut SplitMix64, probability: f64) -> bool {
    probability > 0.0 && random.chance(probability)
}
