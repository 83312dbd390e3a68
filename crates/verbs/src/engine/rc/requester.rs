//! The requester: sends, waits for answers, sends again.

use crate::api::{Operation, PostError, QpConfig, QpState, QpType, ReadyToSend, SendWr, Status};
use crate::engine::common::Common;
use crate::engine::flow::Flow;
use crate::engine::places::{part, settle};
use crate::engine::segment::{self, PSN_MASK, absolute};
use crate::engine::sends::SendQueue;
use crate::engine::{Ahead, Arrived, Burst, Context, Nanos};
use shotline_memory::Sge;
use shotline_transport::Pick;
use shotline_wire::aeth::{Aeth, NakCode, Syndrome};
use shotline_wire::atomic::AtomicEth;
use shotline_wire::bth::{Bth, Opcode};
use shotline_wire::reth::Reth;
use shotline_wire::roce::Extensions;

/// Sequence numbers that may be unacknowledged, at most. The protocol would allow 2^23.
const MAX_WINDOW: u32 = 1024;
/// And at least, however much is lost.
const MIN_WINDOW: u32 = 4;
/// Bytes that may be unacknowledged unless the endpoint says otherwise: 100 Gbit/s over 40 µs. More would not be faster
/// but behind long paths, and all of it is sent again when one packet is lost: of 64 KiB messages at 0.1 % loss, 87 to
/// 90 % of a link's rate are left with this, and 81 % with twice as much.
const DEFAULT_WINDOW: u32 = 1 << 19;
/// READs are asked for in so many pieces of a window at once, so that the next is asked for while one is coming.
const READ_PIECES: u32 = 4;
/// The longest wait for an answer is the first, doubled so often.
const MAX_BACKOFF: u32 = 3;
/// RNR retries without end.
const ENDLESS: u8 = 7;
/// Sequence numbers are counted on beyond the 24 bits of the wire. Begun here, none is ever below 0.
const EPOCH: u64 = 1 << 24;

/// Requests and what is known of them.
///
/// All sequence numbers in it are absolute. Those from `acknowledged` to before `next` are under way; up to `top` they
/// have been sent once. The oldest request in the queue holds `acknowledged`, the request `cursor` holds `next`. Going
/// back sets `next` to `acknowledged`: whatever was to be sent again starts there.
#[derive(Debug)]
pub(super) struct Requester {
    pub sends: SendQueue,
    /// A message's last packet asks for an acknowledgement when so many bytes were sent since the last that did.
    pub ack_every: u32,
    acknowledged: u64,
    next: u64,
    top: u64,
    /// The sequence number of the next request that is posted.
    posted: u64,
    cursor: u64,
    /// READ pieces and atomic operations between `acknowledged` and `next`, and how many there may be.
    unanswered: u32,
    max_unanswered: u32,
    /// Packets of a READ piece. Pieces begin at multiples of it.
    piece: u32,
    /// Packets that may be under way, now and at most.
    window: u32,
    max_window: u32,
    window_bytes: u32,
    /// Acknowledged packets that have not widened the window yet.
    credit: u32,
    /// Packets and bytes since one asked for an acknowledgement.
    silent: u32,
    silent_bytes: u64,
    timeout: Nanos,
    backoff: u32,
    timer: Option<Nanos>,
    retries: u8,
    retries_left: u8,
    rnr_retries: u8,
    rnr_left: u8,
    /// The peer had no receive: wait so long.
    resume: Option<Nanos>,
    /// The loss at this sequence number is dealt with: whatever else tells of it is old.
    gone_back: Option<u64>,
}

impl Requester {
    pub fn new(config: &QpConfig, lent: Sge) -> Self {
        Self {
            sends: SendQueue::new(config, lent),
            ack_every: 0,
            acknowledged: EPOCH,
            next: EPOCH,
            top: EPOCH,
            posted: EPOCH,
            cursor: 0,
            unanswered: 0,
            max_unanswered: 0,
            piece: 1,
            window: MIN_WINDOW,
            max_window: MIN_WINDOW,
            window_bytes: DEFAULT_WINDOW,
            credit: 0,
            silent: 0,
            silent_bytes: 0,
            timeout: 0,
            backoff: 0,
            timer: None,
            retries: 0,
            retries_left: 0,
            rnr_retries: 0,
            rnr_left: 0,
            resume: None,
            gone_back: None,
        }
    }

