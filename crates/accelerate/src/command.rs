//! Commands and completions, byte by byte. All numbers are little-endian.

use shotline_compute::stencil::{Boundary, Edge, Stencil, Tile, Weights};
use std::ops::Range;

/// Bytes of a command.
pub const COMMAND_BYTES: usize = 128;
/// Bytes of a completion.
pub const COMPLETION_BYTES: usize = 64;
/// Working memory that a command may use in any case; one on a larger tile may use twice the bytes of the tile.
const MAX_SCRATCH: u64 = 256 << 20;
/// Offset of the squares in a command that asks for none.
pub const NO_SQUARES: u64 = u64::MAX;

/// The work of a command.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kernel {
    /// Nothing, to measure the queue.
    Nop,
    /// Steps of a five-point stencil on a tile.
    Stencil(TileSteps),
}

/// Type of the values of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// 4 bytes, IEEE 754 binary32.
    F32,
    /// 8 bytes, IEEE 754 binary64.
    F64,
}

impl Values {
    /// Returns the bytes of a value.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }
}

/// Steps of a stencil on a tile in the accelerator's memory. Offsets and distances are in bytes, multiples of the bytes of
/// a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TileSteps {
    /// Type of the values.
    pub values: Values,
    /// The tile.
    pub tile: Tile,
    /// What is beyond the borders of the matrix.
    pub boundary: Boundary,
    /// Weights of the points.
    pub weights: Weights,
    /// Number of steps.
    pub steps: u32,
    /// Offset of the first row of the tile.
    pub source: u64,
    /// Offset of the first row of the result: that of the same row in the tile, or memory outside the tile.
    pub result: u64,
    /// Distance of two rows, of the tile and of the result.
    pub stride: u64,
    /// Offset at which the sums of the squares of the changes of each row of the result are stored, 8 bytes each.
    pub squares: Option<u64>,
}

/// Where the completion of a command goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    /// Number chosen by the initiator, returned in the completion.
    pub id: u64,
    /// Address of the initiator's memory that the completion is written to.
    pub address: u64,
    /// Its rkey.
    pub rkey: u32,
    /// Write the completion with immediate data (the number of the slot), which consumes a receive of the initiator.
    pub notify: bool,
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Command {
    /// Where the completion goes.
    pub to: ReplyTo,
    /// The work.
    pub kernel: Kernel,
}

/// Bytes that are no command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the command is malformed: {reason}")]
pub struct Malformed {
    /// Where the completion goes nevertheless.
    pub to: ReplyTo,
    /// What is wrong.
    pub reason: &'static str,
}

/// Outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Outcome {
    /// The result is in memory.
    Done = 1,
    /// The bytes of the command are not valid.
    Malformed = 2,
    /// The tile, its result or the sums are not inside the memory, overlap, or are not aligned.
    OutOfRange = 3,
    /// The tile has no result, or a number is out of its range.
    NoResult = 4,
    /// The accelerator or its memory failed.
    Failed = 5,
    /// The queue is full: the slot has a command that is not completed.
    Busy = 6,
    /// The steps need more working memory than a command may use.
    TooLarge = 7,
}

impl Outcome {
    const ALL: [Self; 7] =
        [Self::Done, Self::Malformed, Self::OutOfRange, Self::NoResult, Self::Failed, Self::Busy, Self::TooLarge];
}

/// Completion of a command.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Completion {
    /// Number of the command.
    pub id: u64,
    /// Outcome.
    pub outcome: Outcome,
    /// Slot of the command.
    pub slot: u32,
    /// Time in nanoseconds from the doorbell to the start of the work.
    pub waited_ns: u64,
    /// Time in nanoseconds that the work took.
    pub worked_ns: u64,
    /// Largest change of the last step, if it was requested.
    pub max: f64,
    /// Number of completions of this queue up to this one: it is stored last, and is never 0.
    pub sequence: u64,
}

const HALO_ABOVE: u8 = 1;
const HALO_BELOW: u8 = 2;
const NOTIFY: u8 = 4;

