//! `shotline probe`: the commands of the set-up protocol.

mod discover;
mod report;

use crate::output::print_report;
use crate::values::address;
use crate::{Result, framing};
use discover::random;
use report::{ConfigureReport, Description, StartReport, Status, TriggerReport};
use shotline_acquire::config::peer;
use shotline_acquire::control::Control;
use shotline_wire::crc;
use shotline_wire::framing::description::Keys;
use shotline_wire::setup::{Configure, Describe, Mode, Sequence, Start};
use shotline_wire::shot::Geometry;
use std::net::SocketAddr;
use std::time::Instant;

/// Default number of samples of a shot, as in `shotline record`.
const SAMPLES: u32 = 2000;

/// What to do with a probe.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Find the probes on the networks of this machine
    #[command(after_help = "\
Sends a query to the broadcast address of every IPv4 interface, to all nodes on every IPv6 interface, to loopback, and
to the addresses given.

Examples:
  shotline probe discover
  shotline probe discover 192.168.7.20 --seconds 3 --json")]
    Discover(discover::Args),
    /// Show the properties and capabilities of a probe
    #[command(
        visible_alias = "query",
        after_help = "\
Example:
  shotline probe describe 192.168.1.20 --json | jq .max_samples"
    )]
    Describe(Target),
    /// Set the destination, geometry and framing of a link's shots
    #[command(after_help = "\
Examples:
  shotline probe configure --to [::1]:4791 --queue-pair 0x11 --q-key 0x11111111
  shotline probe configure 192.168.1.20 --link 1 --samples 500 --framing udp --to 192.168.1.2:47911
  shotline probe configure --framing udp --to [::1]:47911 --sequence 1,2,3     transmit events 1, 2, 3 in turn")]
    Configure(ConfigureArgs),
    /// Start sending on all configured links
    #[command(after_help = "\
Examples:
  shotline probe start                            as fast as the probe can
  shotline probe start --rate-hz 500 --shots 1000
  shotline probe start --external                 by its trigger input, or by shotline probe trigger")]
    Start(StartArgs),
    /// Finish the current shot and stop sending
    #[command(after_help = "\
Examples:
  shotline probe stop
  shotline probe stop 192.168.1.20 --take-over    even if another program controls it")]
    Stop(StopArgs),
    /// Show the state and counters of a probe
    #[command(after_help = "\
Example:
  shotline probe status --json | jq .links[0].shots_sent")]
    Status(StatusArgs),
    /// Send the 64-byte trigger command and report its result
    #[command(after_help = "\
Examples:
  shotline probe start --external && shotline probe trigger
  shotline probe trigger --command-only           check that it would be accepted, without a shot

shotline trigger measures how long a shot takes.")]
    Trigger(TriggerArgs),
}

/// Address of a probe, and output format.
#[derive(clap::Args)]
pub struct Target {
    /// The probe's set-up address, with or without a port
    #[arg(default_value = "[::1]:47910", value_name = "ADDRESS", value_parser = address)]
    probe: SocketAddr,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Identity of this controller.
#[derive(clap::Args)]
struct Owner {
    /// Number that identifies this controller [default: the same for all calls of a user on a host]
    #[arg(long, value_name = "N", value_parser = number)]
    token: Option<u32>,
    /// Override another receiver that controls the probe, or one that has crashed
    #[arg(long)]
    take_over: bool,
}

/// Arguments of `shotline probe configure`.
#[derive(clap::Args)]
pub struct ConfigureArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    owner: Owner,
    /// Link
    #[arg(long, default_value_t = 0, value_name = "N")]
    link: u8,
    /// Samples per channel and shot [default: 2000, or the probe's maximum if lower]
    #[arg(long, value_name = "N")]
    samples: Option<u32>,
    /// Framing: ud, counted or udp
    #[arg(long, default_value = "ud", value_name = "NAME")]
    framing: String,
    /// Destination of the shots
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = peer)]
    to: SocketAddr,
    /// The receiver's queue pair (framings ud and counted)
    #[arg(long, value_name = "N", value_parser = number)]
    queue_pair: Option<u32>,
    /// The receiver's queue key (framings ud and counted)
    #[arg(long, value_name = "N", value_parser = number)]
    q_key: Option<u32>,
    /// Stream number in the end-of-shot records [default: the link's]
    #[arg(long, value_name = "N", value_parser = number)]
    stream: Option<u32>,
    /// Cyclic sequence of transmit events of the probe's shots (up to 55); `none` removes it
    #[arg(long, value_name = "N,N,...", value_parser = events)]
    sequence: Option<Sequence>,
}

