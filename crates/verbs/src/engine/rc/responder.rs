//! RC responder: executes the requests of its peer, once and in order.

use crate::api::{CompletionKind, QpState, ReadyToReceive, Status};
use crate::engine::common::{Common, MAX_MESSAGE};
use crate::engine::flow::Flow;
use crate::engine::inbound::Inbound;
use crate::engine::refusal::Refusal;
use crate::engine::segment::{self, PSN_MASK, Segment, psn_diff};
use crate::engine::sends::SendQueue;
use crate::engine::{BatchHead, Burst, Context, IncomingPacket, Nanos, RecvQueue, Slot};
use shotline_memory::{Access, AccessError, Grant, Protection, Sge};
use shotline_transport::Pick;
use shotline_wire::aeth::{Aeth, NakCode, RnrTimer, Syndrome};
use shotline_wire::atomic::{AtomicAckEth, AtomicEth};
use shotline_wire::bth::{Bth, Opcode};
use shotline_wire::reth::Reth;
use shotline_wire::roce::Extensions;
use std::collections::VecDeque;

/// Minimum time between two sequence error NAKs, so that an attacker cannot make the responder send many.
const NAK_INTERVAL: Nanos = 20_000;

/// Outcome of processing a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The request was executed, now or before.
    Accepted,
    /// It was dropped; from [`Responder::transmit`]: pacing stopped the transmission.
    Dropped,
    /// It was rejected, and IBTA requires the queue pair to fail.
    Fatal,
}

/// Pending response to a READ or an atomic operation.
#[derive(Clone, Copy, Debug)]
struct Response {
    psn: u32,
    packets: u32,
    /// Packets sent so far.
    sent: u32,
    /// It repeats a response that was sent before. It may be dropped to make space for a new request: a peer that sends
    /// one has received the first response, so the repeated request was duplicated by the network.
    is_repeated: bool,
    /// The peer has repeated its READ request, so some response packets were lost or dropped: those sent now are
    /// retransmissions.
    is_requested_again: bool,
    content: Content,
}

impl Response {
    fn new(psn: u32, packets: u32, content: Content) -> Self {
        Self { psn, packets, sent: 0, is_repeated: false, is_requested_again: false, content }
    }
}

#[derive(Clone, Copy, Debug)]
enum Content {
    /// The bytes are gathered when the response is sent; `grant` is `None` if there are none.
    Read { grant: Option<Grant>, len: u32 },
    /// Original value of an atomic operation.
    Original(u64),
}

/// Executed atomic operation, kept for duplicates of its request.
#[derive(Clone, Copy, Debug)]
struct ExecutedAtomic {
    psn: u32,
    opcode: Opcode,
    request: AtomicEth,
    original: u64,
}

/// Receive state and pending responses.
#[derive(Debug)]
pub(super) struct Responder {
    inbound: Inbound,
    /// Expected PSN.
    epsn: u32,
    /// Message sequence number: messages completed, modulo 2^24.
    msn: u32,
    /// Pending responses to READs and atomic operations, by PSN; at most `max_dest_rd_atomic`.
    responses: VecDeque<Response>,
    /// The last atomic operations, at most `max_dest_rd_atomic`.
    atomics: VecDeque<ExecutedAtomic>,
    max_dest_rd_atomic: usize,
    /// An acknowledgement of everything before `epsn` is pending, to be sent after the responses.
    ack_pending: bool,
    /// A NAK or RNR NAK for `epsn` is pending instead of an acknowledgement.
    nak: Option<Syndrome>,
    /// A NAK for `epsn` was sent: packets ahead of it are ignored until `epsn` arrives.
    nak_sent: bool,
    /// Earliest time of the next sequence error NAK.
    next_nak_at: Nanos,
    rnr_timer: Option<RnrTimer>,
}

impl Responder {
    pub fn new() -> Self {
        Self {
            inbound: Inbound::new(),
            epsn: 0,
            msn: 0,
            responses: VecDeque::new(),
            atomics: VecDeque::new(),
            max_dest_rd_atomic: 0,
            ack_pending: false,
            nak: None,
            nak_sent: false,
            next_nak_at: 0,
            rnr_timer: None,
        }
    }

