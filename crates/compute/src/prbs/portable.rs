//! Portable generator.

/// Steps every state and generates a sample from each. Inlined into functions compiled for other instruction sets.
#[inline(always)]
pub(super) fn fill(states: &mut [u32], bits: u8, out: &mut [i16]) {
    let shift = 32 - u32::from(bits);
    for instant in out.chunks_exact_mut(states.len()) {
        for (state, sample) in states.iter_mut().zip(instant) {
            let mut x = *state;
            x ^= x << 13;
            x ^= x >> 17;
            x ^= x << 5;
            *state = x;
            *sample = (x as i32 >> shift) as i16;
        }
    }
}
