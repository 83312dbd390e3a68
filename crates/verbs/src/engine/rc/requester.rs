//! RC requester: sends requests, processes responses, retransmits.

use crate::api::{Mtu, Operation, PostError, QpConfig, QpState, QpType, ReadyToSend, Remote, SendWr, Status};
use crate::engine::common::Common;
use crate::engine::flow::Flow;
use crate::engine::gather::{move_payload, sge_range};
use crate::engine::segment::{self, PSN_MASK, expand_psn};
use crate::engine::sends::SendQueue;
use crate::engine::{BatchHead, Burst, Context, IncomingPacket, Nanos, Part};
use shotline_memory::Sge;
use shotline_transport::Pick;
use shotline_wire::aeth::{Aeth, NakCode, Syndrome};
use shotline_wire::atomic::AtomicEth;
use shotline_wire::bth::{Bth, Opcode};
use shotline_wire::reth::Reth;
use shotline_wire::roce::Extensions;

/// Upper bound of the congestion window, in packets. The protocol would allow 2^23.
const MAX_CWND: u32 = 1024;
/// Lower bound of the congestion window, in packets.
const MIN_CWND: u32 = 4;
/// Longest packet that the congestion window counts as its bytes: the largest of InfiniBand.
const MAX_CWND_MTU: u32 = Mtu::B4096.bytes();
/// Default congestion window, in bytes: 100 Gbit/s over 40 µs. A larger window is faster only on long paths, and all of
/// it is retransmitted when one packet is lost: with 64 KiB messages and 0.1 % loss, 87 to 90 % of the link rate remain
/// with this value, and 81 % with twice as much.
const DEFAULT_CWND_BYTES: u32 = 1 << 19;
/// Number of READ requests that fill one window, so that the next is requested while one is being received.
const READS_PER_CWND: u32 = 4;
/// Maximum exponent of the retransmission back-off: the timeout is `initial << n`, n <= 3.
const MAX_BACKOFF: u32 = 3;
/// Value of `rnr_retry` that means unlimited retries.
const RNR_RETRY_UNLIMITED: u8 = 7;
/// First absolute sequence number. Sequence numbers continue beyond the 24 bits of a PSN; with this start none becomes
/// negative.
const FIRST_PSN: u64 = 1 << 24;

/// Send queue and transmission state.
///
/// All sequence numbers are absolute. Those in `snd_una..snd_nxt` are in flight; those below `snd_max` have been sent
/// at least once. The oldest request in the queue contains `snd_una`, the request `cursor` contains `snd_nxt`. Going
/// back sets `snd_nxt` to `snd_una`, and retransmission starts there.
#[derive(Debug)]
pub(super) struct Requester {
    pub sends: SendQueue,
    /// The last packet of a message requests an acknowledgement if this many bytes were sent since the last one that
    /// did.
    pub ack_every: u32,
    snd_una: u64,
    snd_nxt: u64,
    snd_max: u64,
    /// First sequence number of the next posted request.
    next_psn: u64,
    cursor: u64,
    /// READ requests and atomic operations in `snd_una..snd_nxt`, and their maximum.
    rd_atomic: u32,
    max_rd_atomic: u32,
    /// Response packets per READ request. A READ is split at multiples of it.
    read_chunk: u32,
    /// Congestion window in packets, its maximum, and its maximum in bytes.
    cwnd: u32,
    max_cwnd: u32,
    cwnd_bytes: u32,
    /// Packets acknowledged since the last increase of the window (0 to 7): eight of them widen it by one.
    cwnd_count: u32,
    /// Packets and bytes sent since the last acknowledgement request.
    noack_packets: u32,
    noack_bytes: u64,
    /// Acknowledgement timeout before back-off (0: none), the exponent of its back-off, and the time at which it
    /// expires.
    timeout: Nanos,
    backoff: u32,
    timer: Option<Nanos>,
    retry_cnt: u8,
    retries_left: u8,
    rnr_retry: u8,
    rnr_retries_left: u8,
    /// End of the delay that an RNR NAK requested.
    rnr_deadline: Option<Nanos>,
    /// The loss of this sequence number is being repaired: further reports of it are ignored.
    recovering_psn: Option<u64>,
}

