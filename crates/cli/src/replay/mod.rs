//! `shotline replay`: what was recorded or captured, sent again.

mod flow;
mod tape;

use crate::output::CpuTime;
use crate::transport::open;
use crate::{Result, signals};
use serde::Serialize;
use shotline_acquire::config::{peer, queue_pair};
use shotline_instrument::probe::pace::Pace;
use shotline_instrument::probe::{Config, Probe, Server, Stats};
use shotline_instrument::replay::{Form, Recorded, Stamps, Tape};
use shotline_memory::Registrar;
use shotline_store::pcapng;
use shotline_store::read::Recording;
use shotline_wire::framing::description::{Keys, Replay};
use shotline_wire::framing::{Kind, Link};
use shotline_wire::setup::{Mode, Start};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use tape::{Part, Reel};

/// Samples per channel that a receiver asks for if nobody says.
const USUAL_SAMPLES: u32 = 2000;

/// Arguments of `shotline replay`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shotline replay run.h5                                     wait as a probe for `shotline record --probe`
  shotline replay run.h5 --once --speed 2                    twice as fast, and end with the last shot
  shotline replay run.h5 --max --from 5000 --shots 100       these shots, as fast as the link takes them
  shotline replay run.h5 --to [::1]:7148                     send without set-up, for `record --listen`
  shotline replay run.h5 --to 10.0.0.2:4791 --framing ud --queue-pair 0x2b67 --q-key 0x11223344
  shotline replay run.pcapng --to 10.0.0.2:4791 --json       the datagrams of a capture's largest flow

Shots keep their numbers, their stamps and their losses: to record a replay gives the recording again.")]
pub struct Args {
    /// The recording (HDF5), or a capture (pcap, pcapng)
    file: PathBuf,
    /// Set-up address at which to wait for a receiver
    #[arg(long, default_value = "[::1]:47910", value_name = "ADDRESS:PORT", conflicts_with = "to")]
    listen: SocketAddr,
    /// Send without set-up to this address; once for all links, or once for each
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = peer, value_delimiter = ',')]
    to: Vec<SocketAddr>,
    /// Address that packets are sent from [default: the route's own]
    #[arg(long, value_name = "ADDRESS")]
    source: Option<IpAddr>,
    /// Of a capture: the datagrams to this address [default: the address that most bytes went to]
    #[arg(long, value_name = "ADDRESS:PORT", requires = "to")]
    flow: Option<SocketAddr>,
    /// Framing of packets without set-up: ud, udp, spead, hsb, digitizer or vita49 [default: as recorded]
    #[arg(long, value_name = "NAME", requires = "to")]
    framing: Option<String>,
    /// Queue pair that ud and hsb packets name, of link 0; the next link has the next one
    #[arg(long, value_name = "N", value_parser = shotline_acquire::config::number, requires = "to")]
    queue_pair: Option<u32>,
    /// Queue key that ud packets carry
    #[arg(long, value_name = "N", value_parser = shotline_acquire::config::number, requires = "to")]
    q_key: Option<u32>,
    /// So many times as fast as recorded, gaps included [default: 1]
    #[arg(long, value_name = "FACTOR", group = "pace", help_heading = "Pace")]
    speed: Option<f64>,
    /// Shots per second, or datagrams of a capture
    #[arg(long, value_name = "HZ", group = "pace", help_heading = "Pace")]
    rate_hz: Option<f64>,
    /// Payload on all links together, in Gbit/s
    #[arg(long, value_name = "GBPS", group = "pace", help_heading = "Pace")]
    gbps: Option<f64>,
    /// As fast as the link takes it
    #[arg(long, group = "pace", help_heading = "Pace")]
    max: bool,
    /// The first shot, by number
    #[arg(long, value_name = "NUMBER", help_heading = "Part")]
    from: Option<u64>,
    /// So many shot numbers
    #[arg(long, value_name = "N", help_heading = "Part")]
    shots: Option<u64>,
    /// Send it so many times, 0 without end; shot numbers and times go on
    #[arg(long = "loop", value_name = "N", default_value_t = 1, help_heading = "Part")]
    turns: u64,
    /// Time in the end-of-shot records: original, or now (the time of sending)
    #[arg(long, value_name = "WHICH", default_value = "original", value_parser = stamps, help_heading = "Part")]
    stamps: Stamps,
    /// End when the last shot was sent and the receiver has heard so; else wait for the next receiver
    #[arg(long)]
    once: bool,
    /// Processor to run on
    #[arg(long, value_name = "N")]
    cpu: Option<u32>,
    /// Print one JSON object in the end
    #[arg(long)]
    json: bool,
}

fn stamps(text: &str) -> std::result::Result<Stamps, String> {
    match text {
        "original" => Ok(Stamps::Original),
        "now" => Ok(Stamps::Now),
        _ => Err(format!("expected original or now, found {text}")),
    }
}

/// What a replay has sent.
#[derive(Serialize)]
struct Ended {
    #[serde(flatten)]
    stats: Stats,
    /// Without set-up: from the first packet to the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    #[serde(flatten)]
    cpu: CpuTime,
}