    /// Starts at the PSN and with the limits of the transition to `ReadyToReceive`.
    pub fn start(&mut self, attributes: &ReadyToReceive) {
        self.max_dest_rd_atomic = attributes.max_dest_rd_atomic.into();
        *self = Self {
            epsn: attributes.psn & PSN_MASK,
            max_dest_rd_atomic: self.max_dest_rd_atomic,
            responses: VecDeque::with_capacity(self.max_dest_rd_atomic),
            atomics: VecDeque::with_capacity(self.max_dest_rd_atomic),
            rnr_timer: Some(attributes.min_rnr_timer),
            ..Self::new()
        };
    }

    /// Returns `true` if this is the expected PSN.
    pub fn is_expected(&self, psn: u32) -> bool {
        psn == self.epsn
    }

    /// Discards all pending responses.
    pub fn stop(&mut self) {
        self.responses.clear();
        (self.ack_pending, self.nak) = (false, None);
    }

    /// Returns the receive of a message in progress.
    pub fn take_receive(&mut self) -> Option<Slot> {
        self.inbound.take_receive()
    }

    pub fn pick(
        &self,
        protection: &Protection,
        receives: &RecvQueue,
        head: &BatchHead<'_>,
        segment: Segment,
        mtu: u32,
        picks: &mut [Pick],
    ) {
        if head.bth.psn == self.epsn {
            self.inbound.pick(protection, receives, head, segment, mtu, picks);
        }
    }

    /// Processes a request packet by its PSN: the expected one, one after a gap, or a duplicate.
    pub fn receive(&mut self, ctx: &mut Context<'_>, common: &Common, packet: &IncomingPacket<'_>) -> Verdict {
        match psn_diff(packet.bth.psn, self.epsn) {
            0 => self.execute(ctx, common, packet),
            1.. => {
                ctx.counters.out_of_sequence += 1;
                self.on_gap(ctx);
                Verdict::Dropped
            }
            _ => {
                ctx.counters.duplicates += 1;
                match self.on_duplicate(ctx, common, packet) {
                    Ok(()) => Verdict::Accepted,
                    Err(refusal) => {
                        refusal.count(&mut ctx.counters.drops);
                        Verdict::Dropped
                    }
                }
            }
        }
    }

    /// Executes the expected request.
    fn execute(&mut self, ctx: &mut Context<'_>, common: &Common, packet: &IncomingPacket<'_>) -> Verdict {
        let (extensions, opcode) = (packet.extensions, packet.bth.opcode);
        let outcome = match (Segment::of(opcode), opcode, extensions.reth, extensions.atomic) {
            (Some(segment), ..) => self.inbound.accept(ctx, common, packet, segment).map(|last| (1, last)),
            _ if self.inbound.in_progress() => Err(Refusal::Opcode),
            (_, Opcode::RcReadRequest, Some(reth), _) => self.read(ctx, common, packet, reth),
            (_, Opcode::RcCompareSwap | Opcode::RcFetchAdd, _, Some(atomic)) => {
                self.atomic(ctx, common, packet, atomic)
            }
            _ => Err(Refusal::Opcode),
        };
        match outcome {
            Ok((packets, complete)) => {
                self.epsn = self.epsn.wrapping_add(packets) & PSN_MASK;
                self.msn = self.msn.wrapping_add(complete.into()) & PSN_MASK;
                // A response acknowledges everything before it, too.
                let has_response =
                    extensions.reth.is_some() && opcode == Opcode::RcReadRequest || extensions.atomic.is_some();
                self.ack_pending = !has_response && (self.ack_pending || packet.bth.ack_request);
                (self.nak_sent, self.nak) = (false, None);
                Verdict::Accepted
            }
            Err(refusal) => {
                refusal.count(&mut ctx.counters.drops);
                self.reject(ctx, common, refusal)
            }
        }
    }

