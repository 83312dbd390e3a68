//! One `PacketIo` and its streams.

use crate::books::Books;
use crate::clock::Clock;
use crate::latency::Times;
use crate::stream::{Ended, Item, SPARES, Stream, StreamConfig, extra};
use shotline_memory::{Pool, Regions, Sge};
use shotline_transport::{IoError, PacketIo};
use shotline_wire::framing::{Counted, Digitizer, Framing, Kind, Ud, Udp};
use shotline_wire::shot::MAX_SHOTS;
use std::sync::Arc;
use steering::Steering;

mod repair;
mod resplit;
mod steering;

/// Bytes of spare memory that repairs need: one payload of the largest datagram.
pub const SPARE_BYTES: u32 = 1 << 16;

/// How to make a [`Receiver`].
pub struct ReceiverConfig {
    /// How headers name places.
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
    framing: Arc<dyn Framing>,
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
    /// For several streams on a `PacketIo` that does not steer: which stream's place a packet takes would be unknown.
    pub fn new(io: P, config: ReceiverConfig) -> Self {
        let mut base = 0;
        let (clock, framing) = (config.clock, config.framing);
        let (pool, regions, in_order) = (&config.pool, &config.regions, !io.capabilities().steers);
        assert!(!in_order || config.streams.len() == 1, "a device that does not steer takes one stream");
        let streams = config
            .streams
            .into_iter()
            .map(|config| {
                let mut stream = Stream::new(config, base, depth(&config), clock.clone(), &*framing);
                if in_order {
                    stream.slots.stand_in_line(pool, regions);
                }
                base = stream.slots.ids().end;
                stream
            })
            .collect();
        let steering = Steering::new(&*framing, streams, config.pool, config.regions, config.spare, in_order);
        let mut receiver = Self { io, framing, steering };
        receiver.exchange();
        receiver.steering.streams.iter_mut().for_each(|stream| stream.slots.furnish_line());
        receiver
    }

    /// Receives what is there, up to `max` batches, and emits what is ready. `now_ns` is any monotonic
    /// clock. Returns the packets received.
    pub fn poll(&mut self, now_ns: u64, max: usize, out: &mut Vec<Item>) -> Result<usize, IoError> {
        self.steering.now_ns = now_ns;
        let mut packets = 0;
        for _ in 0..max {
            // A batch at a time: the next one may begin shots whose places are posted only now.
            let landed = self.io.poll(&mut self.steering.framed(&*self.framing), 1)?;
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
            let end = ends.get(index).copied().flatten();
            stream.finish(&*self.framing, end, out, &mut self.steering.withdraws);
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
        self.steering.streams[stream].times()
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
        let framing = &*self.framing;
        let Steering { streams, withdraws, now_ns, .. } = &mut self.steering;
        let now = *now_ns;
        for stream in streams.iter_mut().filter(|stream| stream.has_restarted()) {
            stream.restart(framing, out, withdraws);
        }
        let lead = streams.iter().filter_map(Stream::next).max().unwrap_or(0);
        for stream in streams.iter_mut() {
            stream.settle(framing, now, out, withdraws);
            // A link that fell silent must not hold back the events of the others.
            if stream.next().is_some_and(|next| next + stream.config.window < lead) && stream.is_silent(now) {
                stream.advance(framing, lead - stream.config.window, out, withdraws);
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
            stream.slots.refill(pool, posts);
        }
        if !posts.is_empty() {
            let taken = self.io.post(posts);
            debug_assert_eq!(taken, posts.len(), "the backend was opened for fewer receives than streams need");
            posts.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_set_up_asks_for_has_no_parameters_to_learn() {
        for kind in Kind::with_set_up() {
            assert_eq!(framing(kind).map(|framing| framing.name()), Some(kind.name()));
        }
    }
}
