//! Digital RF: a channel of a folder, with the blocks listed in the indexes of its files.

use super::about::{Candidate, FormatInfo, ImportOption};
use super::blocks::{Block, Blocks, MAX_INDEX, count_shots, samples_per_shot, set_start};
use super::bounds::{TAI_MINUS_UTC_S, bounded, time};
use super::error::ImportError;
use super::files::{expect_local, open_below, open_error};
use super::frames::{Shape, source_info, whole_rate};
use super::options::ImportOptions;
use super::source::NumberRange;
use crate::confined_path::Folder;
use hdf5::types::{FloatSize, IntSize, TypeDescriptor};
use hdf5::{Dataset, File, H5Type};
use ndarray::Array2;
use std::fs;
use std::path::{Path, PathBuf};

pub(super) const ABOUT: FormatInfo = FormatInfo {
    name: "digital-rf",
    source: "a folder of Digital RF",
    hdf5: None,
    used_options: &[ImportOption::Samples, ImportOption::Channel, ImportOption::Pauses],
    feature: None,
};
const FORMAT: &str = ABOUT.name;
const PROPERTIES: &str = "drf_properties.h5";
/// Maximum numerator of the sample rate. Up to it, and to the maximum denominator, times are exact.
const MAX_NUMERATOR: f64 = (1_u64 << 53) as f64;
/// Maximum denominator of the sample rate.
const MAX_DENOMINATOR: f64 = (1_u64 << 32) as f64;

/// Complex sample, as converted by HDF5.
#[derive(Clone, Copy, Debug, H5Type)]
#[repr(C)]
struct Complex {
    r: f64,
    i: f64,
}

/// Contiguous samples in one file.
#[derive(Clone, Copy, Debug)]
struct Segment {
    /// Index of the file.
    file: usize,
    /// First row in the file.
    row: u64,
    /// Index of the first sample.
    start: u64,
    samples: u64,
}

/// Recognises any folder: [`Format::ALL`](super::Format::ALL) has the other formats of folders before this one.
pub(super) fn recognizes(candidate: &Candidate<'_>) -> Result<bool, ImportError> {
    Ok(candidate.path.is_dir())
}

