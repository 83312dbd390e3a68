//! X servers that lack something, stop, or go away.

use crate::xvfb::Xvfb;
use rustix::process::Signal;
use shotline_display::conformance::request;
use shotline_display::{Display, DisplayError, DisplayKind, Event, Mode};
use shotline_testing::{WAIT_TIMEOUT, or_skip, wait_until};
use std::time::Instant;

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
