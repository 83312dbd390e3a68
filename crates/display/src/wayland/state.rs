//! What the compositor has announced, and its events.

use super::schedule::Schedule;
use crate::buffers::Buffers;
use crate::mode::MAX_REFRESH;
use crate::{Event, Mode, Request};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use wayland_client::protocol::wl_buffer::{self, WlBuffer};
use wayland_client::protocol::wl_callback::{self, WlCallback};
use wayland_client::protocol::wl_compositor::WlCompositor;
use wayland_client::protocol::wl_output::{self, WlOutput};
use wayland_client::protocol::wl_registry::{self, WlRegistry};
use wayland_client::protocol::wl_shm::{self, WlShm};
use wayland_client::protocol::wl_shm_pool::WlShmPool;
use wayland_client::protocol::wl_surface::{self, WlSurface};
use wayland_client::{Connection, Dispatch, Proxy, QueueHandle, WEnum};
use wayland_protocols::wp::linux_dmabuf::zv1::client::zwp_linux_dmabuf_v1::ZwpLinuxDmabufV1;
use wayland_protocols::wp::presentation_time::client::wp_presentation::{self, WpPresentation};
use wayland_protocols::wp::presentation_time::client::wp_presentation_feedback::{self, WpPresentationFeedback};
use wayland_protocols::xdg::shell::client::xdg_surface::{self, XdgSurface};
use wayland_protocols::xdg::shell::client::xdg_toplevel::{self, XdgToplevel};
use wayland_protocols::xdg::shell::client::xdg_wm_base::{self, XdgWmBase};

/// Version of linux-dmabuf whose events are formats with their modifiers.
const DMABUF_VERSION: u32 = 3;

/// What a [`WlCallback`] is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Callback {
    /// The compositor has handled all requests before this one.
    Sync,
    /// The compositor has composed with the commit of this serial number.
    Frame(u64),
}

/// Interfaces of the compositor that are used.
#[derive(Debug, Default)]
pub(super) struct Globals {
    pub compositor: Option<WlCompositor>,
    pub shm: Option<WlShm>,
    pub wm_base: Option<XdgWmBase>,
    pub presentation: Option<WpPresentation>,
    /// Screens, with their refresh rates in mHz (0 if not known).
    outputs: Vec<(WlOutput, u32)>,
}

/// What the compositor does with dma-bufs.
#[derive(Debug, Default)]
pub(super) struct Dmabufs {
    pub interface: Option<ZwpLinuxDmabufV1>,
    /// Whether it takes rows of pixels, one after another.
    pub is_linear: bool,
    /// Buffers that it has made of dma-bufs.
    pub created: Vec<WlBuffer>,
    /// Whether it refused one.
    pub has_failed: bool,
}

/// State that events change.
#[derive(Debug)]
pub(super) struct State {
    pub globals: Globals,
    pub dmabufs: Dmabufs,
    /// Number of answers to [`Callback::Sync`].
    pub synchronized: u32,
    /// Whether the window may have a buffer.
    pub configured: bool,
    /// Whether a commit is needed to apply what the compositor has chosen.
    pub is_unapplied: bool,
    pub mode: Mode,
    pub buffers: Buffers,
    pub schedule: Schedule,
    pub events: Vec<Event>,
    /// Screen that the window is on.
    entered: Option<WlOutput>,
    /// Whether the refresh rate is that of a presentation, which is more precise than that of a screen's mode.
    is_measured: bool,
    /// Size that the compositor has chosen, in pixels.
    size: (u32, u32),
    /// Size of the next [`xdg_surface::Event::Configure`], and whether it is that of a screen.
    pending: ((u32, u32), bool),
    start: Instant,
}

impl State {
    pub(super) fn new(request: &Request) -> Self {
        let mode = request.mode;
        Self {
            globals: Globals::default(),
            dmabufs: Dmabufs::default(),
            synchronized: 0,
            configured: false,
            is_unapplied: false,
            mode,
            buffers: Buffers::new(Vec::new()),
            schedule: Schedule::new(mode),
            events: Vec::new(),
            entered: None,
            is_measured: false,
            size: (mode.width, mode.height),
            pending: ((0, 0), false),
            start: Instant::now(),
        }
    }

    /// Uses the refresh rate of the screen that the window is on, or of the first one.
    fn use_rate_of_screen(&mut self) {
        let outputs = &self.globals.outputs;
        let entered = outputs.iter().find(|(output, _)| Some(output) == self.entered.as_ref());
        if let Some((_, mhz)) = entered.or(outputs.first())
            && !self.is_measured
        {
            self.set_rate(*mhz);
        }
    }

