//! Wayland compositors that are missing, stop, hide or close the window, or go away; and the pixels that they show.

use crate::compositors::{Compositor, SCREEN};
use rustix::process::Signal;
use shotline_display::conformance::request;
use shotline_display::{Display, DisplayError, DisplayKind, Event, Mode, PIXEL_BYTES, Request, Shown};
use shotline_testing::{or_skip, wait_until, wait_until_some};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;

const MODE: Mode = Mode { width: 320, height: 200, refresh_mhz: 60_000 };
const WHOLE_SCREEN: Mode = Mode { width: SCREEN.0, height: SCREEN.1, refresh_mhz: 60_000 };

fn open(compositor: &Compositor) -> Box<dyn Display> {
    compositor.display().open(&request(MODE)).unwrap()
}

fn shown(events: &[Event]) -> Vec<Shown> {
    events.iter().filter_map(|event| if let Event::Shown(shown) = event { Some(*shown) } else { None }).collect()
}

/// Presents a frame at the first possible refresh and waits until it is shown.
fn show(display: &mut dyn Display, buffer: usize) -> Shown {
    display.present(buffer, 0).unwrap();
    wait_until_shown(display)
}

fn wait_until_shown(display: &mut dyn Display) -> Shown {
    let mut events = Vec::new();
    wait_until_some("the frame is shown", || {
        display.poll(&mut events).unwrap();
        shown(&events).first().copied()
    })
}

fn wait_for(display: &mut dyn Display, wanted: Event) {
    let mut events = Vec::new();
    wait_until(&format!("{wanted:?}"), || {
        display.poll(&mut events).unwrap();
        events.contains(&wanted)
    });
}

/// Waits until the display has failed, and returns why.
fn failure(display: &mut dyn Display) -> DisplayError {
    wait_until_some("the display has failed", || display.poll(&mut Vec::new()).err())
}

#[test]
fn missing_compositor_is_reported_with_its_socket() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("wayland-7");
    let open = || DisplayKind::Wayland(Some(socket.to_str().unwrap().into())).open(&request(MODE)).err().unwrap();
    for found in ["No such file", "Connection refused"] {
        let error = open().to_string();
        assert!(error.contains("wayland-7") && error.contains(found), "{error}");
        assert!(error.contains("--display none"), "{error}");
        // A socket on which no process listens any more.
        drop(UnixListener::bind(&socket));
    }
}

#[test]
fn socket_whose_owner_closes_connections_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("wayland-7");
    let listener = UnixListener::bind(&socket).unwrap();
    let accepting = std::thread::spawn(move || drop(listener.accept().unwrap()));
    let error = DisplayKind::Wayland(Some(socket.to_str().unwrap().into())).open(&request(MODE)).err().unwrap();
    accepting.join().unwrap();
    assert!(error.to_string().contains("the compositor has closed the connection"), "{error}");
}

/// A message of the wire protocol: object, opcode, and arguments.
fn message(object: u32, opcode: u32, arguments: &[u8]) -> Vec<u8> {
    let size = 8 + arguments.len() as u32;
    [&object.to_ne_bytes(), &(size << 16 | opcode).to_ne_bytes(), arguments].concat()
}

/// Opens a window of a compositor that sends one of these after each of the first requests, and returns why that failed.
fn refusal(answers: &[Vec<u8>]) -> DisplayError {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("wayland-7");
    let listener = UnixListener::bind(&socket).unwrap();
    listener.set_nonblocking(true).unwrap();
    let display = DisplayKind::Wayland(Some(socket.to_str().unwrap().into()));
    let opening = std::thread::spawn(move || display.open(&request(MODE)).err().unwrap());
    wait_until("the window is refused", || {
        // It connects again, without dma-bufs.
        if let Ok((mut stream, _)) = listener.accept() {
            stream.set_nonblocking(false).unwrap();
            for answer in answers {
                let _ = stream.read(&mut [0; 4096]).unwrap();
                stream.write_all(answer).unwrap();
            }
            // Until it closes the connection.
            let _ = stream.read_to_end(&mut Vec::new());
        }
        opening.is_finished()
    });
    opening.join().unwrap()
}

#[test]
fn compositor_without_shared_memory_is_refused() {
    // Requests create objects 2 (registry), and 3 and 4, which wait for answers (wl_callback.done).
    let done = [3, 4].map(|object| message(object, 0, &[0; 4]));
    match refusal(&done) {
        DisplayError::NoSharedMemory { reason, .. } => assert!(reason.contains("no wl_shm"), "{reason}"),
        other => panic!("{other}"),
    }
}

