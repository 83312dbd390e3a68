//! What a digitizer is set to.

use super::block::Distinct;
use shotline_memory::Pages;
use shotline_wire::record;
use shotline_wire::shot::{Cut, Geometry, GeometryError, MAX_SHOTS, PAD_BYTES, Packing, Trailer};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Bytes of one sample: I and Q, 16 bits each.
pub const SAMPLE_BYTES: u32 = 4;
/// Samples stand before the trailer in whole multiples of this.
pub const UNIT_BYTES: u32 = 64;
/// Longest payload: with header and IP it fits the largest UDP datagram.
pub const MAX_PAYLOAD: u32 = 65_000;

/// A line in the spectrum of synthetic samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tone {
    /// Hz from the centre frequency.
    pub hz: f64,
    /// Power in dB relative to a full-scale tone.
    pub dbfs: f64,
}

/// How samples lie in a file without a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Real signed 16-bit little-endian numbers.
    S16,
    /// Real unsigned bytes, 128 is zero.
    U8,
    /// I and Q as signed 16-bit little-endian numbers (SigMF's `ci16_le`).
    Ci16,
    /// I and Q as unsigned bytes, 128 is zero (SigMF's `cu8`).
    Cu8,
}

impl Format {
    /// Numbers of one sample: two of a complex one.
    pub fn numbers(self) -> usize {
        match self {
            Self::S16 | Self::U8 => 1,
            Self::Ci16 | Self::Cu8 => 2,
        }
    }
    /// Bytes of one number.
    pub fn bytes(self) -> usize {
        match self {
            Self::S16 | Self::Ci16 => 2,
            Self::U8 | Self::Cu8 => 1,
        }
    }
}

/// Where samples come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Tones and white noise. A tone is moved by less than half a hertz-per-loop to one whose phase goes on from the last
    /// distinct block to the first.
    Synthetic {
        /// The tones.
        tones: Vec<Tone>,
        /// Power of the noise in dB relative to a full-scale tone.
        noise_dbfs: f64,
    },
    /// A file of plain numbers, again and again.
    File {
        /// Which.
        path: PathBuf,
        /// How its numbers lie.
        format: Format,
    },
}

/// What begins a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Begin {
    /// The end of the one before: the sample clock runs on.
    Continuous,
    /// As [`Self::Continuous`], but the sample clock waits for room in the ring: as fast as blocks are taken.
    Max,
    /// A periodic trigger of so many hertz, the first at a whole second of TAI: triggers of several devices coincide.
    Trigger(f64),
}

/// How packets say what they carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Our own (`shotline_wire::framing::digitizer`): each packet tells everything, and a block ends in its description
    /// and record.
    Digitizer,
    /// VITA 49: packets of samples with the time of their first, and before each block a packet of context. Samples are
    /// big-endian; there is no place for peaks and no CRC.
    Vita49,
}

/// What of a digitizer runs: for the measurement of one stage alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stages {
    /// All.
    All,
    /// The frames are filled and not sent.
    NoSend,
    /// The frames are filled once and sent again and again.
    NoDma,
}

/// The settings of one digitizer.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The receiver.
    pub to: SocketAddr,
    /// Stream.
    pub stream: u32,
    /// Rate of the samples that are sent, in Hz.
    pub sample_rate_hz: f64,
    /// Centre frequency in Hz.
    pub centre_hz: f64,
    /// Samples of the converter for each that is sent; 1: the input is taken as it is.
    pub decimation: u32,
    /// Volts per count; 0 if unknown.
    pub volts_per_count: f64,
    /// Bytes of a block's samples.
    pub block_bytes: u32,
    /// Payload bytes of a packet.
    pub payload: u32,
    /// Blocks that the on-board memory holds before one is lost.
    pub ring: u32,
    /// Different blocks.
    pub distinct: u32,
    /// The samples.
    pub input: Input,
    /// Points of the transform that the peaks come from; 0: no spectrum.
    pub points: u32,
    /// Seed of the noise, and of where in on-board memory the pieces lie.
    pub seed: u64,
    /// What begins a block.
    pub begin: Begin,
    /// Blocks to make; none: no end.
    pub blocks: Option<u64>,
    /// Number of the first block.
    pub first_block: u64,
    /// Offset of the source's clock, in ns.
    pub clock_offset_ns: i64,
    /// Drift of that clock, in parts per billion.
    pub clock_drift_ppb: f64,
    /// Bit rate of frames on the link; none: a ninth above what the sample clock makes, or twice that for who is late.
    pub link_bits_per_s: Option<f64>,
    /// One stage after the other instead of all at the same time.
    pub sequential: bool,
    /// What runs.
    pub stages: Stages,
    /// How packets say what they carry.
    pub framing: Framing,
    /// Where the frames are at the same time an HDF5 file.
    pub image: Option<PathBuf>,
}

