//! A recording as the source of a replay.

use crate::Result;
use shotline_instrument::probe::ReadError;
use shotline_instrument::replay::{RecordedLink, RecordingReader, ShotMetadata};
use shotline_store::read::{Recording, SlotReader};
use shotline_store::rows::{self, NO_NUMBER, Row, State};
use std::ops::Range;
use std::sync::Arc;

/// Number of table rows that are read at once.
const BLOCK_ROWS: u64 = 256;
/// Number of rows that are searched for the difference of the two clocks.
const MAX_SEARCHED: u64 = 4096;

/// Selection of the shots of a recording, by number.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShotRange {
    /// The first shot number.
    pub from: Option<u64>,
    /// Number of consecutive shot numbers, including those of lost shots.
    pub shots: Option<u64>,
}

/// A recording that is read from its first row to its last.
pub struct RecordedTape {
    recording: Arc<Recording>,
    slots: SlotReader<Arc<Recording>>,
    links: Vec<RecordedLink>,
    rows: Range<u64>,
    numbers: Range<u64>,
    /// For each link, the block of table rows that was read last.
    blocks: Vec<Vec<Row>>,
    /// First row of these blocks.
    first: u64,
    /// The sender's clock minus the receiver's in nanoseconds, from the last shot that has both times.
    ahead_ns: i128,
}

impl Clone for RecordedTape {
    fn clone(&self) -> Self {
        Self {
            recording: self.recording.clone(),
            slots: SlotReader::new(self.recording.clone()),
            links: self.links.clone(),
            rows: self.rows.clone(),
            numbers: self.numbers.clone(),
            blocks: self.blocks.clone(),
            ..*self
        }
    }
}

impl RecordedTape {
    /// Opens the rows of `range` of a recording.
    pub fn new(recording: Arc<Recording>, range: ShotRange) -> Result<Self> {
        let link =
            |link: &shotline_store::info::LinkInfo| RecordedLink { stream: link.stream, geometry: link.geometry };
        let all = numbers(&recording)?;
        let from = range.from.unwrap_or(all.start).clamp(all.start, all.end);
        let end = range.shots.map_or(all.end, |shots| from.saturating_add(shots)).min(all.end);
        let rows = first_row(&recording, from)?..first_row(&recording, end)?;
        let rows = if range.from.is_none() && range.shots.is_none() { 0..recording.rows() } else { rows };
        let ahead_ns = ahead(&recording, &rows)?;
        let links: Vec<_> = recording.run().links.iter().map(link).collect();
        Ok(Self {
            slots: SlotReader::new(recording.clone()),
            recording,
            rows,
            numbers: from..end,
            blocks: vec![Vec::new(); links.len()],
            links,
            first: 0,
            ahead_ns,
        })
    }

    /// Returns `true` if the first row has a stamp or an arrival time.
    pub fn is_timed(&self) -> Result<bool> {
        let Some(row) = self.rows.clone().next() else { return Ok(false) };
        let row = self.recording.row(row, 0)?;
        Ok(row.stamp_tai_ns > 0 || row.arrived_tai_ns > 0)
    }

    /// Returns number and stamp of a shot of each link, or zeros if none of the first rows has a stamp.
    pub fn stamps(&self) -> Result<Vec<(u64, u64)>> {
        let rows = self.rows.start..self.rows.end.min(self.rows.start + MAX_SEARCHED);
        let stamp = |link| {
            let rows = self.recording.read_rows(link, rows.clone())?;
            let stamped = rows.iter().find(|row| row.stamp_tai_ns > 0);
            Ok(stamped.map_or((0, 0), |row| (row.number, row.stamp_tai_ns)))
        };
        (0..self.links.len()).map(stamp).collect()
    }

    fn table_row(&mut self, row: u64, link: usize) -> std::result::Result<&Row, ReadError> {
        if !(self.first..self.first + self.blocks[0].len() as u64).contains(&row) {
            for (link, block) in self.blocks.iter_mut().enumerate() {
                let rows = row..self.rows.end.min(row + BLOCK_ROWS);
                *block = self.recording.read_rows(link, rows).map_err(failed)?;
            }
            self.first = row;
        }
        Ok(&self.blocks[link][(row - self.first) as usize])
    }
}

