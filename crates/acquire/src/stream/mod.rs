//! One stream's shots under assembly.
//!
//! A stream holds a fixed number of *entries*. An entry owns one buffer, whose packets' places are posted;
//! it is *ready* until the first good packet of a new shot binds it. Shots leave in the order of their
//! numbers: complete ones as soon as nothing older is open, others when they time out or are overtaken by
//! the window. What never came leaves as a [`Loss`], so numbers are covered without a hole.

use crate::books::Books;
use crate::clock::Clock;
use crate::latency::Latency;
use crate::number::{self, Ring};
use shotline_memory::{Buffer, Pool, Regions, Sge};
use shotline_store::shot::{Loss, Shot};
use shotline_transport::Recv;
use shotline_wire::crc::Shift;
use shotline_wire::framing::{Framing, Place, Position, Signal};
use shotline_wire::shot::{DropCause, Drops, Geometry, MAX_SHOTS, Presence, Trailer};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

mod anew;
mod close;
mod counted;
mod join;
mod line;
mod told;

pub use anew::Ended;
use anew::Run;
use join::Joining;
use line::Line;
pub(crate) use line::{SPARES, extra};
use told::Told;

/// After so long without a packet, a stream whose sender was not named may be taken over by another.
const SENDER_GONE_NS: u64 = 1_000_000_000;
/// Shots that a sender may well have skipped: an instrument that ran out of room.
const NEAR: u64 = 64;
/// Framings whose packets have no CRC of their own carry shot numbers of at least so many bits.
const UNPROTECTED_BITS: u32 = 40;
/// Shots that may be missing before the sender's word that it has ended.
const MOST_BEFORE_STOP: u64 = 1 << 16;
/// Numbers that were no shots' and lie ahead of those that have left, at most: more are counted as missing.
const MOST_SIGNALS: usize = 64;

/// What the receiver knows of a stream before its first packet.
#[derive(Clone, Copy, Debug)]
pub struct StreamConfig {
    /// Its number, as in the end-of-shot record.
    pub stream: u32,
    /// What its packets carry to name it: the destination queue pair, or the stream field of plain UDP.
    pub key: u32,
    /// The shape of its shots.
    pub geometry: Geometry,
    /// The only sender that is believed; none: whoever sends the first good packet.
    pub source: Option<SocketAddr>,
    /// The first shot to expect; none: join live traffic at the first whole shot.
    pub first_shot: Option<u64>,
    /// The sequence number of its first packet, for framings that carry nothing else.
    pub first_psn: Option<u32>,
    /// A shot is closed when one that is this much newer has begun.
    pub window: u64,
    /// A shot is closed when nothing of it has arrived for so long.
    pub timeout_ns: u64,
}

/// What leaves a stream, in the order of shot numbers and without holes.
#[derive(Debug)]
pub enum Item {
    /// A shot, complete or partial.
    Shot(Box<Shot>),
    /// Shots of which there is nothing to hand on.
    Loss(Loss),
}

#[derive(Debug)]
struct Entry {
    buffer: Option<Buffer>,
    presence: Presence,
    /// CRC remainders of the packets that are present.
    remainders: Vec<u32>,
    drops: Drops,
}

/// A shot under assembly. Without an entry its packets are dropped: no buffer was free when it began.
#[derive(Clone, Copy, Debug)]
struct Open {
    number: u64,
    entry: Option<usize>,
    last_ns: u64,
    /// When the kernel received its first packet, by the realtime clock; 0 unknown.
    arrived_ns: u64,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) config: StreamConfig,
    pub(crate) books: Books,
    /// The first of this stream's receive ids.
    base_id: u32,
    packets: u32,
    entries: Vec<Entry>,
    ready: VecDeque<usize>,
    /// Ascending by number.
    open: Vec<Open>,
    /// The first shot that has not left; none until the stream has joined.
    next: Option<u64>,
    /// Where it joined: what is older was under way before.
    joined: u64,
    newest: u64,
    /// Whether numbers are known to 64 bits, or only as many as the wire carries.
    anchored: bool,
    wire_bits: u32,
    /// The last packet that named a shot far ahead, and was not believed.
    suspect: Option<(u64, u32)>,
    source: Option<SocketAddr>,
    last_placed_ns: u64,
    /// Where it is joined, until that is decided.
    joining: Option<Joining>,
    /// What is added to the sender's numbers: it has begun anew, and a run's numbers never repeat.
    shift: u64,
    /// The number to go on with after that.
    goes_on: Option<u64>,
    /// Packets of old numbers, and nothing else since.
    run: Option<Run>,
    /// The frame number that a sensor bridge gave to a shot, and whether it counts them.
    frame: Option<(u64, u16, bool)>,
    full: Shift,
    /// The newest shot in a ring of pages, by its sender's number.
    ring: Option<Ring>,
    /// Numbers that stream control or the like took from the shots.
    signals: VecDeque<u64>,
    /// The number with which the sender has ended its stream.
    stopped: Option<u64>,
    clock: Option<Arc<Clock>>,
    framing: Arc<dyn Framing>,
    /// Its receives, where a device takes them in their order.
    pub(crate) line: Option<Line>,
    /// Packets that came, where nothing else tells which they are.
    counted: u64,
    /// What packets of context said, where they are what closes a shot.
    told: Option<Told>,
    /// What comes now is not what the stream was: it has ended.
    ended: Option<Ended>,
    pub(crate) times: Times,
}

