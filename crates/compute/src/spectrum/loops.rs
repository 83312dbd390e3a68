//! Vectorised loops before and after the transform.

use realfft::num_complex::Complex;

/// Loops compiled for one instruction set.
#[derive(Clone, Copy)]
pub(super) struct Loops {
    pub(super) apply_window_real: fn(&[i16], &[f32], &mut [f32]),
    pub(super) apply_window_iq: fn(&[i16], &[f32], &mut [Complex<f32>]),
    pub(super) add_power: fn(&[Complex<f32>], &mut [f64]),
}

pub(super) const PORTABLE: Loops = Loops {
    apply_window_real: |words, weights, out| portable::apply_window_real(words, weights, out),
    apply_window_iq: |words, weights, out| portable::apply_window_iq(words, weights, out),
    add_power: |bins, sums| portable::add_power(bins, sums),
};

/// Portable loops, inlined into functions compiled for other instruction sets.
pub(super) mod portable {
    use super::Complex;

    #[inline(always)]
    pub fn apply_window_real(words: &[i16], weights: &[f32], out: &mut [f32]) {
        for ((word, weight), out) in words.iter().zip(weights).zip(out) {
            *out = f32::from(*word) * weight;
        }
    }

    #[inline(always)]
    pub fn apply_window_iq(words: &[i16], weights: &[f32], out: &mut [Complex<f32>]) {
        for (([re, im], weight), out) in words.as_chunks().0.iter().zip(weights).zip(out) {
            *out = Complex::new(f32::from(*re) * weight, f32::from(*im) * weight);
        }
    }

    #[inline(always)]
    pub fn add_power(bins: &[Complex<f32>], sums: &mut [f64]) {
        for (bin, sum) in bins.iter().zip(sums) {
            *sum += f64::from(bin.re * bin.re + bin.im * bin.im);
        }
    }
}
