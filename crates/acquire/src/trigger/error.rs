//! Errors of a measurement.

use crate::control::ControlError;
use crate::counters::Imbalance;
use shotline_memory::MemoryError;
use shotline_transport::IoError;
use shotline_wire::shot::GeometryError;
use std::net::SocketAddr;

/// Error of a measurement.
#[derive(Debug, thiserror::Error)]
pub enum TriggerError {
    /// Settings that do not fit this probe.
    #[error("{0}")]
    Settings(String),
    /// Invalid shape of a shot.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// Controlling the probe failed.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The probe does not support acknowledgements.
    #[error(
        "the probe at {probe} does not acknowledge triggers: update its firmware (docs/wire-formats.md, section 7); without acknowledgements a lost trigger cannot be distinguished from a lost shot"
    )]
    NoAcknowledgement {
        /// The probe's set-up address.
        probe: SocketAddr,
    },
    /// The socket of the commands failed.
    #[error("cannot send commands to {probe}: {source}")]
    Command {
        /// The probe's set-up address.
        probe: SocketAddr,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// The transport failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// Memory could not be allocated.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A defect of this program.
    #[error(transparent)]
    Imbalance(#[from] Imbalance),
}
