//! Memory of this process.

use super::description::RegionDescription;
use super::map::{anonymous, whole};
use super::{MemoryError, Pages, Region};
use crate::capacity::{HUGE_PAGE, check_one};
use rustix::mm::{Advice, MapFlags};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The kind's entry in the registry.
pub(super) const DESCRIPTION: RegionDescription = RegionDescription {
    name: "heap",
    form: "heap",
    backing: "memory of this process, in huge pages where there are any",
    pages: Pages::Transparent,
    privilege: None,
};

impl Region {
    /// Memory private to this process: reserved huge pages where there are enough, else transparent ones. Its length
    /// is rounded up to 2 MiB.
    /// Every page is touched before this returns: the first touch of a page costs more than a whole shot.
    pub fn host(len: usize) -> Result<Arc<Self>, MemoryError> {
        let region = Self::host_untouched(len)?;
        region.populate(&AtomicBool::new(false))?;
        Ok(region)
    }

    /// The same without having touched its pages: call [`Self::populate`], which may take seconds, at any time.
    pub fn host_untouched(len: usize) -> Result<Arc<Self>, MemoryError> {
        if let Ok(region) = Self::reserved(len) {
            return Ok(Arc::new(region));
        }
        let len = whole(len, HUGE_PAGE)?;
        // Not as Transparent: there are too few reserved pages.
        check_one(Pages::Small, len)?;
        // Map 2 MiB more than asked, so that the region can begin on a huge-page boundary.
        let raw = anonymous(len + HUGE_PAGE, MapFlags::PRIVATE | MapFlags::NORESERVE)
            .map_err(|source| MemoryError::Map { bytes: len, source })?;
        let head = raw.as_ptr().align_offset(HUGE_PAGE);
        // SAFETY: `head` is below HUGE_PAGE, so the three parts tile the mapping just made, and nothing
        // else knows of the two that are given back.
        let base = unsafe {
            let base = raw.as_ptr().add(head);
            if head > 0 {
                let _ = rustix::mm::munmap(raw.as_ptr().cast(), head);
            }
            let _ = rustix::mm::munmap(base.add(len).cast(), HUGE_PAGE - head);
            NonNull::new_unchecked(base)
        };
        let region = Self::over(base, len, Pages::Transparent, None, true);
        region.advise_huge();
        Ok(Arc::new(region))
    }

    /// Memory private to this process in ordinary pages, for what is small. Its length is rounded up to whole pages.
    pub fn heap(len: usize) -> Result<Arc<Self>, MemoryError> {
        let len = whole(len, rustix::param::page_size())?;
        check_one(Pages::Small, len)?;
        let base = anonymous(len, MapFlags::PRIVATE).map_err(|source| MemoryError::Map { bytes: len, source })?;
        Self::over(base, len, Pages::Small, None, true).populated(Advice::LinuxPopulateWrite)
    }
}
