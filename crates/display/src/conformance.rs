//! Conformance suite of displays: named checks on an open display of any kind.

use crate::{Display, DisplayError, Event, FrameBuffer, Mode, PIXEL_BYTES, Request, Shown};
use shotline_conformance::{Failure, Outcome, Report, ensure, ensure_eq, failed};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// A source of displays of one kind.
pub trait Fixture {
    /// Returns the name of the kind in reports.
    fn name(&self) -> &str;
    /// Opens a new display.
    ///
    /// # Errors
    /// As [`DisplayKind::open`](crate::DisplayKind::open).
    fn open(&self, request: &Request) -> Result<Box<dyn Display>, DisplayError>;
}

/// A requirement on displays, and the function that checks it.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// The requirement, as a sentence.
    pub name: &'static str,
    /// Function that checks the requirement.
    pub run: fn(&mut dyn Display) -> Result<(), Failure>,
}

/// All checks.
pub const CHECKS: &[Check] = &[
    check("frame buffers hold the frames of the mode, and do not overlap", memory),
    check("frame buffers can be written by copies", writable),
    check("every presented frame is shown and its buffer released when the next one is shown", alternating),
    check("no frame is shown before the refresh at which it is due", due),
    check("frames that wait at the same time are shown in their order", queued),
    check("a buffer that the display uses is not presented again", in_use),
    check("a buffer that does not exist is refused", no_such),
];

const fn check(name: &'static str, run: fn(&mut dyn Display) -> Result<(), Failure>) -> Check {
    Check { name, run }
}

/// Time in which an event must occur. It is long because machines of tests can be slow; no check takes a part of it.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What the displays of the suite are opened with.
pub fn request(mode: Mode) -> Request {
    Request { mode, buffers: 3, title: "conformance".into(), fullscreen: false, replace: true, unchecked_rows: 0 }
}

/// Runs every check on a new display of a fixture.
pub fn run(fixture: &dyn Fixture, mode: Mode) -> Report {
    let outcome = |check: &Check| match fixture.open(&request(mode)) {
        Ok(mut display) => Outcome::of((check.run)(&mut *display)),
        Err(error) => Outcome::Failed(error.to_string()),
    };
    Report {
        member: fixture.name().into(),
        outcomes: CHECKS.iter().map(|check| (check.name, outcome(check))).collect(),
    }
}

