//! The portable loops of a spectrum compiled for AVX-512 and AVX2. The results do not depend on the instruction set.

use super::loops::{Loops, portable};
use realfft::num_complex::Complex;

/// Loops with their feature tests, fastest first.
static LOOPS: [(fn() -> bool, Loops); 2] = [
    (
        || is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq"),
        Loops {
            // SAFETY: `available` returns these only if both features were detected.
            apply_window_real: |words, weights, out| unsafe { avx512::apply_window_real(words, weights, out) },
            // SAFETY: as above.
            apply_window_iq: |words, weights, out| unsafe { avx512::apply_window_iq(words, weights, out) },
            // SAFETY: as above.
            add_power: |bins, sums| unsafe { avx512::add_power(bins, sums) },
        },
    ),
    (
        || is_x86_feature_detected!("avx2"),
        Loops {
            // SAFETY: `available` returns these only if AVX2 was detected.
            apply_window_real: |words, weights, out| unsafe { avx2::apply_window_real(words, weights, out) },
            // SAFETY: as above.
            apply_window_iq: |words, weights, out| unsafe { avx2::apply_window_iq(words, weights, out) },
            // SAFETY: as above.
            add_power: |bins, sums| unsafe { avx2::add_power(bins, sums) },
        },
    ),
];

/// Returns the loops that this processor supports, fastest first.
pub(super) fn available() -> impl Iterator<Item = Loops> {
    LOOPS.iter().filter(|(needs, _)| needs()).map(|(_, loops)| *loops)
}

macro_rules! compiled_for {
    ($name:ident, $features:literal) => {
        mod $name {
            use super::{Complex, portable};

            #[target_feature(enable = $features)]
            pub fn apply_window_real(words: &[i16], weights: &[f32], out: &mut [f32]) {
                portable::apply_window_real(words, weights, out);
            }

            #[target_feature(enable = $features)]
            pub fn apply_window_iq(words: &[i16], weights: &[f32], out: &mut [Complex<f32>]) {
                portable::apply_window_iq(words, weights, out);
            }

            #[target_feature(enable = $features)]
            pub fn add_power(bins: &[Complex<f32>], sums: &mut [f64]) {
                portable::add_power(bins, sums);
            }
        }
    };
}

compiled_for!(avx512, "avx512f,avx512dq");
compiled_for!(avx2, "avx2");
