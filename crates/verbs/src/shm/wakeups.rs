//! The file descriptor that an endpoint sleeps on.

use super::control::Control;
use rustix::event::epoll::{self, EventFlags};
use rustix::event::{EventfdFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};
use std::time::{Duration, Instant};

/// An epoll instance over the peer's messages, the endpoint's own events, and its earliest deadline.
#[derive(Debug)]
pub(super) struct Wakeups {
    epoll: OwnedFd,
    /// Signals the endpoint's own events; no other process holds it.
    events: OwnedFd,
    /// `events` is signalled.
    raised: bool,
    timer: OwnedFd,
    /// Deadline that the timer is set to.
    timer_at: Option<Instant>,
}

impl Wakeups {
    pub(super) fn new(control: &Control) -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let events = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        for fd in [control.fd(), events.as_fd(), timer.as_fd()] {
            epoll::add(&epoll, fd, epoll::EventData::new_u64(0), EventFlags::IN)?;
        }
        Ok(Self { epoll, events, raised: false, timer, timer_at: None })
    }
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
    /// Removes the socket from the epoll set: after end of file it would always be readable.
    pub(super) fn remove_socket(&self, control: &Control) {
        let _ = epoll::delete(&self.epoll, control.fd());
    }
    /// Signals a pending event.
    pub(super) fn raise(&mut self) {
        if !self.raised {
            self.raised = rustix::io::write(&self.events, &1_u64.to_ne_bytes()).is_ok();
        }
    }
    /// Clears the signal after the last event was taken.
    pub(super) fn lower(&mut self) {
        if self.raised {
            let _ = rustix::io::read(&self.events, &mut [0_u8; 8]);
            self.raised = false;
        }
    }
    /// Sets the time of the next wake-up. A late or early wake-up is harmless.
    pub(super) fn set_deadline(&mut self, deadline: Option<Instant>) {
        if self.timer_at == deadline {
            return;
        }
        // 0 would disarm the timer.
        let after =
            deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1)));
        let value = Itimerspec { it_interval: timespec(Duration::ZERO), it_value: timespec(after.unwrap_or_default()) };
        if rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &value).is_ok() {
            self.timer_at = deadline;
        }
    }
    /// Sleeps until the descriptor is readable, or for `timeout`.
    pub(super) fn sleep(&mut self, timeout: Duration) -> Result<(), Errno> {
        let mut found = Vec::with_capacity(3);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut found), Some(&timespec(timeout))) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

pub(super) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
