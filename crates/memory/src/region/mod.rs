//! One stretch of memory, of whatever kind.

mod copy;
mod description;
mod device;
mod error;
mod file;
mod heap;
mod huge;
mod kind;
mod map;
mod memfd;

pub use description::RegionDescription;
pub use device::DeviceMemory;
pub use error::MemoryError;
pub use kind::RegionKind;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What backs a region's pages, as it was made. (What was asked for is its [`RegionKind`], of which one can get several kinds
/// of pages.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Reserved 2 MiB pages (`vm.nr_hugepages`).
    Huge,
    /// Ordinary memory that the kernel was asked to back with transparent huge pages.
    Transparent,
    /// Ordinary pages.
    Small,
    /// Shared memory behind a file descriptor.
    Memfd,
    /// A mapped file.
    File,
    /// Memory of a device.
    Device,
}

impl Pages {
    /// Whether others than the process that mapped them may change their bytes at any time.
    #[inline]
    const fn are_shared(self) -> bool {
        match self {
            Self::Huge | Self::Transparent | Self::Small => false,
            Self::Memfd | Self::File | Self::Device => true,
        }
    }

    /// Whether the kernel can back them with transparent huge pages if it is asked to.
    const fn take_huge_pages(self) -> bool {
        match self {
            Self::Transparent | Self::Memfd => true,
            Self::Huge | Self::Small | Self::File | Self::Device => false,
        }
    }
}

/// Pre-faulted memory at a fixed address ([`Self::file`], [`Self::from_fd`] and [`Self::device`] say where they differ).
///
/// Its bytes may be written by the kernel, a device, another process or another thread at any time, so it hands out no
/// references: only copies by atomic words, and a pointer for the parties that register it. A copy that races with such a
/// write may see some words from before and some from after it; 8 bytes at a multiple of 8 are always seen whole.
/// Nothing is ordered by it: whoever wants to see what another party wrote learns of it in another way (a completion, a
/// queue, [`Self::fetch_add`]).
pub struct Region {
    /// None: a device's memory that this process does not see.
    base: Option<NonNull<u8>>,
    len: usize,
    pages: Pages,
    writable: bool,
    fd: Option<OwnedFd>,
    device: Option<Arc<dyn DeviceMemory>>,
}

// SAFETY: a Region is an address range that lives until drop; its methods copy bytes through raw pointers
// and never form references, so sharing or sending it cannot create aliased Rust references.
unsafe impl Send for Region {}
// SAFETY: as above; safe methods access the bytes by atomic words only (`copy`), so those of two threads do not race.
unsafe impl Sync for Region {}

impl Region {
    /// Memory of a device. It has [`Self::address`] only if this process sees it ([`Self::is_mapped`]); the copies of
    /// a region work in any case.
    pub fn device(memory: Arc<dyn DeviceMemory>) -> Arc<Self> {
        let (base, len) = (memory.host_address(), memory.len());
        Arc::new(Self { base, len, pages: Pages::Device, writable: true, fd: None, device: Some(memory) })
    }

