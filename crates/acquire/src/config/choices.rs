//! Choices that settings make: sender, sink, shot pacing, compression and alignment.

use super::invalid::{InvalidSetting, invalid};
use super::settings::{Key, Settings};
use super::values::{Align, Compression};
use crate::align::AlignBy;
use shotline_store::codec::Codec;
use shotline_wire::framing::Kind;
use shotline_wire::setup::Mode;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Range of useful zstd levels.
const ZSTD_LEVELS: std::ops::RangeInclusive<i32> = -7..=22;
/// Range of shot rates that set-up can request, in Hz.
const RATES_HZ: std::ops::RangeInclusive<f64> = 0.001..=1e9;

/// Sender of the shots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// A probe that takes set-up at this address.
    Probe(SocketAddr),
    /// A sender without set-up, which sends to this local address.
    Listen(SocketAddr),
}

impl Sender {
    /// Returns the address in the settings: the probe's, or the local one.
    pub fn address(self) -> SocketAddr {
        match self {
            Self::Probe(address) | Self::Listen(address) => address,
        }
    }
}

/// Destination of the shots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sink<'a> {
    /// None: shots are received, checked and counted.
    Discard,
    /// A packet capture.
    Capture(&'a Path),
    /// A recording, which may have several files at once.
    Recording(&'a [PathBuf]),
}

/// Start condition of a probe's shots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ShotStart {
    /// The end of the shot before.
    FreeRunning,
    /// The probe's external trigger.
    ExternalTrigger,
    /// A clock of this rate, in Hz.
    Rate(f64),
    /// A clock with the rate that gives this payload on all links together, in Gbit/s.
    Bandwidth(f64),
}

impl ShotStart {
    /// Returns the mode for set-up, for shots of `shot_bits` on all links together.
    ///
    /// # Errors
    /// If set-up cannot request the rate.
    pub fn mode(self, shot_bits: f64) -> Result<Mode, InvalidSetting> {
        let (hz, found, key) = match self {
            Self::FreeRunning => return Ok(Mode::FreeRunning),
            Self::ExternalTrigger => return Ok(Mode::ExternalTrigger),
            Self::Rate(hz) => (hz, format!("--rate-hz {hz}"), Key::rate_hz),
            Self::Bandwidth(gbps) => {
                let hz = gbps * 1e9 / shot_bits;
                (hz, format!("--gbps {gbps}, which is {hz} shots/s"), Key::gbps)
            }
        };
        if RATES_HZ.contains(&hz) {
            Ok(Mode::FixedRate { millihertz: (hz * 1000.0).round() as u64 })
        } else {
            Err(invalid(key, format!("expected 0.001 to 1e9 shots/s, found {found}")))
        }
    }
}

impl Settings {
    /// Returns the sender of the shots.
    ///
    /// # Errors
    /// Unless exactly one sender is given.
    pub(super) fn sender(&self) -> Result<Sender, InvalidSetting> {
        match (self.probe, self.listen) {
            (Some(probe), None) => Ok(Sender::Probe(probe)),
            (None, Some(listen)) => Ok(Sender::Listen(listen)),
            (None, None) => Err(invalid(
                Key::probe,
                "specify the probe's set-up address with --probe, or the local address that a sender without set-up sends to with --listen",
            )),
            (Some(_), Some(_)) => Err(invalid(
                Key::listen,
                "give one of --probe and --listen: --probe is for senders with set-up, --listen for those without",
            )),
        }
    }

    /// Returns the framing of the packets.
    pub fn framing(&self) -> Kind {
        self.framing.unwrap_or(Kind::Ud)
    }

