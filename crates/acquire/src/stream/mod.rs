//! Shots of one stream under assembly.
//!
//! A stream consists of parts, each of which owns its state:
//!
//! | part | state |
//! |---|---|
//! | [`sender`] | the accepted sender, and its silence |
//! | [`numbering`] | conversion of numbers on the wire to those of the run's shots ([`number`]) |
//! | [`restart`] | evidence that the sender's numbers start again |
//! | [`joining`] | the start of a stream that was not announced |
//! | [`slots`] | buffers, their destinations and receive ids, and which packets are present |
//! | [`signals`] | messages of the sender other than samples |
//! | [`open_shots`] | which shots are open, when each must leave, and what is emitted |
//! | [`trailer`] | checks of a shot's trailer (no state) |
//!
//! [`Stream`] combines them: it updates each of them for a packet, and when a shot leaves. The receiver uses `slots`
//! directly for receive ids, their destinations, and packets that did not land in their own.

use crate::clock::Clock;
use crate::counters::StreamCounters;
use crate::latency::ShotLatencies;
use joining::Joining;
use numbering::Numbering;
use open_shots::{Departure, OpenShot, OpenShots};
use restart::Restart;
use sender::Sender;
use shotline_memory::Buffer;
use shotline_store::shot::ShotMeta;
use shotline_wire::framing::{Framing, Placement, Position, Signal};
use shotline_wire::shot::{DropCause, Presence, Trailer};
use signals::Signals;
use slots::{Slots, TakenShot};
use std::net::SocketAddr;
use std::sync::Arc;
use trailer::Proof;

mod config;
mod joining;
mod number;
mod numbering;
mod open_shots;
mod restart;
mod sender;
mod signals;
mod slots;
mod trailer;

pub use config::StreamConfig;
pub use open_shots::Item;
pub use signals::EndReason;
pub(crate) use slots::{SPARES, queue_buffers};

/// A stream.
///
/// The receiver calls [`Self::locate`] and [`Self::pick`] for the destination of a packet that has not landed yet;
/// [`Self::accepts`], [`Self::locate`], [`Self::admit`] and [`Self::note_count`] for each packet that has; and
/// [`Self::settle`] after each batch. Where packets are counted, [`Self::set_count`] precedes these calls for a packet,
/// and [`Self::count`] follows them. The framing arguments are the framing that the stream was created for.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) config: StreamConfig,
    pub(crate) counters: StreamCounters,
    pub(crate) slots: Slots,
    packets: u32,
    /// Set if packets have no position, and are counted.
    is_counted: bool,
    sender: Sender,
    numbering: Numbering,
    restart: Restart,
    joining: Joining,
    signals: Signals,
    open_shots: OpenShots,
}

/// Properties of a packet other than its destination.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Position in its header.
    pub(crate) position: Position,
    /// CRC remainder of its payload.
    pub(crate) remainder: u32,
    /// Time by the receiver's monotonic clock.
    pub(crate) now_ns: u64,
    /// The kernel's timestamp by the realtime clock, 0 if there is none.
    pub(crate) stamp_ns: u64,
}

impl Stream {
    /// Creates a stream of `depth` entries, whose receive ids begin at `base_id`.
    pub(crate) fn new(
        config: StreamConfig,
        base_id: u32,
        depth: usize,
        clock: Option<Arc<Clock>>,
        framing: &dyn Framing,
    ) -> Self {
        Self {
            config,
            counters: StreamCounters::default(),
            slots: Slots::new(&config, base_id, depth),
            packets: config.geometry.packets(),
            is_counted: framing.is_counted(),
            sender: Sender::new(&config),
            numbering: Numbering::new(&config),
            restart: Restart::new(&config),
            joining: Joining::new(&config),
            signals: Signals::new(&config, framing.sample_context()),
            open_shots: OpenShots::new(&config, depth, clock),
        }
    }

    /// Applies the results of set-up, before the first packet. The geometry cannot change.
    pub(crate) fn reconfigure(&mut self, config: StreamConfig) {
        debug_assert_eq!(config.geometry, self.config.geometry);
        self.sender = Sender::new(&config);
        self.numbering = Numbering::new(&config);
        self.restart = Restart::new(&config);
        self.joining = Joining::new(&config);
        self.open_shots.reconfigure(&config);
        self.config = config;
    }

