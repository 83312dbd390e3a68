//! A screen without a display server: kernel mode setting (KMS) of a device of the Direct Rendering Manager (DRM).
//!
//! The driver allocates the frame buffers (dumb buffers) and exports them (dma-buf). A buffer becomes visible by a page flip at
//! the begin of a refresh. The screen keeps its mode as long as the display lives, also if another screen is plugged in.

mod card;
mod modes;
mod refreshes;
mod scanout;

use crate::buffers::Buffers;
use crate::{Display, DisplayError, Event, FrameBuffer, Mode, Request, Shown};
use card::is_removed;
use drm::control::{Device as _, Event as DrmEvent};
use drm::{Device as _, DriverCapability};
use refreshes::Refreshes;
use rustix::fd::{AsFd as _, BorrowedFd};
use rustix::time::ClockId;
use scanout::Scanout;
use std::collections::VecDeque;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Tries to submit a page flip that the driver refuses, and the time between them.
const TRIES: u32 = 100;
const RETRY: Duration = Duration::from_millis(20);
/// Number of tries after each of which the mode is set again. The first ones may just be too early.
const SET_AGAIN: u32 = 10;
/// Time after which a page flip that is not complete never will be.
const FLIP_LIMIT: Duration = Duration::from_secs(10);
/// Time between two looks at the connector, and how many of them must see no screen.
const LOOK: Duration = Duration::from_secs(1);
const LOOKS: u32 = 3;

/// A screen whose framebuffers are the frame buffers.
pub struct Screen {
    scanout: Scanout,
    buffers: Buffers,
    refreshes: Refreshes,
    /// Whether times of events are those of the monotonic clock.
    is_monotonic: bool,
    /// Buffers that wait for their refresh, with it.
    waiting: VecDeque<(usize, u64)>,
    /// Buffer whose page flip was submitted, and when.
    flipping: Option<(usize, Duration)>,
    visible: Option<usize>,
    refusal: Option<Refusal>,
    connection: Connection,
}

/// Failed tries to submit the page flip of the first waiting buffer.
struct Refusal {
    tries: u32,
    next: Duration,
    /// Whether another program is the master of the device.
    is_foreign: bool,
}

/// Whether there still is a screen at the connector.
struct Connection {
    /// File that says so, unless it cannot be read.
    status: Option<PathBuf>,
    next_look: Duration,
    missed: u32,
}

