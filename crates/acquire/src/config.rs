//! One configuration: every key of the TOML file is a flag of `shotline record`, by the same name.

mod check;

use crate::align::By;
use crate::clock::Source;
use crate::pretrigger::TriggerBy;
use crate::sink::Policy;
use serde::{Deserialize, Serialize};
use shotline_store::codec::Codec;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A number of bytes, written as `1048576` or `256MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BytesText", into = "u64")]
pub struct Bytes(pub u64);

#[derive(Deserialize)]
#[serde(untagged)]
enum BytesText {
    Number(u64),
    Text(String),
}

impl TryFrom<BytesText> for Bytes {
    type Error = String;
    fn try_from(text: BytesText) -> Result<Self, String> {
        match text {
            BytesText::Number(bytes) => Ok(Self(bytes)),
            BytesText::Text(text) => text.parse(),
        }
    }
}

impl From<Bytes> for u64 {
    fn from(bytes: Bytes) -> Self {
        bytes.0
    }
}

impl FromStr for Bytes {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let shift = match unit.trim() {
            "" | "B" => 0,
            "KiB" => 10,
            "MiB" => 20,
            "GiB" => 30,
            "TiB" => 40,
            _ => return Err(format!("expected bytes such as 256MiB (KiB, MiB, GiB, TiB), found {text}")),
        };
        let number: u64 = number.parse().map_err(|_| format!("expected bytes such as 256MiB, found {text}"))?;
        number.checked_mul(1 << shift).map(Self).ok_or_else(|| format!("{text} is more than 2^64 bytes"))
    }
}

/// A time in nanoseconds, written as `10us` or `100ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Nanoseconds(pub u64);

impl FromStr for Nanoseconds {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("expected a time such as 10us (ns, us, ms, s), found {text}");
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let factor = match unit.trim() {
            "ns" => 1,
            "us" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            _ => return Err(expected()),
        };
        let number: u64 = number.parse().map_err(|_| expected())?;
        number.checked_mul(factor).map(Self).ok_or_else(|| format!("{text} is more than 2^64 ns"))
    }
}

impl TryFrom<String> for Nanoseconds {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Nanoseconds> for String {
    fn from(time: Nanoseconds) -> Self {
        format!("{}ns", time.0)
    }
}

/// By what links' shots are put into one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Align {
    /// Their numbers.
    #[default]
    Number,
    /// Their stamps, brought to one clock.
    Stamp,
}

impl FromStr for Align {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "number" => Ok(Self::Number),
            "stamp" => Ok(Self::Stamp),
            _ => Err(format!("expected number or stamp, found {name}")),
        }
    }
}

/// Levels that zstd has and that are of use here.
const ZSTD_LEVELS: std::ops::RangeInclusive<i32> = -7..=22;

