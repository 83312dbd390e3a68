//! Constants of all kernels, calculated at compile time.
//!
//! Polynomials are reflected, as those of the CRC are: of n bits, bit 0 is the coefficient of x^(n-1).

use super::form::MAX_ROWS;
use shotline_wire::spacefibre::KEYSTREAM;
use shotline_wire::spacefibre::character::{COMMA, START_DATA_FRAME};
use shotline_wire::spacefibre::crc::CRC16_INIT;

/// P, the polynomial of the CRC-16, without x^16.
const POLYNOMIAL: u16 = 0x8408;

/// Number of words before and after the key stream in [`KEYS`].
pub(super) const PADDING: usize = 16;

/// CRC-16 of the word that starts a data frame, for each virtual channel.
pub(super) static STARTS: [u16; 32] = {
    let mut starts = [0; 32];
    let mut vc = 0;
    while vc < starts.len() {
        let word = [COMMA, START_DATA_FRAME, vc as u8, 0];
        let (mut state, mut index) = (CRC16_INIT, 0);
        while index < word.len() {
            state = times_power(state ^ word[index] as u16, 8);
            index += 1;
        }
        starts[vc] = state;
        vc += 1;
    }
    starts
};

/// Key of each row as a little-endian word, between words that are not used, so that 16 words can be loaded which begin
/// or end anywhere in a frame.
pub(super) static KEYS: [u32; PADDING + MAX_ROWS + PADDING] = {
    let mut keys = [0; PADDING + MAX_ROWS + PADDING];
    let mut row = 0;
    while row < MAX_ROWS {
        keys[PADDING + row] = u32::from_le_bytes(KEYSTREAM[row]);
        row += 1;
    }
    keys
};

/// Returns `a` x^n mod P. This is also the CRC-16 of n zero bits from state `a`.
pub(super) const fn times_power(mut a: u16, n: usize) -> u16 {
    let mut i = 0;
    while i < n {
        a = a >> 1 ^ POLYNOMIAL & (a & 1).wrapping_neg();
        i += 1;
    }
    a
}
