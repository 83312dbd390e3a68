//! Writes of buffers in memory of a device: each is first copied to memory that is mapped into this process.

use super::drive::{Completion, Drive, Wake};
use crate::StoreError;
use rustix::io::Errno;
use shotline_memory::{Buffer, Pool, Regions};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Mapped memory for writes of buffers that are not mapped: one staging buffer for each write in flight.
pub struct Staging {
    /// The regions of the buffers that are offered.
    from: Regions,
    /// The mapped ones of these, under their numbers, and the staging buffers.
    regions: Regions,
    pool: Arc<Pool>,
}

impl Staging {
    /// Allocates `depth` buffers of `slot_bytes` if a region is not mapped, else returns `None`.
    pub fn new(regions: &Regions, depth: u32, slot_bytes: u32) -> Result<Option<Self>, StoreError> {
        let unmapped: Vec<_> = regions.iter().filter(|(_, region)| !region.is_mapped()).map(|(id, _)| id).collect();
        if unmapped.is_empty() {
            return Ok(None);
        }
        let mut registrar = regions.extend();
        let pool = Pool::new(&mut registrar, depth, slot_bytes).map_err(|source| StoreError::Staging { source })?;
        // A drive addresses, and registers with the kernel, all regions that it has.
        let regions_for_drive = unmapped.into_iter().fold(registrar.finish(), |regions, id| regions.without(id));
        Ok(Some(Self { from: regions.clone(), regions: regions_for_drive, pool }))
    }

    /// Returns the regions for the drive.
    pub fn regions(&self) -> &Regions {
        &self.regions
    }

    /// Returns a drive that also writes buffers that are not mapped.
    pub fn over(self, drive: Box<dyn Drive>) -> Box<dyn Drive> {
        Box::new(StagedDrive { staging: self, drive, failed: Vec::new() })
    }
}

/// A drive behind staging buffers.
struct StagedDrive {
    staging: Staging,
    drive: Box<dyn Drive>,
    /// Tags of writes whose bytes could not be copied from the device.
    failed: Vec<u64>,
}

impl std::fmt::Debug for StagedDrive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let free = self.staging.pool.available();
        write!(f, "StagedDrive({:?}, {free} of {} buffers free)", self.drive, self.staging.pool.slots())
    }
}

impl Drive for StagedDrive {
    fn wake(&self) -> &Arc<Wake> {
        self.drive.wake()
    }
    fn available(&self) -> usize {
        self.drive.available().min(self.staging.pool.available())
    }

    fn write(&mut self, buffer: Buffer, len: u32, at: u64, tag: u64) -> Result<(), Buffer> {
        let from = buffer.sge(0, len);
        let region = self.staging.from.get(from.region);
        if region.is_mapped() {
            return self.drive.write(buffer, len, at, tag);
        }
        if self.drive.available() == 0 {
            return Err(buffer);
        }
        let Some(staged) = self.staging.pool.take() else { return Err(buffer) };
        let to = staged.sge(0, len);
        self.staging.pool.region().copy_from(to.offset as usize, region, from.offset as usize, len as usize);
        // A copy returns no error: after a failure of the device its bytes are not those of the shot.
        if region.failure().is_some() {
            self.failed.push(tag);
            return Ok(());
        }
        // The device's buffer is free for another shot from here on.
        self.drive.write(staged, len, at, tag).map_err(|_| buffer)
    }

