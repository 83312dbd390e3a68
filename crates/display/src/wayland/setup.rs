//! Set-up of a window: connection, interfaces, shared memory, and the first answer to the window.

use super::dmabuf;
use super::state::{Callback, State};
use crate::buffers::Buffers;
use crate::{DisplayError, Mode, Request};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::AsFd as _;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use wayland_client::backend::WaylandError;
use wayland_client::protocol::wl_buffer::WlBuffer;
use wayland_client::protocol::wl_shm::Format;
use wayland_client::protocol::wl_surface::WlSurface;
use wayland_client::{Connection, DispatchError, EventQueue, Proxy, QueueHandle};
use wayland_protocols::xdg::shell::client::xdg_wm_base::XdgWmBase;

/// Time in which the compositor must have answered.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// What a window consists of.
pub(super) struct Setup {
    pub connection: Connection,
    pub queue: EventQueue<State>,
    pub state: State,
    pub surface: WlSurface,
    pub wl_buffers: Vec<WlBuffer>,
}

impl Setup {
    pub(super) fn new(name: Option<&str>, request: &Request, timeout: Duration) -> Result<Self, DisplayError> {
        let name = name.map_or_else(display_of_session, str::to_owned);
        let opening = Opening { name: format!("wayland={name}"), end: Instant::now() + timeout };
        let path = socket_path(&name).map_err(|reason| opening.unavailable(reason))?;
        match opening.set_up(&path, request, true) {
            // A compositor may end the connection when it cannot use a dma-buf.
            Err(DisplayError::Refused(_)) => opening.set_up(&path, request, false),
            other => other,
        }
    }
}

/// Returns the name of the display of this session, as libwayland chooses it.
fn display_of_session() -> String {
    let name = std::env::var("WAYLAND_DISPLAY").unwrap_or_default();
    if name.is_empty() { "wayland-0".into() } else { name }
}

fn socket_path(name: &str) -> Result<PathBuf, String> {
    if Path::new(name).is_absolute() {
        return Ok(name.into());
    }
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(folder) if folder.is_absolute() => Ok(folder.join(name)),
        _ => Err(
            "XDG_RUNTIME_DIR, the folder of its socket, is not set: set it, or start this within the Wayland session"
                .into(),
        ),
    }
}

/// Connects without waiting, even if the compositor does not accept.
fn connect(path: &Path) -> Result<UnixStream, String> {
    let connected = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(UnixStream::from(socket))
    };
    connected().map_err(|error: rustix::io::Errno| format!("{}: {error}", path.display()))
}

/// A display that is being opened.
struct Opening {
    /// Its name for messages.
    name: String,
    end: Instant,
}

impl Opening {
    fn unavailable(&self, reason: String) -> DisplayError {
        DisplayError::Unavailable { name: self.name.clone(), reason }
    }

    fn no_shared_memory(&self, reason: String) -> DisplayError {
        DisplayError::NoSharedMemory { name: self.name.clone(), reason }
    }

    fn set_up(&self, path: &Path, request: &Request, with_dmabufs: bool) -> Result<Setup, DisplayError> {
        let stream = connect(path).map_err(|reason| self.unavailable(reason))?;
        let connection = Connection::from_socket(stream).map_err(|error| self.unavailable(error.to_string()))?;
        let mut queue = connection.new_event_queue();
        let handle = queue.handle();
        let mut state = State::new(request);
        connection.display().get_registry(&handle, ());
        // The second answer comes after the events of the interfaces that were bound before the first one.
        for answers in 1..=2 {
            connection.display().sync(&handle, Callback::Sync);
            self.wait_until(&mut queue, &mut state, |state| state.synchronized == answers)?;
        }
        state.buffers = Buffers::shared(request.mode, request.buffers)?;
        let dmabufs = if with_dmabufs { self.share_dmabufs(&mut queue, &mut state)? } else { None };
        let wl_buffers = dmabufs.map_or_else(|| self.share(&handle, &state), Ok)?;
        let lacks = |interface: &str| self.unavailable(format!("the compositor has no {interface}"));
        let compositor = state.globals.compositor.clone().ok_or_else(|| lacks("wl_compositor"))?;
        let wm_base = state.globals.wm_base.clone().ok_or_else(|| lacks(XdgWmBase::interface().name))?;
        let surface = compositor.create_surface(&handle, ());
        let xdg_surface = wm_base.get_xdg_surface(&surface, &handle, ());
        let toplevel = xdg_surface.get_toplevel(&handle, ());
        toplevel.set_title(title(&request.title));
        toplevel.set_app_id("shotline".into());
        let Mode { width, height, .. } = request.mode;
        toplevel.set_min_size(width as i32, height as i32);
        toplevel.set_max_size(width as i32, height as i32);
        if request.fullscreen {
            toplevel.set_fullscreen(None);
        }
        surface.commit();
        self.wait_until(&mut queue, &mut state, |state| state.configured)?;
        Ok(Setup { connection, queue, state, surface, wl_buffers })
    }

    /// Shares the memory of the frame buffers with the compositor as dma-bufs. `None` if that is not possible.
    fn share_dmabufs(
        &self,
        queue: &mut EventQueue<State>,
        state: &mut State,
    ) -> Result<Option<Vec<WlBuffer>>, DisplayError> {
        if !dmabuf::request(state, &queue.handle()) {
            return Ok(None);
        }
        self.wait_until(queue, state, dmabuf::has_answered)?;
        Ok(dmabuf::take(state))
    }

