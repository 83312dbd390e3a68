//! Client of the set-up protocol: requests are repeated until they are answered.

use crate::stream::StreamConfig;
use shotline_wire::framing::{Kind, NoSetUp};
use shotline_wire::setup::{
    Acknowledgement, Body, Configure, Describe, LEN, Message, Refusal, Reply, Report, Request, Sequence, Source, Start,
    Trigger, Verdict,
};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// First timeout: a probe answers in microseconds, but an emulated one may be preparing shots.
const FIRST_TIMEOUT: Duration = Duration::from_millis(100);
/// Maximum number of times that a request is sent; each timeout is twice the one before.
const MAX_TRIES: u32 = 6;
/// Interval of checks for cancellation.
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Silence of an owner above which it is reported as perhaps dead.
const OWNER_ALIVE: Duration = Duration::from_secs(2);

/// Error of controlling a probe.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The socket failed.
    #[error("cannot communicate with the probe at {probe}: {source}")]
    Socket {
        /// The probe's set-up address.
        probe: SocketAddr,
        /// The kernel's reason.
        source: io::Error,
    },
    /// No reply arrived.
    #[error(
        "the probe at {probe} does not answer ({tries} tries, {waited:.1?}): check that it is on, and that this is its set-up address (shotline emulate probe starts an emulated one)"
    )]
    Silent {
        /// The probe's set-up address.
        probe: SocketAddr,
        /// Number of requests sent.
        tries: u32,
        /// Total time waited.
        waited: Duration,
    },
    /// The request was cancelled.
    #[error("stopped before the probe at {probe} answered: {tries} requests were sent")]
    Stopped {
        /// The probe's set-up address.
        probe: SocketAddr,
        /// Number of requests sent.
        tries: u32,
    },
    /// The framing does not support set-up.
    #[error(transparent)]
    Framing(#[from] NoSetUp),
    /// The probe refused the request.
    #[error("the probe at {probe} refused: {refusal}")]
    Refused {
        /// The probe's set-up address.
        probe: SocketAddr,
        /// Reason given by the probe.
        refusal: Refusal,
    },
    /// Another receiver controls the probe.
    #[error("the probe at {probe} refused: {}", describe_owner(*silence))]
    Owned {
        /// The probe's set-up address.
        probe: SocketAddr,
        /// Time since the probe last received a packet of that receiver, if reported.
        silence: Option<Duration>,
    },
    /// The probe does not support transmit sequences.
    #[error(
        "the probe at {probe} does not support transmit sequences (it refused the request as unknown): update its firmware, or omit the sequence"
    )]
    NoSequences {
        /// The probe's set-up address.
        probe: SocketAddr,
    },
    /// The probe did not accept a trigger.
    #[error("{0}")]
    NotTriggered(String),
    /// The reply does not match the request.
    #[error(
        "the probe at {probe} sent an unexpected reply to a {request} request: it does not follow docs/wire-formats.md"
    )]
    UnexpectedReply {
        /// The probe's set-up address.
        probe: SocketAddr,
        /// Kind of the request.
        request: &'static str,
    },
}

/// Describes the owner of a probe, its last activity, and what to do.
fn describe_owner(silence: Option<Duration>) -> String {
    let silence = match silence {
        None => String::new(),
        Some(silence) if silence < OWNER_ALIVE => format!(", active {silence:.1?} ago"),
        Some(silence) => {
            format!(
                ", last active {silence:.1?} ago and perhaps dead (a running recorder sends several requests a second)"
            )
        }
    };
    format!("another receiver controls the probe{silence}: stop that one, or take over (--take-over)")
}

/// Connection to one probe. Every request is repeated until it is answered.
///
/// A request fails if the probe refuses it ([`ControlError::Refused`], [`ControlError::Owned`]), sends a reply of
/// another kind, or does not answer six tries in 6.3 s ([`ControlError::Silent`]); if the socket fails; and after the
/// second try, if the flag of [`Self::set_cancel_flag`] is set ([`ControlError::Stopped`]).
pub struct Control<'a> {
    socket: UdpSocket,
    probe: SocketAddr,
    token: u32,
    sequence: u32,
    take_over: bool,
    stop: Option<&'a AtomicBool>,
}

