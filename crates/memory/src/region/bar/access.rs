//! Copies to and from the memory behind a BAR: aligned accesses of 4 or 8 bytes only.
//!
//! A device may decode only such accesses, and a register may change when it is read, so no access touches more than the
//! aligned 4-byte words that contain the requested bytes.

use std::ptr;

/// Length of an access in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BarAccess {
    /// 4 bytes only.
    Four,
    /// 8 bytes where a range has them at a multiple of 8, else 4.
    #[default]
    Eight,
}

/// Copies device memory to private memory. Returns `true` if every bit that was read is one, as a device reads that does
/// not answer.
///
/// # Safety
/// The aligned 4-byte words that contain the `len` bytes at `from` are mapped. `to` is valid for writes of `len` bytes to
/// which the caller has exclusive access.
pub(super) unsafe fn load(from: *const u8, to: *mut u8, len: usize, access: BarAccess) -> bool {
    let mut all_ones = len > 0;
    let mut at = 0;
    while at < len {
        let (from, to, left) = (from.wrapping_add(at), to.wrapping_add(at), len - at);
        let head = from.addr() % 4;
        // SAFETY: the word, or the words, contain bytes of the source; the same number of bytes of the target is left.
        unsafe {
            if head != 0 || left < 4 {
                let n = (4 - head).min(left);
                let word = from.sub(head).cast::<u32>().read_volatile();
                all_ones &= word == u32::MAX;
                ptr::copy_nonoverlapping(word.to_ne_bytes()[head..head + n].as_ptr(), to, n);
                at += n;
            } else if access == BarAccess::Eight && left >= 8 && from.addr().is_multiple_of(8) {
                for index in 0..left / 8 {
                    let word = from.cast::<u64>().add(index).read_volatile();
                    all_ones &= word == u64::MAX;
                    to.cast::<u64>().add(index).write_unaligned(word);
                }
                at += left / 8 * 8;
            } else {
                let word = from.cast::<u32>().read_volatile();
                all_ones &= word == u32::MAX;
                to.cast::<u32>().write_unaligned(word);
                at += 4;
            }
        }
    }
    all_ones
}

/// Copies private memory to device memory. A word of which only a part is in the range is read, changed and written.
/// Returns `true` if such a word was read as ones.
///
/// # Safety
/// As for [`load`], with the roles exchanged; the words of the target are writable.
pub(super) unsafe fn store(from: *const u8, to: *mut u8, len: usize, access: BarAccess) -> bool {
    let mut found_ones = false;
    let mut at = 0;
    while at < len {
        let (from, to, left) = (from.wrapping_add(at), to.wrapping_add(at), len - at);
        let head = to.addr() % 4;
        // SAFETY: as in `load`.
        unsafe {
            if head != 0 || left < 4 {
                let (n, word) = ((4 - head).min(left), to.sub(head).cast::<u32>());
                let mut bytes = word.read_volatile().to_ne_bytes();
                found_ones |= bytes == [u8::MAX; 4];
                ptr::copy_nonoverlapping(from, bytes[head..head + n].as_mut_ptr(), n);
                word.write_volatile(u32::from_ne_bytes(bytes));
                at += n;
            } else if access == BarAccess::Eight && left >= 8 && to.addr().is_multiple_of(8) {
                for index in 0..left / 8 {
                    to.cast::<u64>().add(index).write_volatile(from.cast::<u64>().add(index).read_unaligned());
                }
                at += left / 8 * 8;
            } else {
                to.cast::<u32>().write_volatile(from.cast::<u32>().read_unaligned());
                at += 4;
            }
        }
    }
    found_ones
}

/// Makes write-combining buffers send what they hold, before anything that is stored later.
pub(super) fn flush_writes() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 processor has SFENCE, which has no effect on memory.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a barrier has no effect on memory.
    unsafe {
        std::arch::asm!("dsb st", options(nostack, preserves_flags));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const ACCESSES: [BarAccess; 2] = [BarAccess::Four, BarAccess::Eight];

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn ranges_of_any_alignment_are_copied() {
        let pattern: Vec<u8> = (1..=40).collect();
        for access in ACCESSES {
            for (begin, end) in (0..=40).flat_map(|begin| (begin..=40).map(move |end| (begin, end))) {
                let (mut words, mut back, len) = ([0_u64; 5], [0; 40], end - begin);
                let device = words.as_mut_ptr().cast::<u8>();
                // SAFETY: both ranges are inside their arrays, and `words` is accessed only through `device`.
                unsafe {
                    store(pattern[begin..].as_ptr(), device.add(begin), len, access);
                    load(device.add(begin), back[begin..].as_mut_ptr(), len, access);
                }
                let mut expected = vec![0; 40];
                expected[begin..end].copy_from_slice(&pattern[begin..end]);
                assert_eq!((bytes(&words), back.to_vec()), (expected.clone(), expected), "{begin}..{end}");
            }
        }
    }

    #[test]
    fn words_of_ones_are_reported() {
        let mut words = [u64::MAX; 3];
        let device = words.as_mut_ptr().cast::<u8>();
        let mut to = [0; 24];
        for access in ACCESSES {
            // SAFETY: the ranges are inside their arrays.
            unsafe {
                assert!(load(device, to.as_mut_ptr(), 24, access) && load(device.add(3), to.as_mut_ptr(), 1, access));
                assert!(!load(device, to.as_mut_ptr(), 0, access));
                assert!(!store(to.as_ptr(), device, 24, access) && store(to.as_ptr(), device.add(1), 2, access));
            }
        }
        words[2] = u64::MAX << 1;
        let device = words.as_ptr().cast::<u8>();
        // SAFETY: the ranges are inside their arrays.
        unsafe {
            assert!(!load(device, to.as_mut_ptr(), 24, BarAccess::Eight));
            assert!(load(device, to.as_mut_ptr(), 16, BarAccess::Eight));
        }
    }
}
