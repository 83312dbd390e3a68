//! The copies of the DMA engine, and libhdf5 calls that its bindings do not offer.

use hdf5::Datatype;
use hdf5::sync::sync;
use hdf5_sys::h5t::{H5T_COMPOUND, H5T_ORDER_BE, H5T_ORDER_LE, H5Tcreate, H5Tinsert, H5Tset_order};
use shotline_memory::Region;
use std::ffi::CStr;

/// Copies shorter than this go through the cache: their lines are shared with their neighbours'.
const STREAM_FROM: usize = 512;

/// Copies bytes from one region to another as a device does: past the processor's cache where it can, so that what is
/// written is not read first. [`fence`] makes it visible.
///
/// # Panics
/// For bytes outside either region, and for a target that is read-only.
#[inline]
pub(super) fn copy(to: &Region, at: usize, from: &Region, from_at: usize, len: usize) {
    assert!(to.is_writable(), "a DMA engine writes to memory that may be written");
    let (target, source) = (to.address(at, len), from.address(from_at, len).cast_const());
    // SAFETY: both ranges are inside their regions (checked by `address`), the target may be written, and regions do not
    // overlap each other: the engine copies from on-board memory to frames. What others write meanwhile may tear, which
    // regions allow for.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if len >= STREAM_FROM {
            return if is_x86_feature_detected!("avx512f") {
                stream_512(target, source, len)
            } else if is_x86_feature_detected!("avx2") {
                stream_256(target, source, len)
            } else {
                std::ptr::copy_nonoverlapping(source, target, len)
            };
        }
        std::ptr::copy_nonoverlapping(source, target, len);
    }
}

/// Orders copies before what follows: non-temporal stores are not ordered by themselves.
pub(super) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this architecture has it.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
    std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
}

/// # Safety
/// As `copy_nonoverlapping` of bytes; the processor has AVX-512F.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn stream_512(to: *mut u8, from: *const u8, len: usize) {
    use std::arch::x86_64::{_mm512_loadu_si512, _mm512_stream_si512};
    let head = to.align_offset(64).min(len);
    let lines = (len - head) / 64;
    // SAFETY: the three parts tile the range, and the middle one is aligned for its stores.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, head);
        for line in 0..lines {
            let at = head + 64 * line;
            _mm512_stream_si512(to.add(at).cast(), _mm512_loadu_si512(from.add(at).cast()));
        }
        let done = head + 64 * lines;
        std::ptr::copy_nonoverlapping(from.add(done), to.add(done), len - done);
    }
}

/// # Safety
/// As `copy_nonoverlapping` of bytes; the processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn stream_256(to: *mut u8, from: *const u8, len: usize) {
    use std::arch::x86_64::{_mm256_loadu_si256, _mm256_stream_si256};
    let head = to.align_offset(64).min(len);
    let lines = (len - head) / 64;
    // SAFETY: the three parts tile the range, and the middle one is aligned for its stores.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, head);
        for line in 0..lines {
            for half in [0, 32] {
                let at = head + 64 * line + half;
                _mm256_stream_si256(to.add(at).cast(), _mm256_loadu_si256(from.add(at).cast()));
            }
        }
        let done = head + 64 * lines;
        std::ptr::copy_nonoverlapping(from.add(done), to.add(done), len - done);
    }
}

/// A number in a table's row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Field {
    U8,
    U32,
    U64,
    I64,
    F32,
    F64,
}

/// The type of a row of `bytes` with these fields at these offsets, all of one byte order.
pub(super) fn compound(bytes: usize, big_endian: bool, fields: &[(&CStr, usize, Field)]) -> hdf5::Result<Datatype> {
    let order = if big_endian { H5T_ORDER_BE } else { H5T_ORDER_LE };
    // SAFETY: makes a new type, with the library's lock held; its id goes to an owner at once, and only if it is one.
    let row: Datatype = sync(|| unsafe {
        let id = H5Tcreate(H5T_COMPOUND, bytes);
        if id < 0 { Err(hdf5::Error::query()?) } else { hdf5::from_id(id) }
    })?;
    for (name, offset, field) in fields {
        let number = match field {
            Field::U8 => Datatype::from_type::<u8>(),
            Field::U32 => Datatype::from_type::<u32>(),
            Field::U64 => Datatype::from_type::<u64>(),
            Field::I64 => Datatype::from_type::<i64>(),
            Field::F32 => Datatype::from_type::<f32>(),
            Field::F64 => Datatype::from_type::<f64>(),
        }?;
        // SAFETY: ids of live types which are ours alone (`from_type` copies), a string that ends in zero, the library's
        // lock held; a field outside the row is refused by the library.
        let status = sync(|| unsafe {
            [H5Tset_order(number.id(), order), H5Tinsert(row.id(), name.as_ptr(), *offset, number.id())]
        });
        if status.into_iter().any(|status| status < 0) {
            return Err(hdf5::Error::query()?);
        }
    }
    Ok(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_copy_moves_the_named_bytes_and_no_others() {
        let bytes: Vec<u8> = (0..4096_u32).map(|i| (i * 7 + i / 256) as u8).collect();
        let from = Region::heap(8192).unwrap();
        from.write(100, &bytes);
        type Copy = unsafe fn(*mut u8, *const u8, usize);
        let mut ways: Vec<Copy> = vec![|to, from, len| {
            // SAFETY: the caller names valid ranges that do not overlap.
            unsafe { std::ptr::copy_nonoverlapping(from, to, len) }
        }];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") {
                // SAFETY: the feature was detected.
                ways.push(|to, from, len| unsafe { stream_512(to, from, len) });
            }
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the feature was detected.
                ways.push(|to, from, len| unsafe { stream_256(to, from, len) });
            }
        }
        for way in ways {
            for (at, len) in [(0, 0), (0, 1), (3, 64), (63, 129), (64, 640), (1, 4000), (17, 513)] {
                let to = Region::heap(8192).unwrap();
                // SAFETY: both ranges are inside their regions.
                unsafe { way(to.address(at, len), from.address(100, len), len) };
                fence();
                let mut found = vec![0; 8192];
                to.read(0, &mut found);
                assert_eq!(found[at..at + len], bytes[..len], "{len} bytes at {at}");
                assert!(found[..at].iter().chain(&found[at + len..]).all(|byte| *byte == 0), "{len} bytes at {at}");
            }
        }
    }
}
