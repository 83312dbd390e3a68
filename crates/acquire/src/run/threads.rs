//! Threads of a run: the caller's thread receives, one thread records, and one polls the probe over its control
//! connection, so that neither of the others waits for the probe's replies.

use super::cause::Cause;
use super::prepare::{Origin, PreparedRun};
use super::recording::RecordingResult;
use super::shared::Shared;
use super::stage::{Beside, Output, ReceiveStage, StageResult};
use super::start::StartedRun;
use super::stored::stored_counters;
use super::unwritten::SinkFailure;
use super::watch::Watch;
use crate::clock::Clock;
use crate::control::Control;
use crate::cpu;
use crate::live::Live;
use crate::receiver::Receiver;
use crate::sink::{Policy, Producer, Queue};
use shotline_transport::PacketIo;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::thread::ScopedJoinHandle;

/// Results of the threads.
pub(super) struct ThreadResults<'a, P> {
    pub(super) prepared: PreparedRun<'a>,
    /// Local address of the packets.
    pub(super) local: SocketAddr,
    /// Receive buffer that was granted, in bytes.
    pub(super) receive_buffer: usize,
    pub(super) learned: Option<String>,
    pub(super) clock: Arc<Clock>,
    pub(super) receiver: Receiver<P>,
    pub(super) watch: Watch,
    pub(super) result: StageResult,
    /// Number of events received.
    pub(super) received: u64,
    /// Set if a requested shot had no space in the file.
    pub(super) lacked_space: bool,
    /// Result of the sink; none: shots were discarded.
    pub(super) recorded: Result<Option<RecordingResult>, SinkFailure>,
    pub(super) warnings: Vec<String>,
}

/// Receives until the run is over, and waits until everything is in the file. `follow` is the body of the watch thread
/// ([`Watch::follow`]). Failures, including a thread that panics, are in the results.
pub(super) fn run<'a, P: PacketIo>(
    started: StartedRun<'a, P>,
    follow: impl FnOnce(&Watch, Control<'a>) + Send,
    stop: &AtomicBool,
    live: &Live,
) -> ThreadResults<'a, P> {
    let StartedRun { prepared, origin, clock, mut receiver, sinks } = started;
    let Origin { control, local, receive_buffer, learned } = origin;
    let settings = prepared.resolved.settings;
    let capacity_rows = sinks.capacity_rows();
    let (rows_remaining, waker, mut warnings) = (sinks.rows_remaining(settings), sinks.waker(), sinks.warnings());
    let queue = Queue::new(sinks.queue_events);
    let counters = OnceLock::new();
    let watch = Watch::new(if control.is_some() { prepared.configs.len() as u8 } else { 0 });
    let consumer = live.consumer().map(Arc::as_ref);
    let wake = || {
        waker.iter().for_each(|waker| waker.wake());
        consumer.iter().for_each(|consumer| consumer.wake());
    };
    let (result, received, lacked_space, recorded) = std::thread::scope(|scope| {
        let watched = &watch;
        let watcher = control.map(|control| scope.spawn(move || watched.run(|| follow(watched, control))));
        let sink = sinks.spawn(scope, Shared { queue: &queue, counters: &counters, live });
        // From here on a panic of this thread makes the others end.
        let guard = ShutdownGuard { queue: &queue, watch: &watch, wake: &wake };
        if let Some(cpu) = settings.cpu {
            warnings.extend(cpu::pin(cpu).err());
        }
        let producer = Producer::new(Arc::clone(&queue), prepared.policy);
        let (producer, beside) = match (&sink, consumer) {
            (None, None) => (None, None),
            (Some(_), None) => (Some(producer), None),
            // The program is the sink.
            (None, Some(consumer)) => {
                consumer.attach(&queue);
                (Some(producer), None)
            }
            (Some(_), Some(consumer)) => {
                let queue = Queue::new(prepared.consumer_events);
                consumer.attach(&queue);
                (Some(producer), Some(Beside { producer: Producer::new(queue, Policy::DropNewest), consumer }))
            }
        };
        let output = Output { producer, beside, wake: &wake, rows_remaining, live };
        let mut stage = ReceiveStage::new(&prepared, &mut receiver, output, &clock, receive_buffer);
        live.set_about(prepared.about(local, capacity_rows, &clock));
        live.set_listening(local);
        let mut result = stage.run(stop, &watch);
        watch.stop();
        stage.finish(&watch);
        // Some of the last shots may have found no space only now.
        let (received, lacked_space) = (stage.received(), stage.lacks_space());
        let _ = counters.set(stored_counters(&mut receiver, &prepared.configs, &live.alignment()));
        drop(guard);
        let recorded = sink.map(join).transpose();
        if let (Ok(_), Some(Err(error))) = (&result.ended, watcher.map(join)) {
            result.ended = Err((Cause::ProbeLost, error));
        }
        (result, received, lacked_space, recorded)
    });
    ThreadResults {
        prepared,
        local,
        receive_buffer,
        learned,
        clock,
        receiver,
        watch,
        result,
        received,
        lacked_space,
        recorded,
        warnings,
    }
}

