//! Digital RF 2: a folder per link with HDF5 files of a fixed time span, named by their start time.
//!
//! Every sample has an index, counted from the beginning of 1970, UTC. Missing samples are omitted: each file has an
//! index of its contiguous blocks. Lost shots, missing packets and pauses are all gaps without filler samples.
//! (<https://github.com/MITHaystack/digital_rf>; in the format of version 2.6 of its library.)

use super::about::{FormatInfo, Losses, OptionKind, Target};
use super::destination::Destination;
use super::error::ExportError;
use super::options::{Options, Radio};
use super::shots::{Shots, missing_instants};
use super::timeline::Timeline;
use crate::info::{number, text};
use crate::rows::State;
use hdf5::H5Type;
use hdf5::{Dataset, File, Location, SimpleExtents};
use ndarray::ArrayView2;
use shotline_wire::shot::Packing;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;

pub(super) const ABOUT: FormatInfo = FormatInfo {
    name: "digital-rf",
    summary: "A folder of Digital RF",
    extensions: &[],
    option_kind: OptionKind::Radio,
    target: Target::Folder,
    losses: &[Losses::Gap],
    feature: None,
};
const FORMAT: &str = ABOUT.name;
/// Properties file of a channel.
pub(super) const PROPERTIES: &str = "drf_properties.h5";
/// Attribute in a channel's properties that identifies an export of this crate.
pub(super) const MARK: &str = "shotline_run_id";
/// Time span of a subfolder, in seconds.
const SUBDIR_SECONDS: u64 = 3600;
/// Maximum size of a file in bytes, unless a millisecond of samples exceeds it.
const MAX_FILE_BYTES: u64 = 256 << 20;
/// Possible time spans of a file, in milliseconds, all divisors of an hour.
const CADENCES: [u64; 10] = [1000, 500, 200, 100, 50, 20, 10, 5, 2, 1];
/// Size of an HDF5 chunk, in bytes.
const CHUNK_BYTES: usize = 1 << 20;
/// Text of the attribute `digital_rf_time_description`, as the library writes it.
const TIME_DESCRIPTION: &str = "All times in this format are in number of samples since the epoch in the epoch attribute.  The \
first sample time will be sample_rate * UTC time at first sample.  Attribute init_utc_timestamp records this init UTC \
time so that a conversion to any other time is possible given the number of leapseconds difference at \
init_utc_timestamp.  Leapseconds that occur during data recording are included in the data.";

/// Complex 16-bit sample.
#[derive(Clone, Copy, H5Type)]
#[repr(C)]
struct Complex16 {
    r: i16,
    i: i16,
}

/// Complex 8-bit sample.
#[derive(Clone, Copy, H5Type)]
#[repr(C)]
struct Complex8 {
    r: u8,
    i: u8,
}

/// Returns the path patterns of the files of an export, with `#` in place of numbers.
pub(super) fn path_patterns() -> Vec<String> {
    ["link#/drf_properties.h#", "link#/#-#-#T#-#-#/rf@#.#.h#"].map(str::to_owned).to_vec()
}

pub(super) fn write(
    shots: &mut Shots<'_>,
    options: &Options,
    to: &Destination<'_>,
    notes: &mut Vec<String>,
) -> Result<u64, ExportError> {
    let radio = options.radio(&ABOUT)?;
    let draft = to.draft()?.folder()?;
    let mut overlaps = 0;
    for link in shots.links().to_vec() {
        let folder = draft.path().join(format!("link{link}"));
        overlaps += write_link(shots, link, radio, folder)?;
    }
    if overlaps > 0 {
        notes.push(format!(
            "{overlaps} shots overlap the previous one by their timestamps: they are placed directly after it"
        ));
    }
    let bytes = draft.bytes();
    draft.finish()?;
    Ok(bytes)
}

fn write_link(shots: &mut Shots<'_>, link: usize, radio: &Radio, folder: PathBuf) -> Result<u64, ExportError> {
    let g = shots.link(link).geometry;
    let rate = shots.rate(link, FORMAT)?;
    let channels = usize::from(g.channels());
    if radio.iq && channels % 2 == 1 {
        let why = format!("pairs of I and Q need an even number of channels, found {channels}: export without --iq");
        return Err(ExportError::Unsupported { format: FORMAT, why });
    }
    fs::create_dir(&folder).map_err(ExportError::io("create", &folder))?;
    let mut timeline = Timeline::new(rate, g.samples(), shots.tai_minus_utc_ns());
    let start_ns = shots.run().start_tai_ns;
    let mut channel = ChannelWriter::new(folder, rate, channels, radio, (g.packing(), g.samples()), shots)?;
    let mut overlaps = 0;
    shots.each(link, |shot| {
        let position = timeline.position(shot.row, start_ns);
        overlaps += u64::from(position.overlaps);
        if shot.row.state == State::Lost {
            return Ok(());
        }
        let mut next = 0;
        let gaps = missing_instants(shot.missing, channels);
        let end = std::iter::once(g.samples() as usize..g.samples() as usize);
        for gap in gaps.into_iter().chain(end) {
            channel.write(position.start + next as u64, &shot.samples[next * channels..gap.start * channels])?;
            next = gap.end;
        }
        Ok(())
    })?;
    channel.close()?;
    Ok(overlaps)
}

