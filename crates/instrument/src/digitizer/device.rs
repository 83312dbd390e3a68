//! A running digitizer, with sequential or concurrent stages.

use super::block::Block;
use super::board::{BoardCounters, Memory, Ring, Start, Timing};
use super::config::{BlockStart, Config, ConfigError, Stages};
use super::dma::{Engine, Entry, build_list};
use super::frames::{BUFFERS, Frames};
use super::image::{Image, ImageError};
use super::pace::TokenBucket;
use super::stage::{AtomicCounters, BlockTimes, StageCounters};
use crate::probe::clock::{stamp, steady_ns};
use serde::Serialize;
use shotline_memory::{MemoryError, Region, Regions, Registrar};
use shotline_transport::IoError;
use shotline_transport::prebuilt::{FrameRun, PrebuiltIo};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Maximum number of frames that are stamped and sent at a time.
const MAX_BATCH_FRAMES: u32 = 64;
/// Default ratio of the link's rate to the sample data rate.
const LINK_HEADROOM: f64 = 10.0 / 9.0;
/// Ratio of a late sender's peak rate to the sample data rate.
const CATCH_UP_FACTOR: f64 = 2.0;
/// Immediate retries when the backend accepts no frame.
const MAX_SPINS: u32 = 4;
/// Interval of later retries, and of checks for frames that have been read. It leaves the processor to the other
/// stages; a full path holds more than a receiver reads in this time.
const POLL_INTERVAL: Duration = Duration::from_micros(100);
/// Maximum time between two checks of the stop flag, in ns.
const MAX_SLEEP_NS: u64 = 50_000_000;
/// Maximum time that a stopped device waits for its link to accept the rest of a block, in ns.
const MAX_STOP_NS: u64 = 1_000_000_000;

/// Reason why a digitizer could not start.
#[derive(Debug, thiserror::Error)]
pub enum DigitizerError {
    /// The settings are invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Memory allocation failed.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The image file could not be created.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The backend failed.
    #[error(transparent)]
    Io(#[from] IoError),
}

/// Shared state of a digitizer: its ring and its counters, readable while it runs and afterwards.
#[derive(Debug)]
pub struct SharedCounters {
    stream: u32,
    to: SocketAddr,
    block_bytes: u64,
    block_ns: f64,
    ring: Ring,
    dma: AtomicCounters,
    send: AtomicCounters,
    list_ns: AtomicU64,
    entries: AtomicU64,
    packets: AtomicU64,
    unsent: AtomicU64,
    tx_full: AtomicU64,
    abandoned: AtomicU64,
}

/// Counters of a digitizer.
#[derive(Clone, Debug, Serialize)]
pub struct DigitizerCounters {
    /// Stream number.
    pub stream: u32,
    /// Address of the receiver.
    pub to: SocketAddr,
    /// Blocks produced on board.
    #[serde(flatten)]
    pub board: BoardCounters,
    /// Blocks that were sent completely.
    pub blocks_sent: u64,
    /// Blocks that were not sent completely: there was no link, or the device was stopped while the path was full or
    /// too slow for the rest of a block.
    pub blocks_abandoned: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets discarded because there was no link.
    pub packets_discarded: u64,
    /// Send calls that accepted no packet.
    pub tx_full: u64,
    /// Time that the DMA stage spent building lists, in seconds.
    pub dma_list_s: f64,
    /// Total number of list entries.
    pub dma_entries: u64,
    /// Throughput of the DMA engine without list building, in Gbit/s.
    pub dma_gbps: f64,
    /// Throughput of the DMA engine with list building, in Gbit/s.
    pub dma_with_list_gbps: f64,
    /// Stage counters: board, dma, send.
    pub stages: [StageCounters; 3],
}

impl SharedCounters {
    /// Returns the stage counters so far: board, dma, send.
    pub fn stages(&self) -> [StageCounters; 3] {
        let produced = self.ring.counters();
        let stored = produced.blocks_produced - produced.overruns.min(produced.blocks_produced);
        let board = StageCounters {
            name: "board",
            blocks: stored,
            bytes: stored * self.block_bytes,
            busy_s: produced.blocks_produced as f64 * self.block_ns * 1e-9,
            ..StageCounters::default()
        };
        [board, self.dma.stage("dma"), self.send.stage("send")]
    }

