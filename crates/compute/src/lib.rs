//! Kernels on samples and matrices.
//!
//! - [`bitshuffle`]: conversion of samples to and from bit planes, which compress better than samples.
//! - [`ddc`]: digital down-conversion of real or complex samples to IQ at a lower rate.
//! - [`pack12`]: packing of 12-bit samples as on the wire and in HDF5's n-bit filter.
//! - [`prbs`]: test patterns that a verifier regenerates instead of storing a copy.
//! - [`spectrum`]: Welch spectra, their strongest peaks, SINAD and SNR.
//! - [`stencil`]: many steps of a five-point stencil in one pass over a matrix, with the same bits for every tiling.
//! - [`ultrasound`]: the transducer and its transmissions, images of their echoes by delay and sum.
//!
//! Kernels are plain functions over slices, or small structs where state is carried from block to block. Each has a
//! portable implementation. If the processor has suitable vector instructions, an implementation in a `sys` module is
//! selected at run time; tests compare both with the same reference.

pub mod bitshuffle;
pub mod ddc;
pub mod pack12;
pub mod prbs;
pub mod spectrum;
pub mod stencil;
pub mod ultrasound;

mod sample;

pub use sample::Sample;
