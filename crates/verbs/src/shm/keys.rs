//! Memory keys: those of the peer, and those of this side as announced to the peer.

use super::board::MAX_KEYS;
use super::control::{KeyOffer, PathOffer};
use crate::api::VerbsError;
use crate::cm::message::Refusal;
use crate::cm::{MemoryBudget, Reservation, SessionId};
use rustix::fd::OwnedFd;
use shotline_memory::{Access, AccessError, EmulatedPath, KeyMap, Pages, Region};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// A remote key of the peer, with its mapped memory.
#[derive(Debug)]
pub(super) struct PeerKey {
    pub(super) offer: KeyOffer,
    pub(super) region: Arc<Region>,
    _reservation: Option<Reservation>,
}

/// Kernel memory that is charged for a mapping, in bytes: its VMA and page tables, if no other mapping shares them. It
/// is this large because a process may have about 65,000 mappings, of which all initiators together must not use up
/// most.
const MAPPING_BYTES: u64 = 128 << 10;
/// Mapped bytes for which one byte of page tables is charged in addition: a page of them maps 512 pages.
const PAGES_PER_TABLE: u64 = 512;

impl PeerKey {
    /// Returns the offset of the bytes in the region if `needed` access is allowed. The caller must check first, on the
    /// owner's board, that the key is still valid.
    #[inline]
    pub(super) fn check(&self, domain: u32, address: u64, len: u64, needed: Access) -> Result<usize, AccessError> {
        if self.offer.domain != domain {
            return Err(AccessError::WrongDomain);
        }
        if !self.offer.access.allows(needed) {
            return Err(AccessError::Rights);
        }
        let KeyOffer { address: base, len: all, .. } = self.offer;
        if address < base || len > all || address - base > all - len {
            return Err(AccessError::Bounds);
        }
        let offset = address - base;
        if needed.allows(Access::REMOTE_ATOMIC) && !(address | offset).is_multiple_of(8) {
            return Err(AccessError::Misaligned);
        }
        Ok(offset as usize)
    }
}

/// Keys of the peer, and keys of this side as announced to the peer.
#[derive(Debug)]
pub(super) struct PeerKeys {
    /// Keys of the peer, by rkey.
    pub(super) theirs: KeyMap<PeerKey>,
    /// Remote key in each of the peer's slots; 0 if empty.
    slots: Vec<u32>,
    /// rkeys of the peer, by published name.
    pub(super) names: HashMap<Vec<u8>, u32>,
    /// Remote keys by local key, and slots by remote key, of this side's registrations.
    pub(super) remote_of: HashMap<u32, u32>,
    pub(super) slot_of: KeyMap<u32>,
    /// Free slots for keys on this side's board below `slots_used`, and the number of slots used so far.
    pub(super) free: Vec<u32>,
    pub(super) slots_used: u32,
    /// Emulated paths of the peer and of this side, with their numbers. They end with the last key of their memory.
    their_paths: Vec<(u32, Weak<EmulatedPath>)>,
    own_paths: Vec<(u32, Weak<EmulatedPath>)>,
    /// Number of the next path of this side.
    next_path: u32,
    /// Budget that mappings of the peer's memory are charged to.
    pub(super) budget: Option<(MemoryBudget, SessionId)>,
    /// Reason for the last refusal to map memory of the peer.
    pub(super) refusal: Option<Refusal>,
}

impl PeerKeys {
    pub(super) fn new() -> Self {
        Self {
            theirs: KeyMap::default(),
            slots: Vec::new(),
            names: HashMap::new(),
            remote_of: HashMap::new(),
            slot_of: KeyMap::default(),
            free: Vec::new(),
            slots_used: 0,
            their_paths: Vec::new(),
            own_paths: Vec::new(),
            next_path: 0,
            budget: None,
            refusal: None,
        }
    }

    /// Charges a mapping to the peer's budget, if there is one.
    fn charge(&self, bytes: u64) -> Result<Option<Reservation>, Refusal> {
        let Some((budget, session)) = &self.budget else { return Ok(None) };
        budget
            .reserve(*session, MAPPING_BYTES + bytes / PAGES_PER_TABLE, "a mapping of an initiator's memory")
            .map(Some)
    }

    /// Returns the announcement of a path of this side.
    pub(super) fn offer_path(&mut self, path: &Arc<EmulatedPath>) -> PathOffer {
        self.own_paths.retain(|(_, known)| known.strong_count() > 0);
        let known = self.own_paths.iter().find(|(_, known)| known.as_ptr() == Arc::as_ptr(path));
        let number = known.map_or(self.next_path, |(number, _)| *number);
        if known.is_none() {
            self.own_paths.push((number, Arc::downgrade(path)));
            self.next_path = self.next_path.wrapping_add(1);
        }
        PathOffer { number, model: path.model() }
    }

