//! Receiver of the streams on one `PacketIo`.

use crate::clock::Clock;
use crate::counters::StreamCounters;
use crate::latency::ShotLatencies;
use crate::stream::{EndReason, Item, SPARES, Stream, StreamConfig, queue_buffers};
use shotline_memory::{Pool, Regions, Sge};
use shotline_transport::{IoError, PacketIo};
use shotline_wire::framing::{Counted, Digitizer, Framing, Kind, Ud, Udp};
use shotline_wire::shot::MAX_SHOTS;
use std::sync::Arc;
use steering::Steering;

mod repair;
mod resplit;
mod steering;

/// Bytes of spare memory for repairs: one payload of the largest datagram.
pub const SPARE_BYTES: u32 = 1 << 16;

/// Configuration of a [`Receiver`].
pub struct ReceiverConfig {
    /// Framing of the packets.
    pub framing: Arc<dyn Framing>,
    /// Streams on this `PacketIo`.
    pub streams: Vec<StreamConfig>,
    /// Pool of the shot buffers; its slots must hold every stream's shots.
    pub pool: Arc<Pool>,
    /// Table of all regions.
    pub regions: Regions,
    /// [`SPARE_BYTES`] of registered memory.
    pub spare: Sge,
    /// Clock for arrival and completion times of shots; none: they stay unknown.
    pub clock: Option<Arc<Clock>>,
}

/// Receives the shots of the streams on one `PacketIo`.
///
/// Call [`Self::poll`] when packets may have arrived or time has passed, and take its output; call [`Self::finish`]
/// when the senders have stopped. One thread owns it: it uses no locks.
pub struct Receiver<P> {
    io: P,
    framing: Arc<dyn Framing>,
    steering: Steering,
}

/// Returns the number of entries of a stream: its window of open shots, and as many ready ones as one batch can begin.
pub fn stream_entries(config: &StreamConfig) -> usize {
    config.window as usize + 2 + shotline_transport::MAX_BATCH.div_ceil(config.geometry.packets() as usize)
}

/// Returns the number of receives that all streams together keep posted: the capacity to open a backend with.
pub fn capacity(streams: &[StreamConfig]) -> usize {
    streams.iter().map(|config| stream_entries(config) * config.geometry.packets() as usize + SPARES).sum()
}

/// Returns the number of buffers that assembly holds: a pool needs more, for shots on their way to a sink.
pub fn assembly_buffers(streams: &[StreamConfig]) -> usize {
    streams.iter().map(stream_entries).sum()
}

/// Returns the number of shots that one batch can finish: those it completes, and those whose window it ends.
pub fn finished_buffers(config: &StreamConfig) -> usize {
    config.window as usize + 1 + shotline_transport::MAX_BATCH.div_ceil(config.geometry.packets() as usize)
}

/// Returns the number of buffers that assembly holds in addition for a device that consumes receives in order, which
/// only one stream can use.
pub fn in_order_buffers(config: &StreamConfig) -> usize {
    queue_buffers(&config.geometry)
}

