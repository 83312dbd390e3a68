//! Writes what a source has as a recording.

use super::error::ImportError;
use super::options::ImportOptions;
use super::source::{Described, Numbers, Piece, Source, Table};
use crate::draft::{Draft, Replace};
use crate::info::RunInfo;
use crate::layout;
use crate::shot::{Books, Event, Loss, Shot, ShotMeta, StreamBooks};
use crate::{Recorder, RecorderConfig};
use serde::Serialize;
use shotline_compute::pack12;
use shotline_memory::{Buffer, Pool, Registrar};
use shotline_wire::crc;
use shotline_wire::record::Record;
use shotline_wire::shot::{DropCause, Drops, Geometry, PACKET_BYTES, Packing, Presence};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Shots that are on their way to the disk.
const IN_FLIGHT: u32 = 8;
const WAIT: Option<Duration> = Some(Duration::from_millis(50));

/// What was imported.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Imported {
    /// The source's format.
    pub format: &'static str,
    /// The recording.
    pub to: PathBuf,
    /// Channels of each link.
    pub channels: Vec<u16>,
    /// Samples per channel of each link's shots.
    pub samples: Vec<u32>,
    /// Factor from the source's numbers to samples.
    pub scale: f64,
    /// Shots that are whole.
    pub complete: u64,
    /// Shots of which something is missing.
    pub partial: u64,
    /// Shots that are not there.
    pub lost: u64,
    /// Samples that were there but share a packet with missing ones, and are left out.
    pub left_out: u64,
    /// Bytes of the recording.
    pub file_bytes: u64,
    /// What else is to be known.
    pub notes: Vec<String>,
}

/// Is told how many shots of how many are done, and says whether to go on.
pub type Progress<'a> = &'a dyn Fn(u64, u64) -> ControlFlow<()>;

pub(super) fn write(
    source: &mut dyn Source,
    to: &Path,
    options: &ImportOptions,
    scale: f64,
    progress: Progress<'_>,
) -> Result<Imported, ImportError> {
    let Described { format, numbers, mut run, shots, notes } = source.described().clone();
    run.config.push_str(&format!("scale = {scale:?}\n"));
    let links = run.links.len() as u32;
    let slot = run.links.iter().map(|link| link.geometry.slot_bytes()).max().unwrap_or(0);
    let mut registrar = Registrar::new();
    let pool = Pool::new(&mut registrar, IN_FLIGHT * links, slot)?;
    layout::check_target(to, options.overwrite)?;
    // Hidden until it is whole: a part of a source is no recording of it.
    let replace = if options.overwrite { Replace::File } else { Replace::Nothing };
    let draft = Draft::new(to, replace)?;
    let config = RecorderConfig { in_flight: IN_FLIGHT * links, ..RecorderConfig::new(shots.max(1)) };
    let recorder = Recorder::create(draft.path(), &config, &run, &registrar.finish())?;
    let counts = run.links.iter().map(|link| StreamBooks { stream: link.stream, ..StreamBooks::default() }).collect();
    let passes = if numbers == Numbers::Any && options.scale.is_none() { 2 } else { 1 };
    let mut writer =
        Writer { run: &run, pool, recorder, scale, counts, left_out: 0, out_of_range: 0, bytes: Vec::new() };
    let outcome = writer.all(source, (shots, passes), progress);
    let Writer { recorder, counts, left_out, out_of_range, .. } = writer;
    outcome?;
    let books = Books { streams: counts };
    let (complete, partial, lost) = summed(&books);
    let report = recorder.finish(&books)?;
    draft.finish()?;
    let mut notes = notes;
    if scale != 1.0 {
        notes.push(format!(
            "its numbers are multiplied by {scale:?} to become 16-bit integers (see the attribute config)"
        ));
    }
    if out_of_range > 0 {
        notes.push(format!("{out_of_range} numbers do not fit 16 bits with this scale: they are cut to its ends"));
    }
    if left_out > 0 {
        notes.push(format!("{left_out} samples share a packet with missing ones, and are left out with it"));
    }
    notes.extend(report.warnings);
    Ok(Imported {
        format,
        to: to.to_owned(),
        channels: run.links.iter().map(|link| link.geometry.channels()).collect(),
        samples: run.links.iter().map(|link| link.geometry.samples()).collect(),
        scale,
        complete,
        partial,
        lost,
        left_out,
        file_bytes: report.file_bytes,
        notes,
    })
}

fn summed(books: &Books) -> (u64, u64, u64) {
    books.streams.iter().fold((0, 0, 0), |(complete, partial, lost), stream| {
        let drops = stream.shot_drops.total();
        (complete + stream.shots_complete, partial + stream.shots_partial, lost + drops)
    })
}

