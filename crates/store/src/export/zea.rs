//! zea's HDF5 format, as version 0.1.8 of its library reads it: one track with `raw_data` and its scan.
//!
//! `raw_data` is int16, which cannot represent missing samples: they read as 0, and `custom/` has the masks:
//! `shot_state` of each shot, and `missing` with the ranges of missing samples in partial shots.
//! (<https://github.com/tue-bmd/zea>, `zea/data/spec.py`.)

use super::about::{FormatInfo, Losses, OptionKind, Target};
use super::destination::Destination;
use super::error::ExportError;
use super::frames::Frames;
use super::options::Options;
use super::shots::Shots;
use crate::info::{text, timestamp};
use crate::rows::State;
use hdf5::plist::dataset_create::{AllocTime, FillTime};
use hdf5::types::{H5Type, VarLenUnicode};
use hdf5::{Dataset, Extents, File, Group};
use ndarray::{ArrayView1, ArrayView2};
use shotline_compute::ultrasound::Array;
use std::str::FromStr;

pub(super) const ABOUT: FormatInfo = FormatInfo {
    name: "zea",
    summary: "zea's HDF5 format",
    extensions: &[],
    option_kind: OptionKind::Array,
    target: Target::File,
    losses: &[Losses::Mask],
    feature: None,
};
const FORMAT: &str = ABOUT.name;
/// Version of the zea library whose format is written.
const VERSION: &str = "0.1.8";
/// Maximum ratio of allocated shots to recorded ones, since lost shots take space too.
const MAX_LOSS_RATIO: u64 = 1000;
/// Rows per chunk of the table of missing samples.
const CHUNK_ROWS: usize = 4096;

pub(super) fn write(
    shots: &mut Shots<'_>,
    options: &Options,
    to: &Destination<'_>,
    notes: &mut Vec<String>,
) -> Result<u64, ExportError> {
    let array = options.array(&ABOUT)?;
    let frames = Frames::of(shots, array, FORMAT)?;
    if frames.span.count() > MAX_LOSS_RATIO * frames.span.recorded + MAX_LOSS_RATIO {
        let (first, last) = (frames.span.first, frames.span.last);
        let why = format!("nearly all shots from {first} to {last} are lost: export a part (--from, --shots)");
        return Err(ExportError::Unsupported { format: FORMAT, why });
    }
    let draft = to.draft()?;
    let failed = || ExportError::hdf5(draft.path());
    let file = File::create_excl(draft.path()).map_err(failed())?;
    let mut datasets = skeleton(&file, shots, array, &frames).map_err(failed())?;
    let channels = usize::from(frames.geometry.channels());
    for (position, link) in shots.links().to_vec().into_iter().enumerate() {
        let first = position * channels;
        shots.each(link, |shot| {
            let (frame, wave) = frames.locate(shot.row.number);
            let at = (frame, wave, position);
            datasets.state(at, shot.row.state, shot.row.stamp_tai_ns).map_err(failed())?;
            if shot.row.state == State::Lost {
                return Ok(());
            }
            let runs = shot.missing.iter().map(|range| [frame, wave, first, range.start, range.len()]);
            datasets.missing(runs.map(|run| run.map(|value| value as u64))).map_err(failed())?;
            let samples = ArrayView2::from_shape((shot.samples.len() / channels, channels), shot.samples)
                .map_err(|error| failed()(error.to_string().into()))?;
            datasets.raw.write_slice(samples, (frame, wave, .., first..first + channels, 0)).map_err(failed())
        })?;
    }
    datasets.finish().map_err(failed())?;
    drop(datasets);
    file.close().map_err(failed())?;
    let counters = shots.counters();
    if counters.lost + counters.partial + frames.unused() > 0 {
        notes.push("missing samples are 0 in raw_data: custom/shot_state and custom/missing mark them".into());
    }
    let bytes = draft.bytes();
    draft.finish()?;
    Ok(bytes)
}

/// Datasets that are filled shot by shot.
struct Datasets {
    raw: Dataset,
    state: Dataset,
    stamp: Dataset,
    missing: Dataset,
    rows_written: usize,
    pending: Vec<[u64; 5]>,
}

impl Datasets {
    fn state(&self, at: (usize, usize, usize), state: State, stamp: u64) -> hdf5::Result<()> {
        self.state.write_slice(ArrayView1::from(&[state as u8]), (at.0, at.1, at.2..at.2 + 1))?;
        self.stamp.write_slice(ArrayView1::from(&[stamp]), (at.0, at.1, at.2..at.2 + 1))
    }

