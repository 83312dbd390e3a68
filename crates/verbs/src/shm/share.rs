//! Registered memory that the two ends share.

use super::board::MAX_KEYS;
use super::control::{KeyOffer, MAX_NAME_BYTES, Message};
use super::endpoint::ShmEndpoint;
use super::failed;
use super::keys::mapped_by_peer;
use crate::api::VerbsError;
use crate::cm::message::Refusal;
use crate::cm::{MemoryBudget, SessionId};
use rustix::fs::SealFlags;
use shotline_memory::{Access, EmulatedPath, Mr, Pd, Region};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Memory of the peer, found by its published name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerRegion {
    /// Its remote key.
    pub rkey: u32,
    /// Remote address of its first byte.
    pub address: u64,
    /// Length in bytes.
    pub len: u64,
    /// Access rights of this side.
    pub access: Access,
}

impl ShmEndpoint {
    /// Seals a region according to the peer's access rights, and announces its key to the peer.
    pub(super) fn share(&mut self, pd: Pd, region: &Region, mr: &Mr, access: Access) -> Result<(), VerbsError> {
        let path = region.emulated_memory().map(|memory| self.keys.offer_path(memory.path()));
        let region = mapped_by_peer(region);
        let fd = region.fd().ok_or(VerbsError::NoSuch("shared memory"))?;
        let change = access.is_remote_change();
        let other = "the region is already shared with other access rights: use another region";
        region.seal(!change).map_err(|_| VerbsError::Unsupported(other))?;
        let sealed = rustix::fs::fcntl_get_seals(fd).map_err(failed)?.contains(SealFlags::FUTURE_WRITE);
        if sealed == change {
            return Err(VerbsError::Unsupported(other));
        }
        let memory = rustix::io::dup(fd).map_err(failed)?;
        let full = || VerbsError::Invalid(format!("all {MAX_KEYS} keys for the peer are in use: deregister memory"));
        let slot = match self.keys.free.pop() {
            Some(slot) => slot,
            None if (self.keys.slots_used as usize) < MAX_KEYS => {
                self.keys.slots_used += 1;
                self.keys.slots_used - 1
            }
            None => return Err(full()),
        };
        self.keys.remote_of.insert(mr.lkey, mr.rkey);
        self.keys.slot_of.insert(mr.rkey, slot);
        self.mine.live(slot as usize).store(mr.rkey, Ordering::Release);
        let domain = self.domain(pd);
        let offer = KeyOffer { slot, rkey: mr.rkey, domain, address: mr.address, len: mr.len, access, path };
        self.control.send(Message::Key(offer, memory));
        Ok(())
    }

    /// Ends a remote key of this side: at once on the board, and by a message after which the peer unmaps the memory.
    pub(super) fn unshare(&mut self, rkey: u32) {
        let Some(slot) = self.keys.slot_of.remove(&rkey) else { return };
        self.mine.live(slot as usize).store(0, Ordering::Release);
        self.keys.free.push(slot);
        self.control.send(Message::Ended { slot, rkey });
    }
    /// Ends the remote key that belongs to a local key.
    pub(super) fn unshare_local(&mut self, lkey: u32) {
        if let Some(rkey) = self.keys.remote_of.remove(&lkey) {
            self.unshare(rkey);
        }
    }

    /// Publishes a name, at most 64 bytes, for memory that is open to the peer ([`Self::peer_region`] on its side).
    ///
    /// # Errors
    /// If the name is too long, or the memory is not open to the peer.
    pub fn publish(&mut self, name: &str, mr: &Mr) -> Result<(), VerbsError> {
        if name.len() > MAX_NAME_BYTES {
            return Err(VerbsError::Invalid(format!(
                "expected a name of at most {MAX_NAME_BYTES} bytes, found {}",
                name.len()
            )));
        }
        if !self.keys.slot_of.contains_key(&mr.rkey) {
            return Err(VerbsError::NoSuch("memory shared with the peer"));
        }
        self.control.send(Message::Named { rkey: mr.rkey, name: name.as_bytes().to_vec() });
        Ok(())
    }

    /// Charges mappings of memory that the peer registers from now on to a budget.
    pub fn charge(&mut self, budget: MemoryBudget, session: SessionId) {
        self.keys.budget = Some((budget, session));
    }

    /// Returns the reason of the last refusal to map memory of the peer since the last call, if any.
    pub fn refusal(&mut self) -> Option<Refusal> {
        self.poll_socket();
        self.keys.refusal.take()
    }

    /// Returns the peer's memory with this name, if the peer has published it.
    pub fn peer_region(&mut self, name: &str) -> Option<PeerRegion> {
        self.poll_socket();
        let rkey = *self.keys.names.get(name.as_bytes())?;
        let KeyOffer { address, len, access, .. } = self.keys.theirs.get(&rkey)?.offer;
        Some(PeerRegion { rkey, address, len, access })
    }

    /// Returns the path that this side's copies of the peer's memory with this key pass over, if it is emulated memory
    /// of an accelerator.
    pub fn peer_path(&mut self, rkey: u32) -> Option<Arc<EmulatedPath>> {
        self.poll_socket();
        self.keys.theirs.get(&rkey)?.region.emulated_memory().map(|memory| Arc::clone(memory.path()))
    }
}
