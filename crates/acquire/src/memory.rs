//! The memory of a run, known to every party of it. It is there before the shape of a shot is known, because senders
//! may have to be listened to for that. A large room takes seconds until all its pages are there: others look at a sender
//! meanwhile.

use crate::receiver::SPARE_BYTES;
use shotline_memory::{MemoryError, Pool, Region, RegionId, Regions, Registrar, Sge};
use shotline_transport::SCRATCH_BYTES;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Room for shots, and what backend and repairs need beside it.
pub(crate) struct Memory {
    pub(crate) regions: Regions,
    pub(crate) scratch: Sge,
    pub(crate) spare: Sge,
    shots: RegionId,
    /// The thread that touches the pages, until it was waited for.
    touching: Option<JoinHandle<Result<(), MemoryError>>>,
    /// Has that thread end early.
    stop: Arc<AtomicBool>,
}

impl Memory {
    /// With room for so many bytes of shots, whose pages are touched by a thread of their own: [`Self::settle`] waits for it.
    pub(crate) fn new(bytes: u64) -> Result<Self, MemoryError> {
        let mut registrar = Registrar::new();
        let room = Region::host_untouched(usize::try_from(bytes).unwrap_or(usize::MAX >> 1).max(1))?;
        let shots = registrar.add(Arc::clone(&room));
        let mut element = |len: u32| {
            let region = registrar.add(Region::host(len as usize)?);
            Ok::<_, MemoryError>(Sge { region, offset: 0, len })
        };
        let (scratch, spare) = (element(SCRATCH_BYTES)?, element(SPARE_BYTES)?);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let touching = Some(std::thread::spawn(move || room.populate(&stopped)));
        Ok(Self { regions: registrar.finish(), scratch, spare, shots, touching, stop })
    }

    /// Whether all pages are there, or never will be.
    pub(crate) fn is_settled(&self) -> bool {
        self.touching.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until all pages are there: before that a shot would wait for its own.
    pub(crate) fn settle(&mut self) -> Result<(), MemoryError> {
        let Some(touching) = self.touching.take() else { return Ok(()) };
        touching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// The room for shots, cut into slots.
    pub(crate) fn pool(&self, slot_bytes: u32) -> Result<Arc<Pool>, MemoryError> {
        Pool::over(&self.regions, self.shots, slot_bytes)
    }
}

/// A run that fails early takes no further memory, and has given it back when it returns.
impl Drop for Memory {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // What the thread has come to concerns nobody any more.
        let _ = self.touching.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_touches_the_memory_of_a_run_that_is_over() {
        let memory = Memory::new(256 << 20).unwrap();
        let region = Arc::downgrade(memory.regions.get(memory.shots));
        drop(memory);
        assert!(region.upgrade().is_none(), "the region is still in use");
    }

    #[test]
    fn a_pool_that_the_machine_cannot_hold_is_refused() {
        let refusal = Memory::new(1 << 50).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refusal.contains("1024.0 TiB of memory are needed"), "{refusal}");
    }
}
