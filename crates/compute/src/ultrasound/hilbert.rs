//! Hilbert transform of blocks of equal length.

use crate::spectrum::real_transform;
use realfft::num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use std::sync::Arc;

/// Hilbert transform by FFT: the imaginary part of the analytic signal. All memory is allocated at construction.
pub(super) struct Hilbert {
    forward: Arc<dyn RealToComplex<f32>>,
    inverse: Arc<dyn ComplexToReal<f32>>,
    signal: Vec<f32>,
    bins: Vec<Complex<f32>>,
    scratch: Vec<Complex<f32>>,
}

/// Plans the inverse transform; not generic for the same reason as [`real_transform`].
fn inverse_transform(length: usize) -> Arc<dyn ComplexToReal<f32>> {
    RealFftPlanner::new().plan_fft_inverse(length)
}

impl Hilbert {
    /// Plans the transform of blocks of `length` samples, which are extended by zeros to a power of two.
    pub(super) fn new(length: usize) -> Self {
        let points = length.next_power_of_two().max(2);
        let (forward, inverse) = (real_transform(points), inverse_transform(points));
        let scratch = forward.get_scratch_len().max(inverse.get_scratch_len());
        Self {
            signal: vec![0.0; points],
            bins: vec![Complex::default(); points / 2 + 1],
            scratch: vec![Complex::default(); scratch],
            forward,
            inverse,
        }
    }

    /// Computes the Hilbert transform of `input`, as many samples as `out` has.
    pub(super) fn transform(&mut self, input: &[f32], out: &mut [f32]) {
        let length = input.len().min(out.len());
        out[..length].copy_from_slice(&self.transformed(&input[..length])[..length]);
    }

    /// Returns the Hilbert transform of `input`, which is not longer than the block.
    pub(super) fn transformed(&mut self, input: &[f32]) -> &[f32] {
        let points = self.signal.len();
        let length = input.len().min(points);
        self.signal[..length].copy_from_slice(&input[..length]);
        self.signal[length..].fill(0.0);
        self.forward
            .process_with_scratch(&mut self.signal, &mut self.bins, &mut self.scratch)
            .expect("the lengths are those of the plan");
        // Positive frequencies are turned by -90 degrees; the mean and half the sample rate have no direction.
        let scale = 1.0 / points as f32;
        for bin in &mut self.bins {
            *bin = Complex::new(bin.im * scale, -bin.re * scale);
        }
        self.bins[0] = Complex::default();
        self.bins[points / 2] = Complex::default();
        self.inverse
            .process_with_scratch(&mut self.bins, &mut self.signal, &mut self.scratch)
            .expect("the lengths are those of the plan");
        &self.signal[..length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cosine_becomes_a_sine() {
        let angle = |n: usize| std::f32::consts::TAU * 5.0 * n as f32 / 64.0;
        let cosine: Vec<f32> = (0..64).map(|n| 3.0 + angle(n).cos()).collect();
        let mut out = vec![0.0; 64];
        Hilbert::new(64).transform(&cosine, &mut out);
        for (n, value) in out.iter().enumerate() {
            assert!((value - angle(n).sin()).abs() < 1e-5, "sample {n}: {value}");
        }
    }

    #[test]
    fn every_length_is_transformed() {
        for length in 1..40 {
            let mut out = vec![f32::NAN; length];
            Hilbert::new(length).transform(&vec![1.0; length], &mut out);
            assert!(out.iter().all(|value| value.is_finite()));
        }
    }
}
