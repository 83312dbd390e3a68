//! Copies of bytes that others may read and write meanwhile: other threads through the same region, other processes,
//! the kernel, devices.
//!
//! `copy_nonoverlapping` of such bytes would be a data race, which is undefined behaviour; volatile accesses would be one,
//! too, as far as other threads of this process are concerned. What the language has for it is atomic accesses (a relaxed
//! atomic copy of many bytes is RFC 3301, not stable). So shared bytes are accessed here, and by the atomic operations
//! of [`Region`](super::Region), as aligned words of 8 bytes, relaxed, and in no other way: races of accesses of several
//! sizes have no meaning in the language. A copy is therefore no snapshot, but no aligned word of it is torn.
//!
//! One access is none of these: transports compute the CRC of a payload over a slice of a region that only this process
//! writes (`payload_crc`). It is no data race only as long as who posted the bytes leaves them alone until the request
//! completes (the contract of `Provider::post_send`); nothing here enforces that. By way of a block that is copied first,
//! as shared regions are read, the CRC of 4096 bytes in cache takes 180 ns instead of 100 (EPYC).
//!
//! On x86-64 a long run of whole words is one `rep movsq`, as fast as `memcpy`. What assembly does must be something
//! that the language could say: it loads and stores 8 bytes, again and again, as the loops for other machines do (aligned
//! ones are atomic: Intel SDM volume 3A, 9.1.1; AMD APM volume 2, 7.3.2).

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const WORD: usize = size_of::<u64>();
/// Bytes that are copied by way of private memory at once.
const BLOCK: usize = 4096;
/// Words from which on a string instruction is faster than a loop.
const LONG: usize = 64;

/// The word that has this byte, and the byte's place in it.
///
/// # Safety
/// The whole word is mapped for as long as the reference is used, and accessed as the module says.
#[inline]
unsafe fn word<'a>(shared: *const u8) -> (&'a AtomicU64, usize) {
    let place = shared.addr() % WORD;
    // SAFETY: aligned, and inside the mapping because the caller says so. An atomic load is allowed on a mapping for
    // reading only (`std::sync::atomic`); nothing is stored through words of such a one.
    (unsafe { &*shared.sub(place).cast::<AtomicU64>() }, place)
}

/// Copies shared bytes to private ones.
///
/// # Safety
/// `from` is valid for reads of `len` bytes and of the whole words that they are in; `to` is valid for writes of `len`
/// bytes that nobody else accesses.
#[inline]
pub(super) unsafe fn load(mut from: *const u8, mut to: *mut u8, mut len: usize) {
    // SAFETY: `n` bytes lie in the one word and in the rest of both ranges.
    let part = |from: *const u8, to: *mut u8, n: usize| unsafe {
        let (word, place) = word(from);
        ptr::copy_nonoverlapping(word.load(Relaxed).to_ne_bytes()[place..place + n].as_ptr(), to, n);
    };
    let head = from.align_offset(WORD).min(len);
    if head > 0 {
        part(from, to, head);
        (from, to, len) = (from.wrapping_add(head), to.wrapping_add(head), len - head);
    }
    let whole = len - len % WORD;
    // SAFETY: `from` is aligned, and whole words of both ranges are left.
    unsafe { load_words(from.cast(), to, whole / WORD) };
    if whole < len {
        part(from.wrapping_add(whole), to.wrapping_add(whole), len - whole);
    }
}

/// Copies private bytes to shared ones. Neighbours in words of which only a part is written stay as they are, whoever
/// writes them meanwhile.
///
/// # Safety
/// `to` is valid for reads and writes of `len` bytes and of the whole words that they are in; `from` is valid for reads
/// of `len` bytes that nobody writes.
#[inline]
pub(super) unsafe fn store(mut from: *const u8, mut to: *mut u8, mut len: usize) {
    // SAFETY: as in `load`.
    let part = |from: *const u8, to: *mut u8, n: usize| unsafe {
        let (word, place) = word(to);
        let _ = word.fetch_update(Relaxed, Relaxed, |old| {
            let mut bytes = old.to_ne_bytes();
            ptr::copy_nonoverlapping(from, bytes[place..place + n].as_mut_ptr(), n);
            Some(u64::from_ne_bytes(bytes))
        });
    };
    let head = to.align_offset(WORD).min(len);
    if head > 0 {
        part(from, to, head);
        (from, to, len) = (from.wrapping_add(head), to.wrapping_add(head), len - head);
    }
    let whole = len - len % WORD;
    // SAFETY: `to` is aligned, and whole words of both ranges are left.
    unsafe { store_words(from, to.cast(), whole / WORD) };
    if whole < len {
        part(from.wrapping_add(whole), to.wrapping_add(whole), len - whole);
    }
}

/// Copies shared bytes to shared ones, which may overlap.
///
/// # Safety
/// `from` and `to` as in [`load`] and [`store`].
#[inline]
pub(super) unsafe fn transfer(from: *const u8, to: *mut u8, len: usize) {
    let overlaps = to.addr().wrapping_sub(from.addr()) < len || from.addr().wrapping_sub(to.addr()) < len;
    if !overlaps && (from.addr() | to.addr() | len).is_multiple_of(WORD) {
        // SAFETY: both are aligned.
        return unsafe { transfer_words(from.cast(), to.cast(), len / WORD) };
    }
    let mut block = [const { std::mem::MaybeUninit::<u8>::uninit() }; BLOCK];
    let block = block.as_mut_ptr().cast::<u8>();
    let blocks = len.div_ceil(BLOCK);
    let rises = to.addr().wrapping_sub(from.addr()) >= len;
    for index in 0..blocks {
        // From the end if the target begins inside the source, so that nothing is overwritten before it was read.
        let at = BLOCK * if rises { index } else { blocks - 1 - index };
        let n = BLOCK.min(len - at);
        // SAFETY: parts of both ranges; the block is ours, and loaded before it is stored.
        unsafe {
            load(from.add(at), block, n);
            store(block, to.add(at), n);
        }
    }
}

