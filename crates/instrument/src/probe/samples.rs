//! Sample sources of a probe: test patterns, recorded radio-frequency data, samples of a program, or a phantom.

use super::Config;
use super::error::SampleError;
use super::given::GivenShots;
use super::phantom::{Echoes, PhantomReport};
use super::rf::{RfFile, RfReport};
use serde::Serialize;
use shotline_compute::{pack12, prbs};
use shotline_wire::shot::{Geometry, Packing};
use std::sync::Arc;

/// Default samples per channel of a test pattern.
pub const DEFAULT_SAMPLES: u32 = 2000;
/// Default sample rate of test patterns, that of Cossettini et al.
pub const DEFAULT_SAMPLE_RATE_HZ: u32 = 40_000_000;

/// The distinct shots of a probe: [`Self::period`] of them, each with at most the samples of [`Self::geometry`]. Shot
/// `n` carries distinct shot `n % period`, so a verifier with the same source can check every shot.
#[derive(Debug)]
pub struct Source {
    geometry: Geometry,
    period: u32,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// The pattern number is the distinct shot's number.
    Prbs,
    Rf(RfFile),
    Given(Arc<GivenShots>),
    Phantom(Box<Echoes>),
}

/// Description of a source, for reports.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SourceReport {
    /// Number of distinct shots.
    pub distinct_shots: u32,
    /// Source file and conversion of its values; `None` for other samples.
    pub rf: Option<RfReport>,
    /// Contents of the phantom, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phantom: Option<PhantomReport>,
    /// Progress of the replayed recording, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayReport>,
}

/// Counters of a replay, for reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReplayReport {
    /// Rows in one pass over the recording.
    pub rows: u64,
    /// Shots that had not been read from the recording at their start time.
    pub read_underruns: u64,
}

impl Source {
    /// Opens the configured source and determines the geometry of every link's shots.
    ///
    /// # Errors
    /// If the file cannot be read or does not match the links, the geometry is invalid, or memory is short.
    pub fn new(config: &Config) -> Result<Self, SampleError> {
        Self::before(config, |_, _| 0)
    }

