//! Memory of a run, registered with all of its components. It is allocated before the shape of a shot is known, because
//! a sender may have to be learned from its packets first. Populating all pages of a large region takes seconds;
//! learning proceeds meanwhile.

use crate::receiver::SPARE_BYTES;
use shotline_memory::{MemoryError, Pool, Region, RegionId, RegionKind, Regions, Registrar, Sge};
use shotline_transport::SCRATCH_BYTES;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Memory for shots, and for the backend's scratch space and repairs.
pub(crate) struct Memory {
    pub(crate) regions: Regions,
    pub(crate) scratch: Sge,
    pub(crate) spare: Sge,
    shots: RegionId,
    /// The thread that populates the pages, until it is joined.
    populating: Option<JoinHandle<Result<(), MemoryError>>>,
    /// Makes that thread end early.
    stop: Arc<AtomicBool>,
}

impl Memory {
    /// Allocates `bytes` for shots and starts a thread that populates the pages: [`Self::wait_populated`] waits for it.
    pub(crate) fn new(bytes: u64) -> Result<Self, MemoryError> {
        Self::over(Region::host_untouched(length(bytes))?)
    }

    /// As [`Self::new`], with memory that a device in another process can write.
    pub(crate) fn shared(bytes: u64) -> Result<Self, MemoryError> {
        Self::over(Region::memfd_untouched("shotline-shots", length(bytes))?)
    }

    /// As [`Self::new`], with memory of this kind. Other kinds than the default one may be populated before this returns.
    pub(crate) fn of_kind(kind: &RegionKind, bytes: u64) -> Result<Self, MemoryError> {
        match kind {
            RegionKind::Heap => Self::new(bytes),
            RegionKind::Memfd => Self::shared(bytes),
            RegionKind::Huge
            | RegionKind::File(_)
            | RegionKind::Emulated(_)
            | RegionKind::Bar(_)
            | RegionKind::Dmabuf(_)
            | RegionKind::Cuda(_) => Self::over(kind.make("shotline-shots", length(bytes), true)?),
        }
    }

    fn over(region: Arc<Region>) -> Result<Self, MemoryError> {
        let mut registrar = Registrar::new();
        let shots = registrar.add(Arc::clone(&region));
        let mut element = |len: u32| {
            let region = registrar.add(Region::host(len as usize)?);
            Ok::<_, MemoryError>(Sge { region, offset: 0, len })
        };
        let (scratch, spare) = (element(SCRATCH_BYTES)?, element(SPARE_BYTES)?);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let populating = Some(std::thread::spawn(move || region.populate(&stopped)));
        Ok(Self { regions: registrar.finish(), scratch, spare, shots, populating, stop })
    }

    /// Returns `true` if populating has ended, successfully or not.
    pub(crate) fn is_populated(&self) -> bool {
        self.populating.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until all pages are populated, so that no shot waits for page faults.
    pub(crate) fn wait_populated(&mut self) -> Result<(), MemoryError> {
        let Some(populating) = self.populating.take() else { return Ok(()) };
        populating.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Returns the memory for shots, divided into slots of `slot_bytes`.
    pub(crate) fn pool(&self, slot_bytes: u32) -> Result<Arc<Pool>, MemoryError> {
        Pool::from_region(&self.regions, self.shots, slot_bytes)
    }
}

fn length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX >> 1).max(1)
}

/// Ends populating, so that a run that fails early has freed its memory when it returns.
impl Drop for Memory {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // The result is no longer needed.
        let _ = self.populating.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_memory::{Pages, PathModel};

    #[test]
    fn shared_memory_has_a_descriptor_and_is_populated() {
        let mut memory = Memory::shared(4 << 20).unwrap();
        memory.wait_populated().unwrap();
        let pool = memory.pool(4096).unwrap();
        assert!(pool.region().is_shared() && pool.region().fd().is_some());
    }

    #[test]
    fn memory_has_the_requested_kind() {
        let folder = tempfile::tempdir().unwrap();
        let file = RegionKind::File(folder.path().join("pool"));
        let emulated = RegionKind::Emulated(PathModel::default());
        for (kind, pages) in [(RegionKind::Memfd, Pages::Memfd), (file, Pages::File), (emulated, Pages::Device)] {
            let mut memory = Memory::of_kind(&kind, 1 << 20).unwrap();
            memory.wait_populated().unwrap();
            assert_eq!(memory.pool(4096).unwrap().region().pages(), pages, "{kind}");
        }
    }

    #[test]
    fn dropping_memory_stops_the_populating_thread() {
        let memory = Memory::new(256 << 20).unwrap();
        let region = Arc::downgrade(memory.regions.get(memory.shots));
        drop(memory);
        assert!(region.upgrade().is_none(), "the region is still in use");
    }

    #[test]
    fn a_pool_larger_than_memory_is_refused() {
        let refusal = Memory::new(1 << 50).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refusal.contains("1024.0 TiB of memory are needed"), "{refusal}");
    }
}
