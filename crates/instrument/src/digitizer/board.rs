//! The device itself: on-board memory with blocks in it, and the ring that they go through.
//!
//! What the converter and the FPGA would write into the ring while the device runs is in memory before it starts: a few
//! distinct blocks, each with its spectrum. Block `n` is distinct block `n` modulo their number, so that a
//! receiver can prove every byte. What is left of the ring is its accounting: a block occupies a slot from its completion
//! until the DMA engine has read it, and one that finds no slot is lost.

use super::block::{Block, Distinct};
use super::config::{Begin, Config, Framing};
use super::dma::scatter;
use super::source::{Source, SourceError};
use serde::Serialize;
use shotline_compute::spectrum::{Spectrum, SpectrumConfig, SpectrumError};
use shotline_memory::{MemoryError, Region};
use shotline_wire::block::{Description, Peak};
use shotline_wire::crc;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Longest sleep: how soon the stop flag is seen.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);

/// On-board memory.
#[derive(Debug)]
pub struct Memory {
    region: Arc<Region>,
    blocks: Vec<Distinct>,
    clipped: u64,
}

/// Why on-board memory could not be filled.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// There is not enough memory.
    #[error("{0}; make --block or --distinct smaller")]
    Memory(#[from] MemoryError),
    /// There are no samples.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// There is no such spectrum.
    #[error("the spectrum: {0}")]
    Spectrum(#[from] SpectrumError),
}

impl Memory {
    /// Fills on-board memory. `progress` hears how many blocks are done.
    pub fn prepare(config: &Config, mut progress: impl FnMut(u32)) -> Result<Self, PrepareError> {
        let bytes = u64::from(config.block_bytes);
        let mut source = Source::open(config)?;
        let mut spectrum = match config.points {
            0 => None,
            points => Some(Spectrum::new(&SpectrumConfig::new(points as usize, config.sample_rate_hz))?),
        };
        let region = Region::host(usize::try_from(bytes * u64::from(config.distinct)).unwrap_or(usize::MAX))?;
        let mut samples = vec![[0_i16; 2]; (bytes / 4) as usize];
        let mut raw = Vec::with_capacity(bytes as usize);
        let mut blocks = Vec::new();
        for index in 0..config.distinct {
            source.fill(&mut samples);
            raw.clear();
            let numbers = samples.iter().flatten();
            match config.framing {
                Framing::Digitizer => raw.extend(numbers.flat_map(|number| number.to_le_bytes())),
                Framing::Vita49 => raw.extend(numbers.flat_map(|number| number.to_be_bytes())),
            }
            let pieces = scatter(u64::from(index) * bytes, bytes, config.seed ^ u64::from(index) << 32);
            let mut at = 0;
            for piece in &pieces {
                region.write(piece.offset as usize, &raw[at..at + piece.len as usize]);
                at += piece.len as usize;
            }
            let register = crc::register(u32::MAX, &raw);
            let description = describe(config, spectrum.as_mut(), &samples);
            blocks.push(Distinct { pieces, register, description });
            progress(index + 1);
        }
        Ok(Self { region, blocks, clipped: source.clipped() })
    }

    /// The memory.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Numbers that did not fit 16 bits behind the down-converter and were clipped.
    pub fn clipped(&self) -> u64 {
        self.clipped
    }

    /// The number of the distinct block that stands for a block.
    pub fn pattern(&self, number: u64) -> u32 {
        (number % self.blocks.len() as u64) as u32
    }

    /// A distinct block.
    pub fn block(&self, pattern: u32) -> &Distinct {
        &self.blocks[pattern as usize]
    }
}

/// What is known of a block before it has a number. One that is shorter than the transform has no spectrum.
fn describe(config: &Config, spectrum: Option<&mut Spectrum<[i16; 2]>>, samples: &[[i16; 2]]) -> Description {
    let &Config { centre_hz, volts_per_count, points, .. } = config;
    let plain = Description { centre_hz, volts_per_count, ..Description::default() };
    let Some(summary) = spectrum.and_then(|spectrum| spectrum.analyse(samples)) else { return plain };
    let peak = |peak: &shotline_compute::spectrum::Peak| Peak {
        frequency_hz: peak.frequency_hz,
        power_dbfs: peak.power_dbfs as f32,
    };
    let peaks = summary.peaks().iter().map(peak).take(shotline_wire::block::PEAKS).collect();
    Description { snr_db: summary.snr_db as f32, points, peaks, ..plain }
}

/// When a device starts: devices that start together are in step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// By the steady clock.
    pub steady_ns: u64,
    /// The same moment in TAI.
    pub tai_ns: u64,
    /// The clock was locked to its reference.
    pub locked: bool,
}