pub(super) fn open(path: &Path, options: &ImportOptions) -> Result<Blocks, ImportError> {
    let channel = channel(path, options)?;
    let properties = channel.join(PROPERTIES);
    let failed = || ImportError::hdf5(&properties);
    let folder = Folder::open(&channel).map_err(|errno| open_error(&channel, errno))?;
    let file = open_below(&folder, Path::new(PROPERTIES))?;
    let number = |name: &str| file.attr(name).and_then(|attribute| attribute.read_raw::<f64>());
    let scalar = |name: &str| number(name).map(|values| values.first().copied().unwrap_or(0.0));
    // Versions before 2.3 have a single number.
    let (numerator, denominator) = match scalar("sample_rate_numerator") {
        Ok(numerator) => (numerator, scalar("sample_rate_denominator").map_err(failed())?),
        Err(_) => (scalar("samples_per_second").map_err(failed())?, 1.0),
    };
    if !((1.0..=MAX_NUMERATOR).contains(&numerator) && (1.0..=MAX_DENOMINATOR).contains(&denominator)) {
        let found = format!("expected a sample rate of up to 2^53/2^32, found {numerator}/{denominator}");
        return Err(ImportError::format(&properties, found));
    }
    let complex = scalar("is_complex").map_err(failed())? != 0.0;
    let subchannels = scalar("num_subchannels").map_err(failed())?;
    let max = f64::from(u16::MAX);
    let subchannels = bounded(&properties, "num_subchannels", &subchannels, Some(subchannels), 1.0..=max)? as u64;
    let channels = subchannels * if complex { 2 } else { 1 };
    let (files, segments) = index(&folder, subchannels)?;
    let numbers = numbers(&folder, &files[0])?;
    let blocks = merge(&segments);
    let exported =
        scalar("shotline_samples_per_shot").ok().map(|samples| samples as u32).filter(|samples| *samples > 0);
    let samples = samples_per_shot(&channel, &blocks, channels, options.samples.or(exported))?;
    let mut notes = Vec::new();
    let rate_hz = whole_rate(numerator / denominator, &mut notes);
    let shots = count_shots(&blocks, samples);
    let mut info = source_info(path, FORMAT, Shape { channels, samples, shots, rate_hz, numbers })?;
    let rate = format!("channel = {:?}\nsample_rate = \"{numerator}/{denominator}\"\n", name_of(&channel));
    info.run.config.push_str(&rate);
    info.notes = notes;
    let starts: Vec<u64> = blocks.iter().map(|block| block.start).collect();
    let utc_ns = move |sample: u64| {
        let whole = u128::from(sample) * denominator as u128 * 1_000_000_000;
        ((whole + numerator as u128 / 2) / numerator as u128) as i128
    };
    let field = "shotline_tai_minus_utc_s";
    let tai_minus_utc =
        scalar(field).ok().map(|seconds| bounded(&properties, field, &seconds, Some(seconds as i64), TAI_MINUS_UTC_S));
    let first = starts.first().map(|start| time(&channel, "the first sample", utc_ns(*start))).transpose()?;
    let tai_minus_utc_ns = i128::from(set_start(&mut info.run, tai_minus_utc.transpose()?, first));
    let stamp = {
        let starts = starts.clone();
        move |block: usize, offset: u64| utc_ns(starts[block] + offset) + tai_minus_utc_ns
    };
    let mut open: Option<(usize, Dataset)> = None;
    let read = move |block: usize, offset: u64, count: usize| {
        let mut values = Vec::with_capacity(count * channels as usize);
        let (mut at, end) = (starts[block] + offset, starts[block] + offset + count as u64);
        let mut next = segments.partition_point(|segment| segment.start + segment.samples <= at);
        while at < end {
            let segment = segments[next];
            let path = &files[segment.file];
            let data = match open.take() {
                Some((file, data)) if file == segment.file => data,
                _ => data(&folder, path)?.1,
            };
            let row = (segment.row + at - segment.start) as usize;
            let rows = (end.min(segment.start + segment.samples) - at) as usize;
            read_rows(&data, row, rows, complex, &mut values).map_err(ImportError::hdf5(path))?;
            open = Some((segment.file, data));
            at += rows as u64;
            next += 1;
        }
        Ok(values)
    };
    Ok(Blocks::new(&channel, info, blocks, options, Box::new(stamp), Box::new(read)))
}

