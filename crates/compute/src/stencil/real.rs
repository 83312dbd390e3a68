//! The number types of a matrix.

use std::ops::{Add, Mul};

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
    + std::fmt::Debug
    + 'static
{
    /// Rounds to the nearest value of the type.
    fn from_f64(value: f64) -> Self;
    /// Returns the bytes of values.
    fn bytes(values: &[Self]) -> &[u8];
    /// Returns the bytes of values, to be overwritten.
    fn bytes_mut(values: &mut [Self]) -> &mut [u8];
}

macro_rules! real {
    ($type:ty) => {
        impl Real for $type {
            #[inline]
            fn from_f64(value: f64) -> Self {
                value as Self
            }
            #[inline]
            fn bytes(values: &[Self]) -> &[u8] {
                // SAFETY: every value is a sequence of initialised bytes without padding, whose alignment is 1.
                unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
            }
            #[inline]
            fn bytes_mut(values: &mut [Self]) -> &mut [u8] {
                // SAFETY: as above; any bytes are a valid value.
                unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
            }
        }
    };
}

real!(f32);
real!(f64);
