//! `shotline emulate digitizer`: sends blocks of IQ samples, by DMA into prebuilt frames.

mod page;

use crate::output::{CpuTime, Report, print_report};
use crate::progress::Progress;
use crate::serve::{BoardPage, PageArgs};
use crate::transport::SenderFlags;
use crate::values::seconds;
use crate::{Result, signals};
use page::Window;
use serde::Serialize;
use shotline_acquire::config::{Bytes, peer};
use shotline_backends::{Role, SenderParameters};
use shotline_dashboard::BoardInfo;
use shotline_instrument::digitizer::{
    BlockStart, Config, Digitizer as Device, DigitizerCounters, Format, Framing, Input, Memory, PrepareError,
    SharedCounters, StageCounters, Stages, Start, Tone,
};
use shotline_memory::{Regions, Sge, check_capacity};
use shotline_transport::IoError;
use shotline_transport::prebuilt::PrebuiltIo;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Examples that are shown below the options.
pub const EXAMPLES: &str = "\
Examples:
  shotline emulate digitizer --to [::1]:47920                        16 Gbit/s, a 64 MiB block each 33.55 ms
  shotline emulate digitizer --to [::1]:47920 --rate max             as fast as the receiver accepts
  shotline emulate digitizer --to [::1]:47920 --sequential           one stage after the other, as in the paper
  shotline emulate digitizer --to [::1]:47920 --tone 50e6:-6 --tone=-20e6:-40 --noise=-70
  shotline emulate digitizer --to [::1]:47920 --file capture.cu8 --format cu8 --sample-rate-hz 2e6 --decimation 1 --block 64KiB
  shotline emulate digitizer --to [::1]:47920 --streams 4 --trigger-rate 100 --block 1MiB --clock-offset 0,500,-200,0
  shotline emulate digitizer --to [::1]:47920 --serve 127.0.0.1:8081 with a page in the browser: stages and overruns";