#[test]
fn error_of_the_compositor_is_reported_with_its_text() {
    // wl_display.error: object, code, text with its length.
    let arguments = [&1_u32.to_ne_bytes()[..], &7_u32.to_ne_bytes(), &8_u32.to_ne_bytes(), b"too bad\0"].concat();
    match refusal(&[message(1, 0, &arguments)]) {
        DisplayError::Refused(text) => assert_eq!(text, "too bad of wl_display (error 7)"),
        other => panic!("{other}"),
    }
}

#[test]
fn malformed_message_of_the_compositor_is_refused() {
    for bytes in [message(77, 0, &[]), message(1, 9, &[])] {
        let error = refusal(&[bytes]);
        assert!(matches!(error, DisplayError::Refused(_)), "{error}");
    }
}

#[test]
fn killed_compositor_is_reported_as_gone() {
    let mut compositor = or_skip!(Compositor::weston(&[]));
    let mut display = open(&compositor);
    show(&mut *display, 0);
    compositor.kill();
    let error = failure(&mut *display);
    assert!(matches!(error, DisplayError::Gone(_)), "{error}");
}

#[test]
fn compositor_that_stops_refreshing_continues_later() {
    let compositor = or_skip!(Compositor::weston(&[]));
    let mut display = open(&compositor);
    show(&mut *display, 0);
    compositor.signal(Signal::STOP);
    display.present(1, 0).unwrap();
    let mut events = Vec::new();
    display.poll(&mut events).unwrap();
    assert!(shown(&events).is_empty(), "{events:?}");
    compositor.signal(Signal::CONT);
    assert_eq!(wait_until_shown(&mut *display).buffer, 1);
}

/// Shows frames of half the refresh rate, each presented when the one before was shown.
fn frames_of_half_the_rate(display: &mut dyn Display) {
    let interval = display.mode().interval();
    let first = show(display, 0);
    let mut before = first;
    let mut events = Vec::new();
    for n in 1..20 {
        let buffer = n % 3;
        let due = before.refresh + 2;
        wait_until("the buffer is free", || {
            display.poll(&mut events).unwrap();
            n < 3 || events.iter().filter(|event| **event == Event::Released(buffer)).count() == n / 3
        });
        display.present(buffer, due).unwrap();
        let now = wait_until_some("the frame is shown", || {
            display.poll(&mut events).unwrap();
            shown(&events).get(n - 1).copied()
        });
        assert_eq!(now.buffer, buffer);
        assert!(now.refresh >= due, "refresh {} of frame {n}, due {due}", now.refresh);
        // The refresh before the due one has passed. A compositor's timer may lack a part of the interval.
        assert!(now.at - before.at > interval * 3 / 4, "{:?} after {:?} in frame {n}", now.at, before.at);
        before = now;
    }
    assert!(!events.iter().any(|event| matches!(event, Event::Skipped(_))), "{events:?}");
}

#[test]
fn weston_shows_no_frame_of_half_the_rate_early() {
    let compositor = or_skip!(Compositor::weston(&[]));
    frames_of_half_the_rate(&mut *open(&compositor));
}

#[test]
fn sway_shows_no_frame_of_half_the_rate_early() {
    let compositor = or_skip!(Compositor::sway());
    frames_of_half_the_rate(&mut *open(&compositor));
}

#[test]
fn size_of_a_tile_is_reported_and_frames_keep_theirs() {
    let compositor = or_skip!(Compositor::sway());
    let mut display = open(&compositor);
    show(&mut *display, 0);
    or_skip!(compositor.client("swaymsg", &["[app_id=shotline]", "floating", "disable"]));
    wait_for(&mut *display, Event::Resized(SCREEN.0, SCREEN.1));
    show(&mut *display, 1);
    assert_eq!((display.mode().width, display.mode().height), (MODE.width, MODE.height));
}

