//! Card: words, the stream into the PCIe block, and TLPs other than packets.

use super::CARD_EXTRA_BYTES;
use super::link::{Link, Tlp};

/// Words of a card. Packets are packed in blocks of 8 bytes: a packet begins at any block of a word.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Card {
    /// Clock in Hz.
    pub clock_hz: f64,
    /// Blocks of 8 bytes in a word, at least 1.
    pub word_blocks: u32,
}

impl Default for Card {
    /// Returns words of 512 bits at 200 MHz (Kubálek, section 7).
    fn default() -> Self {
        Self { clock_hz: 200e6, word_blocks: 8 }
    }
}

impl Card {
    /// Returns the blocks of 8 bytes of a packet of `length` bytes with FCS.
    pub fn blocks(&self, length: u32) -> u32 {
        (length + CARD_EXTRA_BYTES).div_ceil(8)
    }

    /// Returns the packets per second that the words permit.
    pub fn packets_hz(&self, length: u32) -> f64 {
        self.clock_hz * f64::from(self.word_blocks) / f64::from(self.blocks(length))
    }
}

/// Requester stream of the UltraScale+ PCIe block (AMD PG213, requester request interface, 512 bits): a TLP is a
/// descriptor of 16 bytes and its payload in dwords.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Requester {
    /// Clock in Hz.
    pub clock_hz: f64,
    /// Whether a TLP may also begin at byte 32 of a beat, not only at byte 0.
    pub straddle: bool,
}

/// Descriptor of a TLP on the requester stream, in bytes (AMD PG213).
const DESCRIPTOR_BYTES: u32 = 16;

impl Default for Requester {
    /// Returns 250 MHz with straddle.
    fn default() -> Self {
        Self { clock_hz: 250e6, straddle: true }
    }
}

impl Requester {
    /// Returns the half beats of 32 bytes that a TLP takes. Without straddle the number is even.
    pub fn half_beats(&self, tlp: Tlp) -> u32 {
        let halves = (DESCRIPTOR_BYTES + tlp.payload_bytes()).div_ceil(32);
        if self.straddle { halves } else { halves.next_multiple_of(2) }
    }
}

/// Length of the writes of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    /// One write, or as few as the maximum payload permits.
    #[default]
    Packet,
    /// A write for every 64 bytes.
    Words,
    /// One write for the first bytes, at most this many, and the others as [`Packet`](Self::Packet).
    Split(u32),
}

impl Writes {
    /// Returns the writes of a packet of `length` bytes with FCS: number and payload in bytes. The numbers may be 0.
    pub(super) fn of(self, link: &Link, length: u32) -> [(u32, u32); 3] {
        let bytes = length + CARD_EXTRA_BYTES;
        let header = if let Self::Split(header) = self { header.min(bytes) } else { 0 };
        let payload = if self == Self::Words { 64 } else { link.max_payload.max(4) };
        let rest = bytes - header;
        let (full, last) = (rest / payload, rest % payload);
        [(u32::from(header > 0), header), (full, payload), (u32::from(last > 0), last)]
    }
}

/// Descriptors of 16 bytes in a read of 256 bytes.
const READ_DESCRIPTORS: u32 = 256 / 16;
/// Bytes of a report.
pub(super) const REPORT_BYTES: u32 = 8;

/// TLPs in addition to packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Packets for each read of descriptors; a read of 256 bytes has 16 descriptors of 16 bytes.
    pub packets_per_read: u32,
    /// Packets for each report, a write of 8 bytes that tells the host how far the card is.
    pub packets_per_report: u32,
}

impl Load {
    /// Returns a read and a report for every 16 descriptors of packets that use two: header and rest.
    pub fn of_pairs() -> Self {
        Self { packets_per_read: READ_DESCRIPTORS / 2, packets_per_report: READ_DESCRIPTORS / 2 }
    }
}

impl Default for Load {
    /// Returns a read and a report for every 16 packets.
    fn default() -> Self {
        Self { packets_per_read: READ_DESCRIPTORS, packets_per_report: READ_DESCRIPTORS }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_straddled_tlp_takes_half_beats() {
        let straddled = Requester::default();
        let aligned = Requester { straddle: false, ..straddled };
        // 16 + 80 bytes are three halves, 16 + 84 are four.
        assert_eq!(straddled.half_beats(Tlp::Write(80)), 3);
        assert_eq!(straddled.half_beats(Tlp::Write(81)), 4);
        assert_eq!(aligned.half_beats(Tlp::Write(80)), 4);
        assert_eq!(aligned.half_beats(Tlp::Read), 2);
    }

    #[test]
    fn a_packet_is_cut_at_header_payload_or_words() {
        let link = Link::default();
        assert_eq!(Writes::Packet.of(&link, 64), [(0, 0), (0, 256), (1, 76)]);
        assert_eq!(Writes::Packet.of(&link, 244), [(0, 0), (1, 256), (0, 0)]);
        assert_eq!(Writes::Words.of(&link, 117), [(0, 0), (2, 64), (1, 1)]);
        assert_eq!(Writes::Split(64).of(&link, 64), [(1, 64), (0, 256), (1, 12)]);
        assert_eq!(Writes::Split(128).of(&link, 64), [(1, 76), (0, 256), (0, 0)]);
    }
}
