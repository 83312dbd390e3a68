//! Commits rows in batches: table rows first, then the markers of the tables, then those of the sample datasets.
//!
//! A reader that sees row `n` in a sample dataset therefore finds row `n` in the tables. With `durable` the order also
//! holds on disk: data and table rows, sync, markers of the tables, sync, markers of the samples. The last ones become
//! durable with the first sync of the next batch, or with a separate one if no batch follows.

use super::config::RecorderConfig;
use crate::layout::{self, Layout, Opened, StoredChunk};
use crate::medium::Medium;
use crate::rows::{LOSS_BYTES, push_counter, push_loss};
use crate::shot::{Loss, MAX_LINKS};
use crate::sys::drive::Drive;
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// State of a durable commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sync {
    /// No sync in flight.
    Idle,
    /// Syncing data and table rows up to this row, and the previous markers of the samples.
    Rows(u64),
    /// Syncing the markers of the tables up to this row.
    Tables(u64),
}

/// Commits rows. See the module.
#[derive(Debug)]
pub(super) struct Committer {
    opened: Opened,
    durable: bool,
    /// Maximum time between two commits.
    commit_interval: Duration,
    /// Maximum number of rows between two commits.
    batch: u64,
    /// Encoded rows of each link's table from `written` on, including those whose shots are still in flight.
    staged: Vec<Vec<u8>>,
    /// Chunks of these rows in a run with a codec: those of all links of a row, then those of the next.
    chunks: Vec<StoredChunk>,
    /// Number of rows whose data is written.
    completed: u64,
    /// Of these, rows whose table rows are written.
    written: u64,
    /// Of these, visible rows.
    visible: u64,
    /// Of these, rows that stay visible after a power cut; maintained only with `durable`.
    safe: u64,
    losses: Vec<Loss>,
    /// Index of the first loss that is not written in its current state.
    losses_changed: usize,
    /// Number of losses written.
    losses_written: u64,
    last_commit: Instant,
    sync: Sync,
}

impl Committer {
    pub(super) fn new(opened: Opened, config: &RecorderConfig) -> Self {
        let staged = opened.layout.shots.iter().map(|_| Vec::new()).collect();
        Self {
            opened,
            durable: config.durable,
            commit_interval: config.commit_every,
            batch: config.commit_rows.max(1),
            staged,
            chunks: Vec::new(),
            completed: 0,
            written: 0,
            visible: 0,
            safe: 0,
            losses: Vec::new(),
            losses_changed: 0,
            losses_written: 0,
            last_commit: Instant::now(),
            sync: Sync::Idle,
        }
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.opened.layout
    }
    pub(super) fn file(&self) -> &Medium {
        &self.opened.file
    }
    /// Returns the number of visible rows; with `durable` only those that survive a power cut.
    pub(super) fn visible(&self) -> u64 {
        if self.durable { self.safe } else { self.visible }
    }

    /// Returns the buffer to which the next row of a link's table must be appended. Call [`Self::complete_row`] once
    /// the shots of the row are written.
    pub(super) fn stage(&mut self, link: usize) -> &mut Vec<u8> {
        &mut self.staged[link]
    }
    /// Returns a staged row.
    pub(super) fn row(&mut self, row: u64, link: usize) -> &mut [u8] {
        let bytes = self.opened.layout.shots[link].row_bytes as usize;
        &mut self.staged[link][(row - self.written) as usize * bytes..][..bytes]
    }
    /// Stages the chunks of a row in a run with a codec, as zeros until set with [`Self::chunk`].
    pub(super) fn stage_chunks(&mut self) {
        let layout = &self.opened.layout;
        self.chunks.extend((0..layout.slots.len()).map(|link| layout.zeros(link)));
    }
    /// Returns the chunk of a shot of a staged row, in a run with a codec.
    pub(super) fn chunk(&mut self, row: u64, link: usize) -> &mut StoredChunk {
        &mut self.chunks[(row - self.written) as usize * self.opened.layout.slots.len() + link]
    }
    /// Marks the shots of the next row as written; returns the number of the row.
    pub(super) fn complete_row(&mut self) -> u64 {
        self.completed += 1;
        self.completed - 1
    }

    /// Adds a loss, or extends the stream's last one if it is adjacent.
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

    fn is_dirty(&self) -> bool {
        let unsafe_rows = self.durable && self.safe < self.visible;
        self.completed > self.written || self.losses_changed < self.losses.len() || unsafe_rows
    }