#[test]
fn hidden_window_shows_nothing_until_it_is_visible() {
    let compositor = or_skip!(Compositor::sway());
    let mut display = open(&compositor);
    let first = show(&mut *display, 0);
    or_skip!(compositor.client("swaymsg", &["workspace", "2"]));
    display.present(1, first.refresh + 2).unwrap();
    display.present(2, first.refresh + 4).unwrap();
    let mut events = Vec::new();
    // Waits as a program does: for the descriptor or the time. It must come to rest.
    let mut polls = 0;
    loop {
        display.poll(&mut events).unwrap();
        let timeout = display.timeout();
        let fd = display.fd().unwrap();
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(fd, rustix::event::PollFlags::IN)];
        let half = std::time::Duration::from_millis(500);
        let timeout = rustix::event::Timespec::try_from(timeout.unwrap_or(half)).unwrap();
        if rustix::event::poll(&mut fds, Some(&timeout)).unwrap() == 0 && display.timeout().is_none() {
            break;
        }
        polls += 1;
        assert!(polls < 1000, "no rest: {events:?}");
    }
    assert!(shown(&events).is_empty(), "{events:?}");
    or_skip!(compositor.client("swaymsg", &["workspace", "1"]));
    wait_until("both frames are shown", || {
        display.poll(&mut events).unwrap();
        shown(&events).len() == 2
    });
    assert_eq!(shown(&events).iter().map(|shown| shown.buffer).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn closed_window_is_reported() {
    let compositor = or_skip!(Compositor::sway());
    let mut display = open(&compositor);
    show(&mut *display, 0);
    or_skip!(compositor.client("swaymsg", &["[app_id=shotline]", "kill"]));
    wait_for(&mut *display, Event::Closed);
}

#[test]
fn frames_larger_than_the_screen_are_shown() {
    let compositor = or_skip!(Compositor::weston(&[]));
    let mode = Mode { width: SCREEN.0 + 7, height: SCREEN.1 + 9, ..MODE };
    let wanted = Request { fullscreen: true, ..request(mode) };
    let mut display = compositor.display().open(&wanted).unwrap();
    show(&mut *display, 0);
    show(&mut *display, 1);
}

/// Writes colours into the pixels of a buffer, with this ignored byte, and returns their red, green and blue.
fn paint(display: &dyn Display, buffer: usize, ignored: u8) -> Vec<u8> {
    let mode = display.mode();
    let frame = &display.buffers()[buffer];
    let mut colours = Vec::new();
    for y in 0..mode.height {
        let mut row = Vec::with_capacity(mode.width as usize * PIXEL_BYTES);
        for x in 0..mode.width {
            let [red, green, blue] = [x as u8, y as u8, (x / 256 * 16 + y / 256 + buffer as u32 * 64) as u8];
            row.extend([blue, green, red, ignored]);
            colours.extend([red, green, blue]);
        }
        frame.region.write(frame.offset + y as usize * frame.stride, &row);
    }
    colours
}

/// Compares the red, green and blue of all pixels.
fn assert_same(found: &[u8], expected: &[u8]) {
    let differ = |(found, expected): &(&[u8], &[u8])| found != expected;
    let differing: Vec<_> =
        found.chunks(3).zip(expected.chunks(3)).enumerate().filter(|(_, pair)| differ(pair)).collect();
    assert_eq!(found.len(), expected.len());
    assert!(
        differing.is_empty(),
        "{} pixels differ, the first and the last: {:?}",
        differing.len(),
        [differing.first(), differing.last()]
    );
}

fn open_fullscreen(compositor: &Compositor) -> Box<dyn Display> {
    compositor.display().open(&Request { fullscreen: true, ..request(WHOLE_SCREEN) }).unwrap()
}

#[test]
fn sway_shows_the_pixels_of_the_presented_buffer() {
    let compositor = or_skip!(Compositor::sway());
    let mut display = open_fullscreen(&compositor);
    for buffer in 0..3 {
        let colours = paint(&*display, buffer, 0);
        show(&mut *display, buffer);
        let image = or_skip!(compositor.client("grim", &["-t", "ppm", "-"]));
        let header = format!("P6\n{} {}\n255\n", SCREEN.0, SCREEN.1);
        assert!(image.starts_with(header.as_bytes()));
        assert_same(&image[header.len()..], &colours);
    }
}

/// Returns the red, green and blue of all pixels of a weston's screen, or why there is no program that does.
fn screen_of_weston(compositor: &Compositor) -> Result<Vec<u8>, String> {
    compositor.client("weston-screenshooter", &[])?;
    let files = || std::fs::read_dir(compositor.folder()).unwrap().map(|entry| entry.unwrap().path());
    let file = files().find(|path| path.extension().is_some_and(|extension| extension == "png")).unwrap();
    let png = std::io::BufReader::new(std::fs::File::open(&file).unwrap());
    let mut reader = png::Decoder::new(png).read_info().unwrap();
    let mut image = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut image).unwrap();
    assert_eq!((info.width, info.height), SCREEN);
    std::fs::remove_file(file).unwrap();
    let pixel = info.buffer_size() / (info.width * info.height) as usize;
    Ok(image.chunks_exact(pixel).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect())
}

#[test]
fn weston_shows_the_pixels_of_the_presented_buffer() {
    // The option permits screenshots.
    let compositor = or_skip!(Compositor::weston(&["--debug"]));
    let mut display = open_fullscreen(&compositor);
    // weston-screenshooter takes the ignored byte for the opacity.
    let colours = paint(&*display, 1, 255);
    show(&mut *display, 1);
    // The screen is black until its background is ready.
    let screen = wait_until_some("the screen is not black", || {
        let screen = screen_of_weston(&compositor);
        screen.as_ref().map_or(true, |pixels| pixels.iter().any(|byte| *byte != 0)).then_some(screen)
    });
    assert_same(&or_skip!(screen), &colours);
}
