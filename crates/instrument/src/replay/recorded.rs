//! A recording as the shots of a probe.

use super::form::{Form, FormError};
use super::patch::Patch;
use super::reader::{Places, Rack, Read, Reader};
use super::tape::Tape;
use crate::probe::samples::{ReplayReport, SourceReport};
use crate::probe::shots::COPIES_BYTES;
use crate::probe::{Copies, Moment, Payload, ReadError, Shots, Upcoming};
use shotline_memory::{MemoryError, Region, RegionId, Registrar, Sge};
use shotline_wire::crc;
use shotline_wire::record;
use shotline_wire::setup::Model;
use shotline_wire::shot::Geometry;
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

/// Memory for rows that were read ahead.
const AHEAD_BYTES: u64 = 64 << 20;
/// Rows that are read ahead: at least, at most.
const RACKS: (u64, u64) = (8, 256);
/// Threads that read. One alone would wait for the disk most of the time.
const READERS: u64 = 4;

/// Whose time a shot's end-of-shot record tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stamps {
    /// That of the recorded shot.
    #[default]
    Original,
    /// That of its sending. The record's CRC is changed with it.
    Now,
}

/// Why a recording cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// Its shots do not take the form.
    #[error(transparent)]
    Form(#[from] FormError),
    /// There is nothing in it.
    #[error("there is no shot to send: the recording has none in this range")]
    Empty,
    /// Set-up describes all links at once.
    #[error("link {link} has shots of another shape than link 0: set-up knows one for all; send them with --to")]
    Shapes {
        /// The first that differs.
        link: usize,
    },
    /// There is no record whose time could be changed.
    #[error(
        "the time of sending can only be told in an end-of-shot record, and these shots have none: leave --stamps out"
    )]
    Stamps,
    /// No room.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// A recording as the shots of a probe: rows are read ahead, by several threads in turn.
pub struct Recorded<T> {
    tape: T,
    model: Model,
    forms: Vec<Form>,
    /// Of each link: as recorded, and as it is sent.
    streams: Vec<(u32, u32)>,
    stamps: Stamps,
    turns: Option<u64>,
    region: Arc<Region>,
    id: RegionId,
    places: Places,
    racks: usize,
    copies: Copies,
    report: ReplayReport,
    pattern_period: u32,
    /// Numbers of one turn: the first, and how many.
    numbers: (u64, u64),
    readers: Vec<Reading>,
    /// Shots taken from the readers so far.
    taken: u64,
    present: Option<Rack>,
    next: Option<Read>,
    /// The reader has been waited for since the last shot.
    waited: bool,
}