    /// Returns the time until the next commit; `None` if there is nothing to commit.
    pub(super) fn next_commit_in(&self) -> Option<Duration> {
        (self.is_dirty() && self.sync == Sync::Idle)
            .then(|| self.commit_interval.saturating_sub(self.last_commit.elapsed()))
    }

    /// Commits pending rows and losses if the batch is full or the commit interval has passed.
    pub(super) fn step(&mut self, drive: &mut dyn Drive) -> Result<(), Errno> {
        match self.sync {
            Sync::Idle if self.is_dirty() => {
                if self.completed - self.written < self.batch && self.last_commit.elapsed() < self.commit_interval {
                    return Ok(());
                }
                self.last_commit = Instant::now();
                self.write_rows()?;
                if !self.durable {
                    self.show_tables(self.written)?;
                    return self.show_data(self.written);
                }
                self.sync = Sync::Rows(self.written);
                drive.sync();
                drive.submit().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
            }
            // The first sync has completed, and `synced` has written the markers of the tables.
            Sync::Tables(_) if drive.sync() => {
                drive.submit().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
            }
            _ => Ok(()),
        }
    }

    /// Handles the completion of a sync that `step` queued.
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
        let count = (self.completed - self.written) as usize;
        for (table, rows) in layout.shots.iter().zip(&self.staged) {
            file.write_all(table.row_offset(self.written), &rows[..count * table.row_bytes as usize])?;
        }
        // Empty without a codec.
        let chunks = (count * layout.slots.len()).min(self.chunks.len());
        layout::write_chunk_entries(file, layout, self.written, &self.chunks[..chunks])?;
        for (table, rows) in layout.shots.iter().zip(&mut self.staged) {
            rows.drain(..count * table.row_bytes as usize);
        }
        self.chunks.drain(..chunks);
        self.written = self.completed;
        // Losses beyond the capacity of the table are written at the end of the run.
        let shown = self.losses.len().min(layout.losses.capacity as usize);
        if self.losses_changed < shown {
            let mut bytes = Vec::with_capacity((shown - self.losses_changed) * LOSS_BYTES);
            self.losses[self.losses_changed..shown].iter().for_each(|loss| push_loss(loss, &mut bytes));
            file.write_all(layout.losses.row_offset(self.losses_changed as u64), &bytes)?;
            self.losses_written = shown as u64;
        }
        self.losses_changed = self.losses.len();
        Ok(())
    }

    /// Writes the markers of `/losses` and of the tables.
    fn show_tables(&mut self, rows: u64) -> Result<(), Errno> {
        let (file, layout) = (&self.opened.file, &self.opened.layout);
        file.write_all(layout.losses.header.extent_at, &self.losses_written.to_le_bytes())?;
        for header in layout.row_headers().filter(|_| rows > self.visible) {
            file.write_all(header.extent_at, &rows.to_le_bytes())?;
        }
        Ok(())
    }

    /// Writes the markers of the samples, which come last.
    fn show_data(&mut self, rows: u64) -> Result<(), Errno> {
        let (file, layout) = (&self.opened.file, &self.opened.layout);
        for data in layout.data.iter().filter(|_| rows > self.visible) {
            file.write_all(data.header.extent_at, &rows.to_le_bytes())?;
        }
        self.visible = rows;
        Ok(())
    }

    fn sync_if_durable(&self) -> Result<(), Errno> {
        if self.durable { self.opened.file.sync_data() } else { Ok(()) }
    }

    /// Makes everything visible, writes the counters, and truncates the file after `data_end` (`None`: the end of the
    /// last row). Returns the size of the file, and the error if it could not be truncated.
    pub(super) fn finish(
        &mut self,
        counters: &[(u32, String, u64)],
        data_end: Option<u64>,
    ) -> Result<(u64, Option<Errno>), Errno> {
        self.write_rows()?;
        self.sync_if_durable()?;
        self.show_tables(self.written)?;
        self.sync_if_durable()?;
        self.show_data(self.written)?;
        let (mut losses, mut entries) = (Vec::new(), Vec::new());
        self.losses.iter().for_each(|loss| push_loss(loss, &mut losses));
        counters.iter().for_each(|(stream, name, value)| push_counter(*stream, name, *value, &mut entries));
        let data_end = data_end.unwrap_or_else(|| self.opened.layout.data_end(self.written));
        let contents = layout::Contents { rows: self.written, losses: &losses, counters: &entries, data_end };
        let truncate_error = layout::finish(&self.opened.file, &mut self.opened.layout, contents)?;
        self.opened.file.sync()?;
        Ok((self.opened.layout.end, truncate_error))
    }
}
