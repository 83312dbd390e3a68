//! Packets whose header was longer or shorter than expected: part of the payload landed outside of its destination.
//!
//! They are rare (a sender that changes its headers, or a loss before one that did), so performance does not matter:
//! they are copied to separate memory, and to their destinations once all other payloads of the batch have moved away.

use shotline_memory::{Regions, Sge};

/// Payloads that wait to be copied to their destinations.
#[derive(Debug, Default)]
pub(crate) struct Resplit {
    payloads: Vec<(Vec<u8>, Sge)>,
}

impl Resplit {
    /// Returns a packet's bytes in order: what was split off as its header, and what landed as its payload.
    pub(crate) fn joined(regions: &Regions, header: &[u8], landed: Sge) -> Vec<u8> {
        let mut bytes = header.to_vec();
        bytes.resize(header.len() + landed.len as usize, 0);
        if landed.len > 0 {
            regions.get(landed.region).read(landed.offset as usize, &mut bytes[header.len()..]);
        }
        bytes
    }

    /// Stores a payload for its destination, which has the same length.
    pub(crate) fn push(&mut self, payload: &[u8], to: Sge) {
        debug_assert_eq!(payload.len(), to.len as usize);
        self.payloads.push((payload.to_vec(), to));
    }

    /// Writes all payloads to their destinations.
    pub(crate) fn carry_out(&mut self, regions: &Regions) {
        for (payload, to) in self.payloads.drain(..) {
            regions.get(to.region).write(to.offset as usize, &payload);
        }
    }
}
