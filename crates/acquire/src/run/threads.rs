//! Threads of a run: the caller's thread receives, one thread records, and one polls the probe over its control
//! connection, so that neither of the others waits for the probe's replies.

use super::cause::Cause;
use super::prepare::{Origin, PreparedRun};
use super::recording::RecordingResult;
use super::shared::Shared;
use super::stage::{Output, ReceiveStage, StageResult};
use super::start::StartedRun;
use super::stored::stored_counters;
use super::unwritten::SinkFailure;
use super::watch::Watch;
use crate::clock::Clock;
use crate::control::Control;
use crate::cpu;
use crate::live::Live;
use crate::receiver::Receiver;
use crate::sink::{Producer, Queue};
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
    let wake = || waker.iter().for_each(|waker| waker.wake());
    let (result, received, lacked_space, recorded) = std::thread::scope(|scope| {
        let watched = &watch;
        let watcher = control.map(|control| scope.spawn(move || watched.run(|| follow(watched, control))));
        let sink = sinks.spawn(scope, Shared { queue: &queue, counters: &counters, live });
        // From here on a panic of this thread makes the others end.
        let guard = ShutdownGuard { queue: &queue, watch: &watch, wake: &wake };
        if let Some(cpu) = settings.cpu {
            warnings.extend(cpu::pin(cpu).err());
        }
        let producer = sink.as_ref().map(|_| Producer::new(Arc::clone(&queue), prepared.policy));
        let output = Output { producer, wake: &wake, rows_remaining, live };
        let mut stage = ReceiveStage::new(&prepared, &mut receiver, output, &clock, receive_buffer);
        live.set_about(prepared.about(local, capacity_rows));
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
    use crate::memory::Memory;
    use crate::run::prepare::Instrument;
    use crate::sink::Policy;
    use crate::tap::{MAX_EVENTS, Request};
    use arrayvec::ArrayVec;
    use shotline_memory::Sge;
    use shotline_testing::wait_until;
    use shotline_transport::inproc::{InprocConfig, InprocIo, pair};
    use shotline_transport::{Seal, TxPacket};
    use shotline_wire::framing::{Framing, Link, Packet, Udp};
    use shotline_wire::shot::{DropCause, Geometry, Packetization, Packing, Trailer};
    use std::path::Path;
    use std::sync::atomic::Ordering;

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
        prepared.lend_to(live.tap());
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
        let tap = crate::tap::Tap::default();
        prepared.lend_to(&tap);
        let (alone, _) = prepared.queues(None).unwrap();
        assert_eq!(prepared.lent_events, 0);
        tap.observe(true);
        prepared.lend_to(&tap);
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
