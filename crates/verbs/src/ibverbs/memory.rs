//! Memory registrations: the keys and access rights of this process, and the device's.

use super::sys;
use crate::api::{Element, VerbsError};
use shotline_memory::{Access, AccessError, Addressing, Mr, Pd, Protection, Region, Registrar};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// A registration with the device.
struct Registration {
    mr: sys::Mr,
    lkey: u32,
    /// Number of elements of outstanding requests that use it.
    users: u32,
}

/// A protection domain.
pub(super) struct Domain {
    pub(super) pd: Arc<sys::Pd>,
    /// Address handles of peers that datagrams were sent to.
    pub(super) ahs: HashMap<IpAddr, Arc<sys::Ah>>,
}

/// Memory registrations and protection domains of an endpoint.
///
/// Local keys are our own, and requests are validated before they reach the device, so that a local error does not fail
/// the queue pair. Remote keys are the device's, which enforces the access rights of peers.
pub(super) struct Memory {
    pub(super) protection: Protection,
    domains: HashMap<Pd, Domain>,
    /// By index in the local key, so that posting needs no hash look-up.
    registrations: Vec<Option<Registration>>,
}

impl Memory {
    pub(super) fn new() -> Self {
        let protection = Protection::new(Registrar::new().finish());
        Self { protection, domains: HashMap::new(), registrations: Vec::new() }
    }

    pub(super) fn allocate(&mut self, context: &Arc<sys::Context>) -> Result<Pd, VerbsError> {
        let domain = Domain { pd: sys::Pd::new(context)?, ahs: HashMap::new() };
        let pd = self.protection.allocate();
        self.domains.insert(pd, domain);
        Ok(pd)
    }
    pub(super) fn deallocate(&mut self, pd: Pd) -> Result<(), VerbsError> {
        self.protection.deallocate(pd)?;
        self.domains.remove(&pd);
        Ok(())
    }
    pub(super) fn domain(&mut self, pd: Pd) -> Result<&mut Domain, VerbsError> {
        self.domains.get_mut(&pd).ok_or(VerbsError::NoSuch("protection domain"))
    }

    pub(super) fn register(
        &mut self,
        pd: Pd,
        region: &Arc<Region>,
        offset: u64,
        len: u64,
        access: Access,
        addressing: Addressing,
    ) -> Result<Mr, VerbsError> {
        if !region.is_mapped() {
            return Err(VerbsError::Unsupported("a device can access only memory that is mapped in this process"));
        }
        let page = rustix::param::page_size() as u64;
        let page_offset = (region.address(0, 0) as u64).wrapping_add(offset) % page;
        let first = match addressing {
            Addressing::ZeroBased => page_offset,
            Addressing::Virtual(address) if address % page == page_offset => address,
            Addressing::Virtual(_) => {
                return Err(VerbsError::Unsupported(
                    "with a device, the address must have the memory's offset in its page",
                ));
            }
        };
        // An invalid range is detected here, before the device sees it.
        let mr = self.protection.register(pd, region, offset, len, access, Addressing::Virtual(first))?;
        let device = &self.domain(pd)?.pd;
        let device_mr = sys::Mr::with_iova(device, region, offset, len, access, first).inspect_err(|_| {
            self.protection.deregister(mr.lkey);
        })?;
        let index = mr.index();
        if self.registrations.len() <= index {
            self.registrations.resize_with(index + 1, || None);
        }
        let (lkey, rkey) = (device_mr.lkey(), device_mr.rkey());
        self.registrations[index] = Some(Registration { mr: device_mr, lkey, users: 0 });
        Ok(Mr { rkey, ..mr })
    }

    /// Deregisters memory. Fails if outstanding requests use it, because the device would fail those.
    pub(super) fn deregister(&mut self, mr: &Mr) -> Result<(), VerbsError> {
        let matches =
            |found: &&mut Option<Registration>| found.as_ref().is_some_and(|found| found.mr.rkey() == mr.rkey);
        let found =
            self.registrations.get_mut(mr.index()).filter(matches).ok_or(VerbsError::NoSuch("memory registration"))?;
        if found.as_ref().is_some_and(|found| found.users > 0) {
            return Err(VerbsError::InUse { what: "memory registration", by: "an outstanding request" });
        }
        if !self.protection.deregister(mr.lkey) {
            return Err(VerbsError::NoSuch("memory registration"));
        }
        *found = None;
        Ok(())
    }

    /// Validates an element and converts it for the device. Returns the index of its registration, which counts as in
    /// use until [`Self::release`].
    #[inline]
    pub(super) fn acquire(
        &mut self,
        pd: Pd,
        element: &Element,
        needed: Access,
    ) -> Result<(u32, sys::abi::ibv_sge), AccessError> {
        let Element { address, len, lkey } = *element;
        self.protection.local(pd, lkey, address, len, needed)?;
        let index = Mr::index_of(lkey);
        let found = self.registrations.get_mut(index).and_then(Option::as_mut).ok_or(AccessError::UnknownKey)?;
        found.users += 1;
        Ok((index as u32, sys::abi::ibv_sge { addr: address, length: len, lkey: found.lkey }))
    }

    /// Releases the registrations of a completed request.
    #[inline]
    pub(super) fn release(&mut self, indices: &[u32]) {
        for index in indices {
            if let Some(found) = self.registrations.get_mut(*index as usize).and_then(Option::as_mut) {
                found.users -= 1;
            }
        }
    }
}
