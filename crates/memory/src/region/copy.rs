//! Copies of bytes that may be read and written concurrently: by other threads through the same region, by other
//! processes, the kernel or devices.
//!
//! `copy_nonoverlapping` of such bytes would be a data race, which is undefined behaviour; so would volatile accesses,
//! if other threads of this process access the bytes. The language requires atomic accesses (a relaxed atomic copy of
//! many bytes is RFC 3301, not stable). So shared bytes are accessed only as aligned 8-byte words with relaxed
//! ordering, here and by the atomic operations of [`Region`](super::Region): races between accesses of different sizes
//! are undefined in the language. A copy is therefore not a snapshot, but no aligned word of it is torn.
//!
//! There is one exception: transports compute the CRC of a payload over a slice of a region that only this process
//! writes (`payload_crc`). It is free of data races only as long as the caller that posted the bytes does not modify
//! them until the request completes (the contract of `Provider::post_send`), which is not enforced here. If the bytes
//! are copied to a block first, as for shared regions, the CRC of 4096 bytes in cache takes 180 ns instead of 100
//! (EPYC).
//!
//! On x86-64 a long run of whole words is one `rep movsq`, as fast as `memcpy`. Inline assembly must have semantics
//! that the language can express: it is a sequence of 8-byte loads and stores, like the loops for other machines
//! (aligned ones are atomic: Intel SDM volume 3A, 9.1.1; AMD APM volume 2, 7.3.2).

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const WORD: usize = size_of::<u64>();
/// Length in bytes of the private block through which unaligned or overlapping ranges are copied.
const BLOCK: usize = 4096;
/// Number of words from which a string instruction is faster than a loop.
const MIN_STRING_WORDS: usize = 64;
/// Length in bytes of a cache line, which [`store_past_cache`] writes at once.
const LINE: usize = 64;

/// Returns the word that contains this byte, and the offset of the byte in it.
///
/// # Safety
/// The whole word is mapped while the reference is used, and accessed only as the module documentation says.
#[inline]
unsafe fn word<'a>(shared: *const u8) -> (&'a AtomicU64, usize) {
    let offset = shared.addr() % WORD;
    // SAFETY: the word is aligned, and the caller guarantees that it is mapped. An atomic load is allowed on a
    // read-only mapping (`std::sync::atomic`), and nothing is stored through words of such a mapping.
    (unsafe { &*shared.sub(offset).cast::<AtomicU64>() }, offset)
}

/// Copies shared bytes to private memory.
///
/// # Safety
/// `from` is valid for reads of `len` bytes and of the whole words that contain them; `to` is valid for writes of `len`
/// bytes to which the caller has exclusive access.
#[inline]
pub(super) unsafe fn load(mut from: *const u8, mut to: *mut u8, mut len: usize) {
    // SAFETY: `n` bytes are in this word and in the remaining parts of both ranges.
    let part = |from: *const u8, to: *mut u8, n: usize| unsafe {
        let (word, offset) = word(from);
        ptr::copy_nonoverlapping(word.load(Relaxed).to_ne_bytes()[offset..offset + n].as_ptr(), to, n);
    };
    let head = from.align_offset(WORD).min(len);
    if head > 0 {
        part(from, to, head);
        (from, to, len) = (from.wrapping_add(head), to.wrapping_add(head), len - head);
    }
    let whole = len - len % WORD;
    // SAFETY: `from` is aligned, and both ranges have these whole words left.
    unsafe { load_words(from.cast(), to, whole / WORD) };
    if whole < len {
        part(from.wrapping_add(whole), to.wrapping_add(whole), len - whole);
    }
}

