//! Timestamps (5.1.4, 5.1.5): integer seconds of one of three clocks, and a fraction of one of three kinds.

use super::word::WORD;
use crate::ParseError;
use crate::bytes::{Fields, append};
use arrayvec::ArrayVec;

/// Picoseconds per second.
pub const PS_PER_SECOND: u64 = 1_000_000_000_000;

/// Difference between TAI seconds since 1970 and GPS seconds since 6 January 1980.
pub const TAI_MINUS_GPS: u64 = 315_964_819;
/// Difference between TAI and UTC since 2017, in seconds.
const TAI_MINUS_UTC: u64 = 37;

/// Integer seconds of a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Seconds {
    /// UTC seconds since 1970, without leap seconds, as in POSIX.
    Utc(u32),
    /// GPS seconds since 6 January 1980: TAI less 19 seconds, without leap seconds.
    Gps(u32),
    /// Seconds of a clock that sender and receiver have agreed on.
    Other(u32),
}

/// Fractional part of a timestamp, or a sample count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fraction {
    /// Samples since the beginning of the second.
    Samples(u64),
    /// Picoseconds since the beginning of the second, less than 10^12.
    Picoseconds(u64),
    /// Samples since an origin that is unrelated to the seconds.
    FreeRunning(u64),
}

/// A timestamp; in a data packet, the time of its first sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Time {
    /// Integer seconds.
    pub seconds: Option<Seconds>,
    /// Fraction of a second.
    pub fraction: Option<Fraction>,
}

impl Time {
    pub(super) fn parse(seconds: u32, fraction: u32, fields: &mut Fields<'_>) -> Result<Self, ParseError> {
        let seconds = match seconds {
            1 => Some(Seconds::Utc(fields.u32()?)),
            2 => Some(Seconds::Gps(fields.u32()?)),
            3 => Some(Seconds::Other(fields.u32()?)),
            _ => None,
        };
        let fraction = match fraction {
            1 => Some(Fraction::Samples(fields.u64()?)),
            2 => match fields.u64()? {
                found @ PS_PER_SECOND.. => {
                    let (what, max) = ("picoseconds of a VITA 49 timestamp", PS_PER_SECOND - 1);
                    return Err(ParseError::Range { what, min: 0, max, found });
                }
                ps => Some(Fraction::Picoseconds(ps)),
            },
            3 => Some(Fraction::FreeRunning(fields.u64()?)),
            _ => None,
        };
        Ok(Self { seconds, fraction })
    }

    /// Returns the header's codes (TSI, TSF) for the kinds of seconds and fraction.
    pub(super) fn codes(self) -> (u32, u32) {
        let seconds = match self.seconds {
            None => 0,
            Some(Seconds::Utc(_)) => 1,
            Some(Seconds::Gps(_)) => 2,
            Some(Seconds::Other(_)) => 3,
        };
        let fraction = match self.fraction {
            None => 0,
            Some(Fraction::Samples(_)) => 1,
            Some(Fraction::Picoseconds(_)) => 2,
            Some(Fraction::FreeRunning(_)) => 3,
        };
        (seconds, fraction)
    }

    pub(super) fn emit<const N: usize>(self, out: &mut ArrayVec<u8, N>) {
        if let Some(Seconds::Utc(s) | Seconds::Gps(s) | Seconds::Other(s)) = self.seconds {
            append(out, &s.to_be_bytes());
        }
        if let Some(Fraction::Samples(n) | Fraction::Picoseconds(n) | Fraction::FreeRunning(n)) = self.fraction {
            append(out, &n.to_be_bytes());
        }
        debug_assert!(out.len().is_multiple_of(WORD));
    }

