//! RDMA packets over SpaceFibre: Shotline's own format, version 1.
//!
//! No packet format of RDMA over SpaceFibre is published. This one has the fields and the order of RMAP
//! (ECSS-E-ST-50-52C) where RMAP has what is needed. `docs/wire-formats.md`, section 11, specifies it with the rules of
//! a receiver.
//!
//! A packet is the cargo of a SpaceFibre packet without path address. It carries one *segment* of an operation, with
//! everything that is needed to execute it: key, address, and position in the operation. Immediate data, solicited event
//! and the key to invalidate are in the last segment only. A packet consists of:
//!
//! 1. the header, a [`Command`] of 40 bytes or a [`Reply`] of 20 bytes, which ends with its CRC-8;
//! 2. data, at most [`MAX_SEGMENT`] bytes;
//! 3. if there are data, their CRC-32 ([`crate::crc`]), little-endian.
//!
//! [`Header::parse`] reads the header, and [`Header::data`] what follows it. The operands of atomic operations are
//! [`CompareSwap`], [`FetchAdd`] and, in the reply, [`crate::atomic::AtomicAckEth`].
//!
//! ```
//! use shotline_wire::crc;
//! use shotline_wire::spacefibre::rdma::{Command, Header, Operation};
//! # use shotline_wire::ParseError;
//! # fn main() -> Result<(), ParseError> {
//! let data = b"shot";
//! let command = Command {
//!     key: 0x1234,
//!     address: 0x100,
//!     operation_len: 4,
//!     data_len: 4,
//!     ..Command::new(Operation::Write, 0x12, 7)
//! };
//! let packet = [command.emit().as_slice(), data, &crc::crc32(data).to_le_bytes()].concat();
//!
//! let (header, rest) = Header::parse(&packet)?;
//! assert_eq!(header, Header::Command(command));
//! assert_eq!(header.data(rest)?.verify()?, data);
//! # Ok(()) }
//! ```

mod command;
mod data;
mod head;
mod reply;

#[cfg(test)]
mod tests;

pub use command::{Command, Operation, Recipient};
pub use data::{CompareSwap, DATA_CRC_LEN, Data, FetchAdd};
pub use head::{DEFAULT_LOGICAL_ADDRESS, MAX_SEGMENT, PROTOCOL, VERSION};
pub use reply::{Reply, ReplyKind, Status};

use crate::{ParseError, bytes};
use arrayvec::ArrayVec;
use head::{COMMAND, Prefix, REPLY};

/// Header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Header {
    /// From an initiator to a target.
    Command(Command),
    /// From a target to an initiator.
    Reply(Reply),
}

impl Header {
    /// Parses the header of either packet type and returns it with the remaining bytes, which [`Self::data`] takes.
    /// Every change of a single bit of a header is found.
    ///
    /// # Errors
    /// Those of [`Command::parse`] and [`Reply::parse`], or if the packet type is neither.
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        match Prefix::parse(packet)?.packet_type {
            COMMAND => Command::parse(packet).map(|(command, rest)| (Self::Command(command), rest)),
            REPLY => Reply::parse(packet).map(|(reply, rest)| (Self::Reply(reply), rest)),
            found => Err(ParseError::Unknown { what: "RDMA packet type", found: found.into() }),
        }
    }

    /// Splits the bytes that follow the header into data and data CRC.
    ///
    /// # Errors
    /// Those of [`Command::data`].
    pub fn data<'a>(&self, rest: &'a [u8]) -> Result<Data<'a>, ParseError> {
        match self {
            Self::Command(command) => command.data(rest),
            Self::Reply(reply) => reply.data(rest),
        }
    }

    /// Encodes the header.
    pub fn emit(&self) -> ArrayVec<u8, { Command::LEN }> {
        let mut header = ArrayVec::new();
        match self {
            Self::Command(command) => bytes::append(&mut header, &command.emit()),
            Self::Reply(reply) => bytes::append(&mut header, &reply.emit()),
        }
        header
    }
}
