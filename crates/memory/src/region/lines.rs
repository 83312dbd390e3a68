//! Whole cache lines of a region, for loops in registers of 64 bytes (AVX-512).

use super::{Region, copy};
use std::arch::asm;
use std::arch::x86_64::__m512i;
use std::marker::PhantomData;

/// Length in bytes of a cache line.
const LINE: usize = 64;

/// Consecutive cache lines of a region that is mapped into this process.
#[derive(Clone, Copy)]
pub struct Lines<'a> {
    first: *mut __m512i,
    count: usize,
    writable: bool,
    region: PhantomData<&'a Region>,
}

impl Region {
    /// Returns a range as cache lines. `None` if it is not whole lines, or not mapped into this process.
    ///
    /// # Panics
    /// If the range is not inside the region.
    pub fn lines(&self, offset: usize, len: usize) -> Option<Lines<'_>> {
        if !self.is_mapped() {
            return None;
        }
        let (first, region) = (self.address(offset, len), PhantomData);
        let is_whole = (first.addr() | len).is_multiple_of(LINE);
        is_whole.then_some(Lines { first: first.cast(), count: len / LINE, writable: self.writable, region })
    }
}

impl Lines<'_> {
    /// Returns the number of lines.
    #[inline]
    pub fn len(self) -> usize {
        self.count
    }
    /// Returns `true` if there is none.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.count == 0
    }

    #[inline]
    fn at(self, index: usize) -> *mut __m512i {
        assert!(index < self.count, "line {index} of {}", self.count);
        self.first.wrapping_add(index)
    }

    /// Loads a line.
    ///
    /// # Panics
    /// If there are not as many.
    ///
    /// # Safety
    /// In code that is not compiled for AVX-512: the processor has it.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub fn load(self, index: usize) -> __m512i {
        let line: __m512i;
        // SAFETY: the line is inside the region, which is mapped while it is borrowed, and aligned. For the language the
        // instruction is a sequence of loads of 8-byte words, as those of `copy`.
        unsafe {
            asm!("vmovdqa64 {line}, [{from}]", line = out(zmm_reg) line, from = in(reg) self.at(index),
                options(nostack, preserves_flags, readonly));
        }
        line
    }

    /// Stores a line past the cache. Other threads and devices see it only after [`Region::fence_streams`] in this thread.
    ///
    /// # Panics
    /// If there are not as many lines, or the region is read-only.
    ///
    /// # Safety
    /// As for [`Self::load`].
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub fn stream(self, index: usize, line: __m512i) {
        assert!(self.writable, "the region is mapped for reading only");
        // SAFETY: as for `load`, and the region is writable; the order of the stores is that of `copy::store_past_cache`.
        unsafe {
            asm!("vmovntdq [{to}], {line}", line = in(zmm_reg) line, to = in(reg) self.at(index),
                options(nostack, preserves_flags));
        }
    }

    /// Hints that a line will be loaded soon. One that is not there is ignored.
    #[inline]
    pub fn prefetch(self, index: usize) {
        if index < self.count {
            copy::prefetch(self.first.wrapping_add(index).cast(), 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::arch::x86_64::_mm512_set1_epi8;

    #[test]
    fn lines_are_loaded_and_stored_at_their_places() {
        if !is_x86_feature_detected!("avx512f") {
            shotline_testing::skip!("this processor has no AVX-512");
        }
        let region = Region::heap(4096).unwrap();
        region.write(128, &[7; 64]);
        let lines = region.lines(64, 192).unwrap();
        // SAFETY: the feature was detected.
        unsafe {
            lines.stream(0, lines.load(1));
            lines.stream(2, _mm512_set1_epi8(9));
        }
        Region::fence_streams();
        let mut bytes = [0; 4096];
        region.read(0, &mut bytes);
        assert_eq!(bytes[64..256], [[7; 64], [7; 64], [9; 64]].concat());
        assert_eq!((lines.len(), bytes.iter().filter(|byte| **byte != 0).count()), (3, 192));
    }

    #[test]
    fn ranges_that_are_no_whole_lines_have_none() {
        let region = Region::heap(4096).unwrap();
        assert!(region.lines(8, 64).is_none() && region.lines(64, 72).is_none());
        assert!(region.lines(4096, 0).is_some_and(Lines::is_empty));
    }
}
