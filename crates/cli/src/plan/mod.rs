//! `shotline plan`: computes what a measurement needs, by formulas and by simulation.

mod card;
mod output;
mod svg;
mod table;

use crate::Result;
use crate::output::print_report;
use output::{PlanOutput, Simulation};
use shotline_plan::papers;
use shotline_plan::sim::simulate;
use shotline_plan::units::Seconds;
use shotline_plan::{Flag, Plan};
use std::io::IsTerminal;
use std::io::Read as _;
use std::path::PathBuf;
use std::time::Instant;

/// Arguments of `shotline plan`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shotline plan                                         an instrument, a receiver on sockets, a drive
  shotline plan --channels 192 --trigger '10 kHz' --link-rate '100 Gbit/s' --drive '5100 MB/s' --drives 4
  shotline plan my.toml --svg my.svg                    a plan of your own, and its picture
  shotline plan my.toml --sweep 1kHz,5kHz,20kHz         the same at other trigger rates
  shotline plan my.toml --simulate 10s --seed 7         packet by packet
  shotline plan --paper 0                               a published system: its figures next to the computed ones
  shotline plan --packet-card --payload 256             lengths of packets that a card's PCIe bus cannot carry

Quantities have units: '40 MS/s', '100 Gbit/s', '12.8 GB/s', '1.85 us', '256 MiB'. Flags override the file;
those of a stage change the first of its kind, or add one.")]
pub struct Args {
    /// The plan, a TOML file
    #[arg(value_name = "FILE", conflicts_with = "paper")]
    file: Option<PathBuf>,
    /// The plan of a published system, 0 to 4, with the paper's figures
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=4))]
    paper: Option<u8>,
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    card: card::CardArgs,
    /// Time to simulate, packet by packet
    #[arg(long, value_name = "TIME")]
    simulate: Option<Seconds>,
    /// Seed of the random numbers of a simulation
    #[arg(long, value_name = "N", default_value_t = 1, requires = "simulate")]
    seed: u64,
    /// Draw the chain of stages into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

macro_rules! flags {
    ($( #[doc = $doc:literal] $name:ident: $value:literal, $heading:literal => $table:literal, $key:literal; )+) => {
        /// Values of a plan; the plan checks them.
        #[derive(clap::Args)]
        struct Flags {
            $(
                #[doc = $doc]
                #[arg(long, value_name = $value, help_heading = $heading)]
                $name: Option<String>,
            )+
        }

        impl Flags {
            /// Returns the flags that were given, as table, key and value.
            fn given(&self) -> Vec<Flag<'static>> {
                let all = [$( ($table, $key, &self.$name) ),+];
                all.into_iter().filter_map(|(table, key, value)| Some((table, key, value.clone()?))).collect()
            }
        }
    };
}

flags! {
    /// Instruments
    probes: "N", "Instrument" => "source", "probes";
    /// Links of each instrument
    links: "N", "Instrument" => "source", "links";
    /// Channels of each link
    channels: "N", "Instrument" => "source", "channels";
    /// Resolution of a sample
    bits: "N", "Instrument" => "source", "bits";
    /// Sample rate of a channel
    sample_rate: "RATE", "Instrument" => "source", "sample_rate";
    /// Samples per channel and shot
    samples: "N", "Instrument" => "source", "samples";
    /// Frequency of the trigger
    trigger: "FREQUENCY", "Instrument" => "source", "trigger";
    /// Trigger frequencies to compare, separated by commas
    sweep: "LIST", "Instrument" => "source", "sweep";
    /// Receivers
    receivers: "N", "Receiver" => "receiver", "count";
    /// Memory for shot buffers of each receiver
    pool: "BYTES", "Receiver" => "receiver", "pool";
    /// Line rate of each link
    link_rate: "RATE", "Stages" => "link", "rate";
    /// Line rate of a switch's outputs
    switch_rate: "RATE", "Stages" => "switch", "rate";
    /// Buffer of a switch
    switch_buffer: "BYTES", "Stages" => "switch", "buffer";
    /// PCIe generation
    pcie_generation: "N", "Stages" => "pcie", "generation";
    /// PCIe lanes
    pcie_lanes: "N", "Stages" => "pcie", "lanes";
    /// Memory bandwidth
    memory: "RATE", "Stages" => "memory", "rate";
    /// Input rate of an accelerator
    accelerator: "RATE", "Stages" => "accelerator", "rate";
    /// Accelerators
    accelerators: "N", "Stages" => "accelerator", "count";
    /// Write rate of a drive
    drive: "RATE", "Stages" => "drive", "rate";
    /// Drives
    drives: "N", "Stages" => "drive", "count";
}

/// Computes a plan and prints it.
pub fn run(args: &Args) -> Result {
    if args.card.packet_card {
        return print_report(args.json, &args.card.output()?);
    }
    let plan = read(args)?;
    let mut plan_output = PlanOutput {
        paper: plan.paper,
        report: plan.report(),
        checks: plan.paper.map(papers::checks).unwrap_or_default(),
        simulation: None,
    };
    if let Some(time) = args.simulate {
        plan_output.simulation = Some(simulated(&plan, time.0, args.seed)?);
    }
    if let Some(path) = &args.svg {
        let text = svg::draw(&plan_output.report);
        std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    print_report(args.json, &plan_output)
}

/// Maximum length of a plan's file, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

fn read(args: &Args) -> Result<Plan> {
    let flags = args.flags.given();
    let Some(path) = &args.file else {
        let text = args.paper.and_then(papers::plan).unwrap_or(Plan::EXAMPLE);
        return Ok(Plan::parse(text, &flags)?);
    };
    let cannot = |why: &dyn std::fmt::Display| format!("cannot read the plan {}: {why}", path.display());
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| cannot(&error))?;
    let read = file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(|error| cannot(&error))?;
    if read as u64 > MAX_FILE_BYTES {
        return Err(cannot(&format!("expected at most {MAX_FILE_BYTES} bytes, found more")).into());
    }
    Plan::parse(&text, &flags).map_err(|error| format!("{}: {error}", path.display()).into())
}

fn simulated(plan: &Plan, seconds: f64, seed: u64) -> Result<Simulation> {
    let shown = std::io::stderr().is_terminal();
    let mut progress = |share: f64| {
        if shown {
            crate::output::to_stderr(format_args!("\r  simulating: {:3.0} %", share * 100.0));
        }
    };
    let start = Instant::now();
    let outcome = simulate(plan, seconds, seed, &mut progress)?;
    let wall_s = start.elapsed().as_secs_f64();
    if shown {
        crate::output::to_stderr(format_args!("\r                   \r"));
    }
    Ok(Simulation { wall_s, packets_per_wall_s: outcome.packets.generated as f64 / wall_s, outcome })
}
