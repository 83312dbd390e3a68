//! Set-up of a window: extensions, visual, shared memory, and the refresh rate of its screen.

use crate::buffers::Buffers;
use crate::{DisplayError, PIXEL_BYTES, Request};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::AsFd as _;
use std::time::{Duration, Instant};
use x11rb::connection::{Connection as _, RequestConnection as _};
use x11rb::errors::{ConnectionError, ReplyOrIdError};
use x11rb::protocol::Event as XEvent;
use x11rb::protocol::present::{self, CompleteKind};
use x11rb::protocol::shm;
use x11rb::protocol::xproto::{
    AtomEnum, ConnectionExt as _, CreateWindowAux, EventMask, ImageOrder, Pixmap, PropMode, Screen, VisualClass,
    WindowClass,
};
use x11rb::rust_connection::RustConnection;
use x11rb::wrapper::ConnectionExt as _;

/// Bits of a pixel that are colours.
const DEPTH: u8 = 24;
/// Refreshes over which the refresh rate is measured.
const MEASURED: usize = 30;
/// Time in which they must pass.
const MEASURE_TIMEOUT: Duration = Duration::from_secs(2);

/// What a window consists of.
pub(super) struct Setup {
    pub connection: RustConnection,
    pub window: u32,
    /// Atom of the message by which the window manager closes the window.
    pub close: u32,
    pub refresh_mhz: u32,
    pub buffers: Buffers,
    pub pixmaps: Vec<Pixmap>,
    pub early: Vec<XEvent>,
}

impl Setup {
    pub(super) fn new(name: Option<&str>, request: &Request) -> Result<Self, DisplayError> {
        let display = name.map_or_else(|| std::env::var("DISPLAY").unwrap_or_default(), str::to_owned);
        let unavailable = |reason: String| DisplayError::Unavailable { name: format!("x11={display}"), reason };
        let connected = RustConnection::connect(Some(&display));
        let (connection, screen) = connected.map_err(|error| unavailable(error.to_string()))?;
        check_extensions(&connection, &display)?;
        let screen = &connection.setup().roots[screen];
        check_visual(&connection, screen).map_err(unavailable)?;
        let (window, close) = create_window(&connection, screen, request).map_err(|error| refused(&error))?;
        let buffers = Buffers::shared(request.mode, request.buffers)?;
        let pixmaps = share(&connection, window, &buffers, request).map_err(|error| DisplayError::NoSharedMemory {
            name: format!("x11={display}"),
            reason: reply_words(&error),
        })?;
        let mut early = Vec::new();
        let refresh_mhz = measure_refresh(&connection, window, &mut early)?;
        let refresh_mhz = refresh_mhz.unwrap_or(request.mode.refresh_mhz);
        Ok(Self { connection, window, close, refresh_mhz, buffers, pixmaps, early })
    }
}

/// Checks that the server can map memory by descriptors, use it as pixmaps, and show them at a refresh.
fn check_extensions(connection: &RustConnection, display: &str) -> Result<(), DisplayError> {
    let name = format!("x11={display}");
    let lacks = |reason: &str| DisplayError::NoSharedMemory { name: name.clone(), reason: reason.into() };
    let has = |extension| connection.extension_information(extension).map(|found| found.is_some()).map_err(gone);
    if !has(shm::X11_EXTENSION_NAME)? {
        return Err(lacks("the server has no MIT-SHM extension"));
    }
    let version = shm::query_version(connection).map_err(gone)?.reply().map_err(|error| refused(&error.into()))?;
    if (version.major_version, version.minor_version) < (1, 2) {
        return Err(lacks("its MIT-SHM extension is older than 1.2 and takes no file descriptors"));
    }
    if !version.shared_pixmaps {
        return Err(lacks("its MIT-SHM extension has no shared pixmaps"));
    }
    if !has(present::X11_EXTENSION_NAME)? {
        let reason = "the server has no Present extension".to_owned();
        return Err(DisplayError::Unavailable { name, reason });
    }
    present::query_version(connection, 1, 0).map_err(gone)?.reply().map_err(|error| refused(&error.into()))?;
    Ok(())
}

