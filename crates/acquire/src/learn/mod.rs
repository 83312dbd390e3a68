//! Learning a sender's ways from its packets, for senders that take no set-up from us.
//!
//! A learner looks at packets until it knows how they are framed and what a shot is. Each sender is looked at by
//! itself, so that strangers on the same port teach nothing. What was looked at is not lost: [`Held`] hands it on to
//! the receiver before anything newer.

mod digitizer;
mod held;
mod hsb;
mod learner;
mod spead;
mod vita49;

pub use held::Held;
pub use learner::{Hints, Learned, Shape};

use held::Packet;
use learner::Learner;
use shotline_memory::{Regions, Sge};
use shotline_transport::{Done, IoError, Landed, PacketIo, Pick, Seen, Steer, To};
use shotline_wire::framing::Kind;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Packets and bytes that are kept while no sender is understood; with one more all of them are forgotten.
const MOST_PACKETS: usize = 100_000;
const MOST_BYTES: usize = 256 << 20;
/// Longest wait in one go, and the most that one look at the clock adds to a silence.
const LONGEST_LOOK: Duration = Duration::from_millis(20);
/// Senders that are looked at side by side; one more takes the place of the one that has sent least, and that longest ago.
const MOST_SENDERS: usize = 16;
/// Refused senders that are reported as they come.
const MOST_REPORTED: usize = 16;

/// Why a sender could not be learned.
#[derive(Debug, thiserror::Error)]
pub enum LearnError {
    /// What came was not enough.
    #[error("{0}")]
    NotUnderstood(String),
    /// Nothing came.
    #[error(
        "nothing came to {} that could be {framing}: is the sender on, and does it send to this address and port? (shotline doctor looks at this machine's side)",
        at.map_or("where it listened".into(), |at| at.to_string())
    )]
    Nothing {
        /// The framing.
        framing: Kind,
        /// Where it was waited for.
        at: Option<SocketAddr>,
    },
    /// The network.
    #[error(transparent)]
    Io(#[from] IoError),
}

impl LearnError {
    /// The same by a receiver that listened there.
    #[must_use]
    pub fn at(self, address: SocketAddr) -> Self {
        match self {
            Self::Nothing { framing, .. } => Self::Nothing { framing, at: Some(address) },
            other => other,
        }
    }
}

/// How long to look.
#[derive(Debug)]
pub struct Until<R, E, F> {
    /// Whether shots can be received: until then it looks on, whatever is known.
    pub ready: R,
    /// Whether to give up, given how long nothing has come.
    pub ended: E,
    /// Takes a sender that cannot be received, and why. It is no reason to give up: it may be a stranger.
    pub refused: F,
}

/// Looks at packets until as many streams are known as asked for. `memory` has the backend's own scratch memory.
pub fn learn<P: PacketIo>(
    framing: Kind,
    hints: Hints,
    io: P,
    memory: (&Regions, Sge),
    until: Until<impl FnMut() -> bool, impl FnMut(Duration) -> bool, impl FnMut(SocketAddr, &str)>,
) -> Result<(Vec<Learned>, Held<P>), LearnError> {
    match framing {
        Kind::Digitizer => learn_from(Look::<digitizer::Blocks>::new(framing, hints, memory.0), io, memory, until),
        Kind::Vita49 => learn_from(Look::<vita49::Stream>::new(framing, hints, memory.0), io, memory, until),
        Kind::Spead => learn_from(Look::<spead::Heaps>::new(framing, hints, memory.0), io, memory, until),
        Kind::Hsb => learn_from(Look::<hsb::Bridge>::new(framing, hints, memory.0), io, memory, until),
        Kind::Ud | Kind::Counted | Kind::Udp => Err(LearnError::NotUnderstood(format!(
            "{framing} packets do not say what their shots are: set-up or settings do"
        ))),
    }
}

