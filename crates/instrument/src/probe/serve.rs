//! A probe on real sockets and clocks.

use super::clock::{Skew, stamp, steady_ns};
use super::shots::{ReadError, Shots};
use super::{Config, Failures, FireError, Outlet, Patterns, Probe, ProbeError, Stamp, Stats, Step, Wanted};
use rustix::event::{PollFd, PollFlags, Timespec};
use shotline_memory::Regions;
use shotline_transport::{IoError, PacketIo};
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};

/// Sleeping is left to the kernel until so long before a shot; the rest is spent spinning. A sleeper is woken
/// some 50 us late.
const SPIN_NS: u64 = 120_000;
/// While shots are sent, messages are looked for this often.
const MESSAGES_NS: u64 = 1_000_000;
/// Longest sleep: how soon the stop flag is seen.
const LONGEST_SLEEP_NS: u64 = 50_000_000;
/// Times that a full path is retried at once before the processor is given to others.
const SPINS: u32 = 64;
/// After the last shot a receiver may ask how it went for so long; who asks gets as long again.
const LINGER_NS: u64 = 1_000_000_000;
/// A receiver that has not asked yet, although it will, gets so long: it may be slow.
const UNHEARD_NS: u64 = 10 * LINGER_NS;

/// Why a probe stopped working.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It could not be made.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// Its set-up port cannot be used.
    #[error(
        "cannot listen on UDP {address}: {source}; another probe may be running there (ss -ulpn), or the address is not on this machine"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// Its set-up port stopped working.
    #[error("the set-up port: {0}")]
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

/// A probe that listens for a receiver, or one that was told where to send.
#[derive(Debug)]
pub struct Server<Io, Open, S = Patterns> {
    control: Option<UdpSocket>,
    probe: Probe<Io, Open, S>,
    busy_poll: bool,
    skew: Skew,
    once: bool,
    lingering: Lingering,
}

/// How long nobody has asked after the last shot.
#[derive(Debug, Default)]
struct Lingering {
    quiet_ns: u64,
    looked_ns: u64,
    /// Somebody has asked since the last shot was sent.
    heard: bool,
}

impl Lingering {
    /// A message has come.
    fn hear(&mut self, has_ended: bool) {
        (self.quiet_ns, self.heard) = (0, has_ended);
    }

    /// Whether it has been quiet for long enough. A pause of this program is no silence of others: between two looks no
    /// more time passes than a look takes.
    fn is_over(&mut self, now: u64, has_ended: bool) -> bool {
        let passed = now.saturating_sub(std::mem::replace(&mut self.looked_ns, now));
        if !has_ended {
            *self = Self { looked_ns: now, ..Self::default() };
            return false;
        }
        self.quiet_ns += passed.min(LONGEST_SLEEP_NS);
        self.quiet_ns > if self.heard { LINGER_NS } else { UNHEARD_NS }
    }
}

impl<Io, Open> Server<Io, Open>
where
    Io: PacketIo,
    Open: FnMut(&Wanted, &Regions) -> Result<Outlet<Io>, IoError>,
{
    /// Makes the probe and opens its set-up port. `open` makes the transport of a link.
    pub fn bind(config: Config, listen: SocketAddr, open: Open) -> Result<Self, ServeError> {
        Self::of(Probe::new(config, open)?, listen)
    }
}