    /// Returns all counters so far.
    pub fn counters(&self) -> DigitizerCounters {
        let stages = self.stages();
        let [_, dma, send] = &stages;
        let list_s = self.list_ns.load(Relaxed) as f64 * 1e-9;
        let rate = |seconds: f64| if seconds > 0.0 { dma.bytes as f64 * 8e-9 / seconds } else { 0.0 };
        let abandoned = self.abandoned.load(Relaxed);
        let unsent = self.unsent.load(Relaxed);
        DigitizerCounters {
            stream: self.stream,
            to: self.to,
            board: self.ring.counters(),
            blocks_sent: send.blocks - abandoned.min(send.blocks),
            blocks_abandoned: abandoned,
            packets_sent: self.packets.load(Relaxed).saturating_sub(unsent),
            packets_discarded: unsent,
            tx_full: self.tx_full.load(Relaxed),
            dma_list_s: list_s,
            dma_entries: self.entries.load(Relaxed),
            dma_gbps: rate(dma.busy_s - list_s),
            dma_with_list_gbps: rate(dma.busy_s),
            stages,
        }
    }
}

impl Start {
    /// Returns the current time.
    pub fn now() -> Self {
        let stamp = stamp();
        Self { steady_ns: steady_ns(), tai_ns: stamp.tai_ns, locked: stamp.locked }
    }

    /// Returns the next whole second of TAI that is at least 100 ms away.
    pub fn at_whole_second(self) -> Self {
        const SECOND: u64 = 1_000_000_000;
        let tai_ns = (self.tai_ns + SECOND / 10).next_multiple_of(SECOND);
        Self { steady_ns: self.steady_ns + (tai_ns - self.tai_ns), tai_ns, locked: self.locked }
    }

    /// Returns the earliest start time: the next whole second for triggered blocks, else now.
    pub fn earliest(block_start: BlockStart) -> Self {
        match block_start {
            BlockStart::Trigger(_) => Self::now().at_whole_second(),
            BlockStart::Continuous | BlockStart::Max => Self::now(),
        }
    }
}

/// A digitizer that is ready to run.
#[derive(Debug)]
pub struct Digitizer<P> {
    config: Config,
    memory: Memory,
    frames: Frames,
    engine: Engine,
    io: P,
    live: Arc<SharedCounters>,
}

impl<P: PrebuiltIo + Send> Digitizer<P> {
    /// Builds the frames. `open` opens the backend with an empty region table; the frames are registered afterwards,
    /// because the backend may choose their memory.
    pub fn new(
        config: Config,
        memory: Memory,
        open: impl FnOnce(SocketAddr, &Regions) -> Result<P, IoError>,
    ) -> Result<Self, DigitizerError> {
        let geometry = config.check()?;
        let mut registrar = Registrar::new();
        let image = config.image.as_ref().map(|path| Image::create(path, &geometry, &config)).transpose()?;
        let mut io = open(config.to, &Registrar::new().finish())?;
        let bytes = Frames::bytes(&geometry);
        let (region, base) = match &image {
            Some(image) => image.frame_memory(),
            None => (io.frame_memory(bytes)?.map_or_else(|| Region::host(bytes), Ok)?, 0),
        };
        let id = registrar.add(Arc::clone(&region));
        io.register(&registrar.finish());
        let frames = Frames::build((&region, id, base), &geometry, &config, stamp().locked, &mut io)?;
        if let Some(image) = &image {
            image.write_indexes(&frames, &geometry, &config);
        }
        let engine = Engine::new(Arc::clone(memory.region()), region);
        let live = Arc::new(SharedCounters {
            stream: config.stream,
            to: config.to,
            block_bytes: config.block_bytes.into(),
            block_ns: config.block_ns(),
            ring: Ring::new(config.ring),
            dma: AtomicCounters::default(),
            send: AtomicCounters::default(),
            list_ns: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            packets: AtomicU64::new(0),
            unsent: AtomicU64::new(0),
            tx_full: AtomicU64::new(0),
            abandoned: AtomicU64::new(0),
        });
        Ok(Self { config, memory, frames, engine, io, live })
    }

