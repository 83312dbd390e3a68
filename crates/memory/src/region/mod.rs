//! A contiguous range of memory, of any kind.

mod bar;
mod copy;
mod cuda;
mod description;
mod device;
mod dmabuf;
mod emulated;
mod error;
mod file;
mod heap;
mod huge;
mod kind;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod lines;
mod map;
mod memfd;

pub use bar::{BarAccess, BarError, BarSpec, PciAddress};
pub use cuda::{CudaDevice, CudaError, CudaKernels, CudaMemory, compile_cuda_kernels};
pub use description::RegionDescription;
pub use device::DeviceMemory;
pub use dmabuf::DmabufError;
pub use emulated::{EmulatedMemory, EmulatedPath, PathCounters, PathDirection, PathModel};
pub use error::MemoryError;
pub use kind::RegionKind;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub use lines::Lines;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Actual backing of a region's pages. (The requested one is its [`RegionKind`], for which there can be several kinds
/// of pages.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Reserved 2 MiB pages (`vm.nr_hugepages`).
    Huge,
    /// Ordinary memory for which transparent huge pages were requested.
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
    /// Returns `true` if another process or a device may change the bytes at any time.
    #[inline]
    const fn are_shared(self) -> bool {
        match self {
            Self::Huge | Self::Transparent | Self::Small => false,
            Self::Memfd | Self::File | Self::Device => true,
        }
    }

    /// Returns `true` if the kernel can back the pages with transparent huge pages on request.
    const fn supports_huge_pages(self) -> bool {
        match self {
            Self::Transparent | Self::Memfd => true,
            Self::Huge | Self::Small | Self::File | Self::Device => false,
        }
    }
}

/// Pre-faulted memory at a fixed address. [`Self::file`], [`Self::from_fd`] and [`Self::device`] document exceptions.
///
/// The kernel, a device, another process or another thread may write the bytes at any time, so there are no references
/// to them: only copies by atomic words, and a pointer for code that registers the memory. A copy that races with such
/// a write may see some words from before and some from after it; 8 bytes at a multiple of 8 are never torn. Copies do
/// not order other accesses: to see what another thread or device wrote, synchronise with it in another way (a
/// completion, a queue, [`Self::fetch_add`]).
pub struct Region {
    /// `None` for device memory that is not mapped into this process.
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
// SAFETY: as above; safe methods access the bytes only by atomic words (`copy`), so two threads do not race.
unsafe impl Sync for Region {}

impl Region {
    /// Creates a region of device memory. [`Self::address`] works only if the memory is mapped into this process
    /// ([`Self::is_mapped`]); copies always work.
    pub fn device(memory: Arc<dyn DeviceMemory>) -> Arc<Self> {
        Self::device_with(memory, true)
    }

    /// Creates a region of device memory as [`Self::device`] does, read-only unless `writable`.
    pub(crate) fn device_with(memory: Arc<dyn DeviceMemory>, writable: bool) -> Arc<Self> {
        let (base, len) = (memory.host_address(), memory.len());
        Arc::new(Self { base, len, pages: Pages::Device, writable, fd: None, device: Some(memory) })
    }

    /// Returns the failure of the device that has the memory, if it has failed: a copy since then, or the one that
    /// discovered it, may have returned or stored wrong bytes.
    pub fn failure(&self) -> Option<MemoryError> {
        self.device.as_ref()?.failure()
    }

    /// Returns a new file descriptor of the memory as a dma-buf, which another device can register. `None` if the memory is
    /// not of a kind that has one.
    pub fn export(&self) -> Option<Result<OwnedFd, MemoryError>> {
        self.device.as_ref()?.export()
    }

    /// Returns the length of the region in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }
    /// Always returns `false`: a region has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Returns the backing of the pages.
    pub fn pages(&self) -> Pages {
        self.pages
    }
    /// Returns the file descriptor, if the region is shared memory or a file.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }
    /// Returns `true` if the bytes can be changed through this mapping.
    #[inline]
    pub fn is_writable(&self) -> bool {
        self.writable
    }
    /// Returns `true` if another process that has mapped the same file or shared memory, or a device, may change the
    /// bytes at any time. A transport accesses such memory through a private copy.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.pages.are_shared()
    }
    /// Returns `true` if the memory is mapped into this process, so that [`Self::address`] may be called.
    #[inline]
    pub fn is_mapped(&self) -> bool {
        self.base.is_some()
    }

    /// Returns the address of `offset`, for code that registers or fills the memory; `len` bytes from there are inside
    /// the region. It must not be written through unless [`Self::is_writable`].
    ///
    /// # Panics
    /// If the bytes are not inside the region (offsets come from tables of this process, never from a peer), or if it
    /// is device memory that is not mapped. Code that accepts any region must check [`Self::is_mapped`] first, or use
    /// the copies.
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

    /// Returns the address to write to. Panics if the region is read-only.
    #[inline]
    fn target(&self, offset: usize, len: usize) -> *mut u8 {
        self.check_writable();
        self.address(offset, len)
    }

    #[inline]
    fn check_writable(&self) {
        assert!(self.writable, "the region is mapped for reading only");
    }

    /// Returns the device, if the memory is not mapped.
    #[inline]
    fn unmapped(&self) -> Option<&dyn DeviceMemory> {
        if self.base.is_some() { None } else { self.device.as_deref() }
    }

