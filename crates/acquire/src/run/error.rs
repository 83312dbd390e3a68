//! Why a run could not begin, or broke off.

use crate::books::Imbalance;
use crate::clock::ClockError;
use crate::config::Invalid;
use crate::control::ControlError;
use crate::learn::LearnError;
use shotline_memory::MemoryError;
use shotline_store::StoreError;
use shotline_transport::IoError;
use shotline_wire::shot::GeometryError;

/// Why a run could not begin, or broke off.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Settings that no run can have.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// Settings that do not fit what was found: the probe, the transport, the pool.
    #[error("{0}")]
    Settings(String),
    /// The shape of a shot.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The probe.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The network.
    #[error(transparent)]
    Io(#[from] IoError),
    /// A sender that takes no set-up.
    #[error(transparent)]
    Learn(#[from] LearnError),
    /// The clock.
    #[error(transparent)]
    Clock(#[from] ClockError),
    /// Memory.
    #[error("{0}; --pool says how much a run takes")]
    Memory(#[from] MemoryError),
    /// The recorder.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A defect of this program.
    #[error(transparent)]
    Imbalance(#[from] Imbalance),
    /// A thread of ours is gone.
    #[error("the {0} thread panicked: this is a defect, please report it")]
    Panicked(&'static str),
}
