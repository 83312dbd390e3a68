//! Errors of displays.

use crate::Mode;
use shotline_memory::MemoryError;
use std::path::PathBuf;

/// Reason for which a display cannot be opened or used.
#[derive(Debug, thiserror::Error)]
pub enum DisplayError {
    /// There is no such display, or it cannot be reached.
    #[error("cannot open the display {name}: {reason}; choose another one, or --display none")]
    Unavailable {
        /// Name of the display.
        name: String,
        /// What was found.
        reason: String,
    },
    /// The display cannot show frames in memory of this process.
    #[error(
        "the display {name} takes no shared memory: {reason}; a display on this machine is needed, or --display none"
    )]
    NoSharedMemory {
        /// Name of the display.
        name: String,
        /// What it lacks.
        reason: String,
    },
    /// The screen has no mode of the wanted size.
    #[error("the screen has no mode of {wanted}; it has {offered}", wanted = .wanted)]
    NoMode {
        /// Wanted mode.
        wanted: Mode,
        /// Modes of the screen, for a message.
        offered: String,
    },
    /// The display does not exist any more.
    #[error("the display has gone: {0}")]
    Gone(String),
    /// The display refused a request.
    #[error("the display refused a request: {0}")]
    Refused(String),
    /// There is no buffer with this index.
    #[error("expected a buffer below {count}, found {buffer}")]
    NoSuchBuffer {
        /// Index.
        buffer: usize,
        /// Number of buffers.
        count: usize,
    },
    /// A buffer was presented again before it was released.
    #[error("buffer {buffer} was presented again before the display had released it")]
    BufferInUse {
        /// Index.
        buffer: usize,
    },
    /// Memory for the frame buffers could not be allocated or registered.
    #[error("frame buffers: {0}")]
    Memory(#[from] MemoryError),
    /// The folder has frames of an earlier run.
    #[error("{0} has frames of an earlier run: choose another folder, or use --force")]
    HasFrames(PathBuf),
    /// A frame could not be saved.
    #[error("cannot save {path}: {source}")]
    Save {
        /// File of the frame.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}
