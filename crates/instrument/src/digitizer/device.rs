//! A running digitizer: its stages, one after the other or all at the same time.

use super::block::Block;
use super::board::{Made, Memory, Ring, Start, Timing};
use super::config::{Begin, Config, ConfigError, Stages};
use super::dma::{Engine, Entry, build_list};
use super::frames::{BUFFERS, Frames};
use super::image::{Image, ImageError};
use super::pace::Bucket;
use super::stage::{Meter, Stage, Turn};
use crate::probe::clock::{stamp, steady_ns};
use serde::Serialize;
use shotline_memory::{MemoryError, Region, Regions, Registrar};
use shotline_transport::IoError;
use shotline_transport::prebuilt::{PrebuiltIo, Run};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Frames that are stamped and handed over at once.
const AT_ONCE: u32 = 64;
/// The link is this much faster than the samples are made, unless its rate is given.
const LINK_HEADROOM: f64 = 10.0 / 9.0;
/// A sender that was late may be this much faster than the samples are made.
const CATCHING_UP: f64 = 2.0;
/// Times that a full path is retried at once.
const SPINS: u32 = 4;
/// Between later tries, and between looks whether frames that were sent have been read: the processor has other stages
/// to serve, and a path that was full holds more than is read meanwhile.
const READING: Duration = Duration::from_micros(100);
/// Longest sleep: how soon the stop flag is seen.
const LONGEST_SLEEP_NS: u64 = 50_000_000;
/// Longest time, in ns, that a stopped device waits for its link to take the rest of a block.
const LONGEST_END_NS: u64 = 1_000_000_000;

/// Why a digitizer could not start.
#[derive(Debug, thiserror::Error)]
pub enum DigitizerError {
    /// Its settings cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is not enough memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// There is no file for its frames.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The way to the receiver.
    #[error(transparent)]
    Io(#[from] IoError),
}

/// What a digitizer has done, while it runs and afterwards.
#[derive(Debug)]
pub struct Live {
    stream: u32,
    to: SocketAddr,
    block_bytes: u64,
    block_ns: f64,
    ring: Ring,
    dma: Meter,
    send: Meter,
    list_ns: AtomicU64,
    entries: AtomicU64,
    packets: AtomicU64,
    unsent: AtomicU64,
    path_full: AtomicU64,
    abandoned: AtomicU64,
}

/// What a digitizer has done.
#[derive(Clone, Debug, Serialize)]
pub struct Stats {
    /// Stream.
    pub stream: u32,
    /// The receiver.
    pub to: SocketAddr,
    /// Blocks by the device.
    #[serde(flatten)]
    pub made: Made,
    /// Blocks that were sent whole.
    pub blocks_sent: u64,
    /// Blocks that were not sent whole: there was no link, or the path stayed full, or was too slow for the rest of a block,
    /// when the device was told to stop.
    pub blocks_abandoned: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets that went nowhere, because there was no link.
    pub packets_unsent: u64,
    /// Times that the path took no packet.
    pub path_full: u64,
    /// Seconds of the DMA stage that went into making lists.
    pub dma_list_s: f64,
    /// Copies that the lists held.
    pub dma_entries: u64,
    /// Gbit/s of the DMA engine alone.
    pub dma_gbit_s: f64,
    /// Gbit/s of the DMA engine with the making of its lists.
    pub dma_with_list_gbit_s: f64,
    /// The stages: board, dma, send.
    pub stages: [Stage; 3],
}

impl Live {
    /// The stages so far: board, dma, send.
    pub fn stages(&self) -> [Stage; 3] {
        let made = self.ring.made();
        let kept = made.blocks_made - made.overruns.min(made.blocks_made);
        let board = Stage {
            name: "board",
            blocks: kept,
            bytes: kept * self.block_bytes,
            busy_s: made.blocks_made as f64 * self.block_ns * 1e-9,
            ..Stage::default()
        };
        [board, self.dma.stage("dma"), self.send.stage("send")]
    }

    /// Everything so far.
    pub fn stats(&self) -> Stats {
        let stages = self.stages();
        let [_, dma, send] = &stages;
        let list_s = self.list_ns.load(Relaxed) as f64 * 1e-9;
        let rate = |seconds: f64| if seconds > 0.0 { dma.bytes as f64 * 8e-9 / seconds } else { 0.0 };
        let abandoned = self.abandoned.load(Relaxed);
        let unsent = self.unsent.load(Relaxed);
        Stats {
            stream: self.stream,
            to: self.to,
            made: self.ring.made(),
            blocks_sent: send.blocks - abandoned.min(send.blocks),
            blocks_abandoned: abandoned,
            packets_sent: self.packets.load(Relaxed).saturating_sub(unsent),
            packets_unsent: unsent,
            path_full: self.path_full.load(Relaxed),
            dma_list_s: list_s,
            dma_entries: self.entries.load(Relaxed),
            dma_gbit_s: rate(dma.busy_s - list_s),
            dma_with_list_gbit_s: rate(dma.busy_s),
            stages,
        }
    }
}

impl Start {
    /// At once.
    pub fn now() -> Self {
        let stamp = stamp();
        Self { steady_ns: steady_ns(), tai_ns: stamp.tai_ns, locked: stamp.locked }
    }

