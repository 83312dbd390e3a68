//! The FPGA's sender (`hdl/`): its registers, how a link's configuration is written to them, which frames it must then
//! send; and, with the feature `model`, the RTL itself as a model that runs (`Sender`).
//!
//! [`registers`] is made from `hdl/registers.toml`, as the RTL's own constants are. [`Config::writes`] says what to
//! write over whatever bus leads to the FPGA. [`expected`] puts together the frames of a shot from `shotline_wire`: the
//! definition that the RTL is checked against.
//!
//! ```
//! use shotline_rtl::{Config, registers};
//! let writes = Config::default().writes();
//! // All configuration is taken over at once, by the last write.
//! assert_eq!(writes.last().map(|write| write.0), Some(registers::sender::CONTROL));
//! ```

mod config;
pub mod expected;
#[cfg(feature = "model")]
mod model;
// The words of the map are the map's.
#[rustfmt::skip]
pub mod registers;
#[cfg(feature = "model")]
pub mod soak;
#[cfg(feature = "model")]
mod sys;

pub use config::{Config, Framing, Shot};
#[cfg(feature = "model")]
pub use model::{Frame, Refused, Sender, Side};
#[cfg(feature = "model")]
pub use sys::Limits;
