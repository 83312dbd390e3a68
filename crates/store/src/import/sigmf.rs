//! SigMF: samples with metadata. Contiguous captures form a block.
//!
//! In exports of this crate, the metadata contains the length and number of the shots and their missing samples.

use super::about::{Candidate, FormatInfo, ImportOption};
use super::blocks::{Block, Blocks, MAX_INDEX, count_shots, samples_per_shot, set_start};
use super::bounds::{TAI_MINUS_UTC_S, optional, time};
use super::error::ImportError;
use super::files::open_error;
use super::frames::{Shape, source_info, whole_rate};
use super::npy::value;
use super::options::ImportOptions;
use super::source::NumberRange;
use crate::confined_path::{Folder, open_regular};
use crate::layout::folder;
use crate::zarr::objects::is_remote;
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde_json::Value;
use shotline_wire::shot::MAX_SHOTS;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub(super) const ABOUT: FormatInfo = FormatInfo {
    name: "sigmf",
    source: "SigMF (.sigmf-meta)",
    hdf5: None,
    used_options: &[ImportOption::Samples, ImportOption::SampleRateHz, ImportOption::Pauses],
    feature: None,
};
const FORMAT: &str = ABOUT.name;

/// Storage type of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    complex: bool,
    letter: char,
    width: usize,
    big_endian: bool,
}

impl Kind {
    /// Parses a `core:datatype`, such as `ci16_le`.
    fn of(datatype: &str) -> Option<Self> {
        let (number, order) = datatype.split_once('_').unwrap_or((datatype, "le"));
        let mut letters = number.chars();
        let (form, letter, bits) = (letters.next()?, letters.next()?, letters.as_str().parse::<usize>().ok()?);
        let known = matches!((letter, bits), ('f', 32 | 64) | ('i' | 'u', 8 | 16 | 32));
        let fits = known && matches!(form, 'c' | 'r') && matches!(order, "le" | "be");
        fits.then_some(Self { complex: form == 'c', letter, width: bits / 8, big_endian: order == "be" })
    }

    fn numbers(self) -> NumberRange {
        match (self.letter, self.width) {
            ('u', 1) => NumberRange::Bytes,
            ('i', 1 | 2) => NumberRange::Int16,
            _ => NumberRange::Any,
        }
    }
}

/// Recognises metadata and samples by their extensions.
pub(super) fn recognizes(candidate: &Candidate<'_>) -> Result<bool, ImportError> {
    let named = candidate.has_extension("sigmf-meta") || candidate.has_extension("sigmf-data");
    Ok(named && !is_remote(candidate.path) && !candidate.path.is_dir())
}

pub(super) fn open(path: &Path, options: &ImportOptions) -> Result<Blocks, ImportError> {
    let path = &path.with_extension("sigmf-meta");
    let text = read_text(path)?;
    let wrong = |found: String| ImportError::format(path, found);
    let meta: Value = serde_json::from_slice(&text).map_err(|error| wrong(format!("expected JSON: {error}")))?;
    let global = &meta["global"];
    let datatype = global["core:datatype"].as_str().unwrap_or_default();
    let kind = Kind::of(datatype).ok_or_else(|| wrong(format!("expected a core:datatype, found {datatype:?}")))?;
    let channels =
        global["core:num_channels"].as_u64().unwrap_or(1).clamp(1, 1 << 20) * if kind.complex { 2 } else { 1 };
    let instant = channels as usize * kind.width;
    let (data, data_path) = data(path, global["core:dataset"].as_str())?;
    let bytes = data.metadata().map_err(ImportError::io(&data_path))?.len();
    let bytes = bytes.saturating_sub(global["core:trailing_bytes"].as_u64().unwrap_or(0));
    let total = bytes / instant as u64;
    let captures = captures(&meta, total, path)?;
    let blocks: Vec<Block> = captures.iter().map(|capture| capture.block).collect();

    let exported = global["shotline:samples_per_shot"].as_u64().and_then(|samples| u32::try_from(samples).ok());
    let samples = samples_per_shot(path, &blocks, channels, options.samples.or(exported))?;
    let mut notes = Vec::new();
    let rate = global["core:sample_rate"].as_f64().unwrap_or(0.0);
    let rate_hz = options.sample_rate_hz.unwrap_or_else(|| whole_rate(rate, &mut notes));
    let shots = count_shots(&blocks, samples);
    let shape = Shape { channels, samples, shots, rate_hz, numbers: kind.numbers() };
    let mut info = source_info(path, FORMAT, shape)?;
    info.notes.extend(notes);
    if let Some(hardware) = global["core:hw"].as_str() {
        info.run.instrument = hardware.into();
    }
    info.run.config.push_str(&format!("datatype = {datatype:?}\nsample_rate_hz = {rate:?}\n"));
    if let Some(hz) = meta["captures"][0]["core:frequency"].as_f64() {
        info.run.config.push_str(&format!("centre_hz = {hz:?}\n"));
    }
    let field = "shotline:tai_minus_utc_s";
    let tai_minus_utc = optional(path, field, &global[field], Value::as_i64, TAI_MINUS_UTC_S)?;
    let tai_minus_utc_ns =
        i128::from(set_start(&mut info.run, tai_minus_utc, captures.first().and_then(|capture| capture.utc_ns)));
    let missing = missing(&meta);
    let starts: Vec<u64> = captures.iter().map(|capture| capture.at).collect();
    let times: Vec<Option<u64>> = captures.iter().map(|capture| capture.utc_ns).collect();
    let stamp = move |block: usize, offset: u64| match times[block] {
        // The cast saturates at 64 bits, which is beyond any valid time.
        Some(utc) if rate > 0.0 => {
            i128::from(utc) + tai_minus_utc_ns + i128::from((offset as f64 * 1e9 / rate).round() as u64)
        }
        Some(utc) if offset == 0 => i128::from(utc) + tai_minus_utc_ns,
        _ => 0,
    };
    let read = move |block: usize, offset: u64, count: usize| {
        let first = starts[block] + offset;
        let mut bytes = vec![0; count * instant];
        data.read_exact_at(&mut bytes, first * instant as u64).map_err(ImportError::io(&data_path))?;
        let mut values: Vec<f64> = bytes
            .chunks_exact_mut(kind.width)
            .map(|number| {
                if kind.big_endian {
                    number.reverse();
                }
                value(kind.letter, number)
            })
            .collect();
        let width = values.len() / count.max(1);
        for range in missing.iter().filter(|range| range.start < first + count as u64 && range.end > first) {
            let lost = range.start.saturating_sub(first) as usize..((range.end - first) as usize).min(count);
            values[lost.start * width..lost.end * width].fill(f64::NAN);
        }
        Ok(values)
    };
    Ok(Blocks::new(path, info, blocks, options, Box::new(stamp), Box::new(read)))
}

