//! One file descriptor that is readable when an endpoint has something to do: packets, a deadline, an untaken event.

use crate::api::VerbsError;
use crate::engine::Nanos;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use shotline_transport::IoError;

/// An epoll instance over the transport's descriptor, a timer, and a bell for events.
#[derive(Debug)]
pub(super) struct Wakeups {
    epoll: OwnedFd,
    timer: OwnedFd,
    bell: OwnedFd,
    /// When the timer goes off.
    set: Option<Nanos>,
    rung: bool,
}

impl Wakeups {
    pub(super) fn new(io: Option<BorrowedFd<'_>>) -> Result<Self, VerbsError> {
        let failed = |source: rustix::io::Errno| {
            VerbsError::Io(IoError::System {
                what: "cannot make file descriptors to wait on".into(),
                source: source.into(),
                hint: "; raise the limit (ulimit -n)",
            })
        };
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(failed)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
        for fd in [Some(timer.as_fd()), Some(bell.as_fd()), io].into_iter().flatten() {
            epoll::add(&epoll, fd, EventData::new_u64(0), EventFlags::IN).map_err(failed)?;
        }
        Ok(Self { epoll, timer, bell, set: None, rung: false })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Sees to it that the descriptor is readable at `deadline`. No system call if it is already, as in a loop that
    /// polls.
    pub(super) fn set_timer(&mut self, now: Nanos, deadline: Option<Nanos>) {
        let late = match (self.set, deadline) {
            // It has gone off, and stays readable until it is set anew.
            (Some(set), _) if set <= now => true,
            (Some(set), Some(deadline)) => deadline < set,
            (None, deadline) => deadline.is_some(),
            (Some(_), None) => false,
        };
        if late {
            let nanos = deadline.unwrap_or(0); // zero disarms
            let it_value = Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 };
            let spec = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
            // The descriptor is a timer and the time is valid: this cannot fail.
            let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec);
            self.set = deadline;
        }
    }

    /// Rings the bell while an event waits to be taken.
    pub(super) fn ring(&mut self, waiting: bool) {
        if waiting != self.rung {
            self.rung = waiting;
            // The counter is 0 or 1, so neither call can block or fail.
            let _ = if waiting {
                rustix::io::write(&self.bell, &1_u64.to_ne_bytes())
            } else {
                rustix::io::read(&self.bell, &mut [0; 8])
            };
        }
    }
}

/// The monotonic clock, which the timer counts by, too.
pub(super) fn now() -> Nanos {
    let time = rustix::time::clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