/// Joins a thread. A panic that it has not caught is resumed in this one.
fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Makes the other threads end, also if this one panics: otherwise they would wait for it forever.
struct ShutdownGuard<'a> {
    queue: &'a Queue,
    watch: &'a Watch,
    wake: &'a dyn Fn(),
}

impl Drop for ShutdownGuard<'_> {
    fn drop(&mut self) {
        self.queue.close();
        self.watch.stop();
        (self.wake)();
    }
}

#[cfg(test)]
mod tests {
    use super::super::outcome::Outcome;
    use super::*;
    use crate::config::{Bytes, Settings};
    use crate::consumer::{Consumer, Next};
    use crate::memory::Memory;
    use crate::run::prepare::Instrument;
    use crate::sink::Lent;
    use crate::tap::{MAX_EVENTS, Request};
    use arrayvec::ArrayVec;
    use shotline_memory::{Buffer, Sge};
    use shotline_testing::wait_until;
    use shotline_transport::inproc::{InprocConfig, InprocIo, pair};
    use shotline_transport::{Seal, TxPacket};
    use shotline_wire::framing::{Framing, Link, Packet, Udp};
    use shotline_wire::shot::{DropCause, Geometry, Packetization, Packing, Trailer};
    use std::path::Path;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    fn address(port: u16) -> SocketAddr {
        (std::net::Ipv6Addr::LOCALHOST, port).into()
    }

    /// Returns the shape of shots in packets of 4000 bytes without a proof of their bytes.
    fn geometry(channels: u16, cut: u32) -> Geometry {
        let geometry = Geometry::new(channels, 1000, 12, Packing::Packed12, 0).unwrap();
        geometry.sent_as(Trailer::None, Packetization::uniform(cut)).unwrap()
    }

    /// Sends shots of three packets until the receiver is gone; the last two packets of the first one are left out.
    fn send(mut io: InprocIo, source: Sge) {
        let geometry = geometry(8, 4000);
        assert_eq!(geometry.packets(), 3);
        for shot in 0.. {
            for index in 0..if shot == 0 { 1 } else { 3 } {
                let packet = Packet::nth(&geometry, 0, shot, index).unwrap();
                let mut header = ArrayVec::new();
                Udp.emit(&Link::default(), &packet, &mut header);
                let gather = [Sge { len: packet.len, ..source }, Sge::EMPTY];
                let packet = TxPacket { header: &header, gather: &gather, seal: Seal::None };
                loop {
                    match io.send(address(1), &[packet]) {
                        Ok(0) => std::thread::yield_now(),
                        Ok(_) => break,
                        Err(_) => return,
                    }
                }
            }
        }
    }

