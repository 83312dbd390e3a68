//! Errors of a run.

use crate::clock::ClockError;
use crate::config::InvalidSetting;
use crate::control::ControlError;
use crate::counters::Imbalance;
use crate::learn::LearnError;
use shotline_memory::MemoryError;
use shotline_store::StoreError;
use shotline_transport::IoError;
use shotline_wire::shot::GeometryError;

/// Error before or during a run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Settings that no run can have.
    #[error(transparent)]
    Invalid(#[from] InvalidSetting),
    /// Settings that do not fit the probe, the transport or the pool.
    #[error("{0}")]
    Settings(String),
    /// Invalid shape of a shot.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// Controlling the probe failed.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The transport failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// A sender without set-up could not be learned.
    #[error(transparent)]
    Learn(#[from] LearnError),
    /// The clock could not be opened.
    #[error(transparent)]
    Clock(#[from] ClockError),
    /// Memory could not be allocated.
    #[error("{0}; --pool sets the size of a run's pool")]
    Memory(#[from] MemoryError),
    /// The recorder failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A defect of this program.
    #[error(transparent)]
    Imbalance(#[from] Imbalance),
    /// A thread of this program panicked.
    #[error("the {0} thread panicked: this is a defect, please report it")]
    Panicked(&'static str),
}
