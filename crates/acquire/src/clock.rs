//! Clock of a run's timestamps: TAI, with its source and health.
//!
//! | source | what it reads | locked means |
//! |---|---|---|
//! | `system` | the realtime clock plus TAI - UTC | disciplined (not `STA_UNSYNC`), and the kernel has TAI - UTC |
//! | `ptp:/dev/ptpN` | a network card's clock, in TAI as PTP prescribes | it was read, within 60 s of system TAI |
//!
//! The kernel stamps received packets with the realtime clock; [`Clock::tai_from_realtime`] converts that to TAI.

use rustix::fd::{AsFd, OwnedFd};
use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// TAI - UTC in seconds since 2017, for kernels without it.
pub const TAI_MINUS_UTC_S: i64 = 37;
/// Maximum difference of a card's clock from the system's TAI.
const MAX_DIFFERENCE_NS: i64 = 60_000_000_000;

/// Source of time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Source {
    /// The kernel's clock.
    #[default]
    System,
    /// A network card's clock.
    Ptp(PathBuf),
}

impl FromStr for Source {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("ptp:")) {
            ("system", _) => Ok(Self::System),
            (_, Some(path)) if !path.is_empty() => Ok(Self::Ptp(path.into())),
            _ => Err(format!("expected system or ptp:/dev/ptpN, found {text}")),
        }
    }
}

impl TryFrom<String> for Source {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Source> for String {
    fn from(source: Source) -> Self {
        source.to_string()
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::System => f.write_str("system"),
            Self::Ptp(path) => write!(f, "ptp:{}", path.display()),
        }
    }
}

/// Error of opening a clock.
#[derive(Debug, thiserror::Error)]
pub enum ClockError {
    /// The card's clock cannot be read.
    #[error("cannot read the PTP clock {}: {source}; ls -l /dev/ptp* lists the clocks and their permissions", path.display())]
    Ptp {
        /// Path of its device.
        path: PathBuf,
        /// The kernel's reason.
        source: std::io::Error,
    },
}

/// Accuracy of a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Health {
    /// Set if the clock follows a reference.
    pub locked: bool,
    /// Upper bound of the error in nanoseconds, by the kernel; for a card, the duration of its reading. 0 if unknown.
    pub max_error_ns: u64,
    /// TAI - UTC in use, in seconds.
    pub tai_minus_utc_s: i64,
}

/// A clock that shows TAI.
#[derive(Debug)]
pub struct Clock {
    source: Source,
    device: Option<OwnedFd>,
    /// Offset that converts the realtime clock to TAI, in nanoseconds.
    lead_ns: AtomicI64,
}

impl Clock {
    /// Opens a source and reads it once.
    ///
    /// # Errors
    /// If a card's clock cannot be opened or read.
    pub fn open(source: &Source) -> Result<Self, ClockError> {
        let mut clock = Self { source: source.clone(), device: None, lead_ns: AtomicI64::new(0) };
        if let Source::Ptp(path) = source {
            let failed = |source| ClockError::Ptp { path: path.clone(), source };
            let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
            let fd = rustix::fs::open(path, flags, rustix::fs::Mode::empty()).map_err(|errno| failed(errno.into()))?;
            clock.device = Some(fd);
            clock.read_card().map_err(failed)?;
        }
        clock.refresh();
        Ok(clock)
    }

    /// Returns the source.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Returns the current TAI in nanoseconds.
    pub fn now_tai_ns(&self) -> u64 {
        self.tai_from_realtime(nanoseconds(clock_gettime(ClockId::Realtime)))
    }

    /// Converts a time of the realtime clock, as in the kernel's packet stamps, to TAI.
    pub fn tai_from_realtime(&self, ns: u64) -> u64 {
        ns.saturating_add_signed(self.lead_ns.load(Relaxed))
    }

