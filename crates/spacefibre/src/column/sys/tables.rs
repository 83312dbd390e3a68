//! Constants of kernels that multiply, calculated at compile time. P is the polynomial of the CRC-16.
//!
//! Polynomials are reflected, as those of the CRC are: of n bits, bit 0 is the coefficient of x^(n-1).

use super::super::form::MAX_ROWS;
use super::super::tables::times_power;
use shotline_wire::spacefibre::KEYSTREAM;

/// Values of the parameter `STEP`: what a kernel does with the words.
pub(super) const SCRAMBLE: u8 = 0;
pub(super) const DESCRAMBLE: u8 = 1;
pub(super) const CHECKSUM: u8 = 2;

/// Pairs of rows in the longest frame.
pub(super) const MAX_PAIRS: usize = MAX_ROWS / 2;

/// Key of each row, four times.
pub(super) static SPREAD_KEYS: [[u32; 4]; MAX_ROWS] = {
    let mut keys = [[0; 4]; MAX_ROWS];
    let mut row = 0;
    while row < MAX_ROWS {
        keys[row] = [u32::from_le_bytes(KEYSTREAM[row]); 4];
        row += 1;
    }
    keys
};

/// Factors of two words of a lane, by their place from the end of the data: the last one is that of the last two words.
///
/// Words that n pairs follow have x^(64n + 79) mod P, in the upper 16 of 64 bits. [`INVERSE`] says why 79.
pub(super) static FACTORS: [u64; MAX_PAIRS] = {
    let mut factors = [0; MAX_PAIRS];
    let mut factor = times_power(1 << 15, 79);
    let mut pair = MAX_PAIRS;
    while pair > 0 {
        pair -= 1;
        factors[pair] = (factor as u64) << 48;
        factor = times_power(factor, 64);
    }
    factors
};

/// Inverse of P modulo x^64, without its coefficient of x^0 and divided by x.
///
/// A sum S of products, which has 80 bits, is reduced to 16 as Montgomery does: with Q = S / P mod x^64, S + Q P is a
/// multiple of x^64, and divided by x^64 it is S x^-64 mod P.
///
/// The carry-less product of two reflected numbers of 64 bits is, as a reflected number of 128 bits, x times the
/// product of their polynomials. Therefore the constants are divided by x, and their coefficient of x^0, which is 1, is
/// added without a multiplication. For the same reason, S x^-64 is a CRC, which has 16 zero bits after the words, if
/// the exponents of the factors are higher by 64 - 1 + 16 = 79.
pub(super) const INVERSE: u64 = {
    let mut inverse = 0;
    let mut series = [0; 64];
    series[0] = 1;
    let mut n = 1;
    while n < 64 {
        // 1 / (1 + x^5 + x^12 + x^16) as a power series.
        let at_16 = if n >= 16 { series[n - 16] } else { 0 };
        let at_12 = if n >= 12 { series[n - 12] } else { 0 };
        let at_5 = if n >= 5 { series[n - 5] } else { 0 };
        series[n] = at_16 ^ at_12 ^ at_5;
        inverse |= series[n] << (64 - n);
        n += 1;
    }
    inverse
};

/// P without its coefficient of x^0 and divided by x, in 64 bits: x^15 + x^11 + x^4.
pub(super) const MULTIPLIER: u64 = 1 << 48 | 1 << 52 | 1 << 59;
