//! Reads images into frame buffers and has them shown in turn.

use super::bar::StatisticsBar;
use super::picture::Visible;
use super::schedule::Schedule;
use super::slots::{Settled, Slot, Slots};
use super::watch::Watch;
use crate::Result;
use crate::output::{CpuTime, warn};
use crate::remote::RemoteRegion;
use rustix::event::{PollFd, PollFlags, Timespec};
use shotline_display::{Display, DisplayError, Event, FrameCounters};
use shotline_memory::{Mr, Region};
use shotline_verbs::cm::Endpoint;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Maximum time between two looks at the clock, the signals and the connection.
const LOOK: Duration = Duration::from_millis(100);
/// Time between two looks at the display while images are read.
const DISPLAY_LOOK: Duration = Duration::from_millis(1);

/// The images in the target's memory.
pub struct Images {
    /// Bytes of an image, with all rows.
    pub bytes: u64,
    /// Rows at the top that are not transferred.
    pub skipped_rows: u32,
    /// CRC-32 of the rows below them, of each image.
    pub checksums: Vec<u32>,
}

/// When a run ends, and at which rate images are shown.
pub struct Pace<'a> {
    /// Images in a second.
    pub rate: Option<f64>,
    /// Time after which it ends.
    pub seconds: Option<Duration>,
    /// Number of frames after which it ends.
    pub frames: Option<u64>,
    /// Signal to end.
    pub stop: &'a AtomicBool,
    /// Where the buffer is noted that the display shows.
    pub visible: &'a Visible,
}

impl Pace<'_> {
    /// Returns the part that is over, if the run has an end.
    pub fn progress(&self, played: &Played) -> Option<f64> {
        let settled = played.frames.shown + played.frames.skipped;
        let frames = self.frames.map(|limit| settled as f64 / limit as f64);
        let time = self.seconds.map(|limit| played.elapsed.as_secs_f64() / limit.as_secs_f64());
        frames.into_iter().chain(time).reduce(f64::max).map(|part| part.min(1.0))
    }
}

/// Why a run ended.
#[derive(Debug)]
pub enum End {
    /// Its time is over, or all frames were shown.
    Done,
    /// The user has closed the window.
    Closed,
    /// A signal.
    Interrupted,
    /// The display failed.
    Display(DisplayError),
}

/// Counters of a run.
#[derive(Debug, Default)]
pub struct Played {
    /// Frames.
    pub frames: FrameCounters,
    /// Images that were read.
    pub images_read: u64,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Sum of the times in which images were read.
    pub reading: Duration,
    /// Maximum of them.
    pub longest_read: Duration,
    /// Frames whose pixels on the display were those that were written to the target.
    pub verified: u64,
    /// Frames whose pixels were others.
    pub mismatched: u64,
    /// Times that the window or screen had another size.
    pub resizes: u64,
    /// Times that the display did not refresh for some seconds.
    pub stalls: u64,
    /// Times that the target did not answer for some seconds.
    pub target_stalls: u64,
    /// Why no more images could be read.
    pub lost: Option<String>,
    /// Time of the run.
    pub elapsed: Duration,
}

/// A run.
pub struct Player<'a, P> {
    memory: &'a mut RemoteRegion<P>,
    display: &'a mut dyn Display,
    images: &'a Images,
    pace: &'a Pace<'a>,
    /// Registration of each frame buffer's region.
    registrations: Vec<Mr>,
    schedule: Schedule,
    slots: Slots,
    bar: Option<StatisticsBar>,
    played: Played,
    /// Refresh of the last frame, and when that was noticed.
    last_refresh: Option<(u64, Instant)>,
    /// Images whose read was started.
    started: u64,
    /// Time from which the oldest read in flight counts: its start, or the end of the one before.
    reading_since: VecDeque<Instant>,
    closed: bool,
    begun: Instant,
    last_look: Instant,
    display_watch: Watch,
    target_watch: Watch,
}

impl<'a, P: Endpoint> Player<'a, P> {
    /// Registers the frame buffers. Statistics are drawn into the rows that are not transferred, if there are any.
    pub fn new(
        memory: &'a mut RemoteRegion<P>,
        display: &'a mut dyn Display,
        images: &'a Images,
        pace: &'a Pace<'a>,
    ) -> Result<Self> {
        let (mut regions, mut registrations) = (Vec::<(Arc<Region>, Mr)>::new(), Vec::new());
        for buffer in display.buffers() {
            let known = regions.iter().find(|(region, _)| Arc::ptr_eq(region, &buffer.region)).map(|(_, mr)| *mr);
            let mr = match known {
                Some(mr) => mr,
                None => memory.register(&buffer.region)?,
            };
            regions.push((Arc::clone(&buffer.region), mr));
            registrations.push(mr);
        }
        let (mode, count, now) = (display.mode(), display.buffers().len(), Instant::now());
        let bar = (images.skipped_rows > 0).then(|| StatisticsBar::new(mode.width, count));
        Ok(Self {
            memory,
            display,
            images,
            pace,
            registrations,
            schedule: Schedule::new(mode.refresh_hz(), pace.rate),
            slots: Slots::new(count),
            bar,
            played: Played::default(),
            last_refresh: None,
            started: 0,
            reading_since: VecDeque::new(),
            closed: false,
            begun: now,
            last_look: now,
            display_watch: Watch::new(),
            target_watch: Watch::new(),
        })
    }

