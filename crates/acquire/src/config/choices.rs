//! What settings choose among: the sender, the sink, what begins a shot, how shots are compressed and aligned.

use super::invalid::{Invalid, invalid};
use super::settings::{Key, Settings};
use super::values::{Align, Compression};
use crate::align::By;
use shotline_store::codec::Codec;
use shotline_wire::framing::Kind;
use shotline_wire::setup::Mode;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Levels of zstd that are of use here.
const ZSTD_LEVELS: std::ops::RangeInclusive<i32> = -7..=22;
/// Shots per second that set-up can ask for.
const RATES_HZ: std::ops::RangeInclusive<f64> = 0.001..=1e9;

/// Who sends the shots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// A probe that takes set-up at this address.
    Probe(SocketAddr),
    /// A sender that takes none, and sends to this local address.
    Listen(SocketAddr),
}

impl Sender {
    /// The address that the settings name: the probe's, or the local one.
    pub fn address(self) -> SocketAddr {
        match self {
            Self::Probe(address) | Self::Listen(address) => address,
        }
    }
}

/// Where shots go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sink<'a> {
    /// Nowhere: they are received, checked and counted.
    Discard,
    /// Into a packet capture.
    Capture(&'a Path),
    /// Into a recording, which may have several files at once.
    Recording(&'a [PathBuf]),
}

/// What begins a shot of a probe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Begin {
    /// The end of the one before.
    FreeRunning,
    /// The probe's external trigger.
    ExternalTrigger,
    /// A clock of this rate, in Hz.
    Rate(f64),
    /// A clock whose rate makes this payload on all links together, in Gbit/s.
    Bandwidth(f64),
}

impl Begin {
    /// The same as set-up has it, for shots of `shot_bits` on all links together.
    ///
    /// # Errors
    /// For a rate that set-up cannot ask for.
    pub fn mode(self, shot_bits: f64) -> Result<Mode, Invalid> {
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
    /// Who sends the shots.
    ///
    /// # Errors
    /// Unless one sender is named.
    pub(super) fn sender(&self) -> Result<Sender, Invalid> {
        match (self.probe, self.listen) {
            (Some(probe), None) => Ok(Sender::Probe(probe)),
            (None, Some(listen)) => Ok(Sender::Listen(listen)),
            (None, None) => Err(invalid(
                Key::probe,
                "name the probe's set-up address with --probe, or with --listen the address that a sender without set-up sends to",
            )),
            (Some(_), Some(_)) => {
                Err(invalid(Key::listen, "give one of --probe and --listen: a sender takes set-up, or does not"))
            }
        }
    }

    /// How packets name their places.
    pub fn framing(&self) -> Kind {
        self.framing.unwrap_or(Kind::Ud)
    }

    /// Where shots go.
    ///
    /// # Errors
    /// Unless a file is named or shots are to be discarded.
    pub(super) fn sink(&self) -> Result<Sink<'_>, Invalid> {
        match self.out.as_deref() {
            _ if self.discard == Some(true) => Ok(Sink::Discard),
            None | Some([]) => Err(invalid(Key::out, "name a file to record to with --out, or --discard the shots")),
            Some([out]) if is_capture(out) => Ok(Sink::Capture(out)),
            Some(outs) => Ok(Sink::Recording(outs)),
        }
    }

    /// What begins a shot of a probe.
    ///
    /// # Errors
    /// If more than one thing is to, or for a rate that set-up cannot ask for.
    pub(super) fn begin(&self) -> Result<Begin, Invalid> {
        let begin = match (self.rate_hz, self.gbps, self.external_trigger.unwrap_or(false)) {
            (None, None, false) => Begin::FreeRunning,
            (None, None, true) => Begin::ExternalTrigger,
            (Some(hz), None, false) => Begin::Rate(hz),
            // The rate follows from the shape of a shot, which the probe knows.
            (None, Some(gbps), false) if gbps > 0.0 && gbps.is_finite() => return Ok(Begin::Bandwidth(gbps)),
            (None, Some(gbps), false) => {
                return Err(invalid(Key::gbps, format!("expected --gbps above 0, found {gbps}")));
            }
            (hz, ..) => {
                let key = if hz.is_some() { Key::rate_hz } else { Key::gbps };
                return Err(invalid(key, "give one of --rate-hz, --gbps and --external-trigger"));
            }
        };
        begin.mode(1.0).map(|_| begin)
    }

    /// How shots are compressed, if they are.
    ///
    /// # Errors
    /// For a level that the codec does not have.
    pub(super) fn codec(&self) -> Result<Option<Codec>, Invalid> {
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
            (_, Some(_)) => Err(invalid(Key::compress_level, "a level is for zstd: add --compress zstd")),
        }
    }

    /// What puts shots of several links into one event.
    pub fn alignment(&self) -> By {
        match self.align.unwrap_or_default() {
            Align::Number => By::Number,
            Align::Stamp => By::Stamp { window_ns: self.align_window.map(|window| window.0) },
        }
    }

    /// Whether the run has files that follow one another.
    pub fn rolls(&self) -> bool {
        [Key::roll_size, Key::roll_seconds, Key::roll_shots, Key::keep].iter().any(|key| self.has(*key))
    }
}

/// Whether a file is to be a packet capture.
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
    fn a_codec_has_a_level_only_if_it_is_zstd() {
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
    fn a_sink_is_chosen_by_the_name_of_the_file() {
        let sink = |text: &str| settings(text).sink().map(|sink| format!("{sink:?}"));
        assert_eq!(sink("out = \"a.h5\""), Ok("Recording([\"a.h5\"])".into()));
        assert_eq!(sink("out = [\"a.h5\", \"b.pcapng\"]"), Ok("Recording([\"a.h5\", \"b.pcapng\"])".into()));
        assert_eq!(sink("out = \"a.pcapng\""), Ok("Capture(\"a.pcapng\")".into()));
        assert_eq!(sink("discard = true"), Ok("Discard".into()));
        assert!(sink("").is_err_and(|invalid| invalid.key == Key::out));
    }

    #[test]
    fn a_bandwidth_becomes_a_rate_within_what_set_up_can_ask_for() {
        let mode = |text: &str| {
            let settings = settings(text);
            settings.begin().and_then(|begin| begin.mode(1e6)).map_err(|invalid| invalid.key)
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
