//! Big-endian numbers at fixed places of a management datagram.

use super::MAD_LEN;

/// Bytes of the header that all management datagrams have; places below count from its end.
pub(super) const HEADER: usize = 24;

pub(super) fn get<const N: usize>(mad: &[u8; MAD_LEN], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&mad[HEADER + at..HEADER + at + N]);
    bytes
}

pub(super) fn get32(mad: &[u8; MAD_LEN], at: usize) -> u32 {
    u32::from_be_bytes(get(mad, at))
}

pub(super) fn get24(mad: &[u8; MAD_LEN], at: usize) -> u32 {
    get32(mad, at) >> 8
}

pub(super) fn put(mad: &mut [u8; MAD_LEN], at: usize, bytes: &[u8]) {
    mad[HEADER + at..HEADER + at + bytes.len()].copy_from_slice(bytes);
}

pub(super) fn put24(mad: &mut [u8; MAD_LEN], at: usize, value: u32) {
    put(mad, at, &value.to_be_bytes()[1..]);
}