    /// Bytes of the region.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }
    /// Never: a region has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// What backs it.
    pub fn pages(&self) -> Pages {
        self.pages
    }
    /// Its file descriptor, if it is shared memory or a file.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }
    /// Whether its bytes may be changed through this mapping.
    #[inline]
    pub fn is_writable(&self) -> bool {
        self.writable
    }
    /// Whether others than this process may change its bytes at any time: another process that has mapped the same file
    /// or shared memory, or a device. A transport reads and fills such memory by way of a copy of its own.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.pages.are_shared()
    }
    /// Whether this process sees it, so that [`Self::address`] may be called.
    #[inline]
    pub fn is_mapped(&self) -> bool {
        self.base.is_some()
    }

    /// The address of `offset`, for a party that registers or fills the memory; `len` bytes from there
    /// are inside the region. Nobody may write through it unless [`Self::is_writable`].
    ///
    /// # Panics
    /// If they are not inside, for offsets come from our own tables, never from a peer; and for device memory that is
    /// not [mapped](Self::is_mapped): whoever takes any region asks first, or uses the region's copies.
    #[inline]
    pub fn address(&self, offset: usize, len: usize) -> *mut u8 {
        self.check(offset, len);
        let base = self.base.expect("the region is mapped into this process");
        // SAFETY: the check keeps the pointer inside the mapping (or at its end).
        unsafe { base.as_ptr().add(offset) }
    }

    #[inline]
    fn check(&self, offset: usize, len: usize) {
        assert!(
            offset <= self.len && len <= self.len - offset,
            "{offset}+{len} is outside a region of {} bytes",
            self.len
        );
    }

    /// The address to write to. Panics for a read-only region, whose registration for writing is refused.
    #[inline]
    fn target(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(self.writable, "the region is mapped for reading only");
        self.address(offset, len)
    }

    /// The device, if only it can reach the bytes.
    #[inline]
    fn unmapped(&self) -> Option<&dyn DeviceMemory> {
        if self.base.is_some() { None } else { self.device.as_deref() }
    }

    /// Copies bytes out. Panics outside the region.
    #[inline]
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        self.check(offset, to.len());
        // SAFETY: the source range was checked, and a mapping has whole words; the target is a live exclusive slice, which
        // cannot overlap the mapping because no reference into the mapping exists.
        unsafe {
            match self.unmapped() {
                None => copy::load(self.address(offset, to.len()), to.as_mut_ptr(), to.len()),
                Some(device) => device.copy_out(offset, to.as_mut_ptr(), to.len()),
            }
        }
    }

    /// Copies bytes in. Panics outside the region, and if it is read-only.
    pub fn write(&self, offset: usize, from: &[u8]) {
        self.check(offset, from.len());
        // SAFETY: as for `read`, with the roles exchanged.
        unsafe {
            match self.unmapped() {
                None => copy::store(from.as_ptr(), self.target(offset, from.len()), from.len()),
                Some(device) => device.copy_in(offset, from.as_ptr(), from.len()),
            }
        }
    }

    /// Writes zeros. Panics outside the region, and if it is read-only.
    pub fn zero(&self, offset: usize, len: usize) {
        const ZEROS: [u8; 4096] = [0; 4096];
        self.check(offset, len);
        if self.unmapped().is_none() {
            // SAFETY: `target` checked the range.
            return unsafe { copy::zero(self.target(offset, len), len) };
        }
        (0..len).step_by(ZEROS.len()).for_each(|at| self.write(offset + at, &ZEROS[..ZEROS.len().min(len - at)]));
    }

    /// Copies from another region (or this one; the ranges may overlap, but not in device memory that is not mapped).
    /// Panics outside either, and if this one is read-only.
    #[inline]
    pub fn copy_from(&self, offset: usize, source: &Region, source_offset: usize, len: usize) {
        if self.base.is_none() || source.base.is_none() {
            return self.copy_device(offset, source, source_offset, len);
        }
        // SAFETY: both ranges were checked; they may overlap.
        unsafe { copy::transfer(source.address(source_offset, len), self.target(offset, len), len) }
    }

    #[cold]
    fn copy_device(&self, offset: usize, source: &Region, source_offset: usize, len: usize) {
        self.check(offset, len);
        source.check(source_offset, len);
        match (self.unmapped(), source.unmapped()) {
            // SAFETY: both ranges were checked, and the source is mapped.
            (Some(device), None) => unsafe { device.copy_in(offset, source.address(source_offset, len), len) },
            // SAFETY: both ranges were checked, and the target is mapped.
            (None, Some(device)) => unsafe { device.copy_out(source_offset, self.target(offset, len), len) },
            _ => {
                let mut block = [0; 4096];
                for at in (0..len).step_by(block.len()) {
                    let block = &mut block[..4096.min(len - at)];
                    source.read(source_offset + at, block);
                    self.write(offset + at, block);
                }
            }
        }
    }

    /// Adds to the 8 bytes (of this machine's byte order) at `offset`, modulo 2^64, as one step that other threads and
    /// processes see whole. Returns what was there.
    ///
    /// # Panics
    /// Outside the region, at an offset that is no multiple of 8, and for memory that is read-only or not mapped.
    pub fn fetch_add(&self, offset: usize, add: u64) -> u64 {
        self.atomic(offset).fetch_add(add, Ordering::AcqRel)
    }

    /// Puts `swap` at `offset` if the 8 bytes there equal `compare`, as one step. Returns what was there.
    ///
    /// # Panics
    /// As [`Self::fetch_add`].
    pub fn compare_swap(&self, offset: usize, compare: u64, swap: u64) -> u64 {
        match self.atomic(offset).compare_exchange(compare, swap, Ordering::AcqRel, Ordering::Acquire) {
            Ok(was) | Err(was) => was,
        }
    }

    fn atomic(&self, offset: usize) -> &AtomicU64 {
        let address = self.target(offset, 8).cast::<u64>();
        assert!(address.is_aligned(), "an atomic operation at offset {offset}, which is no multiple of 8");
        // SAFETY: 8 aligned bytes of a writable mapping that lives as long as `self`. Other parties change them by
        // atomic operations of the processor or not as one step, which a u64 of any value survives.
        unsafe { AtomicU64::from_ptr(address) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let (Some(base), None) = (self.base, &self.device) {
            // SAFETY: the mapping is ours and the last owner is going: registered parties hold an Arc of it. The
            // kernel unmaps whole pages, so the length need not be a multiple.
            let _ = unsafe { rustix::mm::munmap(base.as_ptr().cast(), self.len) };
        }
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Region({} bytes, {:?})", self.len, self.pages)
    }
}
