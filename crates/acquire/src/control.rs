//! The receiver's side of set-up: ask, wait, ask again.

use shotline_wire::setup::{Body, Configure, Describe, LEN, Message, Refusal, Reply, Report, Request, Source, Start};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// A probe that is there answers in microseconds; an emulated one may be preparing shots.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const TRIES: u32 = 6;

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
    /// It answered no.
    #[error("the probe at {probe} refused: {refusal}")]
    Refused {
        /// The probe's set-up address.
        probe: SocketAddr,
        /// Its reason.
        refusal: Refusal,
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

/// A conversation with one probe. Every request is repeated until it is answered.
pub struct Control {
    socket: UdpSocket,
    probe: SocketAddr,
    token: u32,
    sequence: u32,
    take_over: bool,
}

impl Control {
    /// Opens a socket towards `probe`. With `take_over` its requests overrule another receiver.
    pub fn open(probe: SocketAddr, take_over: bool) -> Result<Self, ControlError> {
        let failed = |source| ControlError::Socket { probe, source };
        let any: IpAddr = if probe.is_ipv4() { [0, 0, 0, 0].into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0)).map_err(failed)?;
        socket.connect(probe).map_err(failed)?;
        let mut token = [0; 4];
        rustix::rand::getrandom(&mut token, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| failed(error.into()))?;
        Ok(Self { socket, probe, token: u32::from_ne_bytes(token), sequence: 0, take_over })
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

    fn confused(&self, asked: &'static str) -> ControlError {
        ControlError::Confused { probe: self.probe, asked }
    }

    fn ask(&mut self, request: Request) -> Result<Reply, ControlError> {
        let probe = self.probe;
        let failed = |source| ControlError::Socket { probe, source };
        self.sequence = self.sequence.wrapping_add(1);
        let message = Message::request(self.sequence, self.token, self.take_over, request).emit();
        let begun = Instant::now();
        let mut wait = FIRST_WAIT;
        for _ in 0..TRIES {
            match self.socket.send(&message) {
                // An earlier datagram was answered with "port unreachable": the probe may still be starting.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                sent => drop(sent.map_err(failed)?),
            }
            let deadline = Instant::now() + wait;
            while let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
                self.socket.set_read_timeout(Some(left)).map_err(failed)?;
                let mut datagram = [0; LEN + 1];
                match self.socket.recv(&mut datagram) {
                    Ok(len) => {
                        if let Some(reply) = self.reply(&datagram[..len]) {
                            return match reply {
                                Reply::Refused { refusal, .. } => Err(ControlError::Refused { probe, refusal }),
                                reply => Ok(reply),
                            };
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::thread::sleep(left),
                    Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(failed(error)),
                }
            }
            wait *= 2;
        }
        Err(ControlError::Silent { probe, tries: TRIES, waited: begun.elapsed() })
    }

    /// The reply in a datagram, if it is the one to the last request. Anything else is old or foreign.
    fn reply(&self, datagram: &[u8]) -> Option<Reply> {
        let message = Message::parse(datagram).ok()?;
        match message.body {
            Body::Reply(reply) if message.sequence == self.sequence && message.token == self.token => Some(reply),
            _ => None,
        }
    }
}
