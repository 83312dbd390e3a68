//! What carries packets: sockets, or a port that DPDK drives.

use crate::Result;
use shotline_acquire::config::Settings;
use std::str::FromStr;
use std::time::Duration;

/// How long a sender waits for the other side of its link.
#[cfg_attr(not(feature = "dpdk"), expect(dead_code, reason = "sockets have no links to wait for"))]
pub const LINK_PATIENCE: Duration = Duration::from_secs(30);

/// What carries packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// UDP sockets.
    #[default]
    Udp,
    /// A device that DPDK drives, as DPDK writes it.
    Dpdk(String),
}

impl FromStr for Transport {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.split_once(':') {
            None if text == "udp" => Ok(Self::Udp),
            Some(("dpdk", device)) if !device.is_empty() => Ok(Self::Dpdk(device.into())),
            _ => Err(format!(
                "expected udp or dpdk:DEVICE, such as dpdk:net_memif0,role=server,id=0,socket=/run/shot.sock or dpdk:0000:03:00.0, found {text}"
            )),
        }
    }
}

/// Flags of programs that send.
#[derive(clap::Args, Clone, Debug)]
pub struct Flags {
    /// What carries packets: udp, or dpdk:DEVICE
    #[arg(long, default_value = "udp", value_name = "TRANSPORT", help_heading = "Transport")]
    pub transport: Transport,
    #[command(flatten)]
    pub dpdk: DpdkFlags,
}

/// What DPDK needs to know.
#[derive(clap::Args, Clone, Debug)]
pub struct DpdkFlags {
    /// Longest IP packet in bytes, where no kernel knows it [default: 9000]
    #[arg(long, value_name = "BYTES", help_heading = "Transport")]
    pub mtu: Option<u16>,
    /// Ethernet address of the other side or the router, where no kernel knows it [default: learned, else all hosts]
    #[arg(long, value_name = "MAC", help_heading = "Transport")]
    pub peer_mac: Option<String>,
    /// More words for DPDK's command line (EAL), such as --eal=--log-level=8
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true, help_heading = "Transport")]
    pub eal: Option<String>,
}

#[cfg(feature = "dpdk")]
impl DpdkFlags {
    /// Of a receiver's settings.
    pub fn of(settings: &Settings) -> Self {
        let Settings { mtu, peer_mac, eal, .. } = settings.clone();
        Self { mtu, peer_mac, eal }
    }
}

/// What a receiver's settings name.
pub fn of(settings: &Settings) -> Result<Transport> {
    Ok(settings.transport.as_deref().map_or(Ok(Transport::Udp), str::parse)?)
}

#[cfg(feature = "dpdk")]
pub mod dpdk {
    //! Opening ports.

    use super::DpdkFlags;
    use shotline_memory::Sge;
    use shotline_transport::IoError;
    use shotline_transport::dpdk::{DpdkConfig, EalConfig};
    use std::net::SocketAddr;

    /// A port's configuration from flags.
    pub fn config(device: &str, flags: &DpdkFlags, bind: SocketAddr, scratch: Sge) -> Result<DpdkConfig, IoError> {
        let peer = flags.peer_mac.as_deref().map(mac).transpose().map_err(IoError::Config)?;
        let words = flags.eal.as_deref().unwrap_or("").split_whitespace().map(str::to_owned).collect();
        let config = DpdkConfig::new(device, bind, scratch);
        Ok(DpdkConfig {
            eal: EalConfig { arguments: words, ..EalConfig::default() },
            peer,
            mtu: flags.mtu.unwrap_or(config.mtu),
            ..config
        })
    }

    fn mac(text: &str) -> Result<[u8; 6], String> {
        let bytes: Option<Vec<u8>> = text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.ok_or_else(|| format!("expected an Ethernet address such as 02:00:00:00:00:01, found {text}"))
    }
}

/// Why a build without DPDK cannot.
#[cfg(not(feature = "dpdk"))]
pub fn no_dpdk(device: &str) -> shotline_transport::IoError {
    shotline_transport::IoError::Config(format!(
        "this shotline was built without DPDK, so it cannot open {device}: apt install libdpdk-dev, then build it with --features dpdk"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transport_is_a_name_and_perhaps_a_device() {
        assert_eq!("udp".parse(), Ok(Transport::Udp));
        assert_eq!("dpdk:0000:03:00.0".parse(), Ok(Transport::Dpdk("0000:03:00.0".into())));
        assert_eq!("dpdk:net_memif0,id=0".parse(), Ok(Transport::Dpdk("net_memif0,id=0".into())));
        for bad in ["", "tcp", "dpdk", "dpdk:", "udp:1"] {
            assert!(bad.parse::<Transport>().unwrap_err().contains("dpdk:DEVICE"), "{bad}");
        }
    }
}