    /// Returns `true` if packets of this sender are accepted.
    #[inline]
    pub(crate) fn accepts(&mut self, source: SocketAddr, now_ns: u64) -> bool {
        self.sender.admits(source, now_ns)
    }

    /// Returns the shot number and packet index of a header.
    #[inline]
    pub(crate) fn locate(&mut self, place: &Placement) -> Result<(u64, u32), DropCause> {
        let before = if self.open_shots.next().is_none() { DropCause::BeforeStart } else { DropCause::Late };
        self.numbering.locate(place.position, &self.config.geometry, before)
    }

    /// Returns the receive id whose buffer a packet should land in, if its destination is free. The header is
    /// unchecked, so the result is provisional. `fresh`: number of other new shots that will begin before the packet's.
    #[inline]
    pub(crate) fn pick(&self, number: u64, index: u32, fresh: usize) -> Option<u32> {
        if index >= self.packets || self.open_shots.next().is_some_and(|next| number < next) {
            return None;
        }
        let entry = match self.open_shots.find(number) {
            Ok(at) => self.open_shots.entry(at)?,
            Err(_) => self.slots.ready(fresh)?,
        };
        (!self.slots.is_filled(entry, index)).then(|| self.slots.id(entry, index))
    }

    /// Returns `true` if a shot is under assembly.
    #[inline]
    pub(crate) fn is_open(&self, number: u64) -> bool {
        self.open_shots.find(number).is_ok()
    }

    /// Admits a validated packet and returns the entry that it belongs to.
    ///
    /// # Errors
    /// The cause for which the packet is dropped.
    #[inline]
    pub(crate) fn admit(&mut self, (number, index): (u64, u32), packet: Arrival) -> Result<usize, DropCause> {
        let Arrival { position, remainder, now_ns, stamp_ns } = packet;
        if let Some(ended) = self.signals.ended() {
            return Err(ended.cause());
        }
        let floor = self.open_shots.next().unwrap_or_else(|| self.join(number, index, now_ns));
        if number < floor {
            let cause = self.joining.cause(number);
            self.note_late(position, cause, now_ns);
            return Err(cause);
        }
        let at = match self.open_shots.find(number) {
            Ok(at) => at,
            Err(at) => {
                if self.numbering.is_doubtful(number, index) {
                    return Err(DropCause::Malformed);
                }
                let entry = self.slots.take_ready();
                self.open_shots.insert(at, OpenShot { number, entry, last_ns: now_ns, arrived_ns: stamp_ns });
                self.numbering.note_shot(number, position);
                self.signals.note_shot(number);
                at
            }
        };
        let entry = self.open_shots.note_packet(at, now_ns).ok_or(DropCause::NoBuffer)?;
        self.slots.fill(entry, index, remainder)?;
        self.restart.note_placed();
        self.sender.note_placed(now_ns);
        Ok(entry)
    }

    /// Notes a packet while the stream is joined. Returns the lowest shot that may begin it.
    fn join(&mut self, number: u64, index: u32, now_ns: u64) -> u64 {
        if !self.joining.has_packets() {
            self.numbering.begin(number);
        }
        self.joining.note_packet(number, index, now_ns)
    }

    /// Notes a packet of a shot that has left.
    pub(crate) fn note_late(&mut self, position: Position, cause: DropCause, now_ns: u64) {
        // A sender with set-up loses its configuration at a restart, so it cannot continue.
        if !self.sender.is_configured() && self.open_shots.next().is_some() {
            self.restart.note_late(position, cause, self.sender.is_silent(now_ns));
        }
    }

    /// Notes a dropped packet whose header has this shot; only for the shot's own record.
    pub(crate) fn note_drop(&mut self, number: u64, cause: DropCause) {
        if let Ok(at) = self.open_shots.find(number)
            && let Some(entry) = self.open_shots.entry(at)
        {
            self.slots.note_drop(entry, cause);
        }
    }

