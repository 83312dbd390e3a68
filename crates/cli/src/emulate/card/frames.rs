//! Frames for the simulated card: of a capture, or generated.

use super::args::Card;
use crate::Result;
use shotline_random::SplitMix64;
use shotline_store::pcapng::{Frame, LinkType, for_each_frame, is_capture};
use shotline_wire::crc::crc32;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Shortest frame without FCS; a sender pads shorter ones with zeros.
const SHORTEST: usize = 60;
/// Shortest frame without FCS that is cut on the wire: an Ethernet header.
const SHORTEST_CUT: usize = 14;

/// A frame on the wire.
pub struct Sent {
    /// Its bytes with FCS.
    pub bytes: Vec<u8>,
    /// Earliest time since the first frame.
    pub at_ns: u64,
}

/// Appends the FCS.
fn with_fcs(mut frame: Vec<u8>) -> Vec<u8> {
    frame.extend(crc32(&frame).to_le_bytes());
    frame
}

/// Faults of the wire.
pub struct Faults {
    random: SplitMix64,
    corrupt: f64,
    runt: f64,
}

impl Faults {
    /// Returns the faults that the arguments request.
    pub fn of(args: &Card) -> Self {
        let Card { seed, corrupt, runt, .. } = *args;
        Self { random: SplitMix64::new(!seed), corrupt, runt }
    }

    /// Cuts a frame with FCS to less than the shortest length, or flips a bit of it.
    pub fn apply(&mut self, mut frame: Vec<u8>) -> Vec<u8> {
        if self.random.chance(self.runt) {
            frame.truncate(SHORTEST_CUT + self.random.below((SHORTEST - SHORTEST_CUT) as u64) as usize);
            frame = with_fcs(frame);
        }
        if self.random.chance(self.corrupt) {
            let bit = self.random.below(8 * frame.len() as u64) as usize;
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        frame
    }
}

/// Returns the next length of the generated frames of one load, and those frames.
pub struct Generator {
    random: SplitMix64,
    shares: Vec<(u16, u32)>,
}

impl Generator {
    /// Creates a generator of frames with these lengths and shares.
    pub fn new(seed: u64, shares: Vec<(u16, u32)>) -> Self {
        Self { random: SplitMix64::new(seed), shares }
    }