/// How long shots took.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// From the sender's stamp to completion.
    pub from_sender: Latency,
    /// From the kernel's receipt of the first packet to completion.
    pub from_kernel: Latency,
}

impl Stream {
    pub(crate) fn new(
        config: StreamConfig,
        base_id: u32,
        depth: usize,
        clock: Option<Arc<Clock>>,
        framing: Arc<dyn Framing>,
    ) -> Self {
        let packets = config.geometry.packets();
        let entry = || Entry {
            buffer: None,
            presence: Presence::empty(packets),
            remainders: vec![0; packets as usize],
            drops: Drops::default(),
        };
        Self {
            config,
            books: Books::default(),
            base_id,
            packets,
            entries: (0..depth).map(|_| entry()).collect(),
            ready: VecDeque::with_capacity(depth),
            open: Vec::with_capacity(2 * depth),
            next: config.first_shot,
            joined: config.first_shot.unwrap_or(0),
            newest: config.first_shot.unwrap_or(0),
            anchored: config.first_shot.is_some(),
            wire_bits: 64,
            suspect: None,
            source: config.source,
            last_placed_ns: 0,
            joining: None,
            shift: 0,
            goes_on: None,
            run: None,
            frame: None,
            full: Shift::new(u64::from(config.geometry.cut().rest)),
            ring: None,
            signals: VecDeque::new(),
            stopped: None,
            clock,
            line: None,
            counted: 0,
            told: (config.geometry.trailer() == Trailer::Context).then(|| Told::new(framing.meaning())),
            framing,
            ended: None,
            times: Times::default(),
        }
    }

    pub(crate) fn reconfigure(&mut self, config: StreamConfig) {
        debug_assert_eq!(config.geometry, self.config.geometry);
        self.next = config.first_shot;
        self.joined = config.first_shot.unwrap_or(0);
        self.newest = self.joined;
        self.anchored = config.first_shot.is_some();
        self.source = config.source;
        self.config = config;
    }

    /// From now on a device takes its receives in their order.
    pub(crate) fn stand_in_line(&mut self, pool: &Arc<Pool>, regions: &Regions) {
        self.line = Some(Line::new(pool, regions, self.config.geometry, self.base_id, self.entries.len()));
    }

    /// Takes the buffers that a line needs beside those of its entries, which have theirs.
    pub(crate) fn furnish_line(&mut self) {
        self.line.iter_mut().for_each(Line::furnish);
    }

    /// Receive ids from `base_id` on that belong to this stream.
    pub(crate) fn ids(&self) -> std::ops::Range<u32> {
        if let Some(line) = &self.line {
            return line.ids();
        }
        self.base_id..self.base_id + self.entries.len() as u32 * self.packets
    }

    pub(crate) fn id(&self, entry: usize, index: u32) -> u32 {
        self.base_id + entry as u32 * self.packets + index
    }

    /// The entry and packet index of one of this stream's receive ids.
    pub(crate) fn slot(&self, id: u32) -> (usize, u32) {
        let position = id - self.base_id;
        ((position / self.packets) as usize, position % self.packets)
    }

    /// Where a packet of an entry belongs.
    pub(crate) fn place(&self, entry: usize, index: u32) -> Option<Sge> {
        let (offset, bytes) = (self.config.geometry.packet_offset(index), self.config.geometry.packet_bytes(index));
        self.entries[entry].buffer.as_ref().map(|buffer| buffer.sge(offset, bytes))
    }