    pub fn start(&mut self, attributes: &ReadyToSend, mtu: u32) {
        let psn = EPOCH + u64::from(attributes.psn & PSN_MASK);
        (self.acknowledged, self.next, self.top, self.posted) = (psn, psn, psn, psn);
        (self.cursor, self.unanswered, self.silent, self.silent_bytes) = (self.sends.end(), 0, 0, 0);
        (self.timer, self.resume, self.gone_back, self.backoff) = (None, None, None, 0);
        self.max_unanswered = attributes.max_rd_atomic.into();
        self.timeout = u64::try_from(attributes.timeout.as_nanos()).unwrap_or(Nanos::MAX);
        (self.retries, self.retries_left) = (attributes.retries, attributes.retries);
        (self.rnr_retries, self.rnr_left) = (attributes.rnr_retries, attributes.rnr_retries);
        self.limit(self.window_bytes, mtu);
    }

    /// Nothing is under way, and nothing waits, any more.
    pub fn stop(&mut self) {
        (self.cursor, self.unanswered) = (self.sends.end(), 0);
        (self.timer, self.resume) = (None, None);
        (self.acknowledged, self.next, self.top) = (self.posted, self.posted, self.posted);
    }

    pub fn limit(&mut self, bytes: u32, mtu: u32) {
        self.window_bytes = bytes;
        self.max_window = (bytes / mtu).clamp(MIN_WINDOW, MAX_WINDOW);
        self.window = self.window.min(self.max_window);
        if self.acknowledged == self.posted {
            // Nothing is under way whose pieces were cut otherwise.
            self.window = self.max_window;
            self.piece = (self.max_window / self.max_unanswered.clamp(1, READ_PIECES)).max(1);
        }
    }

    pub fn post(&mut self, ctx: &mut Context<'_>, wr: &SendWr<'_>, mtu: u32, most: u64) -> Result<(), PostError> {
        if wr.operation.is_answered() && self.max_unanswered == 0 {
            // The connection was made without READs.
            return Err(PostError::Unsupported(QpType::Rc));
        }
        let request = self.sends.post(ctx.protection, wr, most)?;
        request.psn = self.posted;
        request.packets = if request.is_atomic() { 1 } else { segment::packets(request.len, mtu) };
        self.posted += u64::from(request.packets);
        Ok(())
    }

    /// What may be sent next: the number of sequence numbers that it takes, and whether it is answered.
    fn sendable(&self, common: &Common) -> Option<(u32, bool)> {
        if !self.has_work(common) {
            return None;
        }
        let request = self.sends.get(self.cursor);
        let index = (self.next - request.psn) as u32;
        let answered = request.is_answered();
        let count = match request.operation {
            Operation::Read(_) => (self.piece - index % self.piece).min(request.packets - index),
            _ => 1,
        };
        let under_way = self.under_way();
        let fenced = request.fence && index == 0 && self.unanswered > 0;
        let fits = under_way == 0 || under_way + count <= self.window;
        let may = fits && !fenced && !(answered && self.unanswered >= self.max_unanswered);
        may.then_some((count, answered))
    }

    /// Whether nothing but the rate can keep it from sending.
    pub fn may_send(&self, common: &Common) -> bool {
        self.resume.is_none() && self.sendable(common).is_some()
    }

    pub fn under_way(&self) -> u32 {
        (self.next - self.acknowledged) as u32
    }

    /// Whether something waits to be sent.
    fn has_work(&self, common: &Common) -> bool {
        common.state == QpState::ReadyToSend && self.cursor < self.sends.end()
    }

    pub fn wants_to_send(&self, now: Nanos, common: &Common, flow: &Flow) -> bool {
        self.resume.is_none_or(|resume| now >= resume) && self.sendable(common).is_some() && flow.ready(now)
    }

    pub fn deadline(&self) -> Option<Nanos> {
        self.timer.into_iter().chain(self.resume).min()
    }

