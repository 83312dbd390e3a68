//! Replies: packets from a target to an initiator.

use super::data::{Data, len_with_crc};
use super::head::{
    DEFAULT_LOGICAL_ADDRESS, MAX_SEGMENT, PROTOCOL, REPLY, expect, expect_range, intact, seal, version_byte,
};
use crate::aeth::RnrTimer;
use crate::atomic::AtomicAckEth;
use crate::{ParseError, bytes};

const FIRST: u8 = 1 << 1;
const LAST: u8 = 1 << 0;

/// Header of a reply.
///
/// | byte | field | type |
/// |---|---|---|
/// | 0 | logical address of the initiator | u8 |
/// | 1 | protocol identifier, 0xF0 | u8 |
/// | 2 | instruction: bits 7:6 packet type 00, 5:2 kind; of a READ's reply 1 first, 0 last, else 0 | u8 |
/// | 3 | bits 7:4 version 1, 3:0 packet type again, 15 | u8 |
/// | 4 | status | u8 |
/// | 5 | destination queue pair | u24 |
/// | 8 | logical address of the target | u8 |
/// | 9 | transaction identifier | u24 |
/// | 12 | message sequence number | u24 |
/// | 15 | minimum delay, of status 17 only, else 0 | u8 |
/// | 16 | data length | u24 |
/// | 19 | CRC-8 of bytes 0 to 18 | u8 |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reply {
    /// Logical address of the initiator.
    pub initiator: u8,
    /// Logical address of the target.
    pub target: u8,
    /// What is answered.
    pub kind: ReplyKind,
    /// Outcome.
    pub status: Status,
    /// Destination queue pair number at the initiator, 24 bits.
    pub dest_qp: u32,
    /// Transaction identifier, 24 bits.
    pub transaction_id: u32,
    /// Message sequence number: operations that the target has completed on this connection, modulo 2^24.
    pub msn: u32,
    /// Length of the data in bytes: of a READ's reply at most [`MAX_SEGMENT`], of an atomic reply 8, else and after a
    /// failure 0. Only the reply to a READ of 0 bytes is a segment without data.
    pub data_len: u32,
}

impl Reply {
    /// Length of the header, in bytes.
    pub const LEN: usize = 20;

    /// Returns a successful reply between default logical addresses. Its message sequence number is 0, and so is its
    /// data length, except that of an atomic reply.
    pub fn new(kind: ReplyKind, dest_qp: u32, transaction_id: u32) -> Self {
        let data_len = if kind == ReplyKind::Atomic { AtomicAckEth::LEN as u32 } else { 0 };
        Self {
            initiator: DEFAULT_LOGICAL_ADDRESS,
            target: DEFAULT_LOGICAL_ADDRESS,
            kind,
            status: Status::Success,
            dest_qp,
            transaction_id,
            msn: 0,
            data_len,
        }
    }

    /// Parses a header and returns it with the remaining bytes, which [`Self::data`] takes. Logical addresses are not
    /// checked.
    ///
    /// # Errors
    /// If the packet is not a reply of this protocol and version, is shorter than [`Self::LEN`], its header CRC is
    /// wrong, or a field is invalid.
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (mut fields, rest) = intact::<{ Self::LEN }>("RDMA reply", REPLY, packet)?;
        let [initiator, _protocol, instruction, _version] = fields.array()?;
        let status = fields.u8()?;
        let dest_qp = fields.u24()?;
        let target = fields.u8()?;
        let transaction_id = fields.u24()?;
        let msn = fields.u24()?;
        let delay = fields.u8()?;
        let kind = ReplyKind::from_bits(instruction)?;
        let status = Status::from_code(status, delay)?;
        let reply = Self { initiator, target, kind, status, dest_qp, transaction_id, msn, data_len: fields.u24()? };
        reply.check()?;
        Ok((reply, rest))
    }

    /// Checks the data length, which kind and status restrict.
    fn check(&self) -> Result<(), ParseError> {
        let data_len = self.data_len.into();
        match (self.status, self.kind) {
            (Status::Success, ReplyKind::Read { first, last }) => {
                let min = u64::from(!(first && last));
                expect_range("data length of an RDMA READ's reply", min, MAX_SEGMENT.into(), data_len)
            }
            (Status::Success, ReplyKind::Atomic) => {
                expect("data length of an RDMA atomic reply", AtomicAckEth::LEN as u64, data_len)
            }
            _ => expect("data length of an RDMA reply without data", 0, data_len),
        }
    }

    /// Encodes the header.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let (status, delay) = self.status.to_code();
        let header = bytes::Header::new()
            .u8(self.initiator)
            .u8(PROTOCOL)
            .u8(REPLY << 6 | self.kind.to_bits())
            .u8(version_byte(REPLY))
            .u8(status)
            .u24(self.dest_qp)
            .u8(self.target)
            .u24(self.transaction_id)
            .u24(self.msn)
            .u8(delay)
            .u24(self.data_len);
        seal(header)
    }

    /// Splits the bytes that follow the header into data and data CRC.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] if bytes are missing, [`ParseError::Length`] if there are too many.
    pub fn data<'a>(&self, rest: &'a [u8]) -> Result<Data<'a>, ParseError> {
        Data::split(rest, self.data_len)
    }

    /// Returns the length of the whole packet in bytes: header, data and data CRC.
    pub fn packet_len(&self) -> usize {
        Self::LEN + len_with_crc(self.data_len)
    }
}

