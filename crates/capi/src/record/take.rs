//! Taking the shots of a run: one by one, in a callback, or in an event loop.

use super::recorder::{KIND, RECORDERS, Run, shotline_recorder};
use super::shots::{SHOTS, Shots, shotline_shots};
use super::wait::{SHOTLINE_FOREVER, within};
use crate::arguments::Out;
use crate::status::{Failure, call, shotline_status};
use shotline_library::Next;
use std::ffi::c_void;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::Ordering;

/// Function that shotline_recorder_run() calls for each event, with its shots and the pointer `user`. It returns 0 to
/// continue. It must return: no exception of C++ and no longjmp may leave it.
pub type shotline_on_shots = Option<unsafe extern "C" fn(shots: shotline_shots, user: *mut c_void) -> i32>;

/// Takes the next shots; waits for them. Shots of several links with one number come together.
///
/// timeout_ns: limit of the wait in nanoseconds; 0 to look only, SHOTLINE_FOREVER for no limit.
/// shots: receives a handle of the shots; on failure one with the id 0.
///
/// Lifetime: release the shots with shotline_shots_release(). As long as the program holds as many as the pool has buffers
/// for (shotline_recorder_counters.max_held), later ones are dropped.
/// Threads: any, several at once; each shot goes to one of them.
/// Errors: TIMEOUT (there are none yet), ENDED (the run is over, and all shots were taken), CUT_OFF (as ENDED, but the run
/// has ended early or could not begin), CLOSED (also by another thread during the call), FORKED, INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_recorder_take(
    recorder: shotline_recorder,
    timeout_ns: u64,
    shots: *mut shotline_shots,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let out = unsafe { Out::new(shots, "shots") }?;
        out.set(shotline_shots { id: 0 });
        let run = RECORDERS.get(recorder.id)?;
        let shots = next(&run, timeout_ns)?.ok_or_else(|| {
            let words = "the run is over, and all of its shots were taken: close the recorder";
            Failure::new(shotline_status::SHOTLINE_ERROR_ENDED, words)
        })?;
        out.set(shotline_shots { id: SHOTS.insert(shots) });
        Ok(())
    })
}

/// Calls a function for each event of the run on this thread, until the run is over or the function returns another value
/// than 0. The shots are released when the function returns: shotline_shots_share() keeps them.
///
/// callback: the function.
/// user: passed to it as it is; may be NULL.
///
/// Returns SHOTLINE_OK if the run has ended as its settings say, or the function has ended the loop. The run then goes on,
/// until it is stopped or closed.
///
/// Threads: any, several at once; each shot goes to one of them. The function may call everything, also
/// shotline_recorder_close().
/// Errors: CUT_OFF (the run has ended early or could not begin), CLOSED, FORKED, INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_recorder_run(
    recorder: shotline_recorder,
    callback: shotline_on_shots,
    user: *mut c_void,
) -> shotline_status {
    call(|| {
        let callback = callback
            .ok_or_else(|| Failure::argument("expected a function as argument `callback`, found NULL".to_owned()))?;
        let run = RECORDERS.get(recorder.id)?;
        while let Some(shots) = next(&run, SHOTLINE_FOREVER)? {
            let id = SHOTS.insert(shots);
            // SAFETY: the caller passes a function of this type, which returns (header). No lock is held.
            let result = unsafe { callback(shotline_shots { id }, user) };
            // The function may have released them already.
            drop(SHOTS.remove(id));
            if result != 0 {
                break;
            }
        }
        Ok(())
    })
}

/// Stores a file descriptor for poll() and epoll: it is readable while there may be shots, and at the end, between
/// shotline_recorder_start_waiting() and shotline_recorder_stop_waiting(). Do not read it or close it.
///
/// Lifetime: until the recorder is closed; duplicate it (dup) for a loop that may still watch it then.
/// Threads: any. Errors: CLOSED, FORKED, INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_recorder_get_fd(recorder: shotline_recorder, fd: *mut i32) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let out = unsafe { Out::new(fd, "fd") }?;
        out.set(RECORDERS.get(recorder.id)?.recorder.fd()?.as_raw_fd());
        Ok(())
    })
}

/// Begins a wait on the descriptor.
///
/// ready: receives 1 if there is something to take already, or the run is over: then do not wait. Else 0.
///
/// A loop takes shots with the limit 0 until TIMEOUT, starts waiting, polls the descriptor if `ready` is 0, stops waiting,
/// and begins again.
///
/// Threads: any, several waits at once; each needs its shotline_recorder_stop_waiting().
/// Errors: CLOSED, FORKED, INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_recorder_start_waiting(
    recorder: shotline_recorder,
    ready: *mut i32,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let out = unsafe { Out::new(ready, "ready") }?;
        let run = RECORDERS.get(recorder.id)?;
        run.waits.fetch_add(1, Ordering::Relaxed);
        out.set(run.recorder.start_waiting().into());
        Ok(())
    })
}

/// Ends a wait on the descriptor.
///
/// Threads: any. Errors: INVALID_ARGUMENT (no wait has begun), CLOSED, FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_recorder_stop_waiting(recorder: shotline_recorder) -> shotline_status {
    call(|| {
        let run = RECORDERS.get(recorder.id)?;
        let begun = run.waits.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |waits| waits.checked_sub(1));
        begun.map_err(|_| Failure::argument("no wait has begun: call shotline_recorder_start_waiting() before"))?;
        run.recorder.stop_waiting();
        Ok(())
    })
}

/// Takes the next shots; none if the run is over as its settings say.
fn next(run: &Run, timeout_ns: u64) -> Result<Option<Shots>, Failure> {
    let taken = within(
        timeout_ns,
        || late(run),
        |slice| {
            Ok(match run.recorder.next(slice)? {
                Next::Shots(lent) => Some(Some(lent)),
                Next::Ended => Some(None),
                Next::TimedOut => None,
            })
        },
    )?;
    match taken {
        Some(lent) => Ok(Some(Shots::new(lent, run.about()?.geometry, run.by_stamp))),
        None => run.end().map(|()| None),
    }
}

/// Returns the reason why there are no shots.
fn late(run: &Run) -> String {
    let (_, held, max_held) = run.recorder.held();
    if held >= max_held && max_held > 0 {
        format!(
            "no shots within the limit: this program holds {held}, as many as the pool has buffers for: release some \
             (shotline_shots_release), or use a larger setting `pool`"
        )
    } else {
        format!(
            "no shots of this {KIND} within the limit: wait longer; shotline_recorder_get_counters() has what has arrived"
        )
    }
}