    /// Where a packet lies that landed in the place of a receive id.
    pub(crate) fn landing_place(&self, id: u32) -> Option<Sge> {
        if let Some(place) = self.line.as_ref().and_then(|line| line.spare_place(id)) {
            return Some(place);
        }
        // A line's places are longer than packets that belong there.
        let (entry, index) = self.slot(id);
        let geometry = &self.config.geometry;
        let (offset, bytes) = (geometry.packet_offset(index), geometry.cut().rest.max(geometry.packet_bytes(index)));
        self.entries[entry].buffer.as_ref().map(|buffer| buffer.sge(offset, bytes.min(buffer.len() - offset)))
    }

    /// Gives every empty entry a buffer, and lists what to post for it.
    pub(crate) fn refill(&mut self, pool: &Arc<Pool>, posts: &mut Vec<Recv>) {
        self.line.iter_mut().for_each(Line::relieve);
        while let Some(line) = &mut self.line
            && let Some(entry) = line.again.pop_front()
        {
            if let Some(buffer) = &self.entries[entry].buffer {
                line.lay(entry, buffer, posts);
                self.ready.push_back(entry);
            }
        }
        for entry in 0..self.entries.len() {
            if self.entries[entry].buffer.is_some() {
                continue;
            }
            let Some(buffer) = pool.take() else { break };
            let buffer = self.entries[entry].buffer.insert(buffer);
            if let Some(line) = &mut self.line {
                line.lay(entry, buffer, posts);
                self.ready.push_back(entry);
                continue;
            }
            for index in 0..self.packets {
                if let Some(sge) = self.place(entry, index) {
                    posts.push(Recv { id: self.id(entry, index), sge: [sge, Sge::EMPTY] });
                }
            }
            self.ready.push_back(entry);
        }
        if let Some(line) = &mut self.line {
            line.straighten(posts);
        }
    }

    /// The shot number and packet index that a header names.
    pub(crate) fn locate(&mut self, place: &Place) -> Result<(u64, u32), DropCause> {
        match place.position {
            Position::Shot { number: wire, bits, offset, .. } => {
                let index = self.config.geometry.packet_at(offset).ok_or(DropCause::Malformed)?;
                self.wire_bits = bits;
                let is_begun = self.next.is_some() || self.joining.is_some() || self.goes_on.is_some();
                let reference = if is_begun { self.newest.wrapping_sub(self.shift) } else { wire };
                let number = number::unwrap(wire, bits, reference).wrapping_add(self.shift);
                if number >= MAX_SHOTS {
                    return Err(DropCause::Malformed);
                }
                Ok((number, index))
            }
            Position::Sequence { bits: 0, .. } => Ok(self.counted_place()),
            Position::Sequence { number: psn, bits, .. } => {
                // No set-up told where shots begin: nothing can be placed.
                let first = u64::from(self.config.first_psn.ok_or(DropCause::BeforeStart)?);
                let start = self.config.first_shot.unwrap_or(0);
                let packets = u64::from(self.packets);
                let reference = first + (self.newest - start) * packets;
                let position =
                    number::unwrap(u64::from(psn), bits, reference).checked_sub(first).ok_or(DropCause::Late)?;
                Ok((start + position / packets, (position % packets) as u32))
            }
            Position::Paged { page, pages, first, bits, offset } => {
                let index = self.config.geometry.packet_at(offset).ok_or(DropCause::Malformed)?;
                self.wire_bits = bits;
                let number = match self.ring {
                    Some(ring) => ring.number_of(page, pages, first, bits, self.packets).ok_or(self.before())?,
                    None => u64::from(page),
                };
                let number = number.wrapping_add(self.shift);
                if number >= MAX_SHOTS { Err(DropCause::Malformed) } else { Ok((number, index)) }
            }
        }
    }

    /// The receive id that a packet should land in, if its place is free. Believes nothing for good: the
    /// header has not been checked yet.
    pub(crate) fn pick(&self, number: u64, index: u32, fresh: usize) -> Option<u32> {
        if index >= self.packets || self.next.is_some_and(|next| number < next) {
            return None;
        }
        let entry = match self.find(number) {
            Ok(open) => self.open[open].entry?,
            Err(_) => *self.ready.get(fresh)?,
        };
        (!self.entries[entry].presence.contains(index)).then(|| self.id(entry, index))
    }

    /// Whether a shot is under assembly.
    pub(crate) fn is_open(&self, number: u64) -> bool {
        self.find(number).is_ok()
    }

    fn find(&self, number: u64) -> Result<usize, usize> {
        self.open.binary_search_by_key(&number, |open| open.number)
    }