    /// Like [`Self::new`], for a caller that will allocate memory for the distinct shots: `then` returns its bytes for a
    /// period and a geometry. A phantom is computed only if both fit.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(super) fn before(config: &Config, then: impl Fn(u32, &Geometry) -> u64) -> Result<Self, SampleError> {
        let geometry = |samples, rate| Geometry::new(config.channels, samples, config.bits, config.packing, rate);
        geometry(2, 0)?; // refuse invalid resolutions before scaling a file to them
        if let Some(phantom) = &config.phantom {
            let rate = config.sample_rate_hz.unwrap_or(DEFAULT_SAMPLE_RATE_HZ);
            let geometry = geometry(config.samples.unwrap_or(DEFAULT_SAMPLES), rate)?;
            let elements = usize::from(config.links) * usize::from(config.channels);
            let array = config.described_array().unwrap_or_default();
            let echoes = Echoes::new(&array, phantom, elements, &geometry, |period| then(period, &geometry))?;
            return Ok(Self { geometry, period: echoes.period(), kind: Kind::Phantom(Box::new(echoes)) });
        }
        if let Some(given) = &config.given {
            return Self::given(config, given);
        }
        let Some(path) = &config.input else {
            let samples = config.samples.unwrap_or(DEFAULT_SAMPLES);
            let rate = config.sample_rate_hz.unwrap_or(DEFAULT_SAMPLE_RATE_HZ);
            return Ok(Self {
                geometry: geometry(samples, rate)?,
                period: config.distinct_shots.max(1),
                kind: Kind::Prbs,
            });
        };
        let rf = RfFile::open(path, config.distinct_shots.max(1) as usize, config.bits, config.scale)?;
        if rf.channels() != usize::from(config.links) * usize::from(config.channels) {
            let Config { links, channels, .. } = *config;
            return Err(SampleError::Channels { path: path.clone(), found: rf.channels(), links, channels });
        }
        let samples = config.samples.unwrap_or(u32::try_from(rf.samples()).unwrap_or(u32::MAX));
        if samples as usize > rf.samples() {
            return Err(SampleError::Samples { path: path.clone(), found: rf.samples(), requested: samples });
        }
        let rate = config.sample_rate_hz.unwrap_or(rf.sample_rate_hz());
        Ok(Self { geometry: geometry(samples, rate)?, period: rf.shots() as u32, kind: Kind::Rf(rf) })
    }

    /// Sends the samples of a program.
    fn given(config: &Config, given: &Arc<GivenShots>) -> Result<Self, SampleError> {
        let Config { links, channels, bits, packing, .. } = *config;
        let found_samples = given.samples_per_channel();
        let requested = config.samples.unwrap_or(found_samples);
        let found_channels = given.channels();
        if found_channels != usize::from(links) * usize::from(channels) || requested > found_samples {
            return Err(SampleError::GivenMismatch { links, channels, found_channels, found_samples, requested });
        }
        let rate = config.sample_rate_hz.unwrap_or(DEFAULT_SAMPLE_RATE_HZ);
        let geometry = Geometry::new(channels, requested, bits, packing, rate)?;
        Ok(Self { geometry, period: given.shots(), kind: Kind::Given(Arc::clone(given)) })
    }

    /// Returns the geometry of each link's shots, unless a receiver requests fewer samples.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Returns the number of distinct shots, at least 1.
    pub fn period(&self) -> u32 {
        self.period
    }

    /// Returns a description for reports.
    pub fn report(&self) -> SourceReport {
        let (rf, phantom) = match &self.kind {
            Kind::Prbs | Kind::Given(_) => (None, None),
            Kind::Rf(rf) => (Some(rf.report().clone()), None),
            Kind::Phantom(echoes) => (None, Some(echoes.report().clone())),
        };
        SourceReport { distinct_shots: self.period, rf, phantom, replay: None }
    }

    /// Returns the period of the test patterns for set-up messages: 0 for other samples.
    pub fn pattern_period(&self) -> u32 {
        match self.kind {
            Kind::Prbs => self.period,
            Kind::Rf(_) | Kind::Given(_) | Kind::Phantom(_) => 0,
        }
    }

    /// Writes the sample bytes of one link's distinct shot `pattern`. `geometry` may differ from [`Self::geometry`]
    /// only in having fewer samples.
    ///
    /// # Panics
    /// If the length of `out` does not match the geometry, or `pattern` is not below the period.
    pub fn write(&self, link: u8, stream: u32, pattern: u32, geometry: &Geometry, out: &mut [u8]) {
        assert!(pattern < self.period, "distinct shot {pattern} of {}", self.period);
        let channels = usize::from(geometry.channels());
        let first = usize::from(link) * channels;
        let (channels, samples) = (first..first + channels, geometry.samples() as usize);
        match &self.kind {
            Kind::Prbs => prbs::write_shot(stream, pattern.into(), geometry, out),
            Kind::Rf(rf) => pack(&rf.time_major(pattern as usize, channels, samples), geometry.packing(), out),
            Kind::Given(given) => pack(&given.time_major(pattern, channels, samples), geometry.packing(), out),
            Kind::Phantom(echoes) => pack(&echoes.time_major(pattern, channels, samples), geometry.packing(), out),
        }
    }
}

