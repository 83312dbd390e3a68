//! Unreliable connections (IBTA volume 1, clause 9.8.2): SEND and WRITE to one peer, in order, never acknowledged.
//!
//! A lost packet costs only its message: the remaining packets of that message are dropped, and the next message uses
//! its receive.

use super::common::{Common, MAX_MESSAGE};
use super::flow::Flow;
use super::inbound::Inbound;
use super::refusal::Refusal;
use super::segment::{self, PSN_MASK, Segment};
use super::sends::SendQueue;
use super::{BatchHead, Burst, Context, IncomingPacket, Nanos, RecvQueue};
use crate::api::{Modify, Operation, PostError, QpConfig, QpState, QpType, SendWr, Status, VerbsError};
use shotline_memory::{Protection, Sge};
use shotline_transport::Pick;
use shotline_wire::bth::Service;

/// UC queue pair.
#[derive(Debug)]
pub struct Uc {
    pub(super) common: Common,
    sends: SendQueue,
    flow: Flow,
    /// Request being sent, and the index of its next packet. Requests before it are sent, and complete in the next
    /// call.
    cursor: u64,
    index: u32,
    /// PSN of the next packet.
    psn: u32,
    inbound: Inbound,
    /// Expected PSN, modulo 2^24.
    epsn: u32,
}

impl Uc {
    pub(super) fn new(number: u32, config: &QpConfig, buffer: Sge) -> Self {
        Self {
            common: Common::new(number, config),
            sends: SendQueue::new(config, buffer),
            flow: Flow::default(),
            cursor: 0,
            index: 0,
            psn: 0,
            inbound: Inbound::new(),
            epsn: 0,
        }
    }

    pub(super) fn modify(&mut self, ctx: &mut Context<'_>, change: &Modify) -> Result<(), VerbsError> {
        self.common.change(change)?;
        match change {
            Modify::Init { .. } => {}
            Modify::ReadyToReceive(attributes) => self.epsn = attributes.psn & PSN_MASK,
            Modify::ReadyToSend(attributes) => self.psn = attributes.psn,
            Modify::Error => self.flush(ctx),
            Modify::Reset => {
                self.common.discard(ctx, &mut self.sends, self.inbound.take_receive());
                (self.cursor, self.index, self.flow) = (self.sends.end(), 0, Flow::default());
            }
        }
        Ok(())
    }

    pub(super) fn post_send(&mut self, ctx: &mut Context<'_>, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.common.check_can_post()?;
        match wr.operation {
            Operation::Send | Operation::SendImm(_) | Operation::Write(_) | Operation::WriteImm(..) => {}
            _ => return Err(PostError::Unsupported(QpType::Uc)),
        }
        let request = self.sends.post(ctx.protection, wr, MAX_MESSAGE)?;
        request.packets = segment::packet_count(request.len, self.common.mtu);
        if self.common.state != QpState::ReadyToSend {
            self.flush_sends(ctx);
        }
        Ok(())
    }

    pub(super) fn pick(&self, protection: &Protection, receives: &RecvQueue, head: &BatchHead<'_>, picks: &mut [Pick]) {
        let Some(segment) = Segment::of(head.bth.opcode) else { return };
        let is_next = head.bth.psn == self.epsn && self.common.can_receive();
        if is_next && head.bth.opcode.service() == Service::UnreliableConnection {
            self.inbound.pick(protection, receives, head, segment, self.common.mtu, picks);
        }
    }

    pub(super) fn receive(&mut self, ctx: &mut Context<'_>, packet: &IncomingPacket<'_>) {
        if !self.common.admits(packet, ctx.counters) || self.flow.handle_cnp(ctx.now, packet, ctx.counters) {
            return;
        }
        let segment = match packet.bth.opcode.service() {
            Service::UnreliableConnection => Segment::of(packet.bth.opcode),
            _ => None,
        };
        let Some(segment) = segment else {
            ctx.counters.drops.bad_opcode += 1;
            return;
        };
        // Only accepted packets change state: a packet that does not follow is dropped alone, and the message in
        // progress can still continue. If a packet of that message is missing, no other packet can replace it, so the
        // first packet of the next message ends it.
        let gap = packet.bth.psn != self.epsn;
        ctx.counters.out_of_sequence += u64::from(gap);
        if !segment.first && (gap || !self.inbound.in_progress()) {
            return;
        }
        let aside = self.inbound.set_aside(segment.first);
        match self.inbound.accept(ctx, &self.common, packet, segment) {
            Ok(_) => {
                ctx.counters.abandoned += u64::from(aside.is_some());
                self.epsn = segment::next_psn(packet.bth.psn);
                self.common.learn_port(packet.source);
                self.flow.on_accepted(ctx.now, packet);
            }
            Err(refusal) => {
                refusal.count(&mut ctx.counters.drops);
                self.inbound.put_back(aside);
                if self.common.config.strict && refusal == Refusal::TooLong {
                    self.fail(ctx);
                }
            }
        }
    }

    /// Fails the queue pair because the receive was too short: the only peer error for which IBTA requires this (clause
    /// 9.8.2.2); all others are dropped silently there, too.
    fn fail(&mut self, ctx: &mut Context<'_>) {
        if let Some(slot) = self.inbound.take_receive().or_else(|| ctx.receives.take()) {
            self.common.fail_receive(ctx, slot, Status::LocalLength);
        }
        self.common.state = QpState::Error;
        self.flush(ctx);
    }

    pub(super) fn transmit(&mut self, ctx: &mut Context<'_>, burst: &mut Burst, max: usize) {
        self.complete(ctx);
        let end = burst.len() + max;
        if burst.len() < end {
            self.flow.push_cnp(burst, &self.common, ctx.counters);
        }
        while burst.len() < end && self.cursor < self.sends.end() && self.flow.try_charge(ctx.now, self.common.mtu) {
            let packets = self.sends.get(self.cursor).packets;
            segment::push(burst, &self.common, &self.sends, self.cursor, self.index, self.psn, false);
            self.psn = self.psn.wrapping_add(1);
            self.index += 1;
            if self.index == packets {
                (self.cursor, self.index) = (self.cursor + 1, 0);
            }
        }
    }

    pub(super) fn has_packets_to_send(&self, now: Nanos) -> bool {
        let sendable = self.cursor < self.sends.end() && self.flow.is_ready(now);
        sendable || self.flow.has_pending_cnp() || self.sends.first() < self.cursor
    }

    pub(super) fn deadline(&self) -> Option<Nanos> {
        if self.cursor < self.sends.end() { self.flow.deadline() } else { None }
    }

    /// UC has no timeouts.
    pub(super) fn expire(&mut self, _ctx: &mut Context<'_>) {}

    /// Completes the requests emitted before: the endpoint has sent their packets since.
    fn complete(&mut self, ctx: &mut Context<'_>) {
        while self.sends.first() < self.cursor {
            self.common.retire(ctx, &mut self.sends, Status::Success);
        }
    }

    fn flush_sends(&mut self, ctx: &mut Context<'_>) {
        self.complete(ctx);
        self.common.flush_sends(ctx, &mut self.sends);
        (self.cursor, self.index) = (self.sends.end(), 0);
    }

    fn flush(&mut self, ctx: &mut Context<'_>) {
        self.flush_sends(ctx);
        if let Some(slot) = self.inbound.take_receive() {
            self.common.fail_receive(ctx, slot, Status::Flushed);
        }
        self.common.flush_receives(ctx);
    }
}