/// Kind of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplyKind {
    /// 1: a segment of the data of a READ.
    Read {
        /// The READ's first segment.
        first: bool,
        /// The READ's last segment.
        last: bool,
    },
    /// 2: acknowledges all WRITEs and SENDs up to the transaction identifier.
    Acknowledge,
    /// 8: the original value of an atomic operation.
    Atomic,
}

impl ReplyKind {
    /// Decodes bits 5:0 of the instruction.
    fn from_bits(instruction: u8) -> Result<Self, ParseError> {
        let flags = instruction & (FIRST | LAST);
        let kind = match instruction >> 2 & 0xF {
            1 => return Ok(Self::Read { first: flags & FIRST != 0, last: flags & LAST != 0 }),
            2 => Self::Acknowledge,
            8 => Self::Atomic,
            found => return Err(ParseError::Unknown { what: "kind of an RDMA reply", found: found.into() }),
        };
        expect("first and last of an RDMA reply without segments", 0, flags.into())?;
        Ok(kind)
    }

    /// Encodes bits 5:0 of the instruction.
    fn to_bits(self) -> u8 {
        match self {
            Self::Read { first, last } => 1 << 2 | u8::from(first) << 1 | u8::from(last),
            Self::Acknowledge => 2 << 2,
            Self::Atomic => 8 << 2,
        }
    }
}

/// Outcome of a command. Numbers below 16 are those of RMAP (ECSS-E-ST-50-52C, 5.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// 0: executed.
    Success,
    /// 1: the target could not complete the operation.
    GeneralError,
    /// 2: the operation is unknown, not allowed on this connection, or has invalid fields.
    InvalidRequest,
    /// 3: the key is unknown or of another protection domain, or its region does not contain the addresses or grant the
    /// right.
    InvalidKey,
    /// 16: packets are missing before the one received; the transaction identifier is that of the first missing.
    SequenceError,
    /// 17: no receive is posted. The initiator sends the command again after this time.
    ReceiverNotReady(RnrTimer),
}

impl Status {
    /// Decodes status and minimum delay.
    fn from_code(code: u8, delay: u8) -> Result<Self, ParseError> {
        let status = match code {
            0 => Self::Success,
            1 => Self::GeneralError,
            2 => Self::InvalidRequest,
            3 => Self::InvalidKey,
            16 => Self::SequenceError,
            17 => {
                let (what, found) = ("minimum delay of an RDMA receiver", delay.into());
                let timer = RnrTimer::from_code(delay).ok_or(ParseError::Range { what, min: 0, max: 31, found })?;
                return Ok(Self::ReceiverNotReady(timer));
            }
            _ => return Err(ParseError::Unknown { what: "status of an RDMA reply", found: code.into() }),
        };
        expect("minimum delay of an RDMA reply without it", 0, delay.into())?;
        Ok(status)
    }

    /// Encodes status and minimum delay.
    fn to_code(self) -> (u8, u8) {
        match self {
            Self::Success => (0, 0),
            Self::GeneralError => (1, 0),
            Self::InvalidRequest => (2, 0),
            Self::InvalidKey => (3, 0),
            Self::SequenceError => (16, 0),
            Self::ReceiverNotReady(timer) => (17, timer.code()),
        }
    }
}
