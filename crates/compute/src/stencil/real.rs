//! The number types of a matrix.

use std::ops::{Add, Mul};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// `f32` or `f64`.
pub trait Real:
    Copy
    + Default
    + Send
    + Sync
    + PartialEq
    + Add<Output = Self>
    + Mul<Output = Self>
    + Into<f64>
    + FromBytes
    + IntoBytes
    + Immutable
    + std::fmt::Debug
    + 'static
{
    /// Rounds to the nearest value of the type.
    fn from_f64(value: f64) -> Self;

    /// Returns the bytes of values.
    fn bytes(values: &[Self]) -> &[u8] {
        values.as_bytes()
    }

    /// Returns the bytes of values, to be overwritten.
    fn bytes_mut(values: &mut [Self]) -> &mut [u8] {
        values.as_mut_bytes()
    }
}

impl Real for f32 {
    fn from_f64(value: f64) -> Self {
        value as Self
    }
}

impl Real for f64 {
    fn from_f64(value: f64) -> Self {
        value
    }
}
