//! Control of the FPGA's sender (`hdl/`): its register map, the register writes for a link's configuration, and the
//! frames that it must send. With the feature `model`, `Sender` simulates the RTL, and `card` the DMA module of a packet
//! card with its host.
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

#[cfg(feature = "model")]
pub mod card;
// Generated, and compared with the committed file.
#[rustfmt::skip]
pub mod registers;
mod sender;

pub use sender::{Config, Framing, Shot, expected};
#[cfg(feature = "model")]
pub use sender::{Frame, Limits, Sender, Side, WriteError, soak};
