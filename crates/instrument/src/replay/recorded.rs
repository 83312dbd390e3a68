//! Shot source of a probe that reads a recording.

use super::converter::{ConversionError, ShotConverter};
use super::patch::Patch;
use super::reader::{BufferLayout, ReadResult, Reader, RowBuffer};
use super::recording::RecordingReader;
use crate::probe::samples::{ReplayReport, SourceReport};
use crate::probe::shots::COPY_RING_BYTES;
use crate::probe::{CopyRing, Payload, ReadError, ShotContext, Shots, Upcoming};
use shotline_memory::{MemoryError, Region, RegionId, Registrar, Sge};
use shotline_wire::crc;
use shotline_wire::record;
use shotline_wire::setup::Model;
use shotline_wire::shot::Geometry;
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

/// Memory for read-ahead in bytes.
const AHEAD_BYTES: u64 = 64 << 20;
/// Minimum and maximum number of rows read ahead.
const ROW_BUFFERS: (u64, u64) = (8, 256);
/// Number of read-ahead threads. A single thread would wait for the disk most of the time.
const READERS: u64 = 4;

/// Timestamp in the end-of-shot record of a sent shot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StampSource {
    /// Time of the recorded shot.
    #[default]
    Original,
    /// Time of sending; the record's CRC is adjusted.
    Now,
}

/// Reason why a recording cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The shots cannot be converted to the framing.
    #[error(transparent)]
    Conversion(#[from] ConversionError),
    /// The recording is empty.
    #[error("no shot to send: the recording has none in this range")]
    Empty,
    /// Links differ in geometry, which set-up messages cannot describe.
    #[error(
        "the shots of link {link} differ in shape from those of link 0, but set-up supports one shape for all links: use --to"
    )]
    Shapes {
        /// First link that differs.
        link: usize,
    },
    /// The shots have no record whose time could be changed.
    #[error("--stamps changes the time in the end-of-shot records, but these shots have none: omit --stamps")]
    Stamps,
    /// Memory allocation failed.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// Shot source of a probe that reads a recording. Rows are read ahead by several threads, round-robin.
pub struct RecordedShots<T> {
    recording: T,
    model: Model,
    converters: Vec<ShotConverter>,
    /// Recorded and sent stream number of each link.
    streams: Vec<(u32, u32)>,
    stamps: StampSource,
    passes: Option<u64>,
    region: Arc<Region>,
    id: RegionId,
    layout: BufferLayout,
    buffers: usize,
    copies: CopyRing,
    report: ReplayReport,
    pattern_period: u32,
    /// First shot number and count of numbers of one pass.
    numbers: (u64, u64),
    readers: Vec<ReaderHandle>,
    /// Shots loaded since the last rewind.
    loaded: u64,
    current: Option<RowBuffer>,
    next: Option<ReadResult>,
    /// A wait for the reader has been counted since the last shot.
    has_waited: bool,
}

