//! The receiver's side of set-up: ask, wait, ask again.

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

/// A probe that is there answers in microseconds; an emulated one may be preparing shots.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const TRIES: u32 = 6;
/// Between two looks whether anybody still wants the answer.
const LOOK: Duration = Duration::from_millis(50);
/// An owner that was heard so recently is there.
const ALIVE: Duration = Duration::from_secs(2);

/// Why a probe could not be controlled.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The socket failed.
    #[error("cannot talk to the probe at {probe}: {source}")]
    Socket {
        /// The probe's set-up address.
        probe: SocketAddr,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Nothing came back.
    #[error(
        "the probe at {probe} does not answer ({tries} tries, {waited:.1?}): is it on, and is this its set-up address? (shotline emulate probe starts an emulated one)"
    )]
    Silent {
        /// The probe's set-up address.
        probe: SocketAddr,
        /// Requests sent.
        tries: u32,
        /// Time waited in all.
        waited: Duration,
    },
    /// The answer is not wanted any more.
    #[error("stopped before the probe at {probe} had answered: it was asked {tries} times")]
    Stopped {
        /// The probe's set-up address.
        probe: SocketAddr,
        /// Requests sent.
        tries: u32,
    },
    /// The framing takes no set-up.
    #[error(transparent)]
    Framing(#[from] NoSetUp),
    /// It answered no.
    #[error("the probe at {probe} refused: {refusal}")]
    Refused {
        /// The probe's set-up address.
        probe: SocketAddr,
        /// Its reason.
        refusal: Refusal,
    },
    /// Another receiver controls it.
    #[error("the probe at {probe} refused: {}", owned(*heard))]
    Owned {
        /// The probe's set-up address.
        probe: SocketAddr,
        /// How long ago it heard of that one, if it tells.
        heard: Option<Duration>,
    },
    /// It is older than what it was asked for.
    #[error(
        "the probe at {probe} knows no transmit sequences (it refused the request as unknown): update its firmware, or do without"
    )]
    NoSequences {
        /// The probe's set-up address.
        probe: SocketAddr,
    },
    /// It answered something else than was asked.
    #[error("the probe at {probe} answered a {asked} with something else: it does not keep to docs/wire-formats.md")]
    Confused {
        /// The probe's set-up address.
        probe: SocketAddr,
        /// What was asked.
        asked: &'static str,
    },
}

/// That another receiver controls a probe, when that one was heard last, and what to do.
fn owned(heard: Option<Duration>) -> String {
    let heard = match heard {
        None => String::new(),
        Some(heard) if heard < ALIVE => format!(", heard {heard:.1?} ago"),
        Some(heard) => {
            format!(
                ", last heard {heard:.1?} ago and perhaps dead (a recorder that runs is heard several times a second)"
            )
        }
    };
    format!("another receiver controls the probe{heard}: stop that one, or take over (--take-over)")
}

/// A conversation with one probe. Every request is repeated until it is answered.
pub struct Control<'a> {
    socket: UdpSocket,
    probe: SocketAddr,
    token: u32,
    sequence: u32,
    take_over: bool,
    stop: Option<&'a AtomicBool>,
}

impl<'a> Control<'a> {
    /// Opens a socket towards `probe`, under a token that nobody else has. With `take_over` its requests overrule
    /// another receiver.
    pub fn open(probe: SocketAddr, take_over: bool) -> Result<Self, ControlError> {
        Self::open_as(random(probe)?, probe, take_over)
    }

