//! On-board memory and the ring of blocks.
//!
//! The data that the converter and the FPGA would write while the device runs is prepared before it starts: a few
//! distinct blocks, each with its spectrum. Block `n` carries distinct block `n` modulo their number, so a receiver can
//! check every byte. The ring therefore only keeps slot accounting: a block occupies a slot from its completion until
//! the DMA engine has read it, and a block that finds no free slot is lost.

use super::block::{Block, DistinctBlock};
use super::config::{BlockStart, Config, Framing};
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

/// Maximum time between two checks of the stop flag.
const MAX_SLEEP: Duration = Duration::from_millis(50);

/// On-board memory.
#[derive(Debug)]
pub struct Memory {
    region: Arc<Region>,
    blocks: Vec<DistinctBlock>,
    clipped: u64,
}

/// Why on-board memory could not be filled.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// Memory allocation failed.
    #[error("{0}; or reduce --block or --distinct")]
    Memory(#[from] MemoryError),
    /// The sample source could not be opened.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The transform's settings are invalid.
    #[error("invalid spectrum settings: {0}")]
    Spectrum(#[from] SpectrumError),
}

impl Memory {
    /// Fills on-board memory and calls `progress` with the number of finished blocks after each one.
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
            blocks.push(DistinctBlock { pieces, register, description });
            progress(index + 1);
        }
        Ok(Self { region, blocks, clipped: source.clipped() })
    }

    /// Returns the region that holds all distinct blocks.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Returns the number of values that were clipped to 16 bits after the down-converter.
    pub fn clipped(&self) -> u64 {
        self.clipped
    }

    /// Returns the index of the distinct block that a block carries.
    pub fn pattern(&self, number: u64) -> u32 {
        (number % self.blocks.len() as u64) as u32
    }

    /// Returns a distinct block.
    pub fn block(&self, pattern: u32) -> &DistinctBlock {
        &self.blocks[pattern as usize]
    }
}

/// Returns a block's description before it has a number. A block shorter than the transform has no spectrum.
fn describe(config: &Config, spectrum: Option<&mut Spectrum<[i16; 2]>>, samples: &[[i16; 2]]) -> Description {
    let &Config { centre_hz, volts_per_count, points, .. } = config;
    let plain = Description { centre_hz, volts_per_count, ..Description::default() };
    let Some(summary) = spectrum.and_then(|spectrum| spectrum.analyse(samples)) else { return plain };
    let peak = |peak: &shotline_compute::spectrum::Peak| Peak {
        frequency_hz: peak.frequency_hz,
        power_dbfs: peak.power_dbfs as f32,
    };
    let peaks = summary.peaks().iter().map(peak).take(shotline_wire::block::MAX_PEAKS).collect();
    Description { snr_db: summary.snr_db as f32, points, peaks, ..plain }
}

/// Start time of a device. Devices with the same start run in step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Start time by the steady clock, in ns.
    pub steady_ns: u64,
    /// The same time in TAI, in ns.
    pub tai_ns: u64,
    /// The clock is locked to its reference.
    pub locked: bool,
}

/// Begin and completion times of each block.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    start: Start,
    first_block: u64,
    period_ns: f64,
    block_ns: f64,
    offset_ns: i64,
    drift_ppb: f64,
    /// Blocks are produced as fast as they are consumed, not at the sample clock's rate.
    unpaced: bool,
}

impl Timing {
    /// Creates the timing of a device that starts at `start`.
    pub fn new(config: &Config, start: Start) -> Self {
        Self {
            start,
            first_block: config.first_block,
            period_ns: config.period_ns(),
            block_ns: config.block_ns(),
            offset_ns: config.clock_offset_ns,
            drift_ppb: config.clock_drift_ppb,
            unpaced: config.block_start == BlockStart::Max,
        }
    }

    /// Returns the time from the start to a block's first sample, in ns; accurate to 1 ns for 100 days.
    fn begin_ns(&self, number: u64) -> f64 {
        (number - self.first_block) as f64 * self.period_ns
    }

    /// Returns the time after the block's last sample by the steady clock, in ns.
    fn done_ns(&self, number: u64) -> u64 {
        self.start.steady_ns + (self.begin_ns(number) + self.block_ns).round() as u64
    }