impl Command {
    /// Returns the bytes of the command.
    pub fn emit(&self) -> [u8; COMMAND_BYTES] {
        let mut bytes = [0; COMMAND_BYTES];
        let mut put = Writer(&mut bytes);
        let notify = if self.to.notify { NOTIFY } else { 0 };
        match self.kernel {
            Kernel::Nop => {
                put.bytes([0, 0, 0, notify, 0, 0, 0, 0]);
                put.u64(self.to.id);
                put.bytes([0; 64]);
            }
            Kernel::Stencil(work) => {
                let halo = |edge, flag| if edge == Edge::Halo { flag } else { 0 };
                let edges = halo(work.tile.above, HALO_ABOVE) | halo(work.tile.below, HALO_BELOW);
                let values = u8::from(work.values == Values::F64);
                let boundary = match work.boundary {
                    Boundary::Fixed => 0,
                    Boundary::Periodic => 1,
                    Boundary::Insulated => 2,
                };
                put.bytes([1, values, boundary, notify | edges]);
                put.u32(work.steps);
                put.u64(self.to.id);
                let (rows, columns) = (work.tile.rows as u64, work.tile.columns as u64);
                let squares = work.squares.unwrap_or(NO_SQUARES);
                for number in [rows, columns, work.source, work.result, work.stride, squares] {
                    put.u64(number);
                }
                put.bytes(work.weights.center.to_le_bytes());
                put.bytes(work.weights.neighbour.to_le_bytes());
            }
        }
        put.u64(self.to.address);
        put.u32(self.to.rkey);
        bytes
    }

    /// Parses a command.
    ///
    /// # Errors
    /// If a byte has a value without a meaning. Ranges are not checked ([`TileSteps::check`]).
    pub fn parse(bytes: &[u8; COMMAND_BYTES]) -> Result<Self, Malformed> {
        let mut take = Reader(bytes);
        let [kernel, values, boundary, flags] = take.bytes();
        let steps = take.u32();
        let id = take.u64();
        let [rows, columns, source, result, stride, squares] = std::array::from_fn(|_| take.u64());
        let (center, neighbour) = (take.f64(), take.f64());
        let to = ReplyTo { id, address: take.u64(), rkey: take.u32(), notify: flags & NOTIFY != 0 };
        let refuse = |reason| Malformed { to, reason };
        if flags & !(HALO_ABOVE | HALO_BELOW | NOTIFY) != 0 || take.0.iter().any(|byte| *byte != 0) {
            return Err(refuse("a reserved bit is set"));
        }
        let kernel = match kernel {
            0 => Kernel::Nop,
            1 => {
                let values = match values {
                    0 => Values::F32,
                    1 => Values::F64,
                    _ => return Err(refuse("the type of the values is unknown")),
                };
                let boundary = match boundary {
                    0 => Boundary::Fixed,
                    1 => Boundary::Periodic,
                    2 => Boundary::Insulated,
                    _ => return Err(refuse("the boundary is unknown")),
                };
                let edge = |flag| if flags & flag != 0 { Edge::Halo } else { Edge::Border };
                let count = |number| usize::try_from(number).map_err(|_| refuse("a count has more than 64 bits"));
                let (above, below) = (edge(HALO_ABOVE), edge(HALO_BELOW));
                let tile = Tile { rows: count(rows)?, columns: count(columns)?, above, below };
                let weights = Weights { center, neighbour };
                let squares = (squares != NO_SQUARES).then_some(squares);
                Kernel::Stencil(TileSteps { values, tile, boundary, weights, steps, source, result, stride, squares })
            }
            _ => return Err(refuse("the kernel is unknown")),
        };
        Ok(Self { to, kernel })
    }
}

impl TileSteps {
    /// Returns the stencil that computes the steps.
    pub fn stencil(&self, threads: usize) -> Stencil {
        Stencil {
            weights: self.weights,
            boundary: self.boundary,
            steps: self.steps as usize,
            threads,
            residual: self.squares.is_some(),
        }
    }

