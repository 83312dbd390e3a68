//! Parsing and display of quantities: a number and a unit.
//!
//! Decimal prefixes are powers of 1000; `Ki`, `Mi`, `Gi`, `Ti` are powers of 1024. A number without a unit, a unit of
//! another quantity and a negative number are refused. Zero is accepted; callers that need a positive value check it.

use std::fmt;
use std::str::FromStr;

/// Reason why a text is not the expected quantity.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum UnitError {
    /// The text does not begin with a number.
    #[error("expected {quantity} such as \"{example}\", found \"{text}\"")]
    Number {
        /// Name of the quantity.
        quantity: &'static str,
        /// Example.
        example: &'static str,
        /// Text found.
        text: String,
    },
    /// The unit does not belong to the quantity.
    #[error("expected {quantity} in {units} (as in \"{example}\"), found {} in \"{text}\"", named(unit))]
    Unit {
        /// Name of the quantity.
        quantity: &'static str,
        /// Units of the quantity.
        units: String,
        /// Example.
        example: &'static str,
        /// Unit found.
        unit: String,
        /// Text found.
        text: String,
    },
    /// The value is negative or too large.
    #[error("expected {quantity} from 0 to 1e18, found \"{text}\"")]
    Range {
        /// Name of the quantity.
        quantity: &'static str,
        /// Text found.
        text: String,
    },
}

fn named(unit: &str) -> String {
    if unit.is_empty() { "no unit".to_owned() } else { format!("the unit \"{unit}\"") }
}

/// A quantity with its units; the first unit has the factor 1.
pub trait Quantity: Copy {
    /// Name of the quantity in messages.
    const NAME: &'static str;
    /// Example in messages.
    const EXAMPLE: &'static str;
    /// Units with their factors to the base unit.
    const UNITS: &'static [(&'static str, f64)];
    /// Creates the quantity from a value in the base unit.
    fn of(value: f64) -> Self;
    /// Returns the value in the base unit.
    fn value(self) -> f64;
}

/// Parses `text` as a quantity.
///
/// # Errors
/// If the number, the unit or the range is wrong.
pub fn parse<Q: Quantity>(text: &str) -> Result<Q, UnitError> {
    let trimmed = text.trim();
    let starts_unit = |(at, c): (usize, char)| {
        let exponent =
            matches!(c, 'e' | 'E') && trimmed[at + 1..].starts_with(|c: char| c.is_ascii_digit() || c == '-');
        !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+') || exponent)
    };
    let split = trimmed.char_indices().find(|found| starts_unit(*found)).map_or(trimmed.len(), |(at, _)| at);
    let (number, unit) = (&trimmed[..split], trimmed[split..].trim());
    let not_a_number = || UnitError::Number { quantity: Q::NAME, example: Q::EXAMPLE, text: text.to_owned() };
    let number: f64 = number.parse().map_err(|_| not_a_number())?;
    let Some((_, factor)) = Q::UNITS.iter().find(|(name, _)| *name == unit) else {
        let units: Vec<_> = Q::UNITS.iter().map(|(name, _)| *name).collect();
        return Err(UnitError::Unit {
            quantity: Q::NAME,
            units: units.join(", "),
            example: Q::EXAMPLE,
            unit: unit.to_owned(),
            text: text.to_owned(),
        });
    };
    let value = number * factor;
    if !(0.0..=1e18).contains(&value) {
        return Err(UnitError::Range { quantity: Q::NAME, text: text.to_owned() });
    }
    Ok(Q::of(value))
}

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $label:literal, $example:literal, [$($unit:literal: $factor:expr),+ $(,)?]) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
        pub struct $name(pub f64);

        impl Quantity for $name {
            const NAME: &'static str = $label;
            const EXAMPLE: &'static str = $example;
            const UNITS: &'static [(&'static str, f64)] = &[$(($unit, $factor)),+];
            fn of(value: f64) -> Self {
                Self(value)
            }
            fn value(self) -> f64 {
                self.0
            }
        }

        impl FromStr for $name {
            type Err = UnitError;
            fn from_str(text: &str) -> Result<Self, UnitError> {
                parse(text)
            }
        }
    };
}

const KI: f64 = 1024.0;
const MI: f64 = KI * KI;
const GI: f64 = KI * MI;
const TI: f64 = KI * GI;

