//! A link whose carrier moves whole frames, at memory speed: datagrams instead of lanes.
//!
//! All words of the link exist, with scrambling and CRC-16 of each lane, in the format of
//! [`datagram`](shotline_wire::spacefibre::datagram). SpaceFibre's retry assumes a line that is never silent. A carrier
//! may lose datagrams, so they are numbered, a gap counts as RXERR, and idle frames are sent at bounded intervals: after
//! the last datagram of a burst is lost, the next idle frame shows it.
//!
//! Call order:
//! 1. [`FrameLink::transmit`] until it returns `false`, whenever the source has data, a datagram was received, or the
//!    time is [`FrameLink::deadline`].
//! 2. [`FrameLink::receive`] for each datagram.
//! 3. [`FrameLink::release`] for data that the sink did not consume at once.

mod counters;
mod session;
mod slots;

pub use counters::FrameCounters;

use crate::link::{BroadcastMessage, ChannelStatus, Control, DataLink, LinkCounters, ResetCause, VcConfig};
use crate::qos::{QosError, Share};
use arrayvec::ArrayVec;
use session::{Session, Verdict};
use shotline_wire::spacefibre::datagram::{Header, PacketEnd, Record};
use shotline_wire::spacefibre::{ControlWord, SequenceNumber, Word};
use slots::{Coding, Slots};

/// Nanoseconds of a monotonic clock.
pub type Nanos = u64;

/// Interval between datagrams while a link is initialised.
const INIT_INTERVAL: Nanos = 10_000_000;
/// Interval before the first idle frame after data, and its maximum: it doubles with each idle frame.
const MIN_IDLE_INTERVAL: Nanos = 1_000_000;
const MAX_IDLE_INTERVAL: Nanos = 128_000_000;
/// Share of the link for broadcast frames.
const BROADCAST_SHARE: Share = Share::WHOLE;
/// Rows of idle frames that are assumed to pass when there is nothing else to send, so that an ACK need not wait.
const IDLE_ROWS: u32 = 15;

/// Maximum number of control words of a record. With a broadcast frame behind it, it is shorter than the longest data
/// frame of one lane.
const MAX_RECORD_WORDS: usize = 16;

/// Packets to send.
pub trait Source {
    /// Returns a bit per virtual channel that has characters to send.
    fn ready(&self) -> u32;
    /// Returns the next characters of a channel's packet, at most `max`, a multiple of 4, and the end of the packet if it
    /// follows. Without an end there must be whole words; before an end there must be fewer than `max`.
    fn read(&mut self, vc: u8, max: usize) -> (&[u8], Option<PacketEnd>);
    /// The link was reset: packets that were read in part are lost and must not be continued.
    fn on_reset(&mut self);
}

/// Receiver of packets.
pub trait Sink {
    /// Takes characters of the present packet of a channel, and its end. Returns `true` if they are consumed; otherwise
    /// [`FrameLink::release`] must be called for their words later.
    fn write(&mut self, vc: u8, data: &[u8], end: Option<PacketEnd>) -> bool;
    /// Takes a broadcast message.
    fn broadcast(&mut self, message: &BroadcastMessage);
    /// The link was reset: packets that were received in part are cut.
    fn on_reset(&mut self);
}

/// A datagram that is being built.
pub trait Output {
    /// Returns the number of bytes that can still be appended.
    fn remaining(&mut self) -> usize;
    /// Appends bytes, at most [`Self::remaining`].
    fn append(&mut self, bytes: &[u8]);
}

/// Options of a link.
#[derive(Clone, Copy, Debug)]
pub struct FrameConfig {
    /// Number of lanes, 1 to 16. Both ends must have the same.
    pub lanes: u8,
    /// Scrambles data frames that are sent.
    pub scrambled: bool,
    /// Seed of the random session numbers. It must not repeat when a program is started again.
    pub seed: u64,
}

