//! Protection domains, memory registrations and their keys.
//!
//! A [`Protection`] is the table of one endpoint. Registering ([`Protection::register`]) gives memory a local key
//! (L_Key), which local work requests use, and a remote key (R_Key), which a peer must send. Remote keys are 32 random
//! bits from the operating system; a lookup is one hash probe for any input. Invalid accesses do not panic: they return
//! [`AccessError`].
//!
//! A window ([`Protection::bind`]) is an additional remote key to a part of a registration, for one queue pair, with
//! fewer rights and an expiry time (IBTA volume 1, clause 10.6.7: a memory window of type 2). To deny by default,
//! register without remote rights and bind a window for each peer.
//!
//! Deregistering ([`Protection::deregister`]) invalidates all keys at once. Work requests that were posted before hold
//! a pin ([`Protection::pin`]), which keeps their memory alive until the last of them completes.

mod handles;
mod keys;
mod range;
mod slots;

pub use handles::{AccessError, Addressing, Grant, Mr, Pd, Pin, RegisterError, RegistrationCounters};
pub use keys::{Identity, KeyMap};

use crate::{Access, Region, RegionId, Regions, Sge};
use keys::Keys;
use range::Range;
use slots::{Entry, Slots};
use std::collections::HashMap;
use std::sync::Arc;

/// Entry of a remote key. It has all that a check needs, so that a check is one probe and one or two cache lines.
#[derive(Clone, Copy, Debug)]
struct Remote {
    range: Range,
    /// Slot of the registration.
    slot: u32,
    /// The only queue pair that may use the key (windows).
    qp: Option<u32>,
    /// Expiry time (windows): the key is invalid from then on.
    expires: Option<u64>,
    /// Unique number of this entry, never reused.
    serial: u64,
}

/// Protection domains, memory registrations and keys of one endpoint.
#[derive(Debug)]
pub struct Protection {
    regions: Regions,
    changed: bool,
    /// Regions that are no longer used. They are removed when the table is next requested
    /// ([`Protection::take_changed`]) or extended, not in the middle of a batch whose payloads are already in them.
    unused: Vec<RegionId>,
    /// Reference count of each domain: registrations and queues.
    domains: HashMap<u32, u32>,
    next_domain: u32,
    slots: Slots,
    /// Number of each region in use, and the count of slots that use it.
    numbers: HashMap<usize, (RegionId, u32)>,
    keys: Keys<Remote>,
    serial: u64,
}

impl Protection {
    /// Creates a table that begins with these regions (the endpoint's scratch memory), none of which is registered.
    pub fn new(regions: Regions) -> Self {
        // The initial regions are never removed: each has one use that is never released.
        let numbers = regions.iter().map(|(id, region)| (identity(region), (id, 1))).collect();
        Self {
            regions,
            changed: false,
            unused: Vec::new(),
            domains: HashMap::new(),
            next_domain: 0,
            slots: Slots::default(),
            numbers,
            keys: Keys::new(),
            serial: 0,
        }
    }