    /// Runs to the end. `observe` is called with the counters after each step, which it must not delay.
    pub fn run(mut self, observe: impl Fn(&Played)) -> Result<(Played, End)> {
        let end = loop {
            match self.step() {
                Ok(None) => {
                    self.count_silences();
                    self.played.elapsed = self.begun.elapsed();
                    observe(&self.played);
                }
                Ok(Some(end)) => break end,
                Err(error) => match error.downcast::<DisplayError>() {
                    Ok(error) => break End::Display(*error),
                    Err(error) => return Err(error),
                },
            }
        };
        self.played.elapsed = self.begun.elapsed();
        self.count_silences();
        if self.target_watch.is_silent() && !self.reading_since.is_empty() {
            self.played.lost.get_or_insert_with(|| "the target does not answer".into());
        }
        Ok((self.played, end))
    }

    fn count_silences(&mut self) {
        self.played.stalls = self.display_watch.silences;
        self.played.target_stalls = self.target_watch.silences;
    }

    /// Does what can be done, or sleeps. Returns why the run ends, if it does.
    fn step(&mut self) -> Result<Option<End>> {
        if self.pace.stop.load(Relaxed) {
            return Ok(Some(End::Interrupted));
        }
        if self.is_complete() || self.pace.seconds.is_some_and(|seconds| self.begun.elapsed() >= seconds) {
            return Ok(Some(End::Done));
        }
        let mut any = false;
        if self.played.lost.is_none() {
            match self.transfer() {
                Ok(done) => any = done,
                Err(error) => self.lose(&error.to_string()),
            }
        }
        any |= self.present()?;
        if !any || self.last_look.elapsed() >= DISPLAY_LOOK {
            any |= self.look()?;
            if self.closed {
                return Ok(Some(End::Closed));
            }
        }
        if !any {
            self.sleep()?;
        }
        Ok(None)
    }

    /// Returns `true` if all frames were shown, or those that a lost target has left.
    fn is_complete(&self) -> bool {
        let frames = &self.played.frames;
        let settled = frames.shown + frames.skipped;
        let left = self.played.lost.as_ref().map(|_| self.played.images_read);
        self.pace.frames.is_some_and(|limit| settled >= left.unwrap_or(limit).min(limit))
    }

    /// The target is lost: the last whole image stays.
    fn lose(&mut self, why: &str) {
        warn(format_args!("{why}: the last whole image stays until the end"));
        self.played.lost = Some(why.to_owned());
    }

    /// Starts reads into free buffers, and takes over what was read.
    fn transfer(&mut self) -> Result<bool> {
        let mut any = false;
        while self.pace.frames.is_none_or(|limit| self.started < limit)
            && let Some(slot) = self.slots.free()
        {
            let image = self.started % self.images.checksums.len() as u64;
            let buffer = &self.display.buffers()[slot];
            let skipped = u64::from(self.images.skipped_rows) * buffer.stride as u64;
            let to = (&self.registrations[slot], buffer.offset as u64 + skipped);
            self.memory.read(image * self.images.bytes + skipped, to, self.images.bytes - skipped, slot as u64)?;
            if self.reading_since.is_empty() {
                self.target_watch.sign();
            }
            self.slots.set(slot, Slot::Reading(self.started));
            self.reading_since.push_back(Instant::now());
            self.started += 1;
            any = true;
        }
        let mut done = Vec::new();
        any |= self.memory.poll(&mut done)?;
        for slot in done {
            self.take_over(slot as usize);
        }
        Ok(any)
    }

    fn take_over(&mut self, slot: usize) {
        let Slot::Reading(image) = self.slots.get(slot) else { return };
        self.slots.set(slot, Slot::Ready(image));
        self.target_watch.sign();
        let now = Instant::now();
        // The queue pair executes one read after the other.
        let took = self.reading_since.pop_front().map_or(Duration::ZERO, |since| now - since);
        if let Some(next) = self.reading_since.front_mut() {
            *next = now;
        }
        let played = &mut self.played;
        let skipped = u64::from(self.images.skipped_rows) * self.display.buffers()[slot].stride as u64;
        played.images_read += 1;
        played.bytes_read += self.images.bytes - skipped;
        played.reading += took;
        played.longest_read = played.longest_read.max(took);
    }

    /// Passes images that are ready to the display, in their order.
    fn present(&mut self) -> Result<bool> {
        let mut any = false;
        while let Some((slot, image)) = self.slots.ready()
            && let Some(due) = self.schedule.next(self.refresh_now())
        {
            if self.slots.count(waits_for_refresh) == 0 {
                self.display_watch.sign();
            }
            if let Some(bar) = &mut self.bar {
                let (played, elapsed) = (&self.played, self.begun.elapsed());
                bar.update(|| statistics(played, self.images, elapsed))?;
                bar.copy_to(slot, &self.display.buffers()[slot]);
            }
            self.display.present(slot, due.refresh)?;
            self.played.frames.presented += 1;
            self.slots.set(slot, Slot::Presented { image, due, settled: false, released: false });
            any = true;
        }
        Ok(any)
    }