impl Config {
    /// Settings of a 500 MS/s device that sends 64 MiB blocks in jumbo frames.
    pub fn new(to: SocketAddr) -> Self {
        Self {
            to,
            stream: 0,
            sample_rate_hz: 500e6,
            centre_hz: 1e9,
            decimation: 1,
            volts_per_count: 0.0,
            block_bytes: 64 << 20,
            payload: 8192,
            ring: 8,
            distinct: 8,
            input: Input::Synthetic { tones: vec![Tone { hz: 50e6, dbfs: -6.0 }], noise_dbfs: -60.0 },
            points: 8192,
            seed: 1,
            begin: Begin::Continuous,
            blocks: None,
            first_block: 0,
            clock_offset_ns: 0,
            clock_drift_ppb: 0.0,
            link_bits_per_s: None,
            sequential: false,
            stages: Stages::All,
            framing: Framing::Digitizer,
            image: None,
        }
    }

    /// The shape of every block, if these settings can work.
    pub fn check(&self) -> Result<Geometry, ConfigError> {
        let positive = |what, value: f64| match value.is_finite() && value > 0.0 {
            true => Ok(()),
            false => Err(ConfigError::NotPositive { what, value }),
        };
        positive("the sample rate", self.sample_rate_hz)?;
        if self.sample_rate_hz.round() > f64::from(u32::MAX) {
            return Err(ConfigError::TooFast(self.sample_rate_hz));
        }
        if let Some(rate) = self.link_bits_per_s {
            positive("the link's rate", rate)?;
        }
        if self.block_bytes == 0 || !self.block_bytes.is_multiple_of(UNIT_BYTES) {
            return Err(ConfigError::Block(self.block_bytes));
        }
        if !(1..=MAX_PAYLOAD).contains(&self.payload) {
            return Err(ConfigError::Payload(self.payload));
        }
        for (what, value) in [("--ring", self.ring), ("--distinct", self.distinct), ("--decimation", self.decimation)] {
            if value == 0 {
                return Err(ConfigError::NotPositive { what, value: 0.0 });
            }
        }
        if let Begin::Trigger(hz) = self.begin {
            positive("the trigger's rate", hz)?;
            let most_hz = 1e9 / self.block_ns();
            if hz > most_hz * (1.0 + 1e-9) {
                return Err(ConfigError::Trigger { hz, most_hz });
            }
        }
        if self.first_block.saturating_add(self.blocks.unwrap_or(1)) > MAX_SHOTS {
            return Err(ConfigError::FirstBlock(self.first_block));
        }
        let drift = self.clock_drift_ppb;
        if !drift.is_finite() || drift.abs() > 1e6 {
            return Err(ConfigError::Drift(drift));
        }
        for (what, value) in [("the centre frequency", self.centre_hz), ("the scale", self.volts_per_count)] {
            if !value.is_finite() {
                return Err(ConfigError::NotFinite { what, value });
            }
        }
        if let Input::Synthetic { tones, noise_dbfs } = &self.input {
            let tones = tones.iter().flat_map(|tone| [("a tone's frequency", tone.hz), ("a tone's power", tone.dbfs)]);
            for (what, value) in tones.chain([("the noise", *noise_dbfs)]) {
                if value.is_nan() || value == f64::INFINITY {
                    return Err(ConfigError::NotFinite { what, value });
                }
            }
        }
        let trailer = match self.framing {
            Framing::Digitizer if self.cuts_oddly() => return Err(ConfigError::Odd(self.payload)),
            Framing::Digitizer => Trailer::Block,
            Framing::Vita49 if self.image.is_some() => return Err(ConfigError::Image),
            Framing::Vita49 if !self.payload.is_multiple_of(SAMPLE_BYTES) => {
                return Err(ConfigError::Words(self.payload));
            }
            Framing::Vita49 => Trailer::None,
        };
        let samples = (2, self.block_bytes / SAMPLE_BYTES);
        let rate = self.sample_rate_hz.round() as u32;
        Ok(Geometry::cut_as(samples, (16, Packing::Int16Le), rate, trailer, Cut::uniform(self.payload))?)
    }

    /// Memory that the distinct blocks take: on-board memory, what is known of each block, and one block while it is
    /// made, as samples and as bytes.
    pub fn memory(&self) -> [(Pages, u64); 2] {
        let (block, distinct) = (u64::from(self.block_bytes), u64::from(self.distinct));
        [(Pages::Transparent, block * distinct), (Pages::Small, size_of::<Distinct>() as u64 * distinct + 2 * block)]
    }

    /// Whether a block is more than one packet, and packets do not end where a block's trailer may.
    fn cuts_oddly(&self) -> bool {
        let block = u64::from(self.block_bytes) + (shotline_wire::block::LEN + record::LEN) as u64;
        u64::from(self.payload) < block && !self.payload.is_multiple_of(PAD_BYTES)
    }

