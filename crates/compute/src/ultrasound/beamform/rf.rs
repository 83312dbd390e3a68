//! Samples of a shot, and their conversion to traces.

use super::BeamformError;
use super::kernel::MARGIN;
use crate::pack12;
use shotline_wire::shot::Packing;

/// Samples of consecutive elements: those of a link, or of the whole array.
#[derive(Clone, Copy, Debug)]
pub enum Rf<'a> {
    /// A shot's sample bytes, without padding and trailer: all channels of sample 0, then of sample 1, and so on.
    /// Unsigned bytes are samples around 128.
    Shot {
        /// The bytes.
        bytes: &'a [u8],
        /// How samples are packed.
        packing: Packing,
        /// Channels of the shot.
        channels: usize,
    },
    /// Integers in the same order.
    Int16 {
        /// The samples.
        samples: &'a [i16],
        /// Channels of the shot.
        channels: usize,
    },
    /// Floating-point numbers in the order of channels: all samples of channel 0, then of channel 1, and so on. Those
    /// that are not finite count as 0; the others are limited to +-10^9.
    Channels(&'a [f32]),
}

/// Limit of floating-point samples, so that neither a sum nor its square overflows.
const LIMIT: f32 = 1e9;
/// Samples that are converted together: a cache line of a trace.
const TILE: usize = 16;

impl Rf<'_> {
    /// Returns the number of channels, if the length is right for this many samples per channel.
    pub(super) fn channels(&self, samples: usize) -> Result<usize, BeamformError> {
        let (unit, channels, expected, found) = match *self {
            Self::Shot { bytes, packing, channels } => {
                let bits =
                    samples.checked_mul(channels).and_then(|n| n.checked_mul(packing.bits_per_sample() as usize));
                ("bytes", channels, bits.map(|bits| bits.div_ceil(8)), bytes.len())
            }
            Self::Int16 { samples: values, channels } => {
                ("samples", channels, samples.checked_mul(channels), values.len())
            }
            Self::Channels(values) => {
                let channels = values.len() / samples.max(1);
                ("samples", channels, samples.checked_mul(channels), values.len())
            }
        };
        match expected {
            Some(expected) if expected == found => Ok(channels),
            expected => Err(BeamformError::Length { unit, expected: expected.unwrap_or(usize::MAX), found }),
        }
    }
}

/// Converts samples to traces. All memory is allocated at construction.
pub(super) struct Converter {
    /// Rows of a tile as integers.
    rows: Vec<i16>,
}

impl Converter {
    pub(super) fn new(elements: usize) -> Self {
        Self { rows: vec![0; TILE * elements] }
    }

    /// Writes the samples of each channel to its trace, after the margin.
    pub(super) fn convert(&mut self, rf: Rf<'_>, channels: usize, samples: usize, traces: &mut [f32], stride: usize) {
        if let Rf::Channels(values) = rf {
            for (trace, values) in traces.chunks_exact_mut(stride).zip(values.chunks_exact(samples)) {
                for (out, value) in trace[MARGIN..].iter_mut().zip(values) {
                    *out = if value.is_finite() { value.clamp(-LIMIT, LIMIT) } else { 0.0 };
                }
            }
            return;
        }
        for first in (0..samples).step_by(TILE) {
            let count = TILE.min(samples - first);
            let range = first * channels..(first + count) * channels;
            let rows: &[i16] = match rf {
                Rf::Int16 { samples, .. } => &samples[range],
                Rf::Shot { bytes, packing, .. } => {
                    let rows = &mut self.rows[..range.len()];
                    unpack(bytes, packing, range.start, rows);
                    rows
                }
                Rf::Channels(_) => &[],
            };
            transpose(rows, channels, count, first, traces, stride);
        }
    }
}

/// Unpacks samples from `first` on.
fn unpack(bytes: &[u8], packing: Packing, first: usize, out: &mut [i16]) {
    let words = || bytes[2 * first..].as_chunks::<2>().0;
    match packing {
        Packing::Int16Le => out.iter_mut().zip(words()).for_each(|(out, word)| *out = i16::from_le_bytes(*word)),
        Packing::Int16Be => out.iter_mut().zip(words()).for_each(|(out, word)| *out = i16::from_be_bytes(*word)),
        Packing::Uint8 => out.iter_mut().zip(&bytes[first..]).for_each(|(out, byte)| *out = i16::from(*byte) - 128),
        Packing::Packed12 => {
            // `first` is even: tiles are of 16 samples. Only the last pair of a shot may be half used.
            let begin = first / 2 * 3;
            let (pairs, odd) = out.split_at_mut(out.len() / 2 * 2);
            let end = begin + pack12::packed_bytes(pairs.len());
            pack12::unpack(&bytes[begin..end], pairs);
            if let ([odd], Some(pair)) = (odd, bytes[end..].first_chunk::<2>()) {
                *odd = i16::from_be_bytes(*pair) >> 4;
            }
        }
    }
}

/// Writes rows of channels to the traces of the channels.
fn transpose(rows: &[i16], channels: usize, count: usize, first: usize, traces: &mut [f32], stride: usize) {
    for (channel, trace) in traces.chunks_exact_mut(stride).take(channels).enumerate() {
        let out = &mut trace[MARGIN + first..][..count];
        for (out, row) in out.iter_mut().zip(rows.chunks_exact(channels)) {
            *out = f32::from(row[channel]);
        }
    }
}