/// Channel ends of a read-ahead thread. The thread ends when they are dropped.
#[derive(Debug)]
struct ReaderHandle {
    free: SyncSender<RowBuffer>,
    full: Receiver<ReadResult>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for ReaderHandle {
    fn drop(&mut self) {
        // The next reader writes to the same memory, so this one must have ended.
        (self.free, self.full) = (sync_channel(0).0, sync_channel(0).1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl<T: RecordingReader> RecordedShots<T> {
    /// Allocates memory for read-ahead. `name` becomes part of the model name; `passes` is the number of times that the
    /// rows are sent, `None` for no limit.
    ///
    /// # Errors
    /// If the recording is empty, its links differ, or it has no records for [`StampSource::Now`].
    pub fn new(
        recording: T,
        name: &str,
        converters: Vec<ShotConverter>,
        stamps: StampSource,
        passes: Option<u64>,
        registrar: &mut Registrar,
    ) -> Result<Self, ReplayError> {
        let (rows, numbers) = (recording.rows(), recording.numbers());
        let Some(first) = converters.first().filter(|_| !rows.is_empty()) else { return Err(ReplayError::Empty) };
        if let Some(link) = converters.iter().position(|converter| converter.geometry() != first.geometry()) {
            return Err(ReplayError::Shapes { link });
        }
        if stamps == StampSource::Now && !first.geometry().trailer().has_record() {
            return Err(ReplayError::Stamps);
        }
        let layout = BufferLayout { links: converters.len(), slot_bytes: first.geometry().slot_bytes().into() };
        let buffer_bytes = layout.slot(1, 0);
        let buffers = (AHEAD_BYTES / buffer_bytes).clamp(ROW_BUFFERS.0, ROW_BUFFERS.1);
        let copies_offset = buffers * buffer_bytes;
        let region = Region::host(usize::try_from(copies_offset + COPY_RING_BYTES).unwrap_or(usize::MAX))?;
        let id = registrar.add(Arc::clone(&region));
        let printable: String = name.chars().filter(|letter| (' '..='~').contains(letter)).collect();
        let model = format!("replay of {printable}");
        let model = &model[..model.len().min(Model::default().capacity())];
        // Receivers assign the streams 0, 1, ... to the links, and later passes have other shot numbers.
        let has_patterns =
            passes == Some(1) && recording.links().iter().zip(0..).all(|(link, stream)| link.stream == stream);
        Ok(Self {
            pattern_period: if has_patterns { recording.pattern_period() } else { 0 },
            model: Model::from(model).unwrap_or_default(),
            streams: recording.links().iter().map(|link| (link.stream, link.stream)).collect(),
            converters,
            stamps,
            passes,
            copies: CopyRing::new(Arc::clone(&region), id, copies_offset),
            region,
            id,
            layout,
            buffers: buffers as usize,
            report: ReplayReport { rows: rows.end - rows.start, read_underruns: 0 },
            numbers: (numbers.start, numbers.end - numbers.start),
            recording,
            readers: Vec::new(),
            loaded: 0,
            current: None,
            next: None,
            has_waited: true,
        })
    }

    /// Restarts reading at the first row.
    fn rewind(&mut self) {
        (self.current, self.next, self.has_waited) = (None, None, true);
        self.readers.clear();
        self.loaded = 0;
        for reader in 0..READERS {
            let buffers = (reader as usize..self.buffers).step_by(READERS as usize);
            let ((free, empty), (filled, full)) = (sync_channel(buffers.len()), sync_channel(buffers.len() + 1));
            for index in buffers {
                let _ = free.send(RowBuffer::new(index, self.layout.links)); // the channel has capacity for all
            }
            let reader = Reader {
                recording: self.recording.clone(),
                converters: self.converters.clone(),
                region: Arc::clone(&self.region),
                layout: self.layout,
                passes: self.passes,
                stride: (reader, READERS),
                free: empty,
                full: filled,
            };
            let thread = Some(std::thread::spawn(|| reader.run()));
            self.readers.push(ReaderHandle { free, full, thread });
        }
    }

    /// Returns the reader of the shot with this position in the sequence.
    fn reader(&self, position: u64) -> Option<&ReaderHandle> {
        self.readers.get((position % READERS) as usize)
    }

    /// Returns the number after the last shot.
    fn end(&self) -> u64 {
        let (first, count) = self.numbers;
        first.saturating_add(count.saturating_mul(self.passes.unwrap_or(u64::MAX)))
    }

    /// Updates the records in a row buffer for sending now.
    fn patch(&self, buffer: &mut RowBuffer, context: &ShotContext) {
        for (link, loaded) in buffer.links.iter_mut().enumerate() {
            let geometry = self.converters[link].geometry();
            let (recorded, sent) = self.streams[link];
            let patch = Patch {
                number_offset: buffer.number_offset,
                stream: (recorded != sent).then_some(sent),
                stamp: (self.stamps == StampSource::Now).then_some((context.stamp.tai_ns, context.stamp.locked)),
            };
            // A record is never split, so it is in the last packet.
            let last = loaded.packets.last().copied().unwrap_or(false);
            let Some(record_offset) = geometry.record_offset().filter(|_| last && patch != Patch::default()) else {
                continue;
            };
            let at = (self.layout.slot(buffer.index, link) + u64::from(record_offset)) as usize;
            let mut bytes = [0; record::LEN];
            self.region.read(at, &mut bytes);
            let change = patch.apply(&mut bytes);
            self.region.write(at, &bytes);
            if let Some(remainder) = loaded.remainders.last_mut() {
                *remainder ^= crc::remainder(&change);
            }
        }
    }
}

impl<T: RecordingReader> Shots for RecordedShots<T> {
    fn model(&self) -> Model {
        self.model
    }
    fn report(&self) -> SourceReport {
        SourceReport { distinct_shots: 0, rf: None, phantom: None, replay: Some(self.report.clone()) }
    }
    fn pattern_period(&self) -> u32 {
        self.pattern_period
    }
    fn geometry(&self) -> &Geometry {
        self.geometry_of(0)
    }
    fn is_live(&self) -> bool {
        false
    }
    fn prepare(&mut self, link: u8, stream: u32, _geometry: &Geometry) {
        self.streams[usize::from(link)].1 = stream;
    }
    fn begin(&mut self, _next: u64) -> u64 {
        self.rewind();
        self.numbers.0
    }

    fn upcoming(&mut self) -> Upcoming {
        if self.next.is_none() {
            self.next = match self.reader(self.loaded).map(|reader| reader.full.try_recv()) {
                Some(Ok(read)) => Some(read),
                Some(Err(TryRecvError::Empty)) => {
                    self.report.read_underruns += u64::from(!self.has_waited);
                    self.has_waited = true;
                    None
                }
                Some(Err(TryRecvError::Disconnected)) => {
                    Some(ReadResult::Failed(ReadError("a reading thread panicked".into())))
                }
                None => None,
            };
        }
        match &self.next {
            Some(ReadResult::Row(buffer)) => Upcoming::Shot {
                number: buffer.number.wrapping_add(buffer.number_offset),
                recorded_ns: Some(buffer.recorded_ns).filter(|recorded_ns| *recorded_ns > 0),
            },
            // `load` returns the error.
            Some(ReadResult::Failed(_)) => Upcoming::Shot { number: 0, recorded_ns: None },
            Some(ReadResult::End) => Upcoming::End(self.end()),
            None => Upcoming::Pending,
        }
    }

    fn load(&mut self, context: &ShotContext) -> Result<u64, ReadError> {
        let mut buffer = match self.next.take() {
            Some(ReadResult::Row(buffer)) => buffer,
            Some(ReadResult::Failed(error)) => return Err(error),
            other => {
                self.next = other;
                return Err(ReadError("no shot is ready to be sent".into()));
            }
        };
        self.has_waited = false;
        self.patch(&mut buffer, context);
        let number = buffer.number.wrapping_add(buffer.number_offset);
        let done = self.current.replace(buffer);
        if let (Some(done), Some(reader)) = (done, self.loaded.checked_sub(1).and_then(|before| self.reader(before))) {
            let _ = reader.free.send(done); // fails only if the reader has ended
        }
        self.loaded += 1;
        Ok(number)
    }

    fn geometry_of(&self, link: u8) -> &Geometry {
        self.converters[usize::from(link)].geometry()
    }

    fn contains(&self, link: u8, packet: u16) -> bool {
        let loaded = self.current.as_ref().map(|buffer| &buffer.links[usize::from(link)]);
        loaded.is_some_and(|loaded| loaded.packets.get(usize::from(packet)).copied().unwrap_or(false))
    }

    fn payload(&self, link: u8, _shot: u64, packet: u16) -> Payload {
        let (link, packet) = (usize::from(link), usize::from(packet));
        let Some(buffer) = &self.current else { return Payload { gather: [Sge::EMPTY; 2], remainder: 0 } };
        let geometry = self.converters[link].geometry();
        let offset = self.layout.slot(buffer.index, link) + u64::from(geometry.packet_offset(packet as u32));
        let sge = Sge { region: self.id, offset, len: geometry.packet_bytes(packet as u32) };
        let remainder = buffer.links[link].remainders.get(packet).copied().unwrap_or(0);
        Payload { gather: [sge, Sge::EMPTY], remainder }
    }

    fn copies(&mut self) -> &mut CopyRing {
        &mut self.copies
    }
}

impl<T> Debug for RecordedShots<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordedShots")
            .field("model", &self.model)
            .field("converters", &self.converters)
            .finish_non_exhaustive()
    }
}
