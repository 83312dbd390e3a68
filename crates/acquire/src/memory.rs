//! The memory of a run, known to every party of it. It is there before the shape of a shot is known, because senders
//! may have to be listened to for that.

use crate::receiver::SPARE_BYTES;
use shotline_memory::{MemoryError, Pool, Region, RegionId, Regions, Registrar, Sge};
use shotline_transport::SCRATCH_BYTES;
use std::sync::Arc;

/// Room for shots, and what backend and repairs need beside it.
pub(crate) struct Memory {
    pub(crate) regions: Regions,
    pub(crate) scratch: Sge,
    pub(crate) spare: Sge,
    shots: RegionId,
}

impl Memory {
    /// With room for so many bytes of shots.
    pub(crate) fn new(bytes: u64) -> Result<Self, MemoryError> {
        let mut registrar = Registrar::new();
        let shots = registrar.add(Region::host(usize::try_from(bytes).unwrap_or(usize::MAX >> 1).max(1))?);
        let mut element = |len: u32| {
            let region = registrar.add(Region::host(len as usize)?);
            Ok::<_, MemoryError>(Sge { region, offset: 0, len })
        };
        let (scratch, spare) = (element(SCRATCH_BYTES)?, element(SPARE_BYTES)?);
        Ok(Self { regions: registrar.finish(), scratch, spare, shots })
    }

    /// The room for shots, cut into slots.
    pub(crate) fn pool(&self, slot_bytes: u32) -> Result<Arc<Pool>, MemoryError> {
        Pool::over(&self.regions, self.shots, slot_bytes)
    }
}
