//! Unreliable datagrams: messages of one packet, from and to any queue pair (IBTA volume 1, clauses 9.8.3 and 10.2.5).
//!
//! - A datagram is at most one MTU long. It is accepted if its Q_Key is the queue pair's and a posted receive can hold
//!   it; otherwise it is dropped and counted, and the receive stays posted. A received packet never
//!   causes an error state, so [`QpConfig::strict`] has no effect here, and is never acknowledged: the only response is
//!   a congestion notification for a marked one.
//! - A destination's Q_Key with the high bit set means the queue pair's own ([`Destination::q_key`]).
//! - The message starts at the beginning of the receive. There is no 40-byte GRH area as with hardware: the sender's
//!   address and queue pair are in the completion ([`Completion::source`]), which is only as trustworthy as the
//!   network. Up to three bytes after a message may be overwritten by its padding, if the receive is long enough.
//! - One rate for all destinations: a congestion notification slows all of them down.
//!
//! [`Destination::q_key`]: crate::api::Destination::q_key

use super::common::Common;
use super::congestion::{Congestion, Notifier, notification};
use super::gather::{move_payload, sge_range};
use super::sends::SendQueue;
use super::{BatchHead, Burst, Context, IncomingPacket, Nanos, Part, RecvQueue};
use crate::api::{
    Completion, CompletionKind, Modify, Operation, PostError, QpConfig, QpState, QpType, SendWr, Status, VerbsError,
};
use shotline_memory::{Protection, Sge};
use shotline_transport::Pick;
use shotline_wire::bth::{Opcode, Service};
use shotline_wire::roce::UdHeader;
use std::net::SocketAddr;

/// A Q_Key with this bit stands for the sending queue pair's own.
const OWN_Q_KEY: u32 = 1 << 31;
const PSN_MASK: u32 = (1 << 24) - 1;

/// UD queue pair.
#[derive(Debug)]
pub struct Ud {
    pub(super) common: Common,
    pub(super) sends: SendQueue,
    q_key: u32,
    /// PSN of the next packet; receivers ignore it.
    psn: u32,
    /// Requests before this one have been emitted, and complete when their burst has been sent.
    sent: u64,
    congestion: Congestion,
    notifier: Notifier,
    /// Destination of a pending congestion notification.
    pending_cnp: Option<(SocketAddr, u32)>,
}

impl Ud {
    pub(super) fn new(number: u32, config: &QpConfig, buffer: Sge) -> Self {
        Self {
            common: Common::new(number, config),
            sends: SendQueue::new(config, buffer),
            q_key: 0,
            psn: 0,
            sent: 0,
            congestion: Congestion::default(),
            notifier: Notifier::default(),
            pending_cnp: None,
        }
    }

    pub(super) fn modify(&mut self, ctx: &mut Context<'_>, change: &Modify) -> Result<(), VerbsError> {
        self.common.change(change)?;
        match change {
            Modify::Init { q_key, .. } => self.q_key = *q_key,
            Modify::ReadyToReceive(_) => {}
            Modify::ReadyToSend(attributes) => self.psn = attributes.psn & PSN_MASK,
            Modify::Error => {
                self.flush_sends(ctx);
                self.common.flush_receives(ctx);
                self.pending_cnp = None;
            }
            Modify::Reset => {
                self.common.discard(ctx, &mut self.sends, None);
                self.sent = self.sends.end();
                (self.congestion, self.notifier, self.pending_cnp) = Default::default();
            }
        }
        Ok(())
    }

    pub(super) fn post_send(&mut self, ctx: &mut Context<'_>, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.common.check_can_post()?;
        if !matches!(wr.operation, Operation::Send | Operation::SendImm(_)) {
            return Err(PostError::Unsupported(QpType::Ud));
        }
        self.sends.post(ctx.protection, wr, u64::from(self.common.mtu))?;
        if self.common.state != QpState::ReadyToSend {
            self.flush_sends(ctx);
        }
        Ok(())
    }

    /// Chooses one posted receive per packet, in order.
    pub(super) fn pick(&self, _: &Protection, receives: &RecvQueue, head: &BatchHead<'_>, picks: &mut [Pick]) {
        let q_key_matches = head.extensions.deth.is_some_and(|deth| deth.q_key == self.q_key);
        if !q_key_matches || !self.common.can_receive() {
            return;
        }
        let (first, count) = (head.first_payload_len, picks.len());
        let last = if count > 1 { (first + head.last_len).saturating_sub(head.segment_len) } else { first };
        for (nth, pick) in picks.iter_mut().enumerate() {
            let Some(slot) = receives.peek(nth) else { return };
            let len = if nth + 1 < count { first } else { last };
            pick.destination = sge_range(receives.elements(slot), 0, len).destination();
        }
    }

