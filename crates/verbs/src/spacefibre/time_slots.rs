//! Time-slots of virtual channels (ECSS 5.7.4.3): which of the 64 a channel may send in, and which one it is now.

use crate::engine::Nanos;
use serde::{Deserialize, Serialize};
use shotline_spacefibre::qos::{ALL_SLOTS, TIME_SLOTS};
use std::fmt;
use std::str::FromStr;

/// Duration of a time-slot. A schedule of 16 ms is shorter than the timeouts of queue pairs.
pub(super) const TIME_SLOT: Nanos = 250_000;

/// Returns the time-slot at this time of the monotonic clock.
pub fn time_slot(now: Nanos) -> u8 {
    (now / TIME_SLOT % u64::from(TIME_SLOTS)) as u8
}

/// Returns the time at which the next time-slot begins in which one of these channels may send, of those that may not send
/// at this time. Each is given by its time-slots, one bit each; `None` if there is no such channel.
pub(super) fn next_start(now: Nanos, waiting: impl Iterator<Item = u64>) -> Option<Nanos> {
    let slot = u32::from(time_slot(now));
    let slots = waiting.filter(|slots| slots >> slot & 1 == 0).fold(0, |all, slots| all | slots);
    let after = u64::from(slots.rotate_right(slot).trailing_zeros());
    (slots != 0).then(|| (now / TIME_SLOT + after) * TIME_SLOT)
}

/// Time-slots in which frames of a channel may start, one bit each; written as `0-31+48-63`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TimeSlots(u64);

impl TimeSlots {
    /// All time-slots.
    pub const ALL: Self = Self(ALL_SLOTS);

    /// Creates time-slots from a bit for each; `None` if there is none.
    pub fn new(bits: u64) -> Option<Self> {
        (bits != 0).then_some(Self(bits))
    }
    /// Returns a bit for each time-slot.
    pub fn bits(self) -> u64 {
        self.0
    }
}

impl fmt::Display for TimeSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut slot = 0;
        while slot < u32::from(TIME_SLOTS) {
            let first = slot + (self.0 >> slot).trailing_zeros();
            if first >= u32::from(TIME_SLOTS) {
                break;
            }
            let end = first + (self.0 >> first).trailing_ones();
            let plus = if self.0 & ((1 << first) - 1) == 0 { "" } else { "+" };
            write!(f, "{plus}{first}")?;
            if end - 1 > first {
                write!(f, "-{}", end - 1)?;
            }
            slot = end;
        }
        Ok(())
    }
}

impl FromStr for TimeSlots {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("expected time-slots from 0 to 63, such as 0-31+48-63, found {text}");
        let slot = |text: &str| text.parse::<u8>().ok().filter(|slot| *slot < TIME_SLOTS).ok_or_else(expected);
        let mut bits = 0;
        for range in text.split('+') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (slot(first)?, slot(last)?);
            if first > last {
                return Err(expected());
            }
            bits |= ALL_SLOTS >> (TIME_SLOTS - 1 - last) & ALL_SLOTS << first;
        }
        Ok(Self(bits))
    }
}

impl TryFrom<String> for TimeSlots {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<TimeSlots> for String {
    fn from(slots: TimeSlots) -> Self {
        slots.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_slots_round_trip() {
        for (text, bits) in [
            ("0-63", u64::MAX),
            ("0", 1),
            ("63", 1 << 63),
            ("0-31+48-63", 0xFFFF_0000_FFFF_FFFF),
            ("1+3-4+62", 1 << 1 | 3 << 3 | 1 << 62),
        ] {
            assert_eq!(text.parse(), Ok(TimeSlots(bits)), "{text}");
            assert_eq!(TimeSlots(bits).to_string(), text);
        }
        assert_eq!("0-3+2-5".parse(), Ok(TimeSlots(0x3F)), "ranges may overlap");
    }

    #[test]
    fn invalid_time_slots_are_refused_with_the_form() {
        for text in ["", "64", "-1", "3-1", "0-64", "0-", "0+", "a", "0-1-2"] {
            let error = text.parse::<TimeSlots>().unwrap_err();
            assert!(error.contains("0-31+48-63") && error.ends_with(text), "{error}");
        }
        assert_eq!(TimeSlots::new(0), None);
    }

    #[test]
    fn schedule_repeats_after_64_time_slots() {
        assert_eq!([0, TIME_SLOT - 1, TIME_SLOT, 63 * TIME_SLOT, 64 * TIME_SLOT].map(time_slot), [0, 0, 1, 63, 0]);
    }

    #[test]
    fn next_start_is_that_of_the_first_waiting_channel() {
        let start = |now, waiting: &[u64]| next_start(now, waiting.iter().copied());
        let at = |slot: u64| Some(slot * TIME_SLOT);
        assert_eq!(start(0, &[]), None, "no channel waits");
        assert_eq!(start(3 * TIME_SLOT, &[1 << 3, ALL_SLOTS]), None, "all may send now, and wait for something else");
        assert_eq!(start(3 * TIME_SLOT, &[1 << 3 | 1 << 4, 1 << 9]), at(9), "the first of them may send now");
        assert_eq!(start(3 * TIME_SLOT, &[1 << 9, 1 << 7, 1]), at(7));
        assert_eq!(start(4 * TIME_SLOT - 1, &[1 << 4]), at(4), "within a time-slot");
        assert_eq!(start(640 * TIME_SLOT + 63 * TIME_SLOT, &[1]), at(704), "in the next schedule");
        assert_eq!(start(640 * TIME_SLOT + 5, &[1 << 63]), at(703));
    }

    #[test]
    fn no_earlier_time_slot_than_the_next_start_is_one_to_send_in() {
        for seed in shotline_testing::seeds(0..200) {
            let mut random = shotline_random::SplitMix64::new(seed);
            let mut slots = || random.next_u64() & random.next_u64() & random.next_u64() & random.next_u64();
            let waiting = [slots(), slots(), slots()];
            let now = random.below(1 << 30);
            let waits =
                waiting.iter().filter(|slots| **slots >> time_slot(now) & 1 == 0).fold(0, |all, slots| all | slots);
            let mut begins = (1..=64).map(|after| (now / TIME_SLOT + after) * TIME_SLOT);
            let expected = begins.find(|begin| waits >> time_slot(*begin) & 1 == 1);
            assert_eq!(next_start(now, waiting.into_iter()), expected);
        }
    }
}
