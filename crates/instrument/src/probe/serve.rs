//! Runs a probe on real sockets and clocks.

use super::clock::{Skew, stamp, steady_ns};
use super::shots::{ReadError, Shots};
use super::{
    Config, Failures, FireError, LinkRequest, LinkTransport, Patterns, Probe, ProbeCounters, ProbeError, ProbeState,
    Stamp, Step,
};
use rustix::event::{PollFd, PollFlags, Timespec};
use shotline_memory::Regions;
use shotline_transport::{IoError, PacketIo};
use shotline_wire::setup::{Refusal, Start};
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};

/// Time before a shot at which sleeping ends and spinning begins, in ns. The kernel wakes a thread some 50 us late.
const SPIN_NS: u64 = 120_000;
/// Poll interval for messages while shots are sent, in ns.
const MESSAGE_POLL_NS: u64 = 1_000_000;
/// Minimum time between two calls of an observer, in ns.
const OBSERVE_NS: u64 = 100_000_000;
/// Maximum time between two checks of the stop flag, in ns.
const MAX_SLEEP_NS: u64 = 50_000_000;
/// Spins on a full path before yielding the processor.
const SPINS: u32 = 64;
/// Time for which messages are still answered after the last shot, in ns; each message restarts it.
const LINGER_NS: u64 = 1_000_000_000;
/// As [`LINGER_NS`], while no message has arrived since the last shot: the receiver may be slow.
const FIRST_LINGER_NS: u64 = 10 * LINGER_NS;

/// Reason why a server could not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The probe could not be created.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The set-up port could not be opened.
    #[error(
        "cannot listen on UDP {address}: {source}; another probe may be using the port (ss -ulpn), or the address does not belong to this machine"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// The set-up port failed.
    #[error("the set-up port failed: {0}")]
    Control(std::io::Error),
    /// A shot could not be sent.
    #[error(transparent)]
    Io(#[from] IoError),
    /// A shot could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl From<FireError> for ServeError {
    fn from(error: FireError) -> Self {
        match error {
            FireError::Io(error) => Self::Io(error),
            FireError::Read(error) => Self::Read(error),
        }
    }
}

/// A probe that listens for a receiver, or sends to a preset destination.
#[derive(Debug)]
pub struct Server<Io, Open, S = Patterns> {
    control: Option<UdpSocket>,
    probe: Probe<Io, Open, S>,
    busy_poll: bool,
    skew: Skew,
    once: bool,
    linger: LingerTimer,
}

/// Timer of the quiet time after the last shot.
#[derive(Debug, Default)]
struct LingerTimer {
    quiet_ns: u64,
    last_check_ns: u64,
    /// A message has arrived since the last shot was sent.
    is_contacted: bool,
}

impl LingerTimer {
    /// Restarts the timer when a message arrives.
    fn restart(&mut self, has_ended: bool) {
        (self.quiet_ns, self.is_contacted) = (0, has_ended);
    }

    /// Returns `true` once the quiet time has elapsed. Each call adds at most [`MAX_SLEEP_NS`], so a pause of this
    /// process does not count as quiet time.
    fn is_over(&mut self, now: u64, has_ended: bool) -> bool {
        let passed = now.saturating_sub(std::mem::replace(&mut self.last_check_ns, now));
        if !has_ended {
            *self = Self { last_check_ns: now, ..Self::default() };
            return false;
        }
        self.quiet_ns += passed.min(MAX_SLEEP_NS);
        self.quiet_ns > if self.is_contacted { LINGER_NS } else { FIRST_LINGER_NS }
    }
}

impl<Io, Open> Server<Io, Open>
where
    Io: PacketIo,
    Open: FnMut(&LinkRequest, &Regions) -> Result<LinkTransport<Io>, IoError>,
{
    /// Creates a probe and opens its set-up port. `open` opens the transport of a link.
    ///
    /// # Errors
    /// If the probe cannot be created or the port cannot be opened.
    pub fn bind(config: Config, listen: SocketAddr, open: Open) -> Result<Self, ServeError> {
        Self::with_probe(Probe::new(config, open)?, listen)
    }
}

