//! Base Transport Header (IBTA volume 1, clause 9.2) and its opcodes.
//!
//! | byte | bits | field |
//! |---|---|---|
//! | 0 | | opcode |
//! | 1 | 7, 6, 5:4, 3:0 | solicited event, migrated, pad count, version (0) |
//! | 2 | | partition key |
//! | 4 | 7, 6, 5:0 | FECN, BECN, reserved: not covered by the ICRC |
//! | 5 | | destination queue pair |
//! | 8 | 7, 6:0 | acknowledge request, reserved |
//! | 9 | | packet sequence number |

use crate::{ParseError, bytes};
use Extension::{Aeth, AtomicAckEth, AtomicEth, Deth, Feth, Ieth, Imm, Reth};

/// Default partition key, present in every partition table: full member of the default partition.
pub const DEFAULT_P_KEY: u16 = 0xFFFF;

/// A Base Transport Header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bth {
    /// Operation, which also determines the extension headers that follow.
    pub opcode: Opcode,
    /// Solicited event: the receiver's completion may raise a completion event.
    pub solicited: bool,
    /// Path migration state; Linux always sends 1 (migrated).
    pub migrated: bool,
    /// Bytes that pad the payload to a multiple of 4, 0 to 3.
    pub pad: u8,
    /// Partition key; bit 15 is full membership.
    pub p_key: u16,
    /// Forward explicit congestion notification.
    pub fecn: bool,
    /// Backward explicit congestion notification.
    pub becn: bool,
    /// Destination queue pair number, 24 bits.
    pub dest_qp: u32,
    /// Acknowledge request: the responder must schedule an acknowledgement.
    pub ack_request: bool,
    /// Packet sequence number, 24 bits.
    pub psn: u32,
}

impl Bth {
    /// Length of the header, in bytes.
    pub const LEN: usize = 12;

    /// Returns a header as Linux sends it: migrated, default partition, no flags, no padding.
    pub fn new(opcode: Opcode, dest_qp: u32, psn: u32) -> Self {
        Self {
            opcode,
            solicited: false,
            migrated: true,
            pad: 0,
            p_key: DEFAULT_P_KEY,
            fecn: false,
            becn: false,
            dest_qp,
            ack_request: false,
            psn,
        }
    }

    /// Parses a header and returns it with the remaining bytes. Reserved bits are ignored: some senders leave byte 4
    /// as 0xFF, which is the value it has in the ICRC.
    ///
    /// # Errors
    /// If the packet is shorter than [`Self::LEN`], the opcode is not defined, or the version is not 0.
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let mut fields = bytes::Fields::new("BTH", packet);
        let opcode = fields.u8()?;
        let flags = fields.u8()?;
        let p_key = fields.u16()?;
        let congestion = fields.u8()?;
        let dest_qp = fields.u24()?;
        let ack = fields.u8()?;
        let psn = fields.u24()?;
        let opcode =
            Opcode::from_u8(opcode).ok_or(ParseError::Unknown { what: "BTH opcode", found: u64::from(opcode) })?;
        let version = u64::from(flags & 0xF);
        if version != 0 {
            return Err(ParseError::Value { what: "BTH version", expected: 0, found: version });
        }
        let header = Self {
            opcode,
            solicited: flags & 0x80 != 0,
            migrated: flags & 0x40 != 0,
            pad: flags >> 4 & 3,
            p_key,
            fecn: congestion & 0x80 != 0,
            becn: congestion & 0x40 != 0,
            dest_qp,
            ack_request: ack & 0x80 != 0,
            psn,
        };
        Ok((header, fields.rest()))
    }

    /// Encodes the header.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let bit = |flag: bool, at: u8| u8::from(flag) << at;
        bytes::Header::new()
            .u8(self.opcode as u8)
            .u8(bit(self.solicited, 7) | bit(self.migrated, 6) | (self.pad & 3) << 4)
            .u16(self.p_key)
            .u8(bit(self.fecn, 7) | bit(self.becn, 6))
            .u24(self.dest_qp)
            .u8(bit(self.ack_request, 7))
            .u24(self.psn)
            .done()
    }
}

