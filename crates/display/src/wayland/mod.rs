//! A window of a Wayland compositor.
//!
//! The compositor maps the memory of the frame buffers (`wl_shm`, or [`dmabuf`] if it has a GPU) and has a `wl_buffer` for
//! each. It copies a committed buffer, or composes with it. The presentation-time protocol reports when a commit became visible;
//! [`schedule`] says when buffers are committed.

mod dmabuf;
mod refreshes;
mod schedule;
mod setup;
mod state;

use crate::{Display, DisplayError, Event, FrameBuffer, Mode, Request};
use rustix::fd::{AsFd as _, BorrowedFd};
use schedule::Action;
use setup::Setup;
use state::{Callback, State};
use std::time::{Duration, Instant};
use wayland_client::protocol::wl_buffer::WlBuffer;
use wayland_client::protocol::wl_surface::WlSurface;
use wayland_client::{Connection, EventQueue};

/// Calls of the system by which [`Window::poll`] reads at most, so that it ends even if events arrive faster than it reads.
const MAX_READS: usize = 64;
/// Time after which requests that the socket did not take are sent again.
const RESEND: Duration = Duration::from_millis(10);

/// A window whose `wl_buffer`s are the frame buffers.
pub struct Window {
    connection: Connection,
    queue: EventQueue<State>,
    state: State,
    surface: WlSurface,
    wl_buffers: Vec<WlBuffer>,
    /// Whether all requests were sent.
    is_flushed: bool,
}

impl Window {
    /// Opens a window of the compositor with this name, or the one of `WAYLAND_DISPLAY`.
    pub(crate) fn open(name: Option<&str>, request: &Request) -> Result<Self, DisplayError> {
        let Setup { connection, queue, state, surface, wl_buffers } = Setup::new(name, request, setup::TIMEOUT)?;
        Ok(Self { connection, queue, state, surface, wl_buffers, is_flushed: false })
    }

    /// Reads and handles events.
    fn receive(&mut self) -> Result<(), DisplayError> {
        for _ in 0..MAX_READS {
            self.queue.dispatch_pending(&mut self.state).map_err(setup::dispatch_failed)?;
            let Some(guard) = self.queue.prepare_read() else { continue };
            match setup::read(guard) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    // Events before the end of the connection.
                    let _ = self.queue.dispatch_pending(&mut self.state);
                    return Err(error);
                }
            }
        }
        self.queue.dispatch_pending(&mut self.state).map(|_| ()).map_err(setup::dispatch_failed)
    }

    /// Commits what is to be committed now, and sends all requests.
    fn advance(&mut self) -> Result<(), DisplayError> {
        self.state.check_silence();
        let now = Instant::now();
        let is_unapplied = std::mem::take(&mut self.state.is_unapplied);
        let schedule = &mut self.state.schedule;
        let action = schedule.next(now).or_else(|| is_unapplied.then(|| schedule.tick(now)).flatten());
        if let Some(action) = action {
            self.commit(action);
        }
        self.is_flushed = setup::flush(&self.queue)?;
        Ok(())
    }

    fn commit(&self, Action { serial, buffer }: Action) {
        let handle = self.queue.handle();
        if let Some(wl_buffer) = buffer.and_then(|buffer| self.wl_buffers.get(buffer)) {
            self.surface.attach(Some(wl_buffer), 0, 0);
            self.surface.damage(0, 0, i32::MAX, i32::MAX);
        } else {
            // Some compositors report no refresh if nothing has changed.
            self.surface.damage(0, 0, 1, 1);
        }
        self.surface.frame(&handle, Callback::Frame(serial));
        if let Some(presentation) = &self.state.globals.presentation {
            presentation.feedback(&self.surface, &handle, serial);
        }
        self.surface.commit();
    }
}

impl Display for Window {
    fn mode(&self) -> Mode {
        self.state.mode
    }
    fn modes(&self) -> Vec<Mode> {
        Vec::new()
    }
    fn buffers(&self) -> &[FrameBuffer] {
        self.state.buffers.all()
    }
    fn present(&mut self, buffer: usize, due: u64) -> Result<(), DisplayError> {
        self.state.buffers.acquire(buffer)?;
        self.state.schedule.push(buffer, due);
        // The reason of an error is lost if requests are sent before it is read.
        self.receive()?;
        self.advance()
    }
    fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), DisplayError> {
        let done = self.receive().and_then(|()| self.advance());
        events.append(&mut self.state.events);
        done
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.connection.as_fd())
    }
    fn timeout(&self) -> Option<Duration> {
        if !self.state.events.is_empty() {
            return Some(Duration::ZERO);
        }
        let resend = (!self.is_flushed).then_some(RESEND);
        self.state.schedule.timeout(Instant::now()).into_iter().chain(resend).min()
    }
}
