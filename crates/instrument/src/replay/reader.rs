//! The threads that read ahead, so that no disk ever holds up the pace: while one waits for it, others work.

use super::form::Form;
use super::tape::{Kept, Tape};
use crate::probe::ReadError;
use shotline_memory::Region;
use shotline_wire::crc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

/// One row, ready to be sent: its bytes are in the region, in the place of this rack.
#[derive(Debug)]
pub(super) struct Rack {
    pub(super) index: usize,
    /// The shot's number in its turn.
    pub(super) number: u64,
    /// What is added to it.
    pub(super) ahead: u64,
    /// When it was taken; 0 unknown.
    pub(super) taken_ns: u64,
    pub(super) links: Vec<Loaded>,
}

/// What a rack has of one link's shot.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    /// By packet: is it there? Empty if nothing is.
    pub(super) packets: Vec<bool>,
    /// CRC remainder of each packet that is.
    pub(super) remainders: Vec<u32>,
}

impl Rack {
    pub(super) fn new(index: usize, links: usize) -> Self {
        Self { index, number: 0, ahead: 0, taken_ns: 0, links: (0..links).map(|_| Loaded::default()).collect() }
    }
}

/// What the reader hands over.
#[derive(Debug)]
pub(super) enum Read {
    Row(Rack),
    /// No more rows.
    End,
    Failed(ReadError),
}

/// Where racks lie in the region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub(super) links: usize,
    pub(super) slot_bytes: u64,
}

impl Places {
    /// Offset of a link's shot.
    pub(super) fn slot(&self, rack: usize, link: usize) -> u64 {
        (rack * self.links + link) as u64 * self.slot_bytes
    }
}

/// Everything that the thread works with.
pub(super) struct Reader<T> {
    pub(super) tape: T,
    pub(super) forms: Vec<Form>,
    pub(super) region: Arc<Region>,
    pub(super) places: Places,
    /// Times that the rows are read; none: without end.
    pub(super) turns: Option<u64>,
    /// This reader takes every so many-th shot of all turns, beginning with this one.
    pub(super) every: (u64, u64),
    pub(super) free: Receiver<Rack>,
    pub(super) full: SyncSender<Read>,
}

impl<T: Tape> Reader<T> {
    /// Reads until the end, or until nobody wants more.
    pub(super) fn run(mut self) {
        let last = match self.read() {
            Ok(true) => Read::End,
            Ok(false) => return,
            Err(error) => Read::Failed(error),
        };
        let _ = self.full.send(last);
    }

    /// Whether all was read; false if nobody wanted the rest.
    fn read(&mut self) -> Result<bool, ReadError> {
        let (rows, numbers) = (self.tape.rows(), self.tape.numbers());
        let count = rows.end.saturating_sub(rows.start);
        if count == 0 {
            return Ok(true);
        }
        let first = self.tape.row(rows.start)?.1;
        let last = self.tape.row(rows.end - 1)?.1.max(first);
        // From the last shot of a turn to the first of the next it is as long as it is on average.
        let lap = (last - first) + (last - first) / (count - 1).max(1);
        let (mut at, step) = self.every;
        while self.turns.is_none_or(|turns| at / count < turns) {
            let (turn, row) = (at / count, rows.start + at % count);
            let Ok(mut rack) = self.free.recv() else { return Ok(false) };
            let (number, taken_ns) = self.tape.row(row)?;
            rack.number = number;
            rack.ahead = turn.wrapping_mul(numbers.end - numbers.start);
            rack.taken_ns = if taken_ns > 0 { taken_ns.saturating_add(turn.saturating_mul(lap)) } else { 0 };
            for link in 0..self.places.links {
                self.shot(row, link, &mut rack)?;
            }
            if self.full.send(Read::Row(rack)).is_err() {
                return Ok(false);
            }
            at += step;
        }
        Ok(true)
    }

    /// Puts one link's shot into its place.
    fn shot(&mut self, row: u64, link: usize, rack: &mut Rack) -> Result<(), ReadError> {
        let (form, number, stream) = (self.forms[link], rack.number, self.tape.links()[link].stream);
        let at = self.places.slot(rack.index, link) as usize;
        let region = &self.region;
        let loaded = &mut rack.links[link];
        loaded.packets.clear();
        loaded.remainders.clear();
        let mut other = Vec::new();
        self.tape.shot(row, link, &mut |kept: &Kept<'_>, slot: &[u8]| {
            let geometry = form.geometry();
            let bytes = if form.is_same() {
                slot
            } else {
                form.convert(kept, (number, stream), slot, &mut other);
                &other
            };
            region.write(at, &bytes[..geometry.shot_bytes() as usize]);
            for index in 0..geometry.packets() {
                let first = geometry.packet_offset(index) as usize;
                loaded.packets.push(form.contains(kept, index));
                loaded.remainders.push(crc::remainder(&bytes[first..first + geometry.packet_bytes(index) as usize]));
            }
        })
    }
}