/// When each block is begun and done.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    start: Start,
    first: u64,
    period_ns: f64,
    block_ns: f64,
    offset_ns: i64,
    drift_ppb: f64,
    /// Not paced by a clock.
    max: bool,
}

impl Timing {
    /// The timing of a device that starts then.
    pub fn new(config: &Config, start: Start) -> Self {
        Self {
            start,
            first: config.first_block,
            period_ns: config.period_ns(),
            block_ns: config.block_ns(),
            offset_ns: config.clock_offset_ns,
            drift_ppb: config.clock_drift_ppb,
            max: config.begin == Begin::Max,
        }
    }

    /// Nanoseconds from the start to a block's first sample: exact to a nanosecond for a hundred days.
    fn begin_ns(&self, number: u64) -> f64 {
        (number - self.first) as f64 * self.period_ns
    }

    /// When the block's last sample has been taken, by the steady clock.
    fn done_ns(&self, number: u64) -> u64 {
        self.start.steady_ns + (self.begin_ns(number) + self.block_ns).round() as u64
    }

    /// The block's stamp and what the clock was ahead then.
    fn stamp(&self, number: u64) -> (u64, i64) {
        let since = self.begin_ns(number);
        let ahead = self.offset_ns.saturating_add((since * self.drift_ppb * 1e-9).round() as i64);
        let true_ns = self.start.tai_ns + since.round() as u64;
        (true_ns.saturating_add_signed(ahead), ahead)
    }
}

/// What the device has made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Made {
    /// Blocks, the lost ones among them.
    pub blocks_made: u64,
    /// Blocks lost because the ring was full.
    pub overruns: u64,
}

/// The ring of blocks between the converter and the DMA engine.
#[derive(Debug)]
pub struct Ring {
    slots: u32,
    state: Mutex<State>,
    /// The interrupt: a block is complete, or none will come.
    complete: Condvar,
    /// A slot is free, or nobody wants blocks any more.
    room: Condvar,
    made: AtomicU64,
    overruns: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    blocks: VecDeque<Block>,
    /// Slots that are occupied: those of `blocks`, and the one that is being read.
    held: u32,
    closed: bool,
}

impl Ring {
    /// An empty ring.
    pub fn new(slots: u32) -> Self {
        Self {
            slots,
            state: Mutex::default(),
            complete: Condvar::new(),
            room: Condvar::new(),
            made: AtomicU64::new(0),
            overruns: AtomicU64::new(0),
        }
    }

    /// A panicked thread leaves the accounting as it was: it is changed in single steps.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block is complete: true if there was a slot for it.
    fn push(&self, block: Block) -> bool {
        let mut state = self.lock();
        let fits = state.held < self.slots && !state.closed;
        if fits {
            state.held += 1;
            state.blocks.push_back(block);
            self.complete.notify_one();
        }
        fits
    }