    /// Returns the block's timestamp and the clock's offset at that time, both in ns.
    fn stamp(&self, number: u64) -> (u64, i64) {
        let since = self.begin_ns(number);
        let ahead = self.offset_ns.saturating_add((since * self.drift_ppb * 1e-9).round() as i64);
        let true_ns = self.start.tai_ns + since.round() as u64;
        (true_ns.saturating_add_signed(ahead), ahead)
    }
}

/// Counters of the blocks that the device produced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BoardCounters {
    /// Blocks produced, including lost ones.
    pub blocks_produced: u64,
    /// Blocks lost because the ring was full.
    pub overruns: u64,
}

/// The ring of blocks between the converter and the DMA engine.
#[derive(Debug)]
pub struct Ring {
    slots: u32,
    state: Mutex<State>,
    /// Interrupt line: signalled when a block is complete or the ring is closed.
    complete: Condvar,
    /// Signalled when a slot is free or the ring is closed.
    slot_free: Condvar,
    blocks_produced: AtomicU64,
    overruns: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    blocks: VecDeque<Block>,
    /// Occupied slots: those of `blocks` and the one being read.
    occupied: u32,
    closed: bool,
}

impl Ring {
    /// Creates an empty ring.
    pub fn new(slots: u32) -> Self {
        Self {
            slots,
            state: Mutex::default(),
            complete: Condvar::new(),
            slot_free: Condvar::new(),
            blocks_produced: AtomicU64::new(0),
            overruns: AtomicU64::new(0),
        }
    }

    /// Locks the accounting. It stays consistent after a panic because it is changed in single steps.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a complete block; returns `false` if no slot was free or the ring is closed.
    fn push(&self, block: Block) -> bool {
        let mut state = self.lock();
        let fits = state.occupied < self.slots && !state.closed;
        if fits {
            state.occupied += 1;
            state.blocks.push_back(block);
            self.complete.notify_one();
        }
        fits
    }

    /// Waits for the next block and returns it with the number of blocks still queued. The block occupies its slot
    /// until [`Self::release`]. Returns `None` when the ring is closed and empty.
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

    /// Frees the slot of a taken block after it has been read.
    pub fn release(&self) {
        self.lock().occupied -= 1;
        self.slot_free.notify_one();
    }

    /// Closes the ring to new blocks. Queued blocks can still be taken.
    pub fn close(&self) {
        self.lock().closed = true;
        self.complete.notify_all();
        self.slot_free.notify_all();
    }

    /// Returns the counters so far.
    pub fn counters(&self) -> BoardCounters {
        BoardCounters { blocks_produced: self.blocks_produced.load(Relaxed), overruns: self.overruns.load(Relaxed) }
    }

    /// Runs the converter: produces blocks at its clock's rate until `stop`, or `blocks` of them, and closes the ring.
    pub fn produce(&self, timing: &Timing, blocks: Option<u64>, stop: &AtomicBool, now: impl Fn() -> u64) {
        let (mut overrun, mut reported) = (0, 0);
        let end = timing.first_block.saturating_add(blocks.unwrap_or(u64::MAX));
        for number in timing.first_block..end {
            let may_continue =
                if timing.unpaced { self.wait_for_slot(stop) } else { sleep_until(timing.done_ns(number), stop, &now) };
            if !may_continue {
                break;
            }
            let (tai_ns, clock_offset_ns) = timing.stamp(number);
            match self.push(Block { number, tai_ns, clock_offset_ns, overrun, lost: overrun - reported }) {
                true => reported = overrun,
                false => overrun += 1,
            }
            self.blocks_produced.fetch_add(1, Relaxed);
            self.overruns.store(overrun, Relaxed);
        }
        self.close();
    }

    /// Waits for a free slot; returns `false` if the converter must stop.
    fn wait_for_slot(&self, stop: &AtomicBool) -> bool {
        let mut state = self.lock();
        while state.occupied >= self.slots && !state.closed && !stop.load(Relaxed) {
            state = self.slot_free.wait_timeout(state, MAX_SLEEP).unwrap_or_else(PoisonError::into_inner).0;
        }
        !state.closed && !stop.load(Relaxed)
    }
}