    /// Returns the number of samples from `earlier` to `self` at `rate` Hz, negative if `earlier` is later. Picoseconds
    /// are rounded to the nearest sample.
    ///
    /// Returns `None` if the two are not of one clock. A free-running count needs no seconds; other fractions count
    /// from their second, and are taken to be of the same second if neither timestamp has seconds.
    pub fn samples_since(self, earlier: Self, rate: u64) -> Option<i128> {
        let fraction = match (self.fraction, earlier.fraction) {
            (Some(Fraction::FreeRunning(now)), Some(Fraction::FreeRunning(then))) => {
                return Some(i128::from(now) - i128::from(then));
            }
            (Some(Fraction::Samples(now)), Some(Fraction::Samples(then))) => i128::from(now) - i128::from(then),
            (Some(Fraction::Picoseconds(now)), Some(Fraction::Picoseconds(then))) => {
                let (second, ps) = (i128::from(PS_PER_SECOND), i128::from(now) - i128::from(then));
                (ps.checked_mul(rate.into())? + second / 2).div_euclid(second)
            }
            (None, None) => 0,
            _ => return None,
        };
        let seconds = match (self.seconds, earlier.seconds) {
            (Some(Seconds::Utc(now)), Some(Seconds::Utc(then)))
            | (Some(Seconds::Gps(now)), Some(Seconds::Gps(then)))
            | (Some(Seconds::Other(now)), Some(Seconds::Other(then))) => i128::from(now) - i128::from(then),
            (None, None) if self.fraction.is_some() => 0,
            _ => return None,
        };
        Some(seconds * i128::from(rate) + fraction)
    }

    /// Returns TAI nanoseconds since 1970, or `None` if the clock or the origin of the fraction is unknown. UTC is
    /// converted with the difference of 37 seconds that is valid since 2017.
    pub fn tai_ns(self, rate: u64) -> Option<u64> {
        let seconds = match self.seconds? {
            Seconds::Utc(s) => u64::from(s) + TAI_MINUS_UTC,
            Seconds::Gps(s) => u64::from(s) + TAI_MINUS_GPS,
            Seconds::Other(_) => return None,
        };
        let ns = match self.fraction {
            None => 0,
            Some(Fraction::Samples(n)) => u128::from(n) * 1_000_000_000 / u128::from(rate.max(1)),
            Some(Fraction::Picoseconds(ps)) => u128::from(ps / 1000),
            Some(Fraction::FreeRunning(_)) => return None,
        };
        u64::try_from(u128::from(seconds) * 1_000_000_000 + ns).ok()
    }

    /// Returns the GPS timestamp of TAI picoseconds since 1970, or `None` outside its 2^32 seconds.
    pub fn from_tai_ps(ps: u128) -> Option<Self> {
        let ps = ps.checked_sub(u128::from(TAI_MINUS_GPS) * u128::from(PS_PER_SECOND))?;
        let seconds = u32::try_from(ps / u128::from(PS_PER_SECOND)).ok()?;
        let fraction = Fraction::Picoseconds((ps % u128::from(PS_PER_SECOND)) as u64);
        Some(Self { seconds: Some(Seconds::Gps(seconds)), fraction: Some(fraction) })
    }

    /// Returns the timestamp `samples` later at `rate` Hz; picoseconds are rounded down.
    ///
    /// Seconds wrap at 2^32, as on the wire. A rate of 0 counts as 1. Without a fraction, only whole seconds advance.
    #[must_use]
    pub fn after(self, samples: u64, rate: u64) -> Self {
        let (wide, rate) = (u128::from(samples), u128::from(rate.max(1)));
        let second = u128::from(PS_PER_SECOND);
        let (carried, fraction) = match self.fraction {
            Some(Fraction::FreeRunning(count)) => (0, Some(Fraction::FreeRunning(count.wrapping_add(samples)))),
            Some(Fraction::Samples(count)) => {
                let total = u128::from(count) + wide;
                (total / rate, Some(Fraction::Samples((total % rate) as u64)))
            }
            Some(Fraction::Picoseconds(ps)) => {
                let total = u128::from(ps) + wide % rate * second / rate;
                (wide / rate + total / second, Some(Fraction::Picoseconds((total % second) as u64)))
            }
            None => (wide / rate, None),
        };
        let carried = carried as u32;
        let seconds = self.seconds.map(|seconds| match seconds {
            Seconds::Utc(s) => Seconds::Utc(s.wrapping_add(carried)),
            Seconds::Gps(s) => Seconds::Gps(s.wrapping_add(carried)),
            Seconds::Other(s) => Seconds::Other(s.wrapping_add(carried)),
        });
        Self { seconds, fraction }
    }
}