fn read_text(path: &Path) -> Result<Vec<u8>, ImportError> {
    let mut text = Vec::new();
    open_regular(path, OFlags::RDONLY)
        .and_then(|mut file| file.read_to_end(&mut text))
        .map_err(ImportError::io(path))?;
    Ok(text)
}

/// Opens the samples: the file named in the metadata, which must be in the same folder, or the file of the same name.
fn data(path: &Path, named: Option<&str>) -> Result<(File, PathBuf), ImportError> {
    let Some(name) = named else {
        let data = path.with_extension("sigmf-data");
        return Ok((open_regular(&data, OFlags::RDONLY).map_err(ImportError::io(&data))?, data));
    };
    let data = folder(path).join(name);
    let found = Folder::open(folder(path)).and_then(|folder| folder.file(Path::new(name), OFlags::RDONLY));
    match found {
        Ok(file) => Ok((file, data)),
        Err(Errno::XDEV) => Err(ImportError::format(
            path,
            format!("core:dataset: expected a file within the folder of the metadata, found {name:?}: move it there"),
        )),
        Err(errno) => Err(open_error(&data, errno)),
    }
}

/// Contiguous captures.
struct Capture {
    /// First sample in the data.
    at: u64,
    utc_ns: Option<u64>,
    block: Block,
}

fn captures(meta: &Value, total: u64, path: &Path) -> Result<Vec<Capture>, ImportError> {
    let listed = meta["captures"].as_array().map_or(&[][..], Vec::as_slice);
    let (mut out, mut next) = (Vec::<Capture>::new(), 0);
    let whole = serde_json::json!({"core:sample_start": 0});
    let listed = if listed.is_empty() { std::slice::from_ref(&whole) } else { listed };
    for (index, capture) in listed.iter().enumerate() {
        if capture["core:header_bytes"].as_u64().unwrap_or(0) > 0 {
            return Err(ImportError::format(path, "expected samples alone, found captures with header_bytes"));
        }
        let at = capture["core:sample_start"].as_u64().unwrap_or(0);
        let end = listed.get(index + 1).and_then(|next| next["core:sample_start"].as_u64()).unwrap_or(total).min(total);
        if at >= end {
            continue;
        }
        let start = capture["core:global_index"].as_u64().unwrap_or(at);
        if start > MAX_INDEX {
            return Err(ImportError::format(path, format!("expected a global_index up to 2^62, found {start}")));
        }
        let field = "shotline:number";
        let number = optional(path, field, &capture[field], Value::as_u64, next..=MAX_SHOTS - 1)?;
        next = number.map_or(next, |number| number + 1);
        if let Some(last) = out.last_mut()
            && last.block.start + last.block.samples == start
            && number.is_none()
        {
            last.block.samples += end - at;
            continue;
        }
        let datetime = capture["core:datetime"].as_str().and_then(|time| humantime::parse_rfc3339_weak(time).ok());
        let since = datetime.and_then(|datetime| datetime.duration_since(SystemTime::UNIX_EPOCH).ok());
        let field = format!("core:datetime {}", capture["core:datetime"]);
        let utc_ns = since.map(|since| time(path, &field, since.as_nanos() as i128)).transpose()?;
        out.push(Capture { at, utc_ns, block: Block { start, samples: end - at, number } });
    }
    Ok(out)
}

/// Returns the missing samples according to an export of this crate, as ranges of samples in the data.
fn missing(meta: &Value) -> Vec<Range<u64>> {
    if meta["global"]["shotline:run_id"].is_null() {
        return Vec::new();
    }
    let annotations = meta["annotations"].as_array().map_or(&[][..], Vec::as_slice);
    let missing = annotations.iter().filter(|annotation| annotation["core:label"] == "missing");
    let range = |annotation: &Value| {
        let start = annotation["core:sample_start"].as_u64()?;
        Some(start..start.saturating_add(annotation["core:sample_count"].as_u64()?))
    };
    missing.filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datatypes_are_read() {
        let of = |datatype| Kind::of(datatype);
        assert_eq!(of("ci16_be"), Some(Kind { complex: true, letter: 'i', width: 2, big_endian: true }));
        assert_eq!(of("ru8"), Some(Kind { complex: false, letter: 'u', width: 1, big_endian: false }));
        assert_eq!((of("ci12"), of("xf32"), of(""), of("cf32_me")), (None, None, None, None));
    }
}
