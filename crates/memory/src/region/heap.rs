//! Private memory of this process.

use super::description::RegionDescription;
use super::map::{anonymous, round_up};
use super::{MemoryError, Pages, Region};
use crate::capacity::{HUGE_PAGE, check_one};
use rustix::mm::{Advice, MapFlags};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Registry entry of this region kind.
pub(super) const DESCRIPTION: RegionDescription = RegionDescription {
    name: "heap",
    form: "heap",
    backing: "private memory of this process, in huge pages if available",
    pages: Pages::Transparent,
    privilege: None,
};

impl Region {
    /// Allocates private memory in reserved huge pages if there are enough, else in transparent ones. The length is
    /// rounded up to 2 MiB.
    ///
    /// Every page is touched before this returns, because the first access to a page takes longer than a whole shot.
    ///
    /// # Errors
    /// If `len` is 0 or there is not enough memory.
    pub fn host(len: usize) -> Result<Arc<Self>, MemoryError> {
        let region = Self::host_untouched(len)?;
        region.populate(&AtomicBool::new(false))?;
        Ok(region)
    }

    /// Like [`Self::host`], without touching the pages. [`Self::populate`], which may take seconds, can be called
    /// later.
    ///
    /// # Errors
    /// If `len` is 0 or there is not enough memory.
    pub fn host_untouched(len: usize) -> Result<Arc<Self>, MemoryError> {
        if let Ok(region) = Self::reserved(len) {
            return Ok(Arc::new(region));
        }
        let len = round_up(len, HUGE_PAGE)?;
        // Checked as Small and not as Transparent, since there are too few reserved pages.
        check_one(Pages::Small, len)?;
        // Map 2 MiB more than requested, so that the region can begin on a huge-page boundary.
        let raw = anonymous(len + HUGE_PAGE, MapFlags::PRIVATE | MapFlags::NORESERVE)
            .map_err(|source| MemoryError::Map { bytes: len, source })?;
        let head = raw.as_ptr().align_offset(HUGE_PAGE);
        // SAFETY: `head` is below HUGE_PAGE, so the three parts tile the new mapping, and nothing refers to the two
        // parts that are unmapped.
        let base = unsafe {
            let base = raw.as_ptr().add(head);
            if head > 0 {
                let _ = rustix::mm::munmap(raw.as_ptr().cast(), head);
            }
            let _ = rustix::mm::munmap(base.add(len).cast(), HUGE_PAGE - head);
            NonNull::new_unchecked(base)
        };
        let region = Self::from_mapping(base, len, Pages::Transparent, None, true);
        region.advise_huge();
        Ok(Arc::new(region))
    }

    /// Allocates private memory in ordinary pages, for small regions. The length is rounded up to whole pages.
    ///
    /// # Errors
    /// If `len` is 0 or there is not enough memory.
    pub fn heap(len: usize) -> Result<Arc<Self>, MemoryError> {
        let len = round_up(len, rustix::param::page_size())?;
        check_one(Pages::Small, len)?;
        let base = anonymous(len, MapFlags::PRIVATE).map_err(|source| MemoryError::Map { bytes: len, source })?;
        Self::from_mapping(base, len, Pages::Small, None, true).populated(Advice::LinuxPopulateWrite)
    }
}