macro_rules! settings {
    ($( $(#[doc = $doc:literal])+ $(#[arg($($arg:tt)*)])? $(#[serde($($serde:tt)*)])? $key:ident: $type:ty, )+) => {
        /// What is asked for; whatever is not is decided by [`crate::run`].
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, clap::Args)]
        #[serde(default, deny_unknown_fields)]
        pub struct Settings {
            $(
                $(#[doc = $doc])+
                $(#[arg($($arg)*)])?
                $(#[serde($($serde)*)])?
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $key: Option<$type>,
            )+
        }

        impl Settings {
            /// These settings where they are given, else `below`.
            pub fn over(self, below: Self) -> Self {
                Self { $( $key: self.$key.or(below.$key), )+ }
            }
        }
    };
}

settings! {
    /// Set-up address of the probe, or NAME:PORT
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = peer, help_heading = "Source")]
    #[serde(deserialize_with = "named_peer")]
    probe: SocketAddr,
    /// Instead of a probe that takes set-up: the local address that some other sender sends to
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "probe", help_heading = "Source")]
    listen: SocketAddr,
    /// Take the probe over from another receiver, or from one that crashed
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL", help_heading = "Source")]
    take_over: bool,
    /// Local address for packets [default: the route's own, port 4791 for RoCE, 47911 for plain UDP]
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Source")]
    bind: SocketAddr,
    /// What carries packets: auto, udp, xdp:INTERFACE, packet:INTERFACE, ibverbs:DEVICE,port=N,gid=INDEX
    /// or dpdk:DEVICE, such as xdp:eth1,mode=native, ibverbs:mlx5_0 or
    /// dpdk:net_memif0,role=server,id=0,socket=/run/shot.sock [default: udp]
    #[arg(long, value_name = "TRANSPORT", help_heading = "Transport")]
    transport: String,
    /// Longest IP packet in bytes, where no kernel knows it (DPDK) [default: 9000]
    #[arg(long, value_name = "BYTES", help_heading = "Transport")]
    mtu: u16,
    /// Ethernet address of the other side or the router, where no kernel knows it [default: learned, else all hosts]
    #[arg(long, value_name = "MAC", help_heading = "Transport")]
    peer_mac: String,
    /// More words for DPDK's command line (EAL), such as --eal=--log-level=8
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true, help_heading = "Transport")]
    eal: String,
    /// Framing of packets: ud, counted or udp; with --listen also digitizer, vita49, spead or hsb [default: ud]
    #[arg(long, value_name = "NAME", help_heading = "Source")]
    framing: String,
    /// Links to record [default: all that the probe has]
    #[arg(long, value_name = "N", help_heading = "Source")]
    links: u8,
    /// Samples per channel and shot [default: 2000, or as many as the probe has if those are fewer]
    #[arg(long, value_name = "N", help_heading = "Source")]
    samples: u32,
    /// Shots per second [default: the probe runs free]
    #[arg(long, value_name = "HZ", help_heading = "Source")]
    rate_hz: f64,
    /// Payload to ask for on all links together, in Gbit/s, instead of a rate
    #[arg(long, value_name = "GBPS", help_heading = "Source")]
    gbps: f64,
    /// Start shots by the probe's external trigger
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL", help_heading = "Source")]
    external_trigger: bool,
    /// Transmit events that the shots answer in turn, such as 1,2,3 (not given: as the probe was told before)
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', requires = "probe", help_heading = "Source")]
    transmit_sequence: Vec<u16>,
    /// Channels of each link [default: 96, or 1 of spead and hsb]
    #[arg(long, value_name = "N", requires = "listen", help_heading = "Other senders")]
    channels: u16,
    /// Samples on the wire: packed12_msb_first, int16_le or uint8 [default: packed12_msb_first, or uint8 of spead and hsb]
    #[arg(long, value_name = "NAME", requires = "listen", help_heading = "Other senders")]
    sample_format: String,
    /// Bits of a sample that mean something [default: all that the format has]
    #[arg(long, value_name = "N", requires = "listen", help_heading = "Other senders")]
    bits: u8,
    /// Sample rate in Hz, for the file
    #[arg(long, value_name = "HZ", requires = "listen", help_heading = "Other senders")]
    sample_rate_hz: u32,
    /// Queue pair that ud packets name, of link 0; the next link has the next one
    #[arg(long, value_name = "N", value_parser = number, requires = "listen", help_heading = "Other senders")]
    queue_pair: u32,
    /// Queue key that ud packets carry
    #[arg(long, value_name = "N", value_parser = number, requires = "listen", help_heading = "Other senders")]
    q_key: u32,
    /// Pages in the ring of a sensor bridge [default: learned when the ring begins again]
    #[arg(long, value_name = "N", requires = "listen", help_heading = "Other senders")]
    pages: u32,
    /// End when nothing has come for so many seconds, counted from when it listens
    #[arg(long, value_name = "S", requires = "listen", help_heading = "Other senders")]
    idle_s: f64,
    /// End after so many shots
    #[arg(long, value_name = "N", help_heading = "Run")]
    shots: u64,
    /// End after so many seconds
    #[arg(long, value_name = "S", help_heading = "Run")]
    seconds: f64,
    /// The file to record to; several on several drives share the work; a name that ends in .pcapng makes a packet
    /// capture; nvme:DEVICE or nvme:DEVICE/NAME records to a raw device
    #[arg(long, short, value_name = "FILE", help_heading = "Sink")]
    #[serde(deserialize_with = "one_or_many")]
    out: Vec<PathBuf>,
    /// Receive and check, but keep nothing
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL", help_heading = "Sink")]
    discard: bool,
    /// Replace the file if it is there
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL", help_heading = "Sink")]
    force: bool,
    /// With --force: give up the old file at once and write into its blocks, which is faster than into new ones
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL", help_heading = "Sink")]
    recycle: bool,
    /// With --force: the serial number of the raw device (nvme:DEVICE) whose contents may go
    #[arg(long, value_name = "SERIAL", help_heading = "Sink")]
    serial: String,
    /// Shots become visible (with --durable: and safe) at least this often [default: 20]
    #[arg(long, value_name = "MS", help_heading = "Sink")]
    commit_ms: u64,
    /// Survive a power cut, not only a kill: data is synced before its shots become visible
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL", help_heading = "Sink")]
    durable: bool,
    /// Write through the page cache instead of past it
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL", help_heading = "Sink")]
    buffered: bool,
    /// Writes under way at once [default: 16]
    #[arg(long, value_name = "N", help_heading = "Sink")]
    in_flight: u32,
    /// Receive nothing while the drive writes: one stage after the other, to measure what the pipeline gains; needs a
    /// transport with credits and --policy block
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL", help_heading = "Sink")]
    sequential: bool,
    /// Compress shots: none, lz4 or zstd, both behind bitshuffle; readers need hdf5plugin [default: none]
    #[arg(long, value_name = "CODEC", value_parser = codec, help_heading = "Sink")]
    compress: String,
    /// Level of zstd, -7 to 22: higher is smaller and slower [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-7..=22), help_heading = "Sink")]
    compress_level: i32,
    /// Threads that compress; shots that they cannot keep up with are stored as they came [default: all processors but one]
    #[arg(long, value_name = "N", help_heading = "Sink")]
    compress_threads: usize,
    /// Shots to lay the file out for [default: --shots, else what half of the free space holds]
    #[arg(long, value_name = "N", help_heading = "Sink")]
    capacity: u64,
    /// What gives when the sink is too slow: drop-newest, drop-oldest or block [default: drop-newest]
    #[arg(long, value_name = "POLICY", help_heading = "Sink")]
    policy: Policy,
    /// Words about this run, kept in the file
    #[arg(long, value_name = "TEXT", help_heading = "Sink")]
    notes: String,
    /// Who records, kept in the file [default: $USER]
    #[arg(long, value_name = "NAME", help_heading = "Sink")]
    operator: String,
    /// Begin a new file when one would be larger
    #[arg(long, value_name = "BYTES", help_heading = "Long runs")]
    roll_size: Bytes,
    /// Begin a new file after so many seconds
    #[arg(long, value_name = "S", help_heading = "Long runs")]
    roll_seconds: f64,
    /// Begin a new file after so many shots (events of all links)
    #[arg(long, value_name = "N", help_heading = "Long runs")]
    roll_shots: u64,
    /// Take so many bytes on all drives at most: the oldest files go [files: an eighth of it each]
    #[arg(long, value_name = "BYTES", help_heading = "Long runs")]
    keep: Bytes,
    /// Hold the last so many seconds in memory, and record only around triggers
    #[arg(long, value_name = "S", help_heading = "Long runs")]
    pre_trigger: f64,
    /// Record until so many seconds after the last trigger [default: 1]
    #[arg(long, value_name = "S", requires = "pre_trigger", help_heading = "Long runs")]
    post_trigger: f64,
    /// What is a trigger: flag (a shot's own), signal (SIGUSR1 to this program) or both [default: both]
    #[arg(long, value_name = "WHAT", requires = "pre_trigger", help_heading = "Long runs")]
    trigger: TriggerBy,
    /// What puts shots of several links into one event: their number, or the stamp of their first sample [default: number]
    #[arg(long, value_name = "BY", help_heading = "Several sources")]
    align: Align,
    /// Stamps of one event differ by at most so much; less than half the time between events [default: a quarter of the
    /// shortest that is seen, 10us to 10ms]
    #[arg(long, value_name = "TIME", help_heading = "Several sources")]
    align_window: Nanoseconds,
    /// How long an event waits for links that are behind [default: three times --timeout-ms]
    #[arg(long, value_name = "TIME", help_heading = "Several sources")]
    align_patience: Nanoseconds,
    /// Events of fewer links are not recorded [default: 1]
    #[arg(long, value_name = "N", help_heading = "Several sources")]
    quorum: usize,
    /// Clock of the receiver's own time stamps: system, or ptp:/dev/ptpN [default: system]
    #[arg(long, value_name = "SOURCE", help_heading = "Receiver")]
    clock: Source,
    /// Memory for shot buffers [default: 256MiB]
    #[arg(long, value_name = "BYTES", help_heading = "Receiver")]
    pool: Bytes,
    /// Receive buffer to ask the kernel for [default: 256MiB]
    #[arg(long, value_name = "BYTES", help_heading = "Receiver")]
    receive_buffer: Bytes,
    /// A shot is closed when one that is so much newer has begun [default: at least 4]
    #[arg(long, value_name = "SHOTS", help_heading = "Receiver")]
    window: u64,
    /// A shot is closed when nothing of it has come for so long [default: 100]
    #[arg(long, value_name = "MS", help_heading = "Receiver")]
    timeout_ms: u64,
    /// Processor of the receive thread [default: any]
    #[arg(long, value_name = "N", help_heading = "Receiver")]
    cpu: u32,
    /// Never sleep while waiting for packets
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL", help_heading = "Receiver")]
    busy_poll: bool,
}