    fn set_rate(&mut self, mhz: u32) {
        if (1..=MAX_REFRESH).contains(&mhz) {
            self.mode.refresh_mhz = mhz;
            self.schedule.set_interval(self.mode.interval());
        }
    }

    /// Records that the compositor has composed with a commit. It does not report when it becomes visible, which is close to now.
    fn composed(&mut self, serial: u64, when: Instant) {
        self.show(serial, when.saturating_duration_since(self.start), 0, when);
    }

    fn show(&mut self, serial: u64, at: Duration, counter: u64, now: Instant) {
        self.events.extend(self.schedule.unreported(serial).into_iter().map(Event::Skipped));
        let shown = self.schedule.presented(serial, at, counter, now);
        self.events.extend(shown.map(Event::Shown));
    }

    /// Does without reports of refreshes if the compositor offers them, but does not send any.
    pub(super) fn check_silence(&mut self) {
        if let Some(commits) = self.schedule.silent(Instant::now()) {
            self.globals.presentation = None;
            commits.into_iter().for_each(|(serial, when)| self.composed(serial, when));
        }
    }

    /// Records that a commit became visible. `interval` is the time to the next refresh; 0 is unknown.
    fn presented(&mut self, serial: u64, at: Duration, interval: u32, counter: u64) {
        if interval > 0 {
            // No overflow: the quotient is at most 10^12, and what does not fit is refused as a rate.
            let mhz = (1_000_000_000_000 + u64::from(interval) / 2) / u64::from(interval);
            self.is_measured = true;
            self.set_rate(u32::try_from(mhz).unwrap_or(0));
        }
        self.show(serial, at, counter, Instant::now());
    }
}

impl Dispatch<WlRegistry, ()> for State {
    fn event(
        state: &mut Self,
        registry: &WlRegistry,
        event: wl_registry::Event,
        (): &(),
        _: &Connection,
        queue: &QueueHandle<Self>,
    ) {
        let wl_registry::Event::Global { name, interface, version } = event else { return };
        let globals = &mut state.globals;
        let is = |wanted: &wayland_client::backend::protocol::Interface| interface == wanted.name;
        if is(WlCompositor::interface()) {
            globals.compositor = Some(registry.bind(name, version.min(4), queue, ()));
        } else if is(WlShm::interface()) {
            globals.shm = Some(registry.bind(name, 1, queue, ()));
        } else if is(XdgWmBase::interface()) {
            globals.wm_base = Some(registry.bind(name, 1, queue, ()));
        } else if is(WpPresentation::interface()) {
            globals.presentation = Some(registry.bind(name, version.min(2), queue, ()));
        } else if is(ZwpLinuxDmabufV1::interface()) && version >= DMABUF_VERSION {
            state.dmabufs.interface = Some(registry.bind(name, DMABUF_VERSION, queue, ()));
        } else if is(WlOutput::interface()) {
            globals.outputs.push((registry.bind(name, version.min(2), queue, ()), 0));
        }
    }
}

impl Dispatch<WlOutput, ()> for State {
    fn event(
        state: &mut Self,
        output: &WlOutput,
        event: wl_output::Event,
        (): &(),
        _: &Connection,
        _: &QueueHandle<Self>,
    ) {
        let wl_output::Event::Mode { flags: WEnum::Value(flags), refresh, .. } = event else { return };
        if !flags.contains(wl_output::Mode::Current) {
            return;
        }
        if let Some((_, mhz)) = state.globals.outputs.iter_mut().find(|(known, _)| known == output) {
            *mhz = u32::try_from(refresh).unwrap_or(0);
        }
        state.use_rate_of_screen();
    }
}

impl Dispatch<WlCallback, Callback> for State {
    fn event(
        state: &mut Self,
        _: &WlCallback,
        event: wl_callback::Event,
        callback: &Callback,
        _: &Connection,
        _: &QueueHandle<Self>,
    ) {
        let wl_callback::Event::Done { .. } = event else { return };
        match (callback, &state.globals.presentation) {
            (Callback::Sync, _) => state.synchronized += 1,
            (Callback::Frame(serial), Some(_)) => state.schedule.latched(*serial, Instant::now()),
            (Callback::Frame(serial), None) => state.composed(*serial, Instant::now()),
        }
    }
}

