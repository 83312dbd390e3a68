//! Memory of a PCI device behind a base address register (BAR).

mod access;
mod error;
mod spec;
mod sysfs;
#[cfg(all(test, not(loom)))]
mod tests;
mod vfio;

pub use access::BarAccess;
pub use error::BarError;
pub use spec::{BarSpec, PciAddress};

use super::description::RegionDescription;
use super::map::round_up;
use super::{DeviceMemory, MemoryError, Pages, Region};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use sysfs::{Bar, Roots};

/// Minimum time between two checks of the configuration space that [`Region::failure`] makes: a read of it takes longer
/// than one of memory.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Registry entry of this region kind.
pub(super) const DESCRIPTION: RegionDescription = RegionDescription {
    name: "bar",
    form: "bar:ADDRESS/BAR[:access=4]",
    backing: "memory of a PCI device behind a BAR, copied by the processor",
    pages: Pages::Device,
    privilege: Some("root (or VFIO) and a PCI device with memory"),
};

impl Region {
    /// Maps the first `len` bytes of a BAR, rounded up to 8 bytes: with write combining if the BAR is prefetchable and
    /// the machine supports it, and through VFIO if the device is bound to vfio-pci.
    ///
    /// The processor copies by aligned accesses of 8 bytes, or of 4 bytes at the ends of a range and if the
    /// specification says so. A write that begins or ends inside a 4-byte word reads the word, changes a part of it, and
    /// writes it: what the device writes to the word meanwhile is lost. Writes are posted: the copy may return before
    /// they reach the device, and precede all later reads of the BAR.
    ///
    /// A read of ones only, which is what a device returns that is lost, is followed by a check of the device's
    /// configuration space, whose result is [`Region::failure`]. So is, ten times a second, a call of that method: words
    /// that are only written show no loss.
    ///
    /// # Errors
    /// If `len` is 0 or exceeds the BAR, there is no such memory BAR, it may not be mapped, or the device does not
    /// answer or has its memory space disabled.
    pub fn bar(spec: &BarSpec, len: usize, writable: bool) -> Result<Arc<Self>, MemoryError> {
        Self::bar_in(&Roots::default(), spec, len, writable, CHECK_INTERVAL)
    }

    fn bar_in(
        roots: &Roots,
        spec: &BarSpec,
        len: usize,
        writable: bool,
        check_interval: Duration,
    ) -> Result<Arc<Self>, MemoryError> {
        let len = round_up(len, 8)?;
        let memory = BarMemory {
            bar: sysfs::open(roots, spec, len, writable)?,
            len,
            access: spec.access,
            writing: Mutex::new(()),
            failure: OnceLock::new(),
            opened: Instant::now(),
            next_check_us: AtomicU64::new(check_interval.as_micros() as u64),
            check_interval,
        };
        Ok(Self::device_with(Arc::new(memory), writable))
    }
}

/// Memory behind a BAR.
#[derive(Debug)]
struct BarMemory {
    bar: Bar,
    len: usize,
    access: BarAccess,
    /// Held while words are read, changed and written, so that no thread undoes what another one writes.
    writing: Mutex<()>,
    failure: OnceLock<BarError>,
    opened: Instant,
    /// Time since `opened` at which `failure` checks the device again.
    next_check_us: AtomicU64,
    check_interval: Duration,
}

impl BarMemory {
    fn address(&self, offset: usize) -> *mut u8 {
        self.bar.mapping.address(self.bar.offset + offset)
    }
    /// Checks whether the device answers, so that ones that were read are data.
    #[cold]
    fn check(&self) {
        if let Err(error) = self.bar.config.check() {
            let _ = self.failure.set(error);
        }
    }
}

// SAFETY: only the given ranges of host memory are accessed, and device memory only by volatile accesses; there is no host
// address.
unsafe impl DeviceMemory for BarMemory {
    fn len(&self) -> usize {
        self.len
    }
    unsafe fn copy_out(&self, offset: usize, to: *mut u8, len: usize) {
        // SAFETY: the caller guarantees that the source is inside the region, whose length is a multiple of 8 and which
        // is mapped, and that the target is valid.
        let all_ones = unsafe { access::load(self.address(offset), to, len, self.access) };
        if all_ones {
            self.check();
        }
    }
    unsafe fn copy_in(&self, offset: usize, from: *const u8, len: usize) {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: as for `copy_out`, with the roles exchanged; a region that is not writable refuses writes.
        let found_ones = unsafe { access::store(from, self.address(offset), len, self.access) };
        access::flush_writes();
        if found_ones {
            self.check();
        }
    }
    fn failure(&self) -> Option<MemoryError> {
        let now = self.opened.elapsed();
        if now.as_micros() as u64 >= self.next_check_us.load(Ordering::Relaxed) {
            self.next_check_us.store((now + self.check_interval).as_micros() as u64, Ordering::Relaxed);
            self.check();
        }
        self.failure.get().cloned().map(MemoryError::Bar)
    }
}