    /// Copies bytes out of the region.
    ///
    /// # Panics
    /// If they are not inside the region.
    #[inline]
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        self.check(offset, to.len());
        // SAFETY: the source range was checked, and a mapping has whole words; the target is a live exclusive slice,
        // which cannot overlap the mapping because no reference into the mapping exists.
        unsafe {
            match self.unmapped() {
                None => copy::load(self.address(offset, to.len()), to.as_mut_ptr(), to.len()),
                Some(device) => device.copy_out(offset, to.as_mut_ptr(), to.len()),
            }
        }
    }

    /// Copies bytes into the region.
    ///
    /// # Panics
    /// If they are not inside the region, or it is read-only.
    pub fn write(&self, offset: usize, from: &[u8]) {
        self.check(offset, from.len());
        // SAFETY: as for `read`, with the roles exchanged.
        unsafe {
            match self.unmapped() {
                None => copy::store(from.as_ptr(), self.target(offset, from.len()), from.len()),
                Some(device) => {
                    self.check_writable();
                    device.copy_in(offset, from.as_ptr(), from.len());
                }
            }
        }
    }

    /// Copies bytes into the region past the processor's cache, where it has instructions for that: for bytes that are not
    /// read soon, such as those of a long operation. Memory that is not in the cache is written in half the time.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    pub fn write_past_cache(&self, offset: usize, from: &[u8]) {
        self.stream(offset, from);
        Self::fence_streams();
    }

    /// Like [`write_past_cache`](Self::write_past_cache), for one of many parts: other threads and devices see the bytes
    /// only after [`fence_streams`](Self::fence_streams) in this thread, which waits until they are in memory.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    pub fn stream(&self, offset: usize, from: &[u8]) {
        if self.unmapped().is_some() {
            return self.write(offset, from);
        }
        self.check(offset, from.len());
        // SAFETY: as for `write`.
        unsafe { copy::store_past_cache(from.as_ptr(), self.target(offset, from.len()), from.len()) }
    }

    /// Makes all bytes that this thread has streamed ([`stream`](Self::stream)) visible before anything that it stores
    /// later.
    pub fn fence_streams() {
        copy::fence();
    }

    /// Writes zeros.
    ///
    /// # Panics
    /// If they are not inside the region, or it is read-only.
    pub fn zero(&self, offset: usize, len: usize) {
        const ZEROS: [u8; 4096] = [0; 4096];
        self.check(offset, len);
        self.check_writable();
        if self.unmapped().is_none() {
            // SAFETY: `target` checked the range.
            return unsafe { copy::zero(self.target(offset, len), len) };
        }
        (0..len).step_by(ZEROS.len()).for_each(|at| self.write(offset + at, &ZEROS[..ZEROS.len().min(len - at)]));
    }

    /// Hints that a range will be read soon, so that the processor loads it into its cache meanwhile. What is outside the
    /// region, or not mapped into this process, is ignored.
    #[inline]
    pub fn prefetch(&self, offset: usize, len: usize) {
        if let Some(base) = self.base.filter(|_| offset < self.len) {
            copy::prefetch(base.as_ptr().wrapping_add(offset), len.min(self.len - offset));
        }
    }

    /// Copies from another region, or from this one: the ranges may overlap, except in device memory that is not
    /// mapped.
    ///
    /// # Panics
    /// If a range is not inside its region, or this one is read-only.
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
        self.check_writable();
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

    /// Adds to the 8 bytes (in native byte order) at `offset`, modulo 2^64, atomically with respect to other threads
    /// and processes. Returns the previous value.
    ///
    /// # Panics
    /// If the bytes are not inside the region, the offset is not a multiple of 8, or the memory is read-only or not
    /// mapped.
    pub fn fetch_add(&self, offset: usize, add: u64) -> u64 {
        self.atomic(offset).fetch_add(add, Ordering::AcqRel)
    }

    /// Stores `swap` at `offset` if the 8 bytes there equal `compare`, atomically. Returns the previous value.
    ///
    /// # Panics
    /// Like [`Self::fetch_add`].
    pub fn compare_swap(&self, offset: usize, compare: u64, swap: u64) -> u64 {
        match self.atomic(offset).compare_exchange(compare, swap, Ordering::AcqRel, Ordering::Acquire) {
            Ok(was) | Err(was) => was,
        }
    }

    fn atomic(&self, offset: usize) -> &AtomicU64 {
        let address = self.target(offset, 8).cast::<u64>();
        assert!(address.is_aligned(), "an atomic operation at offset {offset}, which is no multiple of 8");
        // SAFETY: 8 aligned bytes of a writable mapping that lives as long as `self`. Other processes and devices may
        // change them, atomically or not, but any bit pattern is a valid u64.
        unsafe { AtomicU64::from_ptr(address) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let (Some(base), None) = (self.base, &self.device) {
            // SAFETY: this is the last owner of the mapping, since registered users hold an Arc of it. The kernel
            // unmaps whole pages, so the length need not be a multiple of the page size.
            let _ = unsafe { rustix::mm::munmap(base.as_ptr().cast(), self.len) };
        }
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Region({} bytes, {:?})", self.len, self.pages)
    }
}
