//! What the ends of SpaceFibre links send and receive in the fuzz targets.

use shotline_spacefibre::frames::{Sink, Source};
use shotline_spacefibre::link::BroadcastMessage;
use shotline_wire::spacefibre::datagram::{PacketEnd, Record};

/// Number of virtual channels.
pub const VCS: u8 = 2;

/// Characters of the packets of each channel.
const PACKETS: [[u8; 100]; VCS as usize] = [[0; 100], [1; 100]];

/// Packets of 100 characters on each channel, as many as asked for; none if `left` is 0.
#[derive(Clone, Default)]
pub struct Packets {
    /// Packets that are not read yet.
    pub left: u32,
}

impl Source for Packets {
    fn ready(&self) -> u32 {
        if self.left > 0 { (1 << VCS) - 1 } else { 0 }
    }
    fn read(&mut self, vc: u8, max: usize) -> (&[u8], Option<PacketEnd>) {
        self.left -= 1;
        (&PACKETS[usize::from(vc)][..100.min(max - 1)], Some(PacketEnd::Eop))
    }
    fn on_reset(&mut self) {}
}

/// Counts of what arrives. Nothing is released at once.
#[derive(Clone, Default)]
pub struct Counts {
    /// Data words.
    pub words: u64,
    /// Broadcast messages.
    pub broadcasts: u64,
    /// Link resets.
    pub resets: u64,
    /// Words of each channel that are not released.
    pub held: [u32; VCS as usize],
}

impl Sink for Counts {
    fn write(&mut self, vc: u8, data: &[u8], end: Option<PacketEnd>) -> bool {
        let words = Record::data_words(data.len() as u16, end);
        self.words += u64::from(words);
        self.held[usize::from(vc)] += words;
        false
    }
    fn broadcast(&mut self, _message: &BroadcastMessage) {
        self.broadcasts += 1;
    }
    fn on_reset(&mut self) {
        (self.resets, self.held) = (self.resets + 1, [0; VCS as usize]);
    }
}
