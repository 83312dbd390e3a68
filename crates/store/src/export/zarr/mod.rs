//! Zarr version 3: a group with a subgroup per link, with sharded samples and one array per table column.
//!
//! The root `zarr.json` is written last, so an incomplete export cannot be opened. If a chunk is one shot, a lost shot
//! has no chunk; `state` and `missing` mark samples that read as 0 but were not received.
//! (Zarr core specification 3.0; codecs `bytes`, `sharding_indexed`, `crc32c`, `zstd`.)

use super::about::{FormatInfo, Losses, OptionKind, Target};
use super::destination::Destination;
use super::error::ExportError;
use super::options::{Options, ZarrOptions};
use super::shots::Shots;
use crate::rows::{NO_NUMBER, State};
use crate::shot::{Loss, MAX_LINKS};
use crate::zarr::objects::{ObjectError, Objects, is_remote};
use crate::zarr::shard::{Codec, Shard};
use crate::zarr::{FORMAT_NAME, MAX_NODE_BYTES, MAX_SHARD_BYTES};
use serde_json::{Value, json};
use shotline_wire::shot::{DropCause, Geometry, Packing};
use std::ops::Range;

pub(super) const ABOUT: FormatInfo = FormatInfo {
    name: "zarr",
    summary: "Zarr version 3, in a folder or an object store",
    extensions: &["zarr"],
    option_kind: OptionKind::Zarr,
    target: Target::FolderOrObjects,
    losses: &[Losses::Mask],
    feature: Some("s3"),
};
const FORMAT: &str = ABOUT.name;
/// Target size of a shard, in bytes.
const SHARD_BYTES: u64 = 32 << 20;
/// Default minimum size of a chunk, in bytes.
const CHUNK_BYTES: u64 = 512 << 10;
/// Maximum rows per chunk of a column.
const MAX_COLUMN_ROWS: u64 = 1 << 16;
/// Rows per chunk of columns whose length is not known in advance.
const RUN_ROWS: usize = 1 << 12;

/// Chunk and shard shape of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Grid {
    /// Chunk shape: shots, samples, channels.
    chunk: [usize; 3],
    /// Chunks per shard in each dimension.
    shard: [usize; 3],
    /// Bytes per sample.
    width: usize,
}

impl Grid {
    fn of(g: &Geometry, options: &ZarrOptions) -> Result<Self, ExportError> {
        let width = if g.packing() == Packing::Uint8 { 1 } else { 2 };
        let [samples, channels] = [u64::from(g.samples()), u64::from(g.channels())];
        let shot = samples * channels * width;
        let [shots, s, c] = options.chunk.unwrap_or([CHUNK_BYTES.div_ceil(shot), samples, channels]);
        let unsupported = |why: String| ExportError::Unsupported { format: FORMAT, why };
        if shots == 0 || !(1..=samples).contains(&s) || !(1..=channels).contains(&c) {
            let why = format!(
                "expected chunks of 1 shot or more, 1 to {samples} samples, 1 to {channels} channels; found {shots}, {s}, {c}"
            );
            return Err(unsupported(why));
        }
        let shard_shots = options.shard_shots.unwrap_or(SHARD_BYTES / shot).max(1);
        let shard = [shard_shots.div_ceil(shots), samples.div_ceil(s), channels.div_ceil(c)];
        let bytes = u128::from(shard[0]) * u128::from(shots) * u128::from(shot);
        if bytes > u128::from(MAX_SHARD_BYTES) {
            let why = format!(
                "a shard has {bytes} bytes, at most {MAX_SHARD_BYTES} are assembled in memory: use fewer shots"
            );
            return Err(unsupported(why));
        }
        let chunk = [shots, s, c].map(|n| n as usize);
        Ok(Self { chunk, shard: shard.map(|n| n as usize), width: width as usize })
    }

    fn chunks(&self) -> usize {
        self.shard.iter().product()
    }
    fn chunk_bytes(&self) -> usize {
        self.chunk.iter().product::<usize>() * self.width
    }
    fn shard_shape(&self) -> [usize; 3] {
        [0, 1, 2].map(|d| self.chunk[d] * self.shard[d])
    }
}

