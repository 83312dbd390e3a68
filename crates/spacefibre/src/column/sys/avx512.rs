//! AVX-512 with VPCLMULQDQ: several rows of up to eight lanes in a vector, or one row of more.
//!
//! Vectors of several rows are aligned at the last row. Words that are missing in front of the first row are zeros,
//! which do not change a CRC whose state is added to the first row.
//!
//! The unused places of a vector have the words that follow its own, which are stored unchanged, because the next load
//! would wait for a masked store. For the same reason the next vector is loaded before a vector is stored.

use super::super::form::{Form, Rows, States};
use super::super::tables::{KEYS, PADDING};
use super::tables::{CHECKSUM, DESCRAMBLE, FACTORS, INVERSE, MAX_PAIRS, MULTIPLIER, SCRAMBLE};
use std::arch::x86_64::*;

/// Words of a vector.
const WORDS: usize = 16;

/// Returns whether the processor has the features that [`FORM`] requires.
pub(super) fn is_supported() -> bool {
    is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("vpclmulqdq")
}

/// The kernels, for processors of which [`is_supported`] returns `true`.
pub(super) const FORM: Form = Form {
    name: "avx512",
    scramble: |words, to, rows, states| {
        rows.check(words);
        rows.check(to);
        // SAFETY: the features were detected, and `check` has compared both slices with the rows.
        unsafe { all_lanes::<SCRAMBLE>(words.as_ptr(), to.as_mut_ptr(), rows, states) }
    },
    descramble: |words, rows, states| {
        rows.check(words);
        // SAFETY: as above.
        unsafe { all_lanes::<DESCRAMBLE>(words.as_ptr(), words.as_mut_ptr(), rows, states) }
    },
    checksum: |words, rows, states| {
        rows.check(words);
        // SAFETY: as above. This step does not write.
        unsafe { all_lanes::<CHECKSUM>(words.as_ptr(), std::ptr::null_mut(), rows, states) }
    },
};

/// # Safety
/// The words of `rows`, which are in a frame, are at `data`. Unless `STEP` is `CHECKSUM`, there is space for as many at
/// `to`, which is the same or does not overlap, and no other reference to it is used.
#[target_feature(enable = "avx512bw,avx512vl,vpclmulqdq")]
unsafe fn all_lanes<const STEP: u8>(data: *const [u8; 4], to: *mut [u8; 4], rows: Rows, states: &mut States) {
    // SAFETY: as required of the caller.
    unsafe {
        match rows.lanes {
            1 => narrow::<STEP, 1>(data, to, rows, states),
            2 => narrow::<STEP, 2>(data, to, rows, states),
            3 => narrow::<STEP, 3>(data, to, rows, states),
            4 => narrow::<STEP, 4>(data, to, rows, states),
            5 => narrow::<STEP, 5>(data, to, rows, states),
            6 => narrow::<STEP, 6>(data, to, rows, states),
            7 => narrow::<STEP, 7>(data, to, rows, states),
            8 => narrow::<STEP, 8>(data, to, rows, states),
            _ => wide::<STEP>(data, to, rows, states),
        }
    }
}

/// Arrangement of up to eight lanes in a vector.
struct Layout {
    /// Number of rows: the largest power of two that fits.
    rows: usize,
    /// Places that are used.
    used: __mmask16,
    /// Row of each word in the order of the data.
    row: [u32; WORDS],
    /// Word at each place after the permutation: all rows of lane 0, then those of lane 1, and so on.
    order: [u32; WORDS],
    /// Place of the CRC of each lane after the reduction, in units of 16 bits of two vectors.
    crc: [u16; 8],
}

impl Layout {
    const fn new(lanes: usize) -> Self {
        let rows = WORDS / lanes.next_power_of_two();
        let used = __mmask16::MAX >> (WORDS - rows * lanes);
        let mut layout = Self { rows, used, row: [0; WORDS], order: [0; WORDS], crc: [0; 8] };
        let mut place = 0;
        while place < WORDS {
            layout.row[place] = (place / lanes) as u32;
            let (lane, row) = (place / rows, place % rows);
            if lane < lanes {
                layout.order[place] = (row * lanes + lane) as u32;
                // A sum of 128 bits has its CRC in bits 48 to 63. Two rows of a lane are 64 bits: even lanes have their
                // sums in the first vector, odd ones in the second.
                let sum = if rows == 2 { lane / 2 + lane % 2 * 4 } else { lane * rows / 4 };
                layout.crc[lane] = (8 * sum + 3) as u16;
            }
            place += 1;
        }
        layout
    }
}