    /// Handles a rejected request: it is dropped, and the peer retransmits it until its retries are used up; in strict
    /// mode it is answered with a NAK and the queue pair fails. A missing receive is not an error.
    pub fn reject(&mut self, ctx: &mut Context<'_>, common: &Common, refusal: Refusal) -> Verdict {
        match (refusal, self.rnr_timer) {
            (Refusal::NoReceive, Some(timer)) => {
                (self.nak, self.nak_sent) = (Some(Syndrome::RnrNak(timer)), true);
                Verdict::Dropped
            }
            _ if common.config.strict => {
                self.nak = Some(Syndrome::Nak(refusal.nak()));
                if refusal == Refusal::TooLong
                    && let Some(slot) = self.inbound.take_receive().or_else(|| ctx.receives.take())
                {
                    common.fail_receive(ctx, slot, Status::LocalLength);
                }
                Verdict::Fatal
            }
            _ => Verdict::Dropped,
        }
    }

    /// Handles a packet ahead of `epsn`: sends a sequence error NAK, once.
    fn on_gap(&mut self, ctx: &mut Context<'_>) {
        if self.nak_sent {
            return;
        }
        if ctx.now < self.next_nak_at {
            ctx.counters.naks_suppressed += 1;
            return;
        }
        (self.nak_sent, self.next_nak_at) = (true, ctx.now.saturating_add(NAK_INTERVAL));
        self.nak = Some(Syndrome::Nak(NakCode::PsnSequenceError));
    }

    /// Handles a duplicate request: a SEND or WRITE is acknowledged again, a READ is answered again, and an atomic
    /// operation is answered with its saved original value. Nothing is written.
    fn on_duplicate(
        &mut self,
        ctx: &mut Context<'_>,
        common: &Common,
        packet: &IncomingPacket<'_>,
    ) -> Result<(), Refusal> {
        let psn = packet.bth.psn;
        match (packet.bth.opcode, packet.extensions.reth, packet.extensions.atomic) {
            (opcode, ..) if Segment::of(opcode).is_some() => self.ack_pending = true,
            (Opcode::RcReadRequest, Some(reth), _) => {
                let response = self.read_response(ctx, common, packet, reth)?;
                // All its response packets must lie before `epsn`.
                if psn_diff(psn.wrapping_add(response.packets), self.epsn) > 0 {
                    return Err(Refusal::Sequence);
                }
                self.insert_response(Response { is_repeated: true, is_requested_again: true, ..response });
            }
            (opcode @ (Opcode::RcCompareSwap | Opcode::RcFetchAdd), _, Some(request)) => {
                let same = |done: &&ExecutedAtomic| done.psn == psn && done.opcode == opcode && done.request == request;
                let done = self.atomics.iter().find(same).ok_or(Refusal::Sequence)?;
                let content = Content::Original(done.original);
                self.insert_response(Response { is_repeated: true, ..Response::new(psn, 1, content) });
            }
            _ => return Err(Refusal::Opcode),
        }
        Ok(())
    }

    /// Makes space for the response to a new request. Only repeated responses can be in the way if the peer keeps to
    /// `max_dest_rd_atomic`.
    fn reserve_response(&mut self) -> Result<(), Refusal> {
        if self.responses.len() >= self.max_dest_rd_atomic {
            let repeated = self.responses.iter().position(|response| response.is_repeated).ok_or(Refusal::TooMany)?;
            self.responses.remove(repeated);
        }
        Ok(())
    }

    /// Inserts a response in PSN order, if there is space. One to the same request starts again from its beginning.
    fn insert_response(&mut self, response: Response) {
        let covers =
            |other: &Response| (0..i64::from(other.packets)).contains(&psn_diff(response.psn, other.psn).into());
        if let Some(same) = self.responses.iter_mut().find(|other| covers(other)) {
            *same = Response { is_repeated: same.is_repeated, ..response };
        } else if self.responses.len() < self.max_dest_rd_atomic {
            let index = self.responses.iter().position(|other| psn_diff(other.psn, response.psn) > 0);
            self.responses.insert(index.unwrap_or(self.responses.len()), response);
        }
    }

