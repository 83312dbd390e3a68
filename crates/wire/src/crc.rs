//! CRC-32 (IEEE 802.3: reflected polynomial 0xEDB88320) as a register that can be moved about.
//!
//! The ICRC, the end-of-shot record and every checksum in between are the same CRC over overlapping bytes.
//! Because the CRC is linear, each payload byte needs to be read once only: the layer that reads it keeps
//! the payload's [`remainder`], and everyone else combines remainders with [`append`].
//!
//! Words used here:
//! * the *register* is the CRC's state without the final inversion; it starts at [`u32::MAX`];
//! * the *remainder* of some bytes is what they add to a register, wherever they stand: the register they
//!   leave when it starts at zero. It is linear: `remainder(a ^ b) = remainder(a) ^ remainder(b)`;
//! * to *shift* a register by `n` bytes is to run it over `n` zero bytes, a multiplication by
//!   x^(8n) modulo the polynomial; to *unshift* is to take that back.
//!
//! The identity that everything rests on, for messages A and B:
//!
//! ```
//! use shotline_wire::crc;
//! let (a, b) = (b"header ".as_slice(), b"payload".as_slice());
//! let whole = crc::register(u32::MAX, b"header payload");
//! assert_eq!(whole, crc::shift(crc::register(u32::MAX, a), b.len() as u64) ^ crc::remainder(b));
//! assert_eq!(!whole, crc::crc32(b"header payload"));
//! ```

/// The polynomial, reflected: bit 31 is x^0, bit 0 is x^31.
const POLYNOMIAL: u32 = 0xEDB8_8320;
/// The number 1 of the ring, x^0.
const ONE: u32 = 1 << 31;
/// x^(2^32 - 1) = 1: the polynomial is primitive.
const ORDER: u64 = u32::MAX as u64;

/// The register after any message that is followed by its own CRC-32, stored little-endian.
pub const RESIDUE: u32 = 0xDEBB_20E3;

/// The CRC-32 of `bytes`, as Ethernet and zlib define it.
pub fn crc32(bytes: &[u8]) -> u32 {
    !register(u32::MAX, bytes)
}

/// Runs a register over `bytes`. Start with [`u32::MAX`], or with an earlier result to go on.
#[inline]
pub fn register(state: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(!state);
    hasher.update(bytes);
    !hasher.finalize()
}

/// What `bytes` add to a register: `register(0, bytes)`. Zero bytes in front of them change nothing.
#[inline]
pub fn remainder(bytes: &[u8]) -> u32 {
    register(0, bytes)
}

/// The register after `bytes` further zero bytes. Takes time in proportion to the logarithm of `bytes`;
/// for a length that comes often make a [`Shift`].
pub fn shift(register: u32, bytes: u64) -> u32 {
    multiply(register, power(bytes))
}

/// The register before the last `bytes` zero bytes: undoes [`shift`].
pub fn unshift(register: u32, bytes: u64) -> u32 {
    multiply(register, power(inverse(bytes)))
}

/// A register run over a piece of `over` bytes of which only the remainder is known.
#[inline]
pub fn append(register: u32, over: impl Advance, remainder: u32) -> u32 {
    over.advance(register) ^ remainder
}

/// A number of bytes that a register can be run over: a plain `u64`, or a [`Shift`] made for it.
pub trait Advance {
    /// The register after so many zero bytes.
    fn advance(&self, register: u32) -> u32;
}

impl Advance for u64 {
    #[inline]
    fn advance(&self, register: u32) -> u32 {
        shift(register, *self)
    }
}

impl Advance for &Shift {
    #[inline]
    fn advance(&self, register: u32) -> u32 {
        self.apply(register)
    }
}

/// [`shift`] by one fixed number of bytes as four table look-ups, for use on every packet.
///
/// ```
/// use shotline_wire::crc::{Shift, shift};
/// static PAYLOAD: Shift = Shift::new(4096);
/// assert_eq!(PAYLOAD.apply(0x1234_5678), shift(0x1234_5678, 4096));
/// ```
#[derive(Clone)]
pub struct Shift {
    /// `tables[k][b]` is byte `b` at bits `8k..8k + 8`, shifted.
    tables: [[u32; 256]; 4],
}

impl Shift {
    /// Makes the tables for `bytes`.
    pub const fn new(bytes: u64) -> Self {
        let factor = power(bytes);
        let mut tables = [[0; 256]; 4];
        let mut k = 0;
        while k < 4 {
            let mut bit = 0;
            while bit < 8 {
                tables[k][1 << bit] = multiply(1 << (8 * k + bit), factor);
                bit += 1;
            }
            let mut byte = 1_usize;
            while byte < 256 {
                // The lowest bit and the rest are both done already; for a single bit the rest is 0.
                let lowest = byte & byte.wrapping_neg();
                tables[k][byte] = tables[k][lowest] ^ tables[k][byte ^ lowest];
                byte += 1;
            }
            k += 1;
        }
        Self { tables }
    }