/// Settings of the emulated digitizer.
#[derive(clap::Args)]
pub struct Digitizer {
    /// Receivers: one for each stream, or one for all
    #[arg(long, required = true, value_delimiter = ',', value_name = "ADDRESS:PORT", value_parser = peer)]
    to: Vec<SocketAddr>,
    /// Address that packets are sent from [default: source address of the route]
    #[arg(long, value_name = "ADDRESS")]
    source: Option<IpAddr>,
    #[command(flatten)]
    sender: SenderFlags,
    /// Number of the first stream
    #[arg(long, default_value_t = 0, value_name = "N")]
    stream: u32,
    /// Number of synchronous digitizers, with consecutive streams from the first number
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    streams: u32,
    /// Rate of the IQ samples that are sent, in Hz
    #[arg(long, default_value_t = 500e6, value_name = "HZ")]
    sample_rate_hz: f64,
    /// Centre frequency in Hz
    #[arg(long, default_value_t = 1e9, value_name = "HZ")]
    centre_hz: f64,
    /// Converter samples per IQ sample, down-converted from the centre frequency; 1: IQ without conversion
    #[arg(long, default_value_t = 8, value_name = "N")]
    decimation: u32,
    /// Volts per count, reported to receivers [default: unknown]
    #[arg(long, default_value_t = 0.0, value_name = "VOLTS")]
    scale: f64,
    /// Bytes of samples of a block, a multiple of 64
    #[arg(long, default_value = "64MiB", value_name = "BYTES")]
    block: Bytes,
    /// Payload bytes of a packet, a multiple of 64 (recorders reject blocks with other sizes)
    #[arg(long, default_value_t = 8192, value_name = "BYTES")]
    payload: u32,
    /// Capacity of on-board memory in blocks; further blocks are lost
    #[arg(long, default_value_t = 8, value_name = "N")]
    ring: u32,
    /// Distinct blocks, prepared before the run
    #[arg(long, default_value_t = 8, value_name = "N")]
    distinct: u32,
    /// Number of blocks [default: until stopped]
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..))]
    blocks: Option<u64>,
    /// Length of the run in seconds, rounded to blocks: at least one
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Number of the first block
    #[arg(long, default_value_t = 0, value_name = "N")]
    first_block: u64,
    /// Start of a block: `clock`, at the end of the previous one; `max`, when the ring has space
    #[arg(long, default_value = "clock", value_name = "PACE", conflicts_with = "trigger_rate")]
    rate: Rate,
    /// Rate in Hz of triggered blocks instead of continuous ones, the first at a full second of TAI
    #[arg(long, value_name = "HZ")]
    trigger_rate: Option<f64>,
    /// Bit rate of the link, which paces a block's frames [default: a ninth above the sample rate, or twice it for
    /// late frames]
    #[arg(long, value_name = "BIT/S")]
    link_rate: Option<f64>,
    /// A tone: offset from the centre in Hz, and level in dBFS [default: a tenth of the sample rate, -6 dBFS]
    #[arg(long = "tone", value_name = "HZ:DBFS", value_parser = tone, help_heading = "Samples")]
    tones: Vec<Tone>,
    /// Power of white noise in dB below full scale
    #[arg(long, default_value_t = -60.0, value_name = "DBFS", allow_hyphen_values = true, help_heading = "Samples")]
    noise: f64,
    /// Samples from a raw file, repeated, instead of tones and noise
    #[arg(long, value_name = "FILE", requires = "format", help_heading = "Samples")]
    file: Option<PathBuf>,
    /// Sample format of the file: real or I/Q, 16-bit or unsigned 8-bit
    #[arg(long, value_name = "FORMAT", requires = "file", help_heading = "Samples")]
    format: Option<FileFormat>,
    /// Points of the FFT from which peaks and signal-to-noise ratio are computed; 0: none
    #[arg(long, default_value_t = 8192, value_name = "N", help_heading = "Samples")]
    points: u32,
    /// Seed of the noise and of the positions of blocks in on-board memory
    #[arg(long, default_value_t = 1, help_heading = "Samples")]
    seed: u64,
    /// Offset of each device's clock in its timestamps, in ns
    #[arg(long, value_delimiter = ',', value_name = "NS", allow_hyphen_values = true, help_heading = "Clocks")]
    clock_offset: Vec<i64>,
    /// Drift of each device's clock in parts per billion
    #[arg(long, value_delimiter = ',', value_name = "PPB", allow_hyphen_values = true, help_heading = "Clocks")]
    clock_drift: Vec<f64>,
    /// Run one stage after the other instead of all concurrently
    #[arg(long, help_heading = "Stages")]
    sequential: bool,
    /// Fill the frames once and send them repeatedly: the sending stage only
    #[arg(long, conflicts_with = "no_send", help_heading = "Stages")]
    no_dma: bool,
    /// Fill frames and send none: the DMA stage only
    #[arg(long, help_heading = "Stages")]
    no_send: bool,
    /// Framing of packets
    #[arg(long, default_value = "digitizer", value_name = "FRAMING")]
    framing: FramingName,
    /// Store the frames in a new HDF5 file, preferably in memory (/dev/shm); they are sent from the file
    #[arg(long, value_name = "FILE", help_heading = "Stages")]
    image: Option<PathBuf>,
    /// Print one JSON object at the end
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    page: PageArgs,
    /// End when standard input ends: for programs that start a digitizer as a child
    #[arg(long, hide = true)]
    until_stdin_ends: bool,
}

/// Event at which a block starts.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Rate {
    /// End of the previous block
    Clock,
    /// Free space in the ring
    Max,
}

/// A framing.
#[derive(Clone, Copy, clap::ValueEnum)]
enum FramingName {
    /// Self-describing packets; description and record after the samples
    Digitizer,
    /// VITA 49 data and context packets, big-endian
    Vita49,
}

/// Sample format of a file.
#[derive(Clone, Copy, clap::ValueEnum)]
enum FileFormat {
    /// Real, signed, 16 bits, little-endian
    S16,
    /// Real, unsigned, 8 bits
    U8,
    /// I and Q, signed, 16 bits, little-endian
    Ci16,
    /// I and Q, unsigned, 8 bits
    Cu8,
}

impl From<FileFormat> for Format {
    fn from(format: FileFormat) -> Self {
        match format {
            FileFormat::S16 => Self::S16,
            FileFormat::U8 => Self::U8,
            FileFormat::Ci16 => Self::Ci16,
            FileFormat::Cu8 => Self::Cu8,
        }
    }
}

