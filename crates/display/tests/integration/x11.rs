//! X servers that lack something, stop, or go away.

use crate::xvfb::Xvfb;
use rustix::process::Signal;
use shotline_display::conformance::request;
use shotline_display::{Display, DisplayError, DisplayKind, Event, Mode};
use shotline_testing::{WAIT_TIMEOUT, or_skip, wait_until};
use std::time::Instant;
use x11rb::connection::Connection as _;
use x11rb::protocol::xproto::{ClientMessageEvent, ConfigureWindowAux, ConnectionExt as _, EventMask};
use x11rb::rust_connection::RustConnection;

const MODE: Mode = Mode { width: 320, height: 200, refresh_mhz: 60_000 };

fn open(server: &Xvfb) -> Result<Box<dyn Display>, DisplayError> {
    DisplayKind::X11(Some(server.name.clone())).open(&request(MODE))
}

/// Presents a frame and waits until it is shown.
fn show(display: &mut dyn Display, buffer: usize) {
    display.present(buffer, 0).unwrap();
    wait_until_shown(display);
}

fn wait_until_shown(display: &mut dyn Display) {
    let mut events = Vec::new();
    wait_until("the frame is shown", || {
        display.poll(&mut events).unwrap();
        events.iter().any(|event| matches!(event, Event::Shown(_)))
    });
}

#[test]
fn missing_server_is_reported_with_its_name() {
    let error = DisplayKind::X11(Some(":54321".into())).open(&request(MODE)).err().unwrap().to_string();
    assert!(error.contains("x11=:54321") && error.contains("--display none"), "{error}");
}

#[test]
fn server_without_shared_memory_is_refused() {
    let server = or_skip!(Xvfb::start(&["-extension", "MIT-SHM"]));
    match open(&server) {
        Err(DisplayError::NoSharedMemory { reason, .. }) => assert!(reason.contains("MIT-SHM"), "{reason}"),
        other => panic!("{:?}", other.err()),
    }
}

#[test]
fn screen_of_16_bits_is_refused_with_its_depth() {
    let server = or_skip!(Xvfb::start(&["-screen", "0", "800x600x16"]));
    let error = open(&server).err().unwrap().to_string();
    assert!(error.contains("found one of 16 bits"), "{error}");
}

#[test]
fn killed_server_is_reported_as_gone() {
    let mut server = or_skip!(Xvfb::start(&[]));
    let mut display = open(&server).unwrap();
    show(&mut *display, 0);
    server.kill();
    let end = Instant::now() + WAIT_TIMEOUT;
    let error = loop {
        if let Err(error) = display.poll(&mut Vec::new()) {
            break error;
        }
        assert!(Instant::now() < end, "no error");
    };
    assert!(matches!(error, DisplayError::Gone(_)), "{error}");
}

#[test]
fn server_that_stops_refreshing_continues_later() {
    let server = or_skip!(Xvfb::start(&[]));
    let mut display = open(&server).unwrap();
    show(&mut *display, 0);
    server.signal(Signal::STOP);
    display.present(1, 0).unwrap();
    let mut events = Vec::new();
    display.poll(&mut events).unwrap();
    assert!(!events.iter().any(|event| matches!(event, Event::Shown(_))), "{events:?}");
    server.signal(Signal::CONT);
    wait_until_shown(&mut *display);
}

/// Another client of the server, such as a window manager, and the window that is open.
fn other_client(server: &Xvfb) -> (RustConnection, u32) {
    let (connection, screen) = RustConnection::connect(Some(&server.name)).unwrap();
    let root = connection.setup().roots[screen].root;
    let windows = connection.query_tree(root).unwrap().reply().unwrap().children;
    let is_ours = |window: &u32| {
        let size = connection.get_geometry(*window).unwrap().reply().unwrap();
        (u32::from(size.width), u32::from(size.height)) == (MODE.width, MODE.height)
    };
    let window = windows.into_iter().find(is_ours).unwrap();
    (connection, window)
}

/// Waits for an event.
fn wait_for(display: &mut dyn Display, wanted: Event) {
    let mut events = Vec::new();
    wait_until("the event", || {
        display.poll(&mut events).unwrap();
        events.contains(&wanted)
    });
}

#[test]
fn window_that_is_resized_still_shows_frames() {
    let server = or_skip!(Xvfb::start(&[]));
    let mut display = open(&server).unwrap();
    let (other, window) = other_client(&server);
    for (buffer, size) in [(0, (100, 50)), (1, (700, 500))] {
        let values = ConfigureWindowAux::new().width(size.0).height(size.1);
        other.configure_window(window, &values).unwrap().check().unwrap();
        wait_for(&mut *display, Event::Resized(size.0, size.1));
        show(&mut *display, buffer);
    }
}

#[test]
fn request_of_the_window_manager_closes_the_window() {
    let server = or_skip!(Xvfb::start(&[]));
    let mut display = open(&server).unwrap();
    let (other, window) = other_client(&server);
    let atom = |name: &[u8]| other.intern_atom(false, name).unwrap().reply().unwrap().atom;
    let message = ClientMessageEvent::new(32, window, atom(b"WM_PROTOCOLS"), [atom(b"WM_DELETE_WINDOW"), 0, 0, 0, 0]);
    other.send_event(false, window, EventMask::NO_EVENT, message).unwrap().check().unwrap();
    wait_for(&mut *display, Event::Closed);
}

#[test]
fn destroyed_window_is_closed() {
    let server = or_skip!(Xvfb::start(&[]));
    let mut display = open(&server).unwrap();
    let (other, window) = other_client(&server);
    other.destroy_window(window).unwrap().check().unwrap();
    wait_for(&mut *display, Event::Closed);
}
