//! The portable generator compiled for AVX2.

use super::portable;

/// Same as [`portable::fill`], with 256-bit vectors if the processor has AVX2.
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
