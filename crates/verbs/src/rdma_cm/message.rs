//! Management datagrams of class "communication management" (IBTA volume 1, clauses 12.6 and 13.4): bytes to messages and
//! back. The places of fields are those of Linux `include/rdma/ibta_vol1_c12.h`.

use super::MAD_LEN;
use super::fields::{get, get24, get32, put, put24};
use crate::api::Mtu;
use std::net::IpAddr;

/// Class, class version and method of all of them.
const KIND: [u8; 4] = [1, 0x07, 2, 0x03];
/// Bytes of a REQ's private data.
pub const REQUEST_PRIVATE: usize = 92;
/// Bytes of a REP's private data.
pub const REPLY_PRIVATE: usize = 196;
/// A response may take 4.096 us x 2^18, about a second.
const RESPONSE_TIMEOUT: u8 = 18;
/// An acknowledgement may take 4.096 us x 2^14, 67 ms.
const ACK_TIMEOUT: u8 = 14;

/// A port of `rdma_cm`'s TCP port space as a service ID (IBTA annex A11).
pub const fn service_id(port: u16) -> u64 {
    0x0106_0000 | port as u64
}

/// Why a connection is refused (IBTA volume 1, table 107; there are more).
pub mod reason {
    /// The other side has no queue pair for it.
    pub const NO_QP: u16 = 1;
    /// The other side has no room for one more connection.
    pub const NO_RESOURCES: u16 = 3;
    /// The other side's program has not answered in time.
    pub const TIMEOUT: u16 = 4;
    /// There is no connection of this communication ID.
    pub const INVALID_ID: u16 = 6;
    /// No program listens at this service ID.
    pub const NO_SERVICE: u16 = 8;
    /// The path's packets are longer than the other side takes.
    pub const INVALID_MTU: u16 = 26;
    /// The program says no.
    pub const CONSUMER: u16 = 28;
}

/// A message with the transaction that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The same in all messages of one connection's beginning.
    pub transaction: u64,
    /// The sender's name of the connection.
    pub local: u32,
    /// The receiver's name of it; 0 in a REQ.
    pub remote: u32,
    /// What is said.
    pub message: Message,
}

/// What connection managers say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Asks for a connection.
    Req(Box<Request>),
    /// It will take longer.
    Mra,
    /// Refuses, with a [`reason`].
    Rej(u16),
    /// Agrees.
    Rep(Box<Reply>),
    /// Ready to use.
    Rtu,
    /// Ends the connection of the receiver's queue pair.
    Dreq(u32),
    /// It has ended.
    Drep,
}

/// What the active side says of its queue pair and of the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Whom it wants.
    pub service: u64,
    /// Its queue pair.
    pub qp: u32,
    /// Where it expects to be sent from: the receiver of the message begins with this sequence number.
    pub psn: u32,
    /// READs and atomic operations that it answers at once, and that it has under way at once.
    pub reads: Reads,
    /// Path MTU.
    pub mtu: Mtu,
    /// How often it sends again without an answer.
    pub retries: u8,
    /// How often it sends again to a peer without a receive; 7: without end.
    pub rnr_retries: u8,
    /// The addresses of both sides as GIDs: its own, the receiver's.
    pub path: [IpAddr; 2],
    /// What the program says, behind the addresses.
    pub private: [u8; REQUEST_PRIVATE],
}

/// What the passive side says of its queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Its queue pair.
    pub qp: u32,
    /// Where it expects to be sent from: the receiver of the message begins with this sequence number.
    pub psn: u32,
    /// READs and atomic operations.
    pub reads: Reads,
    /// How often it sends again to a peer without a receive; 7: without end.
    pub rnr_retries: u8,
    /// What the program says.
    pub private: [u8; REPLY_PRIVATE],
}

/// READs and atomic operations at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// That the sender of the message answers.
    pub answers: u8,
    /// That it begins.
    pub begins: u8,
}

/// The addresses with which the private data of a REQ begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The active side's port.
    pub port: u16,
    /// The active side's address, and the passive side's.
    pub of: [IpAddr; 2],
}

impl Addresses {
    /// Bytes of them; the program's own come behind.
    pub const LEN: usize = 36;

