//! One stream's shots under assembly.
//!
//! A stream is made of parts, each of which owns its state:
//!
//! | part | owns |
//! |---|---|
//! | [`sender`] | whose packets are taken, and for how long there were none |
//! | [`numbering`] | from the numbers on the wire to those of the run's shots ([`number`]) |
//! | [`restart`] | the signs that the sender counts anew |
//! | [`joining`] | where a stream begins that nothing has announced |
//! | [`slots`] | buffers, their places and receive ids, and which packets have come |
//! | [`signals`] | what the sender says besides samples |
//! | [`closing`] | which shots are open, when each must leave, and what leaves |
//! | [`trailer`] | what the end of a shot proves of it (no state) |
//!
//! [`Stream`] is how they work together: what a packet changes in each of them, and what happens when a shot leaves. The
//! receiver uses `slots` directly for receive ids, the places behind them, and packets that did not land in their own.

use crate::books::Books;
use crate::clock::Clock;
use crate::latency::Times;
use closing::{Closing, Due, Open};
use joining::Joining;
use numbering::Numbering;
use restart::Restart;
use sender::Sender;
use shotline_memory::Buffer;
use shotline_store::shot::ShotMeta;
use shotline_wire::framing::{Framing, Place, Position, Signal};
use shotline_wire::shot::{DropCause, Presence, Trailer};
use signals::Signals;
use slots::{Slots, Taken};
use std::net::SocketAddr;
use std::sync::Arc;
use trailer::Proof;

mod closing;
mod config;
mod joining;
mod number;
mod numbering;
mod restart;
mod sender;
mod signals;
mod slots;
mod trailer;

pub use closing::Item;
pub use config::StreamConfig;
pub use signals::Ended;
pub(crate) use slots::{SPARES, extra};

/// One stream.
///
/// The receiver calls [`Self::locate`] and [`Self::pick`] for the place of a packet that has not landed yet;
/// [`Self::knows`], [`Self::locate`], [`Self::admit`] and [`Self::note_count`] for each packet that has; and
/// [`Self::settle`] after each batch. Where packets are counted, [`Self::recount`] comes before these calls for a packet,
/// and [`Self::count_on`] after them. The framing that methods take is the one that the stream was made for.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) config: StreamConfig,
    pub(crate) books: Books,
    pub(crate) slots: Slots,
    packets: u32,
    /// Packets say nothing of their place, and are counted.
    is_counted: bool,
    sender: Sender,
    numbering: Numbering,
    restart: Restart,
    joining: Joining,
    signals: Signals,
    closing: Closing,
}

/// What a packet brings besides its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// What its header told of its position.
    pub(crate) position: Position,
    /// CRC remainder of its payload.
    pub(crate) remainder: u32,
    /// The receiver's monotonic time.
    pub(crate) now_ns: u64,
    /// The kernel's stamp by the realtime clock, 0 if there is none.
    pub(crate) stamp_ns: u64,
}

impl Stream {
    /// A stream of `depth` entries, whose receive ids begin at `base_id`.
    pub(crate) fn new(
        config: StreamConfig,
        base_id: u32,
        depth: usize,
        clock: Option<Arc<Clock>>,
        framing: &dyn Framing,
    ) -> Self {
        Self {
            config,
            books: Books::default(),
            slots: Slots::new(&config, base_id, depth),
            packets: config.geometry.packets(),
            is_counted: framing.is_counted(),
            sender: Sender::new(&config),
            numbering: Numbering::new(&config),
            restart: Restart::new(&config),
            joining: Joining::new(&config),
            signals: Signals::new(&config, framing.meaning()),
            closing: Closing::new(&config, depth, clock),
        }
    }

    /// Takes over what set-up has taught, before the first packet. The geometry cannot change.
    pub(crate) fn reconfigure(&mut self, config: StreamConfig) {
        debug_assert_eq!(config.geometry, self.config.geometry);
        self.sender = Sender::new(&config);
        self.numbering = Numbering::new(&config);
        self.restart = Restart::new(&config);
        self.joining = Joining::new(&config);
        self.closing.reconfigure(&config);
        self.config = config;
    }

    /// Whether this sender may speak for the stream.
    #[inline]
    pub(crate) fn knows(&mut self, source: SocketAddr, now_ns: u64) -> bool {
        self.sender.admits(source, now_ns)
    }

