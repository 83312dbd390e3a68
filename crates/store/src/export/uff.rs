//! Ultrasound File Format (UFF) of the UltraSound ToolBox (USTB): `channel_data` in one HDF5 file.
//!
//! Samples are single-precision numbers, which represent 16-bit integers exactly; missing samples are NaN. Lost shots
//! take no space in the file and read as NaN. (USTB's `uff` classes; read by pyuff_ustb 3.)

use super::about::{FormatInfo, Losses, OptionKind, Target};
use super::destination::Destination;
use super::error::ExportError;
use super::frames::Frames;
use super::options::Options;
use super::shots::Shots;
use crate::info::text;
use crate::rows::State;
use hdf5::types::H5Type;
use hdf5::{Dataset, File, Group, Location};
use ndarray::ArrayView2;
use shotline_compute::ultrasound::Array;

pub(super) const ABOUT: FormatInfo = FormatInfo {
    name: "uff",
    summary: "Ultrasound File Format of the UltraSound ToolBox (HDF5)",
    extensions: &["uff"],
    option_kind: OptionKind::Array,
    target: Target::File,
    losses: &[Losses::Nan],
    feature: None,
};
const FORMAT: &str = ABOUT.name;

pub(super) fn write(
    shots: &mut Shots<'_>,
    options: &Options,
    to: &Destination<'_>,
    notes: &mut Vec<String>,
) -> Result<u64, ExportError> {
    let array = options.array(&ABOUT)?;
    let frames = Frames::of(shots, array, FORMAT)?;
    let draft = to.draft()?;
    let failed = || ExportError::hdf5(draft.path());
    let file = File::create_excl(draft.path()).map_err(failed())?;
    let data = channel_data(&file, shots, array, &frames).map_err(failed())?;
    let (channels, samples) = (usize::from(frames.geometry.channels()), frames.geometry.samples() as usize);
    let mut transposed = vec![0.0_f32; channels * samples];
    for (position, link) in shots.links().to_vec().into_iter().enumerate() {
        let elements = position * channels..(position + 1) * channels;
        shots.each(link, |shot| {
            if shot.row.state == State::Lost {
                return Ok(());
            }
            for (at, sample) in shot.samples.iter().enumerate() {
                transposed[at % channels * samples + at / channels] = f32::from(*sample);
            }
            for at in shot.missing.iter().cloned().flatten() {
                transposed[at % channels * samples + at / channels] = f32::NAN;
            }
            let (frame, wave) = frames.locate(shot.row.number);
            ArrayView2::from_shape((channels, samples), &transposed)
                .map_err(|error| hdf5::Error::from(error.to_string()))
                .and_then(|view| data.write_slice(view, (frame, wave, elements.clone(), ..)))
                .map_err(failed())
        })?;
    }
    file.close().map_err(failed())?;
    let counters = shots.counters();
    if counters.lost + counters.partial + frames.unused() > 0 {
        notes.push("missing samples are NaN".into());
    }
    let bytes = draft.bytes();
    draft.finish()?;
    Ok(bytes)
}

fn channel_data(file: &File, shots: &Shots<'_>, array: &Array, frames: &Frames) -> hdf5::Result<Dataset> {
    text(file, "version", "v1.2.0")?;
    let root = object(file, "channel_data", "uff.channel_data", 1)?;
    value(&root, "sampling_frequency", f64::from(frames.rate))?;
    value(&root, "initial_time", array.initial_time_s)?;
    value(&root, "sound_speed", array.sound_speed_m_s)?;
    value(&root, "modulation_frequency", 0.0)?;
    if let Some(hz) = frames.span.rate_hz() {
        value(&root, "PRF", hz)?;
    }
    let run = shots.run();
    chars(&root, "name", "channel_data")?;
    let info = format!(
        "recording {} of {}, shots {} to {}; NaN: not received",
        run.run_id, run.instrument, frames.span.first, frames.span.last
    );
    chars(&root, "info", &info)?;
    let pulse = object(&root, "pulse", "uff.pulse", 1)?;
    value(&pulse, "center_frequency", array.centre_hz)?;
    probe(&root, array, frames.elements)?;
    waves(&root, array)?;
    let samples = frames.geometry.samples() as usize;
    let data = root
        .new_dataset::<f32>()
        .chunk((1, 1, usize::from(frames.geometry.channels()), samples))
        .fill_value(f32::NAN)
        .shape((frames.frames, frames.waves, frames.elements, samples))
        .create("data")?;
    describe(&data, "data")?;
    Ok(data)
}

