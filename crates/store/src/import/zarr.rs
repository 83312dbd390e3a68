//! Zarr exports of this crate: shots with their numbers, timestamps and missing samples.

use super::about::{Candidate, FormatInfo};
use super::bounds::{TAI_MINUS_UTC_S, bounded, optional};
use super::error::ImportError;
use super::frames::Shape;
use super::options::ImportOptions;
use super::source::{LinkShot, NumberRange, ShotSet, Source, SourceInfo, TableEntry};
use crate::info::{LinkInfo, RunInfo};
use crate::rows::NO_NUMBER;
use crate::shot::Loss;
use crate::zarr::objects::{Objects, is_remote};
use crate::zarr::shard::{Codec, split};
use crate::zarr::{FORMAT_NAME, MAX_NODE_BYTES, MAX_SHARD_BYTES};
use serde_json::Value;
use shotline_wire::shot::{DropCause, Geometry, MAX_SHOTS, PACKET_BYTES, Packing};
use std::path::{Path, PathBuf};
use std::rc::Rc;

pub(super) const ABOUT: FormatInfo = FormatInfo {
    name: "zarr",
    source: "a folder or object store of Zarr",
    hdf5: None,
    used_options: &[],
    feature: Some("s3"),
};
const FORMAT: &str = ABOUT.name;

/// A Zarr group exported by this crate.
pub(super) struct Zarr {
    path: PathBuf,
    info: SourceInfo,
    links: Vec<Link>,
    losses: Vec<Loss>,
    row: u64,
    /// Minimum number of the next shot.
    next: u64,
}

/// Arrays of a link.
struct Link {
    samples: Samples,
    geometry: Geometry,
    /// Packets have the default sizes, so the presence maps remain valid.
    default_packets: bool,
    columns: Vec<Column>,
    presence: Column,
    /// Ranges of missing samples by row, for senders with other packet sizes.
    missing: Vec<[u64; 3]>,
}

/// Columns that are read, in this order.
const COLUMNS: [&str; 7] =
    ["number", "stamp_tai_ns", "state", "flags", "valid_bytes", "arrived_tai_ns", "completed_tai_ns"];

/// Recognises object stores, and folders with a root `zarr.json`.
pub(super) fn recognizes(candidate: &Candidate<'_>) -> Result<bool, ImportError> {
    Ok(is_remote(candidate.path) || candidate.path.join("zarr.json").is_file())
}

/// Opens an export of this crate.
pub(super) fn open(path: &Path, _options: &ImportOptions) -> Result<Zarr, ImportError> {
    Zarr::open(path)
}

impl Zarr {
    fn open(path: &Path) -> Result<Self, ImportError> {
        let store = Store { objects: Objects::open(path)?, path: path.to_owned() };
        let root = store.json("zarr.json")?;
        let attributes = &root["attributes"];
        if attributes["format"] != FORMAT_NAME || attributes["format_version"] != 1 {
            let found = &attributes["format"];
            let found = format!("expected a group exported by Shotline (format = {FORMAT_NAME}), found {found}");
            return Err(ImportError::format(path, found));
        }
        let store = Rc::new(store);
        let (mut links, mut infos) = (Vec::new(), Vec::new());
        for link in attributes["exported_links"].as_array().into_iter().flatten().filter_map(Value::as_u64) {
            let (info, link) = Link::open(&store, &format!("link{link}"))?;
            infos.push(info);
            links.push(link);
        }
        let Some(first) = links.first() else {
            return Err(ImportError::format(path, "expected 1 link or more, found none"));
        };
        let shape = first.samples.shape;
        if links.iter().any(|link| link.samples.shape.shots != shape.shots) {
            return Err(ImportError::format(
                path,
                "expected the same number of rows in every link, found different numbers",
            ));
        }
        let runs = Column::open(&store, "losses/runs")?.read_all()?;
        let streams: Vec<u32> = infos.iter().map(|info| info.stream).collect();
        let loss = |run: [u64; 4]| {
            let cause = *DropCause::ALL.get(run[1] as usize)?;
            let stream = u32::try_from(run[0]).ok().filter(|stream| streams.contains(stream))?;
            Some(Loss { stream, cause, first: run[2], count: run[3] })
        };
        let losses: Vec<Loss> = runs.as_chunks::<4>().0.iter().copied().filter_map(loss).collect();
        check_losses(&losses, path)?;
        let info = SourceInfo {
            format: FORMAT,
            numbers: NumberRange::Int16,
            run: run(infos, &attributes["run"], path)?,
            shots: shape.shots,
            notes: Vec::new(),
        };
        Ok(Self { path: path.to_owned(), info, links, losses, row: 0, next: 0 })
    }
}