/// Zeroes shared bytes.
///
/// # Safety
/// `to` as in [`store`].
pub(super) unsafe fn zero(to: *mut u8, len: usize) {
    const ZEROS: [u8; BLOCK] = [0; BLOCK];
    // In blocks that end on words.
    let mut at = 0;
    while at < len {
        let n = (BLOCK - to.wrapping_add(at).addr() % WORD).min(len - at);
        // SAFETY: a part of the range.
        unsafe { store(ZEROS.as_ptr(), to.add(at), n) };
        at += n;
    }
}

/// # Safety
/// `from` is aligned and valid for so many words, `to` for so many bytes.
#[inline]
unsafe fn load_words(from: *const AtomicU64, to: *mut u8, words: usize) {
    // SAFETY: as the caller says; the target need not be aligned.
    unsafe {
        if words >= LONG && move_words(from.cast(), to, words) {
            return;
        }
        (0..words).for_each(|index| to.cast::<u64>().add(index).write_unaligned((*from.add(index)).load(Relaxed)));
    }
}

/// # Safety
/// `to` is aligned and valid for so many words, `from` for so many bytes.
#[inline]
unsafe fn store_words(from: *const u8, to: *const AtomicU64, words: usize) {
    // SAFETY: as the caller says; the source need not be aligned.
    unsafe {
        if words >= LONG && move_words(from, to.cast_mut().cast(), words) {
            return;
        }
        (0..words).for_each(|index| (*to.add(index)).store(from.cast::<u64>().add(index).read_unaligned(), Relaxed));
    }
}

/// # Safety
/// Both are aligned and valid for so many words.
#[inline]
unsafe fn transfer_words(from: *const AtomicU64, to: *const AtomicU64, words: usize) {
    // SAFETY: as the caller says.
    unsafe {
        if words >= LONG && move_words(from.cast(), to.cast_mut().cast(), words) {
            return;
        }
        (0..words).for_each(|index| (*to.add(index)).store((*from.add(index)).load(Relaxed), Relaxed));
    }
}

/// Loads and stores words in rising order by one instruction. False where there is none.
///
/// # Safety
/// Both are valid for so many words; what is shared of them is aligned, what is not is not accessed by others.
#[inline]
#[cfg_attr(not(all(target_arch = "x86_64", not(miri))), allow(unused_variables))]
unsafe fn move_words(from: *const u8, to: *mut u8, words: usize) -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: loads and stores what the caller says is valid; the direction flag is clear where Rust calls assembly.
    unsafe {
        std::arch::asm!("rep movsq", inout("rcx") words => _, inout("rsi") from => _, inout("rdi") to => _,
            options(nostack, preserves_flags));
    }
    cfg!(all(target_arch = "x86_64", not(miri)))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Aligned bytes that count up.
    fn bytes() -> Vec<u64> {
        let bytes: Vec<u8> = (0..3 * BLOCK).map(|index| (index * 7 + index / 251) as u8).collect();
        bytes.chunks_exact(WORD).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect()
    }

    fn plain(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn copies_of_every_alignment_and_length_copy_just_their_bytes() {
        for (from, to) in (0..WORD).flat_map(|from| (0..WORD).map(move |to| (from, to))) {
            for len in (0..40).chain([LONG * WORD - 1, LONG * WORD + 9, BLOCK, BLOCK + 3]) {
                let source = bytes();
                let expected = |mut target: Vec<u8>| {
                    target[to..to + len].copy_from_slice(&plain(&source)[from..from + len]);
                    target
                };
                for copy in [load, store, transfer] {
                    let mut target = vec![u64::MAX; 3 * BLOCK / WORD];
                    // SAFETY: both are inside their vectors of words.
                    unsafe {
                        copy(source.as_ptr().cast::<u8>().add(from), target.as_mut_ptr().cast::<u8>().add(to), len)
                    };
                    assert!(plain(&target) == expected(vec![255; 3 * BLOCK]), "{len} bytes from {from} to {to}");
                }
                let mut target = source.clone();
                // SAFETY: as above.
                unsafe { zero(target.as_mut_ptr().cast::<u8>().add(to), len) };
                let mut zeroed = plain(&source);
                zeroed[to..to + len].fill(0);
                assert!(plain(&target) == zeroed, "{len} zeros at {to}");
            }
        }
    }

    #[test]
    fn ranges_that_overlap_are_moved_as_if_by_way_of_a_copy() {
        for (from, to) in [(0, 8), (8, 0), (0, 3), (5, 0), (16, 2000), (2000, 16), (0, BLOCK + 1), (7, 7)] {
            for len in [1, 9, 100, BLOCK, BLOCK + 100] {
                let mut words = bytes();
                let mut expected = plain(&words);
                expected.copy_within(from..from + len, to);
                let base = words.as_mut_ptr().cast::<u8>();
                // SAFETY: both are inside the vector.
                unsafe { transfer(base.add(from), base.add(to), len) };
                assert!(plain(&words) == expected, "{len} bytes from {from} to {to}");
            }
        }
    }
}