    /// The next block, which occupies its slot until [`Self::release`], and how many wait behind it. None: there
    /// will be none any more.
    pub fn take(&self) -> Option<(Block, usize)> {
        let mut state = self.lock();
        loop {
            if let Some(block) = state.blocks.pop_front() {
                return Some((block, state.blocks.len()));
            }
            if state.closed {
                return None;
            }
            state = self.complete.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The block that was taken has been read.
    pub fn release(&self) {
        self.lock().held -= 1;
        self.room.notify_one();
    }

    /// No more blocks come in; those that are in stay to be taken.
    pub fn close(&self) {
        self.lock().closed = true;
        self.complete.notify_all();
        self.room.notify_all();
    }

    /// What has been made so far.
    pub fn made(&self) -> Made {
        Made { blocks_made: self.made.load(Relaxed), overruns: self.overruns.load(Relaxed) }
    }

    /// The converter: makes blocks in step with its clock until `stop`, or `blocks` of them, and closes the ring.
    pub fn produce(&self, timing: &Timing, blocks: Option<u64>, stop: &AtomicBool, now: impl Fn() -> u64) {
        let (mut overrun, mut told) = (0, 0);
        let end = timing.first.saturating_add(blocks.unwrap_or(u64::MAX));
        for number in timing.first..end {
            let go_on =
                if timing.max { self.wait_for_room(stop) } else { sleep_until(timing.done_ns(number), stop, &now) };
            if !go_on {
                break;
            }
            let (tai_ns, clock_offset_ns) = timing.stamp(number);
            match self.push(Block { number, tai_ns, clock_offset_ns, overrun, lost: overrun - told }) {
                true => told = overrun,
                false => overrun += 1,
            }
            self.made.fetch_add(1, Relaxed);
            self.overruns.store(overrun, Relaxed);
        }
        self.close();
    }

    /// False: it is time to stop.
    fn wait_for_room(&self, stop: &AtomicBool) -> bool {
        let mut state = self.lock();
        while state.held >= self.slots && !state.closed && !stop.load(Relaxed) {
            state = self.room.wait_timeout(state, LONGEST_SLEEP).unwrap_or_else(PoisonError::into_inner).0;
        }
        !state.closed && !stop.load(Relaxed)
    }
}

/// False: it is time to stop.
fn sleep_until(due_ns: u64, stop: &AtomicBool, now: impl Fn() -> u64) -> bool {
    loop {
        if stop.load(Relaxed) {
            return false;
        }
        let left = due_ns.saturating_sub(now());
        if left == 0 {
            return true;
        }
        std::thread::sleep(Duration::from_nanos(left).min(LONGEST_SLEEP));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config { block_bytes: 400_000, distinct: 3, ..Config::new(([127, 0, 0, 1], 1).into()) }
    }

    const START: Start = Start { steady_ns: 1000, tai_ns: 5_000_000_000, locked: true };

    #[test]
    fn on_board_memory_holds_the_sources_samples_scattered_and_their_crc() {
        let config = config();
        let mut done = Vec::new();
        let memory = Memory::prepare(&config, |blocks| done.push(blocks)).unwrap();
        let mut source = Source::open(&config).unwrap();
        for pattern in 0..3 {
            let mut samples = vec![[0; 2]; 100_000];
            source.fill(&mut samples);
            let expected: Vec<u8> = samples.iter().flatten().flat_map(|value| value.to_le_bytes()).collect();
            let block = memory.block(pattern);
            let mut found = Vec::new();
            for piece in &block.pieces {
                let mut bytes = vec![0; piece.len as usize];
                memory.region().read(piece.offset as usize, &mut bytes);
                found.extend(bytes);
            }
            assert!(found == expected);
            assert_eq!(block.register, crc::register(u32::MAX, &expected));
        }
        assert_eq!((done, memory.pattern(7)), (vec![1, 2, 3], 1));
    }

    #[test]
    fn a_block_knows_its_peaks_and_its_signal_to_noise_ratio() {
        let tones = vec![super::super::Tone { hz: -31e6, dbfs: -40.0 }, super::super::Tone { hz: 77e6, dbfs: -6.0 }];
        let input = super::super::Input::Synthetic { tones, noise_dbfs: -60.0 };
        let memory = Memory::prepare(&Config { input, distinct: 1, ..config() }, |_| {}).unwrap();
        let Description { peaks, snr_db, points, .. } = &memory.block(0).description;
        assert_eq!((*points, peaks.len()), (8192, 2));
        for (peak, (hz, dbfs)) in peaks.iter().zip([(77e6, -6.0), (-31e6, -40.0)]) {
            assert!((peak.frequency_hz - hz).abs() < 0.1 * 500e6 / 8192.0, "{peak:?}");
            assert!((peak.power_dbfs - dbfs).abs() < 0.1, "{peak:?}");
        }
        // The other tone is 34 dB below, the noise 54.
        assert!((snr_db - 34.0).abs() < 0.3, "{snr_db}");
        let none = Memory::prepare(&Config { points: 0, distinct: 1, ..config() }, |_| {}).unwrap();
        assert!(none.block(0).description.snr_db.is_nan());
    }

    #[test]
    fn a_block_that_finds_the_ring_full_is_lost_and_numbers_go_on() {
        let ring = Ring::new(2);
        let timing = Timing::new(&config(), START);
        // Nobody takes any: two blocks fit, three do not.
        ring.produce(&timing, Some(5), &AtomicBool::new(false), || u64::MAX);
        assert_eq!(ring.made(), Made { blocks_made: 5, overruns: 3 });
        let taken: Vec<_> = std::iter::from_fn(|| ring.take()).map(|(block, left)| (block.number, left)).collect();
        assert_eq!(taken, [(0, 1), (1, 0)]);
    }

    #[test]
    fn a_block_holds_its_slot_until_it_has_been_read_and_the_next_one_tells_of_the_loss() {
        let ring = Ring::new(1);
        let block = |number, overrun| Block { number, tai_ns: 0, clock_offset_ns: 0, overrun, lost: overrun };
        assert!(ring.push(block(0, 0)));
        assert_eq!(ring.take(), Some((block(0, 0), 0)));
        assert!(!ring.push(block(1, 0)));
        ring.release();
        assert!(ring.push(block(2, 1)));
        assert_eq!(ring.take(), Some((block(2, 1), 0)));
        ring.close();
        assert!(!ring.push(block(3, 1)));
        assert_eq!(ring.take(), None);
    }

    #[test]
    fn a_converter_that_waits_for_room_loses_nothing_and_stops_when_nobody_takes() {
        let ring = Ring::new(2);
        let timing = Timing::new(&Config { begin: Begin::Max, first_block: 10, ..config() }, START);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| ring.produce(&timing, Some(1000), &stop, || 0));
            for number in 10..500 {
                assert_eq!(ring.take().unwrap().0.number, number);
                ring.release();
            }
            stop.store(true, Relaxed);
        });
        assert_eq!(ring.made().overruns, 0);
        assert!(ring.made().blocks_made < 1000);
    }

    #[test]
    fn stamps_follow_the_sample_clock_and_deviate_as_the_clock_is_told_to() {
        let config = Config { clock_offset_ns: -5_000, clock_drift_ppb: 2_000.0, first_block: 3, ..config() };
        let timing = Timing::new(&config, START);
        assert_eq!(config.block_ns(), 200_000.0);
        assert_eq!(timing.stamp(3), (5_000_000_000 - 5_000, -5_000));
        // 5000 blocks of 200 us are a second, in which the clock gains 2 us.
        assert_eq!(timing.stamp(5003), (6_000_000_000 - 3_000, -3_000));
        assert_eq!(timing.done_ns(3), 1000 + 200_000);
        let triggered = Timing::new(&Config { begin: Begin::Trigger(100.0), ..config }, START);
        assert_eq!((triggered.stamp(4).0, triggered.done_ns(4)), (5_010_000_000 - 4_980, 1000 + 10_200_000));
    }
}
