//! Settings of a digitizer.

use super::block::DistinctBlock;
use shotline_memory::Pages;
use shotline_wire::record;
use shotline_wire::shot::{Geometry, GeometryError, MAX_SHOTS, PAD_BYTES, Packetization, Packing, Trailer};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Size of one sample in bytes: I and Q, 16 bits each.
pub const SAMPLE_BYTES: u32 = 4;
/// Granularity of a block's samples in bytes.
pub const UNIT_BYTES: u32 = 64;
/// Maximum payload in bytes: with its header it fits the largest UDP datagram.
pub const MAX_PAYLOAD: u32 = 65_000;

/// A tone of the synthetic samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tone {
    /// Offset from the centre frequency in Hz.
    pub hz: f64,
    /// Power in dB relative to a full-scale tone.
    pub dbfs: f64,
}

/// Sample format of a file without a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Real, signed 16-bit little-endian.
    S16,
    /// Real, unsigned bytes with zero at 128.
    U8,
    /// I and Q as signed 16-bit little-endian values (SigMF's `ci16_le`).
    Ci16,
    /// I and Q as unsigned bytes with zero at 128 (SigMF's `cu8`).
    Cu8,
}

impl Format {
    /// Returns the number of values per sample: 2 if complex, else 1.
    pub fn values_per_sample(self) -> usize {
        match self {
            Self::S16 | Self::U8 => 1,
            Self::Ci16 | Self::Cu8 => 2,
        }
    }
    /// Returns the size of one value in bytes.
    pub fn value_bytes(self) -> usize {
        match self {
            Self::S16 | Self::Ci16 => 2,
            Self::U8 | Self::Cu8 => 1,
        }
    }
}

/// Source of the samples.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Tones and white noise. Each tone is moved to the nearest frequency whose phase is continuous from the last
    /// distinct block to the first.
    Synthetic {
        /// The tones.
        tones: Vec<Tone>,
        /// Power of the noise in dB relative to a full-scale tone.
        noise_dbfs: f64,
    },
    /// A headerless file of samples, repeated.
    File {
        /// The file.
        path: PathBuf,
        /// Its sample format.
        format: Format,
    },
}

/// Event that begins a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BlockStart {
    /// The end of the previous block: sampling is continuous.
    Continuous,
    /// As [`Self::Continuous`], but the sample clock waits for a free slot in the ring, so blocks are produced as fast
    /// as they are consumed.
    Max,
    /// A periodic trigger with this rate in Hz. The first is at a whole second of TAI, so triggers of several devices
    /// coincide.
    Trigger(f64),
}

/// Packet framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Shotline's own (`shotline_wire::framing::digitizer`): each packet is self-describing, and a block ends with its
    /// description and record.
    Digitizer,
    /// VITA 49: data packets with the time of their first sample, and a context packet before each block. Samples are
    /// big-endian; peaks and a CRC cannot be carried.
    Vita49,
}

/// Stages that run, to measure one of them in isolation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stages {
    /// All stages.
    All,
    /// Frames are filled but not sent.
    NoSend,
    /// Frames are filled once and sent repeatedly.
    NoDma,
}

/// The settings of one digitizer.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Address of the receiver.
    pub to: SocketAddr,
    /// Stream number.
    pub stream: u32,
    /// Rate of the sent samples in Hz.
    pub sample_rate_hz: f64,
    /// Centre frequency in Hz.
    pub centre_hz: f64,
    /// Converter samples per sent sample; 1 sends the input unchanged.
    pub decimation: u32,
    /// Volts per count; 0 if unknown.
    pub volts_per_count: f64,
    /// Size of a block's samples in bytes.
    pub block_bytes: u32,
    /// Payload of a packet in bytes.
    pub payload: u32,
    /// Slots of the on-board ring: blocks that can wait before one is lost.
    pub ring: u32,
    /// Number of distinct blocks.
    pub distinct: u32,
    /// Source of the samples.
    pub input: Input,
    /// Points of the transform that finds the peaks; 0 disables the spectrum.
    pub points: u32,
    /// Seed of the noise and of the order of pieces in on-board memory.
    pub seed: u64,
    /// Event that begins a block.
    pub block_start: BlockStart,
    /// Blocks to produce; `None` for no limit.
    pub blocks: Option<u64>,
    /// Number of the first block.
    pub first_block: u64,
    /// Offset of the source's clock, in ns.
    pub clock_offset_ns: i64,
    /// Drift of that clock, in parts per billion.
    pub clock_drift_ppb: f64,
    /// Bit rate of frames on the link. `None`: a ninth above the sample clock's rate, and twice the clock's rate to
    /// catch up.
    pub link_bits_per_s: Option<f64>,
    /// Stages run sequentially instead of concurrently.
    pub sequential: bool,
    /// Stages that run.
    pub stages: Stages,
    /// Packet framing.
    pub framing: Framing,
    /// HDF5 file that holds the frames in place, if any.
    pub image: Option<PathBuf>,
}