    fn read(
        &mut self,
        ctx: &mut Context<'_>,
        common: &Common,
        packet: &IncomingPacket<'_>,
        reth: Reth,
    ) -> Result<(u32, bool), Refusal> {
        let response = self.read_response(ctx, common, packet, reth)?;
        self.reserve_response()?;
        self.insert_response(response);
        if let Content::Read { grant: Some(grant), len } = response.content {
            if let Some(usage) = ctx.protection.counters_mut(&grant) {
                usage.reads += 1;
                usage.bytes_out += u64::from(len);
            }
            ctx.completions.on_remote_access(common.remote_access(&grant, CompletionKind::Read));
        }
        Ok((response.packets, true))
    }

    fn read_response(
        &self,
        ctx: &Context<'_>,
        common: &Common,
        packet: &IncomingPacket<'_>,
        reth: Reth,
    ) -> Result<Response, Refusal> {
        common.allows(Access::REMOTE_READ)?;
        if packet.len > 0 || u64::from(reth.length) > MAX_MESSAGE {
            return Err(Refusal::Length);
        }
        let len = reth.length;
        let grant = match len {
            0 => None,
            _ => Some(common.remote(ctx, reth.r_key, reth.address, len, Access::REMOTE_READ)?),
        };
        let packets = segment::packet_count(len, common.mtu);
        Ok(Response::new(packet.bth.psn, packets, Content::Read { grant, len }))
    }

    /// Executes an atomic operation, atomic with respect to all processor atomics on this memory.
    fn atomic(
        &mut self,
        ctx: &mut Context<'_>,
        common: &Common,
        packet: &IncomingPacket<'_>,
        request: AtomicEth,
    ) -> Result<(u32, bool), Refusal> {
        common.allows(Access::REMOTE_ATOMIC)?;
        if packet.len > 0 {
            return Err(Refusal::Length);
        }
        let grant = common.remote(ctx, request.r_key, request.address, 8, Access::REMOTE_ATOMIC)?;
        // The peer's address is a multiple of 8; the start of the registration need not be.
        if !grant.sge.offset.is_multiple_of(8) {
            return Err(Refusal::Memory(AccessError::Misaligned));
        }
        self.reserve_response()?;
        let region = ctx.protection.regions().get(grant.sge.region);
        let offset = grant.sge.offset as usize;
        let original = match packet.bth.opcode {
            Opcode::RcCompareSwap => region.compare_swap(offset, request.compare, request.swap_or_add),
            _ => region.fetch_add(offset, request.swap_or_add),
        };
        if let Some(usage) = ctx.protection.counters_mut(&grant) {
            usage.atomics += 1;
        }
        let (psn, opcode) = (packet.bth.psn, packet.bth.opcode);
        let kind = if opcode == Opcode::RcCompareSwap { CompletionKind::CompareSwap } else { CompletionKind::FetchAdd };
        ctx.completions.on_remote_access(common.remote_access(&grant, kind));
        if self.atomics.len() >= self.max_dest_rd_atomic {
            self.atomics.pop_front();
        }
        self.atomics.push_back(ExecutedAtomic { psn, opcode, request, original });
        self.insert_response(Response::new(psn, 1, Content::Original(original)));
        Ok((1, true))
    }

    /// Returns `true` if responses to READs or atomic operations are pending.
    pub fn has_responses(&self) -> bool {
        !self.responses.is_empty()
    }

    /// Returns `true` if a response or an acknowledgement may be sent at `now`.
    pub fn has_packets_to_send(&self, now: Nanos, flow: &Flow) -> bool {
        match self.has_responses() {
            true => flow.is_ready(now),
            false => self.ack_pending || self.nak.is_some(),
        }
    }

