//! Reliable connections (IBTA volume 1, clause 9.7): every request is executed once and in order, or the requester
//! receives an error.
//!
//! A queue pair consists of two state machines that share little: the `requester` sends requests and accepts only
//! responses to them; the `responder` executes the requests of its peer.

mod requester;
mod responder;

use super::common::{Common, MAX_MESSAGE};
use super::flow::Flow;
use super::refusal::Refusal;
use super::segment::Segment;
use super::{BatchHead, Burst, Context, IncomingPacket, Nanos, RecvQueue};
use crate::api::{Modify, PostError, QpConfig, QpState, SendWr, Status, VerbsError};
use requester::Requester;
use responder::{Responder, Verdict};
use shotline_memory::{Protection, Sge};
use shotline_transport::Pick;
use shotline_wire::bth::{Opcode, Service};
use std::net::SocketAddr;

/// RC queue pair.
#[derive(Debug)]
pub struct Rc {
    pub(in crate::engine) common: Common,
    flow: Flow,
    requester: Requester,
    responder: Responder,
}

impl Rc {
    pub(in crate::engine) fn new(number: u32, config: &QpConfig, buffer: Sge) -> Self {
        Self {
            common: Common::new(number, config),
            flow: Flow::default(),
            requester: Requester::new(config, buffer),
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
                self.common.discard(ctx, &mut self.requester.sends, self.responder.take_receive());
                self.responder.stop();
                self.requester.stop();
                self.flow = Flow::default();
            }
        }
        Ok(())
    }

    /// Limits the bytes in flight.
    pub(in crate::engine) fn set_window(&mut self, bytes: u32) {
        self.requester.set_window(bytes, self.common.mtu);
    }

    pub(in crate::engine) fn in_flight(&self) -> u32 {
        self.requester.in_flight()
    }

    pub(in crate::engine) fn has_response_pending(&self, now: Nanos) -> bool {
        self.flow.has_pending_cnp() || self.responder.has_packets_to_send(now, &self.flow)
    }

    pub(in crate::engine) fn post_send(&mut self, ctx: &mut Context<'_>, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.common.check_can_post()?;
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
        head: &BatchHead<'_>,
        picks: &mut [Pick],
    ) {
        if !self.common.can_receive() || head.bth.opcode.service() != Service::ReliableConnection {
            return;
        }
        match Segment::of(head.bth.opcode) {
            Some(segment) => self.responder.pick(protection, receives, head, segment, self.common.mtu, picks),
            None => self.requester.pick(head, self.common.mtu, picks),
        }
    }

    pub(in crate::engine) fn receive(&mut self, ctx: &mut Context<'_>, packet: &IncomingPacket<'_>) {
        use Opcode::{
            RcAcknowledge, RcAtomicAcknowledge, RcReadResponseFirst, RcReadResponseLast, RcReadResponseMiddle,
            RcReadResponseOnly,
        };
        if !self.common.admits(packet, ctx.counters) || self.flow.handle_cnp(ctx.now, packet, ctx.counters) {
            return;
        }
        if packet.bth.opcode.service() != Service::ReliableConnection {
            ctx.counters.drops.bad_opcode += 1;
            return;
        }
        match packet.bth.opcode {
            RcAcknowledge | RcAtomicAcknowledge | RcReadResponseFirst | RcReadResponseMiddle | RcReadResponseLast
            | RcReadResponseOnly => match self.requester.receive(ctx, &self.common, packet) {
                Ok(true) => {
                    self.common.learn_port(packet.source);
                    self.flow.on_accepted(ctx.now, packet);
                }
                Ok(false) => {}
                Err(status) => self.fail(ctx, status),
            },
            _ => {
                let is_expected = self.responder.is_expected(packet.bth.psn);
                match self.responder.receive(ctx, &self.common, packet) {
                    Verdict::Accepted => {
                        // Old sequence numbers span half the PSN space, so an attacker can guess one.
                        if is_expected {
                            self.common.learn_port(packet.source);
                        }
                        self.flow.on_accepted(ctx.now, packet);
                    }
                    Verdict::Dropped => {}
                    Verdict::Fatal => self.stop_receiving(ctx),
                }
            }
        }
    }

    /// Rejects a request of which only the PSN is valid, if it is the expected one.
    pub(in crate::engine) fn reject(&mut self, ctx: &mut Context<'_>, psn: u32, source: SocketAddr) {
        let is_admitted = self.common.can_receive() && self.common.is_from_peer(source);
        if is_admitted
            && self.responder.is_expected(psn)
            && self.responder.reject(ctx, &self.common, Refusal::Opcode) == Verdict::Fatal
        {
            self.stop_receiving(ctx);
        }
    }

    pub(in crate::engine) fn transmit(&mut self, ctx: &mut Context<'_>, burst: &mut Burst, max: usize) {
        let end = burst.len() + max;
        if burst.len() < end {
            self.flow.push_cnp(burst, &self.common, ctx.counters);
        }
        // A peer that issues many READs must not starve the local requests.
        let requester_ready = self.requester.has_packets_to_send(ctx.now, &self.common, &self.flow);
        let share = if requester_ready { end - (end - burst.len()) / 2 } else { end };
        let sends = &self.requester.sends;
        if self.responder.transmit(ctx, &self.common, &mut self.flow, sends, burst, share) == Verdict::Fatal {
            self.stop_receiving(ctx);
        }
        self.requester.transmit(ctx, &self.common, &mut self.flow, burst, end);
    }

    pub(in crate::engine) fn has_packets_to_send(&self, now: Nanos) -> bool {
        self.flow.has_pending_cnp()
            || self.responder.has_packets_to_send(now, &self.flow)
            || self.requester.has_packets_to_send(now, &self.common, &self.flow)
    }

    pub(in crate::engine) fn deadline(&self) -> Option<Nanos> {
        let paced = self.responder.has_responses() || self.requester.may_send(&self.common);
        let pace = if paced { self.flow.deadline() } else { None };
        self.requester.deadline().into_iter().chain(pace).min()
    }

    pub(in crate::engine) fn expire(&mut self, ctx: &mut Context<'_>) {
        if let Err(status) = self.requester.expire(ctx) {
            self.fail(ctx, status);
        }
    }

    /// Fails the oldest request, and with it the connection.
    fn fail(&mut self, ctx: &mut Context<'_>, status: Status) {
        self.common.retire(ctx, &mut self.requester.sends, status);
        self.common.state = QpState::Error;
        self.responder.stop();
        self.flush(ctx);
    }

    /// Fails the connection because of a request of the peer, which is still answered.
    fn stop_receiving(&mut self, ctx: &mut Context<'_>) {
        self.common.state = QpState::Error;
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