    /// At the next whole second of TAI that is not too near to be met.
    pub fn at_whole_second(self) -> Self {
        const SECOND: u64 = 1_000_000_000;
        let tai_ns = (self.tai_ns + SECOND / 10).next_multiple_of(SECOND);
        Self { steady_ns: self.steady_ns + (tai_ns - self.tai_ns), tai_ns, locked: self.locked }
    }

    /// When devices with these settings start that are made ready now.
    pub fn soon(begin: Begin) -> Self {
        match begin {
            Begin::Trigger(_) => Self::now().at_whole_second(),
            Begin::Continuous | Begin::Max => Self::now(),
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
    live: Arc<Live>,
}

impl<P: PrebuiltIo + Send> Digitizer<P> {
    /// Builds the frames. `open` opens the way to the receiver, with an empty table of memory: the frames are
    /// registered when it has said where they should lie.
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
            Some(image) => image.place(),
            None => (io.frame_memory(bytes)?.map_or_else(|| Region::host(bytes), Ok)?, 0),
        };
        let id = registrar.add(Arc::clone(&region));
        io.register(&registrar.finish());
        let frames = Frames::build((&region, id, base), &geometry, &config, stamp().locked, &mut io)?;
        if let Some(image) = &image {
            image.index(&frames, &geometry, &config);
        }
        let engine = Engine::new(Arc::clone(memory.region()), region);
        let live = Arc::new(Live {
            stream: config.stream,
            to: config.to,
            block_bytes: config.block_bytes.into(),
            block_ns: config.block_ns(),
            ring: Ring::new(config.ring),
            dma: Meter::default(),
            send: Meter::default(),
            list_ns: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            packets: AtomicU64::new(0),
            unsent: AtomicU64::new(0),
            path_full: AtomicU64::new(0),
            abandoned: AtomicU64::new(0),
        });
        Ok(Self { config, memory, frames, engine, io, live })
    }

    /// What it does, to look at from elsewhere.
    pub fn live(&self) -> Arc<Live> {
        Arc::clone(&self.live)
    }

    /// Runs until all blocks are sent, or `stop`: then the block under way is sent to its end, at its pace if that takes no
    /// longer than a second, and what else is on board is not sent. A failure sets `stop`, for whatever runs beside it.
    pub fn run(self, start: Start, stop: &AtomicBool) -> Result<Stats, IoError> {
        let Self { config, memory, frames, engine, io, live } = self;
        let (config, memory, frames, live) = (&config, &memory, &frames, &*live);
        let timing = Timing::new(config, start);
        let mut filler = Filler { config, memory, frames, engine, live, list: Vec::new(), held: [None; BUFFERS] };
        let mut sender = Sender::new(config, memory, frames, io, live, stop);
        std::thread::scope(|scope| {
            scope.spawn(|| live.ring.produce(&timing, config.blocks, stop, steady_ns));
            let sent = if config.sequential {
                one_after_the_other(&mut filler, &mut sender)
            } else {
                let (filled_in, filled) = mpsc::sync_channel(BUFFERS);
                let (free_in, free) = mpsc::channel();
                for buffer in 0..BUFFERS {
                    let _ = free_in.send(buffer); // its receiver is right here
                }
                scope.spawn(move || filler.serve(&free, &filled_in));
                sender.serve(&filled, &free_in)
            };
            if sent.is_err() {
                stop.store(true, Relaxed);
            }
            live.ring.close();
            sent
        })?;
        Ok(live.stats())
    }
}

/// A buffer of frames that holds a block's samples.
#[derive(Clone, Copy, Debug)]
struct Filled {
    buffer: usize,
    block: Block,
    /// The distinct block that is in it.
    pattern: u32,
}

/// The paper's way: each stage waits for the one before.
fn one_after_the_other<P: PrebuiltIo>(filler: &mut Filler<'_>, sender: &mut Sender<'_, P>) -> Result<(), IoError> {
    let (free, _nobody) = mpsc::channel();
    loop {
        if sender.stop.load(Relaxed) {
            return Ok(());
        }
        let begun = steady_ns();
        let Some((block, waiting)) = filler.live.ring.take() else { return Ok(()) };
        let starved_ns = steady_ns() - begun;
        let filled = filler.fill(block, 0, Turn { starved_ns, waiting: waiting as u64, ..Turn::default() });
        sender.send(filled, Turn::default(), &free)?;
        while sender.unread(&free) > 0 && !sender.stop.load(Relaxed) {
            std::thread::sleep(READING);
        }
    }
}

/// The DMA stage.
struct Filler<'a> {
    config: &'a Config,
    memory: &'a Memory,
    frames: &'a Frames,
    engine: Engine,
    live: &'a Live,
    list: Vec<Entry>,
    /// The distinct block that each buffer holds.
    held: [Option<u32>; BUFFERS],
}