/// Writer of a Digital RF channel, which is one link.
struct ChannelWriter {
    folder: PathBuf,
    properties: Properties,
    /// Values per instant.
    channels: usize,
    open: Option<OpenFile>,
    /// Number of files created, which is the sequence number of the next one.
    files: u64,
    start_utc_s: u64,
    uuid: String,
}

/// Attributes common to all files of a channel.
struct Properties {
    rate: u64,
    cadence_ms: u64,
    subchannels: usize,
    complex: bool,
    packing: Packing,
}

/// The file that is being written.
struct OpenFile {
    path: PathBuf,
    /// Indexes of the samples that belong in this file.
    samples: Range<u64>,
    data: Dataset,
    file: File,
    /// Rows written.
    rows: usize,
    /// Contiguous blocks: index of the first sample, and its row.
    blocks: Vec<[u64; 2]>,
}

impl ChannelWriter {
    fn new(
        folder: PathBuf,
        rate: u32,
        channels: usize,
        radio: &Radio,
        (packing, samples): (Packing, u32),
        shots: &Shots<'_>,
    ) -> Result<Self, ExportError> {
        let bytes = if packing == Packing::Uint8 { 1 } else { 2 };
        let second = u64::from(rate) * channels as u64 * bytes;
        let cadence_ms = CADENCES.into_iter().find(|ms| second * ms / 1000 <= MAX_FILE_BYTES).unwrap_or(1);
        let subchannels = if radio.iq { channels / 2 } else { channels };
        let properties = Properties { rate: rate.into(), cadence_ms, subchannels, complex: radio.iq, packing };
        let path = folder.join(PROPERTIES);
        let create = || -> hdf5::Result<()> {
            let file = File::create_excl(&path)?;
            properties.write(&file)?;
            let run = shots.run();
            text(&file, MARK, &run.run_id)?;
            text(&file, "shotline_software", &run.software)?;
            text(&file, "shotline_instrument", &run.instrument)?;
            number(&file, "shotline_samples_per_shot", samples)?;
            number(&file, "shotline_tai_minus_utc_s", shots.tai_minus_utc_ns() / 1_000_000_000)?;
            match radio.centre_hz {
                Some(hz) => number(&file, "center_frequency_hz", hz),
                None => Ok(()),
            }
        };
        create().map_err(ExportError::hdf5(&path))?;
        let run = shots.run();
        let start_utc_s = run.start_utc_ns / 1_000_000_000;
        Ok(Self { folder, properties, channels, open: None, files: 0, start_utc_s, uuid: run.run_id.clone() })
    }

    /// Writes a block of instants starting at index `start`.
    fn write(&mut self, mut start: u64, mut samples: &[i16]) -> Result<(), ExportError> {
        while !samples.is_empty() {
            if self.open.as_ref().is_none_or(|open| !open.samples.contains(&start)) {
                self.close()?;
                self.open = Some(self.create_file(start)?);
            }
            let Some(open) = &mut self.open else { break };
            let remaining = (open.samples.end - start) as usize;
            let (now, later) = samples.split_at(samples.len().min(remaining * self.channels));
            open.append(start, now, &self.properties).map_err(ExportError::hdf5(&open.path))?;
            start += (now.len() / self.channels) as u64;
            samples = later;
        }
        Ok(())
    }

    /// Creates the file that contains a sample.
    fn create_file(&mut self, sample: u64) -> Result<OpenFile, ExportError> {
        let (rate, cadence) = (u128::from(self.properties.rate), self.properties.cadence_ms);
        let ms = (u128::from(sample) * 1000 / rate) as u64 / cadence * cadence;
        // The first sample at or after a millisecond.
        let first = |ms: u64| (u128::from(ms) * rate).div_ceil(1000) as u64;
        let seconds = ms / 1000;
        let folder = self.folder.join(hour_folder(seconds / SUBDIR_SECONDS * SUBDIR_SECONDS));
        fs::create_dir_all(&folder).map_err(ExportError::io("create", &folder))?;
        let path = folder.join(format!("rf@{seconds}.{:03}.h5", ms % 1000));
        let create = || -> hdf5::Result<OpenFile> {
            let file = File::create_excl(&path)?;
            let samples = first(ms)..first(ms + cadence);
            let data = self.properties.dataset(&file, (samples.end - samples.start) as usize)?;
            self.properties.write(&data)?;
            number(&data, "sequence_num", self.files as i32)?;
            number(&data, "init_utc_timestamp", self.start_utc_s)?;
            number(&data, "computer_time", self.start_utc_s)?;
            text(&data, "uuid_str", &self.uuid)?;
            Ok(OpenFile { path: path.clone(), samples, data, file, rows: 0, blocks: Vec::new() })
        };
        let open = create().map_err(ExportError::hdf5(&path))?;
        self.files += 1;
        Ok(open)
    }

