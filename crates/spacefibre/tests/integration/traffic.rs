//! Packets of several virtual channels, sent by one end and checked at the other.

use shotline_random::SplitMix64;
use shotline_spacefibre::frames::{Sink, Source};
use shotline_spacefibre::link::BroadcastMessage;
use shotline_wire::spacefibre::datagram::PacketEnd;
use std::collections::VecDeque;

/// Packets to send, in order, for each virtual channel.
#[derive(Clone)]
pub struct Traffic {
    packets: Vec<VecDeque<Vec<u8>>>,
    /// Bytes of the first packet of each channel that were read.
    offsets: Vec<usize>,
    /// Packets that were lost by a link reset, for each channel.
    pub cut: u64,
    /// The packet that was read last.
    read: Vec<u8>,
}

/// Contents of packet `number` of a channel: its number, then random bytes.
fn packet(vc: u8, number: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len + 5];
    SplitMix64::new(u64::from(number) << 8 | u64::from(vc)).fill_bytes(&mut bytes[5..]);
    bytes[0] = vc;
    bytes[1..5].copy_from_slice(&number.to_be_bytes());
    bytes
}

impl Traffic {
    /// Creates `count` packets for each of `vcs` channels, of up to `max_len` random bytes.
    pub fn new(random: &mut SplitMix64, vcs: u8, count: u32, max_len: u64) -> Self {
        let channel = |vc, random: &mut SplitMix64| {
            (0..count).map(|number| packet(vc, number, random.below(max_len) as usize)).collect()
        };
        let packets: Vec<_> = (0..vcs).map(|vc| channel(vc, random)).collect();
        Self { offsets: vec![0; packets.len()], packets, cut: 0, read: Vec::new() }
    }
    pub fn is_done(&self) -> bool {
        self.packets.iter().all(VecDeque::is_empty)
    }
}

impl Source for Traffic {
    fn ready(&self) -> u32 {
        self.packets.iter().enumerate().map(|(vc, queue)| u32::from(!queue.is_empty()) << vc).sum()
    }
    fn read(&mut self, vc: u8, max: usize) -> (&[u8], Option<PacketEnd>) {
        let queue = &mut self.packets[usize::from(vc)];
        let offset = &mut self.offsets[usize::from(vc)];
        let start = *offset;
        if queue[0].len() - start < max {
            *offset = 0;
            self.read = queue.pop_front().unwrap_or_default();
            return (&self.read[start..], Some(PacketEnd::Eop));
        }
        *offset += max;
        (&queue[0][start..*offset], None)
    }
    fn on_reset(&mut self) {
        for (queue, offset) in self.packets.iter_mut().zip(&mut self.offsets) {
            if std::mem::take(offset) > 0 {
                queue.pop_front();
                self.cut += 1;
            }
        }
    }
}

/// Received packets. Every complete one is compared with what must have been sent.
#[derive(Clone, Default)]
pub struct Received {
    partial: Vec<Vec<u8>>,
    /// Number of the next packet of each channel, at least.
    next: Vec<u32>,
    /// Complete packets.
    pub packets: u64,
    complete: Vec<u64>,
    /// Packets that are missing because a link reset has cut them.
    pub missing: u64,
    pub broadcasts: Vec<BroadcastMessage>,
    /// Words that are not released, per channel, if the receiver is slow.
    pub held: Option<Vec<u32>>,
}

impl Received {
    pub fn new(vcs: u8) -> Self {
        Self {
            partial: vec![Vec::new(); vcs.into()],
            next: vec![0; vcs.into()],
            complete: vec![0; vcs.into()],
            ..Self::default()
        }
    }
}

impl Received {
    /// Expects packets from number 0 again.
    pub fn restart(&mut self) {
        self.next.fill(0);
    }
    /// Returns the number of complete packets of a channel.
    pub fn packets_of(&self, vc: u8) -> u64 {
        self.complete[usize::from(vc)]
    }
}

impl Sink for Received {
    fn write(&mut self, vc: u8, data: &[u8], end: Option<PacketEnd>) -> bool {
        let channel = usize::from(vc);
        self.partial[channel].extend_from_slice(data);
        if let Some(held) = &mut self.held {
            held[channel] += (data.len() / 4 + usize::from(end.is_some())) as u32;
        }
        if let Some(end) = end {
            assert_eq!(end, PacketEnd::Eop);
            let bytes = std::mem::take(&mut self.partial[channel]);
            let number = u32::from_be_bytes(bytes[1..5].try_into().unwrap());
            assert!(number >= self.next[channel], "channel {vc}: packet {number} after {}", self.next[channel]);
            assert_eq!(bytes, packet(vc, number, bytes.len() - 5), "channel {vc}, packet {number}");
            self.missing += u64::from(number - self.next[channel]);
            self.next[channel] = number + 1;
            self.packets += 1;
            self.complete[channel] += 1;
        }
        self.held.is_none()
    }
    fn broadcast(&mut self, message: &BroadcastMessage) {
        self.broadcasts.push(*message);
    }
    fn on_reset(&mut self) {
        self.partial.iter_mut().for_each(Vec::clear);
        if let Some(held) = &mut self.held {
            held.fill(0);
        }
    }
}

/// Packets to send on channel 0, or those that were received, with their ends; and the one that was read last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script(Vec<(Vec<u8>, PacketEnd)>, Vec<u8>);

impl Script {
    pub fn with_incomplete_packets() -> Self {
        let end = |len| if len % 3 == 0 { PacketEnd::Eop } else { PacketEnd::Eep };
        Self((0..20).map(|len| (vec![len; len.into()], end(len))).collect(), Vec::new())
    }
}

impl Source for Script {
    fn ready(&self) -> u32 {
        u32::from(!self.0.is_empty())
    }
    fn read(&mut self, _vc: u8, _max: usize) -> (&[u8], Option<PacketEnd>) {
        let (bytes, end) = self.0.remove(0);
        self.1 = bytes;
        (&self.1, Some(end))
    }
    fn on_reset(&mut self) {}
}

impl Sink for Script {
    fn write(&mut self, _vc: u8, data: &[u8], end: Option<PacketEnd>) -> bool {
        self.0.push((data.to_vec(), end.unwrap()));
        true
    }
    fn broadcast(&mut self, _message: &BroadcastMessage) {}
    fn on_reset(&mut self) {}
}
