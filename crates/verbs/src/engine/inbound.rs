//! Reassembly of the incoming SEND or WRITE: the same checks for reliable and unreliable connections, which differ in
//! how they react to a rejected packet.

use super::common::{Common, MAX_MESSAGE};
use super::gather::{move_payload, sge_range};
use super::refusal::Refusal;
use super::segment::Segment;
use super::{BatchHead, Context, IncomingPacket, Part, RecvQueue, Slot};
use crate::api::{Completion, CompletionKind, Status};
use shotline_memory::{Access, AccessError, Grant, Protection};
use shotline_transport::Pick;
use shotline_wire::bth::Bth;

/// Header bytes without extensions, and with immediate data.
const BTH_BYTES: u32 = Bth::LEN as u32;
const BTH_IMM_BYTES: u32 = BTH_BYTES + 4;

/// Message in progress, with the receive slot and the bytes received so far.
#[derive(Clone, Copy, Debug)]
pub(super) enum Message {
    None,
    /// SEND.
    Send {
        slot: Slot,
        offset: u32,
    },
    /// WRITE; `grant` is `None` if the message has no bytes.
    Write {
        grant: Option<Grant>,
        offset: u32,
        len: u32,
    },
}

/// Incoming message of a connection.
#[derive(Debug)]
pub(super) struct Inbound {
    message: Message,
    /// The part of the operation that the message in progress goes on with, if its packets state it.
    next: Option<Part>,
    /// Receive of an abandoned message (UC), reused by the next message.
    spare: Option<Slot>,
}

impl Inbound {
    pub const fn new() -> Self {
        Self { message: Message::None, next: None, spare: None }
    }

    /// Returns `true` if a message is in progress.
    pub fn in_progress(&self) -> bool {
        !matches!(self.message, Message::None)
    }

    /// Sets the message in progress aside if a packet begins another one (UC); the next message uses its receive.
    pub fn set_aside(&mut self, begins: bool) -> Option<Message> {
        if !begins || !self.in_progress() {
            return None;
        }
        if let Message::Send { slot, .. } = self.message {
            self.spare = Some(slot);
        }
        Some(std::mem::replace(&mut self.message, Message::None))
    }

    /// Resumes the message that was set aside, because the other one was rejected.
    pub fn put_back(&mut self, message: Option<Message>) {
        if let Some(message) = message {
            if let Message::Send { .. } = message {
                self.spare = None;
            }
            self.message = message;
        }
    }

    /// Abandons the message and returns its receive.
    pub fn take_receive(&mut self) -> Option<Slot> {
        self.set_aside(true);
        self.spare.take()
    }

    /// Processes the next packet, in the order of checks of Linux `rxe_resp.c`: opcode sequence, rights of the queue
    /// pair, receive, length, key; then copies the payload to its destination. Returns `true` if the message is
    /// complete.
    pub fn accept(
        &mut self,
        ctx: &mut Context<'_>,
        common: &Common,
        packet: &IncomingPacket<'_>,
        segment: Segment,
    ) -> Result<bool, Refusal> {
        if segment.first == self.in_progress() || !segment.first && packet.part != self.next {
            return Err(Refusal::Opcode);
        }
        if segment.write {
            common.allows(Access::REMOTE_WRITE)?;
        }
        let receive = self.spare.or_else(|| ctx.receives.peek(0));
        if receive.is_none() && (if segment.write { segment.imm } else { segment.first }) {
            return Err(Refusal::NoReceive);
        }
        let len = payload_len(packet, segment, common.mtu)?;
        if segment.write {
            self.write(ctx, common, packet, segment, len)?;
        } else {
            self.send(ctx, common, packet, segment, len, receive)?;
        }
        self.next = packet.part.filter(|_| !segment.last).map(|part| part.next(len));
        ctx.counters.bytes_in += u64::from(len);
        Ok(segment.last)
    }