/// Processes up to eight lanes, several rows at a time.
///
/// # Safety
/// As for [`all_lanes`], and `LANES` is the number of lanes, up to 8.
#[inline]
#[target_feature(enable = "avx512bw,avx512vl,vpclmulqdq")]
unsafe fn narrow<const STEP: u8, const LANES: usize>(
    data: *const [u8; 4],
    to: *mut [u8; 4],
    rows: Rows,
    states: &mut States,
) {
    let layout = const { &Layout::new(LANES) };
    let stride = layout.rows * LANES;
    let count = usize::from(rows.count).div_ceil(layout.rows);
    let missing = count * layout.rows - usize::from(rows.count);
    let (row, order) = (load_table(&layout.row), load_table(&layout.order));
    // SAFETY: an unaligned load of the states of eight lanes.
    let old = unsafe { _mm_loadu_si128(states.as_ptr().cast()) };
    // The state of each lane is added to the first 16 bits of its first word.
    let first_row = ((1 << LANES) - 1) << (missing * LANES);
    let mut seed = _mm512_maskz_expand_epi32(first_row, _mm512_zextsi256_si512(_mm256_cvtepu16_epi32(old)));

    let (mut data, mut to) = (data.wrapping_sub(missing * LANES), to.wrapping_sub(missing * LANES));
    let mut keys = KEYS.as_ptr().wrapping_add(PADDING + usize::from(rows.first) - missing);
    let mut factors = FACTORS.as_ptr().wrapping_add(MAX_PAIRS - count * layout.rows / 2);
    let mut mask = __mmask16::MAX << (missing * LANES);
    if count == 1 {
        mask &= layout.used;
    }
    // SAFETY: the mask excludes the words before the first row. It excludes unused places if this is the last vector;
    // if not, their words are in the next one, because more than half of the places are used.
    let mut next = unsafe { _mm512_maskz_loadu_epi32(mask, data.cast()) };
    let (mut even, mut odd) = (_mm512_setzero_si512(), _mm512_setzero_si512());
    for left in (0..count).rev() {
        let (words, place) = (next, to);
        (data, to) = (data.wrapping_add(stride), to.wrapping_add(stride));
        let next_mask = if left > 1 { __mmask16::MAX } else { layout.used };
        if left > 0 {
            // SAFETY: as above, for the next vector.
            next = unsafe { _mm512_maskz_loadu_epi32(next_mask, data.cast()) };
        }
        // SAFETY: the table has 16 words before and after the keys of a frame, and at least one of these 16 is a key.
        let key = unsafe { _mm512_loadu_si512(keys.cast()) };
        let key = _mm512_maskz_permutexvar_epi32(layout.used & mask, row, key);
        let changed = _mm512_xor_si512(words, key);
        if STEP != CHECKSUM {
            // SAFETY: as for the load of these words.
            unsafe { _mm512_mask_storeu_epi32(place.cast(), mask, changed) };
        }
        let covered = if STEP == SCRAMBLE { changed } else { words };
        let covered = _mm512_permutexvar_epi32(order, _mm512_xor_si512(covered, seed));
        // SAFETY: the vectors end with the last factor, and have at most the 64 rows of the table.
        let factor = unsafe { load_factors(factors, layout.rows) };
        let low = _mm512_clmulepi64_epi128::<0x00>(covered, factor);
        let high = _mm512_clmulepi64_epi128::<0x11>(covered, factor);
        if layout.rows == 2 {
            (even, odd) = (_mm512_xor_si512(even, low), _mm512_xor_si512(odd, high));
        } else {
            even = _mm512_ternarylogic_epi64::<XOR>(even, low, high);
        }
        (mask, seed) = (next_mask, _mm512_setzero_si512());
        keys = keys.wrapping_add(layout.rows);
        factors = factors.wrapping_add(layout.rows / 2);
    }
    if layout.rows >= 8 {
        even = _mm512_xor_si512(even, _mm512_shuffle_i64x2::<0b10_11_00_01>(even, even));
    }
    if layout.rows == 16 {
        even = _mm512_xor_si512(even, _mm512_shuffle_i64x2::<0b01_00_11_10>(even, even));
    }
    // SAFETY: an unaligned load of the table's 16 bytes.
    let places = _mm512_zextsi128_si512(unsafe { _mm_loadu_si128(layout.crc.as_ptr().cast()) });
    let crcs = _mm512_permutex2var_epi16(reduce(even), places, reduce(odd));
    let new = _mm_mask_mov_epi16(old, __mmask8::MAX >> (8 - LANES), _mm512_castsi512_si128(crcs));
    // SAFETY: an unaligned store of the states of eight lanes.
    unsafe { _mm_storeu_si128(states.as_mut_ptr().cast(), new) };
}

