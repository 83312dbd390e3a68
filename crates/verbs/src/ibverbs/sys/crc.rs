//! CRC of payloads that a device has written.

use shotline_memory::{Regions, Sge};
use shotline_transport::payload_crc;

/// Returns the CRC remainder of a payload of `len` bytes in a slot. Its receive must be complete, so that nothing
/// writes to the slot until this thread posts it again. Bytes beyond the slot are not read.
pub(in crate::ibverbs) fn remainder(regions: &Regions, slot: [Sge; 2], len: u32) -> u32 {
    let mut left = len;
    slot.into_iter().fold(0, |register, sge| {
        let sge = Sge { len: sge.len.min(left), ..sge };
        left -= sge.len;
        payload_crc(regions, register, sge)
    })
}
