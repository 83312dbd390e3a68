//! PCLMULQDQ and AVX, for any number of lanes: two rows of four, two or one lanes at a time.

use super::super::form::{Form, Rows, States};
use super::super::plain;
use super::tables::{CHECKSUM, DESCRAMBLE, FACTORS, INVERSE, MAX_PAIRS, MULTIPLIER, SCRAMBLE, SPREAD_KEYS};
use std::arch::x86_64::*;

/// Returns whether the processor has the features that [`FORM`] requires.
pub(super) fn is_supported() -> bool {
    is_x86_feature_detected!("pclmulqdq") && is_x86_feature_detected!("avx")
}

/// The kernels, for processors of which [`is_supported`] returns `true`.
pub(super) const FORM: Form = Form {
    name: "pclmulqdq",
    scramble: |words, to, rows, states| {
        rows.check(words);
        rows.check(to);
        let (odd, even) = split_odd(rows);
        let ((first, words), (first_to, to)) = (words.split_at(odd), to.split_at_mut(odd));
        plain::scramble((first, first_to), rows.lanes.into(), rows.first.into(), states);
        // SAFETY: the features were detected, and `check` has compared both slices with the rows.
        unsafe { all_lanes::<SCRAMBLE>(words.as_ptr(), to.as_mut_ptr(), even, states) }
    },
    descramble: |words, rows, states| {
        rows.check(words);
        let (odd, even) = split_odd(rows);
        let (first, words) = words.split_at_mut(odd);
        plain::descramble(first, rows.lanes.into(), rows.first.into(), states);
        // SAFETY: as above.
        unsafe { all_lanes::<DESCRAMBLE>(words.as_ptr(), words.as_mut_ptr(), even, states) }
    },
    checksum: |words, rows, states| {
        rows.check(words);
        let (odd, even) = split_odd(rows);
        let (first, words) = words.split_at(odd);
        plain::checksum(first, rows.lanes.into(), rows.first.into(), states);
        // SAFETY: as above. This step does not write.
        unsafe { all_lanes::<CHECKSUM>(words.as_ptr(), std::ptr::null_mut(), even, states) }
    },
};

/// Returns the number of words of the first row if the number of rows is odd, else 0, and the other rows.
fn split_odd(rows: Rows) -> (usize, Rows) {
    let odd = rows.count % 2;
    (usize::from(odd * rows.lanes), Rows { first: rows.first + odd, count: rows.count - odd, ..rows })
}

/// # Safety
/// The words of `rows`, which are even in number and in a frame, are at `data`. Unless `STEP` is `CHECKSUM`, there is
/// space for as many at `to`, which is the same or does not overlap, and no other reference to it is used.
#[target_feature(enable = "pclmulqdq,avx")]
unsafe fn all_lanes<const STEP: u8>(data: *const [u8; 4], to: *mut [u8; 4], rows: Rows, states: &mut States) {
    if rows.count == 0 {
        return;
    }
    let mut lane = 0;
    let (fours, rest) = states[..usize::from(rows.lanes)].as_chunks_mut();
    let (twos, ones) = rest.as_chunks_mut();
    for states in fours {
        // SAFETY: as required of the caller; `lane` and the following ones, as many as `states`, are lanes of the rows.
        unsafe { some_lanes::<STEP, 4>(data.add(lane), to.wrapping_add(lane), rows, states) };
        lane += 4;
    }
    for states in twos {
        // SAFETY: as above.
        unsafe { some_lanes::<STEP, 2>(data.add(lane), to.wrapping_add(lane), rows, states) };
        lane += 2;
    }
    for state in ones {
        // SAFETY: as above.
        unsafe { some_lanes::<STEP, 1>(data.add(lane), to.wrapping_add(lane), rows, std::array::from_mut(state)) };
    }
}