    /// The shot number and packet index that a header names.
    #[inline]
    pub(crate) fn locate(&mut self, place: &Place) -> Result<(u64, u32), DropCause> {
        let before = if self.closing.next().is_none() { DropCause::BeforeStart } else { DropCause::Late };
        self.numbering.locate(place.position, &self.config.geometry, before)
    }

    /// The receive id that a packet should land in, if its place is free. Believes nothing for good: the
    /// header has not been checked yet. `fresh` other shots will have begun before the packet's.
    #[inline]
    pub(crate) fn pick(&self, number: u64, index: u32, fresh: usize) -> Option<u32> {
        if index >= self.packets || self.closing.next().is_some_and(|next| number < next) {
            return None;
        }
        let entry = match self.closing.find(number) {
            Ok(at) => self.closing.entry(at)?,
            Err(_) => self.slots.ready(fresh)?,
        };
        (!self.slots.is_filled(entry, index)).then(|| self.slots.id(entry, index))
    }

    /// Whether a shot is under assembly.
    #[inline]
    pub(crate) fn is_open(&self, number: u64) -> bool {
        self.closing.find(number).is_ok()
    }

    /// Takes note of a good packet and says which entry it belongs to.
    ///
    /// # Errors
    /// The cause for which the packet is dropped.
    #[inline]
    pub(crate) fn admit(&mut self, (number, index): (u64, u32), packet: Arrival) -> Result<usize, DropCause> {
        let Arrival { position, remainder, now_ns, stamp_ns } = packet;
        if let Some(ended) = self.signals.ended() {
            return Err(ended.cause());
        }
        let floor = self.closing.next().unwrap_or_else(|| self.join(number, index, now_ns));
        if number < floor {
            let cause = self.joining.cause(number);
            self.note_late(position, cause, now_ns);
            return Err(cause);
        }
        let at = match self.closing.find(number) {
            Ok(at) => at,
            Err(at) => {
                if self.numbering.is_doubtful(number, index) {
                    return Err(DropCause::Malformed);
                }
                let entry = self.slots.take_ready();
                self.closing.insert(at, Open { number, entry, last_ns: now_ns, arrived_ns: stamp_ns });
                self.numbering.note_shot(number, position);
                self.signals.note_shot(number);
                at
            }
        };
        let entry = self.closing.touch(at, now_ns).ok_or(DropCause::NoBuffer)?;
        self.slots.fill(entry, index, remainder)?;
        self.restart.note_placed();
        self.sender.note_placed(now_ns);
        Ok(entry)
    }

    /// Takes note of a packet while the stream is joined. Returns the lowest shot that may begin it.
    fn join(&mut self, number: u64, index: u32, now_ns: u64) -> u64 {
        if !self.joining.is_under_way() {
            self.numbering.begin(number);
        }
        self.joining.note(number, index, now_ns)
    }

    /// Takes note of a packet of a shot that has left.
    pub(crate) fn note_late(&mut self, position: Position, cause: DropCause, now_ns: u64) {
        // A sender that was set up has forgotten that when it begins anew.
        if !self.sender.is_named() && self.closing.next().is_some() {
            self.restart.note_late(position, cause, self.sender.is_silent(now_ns));
        }
    }

    /// Notes that a packet whose header named this shot was dropped; only for the shot's own record.
    pub(crate) fn note_drop(&mut self, number: u64, cause: DropCause) {
        if let Ok(at) = self.closing.find(number)
            && let Some(entry) = self.closing.entry(at)
        {
            self.slots.note_drop(entry, cause);
        }
    }

    /// A packet that is no part of a shot said so itself.
    pub(crate) fn note_signal(&mut self, signal: Signal) {
        match signal {
            Signal::Number { number, stop } => {
                let number = self.numbering.of_sent(number);
                self.signals.note_number(number, stop, self.closing.next().unwrap_or(0), self.is_open(number));
            }
            Signal::Meaning { from, meaning, lost } => self.signals.note_meaning(from, meaning, lost),
            Signal::Other => self.signals.end(Ended::Other),
        }
    }

    /// Takes note of a packet's count, where the framing has one.
    #[inline]
    pub(crate) fn note_count(&mut self, framing: &dyn Framing, (number, index): (u64, u32), header: &[u8]) {
        if self.signals.has_counts()
            && let Some(count) = framing.count(header)
        {
            self.signals.note_count(number, index, count);
        }
    }