impl Config {
    /// Returns the settings of a 500 MS/s device that sends 64 MiB blocks in jumbo frames.
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
            block_start: BlockStart::Continuous,
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

    /// Validates the settings and returns the geometry of every block.
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
            positive("the link rate", rate)?;
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
        if let BlockStart::Trigger(hz) = self.block_start {
            positive("the trigger rate", hz)?;
            let max_hz = 1e9 / self.block_ns();
            if hz > max_hz * (1.0 + 1e-9) {
                return Err(ConfigError::Trigger { hz, max_hz });
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
            let tones = tones
                .iter()
                .flat_map(|tone| [("the frequency of a tone", tone.hz), ("the power of a tone", tone.dbfs)]);
            for (what, value) in tones.chain([("the noise power", *noise_dbfs)]) {
                if value.is_nan() || value == f64::INFINITY {
                    return Err(ConfigError::NotFinite { what, value });
                }
            }
        }
        let trailer = match self.framing {
            Framing::Digitizer if self.is_payload_unaligned() => {
                return Err(ConfigError::UnalignedPayload(self.payload));
            }
            Framing::Digitizer => Trailer::Block,
            Framing::Vita49 if self.image.is_some() => return Err(ConfigError::Image),
            Framing::Vita49 if !self.payload.is_multiple_of(SAMPLE_BYTES) => {
                return Err(ConfigError::PartialSample(self.payload));
            }
            Framing::Vita49 => Trailer::None,
        };
        let samples = (2, self.block_bytes / SAMPLE_BYTES);
        let rate = self.sample_rate_hz.round() as u32;
        Ok(Geometry::with_packetization(
            samples,
            (16, Packing::Int16Le),
            rate,
            trailer,
            Packetization::uniform(self.payload),
        )?)
    }

    /// Returns the memory that the distinct blocks use, in bytes: on-board memory, the block descriptors, and one block
    /// as samples and as bytes during preparation.
    pub fn memory(&self) -> [(Pages, u64); 2] {
        let (block, distinct) = (u64::from(self.block_bytes), u64::from(self.distinct));
        [
            (Pages::Transparent, block * distinct),
            (Pages::Small, size_of::<DistinctBlock>() as u64 * distinct + 2 * block),
        ]
    }

    /// Returns `true` if a block has more than one packet and the payload is not a multiple of [`PAD_BYTES`].
    fn is_payload_unaligned(&self) -> bool {
        let block = u64::from(self.block_bytes) + (shotline_wire::block::LEN + record::LEN) as u64;
        u64::from(self.payload) < block && !self.payload.is_multiple_of(PAD_BYTES)
    }

    /// Returns the duration of a block's samples in ns.
    pub fn block_ns(&self) -> f64 {
        f64::from(self.block_bytes / SAMPLE_BYTES) * 1e9 / self.sample_rate_hz
    }

    /// Returns the time from the beginning of a block to the beginning of the next in ns.
    pub fn period_ns(&self) -> f64 {
        match self.block_start {
            BlockStart::Continuous | BlockStart::Max => self.block_ns(),
            BlockStart::Trigger(hz) => 1e9 / hz,
        }
    }
}