    fn sync(&mut self) -> bool {
        self.drive.sync()
    }
    fn submit(&mut self) -> io::Result<()> {
        self.drive.submit()
    }
    fn poll(&mut self, wait: Option<Duration>, on_completion: &mut dyn FnMut(Completion)) -> io::Result<()> {
        let wait = wait.filter(|_| self.failed.is_empty());
        for tag in self.failed.drain(..) {
            on_completion(Completion::Write { tag, result: Err(Errno::IO) });
        }
        self.drive.poll(wait, on_completion)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_memory::{DeviceMemory, MemoryError, Region, Registrar};
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    const SLOT: u32 = 4096;

    /// Memory that is not mapped and fails on request.
    struct Device {
        bytes: Mutex<Vec<u8>>,
        is_lost: Arc<AtomicBool>,
    }

    // SAFETY: only the given ranges are accessed; there is no host address.
    unsafe impl DeviceMemory for Device {
        fn len(&self) -> usize {
            self.bytes.lock().unwrap().len()
        }
        unsafe fn copy_out(&self, offset: usize, to: *mut u8, len: usize) {
            let bytes = self.bytes.lock().unwrap();
            // SAFETY: guaranteed by the caller.
            unsafe { to.copy_from_nonoverlapping(bytes[offset..][..len].as_ptr(), len) };
        }
        unsafe fn copy_in(&self, offset: usize, from: *const u8, len: usize) {
            let mut bytes = self.bytes.lock().unwrap();
            // SAFETY: guaranteed by the caller.
            unsafe { from.copy_to_nonoverlapping(bytes[offset..][..len].as_mut_ptr(), len) };
        }
        fn failure(&self) -> Option<MemoryError> {
            self.is_lost.load(Relaxed).then_some(MemoryError::Empty)
        }
    }

    /// Offset and bytes of each write.
    type Written = Vec<(u64, Vec<u8>)>;

    /// A drive that holds its writes until the next poll, and records their bytes.
    #[derive(Debug)]
    struct Slow {
        regions: Regions,
        held: Vec<(Buffer, u32, u64, u64)>,
        written: Arc<Mutex<Written>>,
        wake: Arc<Wake>,
    }

    impl Drive for Slow {
        fn wake(&self) -> &Arc<Wake> {
            &self.wake
        }
        fn available(&self) -> usize {
            8 - self.held.len()
        }
        fn write(&mut self, buffer: Buffer, len: u32, at: u64, tag: u64) -> Result<(), Buffer> {
            self.held.push((buffer, len, at, tag));
            Ok(())
        }
        fn sync(&mut self) -> bool {
            true
        }
        fn submit(&mut self) -> io::Result<()> {
            Ok(())
        }
        fn poll(&mut self, _: Option<Duration>, on_completion: &mut dyn FnMut(Completion)) -> io::Result<()> {
            for (buffer, len, at, tag) in self.held.drain(..) {
                let sge = buffer.sge(0, len);
                let mut bytes = vec![0; len as usize];
                self.regions.get(sge.region).read(sge.offset as usize, &mut bytes);
                self.written.lock().unwrap().push((at, bytes));
                on_completion(Completion::Write { tag, result: Ok(()) });
            }
            Ok(())
        }
    }

    struct Setup {
        pool: Arc<Pool>,
        mapped: Arc<Pool>,
        drive: Box<dyn Drive>,
        written: Arc<Mutex<Written>>,
        is_lost: Arc<AtomicBool>,
    }

    /// Returns a drive with 2 staging buffers over one for 8 writes, and a pool on a device and one that is mapped.
    fn setup() -> Setup {
        let is_lost = Arc::new(AtomicBool::new(false));
        let device = Device { bytes: Mutex::new(vec![0; 8 * SLOT as usize]), is_lost: Arc::clone(&is_lost) };
        let mut registrar = Registrar::new();
        let id = registrar.add(Region::device(Arc::new(device)));
        let mapped = Pool::new(&mut registrar, 2, SLOT).unwrap();
        let regions = registrar.finish();
        let pool = Pool::from_region(&regions, id, SLOT).unwrap();
        let staging = Staging::new(&regions, 2, SLOT).unwrap().expect("a region is not mapped");
        assert!(staging.regions().iter().all(|(_, region)| region.is_mapped()));
        let (regions, written) = (staging.regions().clone(), Arc::default());
        let wake = Arc::new(Wake::new().unwrap());
        let slow = Slow { regions, held: Vec::new(), written: Arc::clone(&written), wake };
        Setup { pool, mapped, drive: staging.over(Box::new(slow)), written, is_lost }
    }

    fn filled(pool: &Arc<Pool>, byte: u8) -> Buffer {
        let buffer = pool.take().unwrap();
        buffer.write(0, &[byte; SLOT as usize]);
        buffer
    }

    fn completions(drive: &mut dyn Drive) -> Vec<Completion> {
        let mut all = Vec::new();
        drive.poll(None, &mut |completion| all.push(completion)).unwrap();
        all
    }

    #[test]
    fn mapped_regions_need_no_staging() {
        let mut registrar = Registrar::new();
        Pool::new(&mut registrar, 2, SLOT).unwrap();
        assert!(Staging::new(&registrar.finish(), 2, SLOT).unwrap().is_none());
    }

    #[test]
    fn staged_writes_are_bounded_and_free_the_device_at_once() {
        let Setup { pool, mapped, mut drive, written, .. } = setup();
        for byte in 1..=2 {
            drive.write(filled(&pool, byte), SLOT, u64::from(byte), 10).unwrap();
        }
        assert_eq!((drive.available(), pool.available()), (0, 8), "both staging buffers are in use, no device's");
        let refused = drive.write(filled(&pool, 3), SLOT, 3, 10).unwrap_err();
        drive.write(filled(&mapped, 4), 100, 4, 10).unwrap();
        assert_eq!(mapped.available(), 1, "a mapped buffer is not copied");
        assert_eq!(completions(&mut *drive).len(), 3);
        drive.write(refused, 512, 3, 10).unwrap();
        completions(&mut *drive);
        let expected = [(1, vec![1; 4096]), (2, vec![2; 4096]), (4, vec![4; 100]), (3, vec![3; 512])];
        assert_eq!(*written.lock().unwrap(), expected);
        assert_eq!((drive.available(), pool.available(), mapped.available()), (2, 8, 2));
    }

    #[test]
    fn a_lost_device_fails_the_write_instead_of_storing_its_bytes() {
        let Setup { pool, mut drive, written, is_lost, .. } = setup();
        drive.write(filled(&pool, 1), SLOT, 1, 10).unwrap();
        is_lost.store(true, Relaxed);
        drive.write(filled(&pool, 2), SLOT, 2, 11).unwrap();
        let failed = Completion::Write { tag: 11, result: Err(Errno::IO) };
        assert_eq!(completions(&mut *drive), [failed, Completion::Write { tag: 10, result: Ok(()) }]);
        assert_eq!(written.lock().unwrap().len(), 1);
        assert_eq!((drive.available(), pool.available()), (2, 8));
    }
}
