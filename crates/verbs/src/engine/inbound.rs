//! The SEND or WRITE that is coming in, packet by packet: the same checks for reliable and unreliable connections,
//! which differ in what they make of a refusal.

use super::common::{Common, MAX_MESSAGE};
use super::places::{part, settle};
use super::refusal::Refusal;
use super::segment::Segment;
use super::{Ahead, Arrived, Context, RecvQueue, Slot};
use crate::api::{Completed, Completion, Status};
use shotline_memory::{Access, Grant, Protection, Refused};
use shotline_transport::Pick;
use shotline_wire::bth::Bth;

/// Bytes of a header without extensions, and with immediate data.
const PLAIN: u32 = Bth::LEN as u32;
const WITH_IMM: u32 = PLAIN + 4;

/// A message in progress.
#[derive(Clone, Copy, Debug)]
pub(super) enum Message {
    None,
    Send {
        slot: Slot,
        at: u32,
    },
    /// No grant: no bytes.
    Write {
        grant: Option<Grant>,
        at: u32,
        len: u32,
    },
}

/// The message that is coming in.
#[derive(Debug)]
pub(super) struct Inbound {
    message: Message,
    /// The receive of a message that was given up (UC): the next message's.
    spare: Option<Slot>,
}

impl Inbound {
    pub const fn new() -> Self {
        Self { message: Message::None, spare: None }
    }

    /// Whether a message is in progress.
    pub fn in_progress(&self) -> bool {
        !matches!(self.message, Message::None)
    }

    /// If a packet begins another message (UC), sets the one in progress aside; its receive is the next message's.
    pub fn set_aside(&mut self, begins: bool) -> Option<Message> {
        if !begins || !self.in_progress() {
            return None;
        }
        if let Message::Send { slot, .. } = self.message {
            self.spare = Some(slot);
        }
        Some(std::mem::replace(&mut self.message, Message::None))
    }

    /// Goes on with the message that was set aside: the other one did not begin.
    pub fn put_back(&mut self, message: Option<Message>) {
        if let Some(message) = message {
            if let Message::Send { .. } = message {
                self.spare = None;
            }
            self.message = message;
        }
    }

    /// Gives the message up and hands out its receive.
    pub fn take_receive(&mut self) -> Option<Slot> {
        self.set_aside(true);
        self.spare.take()
    }

