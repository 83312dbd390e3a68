//! Commands: packets from an initiator to a target.

use super::data::{CompareSwap, Data, FetchAdd, len_with_crc};
use super::head::{
    COMMAND, DEFAULT_LOGICAL_ADDRESS, MAX_SEGMENT, PROTOCOL, expect, expect_range, intact, seal, version_byte,
};
use crate::{ParseError, bytes};

const REPLY_REQUESTED: u8 = 1 << 1;
const SOLICITED: u8 = 1 << 0;
/// Length of the value on which an atomic operation works, in bytes.
const ATOMIC_LEN: u32 = 8;

/// Header of a command.
///
/// | byte | field | type |
/// |---|---|---|
/// | 0 | logical address of the target | u8 |
/// | 1 | protocol identifier, 0xF0 | u8 |
/// | 2 | instruction: bits 7:6 packet type 01, 5:2 operation, 1 reply requested, 0 solicited event | u8 |
/// | 3 | bits 7:4 version 1, 3:0 packet type again, 0 | u8 |
/// | 4 | key | u32 |
/// | 8 | logical address of the initiator | u8 |
/// | 9 | destination queue pair | u24 |
/// | 12 | reserved, 0 | u8 |
/// | 13 | transaction identifier | u24 |
/// | 16 | address | u64 |
/// | 24 | operation length | u32 |
/// | 28 | offset | u32 |
/// | 32 | immediate data | u32 |
/// | 36 | data length | u24 |
/// | 39 | CRC-8 of bytes 0 to 38 | u8 |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Command {
    /// Logical address of the target.
    pub target: u8,
    /// Logical address of the initiator.
    pub initiator: u8,
    /// Operation of which this packet carries a segment; before the last segment [`Operation::plain`].
    pub operation: Operation,
    /// The initiator requests a reply. READs and atomic operations always have one.
    pub reply_requested: bool,
    /// Solicited event: the completion at the target may raise a completion event. Only in the last segment.
    pub solicited: bool,
    /// Key of the target's region, in each segment of a WRITE; of a SEND with invalidate the key to invalidate, of other
    /// SENDs 0.
    pub key: u32,
    /// Destination queue pair number at the target, 24 bits.
    pub dest_qp: u32,
    /// Transaction identifier, 24 bits: the packet's sequence number on its connection.
    pub transaction_id: u32,
    /// Address in the target's region: of a WRITE that of the segment's first byte, of a SEND 0.
    pub address: u64,
    /// Length of the whole operation in bytes; of an atomic operation 8.
    pub operation_len: u32,
    /// Offset of the segment in the operation in bytes; of READs and atomic operations 0.
    pub offset: u32,
    /// Immediate data; 0 in operations without it.
    pub imm: u32,
    /// Length of the data in bytes, at most [`MAX_SEGMENT`]. Only an operation of length 0 has segments without data,
    /// and READs.
    pub data_len: u32,
}

impl Command {
    /// Length of the header, in bytes.
    pub const LEN: usize = 40;

    /// Returns a command between default logical addresses. Flags, key, address, offset and immediate data are 0, and
    /// so are the lengths, except those of atomic operations.
    pub fn new(operation: Operation, dest_qp: u32, transaction_id: u32) -> Self {
        let (operation_len, data_len) = match operation.atomic_data_len() {
            Some(data_len) => (ATOMIC_LEN, data_len),
            None => (0, 0),
        };
        Self {
            target: DEFAULT_LOGICAL_ADDRESS,
            initiator: DEFAULT_LOGICAL_ADDRESS,
            operation,
            reply_requested: false,
            solicited: false,
            key: 0,
            dest_qp,
            transaction_id,
            address: 0,
            operation_len,
            offset: 0,
            imm: 0,
            data_len,
        }
    }

