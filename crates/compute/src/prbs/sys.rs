//! The same body, compiled for wider vectors.

use super::portable;

/// As [`portable::fill`], on 256-bit vectors where there are some.
pub(super) fn fill(states: &mut [u32], bits: u8, out: &mut [i16]) {
    if is_x86_feature_detected!("avx2") {
        // SAFETY: AVX2 was just detected.
        unsafe { fill_avx2(states, bits, out) }
    } else {
        portable::fill(states, bits, out);
    }
}

#[target_feature(enable = "avx2")]
fn fill_avx2(states: &mut [u32], bits: u8, out: &mut [i16]) {
    portable::fill(states, bits, out);
}