/// Checks that the screen's pixels are those of this crate.
fn check_visual(connection: &RustConnection, screen: &Screen) -> Result<(), String> {
    let setup = connection.setup();
    let visuals = screen.allowed_depths.iter().flat_map(|depth| &depth.visuals);
    let visual = visuals.clone().find(|visual| visual.visual_id == screen.root_visual);
    let masks = visual.filter(|visual| visual.class == VisualClass::TRUE_COLOR);
    let masks = masks.map(|visual| (visual.red_mask, visual.green_mask, visual.blue_mask));
    let pixel = setup.pixmap_formats.iter().find(|format| format.depth == DEPTH).map(|format| format.bits_per_pixel);
    let is_little = setup.image_byte_order == ImageOrder::LSB_FIRST;
    let expected = (DEPTH, Some((0xFF_0000, 0xFF00, 0xFF)), Some(32), true);
    let found = (screen.root_depth, masks, pixel, is_little);
    if found == expected {
        Ok(())
    } else {
        let depth = screen.root_depth;
        Err(format!(
            "expected a screen of 24 bits in 4 little-endian bytes (blue, green, red), found one of {depth} bits"
        ))
    }
}

/// Creates and maps the window. Returns it and the atom of the message that closes it.
fn create_window(
    connection: &RustConnection,
    screen: &Screen,
    request: &Request,
) -> Result<(u32, u32), ReplyOrIdError> {
    let atom = |name: &str| Ok::<_, ReplyOrIdError>(connection.intern_atom(false, name.as_bytes())?.reply()?.atom);
    let (protocols, close) = (atom("WM_PROTOCOLS")?, atom("WM_DELETE_WINDOW")?);
    let (name, utf8) = (atom("_NET_WM_NAME")?, atom("UTF8_STRING")?);
    let window = connection.generate_id()?;
    let (width, height) = (request.mode.width as u16, request.mode.height as u16);
    let values = CreateWindowAux::new().background_pixel(screen.black_pixel).event_mask(EventMask::STRUCTURE_NOTIFY);
    let (class, visual) = (WindowClass::INPUT_OUTPUT, screen.root_visual);
    connection.create_window(DEPTH, window, screen.root, 0, 0, width, height, 0, class, visual, &values)?.check()?;
    let title = request.title.as_bytes();
    connection.change_property8(PropMode::REPLACE, window, AtomEnum::WM_NAME, AtomEnum::STRING, title)?;
    connection.change_property8(PropMode::REPLACE, window, name, utf8, title)?;
    connection.change_property32(PropMode::REPLACE, window, protocols, AtomEnum::ATOM, &[close])?;
    if request.fullscreen {
        let (state, fullscreen) = (atom("_NET_WM_STATE")?, atom("_NET_WM_STATE_FULLSCREEN")?);
        connection.change_property32(PropMode::REPLACE, window, state, AtomEnum::ATOM, &[fullscreen])?;
    }
    connection.map_window(window)?.check()?;
    Ok((window, close))
}

/// Lets the server map the frame buffers, and creates a pixmap for each. The server keeps the memory as long as it needs it.
fn share(
    connection: &RustConnection,
    window: u32,
    buffers: &Buffers,
    request: &Request,
) -> Result<Vec<Pixmap>, ReplyOrIdError> {
    let region = &buffers.all()[0].region;
    let fd = region.fd().and_then(|fd| fd.try_clone_to_owned().ok()).ok_or(ConnectionError::FdPassingFailed)?;
    let segment = connection.generate_id()?;
    // Writable, as a pixmap is; the server does not draw in it by itself.
    shm::attach_fd(connection, segment, fd, false)?.check()?;
    let mut pixmaps = Vec::new();
    for buffer in buffers.all() {
        let pixmap = connection.generate_id()?;
        let (width, height) = ((buffer.stride / PIXEL_BYTES) as u16, request.mode.height as u16);
        let offset = buffer.offset.try_into().map_err(|_| ConnectionError::MaximumRequestLengthExceeded)?;
        shm::create_pixmap(connection, pixmap, window, width, height, DEPTH, segment, offset)?.check()?;
        pixmaps.push(pixmap);
    }
    let event = connection.generate_id()?;
    let mask = present::EventMask::COMPLETE_NOTIFY | present::EventMask::IDLE_NOTIFY;
    present::select_input(connection, event, window, mask)?.check()?;
    Ok(pixmaps)
}

