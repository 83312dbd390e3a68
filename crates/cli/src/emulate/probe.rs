//! `shotline emulate probe`: the ultrasound probe.

use super::{opens, stop_at_end_of_stdin};
use crate::output::CpuTime;
use crate::transport::Flags;
use crate::{Result, signals};
use serde::Serialize;
use shotline_backends::Role;
use shotline_instrument::probe::faults::FaultRates;
use shotline_instrument::probe::pace::Pace;
use shotline_instrument::probe::{Config, Outlet, Server, Skew, Stats, Wanted};
use shotline_memory::Regions;
use shotline_transport::{IoError, PacketIo};
use shotline_wire::shot::Packing;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

#[cfg(feature = "rtl")]
mod rtl;

/// Settings of the emulated probe.
#[derive(clap::Args)]
pub struct Probe {
    /// Set-up address
    #[arg(long, default_value = "[::1]:47910", value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// Address that packets are sent from [default: the route's own]
    #[arg(long, value_name = "ADDRESS")]
    source: Option<IpAddr>,
    #[command(flatten)]
    carrier: Flags,
    /// Links
    #[arg(long, default_value_t = 2)]
    links: u8,
    /// Channels of each link
    #[arg(long, default_value_t = 96)]
    channels: u16,
    /// Most samples per channel and shot (the receiver asks for a number up to this)
    #[arg(long)]
    samples: Option<u32>,
    /// Resolution in bits
    #[arg(long, default_value_t = 12)]
    bits: u8,
    /// Send samples as 16-bit little-endian integers instead of packed 12-bit ones
    #[arg(long)]
    int16: bool,
    /// Sample rate in Hz
    #[arg(long)]
    sample_rate_hz: Option<u32>,
    /// RF data to send, from an HDF5 file, instead of test patterns
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Factor from the input's values to samples [default: 1 if they fit, else what makes them fit]
    #[arg(long)]
    scale: Option<f64>,
    /// Distinct shots to prepare
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pattern_shots: u32,
    /// When running free: `device` (samples / sample rate + 1.85 us), `max`, shots per second as `500hz`, or a
    /// bandwidth as `10gbps`
    #[arg(long, default_value = "device", value_parser = pace)]
    pace: Pace,
    /// Frequency of the external trigger input in Hz
    #[arg(long, value_name = "HZ")]
    trigger_hz: Option<f64>,
    /// Mark every N-th shot (N, 2 N, ...) as triggered
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    mark_every: Option<u64>,
    /// Number of the first shot
    #[arg(long, default_value_t = 0, value_name = "N")]
    first_shot: u64,
    /// Its clock is ahead of this machine's by so many nanoseconds
    #[arg(long, default_value_t = 0, value_name = "NS", allow_negative_numbers = true)]
    clock_offset_ns: i64,
    /// And runs faster by so many parts in 10^9
    #[arg(long, default_value_t = 0, value_name = "PPB", allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1_000_000..=1_000_000))]
    clock_drift_ppb: i64,
    /// Probability that a packet is lost
    #[arg(long, default_value_t = 0.0, value_name = "P", help_heading = "Faults")]
    loss: f64,
    /// Probability that a packet is sent twice
    #[arg(long, default_value_t = 0.0, value_name = "P", help_heading = "Faults")]
    duplicate: f64,
    /// Probability that a packet is held back
    #[arg(long, default_value_t = 0.0, value_name = "P", help_heading = "Faults")]
    reorder: f64,
    /// Most packets that overtake one that is held back
    #[arg(long, default_value_t = 16, value_name = "N", help_heading = "Faults")]
    reorder_depth: u16,
    /// Probability that bits of a packet are flipped
    #[arg(long, default_value_t = 0.0, value_name = "P", help_heading = "Faults")]
    corrupt: f64,
    /// Seed of the faults; the same seed breaks the same packets [default: a random one, which is reported]
    #[arg(long, help_heading = "Faults")]
    seed: Option<u64>,
    /// List every fault in the JSON object
    #[arg(long, help_heading = "Faults")]
    list_faults: bool,
    /// The RTL of hdl/, compiled by Verilator, makes every packet; --transport packet:INTERFACE takes whole frames
    #[arg(long, help_heading = "RTL")]
    rtl: bool,
    /// Write its frames into this capture (pcapng) as well
    #[arg(long, value_name = "FILE", requires = "rtl", help_heading = "RTL")]
    pcap: Option<PathBuf>,
    /// Write what is on the ports of the first link's RTL into this waveform (VCD)
    #[arg(long, value_name = "FILE", requires = "rtl", help_heading = "RTL")]
    vcd: Option<PathBuf>,
    /// Never sleep while waiting for a trigger command: the shortest latency, for a whole processor
    #[arg(long)]
    busy_poll: bool,
    /// Processor to run on
    #[arg(long, value_name = "N")]
    cpu: Option<u32>,
    /// Print one JSON object in the end
    #[arg(long)]
    json: bool,
    /// End when standard input ends: for programs that start a probe of their own
    #[arg(long, hide = true)]
    until_stdin_ends: bool,
}

