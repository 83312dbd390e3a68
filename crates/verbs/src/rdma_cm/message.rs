//! Encoding of management datagrams of class "communication management" (IBTA volume 1, clauses 12.6 and 13.4). The
//! field offsets are those of Linux `include/rdma/ibta_vol1_c12.h`.

use super::MAD_LEN;
use super::fields::{get, get24, get32, put, put24};
use crate::api::Mtu;
use std::net::IpAddr;

/// Base version, management class, class version and method of these datagrams.
const MAD_HEADER: [u8; 4] = [1, 0x07, 2, 0x03];
/// Length of a REQ's private data, in bytes.
pub const REQ_PRIVATE_BYTES: usize = 92;
/// Length of a REP's private data, in bytes.
pub const REP_PRIVATE_BYTES: usize = 196;
/// Response timeout, local and remote, as its code: 4.096 us x 2^18, 1.07 s.
const RESPONSE_TIMEOUT: u8 = 18;
/// Acknowledgement timeout, as its code: 4.096 us x 2^14, 67 ms.
const ACK_TIMEOUT: u8 = 14;

/// Returns the service ID of a port in `rdma_cm`'s TCP port space (IBTA annex A11).
pub const fn service_id(port: u16) -> u64 {
    0x0106_0000 | port as u64
}

/// Reasons for rejecting a connection (IBTA volume 1, table 107; incomplete).
pub mod reason {
    /// No queue pair available.
    pub const NO_QP: u16 = 1;
    /// No resources for another connection.
    pub const NO_RESOURCES: u16 = 3;
    /// The application has neither accepted nor rejected in time.
    pub const TIMEOUT: u16 = 4;
    /// Unknown communication ID.
    pub const INVALID_ID: u16 = 6;
    /// Invalid service ID: no listener.
    pub const NO_SERVICE: u16 = 8;
    /// The path MTU is not supported.
    pub const INVALID_MTU: u16 = 26;
    /// Rejected by the application.
    pub const CONSUMER: u16 = 28;
}

/// Message with its transaction and communication IDs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Transaction ID, the same in all messages that establish one connection.
    pub transaction: u64,
    /// Local communication ID: the sender's.
    pub local: u32,
    /// Remote communication ID: the receiver's; 0 in a REQ.
    pub remote: u32,
    /// Message.
    pub message: Message,
}

/// Messages of connection managers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// REQ: requests a connection.
    Req(Box<Request>),
    /// MRA: the answer will be late.
    Mra,
    /// REJ: rejects the connection, with a [`reason`].
    Rej(u16),
    /// REP: accepts the connection.
    Rep(Box<Reply>),
    /// RTU: the connection is ready to use.
    Rtu,
    /// DREQ: disconnects the receiver's queue pair, with this number.
    Dreq(u32),
    /// DREP: confirms the disconnection.
    Drep,
}

/// REQ: parameters of the active side's queue pair and of the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Service ID ([`service_id`]).
    pub service: u64,
    /// Queue pair of the active side.
    pub qp: u32,
    /// Initial PSN of the packets that the receiver of this message sends.
    pub psn: u32,
    /// Limits of outstanding READs and atomic operations.
    pub rd_atomic: RdAtomicLimits,
    /// Path MTU.
    pub mtu: Mtu,
    /// Maximum retransmissions, 0 to 7.
    pub retry_cnt: u8,
    /// Maximum retransmissions after an RNR NAK; 7: unlimited.
    pub rnr_retry: u8,
    /// GIDs of the path: the sender's, the receiver's.
    pub path: [IpAddr; 2],
    /// Private data: with `rdma_cm`, [`Addresses`], then the application's.
    pub private_data: [u8; REQ_PRIVATE_BYTES],
}

/// REP: parameters of the passive side's queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Queue pair of the passive side.
    pub qp: u32,
    /// Initial PSN of the packets that the receiver of this message sends.
    pub psn: u32,
    /// Limits of outstanding READs and atomic operations.
    pub rd_atomic: RdAtomicLimits,
    /// Maximum retransmissions after an RNR NAK; 7: unlimited.
    pub rnr_retry: u8,
    /// Private data of the application.
    pub private_data: [u8; REP_PRIVATE_BYTES],
}

/// Limits of outstanding READs and atomic operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RdAtomicLimits {
    /// Operations of its peer that the sender of the message accepts at once.
    pub responder_resources: u8,
    /// Operations that it may itself have outstanding.
    pub initiator_depth: u8,
}

/// Header that `rdma_cm` puts at the start of a REQ's private data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Port of the active side.
    pub port: u16,
    /// IP addresses of the active and of the passive side.
    pub ips: [IpAddr; 2],
}

impl Addresses {
    /// Encoded length in bytes; the application's private data follows.
    pub const LEN: usize = 36;

