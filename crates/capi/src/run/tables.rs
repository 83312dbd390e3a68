//! Losses and final counters.

use super::handle::{shotline_run, with};
use crate::arguments::{self, Out, OutArray};
use crate::status::{Failure, call, shotline_status};
use shotline_store::read::{FinalCounters, Recording};
use shotline_store::shot::Loss;
use std::ffi::c_char;

/// As shotline_counter.stream: a counter of the whole run.
pub const SHOTLINE_WHOLE_RUN: u32 = u32::MAX;
/// Length of shotline_counter.name in bytes, with at least one zero at its end.
pub const SHOTLINE_COUNTER_NAME_BYTES: usize = 52;

/// Consecutive shot numbers of a stream that are in no row, or in a row as lost.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_loss {
    /// First shot number.
    pub first: u64,
    /// Number of consecutive shots.
    pub count: u64,
    /// Stream number of the link (shotline_link.stream).
    pub stream: u32,
    /// Number of the drop cause (shotline_cause_name).
    pub cause: u32,
}

/// Counter of a run that has ended.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_counter {
    /// Its value.
    pub value: u64,
    /// Stream number of a link, or SHOTLINE_WHOLE_RUN.
    pub stream: u32,
    /// Its name, for example "packets_in", padded with zeros.
    pub name: [c_char; SHOTLINE_COUNTER_NAME_BYTES],
}

/// Reads the ranges of shots that were lost. `not_data` and `not_triggered` are causes that are no losses.
///
/// losses: receives the ranges; NULL to store only their number.
/// capacity: structures at `losses`; 0 if it is NULL.
/// count: receives the number of ranges, also if the buffer is too small.
///
/// While the run is in progress, the number may grow from one call to the next.
///
/// Threads: any, several at once. Errors: BUFFER_TOO_SMALL, IO, FORMAT, CLOSED, INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_run_read_losses(
    run: shotline_run,
    losses: *mut shotline_loss,
    capacity: usize,
    count: *mut usize,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let (out, count) = unsafe { (OutArray::new(losses, capacity, "losses")?, Out::new(count, "count")?) };
        let all = with(run, |recording| Ok(recording.losses()?))?;
        count.set(all.len());
        if losses.is_null() { Ok(()) } else { out.fill(all.into_iter().map(shotline_loss::from), "losses") }
    })
}

/// Reads all counters of a run that has ended: of each stream, then of the whole run. docs/file-format.md defines them, and
/// the sums that hold.
///
/// counters: receives the counters; NULL to store only their number.
/// capacity: structures at `counters`; 0 if it is NULL.
/// count: receives the number of counters, also if the buffer is too small.
///
/// Threads: any, several at once.
/// Errors: NOT_FOUND (the run is in progress or was interrupted), BUFFER_TOO_SMALL, IO, CLOSED, INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_run_read_counters(
    run: shotline_run,
    counters: *mut shotline_counter,
    capacity: usize,
    count: *mut usize,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let (out, count) = unsafe { (OutArray::new(counters, capacity, "counters")?, Out::new(count, "count")?) };
        let all = with(run, |recording| Ok(entries(&final_counters(recording)?)))?;
        count.set(all.len());
        let all = all.iter().map(|(stream, name, value)| counter(*stream, name, *value));
        if counters.is_null() { Ok(()) } else { out.fill(all, "counters") }
    })
}

/// Reads one counter of a run that has ended.
///
/// stream: stream number of a link, or SHOTLINE_WHOLE_RUN.
/// name: for example "shots_complete" of a stream, or "rows" of the whole run.
/// value: receives the value.
///
/// Counters of drop causes are in the file only if they are not 0: NOT_FOUND then means 0.
///
/// Threads: any, several at once. Errors: NOT_FOUND (no such counter; or the run is in progress or was interrupted), IO,
/// CLOSED, INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_run_read_counter(
    run: shotline_run,
    stream: u32,
    name: *const c_char,
    value: *mut u64,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let (name, out) = unsafe { (arguments::text(name, "name")?, Out::new(value, "value")?) };
        let name = name.to_string_lossy();
        let all = with(run, |recording| Ok(entries(&final_counters(recording)?)))?;
        let found = all.iter().find(|(of, known, _)| *of == stream && *known == name);
        let (_, _, value) = found.ok_or_else(|| {
            let of = if stream == SHOTLINE_WHOLE_RUN { "the run".to_owned() } else { format!("stream {stream}") };
            not_found(format!(
                "expected a counter of {of}, found {name:?}: shotline_run_read_counters() has their names"
            ))
        })?;
        out.set(*value);
        Ok(())
    })
}

impl From<Loss> for shotline_loss {
    fn from(loss: Loss) -> Self {
        Self { first: loss.first, count: loss.count, stream: loss.stream, cause: loss.cause as u32 }
    }
}

fn final_counters(recording: &Recording) -> Result<FinalCounters, Failure> {
    recording.final_counters()?.ok_or_else(|| {
        not_found(format!(
            "{} has no final counters: it is in progress, or was interrupted: wait for its end, or run `shotline recover`",
            recording.path().display()
        ))
    })
}

fn entries(found: &FinalCounters) -> Vec<(u32, String, u64)> {
    let streams = found.counters.streams.iter();
    let streams = streams.flat_map(|of| of.entries().into_iter().map(|(name, value)| (of.stream, name, value)));
    let totals = found.totals.iter().map(|(name, value)| (SHOTLINE_WHOLE_RUN, name.clone(), *value));
    streams.chain(totals).collect()
}

fn counter(stream: u32, name: &str, value: u64) -> shotline_counter {
    let mut bytes = [0; SHOTLINE_COUNTER_NAME_BYTES];
    // Names in a file have at most 44 bytes: the last one stays zero.
    bytes
        .iter_mut()
        .zip(name.bytes().take(SHOTLINE_COUNTER_NAME_BYTES - 1))
        .for_each(|(to, byte)| *to = byte as c_char);
    shotline_counter { value, stream, name: bytes }
}

fn not_found(words: String) -> Failure {
    Failure::new(shotline_status::SHOTLINE_ERROR_NOT_FOUND, words)
}
