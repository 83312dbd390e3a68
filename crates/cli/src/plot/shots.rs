//! Shots of a recording as pictures.

use crate::Result;
use shotline_compute::pack12;
use shotline_store::read::Recording;
use shotline_store::rows::State;
use shotline_wire::shot::{Geometry, Packing};

/// Range between the brightest and the darkest grey of a picture, in dB.
pub const RANGE_DB: f32 = 60.0;

/// Samples of one shot of one link, without the mean of each channel.
#[derive(Debug)]
pub struct Picture {
    /// Shot number.
    pub number: u64,
    /// Stream number.
    pub stream: u32,
    /// Geometry of the shot.
    pub geometry: Geometry,
    /// Values by sample, with all channels of each.
    pub values: Vec<f32>,
}

/// Returns link and row of every complete shot, in the order of rows.
pub fn complete(recording: &Recording) -> Result<Vec<(usize, u64)>> {
    let mut places = Vec::new();
    for link in 0..recording.run().links.len() {
        for (at, row) in recording.rows_of(link).enumerate() {
            if row?.state == State::Complete {
                places.push((link, at as u64));
            }
        }
    }
    places.sort_by_key(|(link, row)| (*row, *link));
    Ok(places)
}

/// Returns the first complete shot, if there is one.
pub fn first(recording: &Recording) -> Result<Option<Picture>> {
    for link in 0..recording.run().links.len() {
        for (at, row) in recording.rows_of(link).enumerate() {
            if row?.state == State::Complete {
                return picture(recording, (link, at as u64)).map(Some);
            }
        }
    }
    Ok(None)
}

/// Returns the shot of a link and row.
pub fn picture(recording: &Recording, (link, at): (usize, u64)) -> Result<Picture> {
    let row = recording.rows_of(link).nth(at as usize).ok_or("there are fewer rows")??;
    let info = &recording.run().links[link];
    let mut slots = recording.slot_reader();
    let mut values = samples(slots.read(at, link)?, &info.geometry);
    let (channels, samples) = (usize::from(info.geometry.channels()), info.geometry.samples() as usize);
    for channel in 0..channels {
        let column = || (channel..).step_by(channels);
        let sum: f64 = column().map_while(|at| values.get(at)).map(|value| f64::from(*value)).sum();
        let mean = (sum / samples as f64) as f32;
        column().take_while(|at| *at < samples * channels).for_each(|at| values[at] -= mean);
    }
    Ok(Picture { number: row.number, stream: info.stream, geometry: info.geometry, values })
}

impl Picture {
    /// Returns the shot as grey pixels, from black to white over [`RANGE_DB`] below its strongest sample. Each is the strongest
    /// sample under it. There are at most as many columns as channels, and rows as samples.
    pub fn levels(&self, columns: usize, rows: usize) -> Vec<u8> {
        let (samples, channels) = (self.geometry.samples() as usize, usize::from(self.geometry.channels()));
        let mut strongest = vec![0_f32; columns * rows];
        for (sample, values) in self.values.chunks(channels).enumerate() {
            for (channel, value) in values.iter().enumerate() {
                let at = sample * rows / samples * columns + channel * columns / channels;
                strongest[at] = strongest[at].max(value.abs());
            }
        }
        let peak = strongest.iter().copied().fold(0.0, f32::max).max(f32::MIN_POSITIVE);
        let level = |value: f32| 1.0 + 20.0 * (value / peak).max(1e-6).log10() / RANGE_DB;
        strongest.into_iter().map(|value| (level(value).clamp(0.0, 1.0) * 255.0) as u8).collect()
    }
}

fn samples(slot: &[u8], geometry: &Geometry) -> Vec<f32> {
    let bytes = &slot[..geometry.sample_bytes() as usize];
    match geometry.packing() {
        Packing::Uint8 => bytes.iter().map(|value| f32::from(*value)).collect(),
        Packing::Int16Le => bytes.as_chunks().0.iter().map(|pair| f32::from(i16::from_le_bytes(*pair))).collect(),
        Packing::Int16Be => bytes.as_chunks().0.iter().map(|pair| f32::from(i16::from_be_bytes(*pair))).collect(),
        Packing::Packed12 => {
            let mut values = vec![0; bytes.len() / 3 * 2];
            pack12::unpack(bytes, &mut values);
            values.into_iter().map(f32::from).collect()
        }
    }
}
