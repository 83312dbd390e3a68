//! Protection domains, registered memory and its keys: who may touch which bytes.
//!
//! A [`Protection`] is one endpoint's table. Registering ([`Protection::register`]) gives memory a local key, which
//! names it in one's own work requests, and a remote key, which a peer must show. Remote keys are 32 random bits of
//! the operating system; a lookup is one hash probe, whatever the peer sends. Nothing is refused by a panic:
//! [`Refused`] says why.
//!
//! A window ([`Protection::bind`]) is a further remote key to part of a registration, for one queue pair, with fewer
//! rights and an end in time (IBTA volume 1, clause 10.6.7: a memory window of type 2). Deny by default means: register
//! without remote rights, and bind a window for each peer.
//!
//! Deregistering ([`Protection::deregister`]) ends all keys at once. Work requests that were posted before hold a
//! pin ([`Protection::pin`]), so their memory stays until they complete, and is let go with the last of them.

mod keys;
mod range;
mod slots;
mod words;

pub use keys::{Identity, KeyMap};
pub use words::{Addressing, Grant, Mr, Pd, Pin, Refused, RegisterError, Usage};

use crate::{Access, Region, RegionId, Regions, Sge};
use keys::Keys;
use range::Range;
use slots::{Entry, Slots};
use std::collections::HashMap;
use std::sync::Arc;

/// What a remote key stands for. All that a check needs is in one place: one probe, one cache line or two.
#[derive(Clone, Copy, Debug)]
struct Remote {
    range: Range,
    /// The registration.
    slot: u32,
    /// Only this queue pair may use it (windows).
    qp: Option<u32>,
    /// Not from this time on (windows).
    expires: Option<u64>,
    /// No two keys ever have the same.
    serial: u64,
}

/// One endpoint's protection domains, memory registrations and keys.
#[derive(Debug)]
pub struct Protection {
    regions: Regions,
    changed: bool,
    /// Regions that nothing uses any more. They leave the table when it is asked for ([`Protection::changed`]) or added
    /// to, not in the middle of a batch whose payloads have landed in them already.
    going: Vec<RegionId>,
    /// Users of each domain: registrations and queues.
    domains: HashMap<u32, u32>,
    next_domain: u32,
    slots: Slots,
    /// The number of each region in use, and how many slots use it.
    numbers: HashMap<usize, (RegionId, u32)>,
    keys: Keys<Remote>,
    serial: u64,
}

impl Protection {
    /// Begins with the regions of a table (an endpoint's own scratch memory), of which none is registered.
    pub fn new(regions: Regions) -> Self {
        // The table's own regions stay in it for good: one use that nobody gives back.
        let numbers = regions.iter().map(|(id, region)| (identity(region), (id, 1))).collect();
        Self {
            regions,
            changed: false,
            going: Vec::new(),
            domains: HashMap::new(),
            next_domain: 0,
            slots: Slots::default(),
            numbers,
            keys: Keys::new(),
            serial: 0,
        }
    }

