//! Reading what a device has written.

use shotline_memory::{Regions, Sge};
use shotline_transport::payload_crc;

/// The CRC remainder of a payload of so many bytes that has landed in a place, whose receive is complete: nobody writes
/// there before it is posted again, by this thread. What lies beyond the place is not read.
pub(in crate::ibverbs) fn remainder(regions: &Regions, place: [Sge; 2], len: u32) -> u32 {
    let mut left = len;
    place.into_iter().fold(0, |register, sge| {
        let sge = Sge { len: sge.len.min(left), ..sge };
        left -= sge.len;
        payload_crc(regions, register, sge)
    })
}