    /// Returns about the number of the last refresh, by the time that has passed since one that was reported.
    fn refresh_now(&self) -> u64 {
        let passed = |since: Instant| since.elapsed().as_secs_f64() * self.display.mode().refresh_hz();
        self.last_refresh.map_or(0, |(refresh, since)| refresh + passed(since) as u64)
    }

    /// Handles what has happened at the display.
    fn look(&mut self) -> Result<bool> {
        self.last_look = Instant::now();
        let mut events = Vec::new();
        self.display.poll(&mut events)?;
        for event in &events {
            self.closed |= *event == Event::Closed;
            self.played.resizes += u64::from(matches!(event, Event::Resized(..)));
            if let Some(settled) = self.slots.note(*event) {
                self.settle(&settled);
            }
        }
        if !events.is_empty() {
            self.display_watch.sign();
        }
        Ok(!events.is_empty())
    }

    fn settle(&mut self, settled: &Settled) {
        let Some(shown) = &settled.shown else {
            self.played.frames.skipped += 1;
            self.schedule.skipped();
            return;
        };
        self.last_refresh = Some((shown.refresh, Instant::now()));
        self.pace.visible.show(shown.buffer);
        self.played.frames.add_shown(settled.due.planned, shown);
        self.schedule.shown(settled.due, shown.refresh);
        let image = settled.image % self.images.checksums.len() as u64;
        match shown.crc32.map(|crc32| crc32 == self.images.checksums[image as usize]) {
            Some(true) => self.played.verified += 1,
            Some(false) => self.played.mismatched += 1,
            None => {}
        }
    }

    /// Sleeps until an image or an event may have arrived.
    fn sleep(&mut self) -> Result {
        self.check_silence();
        let is_reading = self.played.lost.is_none();
        if is_reading {
            match self.prepare_sleep() {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => {
                    self.lose(&error.to_string());
                    return Ok(());
                }
            }
        }
        let left = self.pace.seconds.map(|seconds| seconds.saturating_sub(self.begun.elapsed()));
        let timeouts = [self.display.timeout(), left, Some(LOOK)];
        let timeout = timeouts.into_iter().flatten().min().unwrap_or(LOOK);
        let timeout = Timespec::try_from(timeout).ok();
        let memory = is_reading.then(|| self.memory.fd());
        let fds = memory.into_iter().chain(self.display.fd());
        let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        // A signal ends the wait early.
        let _ = rustix::event::poll(&mut fds, timeout.as_ref());
        Ok(())
    }

    /// Returns `false` if something has arrived meanwhile, so that there is no sleep.
    fn prepare_sleep(&mut self) -> Result<bool> {
        self.memory.check()?;
        self.memory.arm()?;
        let mut done = Vec::new();
        let any = self.memory.poll(&mut done)?;
        let any = any || !done.is_empty();
        for slot in done {
            self.take_over(slot as usize);
        }
        Ok(!any)
    }

    /// Reports a display that does not refresh, and a target that does not answer.
    fn check_silence(&mut self) {
        let usual = Duration::from_secs_f64(2.0 / self.schedule.rate(self.display.mode().refresh_hz()));
        if self.slots.count(waits_for_refresh) > 0
            && let Some(silence) = self.display_watch.silence(usual)
        {
            let seconds = silence.as_secs();
            warn(format_args!(
                "the display has not refreshed for {seconds} s (is the window hidden, or the screen off?): waiting for it"
            ));
        }
        if self.played.lost.is_none()
            && !self.reading_since.is_empty()
            && let Some(silence) = self.target_watch.silence(Duration::ZERO)
        {
            warn(format_args!("the target has not answered for {} s", silence.as_secs()));
        }
    }
}

/// Returns `true` if the display has not shown a buffer that it has.
fn waits_for_refresh(slot: &Slot) -> bool {
    matches!(slot, Slot::Presented { settled: false, .. })
}

/// Returns the text of the statistics.
fn statistics(played: &Played, images: &Images, elapsed: Duration) -> String {
    let frames = &played.frames;
    let count = images.checksums.len() as u64;
    let gbps = played.bytes_read as f64 * 8.0 / elapsed.as_secs_f64().max(1e-9) / 1e9;
    let read_ms = played.reading.as_secs_f64() * 1e3 / played.images_read.max(1) as f64;
    let cpu = CpuTime::now().total() / elapsed.as_secs_f64().max(1e-9) * 100.0;
    format!(
        "Shotline   image {} of {count}   {:.2} images/s   {gbps:.2} Gbit/s   read in {read_ms:.1} ms   late {}   repeated {}   \
         processor {cpu:.0} %",
        frames.presented % count + 1,
        frames.rate(),
        frames.late,
        frames.repeated
    )
}
