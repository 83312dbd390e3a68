//! The FPGA's sender: its configuration, the frames that it must send, and the model of its RTL.

mod config;
pub mod expected;
#[cfg(feature = "model")]
mod model;
#[cfg(feature = "model")]
pub mod soak;
#[cfg(feature = "model")]
mod sys;

pub use config::{Config, Framing, Shot};
#[cfg(feature = "model")]
pub use model::{Frame, Sender, Side, WriteError};
#[cfg(feature = "model")]
pub use sys::Limits;
