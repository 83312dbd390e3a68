//! Reading what a device has written.

use shotline_memory::{Regions, Sge};
use shotline_wire::crc;

/// The CRC remainder of a payload of so many bytes that has landed in a place. What lies beyond the place is not read.
pub(in crate::ibverbs) fn remainder(regions: &Regions, place: [Sge; 2], len: u32) -> u32 {
    let mut left = len;
    place.into_iter().fold(0, |register, sge| {
        let sge = Sge { len: sge.len.min(left), ..sge };
        left -= sge.len;
        if sge.len == 0 {
            return register;
        }
        // SAFETY: the element is inside a region that the table keeps alive, and the device has completed the receive
        // into it: nobody writes there before it is posted again, by this thread.
        let bytes = unsafe { std::slice::from_raw_parts(regions.address(sge), sge.len as usize) };
        crc::register(register, bytes)
    })
}