    /// Shares the memory of the frame buffers with the compositor.
    fn share(&self, handle: &QueueHandle<State>, state: &State) -> Result<Vec<WlBuffer>, DisplayError> {
        let lacks = |reason: &str| self.no_shared_memory(reason.into());
        let shm = state.globals.shm.as_ref().ok_or_else(|| lacks("the compositor has no wl_shm"))?;
        let all = state.buffers.all();
        let region = &all.first().ok_or_else(|| lacks("there is no frame buffer"))?.region;
        let fd = region.fd().ok_or_else(|| lacks("the frame buffers have no file descriptor"))?;
        let size = i32::try_from(region.len()).map_err(|_| {
            let reason = format!("expected at most {} bytes of frame buffers, found {}", i32::MAX, region.len());
            self.no_shared_memory(reason)
        })?;
        let pool = shm.create_pool(fd, size, handle, ());
        let Mode { width, height, .. } = state.mode;
        // No offset, stride or side exceeds the size of the pool.
        let create = |(index, buffer): (usize, &crate::FrameBuffer)| {
            let (offset, stride) = (buffer.offset as i32, buffer.stride as i32);
            pool.create_buffer(offset, width as i32, height as i32, stride, Format::Xrgb8888, handle, index.into())
        };
        let wl_buffers = all.iter().enumerate().map(create).collect();
        pool.destroy();
        Ok(wl_buffers)
    }

    /// Handles events until a condition is true.
    fn wait_until(
        &self,
        queue: &mut EventQueue<State>,
        state: &mut State,
        condition: impl Fn(&State) -> bool,
    ) -> Result<(), DisplayError> {
        loop {
            queue.dispatch_pending(state).map_err(|error| self.failed(dispatch_failed(error)))?;
            if condition(state) {
                return Ok(());
            }
            flush(queue).map_err(|error| self.failed(error))?;
            let left = self.end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.unavailable("the compositor has not answered in time".into()));
            }
            let Some(guard) = queue.prepare_read() else { continue };
            let timeout = Timespec::try_from(left).ok();
            // A signal ends the wait early, and the loop continues it.
            let _ = rustix::event::poll(
                &mut [PollFd::from_borrowed_fd(guard.connection_fd().as_fd(), PollFlags::IN)],
                timeout.as_ref(),
            );
            read(guard).map_err(|error| self.failed(error))?;
        }
    }

    /// Returns the error of opening for one of a connection.
    fn failed(&self, error: DisplayError) -> DisplayError {
        match error {
            DisplayError::Gone(reason) => self.unavailable(reason),
            other => other,
        }
    }
}

/// Returns the part of a title before a zero byte, which the protocol cannot pass, and of a length that it can.
fn title(text: &str) -> String {
    const MAX_CHARS: usize = 500;
    text.chars().take(MAX_CHARS).take_while(|char| *char != '\0').collect()
}

/// Sends requests. What the socket does not take now is sent by the next call: returns whether all was sent.
pub(super) fn flush(queue: &EventQueue<State>) -> Result<bool, DisplayError> {
    match queue.flush() {
        Err(WaylandError::Io(error)) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(false),
        sent => sent.map(|()| true).map_err(failed),
    }
}

/// Reads events without waiting. Returns whether there were any.
pub(super) fn read(guard: wayland_client::backend::ReadEventsGuard) -> Result<bool, DisplayError> {
    match guard.read() {
        Err(WaylandError::Io(error)) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(false),
        read => read.map(|_| true).map_err(failed),
    }
}

/// Returns the error of events that cannot be handled.
pub(super) fn dispatch_failed(error: DispatchError) -> DisplayError {
    match error {
        DispatchError::Backend(error) => failed(error),
        bad @ DispatchError::BadMessage { .. } => DisplayError::Refused(bad.to_string()),
    }
}

/// Returns the error of a connection.
fn failed(error: WaylandError) -> DisplayError {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
    match error {
        WaylandError::Io(error) if matches!(error.kind(), BrokenPipe | ConnectionReset) => {
            DisplayError::Gone("the compositor has closed the connection".into())
        }
        WaylandError::Io(error) => DisplayError::Gone(error.to_string()),
        WaylandError::Protocol(error) if error.object_interface.is_empty() => DisplayError::Refused(error.message),
        WaylandError::Protocol(error) => {
            DisplayError::Refused(format!("{} of {} (error {})", error.message, error.object_interface, error.code))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn compositor_that_does_not_answer_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("wayland-0");
        let _listener = UnixListener::bind(&socket).unwrap();
        let request = crate::conformance::request("2x2@60".parse().unwrap());
        let opened = Setup::new(socket.to_str(), &request, Duration::from_millis(1));
        let error = opened.err().unwrap().to_string();
        assert!(error.contains("has not answered in time") && error.contains("--display none"), "{error}");
    }

    #[test]
    fn title_that_the_protocol_cannot_pass_is_shortened() {
        assert_eq!((title("a\0b").as_str(), title(&"é".repeat(9000)).chars().count()), ("a", 500));
    }
}
