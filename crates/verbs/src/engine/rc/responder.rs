//! The responder: carries out what its peer asks, once and in order.

use crate::api::{Completed, QpState, ReadyToReceive, Status};
use crate::engine::common::{Common, MAX_MESSAGE};
use crate::engine::flow::Flow;
use crate::engine::inbound::Inbound;
use crate::engine::refusal::Refusal;
use crate::engine::segment::{self, PSN_MASK, Segment, ahead_of};
use crate::engine::sends::SendQueue;
use crate::engine::{Ahead, Arrived, Burst, Context, Nanos, RecvQueue, Slot};
use shotline_memory::{Access, Grant, Protection, Refused, Sge};
use shotline_transport::Pick;
use shotline_wire::aeth::{Aeth, NakCode, RnrTimer, Syndrome};
use shotline_wire::atomic::{AtomicAckEth, AtomicEth};
use shotline_wire::bth::{Bth, Opcode};
use shotline_wire::reth::Reth;
use shotline_wire::roce::Extensions;
use std::collections::VecDeque;

/// Least time between two negative acknowledgements of a sequence error: whoever can make us send them cannot make us
/// send many.
const NAK_EVERY: Nanos = 20_000;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It was carried out, or was before.
    Accepted,
    /// It was not.
    Dropped,
    /// It was not, and the InfiniBand rules want the queue pair to fail.
    Fatal,
}

/// A READ or an atomic operation that is to be answered.
#[derive(Clone, Copy, Debug)]
struct Answer {
    psn: u32,
    packets: u32,
    /// Packets of it that were sent.
    sent: u32,
    /// It was answered before: if nobody waits for it any more, the network has doubled its request.
    again: bool,
    /// It was asked for before, whether or not all of it had been sent: what was sent did not arrive whole.
    asked_again: bool,
    what: Content,
}

impl Answer {
    fn new(psn: u32, packets: u32, what: Content) -> Self {
        Self { psn, packets, sent: 0, again: false, asked_again: false, what }
    }
}

#[derive(Clone, Copy, Debug)]
enum Content {
    /// The bytes are gathered when the answer is sent; no grant: there are none.
    Read { grant: Option<Grant>, len: u32 },
    /// What the atomic operation found.
    Original(u64),
}

/// An atomic operation that was carried out, for when it is asked for again.
#[derive(Clone, Copy, Debug)]
struct Executed {
    psn: u32,
    opcode: Opcode,
    request: AtomicEth,
    original: u64,
}

/// Requests and what is owed to them.
#[derive(Debug)]
pub(super) struct Responder {
    inbound: Inbound,
    /// The sequence number that is expected.
    expected: u32,
    /// Messages completed, modulo 2^24.
    msn: u32,
    /// READs and atomic operations to be answered, by their sequence numbers; at most as many as were agreed.
    answers: VecDeque<Answer>,
    /// The last atomic operations, as many as were agreed.
    executed: VecDeque<Executed>,
    agreed: usize,
    /// An acknowledgement of everything before `expected` is due, behind the answers.
    acknowledge: bool,
    /// A negative one instead, for `expected`.
    refuse: Option<Syndrome>,
    /// What comes ahead of `expected` has been answered: silence until that arrives.
    told: bool,
    /// No negative acknowledgement before this.
    quiet_until: Nanos,
    rnr_timer: Option<RnrTimer>,
}

impl Responder {
    pub fn new() -> Self {
        Self {
            inbound: Inbound::new(),
            expected: 0,
            msn: 0,
            answers: VecDeque::new(),
            executed: VecDeque::new(),
            agreed: 0,
            acknowledge: false,
            refuse: None,
            told: false,
            quiet_until: 0,
            rnr_timer: None,
        }
    }

    pub fn start(&mut self, attributes: &ReadyToReceive) {
        self.agreed = attributes.max_dest_rd_atomic.into();
        *self = Self {
            expected: attributes.psn & PSN_MASK,
            agreed: self.agreed,
            answers: VecDeque::with_capacity(self.agreed),
            executed: VecDeque::with_capacity(self.agreed),
            rnr_timer: Some(attributes.min_rnr_timer),
            ..Self::new()
        };
    }

    /// Whether this is the sequence number of the next request.
    pub fn expects(&self, psn: u32) -> bool {
        psn == self.expected
    }

    /// Owes nothing any more.
    pub fn stop(&mut self) {
        self.answers.clear();
        (self.acknowledge, self.refuse) = (false, None);
    }