    /// Returns a frame with UDP over IPv4 between random addresses and ports, with random payload.
    pub fn frame(&mut self) -> Sent {
        let all = self.shares.iter().map(|&(_, share)| u64::from(share)).sum();
        let mut draw = self.random.below(all);
        let mut length = 0;
        for &(bytes, share) in &self.shares {
            length = usize::from(bytes);
            match draw.checked_sub(share.into()) {
                Some(rest) => draw = rest,
                None => break,
            }
        }
        let mut frame = vec![0; length - 4];
        self.random.fill_bytes(&mut frame);
        let udp = length - 4 - 34;
        let [high, low] = ((udp + 20) as u16).to_be_bytes();
        // Locally administered unicast addresses.
        (frame[0], frame[6]) = (2, 2);
        frame[12..26].copy_from_slice(&[8, 0, 0x45, 0, high, low, 0, 0, 0x40, 0, 64, 17, 0, 0]);
        // Addresses of 10.0.0.0/8.
        (frame[26], frame[30]) = (10, 10);
        let words = frame[14..34].chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
        let sum = words.sum::<u32>();
        let folded = (sum & 0xFFFF) + (sum >> 16);
        let checksum = !((folded & 0xFFFF) + (folded >> 16)) as u16;
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        frame[38..40].copy_from_slice(&(udp as u16).to_be_bytes());
        frame[40..42].fill(0);
        Sent { bytes: with_fcs(frame), at_ns: 0 }
    }
}

/// A capture that was read once, and can be sent.
pub struct Captured {
    path: PathBuf,
    times: bool,
    /// Number of frames.
    pub frames: u64,
    /// Frames that the capture truncated: the missing bytes are sent as zeros.
    pub truncated: u64,
    /// Time of the first frame.
    pub start_ns: u64,
}

impl Captured {
    /// Checks a capture.
    ///
    /// # Errors
    /// If it is not a capture of Ethernet frames, or if it is damaged.
    pub fn open(path: &Path, times: bool) -> Result<Self> {
        let shown = path.display();
        let mut first = Vec::new();
        let file = File::open(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
        file.take(4).read_to_end(&mut first).map_err(|error| format!("cannot read {shown}: {error}"))?;
        if !is_capture(&first) {
            let text = format!("expected a capture (pcap or pcapng), found in {shown} the first bytes {first:02x?}: ");
            return Err((text + "write one with tcpdump -w FILE").into());
        }
        let mut found = Self { path: path.to_owned(), times, frames: 0, truncated: 0, start_ns: 0 };
        let mut link = None;
        let damage = for_each_frame(path, |frame| {
            if found.frames == 0 {
                found.start_ns = frame.time_ns;
            }
            found.frames += 1;
            found.truncated += u64::from(frame.data.len() < frame.wire_bytes as usize);
            if frame.link != LinkType::Ethernet {
                link.get_or_insert((found.frames, frame.link));
            }
        })?;
        if let Some(damage) = damage {
            let frames = found.frames;
            let text =
                format!("expected a whole capture, found in {shown} that {damage}: copy its {frames} whole frames ");
            return Err((text + "with tshark -r FILE -w COPY, or capture again").into());
        }
        if let Some((number, link)) = link {
            let text = format!("expected Ethernet frames, found {link:?} in frame {number} of {shown}: ");
            return Err((text + "capture on an Ethernet interface").into());
        }
        if found.frames == 0 {
            return Err(format!("expected frames, found none in {shown}: capture again").into());
        }
        Ok(found)
    }

    /// Calls `send` with each frame.
    ///
    /// # Errors
    /// If the capture cannot be read again.
    pub fn for_each(&self, mut send: impl FnMut(Sent)) -> Result {
        let damage = for_each_frame(&self.path, |frame| send(self.sent(&frame)))?;
        match damage {
            None => Ok(()),
            Some(damage) => Err(format!("{} has changed: {damage}", self.path.display()).into()),
        }
    }

    fn sent(&self, frame: &Frame<'_>) -> Sent {
        let mut bytes = frame.data.to_vec();
        bytes.resize(bytes.len().max(frame.wire_bytes as usize).clamp(SHORTEST, 1 << 18), 0);
        let at_ns = if self.times { frame.time_ns.saturating_sub(self.start_ns) } else { 0 };
        Sent { bytes: with_fcs(bytes), at_ns }
    }
}

/// What is sent.
pub enum Frames {
    /// A capture.
    Captured(Captured),
    /// Frames of several lengths, each length after the others have been received.
    Lengths(Vec<u16>),
    /// A mix.
    Mix(Vec<(u16, u32)>),
}

impl Frames {
    /// Returns the frames that the arguments request.
    ///
    /// # Errors
    /// If the capture is not usable.
    pub fn of(args: &Card) -> Result<Self> {
        if let Some(path) = &args.pcap {
            return Ok(Self::Captured(Captured::open(path, args.times)?));
        }
        Ok(match args.lengths {
            Some(lengths) => Self::Lengths((lengths.first..=lengths.last).step_by(args.step.into()).collect()),
            None => Self::Mix(args.mix.0.clone()),
        })
    }

    /// Returns the number of frames, if `packets` are generated of each load.
    pub fn count(&self, packets: u64) -> u64 {
        match self {
            Self::Captured(captured) => captured.frames,
            Self::Lengths(lengths) => lengths.len() as u64 * packets,
            Self::Mix(_) => packets,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_frames_have_valid_headers_and_all_lengths() {
        let mut generator = Generator::new(1, vec![(64, 1), (1518, 1)]);
        let mut lengths = std::collections::BTreeSet::new();
        for _ in 0..50 {
            let Sent { bytes, .. } = generator.frame();
            lengths.insert(bytes.len());
            let sum = bytes[14..34].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum::<u32>();
            assert_eq!(sum % 0xFFFF, 0);
            assert_eq!(usize::from(u16::from_be_bytes([bytes[16], bytes[17]])), bytes.len() - 18);
            assert_eq!(!crc32(&bytes), shotline_wire::crc::RESIDUE);
        }
        assert!(lengths.into_iter().eq([64, 1518]));
    }
}