/// One reader's ends of its channels. It ends when they are gone.
#[derive(Debug)]
struct Reading {
    free: SyncSender<Rack>,
    full: Receiver<Read>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Reading {
    fn drop(&mut self) {
        // What it writes to is given to its successor: so it must have ended.
        (self.free, self.full) = (sync_channel(0).0, sync_channel(0).1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl<T: Tape> Recorded<T> {
    /// Takes the memory for reading ahead. `name` is for people; `turns` says how often the rows are sent, none
    /// without end.
    pub fn new(
        tape: T,
        name: &str,
        forms: Vec<Form>,
        stamps: Stamps,
        turns: Option<u64>,
        registrar: &mut Registrar,
    ) -> Result<Self, ReplayError> {
        let (rows, numbers) = (tape.rows(), tape.numbers());
        let Some(first) = forms.first().filter(|_| !rows.is_empty()) else { return Err(ReplayError::Empty) };
        if let Some(link) = forms.iter().position(|form| form.geometry() != first.geometry()) {
            return Err(ReplayError::Shapes { link });
        }
        if stamps == Stamps::Now && !first.geometry().trailer().has_record() {
            return Err(ReplayError::Stamps);
        }
        let places = Places { links: forms.len(), slot_bytes: first.geometry().slot_bytes().into() };
        let rack_bytes = places.slot(1, 0);
        let racks = (AHEAD_BYTES / rack_bytes).clamp(RACKS.0, RACKS.1);
        let copies_at = racks * rack_bytes;
        let region = Region::host(usize::try_from(copies_at + COPIES_BYTES).unwrap_or(usize::MAX))?;
        let id = registrar.add(Arc::clone(&region));
        let printable: String = name.chars().filter(|letter| (' '..='~').contains(letter)).collect();
        let model = format!("replay of {printable}");
        let model = &model[..model.len().min(Model::default().capacity())];
        // A receiver gives the links the streams 0, 1, ..., and later turns have other numbers.
        let as_told = turns == Some(1) && tape.links().iter().zip(0..).all(|(link, stream)| link.stream == stream);
        Ok(Self {
            pattern_period: if as_told { tape.pattern_period() } else { 0 },
            model: Model::from(model).unwrap_or_default(),
            streams: tape.links().iter().map(|link| (link.stream, link.stream)).collect(),
            forms,
            stamps,
            turns,
            copies: Copies::new(Arc::clone(&region), id, copies_at),
            region,
            id,
            places,
            racks: racks as usize,
            report: ReplayReport { rows: rows.end - rows.start, read_waits: 0 },
            numbers: (numbers.start, numbers.end - numbers.start),
            tape,
            readers: Vec::new(),
            taken: 0,
            present: None,
            next: None,
            waited: true,
        })
    }

    /// Begins to read at the first row.
    fn rewind(&mut self) {
        (self.present, self.next, self.waited) = (None, None, true);
        self.readers.clear();
        self.taken = 0;
        for reader in 0..READERS {
            let racks = (reader as usize..self.racks).step_by(READERS as usize);
            let ((free, empty), (filled, full)) = (sync_channel(racks.len()), sync_channel(racks.len() + 1));
            for index in racks {
                let _ = free.send(Rack::new(index, self.places.links)); // there is room for all
            }
            let reader = Reader {
                tape: self.tape.clone(),
                forms: self.forms.clone(),
                region: Arc::clone(&self.region),
                places: self.places,
                turns: self.turns,
                every: (reader, READERS),
                free: empty,
                full: filled,
            };
            let thread = Some(std::thread::spawn(|| reader.run()));
            self.readers.push(Reading { free, full, thread });
        }
    }

    /// The reader of a shot, by how many were taken before.
    fn reader(&self, taken: u64) -> Option<&Reading> {
        self.readers.get((taken % READERS) as usize)
    }

    /// The number after the last.
    fn end(&self) -> u64 {
        let (first, count) = self.numbers;
        first.saturating_add(count.saturating_mul(self.turns.unwrap_or(u64::MAX)))
    }

    /// Changes a rack's records to what is sent now.
    fn patch(&self, rack: &mut Rack, moment: &Moment) {
        for (link, loaded) in rack.links.iter_mut().enumerate() {
            let geometry = self.forms[link].geometry();
            let (recorded, sent) = self.streams[link];
            let patch = Patch {
                ahead: rack.ahead,
                stream: (recorded != sent).then_some(sent),
                stamp: (self.stamps == Stamps::Now).then_some((moment.stamp.tai_ns, moment.stamp.locked)),
            };
            // A record is never cut in two, so it is in the last packet.
            let last = loaded.packets.last().copied().unwrap_or(false);
            let Some(record_at) = geometry.record_offset().filter(|_| last && patch != Patch::default()) else {
                continue;
            };
            let at = (self.places.slot(rack.index, link) + u64::from(record_at)) as usize;
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

impl<T: Tape> Shots for Recorded<T> {
    fn model(&self) -> Model {
        self.model
    }
    fn report(&self) -> SourceReport {
        SourceReport { period: 0, rf: None, replay: Some(self.report.clone()) }
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
            self.next = match self.reader(self.taken).map(|reader| reader.full.try_recv()) {
                Some(Ok(read)) => Some(read),
                Some(Err(TryRecvError::Empty)) => {
                    self.report.read_waits += u64::from(!self.waited);
                    self.waited = true;
                    None
                }
                Some(Err(TryRecvError::Disconnected)) => {
                    Some(Read::Failed(ReadError("a reading thread panicked".into())))
                }
                None => None,
            };
        }
        match &self.next {
            Some(Read::Row(rack)) => Upcoming::Shot {
                number: rack.number.wrapping_add(rack.ahead),
                taken_ns: Some(rack.taken_ns).filter(|taken_ns| *taken_ns > 0),
            },
            // Loading it says what went wrong.
            Some(Read::Failed(_)) => Upcoming::Shot { number: 0, taken_ns: None },
            Some(Read::End) => Upcoming::End(self.end()),
            None => Upcoming::Later,
        }
    }

    fn load(&mut self, moment: &Moment) -> Result<u64, ReadError> {
        let mut rack = match self.next.take() {
            Some(Read::Row(rack)) => rack,
            Some(Read::Failed(error)) => return Err(error),
            other => {
                self.next = other;
                return Err(ReadError("no shot was upcoming".into()));
            }
        };
        self.waited = false;
        self.patch(&mut rack, moment);
        let number = rack.number.wrapping_add(rack.ahead);
        let done = self.present.replace(rack);
        if let (Some(done), Some(reader)) = (done, self.taken.checked_sub(1).and_then(|before| self.reader(before))) {
            let _ = reader.free.send(done); // a reader that has ended needs none
        }
        self.taken += 1;
        Ok(number)
    }

    fn geometry_of(&self, link: u8) -> &Geometry {
        self.forms[usize::from(link)].geometry()
    }

    fn contains(&self, link: u8, packet: u16) -> bool {
        let loaded = self.present.as_ref().map(|rack| &rack.links[usize::from(link)]);
        loaded.is_some_and(|loaded| loaded.packets.get(usize::from(packet)).copied().unwrap_or(false))
    }

    fn payload(&self, link: u8, _shot: u64, packet: u16) -> Payload {
        let (link, packet) = (usize::from(link), usize::from(packet));
        let Some(rack) = &self.present else { return Payload { gather: [Sge::EMPTY; 2], remainder: 0 } };
        let geometry = self.forms[link].geometry();
        let offset = self.places.slot(rack.index, link) + u64::from(geometry.packet_offset(packet as u32));
        let sge = Sge { region: self.id, offset, len: geometry.packet_bytes(packet as u32) };
        let remainder = rack.links[link].remainders.get(packet).copied().unwrap_or(0);
        Payload { gather: [sge, Sge::EMPTY], remainder }
    }

    fn copies(&mut self) -> &mut Copies {
        &mut self.copies
    }
}

impl<T> Debug for Recorded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorded").field("model", &self.model).field("forms", &self.forms).finish_non_exhaustive()
    }
}