impl<Io, Open, S> Server<Io, Open, S>
where
    Io: PacketIo,
    Open: FnMut(&LinkRequest, &Regions) -> Result<LinkTransport<Io>, IoError>,
    S: Shots,
{
    /// Opens the set-up port of an existing probe.
    ///
    /// # Errors
    /// If the port cannot be opened.
    pub fn with_probe(probe: Probe<Io, Open, S>, listen: SocketAddr) -> Result<Self, ServeError> {
        let failed = |source| ServeError::Listen { address: listen, source };
        let control = UdpSocket::bind(listen).map_err(failed)?;
        control.set_nonblocking(true).map_err(failed)?;
        Ok(Self {
            control: Some(control),
            probe,
            busy_poll: false,
            skew: Skew::default(),
            once: false,
            linger: LingerTimer::default(),
        })
    }

    /// Begins a run of a probe whose targets are set ([`Probe::set_target`]), without a set-up port. The server ends with
    /// the last shot.
    ///
    /// # Errors
    /// Those of [`Probe::begin`].
    pub fn without_setup(mut probe: Probe<Io, Open, S>, start: Start) -> Result<Self, Refusal> {
        probe.begin(start, steady_ns())?;
        Ok(Self {
            control: None,
            probe,
            busy_poll: false,
            skew: Skew::default(),
            once: true,
            linger: LingerTimer::default(),
        })
    }

    /// Sets whether the server ends after the last shot, once the receiver has had time to query the result.
    pub fn once(self, once: bool) -> Self {
        Self { once, ..self }
    }

    /// Sets whether the server spins instead of sleeping while it waits for a trigger command. This costs a processor
    /// and saves a few microseconds.
    pub fn busy_poll(self, busy_poll: bool) -> Self {
        Self { busy_poll, ..self }
    }

    /// Sets the offset and drift of the probe's clock relative to this machine's.
    pub fn skew(self, skew: Skew) -> Self {
        Self { skew, ..self }
    }

    /// Returns the address of the set-up port, with the port chosen by the kernel if none was given.
    ///
    /// # Errors
    /// If there is no set-up port.
    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        match &self.control {
            Some(control) => control.local_addr(),
            None => Err(ErrorKind::NotConnected.into()),
        }
    }

    /// Serves receivers until `stop` is set. A send failure ends the run, is visible to its owner in the next status,
    /// and is counted; the server continues, so an unreachable destination of one receiver does not affect others. With
    /// [`Self::once`] or [`Self::without_setup`] a send failure ends the server.
    ///
    /// # Errors
    /// If the set-up port fails or a shot cannot be read, or as above.
    pub fn run(self, stop: &AtomicBool) -> Result<ProbeCounters, ServeError> {
        self.serve(stop, None)
    }

    /// As [`Self::run`], with a call of `observer` about every 100 ms, between two shots.
    ///
    /// # Errors
    /// As of [`Self::run`].
    pub fn run_observed(
        self,
        stop: &AtomicBool,
        observer: &mut dyn FnMut(&ProbeState),
    ) -> Result<ProbeCounters, ServeError> {
        self.serve(stop, Some(observer))
    }

    /// Returns the state of the probe.
    pub fn state(&self) -> ProbeState {
        self.probe.state()
    }

    fn serve(
        mut self,
        stop: &AtomicBool,
        mut observer: Option<&mut dyn FnMut(&ProbeState)>,
    ) -> Result<ProbeCounters, ServeError> {
        let is_stopped = || stop.load(Ordering::Relaxed);
        let mut next_poll = 0;
        let mut next_observation = if observer.is_some() { 0 } else { u64::MAX };
        let mut failures = Failures::default();
        let set_tai_ns = stamp().tai_ns;
        while !is_stopped() {
            let now = steady_ns();
            if now >= next_observation {
                let mut state = self.probe.state();
                state.counters.failures = failures.clone();
                observer.iter_mut().for_each(|observer| observer(&state));
                next_observation = now + OBSERVE_NS;
                // The observer has taken time.
                continue;
            }
            let wait = match self.probe.next(now) {
                Step::Fire => {
                    if now >= next_poll || self.probe.takes_commands() {
                        self.poll_messages()?;
                        next_poll = now + MESSAGE_POLL_NS;
                    }
                    let mut tries = 0_u32;
                    let now = stamp();
                    let skewed = Stamp { tai_ns: self.skew.apply(now.tai_ns, set_tai_ns), ..now };
                    let fired = self.probe.fire(skewed, &mut || {
                        tries = tries.wrapping_add(1);
                        if tries.is_multiple_of(SPINS) {
                            std::thread::yield_now()
                        } else {
                            std::hint::spin_loop()
                        }
                        !is_stopped()
                    });
                    match fired {
                        Err(FireError::Io(error)) if !self.once => failures.add(&error),
                        fired => fired?,
                    }
                    self.probe.sent(steady_ns());
                    continue;
                }
                Step::Trigger if self.busy_poll => {
                    self.poll_messages()?;
                    continue;
                }
                Step::At(time) => (time - now).saturating_sub(SPIN_NS).min(MAX_SLEEP_NS),
                Step::Idle if self.is_done(now) => break,
                Step::Idle | Step::Trigger => MAX_SLEEP_NS,
            };
            if wait > 0 {
                self.sleep(wait)?;
            } else if now < next_poll {
                std::hint::spin_loop();
                continue;
            }
            self.poll_messages()?;
            next_poll = now + MESSAGE_POLL_NS;
        }
        Ok(ProbeCounters { failures, ..self.probe.counters() })
    }

    /// Returns `true` if the last shot was sent and the linger time has elapsed.
    fn is_done(&mut self, now: u64) -> bool {
        let has_ended = self.once && self.probe.has_ended();
        self.linger.is_over(now, has_ended) || has_ended && self.control.is_none()
    }

    /// Processes all pending messages.
    fn poll_messages(&mut self) -> Result<(), ServeError> {
        let Some(control) = &self.control else { return Ok(()) };
        // One byte longer than any message, so that longer datagrams are detected.
        let mut datagram = [0; shotline_wire::setup::LEN + 1];
        loop {
            let (len, from) = match control.recv_from(&mut datagram) {
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if is_transient(&error) => continue,
                Err(error) => return Err(ServeError::Control(error)),
            };
            let reply = self.probe.receive(&datagram[..len], steady_ns());
            self.linger.restart(self.probe.has_ended());
            if let Some(reply) = reply {
                // A receiver that gets no reply repeats its request. Errors here concern its address, which may be
                // forged (port 0, a broadcast), or are transient.
                let _ = control.send_to(&reply, from);
            }
        }
    }

    /// Sleeps for `ns` or until a message arrives.
    fn sleep(&self, ns: u64) -> Result<(), ServeError> {
        let timeout = Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 };
        let mut ports: Vec<_> = self.control.iter().map(|control| PollFd::new(control, PollFlags::IN)).collect();
        match rustix::event::poll(&mut ports, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(ServeError::Control(error.into())),
        }
    }
}