/// Reason why settings are invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// A value that must be above zero.
    #[error("{what} must be above 0, found {value}")]
    NotPositive {
        /// Name of the setting.
        what: &'static str,
        /// Its value.
        value: f64,
    },
    /// A value that is not finite.
    #[error("{what} must be finite, found {value}")]
    NotFinite {
        /// Name of the setting.
        what: &'static str,
        /// Its value.
        value: f64,
    },
    /// A sample rate that does not fit the record's 32-bit field.
    #[error("expected a sample rate of at most {max} Hz, which the end-of-shot record can hold, found {0} Hz", max = u32::MAX)]
    TooFast(f64),
    /// A block size that is not a multiple of 64 bytes.
    #[error("expected a block size that is a multiple of 64 bytes, such as 64MiB, found {0} bytes")]
    Block(u32),
    /// A payload that does not fit a datagram.
    #[error(
        "expected a payload of 1 to {MAX_PAYLOAD} bytes (8192 for jumbo frames, 1408 for an MTU of 1500), found {0}"
    )]
    Payload(u32),
    /// A payload that is not a multiple of [`PAD_BYTES`], which receivers accept only in a block of one packet.
    #[error("expected a payload that is a multiple of {PAD_BYTES} bytes, found {0}")]
    UnalignedPayload(u32),
    /// A payload that is not a whole number of samples, which VITA 49 requires.
    #[error("expected a payload that is a multiple of 4 bytes, because VITA 49 packets carry whole samples, found {0}")]
    PartialSample(u32),
    /// An image with VITA 49, which has big-endian samples and no description.
    #[error("--image requires the digitizer framing: omit --image or --framing vita49")]
    Image,
    /// A trigger rate at which blocks would overlap.
    #[error(
        "expected a trigger rate of at most {max_hz:.6} Hz for blocks of this length, found {hz} Hz: reduce --block"
    )]
    Trigger {
        /// Requested rate in Hz.
        hz: f64,
        /// Maximum rate in Hz.
        max_hz: f64,
    },
    /// Block numbers beyond 48 bits.
    #[error("block numbers must be below 2^48: starting at {0}, not all blocks fit")]
    FirstBlock(u64),
    /// A clock drift out of range.
    #[error("expected a clock drift of -1000000 to 1000000 parts per billion, found {0}")]
    Drift(f64),
    /// An invalid geometry.
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
    fn invalid_settings_are_refused_with_the_remedy() {
        let refused = |config: Config| config.check().unwrap_err().to_string();
        assert!(refused(Config { block_bytes: 100, ..config() }).contains("a multiple of 64"));
        assert!(refused(Config { payload: 0, ..config() }).contains("8192 for jumbo frames"));
        assert!(refused(Config { payload: 1024, ..config() }).contains("packets"));
        assert!(refused(Config { sample_rate_hz: 0.0, ..config() }).contains("above 0"));
        assert!(refused(Config { sample_rate_hz: f64::NAN, ..config() }).contains("above 0"));
        assert!(refused(Config { sample_rate_hz: 5e9, ..config() }).contains("at most 4294967295 Hz"));
        assert!(refused(Config { block_start: BlockStart::Trigger(30.0), ..config() }).contains("29.802322 Hz"));
        assert!(refused(Config { clock_drift_ppb: 1e7, ..config() }).contains("parts per billion"));
        assert!(refused(Config { payload: 1000, ..config() }).contains("a multiple of 64 bytes, found 1000"));
        assert!(refused(Config { framing: Framing::Vita49, payload: 1402, ..config() }).contains("multiple of 4"));
        assert!(refused(Config { first_block: u64::MAX, ..config() }).contains("below 2^48"));
        assert!(refused(Config { first_block: (1 << 48) - 2, blocks: Some(3), ..config() }).contains("below 2^48"));
        assert!(Config { first_block: (1 << 48) - 2, blocks: Some(2), ..config() }.check().is_ok());
        assert!(refused(Config { ring: 0, ..config() }).contains("--ring"));
        assert!(Config { block_start: BlockStart::Trigger(29.8), ..config() }.check().is_ok());
    }
}