/// Packs samples into the bytes of a shot.
fn pack(samples: &[i16], packing: Packing, out: &mut [u8]) {
    match packing {
        Packing::Packed12 => pack12::pack(samples, out),
        Packing::Int16Le => {
            let bytes = samples.iter().flat_map(|sample| sample.to_le_bytes());
            out.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        }
        Packing::Int16Be => {
            let bytes = samples.iter().flat_map(|sample| sample.to_be_bytes());
            out.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        }
        Packing::Uint8 => out.iter_mut().zip(samples).for_each(|(to, from)| *to = *from as u8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a file in the layout of public plane-wave data sets: integers as floats, `frame_10` after `frame_2`.
    fn rf_file(dir: &std::path::Path, channels: usize, samples: usize, peak: f32) -> std::path::PathBuf {
        let path = dir.join("rf.hdf5");
        let file = hdf5::File::create(&path).unwrap();
        let data = file.create_group("data").unwrap();
        data.new_dataset::<f64>().create("f_sampling").unwrap().write_scalar(&20e6).unwrap();
        let frames = data.create_group("rf_data").unwrap();
        for (shot, frame) in ["frame_1", "frame_2", "frame_10"].into_iter().enumerate() {
            let mut values: Vec<f32> = (0..channels * samples).map(|i| (i % 1000 + shot) as f32).collect();
            values[0] = peak;
            let dataset = frames.create_group(frame).unwrap().new_dataset::<f32>().shape([channels, samples]);
            dataset.create("shot_1").unwrap().write_raw(&values).unwrap();
        }
        path
    }

    fn unpacked(source: &Source, link: u8, pattern: u32) -> Vec<i16> {
        let mut bytes = vec![0; source.geometry().sample_bytes() as usize];
        source.write(link, 0, pattern, source.geometry(), &mut bytes);
        let mut samples = vec![0; bytes.len() / 3 * 2];
        pack12::unpack(&bytes, &mut samples);
        samples
    }

    #[test]
    fn file_channels_are_split_over_links_in_time_major_order() {
        let dir = tempfile::tempdir().unwrap();
        let input = Some(rf_file(dir.path(), 8, 50, 2000.0));
        let source = Source::new(&Config { links: 2, channels: 4, input, ..Config::default() }).unwrap();
        let geometry = source.geometry();
        assert_eq!((geometry.samples(), geometry.sample_rate_hz(), source.period()), (50, 20_000_000, 3));
        for pattern in 0..3 {
            let samples = unpacked(&source, 1, pattern);
            // Sample 7 of the link's channel 2, which is the file's channel 6; shots are sorted by number.
            assert_eq!(samples[7 * 4 + 2], 6 * 50 + 7 + pattern as i16);
        }
        let report = source.report().rf.unwrap();
        assert_eq!((report.scale, report.clipped), (1.0, 0));
    }

    #[test]
    fn given_samples_are_split_over_links() {
        let samples: Vec<i16> = (0..2 * 5 * 8).collect();
        let given = Some(Arc::new(GivenShots::new(samples.clone(), (2, 5, 8), 12, Packing::Packed12).unwrap()));
        let config = Config { links: 2, channels: 4, given, ..Config::default() };
        let source = Source::new(&config).unwrap();
        assert_eq!((source.geometry().samples(), source.period(), source.pattern_period()), (5, 2, 0));
        // Shot 1, sample 3, channel 2 of link 1.
        assert_eq!(unpacked(&source, 1, 1)[3 * 4 + 2], 40 + 3 * 8 + 6);
        let refused = |config: Config| Source::new(&config).unwrap_err().to_string();
        let channels = refused(Config { channels: 6, ..config.clone() });
        assert!(channels.contains("found 8 channels"), "{channels}");
        let too_many = refused(Config { samples: Some(6), ..config });
        assert!(too_many.contains("at most 5 samples"), "{too_many}");
        let shape =
            |shape, bits| GivenShots::new(samples.clone(), shape, bits, Packing::Packed12).unwrap_err().to_string();
        assert!(shape((2, 5, 7), 12).contains("found 80 samples"), "too many");
        assert!(GivenShots::new(Vec::new(), (0, 5, 7), 12, Packing::Packed12).is_err());
        assert!(GivenShots::new(vec![255], (1, 1, 1), 8, Packing::Uint8).is_ok());
        assert!(GivenShots::new(vec![-1], (1, 1, 1), 8, Packing::Uint8).is_err());
        assert!(shape((2, 5, 8), 6).contains("expected samples of 6 bits, found 32"));
    }

    #[test]
    fn large_values_are_scaled_by_default_and_clipped_on_request() {
        let dir = tempfile::tempdir().unwrap();
        let input = Some(rf_file(dir.path(), 2, 10, -16384.0));
        let config = Config { links: 1, channels: 2, input, ..Config::default() };
        let scaled = Source::new(&config).unwrap();
        assert_eq!(unpacked(&scaled, 0, 0)[0], -2047);
        assert_eq!(scaled.report().rf.unwrap().clipped, 0);
        let clipped = Source::new(&Config { scale: Some(1.0), ..config }).unwrap();
        assert_eq!(unpacked(&clipped, 0, 0)[..3], [-2048, 10, 1]);
        assert_eq!(clipped.report().rf.unwrap().clipped, 3);
    }

    #[test]
    fn missing_channels_samples_and_shots_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let config =
            Config { links: 1, channels: 2, input: Some(rf_file(dir.path(), 2, 10, 1.0)), ..Config::default() };
        let refused = |config: &Config| Source::new(config).unwrap_err().to_string();
        assert!(refused(&Config { links: 2, ..config.clone() }).contains("has 2 channels, but 2 links of 2 require 4"));
        assert!(refused(&Config { samples: Some(11), ..config.clone() }).contains("has 10 samples"));
        let empty = dir.path().join("empty.hdf5");
        hdf5::File::create(&empty).unwrap();
        assert!(refused(&Config { input: Some(empty), ..config }).contains("has no /data/rf_data"));
    }

    #[test]
    fn a_pattern_source_writes_the_verifiers_bytes() {
        let source = Source::new(&Config::default()).unwrap();
        let (mut bytes, mut expected) = (vec![0; 288_000], vec![0; 288_000]);
        source.write(1, 77, 3, source.geometry(), &mut bytes);
        prbs::write_shot(77, 3, source.geometry(), &mut expected);
        assert_eq!(bytes, expected);
    }
}
