//! Values of settings that are neither plain numbers nor sizes, and their parsers.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

/// Criterion by which the shots of several links belong to one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Align {
    /// Shot number.
    #[default]
    Number,
    /// Timestamp, converted to one clock.
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

/// Compression of shots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// Bit planes, then LZ4.
    Lz4,
    /// Bit planes, then zstd.
    Zstd,
}

impl Compression {
    pub(super) const ALL: [Self; 3] = [Self::None, Self::Lz4, Self::Zstd];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Compression {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|codec| codec.name() == name);
        known.ok_or_else(|| format!("expected none, lz4 or zstd, found {name}"))
    }
}

/// Serialisation of values as text, by their `Display` and `FromStr`.
pub(super) mod text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use std::fmt::Display;
    use std::str::FromStr;

    pub fn serialize<T: Display, S: Serializer>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => serializer.collect_str(value),
            None => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        String::deserialize(deserializer)?.parse().map(Some).map_err(Error::custom)
    }
}

/// Parses `out = "run.h5"` or `out = ["/a/run.h5", "/b/run.h5"]`.
pub(super) fn one_or_many<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<PathBuf>>, D::Error> {
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

/// Parses the address of a peer: an address with a port, or a name with a port, which the system resolves.
///
/// # Errors
/// If there is no port, or the name has no address.
pub fn peer(text: &str) -> Result<SocketAddr, String> {
    let found = text.parse().map(Some).or_else(|_| text.to_socket_addrs().map(|mut addresses| addresses.next()));
    let why = match found {
        Ok(Some(address)) => return Ok(address),
        Ok(None) => "the name has no address".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(format!(
        "expected an address or a name with a port, such as [::1]:47910 or probe.lab:47910, found {text}: {why}"
    ))
}

/// Parses `probe = "probe.lab:47910"`.
pub(super) fn resolved_peer<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    peer(&String::deserialize(deserializer)?).map(Some).map_err(serde::de::Error::custom)
}

/// Parses a number as usual for queue pairs and keys: 4660 or 0x1234.
///
/// # Errors
/// If it is not a number below 2^32.
pub fn number(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("expected a number such as 4660 or 0x1234, below 2^32, found {text}"))
}

/// Returns the queue pair of a link, where link 0 has `first`.
///
/// # Errors
/// If it does not fit 24 bits, or is 0, which is reserved for subnet management.
pub fn queue_pair(first: u32, link: u8) -> Result<u32, String> {
    let pair = first.checked_add(link.into()).filter(|pair| first > 0 && *pair <= 0xff_ffff);
    pair.ok_or_else(|| {
        format!("expected --queue-pair from 1 to 0xffffff on all links, found {first:#x} and link {link}")
    })
}

#[cfg(test)]
mod tests {
    use super::super::Settings;
    use super::*;

    #[test]
    fn a_peer_may_be_a_host_name() {
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
    fn out_may_be_one_file_or_several() {
        let outs = |text: &str| toml::from_str::<Settings>(text).unwrap().out.map_or(0, |outs| outs.len());
        assert_eq!((outs("out = \"a.h5\""), outs("out = [\"/x/a.h5\", \"/y/a.h5\"]")), (1, 2));
    }
}