/// Copies private bytes to shared memory. Other bytes of partially written words are not changed, even if they are
/// written concurrently.
///
/// # Safety
/// `to` is valid for reads and writes of `len` bytes and of the whole words that contain them; `from` is valid for
/// reads of `len` bytes that are not written concurrently.
#[inline]
pub(super) unsafe fn store(mut from: *const u8, mut to: *mut u8, mut len: usize) {
    // SAFETY: as in `load`.
    let part = |from: *const u8, to: *mut u8, n: usize| unsafe {
        let (word, offset) = word(to);
        let _ = word.fetch_update(Relaxed, Relaxed, |old| {
            let mut bytes = old.to_ne_bytes();
            ptr::copy_nonoverlapping(from, bytes[offset..offset + n].as_mut_ptr(), n);
            Some(u64::from_ne_bytes(bytes))
        });
    };
    let head = to.align_offset(WORD).min(len);
    if head > 0 {
        part(from, to, head);
        (from, to, len) = (from.wrapping_add(head), to.wrapping_add(head), len - head);
    }
    let whole = len - len % WORD;
    // SAFETY: `to` is aligned, and both ranges have these whole words left.
    unsafe { store_words(from, to.cast(), whole / WORD) };
    if whole < len {
        part(from.wrapping_add(whole), to.wrapping_add(whole), len - whole);
    }
}

/// Copies private bytes to shared memory as [`store`] does, but past the cache: whole lines are not loaded before they are
/// written, and replace no others. They are visible to other threads after [`fence`], which may be called once for many.
///
/// # Safety
/// As for [`store`].
#[inline]
pub(super) unsafe fn store_past_cache(from: *const u8, to: *mut u8, len: usize) {
    let head = to.align_offset(LINE).min(len);
    let lines = (len - head) / LINE;
    let tail = head + lines * LINE;
    // SAFETY: three parts of both ranges; the second one begins at a line of the target.
    unsafe {
        store(from, to, head);
        if !stream_lines(from.add(head), to.add(head), lines) {
            store(from.add(head), to.add(head), lines * LINE);
        }
        store(from.add(tail), to.add(tail), len - tail);
    }
}

/// Copies shared bytes to shared memory. The ranges may overlap.
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
    let is_ascending = to.addr().wrapping_sub(from.addr()) >= len;
    for index in 0..blocks {
        // Copy from the end if the target begins inside the source, so that no byte is overwritten before it is read.
        let at = BLOCK * if is_ascending { index } else { blocks - 1 - index };
        let n = BLOCK.min(len - at);
        // SAFETY: parts of both ranges; the block is private, and loaded before it is stored.
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
    // Blocks end on word boundaries.
    let mut at = 0;
    while at < len {
        let n = (BLOCK - to.wrapping_add(at).addr() % WORD).min(len - at);
        // SAFETY: the block is a part of the range.
        unsafe { store(ZEROS.as_ptr(), to.add(at), n) };
        at += n;
    }
}

/// Hints that bytes will be read soon. It is allowed for every address.
#[inline]
#[cfg_attr(not(all(target_arch = "x86_64", not(miri))), allow(unused_variables))]
pub(super) fn prefetch(from: *const u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for at in (0..len).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no effect on the program, also if the address is not mapped.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(at).cast()) };
    }
}

/// Copies aligned shared words to private memory.
///
/// # Safety
/// `from` is aligned and valid for `words` words, `to` for as many bytes.
#[inline]
unsafe fn load_words(from: *const AtomicU64, to: *mut u8, words: usize) {
    // SAFETY: guaranteed by the caller; the target need not be aligned.
    unsafe {
        if words >= MIN_STRING_WORDS && move_words(from.cast(), to, words) {
            return;
        }
        (0..words).for_each(|index| to.cast::<u64>().add(index).write_unaligned((*from.add(index)).load(Relaxed)));
    }
}

/// Copies private bytes to aligned shared words.
///
/// # Safety
/// `to` is aligned and valid for `words` words, `from` for as many bytes.
#[inline]
unsafe fn store_words(from: *const u8, to: *const AtomicU64, words: usize) {
    // SAFETY: guaranteed by the caller; the source need not be aligned.
    unsafe {
        if words >= MIN_STRING_WORDS && move_words(from, to.cast_mut().cast(), words) {
            return;
        }
        (0..words).for_each(|index| (*to.add(index)).store(from.cast::<u64>().add(index).read_unaligned(), Relaxed));
    }
}

