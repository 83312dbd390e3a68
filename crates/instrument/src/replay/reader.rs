//! Read-ahead threads, so that a disk access does not delay sending: while one thread waits, the others read.

use super::converter::ShotConverter;
use super::recording::{RecordingReader, ShotMetadata};
use crate::probe::ReadError;
use shotline_memory::Region;
use shotline_wire::crc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

/// Buffer of one row that is ready to send; its bytes are in the region at the offset of `index`.
#[derive(Debug)]
pub(super) struct RowBuffer {
    pub(super) index: usize,
    /// Recorded shot number.
    pub(super) number: u64,
    /// Offset added to the number in later passes.
    pub(super) number_offset: u64,
    /// Acquisition time in ns; 0 if unknown.
    pub(super) recorded_ns: u64,
    pub(super) links: Vec<LoadedShot>,
}

/// One link's shot in a row buffer.
#[derive(Debug, Default)]
pub(super) struct LoadedShot {
    /// Presence of each packet; empty if the shot is missing.
    pub(super) packets: Vec<bool>,
    /// CRC remainder of each packet.
    pub(super) remainders: Vec<u32>,
}

impl RowBuffer {
    pub(super) fn new(index: usize, links: usize) -> Self {
        Self {
            index,
            number: 0,
            number_offset: 0,
            recorded_ns: 0,
            links: (0..links).map(|_| LoadedShot::default()).collect(),
        }
    }
}

/// Result that a reader passes to the sender.
#[derive(Debug)]
pub(super) enum ReadResult {
    Row(RowBuffer),
    /// No more rows.
    End,
    Failed(ReadError),
}

/// Layout of row buffers in the region.
#[derive(Clone, Copy, Debug)]
pub(super) struct BufferLayout {
    pub(super) links: usize,
    pub(super) slot_bytes: u64,
}

impl BufferLayout {
    /// Returns the offset of a link's shot in a row buffer.
    pub(super) fn slot(&self, buffer: usize, link: usize) -> u64 {
        (buffer * self.links + link) as u64 * self.slot_bytes
    }
}

/// State of a read-ahead thread.
pub(super) struct Reader<T> {
    pub(super) recording: T,
    pub(super) converters: Vec<ShotConverter>,
    pub(super) region: Arc<Region>,
    pub(super) layout: BufferLayout,
    /// Passes over the rows; `None` for no limit.
    pub(super) passes: Option<u64>,
    /// First shot and step: this thread reads every `step`-th shot of all passes.
    pub(super) stride: (u64, u64),
    pub(super) free: Receiver<RowBuffer>,
    pub(super) full: SyncSender<ReadResult>,
}

impl<T: RecordingReader> Reader<T> {
    /// Reads until the end, or until the receiving end is dropped.
    pub(super) fn run(mut self) {
        let last = match self.read() {
            Ok(true) => ReadResult::End,
            Ok(false) => return,
            Err(error) => ReadResult::Failed(error),
        };
        let _ = self.full.send(last);
    }

    /// Reads all rows; returns `false` if the receiving end was dropped.
    fn read(&mut self) -> Result<bool, ReadError> {
        let (rows, numbers) = (self.recording.rows(), self.recording.numbers());
        let count = rows.end.saturating_sub(rows.start);
        if count == 0 {
            return Ok(true);
        }
        let first = self.recording.row(rows.start)?.1;
        let last = self.recording.row(rows.end - 1)?.1.max(first);
        // The gap between passes is the average gap between shots.
        let pass_ns = (last - first) + (last - first) / (count - 1).max(1);
        let (mut at, step) = self.stride;
        while self.passes.is_none_or(|passes| at / count < passes) {
            let (pass, row) = (at / count, rows.start + at % count);
            let Ok(mut buffer) = self.free.recv() else { return Ok(false) };
            let (number, recorded_ns) = self.recording.row(row)?;
            buffer.number = number;
            buffer.number_offset = pass.wrapping_mul(numbers.end - numbers.start);
            buffer.recorded_ns =
                if recorded_ns > 0 { recorded_ns.saturating_add(pass.saturating_mul(pass_ns)) } else { 0 };
            for link in 0..self.layout.links {
                self.shot(row, link, &mut buffer)?;
            }
            if self.full.send(ReadResult::Row(buffer)).is_err() {
                return Ok(false);
            }
            at += step;
        }
        Ok(true)
    }

    /// Reads one link's shot into a row buffer.
    fn shot(&mut self, row: u64, link: usize, buffer: &mut RowBuffer) -> Result<(), ReadError> {
        let (converter, number, stream) = (self.converters[link], buffer.number, self.recording.links()[link].stream);
        let at = self.layout.slot(buffer.index, link) as usize;
        let region = &self.region;
        let loaded = &mut buffer.links[link];
        loaded.packets.clear();
        loaded.remainders.clear();
        let mut converted = Vec::new();
        self.recording.shot(row, link, &mut |meta: &ShotMetadata<'_>, slot: &[u8]| {
            let geometry = converter.geometry();
            let bytes = if converter.is_same() {
                slot
            } else {
                converter.convert(meta, (number, stream), slot, &mut converted);
                &converted
            };
            region.write(at, &bytes[..geometry.shot_bytes() as usize]);
            for index in 0..geometry.packets() {
                let first = geometry.packet_offset(index) as usize;
                loaded.packets.push(converter.contains(meta, index));
                loaded.remainders.push(crc::remainder(&bytes[first..first + geometry.packet_bytes(index) as usize]));
            }
        })
    }
}
