//! A window of an X server.
//!
//! The server maps the memory of the frame buffers (MIT-SHM 1.2, `AttachFd`) and has a pixmap for each. The Present extension
//! shows a pixmap at a refresh of the window's screen: it copies the pixmap, or scans it out.

mod setup;

use crate::buffers::Buffers;
use crate::{Display, DisplayError, Event, FrameBuffer, Mode, Request, Shown};
use rustix::fd::{AsFd as _, BorrowedFd};
use setup::{Setup, gone};
use std::collections::VecDeque;
use std::time::Duration;
use x11rb::connection::Connection as _;
use x11rb::protocol::Event as XEvent;
use x11rb::protocol::present::{self, CompleteKind, CompleteMode};
use x11rb::protocol::xproto::Pixmap;
use x11rb::rust_connection::RustConnection;

/// A window whose pixmaps are the frame buffers.
pub struct Window {
    connection: RustConnection,
    window: u32,
    close: u32,
    mode: Mode,
    /// Size of the window in pixels.
    size: (u32, u32),
    buffers: Buffers,
    pixmaps: Vec<Pixmap>,
    /// Buffers that were presented and not completed yet, with their serial numbers.
    presented: VecDeque<(u32, usize)>,
    serial: u32,
    /// Events that arrived while the window was opened.
    early: Vec<XEvent>,
}

impl Window {
    /// Opens a window of the server with this name, or the one of `DISPLAY`.
    pub(crate) fn open(name: Option<&str>, request: &Request) -> Result<Self, DisplayError> {
        let Setup { connection, window, close, refresh_mhz, buffers, pixmaps, early } = Setup::new(name, request)?;
        let mode = Mode { refresh_mhz, ..request.mode };
        let size = (mode.width, mode.height);
        let presented = VecDeque::new();
        Ok(Self { connection, window, close, mode, size, buffers, pixmaps, presented, serial: 0, early })
    }

    fn handle(&mut self, event: &XEvent, events: &mut Vec<Event>) -> Result<(), DisplayError> {
        match event {
            XEvent::PresentCompleteNotify(done) if done.kind == CompleteKind::PIXMAP => {
                let at = self.presented.iter().position(|(serial, _)| *serial == done.serial);
                let Some((_, buffer)) = at.and_then(|at| self.presented.remove(at)) else { return Ok(()) };
                events.push(if done.mode == CompleteMode::SKIP {
                    Event::Skipped(buffer)
                } else {
                    let at = Duration::from_micros(done.ust);
                    Event::Shown(Shown { buffer, refresh: done.msc, at, crc32: None })
                });
            }
            XEvent::PresentIdleNotify(idle) => {
                let buffer = self.pixmaps.iter().position(|pixmap| *pixmap == idle.pixmap);
                if let Some(buffer) = buffer.filter(|buffer| self.buffers.release(*buffer)) {
                    events.push(Event::Released(buffer));
                }
            }
            XEvent::ConfigureNotify(now) => {
                let size = (u32::from(now.width), u32::from(now.height));
                if size != self.size {
                    self.size = size;
                    events.push(Event::Resized(size.0, size.1));
                }
            }
            XEvent::ClientMessage(message) if message.format == 32 && message.data.as_data32()[0] == self.close => {
                events.push(Event::Closed);
            }
            XEvent::DestroyNotify(_) => events.push(Event::Closed),
            XEvent::Error(error) => return Err(DisplayError::Refused(setup::words(error))),
            _ => {}
        }
        Ok(())
    }
}

impl Display for Window {
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
        self.serial = self.serial.wrapping_add(1);
        let (window, pixmap, serial) = (self.window, self.pixmaps[buffer], self.serial);
        // No region, offset, fence, option, divisor or other window.
        present::pixmap(&self.connection, window, pixmap, serial, 0, 0, 0, 0, 0, 0, 0, 0, due, 0, 0, &[])
            .map_err(gone)?;
        self.connection.flush().map_err(gone)?;
        self.presented.push_back((serial, buffer));
        Ok(())
    }
    fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), DisplayError> {
        for event in std::mem::take(&mut self.early) {
            self.handle(&event, events)?;
        }
        while let Some(event) = self.connection.poll_for_event().map_err(gone)? {
            self.handle(&event, events)?;
        }
        Ok(())
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.connection.stream().as_fd())
    }
    fn timeout(&self) -> Option<Duration> {
        (!self.early.is_empty()).then_some(Duration::ZERO)
    }
}
