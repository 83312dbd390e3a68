//! Makes rows visible, in batches: table rows first, then the tables' markers, then the data's.
//!
//! A reader that sees row `n` in a dataset of samples therefore finds row `n` in the tables. With `durable`
//! the order holds on the disk too: data and table rows, sync, markers, sync.

use super::RecorderConfig;
use crate::layout::{self, Layout, Opened};
use crate::rows::{LOSS_BYTES, push_book, push_loss};
use crate::shot::{Loss, MAX_LINKS};
use crate::sys::ring::Ring;
use rustix::io::Errno;
use std::fs::File;
use std::time::{Duration, Instant};

/// Where a durable commit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sync {
    /// Nothing under way.
    Idle,
    /// Data and table rows up to this row are being made durable.
    Rows(u64),
    /// The markers are.
    Markers,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Committer {
    opened: Opened,
    durable: bool,
    every: Duration,
    batch: u64,
    /// Rows of each link's table from `written` on, as bytes.
    staged: Vec<Vec<u8>>,
    /// Rows whose data is in the file.
    entered: u64,
    /// Of these, rows whose table rows are in the file.
    written: u64,
    /// Of these, rows that readers see.
    visible: u64,
    losses: Vec<Loss>,
    /// The first loss that is not in the file as it stands here.
    losses_changed: usize,
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
            entered: 0,
            written: 0,
            visible: 0,
            losses: Vec::new(),
            losses_changed: 0,
            last: Instant::now(),
            sync: Sync::Idle,
        }
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.opened.layout
    }
    pub(super) fn file(&self) -> &File {
        &self.opened.file
    }
    pub(super) fn visible(&self) -> u64 {
        self.visible
    }

    /// Where the next row of a link's table is to be appended; follow with [`Self::entered`].
    pub(super) fn stage(&mut self, link: usize) -> &mut Vec<u8> {
        &mut self.staged[link]
    }
    /// A row has been appended to every link's table.
    pub(super) fn entered(&mut self) {
        self.entered += 1;
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
        self.entered > self.written || self.losses_changed < self.losses.len()
    }

    /// How long until something must be made visible; none if there is nothing.
    pub(super) fn due_in(&self) -> Option<Duration> {
        (self.dirty() && self.sync == Sync::Idle).then(|| self.every.saturating_sub(self.last.elapsed()))
    }

    /// Makes visible what is due.
    pub(super) fn step(&mut self, ring: &mut Ring) -> Result<(), Errno> {
        match self.sync {
            Sync::Idle if self.dirty() => {
                if self.entered - self.written < self.batch && self.last.elapsed() < self.every {
                    return Ok(());
                }
                self.last = Instant::now();
                self.write_rows()?;
                if !self.durable {
                    return self.show(self.written);
                }
                self.sync = Sync::Rows(self.written);
                ring.sync();
                ring.submit().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
            }
            // The first sync is over: `synced` has written the markers.
            Sync::Markers if ring.sync() => {
                ring.submit().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
            }
            _ => Ok(()),
        }
    }

    /// A sync that `step` asked for is over.
    pub(super) fn synced(&mut self, result: Result<(), Errno>) -> Result<(), Errno> {
        let was = std::mem::replace(&mut self.sync, Sync::Idle);
        result?;
        if let Sync::Rows(rows) = was {
            self.show(rows)?;
            self.sync = Sync::Markers;
        }
        Ok(())
    }

    fn write_rows(&mut self) -> Result<(), Errno> {
        let (file, layout) = (&self.opened.file, &self.opened.layout);
        for (table, rows) in layout.shots.iter().zip(&mut self.staged) {
            layout::write_all(file, table.at(self.written), rows)?;
            rows.clear();
        }
        self.written = self.entered;
        // More losses than there is room for are written when the run ends.
        let room = self.losses.len().min(layout.losses.capacity as usize);
        if self.losses_changed < room {
            let mut bytes = Vec::with_capacity((room - self.losses_changed) * LOSS_BYTES);
            self.losses[self.losses_changed..room].iter().for_each(|loss| push_loss(loss, &mut bytes));
            layout::write_all(file, layout.losses.at(self.losses_changed as u64), &bytes)?;
        }
        self.losses_changed = self.losses.len();
        Ok(())
    }

    /// Moves the markers. Those of the samples come last.
    fn show(&mut self, rows: u64) -> Result<(), Errno> {
        let (file, layout) = (&self.opened.file, &self.opened.layout);
        let losses = (self.losses_changed as u64).min(layout.losses.capacity);
        layout::write_all(file, layout.losses.marks.extent_at, &losses.to_le_bytes())?;
        if rows > self.visible {
            let marks = layout.shots.iter().map(|table| table.marks).chain(layout.data.iter().map(|data| data.marks));
            for marks in marks {
                layout::write_all(file, marks.extent_at, &rows.to_le_bytes())?;
            }
            self.visible = rows;
        }
        Ok(())
    }

    /// Makes everything visible, enters the books, and cuts the file. Returns its size, and why it could not be
    /// cut if so.
    pub(super) fn finish(&mut self, books: &[(u32, String, u64)]) -> Result<(u64, Option<Errno>), Errno> {
        self.write_rows()?;
        if self.durable {
            rustix::fs::fdatasync(&self.opened.file)?;
        }
        self.show(self.written)?;
        let (mut losses, mut entries) = (Vec::new(), Vec::new());
        self.losses.iter().for_each(|loss| push_loss(loss, &mut losses));
        books.iter().for_each(|(stream, name, value)| push_book(*stream, name, *value, &mut entries));
        let contents = layout::Contents { rows: self.written, losses: &losses, books: &entries };
        let uncut = layout::finish(&self.opened.file, &mut self.opened.layout, contents)?;
        rustix::fs::fsync(&self.opened.file)?;
        Ok((self.opened.layout.end, uncut))
    }
}
