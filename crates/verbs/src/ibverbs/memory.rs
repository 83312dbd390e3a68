//! Registered memory: our keys and rights, and the device's.

use super::sys;
use crate::api::{Element, VerbsError};
use shotline_memory::{Access, Addressing, Mr, Pd, Protection, Refused, Region, Registrar};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// One registration with the device.
struct Registered {
    mr: sys::Mr,
    lkey: u32,
    /// Elements of posted requests that name it.
    users: u32,
}

/// A protection domain.
pub(super) struct Domain {
    pub(super) pd: Arc<sys::Pd>,
    /// The ways to peers that datagrams went to.
    pub(super) ways: HashMap<IpAddr, Arc<sys::Ah>>,
}

/// Memory and protection domains of an endpoint.
///
/// Local keys are ours, and requests are checked here before the device sees them: a queue pair does not break over a
/// mistake of its own side. Remote keys are the device's, and what peers may do is the device's to see to.
pub(super) struct Memory {
    pub(super) protection: Protection,
    domains: HashMap<Pd, Domain>,
    /// By the place in a local key, so that no request hashes anything.
    registered: Vec<Option<Registered>>,
}

impl Memory {
    pub(super) fn new() -> Self {
        let protection = Protection::new(Registrar::new().finish());
        Self { protection, domains: HashMap::new(), registered: Vec::new() }
    }

    pub(super) fn allocate(&mut self, context: &Arc<sys::Context>) -> Result<Pd, VerbsError> {
        let domain = Domain { pd: sys::Pd::new(context)?, ways: HashMap::new() };
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
            return Err(VerbsError::Unsupported("the device reaches only memory that this process maps"));
        }
        let page = rustix::param::page_size() as u64;
        let into_page = (region.address(0, 0) as u64).wrapping_add(offset) % page;
        let first = match addressing {
            Addressing::ZeroBased => into_page,
            Addressing::Virtual(address) if address % page == into_page => address,
            Addressing::Virtual(_) => {
                return Err(VerbsError::Unsupported("a device's addresses are as far into their pages as the memory"));
            }
        };
        // Whatever is wrong with the range is found here, before the device sees it.
        let mr = self.protection.register(pd, region, offset, len, access, Addressing::Virtual(first))?;
        let device = &self.domain(pd)?.pd;
        let made = sys::Mr::at(device, region, offset, len, access, first).inspect_err(|_| {
            self.protection.deregister(mr.lkey);
        })?;
        let place = mr.place();
        if self.registered.len() <= place {
            self.registered.resize_with(place + 1, || None);
        }
        let (lkey, rkey) = (made.lkey(), made.rkey());
        self.registered[place] = Some(Registered { mr: made, lkey, users: 0 });
        Ok(Mr { rkey, ..mr })
    }

    /// Ends a registration that no posted request names: the device would fail those.
    pub(super) fn deregister(&mut self, mr: &Mr) -> Result<(), VerbsError> {
        let same = |found: &&mut Option<Registered>| found.as_ref().is_some_and(|found| found.mr.rkey() == mr.rkey);
        let found = self.registered.get_mut(mr.place()).filter(same).ok_or(VerbsError::NoSuch("registered memory"))?;
        if found.as_ref().is_some_and(|found| found.users > 0) {
            return Err(VerbsError::InUse { what: "registered memory", by: "a request that is posted" });
        }
        if !self.protection.deregister(mr.lkey) {
            return Err(VerbsError::NoSuch("registered memory"));
        }
        *found = None;
        Ok(())
    }

    /// An element in the device's words, if it may be used so. Its place is held until [`Self::release`].
    #[inline]
    pub(super) fn hold(
        &mut self,
        pd: Pd,
        element: &Element,
        needed: Access,
    ) -> Result<(u32, sys::abi::ibv_sge), Refused> {
        let Element { address, len, lkey } = *element;
        self.protection.local(pd, lkey, address, len, needed)?;
        let place = Mr::place_of(lkey);
        let found = self.registered.get_mut(place).and_then(Option::as_mut).ok_or(Refused::UnknownKey)?;
        found.users += 1;
        Ok((place as u32, sys::abi::ibv_sge { addr: address, length: len, lkey: found.lkey }))
    }

    /// A request that named these places is done.
    #[inline]
    pub(super) fn release(&mut self, places: &[u32]) {
        for place in places {
            if let Some(found) = self.registered.get_mut(*place as usize).and_then(Option::as_mut) {
                found.users -= 1;
            }
        }
    }
}
