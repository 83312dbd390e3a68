//! Memory of this process, and its registrations.

use super::error::EndpointError;
use super::queues::QueuePair;
use super::shared::Shared;
use rustix::param::page_size;
use shotline_memory::{Access, Addressing, Mr, Region, RegionKind};
use shotline_verbs::api::{Element, Reach};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Length from which memory is in huge pages, if there are any.
const HUGE_FROM: usize = 2 << 20;

/// Memory of this process, for registrations and for targets. Clones are the same memory.
#[derive(Clone, Debug)]
pub struct Memory {
    region: Arc<Region>,
    len: usize,
}

impl Memory {
    /// Allocates memory of a kind: `heap`, `huge`, `memfd` or `file=PATH`.
    ///
    /// # Errors
    /// If the kind is not one of these, or there is not enough memory.
    pub fn allocate(len: usize, kind: &str) -> Result<Self, EndpointError> {
        if len == 0 {
            return Err(EndpointError::Invalid("expected memory of at least one byte, found 0".into()));
        }
        let expected = || EndpointError::Invalid(format!("expected {}, found {kind}", RegionKind::mapped_forms()));
        let region = match kind.parse::<RegionKind>().map_err(EndpointError::Invalid)? {
            RegionKind::Heap if len < HUGE_FROM => Region::heap(len)?,
            kind if kind.is_mapped() => kind.make("shotline", len, true)?,
            _ => return Err(expected()),
        };
        Ok(Self { region, len })
    }

    /// Returns the region, which may be longer.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Returns the length in bytes, as it was requested.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Always returns `false`.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes that a provider whose peers are there can export: other processes map whole pages.
    pub(super) fn exported(&self, reach: Reach) -> u64 {
        match reach {
            Reach::Machine if self.region.is_shared() => self.len.next_multiple_of(page_size()) as u64,
            Reach::Machine | Reach::Network => self.len as u64,
        }
    }
}

/// Parses access rights of peers: `r`, `w`, `rw`, `atomic` (all of these), or none if empty.
///
/// # Errors
/// If the text is none of these.
pub fn rights(text: &str) -> Result<Access, EndpointError> {
    match text {
        "" => Ok(Access::NONE),
        "r" => Ok(Access::REMOTE_READ),
        "w" => Ok(Access::REMOTE_WRITE | Access::LOCAL_WRITE),
        "rw" => Ok(Access::REMOTE_READ | Access::REMOTE_WRITE | Access::LOCAL_WRITE),
        "atomic" => Ok(Access::ALL),
        _ => Err(EndpointError::Invalid(format!("expected rights r, w, rw or atomic, found {text}"))),
    }
}

/// Returns access rights of peers as [`rights`] parses them.
pub fn rights_name(access: Access) -> &'static str {
    let allows = |right| access.allows(right);
    match (allows(Access::REMOTE_ATOMIC), allows(Access::REMOTE_READ), allows(Access::REMOTE_WRITE)) {
        (true, ..) => "atomic",
        (false, true, true) => "rw",
        (false, true, false) => "r",
        (false, false, true) => "w",
        (false, false, false) => "",
    }
}

/// Memory that is registered at an endpoint, until it is closed or dropped.
pub struct LocalRegion {
    shared: Arc<Shared>,
    memory: Memory,
    mr: Mr,
    access: Access,
    is_closed: AtomicBool,
}

impl LocalRegion {
    /// Registers memory, with access rights of the target.
    pub(super) fn register(shared: &Arc<Shared>, memory: Memory, access: Access) -> Result<Self, EndpointError> {
        let local = if memory.region.is_writable() { Access::LOCAL_WRITE } else { Access::NONE };
        let mut open = shared.lock()?;
        let reach = if open.provider.address().is_none() { Reach::Machine } else { Reach::Network };
        let len = if access.is_remote() { memory.exported(reach) } else { memory.len as u64 };
        let pd = open.pd;
        let mr = open.provider.reg_mr(pd, &memory.region, 0, len, access | local, Addressing::ZeroBased)?;
        drop(open);
        Ok(Self { shared: Arc::clone(shared), memory, mr, access, is_closed: AtomicBool::new(false) })
    }

    /// Returns the memory, which exists also after the registration has ended.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }
    /// Returns the local key.
    pub fn lkey(&self) -> u32 {
        self.mr.lkey
    }
    /// Returns the remote key.
    pub fn rkey(&self) -> u32 {
        self.mr.rkey
    }
    /// Returns the address of the first byte, with either key.
    pub fn address(&self) -> u64 {
        self.mr.address
    }
    /// Returns `true` if it is registered at the endpoint of a queue pair.
    pub fn is_of(&self, pair: &QueuePair) -> bool {
        Arc::ptr_eq(&self.shared, pair.shared())
    }
    /// Returns the access rights of the target.
    pub fn access(&self) -> Access {
        self.access
    }
    /// Returns `true` if the registration has ended, or its endpoint is closed.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire) || self.shared.is_closed()
    }

    /// Returns the element for requests of a part of the region.
    ///
    /// # Errors
    /// [`EndpointError::Invalid`] if the bytes are not inside it.
    pub fn element(&self, offset: u64, len: u64) -> Result<Element, EndpointError> {
        let all = self.memory.len as u64;
        let inside = offset <= all && len <= all - offset;
        let found = || format!("expected bytes inside a region of {all}, found {len} from offset {offset}");
        let len = u32::try_from(len).ok().filter(|_| inside).ok_or_else(|| EndpointError::Invalid(found()))?;
        Ok(Element { address: self.mr.address + offset, len, lkey: self.mr.lkey })
    }

    /// Ends the registration: its keys are invalid from now on. Requests that were posted before still complete.
    ///
    /// # Errors
    /// [`EndpointError::Forked`] in a child process.
    pub fn close(&self) -> Result<(), EndpointError> {
        self.shared.check_owner()?;
        if !self.is_closed.swap(true, Ordering::AcqRel)
            && let Ok(mut open) = self.shared.lock()
        {
            open.deregister(self.mr);
        }
        Ok(())
    }
}

impl Drop for LocalRegion {
    fn drop(&mut self) {
        let _ = self.close();
    }
}
