//! IPv6 headers (RFC 8200). InfiniBand's Global Route Header (IBTA volume 1, clause 8.3) has the same layout.

use crate::{ParseError, bytes};

/// Next-header number of a fragment header.
const FRAGMENT: u8 = 44;

/// An IPv6 header. Extension headers are part of the payload, except that fragments are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Bytes after the header.
    pub payload_len: u16,
    /// Protocol of the payload: 17 is UDP, 0x1B an InfiniBand transport packet (RoCEv1).
    pub next_header: u8,
    /// Hop limit: remaining hops.
    pub hop_limit: u8,
    /// Sender's address.
    pub source: [u8; 16],
    /// Receiver's address.
    pub destination: [u8; 16],
}

impl Header {
    /// Length of the header, in bytes.
    pub const LEN: usize = 40;

    /// Parses a header and returns it with its payload. Bytes after the payload are dropped.
    ///
    /// # Errors
    /// If the packet is shorter than [`Self::LEN`] or than its length field, the version is not 6, or it is a fragment.
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let mut fields = bytes::Fields::new("IPv6 header", packet);
        let first = fields.u32()?;
        if first >> 28 != 6 {
            return Err(ParseError::Value { what: "IP version", expected: 6, found: u64::from(first >> 28) });
        }
        let header = Self {
            traffic_class: (first >> 20) as u8,
            flow_label: first & 0xF_FFFF,
            payload_len: fields.u16()?,
            next_header: fields.u8()?,
            hop_limit: fields.u8()?,
            source: fields.array()?,
            destination: fields.array()?,
        };
        let payload = fields.rest().get(..usize::from(header.payload_len)).ok_or(ParseError::Truncated {
            what: "IPv6 packet",
            needed: Self::LEN + usize::from(header.payload_len),
            found: packet.len(),
        })?;
        if header.next_header == FRAGMENT {
            let mut fragment = bytes::Fields::new("IPv6 fragment header", payload);
            let _next_header_and_reserved = fragment.u16()?;
            let word = fragment.u16()?;
            return Err(ParseError::Fragment { offset: u32::from(word & 0xFFF8), more: word & 1 == 1 });
        }
        Ok((header, payload))
    }

    /// Encodes the header.
    pub fn emit(&self) -> [u8; Self::LEN] {
        bytes::Header::new()
            .u32(6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xF_FFFF)
            .u16(self.payload_len)
            .u8(self.next_header)
            .u8(self.hop_limit)
            .put(&self.source)
            .put(&self.destination)
            .done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fragments_have_their_own_error() {
        let header = Header {
            traffic_class: 0,
            flow_label: 0,
            payload_len: 8,
            next_header: FRAGMENT,
            hop_limit: 64,
            source: [0; 16],
            destination: [0; 16],
        };
        let mut packet = [0; 48];
        packet[..40].copy_from_slice(&header.emit());
        packet[40..].copy_from_slice(&[17, 0, 0x05, 0xA9, 0, 0, 0, 1]);
        assert_eq!(Header::parse(&packet), Err(ParseError::Fragment { offset: 1448, more: true }));
    }

    proptest! {
        #[test]
        fn parse_inverts_emit(
            traffic_class: u8, flow_label in 0_u32..1 << 20, next_header: u8, hop_limit: u8,
            source: [u8; 16], destination: [u8; 16],
        ) {
            prop_assume!(next_header != FRAGMENT);
            let header =
                Header { traffic_class, flow_label, payload_len: 0, next_header, hop_limit, source, destination };
            let bytes = header.emit();
            prop_assert_eq!(Header::parse(&bytes), Ok((header, [].as_slice())));
        }

        #[test]
        fn parse_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Header::parse(&bytes);
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() { *first = *first & 0xF | 0x60; }
            let _ = Header::parse(&bytes);
        }
    }
}