impl Requester {
    pub fn new(config: &QpConfig, buffer: Sge) -> Self {
        Self {
            sends: SendQueue::new(config, buffer),
            ack_every: 0,
            snd_una: FIRST_PSN,
            snd_nxt: FIRST_PSN,
            snd_max: FIRST_PSN,
            next_psn: FIRST_PSN,
            cursor: 0,
            rd_atomic: 0,
            max_rd_atomic: 0,
            read_chunk: 1,
            cwnd: MIN_CWND,
            max_cwnd: MIN_CWND,
            cwnd_bytes: DEFAULT_CWND_BYTES,
            cwnd_count: 0,
            noack_packets: 0,
            noack_bytes: 0,
            timeout: 0,
            backoff: 0,
            timer: None,
            retry_cnt: 0,
            retries_left: 0,
            rnr_retry: 0,
            rnr_retries_left: 0,
            rnr_deadline: None,
            recovering_psn: None,
        }
    }

    /// Starts at the PSN and with the limits of the transition to `ReadyToSend`.
    pub fn start(&mut self, attributes: &ReadyToSend, mtu: u32) {
        let psn = FIRST_PSN + u64::from(attributes.psn & PSN_MASK);
        (self.snd_una, self.snd_nxt, self.snd_max, self.next_psn) = (psn, psn, psn, psn);
        (self.cursor, self.rd_atomic, self.noack_packets, self.noack_bytes) = (self.sends.end(), 0, 0, 0);
        (self.timer, self.rnr_deadline, self.recovering_psn, self.backoff) = (None, None, None, 0);
        self.max_rd_atomic = attributes.max_rd_atomic.into();
        self.timeout = u64::try_from(attributes.timeout.as_nanos()).unwrap_or(Nanos::MAX);
        (self.retry_cnt, self.retries_left) = (attributes.retry_cnt, attributes.retry_cnt);
        (self.rnr_retry, self.rnr_retries_left) = (attributes.rnr_retry, attributes.rnr_retry);
        self.set_window(self.cwnd_bytes, mtu);
    }

    /// Stops all transmissions and timers.
    pub fn stop(&mut self) {
        (self.cursor, self.rd_atomic) = (self.sends.end(), 0);
        (self.timer, self.rnr_deadline) = (None, None);
        (self.snd_una, self.snd_nxt, self.snd_max) = (self.next_psn, self.next_psn, self.next_psn);
    }

    /// Sets the maximum congestion window, in bytes. READs are split accordingly only if no request
    /// was outstanding.
    pub fn set_window(&mut self, bytes: u32, mtu: u32) {
        self.cwnd_bytes = bytes;
        // A path with longer packets has flow control of its own, so fewer of them need not be in flight.
        self.max_cwnd = (bytes / mtu.min(MAX_CWND_MTU)).clamp(MIN_CWND, MAX_CWND);
        self.cwnd = self.cwnd.min(self.max_cwnd);
        if self.snd_una == self.next_psn {
            // No request is outstanding, so no READ has been split with the old value.
            self.cwnd = self.max_cwnd;
            self.read_chunk = (self.max_cwnd / self.max_rd_atomic.clamp(1, READS_PER_CWND)).max(1);
        }
    }

    /// Queues a request and assigns its PSNs.
    pub fn post(&mut self, ctx: &mut Context<'_>, wr: &SendWr<'_>, mtu: u32, max: u64) -> Result<(), PostError> {
        if wr.operation.has_response() && self.max_rd_atomic == 0 {
            // The connection was configured without READs and atomic operations.
            return Err(PostError::Unsupported(QpType::Rc));
        }
        let request = self.sends.post(ctx.protection, wr, max)?;
        request.psn = self.next_psn;
        request.packets = if request.is_atomic() { 1 } else { segment::packet_count(request.len, mtu) };
        self.next_psn += u64::from(request.packets);
        Ok(())
    }

    /// Returns the number of PSNs of the next packet that may be sent, and `true` if it has a response; `None` if the
    /// window or a limit allows no packet.
    fn sendable(&self, common: &Common) -> Option<(u32, bool)> {
        if !self.has_work(common) {
            return None;
        }
        let request = self.sends.get(self.cursor);
        let index = (self.snd_nxt - request.psn) as u32;
        let has_response = request.has_response();
        let count = match request.operation {
            Operation::Read(_) => (self.read_chunk - index % self.read_chunk).min(request.packets - index),
            _ => 1,
        };
        let in_flight = self.in_flight();
        let fenced = request.fence && index == 0 && self.rd_atomic > 0;
        let fits = in_flight == 0 || in_flight + count <= self.cwnd;
        let allowed = fits && !fenced && !(has_response && self.rd_atomic >= self.max_rd_atomic);
        allowed.then_some((count, has_response))
    }