    /// Returns the destination of the shots.
    ///
    /// # Errors
    /// Unless a file is given or shots are discarded.
    pub(super) fn sink(&self) -> Result<Sink<'_>, InvalidSetting> {
        match self.out.as_deref() {
            _ if self.discard == Some(true) => Ok(Sink::Discard),
            None | Some([]) => Err(invalid(Key::out, "specify a file to record to with --out, or --discard the shots")),
            Some([out]) if is_capture(out) => Ok(Sink::Capture(out)),
            Some(outs) => Ok(Sink::Recording(outs)),
        }
    }

    /// Returns the start condition of a probe's shots.
    ///
    /// # Errors
    /// If more than one is given, or set-up cannot request the rate.
    pub(super) fn shot_start(&self) -> Result<ShotStart, InvalidSetting> {
        let shot_start = match (self.rate_hz, self.gbps, self.external_trigger.unwrap_or(false)) {
            (None, None, false) => ShotStart::FreeRunning,
            (None, None, true) => ShotStart::ExternalTrigger,
            (Some(hz), None, false) => ShotStart::Rate(hz),
            // The rate follows from the shape of a shot, which the probe reports later.
            (None, Some(gbps), false) if gbps > 0.0 && gbps.is_finite() => return Ok(ShotStart::Bandwidth(gbps)),
            (None, Some(gbps), false) => {
                return Err(invalid(Key::gbps, format!("expected --gbps above 0, found {gbps}")));
            }
            (hz, ..) => {
                let key = if hz.is_some() { Key::rate_hz } else { Key::gbps };
                return Err(invalid(key, "give one of --rate-hz, --gbps and --external-trigger"));
            }
        };
        shot_start.mode(1.0).map(|_| shot_start)
    }

    /// Returns the codec, if shots are compressed.
    ///
    /// # Errors
    /// If the codec does not have the level.
    pub(super) fn codec(&self) -> Result<Option<Codec>, InvalidSetting> {
        let codec = match self.compress.unwrap_or_default() {
            Compression::None => None,
            Compression::Lz4 => Some(Codec::Lz4),
            Compression::Zstd => Some(Codec::Zstd(self.compress_level.unwrap_or(Codec::DEFAULT_LEVEL))),
        };
        match (codec, self.compress_level) {
            (Some(Codec::Zstd(_)), Some(level)) if !ZSTD_LEVELS.contains(&level) => Err(invalid(
                Key::compress_level,
                format!(
                    "expected a level of zstd from {} to {}, found {level}",
                    ZSTD_LEVELS.start(),
                    ZSTD_LEVELS.end()
                ),
            )),
            (Some(Codec::Zstd(_)), _) | (_, None) => Ok(codec),
            (_, Some(_)) => Err(invalid(Key::compress_level, "--compress-level is for zstd: add --compress zstd")),
        }
    }

    /// Returns the criterion by which shots of several links belong to one event.
    pub fn alignment(&self) -> AlignBy {
        match self.align.unwrap_or_default() {
            Align::Number => AlignBy::Number,
            Align::Stamp => AlignBy::Stamp { window_ns: self.align_window.map(|window| window.0) },
        }
    }

    /// Returns `true` if the run has files that follow one another.
    pub fn rolls(&self) -> bool {
        [Key::roll_size, Key::roll_seconds, Key::roll_shots, Key::keep].iter().any(|key| self.has(*key))
    }
}

/// Returns `true` if a file name is that of a packet capture.
pub(super) fn is_capture(out: &Path) -> bool {
    out.extension().is_some_and(|ending| ending == "pcapng")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Settings {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn only_zstd_has_a_level() {
        let codec = |text: &str| settings(text).codec().map_err(|invalid| invalid.key);
        assert_eq!((codec(""), codec("compress = \"none\"")), (Ok(None), Ok(None)));
        assert_eq!(codec("compress = \"lz4\""), Ok(Some(Codec::Lz4)));
        assert_eq!(codec("compress = \"zstd\""), Ok(Some(Codec::Zstd(1))));
        assert_eq!(codec("compress = \"zstd\"\ncompress_level = 5"), Ok(Some(Codec::Zstd(5))));
        for text in ["compress = \"lz4\"\ncompress_level = 5", "compress = \"zstd\"\ncompress_level = 99"] {
            assert_eq!(codec(text), Err(Key::compress_level), "{text}");
        }
    }

    #[test]
    fn the_file_name_selects_the_sink() {
        let sink = |text: &str| settings(text).sink().map(|sink| format!("{sink:?}"));
        assert_eq!(sink("out = \"a.h5\""), Ok("Recording([\"a.h5\"])".into()));
        assert_eq!(sink("out = [\"a.h5\", \"b.pcapng\"]"), Ok("Recording([\"a.h5\", \"b.pcapng\"])".into()));
        assert_eq!(sink("out = \"a.pcapng\""), Ok("Capture(\"a.pcapng\")".into()));
        assert_eq!(sink("discard = true"), Ok("Discard".into()));
        assert!(sink("").is_err_and(|invalid| invalid.key == Key::out));
    }

    #[test]
    fn a_bandwidth_becomes_a_rate_within_the_range_of_set_up() {
        let mode = |text: &str| {
            let settings = settings(text);
            settings.shot_start().and_then(|shot_start| shot_start.mode(1e6)).map_err(|invalid| invalid.key)
        };
        assert_eq!(mode("gbps = 2.0"), Ok(Mode::FixedRate { millihertz: 2_000_000 }));
        assert_eq!(mode("rate_hz = 0.5"), Ok(Mode::FixedRate { millihertz: 500 }));
        assert_eq!((mode("rate_hz = 0.0"), mode("gbps = 1e300")), (Err(Key::rate_hz), Err(Key::gbps)));
        assert_eq!(mode("rate_hz = nan"), Err(Key::rate_hz));
        assert_eq!((mode("gbps = 0.0"), mode("gbps = inf")), (Err(Key::gbps), Err(Key::gbps)));
        assert_eq!(mode("rate_hz = 1.0\nexternal_trigger = true"), Err(Key::rate_hz));
        assert_eq!(mode("gbps = 1.0\nexternal_trigger = true"), Err(Key::gbps));
    }
}
