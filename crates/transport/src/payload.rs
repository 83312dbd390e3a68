//! Posted receives and payload CRCs, for backends that hold a packet's bytes.

use crate::{PayloadDestination, PayloadLocation, Recv};
use shotline_memory::{Regions, Sge};
use shotline_wire::crc;

/// The posted receives of a backend.
pub struct PostedReceives {
    pub regions: Regions,
    slots: Vec<Option<[Sge; 2]>>,
}

impl PostedReceives {
    /// Creates a table for `capacity` receives.
    pub fn new(capacity: usize, regions: &Regions) -> Self {
        Self { regions: regions.clone(), slots: vec![None; capacity] }
    }

    /// As [`crate::PacketIo::post`].
    pub fn post(&mut self, receives: &[Recv]) -> usize {
        for receive in receives {
            self.slots[receive.id as usize] = Some(receive.sge);
        }
        receives.len()
    }

    /// As [`crate::PacketIo::withdraw`].
    pub fn withdraw(&mut self, ids: &[u32]) {
        for id in ids {
            self.slots[*id as usize] = None;
        }
    }

    /// Returns the memory of a posted receive.
    #[cfg(feature = "dpdk")]
    pub fn get(&self, id: u32) -> Option<[Sge; 2]> {
        *self.slots.get(id as usize)?
    }

    /// Returns the memory of a destination if it is in one piece.
    #[cfg(feature = "dpdk")]
    pub fn contiguous(&self, to: PayloadDestination) -> Option<Sge> {
        let sges = match to {
            PayloadDestination::Scratch => None,
            PayloadDestination::Posted(id) => *self.slots.get(id as usize)?,
            PayloadDestination::Memory(sges) => Some(sges),
        };
        sges.filter(|sges| sges[1].len == 0).map(|sges| sges[0])
    }

    /// Marks a destination as used by a payload.
    #[cfg(feature = "dpdk")]
    pub fn consume(&mut self, to: PayloadDestination) {
        if let PayloadDestination::Posted(id) = to {
            self.withdraw(&[id]);
        }
    }

    /// Copies a payload to the destination that a steer chose, or to the front of `scratch` if it does not fit there.
    pub fn land(&mut self, to: PayloadDestination, payload: &[u8], scratch: Sge) -> PayloadLocation {
        let fits = |sge: &[Sge; 2]| payload.len() <= sge[0].len as usize + sge[1].len as usize;
        let taken = match to {
            PayloadDestination::Scratch => None,
            PayloadDestination::Posted(id) => self
                .slots
                .get_mut(id as usize)
                .and_then(|posted| posted.take_if(|sge| fits(sge)))
                .map(|sge| (PayloadLocation::Posted(id), sge)),
            PayloadDestination::Memory(sges) => fits(&sges).then_some((PayloadLocation::Memory(sges), sges)),
        };
        let (landed, sges) = taken.unwrap_or_else(|| {
            let sge = Sge { len: payload.len() as u32, ..scratch };
            (PayloadLocation::Scratch(sge), [sge, Sge::EMPTY])
        });
        let (first, second) = payload.split_at(payload.len().min(sges[0].len as usize));
        for (sge, part) in sges.into_iter().zip([first, second]).filter(|(_, part)| !part.is_empty()) {
            self.regions.get(sge.region).write(sge.offset as usize, part);
        }
        landed
    }
}

/// Returns the CRC remainder of a payload to send.
pub fn remainder(regions: &Regions, gather: &[Sge]) -> u32 {
    gather.iter().fold(0, |register, sge| payload_crc(regions, register, *sge))
}

/// Updates a CRC register over bytes of registered memory, which must not change during the call. Memory that another
/// process may change ([`Region::is_shared`](shotline_memory::Region::is_shared)) is first copied in blocks: a slice of
/// it is never formed.
pub fn payload_crc(regions: &Regions, mut register: u32, sge: Sge) -> u32 {
    if sge.len == 0 {
        return register;
    }
    let region = regions.get(sge.region);
    if region.is_shared() {
        let (mut block, mut at, end) = ([0; 4096], sge.offset as usize, sge.offset as usize + sge.len as usize);
        while at < end {
            let part = &mut block[..(end - at).min(4096)];
            region.read(at, part);
            register = crc::register(register, part);
            at += part.len();
        }
        return register;
    }
    // SAFETY: the element is inside a region that the table keeps alive, of memory that only this process writes. Its
    // owner does not write it until it is sent, or, if it was received, until the backend reports it.
    let bytes = unsafe { std::slice::from_raw_parts(regions.address(sge), sge.len as usize) };
    crc::register(register, bytes)
}

/// Returns the bytes of a payload.
pub fn len(gather: &[Sge]) -> usize {
    gather.iter().map(|sge| sge.len as usize).sum()
}