    /// Handles a packet that is no part of a shot.
    pub(crate) fn note_signal(&mut self, signal: Signal) {
        match signal {
            Signal::Control { number, stop } => {
                let number = self.numbering.of_sent(number);
                self.signals.note_number(number, stop, self.open_shots.next().unwrap_or(0), self.is_open(number));
            }
            Signal::Context { first_shot, context, lost } => self.signals.note_meaning(first_shot, context, lost),
            Signal::FormatChange => self.signals.end(EndReason::FormatChanged),
        }
    }

    /// Notes a packet's count, where the framing has one.
    #[inline]
    pub(crate) fn note_count(&mut self, framing: &dyn Framing, (number, index): (u64, u32), header: &[u8]) {
        if self.signals.has_counts()
            && let Some(count) = framing.count(header)
        {
            self.signals.note_count(number, index, count);
        }
    }

    /// Returns `true` if packets of this stream have no position, and are counted.
    #[inline]
    pub(crate) fn is_counted(&self) -> bool {
        self.is_counted
    }

    /// Counts a packet of the sender.
    pub(crate) fn count(&mut self) {
        self.numbering.count();
    }

    /// Sets the count if the packet that has landed in the buffer of this receive id ends a shot.
    pub(crate) fn set_count(&mut self, at: u32, len: u32) {
        let end = self.slots.read_end(at, len);
        let record = end.and_then(|bytes| trailer::parse_record(&bytes, self.config.stream));
        self.numbering.set_count(record.map(|record| record.shot));
    }

    /// Returns the reason why the stream has ended, if it has.
    pub(crate) fn ended(&self) -> Option<EndReason> {
        self.signals.ended()
    }

    /// Returns `true` if the sender has announced that no more shots follow.
    pub(crate) fn has_stopped(&self) -> bool {
        self.signals.has_stopped()
    }

    /// Returns the first shot that has not left.
    #[inline]
    pub(crate) fn next(&self) -> Option<u64> {
        self.open_shots.next()
    }

    /// Returns `true` if nothing has been placed for the timeout.
    #[inline]
    pub(crate) fn is_silent(&self, now_ns: u64) -> bool {
        self.sender.is_silent(now_ns)
    }

    /// Returns the latencies of shots.
    pub(crate) fn latencies(&self) -> &ShotLatencies {
        self.open_shots.latencies()
    }

    /// Emits everything that is complete, timed out or passed by the window. `withdraw` gets the receives that are no
    /// longer needed.
    pub(crate) fn settle(&mut self, framing: &dyn Framing, now_ns: u64, out: &mut Vec<Item>, withdraw: &mut Vec<u32>) {
        self.sender.note_time(now_ns);
        self.begin(Some(now_ns), out, withdraw);
        let Some(mut next) = self.next() else { return };
        loop {
            while self.signals.is_taken(next) {
                self.emit_loss(next, next + 1, DropCause::NotData, out);
                next += 1;
            }
            self.open_shots.set_next(next);
            let slots = &self.slots;
            let newest = self.numbering.newest();
            match self.open_shots.next_departure(newest, now_ns, |entry| slots.is_whole(entry)) {
                None => break,
                Some(Departure::Shot(first)) => {
                    self.open_shots.remove_first();
                    next = self.close(framing, first, out, withdraw) + 1;
                }
                Some(Departure::Gap { end, first, is_stale }) => match self.is_restarted(next, first, is_stale) {
                    None => break,
                    Some(true) => self.lower_numbers(first.number - next),
                    Some(false) => {
                        self.emit_loss(next, end, DropCause::WireGap, out);
                        next = end;
                    }
                },
            }
        }
        self.numbering.reach(next.saturating_sub(1));
    }

    /// Closes everything before `end`, whether it arrived or not.
    pub(crate) fn advance(&mut self, framing: &dyn Framing, end: u64, out: &mut Vec<Item>, withdraw: &mut Vec<u32>) {
        while let Some(first) = self.open_shots.first().copied().filter(|first| first.number < end) {
            let next = self.next().unwrap_or(first.number);
            self.emit_loss(next, first.number, DropCause::WireGap, out);
            self.open_shots.remove_first();
            let number = self.close(framing, first, out, withdraw);
            self.open_shots.set_next(number + 1);
        }
        if let Some(next) = self.next()
            && next < end
        {
            self.emit_loss(next, end, DropCause::WireGap, out);
            self.open_shots.set_next(end);
            self.numbering.reach(end - 1);
        }
    }