    pub(super) fn receive(&mut self, ctx: &mut Context<'_>, packet: &IncomingPacket<'_>) {
        if !self.common.admits(packet, ctx.counters) {
            return;
        }
        let drops = &mut ctx.counters.drops;
        match (packet.bth.opcode.service(), packet.extensions.deth) {
            (Service::CongestionNotification, _) => {
                ctx.counters.cnps_in += 1;
                self.congestion.on_cnp(ctx.now);
            }
            (Service::UnreliableDatagram, Some(deth)) if deth.q_key != self.q_key => drops.bad_q_key += 1,
            (Service::UnreliableDatagram, Some(deth)) => self.accept(ctx, packet, deth.src_qp),
            _ => drops.bad_opcode += 1,
        }
    }

    /// Accepts a datagram for this queue pair.
    fn accept(&mut self, ctx: &mut Context<'_>, packet: &IncomingPacket<'_>, src_qp: u32) {
        if packet.congested && self.notifier.on_marked(ctx.now) {
            self.pending_cnp = Some((packet.source, src_qp));
        }
        let drops = &mut ctx.counters.drops;
        let Some(len) = packet.len.checked_sub(packet.bth.pad.into()).filter(|len| *len <= self.common.mtu) else {
            drops.bad_length += 1;
            return;
        };
        let Some(slot) = ctx.receives.peek(0) else {
            drops.no_receive += 1;
            return;
        };
        let fits = u64::from(len) <= ctx.receives.bytes(slot);
        let target = sge_range(ctx.receives.elements(slot), 0, len);
        if !fits || !move_payload(ctx.protection, ctx.counters, packet.payload, len, target) {
            ctx.counters.drops.bad_length += 1;
            return;
        }
        ctx.receives.take();
        ctx.counters.bytes_in += u64::from(len);
        let id = ctx.receives.finish(ctx.protection, slot);
        let completion = Completion {
            bytes: len,
            imm: packet.extensions.imm.map(|imm| imm.0),
            source: Some((packet.source, src_qp)),
            solicited: packet.bth.solicited,
            ..self.common.completion(id, Status::Success, CompletionKind::Recv)
        };
        ctx.completions.push(self.common.config.recv_cq, completion);
    }

    pub(super) fn transmit(&mut self, ctx: &mut Context<'_>, burst: &mut Burst, max: usize) {
        self.complete_sent(ctx);
        let end = burst.len() + max;
        if burst.len() < end
            && let Some((to, qp)) = self.pending_cnp.take()
        {
            burst.push(to, notification(qp));
            ctx.counters.cnps_out += 1;
        }
        while burst.len() < end && self.has_work() {
            let (request, number) = (self.sends.get(self.sent), self.sent);
            if !self.congestion.may_send(ctx.now) {
                return;
            }
            self.congestion.on_sent(ctx.now, request.len);
            self.sent += 1;
            // The send queue rejects datagrams without a destination.
            let Some(destination) = self.sends.destination(number) else { continue };
            let imm = if let Operation::SendImm(imm) = request.operation { Some(imm) } else { None };
            let padding = self.sends.padding(request.len);
            let header = UdHeader {
                opcode: if imm.is_some() { Opcode::UdSendOnlyImm } else { Opcode::UdSendOnly },
                dest_qp: destination.qp,
                src_qp: self.common.number,
                q_key: if destination.q_key & OWN_Q_KEY == 0 { destination.q_key } else { self.q_key },
                psn: self.psn,
                imm,
                solicited: request.solicited,
                pad: padding.len as u8,
            };
            self.psn = (self.psn + 1) & PSN_MASK;
            let payload = sge_range(self.sends.elements(number), 0, request.len);
            let part = Part { operation_len: request.len, offset: 0, remote: None };
            burst.push_request(destination.address, header.emit(), part, payload, padding);
        }
    }

    pub(super) fn has_packets_to_send(&self, now: Nanos) -> bool {
        let can_send = || self.has_work() && self.congestion.next_send_time(now).is_none();
        self.pending_cnp.is_some() || self.sends.first() < self.sent || can_send()
    }
    pub(super) fn deadline(&self) -> Option<Nanos> {
        if self.has_work() { self.congestion.next_send_time(0) } else { None }
    }
    /// UD has no timeouts.
    pub(super) fn expire(&mut self, _ctx: &mut Context<'_>) {}

    fn has_work(&self) -> bool {
        self.common.state == QpState::ReadyToSend && self.sent < self.sends.end()
    }

    fn complete_sent(&mut self, ctx: &mut Context<'_>) {
        while self.sends.first() < self.sent {
            self.common.retire(ctx, &mut self.sends, Status::Success);
        }
    }

    /// Completes the emitted requests and flushes the others.
    fn flush_sends(&mut self, ctx: &mut Context<'_>) {
        self.complete_sent(ctx);
        self.common.flush_sends(ctx, &mut self.sends);
        self.sent = self.sends.end();
    }
}