/// An extension header that follows the BTH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extension {
    /// Datagram header: Q_Key and source queue pair ([`crate::deth`]).
    Deth,
    /// RDMA header: address, key, length ([`crate::reth`]).
    Reth,
    /// Atomic operation ([`crate::atomic::AtomicEth`]).
    AtomicEth,
    /// Acknowledgement ([`crate::aeth`]).
    Aeth,
    /// Original value of an atomic operation ([`crate::atomic::AtomicAckEth`]).
    AtomicAckEth,
    /// Immediate data ([`crate::imm::ImmDt`]).
    Imm,
    /// Key to invalidate ([`crate::imm::Ieth`]).
    Ieth,
    /// Flush type and selection ([`crate::imm::Feth`]).
    Feth,
}

impl Extension {
    /// Returns the length of the header in bytes.
    pub const fn header_len(self) -> usize {
        match self {
            Deth | AtomicAckEth => 8,
            Reth => 16,
            AtomicEth => 28,
            Aeth | Imm | Ieth | Feth => 4,
        }
    }
}

/// Defines the opcodes from a table: doc comment, name, value and extension headers in wire order.
macro_rules! opcodes {
    ($($(#[$doc:meta])+ $name:ident = $value:literal [$($extension:ident),*];)+) => {
        /// Opcode of a packet. Bits 7:5 are the transport service, 4:0 the operation (IBTA volume 1,
        /// clause 9.2.1; Linux `include/rdma/ib_pack.h`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Opcode {
            $($(#[$doc])+ $name = $value,)+
        }

        impl Opcode {
            /// All opcodes, in ascending order.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// Returns the opcode with this value, if it is defined.
            pub const fn from_u8(value: u8) -> Option<Self> {
                match value {
                    $($value => Some(Self::$name),)+
                    _ => None,
                }
            }

            /// Returns the headers between BTH and payload, in wire order.
            pub const fn extensions(self) -> &'static [Extension] {
                match self {
                    $(Self::$name => &[$($extension),*],)+
                }
            }
        }
    };
}

opcodes! {
    /// Reliable connection: first packet of a SEND.
    RcSendFirst = 0x00 [];
    /// Reliable connection: a packet within a SEND.
    RcSendMiddle = 0x01 [];
    /// Reliable connection: last packet of a SEND.
    RcSendLast = 0x02 [];
    /// Reliable connection: last packet of a SEND with immediate data.
    RcSendLastImm = 0x03 [Imm];
    /// Reliable connection: a SEND of one packet.
    RcSendOnly = 0x04 [];
    /// Reliable connection: a SEND of one packet with immediate data.
    RcSendOnlyImm = 0x05 [Imm];
    /// Reliable connection: first packet of an RDMA WRITE.
    RcWriteFirst = 0x06 [Reth];
    /// Reliable connection: a packet within an RDMA WRITE.
    RcWriteMiddle = 0x07 [];
    /// Reliable connection: last packet of an RDMA WRITE.
    RcWriteLast = 0x08 [];
    /// Reliable connection: last packet of an RDMA WRITE with immediate data.
    RcWriteLastImm = 0x09 [Imm];
    /// Reliable connection: an RDMA WRITE of one packet.
    RcWriteOnly = 0x0A [Reth];
    /// Reliable connection: an RDMA WRITE of one packet with immediate data.
    RcWriteOnlyImm = 0x0B [Reth, Imm];
    /// Reliable connection: request of an RDMA READ.
    RcReadRequest = 0x0C [Reth];
    /// Reliable connection: first packet of the response to an RDMA READ.
    RcReadResponseFirst = 0x0D [Aeth];
    /// Reliable connection: a packet within the response to an RDMA READ.
    RcReadResponseMiddle = 0x0E [];
    /// Reliable connection: last packet of the response to an RDMA READ.
    RcReadResponseLast = 0x0F [Aeth];
    /// Reliable connection: a response of one packet to an RDMA READ.
    RcReadResponseOnly = 0x10 [Aeth];
    /// Reliable connection: acknowledgement, positive or negative.
    RcAcknowledge = 0x11 [Aeth];
    /// Reliable connection: response to an atomic operation.
    RcAtomicAcknowledge = 0x12 [Aeth, AtomicAckEth];
    /// Reliable connection: compare and swap.
    RcCompareSwap = 0x13 [AtomicEth];
    /// Reliable connection: fetch and add.
    RcFetchAdd = 0x14 [AtomicEth];
    /// Reliable connection: last packet of a SEND that invalidates a key.
    RcSendLastInvalidate = 0x16 [Ieth];
    /// Reliable connection: a SEND of one packet that invalidates a key.
    RcSendOnlyInvalidate = 0x17 [Ieth];
    /// Reliable connection: flush written memory to visibility or persistence.
    RcFlush = 0x1C [Feth, Reth];
    /// Reliable connection: write eight bytes atomically.
    RcAtomicWrite = 0x1D [Reth];
    /// Unreliable connection: first packet of a SEND.
    UcSendFirst = 0x20 [];
    /// Unreliable connection: a packet within a SEND.
    UcSendMiddle = 0x21 [];
    /// Unreliable connection: last packet of a SEND.
    UcSendLast = 0x22 [];
    /// Unreliable connection: last packet of a SEND with immediate data.
    UcSendLastImm = 0x23 [Imm];
    /// Unreliable connection: a SEND of one packet.
    UcSendOnly = 0x24 [];
    /// Unreliable connection: a SEND of one packet with immediate data.
    UcSendOnlyImm = 0x25 [Imm];
    /// Unreliable connection: first packet of an RDMA WRITE.
    UcWriteFirst = 0x26 [Reth];
    /// Unreliable connection: a packet within an RDMA WRITE.
    UcWriteMiddle = 0x27 [];
    /// Unreliable connection: last packet of an RDMA WRITE.
    UcWriteLast = 0x28 [];
    /// Unreliable connection: last packet of an RDMA WRITE with immediate data.
    UcWriteLastImm = 0x29 [Imm];
    /// Unreliable connection: an RDMA WRITE of one packet.
    UcWriteOnly = 0x2A [Reth];
    /// Unreliable connection: an RDMA WRITE of one packet with immediate data.
    UcWriteOnlyImm = 0x2B [Reth, Imm];
    /// Unreliable datagram: a SEND, always of one packet.
    UdSendOnly = 0x64 [Deth];
    /// Unreliable datagram: a SEND with immediate data.
    UdSendOnlyImm = 0x65 [Deth, Imm];
    /// Congestion notification packet (IBTA annex A17, clause 17.9.3): 16 reserved bytes follow as payload.
    CongestionNotification = 0x81 [];
}

/// Transport service of an opcode: the type of queue pair that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// RC: acknowledged, in order, one peer.
    ReliableConnection,
    /// UC: not acknowledged, in order, one peer.
    UnreliableConnection,
    /// UD: messages of one packet, any peer.
    UnreliableDatagram,
    /// Congestion notification: handled by the sender's rate limiter, not delivered to the application.
    CongestionNotification,
}

impl Opcode {
    /// Returns the transport service of this opcode.
    pub const fn service(self) -> Service {
        match self as u8 >> 5 {
            0 => Service::ReliableConnection,
            1 => Service::UnreliableConnection,
            3 => Service::UnreliableDatagram,
            _ => Service::CongestionNotification,
        }
    }

    /// Returns `true` for a packet of a one-sided operation: RC or UC, and neither a SEND nor a plain acknowledgement.
    pub const fn is_one_sided(self) -> bool {
        let connected = matches!(self.service(), Service::ReliableConnection | Service::UnreliableConnection);
        connected && !matches!(self as u8 & 0x1F, 0x00..=0x05 | 0x11 | 0x16 | 0x17)
    }

    /// Returns the length of all headers in bytes, from the BTH to the payload.
    pub const fn header_len(self) -> usize {
        let mut len = Bth::LEN;
        let mut rest = self.extensions();
        while let [extension, after @ ..] = rest {
            len += extension.header_len();
            rest = after;
        }
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn opcodes_and_numbers_agree() {
        for value in 0..=u8::MAX {
            assert!(Opcode::from_u8(value).is_none_or(|opcode| opcode as u8 == value));
        }
        assert_eq!((0..=u8::MAX).filter_map(Opcode::from_u8).count(), Opcode::ALL.len());
        assert_eq!(Opcode::from_u8(0x15), None, "reserved");
        assert_eq!(Opcode::from_u8(0x44), None, "reliable datagrams are not supported");
    }

    #[test]
    fn header_lengths_match_the_specification() {
        assert_eq!(Opcode::UdSendOnly.header_len(), 20);
        assert_eq!(Opcode::UdSendOnlyImm.header_len(), 24);
        assert_eq!(Opcode::RcCompareSwap.header_len(), 40);
        assert_eq!(Opcode::UcWriteOnlyImm.header_len(), 32);
        assert!(Opcode::ALL.iter().all(|opcode| opcode.header_len() <= 40));
    }

    #[test]
    fn services_follow_the_top_bits() {
        assert_eq!(Opcode::RcAtomicWrite.service(), Service::ReliableConnection);
        assert_eq!(Opcode::UcWriteOnly.service(), Service::UnreliableConnection);
        assert_eq!(Opcode::UdSendOnly.service(), Service::UnreliableDatagram);
        assert_eq!(Opcode::CongestionNotification.service(), Service::CongestionNotification);
    }

    #[test]
    fn sends_acknowledgements_and_datagrams_are_not_one_sided() {
        use Opcode::*;
        let two_sided = [RcSendOnly, RcSendFirst, RcSendLastInvalidate, UcSendOnlyImm, RcAcknowledge, UdSendOnly];
        assert!(two_sided.iter().all(|opcode| !opcode.is_one_sided()) && !CongestionNotification.is_one_sided());
        let one_sided =
            [RcWriteFirst, UcWriteOnlyImm, RcReadRequest, RcReadResponseOnly, RcAtomicAcknowledge, RcFetchAdd];
        assert!(one_sided.iter().all(|opcode| opcode.is_one_sided()));
    }

    #[test]
    fn reserved_bits_are_ignored_and_the_version_is_checked() {
        let mut bytes = Bth::new(Opcode::UcWriteOnly, 2, 3).emit();
        bytes[4] = 0xFF;
        let (bth, _) = Bth::parse(&bytes).unwrap();
        assert!(bth.fecn && bth.becn);
        bytes[1] |= 1;
        let error = Bth::parse(&bytes).unwrap_err();
        assert_eq!(error, ParseError::Value { what: "BTH version", expected: 0, found: 1 });
    }

    proptest! {
        #[test]
        fn parse_inverts_emit(
            opcode in prop::sample::select(Opcode::ALL), flags: [bool; 5], pad in 0_u8..4, p_key: u16,
            dest_qp in 0_u32..1 << 24, psn in 0_u32..1 << 24,
        ) {
            let [solicited, migrated, fecn, becn, ack_request] = flags;
            let bth = Bth { opcode, solicited, migrated, pad, p_key, fecn, becn, dest_qp, ack_request, psn };
            let bytes = bth.emit();
            prop_assert_eq!(Bth::parse(&bytes), Ok((bth, [].as_slice())));
        }
    }
}