fn pace(text: &str) -> std::result::Result<Pace, String> {
    let number = |digits: &str| digits.parse::<f64>().ok().filter(|value| value.is_finite() && *value > 0.0);
    match text {
        "device" => Some(Pace::Device),
        "max" => Some(Pace::Max),
        _ => None
            .or_else(|| text.strip_suffix("hz").and_then(number).map(Pace::Rate))
            .or_else(|| text.strip_suffix("gbps").and_then(number).map(Pace::Bandwidth)),
    }
    .ok_or_else(|| format!("expected device, max, a rate such as 500hz or a bandwidth such as 10gbps, found {text}"))
}

/// The JSON object of an emulated probe.
#[derive(Serialize)]
struct Ended {
    #[serde(flatten)]
    stats: Stats,
    #[serde(flatten)]
    cpu: CpuTime,
}

/// Runs an emulated probe until it is asked to stop.
pub fn run(args: &Probe) -> Result {
    let stop = signals::stop_flag()?;
    if args.until_stdin_ends {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || stop_at_end_of_stdin(&stop));
    }
    if let Some(cpu) = args.cpu {
        shotline_acquire::cpu::pin(cpu)?;
    }
    if args.rtl {
        #[cfg(feature = "rtl")]
        return rtl::run(args, &stop);
        #[cfg(not(feature = "rtl"))]
        return Err(
            "this shotline was built without the RTL: scripts/setup.sh rtl, then build it with --features rtl".into()
        );
    }
    let transport = &args.carrier.transport;
    let options = args.carrier.options(Role::Sender)?;
    if let Some(device) = transport.one_link().filter(|_| args.links != 1) {
        return Err(format!("{device} is one link, and this probe has {}: give --links 1", args.links).into());
    }
    serve(args, &stop, opens(transport, &options, args.source))
}

/// Serves receivers with packets over whatever `open` makes.
fn serve<P: PacketIo>(
    args: &Probe,
    stop: &AtomicBool,
    open: impl Fn(&Wanted, &Regions) -> std::result::Result<Outlet<P>, IoError>,
) -> Result {
    let skew = Skew { offset_ns: args.clock_offset_ns, drift_ppb: args.clock_drift_ppb };
    let server = Server::bind(args.config(), args.listen, open)?.busy_poll(args.busy_poll).skew(skew);
    errln!("probe waits for a receiver on {}", server.local_addr()?);
    report(server.run(stop)?, args.json)
}

/// Tells what was done.
fn report(stats: Stats, json: bool) -> Result {
    if json {
        outln!("{}", serde_json::to_string(&Ended { stats, cpu: CpuTime::now() })?);
    } else {
        for (link, counts) in stats.links.iter().enumerate() {
            errln!("link {link}: {}", serde_json::to_string(counts)?);
        }
        if let Some(last) = &stats.failures.last {
            errln!("{} runs ended because a shot could not be sent: {last}", stats.failures.runs);
        }
    }
    Ok(())
}

impl Probe {
    fn config(&self) -> Config {
        Config {
            links: self.links,
            channels: self.channels,
            samples: self.samples,
            bits: self.bits,
            packing: if self.int16 { Packing::Int16Le } else { Packing::Packed12 },
            sample_rate_hz: self.sample_rate_hz,
            input: self.input.clone(),
            scale: self.scale,
            distinct_shots: self.pattern_shots,
            free_running: self.pace,
            trigger_hz: self.trigger_hz,
            mark_every: self.mark_every,
            first_shot: self.first_shot,
            faults: FaultRates {
                loss: self.loss,
                duplicate: self.duplicate,
                reorder: self.reorder,
                corrupt: self.corrupt,
                reorder_depth: self.reorder_depth,
            },
            list_faults: self.list_faults,
            seed: self.seed,
        }
    }
}
