//! Data link layer (ECSS 5.7): frames of up to 32 virtual channels with flow control, quality of service and retry.
//!
//! [`DataLink`] decides what is sent and what is accepted. It has no bytes: data segments are slots of its user, and
//! control words are values. [`frames`](crate::frames) sends whole frames with it. [`words`](crate::words) sends one row of
//! words at a time: it inserts control words in data frames, and counts each row ([`DataLink::count_single_rows`]).
//!
//! Call order of a sender, whenever it may send something:
//! 1. [`DataLink::next_control`]: control words and broadcast frames, which may be inserted in a data frame. After a
//!    RETRY the present data frame is abandoned.
//! 2. Between data frames: [`DataLink::unsent_segment`], a segment to send again; if there is none,
//!    [`DataLink::select`] a virtual channel and [`DataLink::admit`] its next segment.
//! 3. [`DataLink::finish_segment`] at the end of a data frame, for its sequence number.
//! 4. [`DataLink::idle_word`] if there is nothing else.
//!
//! A receiver calls the `on_` methods for what arrives, and [`DataLink::release`] for what was read. After each of these,
//! [`DataLink::take_reset`] says whether the link must be reset.

mod broadcast;
mod channel;
mod counters;
mod receive;
mod recovery;
mod sequence;
#[cfg(test)]
mod tests;

pub use broadcast::BroadcastMessage;
pub use channel::{ChannelStatus, FCT_WORDS, MAX_CREDIT_WORDS};
pub use counters::{ChannelCounters, LinkCounters};
pub use recovery::{DATA_SLOTS, MAX_UNACKNOWLEDGED, Segment};

use crate::qos::{BroadcastCredit, MediumAccess, QosError, Share, VcQos};
use arrayvec::ArrayVec;
use channel::Channel;
use recovery::RecoveryBuffer;
use sequence::{Receiver, Request};
use shotline_wire::spacefibre::{ControlWord, SequenceNumber};
use std::collections::VecDeque;

/// Maximum number of virtual channels.
pub const MAX_VCS: usize = 32;
/// Words of a data frame on one lane (ECSS 5.3.8.2).
pub const FRAME_ROWS: u32 = 64;
/// Maximum multiplier of an FCT (ECSS 5.3.5.2).
const MAX_MULTIPLIER: u8 = 8;
/// Minimum number of rows between two ACKs (ECSS 5.7.7.2.1d).
const ACK_INTERVAL: u64 = 15;
/// Rows between two FULL words while the error recovery buffer is full (ECSS 5.7.7.1r).
const FULL_INTERVAL: u64 = 64;
/// Maximum number of broadcast messages that wait to be sent.
const MAX_WAITING_BROADCASTS: usize = 16;

/// Properties of one virtual channel.
#[derive(Clone, Copy, Debug)]
pub struct VcConfig {
    /// Quality of service.
    pub qos: VcQos,
    /// Capacity of the input buffer at this end, in words; at least one frame.
    pub input_words: u32,
}

/// Reason of a link reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetCause {
    /// An ACK or NACK with a count that was never sent.
    Protocol,
    /// Data without credit.
    InputOverflow,
    /// The far end has reset its link.
    FarEnd,
    /// The user of this end.
    Requested,
}

/// What [`DataLink::next_control`] sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// RETRY: the present frame is abandoned.
    Retry,
    /// A broadcast frame.
    Broadcast(BroadcastMessage, SequenceNumber),
    /// ACK, NACK, FCT or FULL.
    Word(ControlWord),
}

/// Returns the multiplier of the FCTs of input buffers of this capacity in words: one FCT covers a whole frame, or a
/// quarter of the buffer, as far as the field allows (ECSS 5.3.5.2). Fewer FCTs cost less of the link.
fn multiplier(lanes: u8, input_words: u32) -> u8 {
    let quarter = input_words / FCT_WORDS / 4;
    quarter.max(lanes.into()).min(MAX_MULTIPLIER.into()) as u8
}

