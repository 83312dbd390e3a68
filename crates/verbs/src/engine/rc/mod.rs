//! Reliable connections (IBTA volume 1, clause 9.7): everything arrives once and in order, or the requester hears why
//! not.
//!
//! A queue pair is two machines that share little: the `requester` sends requests and believes only answers to
//! them; the `responder` carries out its peer's.

mod requester;
mod responder;

use super::common::{Common, MAX_MESSAGE};
use super::flow::Flow;
use super::segment::Segment;
use super::{Ahead, Arrived, Burst, Context, Nanos, RecvQueue};
use crate::api::{Modify, PostError, QpConfig, QpState, SendWr, Status, VerbsError};
use requester::Requester;
use responder::{Responder, Verdict};
use shotline_memory::{Protection, Sge};
use shotline_transport::Pick;
use shotline_wire::bth::{Opcode, Service};

/// One queue pair.
#[derive(Debug)]
pub struct Rc {
    pub(in crate::engine) common: Common,
    flow: Flow,
    requester: Requester,
    responder: Responder,
}

impl Rc {
    pub(in crate::engine) fn new(number: u32, config: &QpConfig, lent: Sge) -> Self {
        Self {
            common: Common::new(number, config),
            flow: Flow::default(),
            requester: Requester::new(config, lent),
            responder: Responder::new(),
        }
    }

    pub(in crate::engine) fn modify(&mut self, ctx: &mut Context<'_>, change: &Modify) -> Result<(), VerbsError> {
        self.common.change(change)?;
        match change {
            Modify::Init { .. } => {}
            Modify::ReadyToReceive(attributes) => {
                self.responder.start(attributes);
                self.requester.ack_every = attributes.ack_every;
            }
            Modify::ReadyToSend(attributes) => self.requester.start(attributes, self.common.mtu),
            Modify::Error => {
                self.responder.stop();
                self.flush(ctx);
            }
            Modify::Reset => {
                self.common.forget(ctx, &mut self.requester.sends, self.responder.take_receive());
                self.responder.stop();
                self.requester.stop();
                self.flow = Flow::default();
            }
        }
        Ok(())
    }

    /// Limits the bytes that may be under way unacknowledged.
    pub(in crate::engine) fn limit(&mut self, bytes: u32) {
        self.requester.limit(bytes, self.common.mtu);
    }

    pub(in crate::engine) fn under_way(&self) -> u32 {
        self.requester.under_way()
    }

    pub(in crate::engine) fn owes(&self, now: Nanos) -> bool {
        self.flow.notifies() || self.responder.wants_to_send(now, &self.flow)
    }

    pub(in crate::engine) fn post_send(&mut self, ctx: &mut Context<'_>, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.common.posts()?;
        self.requester.post(ctx, wr, self.common.mtu, MAX_MESSAGE)?;
        if self.common.state != QpState::ReadyToSend {
            self.common.flush_sends(ctx, &mut self.requester.sends);
        }
        Ok(())
    }

    pub(in crate::engine) fn pick(
        &self,
        protection: &Protection,
        receives: &RecvQueue,
        ahead: &Ahead<'_>,
        picks: &mut [Pick],
    ) {
        if !self.common.receives() || ahead.bth.opcode.service() != Service::ReliableConnection {
            return;
        }
        match Segment::of(ahead.bth.opcode) {
            Some(segment) => self.responder.pick(protection, receives, ahead, segment, self.common.mtu, picks),
            None => self.requester.pick(ahead, self.common.mtu, picks),
        }
    }

    pub(in crate::engine) fn receive(&mut self, ctx: &mut Context<'_>, packet: &Arrived<'_>) {
        use Opcode::{
            RcAcknowledge, RcAtomicAcknowledge, RcReadResponseFirst, RcReadResponseLast, RcReadResponseMiddle,
            RcReadResponseOnly,
        };
        if !self.common.admits(packet, ctx.books) || self.flow.takes(ctx.now, packet, ctx.books) {
            return;
        }
        if packet.bth.opcode.service() != Service::ReliableConnection {
            ctx.books.refused.bad_opcode += 1;
            return;
        }
        match packet.bth.opcode {
            RcAcknowledge | RcAtomicAcknowledge | RcReadResponseFirst | RcReadResponseMiddle | RcReadResponseLast
            | RcReadResponseOnly => match self.requester.receive(ctx, &self.common, packet) {
                Ok(true) => {
                    self.common.learn_port(packet.source);
                    self.flow.accepted(ctx.now, packet);
                }
                Ok(false) => {}
                Err(status) => self.fail(ctx, status),
            },
            _ => {
                let is_due = self.responder.expects(packet.bth.psn);
                match self.responder.receive(ctx, &self.common, packet) {
                    Verdict::Accepted => {
                        // Of old sequence numbers there are so many that a stranger guesses one.
                        if is_due {
                            self.common.learn_port(packet.source);
                        }
                        self.flow.accepted(ctx.now, packet);
                    }
                    Verdict::Dropped => {}
                    Verdict::Fatal => {
                        self.common.state = QpState::Error;
                        self.flush(ctx);
                    }
                }
            }
        }
    }

    pub(in crate::engine) fn transmit(&mut self, ctx: &mut Context<'_>, burst: &mut Burst, most: usize) {
        let end = burst.len() + most;
        if burst.len() < end {
            self.flow.push_notification(burst, &self.common, ctx.books);
        }
        // Somebody who READs much shall not keep our own requests back.
        let both = self.requester.wants_to_send(ctx.now, &self.common, &self.flow);
        let share = if both { end - (end - burst.len()) / 2 } else { end };
        let sends = &self.requester.sends;
        if self.responder.transmit(ctx, &self.common, &mut self.flow, sends, burst, share) == Verdict::Fatal {
            self.common.state = QpState::Error;
            self.flush(ctx);
        }
        self.requester.transmit(ctx, &self.common, &mut self.flow, burst, end);
    }

    pub(in crate::engine) fn wants_to_send(&self, now: Nanos) -> bool {
        self.flow.notifies()
            || self.responder.wants_to_send(now, &self.flow)
            || self.requester.wants_to_send(now, &self.common, &self.flow)
    }

    pub(in crate::engine) fn deadline(&self) -> Option<Nanos> {
        let paced = self.responder.answers() || self.requester.may_send(&self.common);
        let pace = if paced { self.flow.deadline() } else { None };
        self.requester.deadline().into_iter().chain(pace).min()
    }

    pub(in crate::engine) fn expire(&mut self, ctx: &mut Context<'_>) {
        if let Err(status) = self.requester.expire(ctx) {
            self.fail(ctx, status);
        }
    }

    /// The oldest request has failed, and with it the connection.
    fn fail(&mut self, ctx: &mut Context<'_>, status: Status) {
        self.common.retire(ctx, &mut self.requester.sends, status);
        self.common.state = QpState::Error;
        self.responder.stop();
        self.flush(ctx);
    }

    fn flush(&mut self, ctx: &mut Context<'_>) {
        self.common.flush_sends(ctx, &mut self.requester.sends);
        self.requester.stop();
        if let Some(slot) = self.responder.take_receive() {
            self.common.fail_receive(ctx, slot, Status::Flushed);
        }
        self.common.flush_receives(ctx);
    }
}
