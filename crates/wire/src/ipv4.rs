//! IPv4 headers (RFC 791).

use crate::{ParseError, bytes};

/// An IPv4 header of a packet that is not a fragment. Options are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Type of service: DSCP and ECN.
    pub tos: u8,
    /// Identification.
    pub id: u16,
    /// The DF flag: routers must not fragment the packet.
    pub dont_fragment: bool,
    /// Time to live in hops.
    pub ttl: u8,
    /// Protocol of the payload: 17 is UDP.
    pub protocol: u8,
    /// Sender's address.
    pub source: [u8; 4],
    /// Receiver's address.
    pub destination: [u8; 4],
    /// Bytes after the header.
    pub payload_len: u16,
}

impl Header {
    /// Length without options, in bytes.
    pub const LEN: usize = 20;
    /// Maximum length, with options, in bytes.
    pub const MAX_LEN: usize = 60;

    /// Parses a header, verifies its checksum, and returns it with its payload. Bytes after the payload (an Ethernet
    /// frame's padding) are dropped.
    ///
    /// # Errors
    /// If the header is malformed, its checksum is wrong, or the packet is truncated or a fragment.
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        const WHAT: &str = "IPv4 header";
        let mut fields = bytes::Fields::new(WHAT, packet);
        let first = fields.u8()?;
        if first >> 4 != 4 {
            return Err(ParseError::Value { what: "IP version", expected: 4, found: u64::from(first >> 4) });
        }
        let header_len = usize::from(first & 0xF) * 4;
        if header_len < Self::LEN {
            let found = header_len as u64;
            return Err(ParseError::Range { what: "IPv4 header length", min: 20, max: 60, found });
        }
        let Some((header, rest)) = packet.split_at_checked(header_len) else {
            return Err(ParseError::Truncated { what: WHAT, needed: header_len, found: packet.len() });
        };
        let tos = fields.u8()?;
        let total = usize::from(fields.u16()?);
        let id = fields.u16()?;
        let fragment = fields.u16()?;
        let ttl = fields.u8()?;
        let protocol = fields.u8()?;
        let sum = fields.u16()?;
        let source = fields.array()?;
        let destination = fields.array()?;

        let payload_len = total.checked_sub(header_len).ok_or(ParseError::Range {
            what: "IPv4 total length",
            min: header_len as u64,
            max: u64::from(u16::MAX),
            found: total as u64,
        })?;
        let payload = rest.get(..payload_len).ok_or(ParseError::Truncated {
            what: "IPv4 packet",
            needed: total,
            found: packet.len(),
        })?;
        // The sum over a header with the correct checksum is zero; otherwise it is the difference to the correct one.
        let difference = checksum(header);
        if difference != 0 {
            return Err(ParseError::Checksum { what: WHAT, expected: ones_add(sum, difference), found: sum });
        }
        let (more, offset) = (fragment & 0x2000 != 0, u32::from(fragment & 0x1FFF) * 8);
        if more || offset != 0 {
            return Err(ParseError::Fragment { offset, more });
        }
        let dont_fragment = fragment & 0x4000 != 0;
        let payload_len = payload_len as u16; // total was 16 bits
        Ok((Self { tos, id, dont_fragment, ttl, protocol, source, destination, payload_len }, payload))
    }

    /// Encodes the header without options, with its checksum.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let header = self.layout(0);
        self.layout(checksum(&header))
    }

    fn layout(&self, checksum: u16) -> [u8; Self::LEN] {
        bytes::Header::new()
            .u8(0x45)
            .u8(self.tos)
            .u16(self.payload_len.saturating_add(20))
            .u16(self.id)
            .u16(if self.dont_fragment { 0x4000 } else { 0 })
            .u8(self.ttl)
            .u8(self.protocol)
            .u16(checksum)
            .put(&self.source)
            .put(&self.destination)
            .done()
    }
}

/// Returns the Internet checksum of a header (RFC 1071): the complement of the ones' complement sum of its 16-bit
/// words. It is zero over a header that contains its own checksum.
pub fn checksum(header: &[u8]) -> u16 {
    let (words, odd) = header.as_chunks();
    let mut sum = words.iter().fold(0, |sum, word| ones_add(sum, u16::from_be_bytes(*word)));
    if let [last] = odd {
        sum = ones_add(sum, u16::from_be_bytes([*last, 0]));
    }
    !sum
}

/// Ones' complement addition, with end-around carry.
fn ones_add(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u16::from(carry) // after a carry the sum is at most 0xFFFE
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// From a Soft-RoCE capture, vector F of the RoCE tests.
    const HEADER: [u8; 20] =
        [0x45, 0, 0, 0x3c, 0xbe, 0x10, 0x40, 0, 0x40, 0x11, 0x8a, 0x4b, 0xc0, 0xa8, 0x38, 0x81, 0xc0, 0xa8, 0x38, 0x83];

    fn packet() -> [u8; 62] {
        let mut packet = [7; 62]; // two bytes more than its length field says
        packet[..20].copy_from_slice(&HEADER);
        packet
    }

    #[test]
    fn captured_header_round_trips() {
        let packet = packet();
        let (header, payload) = Header::parse(&packet).unwrap();
        assert_eq!((header.id, header.payload_len, payload), (0xbe10, 40, [7; 40].as_slice()));
        assert_eq!(header.emit(), HEADER);
    }

    #[test]
    fn checksum_error_has_expected_and_found() {
        let mut packet = packet();
        packet[10..12].copy_from_slice(&[0x12, 0x34]);
        let error = Header::parse(&packet).unwrap_err();
        assert_eq!(error, ParseError::Checksum { what: "IPv4 header", expected: 0x8a4b, found: 0x1234 });
    }

    #[test]
    fn fragments_have_their_own_error() {
        let mut packet = packet();
        packet[6..8].copy_from_slice(&[0x20, 0x03]);
        packet[10..12].copy_from_slice(&[0, 0]);
        let sum = checksum(&packet[..20]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(Header::parse(&packet).unwrap_err(), ParseError::Fragment { offset: 24, more: true });
    }

    proptest! {
        #[test]
        fn parse_inverts_emit(
            tos: u8, id: u16, dont_fragment: bool, ttl: u8, protocol: u8, source: [u8; 4], destination: [u8; 4],
        ) {
            let header = Header { tos, id, dont_fragment, ttl, protocol, source, destination, payload_len: 0 };
            let bytes = header.emit();
            prop_assert_eq!(Header::parse(&bytes), Ok((header, [].as_slice())));
        }

        #[test]
        fn parse_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Header::parse(&bytes);
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() { *first = *first & 0xF | 0x40; }
            let _ = Header::parse(&bytes);
        }
    }
}
