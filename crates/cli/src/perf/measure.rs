//! What all measurements share: iterations until a deadline, and taking completions meanwhile.

use super::connection::{Connection, Lanes, Moment};
use super::point::Point;
use super::report::{Iteration, Row};
use super::times::Times;
use crate::Result;
use shotline_verbs::api::{Completion, Status};
use shotline_verbs::cm::Endpoint;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest time without an answer before an operation is lost.
pub const LOST: Duration = Duration::from_secs(5);

/// Fills a row with its iterations, as many as are asked for or until it is stopped, and destroys the queue pairs.
pub fn repeat<P: Endpoint>(
    connection: &mut Connection<P>,
    lanes: Lanes,
    mut row: Row,
    point: &Point,
    stop: &AtomicBool,
    mut iterate: impl FnMut(&mut Connection<P>, &Lanes) -> Result<Iteration>,
) -> Result<Row> {
    for _ in 0..point.iterations {
        row.iterations.push(iterate(connection, &lanes)?);
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    connection.close(lanes)?;
    row.sum_up();
    Ok(row)
}

/// An iteration under way.
pub struct Window<'s> {
    /// Both sides before the first operation.
    pub from: Moment,
    /// Time of the first operation.
    pub began: Instant,
    end: Instant,
    stop: &'s AtomicBool,
}

impl<'s> Window<'s> {
    /// Begins an iteration of a measurement.
    pub fn open<P: Endpoint>(
        connection: &mut Connection<P>,
        lanes: &Lanes,
        point: &Point,
        stop: &'s AtomicBool,
    ) -> Result<Self> {
        let from = connection.moment(lanes)?;
        let began = Instant::now();
        Ok(Self { from, began, end: began + point.seconds, stop })
    }

    /// Whether no further operation is to begin at `now`.
    #[inline]
    pub fn is_over(&self, now: Instant) -> bool {
        now >= self.end || self.stop.load(Ordering::Relaxed)
    }

    /// Ends the iteration, whose last operation completed at `ended`.
    pub fn close<P: Endpoint>(
        self,
        connection: &mut Connection<P>,
        lanes: &Lanes,
        ended: Instant,
        operations: u64,
        size: u32,
        times: Times,
    ) -> Result<Iteration> {
        let to = connection.moment(lanes)?;
        Ok(Iteration::new(self.from, to, ended - self.began, operations, operations * u64::from(size), times))
    }
}

/// How a measurement waits for completions. The completions themselves are the caller's, so that the counts stay in
/// registers.
pub struct Poller {
    event: bool,
    /// Polls without a completion between two looks at the control connection.
    patience: u32,
    silent: u32,
    /// The last poll found none, and the control connection was looked at: the time to look at a clock.
    pub checked: bool,
}

impl Poller {
    /// `event`: sleep on a file descriptor until a completion comes, instead of polling. `patience`: polls without a
    /// completion between two looks at the control connection.
    pub fn new(event: bool, patience: u32) -> Self {
        Self { event, patience, silent: 0, checked: false }
    }

    /// Polls once, and returns the completions, of which there may be none. Without any it looks now and then whether
    /// the target is still there.
    ///
    /// # Errors
    /// If an operation failed, or the target is gone.
    // Left to the compiler it is a call, which takes 4 % of a WRITE of 4 KiB over shared memory.
    #[inline(always)]
    pub fn poll<'c, P: Endpoint>(
        &mut self,
        connection: &mut Connection<P>,
        lanes: &Lanes,
        done: &'c mut [Completion],
    ) -> Result<&'c [Completion]> {
        let mut count = connection.provider.poll_cq(lanes.cq, done)?;
        if count == 0 && self.event {
            count = connection.sleep(lanes, done)?;
        }
        self.checked = false;
        if count == 0 {
            self.silent += 1;
            if self.event || self.silent >= self.patience {
                (self.silent, self.checked) = (0, true);
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
