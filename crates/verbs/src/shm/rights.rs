//! Memory that the two ends open to each other.

use super::board::KEYS;
use super::control::{KeyOffer, Message, NAME};
use super::endpoint::{PeerRegion, ShmEndpoint};
use super::link::failed;
use crate::api::VerbsError;
use crate::cm::message::Refusal;
use crate::cm::{Account, Loan, SessionId};
use rustix::fd::OwnedFd;
use rustix::fs::SealFlags;
use shotline_memory::{Access, KeyMap, Mr, Pages, Pd, Refused, Region};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

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
    names: HashMap<Vec<u8>, u32>,
    /// Our remote key of a local one, and the slot of a remote one.
    remote_of: HashMap<u32, u32>,
    pub(super) slot_of: KeyMap<u32>,
    free: Vec<u32>,
    next: u32,
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

impl ShmEndpoint {
    /// Seals a region for what the peer may do with it, and tells the peer.
    pub(super) fn share(&mut self, pd: Pd, region: &Region, mr: &Mr, access: Access) -> Result<(), VerbsError> {
        let fd = region.fd().ok_or(VerbsError::NoSuch("shared memory"))?;
        let change = access.is_remote_change();
        let other = "the region was opened to a peer with other rights before: use another region";
        region.seal(!change).map_err(|_| VerbsError::Unsupported(other))?;
        let sealed = rustix::fs::fcntl_get_seals(fd).map_err(failed)?.contains(SealFlags::FUTURE_WRITE);
        if sealed == change {
            return Err(VerbsError::Unsupported(other));
        }
        let memory = rustix::io::dup(fd).map_err(failed)?;
        let full = || VerbsError::Invalid(format!("{KEYS} regions are open to the peer: deregister some"));
        let slot = match self.rights.free.pop() {
            Some(slot) => slot,
            None if (self.rights.next as usize) < KEYS => {
                self.rights.next += 1;
                self.rights.next - 1
            }
            None => return Err(full()),
        };
        self.rights.remote_of.insert(mr.lkey, mr.rkey);
        self.rights.slot_of.insert(mr.rkey, slot);
        self.mine.live(slot as usize).store(mr.rkey, Ordering::Release);
        let domain = self.domain(pd);
        let offer = KeyOffer { slot, rkey: mr.rkey, domain, address: mr.address, len: mr.len, access };
        self.control.tell(Message::Key(offer, memory));
        Ok(())
    }

    /// Ends a remote key of ours: on the board at once, and by a message that lets the peer unmap the memory.
    pub(super) fn unshare(&mut self, rkey: u32) {
        let Some(slot) = self.rights.slot_of.remove(&rkey) else { return };
        self.mine.live(slot as usize).store(0, Ordering::Release);
        self.rights.free.push(slot);
        self.control.tell(Message::Ended { slot, rkey });
    }
    /// Ends the remote key of a local one.
    pub(super) fn unshare_local(&mut self, lkey: u32) {
        if let Some(rkey) = self.rights.remote_of.remove(&lkey) {
            self.unshare(rkey);
        }
    }

    /// Tells the peer a name for memory that is open to it ([`Self::peer_region`] there). At most 64 bytes.
    pub fn publish(&mut self, name: &str, mr: &Mr) -> Result<(), VerbsError> {
        if name.len() > NAME {
            return Err(VerbsError::Invalid(format!("a name of {} bytes, at most {NAME}", name.len())));
        }
        if !self.rights.slot_of.contains_key(&mr.rkey) {
            return Err(VerbsError::NoSuch("memory that is open to the peer"));
        }
        self.control.tell(Message::Named { rkey: mr.rkey, name: name.as_bytes().to_vec() });
        Ok(())
    }

    /// Has the peer's memory on an account from now on.
    pub fn charge(&mut self, account: Account, session: SessionId) {
        self.rights.account = Some((account, session));
    }

    /// Why memory of the peer was not taken since the last call, as far as the peer has told of any.
    pub fn refusal(&mut self) -> Option<Refusal> {
        self.listen();
        self.rights.refusal.take()
    }

    /// The peer's memory of this name, if the peer has told it.
    pub fn peer_region(&mut self, name: &str) -> Option<PeerRegion> {
        self.listen();
        let rkey = *self.rights.names.get(name.as_bytes())?;
        let KeyOffer { address, len, access, .. } = self.rights.theirs.get(&rkey)?.offer;
        Some(PeerRegion { rkey, address, len, access })
    }
}
