//! Opening, refreshing and closing runs.

use super::handle::{KIND, RUNS, Run, shotline_run, with};
use crate::arguments::{self, Out};
use crate::handles::closed;
use crate::status::{Failure, call, shotline_status};
use shotline_store::read::Recording;
use std::ffi::{OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{PoisonError, RwLock};

/// Opens a recording for reading: finished, or still being written by another process. It reads a few kilobytes, for any
/// length of the run.
///
/// path: the file; for a run of several files its master; for a raw drive the device, as `shotline inspect` takes it.
/// run: receives the handle; on failure one with the id 0.
///
/// Lifetime: close the handle with shotline_run_close(). Threads: any.
/// Errors: NOT_FOUND, IO (the kernel), FORMAT (not a recording that this version reads), INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_run_open(path: *const c_char, run: *mut shotline_run) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let (run, path) = unsafe { (Out::new(run, "run")?, arguments::text(path, "path")) };
        run.set(shotline_run { id: 0 });
        let path = Path::new(OsStr::from_bytes(path?.to_bytes()));
        if path.is_dir() {
            let words = format!("{}: expected a recording, found a folder: give the path of a file", path.display());
            return Err(Failure::kernel(libc::EISDIR, words));
        }
        // A run of several files opens them later, when the program may have another working directory. What does not exist
        // as a file may name a raw drive.
        let absolute = if path.exists() { std::path::absolute(path).ok() } else { None };
        let recording = Recording::open(absolute.as_deref().unwrap_or(path))?;
        run.set(shotline_run { id: RUNS.insert(Run(RwLock::new(Some(recording)))) });
        Ok(())
    })
}

/// Closes a run. It waits until the calls of other threads with this handle have returned; later ones fail with CLOSED.
///
/// Threads: any. Errors: CLOSED if the run is closed already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_run_close(run: shotline_run) -> shotline_status {
    call(|| {
        let run = RUNS.remove(run.id)?;
        drop(run.0.write().unwrap_or_else(PoisonError::into_inner).take());
        Ok(())
    })
}

/// Makes new shots of a run in progress visible. Nothing else changes which rows are visible.
///
/// rows: receives the number of visible rows; may be NULL.
///
/// The rows that are visible stay what they are, with one exception: where a run with limited disk use has removed its
/// oldest files, their rows are gone and the others have moved down. shotline_run_find_row() finds a shot again.
///
/// Threads: any; it waits for calls of other threads with this handle, which then see the new rows.
/// Errors: IO, FORMAT (the rows are then those from before), CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_run_refresh(run: shotline_run, rows: *mut u64) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let rows = unsafe { Out::optional(rows, "rows") }?;
        let run = RUNS.get(run.id)?;
        let mut recording = run.0.write().unwrap_or_else(PoisonError::into_inner);
        let visible = recording.as_mut().ok_or_else(|| closed(KIND))?.refresh()?;
        rows.inspect(|rows| rows.set(visible));
        Ok(())
    })
}

/// Stores the number of rows that have been visible since the run was opened or refreshed. A row has one shot of each link.
///
/// Threads: any. Errors: CLOSED, INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_run_rows(run: shotline_run, rows: *mut u64) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let rows = unsafe { Out::new(rows, "rows") }?;
        rows.set(with(run, |recording| Ok(recording.rows()))?);
        Ok(())
    })
}