fn tone(text: &str) -> std::result::Result<Tone, String> {
    let numbers = text.split_once(':').and_then(|(hz, dbfs)| Some((hz.parse().ok()?, dbfs.parse().ok()?)));
    let finite = numbers.filter(|(hz, dbfs): &(f64, f64)| hz.is_finite() && dbfs.is_finite());
    let (hz, dbfs) = finite.ok_or_else(|| format!("expected hertz and decibels such as 50e6:-6, found {text}"))?;
    Ok(Tone { hz, dbfs })
}

/// The JSON object of the emulated digitizers.
#[derive(Serialize)]
struct DigitizerReport {
    run_s: f64,
    streams: Vec<DigitizerCounters>,
    #[serde(flatten)]
    cpu: CpuTime,
}

impl Report for DigitizerReport {
    fn print(&self) -> Result {
        for counters in &self.streams {
            errln!("stream {}: {}", counters.stream, serde_json::to_string(counters)?);
        }
        Ok(())
    }
}

impl Digitizer {
    /// Returns the settings of each device.
    fn configs(&self) -> Result<Vec<Config>> {
        let value_index = |index: usize, count: usize| index.min(count.saturating_sub(1));
        let streams = self.streams as usize;
        if self.image.is_some() && streams > 1 {
            return Err("--image holds the frames of one stream: omit --streams".into());
        }
        for (what, count) in [
            ("--to", self.to.len()),
            ("--clock-offset", self.clock_offset.len()),
            ("--clock-drift", self.clock_drift.len()),
        ] {
            if count > streams {
                return Err(format!("expected at most {streams} values of {what}, one for each stream, found {count}: use --streams {count}").into());
            }
        }
        let block_bytes = u32::try_from(self.block.0).unwrap_or(u32::MAX);
        let input = self.input()?;
        let config_of = |index: usize| {
            let mut config = Config {
                stream: self.stream.wrapping_add(index as u32),
                sample_rate_hz: self.sample_rate_hz,
                centre_hz: self.centre_hz,
                decimation: self.decimation,
                volts_per_count: self.scale,
                block_bytes,
                payload: self.payload,
                ring: self.ring,
                distinct: self.distinct,
                input: input.clone(),
                points: self.points,
                seed: self.seed.wrapping_add(index as u64),
                block_start: match (self.trigger_rate, self.rate) {
                    (Some(hz), _) => BlockStart::Trigger(hz),
                    (None, Rate::Clock) => BlockStart::Continuous,
                    (None, Rate::Max) => BlockStart::Max,
                },
                blocks: self.blocks,
                first_block: self.first_block,
                clock_offset_ns: self
                    .clock_offset
                    .get(value_index(index, self.clock_offset.len()))
                    .copied()
                    .unwrap_or(0),
                clock_drift_ppb: self
                    .clock_drift
                    .get(value_index(index, self.clock_drift.len()))
                    .copied()
                    .unwrap_or(0.0),
                link_bits_per_s: self.link_rate,
                sequential: self.sequential,
                stages: match (self.no_dma, self.no_send) {
                    (true, _) => Stages::NoDma,
                    (_, true) => Stages::NoSend,
                    _ => Stages::All,
                },
                framing: match self.framing {
                    FramingName::Digitizer => Framing::Digitizer,
                    FramingName::Vita49 => Framing::Vita49,
                },
                image: self.image.clone(),
                ..Config::new(self.to[value_index(index, self.to.len())])
            };
            config.check()?;
            if let (Some(seconds), false) = (self.seconds, config.block_start == BlockStart::Max) {
                // Less than half a block is rounded up to one, not down to none.
                config.blocks = Some((seconds.as_secs_f64() * 1e9 / config.period_ns()).round().max(1.0) as u64);
            }
            Ok(config)
        };
        (0..streams).map(config_of).collect()
    }

    /// Returns what the page says about the devices.
    fn info(&self, configs: &[Config]) -> BoardInfo {
        let to = self.to.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ");
        BoardInfo {
            command: "emulate digitizer".into(),
            title: format!("blocks of a digitizer to {to}"),
            settings: page::settings(configs),
            stopping: "Ends the digitizers: the blocks in progress are completed, later ones are discarded.",
            ..BoardInfo::default()
        }
    }

