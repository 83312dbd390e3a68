//! Runs in progress: start, end, and what they are.

use super::emulator::EMULATORS;
use super::settings::parse;
use super::wait::{SHOTLINE_FOREVER, within};
use crate::arguments::{self, Out, OutText};
use crate::handles::{Handles, closed};
use crate::process::at_exit;
use crate::run::properties::shotline_link;
use crate::status::{Failure, call, shotline_status};
use shotline_acquire::config::{Align, Settings};
use shotline_acquire::live::About;
use shotline_acquire::summary::Summary;
use shotline_library::{ErrorKind, Recorder, check_end, describe};
use std::ffi::c_char;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Handle of a run in progress. A handle with the id 0 is never open.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_recorder {
    /// Number of the handle, which is used once in the life of the process.
    pub id: u64,
}

/// A run in progress.
pub(super) struct Run {
    pub(super) recorder: Recorder,
    /// Set if the shots of an event have one time, and not one number.
    pub(super) by_stamp: bool,
    /// Waits on the descriptor that have begun and not ended.
    pub(super) waits: AtomicU32,
    closed: AtomicBool,
}

pub(super) const KIND: &str = "recorder";
pub(super) static RECORDERS: Handles<Run> = Handles::new(KIND);

impl Run {
    /// Returns what the run receives.
    pub(super) fn about(&self) -> Result<&About, Failure> {
        let words = "the run has not begun: call shotline_recorder_wait_started() first";
        self.recorder.about().ok_or_else(|| not_found(words))
    }

    /// Returns the status that says how the run, which is over, has ended; SHOTLINE_OK is the end that was wanted.
    pub(super) fn end(&self) -> Result<(), Failure> {
        if self.closed.load(Ordering::Acquire) {
            return Err(closed(KIND));
        }
        // Its threads have ended: the result follows at once.
        let outcome = within(SHOTLINE_FOREVER, String::new, |slice| {
            // A run that did not begin: the class of its error is that of shotline_recorder_wait_started().
            let cut_off = |error: shotline_library::Error| match error.kind {
                ErrorKind::Forked | ErrorKind::Closed => Failure::from(error),
                _ => Failure::new(shotline_status::SHOTLINE_ERROR_CUT_OFF, error.to_string()),
            };
            self.recorder.wait_ended(slice).map_err(cut_off)
        })?;
        Ok(check_end(&outcome)?)
    }

    /// Ends the run. Threads that wait for shots see the end, and that it was this one.
    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.recorder.close();
    }
}

/// Closes what is open at the end of the process, so that files are complete.
extern "C" fn close_all() {
    call(|| {
        RECORDERS.remove_all().iter().for_each(|run| run.close());
        EMULATORS.remove_all().iter().for_each(|emulator| drop(emulator.close()));
        Ok(())
    });
}

/// Starts a run, which hands its shots to the program, and records them if the settings have `out`. It returns at once:
/// shotline_recorder_wait_started() tells whether packets are received.
///
/// settings: a JSON object with the settings of `shotline record` by their names in a settings file, for example
/// {"probe": "[::1]:47910", "samples": 2000, "out": "run.h5"}; or the text of a settings file (TOML). docs/recording.md and
/// `shotline record --help` explain them.
/// recorder: receives the handle; on failure one with the id 0.
///
/// Without `out` the program is the sink: shots that it takes too slowly, or for which it holds too many others, are dropped
/// by the setting `policy`, and are in shotline_recorder_read_losses(). With `out` every shot is recorded as without the
/// program, which sees as many as it can take.
///
/// Lifetime: close the handle with shotline_recorder_close(). A run that is open when the program ends by exit() or by
/// returning from main() is closed then. Threads: any.
/// Errors: INVALID_ARGUMENT (a setting is wrong; the message has its name), IO (no descriptor or thread is left).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_recorder_start(
    settings: *const c_char,
    recorder: *mut shotline_recorder,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let (out, text) = unsafe { (Out::new(recorder, "recorder")?, arguments::utf8(settings, "settings")) };
        out.set(shotline_recorder { id: 0 });
        let settings: Settings = parse(text?)?;
        let by_stamp = settings.align == Some(Align::Stamp);
        let recorder = Recorder::start(settings)?;
        at_exit(close_all);
        let run = Run { recorder, by_stamp, waits: AtomicU32::new(0), closed: AtomicBool::new(false) };
        out.set(shotline_recorder { id: RECORDERS.insert(run) });
        Ok(())
    })
}

/// Waits until packets are received. From then on the files are created, and the properties of the shots are known.
///
/// timeout_ns: limit of the wait in nanoseconds, or SHOTLINE_FOREVER.
///
/// Threads: any, several at once.
/// Errors: of a run that cannot begin INVALID_ARGUMENT (the settings contradict the sender), REFUSED (for example because
/// another receiver controls the probe), TIMEOUT (the probe does not answer), IO (transport, file or memory). TIMEOUT (the
/// limit has passed; the message differs), CLOSED, FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_recorder_wait_started(
    recorder: shotline_recorder,
    timeout_ns: u64,
) -> shotline_status {
    call(|| {
        let run = RECORDERS.get(recorder.id)?;
        let late = || "the run has not begun within the limit: wait longer, or close it".to_owned();
        within(timeout_ns, late, |slice| Ok(run.recorder.wait_started(slice)?.then_some(())))?;
        if run.closed.load(Ordering::Acquire) { Err(closed(KIND)) } else { Ok(()) }
    })
}

