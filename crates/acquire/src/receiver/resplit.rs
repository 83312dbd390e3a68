//! Packets whose header was longer or shorter than was foretold: part of the payload landed beside its place.
//!
//! They are rare (a sender that changes its headers, or a loss before one that did), so they take the long way:
//! through memory of their own, and into their places when all other payloads of the batch have moved out of there.

use shotline_memory::{Regions, Sge};

/// Payloads on the long way.
#[derive(Debug, Default)]
pub(crate) struct Resplit {
    payloads: Vec<(Vec<u8>, Sge)>,
}

impl Resplit {
    /// A packet's bytes as they came: what was taken for its header, and what landed as its payload.
    pub(crate) fn joined(regions: &Regions, header: &[u8], landed: Sge) -> Vec<u8> {
        let mut bytes = header.to_vec();
        bytes.resize(header.len() + landed.len as usize, 0);
        if landed.len > 0 {
            regions.get(landed.region).read(landed.offset as usize, &mut bytes[header.len()..]);
        }
        bytes
    }

    /// Keeps a payload for its place, which has as many bytes.
    pub(crate) fn push(&mut self, payload: &[u8], to: Sge) {
        debug_assert_eq!(payload.len(), to.len as usize);
        self.payloads.push((payload.to_vec(), to));
    }

    /// Writes all payloads into their places.
    pub(crate) fn carry_out(&mut self, regions: &Regions) {
        for (payload, to) in self.payloads.drain(..) {
            regions.get(to.region).write(to.offset as usize, &payload);
        }
    }
}
