//! Counters and losses of runs in progress.

use super::recorder::{RECORDERS, shotline_recorder};
use crate::arguments::{Out, OutArray};
use crate::run::tables::shotline_loss;
use crate::status::{call, shotline_status};
use shotline_acquire::live::LiveCounters;

/// Counters since the start of a run. Each is exact; together they may be some milliseconds apart until the run is over.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shotline_recorder_counters {
    /// Packets that arrived.
    pub packets: u64,
    /// Bytes of payload in shots.
    pub bytes: u64,
    /// Packets that were dropped, here or by the device.
    pub packets_dropped: u64,
    /// Complete shots.
    pub shots_complete: u64,
    /// Partial shots.
    pub shots_partial: u64,
    /// Dropped shots.
    pub shots_dropped: u64,
    /// Rows that readers of the file see.
    pub rows: u64,
    /// Events that the program has taken.
    pub taken: u64,
    /// Events that the program has not taken when it closed the recorder.
    pub untaken: u64,
    /// Events that the program holds.
    pub held: u64,
    /// Events that it may hold before later ones are dropped; 0 before the run has begun.
    pub max_held: u64,
    /// Shots that are in no event that the program gets: the sum of shotline_recorder_read_losses() and `unlisted`.
    pub lost: u64,
    /// Of these, shots that are not in the list, because it is full.
    pub unlisted: u64,
    /// Zero, for fields of later versions.
    pub reserved: [u64; 7],
}

/// Stores the counters of a run.
///
/// Threads: any. Errors: CLOSED, FORKED, INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_recorder_get_counters(
    recorder: shotline_recorder,
    counters: *mut shotline_recorder_counters,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let out = unsafe { Out::new(counters, "counters") }?;
        let run = RECORDERS.get(recorder.id)?;
        let LiveCounters { packets, bytes, packets_dropped, complete, partial, shots_dropped, rows } =
            run.recorder.live().read();
        let (taken, held, max_held) = run.recorder.held();
        let (lost, unlisted) = run.recorder.lost()?;
        out.set(shotline_recorder_counters {
            packets,
            bytes,
            packets_dropped,
            shots_complete: complete,
            shots_partial: partial,
            shots_dropped,
            rows,
            taken,
            untaken: run.recorder.untaken(),
            held: held as u64,
            max_held: max_held as u64,
            lost,
            unlisted,
            reserved: [0; 7],
        });
        Ok(())
    })
}

/// Reads the ranges of shots that the program does not get, in the order in which they were noticed.
///
/// losses: receives the ranges; NULL to store only their number.
/// capacity: structures at `losses`; 0 if it is NULL.
/// count: receives the number of ranges, also if the buffer is too small. It may grow from one call to the next.
///
/// Threads: any. Errors: BUFFER_TOO_SMALL, CLOSED, FORKED, INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shotline_recorder_read_losses(
    recorder: shotline_recorder,
    losses: *mut shotline_loss,
    capacity: usize,
    count: *mut usize,
) -> shotline_status {
    call(|| {
        // SAFETY: the contract of the header.
        let (out, count) = unsafe { (OutArray::new(losses, capacity, "losses")?, Out::new(count, "count")?) };
        let all = RECORDERS.get(recorder.id)?.recorder.losses()?.ranges;
        count.set(all.len());
        if losses.is_null() { Ok(()) } else { out.fill(all.into_iter().map(shotline_loss::from), "losses") }
    })
}
