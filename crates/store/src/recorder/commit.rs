//! Makes rows visible, in batches: table rows first, then the tables' markers, then the data's.
//!
//! A reader that sees row `n` in a dataset of samples therefore finds row `n` in the tables. With `durable`
//! the order holds on the disk too: data and table rows, sync, the tables' markers, sync, the data's markers. These are
//! durable by the first sync of the next batch, or by one of their own if no more comes.

use super::config::RecorderConfig;
use crate::layout::{self, Layout, Opened, StoredChunk};
use crate::medium::Medium;
use crate::rows::{LOSS_BYTES, push_book, push_loss};
use crate::shot::{Loss, MAX_LINKS};
use crate::sys::drive::Drive;
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// Where a durable commit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sync {
    /// Nothing under way.
    Idle,
    /// Data and table rows up to this row are being made durable, and with them the data's markers so far.
    Rows(u64),
    /// The tables' markers up to this row are.
    Tables(u64),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Committer {
    opened: Opened,
    durable: bool,
    every: Duration,
    batch: u64,
    /// Rows of each link's table from `written` on, as bytes; also of shots that are not in the file yet.
    staged: Vec<Vec<u8>>,
    /// Where the shots of these rows are, in a run with a codec: those of all links of a row, then those of the next.
    chunks: Vec<StoredChunk>,
    /// Rows whose data is in the file.
    entered: u64,
    /// Of these, rows whose table rows are in the file.
    written: u64,
    /// Of these, rows that readers see.
    visible: u64,
    /// Of these, rows that a power cut leaves visible too; kept up only with `durable`.
    safe: u64,
    losses: Vec<Loss>,
    /// The first loss that is not in the file as it stands here.
    losses_changed: usize,
    /// Losses that have been written to their places.
    losses_written: u64,
    last: Instant,
    sync: Sync,
}

impl Committer {
    pub(super) fn new(opened: Opened, config: &RecorderConfig) -> Self {
        let staged = opened.layout.shots.iter().map(|_| Vec::new()).collect();
        Self {
            opened,
            durable: config.durable,
            every: config.commit_every,
            batch: config.commit_rows.max(1),
            staged,
            chunks: Vec::new(),
            entered: 0,
            written: 0,
            visible: 0,
            safe: 0,
            losses: Vec::new(),
            losses_changed: 0,
            losses_written: 0,
            last: Instant::now(),
            sync: Sync::Idle,
        }
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.opened.layout
    }
    pub(super) fn file(&self) -> &Medium {
        &self.opened.file
    }
    /// Rows that readers see, with `durable` only those that a power cut leaves.
    pub(super) fn visible(&self) -> u64 {
        if self.durable { self.safe } else { self.visible }
    }

    /// Where the next row of a link's table is to be appended; follow with [`Self::entered`] once its shots are in the
    /// file.
    pub(super) fn stage(&mut self, link: usize) -> &mut Vec<u8> {
        &mut self.staged[link]
    }
    /// A row that was staged.
    pub(super) fn row(&mut self, row: u64, link: usize) -> &mut [u8] {
        let bytes = self.opened.layout.shots[link].row_bytes as usize;
        &mut self.staged[link][(row - self.written) as usize * bytes..][..bytes]
    }
    /// Stages the places of a row's shots in a run with a codec: they are zeros until [`Self::chunk`] says otherwise.
    pub(super) fn stage_chunks(&mut self) {
        let layout = &self.opened.layout;
        self.chunks.extend((0..layout.slots.len()).map(|link| layout.zeros(link)));
    }
    /// Where a shot of a row that was staged is in a run with a codec.
    pub(super) fn chunk(&mut self, row: u64, link: usize) -> &mut StoredChunk {
        &mut self.chunks[(row - self.written) as usize * self.opened.layout.slots.len() + link]
    }
    /// The shots of the next row are in the file; returns which row that is.
    pub(super) fn entered(&mut self) -> u64 {
        self.entered += 1;
        self.entered - 1
    }

    /// Enters a loss, or lengthens its stream's last one if it goes on.
    pub(super) fn loss(&mut self, loss: Loss) {
        let recent = self.losses.len().saturating_sub(2 * MAX_LINKS);
        let last = (recent..self.losses.len()).rev().find(|index| self.losses[*index].stream == loss.stream);
        if let Some(index) = last {
            let last = &mut self.losses[index];
            if last.cause == loss.cause && last.first.checked_add(last.count) == Some(loss.first) {
                last.count += loss.count;
                self.losses_changed = self.losses_changed.min(index);
                return;
            }
        }
        self.losses.push(loss);
    }

    fn dirty(&self) -> bool {
        let unsafe_rows = self.durable && self.safe < self.visible;
        self.entered > self.written || self.losses_changed < self.losses.len() || unsafe_rows
    }