    /// Whether packets of this stream say nothing of their place, and are counted.
    #[inline]
    pub(crate) fn is_counted(&self) -> bool {
        self.is_counted
    }

    /// Counts a packet of the sender's.
    pub(crate) fn count_on(&mut self) {
        self.numbering.count();
    }

    /// Looks whether the packet that has landed in the place of this id ends a shot, and sets the count by it.
    pub(crate) fn recount(&mut self, at: u32, len: u32) {
        let end = self.slots.read_end(at, len);
        let record = end.and_then(|bytes| trailer::parse_record(&bytes, self.config.stream));
        self.numbering.recount(record.map(|record| record.shot));
    }

    /// Why what comes now is not what the stream was, if it is not.
    pub(crate) fn ended(&self) -> Option<Ended> {
        self.signals.ended()
    }

    /// The sender has said that no more shots come.
    pub(crate) fn has_stopped(&self) -> bool {
        self.signals.has_stopped()
    }

    /// The first shot that has not left.
    #[inline]
    pub(crate) fn next(&self) -> Option<u64> {
        self.closing.next()
    }

    /// Nothing has been placed for the time-out.
    #[inline]
    pub(crate) fn is_silent(&self, now_ns: u64) -> bool {
        self.sender.is_silent(now_ns)
    }

    /// How long shots took.
    pub(crate) fn times(&self) -> &Times {
        self.closing.times()
    }

    /// Lets go of everything that is complete, timed out or overtaken. `withdraw` lists receives that are
    /// no longer posted for anyone.
    pub(crate) fn settle(&mut self, framing: &dyn Framing, now_ns: u64, out: &mut Vec<Item>, withdraw: &mut Vec<u32>) {
        self.sender.note_time(now_ns);
        self.begin(Some(now_ns), out, withdraw);
        let Some(mut next) = self.next() else { return };
        loop {
            while self.signals.is_at(next) {
                self.lose(next, next + 1, DropCause::NotData, out);
                next += 1;
            }
            self.closing.set_next(next);
            let slots = &self.slots;
            let newest = self.numbering.newest();
            match self.closing.due(newest, now_ns, |entry| slots.is_whole(entry)) {
                None => break,
                Some(Due::Shot(first)) => {
                    self.closing.remove_first();
                    next = self.close(framing, first, out, withdraw) + 1;
                }
                Some(Due::Gap { end, first, is_stale }) => match self.is_anew(next, first, is_stale) {
                    None => break,
                    Some(true) => self.renumber(first.number - next),
                    Some(false) => {
                        self.lose(next, end, DropCause::WireGap, out);
                        next = end;
                    }
                },
            }
        }
        self.numbering.reach(next.saturating_sub(1));
    }

    /// Closes everything before `end`, whether it came or not.
    pub(crate) fn advance(&mut self, framing: &dyn Framing, end: u64, out: &mut Vec<Item>, withdraw: &mut Vec<u32>) {
        while let Some(first) = self.closing.first().copied().filter(|first| first.number < end) {
            let next = self.next().unwrap_or(first.number);
            self.lose(next, first.number, DropCause::WireGap, out);
            self.closing.remove_first();
            let number = self.close(framing, first, out, withdraw);
            self.closing.set_next(number + 1);
        }
        if let Some(next) = self.next()
            && next < end
        {
            self.lose(next, end, DropCause::WireGap, out);
            self.closing.set_next(end);
            self.numbering.reach(end - 1);
        }
    }

    /// Closes all open shots, and what is missing up to `end` if the sender said where it stopped.
    pub(crate) fn finish(
        &mut self,
        framing: &dyn Framing,
        end: Option<u64>,
        out: &mut Vec<Item>,
        withdraw: &mut Vec<u32>,
    ) {
        self.begin(None, out, withdraw);
        if let Some(from) = self.joining.give_up() {
            self.lose(from, self.numbering.newest() + 1, DropCause::SenderRestart, out);
        }
        let stop = end.or(self.signals.stop(self.next().unwrap_or(0))).filter(|_| self.next().is_some());
        if let Some(end) = self.closing.end().max(stop) {
            self.advance(framing, end, out, withdraw);
        }
    }

