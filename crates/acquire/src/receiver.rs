//! One `PacketIo` and its streams.

use crate::books::Books;
use crate::clock::Clock;
use crate::repair::{self, Move};
use crate::resplit::Resplit;
use crate::stream::{Arrival, Ended, Item, SPARES, Stream, StreamConfig, Times, extra};
use shotline_memory::{Pool, Regions, Sge};
use shotline_transport::{Done, Icrc, IoError, Landed, PacketIo, Pick, Recv, Seen, Steer, To};
use shotline_wire::framing::{Counted, Digitizer, Framing, Kind, Ud, Udp};
use shotline_wire::shot::{DropCause, MAX_SHOTS};
use std::sync::Arc;

mod in_order;

/// Bytes of spare memory that repairs need: one payload of the largest datagram.
pub const SPARE_BYTES: u32 = 1 << 16;

/// How to make a [`Receiver`].
pub struct ReceiverConfig {
    /// How headers name places; each stream holds it, too.
    pub framing: Arc<dyn Framing>,
    /// The streams on this `PacketIo`.
    pub streams: Vec<StreamConfig>,
    /// The pool that shots land in; its slots must hold every stream's shots.
    pub pool: Arc<Pool>,
    /// The table of all regions.
    pub regions: Regions,
    /// [`SPARE_BYTES`] of registered memory.
    pub spare: Sge,
    /// Tells when shots arrived and were complete; none: their times stay unknown.
    pub clock: Option<Arc<Clock>>,
}

/// Receives the shots of the streams on one `PacketIo`.
///
/// Call [`Self::poll`] whenever packets may be there, or time has passed; take what it emits; when the
/// senders have stopped, [`Self::finish`]. One thread owns it: it locks nothing.
pub struct Receiver<P> {
    io: P,
    steering: Steering,
}

/// Entries that a stream needs: its window of open shots, and as many ready ones as one batch can begin.
pub fn depth(config: &StreamConfig) -> usize {
    config.window as usize + 2 + shotline_transport::MAX_BATCH.div_ceil(config.geometry.packets() as usize)
}

/// Receives that all streams together keep posted: the capacity to open a backend with.
pub fn capacity(streams: &[StreamConfig]) -> usize {
    streams.iter().map(|config| depth(config) * config.geometry.packets() as usize + SPARES).sum()
}

/// Buffers that assembly alone holds: a pool needs more, for shots on their way to a sink.
pub fn held(streams: &[StreamConfig]) -> usize {
    streams.iter().map(depth).sum()
}

/// Buffers that assembly holds beside those where a device takes receives in their order, which only one stream can use.
pub fn held_in_order(config: &StreamConfig) -> usize {
    extra(&config.geometry)
}

/// A framing of ours as a [`ReceiverConfig`] takes it; none if it has parameters that only a sender's packets tell
/// ([`crate::learn`]).
pub fn framing(kind: Kind) -> Option<Arc<dyn Framing>> {
    match kind {
        Kind::Ud => Some(Arc::new(Ud)),
        Kind::Counted => Some(Arc::new(Counted)),
        Kind::Udp => Some(Arc::new(Udp)),
        Kind::Digitizer => Some(Arc::new(Digitizer)),
        Kind::Vita49 | Kind::Spead | Kind::Hsb => None,
    }
}