/// Copies aligned shared words to aligned shared words.
///
/// # Safety
/// Both are aligned and valid for `words` words.
#[inline]
unsafe fn transfer_words(from: *const AtomicU64, to: *const AtomicU64, words: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if words >= MIN_STRING_WORDS && move_words(from.cast(), to.cast_mut().cast(), words) {
            return;
        }
        (0..words).for_each(|index| (*to.add(index)).store((*from.add(index)).load(Relaxed), Relaxed));
    }
}

/// Copies words in ascending order by one instruction. Returns `false` if the target has no such instruction.
///
/// # Safety
/// Both are valid for `words` words. A shared range is aligned; a private range is not accessed concurrently.
#[inline]
#[cfg_attr(not(all(target_arch = "x86_64", not(miri))), allow(unused_variables))]
unsafe fn move_words(from: *const u8, to: *mut u8, words: usize) -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the caller guarantees that both ranges are valid; the direction flag is clear on entry to inline
    // assembly.
    unsafe {
        std::arch::asm!("rep movsq", inout("rcx") words => _, inout("rsi") from => _, inout("rdi") to => _,
            options(nostack, preserves_flags));
    }
    cfg!(all(target_arch = "x86_64", not(miri)))
}

/// Makes what [`store_past_cache`] has copied visible before anything that is stored later.
#[inline]
pub(super) fn fence() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: SFENCE has no effect but the order of stores.
    unsafe {
        std::arch::asm!("sfence", options(nostack, preserves_flags));
    }
}

/// Copies whole cache lines with non-temporal stores. Returns `false` if the target has no such instructions.
///
/// # Safety
/// Both are valid for `lines` lines. The target is aligned to a line; the source is not accessed concurrently.
#[inline]
#[cfg_attr(not(all(target_arch = "x86_64", not(miri))), allow(unused_variables))]
unsafe fn stream_lines(from: *const u8, to: *mut u8, lines: usize) -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if lines > 0 {
        // SAFETY: the caller guarantees that both ranges are valid. For the language these are stores of 8-byte words:
        // the instructions store aligned 16 bytes, and `fence` orders them before all later stores (Intel SDM volume 1,
        // 10.4.6.2), as those of other instructions are.
        unsafe {
            std::arch::asm!(
                "2:",
                "movdqu {a}, [{from}]",
                "movdqu {b}, [{from} + 16]",
                "movdqu {c}, [{from} + 32]",
                "movdqu {d}, [{from} + 48]",
                "movntdq [{to}], {a}",
                "movntdq [{to} + 16], {b}",
                "movntdq [{to} + 32], {c}",
                "movntdq [{to} + 48], {d}",
                "add {from}, 64",
                "add {to}, 64",
                "dec {lines}",
                "jnz 2b",
                from = inout(reg) from => _, to = inout(reg) to => _, lines = inout(reg) lines => _,
                a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
                options(nostack),
            );
        }
    }
    cfg!(all(target_arch = "x86_64", not(miri)))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Returns aligned bytes with a varying pattern.
    fn bytes() -> Vec<u64> {
        let bytes: Vec<u8> = (0..3 * BLOCK).map(|index| (index * 7 + index / 251) as u8).collect();
        bytes.chunks_exact(WORD).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect()
    }

    fn plain(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn copies_of_any_alignment_and_length_copy_only_their_bytes() {
        for (from, to) in (0..WORD).flat_map(|from| (0..WORD).map(move |to| (from, to))) {
            for len in (0..40).chain([MIN_STRING_WORDS * WORD - 1, MIN_STRING_WORDS * WORD + 9, BLOCK, BLOCK + 3]) {
                let source = bytes();
                let expected = |mut target: Vec<u8>| {
                    target[to..to + len].copy_from_slice(&plain(&source)[from..from + len]);
                    target
                };
                for copy in [load, store, store_past_cache, transfer] {
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
    fn overlapping_ranges_are_copied_like_memmove() {
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