impl<'a> Control<'a> {
    /// Opens a socket to `probe` with a random token. With `take_over` its requests override another receiver.
    ///
    /// # Errors
    /// If the socket cannot be opened.
    pub fn open(probe: SocketAddr, take_over: bool) -> Result<Self, ControlError> {
        Self::open_as(random(probe)?, probe, take_over)
    }

    /// Opens a socket with a token that several programs may share: together they are one owner.
    ///
    /// # Errors
    /// If the socket cannot be opened.
    pub fn open_as(token: u32, probe: SocketAddr, take_over: bool) -> Result<Self, ControlError> {
        let failed = |source| ControlError::Socket { probe, source };
        let any: IpAddr = if probe.is_ipv4() { [0, 0, 0, 0].into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0)).map_err(failed)?;
        socket.connect(probe).map_err(failed)?;
        // Not from 0: the probe would treat the request as a repetition of another program's with this token.
        Ok(Self { socket, probe, token, sequence: random(probe)?, take_over, stop: None })
    }

    /// Sets a flag that cancels repetitions once it is set; without one, requests are repeated up to the limit.
    pub fn set_cancel_flag(&mut self, stop: Option<&'a AtomicBool>) {
        self.stop = stop;
    }

    /// Returns the local address that the probe sends packets to by default.
    ///
    /// # Errors
    /// If the kernel does not report it.
    pub fn local_ip(&self) -> Result<IpAddr, ControlError> {
        let local = self.socket.local_addr();
        local.map(|local| local.ip()).map_err(|source| ControlError::Socket { probe: self.probe, source })
    }

    /// Queries the probe's description.
    ///
    /// # Errors
    /// Those of a request (see [`Control`]).
    pub fn query(&mut self) -> Result<Describe, ControlError> {
        match self.request(Request::Query)? {
            Reply::Describe(describe) => Ok(describe),
            _ => Err(self.unexpected_reply("query")),
        }
    }

    /// Sets up one link. Returns the source of its packets.
    ///
    /// # Errors
    /// Those of a request (see [`Control`]).
    pub fn configure(&mut self, configure: Configure) -> Result<Source, ControlError> {
        match self.request(Request::Configure(configure))? {
            Reply::Configured(_, source) => Ok(source),
            _ => Err(self.unexpected_reply("configure")),
        }
    }

    /// Sets up one link: configures `destination` at the probe, and stores the sender's address and first sequence
    /// number in `stream`. `dest_qp` and `q_key` are 0 for framings without a queue pair. Returns the reply.
    ///
    /// # Errors
    /// Those of a request (see [`Control`]), and if the framing does not support set-up.
    pub fn configure_stream(
        &mut self,
        link: u8,
        framing: Kind,
        stream: &mut StreamConfig,
        destination: SocketAddr,
        (dest_qp, q_key): (u32, u32),
    ) -> Result<Source, ControlError> {
        let framing = framing.for_set_up()?;
        let source = self.configure(Configure {
            link,
            framing,
            geometry: stream.geometry,
            destination,
            dest_qp,
            q_key,
            stream: stream.stream,
        })?;
        // A probe that does not report its own address (it sends from "any") is identified by its first packet.
        stream.source = Some(source.address).filter(|address| !address.ip().is_unspecified() && address.port() != 0);
        stream.first_psn = Some(source.first_psn);
        Ok(source)
    }

    /// Starts the probe; returns the number of the first shot.
    ///
    /// # Errors
    /// Those of a request (see [`Control`]).
    pub fn start(&mut self, start: Start) -> Result<u64, ControlError> {
        match self.request(Request::Start(start))? {
            Reply::Started { first_shot } => Ok(first_shot),
            _ => Err(self.unexpected_reply("start")),
        }
    }

    /// Stops the probe, and returns the report of a link.
    ///
    /// # Errors
    /// Those of a request (see [`Control`]).
    pub fn stop(&mut self, link: u8) -> Result<Report, ControlError> {
        match self.request(Request::Stop { link })? {
            Reply::Stopped(report) => Ok(report),
            _ => Err(self.unexpected_reply("stop")),
        }
    }

    /// Returns the status of a link.
    ///
    /// # Errors
    /// Those of a request (see [`Control`]).
    pub fn status(&mut self, link: u8) -> Result<Report, ControlError> {
        match self.request(Request::Status { link })? {
            Reply::Status(report) => Ok(report),
            _ => Err(self.unexpected_reply("status")),
        }
    }

    /// Sets the cyclic sequence of transmit events of the next runs; an empty one clears it. Call it after the first
    /// [`Self::configure`], which makes this receiver the owner and clears the sequence of the previous one.
    ///
    /// # Errors
    /// Those of a request (see [`Control`]), and [`ControlError::NoSequences`] if the probe's firmware is too old.
    pub fn sequence(&mut self, sequence: Sequence) -> Result<Sequence, ControlError> {
        match self.request(Request::Sequence(sequence)) {
            Ok(Reply::Sequenced(sequence)) => Ok(sequence),
            Ok(_) => Err(self.unexpected_reply("sequence")),
            Err(ControlError::Refused { probe, refusal: Refusal::Kind }) => Err(ControlError::NoSequences { probe }),
            Err(error) => Err(error),
        }
    }

    /// Returns a trigger with this receiver's token, so that the probe can check the owner.
    pub fn with_token(&self, trigger: Trigger) -> Trigger {
        Trigger { token: self.token, take_over: self.take_over, ..trigger }
    }

    /// Sends a trigger and waits for its acknowledgement, which it always requests. After a lost datagram the same one
    /// is sent again; a probe processes it once, and [`Verdict::Repeated`] to a repetition means that an earlier one
    /// was processed.
    ///
    /// # Errors
    /// If no acknowledgement arrives, the socket fails, or the flag of [`Self::set_cancel_flag`] is set after the second
    /// try. A trigger that the probe does not accept is no error: the verdict gives the reason.
    pub fn trigger(&mut self, trigger: Trigger) -> Result<Verdict, ControlError> {
        let trigger = Trigger { acknowledge: true, ..self.with_token(trigger) };
        self.exchange(&trigger.emit(), |datagram| {
            Acknowledgement::parse(datagram).ok().filter(|reply| reply.trigger == trigger)
        })
        .map(|reply| reply.verdict)
    }

    /// Sends a trigger command, and returns the number of its shot. `sequence`: its number, of which a probe executes each
    /// once; none for a random one. With `command_only` the probe checks the command and acquires no shot.
    ///
    /// # Errors
    /// Those of [`Self::trigger`], and [`ControlError::NotTriggered`] if the probe does not accept it.
    pub fn trigger_shot(&mut self, sequence: Option<u32>, command_only: bool) -> Result<u64, ControlError> {
        let sequence = sequence.map_or_else(|| random(self.probe), Ok)?;
        let verdict = self.trigger(Trigger { command_only, ..Trigger::new(sequence) })?;
        let reason = match verdict {
            Verdict::Accepted { shot } => return Ok(shot),
            Verdict::Busy => {
                "the probe missed the trigger: a shot is in progress; wait until it is sent".into()
            }
            Verdict::NotRunning => {
                "the probe does not accept trigger commands now: run shotline probe start --external".into()
            }
            Verdict::Repeated => format!(
                "the probe has seen the trigger number {sequence} before: an earlier answer was lost (shotline probe status shows what was sent); use another --sequence"
            ),
            Verdict::Owned => {
                "the probe refused: another receiver controls it; use --take-over to execute this trigger without taking over control".into()
            }
            Verdict::Other(code) => format!("the probe answered with verdict {code}: see its manual"),
        };
        Err(ControlError::NotTriggered(reason))
    }

    fn unexpected_reply(&self, request: &'static str) -> ControlError {
        ControlError::UnexpectedReply { probe: self.probe, request }
    }

    fn request(&mut self, request: Request) -> Result<Reply, ControlError> {
        match self.reply(request)? {
            Reply::Refused { refusal: Refusal::Owned, .. } => {
                // Status requests do not require ownership.
                let silence = match self.reply(Request::Status { link: 0 }) {
                    Ok(Reply::Status(Report { owner_silent_ms: ms @ 1.., .. })) => {
                        Some(Duration::from_millis(ms.into()))
                    }
                    _ => None,
                };
                Err(ControlError::Owned { probe: self.probe, silence })
            }
            Reply::Refused { refusal, .. } => Err(ControlError::Refused { probe: self.probe, refusal }),
            reply => Ok(reply),
        }
    }

    /// Sends a request and returns the reply, which may be a refusal.
    fn reply(&mut self, request: Request) -> Result<Reply, ControlError> {
        self.sequence = self.sequence.wrapping_add(1);
        let (sequence, token) = (self.sequence, self.token);
        let message = Message::request(sequence, token, self.take_over, request);
        // Datagrams other than the reply to this request are old or not the probe's.
        let reply = |datagram: &[u8]| match Message::parse(datagram).ok()? {
            Message { body: Body::Reply(reply), sequence: s, token: t } if (s, t) == (sequence, token) => Some(reply),
            _ => None,
        };
        self.exchange(&message.emit(), reply)
    }

    /// Sends a datagram repeatedly until a reply to it arrives.
    fn exchange<R>(&self, message: &[u8], reply: impl Fn(&[u8]) -> Option<R>) -> Result<R, ControlError> {
        let probe = self.probe;
        let failed = |source| ControlError::Socket { probe, source };
        let started = Instant::now();
        let mut timeout = FIRST_TIMEOUT;
        for tries in 0..MAX_TRIES {
            match self.socket.send(message) {
                // An earlier datagram was answered with "port unreachable": the probe may still be starting.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                sent => drop(sent.map_err(failed)?),
            }
            let deadline = Instant::now() + timeout;
            while let Some(remaining) =
                deadline.checked_duration_since(Instant::now()).filter(|remaining| !remaining.is_zero())
            {
                // The first timeout is never cut short, so a reachable probe can always answer.
                if tries > 0 && self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                    return Err(ControlError::Stopped { probe, tries: tries + 1 });
                }
                let remaining = remaining.min(CANCEL_CHECK_INTERVAL);
                self.socket.set_read_timeout(Some(remaining)).map_err(failed)?;
                let mut datagram = [0; LEN + 1];
                match self.socket.recv(&mut datagram) {
                    Ok(len) => {
                        if let Some(reply) = reply(&datagram[..len]) {
                            return Ok(reply);
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::thread::sleep(remaining),
                    Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(failed(error)),
                }
            }
            timeout *= 2;
        }
        Err(ControlError::Silent { probe, tries: MAX_TRIES, waited: started.elapsed() })
    }
}