    /// The same under a token that other programs may have, too: together they are one owner.
    pub fn open_as(token: u32, probe: SocketAddr, take_over: bool) -> Result<Self, ControlError> {
        let failed = |source| ControlError::Socket { probe, source };
        let any: IpAddr = if probe.is_ipv4() { [0, 0, 0, 0].into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0)).map_err(failed)?;
        socket.connect(probe).map_err(failed)?;
        // Not from 0: the probe would take the request for a repetition of another program's with this token.
        Ok(Self { socket, probe, token, sequence: random(probe)?, take_over, stop: None })
    }

    /// From now on nothing is asked again once `stop` is set; without one, everything is until it is answered.
    pub fn ask_until(&mut self, stop: Option<&'a AtomicBool>) {
        self.stop = stop;
    }

    /// The local address that packets from the probe will come to, unless told otherwise.
    pub fn local_ip(&self) -> Result<IpAddr, ControlError> {
        let local = self.socket.local_addr();
        local.map(|local| local.ip()).map_err(|source| ControlError::Socket { probe: self.probe, source })
    }

    /// What the probe is.
    pub fn query(&mut self) -> Result<Describe, ControlError> {
        match self.ask(Request::Query)? {
            Reply::Describe(describe) => Ok(describe),
            _ => Err(self.confused("query")),
        }
    }

    /// Sets up one link.
    pub fn configure(&mut self, configure: Configure) -> Result<Source, ControlError> {
        match self.ask(Request::Configure(configure))? {
            Reply::Configured(_, source) => Ok(source),
            _ => Err(self.confused("configure")),
        }
    }

    /// Tells the probe where the shots of one link are to go, and the stream what it learns from the answer: who
    /// sends, and the first sequence number. `queue_pair` is number and key, zeros for framings without. Returns the
    /// answer.
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
        // A probe that does not know its own address (it sends from "any") is known by its first packet.
        stream.source = Some(source.address).filter(|address| !address.ip().is_unspecified() && address.port() != 0);
        stream.first_psn = Some(source.first_psn);
        Ok(source)
    }

    /// Begins; returns the number of the first shot.
    pub fn start(&mut self, start: Start) -> Result<u64, ControlError> {
        match self.ask(Request::Start(start))? {
            Reply::Started { first_shot } => Ok(first_shot),
            _ => Err(self.confused("start")),
        }
    }

    /// Ends, and tells how far a link came.
    pub fn stop(&mut self, link: u8) -> Result<Report, ControlError> {
        match self.ask(Request::Stop { link })? {
            Reply::Stopped(report) => Ok(report),
            _ => Err(self.confused("stop")),
        }
    }

    /// How a link is doing.
    pub fn status(&mut self, link: u8) -> Result<Report, ControlError> {
        match self.ask(Request::Status { link })? {
            Reply::Status(report) => Ok(report),
            _ => Err(self.confused("status")),
        }
    }

    /// The transmit events of the next runs, in turn; none end a sequence that was set. After the first
    /// [`Self::configure`], which makes this receiver the owner and forgets the sequence of the one before.
    pub fn sequence(&mut self, sequence: Sequence) -> Result<Sequence, ControlError> {
        match self.ask(Request::Sequence(sequence)) {
            Ok(Reply::Sequenced(sequence)) => Ok(sequence),
            Ok(_) => Err(self.confused("sequence")),
            Err(ControlError::Refused { probe, refusal: Refusal::Kind }) => Err(ControlError::NoSequences { probe }),
            Err(error) => Err(error),
        }
    }

    /// A trigger with this receiver's token, so that the probe knows whether its owner sends it.
    pub fn signed(&self, trigger: Trigger) -> Trigger {
        Trigger { token: self.token, take_over: self.take_over, ..trigger }
    }

    /// Sends a trigger and waits for its acknowledgement, for which it asks whatever `trigger` says. A lost
    /// datagram is met by sending the same one again, which a probe obeys once: [`Verdict::Repeated`] to a
    /// second one tells that an earlier one was obeyed.
    pub fn trigger(&mut self, trigger: Trigger) -> Result<Verdict, ControlError> {
        let trigger = Trigger { acknowledge: true, ..self.signed(trigger) };
        self.exchange(&trigger.emit(), |datagram| {
            Acknowledgement::parse(datagram).ok().filter(|answer| answer.trigger == trigger)
        })
        .map(|answer| answer.verdict)
    }

    fn confused(&self, asked: &'static str) -> ControlError {
        ControlError::Confused { probe: self.probe, asked }
    }

    fn ask(&mut self, request: Request) -> Result<Reply, ControlError> {
        match self.answer(request)? {
            Reply::Refused { refusal: Refusal::Owned, .. } => {
                // Status is for everyone.
                let heard = match self.answer(Request::Status { link: 0 }) {
                    Ok(Reply::Status(Report { owner_silent_ms: ms @ 1.., .. })) => {
                        Some(Duration::from_millis(ms.into()))
                    }
                    _ => None,
                };
                Err(ControlError::Owned { probe: self.probe, heard })
            }
            Reply::Refused { refusal, .. } => Err(ControlError::Refused { probe: self.probe, refusal }),
            reply => Ok(reply),
        }
    }

    /// The probe's answer, a refusal included.
    fn answer(&mut self, request: Request) -> Result<Reply, ControlError> {
        self.sequence = self.sequence.wrapping_add(1);
        let (sequence, token) = (self.sequence, self.token);
        let message = Message::request(sequence, token, self.take_over, request);
        // Anything but the reply to this request is old or foreign.
        let reply = |datagram: &[u8]| match Message::parse(datagram).ok()? {
            Message { body: Body::Reply(reply), sequence: s, token: t } if (s, t) == (sequence, token) => Some(reply),
            _ => None,
        };
        self.exchange(&message.emit(), reply)
    }

    /// Sends a datagram until a reply to it comes.
    fn exchange<R>(&self, message: &[u8], reply: impl Fn(&[u8]) -> Option<R>) -> Result<R, ControlError> {
        let probe = self.probe;
        let failed = |source| ControlError::Socket { probe, source };
        let begun = Instant::now();
        let mut wait = FIRST_WAIT;
        for tries in 0..TRIES {
            match self.socket.send(message) {
                // An earlier datagram was answered with "port unreachable": the probe may still be starting.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                sent => drop(sent.map_err(failed)?),
            }
            let deadline = Instant::now() + wait;
            while let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
                // A probe that is there has the time of the first wait.
                if tries > 0 && self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                    return Err(ControlError::Stopped { probe, tries: tries + 1 });
                }
                let left = left.min(LOOK);
                self.socket.set_read_timeout(Some(left)).map_err(failed)?;
                let mut datagram = [0; LEN + 1];
                match self.socket.recv(&mut datagram) {
                    Ok(len) => {
                        if let Some(reply) = reply(&datagram[..len]) {
                            return Ok(reply);
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::thread::sleep(left),
                    Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(failed(error)),
                }
            }
            wait *= 2;
        }
        Err(ControlError::Silent { probe, tries: TRIES, waited: begun.elapsed() })
    }
}

