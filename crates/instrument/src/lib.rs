//! Emulated instruments that use the real wire formats.
//!
//! Devices share no code with the receiver, only the wire formats, so a mistake in one is not hidden by the same
//! mistake in the other.
//!
//! - `card`, with the feature `rtl`: the simulated packet card for a driver in another process.
//! - [`digitizer`]: a digitizer with on-board memory and a DMA engine that writes into prebuilt frames.
//! - [`probe`]: a multi-channel ultrasound probe with test patterns or recorded data, exact timing,
//!   and injected faults.
//! - [`replay`]: replay of a recording or a capture.

#[cfg(feature = "rtl")]
pub mod card;
pub mod digitizer;
#[cfg(test)]
mod fake;
pub mod probe;
pub mod replay;