    fn close(&mut self) -> Result<(), ExportError> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let written = || -> hdf5::Result<()> {
            let index = open.file.new_dataset::<u64>().shape((open.blocks.len(), 2)).create("rf_data_index")?;
            index.write_raw(open.blocks.as_flattened())
        };
        written().map_err(ExportError::hdf5(&open.path))
    }
}

impl OpenFile {
    fn append(&mut self, start: u64, samples: &[i16], properties: &Properties) -> hdf5::Result<()> {
        let width = properties.subchannels * if properties.complex { 2 } else { 1 };
        let instants = samples.len() / width;
        let follows = self.blocks.last().is_some_and(|[first, at]| first + (self.rows as u64 - at) == start);
        if !follows {
            self.blocks.push([start, self.rows as u64]);
        }
        let rows = self.rows..self.rows + instants;
        self.data.resize((rows.end, properties.subchannels))?;
        let bytes = || samples.iter().map(|sample| *sample as u8);
        match (properties.packing, properties.complex) {
            (Packing::Uint8, false) => self.put(rows.clone(), &bytes().collect::<Vec<_>>()),
            (Packing::Uint8, true) => {
                let bytes: Vec<u8> = bytes().collect();
                self.put(rows.clone(), &pairs(&bytes, |r, i| Complex8 { r, i }))
            }
            (_, false) => self.put(rows.clone(), samples),
            (_, true) => self.put(rows.clone(), &pairs(samples, |r, i| Complex16 { r, i })),
        }?;
        self.rows = rows.end;
        Ok(())
    }

    fn put<T: H5Type>(&self, instants: Range<usize>, values: &[T]) -> hdf5::Result<()> {
        let shape = (instants.len(), values.len() / instants.len());
        let view = ArrayView2::from_shape(shape, values).map_err(|error| hdf5::Error::from(error.to_string()))?;
        self.data.write_slice(view, (instants, ..))
    }
}

fn pairs<T: Copy, C>(values: &[T], pair: impl Fn(T, T) -> C) -> Vec<C> {
    values.as_chunks::<2>().0.iter().map(|[r, i]| pair(*r, *i)).collect()
}

impl Properties {
    fn write(&self, at: &Location) -> hdf5::Result<()> {
        let bytes: u64 = if self.packing == Packing::Uint8 { 1 } else { 2 };
        for (name, value) in [
            ("H5Tget_class", 0), // integers
            ("H5Tget_size", bytes),
            ("H5Tget_order", 0), // little-endian
            ("H5Tget_precision", bytes * 8),
            ("H5Tget_offset", 0),
            ("subdir_cadence_secs", SUBDIR_SECONDS),
            ("file_cadence_millisecs", self.cadence_ms),
            ("sample_rate_numerator", self.rate),
            ("sample_rate_denominator", 1),
        ] {
            number::<u64>(at, name, value)?;
        }
        number(at, "is_complex", i32::from(self.complex))?;
        number(at, "num_subchannels", self.subchannels as i32)?;
        number(at, "is_continuous", 0_i32)?;
        text(at, "epoch", "1970-01-01T00:00:00Z")?;
        text(at, "digital_rf_time_description", TIME_DESCRIPTION)?;
        text(at, "digital_rf_version", "2.6.0")
    }

    fn dataset(&self, file: &File, max_rows: usize) -> hdf5::Result<Dataset> {
        let row = self.subchannels * if self.complex { 2 } else { 1 } * 2;
        let chunk = (CHUNK_BYTES / row).clamp(1, max_rows.max(1));
        let shape = || SimpleExtents::from((0..=max_rows, self.subchannels));
        match (self.packing, self.complex) {
            (Packing::Uint8, false) => create_dataset::<u8>(file, shape(), chunk),
            (Packing::Uint8, true) => create_dataset::<Complex8>(file, shape(), chunk),
            (_, false) => create_dataset::<i16>(file, shape(), chunk),
            (_, true) => create_dataset::<Complex16>(file, shape(), chunk),
        }
    }
}

fn create_dataset<T: H5Type>(at: &File, shape: SimpleExtents, chunk: usize) -> hdf5::Result<Dataset> {
    let subchannels = shape[1].dim;
    at.new_dataset::<T>().chunk((chunk, subchannels)).shape(shape).create("rf_data")
}

/// Returns the folder name of an hour, such as `2026-11-21T04-00-00`.
fn hour_folder(seconds: u64) -> String {
    let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    humantime::format_rfc3339_seconds(time).to_string().trim_end_matches('Z').replace(':', "-")
}
