//! The kinds of regions that are mappings, and how each is had.

use super::{MemoryError, Pages, Region};
use crate::capacity::{HUGE_PAGE, check_one, huge_pages};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FallocateFlags, FileType, FlockOperation, FsWord, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Bytes that are touched in one go, and threads that do so at most.
const PIECE: usize = 32 << 20;
const MOST_THREADS: usize = 8;
/// The file system of reserved huge pages (HUGETLBFS_MAGIC).
const HUGETLBFS: FsWord = 0x9584_58F6;

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

    /// Touches every page of its own writable memory, in pieces by as many threads as there are processors (up to 8): the
    /// kernel clears each page, which takes a second for 0.2 to 4 GiB. Returns early once `stop` is set.
    pub fn populate(&self, stop: &AtomicBool) -> Result<(), MemoryError> {
        let pieces = self.len.div_ceil(PIECE);
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS).min(pieces);
        let next = AtomicUsize::new(0);
        let touch = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed).saturating_mul(PIECE);
                if at >= self.len || stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                self.advise(at, PIECE.min(self.len - at), Advice::LinuxPopulateWrite)?;
            }
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(touch)).collect();
            let mine = touch();
            others.into_iter().filter_map(|other| other.join().ok()).fold(mine, Result::and)
        })
    }

    /// Memory private to this process in ordinary pages, for what is small. Its length is rounded up to whole pages.
    pub fn heap(len: usize) -> Result<Arc<Self>, MemoryError> {
        let len = whole(len, rustix::param::page_size())?;
        check_one(Pages::Small, len)?;
        let base = anonymous(len, MapFlags::PRIVATE).map_err(|source| MemoryError::Map { bytes: len, source })?;
        Self::over(base, len, Pages::Small, None, true).populated(Advice::LinuxPopulateWrite)
    }

    /// Memory private to this process in reserved 2 MiB pages, or an error that says how to reserve them.
    pub fn huge(len: usize) -> Result<Arc<Self>, MemoryError> {
        let region = Self::reserved(len).and_then(|region| region.populated(Advice::LinuxPopulateWrite));
        region.map_err(|error| {
            let count = |name| huge_pages(name) as usize;
            let MemoryError::Map { bytes, source: Errno::NOMEM } = error else { return error };
            let (needed, free, all) = (bytes / HUGE_PAGE, count("free_hugepages"), count("nr_hugepages"));
            MemoryError::NoHugePages { bytes, needed, free, wanted: all + needed.saturating_sub(free) }
        })
    }

    fn reserved(len: usize) -> Result<Self, MemoryError> {
        let len = whole(len, HUGE_PAGE)?;
        // Without NORESERVE a mapping of reserved pages fails at once where there are too few, rather than by SIGBUS
        // at the first touch.
        let base = anonymous(len, MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_2MB)
            .map_err(|source| MemoryError::Map { bytes: len, source })?;
        Ok(Self::over(base, len, Pages::Huge, None, true))
    }

    /// Shared memory behind a file descriptor: what the kernel can send from without a copy, and another process can
    /// map. Its length is rounded up to whole pages and sealed: nobody who gets the descriptor can change it.
    pub fn memfd(name: &str, len: usize) -> Result<Arc<Self>, MemoryError> {
        let len = whole(len, rustix::param::page_size())?;
        check_one(Pages::Memfd, len)?;
        let failed = |source| MemoryError::Map { bytes: len, source };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create(name, flags).map_err(failed)?;
        rustix::fs::ftruncate(&fd, len as u64).map_err(failed)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW).map_err(MemoryError::Seal)?;
        let base = shared(fd.as_fd(), len, true).map_err(failed)?;
        Self::over(base, len, Pages::Memfd, Some(fd), true).populated(Advice::LinuxPopulateWrite)
    }

    /// Shared memory that another process made and handed over by its file descriptor, as long as it is now. It must be
    /// sealed against shrinking, and not of reserved huge pages: otherwise its maker could kill this process by taking pages
    /// away. The descriptor is closed (the mapping needs none), so that many regions of a peer do not use up those that a
    /// process may have.
    ///
    /// The mapping is not populated: another process's memory must not cost this one the time of its page faults, nor make
    /// the kernel allocate pages that its owner never touched.
    pub fn from_fd(fd: OwnedFd, writable: bool) -> Result<Arc<Self>, MemoryError> {
        // Only memfds have seals: this refuses everything else, too.
        let seals = rustix::fs::fcntl_get_seals(&fd).map_err(|_| MemoryError::NotSealed)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(MemoryError::NotSealed);
        }
        if rustix::fs::fstatfs(&fd).map_err(MemoryError::Seal)?.f_type == HUGETLBFS {
            return Err(MemoryError::SharedHugePages);
        }
        let stat = rustix::fs::fstat(&fd).map_err(MemoryError::Seal)?;
        let len = usize::try_from(stat.st_size).ok().filter(|len| *len > 0).ok_or(MemoryError::Empty)?;
        let base = shared(fd.as_fd(), len, writable).map_err(|source| MemoryError::Map { bytes: len, source })?;
        Ok(Arc::new(Self::over(base, len, Pages::Memfd, None, writable)))
    }

    /// Lets nobody who gets the file descriptor of a [`Self::memfd`] from now on write to it (if `read_only`), and
    /// nobody change its seals. This mapping, and those that others have already, stay as they are.
    pub fn seal(&self, read_only: bool) -> Result<(), MemoryError> {
        let fd = self.fd().ok_or(MemoryError::Seal(Errno::INVAL))?;
        let has = rustix::fs::fcntl_get_seals(fd).map_err(MemoryError::Seal)?;
        let mut wanted = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        if read_only {
            wanted |= SealFlags::FUTURE_WRITE;
        }
        if has.contains(wanted) {
            return Ok(());
        }
        rustix::fs::fcntl_add_seals(fd, wanted).map_err(MemoryError::Seal)
    }

    /// The first `len` bytes of a file, which is made, or extended if it is shorter. Pages come from the disk when they
    /// are touched and go back to it when the kernel likes; nothing here waits for that.
    ///
    /// Room on the disk is taken at once where the file system can, because a disk that is full would otherwise kill
    /// the process (SIGBUS) at the first write to a hole. The file is locked (`flock`): exclusively if writable, else
    /// shared; so two processes of this project cannot have it by mistake. The lock binds only those who ask for
    /// it: whoever else truncates the file kills this process at the next touch of a page that is gone. Where that
    /// must not be, use [`Self::memfd`], whose length is sealed.
    pub fn file(path: &Path, len: usize, writable: bool) -> Result<Arc<Self>, MemoryError> {
        let failed = |source| MemoryError::File { path: path.into(), source };
        if len == 0 {
            return Err(MemoryError::Empty);
        }
        // NONBLOCK: opening a pipe must not wait for its other end; regular files do not care.
        let access = if writable { OFlags::RDWR | OFlags::CREATE } else { OFlags::RDONLY };
        let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        let stat = rustix::fs::fstat(&fd).map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(MemoryError::NotAFile(path.into()));
        }
        let lock =
            if writable { FlockOperation::NonBlockingLockExclusive } else { FlockOperation::NonBlockingLockShared };
        rustix::fs::flock(&fd, lock).map_err(|source| match source {
            Errno::AGAIN => MemoryError::InUse(path.into()),
            other => failed(other),
        })?;
        // Once more: before the lock, somebody may have made it shorter.
        let found = rustix::fs::fstat(&fd).map_err(failed)?.st_size as u64;
        if found < len as u64 {
            if !writable {
                return Err(MemoryError::TooShort { found, needed: len as u64 });
            }
            rustix::fs::ftruncate(&fd, len as u64).map_err(failed)?;
        }
        if writable {
            match rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, len as u64) {
                Ok(()) | Err(Errno::OPNOTSUPP) => {}
                Err(source) => return Err(failed(source)),
            }
        }
        let base = shared(fd.as_fd(), len, writable).map_err(|source| MemoryError::Map { bytes: len, source })?;
        Ok(Arc::new(Self::over(base, len, Pages::File, Some(fd), writable)))
    }

    fn over(base: NonNull<u8>, len: usize, pages: Pages, fd: Option<OwnedFd>, writable: bool) -> Self {
        Self { base: Some(base), len, pages, writable, fd, device: None }
    }

    /// Has every page in memory, with its entry in the page table.
    fn populated(self, how: Advice) -> Result<Arc<Self>, MemoryError> {
        self.advise_huge();
        self.advise(0, self.len, how)?;
        Ok(Arc::new(self))
    }

    /// Asks for huge pages. Only a hint: without transparent huge pages the region works on small ones.
    fn advise_huge(&self) {
        if matches!(self.pages, Pages::Transparent | Pages::Memfd) {
            let _ = self.advise(0, self.len, Advice::LinuxHugepage);
        }
    }

    fn advise(&self, offset: usize, len: usize, how: Advice) -> Result<(), MemoryError> {
        let address = self.address(offset, len).cast();
        // SAFETY: the range is within the mapping that `self` owns; no advice that is given here changes its contents.
        unsafe { rustix::mm::madvise(address, len, how) }.map_err(|source| MemoryError::Map { bytes: self.len, source })
    }
}

/// `len` rounded up to whole units.
fn whole(len: usize, unit: usize) -> Result<usize, MemoryError> {
    if len == 0 {
        return Err(MemoryError::Empty);
    }
    // Twice the unit must fit, too: `Region::host` maps one unit more.
    let fits = len.checked_add(2 * unit).is_some();
    fits.then(|| len.next_multiple_of(unit)).ok_or(MemoryError::Map { bytes: len, source: Errno::NOMEM })
}

fn anonymous(len: usize, flags: MapFlags) -> Result<NonNull<u8>, Errno> {
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice overlaps nothing of ours.
    let base =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags) }?;
    NonNull::new(base.cast()).ok_or(Errno::NOMEM)
}

fn shared(fd: BorrowedFd<'_>, len: usize, writable: bool) -> Result<NonNull<u8>, Errno> {
    let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
    // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing of ours.
    let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, fd, 0) }?;
    NonNull::new(base.cast()).ok_or(Errno::NOMEM)
}