    /// Checks that the work can be done in a memory of this many bytes, by this many threads.
    ///
    /// # Errors
    /// [`Outcome::NoResult`], [`Outcome::OutOfRange`] or [`Outcome::TooLarge`].
    pub fn check(&self, memory: u64, threads: usize) -> Result<(), Outcome> {
        let results = self.stencil(1).check(self.tile).map_err(|_| Outcome::NoResult)?;
        let span = |offset: u64, rows: usize| {
            let row = self.values.bytes().checked_mul(self.tile.columns as u64)?;
            let before = self.stride.checked_mul(rows as u64 - 1)?;
            let end = offset.checked_add(before)?.checked_add(row)?;
            (row <= self.stride && end <= memory).then_some(offset..end)
        };
        let unit = self.values.bytes();
        let is_aligned = [self.source, self.result, self.stride].iter().all(|number| number.is_multiple_of(unit));
        let tile = span(self.source, self.tile.rows).filter(|_| is_aligned).ok_or(Outcome::OutOfRange)?;
        let result = span(self.result, results.len()).ok_or(Outcome::OutOfRange)?;
        if self.scratch_bytes(threads) > u128::from(MAX_SCRATCH.max(2 * (tile.end - tile.start))) {
            return Err(Outcome::TooLarge);
        }
        let in_place = self.source + results.start as u64 * self.stride;
        if self.result != in_place && overlap(&tile, &result) {
            return Err(Outcome::OutOfRange);
        }
        if let Some(at) = self.squares {
            let end = at.checked_add(8 * results.len() as u64).filter(|end| *end <= memory && at.is_multiple_of(8));
            let squares = at..end.ok_or(Outcome::OutOfRange)?;
            if overlap(&squares, &tile) || overlap(&squares, &result) {
                return Err(Outcome::OutOfRange);
            }
        }
        Ok(())
    }
}

impl TileSteps {
    /// Returns an upper bound of the memory for rows next to the bands of threads, columns next to panels, and sums.
    fn scratch_bytes(&self, threads: usize) -> u128 {
        let (rows, columns, steps) = (self.tile.rows as u128, self.tile.columns as u128, u128::from(self.steps));
        let values = 2 * steps * columns * (threads as u128 + 1) + 2 * steps * rows;
        values * u128::from(self.values.bytes()) + 16 * rows
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

impl Completion {
    /// Returns the bytes of the completion.
    pub fn emit(&self) -> [u8; COMPLETION_BYTES] {
        let mut bytes = [0; COMPLETION_BYTES];
        let mut put = Writer(&mut bytes);
        put.u64(self.id);
        put.u32(self.outcome as u32);
        put.u32(self.slot);
        put.u64(self.waited_ns);
        put.u64(self.worked_ns);
        put.bytes(self.max.to_le_bytes());
        put.bytes([0; 16]);
        put.u64(self.sequence);
        bytes
    }

    /// Parses a completion. `None` if there is none yet, or if the bytes are not one.
    pub fn parse(bytes: &[u8; COMPLETION_BYTES]) -> Option<Self> {
        let mut take = Reader(bytes);
        let (id, outcome, slot) = (take.u64(), take.u32(), take.u32());
        let (waited_ns, worked_ns, max) = (take.u64(), take.u64(), take.f64());
        let _: [u8; 16] = take.bytes();
        let sequence = take.u64();
        let outcome = Outcome::ALL.into_iter().find(|known| *known as u32 == outcome)?;
        (sequence > 0).then_some(Self { id, outcome, slot, waited_ns, worked_ns, max, sequence })
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Done => "done",
            Self::Malformed => "the command is malformed",
            Self::OutOfRange => {
                "the tile does not fit the accelerator's memory, overlaps its result, or is not aligned"
            }
            Self::NoResult => "the tile has no result after these steps",
            Self::Failed => "the accelerator or its memory failed",
            Self::Busy => "the slot of the command is still in use",
            Self::TooLarge => "the steps need too much working memory: use fewer of them in a round",
        })
    }
}

/// Writes numbers one after another.
struct Writer<'a>(&'a mut [u8]);

impl Writer<'_> {
    fn bytes<const N: usize>(&mut self, bytes: [u8; N]) {
        let (to, rest) = std::mem::take(&mut self.0).split_at_mut(N);
        to.copy_from_slice(&bytes);
        self.0 = rest;
    }
    fn u32(&mut self, number: u32) {
        self.bytes(number.to_le_bytes());
    }
    fn u64(&mut self, number: u64) {
        self.bytes(number.to_le_bytes());
    }
}

