//! The two CRCs of the data link layer (5.7.6.4, 5.7.6.5).
//!
//! Both take the least significant bit of a character first, take K-codes by their value, and have no final inversion.
//!
//! ```
//! use shotline_wire::spacefibre::crc::{CRC16_INIT, crc8, crc16_update};
//! // A data frame from the comma of the SDF to the sequence number of the EDF, which ends with the CRC, low byte first.
//! let frame = [0xFC, 0x50, 0x02, 0x00, 0, 0, 0, 0, 0xFD, 0xFB, 0xFB, 0xFB, 0x1C, 0x41];
//! assert_eq!(crc16_update(CRC16_INIT, &frame), 0x978A);
//! assert_eq!(crc8(&[0x7C, 0x01, 0x01]), 0x4F);
//! ```

/// x^16 + x^12 + x^5 + 1, reflected: bit 15 is x^0.
const POLYNOMIAL16: u16 = 0x8408;
/// x^8 + x^2 + x + 1, reflected: bit 7 is x^0.
const POLYNOMIAL8: u8 = 0xE0;

/// State of a CRC-16 before the first byte.
pub const CRC16_INIT: u16 = 0xFFFF;
/// State of a CRC-8 before the first byte.
pub const CRC8_INIT: u8 = 0;

/// `TABLES16[k][b]` is the state after byte `b` and `k` zero bytes, starting at 0.
static TABLES16: [[u16; 256]; 8] = {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut state = byte as u16;
        let mut k = 0;
        while k < 8 {
            let mut bit = 0;
            while bit < 8 {
                state = state >> 1 ^ POLYNOMIAL16 & (state & 1).wrapping_neg();
                bit += 1;
            }
            tables[k][byte] = state;
            k += 1;
        }
        byte += 1;
    }
    tables
};

/// `TABLE8[b]` is the state after byte `b`, starting at 0.
static TABLE8: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut state = byte as u8;
        let mut bit = 0;
        while bit < 8 {
            state = state >> 1 ^ POLYNOMIAL8 & (state & 1).wrapping_neg();
            bit += 1;
        }
        table[byte] = state;
        byte += 1;
    }
    table
};

/// Returns the CRC-8 of a control word's first three characters, or of a broadcast frame up to its CRC.
#[inline]
pub fn crc8(bytes: &[u8]) -> u8 {
    crc8_update(CRC8_INIT, bytes)
}

/// Runs a CRC-8 over `bytes`. Start with [`CRC8_INIT`], or continue with an earlier result.
#[inline]
pub fn crc8_update(state: u8, bytes: &[u8]) -> u8 {
    bytes.iter().fold(state, |state, byte| TABLE8[usize::from(state ^ byte)])
}