/// Arguments of `shotline probe start`.
#[derive(clap::Args)]
pub struct StartArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    owner: Owner,
    /// Shots per second [default: as fast as the probe can]
    #[arg(long, value_name = "HZ", conflicts_with = "external", value_parser = rate)]
    rate_hz: Option<f64>,
    /// Acquire a shot for each external trigger or trigger command
    #[arg(long)]
    external: bool,
    /// End after this many shots
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    shots: u64,
}

/// Arguments of `shotline probe stop`.
#[derive(clap::Args)]
pub struct StopArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    owner: Owner,
}

/// Arguments of `shotline probe status`.
#[derive(clap::Args)]
pub struct StatusArgs {
    #[command(flatten)]
    target: Target,
    /// One link [default: all]
    #[arg(long, value_name = "N")]
    link: Option<u8>,
}

/// Arguments of `shotline probe trigger`.
#[derive(clap::Args)]
pub struct TriggerArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    owner: Owner,
    /// Sequence number of the command: a probe executes each once [default: a random one]
    #[arg(long, value_name = "N", value_parser = number)]
    sequence: Option<u32>,
    /// Check the command without acquiring a shot
    #[arg(long)]
    command_only: bool,
}

/// Runs a command on a probe.
pub fn run(command: Command) -> Result {
    match command {
        Command::Discover(args) => discover::run(&args),
        Command::Describe(target) => {
            let describe = Control::open(target.probe, false)?.query()?;
            print_report(target.json, &Description::of(target.probe, &describe))
        }
        Command::Configure(args) => configure(&args),
        Command::Start(args) => start(&args),
        Command::Stop(StopArgs { target, owner }) => {
            let mut control = owner.control(&target)?;
            let links = control.query()?.links;
            let reports = (0..links).map(|link| control.stop(link)).collect::<std::result::Result<Vec<_>, _>>()?;
            print_report(target.json, &Status::of(target.probe, &reports))
        }
        Command::Status(StatusArgs { target, link }) => {
            let mut control = Control::open(target.probe, false)?;
            let links = match link {
                Some(link) => link..=link,
                None => 0..=control.query()?.links.saturating_sub(1),
            };
            let reports = links.map(|link| control.status(link)).collect::<std::result::Result<Vec<_>, _>>()?;
            print_report(target.json, &Status::of(target.probe, &reports))
        }
        Command::Trigger(args) => trigger(&args),
    }
}

fn configure(args: &ConfigureArgs) -> Result {
    let kind = framing::with_set_up(&args.framing)?;
    let framing = kind.for_set_up()?;
    let (queue_pair, q_key) = match (args.queue_pair, args.q_key) {
        (Some(queue_pair), Some(q_key)) => (queue_pair, q_key),
        (None, None) if kind.description().keys == Keys::None => (0, 0),
        _ => {
            return Err(format!(
                "{kind} packets need a queue pair: use the receiver's --queue-pair and --q-key, or --framing udp"
            )
            .into());
        }
    };
    if queue_pair >> 24 != 0 {
        return Err(format!("expected a queue pair of 24 bits, found {queue_pair:#x}").into());
    }
    let mut control = args.owner.control(&args.target)?;
    let describe = control.query()?;
    let Describe { channels, bits, packing, sample_rate_hz, max_samples, .. } = describe;
    let samples = args.samples.unwrap_or(SAMPLES.min(max_samples));
    let geometry = Geometry::new(channels, samples, bits, packing, sample_rate_hz)?;
    let configure = Configure {
        link: args.link,
        framing,
        geometry,
        destination: args.to,
        dest_qp: queue_pair,
        q_key,
        stream: args.stream.unwrap_or(args.link.into()),
    };
    let source = control.configure(configure)?;
    let sequence = args.sequence.map(|sequence| control.sequence(sequence)).transpose()?;
    print_report(
        args.target.json,
        &ConfigureReport {
            probe: args.target.probe.to_string(),
            link: args.link,
            framing: kind,
            channels,
            samples,
            bits,
            packing: packing.name(),
            destination: args.to.to_string(),
            queue_pair,
            q_key,
            stream: configure.stream,
            source: source.address.to_string(),
            source_queue_pair: source.qp,
            first_psn: source.first_psn,
            packets_per_shot: geometry.packets(),
            sequence: sequence.map(|sequence| sequence.events().to_vec()),
        },
    )
}

