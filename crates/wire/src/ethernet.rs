//! Ethernet II frames (IEEE 802.3), with or without a VLAN tag (IEEE 802.1Q).

use crate::{ParseError, bytes};
use arrayvec::ArrayVec;

/// EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const IPV6: u16 = 0x86DD;
/// EtherType of RoCEv1: a GRH and an InfiniBand packet follow.
pub const ROCE_V1: u16 = 0x8915;
/// EtherType of an 802.1Q VLAN tag.
pub const VLAN: u16 = 0x8100;
/// EtherType of an 802.1ad service tag, the outer one of two.
pub const SERVICE_VLAN: u16 = 0x88A8;

/// An Ethernet header. The frame check sequence is handled by the MAC and is not part of the parsed frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Receiver's address.
    pub destination: [u8; 6],
    /// Sender's address.
    pub source: [u8; 6],
    /// Tag control information (priority, drop eligibility, VLAN number) of the innermost tag.
    pub vlan: Option<u16>,
    /// Protocol of the payload.
    pub ether_type: u16,
}

impl Header {
    /// Length without a tag, in bytes.
    pub const LEN: usize = 14;
    /// Maximum length, with two tags, in bytes.
    pub const MAX_LEN: usize = Self::LEN + 8;

    /// Parses a header with up to two tags and returns it with the frame's payload, padding included. Of two tags
    /// only the inner one is kept.
    ///
    /// # Errors
    /// If the frame is shorter than its header.
    pub fn parse(frame: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let mut fields = bytes::Fields::new("Ethernet header", frame);
        let destination = fields.array()?;
        let source = fields.array()?;
        let mut vlan = None;
        let mut ether_type = fields.u16()?;
        if ether_type == SERVICE_VLAN {
            vlan = Some(fields.u16()?);
            ether_type = fields.u16()?;
        }
        if ether_type == VLAN {
            vlan = Some(fields.u16()?);
            ether_type = fields.u16()?;
        }
        Ok((Self { destination, source, vlan, ether_type }, fields.rest()))
    }

    /// Encodes the header: 14 bytes, or 18 with a tag.
    pub fn emit(&self) -> ArrayVec<u8, { Self::MAX_LEN }> {
        let mut out = ArrayVec::new();
        out.extend(self.destination);
        out.extend(self.source);
        if let Some(tag) = self.vlan {
            out.extend(VLAN.to_be_bytes());
            out.extend(tag.to_be_bytes());
        }
        out.extend(self.ether_type.to_be_bytes());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn vlan_tag_is_parsed() {
        let frame = [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 0x81, 0, 0x60, 5, 8, 0, 0x45];
        let (header, rest) = Header::parse(&frame).unwrap();
        assert_eq!((header.vlan, header.ether_type, rest), (Some(0x6005), IPV4, [0x45].as_slice()));
    }

    #[test]
    fn truncated_tag_is_refused() {
        let frame = [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 0x81, 0, 0x60];
        assert_eq!(
            Header::parse(&frame),
            Err(ParseError::Truncated { what: "Ethernet header", needed: 16, found: 15 })
        );
    }

    proptest! {
        #[test]
        fn parse_inverts_emit(destination: [u8; 6], source: [u8; 6], vlan: Option<u16>, ether_type: u16) {
            prop_assume!(ether_type != VLAN && ether_type != SERVICE_VLAN);
            let header = Header { destination, source, vlan, ether_type };
            let bytes = header.emit();
            prop_assert_eq!(Header::parse(&bytes), Ok((header, [].as_slice())));
        }
    }
}
