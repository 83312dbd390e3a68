//! Learning a sender's ways from its packets, for senders that take no set-up from us.
//!
//! A learner looks at packets until it knows how they are framed and what a shot is. What it looked at is not lost:
//! [`Held`] hands it on to the receiver before anything newer.

mod held;
mod hsb;
mod spead;

pub use held::Held;

use crate::run::RunError;
use held::Packet;
use shotline_memory::{Regions, Sge};
use shotline_transport::{Done, Landed, PacketIo, Pick, Seen, Steer};
use shotline_wire::framing::Framing;
use shotline_wire::shot::{Cut, Trailer};
use std::time::Duration;

/// Packets and bytes that are looked at before the sender is given up.
const MOST_PACKETS: usize = 100_000;
const MOST_BYTES: usize = 256 << 20;

/// What was learned.
#[derive(Debug)]
pub struct Learned {
    /// How packets name their places.
    pub framing: Box<dyn Framing>,
    /// What names the stream in its packets ([`Framing::key`]).
    pub key: u32,
    /// Bytes of samples in a shot.
    pub sample_bytes: u32,
    /// What closes a shot.
    pub trailer: Trailer,
    /// How it is cut into packets.
    pub cut: Cut,
    /// All that in words.
    pub words: String,
}

/// Learns one kind of sender.
trait Learner {
    /// Bytes of header of a packet whose leading bytes these are.
    fn header_len(&self, first: &[u8]) -> usize;
    /// Looks at a packet: what stands between UDP header and ICRC. An error is final.
    fn look(&mut self, packet: &[u8]) -> Result<Option<Learned>, String>;
    /// What it is still waiting for.
    fn missing(&self) -> String;
}

/// What the user has said of the sender.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hints {
    /// Pages in the ring of a sensor bridge.
    pub pages: Option<u32>,
}

/// Whether senders of this framing are learned.
pub fn can_learn(framing: &str) -> bool {
    shotline_wire::framing::FOREIGN.contains(&framing)
}

/// Looks at packets until the sender is known, or `ended` says to stop (then there is nothing). `scratch` is the
/// backend's own scratch memory, and `trailer` the bytes of an ICRC if its packets have one.
pub fn learn<P: PacketIo>(
    framing: &str,
    hints: Hints,
    mut io: P,
    (regions, scratch): (&Regions, Sge),
    mut ended: impl FnMut() -> bool,
) -> Result<(Option<Learned>, Held<P>), RunError> {
    let mut learner: Box<dyn Learner> = match framing {
        "hsb" => Box::new(hsb::Bridge::new(hints)),
        _ => Box::new(spead::Heaps::default()),
    };
    let mut look =
        Look { learner: learner.as_mut(), regions, packets: Vec::new(), bytes: 0, learned: None, refused: None };
    while look.learned.is_none() && !ended() {
        if io.poll(&mut look, 16)? == 0 {
            io.wait(Duration::from_millis(20))?;
        }
        if let Some(why) = look.refused {
            return Err(RunError::Settings(format!("cannot receive what comes as {framing}: {why}")));
        }
        if look.packets.len() > MOST_PACKETS || look.bytes > MOST_BYTES {
            return Err(RunError::Settings(format!(
                "{} packets came and the sender is not understood as {framing}: still waiting for {}",
                look.packets.len(),
                look.learner.missing()
            )));
        }
    }
    let (learned, packets) = (look.learned, look.packets);
    Ok((learned, Held::new(io, regions, scratch, packets)))
}

/// The steer that takes nothing in place, and keeps everything.
struct Look<'a> {
    learner: &'a mut dyn Learner,
    regions: &'a Regions,
    packets: Vec<Packet>,
    bytes: usize,
    learned: Option<Learned>,
    refused: Option<String>,
}

impl Steer for Look<'_> {
    fn header_len(&mut self, seen: &Seen<'_>) -> usize {
        self.learner.header_len(seen.first)
    }

    fn pick(&mut self, _seen: &Seen<'_>, _picks: &mut [Pick]) {}

    fn landed(&mut self, batch: &[Done<'_>]) {
        for done in batch {
            let mut bytes = done.header.to_vec();
            if let Landed::Scratch(sge) = done.landed
                && sge.len > 0
            {
                let at = bytes.len();
                bytes.resize(at + sge.len as usize, 0);
                self.regions.get(sge.region).read(sge.offset as usize, &mut bytes[at..]);
            }
            // Damaged packets teach nothing, and are counted by whoever takes them.
            if done.fault.is_none() && self.learned.is_none() && self.refused.is_none() {
                match self.learner.look(&bytes) {
                    Ok(learned) => self.learned = learned,
                    Err(why) => self.refused = Some(why),
                }
            }
            self.bytes += bytes.len();
            self.packets.push(Packet::of(done, bytes));
        }
    }
}