    /// Makes the tables that take back `bytes`: [`unshift`].
    pub const fn back(bytes: u64) -> Self {
        Self::new(inverse(bytes))
    }

    /// The shifted register.
    #[inline]
    pub fn apply(&self, register: u32) -> u32 {
        let [a, b, c, d] = register.to_le_bytes();
        let [t0, t1, t2, t3] = &self.tables;
        t0[usize::from(a)] ^ t1[usize::from(b)] ^ t2[usize::from(c)] ^ t3[usize::from(d)]
    }
}

impl core::fmt::Debug for Shift {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Shift(x^8n = {:#010x})", self.apply(ONE))
    }
}

/// Bytes to advance that have the effect of going back by `bytes`.
const fn inverse(bytes: u64) -> u64 {
    ORDER - bytes % ORDER
}

/// a · b modulo the polynomial.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = ONE;
    while bit != 0 {
        // No branch on data: `(x).wrapping_neg()` of 0 or 1 is a mask.
        product ^= b & ((a & bit != 0) as u32).wrapping_neg();
        b = (b >> 1) ^ (POLYNOMIAL & (b & 1).wrapping_neg());
        bit >>= 1;
    }
    product
}

/// `SQUARES[k]` is x^(2^k); x^(2^32) is x again.
const SQUARES: [u32; 32] = {
    let mut table = [0; 32];
    let mut square = ONE >> 1;
    let mut k = 0;
    while k < 32 {
        table[k] = square;
        square = multiply(square, square);
        k += 1;
    }
    table
};

/// x^(8 · bytes).
const fn power(mut bytes: u64) -> u32 {
    let mut product = ONE;
    let mut k = 3;
    while bytes != 0 {
        if bytes & 1 == 1 {
            product = multiply(SQUARES[k % 32], product);
        }
        bytes >>= 1;
        k += 1;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn the_check_value_of_the_catalogue_comes_out() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }

    #[test]
    fn a_message_with_its_own_crc_leaves_the_residue() {
        for message in [b"".as_slice(), b"shot", &[0; 4096]] {
            let register = register(u32::MAX, message);
            assert_eq!(super::register(register, &(!register).to_le_bytes()), RESIDUE);
        }
        // The residue is also the register after eight bytes of ones, the ICRC's stand-in for the LRH.
        assert_eq!(register(u32::MAX, &[0xFF; 8]), RESIDUE);
    }

    #[test]
    fn shifts_by_nothing_and_by_the_whole_order_change_nothing() {
        for n in [0, ORDER, 5 * ORDER] {
            assert_eq!((shift(0x1234_5678, n), unshift(0x1234_5678, n)), (0x1234_5678, 0x1234_5678));
        }
    }

    proptest! {
        #[test]
        fn a_register_over_two_pieces_is_its_shift_plus_a_remainder(
            start: u32, a in prop::collection::vec(any::<u8>(), 0..200), b in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let whole = register(register(start, &a), &b);
            prop_assert_eq!(whole, append(register(start, &a), b.len() as u64, remainder(&b)));
            prop_assert_eq!(whole, append(register(start, &a), &Shift::new(b.len() as u64), remainder(&b)));
        }

        #[test]
        fn a_shift_is_a_run_over_zeros(start: u32, n in 0_usize..5000) {
            prop_assert_eq!(shift(start, n as u64), register(start, &[0; 5000][..n]));
        }

        #[test]
        fn unshift_takes_any_shift_back(start: u32, n: u64) {
            prop_assert_eq!(unshift(shift(start, n), n), start);
            prop_assert_eq!(shift(unshift(start, n), n), start);
        }

        #[test]
        fn shifts_add_up(start: u32, n in 0_u64..1 << 62, m in 0_u64..1 << 62) {
            prop_assert_eq!(shift(shift(start, n), m), shift(start, n + m));
        }

        #[test]
        fn tables_agree_with_the_long_way(start: u32, n: u64) {
            prop_assert_eq!(Shift::new(n).apply(start), shift(start, n));
            prop_assert_eq!(Shift::back(n).apply(start), unshift(start, n));
        }

        #[test]
        fn remainders_are_linear(pair in prop::collection::vec(any::<(u8, u8)>(), 0..300)) {
            let (a, b): (Vec<u8>, Vec<u8>) = pair.iter().copied().unzip();
            let sum: Vec<u8> = pair.iter().map(|(a, b)| a ^ b).collect();
            prop_assert_eq!(remainder(&sum), remainder(&a) ^ remainder(&b));
        }
    }
}
