//! The trait that every display implements.

use crate::{DisplayError, FrameBuffer, Mode};
use rustix::fd::BorrowedFd;
use std::time::Duration;

/// What a caller wants of a display.
#[derive(Clone, Debug)]
pub struct Request {
    /// Wanted mode. A window has this size and the refresh rate of its screen; a screen must have a mode of this size, and
    /// the one with the closest refresh rate is chosen.
    pub mode: Mode,
    /// Number of frame buffers, at least 2.
    pub buffers: u32,
    /// Title of a window.
    pub title: String,
    /// Let a window cover its screen. The frames are at its upper left corner, or where a Wayland compositor places them.
    pub fullscreen: bool,
    /// Replace frames that are saved already.
    pub replace: bool,
    /// Rows at the top that are not part of [`Shown::crc32`].
    pub unchecked_rows: u32,
}

/// What has happened at a display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A buffer that was presented is visible.
    Shown(Shown),
    /// A buffer that was presented will not be shown: a later one has replaced it, or the window is not visible.
    Skipped(usize),
    /// The display does not read a buffer any more: it may be filled again.
    Released(usize),
    /// The window or screen has another size, in pixels. Frames keep theirs.
    Resized(u32, u32),
    /// The user has closed the window.
    Closed,
}

/// A frame that became visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Index of its buffer.
    pub buffer: usize,
    /// Number of the refresh at which it became visible.
    pub refresh: u64,
    /// Time of that refresh, since any fixed time.
    pub at: Duration,
    /// CRC-32 of its rows below [`Request::unchecked_rows`], each without its gap. `None` if the display does not read them in this
    /// process.
    pub crc32: Option<u32>,
}

/// A display, used from one thread.
///
/// Every buffer that is [presented](Self::present) yields one [`Event::Shown`] or [`Event::Skipped`], and one
/// [`Event::Released`], as long as the display lives. The latter comes first if the display has copied the buffer. A display
/// without a refresh (a hidden window) yields nothing.
pub trait Display {
    /// Returns the mode of the frames.
    fn mode(&self) -> Mode;
    /// Returns the modes of the screen. Empty if a window or a file may have any size.
    fn modes(&self) -> Vec<Mode>;
    /// Returns the frame buffers. All have the same stride.
    fn buffers(&self) -> &[FrameBuffer];
    /// Shows a buffer at this refresh, or at the first possible one if it has passed; 0 is as soon as possible. The buffer must
    /// not be changed until it is [released](Event::Released). Several buffers may be waiting for their refreshes, which must
    /// ascend.
    ///
    /// # Errors
    /// [`DisplayError::NoSuchBuffer`] or [`DisplayError::BufferInUse`]; otherwise as [`Self::poll`].
    fn present(&mut self, buffer: usize, due: u64) -> Result<(), DisplayError>;
    /// Appends what has happened. Does not block.
    ///
    /// # Errors
    /// [`DisplayError::Gone`] if the display does not exist any more, or what it refused. No method may be called after that.
    fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), DisplayError>;
    /// Returns a descriptor that is readable when [`Self::poll`] has something to do. `None` if only time passes. Call
    /// [`Self::poll`] before waiting on it.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
    /// Returns the time after which [`Self::poll`] has something to do, although the descriptor is not readable.
    fn timeout(&self) -> Option<Duration>;
}