/// Polls, and waits in between, until a function has what it wants of the events.
fn wait_for<T>(
    display: &mut dyn Display,
    what: &str,
    events: &mut Vec<Event>,
    mut wanted: impl FnMut(&[Event]) -> Option<T>,
) -> Result<T, Failure> {
    let end = Instant::now() + TIMEOUT;
    loop {
        display.poll(events).map_err(failed("poll"))?;
        if let Some(found) = wanted(events) {
            return Ok(found);
        }
        ensure!(Instant::now() < end, "{what} has not occurred within {TIMEOUT:?}: {events:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn shown(events: &[Event]) -> Vec<Shown> {
    events.iter().filter_map(|event| if let Event::Shown(shown) = event { Some(*shown) } else { None }).collect()
}

/// Waits until a buffer was shown for the nth time in all.
fn nth_shown(display: &mut dyn Display, events: &mut Vec<Event>, n: usize) -> Result<Shown, Failure> {
    wait_for(display, "a frame that is shown", events, |events| shown(events).get(n).copied())
}

fn memory(display: &mut dyn Display) -> Result<(), Failure> {
    let mode = display.mode();
    ensure!(mode.width > 0 && mode.height > 0 && mode.refresh_mhz > 0, "the mode is {mode}");
    ensure_eq!(display.buffers().len(), 3, "buffers");
    let mut ranges = BTreeSet::new();
    for FrameBuffer { region, offset, stride } in display.buffers() {
        ensure_eq!(*stride, display.buffers()[0].stride, "stride");
        ensure!(*stride >= mode.width as usize * PIXEL_BYTES, "a row has {stride} bytes in {mode}");
        let bytes = stride * mode.height as usize;
        ensure!(offset + bytes <= region.len(), "{offset} + {bytes} bytes in a region of {}", region.len());
        let key = std::sync::Arc::as_ptr(region).addr();
        let overlaps = |(other, at): &(usize, usize)| *other == key && at.abs_diff(*offset) < bytes;
        ensure!(!ranges.iter().any(overlaps), "two buffers overlap");
        ranges.insert((key, *offset));
    }
    Ok(())
}

fn writable(display: &mut dyn Display) -> Result<(), Failure> {
    for (index, FrameBuffer { region, offset, stride }) in display.buffers().iter().enumerate() {
        ensure!(region.is_writable(), "buffer {index} is read-only");
        region.write(*offset, &vec![index as u8 + 1; *stride]);
    }
    for (index, FrameBuffer { region, offset, stride }) in display.buffers().iter().enumerate() {
        let mut row = vec![0; *stride];
        region.read(*offset, &mut row);
        ensure!(row.iter().all(|byte| *byte == index as u8 + 1), "a row of buffer {index} was not written");
    }
    Ok(())
}

fn alternating(display: &mut dyn Display) -> Result<(), Failure> {
    let mut events = Vec::new();
    let mut last = 0;
    for n in 0..6 {
        let buffer = n % 2;
        if n >= 2 {
            // It must not depend on the order of the events of different buffers.
            let released = |events: &[Event]| {
                (events.iter().filter(|event| **event == Event::Released(buffer)).count() == n / 2).then_some(())
            };
            wait_for(display, "the release of a buffer", &mut events, released)?;
        }
        display.present(buffer, 0).map_err(failed("present"))?;
        let shown = nth_shown(display, &mut events, n)?;
        ensure_eq!(shown.buffer, buffer, "the shown buffer");
        ensure!(n == 0 || shown.refresh > last, "refresh {} follows {last}", shown.refresh);
        last = shown.refresh;
    }
    ensure!(!events.iter().any(|event| matches!(event, Event::Skipped(_))), "a frame was skipped: {events:?}");
    Ok(())
}

fn due(display: &mut dyn Display) -> Result<(), Failure> {
    let mut events = Vec::new();
    display.present(0, 0).map_err(failed("present"))?;
    let first = nth_shown(display, &mut events, 0)?;
    let wanted = first.refresh + 5;
    display.present(1, wanted).map_err(failed("present"))?;
    let second = nth_shown(display, &mut events, 1)?;
    ensure!(second.refresh >= wanted, "refresh {}, due {wanted}", second.refresh);
    ensure!(second.at > first.at, "the time {:?} follows {:?}", second.at, first.at);
    Ok(())
}

fn queued(display: &mut dyn Display) -> Result<(), Failure> {
    let mut events = Vec::new();
    display.present(0, 0).map_err(failed("present"))?;
    let first = nth_shown(display, &mut events, 0)?.refresh;
    for (buffer, due) in [(1, first + 20), (2, first + 23)] {
        display.present(buffer, due).map_err(failed("present"))?;
    }
    nth_shown(display, &mut events, 2)?;
    let order: Vec<_> = shown(&events).iter().map(|shown| (shown.buffer, shown.refresh)).collect();
    ensure_eq!(order.iter().map(|(buffer, _)| *buffer).collect::<Vec<_>>(), [0, 1, 2], "order");
    ensure!(order[1].1 >= first + 20 && order[2].1 >= first + 23, "{order:?} after {first}");
    Ok(())
}

fn in_use(display: &mut dyn Display) -> Result<(), Failure> {
    display.present(0, 0).map_err(failed("present"))?;
    match display.present(0, 0) {
        Err(DisplayError::BufferInUse { buffer: 0 }) => Ok(()),
        other => Err(format!("found {other:?}")),
    }
}

fn no_such(display: &mut dyn Display) -> Result<(), Failure> {
    match display.present(3, 0) {
        Err(DisplayError::NoSuchBuffer { buffer: 3, count: 3 }) => Ok(()),
        other => Err(format!("found {other:?}")),
    }
}