    fn send(
        &mut self,
        ctx: &mut Context<'_>,
        common: &Common,
        packet: &IncomingPacket<'_>,
        segment: Segment,
        len: u32,
        receive: Option<Slot>,
    ) -> Result<(), Refusal> {
        let (slot, offset) = match (self.message, receive) {
            (Message::Send { slot, offset }, _) => (slot, offset),
            (Message::None, Some(slot)) => (slot, 0),
            _ => return Err(Refusal::Opcode),
        };
        let end = u64::from(offset) + u64::from(len);
        if end > ctx.receives.bytes(slot).min(MAX_MESSAGE) {
            return Err(Refusal::TooLong);
        }
        let target = sge_range(ctx.receives.elements(slot), offset, len);
        if !move_payload(ctx.protection, ctx.counters, packet.payload, len, target) {
            return Err(Refusal::Length);
        }
        // This must be the last check that can fail: a retransmission of the packet could not invalidate the key again.
        let invalidated = packet.extensions.invalidate.map(|key| key.0).filter(|_| segment.invalidate);
        if let Some(key) = invalidated {
            ctx.protection.invalidate(common.config.pd, common.number, key).map_err(Refusal::Memory)?;
        }
        if segment.first {
            self.take(ctx);
        }
        if segment.last {
            self.message = Message::None;
            self.complete(ctx, common, packet, slot, CompletionKind::Recv, end as u32);
        } else {
            self.message = Message::Send { slot, offset: end as u32 };
        }
        Ok(())
    }

    fn write(
        &mut self,
        ctx: &mut Context<'_>,
        common: &Common,
        packet: &IncomingPacket<'_>,
        segment: Segment,
        len: u32,
    ) -> Result<(), Refusal> {
        let (grant, offset, total_len) = match (self.message, packet.extensions.reth) {
            (Message::Write { grant, offset, len }, _) => (grant, offset, len),
            (Message::None, Some(reth)) => {
                if u64::from(reth.length) > MAX_MESSAGE {
                    return Err(Refusal::Length);
                }
                (None, 0, reth.length)
            }
            _ => return Err(Refusal::Opcode),
        };
        let rest = total_len - offset;
        if if segment.last { len != rest } else { len >= rest } {
            return Err(Refusal::Length);
        }
        let grant = match (grant, packet.extensions.reth) {
            (Some(grant), _) if !ctx.protection.is_valid(&grant) => {
                return Err(Refusal::Memory(AccessError::UnknownKey));
            }
            // The key of an empty message is not checked (IBTA volume 1, C9-88).
            (None, Some(reth)) if segment.first && total_len > 0 => {
                Some(common.remote(ctx, reth.r_key, reth.address, total_len, Access::REMOTE_WRITE)?)
            }
            (grant, _) => grant,
        };
        if let Some(grant) = &grant
            && !move_payload(ctx.protection, ctx.counters, packet.payload, len, sge_range(&[grant.sge], offset, len))
        {
            return Err(Refusal::Length);
        }
        if !segment.last {
            self.message = Message::Write { grant, offset: offset + len, len: total_len };
            return Ok(());
        }
        self.message = Message::None;
        if let Some(grant) = grant {
            if let Some(usage) = ctx.protection.counters_mut(&grant) {
                usage.writes += 1;
                usage.bytes_in += u64::from(total_len);
            }
            ctx.completions.on_remote_access(common.remote_access(&grant, CompletionKind::Write));
        }
        if let (true, Some(slot)) = (segment.imm, if segment.imm { self.take(ctx) } else { None }) {
            self.complete(ctx, common, packet, slot, CompletionKind::RecvWriteImm, total_len);
        }
        Ok(())
    }

    fn take(&mut self, ctx: &mut Context<'_>) -> Option<Slot> {
        self.spare.take().or_else(|| ctx.receives.take())
    }

    fn complete(
        &mut self,
        ctx: &mut Context<'_>,
        common: &Common,
        packet: &IncomingPacket<'_>,
        slot: Slot,
        kind: CompletionKind,
        bytes: u32,
    ) {
        let id = ctx.receives.finish(ctx.protection, slot);
        let completion = Completion {
            bytes,
            imm: packet.extensions.imm.map(|imm| imm.0),
            invalidated: packet.extensions.invalidate.map(|key| key.0),
            solicited: packet.bth.solicited,
            ..common.completion(id, Status::Success, kind)
        };
        ctx.completions.push(common.config.recv_cq, completion);
    }