    pub fn transmit(&mut self, ctx: &mut Context<'_>, common: &Common, flow: &mut Flow, burst: &mut Burst, end: usize) {
        if self.resume.is_some_and(|resume| ctx.now < resume) {
            return;
        }
        self.resume = None;
        while burst.len() < end
            && let Some((count, answered)) = self.sendable(common)
            && flow.send(ctx.now, if answered { 0 } else { common.mtu })
        {
            ctx.books.retransmitted += u64::from(self.next < self.top);
            if answered {
                self.push_question(burst, common, count);
                self.unanswered += 1;
                (self.silent, self.silent_bytes) = (0, 0);
            } else {
                self.push_segment(burst, common);
                if self.next < self.top {
                    burst.sent_again();
                }
            }
            self.next += u64::from(count);
            self.top = self.top.max(self.next);
            let request = self.sends.get(self.cursor);
            if self.next == request.end() {
                self.cursor += 1;
            }
            if self.timer.is_none() {
                self.set_timer(ctx.now);
            }
        }
    }

    fn push_segment(&mut self, burst: &mut Burst, common: &Common) {
        let request = self.sends.get(self.cursor);
        let index = (self.next - request.psn) as u32;
        let last = index + 1 == request.packets;
        self.silent += 1;
        self.silent_bytes += u64::from(common.mtu.min(request.len - index * common.mtu));
        let due = last && (self.silent_bytes >= u64::from(self.ack_every) || self.cursor + 1 == self.sends.end());
        // Several times a window in any case, so that it never closes before an answer can be on its way.
        let ask = due || self.silent >= (self.window / READ_PIECES).max(1);
        if ask {
            (self.silent, self.silent_bytes) = (0, 0);
        }
        segment::push(burst, common, &self.sends, self.cursor, index, self.next as u32, ask);
    }

    /// Sends a READ request for `count` packets, or an atomic operation.
    fn push_question(&self, burst: &mut Burst, common: &Common, count: u32) {
        let Some((to, qp)) = common.peer else { return };
        let request = self.sends.get(self.cursor);
        let mut extensions = Extensions::default();
        let opcode = match request.operation {
            Operation::CompareSwap { remote, compare, swap } => {
                extensions.atomic =
                    Some(AtomicEth { address: remote.address, r_key: remote.rkey, swap_or_add: swap, compare });
                Opcode::RcCompareSwap
            }
            Operation::FetchAdd { remote, add } => {
                extensions.atomic =
                    Some(AtomicEth { address: remote.address, r_key: remote.rkey, swap_or_add: add, compare: 0 });
                Opcode::RcFetchAdd
            }
            Operation::Read(remote) => {
                let offset = (self.next - request.psn) as u32 * common.mtu;
                let length = (request.len - offset).min(count * common.mtu);
                let address = remote.address.wrapping_add(offset.into());
                extensions.reth = Some(Reth { address, r_key: remote.rkey, length });
                Opcode::RcReadRequest
            }
            _ => return,
        };
        let bth = Bth { ack_request: true, ..Bth::new(opcode, qp, self.next as u32 & PSN_MASK) };
        burst.push(to, extensions.emit(&bth), &[]);
    }

    /// Takes an answer. Whether it was believed; an error is the end of the oldest request and of the connection.
    pub fn receive(&mut self, ctx: &mut Context<'_>, common: &Common, packet: &Arrived<'_>) -> Result<bool, Status> {
        let psn = absolute(packet.bth.psn, self.acknowledged);
        if psn < self.acknowledged {
            ctx.books.duplicates += 1;
            return Ok(false);
        }
        if psn >= self.top {
            *match packet.bth.opcode {
                Opcode::RcAcknowledge => &mut ctx.books.refused.bad_ack,
                _ => &mut ctx.books.refused.bad_psn,
            } += 1;
            return Ok(false);
        }
        match (packet.bth.opcode, packet.extensions.aeth) {
            (Opcode::RcAcknowledge, Some(aeth)) => self.acknowledgement(ctx, common, psn, aeth),
            (Opcode::RcAcknowledge, None) => Ok(false),
            (_, aeth) => self.response(ctx, common, packet, psn, aeth),
        }
    }

