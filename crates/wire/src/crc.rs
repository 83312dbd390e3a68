//! CRC-32 (IEEE 802.3: reflected polynomial 0xEDB88320) with registers that can be shifted and combined.
//!
//! The ICRC, the end-of-shot record and every checksum in between are the same CRC over overlapping bytes.
//! Because the CRC is linear, each payload byte must be read only once: the layer that reads it keeps the
//! payload's [`remainder`], and all other layers combine remainders with [`append`].
//!
//! Terms:
//! * the *register* is the CRC's state without the final inversion; it starts at [`u32::MAX`];
//! * the *remainder* of some bytes is their contribution to a register, independent of their position: the register
//!   after them when it starts at zero. It is linear: `remainder(a ^ b) = remainder(a) ^ remainder(b)`;
//! * *shifting* a register by `n` bytes runs it over `n` zero bytes, a multiplication by x^(8n) modulo the
//!   polynomial; *unshifting* is the inverse.
//!
//! For messages A and B, this identity holds:
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
/// The polynomial 1, x^0.
const ONE: u32 = 1 << 31;
/// Order of x: x^(2^32 - 1) = 1, since the polynomial is primitive.
const ORDER: u64 = u32::MAX as u64;

/// Register after any message that is followed by its own CRC-32, stored little-endian.
pub const RESIDUE: u32 = 0xDEBB_20E3;

/// Returns the CRC-32 of `bytes`, as Ethernet and zlib define it.
pub fn crc32(bytes: &[u8]) -> u32 {
    !register(u32::MAX, bytes)
}

/// Runs a register over `bytes`. Start with [`u32::MAX`], or continue with an earlier result.
#[inline]
pub fn register(state: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(!state);
    hasher.update(bytes);
    !hasher.finalize()
}

/// Returns the contribution of `bytes` to a register: `register(0, bytes)`. Leading zero bytes do not change it.
#[inline]
pub fn remainder(bytes: &[u8]) -> u32 {
    register(0, bytes)
}

/// Returns the register after `bytes` more zero bytes, in time proportional to the logarithm of `bytes`. For a common
/// length, precompute a [`Shift`].
pub fn shift(register: u32, bytes: u64) -> u32 {
    multiply(register, power(bytes))
}

/// Returns the register before the last `bytes` zero bytes: the inverse of [`shift`].
pub fn unshift(register: u32, bytes: u64) -> u32 {
    multiply(register, power(inverse(bytes)))
}

/// Runs a register over `bytes` bytes of which only the remainder is known.
#[inline]
pub fn append(register: u32, bytes: impl Advance, remainder: u32) -> u32 {
    bytes.advance(register) ^ remainder
}

/// A number of zero bytes that a register can be advanced by: a plain `u64`, or a precomputed [`Shift`].
pub trait Advance {
    /// Returns the register after this number of zero bytes.
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

/// A [`shift`] by a fixed number of bytes as four table look-ups, for use on every packet.
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
    /// Computes the tables for a shift by `bytes`.
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
                // The entries of the lowest bit and of the others are already computed; for a single bit the other is
                // 0.
                let lowest = byte & byte.wrapping_neg();
                tables[k][byte] = tables[k][lowest] ^ tables[k][byte ^ lowest];
                byte += 1;
            }
            k += 1;
        }
        Self { tables }
    }

    /// Computes the tables for an [`unshift`] by `bytes`.
    pub const fn back(bytes: u64) -> Self {
        Self::new(inverse(bytes))
    }

    /// Returns the shifted register.
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

/// Returns the number of bytes to shift by that undoes a shift by `bytes`.
const fn inverse(bytes: u64) -> u64 {
    ORDER - bytes % ORDER
}

/// Returns a · b modulo the polynomial.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = ONE;
    while bit != 0 {
        // Branch-free: `wrapping_neg` of 0 or 1 is a mask.
        product ^= b & ((a & bit != 0) as u32).wrapping_neg();
        b = (b >> 1) ^ (POLYNOMIAL & (b & 1).wrapping_neg());
        bit >>= 1;
    }
    product
}

/// `SQUARES[k]` is x^(2^k); x^(2^32) equals x.
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

/// Returns x^(8 · bytes).
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
    fn check_value_matches_the_crc_catalogue() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }

    #[test]
    fn message_with_its_crc_leaves_the_residue() {
        for message in [b"".as_slice(), b"shot", &[0; 4096]] {
            let register = register(u32::MAX, message);
            assert_eq!(super::register(register, &(!register).to_le_bytes()), RESIDUE);
        }
        // The residue is also the register after eight bytes of ones, the ICRC's placeholder for the LRH.
        assert_eq!(register(u32::MAX, &[0xFF; 8]), RESIDUE);
    }

    #[test]
    fn shift_by_zero_or_by_the_order_is_the_identity() {
        for n in [0, ORDER, 5 * ORDER] {
            assert_eq!((shift(0x1234_5678, n), unshift(0x1234_5678, n)), (0x1234_5678, 0x1234_5678));
        }
    }

    proptest! {
        #[test]
        fn append_equals_running_the_register(
            start: u32, a in prop::collection::vec(any::<u8>(), 0..200), b in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let whole = register(register(start, &a), &b);
            prop_assert_eq!(whole, append(register(start, &a), b.len() as u64, remainder(&b)));
            prop_assert_eq!(whole, append(register(start, &a), &Shift::new(b.len() as u64), remainder(&b)));
        }

        #[test]
        fn shift_equals_running_over_zeros(start: u32, n in 0_usize..5000) {
            prop_assert_eq!(shift(start, n as u64), register(start, &[0; 5000][..n]));
        }

        #[test]
        fn unshift_inverts_shift(start: u32, n: u64) {
            prop_assert_eq!(unshift(shift(start, n), n), start);
            prop_assert_eq!(shift(unshift(start, n), n), start);
        }

        #[test]
        fn shifts_add_up(start: u32, n in 0_u64..1 << 62, m in 0_u64..1 << 62) {
            prop_assert_eq!(shift(shift(start, n), m), shift(start, n + m));
        }

        #[test]
        fn tables_agree_with_shift_and_unshift(start: u32, n: u64) {
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