/// Restores the description of the exported run.
fn run(links: Vec<LinkInfo>, attributes: &Value, path: &Path) -> Result<RunInfo, ImportError> {
    let mut run = RunInfo::new(links);
    let words = |name: &str| attributes[name].as_str().unwrap_or_default().to_owned();
    let number = |name: &str| attributes[name].as_u64();
    (run.instrument, run.framing) = (words("instrument"), words("framing"));
    run.start_tai_ns = number("start_tai_ns").unwrap_or(run.start_tai_ns);
    run.start_utc_ns = number("start_utc_ns").unwrap_or(run.start_utc_ns);
    run.pattern_period = number("pattern_period").filter(|period| *period > 0);
    let clock = &attributes["clock"];
    run.clock.source = clock["source"].as_str().unwrap_or_default().into();
    run.clock.locked = clock["locked"].as_bool().unwrap_or(false);
    run.clock.max_error_ns = clock["max_error_ns"].as_u64().unwrap_or(0);
    let field = "tai_minus_utc_s";
    run.clock.tai_minus_utc_s = optional(path, field, &clock[field], Value::as_i64, TAI_MINUS_UTC_S)?.unwrap_or(0);
    run.config = words("config");
    let (from, run_id) = (path.display().to_string(), words("run_id"));
    run.config.push_str(&format!("\n[import]\nfrom = {from:?}\nformat = {FORMAT:?}\nrun_id = {run_id:?}\n"));
    Ok(run)
}

/// Refuses losses with invalid or duplicate shot numbers.
fn check_losses(losses: &[Loss], path: &Path) -> Result<(), ImportError> {
    let mut sorted: Vec<&Loss> = losses.iter().collect();
    sorted.sort_by_key(|loss| (loss.stream, loss.first));
    let mut before = None;
    for loss in sorted {
        let (field, Loss { stream, first, count, .. }) = ("losses/runs", loss);
        let min = before.filter(|(of, _)| of == stream).map_or(0, |(_, end)| end);
        bounded(path, field, first, Some(*first), min..=MAX_SHOTS - 1)?;
        bounded(path, field, count, Some(*count), 0..=MAX_SHOTS - first)?;
        before = Some((*stream, first + count));
    }
    Ok(())
}

impl Source for Zarr {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn next(&mut self) -> Result<Option<ShotSet>, ImportError> {
        while self.row < self.info.shots {
            let row = self.row;
            self.row += 1;
            let (mut known, mut links) = (None, Vec::new());
            for link in &mut self.links {
                let (number, link_shot) = link.read(row)?;
                links.push(link_shot);
                // The row has no number, so no shot can be recorded as lost.
                if number == NO_NUMBER && links.last().is_some_and(Option::is_none) {
                    continue;
                }
                let field = &link.columns[0].prefix;
                if let Some(other) = known.filter(|other| *other != number) {
                    let found = format!("{field}: expected {other} in row {row}, as in another link, found {number}");
                    let found = format!("{found}: export each link separately (--links)");
                    return Err(ImportError::format(&self.path, found));
                }
                known = Some(bounded(&self.path, field, &number, Some(number), self.next..=MAX_SHOTS - 1)?);
            }
            if let Some(number) = known {
                self.next = number + 1;
                return Ok(Some(ShotSet { number, links }));
            }
        }
        Ok(None)
    }

    fn losses(&self) -> Option<&[Loss]> {
        Some(&self.losses)
    }
}