/// Returns a built-in framing for a [`ReceiverConfig`]; none if it has parameters that must be learned from a sender's
/// packets ([`crate::learn`]).
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
    /// Takes buffers from the pool and posts their receives.
    ///
    /// # Panics
    /// With several streams on a `PacketIo` that does not steer: the stream of a packet would be unknown before it
    /// lands.
    pub fn new(io: P, config: ReceiverConfig) -> Self {
        let mut base = 0;
        let (clock, framing) = (config.clock, config.framing);
        let (pool, regions, in_order) = (&config.pool, &config.regions, !io.capabilities().steers);
        assert!(!in_order || config.streams.len() == 1, "a device that does not steer takes one stream");
        let streams = config
            .streams
            .into_iter()
            .map(|config| {
                let mut stream = Stream::new(config, base, stream_entries(&config), clock.clone(), &*framing);
                if in_order {
                    stream.slots.use_receive_queue(pool, regions);
                }
                base = stream.slots.ids().end;
                stream
            })
            .collect();
        let steering = Steering::new(&*framing, streams, config.pool, config.regions, config.spare, in_order);
        let mut receiver = Self { io, framing, steering };
        receiver.exchange();
        receiver.steering.streams.iter_mut().for_each(|stream| stream.slots.take_queue_buffers());
        receiver
    }

    /// Receives pending packets, up to `max` batches, and emits finished shots and losses. It ends after a batch with which
    /// shots have finished: they hold buffers until they are handed on. `now_ns` is any monotonic clock. Returns the number
    /// of packets received.
    ///
    /// # Errors
    /// If the transport fails.
    pub fn poll(&mut self, now_ns: u64, max: usize, out: &mut Vec<Item>) -> Result<usize, IoError> {
        self.steering.now_ns = now_ns;
        let mut packets = 0;
        for _ in 0..max {
            // Poll a batch at a time: the next one may begin shots whose receives are posted only now.
            let landed = self.io.poll(&mut self.steering.framed(&*self.framing), 1)?;
            packets += landed;
            if landed == 0 {
                break;
            }
            // Repost receives that did not get their packet before `settle` may release a buffer.
            self.exchange();
            self.settle(out);
            if !out.is_empty() {
                break;
            }
        }
        if packets == 0 {
            self.settle(out);
        }
        Ok(packets)
    }

    /// Closes all shots. `ends` has for each stream the number after its last shot, if the sender reported it: missing
    /// shots up to there are then counted, too.
    pub fn finish(&mut self, ends: &[Option<u64>], out: &mut Vec<Item>) {
        for (index, stream) in self.steering.streams.iter_mut().enumerate() {
            let end = ends.get(index).copied().flatten();
            stream.finish(&*self.framing, end, out, &mut self.steering.withdraws);
        }
        self.exchange();
    }

    /// Returns the underlying `PacketIo`.
    pub fn io(&mut self) -> &mut P {
        &mut self.io
    }

    /// Returns the configuration of a stream.
    pub fn config(&self, stream: usize) -> StreamConfig {
        self.steering.streams[stream].config
    }

    /// Updates a stream with the results of set-up (its sender, its first shot and sequence number), before its first
    /// packet. Its geometry cannot change.
    pub fn reconfigure(&mut self, stream: usize, config: StreamConfig) {
        self.steering.streams[stream].reconfigure(config);
    }

    /// Returns the first shot of a stream that has not been emitted.
    pub fn next(&self, stream: usize) -> Option<u64> {
        self.steering.streams[stream].next()
    }

    /// Returns `true` if a stream has emitted the last shot that can have a number.
    pub fn numbers_exhausted(&self) -> bool {
        self.steering.streams.iter().any(|stream| stream.next() == Some(MAX_SHOTS))
    }

    /// Returns the counters of one stream.
    pub fn counters(&self, stream: usize) -> &StreamCounters {
        &self.steering.streams[stream].counters
    }

    /// Returns the counters of one stream, to correct them for shots that a sink discarded.
    pub fn counters_mut(&mut self, stream: usize) -> &mut StreamCounters {
        &mut self.steering.streams[stream].counters
    }

    /// Returns the latencies of a stream's shots.
    pub fn latencies(&self, stream: usize) -> &ShotLatencies {
        self.steering.streams[stream].latencies()
    }

    /// Returns `true` if every sender has announced that no more shots follow.
    pub fn has_stopped(&self) -> bool {
        self.steering.streams.iter().all(Stream::has_stopped)
    }

    /// Returns the reason why a stream has ended, if its sender no longer sends what was learned.
    pub fn ended(&self) -> Option<EndReason> {
        self.steering.streams.iter().find_map(Stream::ended)
    }

    /// Returns the counters of packets that belong to no stream.
    pub fn unknown(&self) -> &StreamCounters {
        &self.steering.unknown
    }

    /// Returns the sum of all counters.
    pub fn total(&self) -> StreamCounters {
        let mut total = self.steering.unknown;
        for stream in &self.steering.streams {
            total.merge(&stream.counters);
        }
        total
    }

    /// Emits what is finished on each stream, and exchanges receives with the backend.
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
            // A silent link must not delay the events of the others.
            if stream.next().is_some_and(|next| next + stream.config.window < lead) && stream.is_silent(now) {
                stream.advance(framing, lead - stream.config.window, out, withdraws);
            }
        }
        self.exchange();
    }

    /// Posts and withdraws receives of the backend.
    fn exchange(&mut self) {
        let Steering { streams, pool, posts, withdraws, .. } = &mut self.steering;
        if !withdraws.is_empty() {
            self.io.withdraw(withdraws);
            withdraws.clear();
        }
        // `posts` now names entries that still hold their buffers; refilled ones are appended.
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
    fn framings_with_set_up_have_no_parameters_to_learn() {
        for kind in Kind::with_set_up() {
            assert_eq!(framing(kind).map(|framing| framing.name()), Some(kind.name()));
        }
    }
}
