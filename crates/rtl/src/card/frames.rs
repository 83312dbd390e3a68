//! The MAC of a card with a distributor: frames at the rate of a wire, and the packets that must arrive of them.

use super::descriptors::Buffer;
use super::expected::{Expected, layout};
use super::memory::GUARD;
use super::source::{Source, Used};
use super::sys::{Inputs, MAC_CLOCKS, MacClock, Outputs};
use shotline_wire::crc::{RESIDUE, crc32};
use std::collections::{BTreeMap, VecDeque};

/// Bytes of a packet before its frame and the padding: length, flags, hash, time.
const HEADER: usize = 16;
/// Zero bytes before a padded frame.
const PAD: usize = 2;
/// Bytes of a frame's check sequence, which is not delivered.
const FCS: usize = 4;
/// Bytes before a frame on the wire, and the least gap after it.
const PREAMBLE: u64 = 8;
const GAP: u64 = 12;

/// Femtoseconds of a nanosecond.
pub(crate) const NS: u64 = 1_000_000;
/// Period of the module's clock of 200 MHz, in femtoseconds.
pub(crate) const CLOCK_FS: u64 = 5 * NS;
/// Period of the clock of a MAC of 100 Gbit/s, 322.27 MHz, in femtoseconds.
const MAC_CLOCK_FS: f64 = 102_400e6 / 33e3;
/// Maximum rate of a wire: more clocks of the MAC do not fit into one of the module.
pub const MAX_GBPS: f64 = 200.0;
/// Nanoseconds after which a frame that has not been found in memory was dropped.
const LOST_NS: u64 = 1_000_000;

/// A frame that was found in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Channel of the card.
    pub channel: usize,
    /// Time in the packet's header.
    pub time_ns: u64,
    /// The frame without FCS.
    pub frame: Vec<u8>,
}

/// A frame that is being sent.
#[derive(Debug)]
struct Current {
    /// When its preamble begins.
    start_fs: u64,
    /// Time of its first word.
    time_ns: u64,
    frame: Vec<u8>,
    sent: usize,
}

/// A MAC that receives frames at the rate of a wire, and marks those with a wrong FCS. A word of a frame comes with the first clock after its last byte.
///
/// The clock of the MAC is that of a 100G MAC, or faster in proportion to a faster wire.
#[derive(Debug)]
pub struct Frames {
    byte_fs: u64,
    mac_clock_fs: u64,
    /// Next edge of the clock of the MAC.
    next_fs: u64,
    /// When the wire is free after all queued frames.
    free_fs: u64,
    /// TAI time at 0.
    pub(crate) epoch_ns: u64,
    /// Frames with FCS, and when the preamble of each begins.
    queue: VecDeque<(u64, Vec<u8>)>,
    current: Option<Current>,
    /// Frames that were sent with a right FCS, by the time of their first word.
    flying: BTreeMap<u64, Vec<u8>>,
    /// Time of the newest packet of each channel.
    newest: Vec<u64>,
    /// Entries of the table of channels.
    pub(crate) entries: usize,
    /// Whether packets are padded.
    pub(crate) pad: bool,
    /// Frames that were found.
    pub(crate) found: Vec<Found>,
    /// Frames that were sent.
    pub(crate) sent: u64,
    words: u64,
}

impl Frames {
    /// Creates a MAC for a wire of this rate. Entry n of the table of channels is n modulo `channels`.
    pub(crate) fn new(gbps: f64, channels: usize) -> Self {
        Self {
            byte_fs: (8.0 * NS as f64 / gbps).round() as u64,
            mac_clock_fs: (MAC_CLOCK_FS / (gbps / 100.0).max(1.0)).round() as u64,
            next_fs: 0,
            free_fs: 0,
            epoch_ns: 0,
            queue: VecDeque::new(),
            current: None,
            flying: BTreeMap::new(),
            newest: vec![0; channels],
            entries: 0,
            pad: false,
            found: Vec::new(),
            sent: 0,
            words: 0,
        }
    }

    /// Queues a frame, which begins when the wire is free, but not before `from_fs`.
    pub(crate) fn push(&mut self, from_fs: u64, frame: Vec<u8>) {
        let start_fs = self.free_fs.max(from_fs);
        self.free_fs = start_fs + (frame.len() as u64 + PREAMBLE + GAP) * self.byte_fs;
        self.queue.push_back((start_fs, frame));
    }

    /// Returns when the wire is free after all queued frames, in femtoseconds.
    pub(crate) fn free_fs(&self) -> u64 {
        self.free_fs
    }

    /// Makes the next clock of the MAC.
    fn clock(&mut self) -> MacClock {
        let now = self.next_fs;
        self.next_fs += self.mac_clock_fs;
        let mut word = MacClock { time: self.epoch_ns + now / NS, ..MacClock::default() };
        if self.current.is_none() {
            let next = self.queue.pop_front();
            self.current = next.map(|(start_fs, frame)| Current { start_fs, time_ns: 0, frame, sent: 0 });
        }
        let Some(current) = &mut self.current else { return word };
        let end = (current.sent + 64).min(current.frame.len());
        if current.start_fs + (PREAMBLE + end as u64) * self.byte_fs > now {
            return word;
        }
        if current.sent == 0 {
            current.time_ns = word.time;
        }
        for (lane, bytes) in word.data.iter_mut().zip(current.frame[current.sent..end].chunks(8)) {
            let mut block = [0; 8];
            block[..bytes.len()].copy_from_slice(bytes);
            *lane = u64::from_le_bytes(block);
        }
        (word.valid, word.last) = (true, end == current.frame.len());
        word.bytes = (end - current.sent) as u8;
        current.sent = end;
        self.words += 1;
        if let Some(Current { time_ns, frame, .. }) =
            self.current.take_if(|current| current.sent == current.frame.len())
        {
            self.sent += 1;
            word.damaged = !crc32(&frame) != RESIDUE;
            if !word.damaged {
                self.flying.insert(time_ns, frame);
            }
            while self.flying.first_key_value().is_some_and(|(&first, _)| first + LOST_NS < time_ns) {
                self.flying.pop_first();
            }
        }
        word
    }

