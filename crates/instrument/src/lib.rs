//! Emulated devices that speak the real wire formats.
//!
//! A device here meets the receiver on the wire and nowhere else: it uses none of the receiver's code, so a
//! mistake in one is not hidden by the same mistake in the other.
//!
//! - [`digitizer`]: a digitizer with on-board memory and a DMA engine that writes into prebuilt frames.
//! - [`probe`]: the multi-channel ultrasound probe, with test patterns or recorded data, exact timing, and
//!   faults on purpose.
//! - [`replay`]: a recording, or a capture, sent again.

pub mod digitizer;
#[cfg(test)]
mod fake;
pub mod probe;
pub mod replay;