impl Filler<'_> {
    fn serve(&mut self, free: &mpsc::Receiver<usize>, filled: &mpsc::SyncSender<Filled>) {
        loop {
            let begun = steady_ns();
            let Some((block, waiting)) = self.live.ring.take() else { return };
            let taken = steady_ns();
            let Ok(buffer) = free.recv() else { return };
            let stalled_ns = steady_ns() - taken;
            let turn = Turn { starved_ns: taken - begun, stalled_ns, waiting: waiting as u64, ..Turn::default() };
            if filled.send(self.fill(block, buffer, turn)).is_err() {
                return;
            }
        }
    }

    /// Has the engine write a block's samples into a buffer, and frees its slot on board.
    fn fill(&mut self, block: Block, buffer: usize, turn: Turn) -> Filled {
        let begun = steady_ns();
        let mut pattern = self.memory.pattern(block.number);
        match self.held[buffer] {
            Some(held) if self.config.stages == Stages::NoDma => pattern = held,
            _ => {
                let pieces = &self.memory.block(pattern).pieces;
                build_list(pieces.iter().copied(), self.frames.sample_pieces(buffer), &mut self.list);
                self.live.list_ns.fetch_add(steady_ns() - begun, Relaxed);
                self.live.entries.fetch_add(self.list.len() as u64, Relaxed);
                self.engine.run(&self.list);
                self.held[buffer] = Some(pattern);
            }
        }
        self.live.ring.release();
        let busy_ns = steady_ns() - begun;
        self.live.dma.add(&Turn { bytes: self.config.block_bytes.into(), busy_ns, ..turn });
        Filled { buffer, block, pattern }
    }
}

/// The sending stage.
struct Sender<'a, P> {
    config: &'a Config,
    memory: &'a Memory,
    frames: &'a Frames,
    io: P,
    live: &'a Live,
    stop: &'a AtomicBool,
    bucket: Option<Bucket>,
    /// How long it has waited for the link since it was told to stop.
    stopping_ns: u64,
    /// Packets taken by the backend.
    taken: u64,
    /// Buffers that were sent, and how many packets had been taken then: they are free when those have been read.
    reading: VecDeque<(usize, u64)>,
}

impl<'a, P: PrebuiltIo> Sender<'a, P> {
    fn new(
        config: &'a Config,
        memory: &'a Memory,
        frames: &'a Frames,
        io: P,
        live: &'a Live,
        stop: &'a AtomicBool,
    ) -> Self {
        // A triggered block takes as long on the link as it took to sample, whatever the time to the next trigger.
        let frame_bits = f64::from(frames.packets()) * f64::from(frames.frame_bytes(0)) * 8.0;
        let own = frame_bits * 1e9 / config.block_ns();
        let rates = match (config.link_bits_per_s, config.begin) {
            (Some(link), _) => Some((link, link)),
            (None, Begin::Max) => None,
            (None, _) => Some((own * LINK_HEADROOM, own * CATCHING_UP)),
        };
        let bucket = rates.map(|(steady, peak)| Bucket::new(steady, peak, frames.frame_bytes(0), steady_ns()));
        let reading = VecDeque::with_capacity(BUFFERS);
        Self { config, memory, frames, io, live, stop, bucket, stopping_ns: 0, taken: 0, reading }
    }

    fn serve(&mut self, filled: &mpsc::Receiver<Filled>, free: &mpsc::Sender<usize>) -> Result<(), IoError> {
        let mut next = None;
        loop {
            let begun = steady_ns();
            let Some(now) = next.take().or_else(|| self.next(filled, free)) else { return Ok(()) };
            if self.stop.load(Relaxed) {
                return Ok(());
            }
            let starved_ns = steady_ns() - begun;
            next = filled.try_recv().ok();
            self.send(now, Turn { starved_ns, waiting: next.is_some().into(), ..Turn::default() }, free)?;
        }
    }