    fn prepared<'a>(settings: &'a Settings, memory: &Memory) -> PreparedRun<'a> {
        let instrument = Instrument { name: "test".into(), pattern_period: 0, array: None };
        let resolved = settings.check_described(false).unwrap();
        PreparedRun::new(resolved, memory, Arc::new(Udp), geometry(8, 4000), 1, instrument).unwrap()
    }

    /// Receives shots from a sender in this process until the run ends, into a file that is described as having shots
    /// of `recorded`.
    fn outcome(
        settings: &Settings,
        recorded: Geometry,
        control: Option<Control<'_>>,
        follow: impl FnOnce(&Watch, Control<'_>) + Send,
        stop: &AtomicBool,
        live: &Live,
    ) -> Outcome {
        let mut memory = Memory::new(4 << 20).unwrap();
        memory.wait_populated().unwrap();
        let mut prepared = prepared(settings, &memory);
        prepared.configs[0].first_shot = Some(0);
        prepared.geometry = recorded;
        prepared.lend_to(live);
        let config = InprocConfig {
            address: address(1),
            sealed: false,
            capacity: crate::receiver::capacity(&prepared.configs),
            scratch: memory.scratch,
        };
        let sender = InprocConfig { address: address(2), ..config };
        let (io, sender) = pair(300, (config, &memory.regions), (sender, &memory.regions));
        let origin = Origin { control: None, local: address(1), receive_buffer: 1 << 20, learned: None };
        let mut started = StartedRun::start(prepared, origin, io).unwrap();
        started.origin.control = control;
        std::thread::scope(|scope| {
            scope.spawn(|| send(sender, memory.spare));
            Outcome::of(run(started, follow, stop, live), live).unwrap()
        })
    }

    /// Returns the settings of a capture into a folder, with a small pool.
    fn capture(folder: &Path, policy: Policy) -> Settings {
        Settings {
            listen: Some(address(1)),
            out: Some(vec![folder.join("run.pcapng")]),
            pool: Some(Bytes(4 << 20)),
            policy: Some(policy),
            ..Settings::default()
        }
    }

    #[test]
    fn a_panicking_sink_ends_the_run_with_all_shots_counted() {
        // With these policies the first shot is written to the file.
        for policy in [Policy::Block, Policy::DropNewest] {
            let folder = tempfile::tempdir().unwrap();
            let settings = capture(folder.path(), policy);
            // The writer panics at a packet beyond the shot's buffer, which is the second one.
            let (recorded, live, stop) = (geometry(16, 8000), Live::default(), AtomicBool::new(false));
            let outcome = outcome(&settings, recorded, None, Watch::follow, &stop, &live);
            assert_eq!((outcome.end.cause, outcome.end.early), (Cause::RecorderFailed, true), "{policy:?}");
            let error = outcome.end.error.unwrap();
            assert!(error.starts_with("the recorder thread panicked"), "{error}");
            let counters = outcome.streams[0];
            counters.balance().unwrap();
            assert_eq!((outcome.rows, counters.complete, counters.partial), (1, 0, 1), "{policy:?}: {counters:?}");
            assert!(counters.shot_drops.get(DropCause::SinkError) > 0, "{policy:?}: {counters:?}");
        }
    }

    #[test]
    fn an_event_that_waits_for_the_queue_counts_once() {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings { shots: Some(2000), ..capture(folder.path(), Policy::Block) };
        let (live, stop) = (Live::default(), AtomicBool::new(false));
        let outcome = outcome(&settings, geometry(8, 4000), None, Watch::follow, &stop, &live);
        assert_eq!((outcome.end.cause, outcome.end.early, outcome.rows), (Cause::Shots, false, 2000));
    }

    #[test]
    fn what_an_observer_may_keep_is_missing_in_the_queue() {
        let folder = tempfile::tempdir().unwrap();
        let settings = capture(folder.path(), Policy::Block);
        let mut prepared = prepared(&settings, &Memory::new(4 << 20).unwrap());
        let live = Live::default();
        prepared.lend_to(&live);
        let (alone, _) = prepared.queues(None).unwrap();
        assert_eq!(prepared.lent_events, 0);
        live.tap().observe(true);
        prepared.lend_to(&live);
        let (watched, _) = prepared.queues(None).unwrap();
        let lent = prepared.lent_events;
        assert!(
            lent == prepared.pool.slots() as usize / 16 && watched + lent == alone,
            "{watched} + {lent} of {alone}"
        );
    }

    #[test]
    fn an_observer_that_keeps_its_events_costs_no_shot() {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings { shots: Some(2000), ..capture(folder.path(), Policy::Block) };
        let (live, stop, over) = (Live::default(), AtomicBool::new(false), AtomicBool::new(false));
        live.tap().observe(true);
        let mut kept = Vec::new();
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    if !live.tap().is_pending() {
                        live.tap().request(Request { count: MAX_EVENTS, stride: 1, multiple: 1 });
                    }
                    // A few are kept until after the run, the others are in the queue.
                    kept.extend(live.tap().pop().filter(|_| kept.len() < 4));
                    std::thread::yield_now();
                }
            });
            let outcome = outcome(&settings, geometry(8, 4000), None, Watch::follow, &stop, &live);
            over.store(true, Ordering::Relaxed);
            outcome
        });
        let counters = outcome.streams[0];
        // Those that arrive after the last row have no space.
        let lost = counters.shot_drops.total() - counters.shot_drops.get(DropCause::SinkFull);
        assert_eq!((lost, counters.complete, counters.partial), (0, 1999, 1), "{counters:?}");
        assert_eq!(outcome.rows, 2000);
    }

    /// Takes events of a run as it goes, until it is over; keeps all of them with `keeps`. Returns the outcome, the
    /// numbers of the events, those of lost shots, and what was kept.
    fn consumed(
        settings: &Settings,
        keeps: bool,
        stop_after: Option<u64>,
    ) -> (Outcome, Vec<u64>, u64, Vec<Lent>, Arc<Consumer>) {
        let consumer = Consumer::new().unwrap();
        let live = Live::default().with_consumer(Arc::clone(&consumer));
        let stop = AtomicBool::new(false);
        let (mut numbers, mut lost, mut kept) = (Vec::new(), 0, Vec::new());
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                while let Next::Event(lent) = consumer.next(Duration::from_secs(60)) {
                    numbers.push(lent.event().number);
                    if keeps {
                        kept.push(lent);
                    }
                }
                lost = consumer.take_losses().iter().map(|loss| loss.count).sum();
            });
            scope.spawn(|| {
                let has_arrived = |shots| live.read().complete + live.read().shots_dropped >= shots;
                stop_after.iter().for_each(|shots| wait_until("the shots have arrived", || has_arrived(*shots)));
                stop.store(stop_after.is_some(), Ordering::Relaxed);
            });
            let outcome = outcome(settings, geometry(8, 4000), None, Watch::follow, &stop, &live);
            consumer.end();
            outcome
        });
        (outcome, numbers, lost, kept, consumer)
    }

    /// Returns the settings of a run without a file.
    fn without_file(policy: Policy) -> Settings {
        let (listen, pool) = (Some(address(1)), Some(Bytes(4 << 20)));
        Settings { listen, discard: Some(true), pool, policy: Some(policy), ..Settings::default() }
    }

    #[test]
    fn a_program_without_a_file_takes_every_shot_once() {
        let settings = Settings { shots: Some(2000), ..without_file(Policy::Block) };
        let (outcome, numbers, lost, ..) = consumed(&settings, false, None);
        assert_eq!((outcome.end.cause, outcome.end.early), (Cause::Shots, false));
        assert_eq!(numbers, (0..2000).collect::<Vec<_>>());
        let counters = outcome.streams[0];
        assert_eq!((counters.complete, counters.partial), (1999, 1), "{counters:?}");
        // Shots beyond the requested ones were lost.
        assert_eq!(lost, counters.shot_drops.total(), "{counters:?}");
    }

    #[test]
    fn a_program_that_keeps_every_shot_loses_only_later_ones() {
        for policy in [Policy::DropNewest, Policy::DropOldest] {
            let (outcome, numbers, lost, kept, consumer) = consumed(&without_file(policy), true, Some(2000));
            let counters = outcome.streams[0];
            // Buffers for assembly never lack.
            assert_eq!(counters.packet_drops.get(DropCause::NoBuffer), 0, "{counters:?}");
            assert_eq!(counters.shot_drops.get(DropCause::SinkBusy), lost, "{policy:?}: {counters:?}");
            assert_eq!(numbers.len() as u64, counters.complete + counters.partial);
            assert!(lost > 0 && numbers.len() as u64 + lost == counters.shots, "{policy:?}: {lost} of {counters:?}");
            assert_eq!((kept.len(), kept.len()), consumer.held());
            let shots = kept.iter().map(|lent| &lent.event().shots[0].as_ref().unwrap().buffer);
            let slots: std::collections::BTreeSet<u32> = shots.map(Buffer::slot).collect();
            assert_eq!(slots.len(), kept.len(), "no buffer is used again while it is held");
            drop(kept);
            assert_eq!(consumer.held().0, 0);
        }
    }

    #[test]
    fn a_program_beside_the_recorder_costs_it_no_shot() {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings { shots: Some(2000), ..capture(folder.path(), Policy::Block) };
        for keeps in [false, true] {
            let settings = Settings { force: Some(true), ..settings.clone() };
            let (outcome, numbers, lost, kept, consumer) = consumed(&settings, keeps, None);
            assert_eq!((outcome.end.cause, outcome.rows), (Cause::Shots, 2000));
            let received = outcome.streams[0].shots;
            assert_eq!(numbers.len() as u64 + consumer.missed(), received);
            assert_eq!(consumer.missed(), lost, "each missed shot is named");
            assert!(!keeps || (kept.len() == consumer.held().1 && lost > 0), "{} kept", kept.len());
        }
    }

    #[test]
    fn a_program_that_takes_no_more_does_not_stop_the_run() {
        let consumer = Consumer::new().unwrap();
        let live = Live::default().with_consumer(Arc::clone(&consumer));
        let (settings, stop) = (without_file(Policy::Block), AtomicBool::new(false));
        let (outcome, kept, untaken) = std::thread::scope(|scope| {
            let program = scope.spawn(|| {
                let kept: Vec<Lent> = (0..5)
                    .filter_map(|_| match consumer.next(Duration::from_secs(60)) {
                        Next::Event(lent) => Some(lent),
                        Next::Ended | Next::TimedOut => None,
                    })
                    .collect();
                stop.store(true, Ordering::Relaxed);
                (kept, consumer.abandon())
            });
            let outcome = outcome(&settings, geometry(8, 4000), None, Watch::follow, &stop, &live);
            let (kept, untaken) = program.join().unwrap();
            (outcome, kept, untaken + consumer.abandon())
        });
        let counters = outcome.streams[0];
        assert_eq!((outcome.end.cause, kept.len()), (Cause::Signal, 5));
        assert_eq!(kept.len() as u64 + untaken, counters.complete + counters.partial, "{counters:?}");
        // The buffers outlive the run.
        assert_eq!(kept.iter().map(|lent| lent.event().number).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn several_threads_share_the_shots_of_a_run() {
        let consumer = Consumer::new().unwrap();
        let live = Live::default().with_consumer(Arc::clone(&consumer));
        let settings = Settings { shots: Some(5000), ..without_file(Policy::Block) };
        let numbers = std::thread::scope(|scope| {
            let take = || {
                let mut numbers = Vec::new();
                while let Next::Event(lent) = consumer.next(Duration::from_secs(60)) {
                    numbers.push(lent.event().number);
                }
                assert!(consumer.is_ended(), "a thread waited for a minute");
                numbers
            };
            let threads = [(); 10].map(|()| scope.spawn(take));
            outcome(&settings, geometry(8, 4000), None, Watch::follow, &AtomicBool::new(false), &live);
            consumer.end();
            let mut numbers: Vec<u64> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
            numbers.sort_unstable();
            numbers
        });
        assert_eq!(numbers, (0..5000).collect::<Vec<_>>());
    }

    #[test]
    fn a_panicking_watch_does_not_keep_the_run_from_ending() {
        let (listen, pool) = (Some(address(1)), Some(Bytes(4 << 20)));
        let settings = Settings { listen, discard: Some(true), pool, ..Settings::default() };
        // No probe has this address, and none is queried.
        let control = Control::open(address(9), false).unwrap();
        let (live, stop) = (Live::default(), AtomicBool::new(false));
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                wait_until("shots are complete", || live.read().complete > 0);
                stop.store(true, Ordering::Relaxed);
            });
            let follow = |_: &Watch, _: Control<'_>| panic!("a defect");
            outcome(&settings, geometry(8, 4000), Some(control), follow, &stop, &live)
        });
        assert_eq!((outcome.end.cause, outcome.end.early), (Cause::ProbeLost, true));
        let error = outcome.end.error.unwrap();
        assert!(error.starts_with("the watch thread panicked"), "{error}");
        let counters = outcome.streams[0];
        counters.balance().unwrap();
        assert!(counters.complete > 0 && counters.complete + counters.partial == counters.shots, "{counters:?}");
    }
}
