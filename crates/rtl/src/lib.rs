//! Control of the FPGA's sender (`hdl/`): its register map, the register writes for a link's configuration, and the
//! frames that it must send. With the feature `model`, `Sender` simulates the RTL.
//!
//! [`registers`] is generated from `hdl/registers.toml`, as are the RTL's constants; it also has those of a packet card.
//! [`Config::writes`] returns the writes for any bus that leads to the FPGA. [`expected`] builds the frames of a shot with
//! `shotline_wire`: the reference that the RTL is checked against.
//!
//! ```
//! use shotline_rtl::{Config, registers};
//! let writes = Config::default().writes();
//! // The last write applies the whole configuration.
//! assert_eq!(writes.last().map(|write| write.0), Some(registers::sender::CONTROL));
//! ```

mod config;
pub mod expected;
#[cfg(feature = "model")]
mod model;
// Generated, and compared with the committed file.
#[rustfmt::skip]
pub mod registers;
#[cfg(feature = "model")]
pub mod soak;
#[cfg(feature = "model")]
mod sys;

pub use config::{Config, Framing, Shot};
#[cfg(feature = "model")]
pub use model::{Frame, Sender, Side, WriteError};
#[cfg(feature = "model")]
pub use sys::Limits;