pub(super) fn write(
    shots: &mut Shots<'_>,
    options: &Options,
    to: &Destination<'_>,
    notes: &mut Vec<String>,
) -> Result<u64, ExportError> {
    let options = options.zarr(&ABOUT)?;
    let bytes = if is_remote(to.path) {
        let objects = Objects::open(to.path)?;
        if let Some(root) = objects.get("zarr.json", MAX_NODE_BYTES)? {
            if !to.replace.is_allowed() || !is_own(&root) {
                return Err(ExportError::Exists { path: to.path.to_owned() });
            }
            // Other objects below the prefix are kept.
            let links = (0..MAX_LINKS).map(|link| format!("link{link}/"));
            links.chain(["losses/".into(), "zarr.json".into()]).try_for_each(|part| objects.clear(&part))?;
        }
        let mut out = ObjectWriter { objects, bytes: 0, keys: Vec::new() };
        // The objects of an incomplete export are removed, because they occupy paid storage.
        if let Err(error) = write_all(shots, options, &mut out) {
            let _ = out.keys.iter().try_for_each(|key| out.objects.remove(key));
            return Err(error);
        }
        out.bytes
    } else {
        let draft = to.draft()?.folder()?;
        let mut out = ObjectWriter { objects: Objects::open(draft.path())?, bytes: 0, keys: Vec::new() };
        write_all(shots, options, &mut out)?;
        draft.finish()?;
        out.bytes
    };
    let counters = shots.counters();
    if counters.lost + counters.partial > 0 {
        notes.push("missing samples read as 0 in rf: state and missing mark them, losses has the causes".into());
    }
    Ok(bytes)
}

/// Returns `true` if a root `zarr.json` is that of an export of this crate.
pub(super) fn is_own(root: &[u8]) -> bool {
    serde_json::from_slice::<Value>(root).is_ok_and(|root| root["attributes"]["format"] == FORMAT_NAME)
}

/// Returns the path patterns of the files of an export, with `#` in place of numbers.
pub(super) fn path_patterns() -> Vec<String> {
    let runs = ["losses/runs", "link#/missing", "link#/presence"];
    let columns = COLUMNS.iter().map(|(name, ..)| format!("link#/{name}"));
    let arrays = columns.map(|at| (at, "c/#")).chain(runs.map(|at| (at.to_owned(), "c/#/#")));
    let arrays = arrays.chain([("link#/rf".to_owned(), "c/#/#/#")]);
    let files = arrays.flat_map(|(prefix, chunk)| [format!("{prefix}/zarr.json"), format!("{prefix}/{chunk}")]);
    files.chain(["zarr.json", "losses/zarr.json", "link#/zarr.json"].map(str::to_owned)).collect()
}

/// Writer of objects that counts bytes and records keys.
struct ObjectWriter {
    objects: Objects,
    bytes: u64,
    /// Keys written so far.
    keys: Vec<String>,
}

impl ObjectWriter {
    fn put(&mut self, key: &str, bytes: &[u8]) -> Result<(), ObjectError> {
        self.bytes += bytes.len() as u64;
        self.objects.put(key, bytes)?;
        self.keys.push(key.to_owned());
        Ok(())
    }
    fn node(&mut self, prefix: &str, node: &Value) -> Result<(), ObjectError> {
        let key = if prefix.is_empty() { "zarr.json".to_owned() } else { format!("{prefix}/zarr.json") };
        self.put(&key, format!("{node:#}\n").as_bytes())
    }
}

fn write_all(shots: &mut Shots<'_>, options: &ZarrOptions, out: &mut ObjectWriter) -> Result<(), ExportError> {
    let links = shots.links().to_vec();
    let mut all_losses = shots.recording().losses()?;
    for link in &links {
        let numbers = write_link(shots, *link, options, out)?;
        let stream = shots.link(*link).stream;
        all_losses.iter_mut().filter(|loss| loss.stream == stream).for_each(|loss| clip(loss, &numbers));
    }
    all_losses.retain(|loss| loss.count > 0);
    write_losses(&all_losses, out)?;
    let attributes = json!({
        "format": FORMAT_NAME,
        "format_version": 1,
        "run": shots.run(),
        "exported_links": links,
        "tai_minus_utc_ns": shots.tai_minus_utc_ns(),
    });
    out.node("", &json!({"zarr_format": 3, "node_type": "group", "attributes": attributes}))?;
    Ok(())
}

/// Clips a loss to a range of shot numbers.
fn clip(loss: &mut Loss, numbers: &Range<u64>) {
    let end = loss.first.saturating_add(loss.count).min(numbers.end);
    loss.first = loss.first.max(numbers.start);
    loss.count = end.saturating_sub(loss.first);
}