/// A value of two parts.
fn joined(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

impl Dispatch<WpPresentationFeedback, u64> for State {
    fn event(
        state: &mut Self,
        _: &WpPresentationFeedback,
        event: wp_presentation_feedback::Event,
        serial: &u64,
        _: &Connection,
        _: &QueueHandle<Self>,
    ) {
        use wp_presentation_feedback::Event as Feedback;
        match event {
            Feedback::Presented { tv_sec_hi, tv_sec_lo, tv_nsec, refresh, seq_hi, seq_lo, .. } => {
                let at = Duration::from_secs(joined(tv_sec_hi, tv_sec_lo));
                let at = at.saturating_add(Duration::from_nanos(tv_nsec.into()));
                state.presented(*serial, at, refresh, joined(seq_hi, seq_lo));
            }
            Feedback::Discarded => {
                let skipped = state.schedule.discarded(*serial);
                state.events.extend(skipped.map(Event::Skipped));
            }
            _ => {}
        }
    }
}

/// The number of a frame buffer.
impl Dispatch<WlBuffer, OnceLock<usize>> for State {
    fn event(
        state: &mut Self,
        _: &WlBuffer,
        event: wl_buffer::Event,
        index: &OnceLock<usize>,
        _: &Connection,
        _: &QueueHandle<Self>,
    ) {
        if let (wl_buffer::Event::Release, Some(index)) = (event, index.get().copied())
            && state.buffers.release(index)
        {
            state.events.push(Event::Released(index));
        }
    }
}

impl Dispatch<WlSurface, ()> for State {
    fn event(
        state: &mut Self,
        _: &WlSurface,
        event: wl_surface::Event,
        (): &(),
        _: &Connection,
        _: &QueueHandle<Self>,
    ) {
        if let wl_surface::Event::Enter { output } = event {
            state.entered = Some(output);
            state.use_rate_of_screen();
        }
    }
}

impl Dispatch<XdgWmBase, ()> for State {
    fn event(
        _: &mut Self,
        wm_base: &XdgWmBase,
        event: xdg_wm_base::Event,
        (): &(),
        _: &Connection,
        _: &QueueHandle<Self>,
    ) {
        if let xdg_wm_base::Event::Ping { serial } = event {
            wm_base.pong(serial);
        }
    }
}

impl Dispatch<XdgToplevel, ()> for State {
    fn event(
        state: &mut Self,
        _: &XdgToplevel,
        event: xdg_toplevel::Event,
        (): &(),
        _: &Connection,
        _: &QueueHandle<Self>,
    ) {
        match event {
            xdg_toplevel::Event::Configure { width, height, states } => {
                let side = |side: i32| u32::try_from(side).unwrap_or(0);
                let fullscreen = xdg_toplevel::State::Fullscreen as u32;
                let is_fullscreen = states.chunks_exact(4).any(|word| word == fullscreen.to_ne_bytes());
                state.pending = ((side(width), side(height)), is_fullscreen);
            }
            xdg_toplevel::Event::Close => state.events.push(Event::Closed),
            _ => {}
        }
    }
}

impl Dispatch<XdgSurface, ()> for State {
    fn event(
        state: &mut Self,
        surface: &XdgSurface,
        event: xdg_surface::Event,
        (): &(),
        _: &Connection,
        _: &QueueHandle<Self>,
    ) {
        let xdg_surface::Event::Configure { serial } = event else { return };
        surface.ack_configure(serial);
        (state.configured, state.is_unapplied) = (true, true);
        let own = (state.mode.width, state.mode.height);
        // A side of 0 leaves it to the window.
        let ((width, height), is_fullscreen) = state.pending;
        let size = (if width == 0 { own.0 } else { width }, if height == 0 { own.1 } else { height });
        if size != state.size {
            state.size = size;
            state.events.push(Event::Resized(size.0, size.1));
        }
        // A window that is larger than its screen would be a protocol error: its rest is not part of it.
        let (width, height) = if is_fullscreen { (own.0.min(size.0), own.1.min(size.1)) } else { own };
        surface.set_window_geometry(0, 0, width as i32, height as i32);
    }
}

/// Interfaces whose events do not matter here.
macro_rules! ignore_events {
    ($($interface:ty: $event:ty),*) => {$(
        impl Dispatch<$interface, ()> for State {
            fn event(_: &mut Self, _: &$interface, _: $event, (): &(), _: &Connection, _: &QueueHandle<Self>) {}
        }
    )*};
}
ignore_events!(
    WlCompositor: <WlCompositor as Proxy>::Event,
    WlShm: wl_shm::Event,
    WlShmPool: <WlShmPool as Proxy>::Event,
    WpPresentation: wp_presentation::Event
);
