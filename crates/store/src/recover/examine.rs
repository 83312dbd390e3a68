//! Examines single shots: is the row valid, and does the slot match it?

use crate::StoreError;
use crate::codec::Decoder;
use crate::info::RunInfo;
use crate::layout::{self, Opened};
use crate::read::raw::RawReader;
use crate::rows::{Row, RowFormat, State};
use crate::shot::ShotMeta;
use shotline_wire::crc;
use shotline_wire::record::{self, Record};
use shotline_wire::shot::{DropCounters, Geometry, MAX_SHOTS, Presence};
use std::ops::Range;

/// State of one link's shot of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ShotState {
    /// Row and slot are valid.
    Valid(Box<Row>),
    /// The slot holds a complete shot that the row does not describe: its number, and a rebuilt row.
    Rebuilt(u64, Vec<u8>),
    /// The shot is incomplete or damaged; its number, if the row is valid.
    Torn(Option<u64>),
    /// No trace of a shot.
    Nothing,
}

/// One link's shot of a row, and the range of its slot that must be zeroed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExaminedShot {
    pub state: ShotState,
    pub zero: Option<Range<u32>>,
}

impl ExaminedShot {
    pub(super) fn is_nothing(&self) -> bool {
        self.state == ShotState::Nothing
    }
}

/// Examiner of shots, one per thread.
pub(super) struct Examiner<'a> {
    run: &'a RunInfo,
    opened: &'a Opened,
    raw: RawReader,
    decoders: Vec<Decoder>,
    decompressed: Vec<u8>,
}

impl<'a> Examiner<'a> {
    pub(super) fn new(run: &'a RunInfo, opened: &'a Opened) -> Self {
        let largest = opened.layout.slots.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0) as usize;
        let raw = RawReader::new(&opened.file, largest);
        let decoders = Decoder::for_links(opened.layout.codec, run.links.iter().map(|link| link.geometry));
        Self { run, opened, raw, decoders, decompressed: Vec::new() }
    }

    /// Examines each link's shot of a row. A visible row is damaged if invalid; one after the last marker may be empty.
    pub(super) fn row(&mut self, row: u64, visible: bool) -> Result<Vec<ExaminedShot>, StoreError> {
        (0..self.run.links.len()).map(|link| self.shot(row, link, visible)).collect()
    }

    fn shot(&mut self, row: u64, link: usize, visible: bool) -> Result<ExaminedShot, StoreError> {
        let (layout, path) = (&self.opened.layout, &self.opened.path);
        let (format, link_info) = (layout.formats[link], &self.run.links[link]);
        let g = link_info.geometry;
        let bytes = layout::table_rows(&self.opened.file, layout.shots[link], row..row + 1, path)?;
        let entry = format
            .parse(&bytes)
            .filter(|entry| entry.crc_valid && entry.number < MAX_SHOTS && entry.packets == g.packets());
        let len = layout.slots[link].1;
        let fresh = self.fresh();
        if entry.is_none() && !visible && !self.may_hold_record(row, link, g)? {
            return Ok(ExaminedShot { state: ShotState::Nothing, zero: None });
        }
        let number = entry.as_ref().map(|entry| entry.number);
        let Some(slot) = self.slot(row, link)? else {
            // The index entry is invalid, or the chunk cannot be decompressed.
            return Ok(ExaminedShot { state: ShotState::Torn(number), zero: Some(0..len) });
        };
        let own = record_of(slot, g).filter(|record| record.stream == link_info.stream);
        let shot_end = g.shot_bytes() as usize;
        let trailing = slot[shot_end..].iter().any(|byte| *byte != 0).then_some(g.shot_bytes()..len);
        let torn = |number| {
            let dirty = slot.iter().any(|byte| *byte != 0);
            ExaminedShot { state: ShotState::Torn(number), zero: dirty.then_some(0..len) }
        };
        Ok(match (entry, own) {
            (Some(entry), _) if entry.state == State::Lost => {
                let dirty = slot.iter().any(|byte| *byte != 0);
                ExaminedShot { state: ShotState::Valid(Box::new(entry)), zero: dirty.then_some(0..len) }
            }
            (Some(entry), own) if slot_matches(&entry, slot, g, own.as_ref()) => {
                ExaminedShot { state: ShotState::Valid(Box::new(entry)), zero: trailing }
            }
            (_, Some(record)) if fresh.contains(&record.shot) => {
                let rebuilt = rebuild(&record, link_info.stream, g, format);
                ExaminedShot { state: ShotState::Rebuilt(record.shot, rebuilt), zero: trailing }
            }
            (Some(entry), _) => torn(Some(entry.number)),
            (None, _) if visible => torn(None),
            (None, _) => ExaminedShot { state: ShotState::Nothing, zero: None },
        })
    }

    /// Returns the uncompressed bytes of a shot; `None` if they cannot be read.
    fn slot(&mut self, row: u64, link: usize) -> Result<Option<&[u8]>, StoreError> {
        let (layout, path) = (&self.opened.layout, &self.opened.path);
        let Ok(stored) = layout::stored(&self.opened.file, layout, row, link, path) else { return Ok(None) };
        let len = (stored.bytes as usize).next_multiple_of(layout::ALIGN as usize);
        let bytes =
            self.raw.read(&self.opened.file, stored.offset, len).map_err(StoreError::io("read a shot of", path))?;
        if !stored.compressed {
            return Ok(Some(&bytes[..stored.bytes as usize]));
        }
        self.decompressed.resize(layout.slots[link].1 as usize, 0);
        let decompressed = self.decoders[link].decode(&bytes[..stored.bytes as usize], &mut self.decompressed);
        Ok(decompressed.is_ok().then_some(&self.decompressed))
    }

    /// Checks quickly whether a slot can hold a shot with a valid end-of-shot record.
    fn may_hold_record(&mut self, row: u64, link: usize, g: Geometry) -> Result<bool, StoreError> {
        let (file, layout, path) = (&self.opened.file, &self.opened.layout, &self.opened.path);
        let Some(record_at) = g.record_offset().filter(|_| !self.fresh().is_empty()) else { return Ok(false) };
        if layout.codec.is_some() {
            let stored = layout::stored(file, layout, row, link, path);
            return Ok(stored.is_ok_and(|stored| stored.offset != layout.zeros(link).offset));
        }
        let mut bytes = [0; record::LEN];
        let read = layout::read_at(file, layout.slot(row, link) + u64::from(record_at), &mut bytes);
        Ok(read == bytes.len() && Record::parse(&bytes).is_ok_and(|record| self.fresh().contains(&record.shot)))
    }

    /// Returns the shot numbers whose records must be from this file, without a row as evidence. Blocks reused from
    /// another run hold records of any number; those of earlier parts of this run only up to a known number.
    fn fresh(&self) -> Range<u64> {
        match self.run.part.and_then(|part| part.stale_to) {
            _ if !self.opened.layout.recycled => 0..MAX_SHOTS,
            Some(stale_to) => stale_to.saturating_add(1)..MAX_SHOTS,
            None => 0..0,
        }
    }
}