    /// Takes the next packet, in the order of checks of Linux `rxe_resp.c`: sequence of opcodes, rights of the queue
    /// pair, receive, length, key; then the payload goes where it belongs. Whether the message is complete.
    pub fn accept(
        &mut self,
        ctx: &mut Context<'_>,
        common: &Common,
        packet: &Arrived<'_>,
        segment: Segment,
    ) -> Result<bool, Refusal> {
        if segment.first == self.in_progress() {
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
        ctx.books.bytes_in += u64::from(len);
        Ok(segment.last)
    }

    fn send(
        &mut self,
        ctx: &mut Context<'_>,
        common: &Common,
        packet: &Arrived<'_>,
        segment: Segment,
        len: u32,
        receive: Option<Slot>,
    ) -> Result<(), Refusal> {
        let (slot, at) = match (self.message, receive) {
            (Message::Send { slot, at }, _) => (slot, at),
            (Message::None, Some(slot)) => (slot, 0),
            _ => return Err(Refusal::Opcode),
        };
        let end = u64::from(at) + u64::from(len);
        if end > ctx.receives.bytes(slot).min(MAX_MESSAGE) {
            return Err(Refusal::TooLong);
        }
        let target = part(ctx.receives.elements(slot), at, len);
        if !settle(ctx.protection, ctx.books, packet.landed, len, target) {
            return Err(Refusal::Length);
        }
        // Last of what may be refused: a key that has ended could not be ended again when the packet comes once more.
        let invalidated = packet.extensions.invalidate.map(|key| key.0).filter(|_| segment.invalidate);
        if let Some(key) = invalidated {
            ctx.protection.invalidate(common.config.pd, common.number, key).map_err(Refusal::Memory)?;
        }
        if segment.first {
            self.take(ctx);
        }
        if segment.last {
            self.message = Message::None;
            self.complete(ctx, common, packet, slot, Completed::Recv, end as u32);
        } else {
            self.message = Message::Send { slot, at: end as u32 };
        }
        Ok(())
    }

    fn write(
        &mut self,
        ctx: &mut Context<'_>,
        common: &Common,
        packet: &Arrived<'_>,
        segment: Segment,
        len: u32,
    ) -> Result<(), Refusal> {
        let (grant, at, total) = match (self.message, packet.extensions.reth) {
            (Message::Write { grant, at, len }, _) => (grant, at, len),
            (Message::None, Some(reth)) => {
                if u64::from(reth.length) > MAX_MESSAGE {
                    return Err(Refusal::Length);
                }
                (None, 0, reth.length)
            }
            _ => return Err(Refusal::Opcode),
        };
        let rest = total - at;
        if if segment.last { len != rest } else { len >= rest } {
            return Err(Refusal::Length);
        }
        let grant = match (grant, packet.extensions.reth) {
            (Some(grant), _) if !ctx.protection.holds(&grant) => return Err(Refusal::Memory(Refused::UnknownKey)),
            // Without bytes the key is not looked at (IBTA volume 1, clause 9.7.4.1.6).
            (None, Some(reth)) if segment.first && total > 0 => {
                Some(common.remote(ctx, reth.r_key, reth.address, total, Access::REMOTE_WRITE)?)
            }
            (grant, _) => grant,
        };
        if let Some(grant) = &grant
            && !settle(ctx.protection, ctx.books, packet.landed, len, part(&[grant.sge], at, len))
        {
            return Err(Refusal::Length);
        }
        if !segment.last {
            self.message = Message::Write { grant, at: at + len, len: total };
            return Ok(());
        }
        self.message = Message::None;
        if let Some(grant) = grant {
            if let Some(usage) = ctx.protection.usage_mut(&grant) {
                usage.writes += 1;
                usage.bytes_in += u64::from(total);
            }
            ctx.completions.accessed(common.accessed(&grant, Completed::Write));
        }
        if let (true, Some(slot)) = (segment.imm, if segment.imm { self.take(ctx) } else { None }) {
            self.complete(ctx, common, packet, slot, Completed::RecvWriteImm, total);
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
        packet: &Arrived<'_>,
        slot: Slot,
        completed: Completed,
        bytes: u32,
    ) {
        let id = ctx.receives.finish(ctx.protection, slot);
        let completion = Completion {
            bytes,
            imm: packet.extensions.imm.map(|imm| imm.0),
            invalidated: packet.extensions.invalidate.map(|key| key.0),
            solicited: packet.bth.solicited,
            ..common.completion(id, Status::Success, completed)
        };
        ctx.completions.push(common.config.recv_cq, completion);
    }

    /// Chooses places for a batch whose first packet is the one that is due. The packets behind it are taken to be
    /// what an honest peer would send next; what they really are shows when they have landed.
    ///
    /// The place of a packet with an address depends on its own word, so it waits in scratch memory until that is
    /// checked. So does a payload with padding, which has bytes too many for its place; but the last packet of a SEND
    /// in a batch can bring up to 3 bytes of padding into the receive behind the message.
    pub fn pick(
        &self,
        protection: &Protection,
        receives: &RecvQueue,
        ahead: &Ahead<'_>,
        segment: Segment,
        mtu: u32,
        picks: &mut [Pick],
    ) {
        if segment.first == self.in_progress() {
            return;
        }
        match (segment.write, self.message) {
            (true, Message::Write { grant: Some(grant), at, len }) if protection.holds(&grant) => {
                pick_write(ahead, &grant, at, len, mtu, picks);
            }
            // The rest of a batch that a WRITE's first packet leads has shorter headers.
            (true, Message::None) if !segment.last => {
                picks.iter_mut().skip(1).for_each(|pick| pick.header_len = Some(PLAIN as u16));
            }
            (false, _) => self.pick_send(receives, ahead, segment, picks),
            _ => {}
        }
    }

    /// Nobody can see where in a batch a SEND ends and the next begins. A payload that lies too far on can be moved
    /// back, for what was there has been moved before; one that is moved ahead could fall on another that nobody has
    /// looked at yet. So a batch of messages of one packet takes a receive for each, and in any other one message goes
    /// on to the end of its receive and no further.
    fn pick_send(&self, receives: &RecvQueue, ahead: &Ahead<'_>, segment: Segment, picks: &mut [Pick]) {
        if ahead.bth.pad != 0 {
            return;
        }
        let mut following = self.spare.into_iter().chain((0..picks.len()).filter_map(|nth| receives.peek(nth)));
        let (mut slot, mut at) = match self.message {
            Message::Send { slot, at } => (Some(slot), at),
            _ => (following.next(), 0),
        };
        let header = ahead.bth.opcode.header_len() as u32;
        let count = picks.len();
        for (index, pick) in picks.iter_mut().enumerate() {
            let (Some(current), Some(payload)) = (slot, total(ahead, index, count).checked_sub(header)) else { return };
            pick.to = part(receives.elements(current), at, payload).place();
            if segment.last && (segment.first || index == 0) {
                (slot, at) = (following.next(), 0);
            } else {
                at += payload;
            }
        }
    }
}

fn pick_write(ahead: &Ahead<'_>, grant: &Grant, mut at: u32, len: u32, mtu: u32, picks: &mut [Pick]) {
    let count = picks.len();
    for (index, pick) in picks.iter_mut().enumerate() {
        let expected = (len - at).min(mtu);
        let total = total(ahead, index, count);
        let header = if index == 0 {
            ahead.bth.opcode.header_len() as u32
        } else if total == WITH_IMM + expected.next_multiple_of(4) {
            pick.header_len = Some(WITH_IMM as u16);
            WITH_IMM
        } else {
            PLAIN
        };
        if total != header + expected {
            return;
        }
        pick.to = part(&[grant.sge], at, expected).place();
        at += expected;
        if at == len {
            return;
        }
    }
}

/// Bytes after UDP, without the ICRC, of a packet of a batch.
fn total(ahead: &Ahead<'_>, index: usize, count: usize) -> u32 {
    if index + 1 == count { ahead.last } else { ahead.segment }
}

/// A packet's payload bytes without padding, if they are as many as such a packet has.
fn payload_len(packet: &Arrived<'_>, segment: Segment, mtu: u32) -> Result<u32, Refusal> {
    let len = packet.len.checked_sub(packet.bth.pad.into()).ok_or(Refusal::Length)?;
    let fits = match (segment.first, segment.last) {
        (_, false) => len == mtu,
        (true, true) => len <= mtu,
        (false, true) => 0 < len && len <= mtu,
    };
    if fits && packet.len.is_multiple_of(4) { Ok(len) } else { Err(Refusal::Length) }
}
