//! Writes the shots of a source as a recording.

use super::error::ImportError;
use super::options::ImportOptions;
use super::source::{LinkShot, NumberRange, Source, SourceInfo, TableEntry};
use crate::draft::{Draft, Replace};
use crate::info::RunInfo;
use crate::layout;
use crate::shot::{Event, Loss, RunCounters, Shot, ShotMeta, StreamRunCounters};
use crate::{Recorder, RecorderConfig};
use serde::Serialize;
use shotline_compute::pack12;
use shotline_memory::{Buffer, Pool, Registrar};
use shotline_wire::crc;
use shotline_wire::record::Record;
use shotline_wire::shot::{DropCause, DropCounters, Geometry, PACKET_BYTES, Packing, Presence};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of events in flight.
const IN_FLIGHT: u32 = 8;
/// Timeout of a poll of the recorder.
const WAIT: Option<Duration> = Some(Duration::from_millis(50));

/// Report of an import.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ImportReport {
    /// Format of the source.
    pub format: &'static str,
    /// Path of the recording.
    pub to: PathBuf,
    /// Channels of each link.
    pub channels: Vec<u16>,
    /// Samples per channel of each link's shots.
    pub samples: Vec<u32>,
    /// Factor from the source's numbers to samples.
    pub scale: f64,
    /// Complete shots.
    pub complete: u64,
    /// Partial shots.
    pub partial: u64,
    /// Lost shots.
    pub lost: u64,
    /// Samples that were omitted because they share a packet with missing ones.
    pub omitted_samples: u64,
    /// Size of the recording, in bytes.
    pub file_bytes: u64,
    /// Remarks on the import.
    pub notes: Vec<String>,
}

/// Progress callback, called with the shots done and the total. Returns [`ControlFlow::Break`] to stop.
pub type Progress<'a> = &'a dyn Fn(u64, u64) -> ControlFlow<()>;

pub(super) fn write(
    source: &mut dyn Source,
    to: &Path,
    options: &ImportOptions,
    scale: f64,
    progress: Progress<'_>,
) -> Result<ImportReport, ImportError> {
    let SourceInfo { format, numbers, mut run, shots, notes } = source.info().clone();
    run.config.push_str(&format!("scale = {scale:?}\n"));
    let links = run.links.len() as u32;
    let slot = run.links.iter().map(|link| link.geometry.slot_bytes()).max().unwrap_or(0);
    let mut registrar = Registrar::new();
    let pool = Pool::new(&mut registrar, IN_FLIGHT * links, slot)?;
    layout::check_target(to, options.overwrite)?;
    // The recording is a hidden draft until the import is complete.
    let replace = if options.overwrite { Replace::File } else { Replace::Nothing };
    let draft = Draft::new(to, replace)?;
    let config = RecorderConfig { in_flight: IN_FLIGHT * links, ..RecorderConfig::new(shots.max(1)) };
    let recorder = Recorder::create(draft.path(), &config, &run, &registrar.finish())?;
    let counters = run
        .links
        .iter()
        .map(|link| StreamRunCounters { stream: link.stream, ..StreamRunCounters::default() })
        .collect();
    let passes = if numbers == NumberRange::Any && options.scale.is_none() { 2 } else { 1 };
    let mut writer =
        Writer { run: &run, pool, recorder, scale, counters, omitted_samples: 0, out_of_range: 0, bytes: Vec::new() };
    let outcome = writer.write_all(source, (shots, passes), progress);
    let Writer { recorder, counters, omitted_samples, out_of_range, .. } = writer;
    outcome?;
    let counters = RunCounters { streams: counters };
    let (complete, partial, lost) = shot_totals(&counters);
    let report = recorder.finish(&counters)?;
    draft.finish()?;
    let mut notes = notes;
    if scale != 1.0 {
        notes.push(format!(
            "its numbers are multiplied by {scale:?} to become 16-bit integers (see the attribute config)"
        ));
    }
    if out_of_range > 0 {
        notes.push(format!("{out_of_range} numbers do not fit 16 bits with this scale: they are clipped"));
    }
    if omitted_samples > 0 {
        notes.push(format!("{omitted_samples} samples share a packet with missing ones, and are omitted"));
    }
    notes.extend(report.warnings);
    Ok(ImportReport {
        format,
        to: to.to_owned(),
        channels: run.links.iter().map(|link| link.geometry.channels()).collect(),
        samples: run.links.iter().map(|link| link.geometry.samples()).collect(),
        scale,
        complete,
        partial,
        lost,
        omitted_samples,
        file_bytes: report.file_bytes,
        notes,
    })
}

