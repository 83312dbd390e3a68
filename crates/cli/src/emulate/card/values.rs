//! Values of the arguments of `shotline emulate card`.

use std::ops::RangeInclusive;
use std::str::FromStr;

/// Lengths of generated frames in bytes, with FCS.
const LENGTHS: RangeInclusive<u16> = 64..=9000;

/// A range of lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// First length.
    pub first: u16,
    /// Last length.
    pub last: u16,
}

impl FromStr for Lengths {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        let lengths = length(first).zip(length(last)).map(|(first, last)| Self { first, last });
        lengths
            .filter(|lengths| lengths.first <= lengths.last)
            .ok_or_else(|| format!("expected lengths such as 64..1526 from 64 to 9000 bytes, found {text}"))
    }
}

fn length(text: &str) -> Option<u16> {
    text.parse().ok().filter(|length| LENGTHS.contains(length))
}

/// Lengths and their shares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix(pub Vec<(u16, u32)>);

impl FromStr for Mix {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let words = if text == "imix" { "64:7,594:4,1518:1" } else { text };
        let part = |part: &str| {
            let (bytes, share) = part.split_once(':')?;
            Some((length(bytes)?, share.parse().ok().filter(|share| (1..=1_000_000).contains(share))?))
        };
        let parts = words.split(',').map(part).collect::<Option<Vec<_>>>();
        parts.map(Self).ok_or_else(|| {
            format!("expected imix, or LENGTH:SHARE,... such as 64:60,1518:40 with 64 to 9000 bytes, found {text}")
        })
    }
}

/// Parses a rate in Gbit/s, with or without a G.
pub fn rate(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('G').unwrap_or(text).parse().ok().filter(|gbps| (1.0..=200.0).contains(gbps));
    number.ok_or_else(|| format!("expected Gbit/s from 1 to 200, found {text}"))
}

/// Parses the bytes of a buffer.
pub fn buffer(text: &str) -> Result<u16, String> {
    let number = text.parse::<u16>().ok().filter(|bytes| (8..=16_376).contains(bytes) && bytes.is_multiple_of(8));
    number.ok_or_else(|| format!("expected a multiple of 8 from 8 to 16376 bytes, found {text}"))
}

/// Parses the bytes of a header.
pub fn header(text: &str) -> Result<u8, String> {
    let number = text.parse::<u8>().ok().filter(|bytes| bytes.is_multiple_of(8));
    number.ok_or_else(|| format!("expected 0 for no header split, or a multiple of 8 up to 248 bytes, found {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_mixes_are_parsed_within_limits() {
        assert_eq!("64..1526".parse(), Ok(Lengths { first: 64, last: 1526 }));
        assert_eq!("9000".parse(), Ok(Lengths { first: 9000, last: 9000 }));
        assert_eq!("64:1,100:20".parse(), Ok(Mix(vec![(64, 1), (100, 20)])));
        assert_eq!("imix".parse(), "64:7,594:4,1518:1".parse::<Mix>());
        for bad in ["", "63..70", "100..99", "64..9001", "64-70"] {
            assert!(bad.parse::<Lengths>().unwrap_err().contains("64..1526"), "{bad}");
        }
        for bad in ["", "64", "64:0", "63:1", "64:1,", "imix,64:1"] {
            assert!(bad.parse::<Mix>().unwrap_err().contains("64:60,1518:40"), "{bad}");
        }
        assert_eq!((rate("200G"), rate("1.5"), buffer("8"), header("248")), (Ok(200.0), Ok(1.5), Ok(8), Ok(248)));
        assert!(rate("201").is_err() && rate("nan").is_err() && buffer("12").is_err() && header("256").is_err());
    }
}