    /// Measures the source's lead over the realtime clock again. Call it regularly, because the two drift.
    pub fn refresh(&self) -> Health {
        let (utc, kernel) = (self.tai_minus_utc(), kernel_health());
        let system_ns = utc.unwrap_or(TAI_MINUS_UTC_S) * 1_000_000_000;
        let mut health = Health {
            locked: kernel.0 && utc.is_some(),
            max_error_ns: kernel.1,
            tai_minus_utc_s: utc.unwrap_or(TAI_MINUS_UTC_S),
        };
        let mut lead = system_ns;
        if self.device.is_some() {
            match self.read_card() {
                Ok((card_lead, width)) => {
                    lead = card_lead;
                    health.locked = (card_lead - system_ns).abs() < MAX_DIFFERENCE_NS;
                    health.max_error_ns = width;
                }
                Err(_) => health.locked = false,
            }
        }
        self.lead_ns.store(lead, Relaxed);
        health
    }

    /// Returns TAI - UTC in seconds, if the kernel has it.
    fn tai_minus_utc(&self) -> Option<i64> {
        let utc = nanoseconds(clock_gettime(ClockId::Realtime)) as i64;
        let tai = clock_gettime_dynamic(DynamicClockId::Tai).ok().map(nanoseconds)? as i64;
        // The difference is whole seconds, apart from the time between the two readings.
        Some((tai - utc + 500_000_000).div_euclid(1_000_000_000)).filter(|seconds| *seconds != 0)
    }

    /// Returns the card's lead over the realtime clock and the duration of the reading, in ns: the quickest of five.
    fn read_card(&self) -> std::io::Result<(i64, u64)> {
        let Some(fd) = &self.device else { return Err(std::io::ErrorKind::NotFound.into()) };
        let mut best = None;
        for _ in 0..5 {
            let before = nanoseconds(clock_gettime(ClockId::Realtime)) as i64;
            let card = clock_gettime_dynamic(DynamicClockId::Dynamic(fd.as_fd()))?;
            let after = nanoseconds(clock_gettime(ClockId::Realtime)) as i64;
            let width = after.saturating_sub(before).max(0) as u64;
            if best.is_none_or(|(_, narrowest)| width < narrowest) {
                best = Some((nanoseconds(card) as i64 - (before + (after - before) / 2), width));
            }
        }
        best.ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }
}

fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns whether the kernel's clock is disciplined, and its bound on the error in nanoseconds.
fn kernel_health() -> (bool, u64) {
    crate::sys::adjtimex().map_or((false, 0), |(synchronised, max_error_us)| {
        (synchronised, if synchronised { max_error_us.saturating_mul(1000) } else { 0 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_shows_tai_and_its_health() {
        let clock = Clock::open(&Source::System).unwrap();
        let health = clock.refresh();
        let utc = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
        let tai_minus_utc_ns = health.tai_minus_utc_s as u64 * 1_000_000_000;
        let (before, tai, after) = (utc(), clock.now_tai_ns(), utc());
        assert!(
            (before + tai_minus_utc_ns..=after + tai_minus_utc_ns).contains(&tai),
            "{before}, {tai}, {after}, {health:?}"
        );
        assert_eq!(clock.tai_from_realtime(5), tai_minus_utc_ns + 5);
    }

    #[test]
    fn clock_sources_are_parsed_and_others_refused() {
        for text in ["system", "ptp:/dev/ptp0"] {
            assert_eq!(text.parse::<Source>().unwrap().to_string(), text);
        }
        assert!("ptp:".parse::<Source>().unwrap_err().contains("expected system or ptp:/dev/ptpN"));
        let error = Clock::open(&Source::Ptp("/nonexistent/ptp9".into())).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/ptp9") && error.contains("ls -l /dev/ptp*"), "{error}");
        let regular = Clock::open(&Source::Ptp("/proc/self/stat".into())).unwrap_err();
        assert!(matches!(regular, ClockError::Ptp { .. }), "a file is not a clock");
    }
}