/// Writes the shots of a link. Returns the range of shot numbers that the export covers, unbounded where it includes
/// the start or end of the recording.
fn write_link(
    shots: &mut Shots<'_>,
    link: usize,
    options: &ZarrOptions,
    out: &mut ObjectWriter,
) -> Result<Range<u64>, ExportError> {
    let g = shots.link(link).geometry;
    let grid = Grid::of(&g, options)?;
    let codec = options.zstd.map_or(Codec::Plain, Codec::Zstd);
    let prefix = format!("link{link}");
    let rows = shots.rows();
    let mut samples = SampleWriter {
        prefix: format!("{prefix}/rf"),
        grid,
        codec,
        g,
        group: Vec::new(),
        buffered: 0,
        any_received: false,
        shards: 0,
        shard: Shard::default(),
    };
    let chunk = (rows.end - rows.start).min(MAX_COLUMN_ROWS) as usize;
    let mut columns = TableWriter::new(&prefix, chunk, g.packets().div_ceil(8) as usize);
    // Shot numbers are ascending.
    let (mut row, mut first, mut last) = (0_u64, None, None);
    shots.each(link, |shot| {
        if shot.row.number != NO_NUMBER {
            (first, last) = (first.or(Some(shot.row.number)), Some(shot.row.number));
        }
        samples.push(shot.samples, shot.row.state != State::Lost, out)?;
        let values = [
            shot.row.number,
            shot.row.stamp_tai_ns,
            shot.row.state as u64,
            shot.row.flags.into(),
            shot.row.valid_bytes.into(),
            shot.row.placed.into(),
            shot.row.arrived_tai_ns,
            shot.row.completed_tai_ns,
        ];
        let missing = if shot.row.state == State::Lost { &[] } else { shot.missing };
        columns.push(values, &shot.row.presence, row, missing, out)?;
        row += 1;
        Ok(())
    })?;
    samples.finish((rows.end - rows.start) as usize, out)?;
    columns.finish(out)?;
    let attributes = json!({
        "link": shots.link(link),
        "packet_bytes": g.packetization().rest,
        "first_packet_bytes": g.packetization().first,
        "trailer": g.trailer().name(),
    });
    out.node(&prefix, &json!({"zarr_format": 3, "node_type": "group", "attributes": attributes}))?;
    let start = if rows.start == 0 { 0 } else { first.unwrap_or(u64::MAX) };
    let whole = rows.end == shots.recording().rows();
    let end = if whole { u64::MAX } else { last.map_or(0, |last: u64| last.saturating_add(1)) };
    Ok(start..end)
}

/// Writer of the samples of a link.
struct SampleWriter {
    /// Key prefix of the array.
    prefix: String,
    grid: Grid,
    codec: Codec,
    g: Geometry,
    /// Bytes of the buffered shots, at most one row of chunks.
    group: Vec<u8>,
    /// Number of buffered shots.
    buffered: usize,
    /// A buffered shot is not lost.
    any_received: bool,
    /// Shards closed, which is the index of the next one.
    shards: u64,
    shard: Shard,
}

impl SampleWriter {
    fn push(&mut self, samples: &[i16], received: bool, out: &mut ObjectWriter) -> Result<(), ExportError> {
        match self.grid.width {
            1 => self.group.extend(samples.iter().map(|sample| *sample as u8)),
            _ => self.group.extend(samples.iter().flat_map(|sample| sample.to_le_bytes())),
        }
        self.buffered += 1;
        self.any_received |= received;
        if self.buffered == self.grid.chunk[0] { self.write_chunks(out) } else { Ok(()) }
    }

    /// Divides the buffered shots into chunks.
    fn write_chunks(&mut self, out: &mut ObjectWriter) -> Result<(), ExportError> {
        let ([shots, samples, channels], width) = (self.grid.chunk, self.grid.width);
        let row = usize::from(self.g.channels()) * width;
        let whole = (samples, channels) == (self.g.samples() as usize, usize::from(self.g.channels()));
        // Shots beyond the end of the array are the fill value.
        self.group.resize(shots * self.g.samples() as usize * row, 0);
        let failed = |source| {
            ExportError::Objects(ObjectError::File { what: "compress", path: self.prefix.clone().into(), source })
        };
        if !self.any_received {
            for _ in 0..self.grid.shard[1] * self.grid.shard[2] {
                self.shard.push(None, self.codec).map_err(failed)?;
            }
        } else if whole {
            self.shard.push(Some(&self.group), self.codec).map_err(failed)?;
        } else {
            let mut chunk = Vec::with_capacity(self.grid.chunk_bytes());
            for s in 0..self.grid.shard[1] {
                for c in 0..self.grid.shard[2] {
                    chunk.clear();
                    self.gather(s, c, &mut chunk);
                    self.shard.push(Some(&chunk), self.codec).map_err(failed)?;
                }
            }
        }
        self.group.clear();
        (self.buffered, self.any_received) = (0, false);
        if self.shard.chunks() == self.grid.chunks() { self.close(out) } else { Ok(()) }
    }

