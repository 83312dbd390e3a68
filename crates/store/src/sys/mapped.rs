//! Drive that copies shots into the mapped pages of a file.
//!
//! For files on tmpfs. There the kernel's write path takes longer than the copy: rewriting warm pages by `pwrite`
//! moves about 8 GB/s, the same copy into mapped pages about 20 (docs/performance.md).
//!
//! Touching a page that cannot be allocated raises SIGBUS. So a slot is copied only if all its pages are in memory just
//! before; otherwise (a hole punched by another program, pages that were swapped out) it is written by `pwrite`, which
//! returns an error.

use super::cache::cached_bytes;
use super::drive::{Completion, Drive, Wake};
use super::stream_copy::stream_copy;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use shotline_memory::{Buffer, Regions};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of completed writes that are not reported yet.
const MAX_PENDING: usize = 64;

/// Drive over mapped pages. See the module.
pub struct Mapped {
    base: *mut u8,
    len: usize,
    file: File,
    regions: Regions,
    wake: Arc<Wake>,
    completions: Vec<Completion>,
}

// SAFETY: `base` is a mapping that only this value refers to; it may be used from any one thread.
unsafe impl Send for Mapped {}

impl Mapped {
    /// Maps `len` bytes of an allocated file and populates the page table.
    pub fn new(file: &File, len: u64, regions: &Regions) -> io::Result<Self> {
        let len = usize::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, flags, file, 0) }?.cast::<u8>();
        let (file, wake) = (file.try_clone()?, Arc::new(Wake::new()?));
        let mapped =
            Self { base, len, file, regions: regions.clone(), wake, completions: Vec::with_capacity(MAX_PENDING) };
        // SAFETY: the range is the mapping above. Populating for writing changes no byte of it.
        unsafe { rustix::mm::madvise(base.cast(), len, Advice::LinuxPopulateWrite) }?;
        Ok(mapped)
    }
}

impl Mapped {
    fn copy_in(&self, buffer: &Buffer, len: u32, at: u64) -> Result<(), Errno> {
        let (from, bytes) = (self.regions.address(buffer.sge(0, len)).cast_const(), len as usize);
        let inside = usize::try_from(at).is_ok_and(|at| at.checked_add(bytes).is_some_and(|end| end <= self.len));
        let is_cached =
            || cached_bytes(self.file.as_fd(), at, u64::from(len)).is_some_and(|bytes| bytes >= u64::from(len));
        if inside && is_cached() {
            // SAFETY: `from` is `len` bytes of a pool buffer that is held here and no longer written; `at` and `len`
            // are within the mapping, as was just checked; a pool's region and a file's mapping never overlap.
            unsafe { stream_copy(from, self.base.add(at as usize), bytes) };
            return Ok(());
        }
        let mut done = 0;
        while done < bytes {
            let offset = i64::try_from(at + done as u64).map_err(|_| Errno::FBIG)?;
            // SAFETY: the kernel reads the rest of the same `len` bytes.
            let count = unsafe { libc::pwrite(self.file.as_raw_fd(), from.add(done).cast(), bytes - done, offset) };
            match usize::try_from(count) {
                Ok(0) => return Err(Errno::IO),
                Ok(count) => done += count,
                Err(_) => match Errno::from_io_error(&io::Error::last_os_error()) {
                    Some(Errno::INTR) => {}
                    errno => return Err(errno.unwrap_or(Errno::IO)),
                },
            }
        }
        Ok(())
    }
}

impl Drive for Mapped {
    fn wake(&self) -> &Arc<Wake> {
        &self.wake
    }
    fn available(&self) -> usize {
        MAX_PENDING - self.completions.len()
    }
    fn write(&mut self, buffer: Buffer, len: u32, at: u64, tag: u64) -> Result<(), Buffer> {
        if self.available() == 0 {
            return Err(buffer);
        }
        let result = self.copy_in(&buffer, len, at);
        self.completions.push(Completion::Write { tag, result });
        Ok(())
    }
    fn sync(&mut self) -> bool {
        // tmpfs has no stable storage, so a sync completes at once.
        if self.completions.iter().any(|entry| matches!(entry, Completion::Sync(_))) {
            return false;
        }
        self.completions.push(Completion::Sync(Ok(())));
        true
    }
    fn submit(&mut self) -> io::Result<()> {
        Ok(())
    }
    fn poll(&mut self, wait: Option<Duration>, on_completion: &mut dyn FnMut(Completion)) -> io::Result<()> {
        if let Some(wait) = wait.filter(|_| self.completions.is_empty()) {
            let mut wakers = [PollFd::new(&*self.wake, PollFlags::IN)];
            let time = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
            match poll(&mut wakers, Some(&time)) {
                Err(Errno::INTR) | Ok(_) => {}
                Err(errno) => return Err(errno.into()),
            }
            self.wake.clear();
        }
        self.completions.drain(..).for_each(on_completion);
        Ok(())
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping is owned by this value, and no address in it is used any more.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.len) };
    }
}

impl std::fmt::Debug for Mapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mapped({} bytes)", self.len)
    }
}
