//! Big-endian numbers at fixed offsets of a management datagram.

use super::MAD_LEN;

/// Bytes of the common header of all management datagrams; the offsets below count from its end.
pub(super) const HEADER_BYTES: usize = 24;

/// Returns the `N` bytes at `offset`.
pub(super) fn get<const N: usize>(mad: &[u8; MAD_LEN], offset: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&mad[HEADER_BYTES + offset..HEADER_BYTES + offset + N]);
    bytes
}

pub(super) fn get32(mad: &[u8; MAD_LEN], offset: usize) -> u32 {
    u32::from_be_bytes(get(mad, offset))
}

/// Returns the upper 24 bits of the 32 at `offset`.
pub(super) fn get24(mad: &[u8; MAD_LEN], offset: usize) -> u32 {
    get32(mad, offset) >> 8
}

pub(super) fn put(mad: &mut [u8; MAD_LEN], offset: usize, bytes: &[u8]) {
    mad[HEADER_BYTES + offset..HEADER_BYTES + offset + bytes.len()].copy_from_slice(bytes);
}

/// Writes the low 24 bits of `value` to `offset`.
pub(super) fn put24(mad: &mut [u8; MAD_LEN], offset: usize, value: u32) {
    put(mad, offset, &value.to_be_bytes()[1..]);
}
