//! Buffers of a RoCEv2 datapath.

use super::transmit::BURST_BYTES;
use crate::api::VerbsError;
use shotline_memory::{Region, RegionId, Regions, Registrar, Sge};
use shotline_transport::{MAX_HEADER, SCRATCH_BYTES};

/// Length of the longest packet, plus the payload bytes that may have been received as its header.
const REALIGN_BYTES: u32 = SCRATCH_BYTES + MAX_HEADER as u32;

/// Buffers in the first region of the endpoint's table.
pub(super) struct Buffers {
    pub(super) regions: Regions,
    /// Payloads without a destination.
    pub(super) scratch: Sge,
    /// The packet whose header and payload are separated again.
    pub(super) realign: Sge,
    /// Payloads that the transport has not accepted.
    pub(super) backlog: Sge,
    /// Copies of outgoing payloads that the transport cannot read, or that may change during transmission.
    pub(super) bounce: Sge,
}

impl Buffers {
    pub(super) fn new() -> Result<Self, VerbsError> {
        let mut offset = 0;
        let mut cut = |len: u32| {
            let sge = Sge { region: RegionId(0), offset, len };
            offset += u64::from(len).next_multiple_of(4096);
            sge
        };
        let [scratch, realign, backlog, bounce] =
            [SCRATCH_BYTES, REALIGN_BYTES, BURST_BYTES, BURST_BYTES].map(&mut cut);
        let mut registrar = Registrar::new();
        registrar.add(Region::host(offset as usize)?);
        Ok(Self { regions: registrar.finish(), scratch, realign, backlog, bounce })
    }
}
