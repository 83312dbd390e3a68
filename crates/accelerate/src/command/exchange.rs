//! Commands by which accelerators exchange bytes, without their initiator.

use super::completion::Outcome;
use super::fields::{Reader, Writer};
use super::range::{inside, overlap};
use shotline_verbs::cm::Token;

/// Number of neighbours of a command queue.
pub const NEIGHBOURS: u32 = 8;
/// Maximum bytes of a neighbour's address.
pub const MAX_ADDRESS_BYTES: u64 = 256;

/// A neighbour: another accelerator node, whose memory [`Kernel::Put`](super::Kernel::Put) writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Connect {
    /// Number by which later commands of the queue name it, below [`NEIGHBOURS`].
    pub neighbour: u32,
    /// Its token.
    pub token: Token,
    /// Offset of its address (`ADDRESS:PORT`, or a path) in the accelerator's memory. If the neighbour cannot be reached, the
    /// reason replaces it.
    pub address: u64,
    /// Bytes of the address, filled with zeros, at most [`MAX_ADDRESS_BYTES`]. 0: the neighbour is only disconnected.
    pub address_bytes: u64,
    /// Offset of 8 bytes in the neighbour's memory that must have the value `identity`, so that no other node is taken for
    /// it: the address may have another meaning for this node than for the initiator.
    pub identity_at: u64,
    /// Their value.
    pub identity: u64,
}

/// Bytes that go from one accelerator to another, and the signal that they are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Offset of the bytes.
    pub from: u64,
    /// Offset that they are written to.
    pub to: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Offset of the signal: 8 bytes, a multiple of 8.
    pub signal: u64,
    /// Value that is written to the signal, or that it must reach.
    pub value: u64,
    /// Time in milliseconds after which the command fails.
    pub timeout_ms: u64,
}

impl Connect {
    pub(super) fn emit(&self, put: &mut Writer<'_>) {
        put.numbers([self.address, self.address_bytes, self.identity_at, self.identity, 0, 0]);
        put.bytes(self.token.to_bytes());
    }

    pub(super) fn parse(neighbour: u32, mut body: Reader<'_>) -> Self {
        let [address, address_bytes, identity_at, identity, _, _] = body.numbers();
        let token = Token::from_bytes(body.bytes());
        Self { neighbour, token, address, address_bytes, identity_at, identity }
    }

    /// Checks that the address is inside a memory of this many bytes.
    ///
    /// # Errors
    /// [`Outcome::OutOfRange`].
    pub(super) fn check(&self, memory: u64) -> Result<(), Outcome> {
        let end = self.address.checked_add(self.address_bytes).filter(|end| *end <= memory);
        end.filter(|_| self.address_bytes <= MAX_ADDRESS_BYTES).map(|_| ()).ok_or(Outcome::OutOfRange)
    }
}

impl Exchange {
    /// Checks that what is written is inside a memory of this many bytes. The neighbour checks where it goes.
    ///
    /// # Errors
    /// [`Outcome::OutOfRange`].
    pub(super) fn check_put(&self, memory: u64) -> Result<(), Outcome> {
        inside(self.from, self.bytes, memory)?;
        if self.signal.is_multiple_of(8) { Ok(()) } else { Err(Outcome::OutOfRange) }
    }

    /// Checks that the copy is inside a memory of this many bytes and does not overlap its source, and the signal is
    /// aligned.
    ///
    /// # Errors
    /// [`Outcome::OutOfRange`].
    pub(super) fn check_wait(&self, memory: u64) -> Result<(), Outcome> {
        let (from, to) = (inside(self.from, self.bytes, memory)?, inside(self.to, self.bytes, memory)?);
        inside(self.signal, 8, memory)?;
        let is_valid = self.signal.is_multiple_of(8) && !overlap(&from, &to);
        if is_valid { Ok(()) } else { Err(Outcome::OutOfRange) }
    }

    pub(super) fn emit(&self, put: &mut Writer<'_>) {
        let Self { from, to, bytes, signal, value, timeout_ms } = *self;
        put.numbers([from, to, bytes, signal, value, timeout_ms]);
        put.bytes([0; 16]);
    }

    pub(super) fn parse(mut body: Reader<'_>) -> Self {
        let [from, to, bytes, signal, value, timeout_ms] = body.numbers();
        Self { from, to, bytes, signal, value, timeout_ms }
    }
}