    /// Gathers a chunk from the buffered shots. Elements beyond the array are the fill value.
    fn gather(&self, s: usize, c: usize, chunk: &mut Vec<u8>) {
        let ([shots, samples, channels], width) = (self.grid.chunk, self.grid.width);
        let (all_samples, all_channels) = (self.g.samples() as usize, usize::from(self.g.channels()));
        let columns = c * channels..((c + 1) * channels).min(all_channels);
        for shot in 0..shots {
            for sample in s * samples..(s + 1) * samples {
                let end = chunk.len() + channels * width;
                if sample < all_samples {
                    let start = (shot * all_samples + sample) * all_channels;
                    chunk.extend(&self.group[(start + columns.start) * width..(start + columns.end) * width]);
                }
                chunk.resize(end, 0);
            }
        }
    }

    fn close(&mut self, out: &mut ObjectWriter) -> Result<(), ExportError> {
        if let Some(bytes) = self.shard.take(self.grid.chunks()) {
            out.put(&format!("{}/c/{}/0/0", self.prefix, self.shards), &bytes)?;
        }
        self.shards += 1;
        Ok(())
    }

    fn finish(mut self, rows: usize, out: &mut ObjectWriter) -> Result<(), ExportError> {
        if self.buffered > 0 {
            self.write_chunks(out)?;
        }
        if self.shard.chunks() > 0 {
            self.close(out)?;
        }
        let g = self.g;
        let index = json!([{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]);
        let mut attributes = json!({"units": "counts", "bits": g.bits(), "sample_rate_hz": g.sample_rate_hz()});
        if g.sample_rate_hz() > 0 {
            attributes["sample_period_s"] = json!(1.0 / f64::from(g.sample_rate_hz()));
        }
        let node = json!({
            "zarr_format": 3,
            "node_type": "array",
            "shape": [rows, g.samples(), g.channels()],
            "data_type": if self.grid.width == 1 { "uint8" } else { "int16" },
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": self.grid.shard_shape()}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 0,
            "codecs": [{"name": "sharding_indexed", "configuration": {
                "chunk_shape": self.grid.chunk,
                "codecs": self.codec.metadata(),
                "index_codecs": index,
                "index_location": "end",
            }}],
            "attributes": attributes,
            "dimension_names": ["shot", "sample", "channel"],
        });
        out.node(&self.prefix, &node)?;
        Ok(())
    }
}

/// Scalar table columns: name, data type, bytes, description.
const COLUMNS: [(&str, &str, usize, &str); 8] = [
    ("number", "uint64", 8, "shot number"),
    ("stamp_tai_ns", "uint64", 8, "TAI nanoseconds since 1970 of the first sample; 0: unknown"),
    ("state", "uint8", 1, "0 lost: all of rf is fill value; 1 partial: see missing; 2 complete and verified"),
    ("flags", "uint8", 1, "bit 0 clock locked, bit 1 triggered"),
    ("valid_bytes", "uint32", 4, "bytes of samples that arrived"),
    ("placed", "uint32", 4, "packets received and placed"),
    ("arrived_tai_ns", "uint64", 8, "when the kernel received the first packet; 0: unknown"),
    ("completed_tai_ns", "uint64", 8, "when the shot was completed or discarded; 0: unknown"),
];

/// Writer of the table of a link.
struct TableWriter {
    numbers: Vec<ColumnWriter>,
    presence: ColumnWriter,
    missing: ColumnWriter,
}

impl TableWriter {
    fn new(prefix: &str, chunk: usize, presence_bytes: usize) -> Self {
        let numbers =
            COLUMNS.map(|(name, kind, bytes, about)| ColumnWriter::new(prefix, name, kind, (chunk, 0, bytes), about));
        let about = "bit i % 8 of byte i / 8: packet i is present";
        let presence = ColumnWriter::new(prefix, "presence", "uint8", (chunk, presence_bytes, 1), about);
        let about = "runs of samples of partial shots that were not received and are 0 in rf: row, first sample counted \
                     through all channels and then through time, count";
        let missing = ColumnWriter::new(prefix, "missing", "uint64", (RUN_ROWS, 3, 8), about);
        Self { numbers: numbers.into(), presence, missing }
    }