/// Sleeps until `deadline_ns`; returns `false` if `stop` was set.
fn sleep_until(deadline_ns: u64, stop: &AtomicBool, now: impl Fn() -> u64) -> bool {
    loop {
        if stop.load(Relaxed) {
            return false;
        }
        let left = deadline_ns.saturating_sub(now());
        if left == 0 {
            return true;
        }
        std::thread::sleep(Duration::from_nanos(left).min(MAX_SLEEP));
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
    fn memory_holds_the_scattered_samples_and_their_crc() {
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
    fn descriptions_have_peaks_and_signal_to_noise_ratio() {
        let tones = vec![super::super::Tone { hz: -31e6, dbfs: -40.0 }, super::super::Tone { hz: 77e6, dbfs: -6.0 }];
        let input = super::super::Input::Synthetic { tones, noise_dbfs: -60.0 };
        let memory = Memory::prepare(&Config { input, distinct: 1, ..config() }, |_| {}).unwrap();
        let Description { peaks, snr_db, points, .. } = &memory.block(0).description;
        assert_eq!((*points, peaks.len()), (8192, 2));
        for (peak, (hz, dbfs)) in peaks.iter().zip([(77e6, -6.0), (-31e6, -40.0)]) {
            assert!((peak.frequency_hz - hz).abs() < 0.1 * 500e6 / 8192.0, "{peak:?}");
            assert!((peak.power_dbfs - dbfs).abs() < 0.1, "{peak:?}");
        }
        // The other tone is 34 dB below the peak, the noise 54 dB.
        assert!((snr_db - 34.0).abs() < 0.3, "{snr_db}");
        let none = Memory::prepare(&Config { points: 0, distinct: 1, ..config() }, |_| {}).unwrap();
        assert!(none.block(0).description.snr_db.is_nan());
    }

    #[test]
    fn blocks_are_lost_when_the_ring_is_full() {
        let ring = Ring::new(2);
        let timing = Timing::new(&config(), START);
        // No consumer: two blocks fit, three do not.
        ring.produce(&timing, Some(5), &AtomicBool::new(false), || u64::MAX);
        assert_eq!(ring.counters(), BoardCounters { blocks_produced: 5, overruns: 3 });
        let taken: Vec<_> = std::iter::from_fn(|| ring.take()).map(|(block, left)| (block.number, left)).collect();
        assert_eq!(taken, [(0, 1), (1, 0)]);
    }

    #[test]
    fn slots_stay_occupied_until_release() {
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
    fn an_unpaced_converter_waits_for_slots_and_stops() {
        let ring = Ring::new(2);
        let timing = Timing::new(&Config { block_start: BlockStart::Max, first_block: 10, ..config() }, START);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| ring.produce(&timing, Some(1000), &stop, || 0));
            for number in 10..500 {
                assert_eq!(ring.take().unwrap().0.number, number);
                ring.release();
            }
            stop.store(true, Relaxed);
        });
        assert_eq!(ring.counters().overruns, 0);
        assert!(ring.counters().blocks_produced < 1000);
    }

    #[test]
    fn stamps_follow_the_clock_with_offset_and_drift() {
        let config = Config { clock_offset_ns: -5_000, clock_drift_ppb: 2_000.0, first_block: 3, ..config() };
        let timing = Timing::new(&config, START);
        assert_eq!(config.block_ns(), 200_000.0);
        assert_eq!(timing.stamp(3), (5_000_000_000 - 5_000, -5_000));
        // 5000 blocks of 200 us are a second, in which the clock gains 2 us.
        assert_eq!(timing.stamp(5003), (6_000_000_000 - 3_000, -3_000));
        assert_eq!(timing.done_ns(3), 1000 + 200_000);
        let triggered = Timing::new(&Config { block_start: BlockStart::Trigger(100.0), ..config }, START);
        assert_eq!((triggered.stamp(4).0, triggered.done_ns(4)), (5_010_000_000 - 4_980, 1000 + 10_200_000));
    }
}
