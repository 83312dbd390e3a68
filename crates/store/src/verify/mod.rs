//! Verification of a recording: all recorded bytes, and all losses.
//!
//! For each row and link, the slot's bytes are read raw. The record of a complete shot must have a valid CRC over the
//! whole shot and the shot number of the row; missing packets and lost shots must be zeros; and if the file declares
//! test patterns, every packet that arrived must match its pattern. Rows and losses together must account for every
//! shot number from the first to the last, and the counters must balance.
//!
//! The chunk indexes are walked too ([`Recording::check_index`]): the chunk of each row is at the offset where raw
//! reading expects it, so HDF5 readers read the same bytes.

mod account;
mod mismatches;
mod slot;
mod verdict;

use crate::StoreError;
use crate::read::Recording;
use crate::rows::State;
use mismatches::Mismatches;
use shotline_wire::shot::DropCause;
use slot::{Checker, Patterns};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
pub use verdict::{LinkVerdict, Verdict};

/// Rows per batch of a thread.
const BATCH_ROWS: u64 = 16;

/// Options of a verification.
#[derive(Clone, Copy, Debug)]
pub struct VerifyOptions {
    /// Compare packets with the test pattern if the file declares one.
    pub pattern: bool,
    /// Number of threads. 0 means four per processor, because they wait for the drive.
    pub threads: usize,
}

impl Default for VerifyOptions {
    fn default() -> Self {
        Self { pattern: true, threads: 0 }
    }
}

/// Verifies a recording. Mismatches are in the verdict.
///
/// # Errors
/// If the recording cannot be read.
pub fn verify(path: &Path, options: &VerifyOptions) -> Result<Verdict, StoreError> {
    verify_with_progress(path, options, &|_, _| ())
}

/// Verifies a recording and reports progress as (rows done, all rows), from any thread.
///
/// # Errors
/// If the recording cannot be read.
pub fn verify_with_progress(
    path: &Path,
    options: &VerifyOptions,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Verdict, StoreError> {
    let started = Instant::now();
    let recording = Recording::open(path)?;
    recording.check_index()?;
    let (run, final_counters) = (recording.run(), recording.final_counters()?);
    let losses = recording.losses()?;
    let period = run.pattern_period.filter(|_| options.pattern);
    let mismatches = Mismatches::default();
    let patterns = period.map(|period| Patterns::new(run, period));
    let threads = match options.threads {
        0 => 4 * std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let mut links: Vec<LinkVerdict> =
        run.links.iter().map(|link| LinkVerdict { stream: link.stream, ..LinkVerdict::default() }).collect();
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let report_progress = |rows: u64| progress(done.fetch_add(rows, Ordering::Relaxed) + rows, recording.rows());
    let found: Vec<Result<Vec<LinkVerdict>, StoreError>> = std::thread::scope(|scope| {
        let worker = || check_rows(&recording, patterns.as_ref(), &next, &mismatches, &report_progress);
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    for found in found {
        links.iter_mut().zip(found?).for_each(|(link, found)| link.merge(&found));
    }
    account::check(&recording, final_counters.as_ref(), &losses, &links, &mismatches)?;
    if !recording.is_current() {
        let found = "expected the run that was opened, found another run: verify again";
        return Err(StoreError::format(path, found));
    }
    let count = mismatches.count.into_inner();
    let slots: u64 = run.links.iter().map(|link| u64::from(link.geometry.slot_bytes())).sum();
    Ok(Verdict {
        path: path.to_owned(),
        verified: count == 0,
        finished: final_counters.is_some(),
        rows: recording.rows(),
        links,
        lost_shots: losses.iter().map(|loss| loss.count).fold(0, u64::saturating_add),
        pattern: period.is_some(),
        mismatches: count,
        first_mismatches: mismatches.described.into_inner().unwrap_or_default(),
        bytes: slots * recording.rows(),
        seconds: started.elapsed().as_secs_f64(),
    })
}

/// Worker of one thread: checks batches of rows until none are left.
fn check_rows(
    recording: &Recording,
    patterns: Option<&Patterns>,
    next: &AtomicU64,
    mismatches: &Mismatches,
    report_progress: &impl Fn(u64),
) -> Result<Vec<LinkVerdict>, StoreError> {
    let links = &recording.run().links;
    let mut found = vec![LinkVerdict::default(); links.len()];
    let mut checkers: Vec<Checker<'_>> =
        (0..links.len()).map(|link| Checker::new(link, recording.run(), patterns)).collect();
    let mut slots = recording.slot_reader();
    loop {
        let first = next.fetch_add(BATCH_ROWS, Ordering::Relaxed);
        if first >= recording.rows() {
            return Ok(found);
        }
        let rows = first..recording.rows().min(first + BATCH_ROWS);
        for (link, checker) in checkers.iter_mut().enumerate() {
            for (row, entry) in rows.clone().zip(recording.read_rows(link, rows.clone())?) {
                let found = &mut found[link];
                match entry.state {
                    State::Complete => found.complete += 1,
                    State::Partial => found.partial += 1,
                    State::Lost => found.lost += 1,
                }
                if entry.state == State::Lost && entry.drops[DropCause::SinkError as usize] > 0 {
                    found.sink_error += 1;
                }
                let mismatch =
                    |text| mismatches.add(|| format!("row {row} of link {link}, shot {}: {text}", entry.number));
                match slots.read(row, link) {
                    Ok(bytes) => checker.check(&entry, bytes, found, mismatch),
                    Err(StoreError::Chunk { source, .. }) => {
                        mismatch(format!("its chunk cannot be decompressed: {source}"))
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        report_progress(rows.end - rows.start);
    }
}