impl<Io, Open, S> Server<Io, Open, S>
where
    Io: PacketIo,
    Open: FnMut(&Wanted, &Regions) -> Result<Outlet<Io>, IoError>,
    S: Shots,
{
    /// Opens the set-up port of this probe.
    pub fn of(probe: Probe<Io, Open, S>, listen: SocketAddr) -> Result<Self, ServeError> {
        let failed = |source| ServeError::Listen { address: listen, source };
        let control = UdpSocket::bind(listen).map_err(failed)?;
        control.set_nonblocking(true).map_err(failed)?;
        Ok(Self {
            control: Some(control),
            probe,
            busy_poll: false,
            skew: Skew::default(),
            once: false,
            lingering: Lingering::default(),
        })
    }

    /// A probe that has begun already ([`Probe::begin`]) and that nobody asks. It ends with its last shot.
    pub fn unasked(probe: Probe<Io, Open, S>) -> Self {
        Self {
            control: None,
            probe,
            busy_poll: false,
            skew: Skew::default(),
            once: true,
            lingering: Lingering::default(),
        }
    }

    /// Whether it ends when its last shot was sent, and the receiver has heard so.
    pub fn once(self, once: bool) -> Self {
        Self { once, ..self }
    }

    /// Whether it spins rather than sleeps while it waits for a trigger command: a processor for a few microseconds.
    pub fn busy_poll(self, busy_poll: bool) -> Self {
        Self { busy_poll, ..self }
    }

    /// How its clock differs from this machine's.
    pub fn skew(self, skew: Skew) -> Self {
        Self { skew, ..self }
    }

    /// Where it listens, with the port that the kernel chose if none was given.
    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        match &self.control {
            Some(control) => control.local_addr(),
            None => Err(ErrorKind::NotConnected.into()),
        }
    }

    /// Does what receivers ask until `stop` is set. A failure to send ends the run, which its owner sees in the next
    /// status, and is counted: one receiver that names an address to which nothing can be sent takes the probe from no other.
    /// It ends a probe that sends its shots once ([`Self::once`], [`Self::unasked`]).
    pub fn run(mut self, stop: &AtomicBool) -> Result<Stats, ServeError> {
        let stopped = || stop.load(Ordering::Relaxed);
        let mut look = 0;
        let mut failures = Failures::default();
        let set_tai_ns = stamp().tai_ns;
        while !stopped() {
            let now = steady_ns();
            let wait = match self.probe.next(now) {
                Step::Fire => {
                    if now >= look || self.probe.takes_commands() {
                        self.messages()?;
                        look = now + MESSAGES_NS;
                    }
                    let mut tries = 0_u32;
                    let now = stamp();
                    let shown = Stamp { tai_ns: self.skew.show(now.tai_ns, set_tai_ns), ..now };
                    let fired = self.probe.fire(shown, &mut || {
                        tries = tries.wrapping_add(1);
                        if tries.is_multiple_of(SPINS) {
                            std::thread::yield_now()
                        } else {
                            std::hint::spin_loop()
                        }
                        !stopped()
                    });
                    match fired {
                        Err(FireError::Io(error)) if !self.once => failures.add(&error),
                        fired => fired?,
                    }
                    self.probe.sent(steady_ns());
                    continue;
                }
                Step::Trigger if self.busy_poll => {
                    self.messages()?;
                    continue;
                }
                Step::At(time) => (time - now).saturating_sub(SPIN_NS).min(LONGEST_SLEEP_NS),
                Step::Idle if self.is_done(now) => break,
                Step::Idle | Step::Trigger => LONGEST_SLEEP_NS,
            };
            if wait > 0 {
                self.sleep(wait)?;
            } else if now < look {
                std::hint::spin_loop();
                continue;
            }
            self.messages()?;
            look = now + MESSAGES_NS;
        }
        Ok(Stats { failures, ..self.probe.stats() })
    }

    /// Whether the last shot was sent, and nobody has asked since for a while.
    fn is_done(&mut self, now: u64) -> bool {
        let has_ended = self.once && self.probe.has_ended();
        self.lingering.is_over(now, has_ended) || has_ended && self.control.is_none()
    }

    /// Answers the messages that are there.
    fn messages(&mut self) -> Result<(), ServeError> {
        let Some(control) = &self.control else { return Ok(()) };
        // One byte more than any message, so that a longer one is seen to be too long.
        let mut datagram = [0; shotline_wire::setup::LEN + 1];
        loop {
            let (len, from) = match control.recv_from(&mut datagram) {
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if passes(&error) => continue,
                Err(error) => return Err(ServeError::Control(error)),
            };
            let reply = self.probe.receive(&datagram[..len], steady_ns());
            self.lingering.hear(self.probe.has_ended());
            if let Some(reply) = reply {
                // A receiver that gets none asks again. Whatever fails here is of its address, which may be forged (port
                // 0, a broadcast), or of this moment.
                let _ = control.send_to(&reply, from);
            }
        }
    }

    /// Sleeps until a message may be there.
    fn sleep(&self, ns: u64) -> Result<(), ServeError> {
        let timeout = Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 };
        let mut ports: Vec<_> = self.control.iter().map(|control| PollFd::new(control, PollFlags::IN)).collect();
        match rustix::event::poll(&mut ports, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(ServeError::Control(error.into())),
        }
    }
}

/// Errors of one peer or one moment, which say nothing about the port: a receiver that has gone away.
fn passes(error: &std::io::Error) -> bool {
    use ErrorKind::{ConnectionRefused, ConnectionReset, HostUnreachable, Interrupted, NetworkUnreachable};
    matches!(error.kind(), Interrupted | ConnectionRefused | ConnectionReset | HostUnreachable | NetworkUnreachable)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time that passes until it is over, when it is looked at this often.
    fn lasts(lingering: &mut Lingering, from: u64, every: u64) -> u64 {
        (1..).map(|look| from + look * every).find(|now| lingering.is_over(*now, true)).unwrap() - from
    }

    #[test]
    fn a_pause_of_the_program_is_no_silence_of_a_receiver() {
        let mut lingering = Lingering::default();
        assert!(!lingering.is_over(1_000, false));
        // Stopped for an hour: whoever has asked meanwhile is answered first.
        assert!(!lingering.is_over(3_600 * LINGER_NS, true));
        assert!(lasts(&mut lingering, 3_600 * LINGER_NS, LONGEST_SLEEP_NS) >= UNHEARD_NS - LONGEST_SLEEP_NS);
    }

    #[test]
    fn a_receiver_that_has_not_asked_yet_is_waited_for_longer_than_one_that_has() {
        let mut lingering = Lingering::default();
        lingering.hear(false);
        assert!(!lingering.is_over(0, true));
        assert!(lasts(&mut lingering, 0, LONGEST_SLEEP_NS) > UNHEARD_NS);
        lingering.hear(true);
        let again = lasts(&mut lingering, 20 * UNHEARD_NS, LONGEST_SLEEP_NS);
        assert!((LINGER_NS..UNHEARD_NS).contains(&again), "{again}");
    }
}