    /// Parses a header and returns it with the remaining bytes, which [`Self::data`] takes. Logical addresses, key and
    /// address are not checked: they mean something only to the target.
    ///
    /// # Errors
    /// If the packet is not a command of this protocol and version, is shorter than [`Self::LEN`], or its header CRC is
    /// wrong; or if a field of the intact header is invalid. [`Self::recipient`] distinguishes the two.
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (mut fields, rest) = intact::<{ Self::LEN }>("RDMA command", COMMAND, packet)?;
        let [target, _protocol, instruction, _version] = fields.array()?;
        let key = fields.u32()?;
        let initiator = fields.u8()?;
        let dest_qp = fields.u24()?;
        let reserved = fields.u8()?;
        let transaction_id = fields.u24()?;
        let code = instruction >> 2 & 0xF;
        let operation = Operation::from_u8(code)
            .ok_or(ParseError::Unknown { what: "operation of an RDMA command", found: code.into() })?;
        expect("reserved byte of an RDMA command", 0, reserved.into())?;
        let command = Self {
            target,
            initiator,
            operation,
            reply_requested: instruction & REPLY_REQUESTED != 0,
            solicited: instruction & SOLICITED != 0,
            key,
            dest_qp,
            transaction_id,
            address: fields.u64()?,
            operation_len: fields.u32()?,
            offset: fields.u32()?,
            imm: fields.u32()?,
            data_len: fields.u24()?,
        };
        command.check()?;
        Ok((command, rest))
    }

    /// Checks the fields that the operation restricts.
    fn check(&self) -> Result<(), ParseError> {
        let Self { operation, operation_len, offset, data_len, .. } = *self;
        if !operation.has_imm() {
            expect("immediate data of an RDMA operation without it", 0, self.imm.into())?;
        }
        if !operation.has_key() {
            expect("key of an RDMA SEND", 0, self.key.into())?;
        }
        if !operation.has_address() {
            expect("address of an RDMA SEND", 0, self.address)?;
        }
        if let Some(atomic_data_len) = operation.atomic_data_len() {
            expect("length of an RDMA atomic operation", ATOMIC_LEN.into(), operation_len.into())?;
            expect("offset of an RDMA atomic operation", 0, offset.into())?;
            expect("data length of an RDMA atomic operation", atomic_data_len.into(), data_len.into())
        } else if operation == Operation::Read {
            expect("offset of an RDMA READ", 0, offset.into())?;
            expect("data length of an RDMA READ", 0, data_len.into())
        } else {
            let min = u64::from(operation_len > 0);
            expect_range("data length of an RDMA segment", min, MAX_SEGMENT.into(), data_len.into())?;
            let end = u64::from(offset) + u64::from(data_len);
            expect_range("end of an RDMA segment in its operation", 0, operation_len.into(), end)?;
            self.check_last(end)
        }
    }

    /// Checks that what takes effect at the end of a WRITE or SEND is in its last segment. `end` is that of this segment.
    fn check_last(&self, end: u64) -> Result<(), ParseError> {
        let operation_len = self.operation_len.into();
        if self.operation != self.operation.plain() {
            expect("end of an RDMA segment with immediate data or invalidation", operation_len, end)?;
        }
        if self.solicited {
            expect("end of an RDMA segment with a solicited event", operation_len, end)?;
        }
        Ok(())
    }

    /// Returns the connection and transaction of a command whose header is intact, even if [`Self::parse`] refuses its
    /// fields. The target answers such a command with the status invalid request.
    ///
    /// # Errors
    /// If the packet is not a command of this protocol and version, is shorter than [`Self::LEN`], or its header CRC is
    /// wrong.
    pub fn recipient(packet: &[u8]) -> Result<Recipient, ParseError> {
        let (mut fields, _) = intact::<{ Self::LEN }>("RDMA command", COMMAND, packet)?;
        let _up_to_the_initiator: [u8; 9] = fields.array()?;
        let dest_qp = fields.u24()?;
        let _reserved = fields.u8()?;
        Ok(Recipient { dest_qp, transaction_id: fields.u24()? })
    }

    /// Encodes the header.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let bit = |flag: bool, bit: u8| if flag { bit } else { 0 };
        let flags = bit(self.reply_requested, REPLY_REQUESTED) | bit(self.solicited, SOLICITED);
        let header = bytes::Header::new()
            .u8(self.target)
            .u8(PROTOCOL)
            .u8(COMMAND << 6 | (self.operation as u8) << 2 | flags)
            .u8(version_byte(COMMAND))
            .u32(self.key)
            .u8(self.initiator)
            .u24(self.dest_qp)
            .u8(0)
            .u24(self.transaction_id)
            .u64(self.address)
            .u32(self.operation_len)
            .u32(self.offset)
            .u32(self.imm)
            .u24(self.data_len);
        seal(header)
    }

    /// Splits the bytes that follow the header into data and data CRC.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] if bytes are missing: the packet was cut on its way and ended by an EEP, or its sender
    /// ended it early. [`ParseError::Length`] if there are too many.
    pub fn data<'a>(&self, rest: &'a [u8]) -> Result<Data<'a>, ParseError> {
        Data::split(rest, self.data_len)
    }

    /// Returns the length of the whole packet in bytes: header, data and data CRC.
    pub fn packet_len(&self) -> usize {
        Self::LEN + len_with_crc(self.data_len)
    }

    /// Returns `true` for the first segment of an operation.
    pub fn is_first(&self) -> bool {
        self.offset == 0
    }

    /// Returns `true` for the last segment of an operation. READs and atomic operations are one command.
    pub fn is_last(&self) -> bool {
        !self.operation.is_segmented() || u64::from(self.offset) + u64::from(self.data_len) == self.operation_len.into()
    }
}