    fn missing(&mut self, runs: impl Iterator<Item = [u64; 5]>) -> hdf5::Result<()> {
        self.pending.extend(runs);
        if self.pending.len() >= CHUNK_ROWS { self.finish() } else { Ok(()) }
    }

    fn finish(&mut self) -> hdf5::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let rows = self.rows_written..self.rows_written + self.pending.len();
        self.missing.resize((rows.end, 5))?;
        let flat = self.pending.as_flattened();
        let view = ArrayView2::from_shape((rows.len(), 5), flat).map_err(|e| hdf5::Error::from(e.to_string()))?;
        self.missing.write_slice(view, (rows.clone(), ..))?;
        self.rows_written = rows.end;
        self.pending.clear();
        Ok(())
    }
}

fn skeleton(file: &File, shots: &Shots<'_>, array: &Array, frames: &Frames) -> hdf5::Result<Datasets> {
    let run = shots.run();
    text(file, "zea_version", VERSION)?;
    text(file, "us_machine", &run.instrument)?;
    text(file, "description", &format!("recording {} by {}", run.run_id, run.software))?;
    text(file, "acquisition_time", &timestamp(run.start_utc_ns).replace('Z', "+00:00"))?;
    file.create_group("metadata")?;
    file.create_group("metrics")?;
    probe(&file.create_group("probe")?, array, frames.elements)?;
    let track = file.create_group("tracks")?.create_group("track_0")?;
    scan(&track.create_group("scan")?, array, frames)?;
    let transmit_only = track.new_dataset::<bool>().create("transmit_only")?;
    transmit_only.write_scalar(&false)?;
    describe(&transmit_only, "–", "Whether this track records only the transmit sequence.")?;

    let g = frames.geometry;
    let (samples, channels) = (g.samples() as usize, usize::from(g.channels()));
    let raw = track
        .create_group("data")?
        .new_dataset::<i16>()
        .chunk((1, 1, samples, channels, 1))
        // zea's reader reads chunks directly from the file, so the chunks of lost shots must be allocated too.
        // Unwritten parts of a new file read as zeros.
        .alloc_time(Some(AllocTime::Early))
        .fill_time(FillTime::Never)
        .shape((frames.frames, frames.waves, samples, frames.elements, 1))
        .create("raw_data")?;
    describe(&raw, "–", "Raw channel data.")?;

    let custom = file.create_group("custom")?;
    text(&custom, "description", "This group contains custom elements not in the zea format, added by the user.")?;
    let links = frames.elements / channels;
    let shape = (frames.frames, frames.waves, links);
    let state = custom.new_dataset::<u8>().chunk(chunk(shape)).shape(shape).create("shot_state")?;
    describe(&state, "–", "Of each shot on each link: 0 lost or never sent, 1 partial, 2 complete and verified.")?;
    let stamp = custom.new_dataset::<u64>().chunk(chunk(shape)).shape(shape).create("stamp_tai_ns")?;
    describe(&stamp, "ns", "TAI nanoseconds since 1970 of the first sample of each shot on each link; 0: unknown.")?;
    let missing = custom.new_dataset::<u64>().chunk((CHUNK_ROWS, 5)).shape((0.., 5)).create("missing")?;
    describe(
        &missing,
        "–",
        "Runs of samples that were not received and are 0: frame, transmission, first element of the link, first \
         sample counted through the link's elements and then through time, count.",
    )?;
    Ok(Datasets { raw, state, stamp, missing, rows_written: 0, pending: Vec::new() })
}

/// Returns the chunk shape of per-shot datasets: whole frames, up to 4096 entries.
fn chunk(shape: (usize, usize, usize)) -> (usize, usize, usize) {
    ((4096 / (shape.1 * shape.2)).clamp(1, shape.0), shape.1, shape.2)
}

fn probe(at: &Group, array: &Array, elements: usize) -> hdf5::Result<()> {
    string_dataset(at, "name", "generic", "Probe model name/identifier.")?;
    string_dataset(at, "type", "linear", "Probe geometry type (linear, phased, curved, ...).")?;
    scalar_dataset(at, "probe_center_frequency", array.centre_hz, "Hz", "Probe nominal centre frequency.")?;
    let xyz: Vec<f32> = array.x_m(elements).into_iter().flat_map(|x| [x as f32, 0.0, 0.0]).collect();
    let about = "Element positions (x, y, z) per element, shape (n_el, 3).";
    array_dataset(at, "probe_geometry", (elements, 3), &xyz, "m", about)?;
    scalar_dataset(at, "element_width", array.width_m, "m", "Width of a single transducer element.")?;
    scalar_dataset(at, "element_height", array.height_m, "m", "Height of a single transducer element.")
}

