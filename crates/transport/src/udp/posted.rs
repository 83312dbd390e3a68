//! Posted places, and what a payload that has landed is worth.

use super::config::UdpConfig;
use crate::seal::{ICRC_BYTES, Sealer};
use crate::{Done, Icrc, Landed, Recv, To};
use shotline_memory::{Regions, Sge};
use shotline_wire::crc;
use shotline_wire::shot::DropCause;
use std::net::SocketAddr;

/// A posted place, as addresses. Length 0: nothing is posted.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) address: [*mut u8; 2],
    pub(super) len: [u32; 2],
}

impl Place {
    const NONE: Self = Self { address: [std::ptr::null_mut(); 2], len: [0; 2] };

    fn holds(&self, bytes: usize) -> bool {
        self.len[0] > 0 && bytes <= self.len[0] as usize + self.len[1] as usize
    }

    /// The first `bytes` bytes of it.
    pub(super) fn pieces(&self, bytes: usize) -> [(*mut u8, usize); 2] {
        let in_first = bytes.min(self.len[0] as usize);
        [(self.address[0], in_first), (self.address[1], bytes - in_first)]
    }
}

/// What one or several batches came to.
pub(super) struct Took {
    pub(super) batches: usize,
    pub(super) packets: usize,
    /// Nothing more was there.
    pub(super) was_all: bool,
}

/// The receives that are posted, and the memory for payloads without one.
pub(super) struct Posted {
    sealed: bool,
    remainders: bool,
    places: Vec<Place>,
    /// Keeps every region alive that `places` points into.
    pub(super) regions: Regions,
    pub(super) scratch: Sge,
}

// SAFETY: the raw addresses point into regions that `regions` keeps alive, and are only given to the
// kernel or read through `&mut self`.
unsafe impl std::marker::Send for Posted {}

impl Posted {
    pub(super) fn new(config: &UdpConfig, regions: &Regions) -> Self {
        if config.scratch.len > 0 {
            regions.address(config.scratch); // panics now rather than at the first packet
        }
        Self {
            sealed: config.sealed,
            remainders: config.remainders,
            places: vec![Place::NONE; config.capacity],
            regions: regions.clone(),
            scratch: config.scratch,
        }
    }

    pub(super) fn post(&mut self, receives: &[Recv]) -> usize {
        for receive in receives {
            self.places[receive.id as usize] = self.memory(receive.sge);
        }
        receives.len()
    }

    pub(super) fn withdraw(&mut self, ids: &[u32]) {
        for id in ids {
            self.places[*id as usize] = Place::NONE;
        }
    }

    /// Bytes behind a payload.
    pub(super) fn trailer(&self) -> usize {
        if self.sealed { ICRC_BYTES } else { 0 }
    }

    /// The place that a steer chose, if it holds the payload; a posted one is thereby used up.
    pub(super) fn place_of(&mut self, to: To, payload: usize) -> Option<(Landed, Place)> {
        match to {
            To::Scratch => None,
            To::Posted(id) => {
                let posted = self.places.get_mut(id as usize)?;
                posted.holds(payload).then(|| (Landed::Slot(id), std::mem::replace(posted, Place::NONE)))
            }
            To::Memory(sges) => {
                let place = self.memory(sges);
                place.holds(payload).then_some((Landed::Memory(sges), place))
            }
        }
    }

    /// A place of registered memory. What others may write is none: a payload is checked where it lies.
    fn memory(&self, sges: [Sge; 2]) -> Place {
        if sges.iter().any(|sge| sge.len > 0 && self.regions.get(sge.region).is_shared()) {
            return Place::NONE;
        }
        let address = sges.map(|sge| if sge.len == 0 { std::ptr::null_mut() } else { self.regions.address(sge) });
        Place { address, len: sges.map(|sge| sge.len) }
    }

    /// Takes the place that a steer forecast, whatever its length.
    pub(super) fn take_place(&mut self, to: To) -> Option<(Landed, Place)> {
        match to {
            To::Scratch => None,
            To::Posted(id) => {
                let posted = self.places.get_mut(id as usize).filter(|place| place.len[0] > 0)?;
                Some((Landed::Slot(id), std::mem::replace(posted, Place::NONE)))
            }
            To::Memory(sges) => Some((Landed::Memory(sges), self.memory(sges))).filter(|(_, place)| place.len[0] > 0),
        }
    }

    /// Posts a place again that nothing has landed in.
    pub(super) fn put_back(&mut self, place: Option<(Landed, Place)>) {
        if let Some((Landed::Slot(id), place)) = place {
            self.places[id as usize] = place;
        }
    }

    /// Reads a payload once for its CRC, if anyone wants that, and judges the packet's ICRC with it. `segment` is
    /// the packet's position in its batch, `icrc` what it carries.
    pub(super) fn judge(
        &self,
        done: &mut Done<'_>,
        segment: usize,
        payload: [(*mut u8, usize); 2],
        icrc: Option<[u8; ICRC_BYTES]>,
        local: SocketAddr,
        sealer: &mut Sealer,
    ) {
        if self.sealed || self.remainders {
            for (address, len) in payload.into_iter().filter(|(_, len)| *len > 0) {
                // SAFETY: the kernel has just filled these bytes and is done with them; the place left `posted`, so
                // this process does not write it before its poster hears of it, and no other process can (`memory`).
                let bytes = unsafe { std::slice::from_raw_parts(address, len) };
                done.payload_crc = crc::register(done.payload_crc, bytes);
            }
        }
        if self.sealed {
            let received = icrc.map_or(0, u32::from_le_bytes);
            let (header, len) = (done.header, done.len as usize);
            done.icrc = sealer.check(done.source, local, segment, header, len, done.payload_crc, received);
            if done.icrc == Icrc::Bad {
                done.fault = Some(DropCause::BadIcrc);
            }
        }
    }
}