    /// Closes all open shots, and counts missing shots up to `end` if the sender reported where it stopped.
    pub(crate) fn finish(
        &mut self,
        framing: &dyn Framing,
        end: Option<u64>,
        out: &mut Vec<Item>,
        withdraw: &mut Vec<u32>,
    ) {
        self.begin(None, out, withdraw);
        if let Some(from) = self.joining.abandon() {
            self.emit_loss(from, self.numbering.newest() + 1, DropCause::SenderRestart, out);
        }
        let stop = end.or(self.signals.stop(self.next().unwrap_or(0))).filter(|_| self.next().is_some());
        if let Some(end) = self.open_shots.end().max(stop) {
            self.advance(framing, end, out, withdraw);
        }
    }

    /// Begins the stream, once enough packets have arrived or time has passed; without a time, now. Its first shot is
    /// the first one of which no packet can have been sent before the packets that arrived.
    fn begin(&mut self, now_ns: Option<u64>, out: &mut Vec<Item>, withdraw: &mut Vec<u32>) {
        let Some(begins) = self.joining.start_position(now_ns, self.open_shots.len()) else { return };
        let mut start = self.numbering.newest();
        while let Some(first) = self.open_shots.first().copied() {
            let began_before =
                first.entry.is_some_and(|entry| self.joining.lacks(first.number, self.slots.missing(entry), begins));
            if !began_before {
                start = first.number;
                break;
            }
            start = first.number + 1;
            self.open_shots.remove_first();
            self.abandon(first, withdraw);
        }
        if let Some(from) = self.joining.begin(start) {
            self.emit_loss(from, start, DropCause::SenderRestart, out);
        }
        self.numbering.reach(start);
        self.open_shots.set_next(start);
    }

    /// Discards the packets of a shot before the start of the run.
    fn abandon(&mut self, open: OpenShot, withdraw: &mut Vec<u32>) {
        let Some(entry) = open.entry else { return };
        let cause = self.joining.discard_cause();
        let TakenShot { presence, copied_bytes, .. } = self.slots.take(entry);
        self.counters.repaired_bytes += copied_bytes;
        self.count_as_dropped(&presence, cause);
        withdraw.extend(presence.missing().map(|index| self.slots.id(entry, index)));
    }

    /// Counts packets that were placed as dropped instead.
    fn count_as_dropped(&mut self, presence: &Presence, cause: DropCause) {
        for index in (0..self.packets).filter(|index| presence.contains(*index)) {
            self.counters.placed -= 1;
            self.counters.placed_bytes -= u64::from(self.config.geometry.packet_bytes(index));
            self.counters.packet_drops.add(cause, 1);
        }
    }

    /// Returns `true` if the sender was restarted, by its packets of old numbers.
    #[inline]
    pub(crate) fn has_restarted(&self) -> bool {
        self.restart.is_detected() && self.signals.ended().is_none()
    }

    /// Continues at the beginning of the next shot, with the run's own numbers, which never repeat. Where each shot has
    /// its sender's number in its record or its timestamp, the stream ends instead: run and shots would contradict
    /// each other.
    pub(crate) fn restart(&mut self, framing: &dyn Framing, out: &mut Vec<Item>, withdraw: &mut Vec<u32>) {
        let Some(run) = self.restart.take() else { return };
        self.finish(framing, None, out, withdraw);
        self.counters.restarts += 1;
        self.counters.packet_drops.reclassify(&run.drops, DropCause::SenderRestart);
        if !matches!(self.config.geometry.trailer(), Trailer::None | Trailer::HsbMetadata) {
            self.signals.end(EndReason::Restarted);
            return;
        }
        let from = self.open_shots.take_next().unwrap_or(0);
        self.joining.resume_from(from);
        self.numbering.resume_from(from, &run);
        self.restart.forget_frames();
        self.signals.forget_numbers();
    }