fn probe(at: &Group, array: &Array, elements: usize) -> hdf5::Result<()> {
    let probe = object(at, "probe", "uff.linear_array", 1)?;
    value(&probe, "N", elements as f64)?;
    value(&probe, "pitch", array.pitch_m)?;
    value(&probe, "element_width", array.width_m)?;
    value(&probe, "element_height", array.height_m)?;
    // Rows: x, y, z, theta, phi, width, height.
    let mut geometry = array.x_m(elements);
    geometry.resize(5 * elements, 0.0);
    geometry.resize(6 * elements, array.width_m);
    geometry.resize(7 * elements, array.height_m);
    values(&probe, "geometry", (7, elements), &geometry)?;
    point(&probe, "origin", 0.0, 0.0)
}

fn waves(at: &Group, array: &Array) -> hdf5::Result<()> {
    let count = array.waves();
    let sequence = object(at, "sequence", "uff.wave", count)?;
    for (index, angle) in array.angles_rad.iter().enumerate() {
        // A single wave is the group itself; several waves are members of it.
        let wave = match count {
            1 => sequence.clone(),
            _ => object(&sequence, &format!("sequence_{:04}", index + 1), "uff.wave", 1)?,
        };
        let front = wave.new_dataset::<i32>().shape((1, 1)).create("wavefront")?;
        front.write_raw(&[0])?; // plane
        text(&front, "class", "uff.wavefront")?;
        text(&front, "name", "wavefront")?;
        point(&wave, "source", f64::INFINITY, *angle)?;
        point(&wave, "origin", 0.0, 0.0)?;
        object(&wave, "apodization", "uff.apodization", 1)?;
        value(&wave, "event", (index + 1) as f64)?;
        value(&wave, "delay", 0.0)?;
        value(&wave, "sound_speed", array.sound_speed_m_s)?;
    }
    Ok(())
}

fn point(at: &Group, name: &str, distance: f64, azimuth: f64) -> hdf5::Result<()> {
    let point = object(at, name, "uff.point", 1)?;
    value(&point, "distance", distance)?;
    value(&point, "azimuth", azimuth)?;
    value(&point, "elevation", 0.0)
}

/// Creates a group for an object of a class, or for `count` of them.
fn object(at: &Group, name: &str, class: &str, count: usize) -> hdf5::Result<Group> {
    let group = at.create_group(name)?;
    text(&group, "class", class)?;
    text(&group, "name", name)?;
    array_attribute(&group, "array", &[i32::from(count > 1)])?;
    array_attribute(&group, "size", &[1, count as i32])?;
    Ok(group)
}

fn value(at: &Group, name: &str, value: f64) -> hdf5::Result<()> {
    values(at, name, (1, 1), &[value])
}

fn values<T: H5Type>(at: &Group, name: &str, shape: (usize, usize), values: &[T]) -> hdf5::Result<()> {
    let dataset = at.new_dataset::<T>().shape(shape).create(name)?;
    dataset.write_raw(values)?;
    describe(&dataset, name)
}

/// Writes text as a column of UTF-16 code units.
fn chars(at: &Group, name: &str, words: &str) -> hdf5::Result<()> {
    let units: Vec<u16> = words.encode_utf16().collect();
    let dataset = at.new_dataset::<u16>().shape((units.len(), 1)).create(name)?;
    dataset.write_raw(&units)?;
    text(&dataset, "class", "char")?;
    text(&dataset, "name", name)
}

fn describe(dataset: &Dataset, name: &str) -> hdf5::Result<()> {
    text(dataset, "class", "single")?;
    text(dataset, "name", name)?;
    array_attribute(dataset, "complex", &[0])?;
    array_attribute(dataset, "imaginary", &[0])
}

fn array_attribute(at: &Location, name: &str, values: &[i32]) -> hdf5::Result<()> {
    at.new_attr::<i32>().shape(values.len()).create(name)?.write_raw(values)
}