    /// Sends responses, up to `end` packets in the burst, and after the last of them one acknowledgement for all
    /// requests received.
    pub fn transmit(
        &mut self,
        ctx: &mut Context<'_>,
        common: &Common,
        flow: &mut Flow,
        sends: &SendQueue,
        burst: &mut Burst,
        end: usize,
    ) -> Verdict {
        while burst.len() < end
            && let Some(response) = self.responses.front_mut()
        {
            match response.content {
                Content::Original(original) => {
                    let atomic_ack = Some(AtomicAckEth { original });
                    let extensions = Extensions { atomic_ack, ..aeth(Syndrome::ACK, self.msn) };
                    push(burst, common, Opcode::RcAtomicAcknowledge, response.psn, &extensions, &[]);
                    response.sent += 1;
                }
                Content::Read { grant, len } => {
                    if grant.is_some_and(|grant| !ctx.protection.is_valid(&grant)) {
                        // The key was invalidated in the meantime.
                        let psn = response.psn + response.sent;
                        self.responses.pop_front();
                        Refusal::Memory(AccessError::UnknownKey).count(&mut ctx.counters.drops);
                        if common.config.strict && common.state != QpState::Error {
                            self.stop();
                            (self.epsn, self.nak_sent) = (psn & PSN_MASK, true);
                            self.nak = Some(Syndrome::Nak(NakCode::RemoteAccessError));
                            return Verdict::Fatal;
                        }
                        continue;
                    }
                    let offset = response.sent * common.mtu;
                    let len = (len - offset).min(common.mtu);
                    if !flow.try_charge(ctx.now, len) {
                        return Verdict::Dropped;
                    }
                    let opcode = match (response.sent == 0, response.sent + 1 == response.packets) {
                        (true, true) => Opcode::RcReadResponseOnly,
                        (true, false) => Opcode::RcReadResponseFirst,
                        (false, false) => Opcode::RcReadResponseMiddle,
                        (false, true) => Opcode::RcReadResponseLast,
                    };
                    let payload = grant.map(|grant| grant.cut(offset, len));
                    let (psn, extensions) = (response.psn.wrapping_add(response.sent), aeth(Syndrome::ACK, self.msn));
                    push(burst, common, opcode, psn, &extensions, &[payload.unwrap_or(Sge::EMPTY), sends.padding(len)]);
                    if response.is_requested_again {
                        burst.mark_retransmission();
                    }
                    response.sent += 1;
                }
            }
            if response.sent == response.packets {
                self.responses.pop_front();
            }
        }
        if burst.len() < end && self.responses.is_empty() {
            self.push_acknowledgement(ctx, common, burst);
        }
        Verdict::Accepted
    }

    fn push_acknowledgement(&mut self, ctx: &mut Context<'_>, common: &Common, burst: &mut Burst) {
        let (syndrome, psn) = match self.nak.take() {
            Some(nak) => (nak, self.epsn),
            None if self.ack_pending => (Syndrome::ACK, self.epsn.wrapping_sub(1)),
            None => return,
        };
        self.ack_pending = false;
        match syndrome {
            Syndrome::Ack(_) => ctx.counters.acks_out += 1,
            Syndrome::RnrNak(_) => ctx.counters.naks_out.receiver_not_ready += 1,
            Syndrome::Nak(code) => ctx.counters.naks_out.count(code),
        }
        push(burst, common, Opcode::RcAcknowledge, psn, &aeth(syndrome, self.msn), &[]);
    }
}

fn aeth(syndrome: Syndrome, msn: u32) -> Extensions {
    Extensions { aeth: Some(Aeth { syndrome, msn }), ..Extensions::default() }
}

/// Adds a response packet to a burst.
fn push(burst: &mut Burst, common: &Common, opcode: Opcode, psn: u32, extensions: &Extensions, payload: &[Sge]) {
    let Some((to, qp)) = common.peer else { return };
    let pad = if let [_, padding] = payload { padding.len as u8 } else { 0 };
    let bth = Bth { pad, ..Bth::new(opcode, qp, psn & PSN_MASK) };
    burst.push_response(to, extensions.emit(&bth), extensions.aeth.map_or(0, |aeth| aeth.msn), payload);
}