struct Writer<'a> {
    run: &'a RunInfo,
    pool: Arc<Pool>,
    recorder: Recorder,
    scale: f64,
    counts: Vec<StreamBooks>,
    left_out: u64,
    out_of_range: u64,
    bytes: Vec<u8>,
}

impl Writer<'_> {
    fn all(
        &mut self,
        source: &mut dyn Source,
        (shots, passes): (u64, u64),
        progress: Progress<'_>,
    ) -> Result<(), ImportError> {
        let named = source.losses().map(<[Loss]>::to_vec);
        let mut next: Option<u64> = None;
        let mut done = (passes - 1) * shots;
        while let Some(pieces) = source.next()? {
            let passed = next.map_or(0, |next| pieces.number.saturating_sub(next));
            if passed > 0 && named.is_none() {
                let first = pieces.number - passed;
                for link in 0..self.run.links.len() {
                    self.lose(link, DropCause::WireGap, first, passed);
                }
            }
            next = Some(pieces.number + 1);
            // A shot that no link has needs no row.
            if pieces.links.iter().all(|piece| piece.as_ref().is_none_or(|piece| !piece.holds_anything())) {
                if named.is_none() {
                    (0..self.run.links.len()).for_each(|link| self.lose(link, DropCause::WireGap, pieces.number, 1));
                }
            } else {
                self.record(pieces.number, pieces.links, named.is_none())?;
            }
            done += 1;
            if progress(done, passes * shots).is_break() {
                return Err(ImportError::Stopped);
            }
        }
        for loss in named.unwrap_or_default() {
            if let Some(link) = self.run.links.iter().position(|link| link.stream == loss.stream) {
                self.lose(link, loss.cause, loss.first, loss.count);
            }
        }
        while self.recorder.pending() > 0 {
            self.recorder.poll(WAIT)?;
        }
        Ok(())
    }

    fn lose(&mut self, link: usize, cause: DropCause, first: u64, count: u64) {
        let counts = &mut self.counts[link];
        counts.shots_seen += count;
        counts.shot_drops.add(cause, count);
        self.recorder.loss(Loss { stream: counts.stream, cause, first, count });
    }

    fn record(&mut self, number: u64, links: Vec<Option<Piece>>, name_losses: bool) -> Result<(), ImportError> {
        let mut shots = Vec::new();
        for (link, piece) in links.into_iter().enumerate() {
            let Some(piece) = piece.filter(Piece::holds_anything) else {
                if name_losses {
                    self.lose(link, DropCause::WireGap, number, 1);
                }
                shots.push(None);
                continue;
            };
            let buffer = loop {
                match self.pool.take() {
                    Some(buffer) => break buffer,
                    None => drop(self.recorder.poll(WAIT)?),
                }
            };
            shots.push(Some(self.shot(number, link, &piece, buffer)));
        }
        let mut event = Event { number, shots };
        while let Err(back) = self.recorder.offer(event) {
            event = back;
            self.recorder.poll(WAIT)?;
        }
        Ok(())
    }

    /// One shot in a buffer, as a sender would have sent it, and what is known of it.
    fn shot(&mut self, number: u64, link: usize, piece: &Piece, buffer: Buffer) -> Shot {
        let (stream, g) = (self.run.links[link].stream, self.run.links[link].geometry);
        self.encode(&g, piece);
        let (presence, valid_bytes) = match &piece.table {
            Some(table) => (presence_of(table, &g), table.valid_bytes),
            None => self.presence(&g, piece),
        };
        let whole = presence.is_complete()
            && valid_bytes == g.sample_bytes()
            && piece.table.as_ref().is_none_or(|table| table.complete);
        let end = g.trailer_offset() as usize;
        for index in presence.missing() {
            let start = g.packet_offset(index) as usize;
            self.bytes[start..start + g.packet_bytes(index) as usize].fill(0);
        }
        let flags = piece.table.as_ref().map_or(0, |table| table.flags);
        let record = Record {
            clock_locked: flags & 1 != 0,
            triggered: flags & 2 != 0,
            shot: number,
            tai_ns: piece.stamp_tai_ns,
            stream,
            ..Record::of(&g)
        };
        let mut record = record.finish(crc::register(u32::MAX, &self.bytes[..end]));
        if !whole {
            // What the samples were is not known, so no CRC may hold over what is here.
            record.last_chunk_mut::<4>().into_iter().flatten().for_each(|byte| *byte = !*byte);
        }
        // The record may lie over the last two packets.
        for (at, byte) in (end..).zip(record) {
            self.bytes[at] = if presence.contains(at as u32 / PACKET_BYTES) { byte } else { 0 };
        }
        buffer.write(0, &self.bytes);
        let mut drops = Drops::default();
        drops.add(DropCause::WireGap, u64::from(g.packets() - presence.placed()));
        let counts = &mut self.counts[link];
        counts.packets_in += u64::from(presence.placed());
        counts.packets_placed += u64::from(presence.placed());
        counts.packet_drops.merge(&drops);
        counts.shots_seen += 1;
        *(if whole { &mut counts.shots_complete } else { &mut counts.shots_partial }) += 1;
        let (arrived_tai_ns, completed_tai_ns) =
            piece.table.as_ref().map_or((0, 0), |table| (table.arrived_tai_ns, table.completed_tai_ns));
        let stamp_tai_ns = piece.stamp_tai_ns;
        let meta = ShotMeta {
            stream,
            number,
            stamp_tai_ns,
            arrived_tai_ns,
            completed_tai_ns,
            flags,
            record_good: whole,
            valid_bytes,
            presence: Arc::new(presence),
            drops,
        };
        Shot { meta, buffer }
    }

    /// A piece's samples as a slot's bytes, without its record; missing ones are zeros.
    fn encode(&mut self, g: &Geometry, piece: &Piece) {
        self.bytes.clear();
        self.bytes.resize(g.slot_bytes() as usize, 0);
        let (lowest, highest) = match g.packing() {
            Packing::Uint8 => (0.0, 255.0),
            Packing::Int16Le | Packing::Int16Be => (f64::from(i16::MIN), f64::from(i16::MAX)),
            Packing::Packed12 => (-2048.0, 2047.0),
        };
        let mut cut = 0;
        let numbers = piece.samples.iter().map(|sample| {
            let value = (sample * self.scale).round();
            cut += u64::from(value < lowest || value > highest);
            // What is not a number becomes 0.
            value.clamp(lowest, highest) as i16
        });
        let bytes = &mut self.bytes[..g.sample_bytes() as usize];
        match g.packing() {
            Packing::Uint8 => bytes.iter_mut().zip(numbers).for_each(|(byte, number)| *byte = number as u8),
            Packing::Int16Le => {
                for (bytes, number) in bytes.as_chunks_mut::<2>().0.iter_mut().zip(numbers) {
                    *bytes = number.to_le_bytes();
                }
            }
            Packing::Int16Be => {
                for (bytes, number) in bytes.as_chunks_mut::<2>().0.iter_mut().zip(numbers) {
                    *bytes = number.to_be_bytes();
                }
            }
            Packing::Packed12 => pack12::pack(&numbers.collect::<Vec<_>>(), bytes),
        }
        self.out_of_range += cut;
    }

    /// Which packets are there: those without a missing sample, and the one within which all of the rest is missing.
    fn presence(&mut self, g: &Geometry, piece: &Piece) -> (Presence, u32) {
        let bits = g.packing().bits_per_sample() as usize;
        let mut presence = Presence::empty(g.packets());
        let missing = |sample: &f64| sample.is_nan();
        let tail = piece.samples.iter().rposition(|sample| !missing(sample)).map_or(0, |last| last + 1);
        let mut valid_bytes = 0;
        for index in 0..g.packets() {
            let start = g.packet_offset(index).min(g.sample_bytes());
            let end = (start + g.packet_bytes(index)).min(g.sample_bytes());
            let samples = start as usize * 8 / bits..(end as usize * 8).div_ceil(bits).min(piece.samples.len());
            let there = samples.start..samples.end.min(tail);
            let ended = tail < piece.samples.len() && samples.start >= tail;
            let holes = piece.samples[there.start.min(there.end)..there.end].iter().filter(|s| missing(s)).count();
            // Behind the source's end only what has no sample at all is there with the last one that has.
            if ended || holes > 0 {
                self.left_out += there.len().saturating_sub(holes) as u64;
                continue;
            }
            presence.insert(index);
            valid_bytes += ((there.end * bits / 8) as u32).clamp(start, end) - start;
        }
        (presence, valid_bytes)
    }
}

fn presence_of(table: &Table, g: &Geometry) -> Presence {
    let mut presence = Presence::empty(g.packets());
    let there = |index: u32| table.presence.get((index / 8) as usize).is_some_and(|byte| byte >> (index % 8) & 1 == 1);
    (0..g.packets()).filter(|index| there(*index)).for_each(|index| {
        presence.insert(index);
    });
    presence
}

impl Piece {
    /// Whether any of its samples is there.
    fn holds_anything(&self) -> bool {
        self.table.is_some() || self.samples.iter().any(|sample| !sample.is_nan())
    }
}
