//! State of a port with header split.

use super::header::DATAGRAM_HEADERS;
use super::plan::Plan;
use crate::dpdk::sys;
use crate::{IoError, MAX_HEADER};
use shotline_memory::{Region, Regions, Sge};
use std::sync::Arc;

/// Buffers that a driver takes at a time.
pub(super) const GROUP: usize = 8;
/// Multiple that addresses and lengths of a device's buffers must be.
const ALIGNMENT: u32 = 8;
/// Most bytes of a buffer.
const MAX_PAYLOAD: u32 = 16_376;

/// Shape of the packets of a port with header split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitShape {
    /// Bytes between the UDP header and the payload.
    pub header: u16,
    /// Payload bytes of a packet, except shorter ones.
    pub payload: u32,
}

impl SplitShape {
    /// Returns the bytes of a frame before its payload.
    fn head(self) -> u16 {
        DATAGRAM_HEADERS as u16 + self.header
    }

    /// Returns `true` if a packet card can split frames there.
    pub(in crate::dpdk) fn is_possible(self) -> bool {
        let header = usize::from(self.header) <= MAX_HEADER && matches!(self.head() % 8, 0 | 6);
        header && self.payload.is_multiple_of(ALIGNMENT) && (1..=MAX_PAYLOAD).contains(&self.payload)
    }
}

/// State of a port with header split.
pub struct Split {
    pub(super) shape: SplitShape,
    pub(super) plan: Plan,
    /// By buffer: address of the receive whose memory it was given with, or 0.
    pub(super) addresses: Vec<usize>,
    /// Regions that the device can access.
    mapped: Vec<Arc<Region>>,
    /// Number of buffers that the device's ring holds.
    pub(super) ring: usize,
    pub(super) is_started: bool,
    /// Error of a call that could not return it.
    pub(super) error: Option<IoError>,
}

impl Split {
    /// Creates the state of a port with this number of descriptors, for packets that [can be split](SplitShape::is_possible).
    pub fn new(shape: SplitShape, descriptors: u16) -> Self {
        // Two descriptors have one buffer for a header and one for a payload.
        let ring = usize::from(descriptors) / 2;
        let buffers = ring + sys::BURST * sys::PARTS / 4 + GROUP;
        Self {
            shape,
            plan: Plan::new(buffers as u32),
            addresses: vec![0; buffers],
            mapped: Vec::new(),
            ring,
            is_started: false,
            error: None,
        }
    }

    /// Completes the configuration of the port.
    pub fn configure(&self, config: &mut sys::Config) {
        config.split_header = self.shape.head();
        config.split_payload = self.shape.payload as u16;
        config.split_buffers = self.addresses.len() as u32;
        config.rx_buffer_bytes = 256;
    }

    /// Lets the device access the regions that it can.
    pub fn map(&mut self, port: &mut sys::Port, is_pci: bool, regions: &Regions) {
        for (_, region) in regions.iter() {
            let is_candidate = region.is_mapped() && region.is_writable() && (is_pci || region.fd().is_some());
            if !is_candidate || self.mapped.iter().any(|mapped| Arc::ptr_eq(mapped, region)) {
                continue;
            }
            // SAFETY: `mapped` keeps the region, and is dropped after the port: see `DpdkIo`.
            if unsafe { port.map(region.address(0, region.len()), region.len()) } {
                self.mapped.push(Arc::clone(region));
            }
        }
    }

    /// Returns the address of a receive if the device can write a whole buffer there.
    pub(super) fn address(&self, regions: &Regions, [first, second]: [Sge; 2]) -> Option<*mut u8> {
        let follows = second.region == first.region && second.offset == first.offset + u64::from(first.len);
        let len = first.len + second.len;
        if len < self.shape.payload || (second.len > 0 && !follows) {
            return None;
        }
        let region = regions.get(first.region);
        let is_mapped = self.mapped.iter().any(|mapped| Arc::ptr_eq(mapped, region));
        let address = is_mapped.then(|| region.address(first.offset as usize, len as usize))?;
        (address as usize).is_multiple_of(ALIGNMENT as usize).then_some(address)
    }

    /// Returns the receive that a packet with these parts has landed in, if it is the one to be filled.
    pub(super) fn landed_in(&self, parts: &[sys::Part], payload_len: u32) -> Option<u32> {
        let first = parts.first().filter(|first| payload_len <= first.len)?;
        let id = self.plan.in_place(&[first.buffer])?;
        (self.addresses[first.buffer as usize] == first.address()).then_some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_headers_and_payloads_of_the_cards_blocks_are_possible() {
        for (header, payload, is_possible) in [
            (20, 4096, true),
            (22, 4096, true),
            (24, 4096, false), // those of RoCEv2 with an immediate
            (20, 4092, false),
            (20, 0, false),
            (20, 16_384, false),
            (134, 4096, false),
            (u16::MAX, 4096, false),
        ] {
            assert_eq!(SplitShape { header, payload }.is_possible(), is_possible, "{header} {payload}");
        }
    }
}