/// Returns a random number except 0, which as a token means "no owner".
fn random(probe: SocketAddr) -> Result<u32, ControlError> {
    let mut bytes = [0; 4];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| ControlError::Socket { probe, source: error.into() })?;
    Ok(u32::from_ne_bytes(bytes).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a probe that replies to datagrams with `reply`; returns what it received.
    fn with_probe<R>(
        reply: impl Fn(usize, &[u8]) -> Option<Vec<u8>> + Sync,
        receiver: impl FnOnce(SocketAddr) -> R,
    ) -> (R, Vec<Vec<u8>>) {
        let socket = UdpSocket::bind("[::1]:0").unwrap();
        let address = socket.local_addr().unwrap();
        let ended = std::sync::atomic::AtomicBool::new(false);
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        std::thread::scope(|scope| {
            let probe = scope.spawn(|| {
                let mut received = Vec::new();
                while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                    let mut datagram = [0; 256];
                    let Ok((len, from)) = socket.recv_from(&mut datagram) else { continue };
                    received.push(datagram[..len].to_vec());
                    if let Some(reply) = reply(received.len(), &datagram[..len]) {
                        socket.send_to(&reply, from).unwrap();
                    }
                }
                received
            });
            let result = receiver(address);
            ended.store(true, std::sync::atomic::Ordering::Relaxed);
            (result, probe.join().unwrap())
        })
    }

    fn refusal(datagram: &[u8], refusal: Refusal) -> Option<Vec<u8>> {
        Some(Message::parse(datagram).unwrap().refuse(refusal).unwrap().emit().to_vec())
    }

    #[test]
    fn an_older_probe_is_reported_without_sequences() {
        let (result, _) = with_probe(
            |_, datagram| refusal(datagram, Refusal::Kind),
            |probe| Control::open(probe, false).unwrap().sequence(Sequence::new(&[1, 2]).unwrap()),
        );
        assert!(matches!(result, Err(ControlError::NoSequences { .. })), "{result:?}");
    }

    #[test]
    fn a_refusal_reports_the_owners_last_activity() {
        for (owner_silent_ms, words) in
            [(0, "the probe: stop"), (300, "active 300.0ms ago: stop"), (41_000, "perhaps dead")]
        {
            let (result, _) = with_probe(
                |_, datagram| {
                    let message = Message::parse(datagram).unwrap();
                    match message.body {
                        Body::Request { request: Request::Status { .. }, .. } => {
                            let report = Report { owner_silent_ms, is_owned_by_other: true, ..Report::default() };
                            Some(message.reply(Reply::Status(report)).emit().to_vec())
                        }
                        _ => refusal(datagram, Refusal::Owned),
                    }
                },
                |probe| Control::open(probe, false).unwrap().stop(0).map(|_| ()),
            );
            let message = result.unwrap_err().to_string();
            assert!(message.contains(words) && message.contains("--take-over"), "{message}");
        }
    }

    #[test]
    fn requests_are_not_repeated_after_cancellation() {
        let stop = AtomicBool::new(true);
        let (result, received) = with_probe(
            |_, _| None,
            |probe| {
                let mut control = Control::open(probe, false).unwrap();
                control.set_cancel_flag(Some(&stop));
                control.query()
            },
        );
        assert!(matches!(result, Err(ControlError::Stopped { tries: 2, .. })), "{result:?}");
        assert!(received.len() <= 2);
    }

    #[test]
    fn programs_with_one_token_use_different_sequence_numbers() {
        let request = |probe| Control::open_as(5, probe, false).unwrap().status(0);
        let (_, received) =
            with_probe(|_, datagram| refusal(datagram, Refusal::Link), |probe| [request(probe), request(probe)]);
        let [first, second] = [&received[0], &received[1]].map(|datagram| Message::parse(datagram).unwrap());
        assert_eq!((first.token, second.token), (5, 5));
        assert_ne!(first.sequence, second.sequence);
    }

    #[test]
    fn a_trigger_with_a_lost_reply_is_resent_unchanged() {
        let trigger = Trigger::new(77);
        let (verdict, received) = with_probe(
            |count, datagram| {
                let trigger = Trigger::parse(datagram).unwrap();
                let old = Acknowledgement { trigger: Trigger { sequence: 76, ..trigger }, verdict: Verdict::Busy };
                let right = Acknowledgement { trigger, verdict: Verdict::Repeated };
                match count {
                    1 => None,
                    2 => Some(old.emit().to_vec()),
                    _ => Some(right.emit().to_vec()),
                }
            },
            |probe| Control::open(probe, false).unwrap().trigger(trigger),
        );
        assert_eq!(verdict.unwrap(), Verdict::Repeated);
        // A reply that arrives after its timeout causes one more repetition.
        assert!(received.len() >= 3 && received.iter().all(|datagram| *datagram == received[0]));
    }
}
