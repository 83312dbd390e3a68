//! UDP headers (RFC 768).

use crate::{ParseError, bytes};

/// UDP destination port of RoCEv2, assigned by IANA.
pub const ROCE_PORT: u16 = 4791;
/// IP protocol (IPv6 next-header) number of UDP.
pub const PROTOCOL: u8 = 17;

/// A UDP header. Its checksum is not verified: RoCEv2 sends 0 (none) and has the ICRC instead, and the kernel
/// verifies it for all other datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Sender's port. For RoCEv2 it is the flow's entropy for ECMP, usually 0xC000 and up.
    pub source: u16,
    /// Receiver's port.
    pub destination: u16,
    /// Bytes after the header, the ICRC of RoCEv2 included.
    pub payload_len: u16,
    /// Checksum as on the wire; 0 is none.
    pub checksum: u16,
}

impl Header {
    /// Length of the header, in bytes.
    pub const LEN: usize = 8;

    /// Parses a header and returns it with its payload. Bytes after the payload are dropped.
    ///
    /// # Errors
    /// If the packet is shorter than a header or than its length field, or that field is below 8.
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let mut fields = bytes::Fields::new("UDP header", packet);
        let source = fields.u16()?;
        let destination = fields.u16()?;
        let total = fields.u16()?;
        let checksum = fields.u16()?;
        let payload_len = total.checked_sub(Self::LEN as u16).ok_or(ParseError::Range {
            what: "UDP length",
            min: Self::LEN as u64,
            max: u64::from(u16::MAX),
            found: u64::from(total),
        })?;
        let payload = fields.rest().get(..usize::from(payload_len)).ok_or(ParseError::Truncated {
            what: "UDP datagram",
            needed: usize::from(total),
            found: packet.len(),
        })?;
        Ok((Self { source, destination, payload_len, checksum }, payload))
    }

    /// Encodes the header.
    pub fn emit(&self) -> [u8; Self::LEN] {
        bytes::Header::new()
            .u16(self.source)
            .u16(self.destination)
            .u16(self.payload_len.saturating_add(Self::LEN as u16))
            .u16(self.checksum)
            .done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn payload_is_returned_without_the_padding_after_it() {
        let mut packet = [0xC1, 0x23, 0x12, 0xB7, 0, 13, 0, 0, b'h', b'e', b'l', b'l', b'o', 0, 0, 0];
        let header = Header { source: 0xC123, destination: ROCE_PORT, payload_len: 5, checksum: 0 };
        assert_eq!(Header::parse(&packet), Ok((header, b"hello".as_slice())));
        assert_eq!(header.emit(), packet[..8]);
        packet[5] = 17;
        let error = ParseError::Truncated { what: "UDP datagram", needed: 17, found: 16 };
        assert_eq!(Header::parse(&packet), Err(error));
    }

    #[test]
    fn a_length_below_the_header_is_refused() {
        let error = Header::parse(&[0, 1, 0, 2, 0, 7, 0, 0]).unwrap_err();
        assert_eq!(error, ParseError::Range { what: "UDP length", min: 8, max: 65535, found: 7 });
    }

    proptest! {
        #[test]
        fn parse_inverts_emit(source: u16, destination: u16, checksum: u16) {
            let header = Header { source, destination, payload_len: 0, checksum };
            let bytes = header.emit();
            prop_assert_eq!(Header::parse(&bytes), Ok((header, [].as_slice())));
        }

        #[test]
        fn parse_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = Header::parse(&bytes);
        }
    }
}
