//! The portable loops compiled for AVX-512 and AVX2.

#[cfg(not(miri))]
pub(super) mod single;

use super::real::Real;
use super::row::{Loops, portable};

macro_rules! compiled_for {
    ($name:ident, $text:literal, $wide:literal, $features:literal, $($feature:tt),+) => {
        mod $name {
            use super::{Loops, Real, portable};
            use crate::stencil::row::Difference;

            #[target_feature(enable = $features)]
            fn step<F: Real>(above: &mut [F], middle: &[F], below: &[F], weights: [F; 2]) {
                portable::step(above, middle, below, weights);
            }

            #[target_feature(enable = $features)]
            fn two_rows<F: Real>(above: &mut [F], upper: &mut [F], lower: &[F], below: &[F], left: F, weights: [F; 2]) {
                portable::two_rows(above, upper, lower, below, left, weights);
            }

            #[target_feature(enable = $features)]
            fn add_difference<F: Real>(total: &mut Difference, new: &[F], old: &[F]) {
                portable::add_difference(total, new, old);
            }

            /// Returns the loops if the processor has the instructions.
            pub fn loops<F: Real>() -> Option<Loops<F>> {
                let available = $(is_x86_feature_detected!($feature))&&+;
                available.then_some(Loops {
                    name: $text,
                    has_registers_of_64_bytes: $wide,
                    // SAFETY: the features were detected.
                    step: |above, middle, below, weights| unsafe { step(above, middle, below, weights) },
                    // SAFETY: as above.
                    two_rows: |above, upper, lower, below, left, weights| unsafe { two_rows(above, upper, lower, below, left, weights) },
                    // SAFETY: as above.
                    add_difference: |total, new, old| unsafe { add_difference(total, new, old) },
                })
            }
        }
    };
}

compiled_for!(avx512, "AVX-512", true, "avx512f,avx512dq,avx512vl", "avx512f", "avx512dq", "avx512vl");
compiled_for!(avx2, "AVX2", false, "avx2", "avx2");

/// Returns the loops that this processor supports, fastest first.
pub(super) fn available<F: Real>() -> impl Iterator<Item = Loops<F>> {
    avx512::loops().into_iter().chain(avx2::loops())
}
