//! Emulated instruments that use the real wire formats.
//!
//! Devices share no code with the receiver, only the wire formats, so a mistake in one is not hidden by the same
//! mistake in the other.
//!
//! - [`digitizer`]: a digitizer with on-board memory and a DMA engine that writes into prebuilt frames.
//! - [`probe`]: a multi-channel ultrasound probe with test patterns or recorded data, exact timing,
//!   and injected faults.
//! - [`replay`]: replay of a recording or a capture.

pub mod digitizer;
#[cfg(test)]
mod fake;
pub mod probe;
pub mod replay;