/// The name of a codec, or none.
fn codec(text: &str) -> Result<String, String> {
    if text != "none" {
        text.parse::<Codec>().map_err(|error| error.replace("expected ", "expected none, "))?;
    }
    Ok(text.to_owned())
}

/// `out = "run.h5"`, or `out = ["/a/run.h5", "/b/run.h5"]`.
fn one_or_many<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<PathBuf>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Outs {
        One(PathBuf),
        Many(Vec<PathBuf>),
    }
    Ok(Some(match Outs::deserialize(deserializer)? {
        Outs::One(out) => vec![out],
        Outs::Many(outs) => outs,
    }))
}

/// The address of a peer: an address with a port, or a name with a port, which the system resolves.
pub fn peer(text: &str) -> Result<SocketAddr, String> {
    let found = text.parse().map(Some).or_else(|_| text.to_socket_addrs().map(|mut addresses| addresses.next()));
    let why = match found {
        Ok(Some(address)) => return Ok(address),
        Ok(None) => "it has no address".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(format!(
        "expected an address or a name with a port, such as [::1]:47910 or probe.lab:47910, found {text}: {why}"
    ))
}

/// `probe = "probe.lab:47910"`.
fn named_peer<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    peer(&String::deserialize(deserializer)?).map(Some).map_err(serde::de::Error::custom)
}