/// Processes `N` lanes: 1, 2 or 4.
///
/// # Safety
/// As for [`all_lanes`], but `data` and `to` are at the word of the first of the lanes in the first row.
#[inline]
#[target_feature(enable = "pclmulqdq,avx")]
unsafe fn some_lanes<const STEP: u8, const N: usize>(
    mut data: *const [u8; 4],
    mut to: *mut [u8; 4],
    rows: Rows,
    states: &mut [u16; N],
) {
    let pairs = usize::from(rows.count / 2);
    let stride = usize::from(rows.lanes);
    // The state is added to the first 16 bits of a lane.
    let mut seed = load_states(states);
    let mut sums = [_mm_setzero_si128(); 4];
    let (keys, _) = SPREAD_KEYS[usize::from(rows.first)..].as_chunks::<2>();
    for (factor, [key_a, key_b]) in FACTORS[MAX_PAIRS - pairs..].iter().zip(keys) {
        // SAFETY: there are as many factors as pairs of rows, so these are words of the rows.
        let (a, b) = unsafe {
            (step::<STEP, N>(data, to, key_a), step::<STEP, N>(data.add(stride), to.wrapping_add(stride), key_b))
        };
        (data, to) = (data.wrapping_add(2 * stride), to.wrapping_add(2 * stride));
        let a = _mm_xor_si128(a, seed);
        seed = _mm_setzero_si128();
        let factor = _mm_cvtsi64_si128(factor.cast_signed());
        let low = _mm_unpacklo_epi32(a, b);
        sums[0] = _mm_xor_si128(sums[0], _mm_clmulepi64_si128::<0x00>(low, factor));
        if N > 1 {
            sums[1] = _mm_xor_si128(sums[1], _mm_clmulepi64_si128::<0x01>(low, factor));
        }
        if N > 2 {
            let high = _mm_unpackhi_epi32(a, b);
            sums[2] = _mm_xor_si128(sums[2], _mm_clmulepi64_si128::<0x00>(high, factor));
            sums[3] = _mm_xor_si128(sums[3], _mm_clmulepi64_si128::<0x01>(high, factor));
        }
    }
    for (state, sum) in states.iter_mut().zip(sums) {
        *state = reduce(sum);
    }
}

/// Returns one state in each 32 bits.
#[inline]
#[target_feature(enable = "avx")]
fn load_states<const N: usize>(states: &[u16; N]) -> __m128i {
    let mut bits = 0;
    for state in states.iter().rev() {
        bits = bits << 16 | i64::from(*state);
    }
    _mm_cvtepu16_epi32(_mm_cvtsi64_si128(bits))
}

/// Loads `N` words of a row, scrambles or descrambles them, and returns those that the CRC covers.
///
/// # Safety
/// The words are at `data`. Unless `STEP` is `CHECKSUM`, there is space for them at `to`, and no other reference to it is
/// used.
#[inline]
#[target_feature(enable = "avx")]
unsafe fn step<const STEP: u8, const N: usize>(data: *const [u8; 4], to: *mut [u8; 4], key: &[u32; 4]) -> __m128i {
    // SAFETY: an unaligned load of 4 N bytes.
    let words = unsafe {
        match N {
            4 => _mm_loadu_si128(data.cast()),
            2 => _mm_loadl_epi64(data.cast()),
            _ => _mm_loadu_si32(data.cast()),
        }
    };
    if STEP == CHECKSUM {
        return words;
    }
    // SAFETY: an unaligned load of 16 bytes.
    let changed = _mm_xor_si128(words, unsafe { _mm_loadu_si128(key.as_ptr().cast()) });
    // SAFETY: an unaligned store of 4 N bytes.
    unsafe {
        match N {
            4 => _mm_storeu_si128(to.cast(), changed),
            2 => _mm_storel_epi64(to.cast(), changed),
            _ => _mm_storeu_si32(to.cast(), changed),
        }
    }
    if STEP == SCRAMBLE { changed } else { words }
}

/// Reduces a sum of products to a CRC, as [`INVERSE`] says.
#[inline]
#[target_feature(enable = "pclmulqdq,avx")]
fn reduce(sum: __m128i) -> u16 {
    let constants = _mm_set_epi64x(MULTIPLIER.cast_signed(), INVERSE.cast_signed());
    let quotient = _mm_xor_si128(sum, _mm_clmulepi64_si128::<0x01>(sum, constants));
    let multiple = _mm_xor_si128(sum, _mm_clmulepi64_si128::<0x11>(quotient, constants));
    _mm_extract_epi16::<3>(multiple) as u16
}