    /// Chooses destinations for a batch whose first packet is the expected one. The following packets are assumed to be
    /// what a conforming peer would send next; that is checked when they are received.
    ///
    /// The destination of a packet with an address depends on its own header, so its payload goes to scratch memory
    /// until that is checked. So does a payload with padding, which has too many bytes for its destination; but the
    /// last packet of a SEND in a batch can write up to 3 bytes of padding into the receive after the message.
    pub fn pick(
        &self,
        protection: &Protection,
        receives: &RecvQueue,
        head: &BatchHead<'_>,
        segment: Segment,
        mtu: u32,
        picks: &mut [Pick],
    ) {
        if segment.first == self.in_progress() {
            return;
        }
        match (segment.write, self.message) {
            (true, Message::Write { grant: Some(grant), offset, len }) if protection.is_valid(&grant) => {
                pick_write(head, &grant, offset, len, mtu, picks);
            }
            // The packets after the first packet of a WRITE have shorter headers.
            (true, Message::None) if !segment.last => {
                picks.iter_mut().skip(1).for_each(|pick| pick.header_len = Some(BTH_BYTES as u16));
            }
            (false, _) => self.pick_send(receives, head, segment, picks),
            _ => {}
        }
    }

    /// Chooses destinations for SENDs. Message boundaries inside a batch are not visible here. A payload written too
    /// far ahead can be moved back, because the bytes there have been moved before; one written too early could overlap
    /// another that has not been processed. So a batch of single-packet messages uses one receive per packet, and in
    /// any other batch one message continues to the end of its receive and not beyond.
    fn pick_send(&self, receives: &RecvQueue, head: &BatchHead<'_>, segment: Segment, picks: &mut [Pick]) {
        if head.bth.pad != 0 {
            return;
        }
        let mut following = self.spare.into_iter().chain((0..picks.len()).filter_map(|nth| receives.peek(nth)));
        let (mut slot, mut offset) = match self.message {
            Message::Send { slot, offset } => (Some(slot), offset),
            _ => (following.next(), 0),
        };
        let header = head.bth.opcode.header_len() as u32;
        let count = picks.len();
        for (index, pick) in picks.iter_mut().enumerate() {
            let (Some(current), Some(payload)) = (slot, total_len(head, index, count).checked_sub(header)) else {
                return;
            };
            pick.destination = sge_range(receives.elements(current), offset, payload).destination();
            if segment.last && (segment.first || index == 0) {
                (slot, offset) = (following.next(), 0);
            } else {
                offset += payload;
            }
        }
    }
}

fn pick_write(head: &BatchHead<'_>, grant: &Grant, mut offset: u32, len: u32, mtu: u32, picks: &mut [Pick]) {
    let count = picks.len();
    for (index, pick) in picks.iter_mut().enumerate() {
        let expected = (len - offset).min(mtu);
        let total_len = total_len(head, index, count);
        let header = if index == 0 {
            head.bth.opcode.header_len() as u32
        } else if total_len == BTH_IMM_BYTES + expected.next_multiple_of(4) {
            pick.header_len = Some(BTH_IMM_BYTES as u16);
            BTH_IMM_BYTES
        } else {
            BTH_BYTES
        };
        if total_len != header + expected {
            return;
        }
        pick.destination = sge_range(&[grant.sge], offset, expected).destination();
        offset += expected;
        if offset == len {
            return;
        }
    }
}

/// Returns the bytes after UDP, without the ICRC, of a packet of a batch.
fn total_len(head: &BatchHead<'_>, index: usize, count: usize) -> u32 {
    if index + 1 == count { head.last_len } else { head.segment_len }
}

/// Returns the payload length of a packet without padding, if it is valid for the packet's position in its message.
fn payload_len(packet: &IncomingPacket<'_>, segment: Segment, mtu: u32) -> Result<u32, Refusal> {
    let len = packet.len.checked_sub(packet.bth.pad.into()).ok_or(Refusal::Length)?;
    let fits = match (segment.first, segment.last) {
        (_, false) if packet.part.is_some() => 0 < len && len <= mtu,
        (_, false) => len == mtu,
        (true, true) => len <= mtu,
        (false, true) => 0 < len && len <= mtu,
    };
    if fits && packet.len.is_multiple_of(4) { Ok(len) } else { Err(Refusal::Length) }
}