    /// Nanoseconds that the samples of a block take.
    pub fn block_ns(&self) -> f64 {
        f64::from(self.block_bytes / SAMPLE_BYTES) * 1e9 / self.sample_rate_hz
    }

    /// Nanoseconds from the beginning of a block to that of the next one.
    pub fn period_ns(&self) -> f64 {
        match self.begin {
            Begin::Continuous | Begin::Max => self.block_ns(),
            Begin::Trigger(hz) => 1e9 / hz,
        }
    }
}

/// Why settings cannot work.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// A number that must be above zero.
    #[error("{what} must be above 0, found {value}")]
    NotPositive {
        /// Which.
        what: &'static str,
        /// Its value.
        value: f64,
    },
    /// A number that is none.
    #[error("{what} must be a number, found {value}")]
    NotFinite {
        /// Which.
        what: &'static str,
        /// Its value.
        value: f64,
    },
    /// A sample rate that the record cannot tell.
    #[error("a sample rate of {0} Hz cannot be told in an end-of-shot record: {most} Hz at most", most = u32::MAX)]
    TooFast(f64),
    /// A block that is not made of whole units.
    #[error("a block of {0} bytes of samples: a multiple of 64 is needed, such as 64MiB")]
    Block(u32),
    /// A payload that no datagram carries.
    #[error("a payload of {0} bytes: 1 to {MAX_PAYLOAD}, 8192 in jumbo frames, 1408 in ordinary ones")]
    Payload(u32),
    /// A receiver takes no payloads of such a length, but in a block of one packet.
    #[error("its payloads of {0} bytes are no multiple of {PAD_BYTES}")]
    Odd(u32),
    /// VITA 49 carries whole samples.
    #[error("a payload of {0} bytes: VITA 49 carries whole samples, so a multiple of 4 is needed")]
    Words(u32),
    /// VITA 49 has big-endian samples and no description.
    #[error("an image is of the digitizer framing's frames: leave --image or --framing vita49 out")]
    Image,
    /// Triggers that come faster than blocks can be taken.
    #[error(
        "a trigger of {hz} Hz is too fast: blocks of this length can be taken at {most_hz:.6} Hz; make --block smaller"
    )]
    Trigger {
        /// Asked for.
        hz: f64,
        /// Possible.
        most_hz: f64,
    },
    /// A number that no block can have.
    #[error("blocks have numbers below 2^48: the first one is {0}, and there is no room for all")]
    FirstBlock(u64),
    /// A clock that is none.
    #[error("a drift of {0} parts per billion: -1000000 to 1000000")]
    Drift(f64),
    /// Blocks of a shape that cannot be.
    #[error("{0}")]
    Geometry(#[from] GeometryError),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::new(([127, 0, 0, 1], 47920).into())
    }

    #[test]
    fn the_default_is_a_block_every_33_55_ms() {
        let geometry = config().check().unwrap();
        assert_eq!((geometry.packets(), geometry.shot_bytes()), (8193, (64 << 20) + 256));
        assert!((config().period_ns() / 1e6 - 33.554432).abs() < 1e-9);
    }

    #[test]
    fn settings_that_cannot_work_are_refused_with_the_remedy() {
        let refused = |config: Config| config.check().unwrap_err().to_string();
        assert!(refused(Config { block_bytes: 100, ..config() }).contains("a multiple of 64"));
        assert!(refused(Config { payload: 0, ..config() }).contains("8192 in jumbo frames"));
        assert!(refused(Config { payload: 1024, ..config() }).contains("packets"));
        assert!(refused(Config { sample_rate_hz: 0.0, ..config() }).contains("above 0"));
        assert!(refused(Config { sample_rate_hz: f64::NAN, ..config() }).contains("above 0"));
        assert!(refused(Config { sample_rate_hz: 5e9, ..config() }).contains("Hz at most"));
        assert!(refused(Config { begin: Begin::Trigger(30.0), ..config() }).contains("29.802322 Hz"));
        assert!(refused(Config { clock_drift_ppb: 1e7, ..config() }).contains("parts per billion"));
        assert!(refused(Config { payload: 1000, ..config() }).contains("payloads of 1000 bytes are no multiple of 64"));
        assert!(refused(Config { framing: Framing::Vita49, payload: 1402, ..config() }).contains("multiple of 4"));
        assert!(refused(Config { first_block: u64::MAX, ..config() }).contains("below 2^48"));
        assert!(refused(Config { first_block: (1 << 48) - 2, blocks: Some(3), ..config() }).contains("below 2^48"));
        assert!(Config { first_block: (1 << 48) - 2, blocks: Some(2), ..config() }.check().is_ok());
        assert!(refused(Config { ring: 0, ..config() }).contains("--ring"));
        assert!(Config { begin: Begin::Trigger(29.8), ..config() }.check().is_ok());
    }
}