impl Link {
    fn open(store: &Rc<Store>, at: &str) -> Result<(LinkInfo, Self), ImportError> {
        let group = store.json(&format!("{at}/zarr.json"))?;
        let attributes = &group["attributes"];
        let (link, shape) = (&attributes["link"], &attributes["link"]["geometry"]);
        let number = |name: &str| shape[name].as_u64().unwrap_or(0);
        let packing = shape["packing"].as_str().and_then(|name| name.parse::<Packing>().ok());
        let packing = packing.ok_or_else(|| store.wrong(at, "a known packing"))?;
        let geometry = Geometry::new(
            u16::try_from(number("channels")).unwrap_or(0),
            u32::try_from(number("samples")).unwrap_or(0),
            u8::try_from(number("bits")).unwrap_or(0),
            packing,
            u32::try_from(number("sample_rate_hz")).unwrap_or(0),
        )
        .map_err(|source| ImportError::Geometry { path: store.path.clone(), source })?;
        let default_packets = attributes["trailer"] == "record"
            && attributes["packet_bytes"] == PACKET_BYTES
            && attributes["first_packet_bytes"] == PACKET_BYTES;
        let name = link["name"].as_str().unwrap_or_default().to_owned();
        let stream = link["stream"].as_u64().and_then(|stream| u32::try_from(stream).ok()).unwrap_or(0);
        let column = |name: &str| Column::open(store, &format!("{at}/{name}"));
        let missing = if default_packets { Vec::new() } else { column("missing")?.read_all()? };
        let mut this = Self {
            samples: Samples::open(store, &format!("{at}/rf"), &geometry)?,
            geometry,
            default_packets,
            columns: COLUMNS.into_iter().map(column).collect::<Result<_, _>>()?,
            presence: column("presence")?,
            missing: missing.as_chunks::<3>().0.to_vec(),
        };
        // The last row must exist before memory is allocated for all rows.
        if let Some(last) = this.samples.shape.shots.checked_sub(1) {
            this.columns.iter_mut().try_for_each(|column| column.row(last).map(|_| ()))?;
        }
        Ok((LinkInfo { name, stream, geometry }, this))
    }

    fn read(&mut self, row: u64) -> Result<(u64, Option<LinkShot>), ImportError> {
        let mut values = [0; COLUMNS.len()];
        for (value, column) in values.iter_mut().zip(&mut self.columns) {
            *value = column.row(row)?[0];
        }
        let [number, stamp_tai_ns, state, flags, valid_bytes, arrived_tai_ns, completed_tai_ns] = values;
        if state == 0 {
            return Ok((number, None));
        }
        let mut samples = self.samples.shot(row)?;
        for [_, start, count] in self.missing.iter().filter(|run| run[0] == row) {
            let end = start.saturating_add(*count).min(samples.len() as u64);
            samples[(*start).min(end) as usize..end as usize].fill(f64::NAN);
        }
        let entry = TableEntry {
            flags: flags as u8,
            complete: state == 2,
            valid_bytes: (valid_bytes as u32).min(self.geometry.sample_bytes()),
            presence: self.presence.row(row)?.into_iter().map(|byte| byte as u8).collect(),
            arrived_tai_ns,
            completed_tai_ns,
        };
        Ok((number, Some(LinkShot { samples, stamp_tai_ns, entry: self.default_packets.then_some(entry) })))
    }
}

/// Object storage of a source.
struct Store {
    objects: Objects,
    path: PathBuf,
}

impl Store {
    fn wrong(&self, at: &str, expected: &str) -> ImportError {
        ImportError::format(&self.path, format!("{at}: expected {expected}, found other contents"))
    }

    fn json(&self, key: &str) -> Result<Value, ImportError> {
        let bytes = self.objects.get(key, MAX_NODE_BYTES)?.ok_or_else(|| self.wrong(key, "an object of that name"))?;
        serde_json::from_slice(&bytes).map_err(|_| self.wrong(key, "JSON"))
    }
}

/// Sample array of a link.
struct Samples {
    store: Rc<Store>,
    /// Key prefix of the array.
    prefix: String,
    shape: Shape,
    /// Chunk shape: shots, samples, channels.
    chunk: [usize; 3],
    /// Chunks per shard in each dimension.
    shard: [usize; 3],
    codec: Codec,
    /// Bytes per sample.
    width: usize,
    /// Index and contents of the last shard read; no contents if the shard is absent.
    cached: Option<(u64, Option<Vec<u8>>)>,
    /// Index and samples of the last decoded row of chunks.
    decoded: Option<(u64, Vec<f64>)>,
}