    /// Returns the current table of regions.
    #[inline]
    pub fn regions(&self) -> &Regions {
        &self.regions
    }
    /// Returns the table if it has changed since the last call, to pass it to its users ([`Regions`] are immutable).
    /// Regions that are no longer used are removed here, or when memory is registered.
    pub fn take_changed(&mut self) -> Option<Regions> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        self.remove_unused();
        Some(self.regions.clone())
    }

    fn remove_unused(&mut self) {
        for id in self.unused.drain(..) {
            self.regions = self.regions.without(id);
        }
    }

    /// Allocates a protection domain. Handles of deallocated domains are not reused until the numbers wrap around.
    pub fn allocate(&mut self) -> Pd {
        while self.domains.contains_key(&self.next_domain) {
            self.next_domain = self.next_domain.wrapping_add(1);
        }
        let pd = Pd(self.next_domain);
        self.next_domain = self.next_domain.wrapping_add(1);
        self.domains.insert(pd.0, 0);
        pd
    }
    /// Deallocates a protection domain.
    ///
    /// # Errors
    /// If it does not exist, or still has memory or queues.
    pub fn deallocate(&mut self, pd: Pd) -> Result<(), RegisterError> {
        match self.domains.get(&pd.0) {
            None => Err(RegisterError::NoDomain),
            Some(0) => {
                self.domains.remove(&pd.0);
                Ok(())
            }
            Some(_) => Err(RegisterError::DomainInUse),
        }
    }
    /// Adds a queue to a domain, which then cannot be deallocated until [`Self::leave`].
    ///
    /// # Errors
    /// [`RegisterError::NoDomain`] if it does not exist.
    pub fn join(&mut self, pd: Pd) -> Result<(), RegisterError> {
        *self.domains.get_mut(&pd.0).ok_or(RegisterError::NoDomain)? += 1;
        Ok(())
    }
    /// Removes a queue from a domain, after [`Self::join`].
    pub fn leave(&mut self, pd: Pd) {
        if let Some(users) = self.domains.get_mut(&pd.0) {
            *users = users.saturating_sub(1);
        }
    }

    /// Registers `len` bytes of a region from `offset`.
    ///
    /// The cost does not depend on the number of registrations, except that a region that is new to the table copies
    /// the table of regions, because users hold the old one.
    ///
    /// # Errors
    /// If the domain does not exist, the range or the rights are not possible for this region, or the table is full.
    pub fn register(
        &mut self,
        pd: Pd,
        region: &Arc<Region>,
        offset: u64,
        len: u64,
        access: Access,
        addressing: Addressing,
    ) -> Result<Mr, RegisterError> {
        let bytes = region.len() as u64;
        if !self.domains.contains_key(&pd.0) {
            return Err(RegisterError::NoDomain);
        }
        if offset > bytes || len > bytes - offset {
            return Err(RegisterError::Range { offset, len, region: bytes });
        }
        let address = match addressing {
            Addressing::ZeroBased => 0,
            Addressing::Virtual(address) => address,
        };
        if address.checked_add(len).is_none() {
            return Err(RegisterError::Wraps { address, len });
        }
        if access.is_remote_change() && !access.allows(Access::LOCAL_WRITE) {
            return Err(RegisterError::NeedsLocalWrite);
        }
        if access.allows(Access::LOCAL_WRITE) && !region.is_writable() {
            return Err(RegisterError::ReadOnly);
        }
        if access.allows(Access::REMOTE_ATOMIC) && !region.is_mapped() {
            return Err(RegisterError::NotMapped);
        }
        let rkey = self.keys.fresh()?;
        let id = self.acquire_region(region)?;
        let range = Range { pd, region: id, address, offset, len, access };
        let Some((slot, lkey)) = self.slots.take(range, rkey) else {
            self.release_region(id);
            return Err(RegisterError::Full);
        };
        if let Some(users) = self.domains.get_mut(&pd.0) {
            *users += 1;
        }
        self.grant(rkey, range, slot, None, None);
        Ok(Mr { lkey, rkey, address, len })
    }

    /// Removes a registration and all windows to it: their keys are refused from now on. Returns `false` if there is no
    /// such registration. The memory stays alive while work requests that were posted before use it ([`Self::pin`]).
    pub fn deregister(&mut self, lkey: u32) -> bool {
        let Some(slot) = self.slots.find(lkey) else { return false };
        let entry = self.slots.entry(slot);
        let Some(range) = entry.live.take() else { return false };
        let windows = std::mem::take(&mut entry.windows);
        self.keys.remove(entry.rkey);
        windows.into_iter().for_each(|window| _ = self.keys.remove(window));
        self.leave(range.pd);
        self.release(slot);
        true
    }

    /// Binds a window: a remote key to `len` bytes from `offset` of a registration, zero-based, valid only for the
    /// queue pair `qp` and only before `expires` (on the clock of [`Self::remote_for`]'s `now`).
    ///
    /// The registration needs no remote rights, but it needs local write for a window that lets a peer modify it. An
    /// operation that began before the expiry is completed.
    ///
    /// # Errors
    /// If `lkey` is not a registration of `pd`, or the range or the rights are not possible for it.
    #[allow(clippy::too_many_arguments)] // The parameters of the verb.
    pub fn bind(
        &mut self,
        pd: Pd,
        lkey: u32,
        qp: u32,
        offset: u64,
        len: u64,
        access: Access,
        expires: Option<u64>,
    ) -> Result<u32, RegisterError> {
        let slot = self.slots.find(lkey).ok_or(AccessError::UnknownKey)?;
        let memory = self.slots.get(slot).and_then(|entry| entry.live).ok_or(AccessError::UnknownKey)?;
        if memory.pd != pd {
            return Err(AccessError::WrongDomain.into());
        }
        if offset > memory.len || len > memory.len - offset {
            return Err(RegisterError::Range { offset, len, region: memory.len });
        }
        if !access.is_remote() {
            return Err(RegisterError::NoRights);
        }
        if access.is_remote_change() && !memory.access.allows(Access::LOCAL_WRITE) {
            return Err(RegisterError::NeedsLocalWrite);
        }
        if access.allows(Access::REMOTE_ATOMIC) && !self.regions.get(memory.region).is_mapped() {
            return Err(RegisterError::NotMapped);
        }
        let rkey = self.keys.fresh()?;
        let range = Range { address: 0, offset: memory.offset + offset, len, access, ..memory };
        self.grant(rkey, range, slot, Some(qp), expires);
        self.slots.entry(slot).windows.insert(rkey);
        Ok(rkey)
    }

    /// Removes a window. Returns `false` if no window has this key.
    pub fn unbind(&mut self, rkey: u32) -> bool {
        let Some(slot) = self.keys.get(rkey).filter(|remote| remote.qp.is_some()).map(|remote| remote.slot) else {
            return false;
        };
        self.keys.remove(rkey);
        self.slots.entry(slot).windows.remove(&rkey);
        true
    }

    /// Invalidates a key on a peer's SEND with invalidate: the key of a window of the queue pair `qp`, or a
    /// registration's remote key if it allows that ([`Access::REMOTE_INVALIDATE`]; its local key stays valid). Expired
    /// keys can also be invalidated.
    ///
    /// # Errors
    /// If the key is unknown, of another domain or queue pair, or may not be invalidated by a peer.
    pub fn invalidate(&mut self, pd: Pd, qp: u32, rkey: u32) -> Result<(), AccessError> {
        let remote = self.keys.get(rkey).ok_or(AccessError::UnknownKey)?;
        let (slot, bound) = (remote.slot, remote.qp);
        if remote.range.pd != pd {
            return Err(AccessError::WrongDomain);
        }
        match bound {
            Some(other) if other != qp => return Err(AccessError::WrongQueuePair),
            None if !remote.range.access.allows(Access::REMOTE_INVALIDATE) => return Err(AccessError::Rights),
            _ => {}
        }
        self.keys.remove(rkey);
        self.slots.entry(slot).windows.remove(&rkey);
        Ok(())
    }

    /// Checks the access of a local work request and returns the bytes.
    ///
    /// # Errors
    /// If the key is unknown or of another domain, or does not allow this access to all of the bytes.
    #[inline]
    pub fn local(&self, pd: Pd, lkey: u32, address: u64, len: u32, needed: Access) -> Result<Sge, AccessError> {
        let slot = self.slots.find(lkey).ok_or(AccessError::UnknownKey)?;
        let range = self.slots.get(slot).and_then(|entry| entry.live.as_ref()).ok_or(AccessError::UnknownKey)?;
        range.check(pd, address, len, needed)
    }

    /// Like [`Self::remote_for`], without queue pair and time.
    ///
    /// # Errors
    /// As [`Self::remote_for`]; [`AccessError::WrongQueuePair`] for the key of a window.
    pub fn remote(&self, pd: Pd, rkey: u32, address: u64, len: u32, needed: Access) -> Result<Grant, AccessError> {
        let remote = self.keys.get(rkey).ok_or(AccessError::UnknownKey)?;
        if remote.qp.is_some() {
            return Err(AccessError::WrongQueuePair);
        }
        remote.grant(pd, rkey, address, len, needed)
    }

    /// Checks the access of a peer through the queue pair `qp` of domain `pd` at time `now` and returns the bytes.
    /// `now` is in the units of [`Self::bind`]'s `expires`.
    ///
    /// # Errors
    /// If the key is unknown, expired, or of another domain or queue pair, or does not allow this access to all of the
    /// bytes, or an atomic operation is misaligned.
    #[allow(clippy::too_many_arguments)] // The check needs all of them.
    #[inline]
    pub fn remote_for(
        &self,
        pd: Pd,
        qp: u32,
        now: u64,
        rkey: u32,
        address: u64,
        len: u32,
        needed: Access,
    ) -> Result<Grant, AccessError> {
        let remote = self.keys.get(rkey).ok_or(AccessError::UnknownKey)?;
        if remote.qp.is_some_and(|bound| bound != qp) {
            return Err(AccessError::WrongQueuePair);
        }
        if remote.expires.is_some_and(|end| now >= end) {
            return Err(AccessError::Expired);
        }
        remote.grant(pd, rkey, address, len, needed)
    }

    /// Returns `true` if the key of a grant is still valid.
    #[inline]
    pub fn is_valid(&self, grant: &Grant) -> bool {
        self.keys.get(grant.key).is_some_and(|remote| remote.serial == grant.serial)
    }

    /// Returns the counters of a grant's registration, to count a completed operation. `None` if the key was removed.
    #[inline]
    pub fn counters_mut(&mut self, grant: &Grant) -> Option<&mut RegistrationCounters> {
        let remote = self.keys.get(grant.key).filter(|remote| remote.serial == grant.serial)?;
        Some(&mut self.slots.entry(remote.slot).counters)
    }
    /// Returns the counters of the peers' operations on a registration.
    pub fn counters(&self, lkey: u32) -> Option<RegistrationCounters> {
        self.slots.get(self.slots.find(lkey)?).map(|entry| entry.counters)
    }

    /// Keeps the memory of a registration alive until [`Self::unpin`].
    #[inline]
    pub fn pin(&mut self, lkey: u32) -> Option<Pin> {
        let slot = self.slots.find(lkey)?;
        self.slots.entry(slot).pins += 1;
        Some(Pin(slot))
    }
    /// Releases a pin of [`Self::pin`].
    #[inline]
    pub fn unpin(&mut self, pin: Pin) {
        let entry = self.slots.entry(pin.0);
        entry.pins -= 1;
        if entry.pins == 0 && entry.live.is_none() {
            self.release(pin.0);
        }
    }
    /// Returns `true` if pinned memory is still registered. If not, the request that pinned it may still use its bytes,
    /// but no key refers to them.
    pub fn is_registered(&self, pin: &Pin) -> bool {
        // A slot is not reused while it is pinned.
        self.slots.get(pin.0).is_some_and(|entry| entry.live.is_some())
    }

    fn grant(&mut self, rkey: u32, range: Range, slot: u32, qp: Option<u32>, expires: Option<u64>) {
        self.serial += 1;
        self.keys.insert(rkey, Remote { range, slot, qp, expires, serial: self.serial });
    }

    /// Adds a use of a region by a slot, and the region to the table if it is new. Returns its number.
    fn acquire_region(&mut self, region: &Arc<Region>) -> Result<RegionId, RegisterError> {
        if let Some((id, users)) = self.numbers.get_mut(&identity(region)) {
            *users += 1;
            return Ok(*id);
        }
        self.remove_unused();
        let (table, id) = self.regions.with(Arc::clone(region)).ok_or(RegisterError::Full)?;
        (self.regions, self.changed) = (table, true);
        self.numbers.insert(identity(region), (id, 1));
        Ok(id)
    }

    /// Removes a use of a region by a slot. Without uses, the region leaves the table later.
    fn release_region(&mut self, id: RegionId) {
        let key = identity(self.regions.get(id));
        let Some((_, users)) = self.numbers.get_mut(&key) else { return };
        *users -= 1;
        if *users == 0 {
            self.numbers.remove(&key);
            self.unused.push(id);
            self.changed = true;
        }
    }

    /// Frees a slot that is neither registered nor pinned.
    fn release(&mut self, slot: u32) {
        let Entry { live: None, pins: 0, region, .. } = *self.slots.entry(slot) else { return };
        self.slots.free(slot);
        self.release_region(region);
    }
}

/// Returns the identity of a region while it is alive: its address.
fn identity(region: &Arc<Region>) -> usize {
    Arc::as_ptr(region) as usize
}

impl Remote {
    #[inline]
    fn grant(&self, pd: Pd, key: u32, address: u64, len: u32, needed: Access) -> Result<Grant, AccessError> {
        let sge = self.range.check(pd, address, len, needed)?;
        // The standard restricts the virtual address, the processor the real one. (Regions begin on page boundaries.)
        if needed.allows(Access::REMOTE_ATOMIC) && !(address | sge.offset).is_multiple_of(8) {
            return Err(AccessError::Misaligned);
        }
        Ok(Grant { sge, address, key, serial: self.serial })
    }
}