/// One end of a link.
#[derive(Debug)]
pub struct FrameLink {
    config: FrameConfig,
    link: DataLink,
    session: Session,
    slots: Slots,
    coding: Coding,
    /// Length of the longest record.
    max_record: usize,
    /// Something must be sent although there are no data: an answer to an initialisation.
    answer: bool,
    next_idle: Nanos,
    idle_interval: Nanos,
    /// Number of lanes of the far end, if it differs.
    other_lanes: Option<u8>,
    counters: FrameCounters,
}

impl FrameLink {
    /// Creates an end that is not initialised.
    ///
    /// # Errors
    /// If the quality of service of the channels cannot be kept.
    ///
    /// # Panics
    /// If there are not 1 to 16 lanes and 1 to 32 channels.
    pub fn new(config: FrameConfig, channels: &[VcConfig]) -> Result<Self, QosError> {
        let coding = Coding::new(config.lanes);
        let slots = Slots::new(coding, config.scrambled);
        Ok(Self {
            config,
            link: DataLink::new(config.lanes, channels, BROADCAST_SHARE)?,
            session: Session::new(config.seed),
            max_record: slots::slot_len(config.lanes),
            slots,
            coding,
            answer: false,
            next_idle: 0,
            idle_interval: MIN_IDLE_INTERVAL,
            other_lanes: None,
            counters: FrameCounters::default(),
        })
    }