/// One end of a link, without lanes and bytes.
#[derive(Clone, Debug)]
pub struct DataLink {
    /// Number of lanes of a frame: the factor of segment lengths and FCTs.
    lanes: u32,
    /// Multiplier of the FCTs.
    multiplier: u8,
    channels: ArrayVec<Channel, MAX_VCS>,
    /// Bit per virtual channel: it has credit.
    with_credit: u32,
    access: MediumAccess,
    broadcast_credit: BroadcastCredit,
    recovery: RecoveryBuffer,
    broadcasts: VecDeque<BroadcastMessage>,
    receiver: Receiver,
    /// Transmit Sequence Counter and Transmit Polarity Flag.
    tx_seq: SequenceNumber,
    /// A NACK was processed; the RETRY comes first.
    retry_pending: bool,
    /// The unsent segment was admitted just now, and its rows are counted.
    is_new: bool,
    /// The far end may have lost an acknowledgement: send a FULL when there is nothing else.
    probe: bool,
    /// Rows sent since the link was created.
    rows: u64,
    /// Rows are counted by [`Self::on_row`].
    counts_single_rows: bool,
    last_ack: u64,
    last_full: Option<u64>,
    /// Bit per virtual channel: its input buffer has space for an FCT.
    with_space: u32,
    /// Row before which there is no control word to send, unless something changes, which sets it to 0.
    wake_row: u64,
    reset: Option<ResetCause>,
    counters: LinkCounters,
}

impl DataLink {
    /// Creates the end of a link whose frames span `lanes` lanes (1 to 16), with these virtual channels (1 to 32).
    ///
    /// `broadcasts` is the share of the link that broadcast frames may use.
    ///
    /// # Errors
    /// If the quality of service of the channels cannot be kept.
    ///
    /// # Panics
    /// If there are too many or no lanes or channels.
    pub fn new(lanes: u8, channels: &[VcConfig], broadcasts: Share) -> Result<Self, QosError> {
        assert!((1..=16).contains(&lanes), "expected 1 to 16 lanes, found {lanes}");
        let count = channels.len();
        assert!((1..=MAX_VCS).contains(&count), "expected 1 to {MAX_VCS} virtual channels, found {count}");
        let qos: ArrayVec<VcQos, MAX_VCS> = channels.iter().map(|config| config.qos).collect();
        let input_words = channels.iter().map(|config| config.input_words).min().unwrap_or_default();
        let multiplier = multiplier(lanes, input_words);
        Ok(Self {
            lanes: lanes.into(),
            multiplier,
            channels: channels.iter().map(|config| Channel::new(config.input_words)).collect(),
            with_credit: 0,
            access: MediumAccess::new(&qos)?,
            broadcast_credit: BroadcastCredit::new(broadcasts),
            recovery: RecoveryBuffer::new(lanes, multiplier),
            broadcasts: VecDeque::with_capacity(MAX_WAITING_BROADCASTS),
            receiver: Receiver::default(),
            tx_seq: SequenceNumber::default(),
            retry_pending: false,
            is_new: false,
            probe: false,
            rows: 0,
            counts_single_rows: false,
            last_ack: 0,
            last_full: None,
            with_space: u32::MAX,
            wake_row: 0,
            reset: None,
            counters: LinkCounters::default(),
        })
    }

