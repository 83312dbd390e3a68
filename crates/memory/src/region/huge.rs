//! Private memory in reserved huge pages.

use super::description::RegionDescription;
use super::map::{anonymous, round_up};
use super::{MemoryError, Pages, Region};
use crate::capacity::{HUGE_PAGE, huge_pages};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags};
use std::sync::Arc;

/// Registry entry of this region kind.
pub(super) const DESCRIPTION: RegionDescription = RegionDescription {
    name: "huge",
    form: "huge",
    backing: "reserved 2 MiB pages",
    pages: Pages::Huge,
    privilege: Some("pages reserved by root (vm.nr_hugepages)"),
};

impl Region {
    /// Allocates private memory in reserved 2 MiB pages.
    ///
    /// # Errors
    /// If there are too few reserved pages: the error has the command that reserves them.
    pub fn huge(len: usize) -> Result<Arc<Self>, MemoryError> {
        let region = Self::reserved(len).and_then(|region| region.populated(Advice::LinuxPopulateWrite));
        region.map_err(|error| {
            let count = |name| huge_pages(name) as usize;
            let MemoryError::Map { bytes, source: Errno::NOMEM } = error else { return error };
            let (needed, free, all) = (bytes / HUGE_PAGE, count("free_hugepages"), count("nr_hugepages"));
            MemoryError::NoHugePages { bytes, needed, free, nr_hugepages: all + needed.saturating_sub(free) }
        })
    }

    pub(super) fn reserved(len: usize) -> Result<Self, MemoryError> {
        let len = round_up(len, HUGE_PAGE)?;
        // Without NORESERVE, mapping fails at once if there are too few reserved pages, and not by SIGBUS at the first
        // access.
        let base = anonymous(len, MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_2MB)
            .map_err(|source| MemoryError::Map { bytes: len, source })?;
        Ok(Self::from_mapping(base, len, Pages::Huge, None, true))
    }
}