impl<P: PacketIo> Receiver<P> {
    /// Takes buffers from the pool and posts their places.
    ///
    /// # Panics
    /// For several streams on a `PacketIo` that does not steer: nobody could tell whose place a packet will take.
    pub fn new(io: P, config: ReceiverConfig) -> Self {
        let mut base = 0;
        let (clock, framing) = (config.clock, config.framing);
        let (pool, regions, in_order) = (&config.pool, &config.regions, !io.capabilities().steers);
        assert!(!in_order || config.streams.len() == 1, "a device that does not steer takes one stream");
        let streams = config
            .streams
            .into_iter()
            .map(|config| {
                let mut stream = Stream::new(config, base, depth(&config), clock.clone(), Arc::clone(&framing));
                if in_order {
                    stream.stand_in_line(pool, regions);
                }
                base = stream.ids().end;
                stream
            })
            .collect();
        let mut receiver = Self {
            io,
            steering: Steering {
                trailer: if framing.sealed() { shotline_wire::roce::ICRC_LEN as u32 } else { 0 },
                framing,
                streams,
                pool: config.pool,
                regions: config.regions,
                spare: config.spare,
                unknown: Books::default(),
                posts: Vec::new(),
                withdraws: Vec::new(),
                moves: Vec::new(),
                resplit: Resplit::default(),
                newest: None,
                doubts: 0,
                now_ns: 0,
                in_order,
            },
        };
        receiver.exchange();
        receiver.steering.streams.iter_mut().for_each(Stream::furnish_line);
        receiver
    }

    /// Receives what is there, up to `max` batches, and emits what is ready. `now_ns` is any monotonic
    /// clock. Returns the packets received.
    pub fn poll(&mut self, now_ns: u64, max: usize, out: &mut Vec<Item>) -> Result<usize, IoError> {
        self.steering.now_ns = now_ns;
        let mut packets = 0;
        for _ in 0..max {
            // A batch at a time: the next one may begin shots whose places are posted only now.
            let landed = self.io.poll(&mut self.steering, 1)?;
            packets += landed;
            if landed == 0 {
                break;
            }
            // Posts again what did not take its packet, before `settle` may let go of a buffer.
            self.exchange();
            self.settle(out);
        }
        if packets == 0 {
            self.settle(out);
        }
        Ok(packets)
    }

    /// Closes everything. `ends` tells for each stream the number after its last shot, where the sender
    /// said so: shots up to there that never came are then counted, too.
    pub fn finish(&mut self, ends: &[Option<u64>], out: &mut Vec<Item>) {
        for (index, stream) in self.steering.streams.iter_mut().enumerate() {
            stream.finish(ends.get(index).copied().flatten(), out, &mut self.steering.withdraws);
        }
        self.exchange();
    }

    /// The `PacketIo` below.
    pub fn io(&mut self) -> &mut P {
        &mut self.io
    }

    /// What is known of a stream.
    pub fn config(&self, stream: usize) -> StreamConfig {
        self.steering.streams[stream].config
    }

    /// What set-up has taught of a stream (its sender, its first shot and sequence number), before its first
    /// packet. Its geometry cannot change.
    pub fn reconfigure(&mut self, stream: usize, config: StreamConfig) {
        self.steering.streams[stream].reconfigure(config);
    }

    /// The first shot of a stream that has not left.
    pub fn next(&self, stream: usize) -> Option<u64> {
        self.steering.streams[stream].next()
    }

    /// Whether the last shot that can have a number has left a stream.
    pub fn numbers_are_over(&self) -> bool {
        self.steering.streams.iter().any(|stream| stream.next() == Some(MAX_SHOTS))
    }

    /// The books of one stream.
    pub fn books(&self, stream: usize) -> &Books {
        &self.steering.streams[stream].books
    }

    /// The books of one stream, to take back what a sink gave up.
    pub fn books_mut(&mut self, stream: usize) -> &mut Books {
        &mut self.steering.streams[stream].books
    }

    /// How long the shots of a stream took.
    pub fn times(&self, stream: usize) -> &Times {
        &self.steering.streams[stream].times
    }

    /// Every sender has said that no more shots come.
    pub fn has_stopped(&self) -> bool {
        self.steering.streams.iter().all(Stream::has_stopped)
    }

    /// Why a stream has ended, if its sender sends something else than it was understood to send.
    pub fn ended(&self) -> Option<Ended> {
        self.steering.streams.iter().find_map(Stream::ended)
    }

    /// The books of packets that belong to no stream.
    pub fn unknown(&self) -> &Books {
        &self.steering.unknown
    }

    /// All books together.
    pub fn total(&self) -> Books {
        let mut total = self.steering.unknown;
        for stream in &self.steering.streams {
            total.merge(&stream.books);
        }
        total
    }

