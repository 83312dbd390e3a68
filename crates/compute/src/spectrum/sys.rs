//! The loops of a spectrum, compiled for wider registers. There is no operation in them whose result would depend on
//! that.

use super::loops::{Loops, portable};
use realfft::num_complex::Complex;

/// The best first, with what each needs.
static LOOPS: [(fn() -> bool, Loops); 2] = [
    (
        || is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq"),
        Loops {
            // SAFETY: `available` hands these out only where both features were detected.
            weigh_real: |words, weights, out| unsafe { avx512::weigh_real(words, weights, out) },
            // SAFETY: as above.
            weigh_iq: |words, weights, out| unsafe { avx512::weigh_iq(words, weights, out) },
            // SAFETY: as above.
            add_power: |bins, sums| unsafe { avx512::add_power(bins, sums) },
        },
    ),
    (
        || is_x86_feature_detected!("avx2"),
        Loops {
            // SAFETY: `available` hands these out only where AVX2 was detected.
            weigh_real: |words, weights, out| unsafe { avx2::weigh_real(words, weights, out) },
            // SAFETY: as above.
            weigh_iq: |words, weights, out| unsafe { avx2::weigh_iq(words, weights, out) },
            // SAFETY: as above.
            add_power: |bins, sums| unsafe { avx2::add_power(bins, sums) },
        },
    ),
];

/// What this processor can do, the best first.
pub(super) fn available() -> impl Iterator<Item = Loops> {
    LOOPS.iter().filter(|(needs, _)| needs()).map(|(_, loops)| *loops)
}

macro_rules! compiled_for {
    ($name:ident, $features:literal) => {
        mod $name {
            use super::{Complex, portable};

            #[target_feature(enable = $features)]
            pub fn weigh_real(words: &[i16], weights: &[f32], out: &mut [f32]) {
                portable::weigh_real(words, weights, out);
            }

            #[target_feature(enable = $features)]
            pub fn weigh_iq(words: &[i16], weights: &[f32], out: &mut [Complex<f32>]) {
                portable::weigh_iq(words, weights, out);
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