    /// Returns the shared state, for reading from other threads.
    pub fn shared_counters(&self) -> Arc<SharedCounters> {
        Arc::clone(&self.live)
    }

    /// Runs until all blocks are sent or `stop` is set. After `stop`, the block in progress is completed at its pace if
    /// that takes at most a second, and blocks still on board are discarded. A failure sets `stop` so that other
    /// devices stop too.
    pub fn run(self, start: Start, stop: &AtomicBool) -> Result<DigitizerCounters, IoError> {
        let Self { config, memory, frames, engine, io, live } = self;
        let (config, memory, frames, live) = (&config, &memory, &frames, &*live);
        let timing = Timing::new(config, start);
        let mut dma = DmaStage { config, memory, frames, engine, live, list: Vec::new(), patterns: [None; BUFFERS] };
        let mut sender = SendStage::new(config, memory, frames, io, live, stop);
        std::thread::scope(|scope| {
            scope.spawn(|| live.ring.produce(&timing, config.blocks, stop, steady_ns));
            let sent = if config.sequential {
                run_sequentially(&mut dma, &mut sender)
            } else {
                let (filled_in, filled) = mpsc::sync_channel(BUFFERS);
                let (free_in, free) = mpsc::channel();
                for buffer in 0..BUFFERS {
                    let _ = free_in.send(buffer); // the receiver is still in scope
                }
                scope.spawn(move || dma.run(&free, &filled_in));
                sender.run(&filled, &free_in)
            };
            if sent.is_err() {
                stop.store(true, Relaxed);
            }
            live.ring.close();
            sent
        })?;
        Ok(live.counters())
    }
}

/// A buffer of frames that holds a block's samples.
#[derive(Clone, Copy, Debug)]
struct FilledBuffer {
    buffer: usize,
    block: Block,
    /// Index of the distinct block that the buffer holds.
    pattern: u32,
}

/// Runs the stages sequentially, as the host of Ryoshi et al. did.
fn run_sequentially<P: PrebuiltIo>(dma: &mut DmaStage<'_>, sender: &mut SendStage<'_, P>) -> Result<(), IoError> {
    let (free, _unused) = mpsc::channel();
    loop {
        if sender.stop.load(Relaxed) {
            return Ok(());
        }
        let begun = steady_ns();
        let Some((block, waiting)) = dma.live.ring.take() else { return Ok(()) };
        let starved_ns = steady_ns() - begun;
        let filled = dma.fill(block, 0, BlockTimes { starved_ns, waiting: waiting as u64, ..BlockTimes::default() });
        sender.send(filled, BlockTimes::default(), &free)?;
        while sender.reclaim_buffers(&free) > 0 && !sender.stop.load(Relaxed) {
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// The DMA stage.
struct DmaStage<'a> {
    config: &'a Config,
    memory: &'a Memory,
    frames: &'a Frames,
    engine: Engine,
    live: &'a SharedCounters,
    list: Vec<Entry>,
    /// Index of the distinct block that each buffer holds.
    patterns: [Option<u32>; BUFFERS],
}

impl DmaStage<'_> {
    fn run(&mut self, free: &mpsc::Receiver<usize>, filled: &mpsc::SyncSender<FilledBuffer>) {
        loop {
            let begun = steady_ns();
            let Some((block, waiting)) = self.live.ring.take() else { return };
            let taken = steady_ns();
            let Ok(buffer) = free.recv() else { return };
            let stalled_ns = steady_ns() - taken;
            let times =
                BlockTimes { starved_ns: taken - begun, stalled_ns, waiting: waiting as u64, ..BlockTimes::default() };
            if filled.send(self.fill(block, buffer, times)).is_err() {
                return;
            }
        }
    }

    /// Copies a block's samples into a buffer with the engine and frees its slot on board.
    fn fill(&mut self, block: Block, buffer: usize, times: BlockTimes) -> FilledBuffer {
        let begun = steady_ns();
        let mut pattern = self.memory.pattern(block.number);
        match self.patterns[buffer] {
            Some(filled) if self.config.stages == Stages::NoDma => pattern = filled,
            _ => {
                let pieces = &self.memory.block(pattern).pieces;
                build_list(pieces.iter().copied(), self.frames.sample_pieces(buffer), &mut self.list);
                self.live.list_ns.fetch_add(steady_ns() - begun, Relaxed);
                self.live.entries.fetch_add(self.list.len() as u64, Relaxed);
                self.engine.run(&self.list);
                self.patterns[buffer] = Some(pattern);
            }
        }
        self.live.ring.release();
        let busy_ns = steady_ns() - begun;
        self.live.dma.add(&BlockTimes { bytes: self.config.block_bytes.into(), busy_ns, ..times });
        FilledBuffer { buffer, block, pattern }
    }
}

/// The sending stage.
struct SendStage<'a, P> {
    config: &'a Config,
    memory: &'a Memory,
    frames: &'a Frames,
    io: P,
    live: &'a SharedCounters,
    stop: &'a AtomicBool,
    bucket: Option<TokenBucket>,
    /// Time spent waiting for the link since `stop` was set, in ns.
    stopping_ns: u64,
    /// Packets accepted by the backend.
    accepted: u64,
    /// Sent buffers with the value of `accepted` at that time. A buffer is free once that many packets have been read.
    reading: VecDeque<(usize, u64)>,
}

impl<'a, P: PrebuiltIo> SendStage<'a, P> {
    fn new(
        config: &'a Config,
        memory: &'a Memory,
        frames: &'a Frames,
        io: P,
        live: &'a SharedCounters,
        stop: &'a AtomicBool,
    ) -> Self {
        // The default pace spreads a block over its sampling time, also if the next trigger is later.
        let frame_bits = f64::from(frames.packets()) * f64::from(frames.frame_bytes(0)) * 8.0;
        let data_bits_per_s = frame_bits * 1e9 / config.block_ns();
        let rates = match (config.link_bits_per_s, config.block_start) {
            (Some(link), _) => Some((link, link)),
            (None, BlockStart::Max) => None,
            (None, _) => Some((data_bits_per_s * LINK_HEADROOM, data_bits_per_s * CATCH_UP_FACTOR)),
        };
        let bucket = rates.map(|(steady, peak)| TokenBucket::new(steady, peak, frames.frame_bytes(0), steady_ns()));
        let reading = VecDeque::with_capacity(BUFFERS);
        Self { config, memory, frames, io, live, stop, bucket, stopping_ns: 0, accepted: 0, reading }
    }

