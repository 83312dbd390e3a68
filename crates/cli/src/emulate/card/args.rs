//! Arguments of `shotline emulate card`.

use super::values::{self, Lengths, Mix};
use crate::values::probability;
use shotline_plan::pcie::Link;
use std::path::PathBuf;

/// Examples that are shown below the options.
pub const EXAMPLES: &str = "\
Examples:
  shotline emulate card                                           1000 packets of the IMIX into 16 channels
  shotline emulate card --pcap capture.pcap --out channels        a capture back to back, a file for each channel
  shotline emulate card --pcap capture.pcap --times --out run     the same by the times of the capture
  shotline emulate card --lengths 64..1526 --packets 200          the throughput of each length
  shotline emulate card --mix 64:60,1518:40 --channels 256 --header-split 64
  shotline emulate card --pcie 3x16 --lengths 64..128             behind a PCIe link of generation 3 with 16 lanes
  shotline emulate card --modules 2                               two modules, each with a wire of its own: 200 Gbit/s
  shotline emulate card --rate 200 --json                         twice the rate that a module is made for
  shotline emulate card --corrupt 0.01 --runt 0.01                a bad cable
  shotline emulate card --listen /tmp/card.sock --pcap capture.pcap --out sent
                                                                  for a driver such as DPDK's net_shotline, once it is there
  shotline emulate card --listen /tmp/card.sock --pcap capture.pcap --pause --once --channels 4
                                                                  without loss, when the driver runs four channels
  shotline emulate card --listen /tmp/card.sock --wire veth0      as a network card on veth0";

/// Settings of the simulated card.
#[derive(clap::Args)]
pub struct Card {
    /// Receive the frames of a capture (pcap or pcapng)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["lengths", "mix", "packets"], help_heading = "Frames")]
    pub(super) pcap: Option<PathBuf>,
    /// Keep the times of the capture, where the rate of the wire allows it, instead of frames back to back
    #[arg(long, requires = "pcap", help_heading = "Frames")]
    pub(super) times: bool,
    /// Receive generated frames of each of these lengths in bytes, with FCS, one length after the other
    #[arg(long, value_name = "FIRST..LAST", conflicts_with = "mix", help_heading = "Frames")]
    pub(super) lengths: Option<Lengths>,
    /// Step between lengths
    #[arg(long, value_name = "BYTES", default_value_t = 1, requires = "lengths", help_heading = "Frames",
          value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) step: u16,
    /// Receive generated frames of these lengths, with FCS, in random order: LENGTH:SHARE,... or imix (64:7,594:4,1518:1)
    #[arg(long, value_name = "MIX", default_value = "imix", help_heading = "Frames")]
    pub(super) mix: Mix,
    /// Number of generated frames, with --lengths of each length
    #[arg(long, value_name = "N", default_value_t = 1000, help_heading = "Frames",
          value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(super) packets: u64,
    /// Rate of each wire in Gbit/s, 1 to 200; a module is made for 100
    #[arg(long, value_name = "GBPS", default_value_t = 100.0, value_parser = values::rate, help_heading = "Frames")]
    pub(super) rate: f64,
    /// Probability that a bit of a frame is flipped on the wire: the MAC finds a wrong FCS
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = probability, help_heading = "Faults")]
    pub(super) corrupt: f64,
    /// Probability that a frame is cut on the wire to less than 64 bytes, with an FCS
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = probability, help_heading = "Faults")]
    pub(super) runt: f64,
    /// Modules, each with a wire, a bus and channels of its own; a frame goes to the wire that is free first
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=4))]
    pub(super) modules: u16,
    /// Wait on this Unix socket for a driver in another process, which receives the frames and may send some. They begin when
    /// it has started a channel, or as many as --channels says. Ends by a signal
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["modules", "pcie", "buffer", "header_split"],
          group = "driver", help_heading = "Driver")]
    pub(super) listen: Option<PathBuf>,
    /// Receive the frames that come in through this interface, in real time, and send those of software through it
    #[arg(long, value_name = "IFACE", requires = "driver", conflicts_with_all = ["pcap", "lengths", "mix", "packets", "corrupt", "runt", "out"],
          help_heading = "Driver")]
    pub(super) wire: Option<String>,
    /// The same for a driver in a QEMU guest, of which this file is BAR 2 of an ivshmem device: the file has 4 MiB, and is
    /// created if it is missing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["modules", "pcie", "buffer", "header_split", "listen", "once"],
          group = "driver", requires = "memory", help_heading = "Driver")]
    pub(super) window: Option<PathBuf>,
    /// Memory of the guest, at most 2 GiB (-object memory-backend-file,mem-path=FILE,share=on)
    #[arg(long, value_name = "FILE", requires = "window", help_heading = "Driver")]
    pub(super) memory: Option<PathBuf>,
    /// A frame waits until every running channel has buffers for it, as a sender waits with flow control: nothing is lost
    /// if software is slow
    #[arg(long, requires = "driver", help_heading = "Driver")]
    pub(super) pause: bool,
    /// End when the first driver has disconnected
    #[arg(long, requires = "driver", help_heading = "Driver")]
    pub(super) once: bool,
    /// Send the capture this many times
    #[arg(long, value_name = "N", default_value_t = 1, requires_all = ["driver", "pcap"],
          value_parser = clap::value_parser!(u64).range(1..), help_heading = "Driver")]
    pub(super) repeat: u64,
    /// PCIe generation and lanes of each module, such as 3x16, with a maximum payload other than 256 bytes 3x16/512: the
    /// bus side of the card is simulated, too, and the link limits it. Without it the bus is always ready
    #[arg(long, value_name = "GENxLANES[/BYTES]")]
    pub(super) pcie: Option<Link>,
    /// Channels of a module that receive packets, by the Toeplitz hash of addresses and ports; 16 unless given. With
    /// --listen or --window the driver says which; the first frame waits until so many run, 1 unless given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(super) channels: Option<u16>,
    /// Bytes of a buffer in host memory, a multiple of 8
    #[arg(long, value_name = "BYTES", default_value_t = 2048, value_parser = values::buffer)]
    pub(super) buffer: u16,
    /// First bytes of each packet, a multiple of 8, that go to buffers of their own; the card's header of 16 bytes counts
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = values::header)]
    pub(super) header_split: u8,
    /// Write the received frames into this folder, those of each channel into a file channel-NNN.pcapng; with --listen or
    /// --window the frames that software sends, those of each queue into a file queue-NNN.pcapng
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// Seed of the frames, their faults, and the latencies of the bus
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

#[cfg(feature = "rtl")]
impl Card {
    /// Returns the channels of a module.
    pub(super) fn channels(&self) -> u16 {
        self.channels.unwrap_or(16)
    }

    /// Returns the rate of all wires.
    pub(super) fn line_gbps(&self) -> f64 {
        self.rate * f64::from(self.modules)
    }
}