impl Samples {
    fn open(store: &Rc<Store>, at: &str, g: &Geometry) -> Result<Self, ImportError> {
        let node = store.json(&format!("{at}/zarr.json"))?;
        let three = |value: &Value| -> Option<[u64; 3]> {
            let numbers: Option<Vec<u64>> = value.as_array()?.iter().map(Value::as_u64).collect();
            numbers?.try_into().ok()
        };
        let sharding = &node["codecs"][0]["configuration"];
        let width = match node["data_type"].as_str() {
            Some("uint8") => 1,
            Some("int16") => 2,
            _ => return Err(store.wrong(at, "int16 or uint8")),
        };
        let parsed = || {
            let shape = three(&node["shape"])?;
            let shard = three(&node["chunk_grid"]["configuration"]["chunk_shape"])?;
            let chunk = three(&sharding["chunk_shape"])?;
            let whole = (0..3).all(|d| chunk[d] > 0 && shard[d] > 0 && shard[d].is_multiple_of(chunk[d]));
            let small = shard.iter().try_fold(width as u64, |product, n| product.checked_mul(*n))? <= MAX_SHARD_BYTES;
            let fits = shape[1..] == [u64::from(g.samples()), u64::from(g.channels())]
                && shard[1] >= shape[1]
                && shard[2] >= shape[2];
            (whole && small && fits).then_some((shape, shard, chunk))
        };
        let (shape, shard, chunk) = parsed().ok_or_else(|| store.wrong(at, "chunks and shards that fit its shape"))?;
        let codec =
            Codec::of(&sharding["codecs"]).ok_or_else(|| store.wrong(at, "the codecs bytes, or bytes and zstd"))?;
        let numbers = if width == 1 { NumberRange::Bytes } else { NumberRange::Int16 };
        let [shots, samples, channels] = shape;
        bounded(&store.path, &format!("{at}: shape"), &shots, Some(shots), 0..=MAX_SHOTS)?;
        Ok(Self {
            store: Rc::clone(store),
            prefix: at.to_owned(),
            shape: Shape { channels, samples, shots, rate_hz: 0, numbers },
            chunk: chunk.map(|n| n as usize),
            shard: [0, 1, 2].map(|d| (shard[d] / chunk[d]) as usize),
            codec,
            width,
            cached: None,
            decoded: None,
        })
    }

    fn shot(&mut self, row: u64) -> Result<Vec<f64>, ImportError> {
        let group = row / self.chunk[0] as u64;
        if self.decoded.as_ref().is_none_or(|(cached, _)| *cached != group) {
            let values = self.decode(group)?;
            self.decoded = Some((group, values));
        }
        let shot = (self.shape.samples * self.shape.channels) as usize;
        let at = (row % self.chunk[0] as u64) as usize * shot;
        Ok(self.decoded.as_ref().map_or_else(Vec::new, |(_, values)| values[at..at + shot].to_vec()))
    }

