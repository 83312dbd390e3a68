//! Unreliable connections (IBTA volume 1, clause 9.8.2): SEND and WRITE to one peer, in order, never acknowledged.
//!
//! A lost packet costs its message and no more: what is left of it is dropped, and its receive takes the next one.

use super::common::{Common, MAX_MESSAGE};
use super::flow::Flow;
use super::inbound::Inbound;
use super::refusal::Refusal;
use super::segment::{self, PSN_MASK, Segment};
use super::sends::SendQueue;
use super::{Ahead, Arrived, Burst, Context, Nanos, RecvQueue};
use crate::api::{Modify, Operation, PostError, QpConfig, QpState, QpType, SendWr, Status, VerbsError};
use shotline_memory::{Protection, Sge};
use shotline_transport::Pick;
use shotline_wire::bth::Service;

/// One queue pair.
#[derive(Debug)]
pub struct Uc {
    pub(super) common: Common,
    sends: SendQueue,
    flow: Flow,
    /// The request that is being sent, and its next packet. Requests before it are sent, and complete in the next call.
    cursor: u64,
    index: u32,
    /// The next packet's sequence number.
    psn: u32,
    inbound: Inbound,
    /// The sequence number that is expected, modulo 2^24.
    expected: u32,
}

impl Uc {
    pub(super) fn new(number: u32, config: &QpConfig, lent: Sge) -> Self {
        Self {
            common: Common::new(number, config),
            sends: SendQueue::new(config, lent),
            flow: Flow::default(),
            cursor: 0,
            index: 0,
            psn: 0,
            inbound: Inbound::new(),
            expected: 0,
        }
    }

    pub(super) fn modify(&mut self, ctx: &mut Context<'_>, change: &Modify) -> Result<(), VerbsError> {
        self.common.change(change)?;
        match change {
            Modify::Init { .. } => {}
            Modify::ReadyToReceive(attributes) => self.expected = attributes.psn & PSN_MASK,
            Modify::ReadyToSend(attributes) => self.psn = attributes.psn,
            Modify::Error => self.flush(ctx),
            Modify::Reset => {
                self.common.forget(ctx, &mut self.sends, self.inbound.take_receive());
                (self.cursor, self.index, self.flow) = (self.sends.end(), 0, Flow::default());
            }
        }
        Ok(())
    }

    pub(super) fn post_send(&mut self, ctx: &mut Context<'_>, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.common.posts()?;
        match wr.operation {
            Operation::Send | Operation::SendImm(_) | Operation::Write(_) | Operation::WriteImm(..) => {}
            _ => return Err(PostError::Unsupported(QpType::Uc)),
        }
        let request = self.sends.post(ctx.protection, wr, MAX_MESSAGE)?;
        request.packets = segment::packets(request.len, self.common.mtu);
        if self.common.state != QpState::ReadyToSend {
            self.flush_sends(ctx);
        }
        Ok(())
    }

    pub(super) fn pick(&self, protection: &Protection, receives: &RecvQueue, ahead: &Ahead<'_>, picks: &mut [Pick]) {
        let Some(segment) = Segment::of(ahead.bth.opcode) else { return };
        let due = ahead.bth.psn == self.expected && self.common.receives();
        if due && ahead.bth.opcode.service() == Service::UnreliableConnection {
            self.inbound.pick(protection, receives, ahead, segment, self.common.mtu, picks);
        }
    }

    pub(super) fn receive(&mut self, ctx: &mut Context<'_>, packet: &Arrived<'_>) {
        if !self.common.admits(packet, ctx.books) || self.flow.takes(ctx.now, packet, ctx.books) {
            return;
        }
        let segment = match packet.bth.opcode.service() {
            Service::UnreliableConnection => Segment::of(packet.bth.opcode),
            _ => None,
        };
        let Some(segment) = segment else {
            ctx.books.refused.bad_opcode += 1;
            return;
        };
        // Only what is accepted changes anything: a packet that does not follow is dropped by itself, and the message
        // that it does not follow can still go on. If one of that is missing, no other packet can take its place, so
        // the next message's first packet ends it.
        let gap = packet.bth.psn != self.expected;
        ctx.books.out_of_sequence += u64::from(gap);
        if !segment.first && (gap || !self.inbound.in_progress()) {
            return;
        }
        let before = self.inbound.set_aside(segment.first);
        match self.inbound.accept(ctx, &self.common, packet, segment) {
            Ok(_) => {
                ctx.books.abandoned += u64::from(before.is_some());
                self.expected = segment::next(packet.bth.psn);
                self.common.learn_port(packet.source);
                self.flow.accepted(ctx.now, packet);
            }
            Err(refusal) => {
                refusal.count(&mut ctx.books.refused);
                self.inbound.put_back(before);
                if self.common.config.strict && refusal == Refusal::TooLong {
                    self.fail(ctx);
                }
            }
        }
    }

    /// The receive was too short: the one error of a peer that the InfiniBand rules want the queue pair to fail for
    /// (clause 9.8.2.2); all others are silent there, too.
    fn fail(&mut self, ctx: &mut Context<'_>) {
        if let Some(slot) = self.inbound.take_receive().or_else(|| ctx.receives.take()) {
            self.common.fail_receive(ctx, slot, Status::LocalLength);
        }
        self.common.state = QpState::Error;
        self.flush(ctx);
    }

    pub(super) fn transmit(&mut self, ctx: &mut Context<'_>, burst: &mut Burst, most: usize) {
        self.complete(ctx);
        let end = burst.len() + most;
        if burst.len() < end {
            self.flow.push_notification(burst, &self.common, ctx.books);
        }
        while burst.len() < end && self.cursor < self.sends.end() && self.flow.send(ctx.now, self.common.mtu) {
            let packets = self.sends.get(self.cursor).packets;
            segment::push(burst, &self.common, &self.sends, self.cursor, self.index, self.psn, false);
            self.psn = self.psn.wrapping_add(1);
            self.index += 1;
            if self.index == packets {
                (self.cursor, self.index) = (self.cursor + 1, 0);
            }
        }
    }

    pub(super) fn wants_to_send(&self, now: Nanos) -> bool {
        let sendable = self.cursor < self.sends.end() && self.flow.ready(now);
        sendable || self.flow.notifies() || self.sends.first() < self.cursor
    }

    pub(super) fn deadline(&self) -> Option<Nanos> {
        if self.cursor < self.sends.end() { self.flow.deadline() } else { None }
    }

    /// Nothing of an unreliable connection is ever late.
    pub(super) fn expire(&mut self, _ctx: &mut Context<'_>) {}

    /// Completes what was sent before: the endpoint has sent its packets since.
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