/// Measures the refresh rate of the window's screen in mHz. `None` if it does not refresh.
fn measure_refresh(
    connection: &RustConnection,
    window: u32,
    early: &mut Vec<XEvent>,
) -> Result<Option<u32>, DisplayError> {
    let mut seen = Vec::new();
    request_refresh(connection, window, 0)?;
    let end = Instant::now() + MEASURE_TIMEOUT;
    while seen.len() <= MEASURED && Instant::now() < end {
        while let Some(event) = connection.poll_for_event().map_err(gone)? {
            match event {
                XEvent::PresentCompleteNotify(done) if done.kind == CompleteKind::NOTIFY_MSC => {
                    if seen.is_empty() {
                        for next in 1..=MEASURED as u64 {
                            request_refresh(connection, window, done.msc + next)?;
                        }
                    }
                    seen.push((done.msc, done.ust));
                }
                other => early.push(other),
            }
        }
        let timeout = Timespec::try_from(end.saturating_duration_since(Instant::now())).ok();
        let mut fds = [PollFd::from_borrowed_fd(connection.stream().as_fd(), PollFlags::IN)];
        // A signal ends the wait early, and the loop continues it.
        if seen.len() <= MEASURED {
            let _ = rustix::event::poll(&mut fds, timeout.as_ref());
        }
    }
    Ok(refresh_rate(&seen))
}

fn request_refresh(connection: &RustConnection, window: u32, number: u64) -> Result<(), DisplayError> {
    present::notify_msc(connection, window, 0, number, 0, 0).map_err(gone)?;
    connection.flush().map_err(gone)
}

/// Returns the refresh rate in mHz from numbers and times (in microseconds) of refreshes. The times are those at which the
/// server noticed them, so the median over half of them is taken.
fn refresh_rate(seen: &[(u64, u64)]) -> Option<u32> {
    let half = seen.len() / 2;
    let rate = |(first, last): (&(u64, u64), &(u64, u64))| {
        let (count, micros) = (last.0.checked_sub(first.0)?, last.1.checked_sub(first.1)?);
        (count * 1_000_000_000).checked_div(micros)
    };
    let mut rates: Vec<_> = seen.iter().zip(seen.get(half..)?).filter(|_| half > 0).filter_map(rate).collect();
    rates.sort_unstable();
    let median = *rates.get(rates.len() / 2)?;
    u32::try_from(median).ok().filter(|mhz| *mhz > 0)
}

/// Returns the error of a connection that has ended.
pub(super) fn gone(error: ConnectionError) -> DisplayError {
    DisplayError::Gone(error.to_string())
}

fn refused(error: &ReplyOrIdError) -> DisplayError {
    match error {
        ReplyOrIdError::ConnectionError(error) => DisplayError::Gone(error.to_string()),
        other => DisplayError::Refused(reply_words(other)),
    }
}

fn reply_words(error: &ReplyOrIdError) -> String {
    match error {
        ReplyOrIdError::X11Error(error) => words(error),
        other => other.to_string(),
    }
}

/// Returns an error of the server in words: `BadMatch of PresentPixmap`.
pub(super) fn words(error: &x11rb::x11_utils::X11Error) -> String {
    let request = error.request_name.unwrap_or("an unknown request");
    format!("{:?} of {request}", error.error_kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refresh_rate_is_that_of_most_refreshes() {
        let mut seen: Vec<_> = (0..31).map(|number| (1000 + number, 5_000_000 + number * 16_667)).collect();
        assert_eq!(refresh_rate(&seen), Some(59_998));
        // The server was late twice.
        seen[3].1 += 9_000;
        seen[20].1 += 14_000;
        assert_eq!(refresh_rate(&seen), Some(59_998));
        for too_few in [&seen[..0], &seen[..1]] {
            assert_eq!(refresh_rate(too_few), None);
        }
        assert_eq!(refresh_rate(&[(7, 9), (7, 9), (6, 8)]), None, "no time passes");
    }
}
