//! Samples out of shots' buffers: whole small shots, and the first part of large ones.

use shotline_acquire::live::About;
use shotline_compute::pack12;
use shotline_store::shot::Shot;
use shotline_wire::shot::{Geometry, Packing};

/// Maximum number of samples, of all channels, that are taken out of a shot. A digitizer's shots have many more.
const MAX_VALUES: usize = 1 << 20;

/// Sample bytes of shots, copied out of their buffers.
#[derive(Default)]
pub(super) struct Samples {
    bytes: Vec<u8>,
    values: Vec<i16>,
}

impl Samples {
    /// Returns the sample bytes of a shot.
    pub(super) fn of(&mut self, about: &About, shot: &Shot) -> &[u8] {
        self.read(shot, about.geometry.sample_bytes() as usize)
    }

    /// Returns the first samples of a shot, at most this many of each channel: all channels of sample 0 first.
    pub(super) fn first(&mut self, geometry: &Geometry, shot: &Shot, samples: usize) -> &[i16] {
        let channels = usize::from(geometry.channels());
        let samples = samples.min(geometry.samples() as usize).min((MAX_VALUES / channels).max(1));
        let count = samples * channels;
        let bytes = match geometry.packing() {
            Packing::Packed12 => count.div_ceil(2) * 3,
            Packing::Int16Le | Packing::Int16Be => count * 2,
            Packing::Uint8 => count,
        };
        self.read(shot, bytes.min(geometry.sample_bytes() as usize));
        unpack(geometry, &self.bytes, count, &mut self.values);
        &self.values
    }

    fn read(&mut self, shot: &Shot, len: usize) -> &[u8] {
        self.bytes.resize(len.min(shot.buffer.len() as usize), 0);
        shot.buffer.read(0, &mut self.bytes);
        &self.bytes
    }
}

/// Unpacks `count` samples. Unsigned bytes are samples around the middle of their range; samples without bytes are 0.
pub(super) fn unpack(geometry: &Geometry, bytes: &[u8], count: usize, values: &mut Vec<i16>) {
    values.clear();
    match geometry.packing() {
        Packing::Packed12 => {
            // Pairs of samples, also where the last one is of no use.
            let even = (bytes.len() / 3 * 2).min(count.next_multiple_of(2));
            values.resize(even, 0);
            pack12::unpack(&bytes[..even / 2 * 3], values);
        }
        Packing::Int16Le => values.extend(bytes.as_chunks::<2>().0.iter().map(|pair| i16::from_le_bytes(*pair))),
        Packing::Int16Be => values.extend(bytes.as_chunks::<2>().0.iter().map(|pair| i16::from_be_bytes(*pair))),
        Packing::Uint8 => {
            let middle = 1_i16 << (geometry.bits().clamp(1, 8) - 1);
            values.extend(bytes.iter().map(|byte| i16::from(*byte) - middle));
        }
    }
    values.resize(count, 0);
}

/// Returns the magnitude of a full-scale sample.
pub(super) fn full_scale(geometry: &Geometry) -> f64 {
    f64::from(1_u32 << (geometry.bits().clamp(1, 16) - 1))
}
