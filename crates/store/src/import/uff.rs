//! UFF `channel_data`: one shot per transmission of each frame.
//!
//! In the file the dimensions are (frame, wave, channel, time), since MATLAB writes them in the opposite order and
//! omits trailing dimensions of 1. Complex data becomes pairs of channels, in phase and quadrature.

use super::about::{Candidate, FormatInfo};
use super::error::ImportError;
use super::files::expect_local;
use super::frames::{Frames, Shape, source_info, whole_rate};
use super::options::ImportOptions;
use super::source::{LinkShot, NumberRange};
use hdf5::types::{TypeDescriptor, VarLenAscii, VarLenUnicode};
use hdf5::{Dataset, File, Group, Location};
use ndarray::Array2;
use std::path::Path;

pub(super) const ABOUT: FormatInfo = FormatInfo {
    name: "uff",
    source: "UFF (HDF5)",
    hdf5: Some("channel_data of UFF"),
    used_options: &[],
    feature: None,
};
const FORMAT: &str = ABOUT.name;

/// Finds the channel data of a file: the root group, or a member of it.
fn find(file: &File) -> Option<Group> {
    if is_channel_data(file) {
        return file.group("/").ok();
    }
    file.groups().ok()?.into_iter().find(|group| is_channel_data(group))
}

fn is_channel_data(at: &Location) -> bool {
    let class = at.attr("class").ok();
    let words = class.and_then(|class| {
        let unicode = class.read_scalar::<VarLenUnicode>().map(|words| words.to_string());
        unicode.or_else(|_| class.read_scalar::<VarLenAscii>().map(|words| words.to_string())).ok()
    });
    words.as_deref() == Some("uff.channel_data")
}

/// Recognises HDF5 files with channel data.
pub(super) fn recognizes(candidate: &Candidate<'_>) -> Result<bool, ImportError> {
    Ok(candidate.hdf5()?.is_some_and(|file| find(file).is_some()))
}

pub(super) fn open(path: &Path, _options: &ImportOptions) -> Result<Frames, ImportError> {
    let failed = || ImportError::hdf5(path);
    let file = File::open(path).map_err(failed())?;
    let data = find(&file).ok_or_else(|| ImportError::format(path, "expected channel_data of UFF, found none"))?;
    let parts = match data.dataset("data") {
        Ok(real) => vec![real],
        Err(_) => {
            let complex = data.group("data").map_err(failed())?;
            vec![complex.dataset("real").map_err(failed())?, complex.dataset("imag").map_err(failed())?]
        }
    };
    parts.iter().try_for_each(|part| expect_local(part, &file, path))?;
    let mut shape = parts[0].shape();
    if !(2..=4).contains(&shape.len()) || parts.iter().any(|part| part.shape() != shape) {
        let found = format!("expected data of (frame, wave, channel, time), found {shape:?}");
        return Err(ImportError::format(path, found));
    }
    let rank = shape.len();
    while shape.len() < 4 {
        shape.insert(0, 1);
    }
    let [frames, waves, channels, samples] = [shape[0], shape[1], shape[2], shape[3]];
    let mut notes = Vec::new();
    let rate = data.dataset("sampling_frequency").map_err(failed())?;
    expect_local(&rate, &file, path)?;
    let rate = rate.read_raw::<f64>().map_err(failed())?;
    let rate_hz = whole_rate(rate.first().copied().unwrap_or(0.0), &mut notes);
    let numbers = numbers_of(&parts[0], path)?;
    let width = parts.len();
    let shape = Shape {
        channels: (channels as u64).saturating_mul(width as u64),
        samples: samples as u64,
        shots: (frames as u64).saturating_mul(waves as u64),
        rate_hz,
        numbers,
    };
    let mut info = source_info(path, FORMAT, shape)?;
    info.run.config.push_str(&format!("waves = {waves}\n"));
    info.notes = notes;
    let owned = path.to_owned();
    let read = move |shot: u64| {
        let (frame, wave) = (shot as usize / waves, shot as usize % waves);
        let mut transposed = vec![0.0; channels * samples * width];
        for (part, dataset) in parts.iter().enumerate() {
            let values = slice(dataset, rank, frame, wave).map_err(ImportError::hdf5(&owned))?;
            for ((channel, sample), value) in values.indexed_iter() {
                transposed[(sample * channels + channel) * width + part] = *value;
            }
        }
        Ok(LinkShot { samples: transposed, ..LinkShot::default() })
    };
    Ok(Frames::new(info, Box::new(read)))
}

/// Reads the (channel, time) samples of a shot.
fn slice(dataset: &Dataset, rank: usize, frame: usize, wave: usize) -> hdf5::Result<Array2<f64>> {
    match rank {
        2 => dataset.read_2d(),
        3 => dataset.read_slice((wave, .., ..)),
        _ => dataset.read_slice((frame, wave, .., ..)),
    }
}

/// Returns the range of the numbers of a dataset.
pub(super) fn numbers_of(dataset: &Dataset, path: &Path) -> Result<NumberRange, ImportError> {
    use hdf5::types::IntSize::{U1, U2};
    let kind = dataset.dtype().and_then(|kind| kind.to_descriptor()).map_err(ImportError::hdf5(path))?;
    match kind {
        TypeDescriptor::Unsigned(U1) => Ok(NumberRange::Bytes),
        TypeDescriptor::Integer(U1 | U2) => Ok(NumberRange::Int16),
        TypeDescriptor::Integer(_) | TypeDescriptor::Unsigned(_) | TypeDescriptor::Float(_) => Ok(NumberRange::Any),
        other => Err(ImportError::format(path, format!("expected numbers in {}, found {other}", dataset.name()))),
    }
}