    fn push(
        &mut self,
        values: [u64; COLUMNS.len()],
        presence: &[u8],
        row: u64,
        missing: &[Range<usize>],
        out: &mut ObjectWriter,
    ) -> Result<(), ObjectError> {
        for ((column, value), (_, _, bytes, _)) in self.numbers.iter_mut().zip(values).zip(COLUMNS) {
            column.push(&value.to_le_bytes()[..bytes], out)?;
        }
        self.presence.push(presence, out)?;
        for range in missing {
            let entry = [row, range.start as u64, range.len() as u64];
            self.missing.push(entry.map(u64::to_le_bytes).as_flattened(), out)?;
        }
        Ok(())
    }

    fn finish(self, out: &mut ObjectWriter) -> Result<(), ObjectError> {
        self.numbers.into_iter().chain([self.presence, self.missing]).try_for_each(|column| column.finish(out))
    }
}

/// Writer of an array to which rows are appended.
struct ColumnWriter {
    /// Key prefix of the array.
    prefix: String,
    kind: &'static str,
    chunk: usize,
    width: usize,
    about: &'static str,
    rows: usize,
    chunks: usize,
    bytes: Vec<u8>,
    item: usize,
}

impl ColumnWriter {
    /// Creates a writer of chunks of `chunk` rows of `width` numbers of `item` bytes. With a `width` of 0, rows are
    /// scalars.
    fn new(
        prefix: &str,
        name: &str,
        kind: &'static str,
        (chunk, width, item): (usize, usize, usize),
        about: &'static str,
    ) -> Self {
        let prefix = format!("{prefix}/{name}");
        Self { prefix, kind, chunk, width, about, rows: 0, chunks: 0, bytes: Vec::new(), item }
    }

    fn push(&mut self, row: &[u8], out: &mut ObjectWriter) -> Result<(), ObjectError> {
        self.bytes.extend(row);
        self.rows += 1;
        if self.rows.is_multiple_of(self.chunk) { self.close(out) } else { Ok(()) }
    }

    fn close(&mut self, out: &mut ObjectWriter) -> Result<(), ObjectError> {
        // The last chunk is padded to its full length.
        self.bytes.resize(self.chunk * self.width.max(1) * self.item, 0);
        let tail = if self.width > 0 { "/0" } else { "" };
        out.put(&format!("{}/c/{}{tail}", self.prefix, self.chunks), &self.bytes)?;
        self.bytes.clear();
        self.chunks += 1;
        Ok(())
    }

    fn finish(mut self, out: &mut ObjectWriter) -> Result<(), ObjectError> {
        if !self.bytes.is_empty() {
            self.close(out)?;
        }
        let (mut shape, mut chunk, mut names) = (vec![self.rows], vec![self.chunk], vec![json!("shot")]);
        if self.width > 0 {
            shape.push(self.width);
            chunk.push(self.width);
            names.push(Value::Null);
        }
        if self.prefix.ends_with("/missing") || self.prefix.starts_with("losses") {
            names[0] = json!("run");
        }
        let node = json!({
            "zarr_format": 3,
            "node_type": "array",
            "shape": shape,
            "data_type": self.kind,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 0,
            "codecs": Codec::Plain.metadata(),
            "attributes": {"description": self.about},
            "dimension_names": names,
        });
        out.node(&self.prefix, &node)
    }
}

/// Writes the losses of the recording: ranges of shots that are in no row, and their causes.
fn write_losses(losses: &[Loss], out: &mut ObjectWriter) -> Result<(), ExportError> {
    let about = "ranges of shots without a row, or with a row as lost: stream, number of the cause, first, count";
    let mut column = ColumnWriter::new("losses", "runs", "uint64", (RUN_ROWS, 4, 8), about);
    for loss in losses {
        let entry = [loss.stream.into(), loss.cause as u64, loss.first, loss.count];
        column.push(entry.map(u64::to_le_bytes).as_flattened(), out)?;
    }
    column.finish(out)?;
    let causes = DropCause::ALL.map(DropCause::name);
    out.node("losses", &json!({"zarr_format": 3, "node_type": "group", "attributes": {"causes": causes}}))?;
    Ok(())
}