    /// Returns the length of a datagram with so many of the longest data frames, in bytes. Datagrams of one frame are the
    /// minimum for [`Self::transmit`].
    pub fn datagram_bytes(lanes: u8, frames: usize) -> usize {
        Header::LEN + frames * slots::slot_len(lanes)
    }
    /// Returns the number of lanes.
    pub fn lanes(&self) -> u8 {
        self.config.lanes
    }
    /// Returns `true` once both ends are initialised.
    pub fn is_up(&self) -> bool {
        self.session.is_up()
    }
    /// Returns the number of lanes of the far end if it differs from this end's: the link cannot come up then.
    pub fn other_lanes(&self) -> Option<u8> {
        self.other_lanes
    }
    /// Returns the data link layer: credit, quality of service, counters.
    pub fn link(&mut self) -> &mut DataLink {
        &mut self.link
    }
    /// Returns the counters of the data link layer.
    pub fn link_counters(&self) -> &LinkCounters {
        self.link.counters()
    }
    /// Returns the status of a virtual channel; `None` if it does not exist.
    pub fn channel(&self, vc: u8) -> Option<ChannelStatus> {
        self.link.channel(vc)
    }
    /// Returns the number of items that are sent and not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.link.unacknowledged()
    }
    /// Returns `true` if data frames that are sent are scrambled.
    pub fn is_scrambled(&self) -> bool {
        self.config.scrambled
    }
    /// Returns the counters of datagrams.
    pub fn counters(&self) -> &FrameCounters {
        &self.counters
    }
    /// Returns the maximum length of a data frame, in words without SDF and EDFs.
    pub fn max_segment(&self) -> u32 {
        self.link.max_segment()
    }
    /// Returns the number of data frames that can be sent before one is acknowledged; 0 while the link is not up.
    pub fn free_segments(&self) -> usize {
        if self.is_up() { self.link.free_segments() } else { 0 }
    }
    /// Returns the time at which [`Self::transmit`] must be called.
    pub fn deadline(&self) -> Nanos {
        self.next_idle
    }
    /// Frees the space of words that a sink has consumed later ([`Sink::write`]).
    pub fn release(&mut self, vc: u8, words: u32) {
        self.link.release(vc, words);
    }

    /// Resets the link, which initialises it again: what is in flight is lost.
    pub fn reset(&mut self, source: &mut impl Source, sink: &mut impl Sink) {
        self.begin_session(0, source, sink);
    }

    fn begin_session(&mut self, peer: u32, source: &mut impl Source, sink: &mut impl Sink) {
        self.session.renew(peer);
        self.link.reset();
        source.on_reset();
        sink.on_reset();
        (self.answer, self.next_idle) = (true, 0);
    }

    /// Writes the next datagram. Returns `false` if there is nothing to send; nothing was written then. `out` must have
    /// [`Self::datagram_bytes`] of one frame of space.
    pub fn transmit(&mut self, now: Nanos, source: &mut impl Source, out: &mut impl Output) -> bool {
        let is_idle_time = now >= self.next_idle;
        if !self.session.is_up() {
            if !is_idle_time && !self.answer {
                return false;
            }
            self.begin(out);
            (self.answer, self.next_idle) = (false, now + INIT_INTERVAL);
            return true;
        }
        let mut has_begun = false;
        while out.remaining() >= self.max_record + if has_begun { 0 } else { Header::LEN } {
            if !self.append_next(source, out, &mut has_begun) {
                break;
            }
        }
        if has_begun {
            self.idle_interval = MIN_IDLE_INTERVAL;
        } else if is_idle_time || self.answer {
            self.begin(out);
            if !self.link.is_all_acknowledged() {
                self.link.probe();
            }
            let word = self.link.idle_word();
            append_words(out, &[word]);
            self.idle_interval = (2 * self.idle_interval).min(MAX_IDLE_INTERVAL);
            has_begun = true;
        }
        if has_begun {
            (self.answer, self.next_idle) = (false, now + self.idle_interval);
        }
        has_begun
    }

    fn begin(&mut self, out: &mut impl Output) {
        self.counters.datagrams_out += 1;
        out.append(&self.session.header(self.config.lanes, self.config.scrambled).emit());
    }

    /// Appends the next record, after a header if it is the first one. Returns `false` if there is nothing to send.
    fn append_next(&mut self, source: &mut impl Source, out: &mut impl Output, has_begun: &mut bool) -> bool {
        let mut control = self.link.next_control();
        if control.is_none() && self.next_segment(source).is_none() {
            if !self.link.has_pending_ack() {
                return false;
            }
            // Also a link that may not send the data that it has, sends idle frames: otherwise the far end would wait for
            // its ACK until an idle frame is due.
            self.link.pass_idle_rows(IDLE_ROWS);
            control = self.link.next_control();
            if control.is_none() {
                return false;
            }
        }
        if !std::mem::replace(has_begun, true) {
            self.begin(out);
        }
        match control {
            Some(control) => self.append_controls(control, out),
            None => {
                let Some(segment) = self.link.unsent_segment() else { return true };
                let seq = self.link.finish_segment();
                out.append(self.slots.finish(segment.slot, seq));
            }
        }
        true
    }

    /// Appends a control word or broadcast frame, and control words that follow, as one record as far as possible.
    fn append_controls(&mut self, first: Control, out: &mut impl Output) {
        let mut words = ArrayVec::<ControlWord, MAX_RECORD_WORDS>::new();
        let mut next = Some(first);
        while let Some(Control::Word(word)) = next {
            words.push(word);
            next = if words.is_full() { None } else { self.link.next_control() };
        }
        append_words(out, &words);
        match next {
            Some(Control::Broadcast(message, seq)) => append_broadcast(out, &message, seq),
            Some(Control::Retry) => append_words(out, &[ControlWord::Retry]),
            Some(Control::Word(_)) | None => {}
        }
    }

    /// Makes sure that a segment is stored to be sent: one to send again, or a new one. `None` if there is neither.
    fn next_segment(&mut self, source: &mut impl Source) -> Option<()> {
        if self.link.unsent_segment().is_some() {
            return Some(());
        }
        let vc = self.link.select(source.ready())?;
        let slot = self.link.next_slot();
        let (characters, end) = source.read(vc, 4 * self.link.segment_limit(vc) as usize);
        let words = self.slots.store(slot, vc, characters, end);
        let segment = self.link.admit(vc, words);
        debug_assert_eq!(segment.slot, slot);
        Some(())
    }

    /// Processes a datagram; its bytes are unscrambled in place. What is not valid is counted and dropped.
    pub fn receive(&mut self, datagram: &mut [u8], source: &mut impl Source, sink: &mut impl Sink) {
        self.counters.datagrams_in += 1;
        let Ok((header, _)) = Header::parse(datagram) else {
            self.counters.malformed += 1;
            return;
        };
        if header.lanes != self.config.lanes {
            self.other_lanes = Some(header.lanes);
            self.counters.other_lanes += 1;
            return;
        }
        if !self.is_up() {
            self.link.delay_broadcasts();
        }
        match self.session.receive(&header) {
            Verdict::Initialise => self.answer = true,
            Verdict::Old => self.counters.old += 1,
            Verdict::FarEndReset => {
                self.counters.far_end_resets += 1;
                self.begin_session(header.session, source, sink);
            }
            Verdict::Accept { gap } => {
                if gap > 0 {
                    self.counters.lost += u64::from(gap);
                    self.link.on_rxerr(true);
                }
                self.read_records(&mut datagram[Header::LEN..], header.scrambled, sink);
                if let Some(cause) = self.link.take_reset() {
                    debug_assert!(cause != ResetCause::FarEnd);
                    self.begin_session(0, source, sink);
                }
            }
        }
    }

    fn read_records(&mut self, mut bytes: &mut [u8], scrambled: bool, sink: &mut impl Sink) {
        let lanes = self.config.lanes;
        while !bytes.is_empty() {
            let Ok((record, body, rest)) = Record::parse(bytes, lanes) else {
                // Without this record's length the others cannot be found.
                self.counters.malformed_records += 1;
                return self.link.on_rxerr(true);
            };
            match record {
                Record::Words { .. } => self.read_words(body),
                Record::Data { characters, end } => {
                    match slots::decode(body, characters, end, self.coding, scrambled) {
                        Some(frame) => {
                            let accepted = self.link.on_data_frame(frame.vc, frame.words, frame.seq, frame.crc16_ok);
                            if accepted && sink.write(frame.vc, frame.data, end) {
                                self.link.release(frame.vc, frame.words);
                            }
                        }
                        None => {
                            self.counters.malformed_records += 1;
                            self.link.on_rxerr(true);
                        }
                    }
                }
                Record::Broadcast => self.read_broadcast(body, sink),
            }
            bytes = rest;
        }
    }

    fn read_words(&mut self, body: &[u8]) {
        for characters in body.as_chunks::<4>().0 {
            match ControlWord::parse(Word::comma(*characters)) {
                Ok(Some(word)) => self.link.on_control(word),
                Ok(None) => self.link.on_rxerr(true),
                Err(_) => self.link.on_crc8_error(true),
            }
        }
    }

    fn read_broadcast(&mut self, body: &[u8], sink: &mut impl Sink) {
        let [start, first, second, end] = body.as_chunks::<4>().0 else { return };
        let words = [Word::comma(*start), Word::data(*first), Word::data(*second), Word::comma(*end)];
        match BroadcastMessage::decode(words) {
            Some((message, seq, crc8_ok)) => {
                if self.link.on_broadcast_frame(seq, crc8_ok) {
                    sink.broadcast(&message);
                }
            }
            None => self.link.on_rxerr(true),
        }
    }
}

/// Appends a record of at most [`MAX_RECORD_WORDS`] control words, none if there are none.
fn append_words(out: &mut impl Output, words: &[ControlWord]) {
    if words.is_empty() {
        return;
    }
    let mut record = ArrayVec::<[u8; 4], { 1 + MAX_RECORD_WORDS }>::new();
    record.push(Record::Words { count: words.len() as u16 }.emit());
    record.extend(words.iter().map(|word| word.emit().characters));
    out.append(record.as_flattened());
}

fn append_broadcast(out: &mut impl Output, message: &BroadcastMessage, seq: SequenceNumber) {
    out.append(&Record::Broadcast.emit());
    message.encode(seq).iter().for_each(|word| out.append(&word.characters));
}