    /// The receive of a message in progress.
    pub fn take_receive(&mut self) -> Option<Slot> {
        self.inbound.take_receive()
    }

    pub fn pick(
        &self,
        protection: &Protection,
        receives: &RecvQueue,
        ahead: &Ahead<'_>,
        segment: Segment,
        mtu: u32,
        picks: &mut [Pick],
    ) {
        if ahead.bth.psn == self.expected {
            self.inbound.pick(protection, receives, ahead, segment, mtu, picks);
        }
    }

    pub fn receive(&mut self, ctx: &mut Context<'_>, common: &Common, packet: &Arrived<'_>) -> Verdict {
        match ahead_of(packet.bth.psn, self.expected) {
            0 => self.request(ctx, common, packet),
            1.. => {
                ctx.books.out_of_sequence += 1;
                self.missing(ctx);
                Verdict::Dropped
            }
            _ => {
                ctx.books.duplicates += 1;
                match self.again(ctx, common, packet) {
                    Ok(()) => Verdict::Accepted,
                    Err(refusal) => {
                        refusal.count(&mut ctx.books.refused);
                        Verdict::Dropped
                    }
                }
            }
        }
    }

    /// The request that is expected.
    fn request(&mut self, ctx: &mut Context<'_>, common: &Common, packet: &Arrived<'_>) -> Verdict {
        let (extensions, opcode) = (packet.extensions, packet.bth.opcode);
        let taken = match (Segment::of(opcode), opcode, extensions.reth, extensions.atomic) {
            (Some(segment), ..) => self.inbound.accept(ctx, common, packet, segment).map(|last| (1, last)),
            _ if self.inbound.in_progress() => Err(Refusal::Opcode),
            (_, Opcode::RcReadRequest, Some(reth), _) => self.read(ctx, common, packet, reth),
            (_, Opcode::RcCompareSwap | Opcode::RcFetchAdd, _, Some(atomic)) => {
                self.atomic(ctx, common, packet, atomic)
            }
            _ => Err(Refusal::Opcode),
        };
        match taken {
            Ok((packets, complete)) => {
                self.expected = self.expected.wrapping_add(packets) & PSN_MASK;
                self.msn = self.msn.wrapping_add(complete.into()) & PSN_MASK;
                // An answer of its own acknowledges everything before it, too.
                let answered =
                    extensions.reth.is_some() && opcode == Opcode::RcReadRequest || extensions.atomic.is_some();
                self.acknowledge = !answered && (self.acknowledge || packet.bth.ack_request);
                (self.told, self.refuse) = (false, None);
                Verdict::Accepted
            }
            Err(refusal) => {
                refusal.count(&mut ctx.books.refused);
                self.refuse(ctx, common, refusal)
            }
        }
    }

