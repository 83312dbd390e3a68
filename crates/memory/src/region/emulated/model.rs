//! Rates and latency of an emulated path, and their syntax.

use std::fmt;
use std::str::FromStr;

/// Lowest rate in bytes per second: with it a packet of 4 KiB takes 4 ms, for which the caller cannot be interrupted.
const MIN_RATE: u64 = 1_000_000;
/// Highest rate in bytes per second.
const MAX_RATE: u64 = 1_000_000_000_000;
/// Highest latency, in nanoseconds.
const MAX_LATENCY_NS: u64 = 1_000_000_000;
const RATE_UNITS: &[(&str, f64)] = &[("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3), ("B/s", 1.0)];
/// From the largest to the smallest. `s` is last because the others end with it.
const TIME_UNITS: &[(&str, f64)] = &[("ms", 1e6), ("us", 1e3), ("ns", 1.0), ("s", 1e9)];
/// The paths that were measured by Cilardo et al. (Sensors 2021, 21, 7759, section 4), by the names of their figures.
const PRESETS: &[(&str, PathModel)] = &[
    ("path1", PathModel::PATH1),
    ("path2", PathModel::PATH2),
    ("path3", PathModel::PATH3),
    ("path3-250mhz", PathModel::PATH3_250MHZ),
];

/// PathDirection of a transfer over a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathDirection {
    /// To the accelerator's memory.
    Write,
    /// From the accelerator's memory.
    Read,
}

/// Rate of each direction of a path, and its latency. The default is a path without limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathModel {
    /// Rate to the accelerator in bytes per second, from 1 to 10^12. `None`: not limited.
    pub write: Option<u64>,
    /// Rate from the accelerator in bytes per second, from 1 to 10^12. `None`: not limited.
    pub read: Option<u64>,
    /// Latency of an operation on an idle path in nanoseconds, at most 10^9.
    pub latency_ns: u64,
}

impl PathModel {
    /// Between the memories of two hosts (figure 3). Cilardo et al. state only that the rate "closely approaches
    /// theoretical peak values" of the EDR link: this is 100 Gbit/s in both directions.
    pub const PATH1: Self = Self::mb_per_s(12_500, 12_500);
    /// To the memory of an FPGA card below another host bridge than the network adapter (figure 4).
    pub const PATH2: Self = Self::mb_per_s(4_800, 1_200);
    /// To the memory of an FPGA card behind the same PCIe switch as the network adapter (figure 6).
    pub const PATH3: Self = Self::mb_per_s(10_000, 8_900);
    /// As [`Self::PATH3`], with the card's memory interface at 250 MHz instead of 450 MHz (figure 6).
    pub const PATH3_250MHZ: Self = Self::mb_per_s(7_600, 7_100);

    const fn mb_per_s(write: u64, read: u64) -> Self {
        Self { write: Some(write * 1_000_000), read: Some(read * 1_000_000), latency_ns: 0 }
    }

    /// Returns the rate of a direction in bytes per second, `None` if it is not limited.
    pub const fn rate(&self, direction: PathDirection) -> Option<u64> {
        match direction {
            PathDirection::Write => self.write,
            PathDirection::Read => self.read,
        }
    }

    /// Returns `true` if rates and latency are within the limits of the syntax: a model that another process has sent
    /// may have any values.
    pub fn is_within_limits(&self) -> bool {
        let is_allowed = |rate: Option<u64>| rate.is_none_or(|rate| (MIN_RATE..=MAX_RATE).contains(&rate));
        is_allowed(self.write) && is_allowed(self.read) && self.latency_ns <= MAX_LATENCY_NS
    }

    /// Returns the number of bytes that occupy a direction for at most this time in ns, `u64::MAX` if its rate is not
    /// limited.
    pub fn bytes_within(&self, direction: PathDirection, ns: u64) -> u64 {
        const NS_PER_S: u128 = 1_000_000_000;
        let bytes = |rate: u64| u64::try_from(u128::from(rate) * u128::from(ns) / NS_PER_S).unwrap_or(u64::MAX);
        self.rate(direction).map_or(u64::MAX, bytes)
    }

    /// Returns the time for which `bytes` occupy a direction, in picoseconds.
    pub(super) fn occupied_ps(&self, direction: PathDirection, bytes: usize) -> u128 {
        const PS_PER_S: u128 = 1_000_000_000_000;
        self.rate(direction).map_or(0, |rate| bytes as u128 * PS_PER_S / u128::from(rate.max(1)))
    }