    fn input(&self) -> Result<Input> {
        if let (Some(path), Some(format)) = (&self.file, self.format) {
            return Ok(Input::File { path: path.clone(), format: format.into() });
        }
        let max_offset = self.sample_rate_hz / 2.0;
        if let Some(Tone { hz, .. }) = self.tones.iter().find(|tone| tone.hz.abs() > max_offset) {
            let expected = format!("expected a --tone up to {max_offset} Hz from the centre, half the sample rate");
            return Err(format!("{expected}, found {hz}").into());
        }
        if self.noise > 0.0 {
            return Err(format!("expected --noise of 0 dB or less, full scale, found {}", self.noise).into());
        }
        let mut tones = self.tones.clone();
        if tones.is_empty() {
            tones.push(Tone { hz: self.sample_rate_hz / 10.0, dbfs: -6.0 });
        }
        Ok(Input::Synthetic { tones, noise_dbfs: self.noise })
    }
}

/// Runs emulated digitizers until they have made their blocks or a signal stops them.
pub fn run(args: &Digitizer) -> Result {
    let configs = args.configs()?;
    let stop = signals::stop_flag()?;
    if args.until_stdin_ends {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || signals::stop_at_end_of_stdin(&stop));
    }
    let transport = &args.sender.transport;
    let options = args.sender.options(Role::Sender)?;
    if let Some(device) = transport.one_link(Role::Sender).filter(|_| args.streams != 1) {
        return Err(format!("{device} is one link: run one digitizer for each stream").into());
    }
    let memories = prepare(&configs)?;
    // The frames of an image are in its file.
    let frames = if args.image.is_none() { configs[0].frame_bytes()? } else { 0 };
    let source = args.source;
    serve(args, configs, memories, &stop, |to, regions| {
        let sending = SenderParameters { source, to, sealed: false, frames, scratch: Sge::EMPTY };
        Ok(transport.open_sender(&sending, &options, regions)?.io)
    })
}

/// Prepares the samples of all devices before they run.
fn prepare(configs: &[Config]) -> Result<Vec<Memory>> {
    check_capacity(configs.iter().flat_map(Config::memory)).map_err(PrepareError::Memory)?;
    let all: u64 = configs.iter().map(|config| u64::from(config.distinct)).sum();
    let progress = Progress::new("blocks prepared");
    let mut done = 0;
    let mut memories = Vec::new();
    for config in configs {
        let memory = Memory::prepare(config, |blocks| progress.update(done + u64::from(blocks), all))?;
        if memory.clipped() > 0 {
            errln!("stream {}: {} samples were clipped by the down-converter", config.stream, memory.clipped());
        }
        done += u64::from(config.distinct);
        memories.push(memory);
    }
    Ok(memories)
}

/// Runs devices over any transport that sends prebuilt frames.
fn serve<P: PrebuiltIo + Send>(
    args: &Digitizer,
    configs: Vec<Config>,
    memories: Vec<Memory>,
    stop: &Arc<AtomicBool>,
    open: impl Fn(SocketAddr, &Regions) -> std::result::Result<P, IoError>,
) -> Result {
    let Config { block_start, block_bytes, blocks, .. } = configs[0];
    let info = args.info(&configs);
    let devices: std::result::Result<Vec<_>, _> =
        configs.into_iter().zip(memories).map(|(config, memory)| Device::new(config, memory, &open)).collect();
    let devices = devices?;
    let page = args.page.board(info, Vec::new(), stop)?;
    let watcher = Watcher {
        devices: devices.iter().map(Device::shared_counters).collect(),
        seconds: args.seconds.filter(|_| block_start == BlockStart::Max),
        blocks,
        block_bytes,
        page: &page,
    };
    let started = Instant::now();
    let start = Start::earliest(block_start);
    // Set by the watcher, at the requested time as well, at which the page is still served.
    let halt = AtomicBool::new(false);
    let counters: std::result::Result<Vec<DigitizerCounters>, IoError> = std::thread::scope(|scope| {
        // Its sender is dropped at the end, also by a panic.
        let (_over, is_over) = channel::<()>();
        let (watcher, halt) = (&watcher, &halt);
        scope.spawn(move || watcher.watch(started, (stop, halt), &is_over));
        let running: Vec<_> = devices.into_iter().map(|device| scope.spawn(move || device.run(start, halt))).collect();
        let joined =
            running.into_iter().map(|device| device.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        let results: Vec<_> = joined.collect();
        results.into_iter().collect()
    });
    let report = DigitizerReport { run_s: started.elapsed().as_secs_f64(), streams: counters?, cpu: CpuTime::now() };
    let progress = watcher.progress(&report.streams, started.elapsed());
    let stages = page::whole_run(&report.streams, report.run_s);
    print_report(args.json, &report)?;
    page.end(|| page::status(&report.streams, block_bytes, stages, progress), stop);
    Ok(())
}

/// What the thread that watches the devices needs.
struct Watcher<'a> {
    devices: Vec<Arc<SharedCounters>>,
    /// Time after which it stops them.
    seconds: Option<Duration>,
    /// Number of blocks that each makes.
    blocks: Option<u64>,
    block_bytes: u32,
    page: &'a BoardPage,
}