/// Returns the folder of the channel: this folder, its only channel, or the one named in the options.
fn channel(path: &Path, options: &ImportOptions) -> Result<PathBuf, ImportError> {
    if path.join(PROPERTIES).is_file() {
        return Ok(path.to_owned());
    }
    let mut channels = folders(path)?;
    channels.retain(|folder| folder.join(PROPERTIES).is_file());
    let names = || channels.iter().map(|folder| name_of(folder)).collect::<Vec<_>>().join(", ");
    match (&options.channel, &channels[..]) {
        (_, []) => {
            Err(ImportError::format(path, format!("expected a folder of Digital RF ({PROPERTIES}), found none")))
        }
        (Some(name), _) => channels.iter().find(|folder| name_of(folder) == *name).cloned().ok_or_else(|| {
            ImportError::format(path, format!("expected one of the channels {}, found {name}", names()))
        }),
        (None, [only]) => Ok(only.clone()),
        (None, _) => Err(ImportError::format(path, format!("it has the channels {}: choose one (--channel)", names()))),
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

fn folders(path: &Path) -> Result<Vec<PathBuf>, ImportError> {
    let mut out = entries(path)?;
    out.retain(|entry| entry.is_dir());
    Ok(out)
}

fn entries(path: &Path) -> Result<Vec<PathBuf>, ImportError> {
    let listed = fs::read_dir(path).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let mut listed: Vec<PathBuf> = listed.map_err(ImportError::io(path))?;
    listed.sort();
    Ok(listed)
}

/// Opens a file of a channel and its samples.
fn data(within: &Folder, path: &Path) -> Result<(File, Dataset), ImportError> {
    let file = open_below(within, path.strip_prefix(within.path()).unwrap_or(path))?;
    let data = file.dataset("rf_data").map_err(ImportError::hdf5(path))?;
    expect_local(&data, &file, path)?;
    Ok((file, data))
}

/// Returns all files of a channel and their contiguous segments, in the order of time.
fn index(within: &Folder, subchannels: u64) -> Result<(Vec<PathBuf>, Vec<Segment>), ImportError> {
    let channel = within.path();
    let (mut files, mut segments) = (Vec::new(), Vec::new());
    for folder in folders(channel)? {
        files.extend(entries(&folder)?.into_iter().filter(|path| {
            let name = name_of(path);
            name.starts_with("rf@") && name.ends_with(".h5")
        }));
    }
    if files.is_empty() {
        return Err(ImportError::format(channel, "expected files rf@*.h5 in folders below it, found none"));
    }
    for (file, path) in files.iter().enumerate() {
        let failed = || ImportError::hdf5(path);
        let (opened, data) = data(within, path)?;
        let shape = data.shape();
        let rows = shape.first().copied().unwrap_or(0) as u64;
        if shape.iter().skip(1).map(|columns| *columns as u64).product::<u64>() != subchannels {
            let found = format!("rf_data: expected {subchannels} columns (num_subchannels), found {shape:?}");
            return Err(ImportError::format(path, found));
        }
        let listed = opened.dataset("rf_data_index").map_err(failed())?;
        expect_local(&listed, &opened, path)?;
        let listed: Array2<u64> = listed.read_2d().map_err(failed())?;
        if listed.ncols() != 2 {
            let found = format!("rf_data_index: expected rows of 2 numbers, found {}", listed.ncols());
            return Err(ImportError::format(path, found));
        }
        let listed: Vec<(u64, u64)> = listed.rows().into_iter().map(|row| (row[0], row[1])).collect();
        for (at, (start, row)) in listed.iter().enumerate() {
            let end = listed.get(at + 1).map_or(rows, |next| next.1);
            let samples = end.saturating_sub(*row);
            if end > rows || rows > MAX_INDEX || *start > MAX_INDEX {
                let found =
                    format!("expected blocks within its {rows} samples, found one from {row} to {end} at {start}");
                return Err(ImportError::format(path, found));
            }
            if samples > 0 {
                segments.push(Segment { file, row: *row, start: *start, samples });
            }
        }
    }
    segments.sort_by_key(|segment| segment.start);
    if segments.windows(2).any(|pair| pair[0].start + pair[0].samples > pair[1].start) {
        return Err(ImportError::format(channel, "expected every sample once, found blocks that overlap"));
    }
    Ok((files, segments))
}

/// Merges contiguous segments into blocks.
fn merge(segments: &[Segment]) -> Vec<Block> {
    let mut out: Vec<Block> = Vec::new();
    for segment in segments {
        match out.last_mut() {
            Some(last) if last.start + last.samples == segment.start => last.samples += segment.samples,
            _ => out.push(Block { start: segment.start, samples: segment.samples, number: None }),
        }
    }
    out
}

fn numbers(within: &Folder, path: &Path) -> Result<NumberRange, ImportError> {
    let kind = data(within, path)?.1.dtype().and_then(|kind| kind.to_descriptor());
    let kind = kind.map_err(ImportError::hdf5(path))?;
    let number = match &kind {
        TypeDescriptor::Compound(compound) => compound.fields.first().map(|field| &field.ty),
        other => Some(other),
    };
    match number {
        Some(TypeDescriptor::Unsigned(IntSize::U1)) => Ok(NumberRange::Bytes),
        Some(TypeDescriptor::Integer(IntSize::U1 | IntSize::U2)) => Ok(NumberRange::Int16),
        Some(TypeDescriptor::Integer(_) | TypeDescriptor::Unsigned(_)) => Ok(NumberRange::Any),
        Some(TypeDescriptor::Float(FloatSize::U4 | FloatSize::U8)) => Ok(NumberRange::Any),
        _ => Err(ImportError::format(path, format!("expected numbers in rf_data, found {kind}"))),
    }
}

fn read_rows(data: &Dataset, row: usize, rows: usize, complex: bool, values: &mut Vec<f64>) -> hdf5::Result<()> {
    let range = row..row + rows;
    match (complex, data.ndim()) {
        (true, 1) => values.extend(data.read_slice_1d::<Complex, _>(range)?.iter().flat_map(|z| [z.r, z.i])),
        (true, _) => values.extend(data.read_slice_2d::<Complex, _>((range, ..))?.iter().flat_map(|z| [z.r, z.i])),
        (false, 1) => values.extend(data.read_slice_1d::<f64, _>(range)?),
        (false, _) => values.extend(data.read_slice_2d::<f64, _>((range, ..))?),
    }
    Ok(())
}