/// Returns the total complete, partial and lost shots.
fn shot_totals(counters: &RunCounters) -> (u64, u64, u64) {
    counters.streams.iter().fold((0, 0, 0), |(complete, partial, lost), stream| {
        let drops = stream.shot_drops.total();
        (complete + stream.shots_complete, partial + stream.shots_partial, lost + drops)
    })
}

struct Writer<'a> {
    run: &'a RunInfo,
    pool: Arc<Pool>,
    recorder: Recorder,
    scale: f64,
    counters: Vec<StreamRunCounters>,
    omitted_samples: u64,
    /// Samples that were clipped.
    out_of_range: u64,
    /// Slot bytes of the current shot.
    bytes: Vec<u8>,
}

impl Writer<'_> {
    fn write_all(
        &mut self,
        source: &mut dyn Source,
        (shots, passes): (u64, u64),
        progress: Progress<'_>,
    ) -> Result<(), ImportError> {
        let listed_losses = source.losses().map(<[Loss]>::to_vec);
        let mut next: Option<u64> = None;
        let mut done = (passes - 1) * shots;
        while let Some(shot_set) = source.next()? {
            let skipped = next.map_or(0, |next| shot_set.number.saturating_sub(next));
            if skipped > 0 && listed_losses.is_none() {
                let first = shot_set.number - skipped;
                for link in 0..self.run.links.len() {
                    self.record_loss(link, DropCause::WireGap, first, skipped);
                }
            }
            next = Some(shot_set.number + 1);
            // A shot that is lost on all links needs no row.
            if shot_set
                .links
                .iter()
                .all(|link_shot| link_shot.as_ref().is_none_or(|link_shot| !link_shot.has_samples()))
            {
                if listed_losses.is_none() {
                    (0..self.run.links.len())
                        .for_each(|link| self.record_loss(link, DropCause::WireGap, shot_set.number, 1));
                }
            } else {
                self.record(shot_set.number, shot_set.links, listed_losses.is_none())?;
            }
            done += 1;
            if progress(done, passes * shots).is_break() {
                return Err(ImportError::Stopped);
            }
        }
        for loss in listed_losses.unwrap_or_default() {
            if let Some(link) = self.run.links.iter().position(|link| link.stream == loss.stream) {
                self.record_loss(link, loss.cause, loss.first, loss.count);
            }
        }
        while self.recorder.pending() > 0 {
            self.recorder.poll(WAIT)?;
        }
        Ok(())
    }

    fn record_loss(&mut self, link: usize, cause: DropCause, first: u64, count: u64) {
        let counters = &mut self.counters[link];
        counters.shots_seen += count;
        counters.shot_drops.add(cause, count);
        self.recorder.loss(Loss { stream: counters.stream, cause, first, count });
    }

    fn record(&mut self, number: u64, links: Vec<Option<LinkShot>>, count_losses: bool) -> Result<(), ImportError> {
        let mut shots = Vec::new();
        for (link, link_shot) in links.into_iter().enumerate() {
            let Some(link_shot) = link_shot.filter(LinkShot::has_samples) else {
                if count_losses {
                    self.record_loss(link, DropCause::WireGap, number, 1);
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
            shots.push(Some(self.shot(number, link, &link_shot, buffer)));
        }
        let mut event = Event { number, shots };
        while let Err(back) = self.recorder.offer(event) {
            event = back;
            self.recorder.poll(WAIT)?;
        }
        Ok(())
    }

    /// Builds a shot in a buffer as a sender would have sent it, with its metadata.
    fn shot(&mut self, number: u64, link: usize, link_shot: &LinkShot, buffer: Buffer) -> Shot {
        let (stream, g) = (self.run.links[link].stream, self.run.links[link].geometry);
        self.encode(&g, link_shot);
        let (presence, valid_bytes) = match &link_shot.entry {
            Some(entry) => (presence_of(entry, &g), entry.valid_bytes),
            None => self.presence(&g, link_shot),
        };
        let whole = presence.is_complete()
            && valid_bytes == g.sample_bytes()
            && link_shot.entry.as_ref().is_none_or(|entry| entry.complete);
        let end = g.trailer_offset() as usize;
        for index in presence.missing() {
            let start = g.packet_offset(index) as usize;
            self.bytes[start..start + g.packet_bytes(index) as usize].fill(0);
        }
        let flags = link_shot.entry.as_ref().map_or(0, |entry| entry.flags);
        let record = Record {
            clock_locked: flags & 1 != 0,
            triggered: flags & 2 != 0,
            shot: number,
            tai_ns: link_shot.stamp_tai_ns,
            stream,
            ..Record::of(&g)
        };
        let mut record = record.finish(crc::register(u32::MAX, &self.bytes[..end]));
        if !whole {
            // The original samples are unknown, so the CRC must not be valid for the samples stored here.
            record.last_chunk_mut::<4>().into_iter().flatten().for_each(|byte| *byte = !*byte);
        }
        // The record may span the last two packets.
        for (at, byte) in (end..).zip(record) {
            self.bytes[at] = if presence.contains(at as u32 / PACKET_BYTES) { byte } else { 0 };
        }
        buffer.write(0, &self.bytes);
        let mut drops = DropCounters::default();
        drops.add(DropCause::WireGap, u64::from(g.packets() - presence.received()));
        let counters = &mut self.counters[link];
        counters.packets_in += u64::from(presence.received());
        counters.packets_placed += u64::from(presence.received());
        counters.packet_drops.merge(&drops);
        counters.shots_seen += 1;
        *(if whole { &mut counters.shots_complete } else { &mut counters.shots_partial }) += 1;
        let (arrived_tai_ns, completed_tai_ns) =
            link_shot.entry.as_ref().map_or((0, 0), |entry| (entry.arrived_tai_ns, entry.completed_tai_ns));
        let stamp_tai_ns = link_shot.stamp_tai_ns;
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

    /// Encodes the samples of a shot to slot bytes without the record. Missing samples are zeros.
    fn encode(&mut self, g: &Geometry, link_shot: &LinkShot) {
        self.bytes.clear();
        self.bytes.resize(g.slot_bytes() as usize, 0);
        let (lowest, highest) = match g.packing() {
            Packing::Uint8 => (0.0, 255.0),
            Packing::Int16Le | Packing::Int16Be => (f64::from(i16::MIN), f64::from(i16::MAX)),
            Packing::Packed12 => (-2048.0, 2047.0),
        };
        let mut clipped = 0;
        let numbers = link_shot.samples.iter().map(|sample| {
            let value = (sample * self.scale).round();
            clipped += u64::from(value < lowest || value > highest);
            // The cast converts NaN to 0.
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
        self.out_of_range += clipped;
    }

    /// Computes the presence map and the valid bytes. A packet is present if no sample is missing, or if only the
    /// samples after the end of the source are.
    fn presence(&mut self, g: &Geometry, link_shot: &LinkShot) -> (Presence, u32) {
        let bits = g.packing().bits_per_sample() as usize;
        let mut presence = Presence::empty(g.packets());
        let missing = |sample: &f64| sample.is_nan();
        let tail = link_shot.samples.iter().rposition(|sample| !missing(sample)).map_or(0, |last| last + 1);
        let mut valid_bytes = 0;
        for index in 0..g.packets() {
            let start = g.packet_offset(index).min(g.sample_bytes());
            let end = (start + g.packet_bytes(index)).min(g.sample_bytes());
            let samples = start as usize * 8 / bits..(end as usize * 8).div_ceil(bits).min(link_shot.samples.len());
            let present = samples.start..samples.end.min(tail);
            let ended = tail < link_shot.samples.len() && samples.start >= tail;
            let holes =
                link_shot.samples[present.start.min(present.end)..present.end].iter().filter(|s| missing(s)).count();
            // A packet with samples after the end of the source is present only if it also contains samples of the
            // source.
            if ended || holes > 0 {
                self.omitted_samples += present.len().saturating_sub(holes) as u64;
                continue;
            }
            presence.insert(index);
            valid_bytes += ((present.end * bits / 8) as u32).clamp(start, end) - start;
        }
        (presence, valid_bytes)
    }
}

fn presence_of(entry: &TableEntry, g: &Geometry) -> Presence {
    let mut presence = Presence::empty(g.packets());
    let is_present =
        |index: u32| entry.presence.get((index / 8) as usize).is_some_and(|byte| byte >> (index % 8) & 1 == 1);
    (0..g.packets()).filter(|index| is_present(*index)).for_each(|index| {
        presence.insert(index);
    });
    presence
}

impl LinkShot {
    /// Returns `true` if the shot has a table entry or any received sample.
    fn has_samples(&self) -> bool {
        self.entry.is_some() || self.samples.iter().any(|sample| !sample.is_nan())
    }
}
