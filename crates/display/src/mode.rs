//! Size and refresh rate of a display.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Size and refresh rate of the frames of a display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Refreshes in 1000 seconds (mHz).
    pub refresh_mhz: u32,
}

/// Maximum width and height in pixels: X11 has 16 bits for them, of which one is a sign.
const MAX_SIDE: u32 = 32_767;
/// Maximum refresh rate in mHz.
pub(crate) const MAX_REFRESH: u32 = 1_000_000;

impl Mode {
    /// Returns the mode if a display can have it.
    ///
    /// # Errors
    /// If width, height or rate are 0 or too large.
    pub fn checked(self) -> Result<Self, String> {
        let sides = [self.width, self.height].into_iter().all(|side| (1..=MAX_SIDE).contains(&side));
        if sides && (1..=MAX_REFRESH).contains(&self.refresh_mhz) {
            Ok(self)
        } else {
            Err(format!("expected frames of up to {MAX_SIDE}x{MAX_SIDE}@{}, found {self}", MAX_REFRESH / 1000))
        }
    }

    /// Returns the refresh rate in hertz.
    pub fn refresh_hz(self) -> f64 {
        f64::from(self.refresh_mhz) / 1000.0
    }

    /// Returns the time between two refreshes.
    pub fn interval(self) -> Duration {
        Duration::from_secs_f64(1000.0 / f64::from(self.refresh_mhz.max(1)))
    }

    /// Returns the number of the refresh at this time after refresh 0.
    pub(crate) fn refresh_at(self, time: Duration) -> u64 {
        (time.as_nanos() * u128::from(self.refresh_mhz) / 1_000_000_000_000) as u64
    }

    /// Returns the time of a refresh after refresh 0, rounded up, so that [`Self::refresh_at`] of it is that refresh.
    pub(crate) fn time_of(self, refresh: u64) -> Duration {
        let nanos = (u128::from(refresh) * 1_000_000_000_000).div_ceil(u128::from(self.refresh_mhz.max(1)));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}@{}", self.width, self.height, self.refresh_hz())
    }
}

/// Parses `WIDTHxHEIGHT@HERTZ`.
impl FromStr for Mode {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let malformed = || {
            format!(
                "expected WIDTHxHEIGHT@HERTZ of up to {MAX_SIDE}x{MAX_SIDE}@1000, such as 2560x1440@60, found {text}"
            )
        };
        let parts = text.split_once('@').and_then(|(size, rate)| size.split_once('x').map(|(w, h)| (w, h, rate)));
        let (width, height, rate) = parts.ok_or_else(malformed)?;
        let side = |word: &str| word.parse().map_err(|_| malformed());
        let refresh = rate.parse::<f64>().map_err(|_| malformed())? * 1000.0;
        // The conversion saturates.
        let mode = Self { width: side(width)?, height: side(height)?, refresh_mhz: refresh.round() as u32 };
        mode.checked().map_err(|_| malformed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_parse_inverts_display() {
        for text in ["2560x1440@60", "1x1@0.001", "3840x2160@59.94", "32767x32767@1000"] {
            assert_eq!(text.parse::<Mode>().unwrap().to_string(), text);
        }
        for text in
            ["", "2560x1440", "2560@60", "0x5@60", "5x0@60", "32768x5@60", "5x5@0", "5x5@1001", "5x5@nan", "-5x5@60"]
        {
            let error = text.parse::<Mode>().unwrap_err();
            assert!(error.contains("such as 2560x1440@60") && error.ends_with(&format!("found {text}")), "{error}");
        }
    }

    #[test]
    fn refresh_at_the_time_of_a_refresh_is_that_refresh() {
        for refresh_mhz in [1, 999, 59_940, 60_000, 143_981, MAX_REFRESH] {
            let mode = Mode { width: 1, height: 1, refresh_mhz };
            for refresh in [0, 1, 2, 59, 60, 3_599, 1_000_003] {
                let time = mode.time_of(refresh);
                assert_eq!(mode.refresh_at(time), refresh, "{mode}");
                let before = time.checked_sub(Duration::from_nanos(1));
                assert!(before.is_none_or(|before| mode.refresh_at(before) < refresh), "{mode}");
            }
        }
    }
}
