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

/// Place of a complete shot.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    link: usize,
    row: u64,
    number: u64,
}

/// Returns the place of every complete shot, in the order of rows.
pub fn complete(recording: &Recording) -> Result<Vec<Place>> {
    let links = 0..recording.run().links.len();
    let mut places = links.flat_map(|link| complete_of(recording, link)).collect::<Result<Vec<_>>>()?;
    places.sort_by_key(|place| (place.row, place.link));
    Ok(places)
}

fn complete_of(recording: &Recording, link: usize) -> impl Iterator<Item = Result<Place>> {
    (0..).zip(recording.rows_of(link)).filter_map(move |(at, row)| match row {
        Ok(row) => (row.state == State::Complete).then_some(Ok(Place { link, row: at, number: row.number })),
        Err(error) => Some(Err(error.into())),
    })
}

/// Returns the first complete shot, if there is one.
pub fn first(recording: &Recording) -> Result<Option<Picture>> {
    let mut places = (0..recording.run().links.len()).flat_map(|link| complete_of(recording, link));
    places.next().transpose()?.map(|place| picture(recording, place)).transpose()
}

/// Returns a complete shot.
pub fn picture(recording: &Recording, place: Place) -> Result<Picture> {
    let info = &recording.run().links[place.link];
    let mut slots = recording.slot_reader();
    let mut values = samples(slots.read(place.row, place.link)?, &info.geometry);
    let (channels, samples) = (usize::from(info.geometry.channels()), info.geometry.samples() as usize);
    for channel in 0..channels {
        let column = || (channel..).step_by(channels);
        let sum: f64 = column().map_while(|at| values.get(at)).map(|value| f64::from(*value)).sum();
        let mean = (sum / samples as f64) as f32;
        column().take_while(|at| *at < samples * channels).for_each(|at| values[at] -= mean);
    }
    Ok(Picture { number: place.number, stream: info.stream, geometry: info.geometry, values })
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
