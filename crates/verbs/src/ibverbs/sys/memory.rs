//! Protection domains and registered memory.

use super::abi::*;
use super::device::Context;
use super::{check_pointer, failed};
use rustix::fd::{AsRawFd as _, BorrowedFd};
use shotline_memory::{Access, Region};
use shotline_transport::IoError;
use std::io;
use std::mem::offset_of;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

const MEMLOCK: &str = "; a device's memory is locked: raise the limit (ulimit -l unlimited, or LimitMEMLOCK=infinity in a \
                       systemd unit) if it is too low";

/// Remedies of a dma-buf that is refused, by cause.
const NO_DMABUF: &str = "; the RDMA device, its driver in Linux or its provider in rdma-core cannot register a dma-buf: \
                         expected Linux 5.12 or later and a device that supports it (mlx5, for example); use another \
                         device, or memory of this machine (memory=heap)";
const NO_PEER: &str = "; the RDMA device cannot reach the memory: both drivers must support peer to peer, and both \
                       devices must be below the same PCI host bridge or in one that Linux permits; use another slot, \
                       or memory of this machine (memory=heap)";
const SEE_LOG: &str = "; the kernel's log may have the reason (dmesg); memory of this machine can be used instead \
                       (memory=heap)";

/// A protection domain.
pub struct Pd {
    pub(super) context: Arc<Context>,
    pub(super) pd: NonNull<ibv_pd>,
}

// SAFETY: the library locks its mutable state.
unsafe impl Send for Pd {}
// SAFETY: as above.
unsafe impl Sync for Pd {}

impl Pd {
    /// Allocates a protection domain.
    ///
    /// # Errors
    /// If the device has none left.
    pub fn new(context: &Arc<Context>) -> Result<Arc<Self>, IoError> {
        // SAFETY: the context is open.
        let pd = unsafe { (context.library.alloc_pd)(context.context.as_ptr()) };
        let pd = check_pointer(pd, || format!("allocating a protection domain of {}", context.name()), "")?;
        Ok(Arc::new(Self { context: Arc::clone(context), pd }))
    }

    /// Returns the device.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: everything created from it holds it, so nothing exists any more.
        unsafe { (self.context.library.dealloc_pd)(self.pd.as_ptr()) };
    }
}

/// A memory registration: the device may access the memory by its keys until this is dropped.
pub struct Mr {
    pd: Arc<Pd>,
    mr: NonNull<ibv_mr>,
    /// `None` for a null memory region.
    _region: Option<Arc<Region>>,
}

// SAFETY: it is constant until it is dropped.
unsafe impl Send for Mr {}
// SAFETY: as above.
unsafe impl Sync for Mr {}

impl Mr {
    /// Registers `len` bytes of a region from `offset`. Remote addresses are this process's virtual addresses.
    ///
    /// # Errors
    /// If the device or the kernel refuses, most likely because of the limit of locked memory.
    ///
    /// # Panics
    /// If the bytes are not inside the region, or it is not mapped in this process.
    pub fn new(pd: &Arc<Pd>, region: &Arc<Region>, offset: u64, len: u64, access: Access) -> Result<Self, IoError> {
        let address = region.address(offset as usize, len as usize);
        // SAFETY: the bytes are inside a region that this object keeps alive. A region hands out no references, so
        // writes by a device break no aliasing rule, and the kernel refuses a writable registration of a read-only
        // mapping.
        let mr =
            unsafe { (pd.context.library.reg_mr)(pd.pd.as_ptr(), address.cast(), len as usize, flags(access) as i32) };
        let mr = check_pointer(mr, || format!("registering {len} bytes with {}", pd.context.name()), MEMLOCK)?;
        Ok(Self { pd: Arc::clone(pd), mr, _region: Some(Arc::clone(region)) })
    }

    /// Like [`Self::new`], but work requests and peers address the first byte as `iova`, which must have the same
    /// offset in its page as the memory (the kernel requires this of every device).
    ///
    /// # Errors
    /// See [`Self::new`].
    ///
    /// # Panics
    /// See [`Self::new`].
    pub fn with_iova(
        pd: &Arc<Pd>,
        region: &Arc<Region>,
        offset: u64,
        len: u64,
        access: Access,
        iova: u64,
    ) -> Result<Self, IoError> {
        let address = region.address(offset as usize, len as usize).cast();
        // SAFETY: as in `new`.
        let mr =
            unsafe { (pd.context.library.reg_mr_iova)(pd.pd.as_ptr(), address, len as usize, iova, flags(access)) };
        let mr = check_pointer(mr, || format!("registering {len} bytes with {}", pd.context.name()), MEMLOCK)?;
        Ok(Self { pd: Arc::clone(pd), mr, _region: Some(Arc::clone(region)) })
    }