    /// Returns `true` if the first shot after a wide gap is from a restarted sender; none if that is not known yet.
    fn is_restarted(&self, next: u64, first: OpenShot, is_stale: bool) -> Option<bool> {
        let frame = self.restart.counted_frame().filter(|_| first.number - next > restart::MAX_SKIPPED);
        let (Some(frame), Some(entry)) = (frame, first.entry) else { return Some(false) };
        let metadata = self
            .slots
            .contents(entry)
            .and_then(|(buffer, presence)| trailer::metadata(&self.config.geometry, buffer, presence));
        match metadata {
            Some(metadata) => Some(frame.is_far(first.number, metadata.frame)),
            None if is_stale || self.open_shots.is_overtaken(first.number, self.numbering.newest()) => Some(false),
            None => None,
        }
    }

    /// Lowers the numbers of open shots and of all that follow by `ahead`: the sender was restarted.
    fn lower_numbers(&mut self, ahead: u64) {
        self.counters.restarts += 1;
        self.open_shots.lower(ahead);
        self.numbering.lower(ahead);
        self.restart.forget_frames();
    }

    /// Closes one shot and returns its number, which its own record may have completed to 64 bits.
    fn close(&mut self, framing: &dyn Framing, open: OpenShot, out: &mut Vec<Item>, withdraw: &mut Vec<u32>) -> u64 {
        let taken = open.entry.map(|entry| (entry, self.slots.take(entry)));
        let Some((entry, TakenShot { buffer: Some(buffer), mut presence, mut drops, copied_bytes })) = taken else {
            self.emit_loss(open.number, open.number + 1, DropCause::NoBuffer, out);
            return open.number;
        };
        self.counters.repaired_bytes += copied_bytes;
        let mut valid_bytes = self.slots.zero_gaps(entry, &buffer, &presence, withdraw);
        let (number, proof) = self.prove(framing, open.number, entry, &buffer, &presence, out);
        let missing = u64::from(presence.packets() - presence.received());
        if !proof.good && self.is_counted {
            drops.add(DropCause::Unplaced, u64::from(presence.received()));
            (presence, valid_bytes) = (self.discard_placed(&buffer, &presence), 0);
        } else if presence.is_complete() && !proof.good {
            drops.add(DropCause::BadRecord, 1);
        }
        let unsent = self.signals.unsent(open.number, &presence);
        drops.add(DropCause::WireGap, missing - unsent);
        drops.add(DropCause::Overrun, unsent);
        self.counters.packets_missing += missing - unsent;
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
        self.open_shots.emit(meta, open.arrived_ns, buffer, &mut self.counters, out);
        number
    }

    /// Evaluates the end of a shot. Returns the shot's number, which a record may complete to 64 bits, and the result.
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
            Trailer::None => (number, Proof::without_trailer(presence)),
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

    /// Corrects the number of a shot, and of all newer ones, by its proven record. Shots in between were lost.
    fn anchor(&mut self, number: u64, proven: u64, out: &mut Vec<Item>) -> u64 {
        let Some(correction) = self.numbering.anchor(number, proven) else { return number };
        self.open_shots.raise(correction.ahead);
        if correction.is_first {
            self.joining.raise(correction.ahead);
        } else {
            self.emit_loss(number, proven, DropCause::WireGap, out);
        }
        proven
    }

    /// Counts all packets of a shot that its record does not prove as dropped: where packets are counted, it is unknown
    /// which of them are missing, so none has a known position, and the file shows none of them.
    fn discard_placed(&mut self, buffer: &Buffer, presence: &Presence) -> Arc<Presence> {
        self.count_as_dropped(presence, DropCause::Unplaced);
        buffer.zero(0, buffer.len());
        Arc::new(Presence::empty(self.packets))
    }

    /// Counts and emits shots that never arrived.
    fn emit_loss(&mut self, first: u64, end: u64, cause: DropCause, out: &mut Vec<Item>) {
        let Self { signals, open_shots, counters, .. } = self;
        signals.divide(first..end, cause, |shots, cause| open_shots.emit_loss(shots, cause, counters, out));
    }
}