    fn acknowledgement(
        &mut self,
        ctx: &mut Context<'_>,
        common: &Common,
        psn: u64,
        aeth: Aeth,
    ) -> Result<bool, Status> {
        let books = &mut *ctx.books;
        let upto = match aeth.syndrome {
            Syndrome::Ack(_) => {
                books.acks_in += 1;
                psn + 1
            }
            Syndrome::RnrNak(_) => {
                books.naks_in.receiver_not_ready += 1;
                psn
            }
            Syndrome::Nak(code) => {
                books.naks_in.count(code);
                psn
            }
        };
        if !self.advance(ctx, common, upto) {
            // The answer to a READ or an atomic operation should have come before this: it is lost.
            return self.lost().map(|()| true);
        }
        match aeth.syndrome {
            Syndrome::Ack(_) => {}
            // It waits already.
            Syndrome::RnrNak(_) if self.resume.is_some() => {}
            Syndrome::RnrNak(timer) => {
                if self.rnr_left == 0 {
                    return Err(Status::RnrRetryExceeded);
                }
                if self.rnr_retries != ENDLESS {
                    self.rnr_left -= 1;
                }
                self.go_back();
                self.timer = None;
                self.resume = Some(ctx.now + u64::from(timer.microseconds()) * 1000);
            }
            Syndrome::Nak(code) => match code {
                NakCode::PsnSequenceError => self.lost()?,
                NakCode::InvalidRequest | NakCode::InvalidRdRequest => return Err(Status::RemoteInvalid),
                NakCode::RemoteAccessError => return Err(Status::RemoteAccess),
                NakCode::RemoteOperationalError => return Err(Status::RemoteOperation),
            },
        }
        Ok(true)
    }

    /// The answer to a READ or an atomic operation. It acknowledges everything before it.
    fn response(
        &mut self,
        ctx: &mut Context<'_>,
        common: &Common,
        packet: &Arrived<'_>,
        psn: u64,
        aeth: Option<Aeth>,
    ) -> Result<bool, Status> {
        if aeth.is_some_and(|aeth| !matches!(aeth.syndrome, Syndrome::Ack(_))) {
            ctx.books.refused.bad_opcode += 1;
            return Ok(false);
        }
        if !self.advance(ctx, common, psn) {
            ctx.books.out_of_sequence += 1;
            return self.lost().map(|()| false);
        }
        let number = self.sends.first();
        let request = *self.sends.get(number);
        let offset = (psn - request.psn) as u32 * common.mtu;
        let len = packet.len.wrapping_sub(packet.bth.pad.into());
        let (taken, good) = match (packet.bth.opcode, request.operation) {
            (Opcode::RcAtomicAcknowledge, Operation::CompareSwap { .. } | Operation::FetchAdd { .. }) => {
                (self.put_original(ctx, packet), packet.len == 0)
            }
            (Opcode::RcAtomicAcknowledge, _) => (false, true),
            (_, Operation::Read(_)) => {
                let expected = (request.len - offset).min(common.mtu);
                let fits = len == expected && packet.len == len.next_multiple_of(4);
                let target = part(self.sends.elements(number), offset, expected);
                (fits && settle(ctx.protection, ctx.books, packet.landed, expected, target), fits)
            }
            _ => (false, true),
        };
        if !taken {
            let refused = &mut ctx.books.refused;
            *if good { &mut refused.bad_opcode } else { &mut refused.bad_length } += 1;
            return if common.config.strict { Err(Status::BadResponse) } else { Ok(false) };
        }
        if !request.is_atomic() {
            ctx.books.bytes_in += u64::from(len);
        }
        let (done, end) = (psn + 1, request.end());
        let whole = request.is_atomic() || done == end || ((done - request.psn) as u32).is_multiple_of(self.piece);
        if whole && psn < self.next {
            self.unanswered = self.unanswered.saturating_sub(1);
        }
        self.acknowledged = done;
        if done == end {
            common.retire(ctx, &mut self.sends, Status::Success);
        }
        self.progressed(ctx.now, 1);
        Ok(true)
    }

    /// Puts what an atomic operation found where the request wants it, in the order of this machine.
    fn put_original(&self, ctx: &Context<'_>, packet: &Arrived<'_>) -> bool {
        let Some(answer) = packet.extensions.atomic_ack.filter(|_| packet.len == 0) else { return false };
        let bytes = answer.original.to_ne_bytes();
        let mut rest = bytes.as_slice();
        for piece in part(self.sends.elements(self.sends.first()), 0, 8) {
            let (now, later) = rest.split_at(piece.len.min(8) as usize);
            ctx.protection.regions().get(piece.region).write(piece.offset as usize, now);
            rest = later;
        }
        true
    }

