//! The interface of the kernels.

use std::fmt;

/// Maximum number of lanes of a link.
pub const MAX_LANES: usize = 16;
/// Maximum number of data words that one lane sends in a frame.
pub const MAX_ROWS: usize = 64;

/// Characters of one word.
pub(super) type Characters = [u8; 4];

/// CRC of each lane.
pub(super) type States = [u16; MAX_LANES];

/// Whole rows of a frame, at least one. Small enough to be passed in a register.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    /// Place of the first row in the frame.
    pub first: u8,
    pub count: u8,
    pub lanes: u8,
}

impl Rows {
    /// Panics if these are not as many words as the rows have, or the rows are not in a frame.
    pub(super) fn check(self, words: &[Characters]) {
        let Self { first, count, lanes } = self;
        assert!((1..=MAX_LANES).contains(&lanes.into()), "a link has 1 to 16 lanes, found {lanes}");
        let end = usize::from(first) + usize::from(count);
        assert!(count > 0 && end <= MAX_ROWS, "a frame has {MAX_ROWS} rows, found {first} to {end}");
        assert_eq!(words.len(), usize::from(count) * usize::from(lanes), "words of {count} rows");
    }
}

/// Kernels for one instruction set, which process whole rows.
pub struct Form {
    pub(super) name: &'static str,
    /// Writes the scrambled words to the second slice.
    pub(super) scramble: fn(&[Characters], &mut [Characters], Rows, &mut States),
    pub(super) descramble: fn(&mut [Characters], Rows, &mut States),
    pub(super) checksum: fn(&[Characters], Rows, &mut States),
}

impl Form {
    /// Returns the name of the instruction set.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl fmt::Debug for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