    /// What is refused is dropped, and asked for again until the peer gives up; strictly, it is answered and the queue
    /// pair fails. No receive is no fault.
    fn refuse(&mut self, ctx: &mut Context<'_>, common: &Common, refusal: Refusal) -> Verdict {
        match (refusal, self.rnr_timer) {
            (Refusal::NoReceive, Some(timer)) => {
                (self.refuse, self.told) = (Some(Syndrome::RnrNak(timer)), true);
                Verdict::Dropped
            }
            _ if common.config.strict => {
                self.refuse = Some(Syndrome::Nak(refusal.nak()));
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

    /// Something came ahead of what is expected: says so once.
    fn missing(&mut self, ctx: &mut Context<'_>) {
        if self.told {
            return;
        }
        if ctx.now < self.quiet_until {
            ctx.books.refused.naks_held += 1;
            return;
        }
        (self.told, self.quiet_until) = (true, ctx.now.saturating_add(NAK_EVERY));
        self.refuse = Some(Syndrome::Nak(NakCode::PsnSequenceError));
    }

    /// A request that came before: a SEND or WRITE is acknowledged again, a READ answered again, and for an atomic
    /// operation what it found then is said again. Nothing is written.
    fn again(&mut self, ctx: &mut Context<'_>, common: &Common, packet: &Arrived<'_>) -> Result<(), Refusal> {
        let psn = packet.bth.psn;
        match (packet.bth.opcode, packet.extensions.reth, packet.extensions.atomic) {
            (opcode, ..) if Segment::of(opcode).is_some() => self.acknowledge = true,
            (Opcode::RcReadRequest, Some(reth), _) => {
                let answer = self.answer_read(ctx, common, packet, reth)?;
                // It must lie before what is expected with all of its answers.
                if ahead_of(psn.wrapping_add(answer.packets), self.expected) > 0 {
                    return Err(Refusal::Sequence);
                }
                self.enter(Answer { again: true, asked_again: true, ..answer });
            }
            (opcode @ (Opcode::RcCompareSwap | Opcode::RcFetchAdd), _, Some(request)) => {
                let same = |done: &&Executed| done.psn == psn && done.opcode == opcode && done.request == request;
                let done = self.executed.iter().find(same).ok_or(Refusal::Sequence)?;
                let what = Content::Original(done.original);
                self.enter(Answer { again: true, ..Answer::new(psn, 1, what) });
            }
            _ => return Err(Refusal::Opcode),
        }
        Ok(())
    }

    /// Makes room for the answer to a new request. A peer that keeps to what was agreed has none but old ones in its
    /// way.
    fn make_room(&mut self) -> Result<(), Refusal> {
        if self.answers.len() >= self.agreed {
            let old = self.answers.iter().position(|answer| answer.again).ok_or(Refusal::TooMany)?;
            self.answers.remove(old);
        }
        Ok(())
    }

    /// Enters an answer in the order of sequence numbers, if there is room. One that answers the same begins anew.
    fn enter(&mut self, answer: Answer) {
        let covers = |other: &Answer| (0..i64::from(other.packets)).contains(&ahead_of(answer.psn, other.psn).into());
        if let Some(same) = self.answers.iter_mut().find(|other| covers(other)) {
            *same = Answer { again: same.again, ..answer };
        } else if self.answers.len() < self.agreed {
            let place = self.answers.iter().position(|other| ahead_of(other.psn, answer.psn) > 0);
            self.answers.insert(place.unwrap_or(self.answers.len()), answer);
        }
    }

    fn read(
        &mut self,
        ctx: &mut Context<'_>,
        common: &Common,
        packet: &Arrived<'_>,
        reth: Reth,
    ) -> Result<(u32, bool), Refusal> {
        let answer = self.answer_read(ctx, common, packet, reth)?;
        self.make_room()?;
        self.enter(answer);
        if let Content::Read { grant: Some(grant), len } = answer.what {
            if let Some(usage) = ctx.protection.usage_mut(&grant) {
                usage.reads += 1;
                usage.bytes_out += u64::from(len);
            }
            ctx.completions.accessed(common.accessed(&grant, Completed::Read));
        }
        Ok((answer.packets, true))
    }

    fn answer_read(
        &self,
        ctx: &Context<'_>,
        common: &Common,
        packet: &Arrived<'_>,
        reth: Reth,
    ) -> Result<Answer, Refusal> {
        common.allows(Access::REMOTE_READ)?;
        if packet.len > 0 || u64::from(reth.length) > MAX_MESSAGE {
            return Err(Refusal::Length);
        }
        let len = reth.length;
        let grant = match len {
            0 => None,
            _ => Some(common.remote(ctx, reth.r_key, reth.address, len, Access::REMOTE_READ)?),
        };
        let packets = segment::packets(len, common.mtu);
        Ok(Answer::new(packet.bth.psn, packets, Content::Read { grant, len }))
    }

    /// Atomic among everything that uses the processor's atomic operations on this memory.
    fn atomic(
        &mut self,
        ctx: &mut Context<'_>,
        common: &Common,
        packet: &Arrived<'_>,
        request: AtomicEth,
    ) -> Result<(u32, bool), Refusal> {
        common.allows(Access::REMOTE_ATOMIC)?;
        if packet.len > 0 {
            return Err(Refusal::Length);
        }
        let grant = common.remote(ctx, request.r_key, request.address, 8, Access::REMOTE_ATOMIC)?;
        // The peer's address is a multiple of 8; where the registration begins need not be.
        if !grant.sge.offset.is_multiple_of(8) {
            return Err(Refusal::Memory(Refused::Misaligned));
        }
        self.make_room()?;
        let region = ctx.protection.regions().get(grant.sge.region);
        let offset = grant.sge.offset as usize;
        let original = match packet.bth.opcode {
            Opcode::RcCompareSwap => region.compare_swap(offset, request.compare, request.swap_or_add),
            _ => region.fetch_add(offset, request.swap_or_add),
        };
        if let Some(usage) = ctx.protection.usage_mut(&grant) {
            usage.atomics += 1;
        }
        let (psn, opcode) = (packet.bth.psn, packet.bth.opcode);
        let kind = if opcode == Opcode::RcCompareSwap { Completed::CompareSwap } else { Completed::FetchAdd };
        ctx.completions.accessed(common.accessed(&grant, kind));
        if self.executed.len() >= self.agreed {
            self.executed.pop_front();
        }
        self.executed.push_back(Executed { psn, opcode, request, original });
        self.enter(Answer::new(psn, 1, Content::Original(original)));
        Ok((1, true))
    }

    /// Whether READs or atomic operations are to be answered.
    pub fn answers(&self) -> bool {
        !self.answers.is_empty()
    }

    pub fn wants_to_send(&self, now: Nanos, flow: &Flow) -> bool {
        match self.answers() {
            true => flow.ready(now),
            false => self.acknowledge || self.refuse.is_some(),
        }
    }

    /// Sends answers, up to `end` packets in the burst, and behind the last of them one acknowledgement for all that
    /// has come.
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
            && let Some(answer) = self.answers.front_mut()
        {
            match answer.what {
                Content::Original(original) => {
                    let atomic_ack = Some(AtomicAckEth { original });
                    let extensions = Extensions { atomic_ack, ..acknowledgement(Syndrome::ACK, self.msn) };
                    push(burst, common, Opcode::RcAtomicAcknowledge, answer.psn, &extensions, &[]);
                    answer.sent += 1;
                }
                Content::Read { grant, len } => {
                    if grant.is_some_and(|grant| !ctx.protection.holds(&grant)) {
                        // The key has ended meanwhile.
                        let psn = answer.psn + answer.sent;
                        self.answers.pop_front();
                        Refusal::Memory(Refused::UnknownKey).count(&mut ctx.books.refused);
                        if common.config.strict && common.state != QpState::Error {
                            self.stop();
                            (self.expected, self.told) = (psn & PSN_MASK, true);
                            self.refuse = Some(Syndrome::Nak(NakCode::RemoteAccessError));
                            return Verdict::Fatal;
                        }
                        continue;
                    }
                    let offset = answer.sent * common.mtu;
                    let len = (len - offset).min(common.mtu);
                    if !flow.send(ctx.now, len) {
                        return Verdict::Dropped;
                    }
                    let opcode = match (answer.sent == 0, answer.sent + 1 == answer.packets) {
                        (true, true) => Opcode::RcReadResponseOnly,
                        (true, false) => Opcode::RcReadResponseFirst,
                        (false, false) => Opcode::RcReadResponseMiddle,
                        (false, true) => Opcode::RcReadResponseLast,
                    };
                    let payload = grant.map(|grant| grant.cut(offset, len));
                    let (psn, extensions) =
                        (answer.psn.wrapping_add(answer.sent), acknowledgement(Syndrome::ACK, self.msn));
                    push(burst, common, opcode, psn, &extensions, &[payload.unwrap_or(Sge::EMPTY), sends.padding(len)]);
                    if answer.asked_again {
                        burst.sent_again();
                    }
                    answer.sent += 1;
                }
            }
            if answer.sent == answer.packets {
                self.answers.pop_front();
            }
        }
        if burst.len() < end && self.answers.is_empty() {
            self.push_acknowledgement(ctx, common, burst);
        }
        Verdict::Accepted
    }

    fn push_acknowledgement(&mut self, ctx: &mut Context<'_>, common: &Common, burst: &mut Burst) {
        let (syndrome, psn) = match self.refuse.take() {
            Some(refusal) => (refusal, self.expected),
            None if self.acknowledge => (Syndrome::ACK, self.expected.wrapping_sub(1)),
            None => return,
        };
        self.acknowledge = false;
        match syndrome {
            Syndrome::Ack(_) => ctx.books.acks_out += 1,
            Syndrome::RnrNak(_) => ctx.books.naks_out.receiver_not_ready += 1,
            Syndrome::Nak(code) => ctx.books.naks_out.count(code),
        }
        push(burst, common, Opcode::RcAcknowledge, psn, &acknowledgement(syndrome, self.msn), &[]);
    }
}

fn acknowledgement(syndrome: Syndrome, msn: u32) -> Extensions {
    Extensions { aeth: Some(Aeth { syndrome, msn }), ..Extensions::default() }
}

/// Adds an answer to a burst.
fn push(burst: &mut Burst, common: &Common, opcode: Opcode, psn: u32, extensions: &Extensions, payload: &[Sge]) {
    let Some((to, qp)) = common.peer else { return };
    let pad = if let [_, padding] = payload { padding.len as u8 } else { 0 };
    let bth = Bth { pad, ..Bth::new(opcode, qp, psn & PSN_MASK) };
    burst.push(to, extensions.emit(&bth), payload);
}