    /// Maximum length of a data segment, in words: 64 per lane.
    pub fn max_segment(&self) -> u32 {
        FRAME_ROWS * self.lanes
    }
    /// Returns the counters.
    pub fn counters(&self) -> &LinkCounters {
        &self.counters
    }
    /// Returns the medium access controller: quality of service and its status.
    pub fn access(&mut self) -> &mut MediumAccess {
        &mut self.access
    }
    /// Returns the words of credit of a virtual channel: for sending, and granted to the far end.
    pub fn credit(&self, vc: u8) -> Option<(u32, u32)> {
        self.channels.get(usize::from(vc)).map(|channel| (channel.credit(), channel.granted()))
    }
    /// Returns the status of a virtual channel; `None` if it does not exist.
    pub fn channel(&self, vc: u8) -> Option<ChannelStatus> {
        let channel = self.channels.get(usize::from(vc))?;
        Some(channel.status(*self.access.qos(vc)?, self.access.status(vc)?))
    }
    /// Returns the number of items that are sent and not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.recovery.unacknowledged()
    }
    /// Returns the number of data segments that can be stored.
    pub fn free_segments(&self) -> usize {
        self.recovery.free_segments()
    }
    /// Returns `true` if everything that was sent is acknowledged.
    pub fn is_all_acknowledged(&self) -> bool {
        self.recovery.is_empty() && self.broadcasts.is_empty()
    }

    /// Returns the reason for which the link must be reset, once.
    pub fn take_reset(&mut self) -> Option<ResetCause> {
        self.reset.take()
    }
    /// Requests a link reset; the first reason is kept.
    pub fn request_reset(&mut self, cause: ResetCause) {
        self.counters.far_end_resets += u64::from(cause == ResetCause::FarEnd);
        self.reset.get_or_insert(cause);
    }
    /// Resets the link (ECSS 5.7.10): no credit, nothing stored, sequence numbers from 0. Both ends must do so before
    /// either sends again.
    pub fn reset(&mut self) {
        self.counters.link_resets += 1;
        self.channels.iter_mut().for_each(Channel::reset);
        self.recovery.clear();
        self.broadcasts.clear();
        self.broadcast_credit.reset();
        self.with_space = u32::MAX;
        (self.with_credit, self.receiver, self.tx_seq) = (0, Receiver::default(), SequenceNumber::default());
        (self.retry_pending, self.is_new, self.probe, self.last_full, self.reset) = (false, false, false, None, None);
        (self.last_ack, self.wake_row) = (self.rows, 0);
    }

    /// Queues a broadcast message. Returns `false` if too many wait. It is late if it must wait for an error recovery.
    pub fn post_broadcast(&mut self, mut message: BroadcastMessage) -> bool {
        let has_space = self.broadcasts.len() < MAX_WAITING_BROADCASTS;
        if has_space {
            self.wake_row = 0;
            if self.retry_pending || self.recovery.resends_broadcasts() {
                message.delay();
            }
            self.broadcasts.push_back(message);
        }
        has_space
    }

    /// Marks the broadcast messages that wait as late: no lane is active, or the link is being repaired.
    pub fn delay_broadcasts(&mut self) {
        self.broadcasts.iter_mut().for_each(BroadcastMessage::delay);
    }

    /// Frees words of an input buffer that were read, so that the far end may send as many again.
    pub fn release(&mut self, vc: u8, words: u32) {
        if let Some(channel) = self.channels.get_mut(usize::from(vc)) {
            channel.release(words);
            self.with_space |= 1 << vc;
            self.wake_row = 0;
        }
    }

    /// Counts rows by [`Self::on_row`] from now on. Otherwise all rows of a frame are counted when it begins, so that
    /// those in it are counted before they are sent.
    pub fn count_single_rows(&mut self) {
        self.counts_single_rows = true;
    }

    /// Counts a row sent, for the intervals between control words. It has no effect before
    /// [`Self::count_single_rows`].
    #[inline]
    pub fn on_row(&mut self) {
        self.rows += u64::from(self.counts_single_rows);
    }

    /// Counts rows sent, for intervals and bandwidth.
    #[inline]
    fn on_sent(&mut self, vc: Option<u8>, rows: u32) {
        if !self.counts_single_rows {
            self.rows += u64::from(rows);
        }
        self.access.sent(vc, rows);
        self.broadcast_credit.sent(rows);
    }

    /// Returns `true` if the next item of [`Self::next_control`] is RETRY, which may be sent within a broadcast frame, too.
    #[inline]
    pub fn is_retry_pending(&self) -> bool {
        self.retry_pending
    }

    /// Returns the next control word or broadcast frame, in the order of ECSS 5.3.10c; `None` if there is none. The
    /// caller must send it.
    #[inline]
    pub fn next_control(&mut self) -> Option<Control> {
        if self.rows < self.wake_row { None } else { self.find_control() }
    }

    fn find_control(&mut self) -> Option<Control> {
        let Some(control) = self.choose_control() else {
            self.wake_row = self.next_wake_row();
            return None;
        };
        self.on_sent(None, if matches!(control, Control::Broadcast(..)) { 4 } else { 1 });
        Some(control)
    }

    /// Returns the row at which something waits to be sent that cannot be sent now.
    fn next_wake_row(&self) -> u64 {
        if !self.broadcasts.is_empty() {
            // They wait for credit, or for space.
            return self.rows;
        }
        let ack = self.receiver.request.map(|_| self.last_ack + ACK_INTERVAL);
        let full = self.last_full.map(|last| last + FULL_INTERVAL);
        ack.unwrap_or(u64::MAX).min(full.unwrap_or(u64::MAX))
    }

    fn choose_control(&mut self) -> Option<Control> {
        if std::mem::take(&mut self.retry_pending) {
            self.counters.retries += 1;
            self.tx_seq.negative = !self.tx_seq.negative;
            return Some(Control::Retry);
        }
        if let Some((message, seq)) = self.next_broadcast() {
            return Some(Control::Broadcast(message, seq));
        }
        if let Some(word) = self.next_acknowledgement().or_else(|| self.next_fct()) {
            return Some(Control::Word(word));
        }
        let is_full_again =
            self.recovery.is_full() && self.last_full.is_none_or(|last| self.rows - last >= FULL_INTERVAL);
        if is_full_again {
            return Some(Control::Word(self.full()));
        }
        if !self.recovery.is_full() {
            self.last_full = None;
        }
        None
    }

    fn next_broadcast(&mut self) -> Option<(BroadcastMessage, SequenceNumber)> {
        if self.recovery.unsent_broadcast().is_none()
            && !self.broadcasts.is_empty()
            && self.recovery.accepts_broadcast()
            && self.broadcast_credit.take()
            && let Some(message) = self.broadcasts.pop_front()
        {
            self.recovery.store_broadcast(message);
            self.counters.broadcasts_out += 1;
        }
        let message = self.recovery.unsent_broadcast()?;
        self.recovery.on_broadcast_sent();
        Some((message, self.advance()))
    }

    fn next_acknowledgement(&mut self) -> Option<ControlWord> {
        match self.receiver.request? {
            Request::Ack if self.rows - self.last_ack < ACK_INTERVAL && self.rows >= ACK_INTERVAL => None,
            Request::Ack => {
                (self.receiver.request, self.last_ack) = (None, self.rows);
                self.counters.acks_out += 1;
                Some(ControlWord::Ack { seq: self.receiver.ack_number() })
            }
            Request::Nack => {
                self.receiver.request = None;
                self.counters.nacks_out += 1;
                Some(ControlWord::Nack { seq: self.receiver.nack_number() })
            }
        }
    }

    fn next_fct(&mut self) -> Option<ControlWord> {
        if self.recovery.unsent_fct().is_none() && self.recovery.accepts_fct() {
            let vc = self.take_space()?;
            self.recovery.store_fct(vc);
            self.counters.fcts_out += 1;
        }
        let vc = self.recovery.unsent_fct()?;
        self.recovery.on_fct_sent();
        Some(ControlWord::FlowControlToken { vc, multiplier: self.multiplier, seq: self.advance() })
    }

    /// Reserves the space of an FCT in the input buffer with the most space, which the far end has filled most. Returns its
    /// virtual channel.
    fn take_space(&mut self) -> Option<u8> {
        let words = FCT_WORDS * u32::from(self.multiplier);
        let (mut candidates, mut most) = (self.with_space, None);
        while candidates != 0 {
            let vc = candidates.trailing_zeros();
            candidates &= candidates - 1;
            match self.channels.get(vc as usize).map(Channel::free).filter(|free| *free >= words) {
                Some(free) if most.is_none_or(|(other, _)| other < free) => most = Some((free, vc)),
                Some(_) => {}
                None => self.with_space &= !(1 << vc),
            }
        }
        let (_, vc) = most?;
        self.channels[vc as usize].grant(words);
        Some(vc as u8)
    }

    fn full(&mut self) -> ControlWord {
        self.last_full = Some(self.rows);
        self.counters.fulls_out += 1;
        ControlWord::Full { seq: self.tx_seq }
    }

    /// Increments the Transmit Sequence Counter and returns the number for an item.
    fn advance(&mut self) -> SequenceNumber {
        self.tx_seq.count = (self.tx_seq.count + 1) & 0x7F;
        self.tx_seq
    }

    /// Returns the word to send if there is nothing else: SIF, or FULL if the far end should acknowledge what may have
    /// been lost.
    pub fn idle_word(&mut self) -> ControlWord {
        let word = if self.is_probe_pending() { self.full() } else { ControlWord::StartIdleFrame { seq: self.tx_seq } };
        self.probe = false;
        self.on_sent(None, 1);
        word
    }
    /// Requests a FULL instead of the next idle frame.
    pub fn probe(&mut self) {
        self.probe = true;
    }
    /// Returns `true` if [`Self::idle_word`] returns a FULL, which may be sent within an idle frame.
    #[inline]
    pub fn is_probe_pending(&self) -> bool {
        self.probe && !self.recovery.is_empty()
    }

    /// Returns `true` if an ACK or NACK waits to be sent.
    pub fn has_pending_ack(&self) -> bool {
        self.receiver.request.is_some()
    }
    /// Counts rows of idle frames that are not sent word by word.
    pub fn pass_idle_rows(&mut self, rows: u32) {
        self.on_sent(None, rows);
    }

    /// Returns the slot of the next new segment.
    pub fn next_slot(&self) -> usize {
        self.recovery.next_slot()
    }
    /// Returns the next stored segment that must be sent (again), without removing it; `None` if all are sent.
    pub fn unsent_segment(&self) -> Option<Segment> {
        self.recovery.unsent_segment()
    }

    /// Chooses the virtual channel of the next data frame among those with a segment ready (`ready`: bit per channel).
    /// `None` if none may send: no credit, no time-slot, or too much is unacknowledged.
    pub fn select(&mut self, ready: u32) -> Option<u8> {
        let ready = ready & self.with_credit;
        self.recovery.set_has_data(ready != 0);
        let may_send = ready != 0 && !self.recovery.is_full() && self.recovery.is_all_sent();
        if may_send { self.access.select(ready) } else { None }
    }

    /// Maximum length in words of the next segment of a virtual channel: a frame, and not more than its credit.
    pub fn segment_limit(&self, vc: u8) -> u32 {
        self.channels.get(usize::from(vc)).map_or(0, |channel| channel.credit().min(self.max_segment()))
    }

    /// Stores a new segment of a channel that [`Self::select`] returned; at most [`Self::segment_limit`] words.
    // Inlined, as `RecoveryBuffer::store_segment`: a call returns the segment in memory in pieces, and a load of all of it
    // waits for all stores before, which are those of the frame.
    #[inline(always)]
    pub fn admit(&mut self, vc: u8, words: u32) -> Segment {
        let channel = &mut self.channels[usize::from(vc)];
        channel.spend(words);
        if channel.credit() == 0 {
            self.with_credit &= !(1 << vc);
        }
        self.on_sent(Some(vc), words.div_ceil(self.lanes) + 2);
        self.counters.words_out += u64::from(words);
        self.is_new = true;
        let segment = self.recovery.store_segment(vc, words);
        if self.recovery.is_full() {
            // FULL must be sent.
            self.wake_row = 0;
        }
        segment
    }

    /// Ends the data frame of [`Self::unsent_segment`] and returns its sequence number.
    pub fn finish_segment(&mut self) -> SequenceNumber {
        if let Some(segment) = self.recovery.unsent_segment().filter(|_| !std::mem::take(&mut self.is_new)) {
            self.on_sent(None, segment.words.div_ceil(self.lanes) + 2);
        }
        self.recovery.on_segment_sent();
        self.counters.frames_out += 1;
        self.advance()
    }
}
