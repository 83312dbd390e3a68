//! Polling and waiting for completions.

use super::error::EndpointError;
use super::shared::{Guard, Open, Shared};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;
use shotline_verbs::api::{AsyncEvent, Completion, Cq, Modify};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time for which a thread polls before it sleeps, because waking takes longer than polling.
const POLL_BEFORE_SLEEP: Duration = Duration::from_micros(50);
/// Maximum time to sleep.
const MAX_SLEEP: Duration = Duration::from_millis(100);
/// Time between two checks of the control connection while a thread polls.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// Time that devices have to flush requests after the end of the connection.
const FLUSH_TIME: Duration = Duration::from_millis(20);
/// Maximum rounds of progress in one call, so that other threads get the lock.
const MAX_ROUNDS: usize = 64;

impl Shared {
    /// Moves completions to the start of `out`, and returns their number. Does not block.
    pub(super) fn poll(&self, (cq, depth): (Cq, u32), out: &mut [Completion]) -> Result<usize, EndpointError> {
        let mut open = self.lock()?;
        self.poll_locked(&mut open, (cq, depth), out)
    }

    fn poll_locked(
        &self,
        open: &mut Open,
        (cq, depth): (Cq, u32),
        out: &mut [Completion],
    ) -> Result<usize, EndpointError> {
        let mut count = open.provider.poll_cq(cq, out)?;
        if count == 0 && self.check_target(open) {
            count = open.provider.poll_cq(cq, out)?;
        }
        self.take_events(open);
        if count > 0 || out.is_empty() {
            return Ok(count);
        }
        while let Some(event) = open.provider.next_async() {
            if let AsyncEvent::CqOverrun(cq) = event {
                open.overruns.push(cq);
            }
        }
        if open.overruns.contains(&cq) {
            return Err(EndpointError::Overrun { depth });
        }
        match open.disconnected_at {
            Some(since) if since.elapsed() >= FLUSH_TIME => Err(EndpointError::Disconnected),
            _ => Ok(0),
        }
    }

    /// Checks the control connection from time to time. At its end, flushes all requests and returns `true`.
    fn check_target(&self, open: &mut Open) -> bool {
        if open.disconnected_at.is_some() {
            return false;
        }
        let now = Instant::now();
        if now.duration_since(open.checked_at) < CHECK_INTERVAL {
            return false;
        }
        self.check_target_now(open, now)
    }

    fn check_target_now(&self, open: &mut Open, now: Instant) -> bool {
        if open.disconnected_at.is_some() {
            return false;
        }
        open.checked_at = now;
        if !self.has_lost_target() {
            return false;
        }
        open.disconnected_at = Some(now);
        self.forget_control();
        self.announce_end();
        for number in open.pairs.keys() {
            // Fails only if the provider has ended the queue pair already.
            let _ = open.provider.modify_qp(shotline_verbs::api::Qp(*number), Modify::Error);
        }
        true
    }

    /// Takes the events of armed queues, so that the descriptor is no longer readable, and wakes those that wait for them.
    fn take_events(&self, open: &mut Open) {
        let mut any = false;
        while open.provider.next_event().is_some() {
            any = true;
        }
        if any {
            self.changed.notify_all();
            self.ring(open.has_driver, self.loop_waits.load(Ordering::Relaxed) > 0);
        }
    }

    /// Makes progress until there is nothing to do. Returns `true` if there still is.
    fn settle(&self, open: &mut Open) -> Result<bool, EndpointError> {
        for _ in 0..MAX_ROUNDS {
            if !open.provider.progress()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes progress for an event loop whose descriptor is readable.
    pub(super) fn drive(&self) -> Result<(), EndpointError> {
        let mut open = self.lock()?;
        self.silence(false);
        self.settle(&mut open)?;
        self.check_target_now(&mut open, Instant::now());
        while open.provider.next_event().is_some() {
            self.changed.notify_all();
        }
        self.ring(open.has_driver, false);
        Ok(())
    }

    /// Arms a queue, so that the descriptor becomes readable at its next completion. Returns `true` if there is work to do
    /// at once.
    pub(super) fn arm(&self, cq: Cq) -> Result<bool, EndpointError> {
        let mut open = self.lock()?;
        open.provider.arm_cq(cq, false)?;
        self.settle(&mut open)
    }

    /// Waits until there are completions, moves them to the start of `out`, and returns their number; 0 if the time is over.
    pub(super) fn wait(
        &self,
        queue: (Cq, u32),
        out: &mut [Completion],
        timeout: Duration,
    ) -> Result<usize, EndpointError> {
        let began = Instant::now();
        let left = || timeout.saturating_sub(began.elapsed());
        loop {
            let polls_since = Instant::now();
            loop {
                let count = self.poll(queue, out)?;
                if count > 0 || left().is_zero() {
                    return Ok(count);
                }
                if polls_since.elapsed() >= POLL_BEFORE_SLEEP {
                    break;
                }
                self.hand_over();
            }
            let mut open = self.lock()?;
            open.provider.arm_cq(queue.0, false)?;
            let is_busy = self.settle(&mut open)?;
            // Completions that arrived before the queue was armed raise no event.
            let count = self.poll_locked(&mut open, queue, out)?;
            if count > 0 {
                return Ok(count);
            }
            if !is_busy {
                let max = if open.disconnected_at.is_some() { FLUSH_TIME } else { MAX_SLEEP };
                self.sleep(open, left().min(max))?;
            }
        }
    }

    /// Sleeps without the lock: on the descriptor, or, if another thread sleeps there, until that thread wakes this one.
    fn sleep(&self, mut open: Guard<'_>, time: Duration) -> Result<(), EndpointError> {
        if open.has_driver {
            return self.wait_for_change(open, time).map(drop);
        }
        open.has_driver = true;
        drop(open);
        let slept = self.sleep_on_descriptor(time);
        let mut open = self.lock()?;
        open.has_driver = false;
        self.silence(true);
        // Another thread takes this one's place, if it still waits.
        self.changed.notify_all();
        slept?;
        self.settle(&mut open)?;
        self.check_target_now(&mut open, Instant::now());
        self.take_events(&mut open);
        Ok(())
    }

    fn sleep_on_descriptor(&self, time: Duration) -> Result<(), EndpointError> {
        let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        let fds = [self.fd(), self.driver_bell()].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        match poll(&mut { fds }, Some(&time)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(EndpointError::system("cannot wait for completions")(error)),
        }
    }
}