/// Asks the run to end. Shots that have arrived are still handed over; then shotline_recorder_take() fails with ENDED.
///
/// Threads: any. Errors: CLOSED, FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_recorder_stop(recorder: shotline_recorder) -> shotline_status {
    call(|| {
        RECORDERS.get(recorder.id)?.recorder.stop();
        Ok(())
    })
}

/// Triggers, if the settings have a time before triggers (`pre_trigger`). A probe is triggered by shotline_probe_trigger().
///
/// Threads: any. Errors: CLOSED, FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_recorder_trigger(recorder: shotline_recorder) -> shotline_status {
    call(|| Ok(RECORDERS.get(recorder.id)?.recorder.trigger()?))
}

/// Waits until the run is over: its file is closed, and its counters and its report are final. Shots may be left to take.
///
/// timeout_ns: limit of the wait in nanoseconds, or SHOTLINE_FOREVER.
///
/// Threads: any, several at once.
/// Errors: CUT_OFF (the run has ended early, or could not begin; the message says why), TIMEOUT, CLOSED, FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_recorder_wait_ended(recorder: shotline_recorder, timeout_ns: u64) -> shotline_status {
    call(|| {
        let run = RECORDERS.get(recorder.id)?;
        let late = || "the run is in progress: call shotline_recorder_stop(), or wait longer".to_owned();
        // A run that could not begin is over, too: `end` has its error.
        within(timeout_ns, late, |slice| match run.recorder.wait_ended(slice) {
            Ok(outcome) => Ok(outcome.map(drop)),
            Err(error) if error.kind == ErrorKind::Forked => Err(error.into()),
            Err(_) => Ok(Some(())),
        })?;
        run.end()
    })
}

/// Ends the run and closes its handle. It waits until everything is in the file. Threads that wait for shots or for the end
/// of the run are woken, and fail with CLOSED. Shots that the program holds stay valid; those that it has not taken are
/// discarded (and are in the file, if there is one).
///
/// Threads: any, also the callback of shotline_recorder_run(). Errors: CLOSED if the recorder is closed already, FORKED.
/// How the run has ended: shotline_recorder_stop() and shotline_recorder_wait_ended() before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_recorder_close(recorder: shotline_recorder) -> shotline_status {
    call(|| {
        RECORDERS.remove(recorder.id)?.close();
        Ok(())
    })
}

/// Stores the properties of a link, which are known once the run has begun.
///
/// link: index of the link, from 0.
///
/// Threads: any. Errors: NOT_FOUND (the run has not begun), INVALID_ARGUMENT (no such link), CLOSED, FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_recorder_get_link(
    recorder: shotline_recorder,
    link: u32,
    properties: *mut shotline_link,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let properties = unsafe { Out::new(properties, "properties") }?;
        let run = RECORDERS.get(recorder.id)?;
        let about = run.about()?;
        if link as usize >= about.links {
            return Err(Failure::argument(format!("expected a link below {}, found {link}", about.links)));
        }
        properties.set(shotline_link::new(link, &about.geometry));
        Ok(())
    })
}

/// Copies a text about the run.
///
/// name: "about": what the run receives, as a JSON object: instrument, framing, links, address and the geometry of a link's
/// shots; once the run has begun. Or "report": the report of `shotline record --json`, once the run is over.
/// text, capacity, length: as for shotline_run_get_text().
///
/// Threads: any. Errors: NOT_FOUND (no text of this name, or not yet), BUFFER_TOO_SMALL, CUT_OFF (a report of a run that
/// could not begin), CLOSED, FORKED, INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_recorder_get_text(
    recorder: shotline_recorder,
    name: *const c_char,
    text: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let (mut out, name) = unsafe { (OutText::new(text, capacity, length)?, arguments::text(name, "name")?) };
        let run = RECORDERS.get(recorder.id)?;
        let text = match name.to_string_lossy().as_ref() {
            "about" => describe(run.about()?).to_string(),
            "report" => report(&run)?,
            other => {
                return Err(not_found(format!("expected a text of a recorder (about or report), found {other:?}")));
            }
        };
        out.set(&text)
    })
}

fn report(run: &Run) -> Result<String, Failure> {
    let cut_off =
        |error: shotline_library::Error| Failure::new(shotline_status::SHOTLINE_ERROR_CUT_OFF, error.to_string());
    let outcome = run.recorder.outcome().map_err(cut_off)?;
    let outcome = outcome
        .ok_or_else(|| not_found("a run in progress has no report: call shotline_recorder_wait_ended() first"))?;
    serde_json::to_string(&Summary::of(&outcome)).map_err(|error| Failure::argument(error.to_string()))
}

fn not_found(words: impl Into<String>) -> Failure {
    Failure::new(shotline_status::SHOTLINE_ERROR_NOT_FOUND, words)
}