    /// Returns `true` if only pacing can delay the next packet.
    pub fn may_send(&self, common: &Common) -> bool {
        self.rnr_deadline.is_none() && self.sendable(common).is_some()
    }

    /// Returns the number of PSNs sent and not acknowledged.
    pub fn in_flight(&self) -> u32 {
        (self.snd_nxt - self.snd_una) as u32
    }

    /// Returns `true` if a request is waiting to be sent.
    fn has_work(&self, common: &Common) -> bool {
        common.state == QpState::ReadyToSend && self.cursor < self.sends.end()
    }

    /// Returns `true` if a packet may be sent at `now`.
    pub fn has_packets_to_send(&self, now: Nanos, common: &Common, flow: &Flow) -> bool {
        self.rnr_deadline.is_none_or(|deadline| now >= deadline)
            && self.sendable(common).is_some()
            && flow.is_ready(now)
    }

    /// Returns the earlier of the acknowledgement timeout and the end of the RNR delay.
    pub fn deadline(&self) -> Option<Nanos> {
        self.timer.into_iter().chain(self.rnr_deadline).min()
    }

    /// Adds packets until the burst has `end` of them, or the window, a limit or pacing stops it.
    pub fn transmit(&mut self, ctx: &mut Context<'_>, common: &Common, flow: &mut Flow, burst: &mut Burst, end: usize) {
        if self.rnr_deadline.is_some_and(|deadline| ctx.now < deadline) {
            return;
        }
        self.rnr_deadline = None;
        while burst.len() < end
            && let Some((count, has_response)) = self.sendable(common)
            && flow.try_charge(ctx.now, if has_response { 0 } else { common.mtu })
        {
            ctx.counters.retransmitted += u64::from(self.snd_nxt < self.snd_max);
            if has_response {
                self.push_rd_atomic(burst, common, count);
                self.rd_atomic += 1;
                (self.noack_packets, self.noack_bytes) = (0, 0);
            } else {
                self.push_segment(burst, common);
                if self.snd_nxt < self.snd_max {
                    burst.mark_retransmission();
                }
            }
            self.snd_nxt += u64::from(count);
            self.snd_max = self.snd_max.max(self.snd_nxt);
            let request = self.sends.get(self.cursor);
            if self.snd_nxt == request.end() {
                self.cursor += 1;
            }
            if self.timer.is_none() {
                self.set_timer(ctx.now);
            }
        }
    }

    /// Sends the next packet of a SEND or WRITE, and decides whether it requests an acknowledgement.
    fn push_segment(&mut self, burst: &mut Burst, common: &Common) {
        let request = self.sends.get(self.cursor);
        let index = (self.snd_nxt - request.psn) as u32;
        let last = index + 1 == request.packets;
        self.noack_packets += 1;
        self.noack_bytes += u64::from(common.mtu.min(request.len - index * common.mtu));
        let requested = last && (self.noack_bytes >= u64::from(self.ack_every) || self.cursor + 1 == self.sends.end());
        // Request acknowledgements several times per window in any case, so that the window cannot close before one is
        // requested.
        let ack_request = requested || self.noack_packets >= (self.cwnd / READS_PER_CWND).max(1);
        if ack_request {
            (self.noack_packets, self.noack_bytes) = (0, 0);
        }
        segment::push(burst, common, &self.sends, self.cursor, index, self.snd_nxt as u32, ack_request);
    }

