//! Bursts to the transport, and what it does not take at once.

use super::core::{BURST, Core};
use crate::engine::{Burst, Outgoing};
use arrayvec::ArrayVec;
use shotline_memory::Sge;
use shotline_transport::{IoError, MAX_BATCH, PacketIo, Seal, Send};
use shotline_wire::bth::Opcode;

/// Payload bytes of the longest packet.
const MOST_PAYLOAD: u32 = 4096;
/// Memory for the payloads of a whole burst.
pub(super) const BURST_BYTES: u32 = BURST as u32 * MOST_PAYLOAD;
/// Bursts that are sent before packets are received again.
const BURSTS: usize = 4;

/// Bytes of a payload that it costs little to copy once more.
const SMALL: u32 = 512;

/// Whether a packet may be in one batch with the first one. A receiver sees the first header of a batch only, and finds
/// places for one queue pair: what is another's is copied once more. For small packets that is cheaper than a system
/// call of their own.
fn goes_along(burst: &Burst, first: &Outgoing, packet: &Outgoing) -> bool {
    /// Where the BTH has the destination queue pair.
    const DEST_QP: std::ops::Range<usize> = 5..8;
    packet.header.get(DEST_QP) == first.header.get(DEST_QP)
        || burst.elements(packet).iter().map(|sge| sge.len).sum::<u32>() <= SMALL
}

/// Puts acknowledgements behind a small request to the same queue pair: segments of one system call are equally long but
/// for the last, which may be shorter. The two are of opposite directions, whose order means nothing.
fn acknowledge_last(packets: &mut [Outgoing]) {
    let opcode = |packet: &Outgoing| packet.header.first().copied().and_then(Opcode::from_u8);
    for at in 1..packets.len() {
        let [first, second] = &packets[at - 1..=at] else { continue };
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
            packets.swap(at - 1, at);
        }
    }
}

/// Packets on their way to the transport.
pub(super) struct Sending {
    burst: Burst,
    /// Packets of the burst that the transport did not take: their payloads are in `memory`, since their requests may
    /// be complete already and their own memory somebody else's.
    kept: bool,
    /// First packet of the burst that was not taken.
    next: usize,
    memory: Sge,
    /// Where payloads are copied to first that the transport cannot reach, or that may change meanwhile.
    bounce: Sge,
    /// Why packets were given up last.
    pub(super) failure: Option<IoError>,
}

impl Sending {
    pub(super) fn new(memory: Sge, bounce: Sge) -> Self {
        Self { burst: Burst::default(), kept: false, next: 0, memory, bounce, failure: None }
    }

    /// Sends what queue pairs want to send. Returns whether anything went out.
    pub(super) fn run<P: PacketIo>(&mut self, core: &mut Core, io: &mut P) -> bool {
        let mut any = false;
        for _ in 0..BURSTS {
            if !self.kept {
                self.burst.clear();
                self.next = 0;
                core.fill(&mut self.burst);
                acknowledge_last(&mut self.burst.packets);
                self.copy_out(core);
            }
            if self.burst.is_empty() {
                break;
            }
            let before = self.next;
            self.hand_over(core, io);
            any |= self.next > before;
            if self.next < self.burst.len() {
                core.statistics.path_full += 1;
                self.keep(core);
                break;
            }
            self.kept = false;
        }
        any
    }

    /// Whether packets wait for room on the path, which nothing announces.
    pub(super) fn waits(&self) -> bool {
        self.kept
    }

    /// Gives the transport packets, runs to one destination at a time, until it takes no more.
    fn hand_over<P: PacketIo>(&mut self, core: &mut Core, io: &mut P) {
        while let Some(first) = self.burst.packets.get(self.next) {
            let to = first.to;
            let rest = &self.burst.packets[self.next..];
            let run = rest
                .iter()
                .take(MAX_BATCH)
                .take_while(|packet| packet.to == to && goes_along(&self.burst, first, packet));
            let sends: ArrayVec<Send<'_>, MAX_BATCH> = run
                .map(|packet| Send { header: &packet.header, gather: self.burst.elements(packet), seal: Seal::Compute })
                .collect();
            match io.send(to, &sends) {
                Ok(taken) => {
                    self.next += taken;
                    core.statistics.packets_out += taken as u64;
                    if taken < sends.len() {
                        return;
                    }
                }
                // One peer that cannot be reached must not stop the others. It is a loss on the way.
                Err(error) => {
                    core.statistics.unsendable += sends.len() as u64;
                    self.next += sends.len();
                    self.failure = Some(error);
                }
            }
        }
    }

    /// Copies payloads that the transport cannot reach, or that others may change, to where nobody else writes: the
    /// ICRC is made of the bytes before the kernel copies them, and only if they are the same is the packet taken. Of memory
    /// of this process it is found out by a packet that has to be sent again.
    fn copy_out(&mut self, core: &mut Core) {
        let Burst { packets, gather } = &mut self.burst;
        let mut at = 0;
        for packet in packets {
            let elements = &mut gather[packet.elements.0 as usize..][..packet.elements.1 as usize];
            let is_foreign = |element: &Sge| core.regions.get(element.region).is_shared();
            if !(packet.again && !elements.is_empty() || core.foreign && elements.iter().any(is_foreign)) {
                continue;
            }
            core.statistics.packets_copied += 1;
            for element in elements {
                let to = Sge { offset: self.bounce.offset + at, len: element.len, ..self.bounce };
                at += u64::from(element.len);
                core.regions.copy(*element, to);
                *element = to;
            }
        }
        core.statistics.bytes_moved += at;
    }

    /// Copies the payloads that were not taken.
    fn keep(&mut self, core: &mut Core) {
        if self.kept {
            return; // they are copied already
        }
        self.kept = true;
        let Burst { packets, gather } = &mut self.burst;
        let mut at = 0;
        for packet in &packets[self.next..] {
            for element in &mut gather[packet.elements.0 as usize..][..packet.elements.1 as usize] {
                let to = Sge { offset: self.memory.offset + at, len: element.len, ..self.memory };
                at += u64::from(element.len);
                core.regions.copy(*element, to);
                *element = to;
            }
        }
        core.statistics.bytes_moved += at;
    }
}