    /// As bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[1] = if self.of[0].is_ipv4() { 4 << 4 } else { 6 << 4 };
        bytes[2..4].copy_from_slice(&self.port.to_be_bytes());
        for (ip, at) in self.of.into_iter().zip([4, 20]) {
            match ip {
                IpAddr::V4(ip) => bytes[at + 12..at + 16].copy_from_slice(&ip.octets()),
                IpAddr::V6(ip) => bytes[at..at + 16].copy_from_slice(&ip.octets()),
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
    /// Reads one; `None` if it is none, or none of these messages.
    pub fn parse(mad: &[u8; MAD_LEN]) -> Option<Self> {
        if mad[..4] != KIND {
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

    /// Writes one.
    pub fn emit(&self) -> [u8; MAD_LEN] {
        let mut mad = [0; MAD_LEN];
        mad[..4].copy_from_slice(&KIND);
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
        let [service, reliable] = [43, 51].map(|at| get::<1>(mad, at)[0]);
        // A reliable connection, and nothing beyond.
        if service >> 1 & 3 != 0 || reliable & 7 != 0 {
            return None;
        }
        let [answers, begins, retries, path] = [35, 39, 47, 50].map(|at| get::<1>(mad, at)[0]);
        Some(Self {
            service: u64::from_be_bytes(get(mad, 8)),
            qp: get24(mad, 32),
            psn: get24(mad, 44),
            reads: Reads { answers, begins },
            mtu: *Mtu::ALL.get(usize::from(path >> 4).checked_sub(1)?)?,
            retries: retries & 7,
            rnr_retries: path & 7,
            path: [56, 72].map(|at| IpAddr::from(get::<16>(mad, at)).to_canonical()),
            private: get(mad, 140),
        })
    }

    fn emit(&self, mad: &mut [u8; MAD_LEN]) {
        let mtu = Mtu::ALL.iter().position(|mtu| *mtu == self.mtu).unwrap_or(0) as u8 + 1;
        put(mad, 8, &self.service.to_be_bytes());
        put24(mad, 32, self.qp);
        put(mad, 35, &[self.reads.answers]);
        put(mad, 39, &[self.reads.begins]);
        put(mad, 43, &[RESPONSE_TIMEOUT << 3]);
        put24(mad, 44, self.psn);
        put(mad, 47, &[RESPONSE_TIMEOUT << 3 | self.retries & 7]);
        put(mad, 48, &[0xFF; 2]); // the default partition
        put(mad, 50, &[mtu << 4 | self.rnr_retries & 7, 15 << 4]);
        put(mad, 52, &[0xFF; 4]); // no LIDs: the path is routed
        put(mad, 56, &gid(self.path[0]));
        put(mad, 72, &gid(self.path[1]));
        put(mad, 91, &[3]); // 10 Gbit/s; nobody looks at it
        put(mad, 93, &[64, 0, ACK_TIMEOUT << 3]); // hops, service level
        put(mad, 140, &self.private);
    }
}

impl Reply {
    fn parse(mad: &[u8; MAD_LEN]) -> Self {
        let [answers, begins, rnr] = [24, 25, 27].map(|at| get::<1>(mad, at)[0]);
        Self {
            qp: get24(mad, 12),
            psn: get24(mad, 20),
            reads: Reads { answers, begins },
            rnr_retries: rnr >> 5,
            private: get(mad, 36),
        }
    }

    fn emit(&self, mad: &mut [u8; MAD_LEN]) {
        put24(mad, 12, self.qp);
        put24(mad, 20, self.psn);
        put(mad, 24, &[self.reads.answers, self.reads.begins, ACK_TIMEOUT << 3, self.rnr_retries << 5]);
        put(mad, 36, &self.private);
    }
}

#[cfg(test)]
mod tests {
    use super::super::fields::HEADER;
    use super::*;

    fn request() -> Request {
        let path = [IpAddr::from([10, 77, 0, 2]), IpAddr::from([10, 77, 0, 1])];
        let mut private = [0; REQUEST_PRIVATE];
        private[..Addresses::LEN].copy_from_slice(&Addresses { port: 0x9abc, of: path }.emit());
        Request {
            service: service_id(7174),
            qp: 0x123456,
            psn: 0xABCDEF,
            reads: Reads { answers: 1, begins: 2 },
            mtu: Mtu::B4096,
            retries: 7,
            rnr_retries: 6,
            path,
            private,
        }
    }

    #[test]
    fn every_message_comes_back_as_it_was() {
        let reply = Reply {
            qp: 0xFFFFFE,
            psn: 1,
            reads: Reads { answers: 16, begins: 3 },
            rnr_retries: 7,
            private: [7; REPLY_PRIVATE],
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
    fn fields_are_where_the_architecture_has_them() {
        let mad = Datagram { transaction: 1, local: 2, remote: 0, message: Message::Req(Box::new(request())) }.emit();
        assert_eq!(mad[..4], [1, 7, 2, 3]);
        assert_eq!(mad[16..18], [0, 0x10]);
        assert_eq!(mad[HEADER + 8..HEADER + 16], 0x0000_0000_0106_1C06_u64.to_be_bytes());
        assert_eq!(mad[HEADER + 32..HEADER + 36], [0x12, 0x34, 0x56, 1]);
        assert_eq!(mad[HEADER + 50], 5 << 4 | 6);
        assert_eq!(mad[HEADER + 56 + 10..HEADER + 72], [0xFF, 0xFF, 10, 77, 0, 2]);
        assert_eq!(mad[HEADER + 140..HEADER + 144], [0, 0x40, 0x9a, 0xbc]);
        assert_eq!(mad[HEADER + 140 + 16..HEADER + 140 + 20], [10, 77, 0, 2]);
    }

    #[test]
    fn what_is_no_such_message_is_refused() {
        let sound = Datagram { transaction: 1, local: 2, remote: 0, message: Message::Req(Box::new(request())) }.emit();
        for (at, value) in [(0, 2), (1, 3), (3, 1), (17, 0x30), (HEADER + 43, 2), (HEADER + 50, 0), (HEADER + 50, 0x60)]
        {
            let mut mad = sound;
            mad[at] = value;
            assert_eq!(Datagram::parse(&mad), None, "byte {at}");
        }
        assert_eq!(Datagram::parse(&[0; MAD_LEN]), None);
    }
}
