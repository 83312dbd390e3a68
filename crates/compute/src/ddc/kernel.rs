//! Signature of the kernel that filters, rotates and rounds, and its portable implementation.

use super::filter::TapRows;

/// Output samples per exact phase computation. Phases within a group are relative to its first sample.
pub(super) const GROUP: usize = 256;

/// Computes one output per window: filters, rotates and rounds. Windows start every `step` words.
///
/// Returns the number of clipped components. The output is at most [`GROUP`] long.
pub(super) type Kernel =
    fn(words: &[i16], step: usize, rows: &TapRows, rotations: [&[f32]; 2], out: &mut [[i16; 2]]) -> u64;

/// Portable kernel and reference for the others.
pub(super) fn portable(
    words: &[i16],
    step: usize,
    rows: &TapRows,
    rotations: [&[f32]; 2],
    out: &mut [[i16; 2]],
) -> u64 {
    let mut sums = Sums::ZERO;
    for n in 0..out.len() {
        let window = &words[n * step..n * step + rows.len()];
        let sum =
            |row: &[i16]| window.iter().zip(row).map(|(word, tap)| i64::from(i32::from(*word) * i32::from(*tap))).sum();
        (sums.re[n], sums.im[n]) = (sum(&rows.re), sum(&rows.im));
    }
    rotate(&sums, rotations, out)
}

/// Dot products of a group of windows.
pub(super) struct Sums {
    pub(super) re: [i64; GROUP],
    pub(super) im: [i64; GROUP],
}

impl Sums {
    pub(super) const ZERO: Self = Self { re: [0; GROUP], im: [0; GROUP] };
}

/// Rotates, rounds and clips a group of sums.
///
/// Inlined into each kernel so that it is compiled for the kernel's instruction set. The results do not depend on the
/// instruction set.
#[inline(always)]
pub(super) fn rotate(sums: &Sums, [rot_re, rot_im]: [&[f32]; 2], out: &mut [[i16; 2]]) -> u64 {
    let mut clipped = 0_u32;
    let sums = sums.re.iter().zip(&sums.im);
    for (((out, (re, im)), rot_re), rot_im) in out.iter_mut().zip(sums).zip(rot_re).zip(rot_im) {
        let (re, im) = (*re as f32, *im as f32);
        let parts = [re * rot_re - im * rot_im, re * rot_im + im * rot_re];
        // Adding this constant leaves no mantissa bits for a fraction, so the sum is rounded to an integer, halves to
        // even, in its low bits. Unlike a cast, this vectorises on every instruction set.
        const WHOLE: f32 = 12_582_912.0; // 1.5 * 2^23
        *out = parts.map(|part| {
            let near = (part.clamp(-40_000.0, 40_000.0) + WHOLE).to_bits().wrapping_sub(WHOLE.to_bits()) as i32;
            let whole = near.clamp(i16::MIN.into(), i16::MAX.into());
            clipped += u32::from(near != whole);
            whole as i16
        });
    }
    clipped.into()
}
