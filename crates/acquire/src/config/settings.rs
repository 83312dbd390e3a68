//! Settings of a run: one list, which defines the keys of a file with an example of each value, the flags of
//! `shotline record`, and [`Key`].

use super::described::Described;
use super::units::{Bytes, Nanoseconds};
use super::values::{Align, Compression, number, one_or_many, peer, resolved_peer, text};
use crate::clock::Source;
use crate::pretrigger::TriggerBy;
use crate::sink::Policy;
use serde::{Deserialize, Serialize};
use shotline_backends::Transport;
use shotline_memory::RegionKind;
use shotline_wire::framing::Kind;
use shotline_wire::shot::Packing;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

macro_rules! settings {
    ($( $(#[doc = $doc:literal])+ $(#[arg($($arg:tt)*)])? $(#[serde($($serde:tt)*)])? $key:ident: $type:ty = $example:tt, )+) => {
        /// Settings of a run. Those that are not given have a default, which [`crate::run`] may choose at run time.
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

        /// A setting, by its key in a file.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(non_camel_case_types, reason = "variants, fields, keys and flags have one name")]
        pub enum Key {
            $( $(#[doc = $doc])+ $key, )+
        }

        impl Key {
            /// All settings, in the order of the list.
            pub const ALL: [Self; [$(stringify!($key)),+].len()] = [$( Self::$key ),+];

            /// Returns an example of the value as it is written in a file: the default, if that is fixed.
            pub fn example(self) -> &'static str {
                match self { $( Self::$key => stringify!($example), )+ }
            }

            /// Returns the JSON Schema of its values.
            pub(super) fn schema(self) -> serde_json::Value {
                match self { $( Self::$key => <$type>::schema(), )+ }
            }

            /// Returns the key in a file.
            pub fn name(self) -> &'static str {
                match self { $( Self::$key => stringify!($key), )+ }
            }
        }

        impl Settings {
            /// Returns these settings where they are given, otherwise those of `below`.
            pub fn over(self, below: Self) -> Self {
                Self { $( $key: self.$key.or(below.$key), )+ }
            }

            /// Returns `true` if a setting is given.
            pub fn has(&self, key: Key) -> bool {
                match key { $( Key::$key => self.$key.is_some(), )+ }
            }

            /// Returns the settings without some of them.
            #[must_use]
            pub fn without(mut self, keys: &[Key]) -> Self {
                for key in keys {
                    match key { $( Key::$key => self.$key = None, )+ }
                }
                self
            }
        }
    };
}

/// Displays the flag.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--{}", self.name().replace('_', "-"))
    }
}