    fn run(&mut self, filled: &mpsc::Receiver<FilledBuffer>, free: &mpsc::Sender<usize>) -> Result<(), IoError> {
        let mut next = None;
        loop {
            let begun = steady_ns();
            let Some(now) = next.take().or_else(|| self.next(filled, free)) else { return Ok(()) };
            if self.stop.load(Relaxed) {
                return Ok(());
            }
            let starved_ns = steady_ns() - begun;
            next = filled.try_recv().ok();
            self.send(now, BlockTimes { starved_ns, waiting: next.is_some().into(), ..BlockTimes::default() }, free)?;
        }
    }

    /// Waits for the next block; returns `None` when no more follow.
    fn next(&mut self, filled: &mpsc::Receiver<FilledBuffer>, free: &mpsc::Sender<usize>) -> Option<FilledBuffer> {
        while self.reclaim_buffers(free) > 0 {
            match filled.recv_timeout(POLL_INTERVAL) {
                Ok(next) => return Some(next),
                // A receiver that reads nothing must not prevent the device from stopping.
                Err(RecvTimeoutError::Timeout) if self.stop.load(Relaxed) => return None,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        filled.recv().ok()
    }

    /// Frees the buffers whose frames have all been read and returns the number still in use.
    fn reclaim_buffers(&mut self, free: &mpsc::Sender<usize>) -> usize {
        if !self.reading.is_empty() {
            let read = self.accepted.saturating_sub(self.io.in_flight() as u64);
            while let Some((buffer, _)) = self.reading.front().filter(|(_, accepted)| *accepted <= read).copied() {
                self.reading.pop_front();
                // The DMA stage has ended if the channel is closed.
                let _ = free.send(buffer);
            }
        }
        self.reading.len()
    }

    /// Writes a block's trailer and sends its frames. The buffer is reclaimed by a later call, once they have been
    /// read.
    fn send(&mut self, filled: FilledBuffer, times: BlockTimes, free: &mpsc::Sender<usize>) -> Result<(), IoError> {
        let begun = steady_ns();
        let FilledBuffer { buffer, block, pattern } = filled;
        let drift = self.config.clock_drift_ppb as f32;
        self.frames.write_trailer(buffer, &block, self.memory.block(pattern), drift);
        let (mut paced_ns, mut complete) = (0, true);
        let unsent = self.io.device_counters().unsent;
        if self.config.stages != Stages::NoSend {
            if let Some(context) = self.frames.context(buffer) {
                complete = self.send_all(context)?;
            }
            let (full, packets) = (self.frames.full_packets(), self.frames.packets());
            for part in [0..full, full..packets] {
                complete = complete && self.send_equal(&block, buffer, part, &mut paced_ns, free)?;
            }
        }
        self.reading.push_back((buffer, self.accepted));
        self.reclaim_buffers(free);
        let more = self.io.device_counters().unsent - unsent;
        self.live.unsent.fetch_add(more, Relaxed);
        self.live.abandoned.fetch_add(u64::from(!complete || more > 0), Relaxed);
        let busy_ns = steady_ns() - begun - paced_ns;
        self.live.send.add(&BlockTimes { bytes: self.config.block_bytes.into(), busy_ns, paced_ns, ..times });
        Ok(())
    }

    /// Sends frames of equal length; returns `false` if stopped while the path was full or slow.
    fn send_equal(
        &mut self,
        block: &Block,
        buffer: usize,
        part: std::ops::Range<u32>,
        paced_ns: &mut u64,
        free: &mpsc::Sender<usize>,
    ) -> Result<bool, IoError> {
        let mut next = part.start;
        while next < part.end {
            self.reclaim_buffers(free);
            let count = (part.end - next).min(MAX_BATCH_FRAMES);
            let Some(count) = self.wait_for_tokens(self.frames.frame_bytes(next), count, paced_ns) else {
                return Ok(false);
            };
            self.frames.stamp(buffer, next..next + count, block);
            if !self.send_all(self.frames.run(buffer, next, count))? {
                return Ok(false);
            }
            next += count;
        }
        Ok(true)
    }

    /// Sends stamped frames; returns `false` if stopped while the path was full.
    fn send_all(&mut self, mut frames: FrameRun) -> Result<bool, IoError> {
        let mut spins = 0;
        while frames.count > 0 {
            let accepted = self.io.send_prebuilt(self.config.to, frames)?;
            self.live.packets.fetch_add(accepted as u64, Relaxed);
            self.accepted += accepted as u64;
            frames = frames.after(accepted);
            if accepted > 0 {
                spins = 0;
                continue;
            }
            self.live.tx_full.fetch_add(1, Relaxed);
            spins += 1;
            if spins < MAX_SPINS {
                std::hint::spin_loop();
            } else if self.stop.load(Relaxed) {
                return Ok(false);
            } else {
                std::thread::sleep(POLL_INTERVAL);
            }
        }
        Ok(true)
    }

    /// Waits until the pace allows at least one of `count` frames and returns the number allowed. Returns `None` if the
    /// device was stopped and the rest of the block would take longer than [`MAX_STOP_NS`].
    fn wait_for_tokens(&mut self, frame: u32, count: u32, paced_ns: &mut u64) -> Option<u32> {
        let Some(bucket) = &mut self.bucket else { return Some(count) };
        loop {
            let now = steady_ns();
            match bucket.take(frame, count, now) {
                Ok(frames) => return Some(frames),
                Err(_) if self.stopping_ns > MAX_STOP_NS => return None,
                Err(wait) => {
                    let wait = wait.min(MAX_SLEEP_NS);
                    self.stopping_ns += if self.stop.load(Relaxed) { wait } else { 0 };
                    std::thread::sleep(Duration::from_nanos(wait));
                    *paced_ns += steady_ns() - now;
                }
            }
        }
    }
}