    fn settle(&mut self, out: &mut Vec<Item>) {
        let Steering { streams, withdraws, now_ns, .. } = &mut self.steering;
        let now = *now_ns;
        for stream in streams.iter_mut().filter(|stream| stream.has_restarted()) {
            stream.restart(out, withdraws);
        }
        let lead = streams.iter().filter_map(Stream::next).max().unwrap_or(0);
        for stream in streams.iter_mut() {
            stream.settle(now, out, withdraws);
            // A link that fell silent must not hold back the events of the others.
            if stream.next().is_some_and(|next| next + stream.config.window < lead) && stream.is_silent(now) {
                stream.advance(lead - stream.config.window, out, withdraws);
            }
        }
        self.exchange();
    }

    /// Brings the backend's posted receives up to date.
    fn exchange(&mut self) {
        let Steering { streams, pool, posts, withdraws, .. } = &mut self.steering;
        if !withdraws.is_empty() {
            self.io.withdraw(withdraws);
            withdraws.clear();
        }
        // `posts` now names entries that still hold their buffers; refilled ones come behind.
        for stream in streams {
            stream.refill(pool, posts);
        }
        if !posts.is_empty() {
            let taken = self.io.post(posts);
            debug_assert_eq!(taken, posts.len(), "the backend was opened for fewer receives than streams need");
            posts.clear();
        }
    }
}

/// The receiver's side of the backend's calls.
struct Steering {
    framing: Arc<dyn Framing>,
    trailer: u32,
    streams: Vec<Stream>,
    pool: Arc<Pool>,
    regions: Regions,
    spare: Sge,
    unknown: Books,
    posts: Vec<Recv>,
    withdraws: Vec<u32>,
    moves: Vec<Move>,
    resplit: Resplit,
    /// The packet that was placed last, where the stream goes on: stream, shot, index.
    newest: Option<(usize, u64, u32)>,
    /// Forecasts that are not given, because one was wrong.
    doubts: u32,
    now_ns: u64,
    /// A device takes receives in their order, and asks nobody.
    in_order: bool,
}

/// Forecasts that are left out after one that was wrong: then packets are looked at first.
const DOUBTS: u32 = 32;

/// A good packet's place.
struct Target {
    stream: usize,
    entry: usize,
    index: u32,
    number: u64,
}

impl Steering {
    fn stream_of(&self, header: &[u8]) -> Option<usize> {
        let key = self.framing.key(header).ok()?;
        self.streams.iter().position(|stream| stream.config.key == key)
    }

    /// Finds the place of a packet that landed, or why it has none. Books it either way.
    fn admit(&mut self, done: &Done<'_>) -> Result<Target, DropCause> {
        let stream = if done.fault.is_some() { None } else { self.stream_of(done.header) };
        let Some(index) = stream else {
            self.unknown.packets += 1;
            let cause = done.fault.unwrap_or(DropCause::UnknownStream);
            self.unknown.packet_drops.add(cause, 1);
            return Err(cause);
        };
        let admitted = self.admit_to(index, done);
        let books = &mut self.streams[index].books;
        books.packets += 1;
        match done.icrc {
            Icrc::Good => books.icrc_good += 1,
            Icrc::Solved { .. } => books.icrc_solved += 1,
            Icrc::Device => books.icrc_device += 1,
            Icrc::Unverified => books.icrc_unverified += 1,
            Icrc::Absent | Icrc::Bad => {}
        }
        match &admitted {
            Ok(_) => {
                books.placed += 1;
                books.placed_bytes += u64::from(done.len);
            }
            Err(cause) => books.packet_drops.add(*cause, 1),
        }
        admitted
    }