    /// Whether this sender may speak for the stream. A stream whose sender was not named follows the first
    /// one, and another only after silence.
    pub(crate) fn knows(&mut self, source: SocketAddr, now_ns: u64) -> bool {
        let named = self.config.source.is_some();
        let gone = now_ns.saturating_sub(self.last_placed_ns) > SENDER_GONE_NS;
        if self.source.is_none() || !named && gone {
            self.source = Some(source);
        }
        // A device that drops route headers shows who sent a packet only by what stands for the port.
        self.source
            .is_some_and(|known| known == source || source.ip().is_unspecified() && known.port() == source.port())
    }

    /// Takes note of a good packet and says which entry it belongs to.
    pub(crate) fn admit(&mut self, (number, index): (u64, u32), packet: Arrival) -> Result<usize, DropCause> {
        let Arrival { position, remainder, now_ns, stamp_ns } = packet;
        if let Some(ended) = self.ended {
            return Err(ended.cause());
        }
        let floor = self.next.unwrap_or_else(|| self.join(number, index, now_ns));
        if number < floor {
            let cause = if number < self.joined { DropCause::BeforeStart } else { DropCause::Late };
            self.note_late(position, cause, now_ns);
            return Err(cause);
        }
        let at = match self.find(number) {
            Ok(at) => at,
            Err(at) => {
                if self.is_doubtful(number, index) {
                    return Err(DropCause::Malformed);
                }
                let entry = self.ready.pop_front();
                self.open.insert(at, Open { number, entry, last_ns: now_ns, arrived_ns: stamp_ns });
                self.newest = self.newest.max(number);
                self.signals.retain(|signal| *signal != number);
                if let Position::Paged { first, .. } = position
                    && let number = number.wrapping_sub(self.shift)
                    && self.ring.is_none_or(|ring| ring.number < number)
                {
                    self.ring = Some(Ring { number, first });
                }
                at
            }
        };
        self.open[at].last_ns = now_ns;
        let entry = self.open[at].entry.ok_or(DropCause::NoBuffer)?;
        let is_new = !self.entries[entry].presence.contains(index);
        if is_new && self.line.as_ref().is_some_and(|line| line.is_stuck(self.id(entry, index))) {
            self.entries[entry].drops.add(DropCause::NoBuffer, 1);
            return Err(DropCause::NoBuffer);
        }
        if !self.entries[entry].presence.insert(index) {
            self.entries[entry].drops.add(DropCause::Duplicate, 1);
            return Err(DropCause::Duplicate);
        }
        self.entries[entry].remainders[index as usize] = remainder;
        self.run = None;
        self.last_placed_ns = now_ns;
        Ok(entry)
    }

    /// Whether a number is too far ahead to be believed of one packet. Long numbers come in framings
    /// without an ICRC: one flipped bit would end every shot before it. Another packet of a shot near it
    /// confirms it, so that after an outage only one packet is lost.
    fn is_doubtful(&mut self, number: u64, index: u32) -> bool {
        let near = self.config.window.max(NEAR);
        if self.wire_bits < UNPROTECTED_BITS || number <= self.newest.saturating_add(near) {
            return false;
        }
        let other = self.suspect.replace((number, index));
        !other.is_some_and(|other| other != (number, index) && other.0.abs_diff(number) <= near)
    }

    /// A packet that is no part of a shot said so itself.
    pub(crate) fn note_signal(&mut self, signal: Signal) {
        let (number, stop) = match signal {
            Signal::Number { number, stop } => (number.wrapping_add(self.shift).min(MAX_SHOTS), stop),
            Signal::Meaning { from, meaning, lost } => {
                if let Some(told) = &mut self.told {
                    told.note_meaning(from, meaning, lost);
                }
                return;
            }
            Signal::Other => {
                self.ended = Some(Ended::Other);
                return;
            }
        };
        if stop {
            self.stopped = Some(number);
        }
        let next = self.next.unwrap_or(0);
        self.signals.retain(|number| *number >= next);
        // A number that has data is a shot's, whatever else bears it.
        if number >= next
            && !self.is_open(number)
            && !self.signals.contains(&number)
            && self.signals.len() < MOST_SIGNALS
        {
            let at = self.signals.partition_point(|other| *other < number);
            self.signals.insert(at, number);
        }
    }

    /// Takes note of a packet's count, where the framing has one.
    pub(crate) fn note_count(&mut self, (number, index): (u64, u32), header: &[u8]) {
        if let Some(told) = &mut self.told
            && let Some(count) = self.framing.count(header)
        {
            told.note_count(number, number * u64::from(self.packets) + u64::from(index), count);
        }
    }

