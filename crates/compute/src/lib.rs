//! Kernels on samples.
//!
//! - [`bitshuffle`]: samples to and from bit planes, which compress better than the samples.
//! - [`pack12`]: 12-bit samples to and from the bit stream of the wire and of HDF5's n-bit filter.
//! - [`prbs`]: test patterns that a verifier makes again instead of keeping a copy.
//!
//! Kernels are plain functions over slices. Each has a portable body; where the processor offers more, a
//! second one in a `sys` module is chosen at run time, and the tests hold both to the same reference.

pub mod bitshuffle;
pub mod pack12;
pub mod prbs;