    /// Sends a READ request for `count` response packets, or an atomic operation.
    fn push_rd_atomic(&self, burst: &mut Burst, common: &Common, count: u32) {
        let Some((to, qp)) = common.peer else { return };
        let request = self.sends.get(self.cursor);
        let mut extensions = Extensions::default();
        let (opcode, operation_len, remote) = match request.operation {
            Operation::CompareSwap { remote, compare, swap } => {
                extensions.atomic =
                    Some(AtomicEth { address: remote.address, r_key: remote.rkey, swap_or_add: swap, compare });
                (Opcode::RcCompareSwap, request.len, remote)
            }
            Operation::FetchAdd { remote, add } => {
                extensions.atomic =
                    Some(AtomicEth { address: remote.address, r_key: remote.rkey, swap_or_add: add, compare: 0 });
                (Opcode::RcFetchAdd, request.len, remote)
            }
            Operation::Read(remote) => {
                let offset = (self.snd_nxt - request.psn) as u32 * common.mtu;
                let length = (request.len - offset).min(count * common.mtu);
                let address = remote.address.wrapping_add(offset.into());
                extensions.reth = Some(Reth { address, r_key: remote.rkey, length });
                (Opcode::RcReadRequest, length, Remote { address, ..remote })
            }
            _ => return,
        };
        let bth = Bth { ack_request: true, ..Bth::new(opcode, qp, self.snd_nxt as u32 & PSN_MASK) };
        let part = Part { operation_len, offset: 0, remote: Some(remote) };
        burst.push_request(to, extensions.emit(&bth), part, sge_range(&[], 0, 0), Sge::EMPTY);
    }

    /// Processes a response. Returns `true` if it was accepted; an error ends the oldest request and the connection.
    pub fn receive(
        &mut self,
        ctx: &mut Context<'_>,
        common: &Common,
        packet: &IncomingPacket<'_>,
    ) -> Result<bool, Status> {
        let psn = expand_psn(packet.bth.psn, self.snd_una);
        if psn < self.snd_una {
            ctx.counters.duplicates += 1;
            return Ok(false);
        }
        if psn >= self.snd_max {
            *match packet.bth.opcode {
                Opcode::RcAcknowledge => &mut ctx.counters.drops.bad_ack,
                _ => &mut ctx.counters.drops.bad_psn,
            } += 1;
            return Ok(false);
        }
        match (packet.bth.opcode, packet.extensions.aeth) {
            (Opcode::RcAcknowledge, Some(aeth)) => self.on_acknowledgement(ctx, common, psn, aeth),
            (Opcode::RcAcknowledge, None) => Ok(false),
            (_, aeth) => self.on_response(ctx, common, packet, psn, aeth),
        }
    }

    /// Processes an acknowledgement or a NAK.
    fn on_acknowledgement(
        &mut self,
        ctx: &mut Context<'_>,
        common: &Common,
        psn: u64,
        aeth: Aeth,
    ) -> Result<bool, Status> {
        let counters = &mut *ctx.counters;
        let until = match aeth.syndrome {
            Syndrome::Ack(_) => {
                counters.acks_in += 1;
                psn + 1
            }
            Syndrome::RnrNak(_) => {
                counters.naks_in.receiver_not_ready += 1;
                psn
            }
            Syndrome::Nak(code) => {
                counters.naks_in.count(code);
                psn
            }
        };
        if !self.advance(ctx, common, until) {
            // The response to a READ or an atomic operation should have arrived before this, so it is lost.
            return self.on_loss().map(|()| true);
        }
        match aeth.syndrome {
            Syndrome::Ack(_) => {}
            // The RNR delay is already running.
            Syndrome::RnrNak(_) if self.rnr_deadline.is_some() => {}
            Syndrome::RnrNak(timer) => {
                if self.rnr_retries_left == 0 {
                    return Err(Status::RnrRetryExceeded);
                }
                if self.rnr_retry != RNR_RETRY_UNLIMITED {
                    self.rnr_retries_left -= 1;
                }
                self.go_back();
                self.timer = None;
                self.rnr_deadline = Some(ctx.now + u64::from(timer.microseconds()) * 1000);
            }
            Syndrome::Nak(code) => match code {
                NakCode::PsnSequenceError => self.on_loss()?,
                NakCode::InvalidRequest | NakCode::InvalidRdRequest => return Err(Status::RemoteInvalid),
                NakCode::RemoteAccessError => return Err(Status::RemoteAccess),
                NakCode::RemoteOperationalError => return Err(Status::RemoteOperation),
            },
        }
        Ok(true)
    }