    /// Compares a packet with its frame.
    fn find(&mut self, channel: usize, packet: &[u8]) -> Result<(), String> {
        let number = |at: usize, size: usize| packet[at..at + size].iter().rev().fold(0, |n, &b| n << 8 | u64::from(b));
        let (hash, time_ns) = (number(4, 4), number(8, 8));
        let Some(mut frame) = self.flying.remove(&time_ns) else {
            return Err(format!("a packet with time {time_ns}, when no frame came, or one that was found before"));
        };
        frame.truncate(frame.len() - FCS);
        let padding = if self.pad { &[0; PAD][..] } else { &[] };
        if packet[HEADER..].strip_prefix(padding) != Some(&frame) {
            return Err(format!("a packet of {} bytes is not the frame of time {time_ns}", packet.len()));
        }
        let chosen = hash as usize % self.entries % self.newest.len();
        if chosen != channel || time_ns <= self.newest[channel] {
            let newest = self.newest[channel];
            return Err(format!("a packet of channel {chosen} with time {time_ns}, after one of {newest}"));
        }
        self.newest[channel] = time_ns;
        self.found.push(Found { channel, time_ns, frame });
        Ok(())
    }
}

impl Source for Frames {
    fn waiting(&self) -> usize {
        self.queue.len()
    }

    fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.current.is_none()
    }

    fn words(&self) -> u64 {
        self.words
    }

    fn drive(&mut self, clock: u64, inputs: &mut Inputs) {
        let mut clocks = 0;
        while self.next_fs < (clock + 1) * CLOCK_FS && clocks < MAC_CLOCKS {
            inputs.mac[clocks] = self.clock();
            clocks += 1;
        }
        inputs.mac_clocks = clocks as u8;
    }

    fn settle(&mut self, _: &Outputs) {}

    fn take(&mut self, expected: &mut Expected, used: &Used<'_>, count: usize) -> Result<(), String> {
        let mut buffers = &used.buffers[..count];
        while !buffers.is_empty() {
            let (packet, taken) = read(used, buffers)?;
            self.find(used.channel, &packet)?;
            expected.received.count(packet.len() as u16);
            buffers = &buffers[taken..];
        }
        Ok(())
    }
}

/// Reads the packet at the beginning of these buffers, as software does, and returns the number of those that it uses.
///
/// # Errors
/// If it is not whole, or if a byte after it was written.
fn read(used: &Used<'_>, buffers: &[Buffer]) -> Result<(Vec<u8>, usize), String> {
    let mut length = [0; 2];
    used.memory.read(buffers[0].address, &mut length);
    let length = usize::from(u16::from_le_bytes(length));
    let parts = layout(length, used.settings).collect::<Vec<_>>();
    if length <= HEADER || parts.len() > buffers.len() {
        return Err(format!("a packet of {length} bytes in {} buffers", buffers.len()));
    }
    let mut packet = Vec::with_capacity(length);
    for (&part, buffer) in parts.iter().zip(buffers) {
        let begin = packet.len();
        packet.resize(begin + buffer.length, 0);
        used.memory.read(buffer.address, &mut packet[begin..]);
        if packet.len() < begin + part || packet[begin + part..].iter().any(|&byte| byte != GUARD) {
            return Err(format!("a packet of {length} bytes, and other bytes in its buffers"));
        }
        packet.truncate(begin + part);
    }
    Ok((packet, parts.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends frames for some clocks of the module and returns the valid words with their number of the clock of the MAC.
    fn words(gbps: f64, lengths: &[usize], clocks: u64) -> Vec<(usize, MacClock)> {
        let mut frames = Frames::new(gbps, 1);
        lengths.iter().for_each(|&length| frames.push(0, vec![7; length]));
        let mut all = Vec::new();
        for clock in 0..clocks {
            let mut inputs = Inputs::default();
            frames.drive(clock, &mut inputs);
            all.extend(inputs.mac[..usize::from(inputs.mac_clocks)].iter().copied());
        }
        assert!(frames.is_empty());
        all.into_iter().enumerate().filter(|(_, word)| word.valid).collect()
    }

    #[test]
    fn words_come_at_the_rate_of_the_wire() {
        // 1000 frames of 64 bytes take 6.72 us.
        let found = words(100.0, &[64; 1000], 1400);
        let (first, last) = (found[0].1.time, found[999].1.time);
        assert_eq!((found.len(), found[0].0), (1000, 2));
        assert!((6709..6718).contains(&(last - first)), "{first} {last}");
        assert!(found.iter().all(|(_, word)| word.last && word.bytes == 64));
    }

    #[test]
    fn a_faster_wire_has_a_faster_clock() {
        let found = words(200.0, &[65; 100], 100);
        assert_eq!(found.len(), 200);
        let bytes = found.iter().map(|(_, word)| (word.bytes, word.last)).collect::<Vec<_>>();
        assert!(bytes.chunks(2).all(|pair| pair == [(64, false), (1, true)]));
    }
}
