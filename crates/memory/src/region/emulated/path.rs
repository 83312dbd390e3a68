//! The link of an emulated path: transfers take the time that the path takes.
//!
//! Each direction has a virtual time at which it is free. A transfer of n bytes begins when it is requested or when the
//! direction is free, whichever is later, and occupies the direction for n / rate. On an idle path the latency precedes
//! it, and the call returns when the last byte has passed.
//!
//! A caller that copies packet after packet stands for a device with many operations in flight, so the latency is not
//! added to an operation that follows the previous one within [`MAX_GAP`]. Such an operation may return up to
//! [`RUN_AHEAD`] before its last byte has passed: then the caller sleeps once for many packets, and the rate of all of
//! them is that of the path. Time that a sleep takes in excess is returned to the operations that follow it within
//! [`MAX_PAUSE`], and so is time by which a copy is late, because its thread was preempted.

use super::model::{PathDirection, PathModel};
use rustix::io::Errno;
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const PS_PER_NS: u128 = 1_000;
/// Longest time from the return of an operation to a request that continues it, in ps.
const MAX_GAP: u128 = 1_000_000;
/// Longest time from the return of an operation to a request that uses the excess of a sleep, in ps.
const MAX_PAUSE: u128 = 100_000_000;
/// Time by which operations that continue another one may return early, in ps.
const RUN_AHEAD: u128 = 100_000_000;
/// Time by which they are still early after a wait, so that a sleep may take longer than requested, in ps.
const AFTER_WAIT: u128 = 50_000_000;
/// Longest excess of a sleep or delay of a copy that is returned, in ps.
const MAX_CREDIT: u128 = 10_000_000_000;
/// Longest time for which the caller spins instead of sleeping, in ns: a sleep takes about this long in excess.
const SPIN_NS: u64 = 50_000;

/// Clock of a path.
pub(super) trait Clock: Send + Sync {
    /// Returns the time in nanoseconds since any moment.
    fn now(&self) -> u64;
    /// Waits until this time, at least. `is_exact`: and not much longer.
    fn wait_until(&self, time: u64, is_exact: bool);
}

/// The monotonic clock of the machine.
struct Monotonic;

impl Clock for Monotonic {
    fn now(&self) -> u64 {
        let time = clock_gettime(ClockId::Monotonic);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
    fn wait_until(&self, time: u64, is_exact: bool) {
        let margin = if is_exact { SPIN_NS } else { 0 };
        let wake = time.saturating_sub(margin);
        while self.now() < wake {
            let request = Timespec { tv_sec: (wake / 1_000_000_000) as i64, tv_nsec: (wake % 1_000_000_000) as _ };
            // A signal ends the sleep early.
            match rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &request) {
                Ok(()) | Err(Errno::INTR) => {}
                Err(_) => std::thread::yield_now(),
            }
        }
        while self.now() < time {
            std::hint::spin_loop();
        }
    }
}

/// Virtual time of a direction, in picoseconds of the path's clock.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    /// End of the last transfer.
    free_at: u128,
    /// Time at which the last call returned. `None` before the first.
    returned_at: Option<u128>,
    /// Excess of the last sleep, or delay of a copy, that is not used yet.
    credit: u128,
    /// Time until which it can be used: a caller that has much to transfer needs no longer.
    credit_until: u128,
}

/// A transfer whose bytes have their place in the virtual time of a direction.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    requested_at: u128,
    /// Time for which it occupies the direction.
    occupied: u128,
    ends_at: u128,
    /// The direction was idle.
    is_first: bool,
}

impl Link {
    fn reserve(&mut self, now: u128, latency: u128, occupied: u128) -> Transfer {
        let busy_until = self.returned_at.map(|returned| returned.max(self.free_at));
        let within = |pause| busy_until.is_some_and(|until| now <= until + pause);
        // The direction would still be busy without the excess of the sleep, of which this much is not used yet.
        self.credit = if within(MAX_PAUSE) { self.credit.min(now.saturating_sub(self.free_at)) } else { 0 };
        if now > self.credit_until {
            self.credit = 0;
        }
        let continued = within(MAX_GAP) || self.credit > 0;
        let earliest = if continued { now.saturating_sub(self.credit + MAX_GAP) } else { now + latency };
        self.free_at = self.free_at.max(earliest) + occupied;
        Transfer { requested_at: now, occupied, ends_at: self.free_at, is_first: !continued }
    }
}

/// What has passed in one direction of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCounters {
    /// Number of operations.
    pub operations: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Time for which callers waited for the path.
    pub waited: Duration,
}

#[derive(Default)]
struct OneWay {
    link: Mutex<Link>,
    operations: AtomicU64,
    bytes: AtomicU64,
    waited_ns: AtomicU64,
}

/// A path to the memory of an emulated accelerator, whose transfers take as long as [`PathModel`] says. The directions
/// are independent of each other; the transfers of one direction share its rate, whichever threads and regions they
/// come from.
///
/// Every transfer reads the clock and locks its direction for a few instructions: the emulated device is not for
/// measurements of this program's own overhead.
pub struct EmulatedPath {
    model: PathModel,
    clock: Box<dyn Clock>,
    to_accelerator: OneWay,
    from_accelerator: OneWay,
}