    /// Processes a READ response or an atomic acknowledgement. It acknowledges everything before it.
    fn on_response(
        &mut self,
        ctx: &mut Context<'_>,
        common: &Common,
        packet: &IncomingPacket<'_>,
        psn: u64,
        aeth: Option<Aeth>,
    ) -> Result<bool, Status> {
        if aeth.is_some_and(|aeth| !matches!(aeth.syndrome, Syndrome::Ack(_))) {
            ctx.counters.drops.bad_opcode += 1;
            return Ok(false);
        }
        if !self.advance(ctx, common, psn) {
            ctx.counters.out_of_sequence += 1;
            return self.on_loss().map(|()| false);
        }
        let number = self.sends.first();
        let request = *self.sends.get(number);
        let (index, next, end) = ((psn - request.psn) as u32, psn + 1, request.end());
        let piece_done = request.is_atomic() || next == end || (index + 1).is_multiple_of(self.read_chunk);
        let offset = index * common.mtu;
        let len = packet.len.wrapping_sub(packet.bth.pad.into());
        let (accepted, length_ok) = match (packet.bth.opcode, request.operation) {
            (Opcode::RcAtomicAcknowledge, Operation::CompareSwap { .. } | Operation::FetchAdd { .. }) => {
                (self.write_original(ctx, packet), packet.len == 0)
            }
            (Opcode::RcAtomicAcknowledge, _) => (false, true),
            (opcode, Operation::Read(_)) if !self.is_in_position(opcode, index, piece_done) => (false, true),
            (_, Operation::Read(_)) => {
                let expected = (request.len - offset).min(common.mtu);
                let fits = len == expected && packet.len == len.next_multiple_of(4);
                let target = sge_range(self.sends.elements(number), offset, expected);
                (fits && move_payload(ctx.protection, ctx.counters, packet.payload, expected, target), fits)
            }
            _ => (false, true),
        };
        if !accepted {
            let drops = &mut ctx.counters.drops;
            *if length_ok { &mut drops.bad_opcode } else { &mut drops.bad_length } += 1;
            return if common.config.strict { Err(Status::BadResponse) } else { Ok(false) };
        }
        if !request.is_atomic() {
            ctx.counters.bytes_in += u64::from(len);
        }
        if piece_done && psn < self.snd_nxt {
            self.rd_atomic = self.rd_atomic.saturating_sub(1);
        }
        self.snd_una = next;
        if next == end {
            common.retire(ctx, &mut self.sends, Status::Success);
        }
        self.on_progress(ctx.now, 1);
        Ok(true)
    }

    /// Returns `true` if the opcode of a READ response fits its index in the operation. A request begins with the first
    /// response of a piece, or where an earlier request for the same piece was interrupted; it ends with the piece.
    fn is_in_position(&self, opcode: Opcode, index: u32, is_last: bool) -> bool {
        let (first, last) = match opcode {
            Opcode::RcReadResponseOnly => (true, true),
            Opcode::RcReadResponseFirst => (true, false),
            Opcode::RcReadResponseLast => (false, true),
            _ => (false, false),
        };
        last == is_last && (first || !index.is_multiple_of(self.read_chunk))
    }

    /// Writes the original value of an atomic operation to the request's elements, in native byte order.
    fn write_original(&self, ctx: &Context<'_>, packet: &IncomingPacket<'_>) -> bool {
        let Some(atomic_ack) = packet.extensions.atomic_ack.filter(|_| packet.len == 0) else { return false };
        let bytes = atomic_ack.original.to_ne_bytes();
        let mut rest = bytes.as_slice();
        for piece in sge_range(self.sends.elements(self.sends.first()), 0, 8) {
            let (head, tail) = rest.split_at(piece.len.min(8) as usize);
            ctx.protection.regions().get(piece.region).write(piece.offset as usize, head);
            rest = tail;
        }
        true
    }

    /// Acknowledges everything before `until`, up to the first request that needs a response. Returns `true` if that was
    /// everything.
    fn advance(&mut self, ctx: &mut Context<'_>, common: &Common, until: u64) -> bool {
        let before = self.snd_una;
        while self.snd_una < until {
            let request = self.sends.get(self.sends.first());
            if request.has_response() {
                break;
            }
            let end = request.end();
            self.snd_una = until.min(end);
            if self.snd_una == end {
                common.retire(ctx, &mut self.sends, Status::Success);
            }
        }
        if self.snd_una > before {
            self.on_progress(ctx.now, (self.snd_una - before) as u32);
        }
        self.snd_una == until
    }

