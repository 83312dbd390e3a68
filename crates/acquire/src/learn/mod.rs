//! Learns the format of a sender from its packets, for senders without set-up.
//!
//! A learner examines packets until it has determined their framing and the shape of a shot. Each sender is examined
//! separately, so that other senders on the same port have no influence. Examined packets are not lost: [`BufferedIo`]
//! passes them on to the receiver before anything newer.

mod buffered;
mod digitizer;
mod hsb;
mod learner;
mod spead;
mod vita49;

pub use buffered::BufferedIo;
pub use learner::{Hints, LearnedStream, Shape};

use buffered::Packet;
use learner::Learner;
use shotline_memory::{Regions, Sge};
use shotline_transport::{BatchInfo, IoError, PacketIo, PayloadDestination, PayloadLocation, Pick, RxPacket, Steer};
use shotline_wire::framing::Kind;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Maximum number of packets and bytes kept while no sender is learned; beyond it all of them are discarded.
const MAX_PACKETS_KEPT: usize = 100_000;
const MAX_BYTES_KEPT: usize = 256 << 20;
/// Maximum duration of one wait, and the most that one reading of the clock adds to a silence.
const MAX_WAIT: Duration = Duration::from_millis(20);
/// Maximum number of senders examined in parallel; a further one replaces the one with the fewest packets, the oldest
/// of these.
const MAX_SENDERS: usize = 16;
/// Maximum number of refused senders that are reported.
const MAX_REPORTED: usize = 16;

/// Error of learning a sender.
#[derive(Debug, thiserror::Error)]
pub enum LearnError {
    /// The packets received were not sufficient.
    #[error("{0}")]
    NotUnderstood(String),
    /// No packet arrived.
    #[error(
        "no {framing} packets arrived at {}: check that the sender is on, and that it sends to this address and port (shotline doctor checks this machine)",
        local.map_or("the local address".into(), |local| local.to_string())
    )]
    Nothing {
        /// Expected framing.
        framing: Kind,
        /// Address that was listened to.
        local: Option<SocketAddr>,
    },
    /// The transport failed.
    #[error(transparent)]
    Io(#[from] IoError),
}

impl LearnError {
    /// Adds the address that was listened to.
    #[must_use]
    pub fn with_local(self, address: SocketAddr) -> Self {
        match self {
            Self::Nothing { framing, .. } => Self::Nothing { framing, local: Some(address) },
            other => other,
        }
    }
}

/// Callbacks that control learning.
#[derive(Debug)]
pub struct LearnCallbacks<R, E, F> {
    /// Returns `true` once shots can be received: until then learning continues in any case.
    pub ready: R,
    /// Returns `true` to stop learning, given the time without packets.
    pub ended: E,
    /// Reports a sender that cannot be received, with the reason. Learning continues: other senders may follow.
    pub refused: F,
}

/// Examines packets until the requested number of streams is learned. `memory`: all regions, and the scratch memory
/// that the backend was opened with.
///
/// # Errors
/// If the framing cannot be learned, the transport fails, or `callbacks` ends learning early.
pub fn learn<P: PacketIo>(
    framing: Kind,
    hints: Hints,
    io: P,
    memory: (&Regions, Sge),
    callbacks: LearnCallbacks<impl FnMut() -> bool, impl FnMut(Duration) -> bool, impl FnMut(SocketAddr, &str)>,
) -> Result<(Vec<LearnedStream>, BufferedIo<P>), LearnError> {
    match framing {
        Kind::Digitizer => {
            learn_from(LearnSteer::<digitizer::Blocks>::new(framing, hints, memory.0), io, memory, callbacks)
        }
        Kind::Vita49 => learn_from(LearnSteer::<vita49::Stream>::new(framing, hints, memory.0), io, memory, callbacks),
        Kind::Spead => learn_from(LearnSteer::<spead::Heaps>::new(framing, hints, memory.0), io, memory, callbacks),
        Kind::Hsb => learn_from(LearnSteer::<hsb::Bridge>::new(framing, hints, memory.0), io, memory, callbacks),
        Kind::Ud | Kind::Counted | Kind::Udp => Err(LearnError::NotUnderstood(format!(
            "{framing} packets do not describe their shots: use set-up or settings"
        ))),
    }
}

fn learn_from<L: Learner, P: PacketIo>(
    mut steer: LearnSteer<'_, L>,
    mut io: P,
    (regions, scratch): (&Regions, Sge),
    mut callbacks: LearnCallbacks<impl FnMut() -> bool, impl FnMut(Duration) -> bool, impl FnMut(SocketAddr, &str)>,
) -> Result<(Vec<LearnedStream>, BufferedIo<P>), LearnError> {
    // Time without packets while polling: a pause of this program does not count as silence of the sender.
    let mut silence = Duration::ZERO;
    let mut last_poll = Instant::now();
    loop {
        let ready = (callbacks.ready)();
        if steer.learned.len() >= steer.hints.streams && ready {
            let (sources, mut learned): (Vec<_>, Vec<_>) = std::mem::take(&mut steer.learned).into_iter().unzip();
            learned.sort_by_key(|learned| learned.key);
            // A stream follows the first sender whose packet it gets, so the packets of the learned senders must be
            // first.
            let mut packets = steer.packets;
            packets.sort_by_key(|packet| !sources.contains(&packet.source));
            return Ok((learned, BufferedIo::new(io, regions, scratch, packets)));
        }
        steer.refusals.drain(..).for_each(|(source, reason)| (callbacks.refused)(source, &reason));
        if steer.packets.len() > MAX_PACKETS_KEPT || steer.bytes > MAX_BYTES_KEPT {
            steer.clear();
        }
        let now = Instant::now();
        // Before shots can be received no sender is expected to send.
        silence = if ready { silence + (now - last_poll).min(MAX_WAIT) } else { Duration::ZERO };
        last_poll = now;
        if (callbacks.ended)(silence) {
            return Err(match steer.seen {
                0 => LearnError::Nothing { framing: steer.framing, local: None },
                _ => LearnError::NotUnderstood(steer.not_understood()),
            });
        }
        // Examine no more packets than necessary unless they are passed on.
        match io.poll(&mut steer, if L::KEEPS_PACKETS { 16 } else { 1 })? {
            0 => io.wait(MAX_WAIT)?,
            _ => silence = Duration::ZERO,
        }
    }
}