/// Returns `true` for errors that concern one peer, such as a receiver that has closed its port, and not the set-up
/// port.
fn is_transient(error: &std::io::Error) -> bool {
    use ErrorKind::{ConnectionRefused, ConnectionReset, HostUnreachable, Interrupted, NetworkUnreachable};
    matches!(error.kind(), Interrupted | ConnectionRefused | ConnectionReset | HostUnreachable | NetworkUnreachable)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the time until the timer elapses if checked at this interval.
    fn elapses_after(timer: &mut LingerTimer, from: u64, every: u64) -> u64 {
        (1..).map(|check| from + check * every).find(|now| timer.is_over(*now, true)).unwrap() - from
    }

    #[test]
    fn a_pause_of_the_process_is_not_quiet_time() {
        let mut timer = LingerTimer::default();
        assert!(!timer.is_over(1_000, false));
        // The process was stopped for an hour; messages that arrived meanwhile are processed first.
        assert!(!timer.is_over(3_600 * LINGER_NS, true));
        assert!(elapses_after(&mut timer, 3_600 * LINGER_NS, MAX_SLEEP_NS) >= FIRST_LINGER_NS - MAX_SLEEP_NS);
    }

    #[test]
    fn the_first_message_has_a_longer_timeout() {
        let mut timer = LingerTimer::default();
        timer.restart(false);
        assert!(!timer.is_over(0, true));
        assert!(elapses_after(&mut timer, 0, MAX_SLEEP_NS) > FIRST_LINGER_NS);
        timer.restart(true);
        let elapsed = elapses_after(&mut timer, 20 * FIRST_LINGER_NS, MAX_SLEEP_NS);
        assert!((LINGER_NS..FIRST_LINGER_NS).contains(&elapsed), "{elapsed}");
    }
}