fn learn_from<L: Learner, P: PacketIo>(
    mut look: Look<'_, L>,
    mut io: P,
    (regions, scratch): (&Regions, Sge),
    mut until: Until<impl FnMut() -> bool, impl FnMut(Duration) -> bool, impl FnMut(SocketAddr, &str)>,
) -> Result<(Vec<Learned>, Held<P>), LearnError> {
    // How long nothing has come while somebody listened: a pause of this program is no silence of the sender.
    let mut silence = Duration::ZERO;
    let mut looked = Instant::now();
    loop {
        let ready = (until.ready)();
        if look.learned.len() >= look.hints.streams && ready {
            let (sources, mut learned): (Vec<_>, Vec<_>) = std::mem::take(&mut look.learned).into_iter().unzip();
            learned.sort_by_key(|learned| learned.key);
            // The stream follows the first sender that it sees: that is the one that was learned.
            let mut packets = look.packets;
            packets.sort_by_key(|packet| !sources.contains(&packet.source));
            return Ok((learned, Held::new(io, regions, scratch, packets)));
        }
        look.refusals.drain(..).for_each(|(source, why)| (until.refused)(source, &why));
        if look.packets.len() > MOST_PACKETS || look.bytes > MOST_BYTES {
            look.forget();
        }
        let now = Instant::now();
        // Before shots can be received nobody is expected to send.
        silence = if ready { silence + (now - looked).min(LONGEST_LOOK) } else { Duration::ZERO };
        looked = now;
        if (until.ended)(silence) {
            return Err(match look.seen {
                0 => LearnError::Nothing { framing: look.framing, at: None },
                _ => LearnError::NotUnderstood(look.not_understood()),
            });
        }
        // What is not handed on is taken no further than it must.
        match io.poll(&mut look, if L::HANDS_ON { 16 } else { 1 })? {
            0 => io.wait(LONGEST_LOOK)?,
            _ => silence = Duration::ZERO,
        }
    }
}

/// One sender, as far as it is known.
#[derive(Debug)]
struct Sender<L> {
    learner: L,
    packets: usize,
    /// How many packets had come in all when its last one did.
    last: u64,
    refused: Option<String>,
}

/// The steer that takes nothing in place, and keeps everything.
struct Look<'a, L> {
    framing: Kind,
    hints: Hints,
    regions: &'a Regions,
    /// By address and key.
    senders: BTreeMap<(SocketAddr, u32), Sender<L>>,
    seen: u64,
    packets: Vec<Packet>,
    bytes: usize,
    learned: Vec<(SocketAddr, Learned)>,
    /// Refusals that are still to be reported, and how many have been.
    refusals: Vec<(SocketAddr, String)>,
    reported: usize,
}

impl<'a, L: Learner> Look<'a, L> {
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

    /// Begins anew, as if what was looked at had come before the start. Who is refused stays so.
    fn forget(&mut self) {
        self.packets.clear();
        self.learned.clear();
        self.bytes = 0;
        self.senders.values_mut().for_each(|sender| sender.learner = L::new(self.hints));
    }

    fn look(&mut self, source: SocketAddr, packet: &[u8]) {
        let Some(key) = L::key(packet) else { return };
        if self.senders.len() >= MOST_SENDERS && !self.senders.contains_key(&(source, key)) {
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
            match sender.learner.look(packet) {
                Ok(Some(learned)) => {
                    // The newest word on a stream counts: what came before is gone, unless it is handed on.
                    self.learned.retain(|(_, known)| known.key != learned.key);
                    self.learned.push((source, learned));
                }
                Ok(None) => {}
                Err(why) => {
                    if self.reported < MOST_REPORTED {
                        self.reported += 1;
                        self.refusals.push((source, why.clone()));
                    }
                    sender.refused = Some(why);
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
                "{} of {} streams came (number {}): are the others on, and do they have other --stream numbers?",
                self.learned.len(),
                self.hints.streams,
                known.join(", ")
            );
        }
        match self.senders.values().max_by_key(|sender| sender.packets) {
            None => format!("{packets} packets came, and none of them is {framing}: is --framing right?"),
            Some(Sender { refused: Some(why), .. }) => format!("cannot receive what comes as {framing}: {why}"),
            Some(Sender { learner, .. }) => {
                format!(
                    "{packets} packets came and the sender is not understood as {framing}: still waiting for {}",
                    learner.missing()
                )
            }
        }
    }
}

impl<L: Learner> Steer for Look<'_, L> {
    fn header_len(&mut self, seen: &Seen<'_>) -> usize {
        L::header_len(seen.first)
    }

    fn pick(&mut self, _seen: &Seen<'_>, _picks: &mut [Pick]) {}

    fn expect(&mut self, _picks: &mut [Pick]) -> usize {
        0
    }

    fn around(&self, _to: To) -> [u32; 2] {
        [0; 2]
    }

    fn landed(&mut self, batch: &[Done<'_>]) {
        for done in batch {
            self.seen += 1;
            let mut bytes = done.header.to_vec();
            if let Landed::Scratch(sge) = done.landed
                && sge.len > 0
            {
                let at = bytes.len();
                bytes.resize(at + sge.len as usize, 0);
                self.regions.get(sge.region).read(sge.offset as usize, &mut bytes[at..]);
            }
            // Damaged packets teach nothing, and are counted by whoever takes them.
            // Of what is not handed on the newest word counts.
            if done.fault.is_none() && (!L::HANDS_ON || self.learned.len() < self.hints.streams) {
                self.look(done.source, &bytes);
            }
            if L::HANDS_ON {
                self.bytes += bytes.len();
                self.packets.push(Packet::of(done, bytes));
            }
        }
    }
}
