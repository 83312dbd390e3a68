//! Broadcast messages and their frames (ECSS 5.3.8.4).

use shotline_wire::spacefibre::{BroadcastStatus, ControlWord, SequenceNumber, Word, crc};

/// Broadcast message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BroadcastMessage {
    /// Broadcast channel.
    pub channel: u8,
    /// Type of the message (B_TYPE).
    pub kind: u8,
    /// Contents.
    pub data: [u8; 8],
    /// Whether it was delayed on its way, or is late.
    pub status: BroadcastStatus,
}

impl BroadcastMessage {
    /// Number of bytes of a broadcast frame.
    pub const FRAME_LEN: usize = 16;

    /// Marks it as late: it could not be sent at once, or is sent again (ECSS 5.3.8.4j).
    pub(super) fn delay(&mut self) {
        self.status.late = true;
    }

    /// Returns the words of its frame.
    pub fn encode(&self, seq: SequenceNumber) -> [Word; 4] {
        let start = ControlWord::StartBroadcastFrame { channel: self.channel, kind: self.kind }.emit();
        let [a, b, c, d, e, f, g, h] = self.data;
        let data = [Word::data([a, b, c, d]), Word::data([e, f, g, h])];
        let end = |crc| ControlWord::EndBroadcastFrame { status: self.status, seq, crc }.emit();
        let crc = Self::crc([start, data[0], data[1], end(0)]);
        [start, data[0], data[1], end(crc)]
    }

    /// Decodes the words of a frame. Returns the message, its sequence number, and whether the CRC-8 matches; `None` if
    /// SBF or EBF is not at its place.
    pub fn decode(words: [Word; 4]) -> Option<(Self, SequenceNumber, bool)> {
        let (Ok(Some(start)), Ok(Some(end))) = (ControlWord::parse(words[0]), ControlWord::parse(words[3])) else {
            return None;
        };
        let ControlWord::StartBroadcastFrame { channel, kind } = start else { return None };
        let ControlWord::EndBroadcastFrame { status, seq, crc } = end else { return None };
        let mut data = [0; 8];
        data[..4].copy_from_slice(&words[1].characters);
        data[4..].copy_from_slice(&words[2].characters);
        Some((Self { channel, kind, data, status }, seq, crc == Self::crc(words)))
    }

    /// Returns the CRC-8 over all characters but the last (ECSS 5.7.6.5).
    fn crc(words: [Word; 4]) -> u8 {
        let state = words[..3].iter().fold(crc::CRC8_INIT, |state, word| crc::crc8_update(state, &word.characters));
        crc::crc8_update(state, &words[3].characters[..3])
    }
}