fn failed(error: shotline_store::StoreError) -> ReadError {
    ReadError(error.into())
}

/// Returns the sender's clock minus the receiver's in nanoseconds, from the first shot that has both times.
fn ahead(recording: &Recording, rows: &Range<u64>) -> Result<i128> {
    let searched = recording.read_rows(0, rows.start..rows.end.min(rows.start + MAX_SEARCHED))?;
    let both = searched.iter().find(|row| row.stamp_tai_ns > 0 && row.arrived_tai_ns > 0);
    Ok(both.map_or(0, |row| i128::from(row.stamp_tai_ns) - i128::from(row.arrived_tai_ns)))
}

/// Returns the range of all shot numbers of a recording, including losses that are in no row.
fn numbers(recording: &Recording) -> Result<Range<u64>> {
    let rows = recording.rows();
    let (mut first, mut end) = (u64::MAX, 0);
    if rows > 0 {
        let number = |row: u64| recording.row(row, 0).map(|row| row.number);
        // Rows without a number may be at either end.
        for row in 0..rows {
            first = number(row)?;
            if first != NO_NUMBER {
                break;
            }
        }
        for row in (0..rows).rev() {
            match number(row)? {
                NO_NUMBER => {}
                last => {
                    end = last + 1;
                    break;
                }
            }
        }
    }
    for loss in recording.losses()? {
        first = first.min(loss.first);
        end = end.max(loss.first.saturating_add(loss.count));
    }
    Ok(if first < end { first..end } else { 0..0 })
}

/// Returns the first row of a shot with this number or a later one.
fn first_row(recording: &Recording, number: u64) -> Result<u64> {
    Ok(rows::first_row(recording.rows(), number, |row| recording.row(row, 0).map(|row| row.number))?)
}

impl RecordingReader for RecordedTape {
    fn links(&self) -> &[RecordedLink] {
        &self.links
    }
    fn rows(&self) -> Range<u64> {
        self.rows.clone()
    }
    fn numbers(&self) -> Range<u64> {
        self.numbers.clone()
    }
    fn pattern_period(&self) -> u32 {
        self.recording.run().pattern_period.and_then(|period| u32::try_from(period).ok()).unwrap_or(0)
    }

    fn row(&mut self, row: u64) -> std::result::Result<(u64, u64), ReadError> {
        let (mut stamp, mut arrived) = (0, 0);
        for link in 0..self.links.len() {
            let row = self.table_row(row, link)?;
            (stamp, arrived) = (if stamp == 0 { row.stamp_tai_ns } else { stamp }, arrived.max(row.arrived_tai_ns));
        }
        if stamp > 0 && arrived > 0 {
            self.ahead_ns = i128::from(stamp) - i128::from(arrived);
        }
        // Without a stamp, the time is the arrival, converted by the latest clock difference.
        let time_ns = match (stamp, arrived) {
            (0, 0) => 0,
            (0, arrived) => u64::try_from(i128::from(arrived) + self.ahead_ns).unwrap_or(0),
            (stamp, _) => stamp,
        };
        Ok((self.table_row(row, 0)?.number, time_ns))
    }

    fn shot(
        &mut self,
        row: u64,
        link: usize,
        take: &mut dyn FnMut(&ShotMetadata<'_>, &[u8]),
    ) -> std::result::Result<(), ReadError> {
        self.table_row(row, link)?;
        let table_row = &self.blocks[link][(row - self.first) as usize];
        if table_row.state != State::Lost {
            let bytes = self.slots.read(row, link).map_err(failed)?;
            let Row { presence, record_good, stamp_tai_ns, flags, .. } = table_row;
            take(&ShotMetadata { presence, verified: *record_good, stamp_tai_ns: *stamp_tai_ns, flags: *flags }, bytes);
        }
        Ok(())
    }
}
