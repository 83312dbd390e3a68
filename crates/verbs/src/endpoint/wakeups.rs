//! One file descriptor that is readable when an endpoint has work: packets, an expired deadline, or a pending event.

use crate::api::VerbsError;
use crate::engine::Nanos;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use shotline_transport::IoError;

/// An epoll instance over the transport's descriptor, a timerfd, and an eventfd for completion events.
#[derive(Debug)]
pub(super) struct Wakeups {
    epoll: OwnedFd,
    timer: OwnedFd,
    events: OwnedFd,
    /// Expiry time of the timer.
    timer_at: Option<Nanos>,
    signaled: bool,
}

impl Wakeups {
    pub(super) fn new(io: Option<BorrowedFd<'_>>) -> Result<Self, VerbsError> {
        let failed = |source: rustix::io::Errno| {
            VerbsError::Io(IoError::System {
                what: "cannot create epoll, timer and event file descriptors".into(),
                source: source.into(),
                hint: "; raise the limit (ulimit -n)",
            })
        };
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(failed)?;
        let events = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
        for fd in [Some(timer.as_fd()), Some(events.as_fd()), io].into_iter().flatten() {
            epoll::add(&epoll, fd, EventData::new_u64(0), EventFlags::IN).map_err(failed)?;
        }
        Ok(Self { epoll, timer, events, timer_at: None, signaled: false })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Ensures that the descriptor is readable at `deadline`. Makes no system call if the timer expires by then
    /// already, as in a polling loop.
    pub(super) fn set_timer(&mut self, now: Nanos, deadline: Option<Nanos>) {
        let must_set = match (self.timer_at, deadline) {
            // It has expired, and stays readable until it is set again.
            (Some(at), _) if at <= now => true,
            (Some(at), Some(deadline)) => deadline < at,
            (None, deadline) => deadline.is_some(),
            (Some(_), None) => false,
        };
        if must_set {
            let nanos = deadline.unwrap_or(0); // zero disarms
            let it_value = Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 };
            let spec = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
            // The descriptor is a timer and the time is valid: this cannot fail.
            let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec);
            self.timer_at = deadline;
        }
    }

    /// Makes the descriptor readable while an event is pending.
    pub(super) fn signal(&mut self, pending: bool) {
        if pending != self.signaled {
            self.signaled = pending;
            // The counter is 0 or 1, so neither call can block or fail.
            let _ = if pending {
                rustix::io::write(&self.events, &1_u64.to_ne_bytes())
            } else {
                rustix::io::read(&self.events, &mut [0; 8])
            };
        }
    }
}

/// Returns the time of the monotonic clock, which the timer uses as well.
pub(super) fn now() -> Nanos {
    let time = rustix::time::clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
