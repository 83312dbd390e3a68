//! The kernel that filters, turns and rounds: its type, and its form in plain Rust.

use super::filter::Rows;

/// Output samples that share one exact phase; the others' are turned from there.
pub(super) const GROUP: usize = 256;

/// Filters a window for each place of the output, `step` words after the one before, turns and rounds what comes out,
/// and returns how many numbers were clipped. The output is at most a group.
pub(super) type Kernel = fn(words: &[i16], step: usize, rows: &Rows, turns: [&[f32]; 2], out: &mut [[i16; 2]]) -> u64;

/// The kernel in plain Rust, and what the others are held to.
pub(super) fn portable(words: &[i16], step: usize, rows: &Rows, turns: [&[f32]; 2], out: &mut [[i16; 2]]) -> u64 {
    let mut sums = Sums::ZERO;
    for n in 0..out.len() {
        let window = &words[n * step..n * step + rows.len()];
        let sum =
            |row: &[i16]| window.iter().zip(row).map(|(word, tap)| i64::from(i32::from(*word) * i32::from(*tap))).sum();
        (sums.re[n], sums.im[n]) = (sum(&rows.re), sum(&rows.im));
    }
    turn(&sums, turns, out)
}

/// Sums of products of a group of windows.
pub(super) struct Sums {
    pub(super) re: [i64; GROUP],
    pub(super) im: [i64; GROUP],
}

impl Sums {
    pub(super) const ZERO: Self = Self { re: [0; GROUP], im: [0; GROUP] };
}

/// Turns, rounds and clips. Inlined into each kernel, whose instructions it then may use; there is no operation here
/// whose result would depend on that.
#[inline(always)]
pub(super) fn turn(sums: &Sums, [turn_re, turn_im]: [&[f32]; 2], out: &mut [[i16; 2]]) -> u64 {
    let mut clipped = 0_u32;
    let sums = sums.re.iter().zip(&sums.im);
    for (((out, (re, im)), turn_re), turn_im) in out.iter_mut().zip(sums).zip(turn_re).zip(turn_im) {
        let (re, im) = (*re as f32, *im as f32);
        let parts = [re * turn_re - im * turn_im, re * turn_im + im * turn_re];
        // Adding this constant leaves a float no bits for a fraction: the sum is rounded as the processor rounds,
        // halves to even, and its last bits are the integer. Unlike a cast, that vectorises everywhere.
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