    /// Registers `len` bytes from `offset` of a region that is exported as the dma-buf `fd`, which begins with the
    /// region. The descriptor may be closed afterwards. Otherwise like [`Self::with_iova`].
    ///
    /// # Errors
    /// If the library is older than rdma-core 34, or the device, its driver or the driver that exported the memory
    /// refuses. The error has the remedy.
    pub fn with_dmabuf(
        pd: &Arc<Pd>,
        region: &Arc<Region>,
        fd: BorrowedFd<'_>,
        range: Range<u64>,
        access: Access,
        iova: u64,
    ) -> Result<Self, IoError> {
        let (context, len) = (&pd.context, range.end - range.start);
        let Some(register) = context.library.reg_dmabuf_mr else {
            return Err(IoError::Config(format!(
                "memory of another device cannot be registered with {}: the rdma-core of this machine has no \
                 ibv_reg_dmabuf_mr, expected version 34 or later; update libibverbs1, or use memory of this machine \
                 (memory=heap)",
                context.name()
            )));
        };
        // SAFETY: the domain lives, and the kernel checks range, rights and descriptor. The memory is not mapped by this
        // process, except for copies by atomic words, so what a device writes breaks no aliasing rule.
        let mr =
            unsafe { register(pd.pd.as_ptr(), range.start, len as usize, iova, fd.as_raw_fd(), flags(access) as i32) };
        let mr = NonNull::new(mr).ok_or_else(|| {
            let source = io::Error::last_os_error();
            let hint = dmabuf_remedy(&source);
            failed(format!("registering {len} bytes of a dma-buf with {}", context.name()), source, hint)
        })?;
        Ok(Self { pd: Arc::clone(pd), mr, _region: Some(Arc::clone(region)) })
    }

    /// Creates a null memory region, which discards all writes, if the device supports it (mlx5).
    pub fn null(pd: &Arc<Pd>) -> Option<Self> {
        type Alloc = Option<unsafe extern "C" fn(*mut ibv_pd) -> *mut ibv_mr>;
        // SAFETY: this is the field's type.
        let alloc = unsafe { pd.context.extension::<Alloc>(offset_of!(verbs_context, alloc_null_mr)) }??;
        // SAFETY: the domain lives.
        let mr = NonNull::new(unsafe { alloc(pd.pd.as_ptr()) })?;
        Some(Self { pd: Arc::clone(pd), mr, _region: None })
    }

    /// Returns the local key.
    #[inline]
    pub fn lkey(&self) -> u32 {
        // SAFETY: the region is registered, and its keys are constant.
        unsafe { self.mr.as_ref() }.lkey
    }

    /// Returns the remote key.
    pub fn rkey(&self) -> u32 {
        // SAFETY: as above.
        unsafe { self.mr.as_ref() }.rkey
    }

    /// Returns the address of the first byte.
    #[inline]
    pub fn address(&self) -> u64 {
        // SAFETY: as above.
        unsafe { self.mr.as_ref() }.addr as u64
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // SAFETY: it was registered once. From here on the device refuses its keys. If the kernel refuses (a bound
        // memory window), the kernel keeps the pages, and our addresses are not used any more.
        unsafe { (self.pd.context.library.dereg_mr)(self.mr.as_ptr()) };
    }
}

/// Returns the remedy of an error of `ibv_reg_dmabuf_mr`.
fn dmabuf_remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        // The kernel has no such method, for this device or at all; neither it nor the library has the function; the
        // kernel was built without what it needs.
        Some(libc::EPROTONOSUPPORT | libc::ENOSYS | libc::EOPNOTSUPP) => NO_DMABUF,
        // The exporter refuses to attach the device, or the PCI layer to map one device for the other.
        Some(libc::EINVAL | libc::EREMOTEIO | libc::EPERM | libc::ENODEV) => NO_PEER,
        _ => SEE_LOG,
    }
}

/// Converts access rights to `IBV_ACCESS_*`. Remote write and atomic access require local write access.
pub fn flags(access: Access) -> u32 {
    let table = [
        (Access::LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE),
        (Access::REMOTE_READ, IBV_ACCESS_REMOTE_READ),
        (Access::REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE),
        (Access::REMOTE_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_LOCAL_WRITE),
    ];
    table.iter().filter(|(right, _)| access.allows(*right)).fold(0, |all, (_, flag)| all | flag)
}