    /// Widens the window and restarts the timer after progress of `packets` sequence numbers.
    fn on_progress(&mut self, now: Nanos, packets: u32) {
        if self.snd_nxt <= self.snd_una {
            // The packets that were about to be retransmitted have arrived.
            (self.snd_nxt, self.cursor) = (self.snd_una, self.sends.first());
        }
        self.cwnd_count += packets;
        self.cwnd = (self.cwnd + self.cwnd_count / 8).min(self.max_cwnd);
        self.cwnd_count %= 8;
        (self.retries_left, self.rnr_retries_left, self.backoff) = (self.retry_cnt, self.rnr_retry, 0);
        self.timer = None;
        if self.snd_nxt > self.snd_una {
            self.set_timer(now);
        }
    }

    /// Handles the loss of the packet at `snd_una`, or of its response.
    fn on_loss(&mut self) -> Result<(), Status> {
        if self.recovering_psn == Some(self.snd_una) {
            return Ok(());
        }
        self.retry()?;
        self.recovering_psn = Some(self.snd_una);
        self.cwnd = (self.cwnd - self.cwnd / 8).max(MIN_CWND);
        Ok(())
    }

    /// Goes back to `snd_una`. Fails if no retry is left.
    fn retry(&mut self) -> Result<(), Status> {
        self.retries_left = self.retries_left.checked_sub(1).ok_or(Status::RetryExceeded)?;
        self.go_back();
        Ok(())
    }

    /// Continues at `snd_una`: everything in flight is sent again.
    fn go_back(&mut self) {
        (self.snd_nxt, self.cursor) = (self.snd_una, self.sends.first());
        (self.rd_atomic, self.noack_packets, self.noack_bytes) = (0, 0, 0);
    }

    /// Restarts the acknowledgement timeout, unless it is disabled.
    fn set_timer(&mut self, now: Nanos) {
        self.timer = (self.timeout > 0).then(|| now.saturating_add(self.timeout.saturating_mul(1 << self.backoff)));
    }

    /// Goes back and retransmits when the acknowledgement timeout has expired.
    pub fn expire(&mut self, ctx: &mut Context<'_>) -> Result<(), Status> {
        self.rnr_deadline = self.rnr_deadline.filter(|deadline| ctx.now < *deadline);
        if self.timer.is_some_and(|timer| ctx.now >= timer) {
            ctx.counters.timeouts += 1;
            (self.timer, self.recovering_psn) = (None, None);
            self.backoff = (self.backoff + 1).min(MAX_BACKOFF);
            self.cwnd = (self.cwnd / 2).max(MIN_CWND);
            self.retry()?;
        }
        Ok(())
    }

    /// Chooses destinations for READ responses, if the first packet is the next expected response.
    pub fn pick(&self, head: &BatchHead<'_>, mtu: u32, picks: &mut [Pick]) {
        let mut psn = expand_psn(head.bth.psn, self.snd_una);
        if psn < self.snd_una || psn >= self.snd_max {
            return;
        }
        // The requests before it, which it acknowledges, must not need a response.
        let mut number = self.sends.first();
        while number < self.sends.end() && psn >= self.sends.get(number).end() {
            if self.sends.get(number).has_response() {
                return;
            }
            number += 1;
        }
        let count = picks.len();
        for (index, pick) in picks.iter_mut().enumerate() {
            if number == self.sends.end() || psn >= self.snd_max {
                return;
            }
            let request = self.sends.get(number);
            let is_next = index > 0 || psn == request.psn.max(self.snd_una);
            if !is_next || !matches!(request.operation, Operation::Read(_)) {
                return;
            }
            let offset = (psn - request.psn) as u32 * mtu;
            let expected = (request.len - offset).min(mtu);
            let total_len = if index + 1 == count { head.last_len } else { head.segment_len };
            let header = total_len.wrapping_sub(expected.next_multiple_of(4)) as usize;
            // Headers with an AETH, or without.
            if header != Opcode::RcReadResponseOnly.header_len() && header != Opcode::RcReadResponseMiddle.header_len()
            {
                return;
            }
            pick.header_len = Some(header as u16);
            if expected.is_multiple_of(4) {
                pick.destination = sge_range(self.sends.elements(number), offset, expected).destination();
            }
            psn += 1;
            number += u64::from(psn == request.end());
        }
    }
}
