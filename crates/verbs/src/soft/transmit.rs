//! Transmission of bursts, and the backlog of packets that the transport does not accept at once.

use super::counters::SoftCounters;
use crate::endpoint::{Core, MAX_BURST_PACKETS};
use crate::engine::{Burst, OutgoingPacket};
use arrayvec::ArrayVec;
use shotline_memory::Sge;
use shotline_transport::{IoError, MAX_BATCH, PacketIo, Seal, TxPacket};
use shotline_wire::bth::Opcode;

/// Maximum payload of a packet, in bytes.
const MAX_PAYLOAD_BYTES: u32 = 4096;
/// Memory for the payloads of a full burst, in bytes.
pub(super) const BURST_BYTES: u32 = MAX_BURST_PACKETS as u32 * MAX_PAYLOAD_BYTES;
/// Maximum number of bursts sent before packets are received again.
const MAX_BURSTS: usize = 4;

/// Maximum payload, in bytes, whose additional copy is cheaper than a system call.
const MAX_SMALL_PAYLOAD_BYTES: u32 = 512;

/// Returns `true` if a packet may share a batch with the first one. A receiver sees only the first header of a batch
/// and chooses destinations for one queue pair, so payloads for others are copied again. For small packets that is
/// cheaper than a separate system call.
fn fits_batch(burst: &Burst, first: &OutgoingPacket, packet: &OutgoingPacket) -> bool {
    /// Bytes of the destination queue pair in the BTH.
    const DEST_QP: std::ops::Range<usize> = 5..8;
    packet.header.get(DEST_QP) == first.header.get(DEST_QP)
        || burst.elements(packet).iter().map(|sge| sge.len).sum::<u32>() <= MAX_SMALL_PAYLOAD_BYTES
}

/// Moves an acknowledgement after the small request that follows it to the same address: the segments of one system
/// call have equal lengths except the last, which may be shorter. The two belong to opposite directions, so their order
/// does not matter.
fn move_acks_last(packets: &mut [OutgoingPacket]) {
    let opcode = |packet: &OutgoingPacket| packet.header.first().copied().and_then(Opcode::from_u8);
    for index in 1..packets.len() {
        let [first, second] = &packets[index - 1..=index] else { continue };
        let small = matches!(
            opcode(second),
            Some(
                Opcode::RcSendOnly
                    | Opcode::RcSendOnlyImm
                    | Opcode::RcWriteOnly
                    | Opcode::RcWriteOnlyImm
                    | Opcode::RcReadRequest
            )
        );
        if small && opcode(first) == Some(Opcode::RcAcknowledge) && first.to == second.to {
            packets.swap(index - 1, index);
        }
    }
}

/// The burst that is being passed to the transport.
pub(super) struct Transmitter {
    burst: Burst,
    /// The rest of the burst waits for the transport. Its payloads are in `backlog`, since their requests may be
    /// complete and the application may reuse its memory.
    has_backlog: bool,
    /// First packet of the burst that the transport has not accepted.
    next: usize,
    backlog: Sge,
    /// Destination of copies of payloads that the transport cannot read, or that may change during transmission.
    bounce: Sge,
    /// Last error of the transport's send.
    pub(super) last_error: Option<IoError>,
}

impl Transmitter {
    pub(super) fn new(backlog: Sge, bounce: Sge) -> Self {
        Self { burst: Burst::default(), has_backlog: false, next: 0, backlog, bounce, last_error: None }
    }

    /// Sends packets of the scheduled queue pairs. Returns `true` if the transport accepted any.
    pub(super) fn run<P: PacketIo>(&mut self, core: &mut Core, io: &mut P, counters: &mut SoftCounters) -> bool {
        let mut any = false;
        for _ in 0..MAX_BURSTS {
            if !self.has_backlog {
                self.burst.clear();
                self.next = 0;
                core.fill(0, &mut self.burst, MAX_BURST_PACKETS);
                move_acks_last(&mut self.burst.packets);
                self.copy_unstable(core, counters);
            }
            if self.burst.is_empty() {
                break;
            }
            let before = self.next;
            self.transmit(io, counters);
            any |= self.next > before;
            if self.next < self.burst.len() {
                counters.partial_sends += 1;
                self.save_backlog(core, counters);
                break;
            }
            self.has_backlog = false;
        }
        any
    }

    /// Returns `true` if packets wait for the transport, which does not announce when it accepts packets again.
    pub(super) fn has_backlog(&self) -> bool {
        self.has_backlog
    }

    /// Passes packets to the transport, in runs to one destination, until it accepts no more.
    fn transmit<P: PacketIo>(&mut self, io: &mut P, counters: &mut SoftCounters) {
        while let Some(first) = self.burst.packets.get(self.next) {
            let to = first.to;
            let rest = &self.burst.packets[self.next..];
            let run = rest
                .iter()
                .take(MAX_BATCH)
                .take_while(|packet| packet.to == to && fits_batch(&self.burst, first, packet));
            let sends: ArrayVec<TxPacket<'_>, MAX_BATCH> = run
                .map(|packet| TxPacket {
                    header: &packet.header,
                    gather: self.burst.elements(packet),
                    seal: Seal::Compute,
                })
                .collect();
            match io.send(to, &sends) {
                Ok(accepted) => {
                    self.next += accepted;
                    counters.packets_out += accepted as u64;
                    if accepted < sends.len() {
                        return;
                    }
                }
                // One unreachable peer must not stop the others. The packets count as lost.
                Err(error) => {
                    counters.unsendable += sends.len() as u64;
                    self.next += sends.len();
                    self.last_error = Some(error);
                }
            }
        }
    }

    /// Copies payloads that the transport cannot read, or that another process may change, to private memory: the ICRC
    /// is computed before the kernel copies the bytes, and the receiver accepts the packet only if they are unchanged.
    /// For memory of this process, a change shows only as a retransmission.
    fn copy_unstable(&mut self, core: &Core, counters: &mut SoftCounters) {
        let Burst { packets, gather } = &mut self.burst;
        let mut offset = 0;
        for packet in packets {
            let elements = &mut gather[packet.elements.0 as usize..][..packet.elements.1 as usize];
            let is_shared = |element: &Sge| core.regions().get(element.region).is_shared();
            if !(packet.is_retransmission && !elements.is_empty()
                || core.has_shared_regions() && elements.iter().any(is_shared))
            {
                continue;
            }
            counters.packets_copied += 1;
            for element in elements {
                let to = Sge { offset: self.bounce.offset + offset, len: element.len, ..self.bounce };
                offset += u64::from(element.len);
                core.regions().copy(*element, to);
                *element = to;
            }
        }
        counters.bytes_copied_again += offset;
    }

    /// Copies the payloads of packets that were not accepted.
    fn save_backlog(&mut self, core: &Core, counters: &mut SoftCounters) {
        if self.has_backlog {
            return; // copied before
        }
        self.has_backlog = true;
        let Burst { packets, gather } = &mut self.burst;
        let mut offset = 0;
        for packet in &packets[self.next..] {
            for element in &mut gather[packet.elements.0 as usize..][..packet.elements.1 as usize] {
                let to = Sge { offset: self.backlog.offset + offset, len: element.len, ..self.backlog };
                offset += u64::from(element.len);
                core.regions().copy(*element, to);
                *element = to;
            }
        }
        counters.bytes_copied_again += offset;
    }
}
