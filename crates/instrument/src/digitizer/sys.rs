//! Non-temporal copies of the DMA engine, and libhdf5 calls missing from its bindings.

use hdf5::Datatype;
use hdf5::sync::sync;
use hdf5_sys::h5t::{H5T_COMPOUND, H5T_ORDER_BE, H5T_ORDER_LE, H5Tcreate, H5Tinsert, H5Tset_order};
use shotline_memory::Region;
use std::ffi::CStr;

/// Minimum length of a non-temporal copy in bytes. Shorter copies share cache lines with adjacent ones.
const MIN_STREAM_BYTES: usize = 512;

/// Copies bytes between regions as a device does: long copies bypass the processor's cache, so target lines are not
/// read first. Call [`fence`] to make the bytes visible.
///
/// # Panics
/// If a range is outside its region or the target is read-only.
#[inline]
pub(super) fn copy(to: &Region, at: usize, from: &Region, from_at: usize, len: usize) {
    assert!(to.is_writable(), "the target region is read-only");
    let (target, source) = (to.address(at, len), from.address(from_at, len).cast_const());
    // SAFETY: both ranges are inside their regions (checked by `address`), the target is writable, and the ranges do
    // not overlap: the engine copies from on-board memory to frames. Concurrent writes by other threads may tear, which
    // regions permit.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if len >= MIN_STREAM_BYTES {
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

/// Orders preceding copies before subsequent stores; non-temporal stores are otherwise unordered.
pub(super) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `sfence` is part of baseline x86_64.
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

/// Type of a field in a compound.
#[derive(Clone, Copy, Debug)]
pub(super) enum Field {
    U8,
    U32,
    U64,
    I64,
    F32,
    F64,
}

/// Creates a compound type of `bytes` bytes with these fields at these offsets, all of one byte order.
pub(super) fn compound(bytes: usize, big_endian: bool, fields: &[(&CStr, usize, Field)]) -> hdf5::Result<Datatype> {
    let order = if big_endian { H5T_ORDER_BE } else { H5T_ORDER_LE };
    // SAFETY: creates a new type with the library's lock held; only a valid id is passed to an owner.
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
        // SAFETY: both ids are live types owned here (`from_type` copies), the name is NUL-terminated, and the
        // library's lock is held; the library refuses a field outside the compound.
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
    fn every_copy_kernel_moves_exactly_the_given_bytes() {
        let bytes: Vec<u8> = (0..4096_u32).map(|i| (i * 7 + i / 256) as u8).collect();
        let from = Region::heap(8192).unwrap();
        from.write(100, &bytes);
        type Copy = unsafe fn(*mut u8, *const u8, usize);
        let mut kernels: Vec<Copy> = vec![|to, from, len| {
            // SAFETY: the caller passes valid ranges that do not overlap.
            unsafe { std::ptr::copy_nonoverlapping(from, to, len) }
        }];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") {
                // SAFETY: the feature was detected.
                kernels.push(|to, from, len| unsafe { stream_512(to, from, len) });
            }
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the feature was detected.
                kernels.push(|to, from, len| unsafe { stream_256(to, from, len) });
            }
        }
        for kernel in kernels {
            for (at, len) in [(0, 0), (0, 1), (3, 64), (63, 129), (64, 640), (1, 4000), (17, 513)] {
                let to = Region::heap(8192).unwrap();
                // SAFETY: both ranges are inside their regions.
                unsafe { kernel(to.address(at, len), from.address(100, len), len) };
                fence();
                let mut found = vec![0; 8192];
                to.read(0, &mut found);
                assert_eq!(found[at..at + len], bytes[..len], "{len} bytes at {at}");
                assert!(found[..at].iter().chain(&found[at + len..]).all(|byte| *byte == 0), "{len} bytes at {at}");
            }
        }
    }
}