/// Returns the record of a slot, if it matches the geometry and its CRC is valid over the whole shot.
fn record_of(slot: &[u8], g: Geometry) -> Option<Record> {
    let bytes = slot.get(g.record_offset()? as usize..)?.first_chunk::<{ record::LEN }>()?;
    let record = Record::parse(bytes).ok().filter(|record| record.describes(&g))?;
    let whole = record::is_whole(crc::register(u32::MAX, &slot[..g.shot_bytes() as usize]));
    (whole && record.shot < MAX_SHOTS).then_some(record)
}

/// Returns `true` if a slot matches its row.
fn slot_matches(entry: &Row, slot: &[u8], g: Geometry, own: Option<&Record>) -> bool {
    if entry.record_good && g.trailer().has_record() {
        return own.is_some_and(|own| (own.shot, own.tai_ns) == (entry.number, entry.stamp_tai_ns));
    }
    crc::crc32(&slot[..g.shot_bytes() as usize]) == entry.slot_crc32
}

/// Rebuilds the row of a complete shot from its record.
fn rebuild(record: &Record, stream: u32, g: Geometry, format: RowFormat) -> Vec<u8> {
    let mut presence = Presence::empty(g.packets());
    for index in 0..g.packets() {
        presence.insert(index);
    }
    let meta = ShotMeta {
        stream,
        number: record.shot,
        stamp_tai_ns: record.tai_ns,
        arrived_tai_ns: 0,
        completed_tai_ns: 0,
        flags: record.flags(),
        record_good: true,
        valid_bytes: g.sample_bytes(),
        presence: std::sync::Arc::new(presence),
        drops: DropCounters::default(),
    };
    let mut bytes = Vec::with_capacity(format.bytes());
    format.push(&meta, 0, &mut bytes);
    bytes
}