/// A number as people write those of queue pairs and keys: 4660 or 0x1234.
pub fn number(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("expected a number such as 4660 or 0x1234, below 2^32, found {text}"))
}

/// The queue pair of a link where link 0 has `first`: 24 bits in a packet, and 0 is for subnet management.
pub fn queue_pair(first: u32, link: u8) -> Result<u32, String> {
    let pair = first.checked_add(link.into()).filter(|pair| first > 0 && *pair <= 0xff_ffff);
    pair.ok_or_else(|| {
        format!("expected --queue-pair from 1 to 0xffffff on all links, found {first:#x} and link {link}")
    })
}

/// A configuration file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Not readable.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// Not TOML, an unknown key, or a value of the wrong kind; the message has line and column.
    #[error("{}: {message}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        message: String,
    },
}

impl Settings {
    /// How shots are to be compressed, if they are.
    pub fn codec(&self) -> Result<Option<Codec>, String> {
        let codec = match self.compress.as_deref() {
            None | Some("none") => None,
            Some(name) => Some(name.parse::<Codec>()?),
        };
        match (codec, self.compress_level) {
            (Some(Codec::Zstd(_)), Some(level)) if !ZSTD_LEVELS.contains(&level) => Err(format!(
                "expected a level of zstd from {} to {}, found {level}",
                ZSTD_LEVELS.start(),
                ZSTD_LEVELS.end()
            )),
            (Some(Codec::Zstd(_)), Some(level)) => Ok(Some(Codec::Zstd(level))),
            (_, Some(_)) => Err("a level is for zstd: add --compress zstd".into()),
            (codec, None) => Ok(codec),
        }
    }

