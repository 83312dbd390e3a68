//! Payloads and their places, for backends that have a packet's bytes in hand.

use crate::{Landed, Recv, To};
use shotline_memory::{Regions, Sge};
use shotline_wire::crc;

/// Posted places.
pub struct Places {
    pub regions: Regions,
    posted: Vec<Option<[Sge; 2]>>,
}

impl Places {
    /// Room for so many.
    pub fn new(capacity: usize, regions: &Regions) -> Self {
        Self { regions: regions.clone(), posted: vec![None; capacity] }
    }

    /// As [`crate::PacketIo::post`].
    pub fn post(&mut self, receives: &[Recv]) -> usize {
        for receive in receives {
            self.posted[receive.id as usize] = Some(receive.sge);
        }
        receives.len()
    }

    /// As [`crate::PacketIo::withdraw`].
    pub fn withdraw(&mut self, ids: &[u32]) {
        for id in ids {
            self.posted[*id as usize] = None;
        }
    }

    /// The memory of a place that is in one piece.
    #[cfg(feature = "dpdk")]
    pub fn whole(&self, to: To) -> Option<Sge> {
        let sges = match to {
            To::Scratch => None,
            To::Posted(id) => *self.posted.get(id as usize)?,
            To::Memory(sges) => Some(sges),
        };
        sges.filter(|sges| sges[1].len == 0).map(|sges| sges[0])
    }

    /// A payload has landed in a place.
    #[cfg(feature = "dpdk")]
    pub fn use_up(&mut self, to: To) {
        if let To::Posted(id) = to {
            self.withdraw(&[id]);
        }
    }

    /// Copies a payload to where a steer chose, or to the front of `scratch` if that does not hold it.
    pub fn land(&mut self, to: To, payload: &[u8], scratch: Sge) -> Landed {
        let fits = |sge: &[Sge; 2]| payload.len() <= sge[0].len as usize + sge[1].len as usize;
        let taken = match to {
            To::Scratch => None,
            To::Posted(id) => self
                .posted
                .get_mut(id as usize)
                .and_then(|posted| posted.take_if(|sge| fits(sge)))
                .map(|sge| (Landed::Slot(id), sge)),
            To::Memory(sges) => fits(&sges).then_some((Landed::Memory(sges), sges)),
        };
        let (landed, sges) = taken.unwrap_or_else(|| {
            let sge = Sge { len: payload.len() as u32, ..scratch };
            (Landed::Scratch(sge), [sge, Sge::EMPTY])
        });
        let (first, second) = payload.split_at(payload.len().min(sges[0].len as usize));
        for (sge, part) in sges.into_iter().zip([first, second]).filter(|(_, part)| !part.is_empty()) {
            self.regions.get(sge.region).write(sge.offset as usize, part);
        }
        landed
    }
}

/// The CRC remainder of a payload that is about to be sent.
pub fn remainder(regions: &Regions, gather: &[Sge]) -> u32 {
    gather.iter().fold(0, |register, sge| payload_crc(regions, register, *sge))
}

/// Runs a CRC register over bytes of registered memory, which whoever lent them to a transport leaves alone meanwhile.
/// Memory that others than this process may change ([`Region::is_shared`](shotline_memory::Region::is_shared)) is
/// copied first, block by block: there is never a slice of it.
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
    // SAFETY: the element is inside a region that the table keeps alive, of memory that only this process writes; who
    // lent it to the transport leaves it alone until it is sent, or has not heard yet that it was filled.
    let bytes = unsafe { std::slice::from_raw_parts(regions.address(sge), sge.len as usize) };
    crc::register(register, bytes)
}

/// Bytes of a payload.
pub fn len(gather: &[Sge]) -> usize {
    gather.iter().map(|sge| sge.len as usize).sum()
}