settings! {
    /// Set-up address of the probe, or NAME:PORT
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = peer, help_heading = "Source")]
    #[serde(deserialize_with = "resolved_peer")]
    probe: SocketAddr = "[::1]:47910",
    /// Local address to receive on, for senders without set-up (instead of --probe)
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Source")]
    listen: SocketAddr = "10.0.0.2:7148",
    /// Take over the probe from another receiver, or from one that crashed
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL", help_heading = "Source")]
    take_over: bool = true,
    /// Local address for packets [default: source address of the route, port 4791 for RoCE, 47911 for plain UDP]
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Source")]
    bind: SocketAddr = "[::1]:4791",
    /// Transport of packets: auto, udp, xdp:INTERFACE, packet:INTERFACE, ibverbs:DEVICE,port=N,gid=INDEX
    /// or dpdk:DEVICE, such as xdp:eth1,mode=native, ibverbs:mlx5_0 or
    /// dpdk:net_memif0,role=server,id=0,socket=/run/shot.sock [default: udp]
    #[arg(long, value_name = "TRANSPORT", help_heading = "Transport")]
    transport: Transport = "udp",
    /// Maximum length of an IP packet in bytes, for transports that bypass the kernel [default: 9000]
    #[arg(long, value_name = "BYTES", help_heading = "Transport")]
    mtu: u16 = 9000,
    /// Ethernet address of the peer or router, for transports that bypass the kernel [default: learned, else broadcast]
    #[arg(long, value_name = "MAC", help_heading = "Transport")]
    peer_mac: String = "02:00:00:00:00:01",
    /// Additional arguments of DPDK's EAL, such as --eal=--log-level=8
    #[arg(long, value_name = "ARGUMENTS", allow_hyphen_values = true, help_heading = "Transport")]
    eal: String = "--log-level=8",
    /// Framing of packets: ud, counted or udp; with --listen also digitizer, vita49, spead or hsb [default: ud]
    #[arg(long, value_name = "NAME", help_heading = "Source")]
    #[serde(with = "text")]
    framing: Kind = "ud",
    /// Number of links to record [default: all of the probe]
    #[arg(long, value_name = "N", help_heading = "Source")]
    links: u8 = 1,
    /// Samples per channel and shot [default: 2000, or the probe's maximum if lower]
    #[arg(long, value_name = "N", help_heading = "Source")]
    samples: u32 = 2000,
    /// Shots per second [default: the probe is free-running]
    #[arg(long, value_name = "HZ", help_heading = "Source")]
    rate_hz: f64 = 500.0,
    /// Payload rate over all links in Gbit/s, instead of --rate-hz
    #[arg(long, value_name = "GBPS", help_heading = "Source")]
    gbps: f64 = 5.0,
    /// Start shots by the probe's external trigger
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL", help_heading = "Source")]
    external_trigger: bool = true,
    /// Cyclic sequence of transmit events of the shots, such as 1,2,3 [default: as configured before]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', help_heading = "Source")]
    transmit_sequence: Vec<u16> = [1, 2, 3],
    /// Channels of each link [default: 96, or 1 for spead and hsb]
    #[arg(long, value_name = "N", help_heading = "Other senders")]
    channels: u16 = 96,
    /// Sample format: packed12_msb_first, int16_le or uint8 [default: packed12_msb_first, or uint8 for spead and hsb]
    #[arg(long, value_name = "NAME", help_heading = "Other senders")]
    #[serde(with = "text")]
    sample_format: Packing = "packed12_msb_first",
    /// Significant bits of a sample [default: all bits of the format]
    #[arg(long, value_name = "N", help_heading = "Other senders")]
    bits: u8 = 12,
    /// Sample rate in Hz, stored in the file
    #[arg(long, value_name = "HZ", help_heading = "Other senders")]
    sample_rate_hz: u32 = 40_000_000,
    /// Destination queue pair of ud packets of link 0; each further link uses the next number
    #[arg(long, value_name = "N", value_parser = number, help_heading = "Other senders")]
    queue_pair: u32 = 0x11,
    /// Queue key of ud packets
    #[arg(long, value_name = "N", value_parser = number, help_heading = "Other senders")]
    q_key: u32 = 0x11111111,
    /// Number of pages in the ring of a sensor bridge [default: learned when the ring wraps around]
    #[arg(long, value_name = "N", help_heading = "Other senders")]
    pages: u32 = 8,
    /// End after this many seconds without a packet, counted from the start of listening
    #[arg(long, value_name = "S", help_heading = "Other senders")]
    idle_s: f64 = 10.0,
    /// End after this many shots
    #[arg(long, value_name = "N", help_heading = "Run")]
    shots: u64 = 1000,
    /// End after this many seconds
    #[arg(long, value_name = "S", help_heading = "Run")]
    seconds: f64 = 10.0,
    /// File to record to; several files on several drives share the shots; a name that ends in .pcapng writes a packet
    /// capture; nvme:DEVICE or nvme:DEVICE/NAME records to a raw device
    #[arg(long, short, value_name = "FILE", help_heading = "Sink")]
    #[serde(deserialize_with = "one_or_many")]
    out: Vec<PathBuf> = "run.h5",
    /// Receive and check shots, but store none
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL", help_heading = "Sink")]
    discard: bool = true,
    /// Replace an existing file
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL", help_heading = "Sink")]
    force: bool = true,
    /// With --force: discard the old file at once and reuse its blocks, which is faster than allocating new ones
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL", help_heading = "Sink")]
    recycle: bool = true,
    /// With --force: the serial number of the raw device (nvme:DEVICE) whose contents may be overwritten
    #[arg(long, value_name = "SERIAL", help_heading = "Sink")]
    serial: String = "S64DNX0T123456",
    /// Maximum time in ms until shots become visible (with --durable: and durable) [default: 20]
    #[arg(long, value_name = "MS", help_heading = "Sink")]
    commit_ms: u64 = 20,
    /// Survive a power failure, not only a killed process: data is synced before its shots become visible
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL", help_heading = "Sink")]
    durable: bool = true,
    /// Write through the page cache instead of with direct I/O
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL", help_heading = "Sink")]
    buffered: bool = true,
    /// Maximum number of writes in flight [default: 16, or 4 for digitizer and vita49]
    #[arg(long, value_name = "N", help_heading = "Sink")]
    in_flight: u32 = 16,
    /// Receive nothing while the drive writes, to measure the gain of pipelining; needs a transport with credits and
    /// --policy block
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL", help_heading = "Sink")]
    sequential: bool = true,
    /// Compress shots: none, lz4 or zstd, both after bitshuffle; readers need hdf5plugin [default: none]
    #[arg(long, value_name = "CODEC", help_heading = "Sink")]
    #[serde(with = "text")]
    compress: Compression = "zstd",
    /// Level of zstd, -7 to 22: higher is smaller and slower [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Sink")]
    compress_level: i32 = 1,
    /// Compression threads; shots beyond their throughput are stored uncompressed [default: all processors but one]
    #[arg(long, value_name = "N", help_heading = "Sink")]
    compress_threads: usize = 1,
    /// Number of shots to allocate the file for [default: --shots, else as many as fit in half of the free space]
    #[arg(long, value_name = "N", help_heading = "Sink")]
    capacity: u64 = 10_000,
    /// Overflow policy when the sink is too slow: drop-newest, drop-oldest or block [default: drop-newest]
    #[arg(long, value_name = "POLICY", help_heading = "Sink")]
    policy: Policy = "drop-newest",
    /// Notes about this run, stored in the file
    #[arg(long, value_name = "TEXT", help_heading = "Sink")]
    notes: String = "phantom, 12 MHz, first series",
    /// Name of the operator, stored in the file [default: $USER]
    #[arg(long, value_name = "NAME", help_heading = "Sink")]
    operator: String = "ada",
    /// Start a new file before one exceeds this size
    #[arg(long, value_name = "BYTES", help_heading = "Long runs")]
    roll_size: Bytes = "4GiB",
    /// Start a new file after this many seconds
    #[arg(long, value_name = "S", help_heading = "Long runs")]
    roll_seconds: f64 = 60.0,
    /// Start a new file after this many shots (events of all links)
    #[arg(long, value_name = "N", help_heading = "Long runs")]
    roll_shots: u64 = 100_000,
    /// Maximum size of the run on all drives: the oldest files are deleted [default size of a file: an eighth of it]
    #[arg(long, value_name = "BYTES", help_heading = "Long runs")]
    keep: Bytes = "400GiB",
    /// Hold the last seconds before a trigger in memory, and record only around triggers
    #[arg(long, value_name = "S", help_heading = "Long runs")]
    pre_trigger: f64 = 2.0,
    /// Record until this many seconds after the last trigger [default: 1]
    #[arg(long, value_name = "S", help_heading = "Long runs")]
    post_trigger: f64 = 1.0,
    /// Trigger source: flag (of a shot), signal (SIGUSR1 to this program) or both [default: both]
    #[arg(long, value_name = "SOURCE", help_heading = "Long runs")]
    trigger: TriggerBy = "both",
    /// How shots of several links are grouped into events: by number, or by stamp of the first sample [default: number]
    #[arg(long, value_name = "CRITERION", help_heading = "Several sources")]
    align: Align = "number",
    /// Maximum difference between stamps of one event; less than half the time between events [default: a quarter of
    /// the shortest observed interval, 10us to 10ms]
    #[arg(long, value_name = "TIME", help_heading = "Several sources")]
    align_window: Nanoseconds = "100us",
    /// Time that an event waits for late links [default: three times --timeout-ms]
    #[arg(long, value_name = "TIME", help_heading = "Several sources")]
    align_timeout: Nanoseconds = "300ms",
    /// Minimum number of links of a recorded event [default: 1]
    #[arg(long, value_name = "N", help_heading = "Several sources")]
    quorum: usize = 1,
    /// Clock of the receiver's timestamps: system, or ptp:/dev/ptpN [default: system]
    #[arg(long, value_name = "SOURCE", help_heading = "Receiver")]
    clock: Source = "system",
    /// Memory for shot buffers [default: 256MiB, or 1.5GiB for each link of digitizer and vita49]
    #[arg(long, value_name = "BYTES", help_heading = "Receiver")]
    pool: Bytes = "256MiB",
    /// Kind of that memory
    #[arg(long, value_name = "KIND", help_heading = "Receiver",
        help = format!("Kind of that memory: {} [default: heap]", RegionKind::forms()))]
    #[serde(with = "text")]
    pool_memory: RegionKind = "heap",
    /// Receive buffer to request from the kernel [default: 256MiB]
    #[arg(long, value_name = "BYTES", help_heading = "Receiver")]
    receive_buffer: Bytes = "256MiB",
    /// Close a shot when one that is newer by this many shots has begun [default: at least 4]
    #[arg(long, value_name = "SHOTS", help_heading = "Receiver")]
    window: u64 = 4,
    /// Close a shot after this many ms without a packet of it [default: 100]
    #[arg(long, value_name = "MS", help_heading = "Receiver")]
    timeout_ms: u64 = 100,
    /// Processor of the receive thread [default: any]
    #[arg(long, value_name = "N", help_heading = "Receiver")]
    cpu: u32 = 0,
    /// Never sleep while waiting for packets
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL", help_heading = "Receiver")]
    busy_poll: bool = true,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_override_the_file() {
        let file: Settings = toml::from_str("pool = \"64MiB\"\nsamples = 500\npolicy = \"drop-oldest\"").unwrap();
        let flags = Settings { samples: Some(1000), ..Settings::default() };
        let both = flags.over(file);
        assert_eq!((both.samples, both.pool), (Some(1000), Some(Bytes(64 << 20))));
        assert_eq!(both.policy, Some(Policy::DropOldest));
    }

    #[test]
    fn a_key_is_a_field_and_a_flag() {
        let settings = Settings { align_window: Some(Nanoseconds(5)), shots: Some(1), ..Settings::default() };
        assert_eq!(
            (Key::align_window.name(), Key::align_window.to_string()),
            ("align_window", "--align-window".into())
        );
        assert!(settings.has(Key::align_window) && !settings.has(Key::probe));
        let rest = settings.without(&[Key::align_window]);
        assert_eq!((rest.align_window, rest.shots), (None, Some(1)));
    }

    #[test]
    fn settings_written_to_a_file_are_read_back() {
        let all =
            "sample_format = \"int16_le\"\ncompress = \"zstd\"\ncompress_level = 5\nout = [\"/x/a.h5\", \"/y/a.h5\"]";
        let settings: Settings = toml::from_str(all).unwrap();
        assert_eq!((settings.sample_format, settings.compress), (Some(Packing::Int16Le), Some(Compression::Zstd)));
        assert_eq!(toml::from_str::<Settings>(&toml::to_string(&settings).unwrap()).unwrap(), settings);
    }
}
