//! Errors of the stencil.

/// The tile or the parameters do not allow the computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StencilError {
    /// No row remains.
    #[error(
        "a tile of {rows} rows and {columns} columns, with halos of {above} and {below} rows, has no row that is a result: \
         take more rows or fewer steps at a time"
    )]
    NoResult {
        /// Rows of the tile.
        rows: usize,
        /// Columns of the tile.
        columns: usize,
        /// Rows of the upper halo.
        above: usize,
        /// Rows of the lower halo.
        below: usize,
    },
    /// The number of steps is out of range.
    #[error("expected 1 to {max} steps at a time, found {found}")]
    Steps {
        /// Number of steps.
        found: usize,
        /// Maximum number of steps.
        max: usize,
    },
    /// There is no thread.
    #[error("expected at least one thread, found 0")]
    Threads,
    /// A periodic matrix has a border on one side only.
    #[error("a tile of a periodic matrix has halos on both sides, or is the whole matrix; this one has one halo")]
    HalfPeriodic,
}