    /// Begins the stream with the first shot of which nothing was sent before: when enough packets have come, or time has
    /// passed. Without a time, now.
    fn begin(&mut self, now_ns: Option<u64>, out: &mut Vec<Item>, withdraw: &mut Vec<u32>) {
        let Some(begins) = self.joining.is_due(now_ns, self.closing.len()) else { return };
        let mut start = self.numbering.newest();
        while let Some(first) = self.closing.first().copied() {
            let began_before =
                first.entry.is_some_and(|entry| self.joining.lacks(first.number, self.slots.missing(entry), begins));
            if !began_before {
                start = first.number;
                break;
            }
            start = first.number + 1;
            self.closing.remove_first();
            self.give_up(first, withdraw);
        }
        if let Some(from) = self.joining.begin(start) {
            self.lose(from, start, DropCause::SenderRestart, out);
        }
        self.numbering.reach(start);
        self.closing.set_next(start);
    }

    /// Takes back what has come of a shot: it is none of this run's.
    fn give_up(&mut self, open: Open, withdraw: &mut Vec<u32>) {
        let Some(entry) = open.entry else { return };
        let cause = self.joining.given_up();
        let Taken { presence, copied_bytes, .. } = self.slots.take(entry);
        self.books.repaired_bytes += copied_bytes;
        self.take_back(&presence, cause);
        withdraw.extend(presence.missing().map(|index| self.slots.id(entry, index)));
    }

    /// Counts packets that were placed as dropped instead.
    fn take_back(&mut self, presence: &Presence, cause: DropCause) {
        for index in (0..self.packets).filter(|index| presence.contains(*index)) {
            self.books.placed -= 1;
            self.books.placed_bytes -= u64::from(self.config.geometry.packet_bytes(index));
            self.books.packet_drops.add(cause, 1);
        }
    }

    /// Whether the sender has begun anew; what has come of it is in packets of old numbers.
    #[inline]
    pub(crate) fn has_restarted(&self) -> bool {
        self.restart.has_happened() && self.signals.ended().is_none()
    }

    /// Goes on where the next shot begins, with numbers of the run's own, which never repeat. Where each shot carries its
    /// sender's number in its record or its time stamp, the stream ends instead: run and shots would contradict each other.
    pub(crate) fn restart(&mut self, framing: &dyn Framing, out: &mut Vec<Item>, withdraw: &mut Vec<u32>) {
        let Some(run) = self.restart.take() else { return };
        self.finish(framing, None, out, withdraw);
        self.books.restarts += 1;
        self.books.packet_drops.replace(&run.drops, DropCause::SenderRestart);
        if !matches!(self.config.geometry.trailer(), Trailer::None | Trailer::HsbMetadata) {
            self.signals.end(Ended::Anew);
            return;
        }
        let from = self.closing.take_next().unwrap_or(0);
        self.joining.go_on(from);
        self.numbering.go_on(from, &run);
        self.restart.forget_frames();
        self.signals.forget_numbers();
    }

    /// Whether the first shot behind a wide gap is one of a sender that has begun anew; none: that is not known yet.
    fn is_anew(&self, next: u64, first: Open, is_stale: bool) -> Option<bool> {
        let frame = self.restart.counted_frame().filter(|_| first.number - next > restart::NEAR);
        let (Some(frame), Some(entry)) = (frame, first.entry) else { return Some(false) };
        let metadata = self
            .slots
            .contents(entry)
            .and_then(|(buffer, presence)| trailer::metadata(&self.config.geometry, buffer, presence));
        match metadata {
            Some(metadata) => Some(frame.is_far(first.number, metadata.frame)),
            None if is_stale || self.closing.is_overtaken(first.number, self.numbering.newest()) => Some(false),
            None => None,
        }
    }

    /// Shots that are open, and all that follow, have numbers lower by so much: the sender has begun anew.
    fn renumber(&mut self, ahead: u64) {
        self.books.restarts += 1;
        self.closing.lower(ahead);
        self.numbering.lower(ahead);
        self.restart.forget_frames();
    }