quantity! {
    /// Bytes.
    Bytes, "bytes", "256 MiB",
    ["B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": KI, "MiB": MI, "GiB": GI, "TiB": TI]
}
quantity! {
    /// Bits per second.
    Rate, "a data rate", "100 Gbit/s",
    ["bit/s": 1.0, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9, "Tbit/s": 1e12,
     "B/s": 8.0, "kB/s": 8e3, "MB/s": 8e6, "GB/s": 8e9, "TB/s": 8e12, "MiB/s": 8.0 * MI, "GiB/s": 8.0 * GI]
}
quantity! {
    /// Seconds.
    Seconds, "a time", "1.85 us", ["s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0]
}
quantity! {
    /// Events per second.
    Hertz, "a frequency", "19 kHz", ["Hz": 1.0, "kHz": 1e3, "MHz": 1e6, "GHz": 1e9]
}
quantity! {
    /// Samples per second of one channel.
    SampleRate, "a sample rate", "40 MS/s", ["S/s": 1.0, "kS/s": 1e3, "MS/s": 1e6, "GS/s": 1e9]
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0, &[(TI, "TiB"), (GI, "GiB"), (MI, "MiB"), (KI, "KiB"), (1.0, "B")])
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0, &[(1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s")])
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0, &[(1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")])
    }
}

impl fmt::Display for Hertz {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0, &[(1e9, "GHz"), (1e6, "MHz"), (1e3, "kHz"), (1.0, "Hz")])
    }
}

/// Formats with four significant digits in the largest unit in which the value is at least one.
fn scaled(f: &mut fmt::Formatter<'_>, value: f64, units: &[(f64, &str)]) -> fmt::Result {
    let last = units[units.len() - 1];
    let (factor, unit) = units.iter().copied().find(|(factor, _)| value >= *factor).unwrap_or(last);
    let number = value / factor;
    let is_whole = number == number.round() && number < 1e6;
    let digits = if is_whole { 0 } else { (3 - number.abs().log10().floor().clamp(0.0, 3.0) as i32) as usize };
    f.pad(&format!("{number:.digits$} {unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_parse_in_all_units_of_the_papers() {
        assert_eq!("40 MS/s".parse(), Ok(SampleRate(40e6)));
        assert_eq!("100 Gbit/s".parse(), Ok(Rate(100e9)));
        assert_eq!("12.8 GB/s".parse(), Ok(Rate(102.4e9)));
        assert_eq!("5100MB/s".parse(), Ok(Rate(40.8e9)));
        assert_eq!("256 MiB".parse(), Ok(Bytes(268_435_456.0)));
        assert_eq!("64 MB".parse(), Ok(Bytes(64e6)));
        assert_eq!("1e3 Hz".parse(), Ok(Hertz(1000.0)));
        assert!((("1.85 us".parse::<Seconds>().unwrap().0) - 1.85e-6).abs() < 1e-18);
    }

    #[test]
    fn invalid_quantities_are_refused_with_the_valid_units() {
        let error = "40 MHz".parse::<SampleRate>().unwrap_err().to_string();
        assert!(error.contains("S/s, kS/s, MS/s") && error.contains("the unit \"MHz\""), "{error}");
        assert!("40".parse::<Rate>().unwrap_err().to_string().contains("no unit"));
        assert!(matches!("fast".parse::<Rate>(), Err(UnitError::Number { .. })));
        assert!(matches!("-1 us".parse::<Seconds>(), Err(UnitError::Range { .. })));
        assert!(matches!("1e300 GB".parse::<Bytes>(), Err(UnitError::Range { .. })));
        assert!("".parse::<Bytes>().is_err() && "e".parse::<Bytes>().is_err() && "1 gbit/s".parse::<Rate>().is_err());
    }

    #[test]
    fn quantities_are_shown_with_four_digits() {
        assert_eq!(Rate(92.16e9).to_string(), "92.16 Gbit/s");
        assert_eq!(Bytes(268_435_456.0).to_string(), "256 MiB");
        assert_eq!(Seconds(51.85e-6).to_string(), "51.85 us");
        assert_eq!(Hertz(9818.36).to_string(), "9.818 kHz");
        assert_eq!(Hertz(0.0).to_string(), "0 Hz");
    }
}