/// Processes 9 to 16 lanes, two rows at a time.
///
/// # Safety
/// As for [`all_lanes`].
#[inline]
#[target_feature(enable = "avx512bw,avx512vl,vpclmulqdq")]
unsafe fn wide<const STEP: u8>(data: *const [u8; 4], to: *mut [u8; 4], rows: Rows, states: &mut States) {
    let lanes = usize::from(rows.lanes);
    let count = usize::from(rows.count);
    let used = __mmask16::MAX >> (WORDS - lanes);
    // SAFETY: unaligned loads of both halves of the states. One load would wait for two stores.
    let (low, high) =
        unsafe { (_mm_loadu_si128(states.as_ptr().cast()), _mm_loadu_si128(states.as_ptr().wrapping_add(8).cast())) };
    let old = _mm256_set_m128i(high, low);
    let mut seed = _mm512_cvtepu16_epi32(old);
    let mask = |row: usize| if row + 1 < count { __mmask16::MAX } else { used };
    // SAFETY: the mask excludes unused places in the last row. In another one, their words are in the next row, because
    // more than half of the places are used.
    let load = |row: usize| unsafe { _mm512_maskz_loadu_epi32(mask(row), data.wrapping_add(row * lanes).cast()) };
    let mut next = load(0);
    let mut step = |row: usize| {
        let words = next;
        if row + 1 < count {
            next = load(row + 1);
        }
        let key = _mm512_maskz_set1_epi32(used, KEYS[PADDING + usize::from(rows.first) + row].cast_signed());
        let changed = _mm512_xor_si512(words, key);
        if STEP != CHECKSUM {
            // SAFETY: as for the load of these words.
            unsafe { _mm512_mask_storeu_epi32(to.wrapping_add(row * lanes).cast(), mask(row), changed) };
        }
        if STEP == SCRAMBLE { changed } else { words }
    };
    let mut sums = [_mm512_setzero_si512(); 4];
    let (pairs, missing) = (count.div_ceil(2), count % 2);
    for (pair, factor) in FACTORS[MAX_PAIRS - pairs..].iter().enumerate() {
        // A row is missing if their number is odd. It is zeros before the first row, to which the states are added.
        let mut a = _mm512_setzero_si512();
        if pair > 0 || missing == 0 {
            a = _mm512_xor_si512(step(2 * pair - missing), seed);
            seed = _mm512_setzero_si512();
        }
        let b = _mm512_xor_si512(step(2 * pair + 1 - missing), seed);
        seed = _mm512_setzero_si512();
        let factor = _mm512_set1_epi64(factor.cast_signed());
        let (low, high) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
        sums[0] = _mm512_xor_si512(sums[0], _mm512_clmulepi64_epi128::<0x00>(low, factor));
        sums[1] = _mm512_xor_si512(sums[1], _mm512_clmulepi64_epi128::<0x01>(low, factor));
        sums[2] = _mm512_xor_si512(sums[2], _mm512_clmulepi64_epi128::<0x00>(high, factor));
        sums[3] = _mm512_xor_si512(sums[3], _mm512_clmulepi64_epi128::<0x01>(high, factor));
    }
    // Each 128 bits have the sums of four successive lanes, whose CRCs are moved next to each other.
    let [a, b, c, d] = sums.map(|sum| reduce(sum));
    let crcs = _mm512_mask_mov_epi16(_mm512_srli_epi64::<48>(a), 0x2222_2222, _mm512_srli_epi64::<32>(b));
    let crcs = _mm512_mask_mov_epi16(crcs, 0x4444_4444, _mm512_srli_epi64::<16>(c));
    let crcs = _mm512_mask_mov_epi16(crcs, 0x8888_8888, d);
    let crcs = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 0, 0, 0, 0), crcs);
    let new = _mm256_mask_mov_epi16(old, used, _mm512_castsi512_si256(crcs));
    // SAFETY: an unaligned store of all states.
    unsafe { _mm256_storeu_si256(states.as_mut_ptr().cast(), new) };
}

/// Truth table of the XOR of three bits.
const XOR: i32 = 0x96;

#[inline]
#[target_feature(enable = "avx512f")]
fn load_table(table: &[u32; WORDS]) -> __m512i {
    // SAFETY: an unaligned load of 64 bytes.
    unsafe { _mm512_loadu_si512(table.as_ptr().cast()) }
}

/// Loads the factors of all pairs of rows in a vector, repeated for all lanes.
///
/// # Safety
/// `factors` has one factor for each pair of `rows`, which are 2, 4, 8 or 16.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load_factors(factors: *const u64, rows: usize) -> __m512i {
    // SAFETY: unaligned loads of 8 bytes for each pair.
    unsafe {
        match rows {
            2 => _mm512_set1_epi64(factors.cast::<i64>().read()),
            4 => _mm512_broadcast_i32x4(_mm_loadu_si128(factors.cast())),
            8 => _mm512_broadcast_i64x4(_mm256_loadu_si256(factors.cast())),
            _ => _mm512_loadu_si512(factors.cast()),
        }
    }
}

/// Reduces the sum of products in each 128 bits to a CRC in bits 48 to 63, as [`INVERSE`] says.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn reduce(sum: __m512i) -> __m512i {
    let inverse = _mm512_set1_epi64(INVERSE.cast_signed());
    let multiplier = _mm512_set1_epi64(MULTIPLIER.cast_signed());
    let quotient = _mm512_xor_si512(sum, _mm512_clmulepi64_epi128::<0x01>(sum, inverse));
    _mm512_xor_si512(sum, _mm512_clmulepi64_epi128::<0x01>(quotient, multiplier))
}
