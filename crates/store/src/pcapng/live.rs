//! Writes shots to a capture as they arrive.

use super::link::{Endpoints, LinkCapture, comment, to_utc};
use super::write::Writer;
use crate::info::RunInfo;
use crate::recorder::{Report, WHOLE_RUN};
use crate::shot::{Event, Loss, RunCounters, ShotMeta, StreamRunCounters};
use crate::{StoreError, layout};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Recorder that writes a capture. Each event is written when it is offered, through the page cache.
#[derive(Debug)]
pub struct LiveCapture {
    path: PathBuf,
    file: File,
    run: RunInfo,
    endpoints: Vec<Endpoints>,
    writer: Writer<File>,
    /// Created again with the first event, because sequence numbers count from its shot number.
    links: Vec<LinkCapture>,
    /// Copy of the shot that is being written.
    bytes: Vec<u8>,
    /// Shots in no event, by drop cause.
    losses: BTreeMap<&'static str, u64>,
    report: Report,
    started: Option<Instant>,
}

impl LiveCapture {
    /// Creates the file with a description of each link. `endpoints` has what is known of each link's endpoints.
    ///
    /// # Errors
    /// [`StoreError::Run`] if the framing of the run is unknown, [`StoreError::Exists`] if the file exists and
    /// `overwrite` is not set, [`StoreError::InUse`] if another program is writing it, and other variants if it
    /// cannot be created.
    pub fn create(path: &Path, overwrite: bool, run: RunInfo, endpoints: Vec<Endpoints>) -> Result<Self, StoreError> {
        layout::check_target(path, overwrite)?;
        // Invalid runs are rejected before the file is created.
        let links = links_of(&run, &endpoints, None)?;
        let created = |source| StoreError::Create { path: path.to_owned(), source };
        // The target may have changed since the check: links are not followed, and files that another program writes
        // are not truncated.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let mut open = File::options();
        open.write(true).create(overwrite).create_new(!overwrite).custom_flags(flags);
        let file = open.open(path).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => StoreError::Exists { path: path.to_owned() },
            _ => created(error),
        })?;
        crate::lock::claim(&file, path)?;
        file.set_len(0).map_err(created)?;
        let how = "addresses and queue pairs are those of the sockets as far as they are known, keys and sequence numbers are placeholders";
        let writer = Writer::new(file.try_clone().map_err(created)?, &run.software, &comment(&run, how));
        let report = Report { path: path.to_owned(), ..Report::default() };
        let mut live = Self {
            path: path.to_owned(),
            file,
            run,
            endpoints,
            writer: writer.map_err(failed(path))?,
            links,
            bytes: Vec::new(),
            losses: BTreeMap::new(),
            report,
            started: None,
        };
        for link in &live.links {
            live.writer.interface(&link.interface).map_err(failed(path))?;
        }
        live.flush()?;
        Ok(live)
    }

    /// Writes the packets of the shots of an event.
    ///
    /// # Errors
    /// If the file cannot be written. It then ends with the last whole block.
    pub fn offer(&mut self, event: &Event) -> Result<(), StoreError> {
        if self.report.rows == 0 {
            self.links = links_of(&self.run, &self.endpoints, Some(event))?;
        }
        self.started.get_or_insert_with(Instant::now);
        for (index, shot) in event.shots.iter().enumerate() {
            let (Some(shot), Some(link)) = (shot, self.links.get_mut(index)) else {
                self.report.lost += 1;
                continue;
            };
            let meta: &ShotMeta = &shot.meta;
            let tai_ns = if meta.arrived_tai_ns > 0 { meta.arrived_tai_ns } else { meta.stamp_tai_ns };
            link.count_shot(to_utc(&self.run, tai_ns), meta.presence.received(), meta.drops.iter());
            self.bytes.resize(shot.buffer.len() as usize, 0);
            shot.buffer.read(0, &mut self.bytes);
            let (writer, time_ns) = (&mut self.writer, link.time_ns);
            for packet in (0..meta.presence.packets()).filter(|packet| meta.presence.contains(*packet)) {
                let wrote = link
                    .packets
                    .packet(meta.number, packet, &self.bytes, |frame| writer.packet(index as u32, time_ns, frame));
                if let Err(error) = wrote {
                    return Err(self.write_failed(error));
                }
            }
            let count = if meta.is_complete() { &mut self.report.complete } else { &mut self.report.partial };
            *count += 1;
        }
        self.report.rows += 1;
        Ok(())
    }

    /// Counts shots that are in no event.
    pub fn loss(&mut self, loss: Loss) {
        *self.losses.entry(loss.cause.name()).or_default() += loss.count;
    }

    /// Returns the number of events written.
    pub fn rows(&self) -> u64 {
        self.report.rows
    }

    /// Writes all buffered blocks to the file.
    ///
    /// # Errors
    /// As [`Self::offer`].
    pub fn flush(&mut self) -> Result<(), StoreError> {
        self.writer.flush().map_err(|error| self.write_failed(error))
    }

    /// Closes the capture with the statistics of each link.
    ///
    /// # Errors
    /// If the file cannot be written or flushed to the drive.
    pub fn finish(mut self, counters: &RunCounters) -> Result<Report, StoreError> {
        let unassigned = counters.streams.iter().find(|stream| stream.stream == WHOLE_RUN);
        let unassigned = unassigned.map(StreamRunCounters::entries).unwrap_or_default();
        for (index, (link, info)) in self.links.iter().zip(&self.run.links).enumerate() {
            let stream = counters.streams.iter().find(|stream| stream.stream == info.stream);
            self.writer.statistics(index as u32, &link.statistics(stream, &unassigned)).map_err(failed(&self.path))?;
        }
        self.flush()?;
        self.file.sync_data().map_err(failed(&self.path))?;
        self.report.file_bytes = self.writer.bytes();
        self.report.bytes = self.writer.bytes();
        self.report.seconds = self.started.map_or(0.0, |started| started.elapsed().as_secs_f64());
        self.report.losses = self.losses.into_iter().map(|(cause, count)| (cause.to_owned(), count)).collect();
        Ok(self.report)
    }

    /// Truncates the file to whole blocks, since a failed write may have written part of one.
    fn write_failed(&self, error: std::io::Error) -> StoreError {
        let _ = self.file.set_len(self.writer.written());
        failed(&self.path)(error)
    }
}

/// Creates the links of a run that starts with this event.
fn links_of(run: &RunInfo, endpoints: &[Endpoints], event: Option<&Event>) -> Result<Vec<LinkCapture>, StoreError> {
    let link = |(index, link)| {
        let shots = event.map_or(&[][..], |event| &event.shots);
        let stamped = shots.get(index).into_iter().chain(shots).flatten().find(|shot| shot.meta.stamp_tai_ns > 0);
        let stamp = stamped.map_or((0, 0), |shot| (shot.meta.number, shot.meta.stamp_tai_ns));
        let endpoints = endpoints.get(index).copied().unwrap_or_default();
        LinkCapture::new((run, link, index), event.map_or(0, |event| event.number), stamp, endpoints)
    };
    let links = run.links.iter().enumerate().map(link).collect::<Option<_>>();
    links.ok_or_else(|| StoreError::Run(format!("the framing {:?} is not known", run.framing)))
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> StoreError {
    let path = path.to_owned();
    move |error| {
        let source = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        StoreError::Io { what: "write", path: path.clone(), source }
    }
}
