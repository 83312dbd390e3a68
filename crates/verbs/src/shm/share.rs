//! Memory that the two ends open to each other.

use super::board::KEYS;
use super::control::{KeyOffer, Message, NAME};
use super::endpoint::ShmEndpoint;
use super::failed;
use crate::api::VerbsError;
use crate::cm::message::Refusal;
use crate::cm::{Account, SessionId};
use rustix::fs::SealFlags;
use shotline_memory::{Access, Mr, Pd, Region};
use std::sync::atomic::Ordering;

/// Memory of the peer, by the name that the peer gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerRegion {
    /// Its remote key.
    pub rkey: u32,
    /// The address of its first byte.
    pub address: u64,
    /// Its bytes.
    pub len: u64,
    /// What may be done with it.
    pub access: Access,
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
