//! Tests by literal bytes, by field and by property.

mod properties;
mod vectors;

use crate::spacefibre::crc::crc8;
use std::vec::Vec;

/// Decodes hexadecimal digits. White space is ignored.
fn hex(digits: &str) -> Vec<u8> {
    let nibbles: Vec<u8> = digits.chars().filter_map(|c| c.to_digit(16)).map(|n| n as u8).collect();
    nibbles.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Corrects the header CRC of a packet, whose header has `len` bytes.
fn reseal(packet: &mut [u8], len: usize) {
    packet[len - 1] = crc8(&packet[..len - 1]);
}