/// Connection and transaction of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Recipient {
    /// Destination queue pair number at the target, 24 bits.
    pub dest_qp: u32,
    /// Transaction identifier, 24 bits.
    pub transaction_id: u32,
}

/// Operation of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Operation {
    /// Reads from a region of the target.
    Read = 1,
    /// Writes to a region of the target.
    Write = 2,
    /// Last segment of a WRITE with immediate data, which completes a receive of the target.
    WriteImm = 3,
    /// Sends a message to a receive of the target.
    Send = 4,
    /// Last segment of a SEND with immediate data.
    SendImm = 5,
    /// Last segment of a SEND that invalidates a key of the target.
    SendInvalidate = 6,
    /// Replaces 8 bytes of a region of the target if they have an expected value.
    CompareSwap = 8,
    /// Adds to 8 bytes of a region of the target.
    FetchAdd = 9,
}

impl Operation {
    /// All operations, in ascending order.
    pub const ALL: [Self; 8] = [
        Self::Read,
        Self::Write,
        Self::WriteImm,
        Self::Send,
        Self::SendImm,
        Self::SendInvalidate,
        Self::CompareSwap,
        Self::FetchAdd,
    ];

    /// Returns the operation with this value, if it is defined.
    pub fn from_u8(value: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| *operation as u8 == value)
    }

    /// Returns `true` if commands carry a key.
    pub const fn has_key(self) -> bool {
        !matches!(self, Self::Send | Self::SendImm)
    }

    /// Returns `true` if commands carry an address in the target's region.
    pub const fn has_address(self) -> bool {
        !matches!(self, Self::Send | Self::SendImm | Self::SendInvalidate)
    }

    /// Returns `true` if commands carry immediate data.
    pub const fn has_imm(self) -> bool {
        matches!(self, Self::WriteImm | Self::SendImm)
    }

    /// Returns the operation without immediate data and invalidation: that of all segments but the last.
    pub const fn plain(self) -> Self {
        match self {
            Self::WriteImm => Self::Write,
            Self::SendImm | Self::SendInvalidate => Self::Send,
            Self::Read | Self::Write | Self::Send | Self::CompareSwap | Self::FetchAdd => self,
        }
    }

    /// Returns `true` if commands carry the operation's data in segments: SENDs and WRITEs.
    pub const fn is_segmented(self) -> bool {
        !matches!(self, Self::Read | Self::CompareSwap | Self::FetchAdd)
    }

    /// Returns the length of the operands of an atomic operation, in bytes.
    const fn atomic_data_len(self) -> Option<u32> {
        match self {
            Self::CompareSwap => Some(CompareSwap::LEN as u32),
            Self::FetchAdd => Some(FetchAdd::LEN as u32),
            Self::Read | Self::Write | Self::WriteImm | Self::Send | Self::SendImm | Self::SendInvalidate => None,
        }
    }
}
