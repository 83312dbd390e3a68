//! Arguments of `shotline replay`, and the settings derived from them.

use crate::Result;
use crate::serve::PageArgs;
use shotline_acquire::config::peer;
use shotline_instrument::probe::pace::Pace;
use shotline_instrument::replay::StampSource;
use shotline_wire::framing::Kind;
use shotline_wire::framing::description::{Keys, Replay};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Arguments of `shotline replay`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shotline replay run.h5                                     wait, as a probe does, for `shotline record --probe`
  shotline replay run.h5 --once --speed 2                    twice as fast, and end after the last shot
  shotline replay run.h5 --max --from 5000 --shots 100       these shots, as fast as the link accepts them
  shotline replay run.h5 --to [::1]:7148                     send without set-up, for `record --listen`
  shotline replay run.h5 --to 10.0.0.2:4791 --framing ud --queue-pair 0x2b67 --q-key 0x11223344
  shotline replay run.pcapng --to 10.0.0.2:4791 --json       the datagrams of a capture's largest flow
  shotline replay run.h5 --serve 127.0.0.1:8081              with a page in the browser: what is sent, and how far it is

Shots keep their numbers, stamps and losses: recording a replay reproduces the recording.")]
pub struct Args {
    /// The recording (HDF5), or a capture (pcap, pcapng)
    pub(super) file: PathBuf,
    /// Set-up address at which to wait for a receiver
    #[arg(long, default_value = "[::1]:47910", value_name = "ADDRESS:PORT", conflicts_with = "to")]
    pub(super) listen: SocketAddr,
    /// Send without set-up to this address: given once for all links, or once for each link
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = peer, value_delimiter = ',')]
    pub(super) to: Vec<SocketAddr>,
    /// Address that packets are sent from [default: source address of the route]
    #[arg(long, value_name = "ADDRESS")]
    pub(super) source: Option<IpAddr>,
    /// Flow of a capture, by its destination address [default: the destination of most bytes]
    #[arg(long, value_name = "ADDRESS:PORT", requires = "to")]
    pub(super) flow: Option<SocketAddr>,
    /// Framing of packets without set-up: ud, udp, spead, hsb, digitizer or vita49 [default: as recorded]
    #[arg(long, value_name = "NAME", requires = "to")]
    pub(super) framing: Option<String>,
    /// Destination queue pair of ud and hsb packets of link 0; each further link uses the next number
    #[arg(long, value_name = "N", value_parser = shotline_acquire::config::number, requires = "to")]
    pub(super) queue_pair: Option<u32>,
    /// Queue key of ud packets
    #[arg(long, value_name = "N", value_parser = shotline_acquire::config::number, requires = "to")]
    pub(super) q_key: Option<u32>,
    /// Speed relative to the recording, including gaps [default: 1]
    #[arg(long, value_name = "FACTOR", group = "pace", help_heading = "Pace")]
    speed: Option<f64>,
    /// Shots per second, or datagrams per second of a capture
    #[arg(long, value_name = "HZ", group = "pace", help_heading = "Pace")]
    rate_hz: Option<f64>,
    /// Total payload of all links, in Gbit/s
    #[arg(long, value_name = "GBPS", group = "pace", help_heading = "Pace")]
    gbps: Option<f64>,
    /// As fast as the link accepts packets
    #[arg(long, group = "pace", help_heading = "Pace")]
    max: bool,
    /// Number of the first shot
    #[arg(long, value_name = "NUMBER", help_heading = "Selection")]
    pub(super) from: Option<u64>,
    /// Number of consecutive shot numbers to send, including those of lost shots
    #[arg(long, value_name = "N", help_heading = "Selection")]
    pub(super) shots: Option<u64>,
    /// Number of repetitions, 0: without end; shot numbers and times continue
    #[arg(long = "loop", value_name = "N", default_value_t = 1, help_heading = "Selection")]
    pub(super) turns: u64,
    /// Time in the end-of-shot records: original, or now (the time of sending)
    #[arg(long, value_name = "WHICH", default_value = "original", value_parser = stamps, help_heading = "Selection")]
    pub(super) stamps: StampSource,
    /// End when the last shot was sent and the receiver was notified; else wait for the next receiver
    #[arg(long)]
    pub(super) once: bool,
    /// Processor to run on
    #[arg(long, value_name = "N")]
    pub(super) cpu: Option<u32>,
    /// Print one JSON object at the end
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) page: PageArgs,
}

fn stamps(text: &str) -> std::result::Result<StampSource, String> {
    match text {
        "original" => Ok(StampSource::Original),
        "now" => Ok(StampSource::Now),
        _ => Err(format!("expected original or now, found {text}")),
    }
}

impl Args {
    /// Returns the pace of shots or datagrams.
    pub(super) fn pace(&self) -> Pace {
        match (self.rate_hz, self.gbps) {
            (Some(hz), _) => Pace::Rate(hz),
            (_, Some(gbps)) => Pace::Bandwidth(gbps),
            _ if self.max => Pace::Max,
            _ => Pace::Recorded(self.speed.unwrap_or(1.0)),
        }
    }

    /// Refuses framings that need set-up or more addresses, and warns about information that packets do not carry.
    pub(super) fn check_framing(&self, kind: Kind, links: usize) -> Result {
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
                return Err(format!("{kind} packets do not identify their link: give --to for each of {links} links, with different ports").into());
            }
            Replay::WithoutContext => crate::output::warn(
                "context packets are not sent: give the receiver --samples and --sample-rate-hz; the scale and format of the samples are lost",
            ),
            Replay::Refused => {
                return Err(format!("{kind} packets carry only a count, and only set-up specifies its start: omit --to, or choose another --framing").into());
            }
        }
        Ok(())
    }

    /// Returns queue pair and queue key.
    pub(super) fn keys(&self, kind: Kind) -> Result<(u32, u32)> {
        match (kind.description().keys, self.queue_pair, self.q_key) {
            (Keys::QueuePairAndQKey, Some(pair), Some(key)) => Ok((pair, key)),
            (Keys::QueuePairAndQKey, ..) => {
                Err("give --queue-pair and --q-key of the receiver: those of `shotline record --listen`".into())
            }
            (Keys::QueuePair | Keys::None, pair, key) => Ok((pair.unwrap_or(2), key.unwrap_or(0))),
        }
    }
}