    /// Encodes the header.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[1] = if self.ips[0].is_ipv4() { 4 << 4 } else { 6 << 4 };
        bytes[2..4].copy_from_slice(&self.port.to_be_bytes());
        for (ip, offset) in self.ips.into_iter().zip([4, 20]) {
            match ip {
                IpAddr::V4(ip) => bytes[offset + 12..offset + 16].copy_from_slice(&ip.octets()),
                IpAddr::V6(ip) => bytes[offset..offset + 16].copy_from_slice(&ip.octets()),
            }
        }
        bytes
    }
}

fn gid(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

impl Datagram {
    /// Parses a datagram; `None` if it is invalid or not one of these messages.
    pub fn parse(mad: &[u8; MAD_LEN]) -> Option<Self> {
        if mad[..4] != MAD_HEADER {
            return None;
        }
        let mut transaction = [0; 8];
        transaction.copy_from_slice(&mad[8..16]);
        let remote = get32(mad, 4);
        let message = match u16::from_be_bytes([mad[16], mad[17]]) {
            0x10 => Message::Req(Box::new(Request::parse(mad)?)),
            0x11 => Message::Mra,
            0x12 => Message::Rej(u16::from_be_bytes(get(mad, 10))),
            0x13 => Message::Rep(Box::new(Reply::parse(mad))),
            0x14 => Message::Rtu,
            0x15 => Message::Dreq(get24(mad, 8)),
            0x16 => Message::Drep,
            _ => return None,
        };
        let remote = if matches!(message, Message::Req(_)) { 0 } else { remote };
        Some(Self { transaction: u64::from_be_bytes(transaction), local: get32(mad, 0), remote, message })
    }

    /// Encodes a datagram.
    pub fn emit(&self) -> [u8; MAD_LEN] {
        let mut mad = [0; MAD_LEN];
        mad[..4].copy_from_slice(&MAD_HEADER);
        mad[8..16].copy_from_slice(&self.transaction.to_be_bytes());
        put(&mut mad, 0, &self.local.to_be_bytes());
        put(&mut mad, 4, &self.remote.to_be_bytes());
        let attribute: u8 = match &self.message {
            Message::Req(request) => {
                request.emit(&mut mad);
                0x10
            }
            Message::Mra => 0x11,
            Message::Rej(reason) => {
                put(&mut mad, 10, &reason.to_be_bytes());
                0x12
            }
            Message::Rep(reply) => {
                reply.emit(&mut mad);
                0x13
            }
            Message::Rtu => 0x14,
            Message::Dreq(qp) => {
                put24(&mut mad, 8, *qp);
                0x15
            }
            Message::Drep => 0x16,
        };
        mad[17] = attribute;
        mad
    }
}

impl Request {
    fn parse(mad: &[u8; MAD_LEN]) -> Option<Self> {
        let [service, reliable] = [43, 51].map(|offset| get::<1>(mad, offset)[0]);
        // Only plain reliable connections are supported.
        if service >> 1 & 3 != 0 || reliable & 7 != 0 {
            return None;
        }
        let [responder_resources, initiator_depth, retry_cnt, path] =
            [35, 39, 47, 50].map(|offset| get::<1>(mad, offset)[0]);
        Some(Self {
            service: u64::from_be_bytes(get(mad, 8)),
            qp: get24(mad, 32),
            psn: get24(mad, 44),
            rd_atomic: RdAtomicLimits { responder_resources, initiator_depth },
            mtu: *Mtu::IBTA.get(usize::from(path >> 4).checked_sub(1)?)?,
            retry_cnt: retry_cnt & 7,
            rnr_retry: path & 7,
            path: [56, 72].map(|offset| IpAddr::from(get::<16>(mad, offset)).to_canonical()),
            private_data: get(mad, 140),
        })
    }

    fn emit(&self, mad: &mut [u8; MAD_LEN]) {
        let mtu = Mtu::IBTA.iter().position(|mtu| *mtu == self.mtu).unwrap_or(0) as u8 + 1;
        put(mad, 8, &self.service.to_be_bytes());
        put24(mad, 32, self.qp);
        put(mad, 35, &[self.rd_atomic.responder_resources]);
        put(mad, 39, &[self.rd_atomic.initiator_depth]);
        put(mad, 43, &[RESPONSE_TIMEOUT << 3]);
        put24(mad, 44, self.psn);
        put(mad, 47, &[RESPONSE_TIMEOUT << 3 | self.retry_cnt & 7]);
        put(mad, 48, &[0xFF; 2]); // the default partition
        put(mad, 50, &[mtu << 4 | self.rnr_retry & 7, 15 << 4]);
        put(mad, 52, &[0xFF; 4]); // no LIDs: the path is routed
        put(mad, 56, &gid(self.path[0]));
        put(mad, 72, &gid(self.path[1]));
        put(mad, 91, &[3]); // 10 Gbit/s; not evaluated by receivers
        put(mad, 93, &[64, 0, ACK_TIMEOUT << 3]); // hops, service level
        put(mad, 140, &self.private_data);
    }
}

impl Reply {
    fn parse(mad: &[u8; MAD_LEN]) -> Self {
        let [responder_resources, initiator_depth, rnr] = [24, 25, 27].map(|offset| get::<1>(mad, offset)[0]);
        Self {
            qp: get24(mad, 12),
            psn: get24(mad, 20),
            rd_atomic: RdAtomicLimits { responder_resources, initiator_depth },
            rnr_retry: rnr >> 5,
            private_data: get(mad, 36),
        }
    }

    fn emit(&self, mad: &mut [u8; MAD_LEN]) {
        put24(mad, 12, self.qp);
        put24(mad, 20, self.psn);
        put(
            mad,
            24,
            &[
                self.rd_atomic.responder_resources,
                self.rd_atomic.initiator_depth,
                ACK_TIMEOUT << 3,
                self.rnr_retry << 5,
            ],
        );
        put(mad, 36, &self.private_data);
    }
}

#[cfg(test)]
mod tests {
    use super::super::fields::HEADER_BYTES;
    use super::*;

    fn request() -> Request {
        let path = [IpAddr::from([10, 77, 0, 2]), IpAddr::from([10, 77, 0, 1])];
        let mut private_data = [0; REQ_PRIVATE_BYTES];
        private_data[..Addresses::LEN].copy_from_slice(&Addresses { port: 0x9abc, ips: path }.emit());
        Request {
            service: service_id(7174),
            qp: 0x123456,
            psn: 0xABCDEF,
            rd_atomic: RdAtomicLimits { responder_resources: 1, initiator_depth: 2 },
            mtu: Mtu::B4096,
            retry_cnt: 7,
            rnr_retry: 6,
            path,
            private_data,
        }
    }

    #[test]
    fn messages_round_trip() {
        let reply = Reply {
            qp: 0xFFFFFE,
            psn: 1,
            rd_atomic: RdAtomicLimits { responder_resources: 16, initiator_depth: 3 },
            rnr_retry: 7,
            private_data: [7; REP_PRIVATE_BYTES],
        };
        let all = [
            Message::Req(Box::new(request())),
            Message::Mra,
            Message::Rej(28),
            Message::Rep(Box::new(reply)),
            Message::Rtu,
            Message::Dreq(0x11),
            Message::Drep,
        ];
        for message in all {
            let remote = if matches!(message, Message::Req(_)) { 0 } else { 9 };
            let datagram = Datagram { transaction: 0x0123_4567_89AB_CDEF, local: 5, remote, message };
            assert_eq!(Datagram::parse(&datagram.emit()), Some(datagram));
        }
    }

    #[test]
    fn fields_are_at_the_specified_offsets() {
        let mad = Datagram { transaction: 1, local: 2, remote: 0, message: Message::Req(Box::new(request())) }.emit();
        assert_eq!(mad[..4], [1, 7, 2, 3]);
        assert_eq!(mad[16..18], [0, 0x10]);
        assert_eq!(mad[HEADER_BYTES + 8..HEADER_BYTES + 16], 0x0000_0000_0106_1C06_u64.to_be_bytes());
        assert_eq!(mad[HEADER_BYTES + 32..HEADER_BYTES + 36], [0x12, 0x34, 0x56, 1]);
        assert_eq!(mad[HEADER_BYTES + 50], 5 << 4 | 6);
        assert_eq!(mad[HEADER_BYTES + 56 + 10..HEADER_BYTES + 72], [0xFF, 0xFF, 10, 77, 0, 2]);
        assert_eq!(mad[HEADER_BYTES + 140..HEADER_BYTES + 144], [0, 0x40, 0x9a, 0xbc]);
        assert_eq!(mad[HEADER_BYTES + 140 + 16..HEADER_BYTES + 140 + 20], [10, 77, 0, 2]);
    }

    #[test]
    fn invalid_datagrams_are_refused() {
        let valid = Datagram { transaction: 1, local: 2, remote: 0, message: Message::Req(Box::new(request())) }.emit();
        for (offset, value) in [
            (0, 2),
            (1, 3),
            (3, 1),
            (17, 0x30),
            (HEADER_BYTES + 43, 2),
            (HEADER_BYTES + 50, 0),
            (HEADER_BYTES + 50, 0x60),
        ] {
            let mut mad = valid;
            mad[offset] = value;
            assert_eq!(Datagram::parse(&mad), None, "byte {offset}");
        }
        assert_eq!(Datagram::parse(&[0; MAD_LEN]), None);
    }
}
