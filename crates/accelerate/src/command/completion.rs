//! Completions of commands.

use super::fields::{Reader, Writer};

/// Bytes of a completion.
pub const COMPLETION_BYTES: usize = 64;

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
    /// The neighbour cannot be reached, refuses the access, or is lost.
    NeighbourLost = 8,
    /// The signal has not reached its value in time, or a WRITE to the neighbour has not ended.
    TimedOut = 9,
}

impl Outcome {
    const ALL: [Self; 9] = [
        Self::Done,
        Self::Malformed,
        Self::OutOfRange,
        Self::NoResult,
        Self::Failed,
        Self::Busy,
        Self::TooLarge,
        Self::NeighbourLost,
        Self::TimedOut,
    ];
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
                "what the command names does not fit the accelerator's memory, overlaps, or is not aligned"
            }
            Self::NoResult => "the tile has no result after these steps",
            Self::Failed => "the accelerator or its memory failed",
            Self::Busy => "the slot of the command is still in use",
            Self::TooLarge => "the steps need too much working memory: use fewer of them in a round",
            Self::NeighbourLost => "its neighbour cannot be reached, refuses the access, or is lost",
            Self::TimedOut => "its neighbour did not act in time",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
