//! Arguments of `shotline emulate probe`, and the settings derived from them.

use super::page;
use crate::array::{ArrayArgs, CentreArgs};
use crate::serve::PageArgs;
use crate::transport::SenderFlags;
use shotline_compute::ultrasound::Array;
use shotline_dashboard::BoardInfo;
use shotline_instrument::probe::faults::FaultRates;
use shotline_instrument::probe::pace::Pace;
use shotline_instrument::probe::{Config, Phantom, ProbeState, Skew};
use shotline_wire::shot::Packing;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Settings of the emulated probe.
#[derive(clap::Args)]
pub struct Probe {
    /// Set-up address
    #[arg(long, default_value = "[::1]:47910", value_name = "ADDRESS:PORT")]
    pub(super) listen: SocketAddr,
    /// Address that packets are sent from [default: source address of the route]
    #[arg(long, value_name = "ADDRESS")]
    pub(super) source: Option<IpAddr>,
    #[command(flatten)]
    pub(super) sender: SenderFlags,
    /// Links
    #[arg(long, default_value_t = 2)]
    pub(super) links: u8,
    /// Channels of each link
    #[arg(long, default_value_t = 96)]
    channels: u16,
    /// Maximum number of samples per channel and shot (the receiver configures a number up to this)
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
    /// Factor from the input's values to samples [default: 1 if they fit, else the largest that fits]
    #[arg(long)]
    scale: Option<f64>,
    /// Distinct shots to prepare
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pattern_shots: u32,
    /// Free-running rate: `device` (samples / sample rate + 1.85 us), `max`, shots per second as `500hz`, or a
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
    /// Offset of its clock from this machine's, in nanoseconds
    #[arg(long, default_value_t = 0, value_name = "NS", allow_negative_numbers = true)]
    clock_offset_ns: i64,
    /// Drift of its clock, in parts per billion
    #[arg(long, default_value_t = 0, value_name = "PPB", allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1_000_000..=1_000_000))]
    clock_drift_ppb: i64,
    /// Probability that a packet is lost
    #[arg(long, default_value_t = 0.0, value_name = "P", help_heading = "Faults")]
    loss: f64,
    /// Probability that a packet is sent twice
    #[arg(long, default_value_t = 0.0, value_name = "P", help_heading = "Faults")]
    duplicate: f64,
    /// Probability that a packet is delayed
    #[arg(long, default_value_t = 0.0, value_name = "P", help_heading = "Faults")]
    reorder: f64,
    /// Maximum number of packets that overtake a delayed one
    #[arg(long, default_value_t = 16, value_name = "N", help_heading = "Faults")]
    reorder_depth: u16,
    /// Probability that bits of a packet are flipped
    #[arg(long, default_value_t = 0.0, value_name = "P", help_heading = "Faults")]
    pub(super) corrupt: f64,
    /// Seed of the faults; the same seed affects the same packets [default: a random one, which is reported]
    #[arg(long, help_heading = "Faults")]
    seed: Option<u64>,
    /// List every fault in the JSON object
    #[arg(long, help_heading = "Faults")]
    list_faults: bool,
    /// Generate every packet with the RTL of hdl/, compiled by Verilator; send frames with --transport packet:INTERFACE
    #[arg(long, help_heading = "RTL")]
    pub(super) rtl: bool,
    /// Also write the frames of the RTL to this capture (pcapng)
    #[arg(long, value_name = "FILE", requires = "rtl", help_heading = "RTL")]
    pub(super) pcap: Option<PathBuf>,
    /// Write the port signals of the first link's RTL to this waveform (VCD)
    #[arg(long, value_name = "FILE", requires = "rtl", help_heading = "RTL")]
    pub(super) vcd: Option<PathBuf>,
    /// Never sleep while waiting for a trigger command: the shortest latency, but one processor is fully used
    #[arg(long)]
    pub(super) busy_poll: bool,
    /// Processor to run on
    #[arg(long, value_name = "N")]
    pub(super) cpu: Option<u32>,
    /// Print one JSON object at the end
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) page: PageArgs,
    /// End when standard input ends: for programs that start a probe as a child
    #[arg(long, hide = true)]
    pub(super) until_stdin_ends: bool,
    /// Send echoes of a phantom instead of test patterns: wires, a cyst in speckle and a moving wall. `--seed` is also
    /// that of the speckle and the noise [default: 0]
    #[arg(long, conflicts_with_all = ["input", "scale", "pattern_shots"], help_heading = "Phantom")]
    phantom: bool,
    /// Frames in a cycle of the wall
    #[arg(long, default_value_t = 24, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), requires = "phantom", help_heading = "Phantom")]
    phases: u32,
    #[command(flatten, next_help_heading = "Ultrasound array, which the probe describes")]
    array: ArrayArgs,
    #[command(flatten, next_help_heading = "Ultrasound array, which the probe describes")]
    centre: CentreArgs,
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

impl Probe {
    /// Returns the configuration of the probe.
    pub(super) fn config(&self) -> Config {
        Config {
            links: self.links,
            channels: self.channels,
            samples: self.samples,
            bits: self.bits,
            packing: if self.int16 { Packing::Int16Le } else { Packing::Packed12 },
            sample_rate_hz: self.sample_rate_hz,
            input: self.input.clone(),
            given: None,
            scale: self.scale,
            array: self.array(),
            phantom: self.phantom.then(|| Phantom { phases: self.phases, seed: self.seed.unwrap_or(0) }),
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

    /// Returns what the page says about the probe, which waits at `listen`.
    pub(super) fn info(&self, listen: SocketAddr, state: &ProbeState) -> BoardInfo {
        let mut settings = page::settings(state, Some(listen), self.pace);
        let samples = match &self.input {
            Some(path) => path.display().to_string(),
            None if self.phantom => "echoes of a phantom".into(),
            None => "test patterns".into(),
        };
        settings.push(("samples".into(), samples));
        settings.extend(self.trigger_hz.map(|hz| ("external trigger".into(), format!("{hz} Hz"))));
        settings.push(("seed".into(), state.counters.seed.to_string()));
        let faults =
            [("loss", self.loss), ("duplicate", self.duplicate), ("reorder", self.reorder), ("corrupt", self.corrupt)];
        let faults = faults.into_iter().filter(|(_, probability)| *probability > 0.0);
        settings.extend(faults.map(|(fault, probability)| (fault.into(), probability.to_string())));
        BoardInfo {
            command: "emulate probe".into(),
            title: format!("a probe that waits for receivers on {listen}"),
            settings,
            stopping: "Ends the probe: no more shots are sent.",
            ..BoardInfo::default()
        }
    }

    /// Returns the array of the arguments, if any is given.
    fn array(&self) -> Option<Array> {
        let is_given = self.array.given().next().is_some() || self.centre.centre_mhz.is_some();
        let default = if self.phantom { Phantom::default_array() } else { Array::default() };
        is_given.then(|| self.array.array(&self.centre, &default))
    }

    /// Returns how the probe's clock differs from this machine's.
    pub(super) fn skew(&self) -> Skew {
        Skew { offset_ns: self.clock_offset_ns, drift_ppb: self.clock_drift_ppb }
    }
}