    /// Everything before `upto` is acknowledged, as far as acknowledging is enough: whether it was for all.
    fn advance(&mut self, ctx: &mut Context<'_>, common: &Common, upto: u64) -> bool {
        let before = self.acknowledged;
        while self.acknowledged < upto {
            let request = self.sends.get(self.sends.first());
            if request.is_answered() {
                break;
            }
            let end = request.end();
            self.acknowledged = upto.min(end);
            if self.acknowledged == end {
                common.retire(ctx, &mut self.sends, Status::Success);
            }
        }
        if self.acknowledged > before {
            self.progressed(ctx.now, (self.acknowledged - before) as u32);
        }
        self.acknowledged == upto
    }

    /// So many sequence numbers more are acknowledged.
    fn progressed(&mut self, now: Nanos, packets: u32) {
        if self.next <= self.acknowledged {
            // What was going to be sent again has arrived after all.
            (self.next, self.cursor) = (self.acknowledged, self.sends.first());
        }
        self.credit += packets;
        self.window = (self.window + self.credit / 8).min(self.max_window);
        self.credit %= 8;
        (self.retries_left, self.rnr_left, self.backoff) = (self.retries, self.rnr_retries, 0);
        self.timer = None;
        if self.next > self.acknowledged {
            self.set_timer(now);
        }
    }

    /// The packet at `acknowledged`, or its answer, is lost.
    fn lost(&mut self) -> Result<(), Status> {
        if self.gone_back == Some(self.acknowledged) {
            return Ok(());
        }
        self.retry()?;
        self.gone_back = Some(self.acknowledged);
        self.window = (self.window - self.window / 8).max(MIN_WINDOW);
        Ok(())
    }

    fn retry(&mut self) -> Result<(), Status> {
        self.retries_left = self.retries_left.checked_sub(1).ok_or(Status::RetryExceeded)?;
        self.go_back();
        Ok(())
    }

    fn go_back(&mut self) {
        (self.next, self.cursor) = (self.acknowledged, self.sends.first());
        (self.unanswered, self.silent, self.silent_bytes) = (0, 0, 0);
    }

    fn set_timer(&mut self, now: Nanos) {
        self.timer = (self.timeout > 0).then(|| now.saturating_add(self.timeout.saturating_mul(1 << self.backoff)));
    }

    /// Sends again what was not answered in time.
    pub fn expire(&mut self, ctx: &mut Context<'_>) -> Result<(), Status> {
        self.resume = self.resume.filter(|resume| ctx.now < *resume);
        if self.timer.is_some_and(|timer| ctx.now >= timer) {
            ctx.books.timeouts += 1;
            (self.timer, self.gone_back) = (None, None);
            self.backoff = (self.backoff + 1).min(MAX_BACKOFF);
            self.window = (self.window / 2).max(MIN_WINDOW);
            self.retry()?;
        }
        Ok(())
    }

    /// Places for the answers to READs, if the first is the one that is due.
    pub fn pick(&self, ahead: &Ahead<'_>, mtu: u32, picks: &mut [Pick]) {
        let mut psn = absolute(ahead.bth.psn, self.acknowledged);
        if psn < self.acknowledged || psn >= self.top {
            return;
        }
        // Requests before it, which it acknowledges, must be of those for which that is enough.
        let mut number = self.sends.first();
        while number < self.sends.end() && psn >= self.sends.get(number).end() {
            if self.sends.get(number).is_answered() {
                return;
            }
            number += 1;
        }
        let count = picks.len();
        for (index, pick) in picks.iter_mut().enumerate() {
            if number == self.sends.end() || psn >= self.top {
                return;
            }
            let request = self.sends.get(number);
            let due = index > 0 || psn == request.psn.max(self.acknowledged);
            if !due || !matches!(request.operation, Operation::Read(_)) {
                return;
            }
            let offset = (psn - request.psn) as u32 * mtu;
            let expected = (request.len - offset).min(mtu);
            let total = if index + 1 == count { ahead.last } else { ahead.segment };
            let header = total.wrapping_sub(expected.next_multiple_of(4)) as usize;
            // With an acknowledgement in it, or without.
            if header != Opcode::RcReadResponseOnly.header_len() && header != Opcode::RcReadResponseMiddle.header_len()
            {
                return;
            }
            pick.header_len = Some(header as u16);
            if expected.is_multiple_of(4) {
                pick.to = part(self.sends.elements(number), offset, expected).place();
            }
            psn += 1;
            number += u64::from(psn == request.end());
        }
    }
}