    /// How long until something must be made visible; none if there is nothing.
    pub(super) fn due_in(&self) -> Option<Duration> {
        (self.dirty() && self.sync == Sync::Idle).then(|| self.every.saturating_sub(self.last.elapsed()))
    }

    /// Makes visible what is due.
    pub(super) fn step(&mut self, drive: &mut dyn Drive) -> Result<(), Errno> {
        match self.sync {
            Sync::Idle if self.dirty() => {
                if self.entered - self.written < self.batch && self.last.elapsed() < self.every {
                    return Ok(());
                }
                self.last = Instant::now();
                self.write_rows()?;
                if !self.durable {
                    self.show_tables(self.written)?;
                    return self.show_data(self.written);
                }
                self.sync = Sync::Rows(self.written);
                drive.sync();
                drive.submit().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
            }
            // The first sync is over: `synced` has written the tables' markers.
            Sync::Tables(_) if drive.sync() => {
                drive.submit().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
            }
            _ => Ok(()),
        }
    }

    /// A sync that `step` asked for is over.
    pub(super) fn synced(&mut self, result: Result<(), Errno>) -> Result<(), Errno> {
        let was = std::mem::replace(&mut self.sync, Sync::Idle);
        result?;
        match was {
            Sync::Rows(rows) => {
                self.safe = self.visible;
                self.show_tables(rows)?;
                self.sync = Sync::Tables(rows);
            }
            Sync::Tables(rows) => self.show_data(rows)?,
            Sync::Idle => {}
        }
        Ok(())
    }

    fn write_rows(&mut self) -> Result<(), Errno> {
        let (file, layout) = (&self.opened.file, &self.opened.layout);
        let count = (self.entered - self.written) as usize;
        for (table, rows) in layout.shots.iter().zip(&self.staged) {
            file.write_all(table.at(self.written), &rows[..count * table.row_bytes as usize])?;
        }
        // Without a codec there are none.
        let chunks = (count * layout.slots.len()).min(self.chunks.len());
        layout::enter_chunks(file, layout, self.written, &self.chunks[..chunks])?;
        for (table, rows) in layout.shots.iter().zip(&mut self.staged) {
            rows.drain(..count * table.row_bytes as usize);
        }
        self.chunks.drain(..chunks);
        self.written = self.entered;
        // More losses than there is room for are written when the run ends.
        let room = self.losses.len().min(layout.losses.capacity as usize);
        if self.losses_changed < room {
            let mut bytes = Vec::with_capacity((room - self.losses_changed) * LOSS_BYTES);
            self.losses[self.losses_changed..room].iter().for_each(|loss| push_loss(loss, &mut bytes));
            file.write_all(layout.losses.at(self.losses_changed as u64), &bytes)?;
            self.losses_written = room as u64;
        }
        self.losses_changed = self.losses.len();
        Ok(())
    }

    /// Moves the markers of `/losses` and of the tables.
    fn show_tables(&mut self, rows: u64) -> Result<(), Errno> {
        let (file, layout) = (&self.opened.file, &self.opened.layout);
        file.write_all(layout.losses.marks.extent_at, &self.losses_written.to_le_bytes())?;
        for marks in layout.row_marks().filter(|_| rows > self.visible) {
            file.write_all(marks.extent_at, &rows.to_le_bytes())?;
        }
        Ok(())
    }

    /// Moves the markers of the samples, which come last.
    fn show_data(&mut self, rows: u64) -> Result<(), Errno> {
        let (file, layout) = (&self.opened.file, &self.opened.layout);
        for data in layout.data.iter().filter(|_| rows > self.visible) {
            file.write_all(data.marks.extent_at, &rows.to_le_bytes())?;
        }
        self.visible = rows;
        Ok(())
    }

    fn sync_if_durable(&self) -> Result<(), Errno> {
        if self.durable { self.opened.file.sync_data() } else { Ok(()) }
    }

    /// Makes everything visible, enters the books, and cuts the file behind the data, which ends with the last row if
    /// nothing else is said. Returns its size, and why it could not be cut if so.
    pub(super) fn finish(
        &mut self,
        books: &[(u32, String, u64)],
        data_end: Option<u64>,
    ) -> Result<(u64, Option<Errno>), Errno> {
        self.write_rows()?;
        self.sync_if_durable()?;
        self.show_tables(self.written)?;
        self.sync_if_durable()?;
        self.show_data(self.written)?;
        let (mut losses, mut entries) = (Vec::new(), Vec::new());
        self.losses.iter().for_each(|loss| push_loss(loss, &mut losses));
        books.iter().for_each(|(stream, name, value)| push_book(*stream, name, *value, &mut entries));
        let data_end = data_end.unwrap_or_else(|| self.opened.layout.data_end(self.written));
        let contents = layout::Contents { rows: self.written, losses: &losses, books: &entries, data_end };
        let uncut = layout::finish(&self.opened.file, &mut self.opened.layout, contents)?;
        self.opened.file.sync()?;
        Ok((self.opened.layout.end, uncut))
    }
}