fn scan(at: &Group, array: &Array, frames: &Frames) -> hdf5::Result<()> {
    let (waves, elements) = (frames.waves, frames.elements);
    scalar_dataset(at, "sampling_frequency", frames.rate.into(), "Hz", "Sampling frequency.")?;
    scalar_dataset(at, "center_frequency", array.centre_hz, "Hz", "Center frequency of the transmit pulse.")?;
    scalar_dataset(at, "demodulation_frequency", array.centre_hz, "Hz", "Demodulation frequency.")?;
    scalar_dataset(at, "sound_speed", array.sound_speed_m_s, "m/s", "Speed of sound.")?;
    let every = |value: f32| vec![value; waves];
    let about = "Transmit focus distances; infinite: plane wave.";
    array_dataset(at, "focus_distances", waves, &every(f32::INFINITY), "m", about)?;
    let angles: Vec<f32> = array.angles_rad.iter().map(|angle| *angle as f32).collect();
    array_dataset(at, "polar_angles", waves, &angles, "rad", "Polar angles of transmit beams.")?;
    array_dataset(at, "azimuth_angles", waves, &every(0.0), "rad", "Azimuthal angles of transmit beams.")?;
    let origins = vec![0.0; waves * 3];
    array_dataset(at, "transmit_origins", (waves, 3), &origins, "m", "Transmit beam origins (x, y, z).")?;
    let ones = vec![1.0; waves * elements];
    array_dataset(at, "tx_apodizations", (waves, elements), &ones, "–", "Transmit apodization per element.")?;
    let mut delays = Vec::with_capacity(waves * elements);
    let mut starts = Vec::with_capacity(waves);
    // zea counts time from the first element's firing, and without a waveform it takes the peak of the pulse to follow
    // after one period. An array's time 0 is when that peak passes the origin.
    let peak_s = 1.0 / array.centre_hz;
    for angle in &array.angles_rad {
        let path = |x: f64| x * angle.sin() / array.sound_speed_m_s;
        let x = array.x_m(elements);
        let first = x.iter().map(|x| path(*x)).fold(f64::INFINITY, f64::min);
        delays.extend(x.iter().map(|x| (path(*x) - first) as f32));
        starts.push((array.initial_time_s - first + peak_s) as f32);
    }
    array_dataset(at, "initial_times", waves, &starts, "s", "A/D converter start times per transmit.")?;
    array_dataset(at, "t0_delays", (waves, elements), &delays, "s", "Transmit delays per element.")?;
    // Only the mean of the timestamps, stored as fill value: custom/stamp_tai_ns has the individual times.
    match frames.span.rate_hz() {
        Some(hz) => {
            let shape = (frames.frames, waves);
            let about = "Time between transmit events: the mean of all; custom/stamp_tai_ns has each.";
            let dataset = at
                .new_dataset::<f32>()
                .chunk((frames.frames.clamp(1, 4096), waves))
                .fill_value((1.0 / hz) as f32)
                .shape(shape)
                .create("time_to_next_transmit")?;
            describe(&dataset, "s", about)
        }
        None => Ok(()),
    }
}

fn scalar_dataset(at: &Group, name: &str, value: f64, unit: &str, about: &str) -> hdf5::Result<()> {
    let dataset = at.new_dataset::<f32>().create(name)?;
    dataset.write_scalar(&(value as f32))?;
    describe(&dataset, unit, about)
}

fn array_dataset<T: H5Type, S: Into<Extents>>(
    at: &Group,
    name: &str,
    shape: S,
    values: &[T],
    unit: &str,
    about: &str,
) -> hdf5::Result<()> {
    let dataset = at.new_dataset::<T>().shape(shape).create(name)?;
    dataset.write_raw(values)?;
    describe(&dataset, unit, about)
}

fn string_dataset(at: &Group, name: &str, value: &str, about: &str) -> hdf5::Result<()> {
    let dataset = at.new_dataset::<VarLenUnicode>().create(name)?;
    dataset.write_scalar(&VarLenUnicode::from_str(value).map_err(|error| hdf5::Error::from(error.to_string()))?)?;
    describe(&dataset, "–", about)
}

fn describe(dataset: &Dataset, unit: &str, about: &str) -> hdf5::Result<()> {
    text(dataset, "unit", unit)?;
    text(dataset, "description", about)
}
