//! Values of arguments that several commands have.

use shotline_acquire::config::peer;
use shotline_verbs::api::Mtu;
use shotline_verbs::cm::ControlAddress;
use shotline_verbs::soft::UdpOptions;
use shotline_wire::setup::PORT;
use shotline_wire::udp::ROCE_PORT;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

/// A number of bytes, with an optional binary suffix: 4096, 4K, 64KiB, 8G.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected bytes such as 4096, 4K or 8GiB (K, M, G, T: powers of 1024), found {text}");
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let shift = match unit.strip_suffix("iB").or(unit.strip_suffix('B')).unwrap_or(unit) {
            "" if !unit.starts_with('i') => 0,
            "K" | "k" => 10,
            "M" => 20,
            "G" => 30,
            "T" => 40,
            _ => return Err(wrong()),
        };
        let number: u64 = number.parse().map_err(|_| wrong())?;
        number.checked_mul(1 << shift).map(Self).ok_or_else(|| format!("{text} is more than 2^64 bytes"))
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        match units.iter().find(|(shift, _)| self.0 > 0 && self.0.is_multiple_of(1 << shift)) {
            Some((shift, unit)) => f.pad(&format!("{} {unit}", self.0 >> shift)),
            None => f.pad(&format!("{} B", self.0)),
        }
    }
}

/// Parses an address with or without a port.
pub fn bind(text: &str) -> Result<SocketAddr, String> {
    let alone = || text.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, ROCE_PORT));
    let address = text.parse().ok().or_else(alone);
    address.ok_or_else(|| format!("expected an address such as 127.0.0.2 or [::1]:4791, found {text}"))
}

/// Parses an MTU.
pub fn mtu(text: &str) -> Result<Mtu, String> {
    let mtu = text.parse().ok().and_then(Mtu::from_bytes);
    mtu.ok_or_else(|| format!("expected 256, 512, 1024, 2048, 4096, 8192, 16384 or 32768, found {text}"))
}

/// Returns the options of a software endpoint with the given receive buffer, or the default one.
pub fn udp_options(receive_buffer: Option<Size>) -> UdpOptions {
    receive_buffer.map_or_else(UdpOptions::default, |bytes| UdpOptions { receive_buffer: bytes.0 as usize })
}

/// Parses the address of a target's control connections: of a host, or the path of a socket.
pub fn control_address(text: &str) -> Result<ControlAddress, String> {
    text.parse()
}

/// Parses a positive number of seconds.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse().ok().filter(|seconds| (0.01..=1e9).contains(seconds));
    number.map(Duration::from_secs_f64).ok_or_else(|| format!("expected seconds from 0.01 to 1e9, found {text}"))
}

/// Parses a probability.
pub fn probability(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| format!("expected a probability from 0 to 1, found {text}"))
}

/// Parses a set-up address; the default port is used without one.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    text.parse()
        .or_else(|_| bare.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, PORT)))
        .or_else(|_| format!("[{bare}]:{PORT}").parse()) // with a scope, as fe80::1%2
        .or_else(|_| if text.contains(':') { peer(text) } else { peer(&format!("{text}:{PORT}")) })
        .map_err(|error| format!("expected an address such as 192.168.1.20 or [::1]:{PORT}, or a name: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_suffixes() {
        for (text, bytes) in
            [("0", 0), ("4096", 4096), ("4K", 4096), ("4KiB", 4096), ("8G", 8 << 30), ("1TiB", 1 << 40)]
        {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "K", "4Kb", "4 K", "-1", "4X", "99999999999T", "iB", "4iB"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
        assert_eq!((Size(8 << 30).to_string(), Size(1500).to_string()), ("8 GiB".into(), "1500 B".into()));
    }

    #[test]
    fn address_port_is_optional() {
        for (text, expected) in [
            ("192.168.1.20", "192.168.1.20:47910"),
            ("192.168.1.20:5", "192.168.1.20:5"),
            ("::1", "[::1]:47910"),
            ("[::1]", "[::1]:47910"),
            ("[::1]:5", "[::1]:5"),
            ("[fe80::1%2]:5", "[fe80::1%2]:5"),
            ("fe80::1%2", "[fe80::1%2]:47910"),
        ] {
            assert_eq!(address(text).map(|address| address.to_string()).as_deref(), Ok(expected));
        }
        assert!(address("probe").unwrap_err().contains("found probe"));
    }
}
