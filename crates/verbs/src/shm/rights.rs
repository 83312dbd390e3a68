//! Keys to memory: those of the peer, and our own as the peer knows them.

use super::board::KEYS;
use super::control::KeyOffer;
use crate::api::VerbsError;
use crate::cm::message::Refusal;
use crate::cm::{Account, Loan, SessionId};
use rustix::fd::OwnedFd;
use shotline_memory::{Access, KeyMap, Pages, Refused, Region};
use std::collections::HashMap;
use std::sync::Arc;

/// A key of the peer.
#[derive(Debug)]
pub(super) struct PeerKey {
    pub(super) offer: KeyOffer,
    pub(super) region: Arc<Region>,
    _loan: Option<Loan>,
}

/// What a mapping costs: the kernel's entry for it and its page tables where they are shared with no other; and a page
/// table for each 512 pages. A process may have some 65,000 mappings, of which all initiators together shall not have most.
const MAPPING: u64 = 128 << 10;
const PAGES_OF_A_TABLE: u64 = 512;

impl PeerKey {
    /// Where in the region the bytes are, if they may be touched so. The owner's board has the last word on whether the
    /// key is still there.
    #[inline]
    pub(super) fn check(&self, domain: u32, address: u64, len: u64, needed: Access) -> Result<usize, Refused> {
        if self.offer.domain != domain {
            return Err(Refused::ForeignDomain);
        }
        if !self.offer.access.allows(needed) {
            return Err(Refused::Rights);
        }
        let KeyOffer { address: base, len: all, .. } = self.offer;
        if address < base || len > all || address - base > all - len {
            return Err(Refused::Bounds);
        }
        let offset = address - base;
        if needed.allows(Access::REMOTE_ATOMIC) && !(address | offset).is_multiple_of(8) {
            return Err(Refused::Misaligned);
        }
        Ok(offset as usize)
    }
}

/// The peer's keys, and our own as the peer knows them.
#[derive(Debug)]
pub(super) struct Rights {
    pub(super) theirs: KeyMap<PeerKey>,
    /// The key in each slot of the peer's.
    slots: Vec<u32>,
    pub(super) names: HashMap<Vec<u8>, u32>,
    /// Our remote key of a local one, and the slot of a remote one.
    pub(super) remote_of: HashMap<u32, u32>,
    pub(super) slot_of: KeyMap<u32>,
    pub(super) free: Vec<u32>,
    pub(super) next: u32,
    /// Whose account the peer's memory is on, if on any.
    pub(super) account: Option<(Account, SessionId)>,
    /// Why some of it was not mapped.
    pub(super) refusal: Option<Refusal>,
}

impl Rights {
    pub(super) fn new() -> Self {
        Self {
            theirs: KeyMap::default(),
            slots: Vec::new(),
            names: HashMap::new(),
            remote_of: HashMap::new(),
            slot_of: KeyMap::default(),
            free: Vec::new(),
            next: 0,
            account: None,
            refusal: None,
        }
    }

    /// Enters a mapping on the peer's account, if there is one.
    fn lend(&self, bytes: u64) -> Result<Option<Loan>, Refusal> {
        let Some((account, session)) = &self.account else { return Ok(None) };
        account.lend(*session, MAPPING + bytes / PAGES_OF_A_TABLE, "a mapping of an initiator's memory").map(Some)
    }

    /// The peer opens memory. Returns whether that can be; memory that does not fit its account is refused.
    pub(super) fn take(&mut self, offer: KeyOffer, memory: OwnedFd) -> bool {
        let Ok(region) = Region::from_fd(memory, offer.access.is_remote_change()) else { return false };
        let fits = offer.len <= region.len() as u64 && offer.address.checked_add(offer.len).is_some();
        if !fits || offer.rkey == 0 || self.theirs.contains_key(&offer.rkey) {
            return false;
        }
        let loan = match self.lend(region.len() as u64) {
            Ok(loan) => loan,
            Err(refusal) => {
                self.refusal = Some(refusal);
                return true;
            }
        };
        let slot = offer.slot as usize;
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, 0);
        }
        let before = std::mem::replace(&mut self.slots[slot], offer.rkey);
        if self.theirs.remove(&before).is_some() {
            self.names.retain(|_, named| *named != before);
        }
        self.theirs.insert(offer.rkey, PeerKey { offer, region, _loan: loan });
        true
    }
    /// A key of the peer has ended.
    pub(super) fn drop_key(&mut self, slot: u32, rkey: u32) {
        if self.slots.get(slot as usize) == Some(&rkey) {
            self.slots[slot as usize] = 0;
            self.theirs.remove(&rkey);
            self.names.retain(|_, named| *named != rkey);
        }
    }
    /// A key of the peer has a name. Names of keys that are not there are of no use to anybody.
    pub(super) fn name(&mut self, rkey: u32, name: Vec<u8>) {
        if self.theirs.contains_key(&rkey) && self.names.len() < KEYS {
            self.names.insert(name, rkey);
        }
    }
}

/// What a registration for remote access may ask for.
pub(super) fn may_share(region: &Region, offset: u64, len: u64, access: Access) -> Result<(), VerbsError> {
    let refused = |why| Err(VerbsError::Unsupported(why));
    if region.pages() != Pages::Memfd || region.fd().is_none() {
        return refused("shared memory opens only memory of its own making to a peer: use Region::memfd");
    }
    if offset != 0 || len != region.len() as u64 {
        return refused(
            "shared memory opens whole regions to a peer: register all of it, or make a region for the part",
        );
    }
    if access.is_remote_change() && !access.allows(Access::REMOTE_READ | Access::REMOTE_WRITE) {
        return refused(
            "shared memory that a peer can change can be read and written by it: ask for remote read and write, too",
        );
    }
    Ok(())
}