/// Reads numbers one after another.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let (bytes, rest) = self.0.split_first_chunk().unwrap_or((&[0; N], &[]));
        self.0 = rest;
        *bytes
    }
    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }
    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }
    fn f64(&mut self) -> f64 {
        f64::from_le_bytes(self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TO: ReplyTo = ReplyTo { id: 0x0102_0304_0506_0708, address: 0x1122_3344, rkey: 0xAABB_CCDD, notify: true };

    fn work() -> TileSteps {
        TileSteps {
            values: Values::F32,
            tile: Tile { rows: 32, columns: 100, above: Edge::Halo, below: Edge::Border },
            boundary: Boundary::Insulated,
            weights: Weights { center: 0.5, neighbour: 0.125 },
            steps: 8,
            source: 4096,
            result: 4096 + 8 * 512,
            stride: 512,
            squares: Some(0),
        }
    }

    #[test]
    fn commands_have_the_documented_bytes() {
        let bytes = Command { to: TO, kernel: Kernel::Stencil(work()) }.emit();
        assert_eq!(bytes[..16], [1, 0, 2, 1 | 4, 8, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1]);
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!([16, 24, 32, 40, 48, 56].map(number), [32, 100, 4096, 4096 + 8 * 512, 512, 0]);
        assert_eq!([64, 72].map(|at| f64::from_bits(number(at))), [0.5, 0.125]);
        assert_eq!((number(80), number(88)), (0x1122_3344, 0xAABB_CCDD));
        assert_eq!(bytes[96..], [0; 32]);
        let nop = Command { to: ReplyTo { notify: false, ..TO }, kernel: Kernel::Nop };
        assert_eq!((nop.emit()[0], Command::parse(&nop.emit())), (0, Ok(nop)));
    }

    #[test]
    fn completions_have_the_documented_bytes() {
        let completion = Completion {
            id: 7,
            outcome: Outcome::Failed,
            slot: 3,
            waited_ns: 10,
            worked_ns: 20,
            max: 1.5,
            sequence: 9,
        };
        let bytes = completion.emit();
        assert_eq!((bytes[0], bytes[8], bytes[12], bytes[16], bytes[24], bytes[56]), (7, 5, 3, 10, 20, 9));
        assert_eq!(bytes[32..40], 1.5_f64.to_le_bytes());
        assert_eq!(Completion::parse(&bytes), Some(completion));
        assert_eq!(Completion::parse(&[0; COMPLETION_BYTES]), None);
    }

    #[test]
    fn memory_outside_and_overlapping_results_are_refused() {
        let end = 4096 + 32 * 512 - 112;
        assert_eq!(work().check(end, 1), Ok(()));
        assert_eq!(work().check(end - 1, 1), Err(Outcome::OutOfRange));
        let refused = |change: fn(&mut TileSteps)| {
            let mut work = work();
            change(&mut work);
            work.check(1 << 20, 1).unwrap_err()
        };
        assert_eq!(refused(|work| work.result += 512), Outcome::OutOfRange);
        assert_eq!(refused(|work| work.source += 2), Outcome::OutOfRange);
        assert_eq!(refused(|work| work.stride = 396), Outcome::OutOfRange);
        assert_eq!(refused(|work| work.squares = Some(4096)), Outcome::OutOfRange);
        assert_eq!(refused(|work| work.squares = Some(u64::MAX - 7)), Outcome::OutOfRange);
        assert_eq!(refused(|work| work.result = u64::MAX - 3), Outcome::OutOfRange);
        assert_eq!(refused(|work| work.tile.rows = usize::MAX), Outcome::OutOfRange);
        assert_eq!(refused(|work| work.tile.columns = usize::MAX), Outcome::OutOfRange);
        assert_eq!(refused(|work| work.tile.rows = 8), Outcome::NoResult);
        assert_eq!(refused(|work| work.steps = 0), Outcome::NoResult);
        assert_eq!(refused(|work| work.steps = u32::MAX), Outcome::NoResult);
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(bytes: [u8; 32], valid: [u8; 4]) {
            let mut command = Command { to: TO, kernel: Kernel::Stencil(work()) }.emit();
            command[..4].copy_from_slice(&valid.map(|byte| byte % 8));
            command[16..48].copy_from_slice(&bytes);
            if let Ok(parsed) = Command::parse(&command)
                && let Kernel::Stencil(work) = parsed.kernel
            {
                prop_assert_eq!(parsed.emit(), command);
                let _ = work.check(u64::MAX, 1);
            }
        }
    }
}