    /// The present table of regions.
    #[inline]
    pub fn regions(&self) -> &Regions {
        &self.regions
    }
    /// The table, if it changed since the last call: for whoever must be told ([`Regions`] are immutable). What nothing
    /// uses any more leaves it here, or when memory is registered.
    pub fn changed(&mut self) -> Option<Regions> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        self.let_go();
        Some(self.regions.clone())
    }

    fn let_go(&mut self) {
        for id in self.going.drain(..) {
            self.regions = self.regions.without(id);
        }
    }

    /// Makes a protection domain. Its handle names no other domain later.
    pub fn allocate(&mut self) -> Pd {
        while self.domains.contains_key(&self.next_domain) {
            self.next_domain = self.next_domain.wrapping_add(1);
        }
        let pd = Pd(self.next_domain);
        self.next_domain = self.next_domain.wrapping_add(1);
        self.domains.insert(pd.0, 0);
        pd
    }
    /// Ends a protection domain that nothing uses.
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
    /// A queue begins to use a domain, which then cannot be deallocated before [`Self::leave`].
    pub fn join(&mut self, pd: Pd) -> Result<(), RegisterError> {
        *self.domains.get_mut(&pd.0).ok_or(RegisterError::NoDomain)? += 1;
        Ok(())
    }
    /// A queue that joined a domain is gone.
    pub fn leave(&mut self, pd: Pd) {
        if let Some(users) = self.domains.get_mut(&pd.0) {
            *users = users.saturating_sub(1);
        }
    }

    /// Registers `len` bytes of a region from `offset`.
    ///
    /// The cost does not depend on how much is registered already, but that a region which is new to the table copies
    /// the table of regions, because parties hold the old one.
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
        let id = self.enter(region)?;
        let range = Range { pd, region: id, address, offset, len, access };
        let Some((slot, lkey)) = self.slots.take(range, rkey) else {
            self.give_up(id);
            return Err(RegisterError::Full);
        };
        if let Some(users) = self.domains.get_mut(&pd.0) {
            *users += 1;
        }
        self.grant(rkey, range, slot, None, None);
        Ok(Mr { lkey, rkey, address, len })
    }

    /// Ends a registration and all windows to it: their keys are refused from now on. Returns false if it was not (any
    /// more) there. The memory itself stays as long as work requests that were posted before use it ([`Self::alive`]).
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

    /// Binds a window: a remote key to `len` bytes from `offset` of a registration, which peers address from 0, only
    /// through the queue pair `qp` and only before `expires` (on the clock that [`Self::remote_for`] is given).
    ///
    /// The registration needs no remote rights of its own, but local write for a window that lets a peer change it.
    /// An operation that began before the end is finished.
    #[allow(clippy::too_many_arguments)] // The verb's own.
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
        let slot = self.slots.find(lkey).ok_or(Refused::UnknownKey)?;
        let memory = self.slots.get(slot).and_then(|entry| entry.live).ok_or(Refused::UnknownKey)?;
        if memory.pd != pd {
            return Err(Refused::ForeignDomain.into());
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

    /// Ends a window. Returns false if no window has this key (any more).
    pub fn unbind(&mut self, rkey: u32) -> bool {
        let Some(slot) = self.keys.get(rkey).filter(|remote| remote.qp.is_some()).map(|remote| remote.slot) else {
            return false;
        };
        self.keys.remove(rkey);
        self.slots.entry(slot).windows.remove(&rkey);
        true
    }

    /// A peer asks by SEND with invalidate to end a key: that of a window of the queue pair `qp`, or a registration's
    /// own if it allows it ([`Access::REMOTE_INVALIDATE`]; its local key stays). Whether a key has expired does not
    /// matter.
    pub fn invalidate(&mut self, pd: Pd, qp: u32, rkey: u32) -> Result<(), Refused> {
        let remote = self.keys.get(rkey).ok_or(Refused::UnknownKey)?;
        let (slot, bound) = (remote.slot, remote.qp);
        if remote.range.pd != pd {
            return Err(Refused::ForeignDomain);
        }
        match bound {
            Some(other) if other != qp => return Err(Refused::ForeignQueuePair),
            None if !remote.range.access.allows(Access::REMOTE_INVALIDATE) => return Err(Refused::Rights),
            _ => {}
        }
        self.keys.remove(rkey);
        self.slots.entry(slot).windows.remove(&rkey);
        Ok(())
    }

    /// The bytes of a local element, if they may be used so.
    #[inline]
    pub fn local(&self, pd: Pd, lkey: u32, address: u64, len: u32, needed: Access) -> Result<Sge, Refused> {
        let slot = self.slots.find(lkey).ok_or(Refused::UnknownKey)?;
        let range = self.slots.get(slot).and_then(|entry| entry.live.as_ref()).ok_or(Refused::UnknownKey)?;
        range.check(pd, address, len, needed)
    }

    /// [`Self::remote_for`] for whoever knows neither queue pair nor time: windows are refused.
    pub fn remote(&self, pd: Pd, rkey: u32, address: u64, len: u32, needed: Access) -> Result<Grant, Refused> {
        let remote = self.keys.get(rkey).ok_or(Refused::UnknownKey)?;
        if remote.qp.is_some() {
            return Err(Refused::ForeignQueuePair);
        }
        remote.grant(pd, rkey, address, len, needed)
    }

    /// The bytes that a peer names through the queue pair `qp` of domain `pd` at time `now`, if it may touch them so.
    /// `now` is in the units of [`Self::bind`]'s `expires`.
    #[allow(clippy::too_many_arguments)] // All of them are asked.
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
    ) -> Result<Grant, Refused> {
        let remote = self.keys.get(rkey).ok_or(Refused::UnknownKey)?;
        if remote.qp.is_some_and(|bound| bound != qp) {
            return Err(Refused::ForeignQueuePair);
        }
        if remote.expires.is_some_and(|end| now >= end) {
            return Err(Refused::Expired);
        }
        remote.grant(pd, rkey, address, len, needed)
    }

    /// Whether a grant's key is still there.
    #[inline]
    pub fn holds(&self, grant: &Grant) -> bool {
        self.keys.get(grant.key).is_some_and(|remote| remote.serial == grant.serial)
    }

    /// The counters of a grant's registration, for whoever carried the operation out. None if the key has ended.
    #[inline]
    pub fn usage_mut(&mut self, grant: &Grant) -> Option<&mut Usage> {
        let remote = self.keys.get(grant.key).filter(|remote| remote.serial == grant.serial)?;
        Some(&mut self.slots.entry(remote.slot).usage)
    }
    /// What peers have done with a registration.
    pub fn usage(&self, lkey: u32) -> Option<Usage> {
        self.slots.get(self.slots.find(lkey)?).map(|entry| entry.usage)
    }

    /// Keeps the memory of a registration until [`Self::unpin`]. Returns what to unpin.
    #[inline]
    pub fn pin(&mut self, lkey: u32) -> Option<Pin> {
        let slot = self.slots.find(lkey)?;
        self.slots.entry(slot).pins += 1;
        Some(Pin(slot))
    }
    /// Lets go of what [`Self::pin`] kept.
    #[inline]
    pub fn unpin(&mut self, pin: Pin) {
        let entry = self.slots.entry(pin.0);
        entry.pins -= 1;
        if entry.pins == 0 && entry.live.is_none() {
            self.release(pin.0);
        }
    }
    /// Whether pinned memory is still registered. If not, its bytes may still be used by the request that pinned them,
    /// but no longer named by any key.
    pub fn alive(&self, pin: &Pin) -> bool {
        // A slot is not used again while it is pinned.
        self.slots.get(pin.0).is_some_and(|entry| entry.live.is_some())
    }

    fn grant(&mut self, rkey: u32, range: Range, slot: u32, qp: Option<u32>, expires: Option<u64>) {
        self.serial += 1;
        self.keys.insert(rkey, Remote { range, slot, qp, expires, serial: self.serial });
    }

    /// The number of a region, which is in the table from now on, for one slot more.
    fn enter(&mut self, region: &Arc<Region>) -> Result<RegionId, RegisterError> {
        if let Some((id, users)) = self.numbers.get_mut(&identity(region)) {
            *users += 1;
            return Ok(*id);
        }
        self.let_go();
        let (table, id) = self.regions.with(Arc::clone(region)).ok_or(RegisterError::Full)?;
        (self.regions, self.changed) = (table, true);
        self.numbers.insert(identity(region), (id, 1));
        Ok(id)
    }

    /// One slot less uses a region; the last lets it go.
    fn give_up(&mut self, id: RegionId) {
        let key = identity(self.regions.get(id));
        let Some((_, users)) = self.numbers.get_mut(&key) else { return };
        *users -= 1;
        if *users == 0 {
            self.numbers.remove(&key);
            self.going.push(id);
            self.changed = true;
        }
    }

    /// Gives back a slot that is neither registered nor pinned.
    fn release(&mut self, slot: u32) {
        let Entry { live: None, pins: 0, region, .. } = *self.slots.entry(slot) else { return };
        self.slots.give_back(slot);
        self.give_up(region);
    }
}

/// A region's own number while it lives: its address.
fn identity(region: &Arc<Region>) -> usize {
    Arc::as_ptr(region) as usize
}

impl Remote {
    #[inline]
    fn grant(&self, pd: Pd, key: u32, address: u64, len: u32, needed: Access) -> Result<Grant, Refused> {
        let sge = self.range.check(pd, address, len, needed)?;
        // Both: the standard speaks of the address given, the processor needs the real one. (Regions begin on pages.)
        if needed.allows(Access::REMOTE_ATOMIC) && !(address | sge.offset).is_multiple_of(8) {
            return Err(Refused::Misaligned);
        }
        Ok(Grant { sge, address, key, serial: self.serial })
    }
}
