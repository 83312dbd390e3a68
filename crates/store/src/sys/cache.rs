//! Page cache residency of a file.

use rustix::fd::{AsRawFd, BorrowedFd};

/// Number of the system call, the same on every architecture.
const CACHESTAT: libc::c_long = 451;

/// Returns the number of bytes of the range that are in the page cache; `None` on kernels before 6.5.
pub fn cached_bytes(fd: BorrowedFd<'_>, offset: u64, len: u64) -> Option<u64> {
    let range = [offset, len];
    // Pages in the cache, dirty, under writeback, evicted, recently evicted.
    let mut pages = [0_u64; 5];
    // SAFETY: `range` and `pages` have the layout of the kernel's `cachestat_range` and `cachestat` (two and
    // five 64-bit fields) and live through the call, which writes only to the second; the descriptor is open.
    let status = unsafe { libc::syscall(CACHESTAT, fd.as_raw_fd(), range.as_ptr(), pages.as_mut_ptr(), 0_u32) };
    (status == 0).then(|| pages[0] * rustix::param::page_size() as u64)
}
