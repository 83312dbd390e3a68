//! Posted receives as addresses, and verification of payloads that have landed.

use super::config::UdpConfig;
use crate::seal::{ICRC_BYTES, Sealer};
use crate::{Icrc, PayloadDestination, PayloadLocation, Recv, RxPacket};
use shotline_memory::{Regions, Sge};
use shotline_wire::crc;
use shotline_wire::shot::DropCause;
use std::net::SocketAddr;

/// A posted buffer as raw addresses. Length 0: nothing is posted.
#[derive(Clone, Copy)]
pub(super) struct RawSlot {
    pub(super) address: [*mut u8; 2],
    pub(super) len: [u32; 2],
}

impl RawSlot {
    const NONE: Self = Self { address: [std::ptr::null_mut(); 2], len: [0; 2] };

    fn holds(&self, bytes: usize) -> bool {
        self.len[0] > 0 && bytes <= self.len[0] as usize + self.len[1] as usize
    }

    /// Returns the first `bytes` bytes of the buffer.
    pub(super) fn pieces(&self, bytes: usize) -> [(*mut u8, usize); 2] {
        let in_first = bytes.min(self.len[0] as usize);
        [(self.address[0], in_first), (self.address[1], bytes - in_first)]
    }
}

/// Result of receiving one or several batches.
pub(super) struct Progress {
    pub(super) batches: usize,
    pub(super) packets: usize,
    /// The socket's queue was empty afterwards.
    pub(super) is_drained: bool,
}

/// The posted receives, and the scratch memory for payloads without a destination.
pub(super) struct ReceiveQueue {
    sealed: bool,
    remainders: bool,
    slots: Vec<RawSlot>,
    /// Keeps every region alive that `slots` points into.
    pub(super) regions: Regions,
    pub(super) scratch: Sge,
}

// SAFETY: the raw addresses point into regions that `regions` keeps alive, and are only passed to the kernel or read
// through `&mut self`.
unsafe impl std::marker::Send for ReceiveQueue {}

impl ReceiveQueue {
    pub(super) fn new(config: &UdpConfig, regions: &Regions) -> Self {
        if config.scratch.len > 0 {
            regions.address(config.scratch); // panics now rather than at the first packet
        }
        Self {
            sealed: config.sealed,
            remainders: config.remainders,
            slots: vec![RawSlot::NONE; config.capacity],
            regions: regions.clone(),
            scratch: config.scratch,
        }
    }

    pub(super) fn post(&mut self, receives: &[Recv]) -> usize {
        for receive in receives {
            self.slots[receive.id as usize] = self.memory(receive.sge);
        }
        receives.len()
    }

    pub(super) fn withdraw(&mut self, ids: &[u32]) {
        for id in ids {
            self.slots[*id as usize] = RawSlot::NONE;
        }
    }

    /// Returns the bytes after a payload.
    pub(super) fn trailer(&self) -> usize {
        if self.sealed { ICRC_BYTES } else { 0 }
    }

    /// Takes the destination that a steer chose, if the payload fits in it; a posted buffer is thereby consumed.
    pub(super) fn take_fitting(
        &mut self,
        to: PayloadDestination,
        payload: usize,
    ) -> Option<(PayloadLocation, RawSlot)> {
        match to {
            PayloadDestination::Scratch => None,
            PayloadDestination::Posted(id) => {
                let posted = self.slots.get_mut(id as usize)?;
                posted.holds(payload).then(|| (PayloadLocation::Posted(id), std::mem::replace(posted, RawSlot::NONE)))
            }
            PayloadDestination::Memory(sges) => {
                let slot = self.memory(sges);
                slot.holds(payload).then_some((PayloadLocation::Memory(sges), slot))
            }
        }
    }

    /// Returns the addresses of registered memory. Memory that another process may write yields an empty slot: a
    /// payload is verified in place.
    fn memory(&self, sges: [Sge; 2]) -> RawSlot {
        if sges.iter().any(|sge| sge.len > 0 && self.regions.get(sge.region).is_shared()) {
            return RawSlot::NONE;
        }
        let address = sges.map(|sge| if sge.len == 0 { std::ptr::null_mut() } else { self.regions.address(sge) });
        RawSlot { address, len: sges.map(|sge| sge.len) }
    }

    /// Takes the destination that a steer predicted, of any length.
    pub(super) fn take_any(&mut self, to: PayloadDestination) -> Option<(PayloadLocation, RawSlot)> {
        match to {
            PayloadDestination::Scratch => None,
            PayloadDestination::Posted(id) => {
                let posted = self.slots.get_mut(id as usize).filter(|slot| slot.len[0] > 0)?;
                Some((PayloadLocation::Posted(id), std::mem::replace(posted, RawSlot::NONE)))
            }
            PayloadDestination::Memory(sges) => {
                Some((PayloadLocation::Memory(sges), self.memory(sges))).filter(|(_, slot)| slot.len[0] > 0)
            }
        }
    }

    /// Posts a buffer again that nothing has landed in.
    pub(super) fn repost(&mut self, slot: Option<(PayloadLocation, RawSlot)>) {
        if let Some((PayloadLocation::Posted(id), slot)) = slot {
            self.slots[id as usize] = slot;
        }
    }

    /// Reads a payload once for its CRC, if enabled, and verifies the packet's ICRC with it. `segment` is the packet's
    /// position in its batch, `icrc` the received value.
    pub(super) fn verify(
        &self,
        done: &mut RxPacket<'_>,
        segment: usize,
        payload: [(*mut u8, usize); 2],
        icrc: Option<[u8; ICRC_BYTES]>,
        local: SocketAddr,
        sealer: &mut Sealer,
    ) {
        if self.sealed || self.remainders {
            for (address, len) in payload.into_iter().filter(|(_, len)| *len > 0) {
                // SAFETY: the kernel has finished writing these bytes; the buffer is no longer posted, so this process
                // does not write it before it is reported, and no other process can (`memory`).
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
