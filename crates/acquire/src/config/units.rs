//! Numbers with a unit.

use serde::{Deserialize, Serialize};
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_accept_only_binary_units() {
        assert_eq!("3GiB".parse(), Ok(Bytes(3 << 30)));
        assert_eq!("17".parse(), Ok(Bytes(17)));
        assert!("3GB".parse::<Bytes>().is_err() && "".parse::<Bytes>().is_err());
        assert!("99999999999TiB".parse::<Bytes>().is_err());
    }
}