    fn admit_to(&mut self, index: usize, done: &Done<'_>) -> Result<Target, DropCause> {
        let stream = &mut self.streams[index];
        let Ok(place) = self.framing.place(done.header, done.len, &stream.config.geometry) else {
            let Some(signal) = self.framing.signal(done.header, &stream.config.geometry) else {
                return Err(DropCause::Malformed);
            };
            if !stream.knows(done.source, self.now_ns) {
                return Err(DropCause::UnknownStream);
            }
            stream.note_signal(signal);
            return Err(DropCause::NotData);
        };
        if done.icrc == Icrc::Unverified {
            // What cannot be known is never good.
            return Err(DropCause::BadIcrc);
        }
        if !stream.knows(done.source, self.now_ns) {
            return Err(DropCause::UnknownStream);
        }
        let (number, packet) = stream.locate(&place).inspect_err(|cause| {
            if *cause == DropCause::Late {
                stream.note_late(place.position, *cause, self.now_ns);
            }
        })?;
        // Padding cannot be: it would be part of the shot's CRC.
        if place.len != done.len || place.len != stream.config.geometry.packet_bytes(packet) {
            stream.note_drop(number, DropCause::Malformed);
            return Err(DropCause::Malformed);
        }
        let Done { payload_crc: remainder, stamp_ns, .. } = *done;
        let arrival = Arrival { position: place.position, remainder, now_ns: self.now_ns, stamp_ns };
        let entry = stream.admit((number, packet), arrival)?;
        stream.note_count((number, packet), done.header);
        Ok(Target { stream: index, entry, index: packet, number })
    }

    /// The place of a receive is filled by other means: it is not to be posted any more.
    fn use_up(&mut self, id: u32) {
        self.posts.retain(|receive| receive.id != id);
        self.withdraws.push(id);
    }

    /// Whether the packet's header was not as long as was foretold.
    fn is_split_wrong(&self, done: &Done<'_>) -> bool {
        done.fault.is_none() && self.framing.header_len(done.header) != done.header.len()
    }

    /// Takes a packet that was split in the wrong place: its payload goes to its place by way of a copy.
    fn land_again(&mut self, done: &Done<'_>) {
        let landed = match done.landed {
            Landed::Scratch(sge) => Some(sge),
            Landed::Slot(id) => self.owner(id).and_then(|(stream, entry, index)| {
                self.streams[stream].place(entry, index).map(|sge| Sge { len: done.len, ..sge })
            }),
            // Only places that were posted are ever chosen here.
            Landed::Memory(_) => None,
        };
        let Some(landed) = landed else { return };
        let bytes = Resplit::joined(&self.regions, done.header, landed);
        let split = self.framing.header_len(&bytes).min(bytes.len());
        let (header, payload) = bytes.split_at(split);
        let again = Done { header, len: payload.len() as u32, landed: Landed::Scratch(Sge::EMPTY), ..*done };
        let Ok(target) = self.admit(&again) else { return };
        let stream = &mut self.streams[target.stream];
        if let Some(to) = stream.place(target.entry, target.index) {
            stream.books.repaired += 1;
            stream.books.repaired_bytes += payload.len() as u64;
            let id = stream.id(target.entry, target.index);
            self.use_up(id);
            self.resplit.push(payload, to);
        }
    }

    /// The stream, entry and index of a receive id.
    fn owner(&self, id: u32) -> Option<(usize, usize, u32)> {
        let stream = self.streams.iter().position(|stream| stream.ids().contains(&id))?;
        let (entry, index) = self.streams[stream].slot(id);
        Some((stream, entry, index))
    }
}

impl Steer for Steering {
    fn header_len(&mut self, seen: &Seen<'_>) -> usize {
        self.framing.header_len(seen.first)
    }

    fn pick(&mut self, seen: &Seen<'_>, picks: &mut [Pick]) {
        let header_len = self.framing.header_len(seen.first);
        let Some(header) = seen.first.get(..header_len) else { return };
        let Some(index) = self.stream_of(header) else { return };
        let first = if seen.packets == 1 { seen.last } else { seen.segment };
        let Some(payload) = first.checked_sub(header_len as u32 + self.trailer) else { return };
        let stream = &mut self.streams[index];
        let Ok(place) = self.framing.place(header, payload, &stream.config.geometry) else { return };
        let Ok((mut number, mut packet)) = stream.locate(&place) else { return };
        let mut fresh = 0;
        for (position, pick) in picks.iter_mut().enumerate() {
            pick.to = posted(stream.pick(number, packet, fresh));
            if position > 0 {
                // The first one's header is seen, the others' only foretold.
                let foretold = self.framing.header_len_at(packet, &stream.config.geometry);
                pick.header_len = foretold.and_then(|len| u16::try_from(len).ok());
            }
            packet += 1;
            if packet == stream.config.geometry.packets() {
                fresh += usize::from(!stream.is_open(number));
                (number, packet) = (number + 1, 0);
            }
        }
    }

