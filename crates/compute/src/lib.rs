//! Kernels on samples.
//!
//! - [`bitshuffle`]: samples to and from bit planes, which compress better than the samples.
//! - [`ddc`]: real or complex samples down-converted to IQ around zero, at a lower rate.
//! - [`pack12`]: 12-bit samples to and from the bit stream of the wire and of HDF5's n-bit filter.
//! - [`prbs`]: test patterns that a verifier makes again instead of keeping a copy.
//! - [`spectrum`]: windowed, averaged spectra, their strongest peaks, and signal-to-noise ratios.
//!
//! Kernels are plain functions over slices, or small structs where something is kept from block to block. Each has a portable body; where the processor offers more, a
//! second one in a `sys` module is chosen at run time, and the tests hold both to the same reference.

pub mod bitshuffle;
pub mod ddc;
pub mod pack12;
pub mod prbs;
pub mod spectrum;

mod sample;

pub use sample::Sample;