fn start(args: &StartArgs) -> Result {
    let mode = match args.rate_hz {
        Some(hz) => Mode::FixedRate { millihertz: (hz * 1000.0).round() as u64 },
        None if args.external => Mode::ExternalTrigger,
        None => Mode::FreeRunning,
    };
    let mut control = args.owner.control(&args.target)?;
    let first_shot = control.start(Start { mode, shots: args.shots })?;
    print_report(args.target.json, &StartReport { probe: args.target.probe.to_string(), first_shot })
}

fn trigger(args: &TriggerArgs) -> Result {
    let sequence = args.sequence.map_or_else(random, Ok)?;
    let mut control = args.owner.control(&args.target)?;
    let start = Instant::now();
    let shot = control.trigger_shot(Some(sequence), args.command_only)?;
    let response_us = start.elapsed().as_secs_f64() * 1e6;
    let command_only = args.command_only;
    print_report(
        args.target.json,
        &TriggerReport { probe: args.target.probe.to_string(), sequence, command_only, shot, response_us },
    )
}

impl Owner {
    fn control(&self, target: &Target) -> Result<Control<'_>> {
        Ok(Control::open_as(self.token.unwrap_or_else(own_token), target.probe, self.take_over)?)
    }
}

/// Returns the token of this user on this host. All calls of a user share it, so that they are one owner. It differs
/// from the tokens of `shotline record`, which are random.
fn own_token() -> u32 {
    let host = rustix::system::uname();
    let user = rustix::process::getuid().as_raw();
    let token = !crc::register(u32::MAX, &[host.nodename().to_bytes(), b"/", &user.to_be_bytes()].concat());
    token.max(1)
}

/// Parses a number, decimal or hexadecimal with 0x.
fn number(text: &str) -> std::result::Result<u32, String> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    }
    .map_err(|_| format!("expected a number below 2^32, such as 17 or 0x11, found {text}"))
}

fn rate(text: &str) -> std::result::Result<f64, String> {
    text.parse()
        .ok()
        .filter(|hz| (0.001..=1e9).contains(hz))
        .ok_or_else(|| format!("expected 0.001 to 1e9 shots/s, found {text}"))
}

fn events(list: &str) -> std::result::Result<Sequence, String> {
    if list == "none" {
        return Ok(Sequence::NONE);
    }
    let event = |text: &str| {
        text.trim()
            .parse::<u16>()
            .map_err(|_| format!("expected transmit events of 0 to 65535, or none, found {text:?}"))
    };
    let events = list.split(',').map(event).collect::<std::result::Result<Vec<_>, _>>()?;
    Sequence::new(&events).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_token_is_stable() {
        assert_eq!(own_token(), own_token());
    }

    #[test]
    fn event_list_errors_name_the_value() {
        assert_eq!(events("1, 2,65535").unwrap().events(), [1, 2, 65535]);
        assert_eq!(events("none"), Ok(Sequence::NONE));
        for (list, words) in
            [("", "none"), ("1,x", "found \"x\""), ("1,-1", "65535"), (&["1"; 56].join(","), "found 56")]
        {
            assert!(events(list).unwrap_err().contains(words));
        }
    }
}
