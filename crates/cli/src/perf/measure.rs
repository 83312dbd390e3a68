//! Parts shared by all measurements: iterations until a deadline, and polling for completions.

use super::connection::Connection;
use super::histogram::Histogram;
use super::pairs::QpSet;
use super::point::Point;
use super::report::{Iteration, Row};
use super::snapshot::Snapshot;
use crate::Result;
use shotline_verbs::api::{Completion, Status};
use shotline_verbs::cm::Endpoint;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time without a response after which an operation counts as lost.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs all iterations of a measurement, or until a signal stops it, and destroys the queue pairs.
pub fn repeat<P: Endpoint>(
    connection: &mut Connection<P>,
    qps: QpSet,
    mut row: Row,
    point: &Point,
    stop: &AtomicBool,
    mut iterate: impl FnMut(&mut Connection<P>, &QpSet) -> Result<Iteration>,
) -> Result<Row> {
    connection.page.begin(&row, &qps);
    for _ in 0..point.iterations {
        let iteration = iterate(connection, &qps)?;
        // Between iterations only: a state that is published takes time.
        connection.page.add_iteration(&row, &iteration);
        row.iterations.push(iteration);
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    // Links end with their queue pairs.
    row.spacefibre = connection.provider.links(0, usize::MAX);
    connection.close(qps)?;
    row.sum_up();
    Ok(row)
}

/// An iteration in progress.
pub struct RunningIteration<'s> {
    /// Snapshot of both sides before the first operation.
    pub before: Snapshot,
    /// Time of the first operation.
    pub start: Instant,
    end: Instant,
    stop: &'s AtomicBool,
}

impl<'s> RunningIteration<'s> {
    /// Starts an iteration of a measurement.
    pub fn open<P: Endpoint>(
        connection: &mut Connection<P>,
        qps: &QpSet,
        point: &Point,
        stop: &'s AtomicBool,
    ) -> Result<Self> {
        let before = connection.snapshot(qps)?;
        let start = Instant::now();
        Ok(Self { before, start, end: start + point.seconds, stop })
    }

    /// Returns `true` if no further operation may begin at `now`.
    #[inline]
    pub fn is_over(&self, now: Instant) -> bool {
        now >= self.end || self.stop.load(Ordering::Relaxed)
    }

    /// Ends the iteration, whose last operation completed at `ended`.
    pub fn close<P: Endpoint>(
        self,
        connection: &mut Connection<P>,
        qps: &QpSet,
        ended: Instant,
        operations: u64,
        size: u32,
        times: Histogram,
    ) -> Result<Iteration> {
        let after = connection.snapshot(qps)?;
        Ok(Iteration::new(self.before, after, ended - self.start, operations, operations * u64::from(size), times))
    }
}

/// Polls or waits for completions. The caller owns the buffer of completions, so that the counts stay in registers.
pub struct Poller {
    event: bool,
    /// Number of empty polls between two checks of the control connection.
    idle_polls: u32,
    idle: u32,
    /// The last poll was empty and the control connection was checked. Callers then also check the clock.
    pub checked: bool,
}

impl Poller {
    /// Creates a poller. With `event` it sleeps on a file descriptor instead of polling. `idle_polls` is the number
    /// of empty polls between two checks of the control connection.
    pub fn new(event: bool, idle_polls: u32) -> Self {
        Self { event, idle_polls, idle: 0, checked: false }
    }

    /// Polls once and returns the completions, of which there may be none. Some empty polls also check that the target
    /// is still connected.
    ///
    /// # Errors
    /// If an operation failed, or the target is gone.
    // Without inlining, the call takes 4 % of a WRITE of 4 KiB over shared memory.
    #[inline(always)]
    pub fn poll<'c, P: Endpoint>(
        &mut self,
        connection: &mut Connection<P>,
        qps: &QpSet,
        done: &'c mut [Completion],
    ) -> Result<&'c [Completion]> {
        let mut count = connection.provider.poll_cq(qps.cq, done)?;
        if count == 0 && self.event {
            count = connection.sleep(qps, done)?;
        }
        self.checked = false;
        if count == 0 {
            self.idle += 1;
            if self.event || self.idle >= self.idle_polls {
                (self.idle, self.checked) = (0, true);
                connection.check()?;
            }
        }
        let done = &done[..count];
        match done.iter().find(|completion| completion.status != Status::Success) {
            Some(completion) => Err(connection.failed(completion)),
            None => Ok(done),
        }
    }
}