    /// Changes one setting: `write=RATE`, `read=RATE` or `latency=TIME`.
    fn set(&mut self, setting: &str) -> Result<(), String> {
        let expected = || format!("expected write=RATE, read=RATE or latency=TIME, found {setting}");
        let (name, value) = setting.split_once('=').ok_or_else(expected)?;
        match name {
            "write" => self.write = Some(rate(value)?),
            "read" => self.read = Some(rate(value)?),
            "latency" => self.latency_ns = time_ns(value)?,
            _ => return Err(expected()),
        }
        Ok(())
    }
}

fn rate(text: &str) -> Result<u64, String> {
    quantity(text, RATE_UNITS)
        .filter(|rate| (MIN_RATE..=MAX_RATE).contains(rate))
        .ok_or_else(|| format!("expected a rate of 1 MB/s to 1000 GB/s such as 4.8GB/s (10^9 bytes), found {text}"))
}

fn time_ns(text: &str) -> Result<u64, String> {
    quantity(text, TIME_UNITS)
        .filter(|time| *time <= MAX_LATENCY_NS)
        .ok_or_else(|| format!("expected a latency of 0ns to 1s such as 5us, found {text}"))
}

/// Parses a number with one of the units, rounded to a whole number of the smallest unit.
fn quantity(text: &str, units: &[(&str, f64)]) -> Option<u64> {
    let (number, factor) = units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    let is_number = number.starts_with(|c: char| c.is_ascii_digit()) && !number.contains(['e', 'E']);
    let value = number.parse::<f64>().ok().filter(|_| is_number)? * factor;
    // Beyond 2^53 whole numbers are not exact.
    (value < 9e15).then_some(value.round() as u64)
}

/// Formats a whole number of the smallest unit in the largest unit that it reaches.
fn format_quantity(value: u64, units: &[(&str, f64)]) -> String {
    let descending = || units.iter().filter(|(unit, _)| *unit != "s");
    let fitting = descending().find(|(_, factor)| value as f64 >= *factor).or_else(|| descending().next_back());
    let (unit, factor) = fitting.copied().unwrap_or(("", 1.0));
    format!("{}{unit}", value as f64 / factor)
}

impl fmt::Display for PathModel {
    /// Formats the parameters as they are parsed. It is empty for a path without limits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _)) = PRESETS.iter().find(|(_, model)| model == self) {
            return f.write_str(name);
        }
        let rates = [("write", self.write), ("read", self.read)];
        let rates = rates.into_iter().filter_map(|(name, rate)| Some((name, format_quantity(rate?, RATE_UNITS))));
        let latency = (self.latency_ns > 0).then(|| ("latency", format_quantity(self.latency_ns, TIME_UNITS)));
        let settings: Vec<_> = rates.chain(latency).map(|(name, value)| format!("{name}={value}")).collect();
        f.write_str(&settings.join(":"))
    }
}

impl FromStr for PathModel {
    type Err = String;
    /// Parses a preset, settings, or a preset with settings that change it, separated by colons.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split(':').peekable();
        let preset = words.peek().and_then(|word| PRESETS.iter().find(|(name, _)| name == word));
        let mut model = preset.map_or_else(Self::default, |(_, model)| *model);
        if preset.is_some() {
            words.next();
        }
        let mut names = Vec::new();
        for word in words {
            model.set(word).map_err(|why| match word.contains('=') {
                true => why,
                false => format!("{why}; a path is path1, path2, path3 or path3-250mhz, and is first"),
            })?;
            let name = word.split('=').next();
            if names.contains(&name) {
                return Err(format!("{word} contradicts an earlier setting of the path"));
            }
            names.push(name);
        }
        Ok(model)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn presets_have_the_rates_of_the_measured_paths() {
        let rates = |name: &str| {
            let PathModel { write, read, latency_ns } = name.parse().unwrap();
            (write.unwrap() / 1_000_000, read.unwrap() / 1_000_000, latency_ns)
        };
        let names = ["path1", "path2", "path3", "path3-250mhz"];
        assert_eq!(names.map(rates), [(12_500, 12_500, 0), (4_800, 1_200, 0), (10_000, 8_900, 0), (7_600, 7_100, 0)]);
        assert_eq!(names.map(|name| name.parse::<PathModel>().unwrap().to_string()), names);
    }