    /// Waits for the next block; none when no more come.
    fn next(&mut self, filled: &mpsc::Receiver<Filled>, free: &mpsc::Sender<usize>) -> Option<Filled> {
        while self.unread(free) > 0 {
            match filled.recv_timeout(READING) {
                Ok(next) => return Some(next),
                // Who reads nothing must not keep a device from stopping.
                Err(RecvTimeoutError::Timeout) if self.stop.load(Relaxed) => return None,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        filled.recv().ok()
    }

    /// Gives the buffers back whose frames nobody reads any more. Returns how many are still being read.
    fn unread(&mut self, free: &mpsc::Sender<usize>) -> usize {
        if !self.reading.is_empty() {
            let read = self.taken.saturating_sub(self.io.lent() as u64);
            while let Some((buffer, _)) = self.reading.front().filter(|(_, taken)| *taken <= read).copied() {
                self.reading.pop_front();
                // Nobody listens when no blocks come any more.
                let _ = free.send(buffer);
            }
        }
        self.reading.len()
    }

    /// Closes a block and sends its frames. Its buffer is given back when they have been read, which is looked for
    /// while there is something to be sent.
    fn send(&mut self, filled: Filled, turn: Turn, free: &mpsc::Sender<usize>) -> Result<(), IoError> {
        let begun = steady_ns();
        let Filled { buffer, block, pattern } = filled;
        let drift = self.config.clock_drift_ppb as f32;
        self.frames.close(buffer, &block, self.memory.block(pattern), drift);
        let (mut paced_ns, mut whole) = (0, true);
        let unsent = self.io.device().unsent;
        if self.config.stages != Stages::NoSend {
            if let Some(context) = self.frames.context(buffer) {
                whole = self.send_all(context)?;
            }
            let (full, packets) = (self.frames.full_packets(), self.frames.packets());
            for part in [0..full, full..packets] {
                whole = whole && self.send_equal(&block, buffer, part, &mut paced_ns, free)?;
            }
        }
        self.reading.push_back((buffer, self.taken));
        self.unread(free);
        let more = self.io.device().unsent - unsent;
        self.live.unsent.fetch_add(more, Relaxed);
        self.live.abandoned.fetch_add(u64::from(!whole || more > 0), Relaxed);
        let busy_ns = steady_ns() - begun - paced_ns;
        self.live.send.add(&Turn { bytes: self.config.block_bytes.into(), busy_ns, paced_ns, ..turn });
        Ok(())
    }

    /// Sends frames of one length; false if it was told to stop while the path was full, or slow.
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
            self.unread(free);
            let count = (part.end - next).min(AT_ONCE);
            let Some(count) = self.may_go(self.frames.frame_bytes(next), count, paced_ns) else { return Ok(false) };
            self.frames.stamp(buffer, next..next + count, block);
            if !self.send_all(self.frames.run(buffer, next, count))? {
                return Ok(false);
            }
            next += count;
        }
        Ok(true)
    }

    /// Sends frames that are complete; false if it was told to stop while the path was full.
    fn send_all(&mut self, mut frames: Run) -> Result<bool, IoError> {
        let mut spins = 0;
        while frames.count > 0 {
            let taken = self.io.send_prebuilt(self.config.to, frames)?;
            self.live.packets.fetch_add(taken as u64, Relaxed);
            self.taken += taken as u64;
            frames = frames.after(taken);
            if taken > 0 {
                spins = 0;
                continue;
            }
            self.live.path_full.fetch_add(1, Relaxed);
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
            } else if self.stop.load(Relaxed) {
                return Ok(false);
            } else {
                std::thread::sleep(READING);
            }
        }
        Ok(true)
    }

    /// Waits until the pace allows at least one of `count` frames, and returns how many. None if the device was stopped and
    /// the rest of the block would take longer than [`LONGEST_END_NS`].
    fn may_go(&mut self, frame: u32, count: u32, paced_ns: &mut u64) -> Option<u32> {
        let Some(bucket) = &mut self.bucket else { return Some(count) };
        loop {
            let now = steady_ns();
            match bucket.take(frame, count, now) {
                Ok(frames) => return Some(frames),
                Err(_) if self.stopping_ns > LONGEST_END_NS => return None,
                Err(wait) => {
                    let wait = wait.min(LONGEST_SLEEP_NS);
                    self.stopping_ns += if self.stop.load(Relaxed) { wait } else { 0 };
                    std::thread::sleep(Duration::from_nanos(wait));
                    *paced_ns += steady_ns() - now;
                }
            }
        }
    }
}