/// State of learning one sender.
#[derive(Debug)]
struct Sender<L> {
    learner: L,
    packets: usize,
    /// Total number of packets at the arrival of its last one.
    last: u64,
    refused: Option<String>,
}

/// Steer that places no packet: it examines each, and keeps those that are passed on to the receiver.
struct LearnSteer<'a, L> {
    framing: Kind,
    hints: Hints,
    regions: &'a Regions,
    /// Senders by address and key.
    senders: BTreeMap<(SocketAddr, u32), Sender<L>>,
    seen: u64,
    packets: Vec<Packet>,
    bytes: usize,
    learned: Vec<(SocketAddr, LearnedStream)>,
    /// Refusals that are still to be reported, and the number already reported.
    refusals: Vec<(SocketAddr, String)>,
    reported: usize,
}

impl<'a, L: Learner> LearnSteer<'a, L> {
    fn new(framing: Kind, hints: Hints, regions: &'a Regions) -> Self {
        Self {
            framing,
            hints,
            regions,
            senders: BTreeMap::new(),
            seen: 0,
            packets: Vec::new(),
            bytes: 0,
            learned: Vec::new(),
            refusals: Vec::new(),
            reported: 0,
        }
    }

    /// Restarts learning, as if all packets had arrived before it. Refused senders remain refused.
    fn clear(&mut self) {
        self.packets.clear();
        self.learned.clear();
        self.bytes = 0;
        self.senders.values_mut().for_each(|sender| sender.learner = L::new(self.hints));
    }

    fn examine(&mut self, source: SocketAddr, packet: &[u8]) {
        let Some(key) = L::key(packet) else { return };
        if self.senders.len() >= MAX_SENDERS && !self.senders.contains_key(&(source, key)) {
            let least = self.senders.iter().min_by_key(|(_, sender)| (sender.packets, sender.last));
            let least = least.map(|(name, _)| *name);
            least.and_then(|name| self.senders.remove(&name));
        }
        let hints = self.hints;
        let new = || Sender { learner: L::new(hints), packets: 0, last: 0, refused: None };
        let sender = self.senders.entry((source, key)).or_insert_with(new);
        sender.packets += 1;
        sender.last = self.seen;
        if sender.refused.is_none() {
            match sender.learner.examine(packet) {
                Ok(Some(learned)) => {
                    // The newest result for a stream counts: earlier packets are gone, unless they are passed on.
                    self.learned.retain(|(_, known)| known.key != learned.key);
                    self.learned.push((source, learned));
                }
                Ok(None) => {}
                Err(reason) => {
                    if self.reported < MAX_REPORTED {
                        self.reported += 1;
                        self.refusals.push((source, reason.clone()));
                    }
                    sender.refused = Some(reason);
                }
            }
        }
    }

    fn not_understood(&self) -> String {
        let (framing, packets) = (self.framing, self.seen);
        if !self.learned.is_empty() {
            let known: Vec<_> =
                self.learned.iter().map(|(source, learned)| format!("{} from {source}", learned.key)).collect();
            return format!(
                "{} of {} streams arrived (number {}): check that the others are on, and that their --stream numbers differ",
                self.learned.len(),
                self.hints.streams,
                known.join(", ")
            );
        }
        match self.senders.values().max_by_key(|sender| sender.packets) {
            None => format!("{packets} packets arrived, and none of them is {framing}: check --framing"),
            Some(Sender { refused: Some(reason), .. }) => format!("cannot receive the packets as {framing}: {reason}"),
            Some(Sender { learner, .. }) => {
                format!(
                    "{packets} packets arrived, not enough to learn the {framing} sender: still waiting for {}",
                    learner.missing()
                )
            }
        }
    }
}

impl<L: Learner> Steer for LearnSteer<'_, L> {
    fn header_len(&mut self, seen: &BatchInfo<'_>) -> usize {
        L::header_len(seen.first)
    }

    fn pick(&mut self, _seen: &BatchInfo<'_>, _picks: &mut [Pick]) {}

    fn predict(&mut self, _picks: &mut [Pick]) -> usize {
        0
    }

    fn margins(&self, _to: PayloadDestination) -> [u32; 2] {
        [0; 2]
    }

    fn landed(&mut self, batch: &[RxPacket<'_>]) {
        for rx in batch {
            self.seen += 1;
            let mut bytes = rx.header.to_vec();
            if let PayloadLocation::Scratch(sge) = rx.landed
                && sge.len > 0
            {
                let at = bytes.len();
                bytes.resize(at + sge.len as usize, 0);
                self.regions.get(sge.region).read(sge.offset as usize, &mut bytes[at..]);
            }
            // Damaged packets are not examined, and are counted by the receiver. If packets are not passed on, the
            // newest result counts.
            if rx.fault.is_none() && (!L::KEEPS_PACKETS || self.learned.len() < self.hints.streams) {
                self.examine(rx.source, &bytes);
            }
            if L::KEEPS_PACKETS {
                self.bytes += bytes.len();
                self.packets.push(Packet::of(rx, bytes));
            }
        }
    }
}