    /// Puts a mapping behind the path that the peer has announced for it. Returns `None` if the path is invalid: a peer
    /// could otherwise make copies take forever.
    fn behind(&mut self, region: Arc<Region>, path: PathOffer) -> Option<Arc<Region>> {
        let PathOffer { number, model } = path;
        self.their_paths.retain(|(_, known)| known.strong_count() > 0);
        let known = self.their_paths.iter().find(|(known, _)| *known == number);
        let path = match known.and_then(|(_, known)| known.upgrade()) {
            Some(path) if path.model() == model => path,
            None if model.is_within_limits() => Arc::new(EmulatedPath::new(model)),
            Some(_) | None => return None,
        };
        if known.is_none() {
            self.their_paths.push((number, Arc::downgrade(&path)));
        }
        Some(region.behind(path))
    }

    /// Maps memory that the peer offers. Returns `false` if the offer is invalid; memory that does not fit the budget
    /// is refused, but valid.
    pub(super) fn insert(&mut self, offer: KeyOffer, memory: OwnedFd) -> bool {
        // Memory behind a path is copied only.
        if offer.path.is_some() && offer.access.allows(Access::REMOTE_ATOMIC) {
            return false;
        }
        let Ok(region) = Region::from_fd(memory, offer.access.is_remote_change()) else { return false };
        let fits = offer.len <= region.len() as u64 && offer.address.checked_add(offer.len).is_some();
        if !fits || offer.rkey == 0 || self.theirs.contains_key(&offer.rkey) {
            return false;
        }
        let reservation = match self.charge(region.len() as u64) {
            Ok(reservation) => reservation,
            Err(refusal) => {
                self.refusal = Some(refusal);
                return true;
            }
        };
        let region = match offer.path {
            None => region,
            Some(path) => match self.behind(region, path) {
                Some(region) => region,
                None => return false,
            },
        };
        let slot = offer.slot as usize;
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, 0);
        }
        let before = std::mem::replace(&mut self.slots[slot], offer.rkey);
        if self.theirs.remove(&before).is_some() {
            self.names.retain(|_, named| *named != before);
        }
        self.theirs.insert(offer.rkey, PeerKey { offer, region, _reservation: reservation });
        true
    }
    /// Removes a key that the peer deregistered.
    pub(super) fn drop_key(&mut self, slot: u32, rkey: u32) {
        if self.slots.get(slot as usize) == Some(&rkey) {
            self.slots[slot as usize] = 0;
            self.theirs.remove(&rkey);
            self.names.retain(|_, named| *named != rkey);
        }
    }
    /// Stores a name for a key of the peer. Names of unknown keys are ignored.
    pub(super) fn name(&mut self, rkey: u32, name: Vec<u8>) {
        if self.theirs.contains_key(&rkey) && self.names.len() < MAX_KEYS {
            self.names.insert(name, rkey);
        }
    }
}

/// Returns the region whose memory a peer maps: that behind the path of emulated memory.
pub(super) fn mapped_by_peer(region: &Region) -> &Region {
    region.emulated_memory().map_or(region, |memory| memory.region())
}

/// Checks that a registration for remote access can be enforced by the kernel.
pub(super) fn check_shareable(region: &Region, offset: u64, len: u64, access: Access) -> Result<(), VerbsError> {
    let unsupported = |why| Err(VerbsError::Unsupported(why));
    let memory = mapped_by_peer(region);
    if memory.pages() != Pages::Memfd || memory.fd().is_none() {
        return unsupported(match memory.pages() {
            Pages::Device => {
                "a peer cannot map the memory of a device: use another provider (soft), or emulated memory of a device"
            }
            Pages::Huge | Pages::Transparent | Pages::Small | Pages::Memfd | Pages::File => {
                "only memory from Region::memfd can be registered for a peer's access"
            }
        });
    }
    if offset != 0 || len != region.len() as u64 {
        return unsupported(
            "a registration for a peer's access must cover its whole region: register all of it, or create a region \
             for the part",
        );
    }
    if access.is_remote_change() && !access.allows(Access::REMOTE_READ | Access::REMOTE_WRITE) {
        return unsupported(
            "a peer that can change shared memory can also read and write all of it: add remote read and write access",
        );
    }
    Ok(())
}