    /// Why what comes now is not what the stream was, if it is not.
    pub(crate) fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// The sender has said that no more shots come.
    pub(crate) fn has_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// Notes that a packet whose header named this shot was dropped; only for the shot's own record.
    pub(crate) fn note_drop(&mut self, number: u64, cause: DropCause) {
        if let Ok(at) = self.find(number)
            && let Some(entry) = self.open[at].entry
        {
            self.entries[entry].drops.add(cause, 1);
        }
    }

    /// Whether the packet of a slot has arrived.
    pub(crate) fn is_filled(&self, entry: usize, index: u32) -> bool {
        self.entries[entry].presence.contains(index)
    }

    /// The first shot that has not left.
    pub(crate) fn next(&self) -> Option<u64> {
        self.next
    }

    /// Nothing has been placed for the time-out.
    pub(crate) fn is_silent(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.last_placed_ns) > self.config.timeout_ns
    }

    /// Lets go of everything that is complete, timed out or overtaken. `withdraw` lists receives that are
    /// no longer posted for anyone.
    pub(crate) fn settle(&mut self, now_ns: u64, out: &mut Vec<Item>, withdraw: &mut Vec<u32>) {
        if self.last_placed_ns == 0 {
            self.last_placed_ns = now_ns; // silence is counted from the start
        }
        self.begin(Some(now_ns), out, withdraw);
        let Some(mut next) = self.next else { return };
        loop {
            while self.signals.front() == Some(&next) {
                self.lose(next, next + 1, DropCause::NotData, out);
                next += 1;
            }
            let Some(first) = self.open.first().copied() else { break };
            let overtaken = self.newest >= next + self.config.window;
            let stale = now_ns.saturating_sub(first.last_ns) > self.config.timeout_ns;
            if first.number == next {
                let complete = first.entry.is_some_and(|entry| self.is_whole(entry));
                if !(complete || overtaken || stale) {
                    break;
                }
                self.open.remove(0);
                let number = self.close(first, out, withdraw);
                next = number + 1;
            } else if overtaken || stale {
                match self.is_anew(next, first, stale) {
                    None => break,
                    Some(true) => {
                        self.renumber(first.number - next);
                        continue;
                    }
                    Some(false) => {}
                }
                let end = if stale { first.number } else { first.number.min(self.newest - self.config.window + 1) };
                self.lose(next, end, DropCause::WireGap, out);
                next = end;
            } else {
                break;
            }
        }
        self.next = Some(next);
        self.newest = self.newest.max(next.saturating_sub(1));
    }

    /// Whether a shot is complete, and all of it in its buffer.
    fn is_whole(&self, entry: usize) -> bool {
        self.entries[entry].presence.is_complete() && !self.line.as_ref().is_some_and(|line| line.has_lent(entry))
    }

    /// Closes everything before `end`, whether it came or not.
    pub(crate) fn advance(&mut self, end: u64, out: &mut Vec<Item>, withdraw: &mut Vec<u32>) {
        while let Some(first) = self.open.first().copied().filter(|first| first.number < end) {
            let next = self.next.unwrap_or(first.number);
            self.lose(next, first.number, DropCause::WireGap, out);
            self.open.remove(0);
            self.next = Some(self.close(first, out, withdraw) + 1);
        }
        if let Some(next) = self.next
            && next < end
        {
            self.lose(next, end, DropCause::WireGap, out);
            self.next = Some(end);
            self.newest = self.newest.max(end - 1);
        }
    }

    /// Closes all open shots, and what is missing up to `end` if the sender said where it stopped.
    pub(crate) fn finish(&mut self, end: Option<u64>, out: &mut Vec<Item>, withdraw: &mut Vec<u32>) {
        self.begin(None, out, withdraw);
        if let Some(from) = self.goes_on.take() {
            self.lose(from, self.newest + 1, DropCause::SenderRestart, out);
        }
        let open_end = self.open.last().map(|last| last.number + 1);
        // No CRC protects the sender's own word, so it is believed within reason.
        let next = self.next.unwrap_or(0);
        let stop = self.stopped.map(|number| number + 1).filter(|end| end.saturating_sub(next) < MOST_BEFORE_STOP);
        if let Some(end) = open_end.max(end.or(stop).filter(|_| self.next.is_some())) {
            self.advance(end, out, withdraw);
        }
    }
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
