//! No display: a timer is the refresh, and frames are checked or saved.

use crate::buffers::Buffers;
use crate::{Display, DisplayError, Event, FrameBuffer, Mode, PIXEL_BYTES, Request, Shown};
use rustix::fd::BorrowedFd;
use std::collections::VecDeque;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Begin and end of the names of saved frames.
const PREFIX: &str = "frame-";
const END: &str = ".png";

/// Removes the saved frames of an earlier run, or refuses a folder that has any.
fn check_folder(folder: &Path, replace: bool) -> Result<(), DisplayError> {
    // A missing folder is created for the first frame.
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(()) };
    for path in entries.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let number = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(END));
        if !number.is_some_and(|number| number.bytes().all(|digit| digit.is_ascii_digit())) {
            continue;
        }
        if !replace {
            return Err(DisplayError::HasFrames(folder.into()));
        }
        std::fs::remove_file(&path).map_err(|source| DisplayError::Save { path, source })?;
    }
    Ok(())
}

/// Emulated display.
pub struct NoDisplay {
    mode: Mode,
    buffers: Buffers,
    /// Buffers that wait for their refresh, with it.
    waiting: VecDeque<(usize, u64)>,
    /// Visible buffer, and the refresh since which it is.
    visible: Option<(usize, u64)>,
    /// Folder of the saved frames, and how many there are.
    saved: Option<(PathBuf, u64)>,
    unchecked_rows: u32,
    start: Instant,
}

impl NoDisplay {
    /// Creates a display whose refresh is a timer. With a folder, frames are saved in it as PNG files, and the next refresh is
    /// when one is saved: no frame is late.
    pub(crate) fn open(folder: Option<&Path>, request: &Request) -> Result<Self, DisplayError> {
        if let Some(folder) = folder {
            check_folder(folder, request.replace)?;
        }
        Ok(Self {
            mode: request.mode,
            buffers: Buffers::shared(request.mode, request.buffers)?,
            waiting: VecDeque::new(),
            visible: None,
            saved: folder.map(|folder| (folder.into(), 0)),
            unchecked_rows: request.unchecked_rows,
            start: Instant::now(),
        })
    }

    /// Returns the refresh at which the first waiting buffer is shown, if that is possible now.
    fn refresh_of(&self, due: u64) -> Option<u64> {
        let earliest = self.visible.map_or(0, |(_, refresh)| refresh + 1);
        let now = self.mode.refresh_at(self.start.elapsed());
        match &self.saved {
            Some(_) => Some(earliest.max(due)),
            None => (now >= earliest.max(due)).then_some(now),
        }
    }

    /// Passes the rows of a buffer, each without its gap, to a function.
    fn read_rows(
        &self,
        buffer: usize,
        rows: std::ops::Range<u32>,
        mut with: impl FnMut(&[u8]) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let FrameBuffer { region, offset, stride } = &self.buffers.all()[buffer];
        let mut row = vec![0; self.mode.width as usize * PIXEL_BYTES];
        for number in rows {
            region.read(offset + number as usize * stride, &mut row);
            with(&row)?;
        }
        Ok(())
    }

    fn crc32(&self, buffer: usize) -> u32 {
        let mut crc = crc32fast::Hasher::new();
        // The function does not fail.
        let _ = self.read_rows(buffer, self.unchecked_rows..self.mode.height, |row| {
            crc.update(row);
            Ok(())
        });
        crc.finalize()
    }

    fn save(&mut self, buffer: usize) -> Result<(), DisplayError> {
        let Some((folder, count)) = &self.saved else { return Ok(()) };
        let path = folder.join(format!("{PREFIX}{count:06}{END}"));
        let opened = std::fs::create_dir_all(folder).and_then(|()| File::create_new(&path));
        let written = opened.and_then(|file| {
            // A part of a frame must not look like one.
            self.write_png(buffer, file).inspect_err(|_| drop(std::fs::remove_file(&path)))
        });
        written.map_err(|source| DisplayError::Save { path, source })?;
        self.saved.iter_mut().for_each(|(_, count)| *count += 1);
        Ok(())
    }

    fn write_png(&self, buffer: usize, file: File) -> std::io::Result<()> {
        let mut encoder = png::Encoder::new(BufWriter::new(file), self.mode.width, self.mode.height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_compression(png::Compression::Fast);
        let mut pixels = Vec::with_capacity(self.mode.width as usize * self.mode.height as usize * 3);
        self.read_rows(buffer, 0..self.mode.height, |row| {
            row.chunks_exact(PIXEL_BYTES).for_each(|pixel| pixels.extend([pixel[2], pixel[1], pixel[0]]));
            Ok(())
        })?;
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&pixels)?;
        Ok(writer.finish()?)
    }
}

impl Display for NoDisplay {
    fn mode(&self) -> Mode {
        self.mode
    }
    fn modes(&self) -> Vec<Mode> {
        Vec::new()
    }
    fn buffers(&self) -> &[FrameBuffer] {
        self.buffers.all()
    }
    fn present(&mut self, buffer: usize, due: u64) -> Result<(), DisplayError> {
        self.buffers.acquire(buffer)?;
        self.waiting.push_back((buffer, due));
        Ok(())
    }
    fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), DisplayError> {
        while let Some((buffer, due)) = self.waiting.front().copied()
            && let Some(refresh) = self.refresh_of(due)
        {
            self.waiting.pop_front();
            self.save(buffer)?;
            let crc32 = Some(self.crc32(buffer));
            let before = self.visible.replace((buffer, refresh));
            events.push(Event::Shown(Shown { buffer, refresh, at: self.mode.time_of(refresh), crc32 }));
            if let Some((before, _)) = before
                && self.buffers.release(before)
            {
                events.push(Event::Released(before));
            }
        }
        Ok(())
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn timeout(&self) -> Option<Duration> {
        let (_, due) = *self.waiting.front()?;
        let earliest = self.visible.map_or(0, |(_, refresh)| refresh + 1).max(due);
        Some(self.mode.time_of(earliest).saturating_sub(self.start.elapsed()))
    }
}
