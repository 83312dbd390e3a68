//! zea `raw_data`: one shot per transmission of each frame. IQ data becomes pairs of channels.
//!
//! Exports of this crate also have masks of missing samples, from which lost and partial shots are restored.

use super::about::{Candidate, FormatInfo};
use super::error::ImportError;
use super::files::expect_local;
use super::frames::{Frames, Shape, source_info, whole_rate};
use super::options::ImportOptions;
use super::source::LinkShot;
use super::uff::numbers_of;
use hdf5::{Dataset, File};
use ndarray::{Array1, Array2, Array3};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub(super) const ABOUT: FormatInfo =
    FormatInfo { name: "zea", source: "zea (HDF5)", hdf5: Some("raw_data of zea"), used_options: &[], feature: None };
const FORMAT: &str = ABOUT.name;
/// Paths of the data and the scan in files with tracks, and in files of older versions without.
const PATHS: [(&str, &str); 2] = [("tracks/track_0/data/raw_data", "tracks/track_0/scan"), ("data/raw_data", "scan")];

/// Recognises HDF5 files with five-dimensional raw data.
pub(super) fn recognizes(candidate: &Candidate<'_>) -> Result<bool, ImportError> {
    let is_raw = |file: &File, data| file.dataset(data).is_ok_and(|data| data.ndim() == 5);
    Ok(candidate.hdf5()?.is_some_and(|file| PATHS.iter().any(|(data, _)| is_raw(file, data))))
}

pub(super) fn open(path: &Path, _options: &ImportOptions) -> Result<Frames, ImportError> {
    let failed = || ImportError::hdf5(path);
    let file = File::open(path).map_err(failed())?;
    let found = PATHS.into_iter().find(|(data, _)| file.dataset(data).is_ok()).unwrap_or(PATHS[0]);
    let raw = file.dataset(found.0).map_err(failed())?;
    expect_local(&raw, &file, path)?;
    let mut notes = Vec::new();
    if file.group("tracks").is_ok_and(|tracks| tracks.len() > 1) {
        notes.push("it has several tracks: the first one is imported".into());
    }
    let shape = raw.shape();
    let &[frames, waves, samples, elements, parts] = &shape[..] else {
        return Err(ImportError::format(path, format!("expected raw_data of 5 dimensions, found {shape:?}")));
    };
    let rate = file.dataset(&format!("{}/sampling_frequency", found.1)).map_err(failed())?;
    expect_local(&rate, &file, path)?;
    let rate = rate.read_scalar::<f64>().map_err(failed())?;
    let rate_hz = whole_rate(rate, &mut notes);
    let channels = (elements as u64).saturating_mul(parts as u64);
    let shots = (frames as u64).saturating_mul(waves as u64);
    let numbers = numbers_of(&raw, path)?;
    let shape = Shape { channels, samples: samples as u64, shots, rate_hz, numbers };
    let mut info = source_info(path, FORMAT, shape)?;
    info.run.config.push_str(&format!("waves = {waves}\n"));
    info.notes = notes;
    let masks = Masks::of(&file, path, [frames, waves])?;
    let owned = path.to_owned();
    let read = move |shot: u64| {
        let (frame, wave) = (shot as usize / waves, shot as usize % waves);
        let values: Array3<f64> = raw.read_slice((frame, wave, .., .., ..)).map_err(ImportError::hdf5(&owned))?;
        let mut link_shot = LinkShot { samples: values.into_raw_vec_and_offset().0, ..LinkShot::default() };
        if let Some(masks) = &masks {
            masks.apply((frame, wave), elements, &mut link_shot)?;
        }
        Ok(link_shot)
    };
    Ok(Frames::new(info, Box::new(read)))
}

/// Masks of missing samples in an export.
struct Masks {
    path: PathBuf,
    state: Dataset,
    stamp: Dataset,
    /// Missing ranges by frame and transmission: first element of the link, first sample, count.
    runs: BTreeMap<(u64, u64), Vec<[u64; 3]>>,
}

impl Masks {
    fn of(file: &File, path: &Path, shots: [usize; 2]) -> Result<Option<Self>, ImportError> {
        let member = |name: &str| file.dataset(&format!("custom/{name}"));
        let (Ok(state), Ok(stamp), Ok(missing)) = (member("shot_state"), member("stamp_tai_ns"), member("missing"))
        else {
            return Ok(None);
        };
        [&state, &stamp, &missing].into_iter().try_for_each(|member| expect_local(member, file, path))?;
        let of_shots = |mask: &Dataset| mask.ndim() == 3 && mask.shape()[..2] == shots;
        let shapes_fit = of_shots(&state) && of_shots(&stamp) && missing.ndim() == 2 && missing.shape()[1] == 5;
        if !shapes_fit {
            let [frames, waves] = shots;
            let found = format!(
                "expected custom/shot_state and custom/stamp_tai_ns of {frames} x {waves} x links, custom/missing of rows of 5; found other shapes"
            );
            return Err(ImportError::format(path, found));
        }
        let mut runs = BTreeMap::<_, Vec<_>>::new();
        let table: Array2<u64> = missing.read_2d().map_err(ImportError::hdf5(path))?;
        for run in table.rows() {
            runs.entry((run[0], run[1])).or_default().push([run[2], run[3], run[4]]);
        }
        Ok(Some(Self { path: path.to_owned(), state, stamp, runs }))
    }

    fn apply(&self, at: (usize, usize), elements: usize, link_shot: &mut LinkShot) -> Result<(), ImportError> {
        let failed = || ImportError::hdf5(&self.path);
        let states: Array1<u8> = self.state.read_slice((at.0, at.1, ..)).map_err(failed())?;
        let stamps: Array1<u64> = self.stamp.read_slice((at.0, at.1, ..)).map_err(failed())?;
        link_shot.stamp_tai_ns = stamps.iter().copied().find(|stamp| *stamp > 0).unwrap_or(0);
        let channels = elements / states.len().max(1);
        if channels == 0 || !elements.is_multiple_of(states.len().max(1)) {
            let found = format!("custom/shot_state: expected links of {elements} elements, found {}", states.len());
            return Err(ImportError::format(&self.path, found));
        }
        for (link, state) in states.iter().enumerate() {
            if *state == 0 {
                let first = link * channels;
                for instant in link_shot.samples.chunks_exact_mut(elements) {
                    instant[first..first + channels].fill(f64::NAN);
                }
            }
        }
        for [first, start, count] in self.runs.get(&(at.0 as u64, at.1 as u64)).into_iter().flatten() {
            let all = (link_shot.samples.len() / elements * channels) as u64;
            let first = (*first).min(elements as u64) as usize;
            for sample in (*start).min(all) as usize..start.saturating_add(*count).min(all) as usize {
                let (instant, channel) = (sample / channels, sample % channels);
                if let Some(sample) = link_shot.samples.get_mut(instant * elements + first + channel) {
                    *sample = f64::NAN;
                }
            }
        }
        Ok(())
    }
}