/// Runs a CRC-16 over `bytes`. Start with [`CRC16_INIT`], or continue with an earlier result.
///
/// The CRC covers a lane's words of a data frame, scrambled if they are sent scrambled, from the SDF to the EDF's
/// sequence number, without the words of other frames and control words between them.
#[inline]
pub fn crc16_update(mut state: u16, bytes: &[u8]) -> u16 {
    let [t0, t1, t2, t3, t4, t5, t6, t7] = &TABLES16;
    let (blocks, rest) = bytes.as_chunks::<8>();
    for &[a, b, c, d, e, f, g, h] in blocks {
        let [low, high] = state.to_le_bytes();
        state = t7[usize::from(low ^ a)]
            ^ t6[usize::from(high ^ b)]
            ^ t5[usize::from(c)]
            ^ t4[usize::from(d)]
            ^ t3[usize::from(e)]
            ^ t2[usize::from(f)]
            ^ t1[usize::from(g)]
            ^ t0[usize::from(h)];
    }
    let (words, rest) = rest.as_chunks::<4>();
    for &[a, b, c, d] in words {
        let [low, high] = state.to_le_bytes();
        state = t3[usize::from(low ^ a)] ^ t2[usize::from(high ^ b)] ^ t1[usize::from(c)] ^ t0[usize::from(d)];
    }
    for &byte in rest {
        let [low, high] = state.to_le_bytes();
        state = t0[usize::from(low ^ byte)] ^ u16::from(high);
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    /// The CRC bit by bit, as the shift registers of figures 5-45 and 5-47.
    fn serial(polynomial: u16, state: u16, bytes: &[u8]) -> u16 {
        let bits = bytes.iter().flat_map(|byte| (0..8).map(move |bit| u16::from(byte >> bit & 1)));
        bits.fold(state, |state, bit| if (state ^ bit) & 1 == 1 { state >> 1 ^ polynomial } else { state >> 1 })
    }

    #[test]
    fn crc16_matches_the_catalogue_and_the_standard() {
        for (bytes, crc) in [
            ("313233343536373839", 0x6F91),              // check value of CRC-16/MCRF4XX
            ("FC500200 00000000 FDFBFBFB 1C41", 0x978A), // figure 5-44
            ("FC500100 00FDFBFB 1C7D", 0x353D),
            ("FC500100 000102FD 1C7E", 0xB7A1),
            ("FC500100 00010203 04050607 1C01", 0x7261),
            ("FC500100 FF16C217 B6E20485 1C01", 0x6131), // the same, scrambled
            ("", CRC16_INIT),
        ] {
            assert_eq!(crc16_update(CRC16_INIT, &hex(bytes)), crc, "{bytes}");
        }
    }

    #[test]
    fn frame_with_a_broadcast_inside_matches_another_implementation() {
        // A frame of the simulation of SpaceFibreLight (CNES): 64 words that count from 0x1000, of which the last ends the
        // packet, with a broadcast frame after the 24th. The CRC-16 does not cover the broadcast frame.
        let mut words = std::vec![[0xFC, 0x50, 0x00, 0x00]];
        words.extend((0x1000_u32..0x103F).map(u32::to_le_bytes));
        words.extend([[0x3F, 0x10, 0xFD, 0xFB], [0x1C, 0x1B, 0x68, 0x03]]);
        let bytes = words.concat();
        let (covered, crc) = bytes.split_last_chunk::<2>().unwrap();
        assert_eq!(crc16_update(CRC16_INIT, covered), u16::from_le_bytes(*crc));
        let broadcast = hex("FC5D0000 42000000 430000FD 5C001AD1");
        assert_eq!(crc8(&broadcast[..15]), 0xD1);
    }

    #[test]
    fn crc8_matches_the_standard() {
        for (bytes, crc) in [
            ("FC5D0000 00000000 01010101 5C0041", 0x29), // figure 5-46
            ("7C0101", 0x4F),                            // FCT of VC 1
            ("7C0001", 0x22),
            ("7C6305", 0xEC),
            ("7C2001", 0x08),
            ("FCA200", 0x3D), // ACK
            ("FCA201", 0xAC),
            ("FCBB80", 0x4F), // NACK
            ("FC4400", 0x44), // SIF
            ("FC4401", 0xD5),
            ("FC6F00", 0x33), // FULL
            ("", 0),
        ] {
            assert_eq!(crc8(&hex(bytes)), crc, "{bytes}");
        }
    }

    #[test]
    fn crc8_is_that_of_the_rmap_protocol() {
        // ECSS-E-ST-50-52C, annex A.
        for (bytes, crc) in [
            ("0102030405060708", 0xB0),
            ("1056C395A57538632F867B0132DE357A", 0x18),
            ("57014C20 2DFFFB00 00020000 000008", 0x3E),
            ("313233343536373839", 0x20),
        ] {
            assert_eq!(crc8(&hex(bytes)), crc, "{bytes}");
        }
        assert_eq!(crc8(b"SpaceWire is beautiful!!"), 0x84);
        assert_eq!(TABLE8[..8], [0x00, 0x91, 0xE3, 0x72, 0x07, 0x96, 0xE4, 0x75]);
    }

    #[test]
    fn bytes_followed_by_their_crc_leave_zero() {
        let bytes = hex("FC500100 00010203 04050607 1C01");
        let crc16 = crc16_update(CRC16_INIT, &bytes);
        assert_eq!(crc16_update(crc16, &crc16.to_le_bytes()), 0);
        assert_eq!(crc8_update(crc8(&bytes), &[crc8(&bytes)]), 0);
    }

    proptest! {
        #[test]
        fn tables_agree_with_shift_registers(state: u16, bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(crc16_update(state, &bytes), serial(POLYNOMIAL16, state, &bytes));
            let [low, _] = state.to_le_bytes();
            let expected = serial(POLYNOMIAL8.into(), low.into(), &bytes);
            prop_assert_eq!(u16::from(crc8_update(low, &bytes)), expected);
        }

        #[test]
        fn crcs_continue_at_any_byte(bytes in prop::collection::vec(any::<u8>(), 0..100), at: prop::sample::Index) {
            let (head, tail) = bytes.split_at(at.index(bytes.len() + 1));
            let whole = crc16_update(CRC16_INIT, &bytes);
            prop_assert_eq!(crc16_update(crc16_update(CRC16_INIT, head), tail), whole);
            prop_assert_eq!(crc8_update(crc8(head), tail), crc8(&bytes));
        }
    }
}