/// Replays until the end, or until it is asked to stop.
pub fn run(args: &Args) -> Result {
    let stop = signals::stop_flag()?;
    if let Some(cpu) = args.cpu {
        shotline_acquire::cpu::pin(cpu)?;
    }
    if flow::is_capture(&args.file)? {
        return flow::run(args, &stop);
    }
    if args.flow.is_some() {
        return Err(format!("{} is no capture, so it has no --flow", args.file.display()).into());
    }
    let (reel, kind) = load(args)?;
    let forms =
        reel.links().iter().map(|link| Form::new(link.geometry, kind)).collect::<std::result::Result<Vec<_>, _>>()?;
    let geometry = forms.first().map(|form| *form.geometry());
    let first = reel.numbers().start;
    let stamps = reel.stamps()?;
    let streams: Vec<u32> = reel.links().iter().map(|link| link.stream).collect();
    let file = args.file.file_name().unwrap_or_default().to_string_lossy();
    let mut registrar = Registrar::new();
    let turns = Some(args.turns).filter(|turns| *turns > 0);
    let shots = Recorded::new(reel, &file, forms, args.stamps, turns, &mut registrar)?;
    let config = Config { links: streams.len() as u8, free_running: args.pace(), ..Config::default() };
    let source = args.source;
    let mut probe =
        Probe::with(shots, registrar.finish(), config, move |wanted, regions| open(source, wanted, regions))?;
    let mut begun = None;
    let server = match geometry.filter(|_| !args.to.is_empty()) {
        Some(geometry) => {
            args.refuse_unfit(kind, streams.len())?;
            for (link, stream) in (0..).zip(&streams) {
                let stamp = stamps.get(link as usize).copied().unwrap_or_default();
                let framing = pcapng::framing(kind, &geometry, first, stamp);
                let to = args.to[(link as usize).min(args.to.len() - 1)];
                let (qp, q_key) = args.keys(kind)?;
                let keys = Link { dest_qp: queue_pair(qp, link)?, src_qp: 0, q_key, stream: *stream };
                probe.aim(link, to, framing, keys)?;
            }
            begun = Some(Instant::now());
            let start = Start { mode: Mode::FreeRunning, shots: 0 };
            probe.begin(start, 0).map_err(|refusal| refusal.to_string())?;
            Server::unasked(probe)
        }
        None => {
            let server = Server::of(probe, args.listen)?.once(args.once);
            let samples = geometry.map_or(0, |geometry| geometry.samples());
            let hint =
                if samples > USUAL_SAMPLES { format!(" (record it with --samples {samples})") } else { String::new() };
            errln!("replay{hint} waits for a receiver on {}", server.local_addr()?);
            server
        }
    };
    let stats = server.run(&stop)?;
    let seconds = begun.map(|begun| begun.elapsed().as_secs_f64());
    if args.json {
        outln!("{}", serde_json::to_string(&Ended { stats, seconds, cpu: CpuTime::now() })?);
    } else {
        for (link, counts) in stats.links.iter().enumerate() {
            errln!("link {link}: {}", serde_json::to_string(&counts.counts)?);
        }
    }
    Ok(())
}

/// Opens the part of a recording that is asked for, and chooses its framing.
fn load(args: &Args) -> Result<(Reel, Kind)> {
    let recording = Arc::new(Recording::open(&args.file)?);
    let reel = Reel::new(recording.clone(), Part { from: args.from, shots: args.shots })?;
    if matches!(args.pace(), Pace::Recorded(_)) && !reel.rows().is_empty() && !reel.is_timed()? {
        return Err(format!(
            "{} does not say when its shots were taken: choose a pace with --rate-hz, --gbps or --max",
            args.file.display()
        )
        .into());
    }
    let recorded = if args.to.is_empty() { Kind::Ud.name() } else { recording.run().framing.as_str() };
    Ok((reel, args.framing.as_deref().unwrap_or(recorded).parse()?))
}

impl Args {
    fn pace(&self) -> Pace {
        match (self.rate_hz, self.gbps) {
            (Some(hz), _) => Pace::Rate(hz),
            (_, Some(gbps)) => Pace::Bandwidth(gbps),
            _ if self.max => Pace::Max,
            _ => Pace::Recorded(self.speed.unwrap_or(1.0)),
        }
    }

    /// Refuses what packets that nobody has asked for cannot be, and warns of what they lack.
    fn refuse_unfit(&self, kind: Kind, links: usize) -> Result {
        if self.to.len() > 1 && self.to.len() != links {
            return Err(format!(
                "expected --to once, or once for each of {links} links, found it {} times",
                self.to.len()
            )
            .into());
        }
        match kind.description().replay {
            Replay::Complete => {}
            Replay::AddressPerLink if self.to.len() >= links => {}
            Replay::AddressPerLink => {
                return Err(format!("{kind} packets do not name their link: give --to once for each of {links} links, with a port of its own").into());
            }
            Replay::WithoutContext => crate::output::warn(
                "packets of context are not sent: tell the receiver --samples and --sample-rate-hz, and what the samples mean is lost",
            ),
            Replay::Refused => {
                return Err(format!("{kind} packets say nothing but a count, and only set-up tells where it begins: leave --to out, or choose another --framing").into());
            }
        }
        Ok(())
    }

    /// Queue pair and queue key.
    fn keys(&self, kind: Kind) -> Result<(u32, u32)> {
        match (kind.description().keys, self.queue_pair, self.q_key) {
            (Keys::QueuePairAndQKey, Some(pair), Some(key)) => Ok((pair, key)),
            (Keys::QueuePairAndQKey, ..) => {
                Err("say with --queue-pair and --q-key what the receiver takes: those of `shotline record --listen`"
                    .into())
            }
            (Keys::QueuePair | Keys::None, pair, key) => Ok((pair.unwrap_or(2), key.unwrap_or(0))),
        }
    }
}