impl EmulatedPath {
    /// Creates an idle path.
    pub fn new(model: PathModel) -> Self {
        Self::with_clock(model, Box::new(Monotonic))
    }

    pub(super) fn with_clock(model: PathModel, clock: Box<dyn Clock>) -> Self {
        Self { model, clock, to_accelerator: OneWay::default(), from_accelerator: OneWay::default() }
    }

    /// Returns the rates and the latency.
    pub fn model(&self) -> PathModel {
        self.model
    }

    /// Returns what has passed in a direction.
    pub fn counters(&self, direction: PathDirection) -> PathCounters {
        let OneWay { link: _, operations, bytes, waited_ns } = self.one_way(direction);
        PathCounters {
            operations: operations.load(Relaxed),
            bytes: bytes.load(Relaxed),
            waited: Duration::from_nanos(waited_ns.load(Relaxed)),
        }
    }

    /// Waits as long as a transfer of `bytes` takes: for memory that another part of the program copies.
    pub fn delay(&self, direction: PathDirection, bytes: usize) {
        self.transfer(direction, bytes, || ());
    }

    /// Says that the next transfer of a direction was requested before the last one had passed: it follows without a gap,
    /// although its caller was busy with others. Gaps of up to 10 ms are closed.
    pub fn follow(&self, direction: PathDirection) {
        let now = u128::from(self.clock.now()) * PS_PER_NS;
        self.one_way(direction).lock(|link| {
            if link.returned_at.is_some() {
                link.returned_at = link.returned_at.max(Some(now));
                link.credit = now.saturating_sub(link.free_at).min(MAX_CREDIT);
                link.credit_until = now + 2 * link.credit;
            }
        });
    }

    /// Copies by `copy`, and then waits until a transfer of `bytes` that began before the copy has passed.
    pub fn transfer<T>(&self, direction: PathDirection, bytes: usize, copy: impl FnOnce() -> T) -> T {
        let one_way = self.one_way(direction);
        let occupied = self.model.occupied_ps(direction, bytes);
        let latency = u128::from(self.model.latency_ns) * PS_PER_NS;
        let now = u128::from(self.clock.now()) * PS_PER_NS;
        let transfer = one_way.lock(|link| link.reserve(now, latency, occupied));
        let copied = copy();
        self.wait(one_way, transfer);
        one_way.operations.fetch_add(1, Relaxed);
        one_way.bytes.fetch_add(bytes as u64, Relaxed);
        copied
    }

    fn wait(&self, one_way: &OneWay, transfer: Transfer) {
        let Transfer { requested_at, occupied, ends_at, is_first } = transfer;
        let before = self.clock.now();
        let early = ends_at.saturating_sub(u128::from(before) * PS_PER_NS);
        let wait_until = match is_first {
            true if early > 0 => Some(ends_at),
            false if early > RUN_AHEAD => Some(ends_at - AFTER_WAIT),
            true | false => None,
        };
        let Some(until) = wait_until else {
            let now = u128::from(before) * PS_PER_NS;
            return one_way.lock(|link| {
                link.returned_at = link.returned_at.max(Some(now));
                // What the transfer has used. The time of its copy is no pause: the path was busy with other bytes.
                link.credit = link.credit.min(now.saturating_sub(link.free_at));
                let copying = now.saturating_sub(requested_at);
                match copying.checked_sub(occupied) {
                    Some(late @ 1..) => {
                        let lag = now.saturating_sub(link.free_at);
                        link.credit = (link.credit + late).min(lag).min(MAX_CREDIT);
                        link.credit_until = now + 2 * link.credit;
                    }
                    Some(0) | None => link.credit_until += copying,
                }
            });
        };
        // The last byte has passed when the nanosecond is complete.
        self.clock.wait_until(u64::try_from(until.div_ceil(PS_PER_NS)).unwrap_or(u64::MAX), is_first);
        let after = self.clock.now();
        one_way.waited_ns.fetch_add(after.saturating_sub(before), Relaxed);
        let after = u128::from(after) * PS_PER_NS;
        one_way.lock(|link| {
            link.returned_at = link.returned_at.max(Some(after));
            link.credit = after.saturating_sub(until).min(MAX_CREDIT);
            link.credit_until = after + 2 * link.credit;
        });
    }

    fn one_way(&self, direction: PathDirection) -> &OneWay {
        match direction {
            PathDirection::Write => &self.to_accelerator,
            PathDirection::Read => &self.from_accelerator,
        }
    }
}

impl OneWay {
    fn lock<T>(&self, change: impl FnOnce(&mut Link) -> T) -> T {
        // A link is valid after every assignment, so a panic of another thread has not damaged it.
        change(&mut self.link.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl std::fmt::Debug for EmulatedPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EmulatedPath({})", self.model)
    }
}