    fn expect(&mut self, picks: &mut [Pick]) -> usize {
        if self.doubts > 0 {
            self.doubts -= 1;
            return 0;
        }
        let Some((stream, mut number, mut packet)) = self.newest else { return 0 };
        let stream = &self.streams[stream];
        let geometry = stream.config.geometry;
        let constant = self.framing.header_len(&[]);
        let (mut fresh, mut passed) = (0, false);
        for pick in picks.iter_mut() {
            packet += 1;
            if packet == geometry.packets() {
                // The newest shot has its entry, or has left with it: it takes none of those that are ready.
                fresh += usize::from(passed && !stream.is_open(number));
                passed = true;
                (number, packet) = (number + 1, 0);
            }
            let header_len = self.framing.header_len_at(packet, &geometry).unwrap_or(constant);
            *pick = Pick { to: posted(stream.pick(number, packet, fresh)), header_len: u16::try_from(header_len).ok() };
        }
        picks.len()
    }

    fn around(&self, to: To) -> [u32; 2] {
        let To::Posted(id) = to else { return [0; 2] };
        let Some((stream, _, packet)) = self.owner(id) else { return [0; 2] };
        let geometry = self.streams[stream].config.geometry;
        let end = geometry.packet_offset(packet) + geometry.packet_bytes(packet);
        [geometry.packet_offset(packet), geometry.shot_bytes().saturating_sub(end)]
    }

    fn landed(&mut self, batch: &[Done<'_>]) {
        if self.in_order {
            return self.landed_in_order(batch);
        }
        let mut in_place = 0_u64; // a bit for each packet of the batch
        for (position, done) in batch.iter().enumerate() {
            if self.is_split_wrong(done) {
                self.land_again(done);
                continue;
            }
            let Ok(target) = self.admit(done) else { continue };
            self.newest = Some((target.stream, target.number, target.index));
            let stream = &mut self.streams[target.stream];
            let id = stream.id(target.entry, target.index);
            if done.landed == Landed::Slot(id) {
                in_place |= 1 << position;
                continue;
            }
            let Some(to) = stream.place(target.entry, target.index) else { continue };
            stream.books.repaired += 1;
            self.use_up(id);
            if matches!(done.landed, Landed::Slot(_)) {
                self.doubts = DOUBTS;
            }
            let from = match done.landed {
                Landed::Scratch(sge) => sge,
                Landed::Slot(other) => match self.owner(other) {
                    Some((stream, entry, index)) => match self.streams[stream].place(entry, index) {
                        Some(sge) => Sge { len: done.len, ..sge },
                        None => continue,
                    },
                    None => continue,
                },
                Landed::Memory(_) => continue,
            };
            self.moves.push(Move { from, to });
            self.streams[target.stream].books.repaired_bytes += u64::from(done.len);
        }
        repair::carry_out(&self.regions, &mut self.moves, self.spare);
        self.resplit.carry_out(&self.regions);
        // A receive that is used up although its packet is not there is posted again.
        for (position, done) in batch.iter().enumerate() {
            if in_place >> position & 1 == 0
                && let Landed::Slot(id) = done.landed
                && let Some((stream, entry, index)) = self.owner(id)
                && !self.streams[stream].is_filled(entry, index)
                && let Some(sge) = self.streams[stream].place(entry, index)
            {
                self.posts.push(Recv { id, sge: [sge, Sge::EMPTY] });
            }
        }
    }
}

/// The pick of a posted receive, or of none.
fn posted(id: Option<u32>) -> To {
    id.map_or(To::Scratch, To::Posted)
}