    #[test]
    fn settings_change_a_preset_or_a_path_without_limits() {
        let model: PathModel = "path2:latency=5us".parse().unwrap();
        assert_eq!(model, PathModel { latency_ns: 5_000, ..PathModel::PATH2 });
        assert_eq!(model.to_string(), "write=4.8GB/s:read=1.2GB/s:latency=5us");
        let model: PathModel = "read=2500kB/s".parse().unwrap();
        assert_eq!(model, PathModel { read: Some(2_500_000), ..PathModel::default() });
        assert_eq!("write=4.8GB/s:read=1.2GB/s".parse(), Ok(PathModel::PATH2));
        assert_eq!("latency=0.5s".parse::<PathModel>().unwrap().latency_ns, 500_000_000);
    }

    #[test]
    fn malformed_path_is_refused_with_the_expected_form() {
        for (text, words) in [
            ("", "path1, path2, path3"),
            ("path9", "path1, path2, path3"),
            ("write=4.8", "4.8GB/s"),
            ("write=0B/s", "1 MB/s to 1000 GB/s"),
            ("write=0.1B/s", "1 MB/s to 1000 GB/s"),
            ("read=1e3GB/s", "1 MB/s to 1000 GB/s"),
            ("read=-1GB/s", "found -1GB/s"),
            ("read=infGB/s", "found infGB/s"),
            ("read=1001GB/s", "found 1001GB/s"),
            ("latency=5", "5us"),
            ("latency=2s", "0ns to 1s"),
            ("rate=1GB/s", "write=RATE"),
            ("read=1GB/s:path2", "is first"),
            ("read=1GB/s:read=2GB/s", "contradicts"),
            ("path2:", "found "),
        ] {
            let error = text.parse::<PathModel>().unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn limits_are_those_of_the_syntax() {
        let model = |write, read, latency_ns| PathModel { write, read, latency_ns };
        for good in [model(None, None, 0), model(Some(MIN_RATE), Some(MAX_RATE), MAX_LATENCY_NS), PathModel::PATH2] {
            assert!(good.is_within_limits(), "{good:?}");
        }
        for bad in [
            model(Some(0), None, 0),
            model(None, Some(MIN_RATE - 1), 0),
            model(None, Some(MAX_RATE + 1), 0),
            model(Some(u64::MAX), None, 0),
            model(None, None, MAX_LATENCY_NS + 1),
        ] {
            assert!(!bad.is_within_limits(), "{bad:?}");
        }
    }

    #[test]
    fn bytes_within_a_time_are_time_times_rate() {
        assert_eq!(PathModel::PATH2.bytes_within(PathDirection::Write, 1_000), 4_800);
        assert_eq!(PathModel::PATH2.bytes_within(PathDirection::Read, 1_000), 1_200);
        assert_eq!(PathModel::PATH2.bytes_within(PathDirection::Read, u64::MAX), u64::MAX);
        assert_eq!(PathModel::default().bytes_within(PathDirection::Read, 0), u64::MAX);
    }

    #[test]
    fn time_on_the_path_is_bytes_over_rate() {
        assert_eq!(PathModel::PATH2.occupied_ps(PathDirection::Write, 4_800), 1_000_000);
        assert_eq!(PathModel::PATH2.occupied_ps(PathDirection::Read, 4_800), 4_000_000);
        assert_eq!(PathModel::default().occupied_ps(PathDirection::Read, usize::MAX), 0);
        let slow = PathModel { read: Some(1), ..PathModel::default() };
        assert_eq!(slow.occupied_ps(PathDirection::Read, usize::MAX), usize::MAX as u128 * 1_000_000_000_000);
    }

    proptest! {
        #[test]
        fn path_parse_inverts_display(
            write in proptest::option::of(MIN_RATE..=MAX_RATE),
            read in proptest::option::of(MIN_RATE..=MAX_RATE),
            latency_ns in 0..=MAX_LATENCY_NS,
        ) {
            let model = PathModel { write, read, latency_ns };
            let text = model.to_string();
            if model != PathModel::default() {
                prop_assert_eq!(text.parse(), Ok(model));
            }
        }
    }
}