    /// Closes one shot and returns its number, which its own record may have completed to 64 bits.
    fn close(&mut self, framing: &dyn Framing, open: Open, out: &mut Vec<Item>, withdraw: &mut Vec<u32>) -> u64 {
        let taken = open.entry.map(|entry| (entry, self.slots.take(entry)));
        let Some((entry, Taken { buffer: Some(buffer), mut presence, mut drops, copied_bytes })) = taken else {
            self.lose(open.number, open.number + 1, DropCause::NoBuffer, out);
            return open.number;
        };
        self.books.repaired_bytes += copied_bytes;
        let mut valid_bytes = self.slots.zero_gaps(entry, &buffer, &presence, withdraw);
        let (number, proof) = self.prove(framing, open.number, entry, &buffer, &presence, out);
        let missing = u64::from(presence.packets() - presence.placed());
        if !proof.good && self.is_counted {
            drops.add(DropCause::Unplaced, u64::from(presence.placed()));
            (presence, valid_bytes) = (self.unplace(&buffer, &presence), 0);
        } else if presence.is_complete() && !proof.good {
            drops.add(DropCause::BadRecord, 1);
        }
        let unsent = self.signals.unsent(open.number, &presence);
        drops.add(DropCause::WireGap, missing - unsent);
        drops.add(DropCause::Overrun, unsent);
        self.books.packets_missing += missing - unsent;
        let meta = ShotMeta {
            stream: self.config.stream,
            number,
            stamp_tai_ns: proof.stamp_tai_ns,
            arrived_tai_ns: 0,
            completed_tai_ns: 0,
            flags: proof.flags,
            record_good: proof.good,
            valid_bytes,
            presence,
            drops,
        };
        self.closing.hand_on(meta, open.arrived_ns, buffer, &mut self.books, out);
        number
    }

    /// What the end of a shot proves of it, and the shot's number, which a record may complete to 64 bits.
    fn prove(
        &mut self,
        framing: &dyn Framing,
        number: u64,
        entry: usize,
        buffer: &Buffer,
        presence: &Presence,
        out: &mut Vec<Item>,
    ) -> (u64, Proof) {
        let geometry = self.config.geometry;
        match geometry.trailer() {
            Trailer::Record | Trailer::Block => {
                let record = trailer::record(&geometry, self.config.stream, buffer, presence);
                let is_proven = presence.is_complete() && self.slots.is_crc_good(entry);
                let number = match &record {
                    Some(record) if is_proven => self.anchor(number, record.shot, out),
                    _ => number,
                };
                (number, Proof::of_record(record.as_ref().filter(|record| record.shot == number), is_proven))
            }
            Trailer::None => (number, Proof::of_none(presence)),
            Trailer::Context => {
                let meaning = self.signals.describe(number, &geometry, buffer);
                let stamp_tai_ns = framing.stamp_tai_ns(number, &geometry);
                (number, Proof::of_context(meaning, stamp_tai_ns, &geometry, presence))
            }
            Trailer::HsbMetadata => {
                let Some(metadata) = trailer::metadata(&geometry, buffer, presence) else {
                    return (number, Proof::default());
                };
                self.restart.note_frame(number, metadata.frame);
                (number, Proof::of_metadata(&metadata, &geometry, presence))
            }
        }
    }

    /// Corrects the number of a shot, and of all newer ones, by its proven record. What lies between was lost.
    fn anchor(&mut self, number: u64, truth: u64, out: &mut Vec<Item>) -> u64 {
        let Some(correction) = self.numbering.anchor(number, truth) else { return number };
        self.closing.raise(correction.ahead);
        if correction.is_first {
            self.joining.raise(correction.ahead);
        } else {
            self.lose(number, truth, DropCause::WireGap, out);
        }
        truth
    }

    /// Takes back all packets of a shot that its record does not prove: where packets are counted, it is unknown which of
    /// them are missing, so none has a place, and the file shows none of it.
    fn unplace(&mut self, buffer: &Buffer, presence: &Presence) -> Arc<Presence> {
        self.take_back(presence, DropCause::Unplaced);
        buffer.zero(0, buffer.len());
        Arc::new(Presence::empty(self.packets))
    }

    /// Enters shots that never came.
    fn lose(&mut self, first: u64, end: u64, cause: DropCause, out: &mut Vec<Item>) {
        let Self { signals, closing, books, .. } = self;
        signals.divide(first..end, cause, |shots, cause| closing.lose(shots, cause, books, out));
    }
}
