//! Handles of runs, and checks of links and rows.

use crate::handles::{Handles, closed};
use crate::status::Failure;
use shotline_store::read::Recording;
use std::ops::Range;
use std::sync::{PoisonError, RwLock};

/// Handle of a recording that is open for reading. It is a number, not an address: copy it freely. A handle with the id 0
/// is never open.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_run {
    /// Number of the handle, which is used once in the life of the process.
    pub id: u64,
}

/// An open run: readers share it; `refresh` and `close` wait for them.
pub(super) struct Run(pub(super) RwLock<Option<Recording>>);

pub(super) const KIND: &str = "run";
pub(super) static RUNS: Handles<Run> = Handles::new(KIND);

/// Calls `read` with the recording of a handle.
pub(super) fn with<T>(run: shotline_run, read: impl FnOnce(&Recording) -> Result<T, Failure>) -> Result<T, Failure> {
    let run = RUNS.get(run.id)?;
    let recording = run.0.read().unwrap_or_else(PoisonError::into_inner);
    read(recording.as_ref().ok_or_else(|| closed(KIND))?)
}

/// Checks the index of a link.
pub(super) fn check_link(recording: &Recording, link: u32) -> Result<usize, Failure> {
    let link = usize::try_from(link).unwrap_or(usize::MAX);
    shotline_library::reading::check_links(recording, &[link])?;
    Ok(link)
}

/// Checks that rows are visible, and returns them with their number.
pub(super) fn check_rows(recording: &Recording, first: u64, count: u64) -> Result<(Range<u64>, usize), Failure> {
    let all = recording.rows();
    let end = first.checked_add(count).filter(|end| *end <= all);
    let (Some(end), Ok(number)) = (end, usize::try_from(count)) else {
        let words =
            format!("expected rows below {all}, found {count} from {first} on: shotline_run_refresh() looks for more");
        return Err(Failure::argument(words));
    };
    Ok((first..end, number))
}
