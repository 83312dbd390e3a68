//! Protection domains and registered memory.

use super::abi::*;
use super::device::Context;
use super::made;
use shotline_memory::{Access, Region};
use shotline_transport::IoError;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::Arc;

const MEMLOCK: &str = "; a device's memory is locked: raise the limit (ulimit -l unlimited, or LimitMEMLOCK=infinity in a \
                       systemd unit) if it is too low";

/// A protection domain.
pub struct Pd {
    pub(super) context: Arc<Context>,
    pub(super) pd: NonNull<ibv_pd>,
}

// SAFETY: the library locks what changes.
unsafe impl Send for Pd {}
// SAFETY: as above.
unsafe impl Sync for Pd {}

impl Pd {
    /// A new one.
    ///
    /// # Errors
    /// If the device has no more.
    pub fn new(context: &Arc<Context>) -> Result<Arc<Self>, IoError> {
        // SAFETY: the context is open.
        let pd = unsafe { (context.library.alloc_pd)(context.context.as_ptr()) };
        let pd = made(pd, || format!("making a protection domain of {}", context.name()), "")?;
        Ok(Arc::new(Self { context: Arc::clone(context), pd }))
    }

    /// The device.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: everything made of it holds it, so nothing is left.
        unsafe { (self.context.library.dealloc_pd)(self.pd.as_ptr()) };
    }
}

/// Memory that the device may reach, by its keys, until this is dropped.
pub struct Mr {
    pd: Arc<Pd>,
    mr: NonNull<ibv_mr>,
    /// None: a null region.
    _region: Option<Arc<Region>>,
}

// SAFETY: it is constant until it is dropped.
unsafe impl Send for Mr {}
// SAFETY: as above.
unsafe impl Sync for Mr {}

impl Mr {
    /// Registers `len` bytes of a region from `offset`. Peers address them as this process does.
    ///
    /// # Errors
    /// If the device or the kernel refuses, most likely for the limit of locked memory.
    ///
    /// # Panics
    /// If the bytes are not inside the region, or this process does not see it.
    pub fn new(pd: &Arc<Pd>, region: &Arc<Region>, offset: u64, len: u64, access: Access) -> Result<Self, IoError> {
        let address = region.address(offset as usize, len as usize);
        // SAFETY: the bytes are inside a region that this object keeps. A region hands out no references, so a device
        // that writes it breaks no rule, and registration for writing of a read-only mapping fails in the kernel.
        let mr =
            unsafe { (pd.context.library.reg_mr)(pd.pd.as_ptr(), address.cast(), len as usize, flags(access) as i32) };
        let mr = made(mr, || format!("registering {len} bytes with {}", pd.context.name()), MEMLOCK)?;
        Ok(Self { pd: Arc::clone(pd), mr, _region: Some(Arc::clone(region)) })
    }

    /// The same, but work requests and peers say `first` for the first byte: an address that is as far into its page
    /// as the memory is (the kernel wants that of every device).
    ///
    /// # Errors
    /// As of [`Self::new`].
    ///
    /// # Panics
    /// As of [`Self::new`].
    pub fn at(
        pd: &Arc<Pd>,
        region: &Arc<Region>,
        offset: u64,
        len: u64,
        access: Access,
        first: u64,
    ) -> Result<Self, IoError> {
        let address = region.address(offset as usize, len as usize).cast();
        // SAFETY: as in `new`.
        let mr = unsafe { (pd.context.library.reg_mr_at)(pd.pd.as_ptr(), address, len as usize, first, flags(access)) };
        let mr = made(mr, || format!("registering {len} bytes with {}", pd.context.name()), MEMLOCK)?;
        Ok(Self { pd: Arc::clone(pd), mr, _region: Some(Arc::clone(region)) })
    }

    /// Memory that takes every byte and keeps none, where the device has it (mlx5).
    pub fn null(pd: &Arc<Pd>) -> Option<Self> {
        type Alloc = Option<unsafe extern "C" fn(*mut ibv_pd) -> *mut ibv_mr>;
        // SAFETY: that is the field's type.
        let alloc = unsafe { pd.context.extension::<Alloc>(offset_of!(verbs_context, alloc_null_mr)) }??;
        // SAFETY: the domain lives.
        let mr = NonNull::new(unsafe { alloc(pd.pd.as_ptr()) })?;
        Some(Self { pd: Arc::clone(pd), mr, _region: None })
    }

    /// The key of work requests.
    #[inline]
    pub fn lkey(&self) -> u32 {
        // SAFETY: the region is registered, and its keys are constant.
        unsafe { self.mr.as_ref() }.lkey
    }

    /// The key of peers.
    pub fn rkey(&self) -> u32 {
        // SAFETY: as above.
        unsafe { self.mr.as_ref() }.rkey
    }

    /// Its first byte.
    #[inline]
    pub fn address(&self) -> u64 {
        // SAFETY: as above.
        unsafe { self.mr.as_ref() }.addr as u64
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // SAFETY: it was registered once. From here on the device refuses its keys. Should the kernel refuse (memory
        // windows still bound), it keeps the pages itself, and no address of ours is used again.
        unsafe { (self.pd.context.library.dereg_mr)(self.mr.as_ptr()) };
    }
}

/// Rights in the library's words. A peer that may change memory needs the right to write it locally, too.
pub fn flags(access: Access) -> u32 {
    let table = [
        (Access::LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE),
        (Access::REMOTE_READ, IBV_ACCESS_REMOTE_READ),
        (Access::REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE),
        (Access::REMOTE_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_LOCAL_WRITE),
    ];
    table.iter().filter(|(right, _)| access.allows(*right)).fold(0, |all, (_, flag)| all | flag)
}