/// Returns the time of the monotonic clock.
fn now() -> Duration {
    Duration::try_from(rustix::time::clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

impl Screen {
    /// Sets a mode of the wanted size on the first connected screen of a device, or of the first device that has one.
    pub(crate) fn open(device: Option<&Path>, request: &Request) -> Result<Self, DisplayError> {
        let (scanout, buffers) = Scanout::open(device, request)?;
        let (card, output) = (&scanout.card, &scanout.output);
        let refreshes = match card.last_refresh(output.index) {
            Some((sequence, at)) => Refreshes::counted(scanout.mode, sequence, at),
            None => Refreshes::timed(scanout.mode, now()),
        };
        let status = card.status_file(&output.connector).filter(|file| file.exists());
        Ok(Self {
            is_monotonic: card
                .get_driver_capability(DriverCapability::MonotonicTimestamp)
                .is_ok_and(|value| value != 0),
            connection: Connection { status, next_look: now() + LOOK, missed: 0 },
            scanout,
            buffers,
            refreshes,
            waiting: VecDeque::new(),
            flipping: None,
            visible: None,
            refusal: None,
        })
    }

    /// Handles the page flips that are complete.
    fn receive(&mut self, events: &mut Vec<Event>) -> Result<(), DisplayError> {
        loop {
            let received = match self.scanout.card.receive_events() {
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if is_removed(&error) => return Err(self.removed()),
                Err(error) => return Err(DisplayError::Refused(format!("its events cannot be read: {error}"))),
            };
            let mut is_empty = true;
            for event in received {
                is_empty = false;
                if let DrmEvent::PageFlip(flip) = event {
                    let at = if self.is_monotonic { flip.duration } else { now() };
                    self.complete(flip.frame, at, events);
                }
            }
            if is_empty {
                return Ok(());
            }
        }
    }

    /// Notes that the submitted page flip is complete.
    fn complete(&mut self, sequence: u32, at: Duration, events: &mut Vec<Event>) {
        let Some((buffer, _)) = self.flipping.take() else { return };
        let refresh = self.refreshes.complete(sequence, at);
        events.push(Event::Shown(Shown { buffer, refresh, at, crc32: None }));
        if let Some(before) = self.visible.replace(buffer)
            && self.buffers.release(before)
        {
            events.push(Event::Released(before));
        }
    }

    /// Submits the page flip of the first waiting buffer if its refresh is the next one.
    fn advance(&mut self, now: Duration) -> Result<(), DisplayError> {
        if self.flipping.is_some() {
            return Ok(());
        }
        let Some((buffer, due)) = self.waiting.front().copied() else { return Ok(()) };
        if self.refusal.as_ref().is_some_and(|refusal| now < refusal.next) || !self.is_ready(due, now) {
            return Ok(());
        }
        if self.refusal.as_ref().is_some_and(|refusal| refusal.is_foreign || refusal.tries % SET_AGAIN == 0) {
            // Another program may have been the master, and changed the mode. Whether this helps, the flip shows.
            let _ = self.scanout.card.acquire_master_lock();
            let _ = self.scanout.set_mode(self.visible);
        }
        match self.scanout.flip(buffer) {
            Ok(()) => {
                self.waiting.pop_front();
                self.flipping = Some((buffer, now));
                self.refusal = None;
                Ok(())
            }
            Err(error) => self.refuse(&error, now),
        }
    }

    /// Asks the driver how far it has counted, and returns `true` if a flip may be submitted.
    fn is_ready(&mut self, due: u64, now: Duration) -> bool {
        if !self.refreshes.are_counted() {
            return self.refreshes.is_ready(due, now);
        }
        match self.scanout.card.last_refresh(self.scanout.output.index) {
            Some((sequence, at)) => {
                self.refreshes.observe(sequence, at);
                self.refreshes.is_ready(due, now)
            }
            // It does not count at the moment: a flip shows the reason.
            None => true,
        }
    }

    /// Notes that the driver has refused a page flip, which is an error after some tries.
    fn refuse(&mut self, error: &Error, now: Duration) -> Result<(), DisplayError> {
        if is_removed(error) {
            return Err(self.removed());
        }
        let tries = self.refusal.as_ref().map_or(0, |refusal| refusal.tries) + 1;
        let is_foreign = error.kind() == ErrorKind::PermissionDenied;
        self.refusal = Some(Refusal { tries, next: now + RETRY, is_foreign });
        if tries < TRIES {
            return Ok(());
        }
        let path = self.scanout.card.path.display();
        Err(DisplayError::Refused(if is_foreign {
            format!(
                "another program has become the master of {path}; start this one again when that has ended, or stay at this \
                 virtual terminal"
            )
        } else {
            format!("{path} has refused {tries} page flips: {error}")
        }))
    }

    /// Looks from time to time whether there still is a screen.
    fn look(&mut self, now: Duration) -> Result<(), DisplayError> {
        let Connection { status: Some(status), next_look, missed } = &mut self.connection else { return Ok(()) };
        if now < *next_look {
            return Ok(());
        }
        *next_look = now + LOOK;
        let found = std::fs::read_to_string(&*status);
        match &found {
            Ok(text) if text.trim() == "disconnected" => *missed += 1,
            Err(error) if is_removed(error) || error.kind() == ErrorKind::NotFound => *missed += 1,
            _ => *missed = 0,
        }
        if *missed < LOOKS {
            return Ok(());
        }
        Err(if found.is_ok() {
            let Scanout { card, output, .. } = &self.scanout;
            DisplayError::Gone(format!(
                "the screen at the connector {} of {} was unplugged",
                output.connector,
                card.path.display()
            ))
        } else {
            self.removed()
        })
    }

    fn removed(&self) -> DisplayError {
        DisplayError::Gone(format!("the device {} was removed", self.scanout.card.path.display()))
    }
}

impl Display for Screen {
    fn mode(&self) -> Mode {
        self.scanout.mode
    }
    fn modes(&self) -> Vec<Mode> {
        self.scanout.modes.clone()
    }
    fn buffers(&self) -> &[FrameBuffer] {
        self.buffers.all()
    }
    fn present(&mut self, buffer: usize, due: u64) -> Result<(), DisplayError> {
        self.buffers.acquire(buffer)?;
        self.waiting.push_back((buffer, due));
        self.advance(now())
    }
    fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), DisplayError> {
        self.receive(events)?;
        let now = now();
        if self.flipping.is_some_and(|(_, since)| now.saturating_sub(since) > FLIP_LIMIT) {
            return Err(DisplayError::Gone(format!("a page flip was not complete within {FLIP_LIMIT:?}")));
        }
        self.look(now)?;
        self.advance(now)
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.scanout.card.as_fd())
    }
    fn timeout(&self) -> Option<Duration> {
        let now = now();
        let look = self.connection.status.as_ref().map(|_| self.connection.next_look.saturating_sub(now));
        let flip = match (self.flipping, self.waiting.front()) {
            (Some((_, since)), _) => Some((since + FLIP_LIMIT).saturating_sub(now)),
            (None, Some((_, due))) => {
                let retry = self.refusal.as_ref().map_or(Duration::ZERO, |refusal| refusal.next.saturating_sub(now));
                Some(self.refreshes.wait(*due, now).max(retry))
            }
            (None, None) => None,
        };
        look.into_iter().chain(flip).min()
    }
}