    /// Decodes the shots of a row of chunks.
    fn decode(&mut self, group: u64) -> Result<Vec<f64>, ImportError> {
        let [shots, samples, channels] = self.chunk;
        let (all_samples, all_channels) = (self.shape.samples as usize, self.shape.channels as usize);
        let index = group / self.shard[0] as u64;
        if self.cached.as_ref().is_none_or(|(cached, _)| *cached != index) {
            // Compressed data may be slightly longer than its contents.
            let chunks: usize = self.shard.iter().product();
            let max_bytes = 2 * (chunks * shots * samples * channels * self.width) as u64 + 64 * chunks as u64 + 64;
            self.cached = Some((index, self.store.objects.get(&format!("{}/c/{index}/0/0", self.prefix), max_bytes)?));
        }
        // The last chunk may extend beyond the array.
        let present = self.shape.shots.saturating_sub(group * shots as u64).min(shots as u64) as usize;
        let mut values = vec![0.0; present * all_samples * all_channels];
        let Some((_, Some(bytes))) = &self.cached else { return Ok(values) };
        let wrong = || {
            self.store.wrong(&format!("{}/c/{index}/0/0", self.prefix), "a shard with a valid index and valid chunks")
        };
        let chunks = split(bytes, self.shard.iter().product()).ok_or_else(wrong)?;
        let first = (group % self.shard[0] as u64) as usize * self.shard[1] * self.shard[2];
        for (at, chunk) in chunks[first..first + self.shard[1] * self.shard[2]].iter().enumerate() {
            let Some(chunk) = chunk else { continue };
            let (s, c) = (at / self.shard[2] * samples, at % self.shard[2] * channels);
            let chunk = self.codec.decode(chunk, shots * samples * channels * self.width).ok_or_else(wrong)?;
            for (item, bytes) in chunk.chunks_exact(self.width).enumerate() {
                let (shot, sample, channel) =
                    (item / channels / samples, s + item / channels % samples, c + item % channels);
                if shot < present && sample < all_samples && channel < all_channels {
                    values[(shot * all_samples + sample) * all_channels + channel] =
                        super::npy::value(if self.width == 1 { 'u' } else { 'i' }, bytes);
                }
            }
        }
        Ok(values)
    }
}

/// Array of a table column, or of ranges.
struct Column {
    store: Rc<Store>,
    /// Key prefix of the array.
    prefix: String,
    rows: u64,
    /// Numbers per row.
    width: usize,
    /// Rows are arrays rather than scalars.
    nested: bool,
    /// Rows per chunk.
    chunk: u64,
    /// Bytes per number.
    item: usize,
    /// Index and contents of the last chunk read.
    cached: Option<(u64, Vec<u8>)>,
}

impl Column {
    fn open(store: &Rc<Store>, at: &str) -> Result<Self, ImportError> {
        let node = store.json(&format!("{at}/zarr.json"))?;
        let item = match node["data_type"].as_str() {
            Some("uint8") => 1,
            Some("uint32") => 4,
            Some("uint64") => 8,
            _ => return Err(store.wrong(at, "uint8, uint32 or uint64")),
        };
        let (shape, chunk) = (&node["shape"], &node["chunk_grid"]["configuration"]["chunk_shape"]);
        let width = shape[1].as_u64().unwrap_or(1);
        let parsed = shape[0].as_u64().zip(chunk[0].as_u64().filter(|chunk| *chunk > 0));
        let (rows, chunk) =
            parsed.filter(|_| (1..1 << 16).contains(&width)).ok_or_else(|| store.wrong(at, "a shape and chunks"))?;
        let store = Rc::clone(store);
        Ok(Self {
            store,
            prefix: at.to_owned(),
            rows,
            width: width as usize,
            nested: shape[1].is_u64(),
            chunk,
            item,
            cached: None,
        })
    }

    fn row(&mut self, row: u64) -> Result<Vec<u64>, ImportError> {
        let index = row / self.chunk;
        if self.cached.as_ref().is_none_or(|(cached, _)| *cached != index) {
            let tail = if self.nested { "/0" } else { "" };
            let key = format!("{}/c/{index}{tail}", self.prefix);
            let max_bytes = self.chunk.saturating_mul((self.width * self.item) as u64);
            let bytes = self.store.objects.get(&key, max_bytes)?.ok_or_else(|| self.store.wrong(&key, "a chunk"))?;
            self.cached = Some((index, bytes));
        }
        let bytes = self.width * self.item;
        let at = (row % self.chunk).saturating_mul(bytes as u64) as usize;
        let found = self.cached.as_ref().and_then(|(_, cached)| cached.get(at..)?.get(..bytes));
        let found = found.ok_or_else(|| self.store.wrong(&self.prefix, "chunks of the declared length"))?;
        Ok(found.chunks_exact(self.item).map(unsigned).collect())
    }

    /// Reads the numbers of all rows.
    fn read_all(mut self) -> Result<Vec<u64>, ImportError> {
        let mut out = Vec::new();
        for row in 0..self.rows {
            out.extend(self.row(row)?);
        }
        Ok(out)
    }
}

/// Decodes a little-endian number of up to 8 bytes.
fn unsigned(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