    /// What puts shots of several links into one event.
    pub fn alignment(&self) -> By {
        match self.align.unwrap_or_default() {
            Align::Number => By::Number,
            Align::Stamp => By::Stamp { window_ns: self.align_window.map(|window| window.0) },
        }
    }

    /// Reads a TOML file.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        toml::from_str(&text).map_err(|error| ConfigError::Parse { path: path.to_owned(), message: error.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_win_over_the_file_and_unknown_keys_are_named_with_their_line() {
        let file: Settings = toml::from_str("pool = \"64MiB\"\nsamples = 500\npolicy = \"drop-oldest\"").unwrap();
        let flags = Settings { samples: Some(1000), ..Settings::default() };
        let both = flags.over(file);
        assert_eq!((both.samples, both.pool), (Some(1000), Some(Bytes(64 << 20))));
        assert_eq!(both.policy, Some(Policy::DropOldest));
        let error = toml::from_str::<Settings>("samples = 1\nsampels = 2").unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("sampels"), "{error}");
    }

    #[test]
    fn a_peer_may_be_named() {
        for text in ["localhost:47910", "127.0.0.1:47910", "[::1]:47910"] {
            let address = peer(text).unwrap();
            assert!(address.ip().is_loopback() && address.port() == 47910, "{text} is {address}");
        }
        assert!(toml::from_str::<Settings>("probe = \"localhost:47910\"").unwrap().probe.unwrap().ip().is_loopback());
        assert!(peer("localhost").unwrap_err().contains("with a port"), "no port");
    }

    #[test]
    fn a_queue_pair_has_24_bits_on_every_link() {
        assert_eq!((queue_pair(1, 0), queue_pair(0xff_fffe, 1)), (Ok(1), Ok(0xff_ffff)));
        for (first, link) in [(0, 0), (0, 1), (0x100_0010, 0), (0xff_ffff, 1), (u32::MAX, 1)] {
            assert!(queue_pair(first, link).is_err_and(|error| error.contains(&format!("{first:#x}"))), "{first:#x}");
        }
    }

    #[test]
    fn a_codec_has_a_level_only_if_it_is_zstd() {
        let settings = |text: &str| toml::from_str::<Settings>(text).unwrap().codec();
        assert_eq!(settings(""), Ok(None));
        assert_eq!(settings("compress = \"none\""), Ok(None));
        assert_eq!(settings("compress = \"lz4\""), Ok(Some(Codec::Lz4)));
        assert_eq!(settings("compress = \"zstd\"\ncompress_level = 5"), Ok(Some(Codec::Zstd(5))));
        assert!(settings("compress = \"lz4\"\ncompress_level = 5").is_err());
        assert!(settings("compress = \"gzip\"").is_err());
        assert!(settings("compress = \"zstd\"\ncompress_level = 99").is_err());
    }

    #[test]
    fn one_file_or_several_may_be_named() {
        let one: Settings = toml::from_str("out = \"a.h5\"").unwrap();
        let many: Settings = toml::from_str("out = [\"/x/a.h5\", \"/y/a.h5\"]").unwrap();
        assert_eq!((one.out.map(|outs| outs.len()), many.out.clone().map(|outs| outs.len())), (Some(1), Some(2)));
        assert_eq!(toml::from_str::<Settings>(&toml::to_string(&many).unwrap()).unwrap(), many);
    }

    #[test]
    fn bytes_have_binary_units_and_refuse_others() {
        assert_eq!("3GiB".parse(), Ok(Bytes(3 << 30)));
        assert_eq!("17".parse(), Ok(Bytes(17)));
        assert!("3GB".parse::<Bytes>().is_err() && "".parse::<Bytes>().is_err());
        assert!("99999999999TiB".parse::<Bytes>().is_err());
    }
}