/// Never 0, which as a token is nobody's.
fn random(probe: SocketAddr) -> Result<u32, ControlError> {
    let mut bytes = [0; 4];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| ControlError::Socket { probe, source: error.into() })?;
    Ok(u32::from_ne_bytes(bytes).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A probe that answers what comes by `answer`, until it gives none; returns what came.
    fn with_probe<R>(
        answer: impl Fn(usize, &[u8]) -> Option<Vec<u8>> + Sync,
        receiver: impl FnOnce(SocketAddr) -> R,
    ) -> (R, Vec<Vec<u8>>) {
        let socket = UdpSocket::bind("[::1]:0").unwrap();
        let address = socket.local_addr().unwrap();
        let ended = std::sync::atomic::AtomicBool::new(false);
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        std::thread::scope(|scope| {
            let probe = scope.spawn(|| {
                let mut came = Vec::new();
                while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                    let mut datagram = [0; 256];
                    let Ok((len, from)) = socket.recv_from(&mut datagram) else { continue };
                    came.push(datagram[..len].to_vec());
                    if let Some(answer) = answer(came.len(), &datagram[..len]) {
                        socket.send_to(&answer, from).unwrap();
                    }
                }
                came
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
    fn an_older_probe_is_said_to_know_no_sequences() {
        let (result, _) = with_probe(
            |_, datagram| refusal(datagram, Refusal::Kind),
            |probe| Control::open(probe, false).unwrap().sequence(Sequence::new(&[1, 2]).unwrap()),
        );
        assert!(matches!(result, Err(ControlError::NoSequences { .. })), "{result:?}");
    }

    #[test]
    fn a_refusal_says_when_the_owner_was_heard_last_and_what_to_do() {
        for (owner_silent_ms, words) in
            [(0, "the probe: stop"), (300, "heard 300.0ms ago: stop"), (41_000, "perhaps dead")]
        {
            let (result, _) = with_probe(
                |_, datagram| {
                    let message = Message::parse(datagram).unwrap();
                    match message.body {
                        Body::Request { request: Request::Status { .. }, .. } => {
                            let report = Report { owner_silent_ms, taken: true, ..Report::default() };
                            Some(message.reply(Reply::Status(report)).emit().to_vec())
                        }
                        _ => refusal(datagram, Refusal::Owned),
                    }
                },
                |probe| Control::open(probe, false).unwrap().stop(0).map(|_| ()),
            );
            let said = result.unwrap_err().to_string();
            assert!(said.contains(words) && said.contains("--take-over"), "{said}");
        }
    }

    #[test]
    fn nothing_is_asked_again_once_the_answer_is_not_wanted() {
        let stop = AtomicBool::new(true);
        let (result, came) = with_probe(
            |_, _| None,
            |probe| {
                let mut control = Control::open(probe, false).unwrap();
                control.ask_until(Some(&stop));
                control.query()
            },
        );
        assert!(matches!(result, Err(ControlError::Stopped { tries: 2, .. })), "{result:?}");
        assert!(came.len() <= 2);
    }

    #[test]
    fn programs_with_one_token_never_repeat_each_others_sequence_numbers() {
        let ask = |probe| Control::open_as(5, probe, false).unwrap().status(0);
        let (_, came) = with_probe(|_, datagram| refusal(datagram, Refusal::Link), |probe| [ask(probe), ask(probe)]);
        let [first, second] = [&came[0], &came[1]].map(|datagram| Message::parse(datagram).unwrap());
        assert_eq!((first.token, second.token), (5, 5));
        assert_ne!(first.sequence, second.sequence);
    }

    #[test]
    fn a_trigger_whose_answer_is_lost_is_sent_again_unchanged() {
        let trigger = Trigger::new(77);
        let (verdict, came) = with_probe(
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
        // Once more for each answer that comes later than it is waited for.
        assert!(came.len() >= 3 && came.iter().all(|datagram| *datagram == came[0]));
    }
}
