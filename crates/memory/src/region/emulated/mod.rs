//! Memory of an emulated accelerator, behind a path with a rate and a latency.

mod model;
mod path;
#[cfg(all(test, not(loom)))]
mod tests;

pub use model::{PathDirection, PathModel};
pub use path::{EmulatedPath, PathCounters};

use super::description::RegionDescription;
use super::{DeviceMemory, MemoryError, Pages, Region, copy};
use std::any::Any;
use std::sync::Arc;

/// Registry entry of this region kind.
pub(super) const DESCRIPTION: RegionDescription = RegionDescription {
    name: "emulated",
    form: "emulated[:PATH][:write=RATE][:read=RATE][:latency=TIME]",
    backing: "memory of an emulated accelerator: copies take as long as over its path",
    pages: Pages::Memfd,
    privilege: None,
};

impl Region {
    /// Allocates memory of an emulated accelerator behind a path of its own. The processor accesses it only by copies,
    /// which take as long as the path takes ([`EmulatedPath`]). The length is rounded up to whole pages.
    ///
    /// # Errors
    /// If `len` is 0 or there is not enough memory.
    pub fn emulated(name: &str, len: usize, model: PathModel) -> Result<Arc<Self>, MemoryError> {
        Ok(Self::memfd(name, len)?.behind(Arc::new(EmulatedPath::new(model))))
    }

    /// Returns the emulated memory behind the region, if its device is emulated.
    pub fn emulated_memory(&self) -> Option<&EmulatedMemory> {
        self.device.as_ref()?.as_any()?.downcast_ref()
    }

    /// Puts the region behind a path, as [`EmulatedMemory::over`] does. The result is writable if this region is.
    ///
    /// # Panics
    /// If the region is not mapped into this process.
    pub fn behind(self: Arc<Self>, path: Arc<EmulatedPath>) -> Arc<Self> {
        let writable = self.is_writable();
        Self::device_with(Arc::new(EmulatedMemory::over(self, path)), writable)
    }
}

/// Memory of an emulated accelerator: the bytes of another region, behind a path.
#[derive(Debug)]
pub struct EmulatedMemory {
    region: Arc<Region>,
    path: Arc<EmulatedPath>,
}

impl EmulatedMemory {
    /// Puts a region behind a path, which several memories can share. Copies of the region itself are not delayed.
    ///
    /// # Panics
    /// If the region is not mapped into this process. Copies into memory over a read-only region panic.
    pub fn over(region: Arc<Region>, path: Arc<EmulatedPath>) -> Self {
        assert!(region.is_mapped(), "emulated memory needs a mapped region");
        Self { region, path }
    }
    /// Returns the region that has the bytes.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }
    /// Returns the path.
    pub fn path(&self) -> &Arc<EmulatedPath> {
        &self.path
    }
}

// SAFETY: only the given ranges are accessed, and the bytes of the region only as its own copies do; there is no host
// address.
unsafe impl DeviceMemory for EmulatedMemory {
    fn len(&self) -> usize {
        self.region.len()
    }
    unsafe fn copy_out(&self, offset: usize, to: *mut u8, len: usize) {
        let from = self.region.address(offset, len);
        // SAFETY: `address` checked the source, and a mapping has whole words; the caller guarantees the target.
        self.path.transfer(PathDirection::Read, len, || unsafe { copy::load(from, to, len) });
    }
    unsafe fn copy_in(&self, offset: usize, from: *const u8, len: usize) {
        let to = self.region.target(offset, len);
        // SAFETY: as for `copy_out`, with the roles exchanged; `target` checked that the region is writable.
        self.path.transfer(PathDirection::Write, len, || unsafe { copy::store(from, to, len) });
    }
    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
