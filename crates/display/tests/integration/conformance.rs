//! The conformance suite on every display.

use crate::compositors::Compositor;
use crate::xvfb::Xvfb;
use shotline_display::conformance::{Fixture, run};
use shotline_display::{Display, DisplayError, DisplayKind, Mode, Request};
use shotline_testing::or_skip;

const MODE: Mode = Mode { width: 320, height: 200, refresh_mhz: 60_000 };

impl Fixture for Opened {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn open(&self, request: &Request) -> Result<Box<dyn Display>, DisplayError> {
        self.0.open(request)
    }
}

/// Displays that are opened by their entry in the registry.
struct Opened(DisplayKind);

#[test]
fn no_display_conforms() {
    run(&Opened(DisplayKind::None(None)), MODE).expect_conformance();
}

#[test]
fn folder_of_png_files_conforms() {
    let folder = tempfile::tempdir().unwrap();
    run(&Opened(DisplayKind::None(Some(folder.path().into()))), MODE).expect_conformance();
}

#[test]
fn window_of_an_x_server_conforms() {
    let server = or_skip!(Xvfb::start(&[]));
    run(&Opened(DisplayKind::X11(Some(server.name.clone()))), MODE).expect_conformance();
}

#[test]
fn window_of_weston_conforms() {
    let compositor = or_skip!(Compositor::weston(&[]));
    run(&Opened(compositor.display()), MODE).expect_conformance();
}

#[test]
fn window_of_sway_conforms() {
    let compositor = or_skip!(Compositor::sway());
    run(&Opened(compositor.display()), MODE).expect_conformance();
}