impl Watcher<'_> {
    /// Prints one line per second, publishes the state, and sets `halt` after the requested time or when `stop` is set.
    fn watch(&self, started: Instant, (stop, halt): (&AtomicBool, &AtomicBool), is_over: &Receiver<()>) {
        const TICK: Duration = Duration::from_millis(20);
        let mut last_line = started;
        let mut window = Window::default();
        let mut before: Vec<_> = self.devices.iter().map(|live| live.stages()).collect();
        while is_over.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
            let is_late = self.seconds.is_some_and(|seconds| started.elapsed() >= seconds);
            if is_late || stop.load(Ordering::Relaxed) {
                halt.store(true, Ordering::Relaxed);
            }
            let now = Instant::now();
            self.page.publish(now, || {
                let all: Vec<_> = self.devices.iter().map(|live| live.counters()).collect();
                let progress = self.progress(&all, started.elapsed());
                page::status(&all, self.block_bytes, window.add(now, &all), progress)
            });
            let since = last_line.elapsed();
            if since >= Duration::from_secs(1) {
                last_line = Instant::now();
                self.print(&mut before, since.as_secs_f64());
            }
        }
    }

    /// Prints what the devices did in the last `seconds`.
    fn print(&self, before: &mut [[StageCounters; 3]], seconds: f64) {
        for (live, before) in self.devices.iter().zip(before) {
            let now = live.stages();
            let counters = live.counters();
            let stages: Vec<_> =
                now.iter().zip(before.iter()).map(|(now, before)| line(&now.since(before), seconds)).collect();
            errln!(
                "stream {}: {}, {} overruns{}",
                counters.stream,
                stages.join("; "),
                counters.board.overruns,
                unsent(&counters)
            );
            *before = now;
        }
    }

    /// Returns the part of the requested blocks or time that is over, if there is an end.
    fn progress(&self, all: &[DigitizerCounters], elapsed: Duration) -> Option<f64> {
        let part = match (self.blocks, self.seconds) {
            (Some(blocks), _) => {
                let produced = all.iter().map(|counters| counters.board.blocks_produced).sum::<u64>();
                produced as f64 / (blocks as f64 * all.len() as f64)
            }
            (None, Some(seconds)) => elapsed.as_secs_f64() / seconds.as_secs_f64(),
            (None, None) => return None,
        };
        Some(part.min(1.0))
    }
}

/// Describes the packets that could not be sent.
fn unsent(counters: &DigitizerCounters) -> String {
    if counters.packets_discarded == 0 {
        String::new()
    } else {
        format!(", {} packets without a link", counters.packets_discarded)
    }
}

/// Describes what a stage did in the last `seconds`.
fn line(stage: &StageCounters, seconds: f64) -> String {
    let percent = |part: f64| 100.0 * part / seconds;
    let rate = stage.bytes as f64 * 8e-9 / seconds;
    if stage.name == "board" {
        return format!("board {rate:.2} Gbit/s");
    }
    let mut words = format!(
        "{} {rate:.2} Gbit/s, busy {:.0} %, waiting for input {:.0} %, for output {:.0} %",
        stage.name,
        percent(stage.busy_s),
        percent(stage.starved_s),
        percent(stage.stalled_s),
    );
    if stage.paced_s > 0.0 {
        words += &format!(", paced {:.0} %", percent(stage.paced_s));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tone_is_parsed_as_hertz_and_decibels() {
        assert_eq!(tone("50e6:-6"), Ok(Tone { hz: 50e6, dbfs: -6.0 }));
        for bad in ["50e6", "a:b", "1:nan", "inf:0", ""] {
            assert!(tone(bad).unwrap_err().contains("50e6:-6"), "{bad}");
        }
    }
}
