//! Targets in this process: memory that other programs read and write.

use super::error::EndpointError;
use super::initiator::local_address;
use super::memory::Memory;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd as _, OwnedFd};
use shotline_memory::{Access, RegistrationCounters};
use shotline_verbs::api::Reach;
use shotline_verbs::cm::message::Name;
use shotline_verbs::cm::{Control, ControlAddress, ControlLimits, Endpoint, Export, Exports, Target, Token};
use shotline_verbs::ibverbs::IbverbsEndpoint;
use shotline_verbs::provider::ProviderKind;
use shotline_verbs::soft::{SoftEndpoint, UdpOptions};
use shotline_verbs::spacefibre::{CarrierKind, SpaceFibreEndpoint};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A region of a target.
#[derive(Clone, Debug)]
pub struct ServedRegion {
    /// Name: 1 to 64 letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// Memory.
    pub memory: Memory,
    /// Access rights of initiators.
    pub rights: Access,
}

/// Options of a target.
#[derive(Clone, Debug)]
pub struct TargetOptions {
    /// Provider: `soft`, `ibverbs` or `spacefibre`, as on a command line.
    pub transport: String,
    /// Local address of the memory's traffic, with or without a port; `None`: loopback, any port.
    pub bind: Option<String>,
    /// Address of control connections; `None`: loopback, any port.
    pub listen: Option<String>,
    /// Token; `None`: a random one.
    pub token: Option<String>,
    /// Answer invalid requests with a NAK and the error state, instead of dropping them.
    pub strict_ib: bool,
    /// Maximum number of initiators at once.
    pub initiators: usize,
}

impl Default for TargetOptions {
    fn default() -> Self {
        let (transport, initiators) = ("soft".into(), ControlLimits::default().sessions);
        Self { transport, bind: None, listen: None, token: None, strict_ib: false, initiators }
    }
}

/// State of a target.
#[derive(Clone, Debug, Default)]
pub struct TargetState {
    /// Initiators that are connected.
    pub initiators: usize,
    /// Initiators since the start.
    pub welcomed: u64,
    /// Connections refused for a wrong token.
    pub wrong_token: u64,
    /// Operations of initiators on each region; `None` if the provider does not count them.
    pub usage: Option<Vec<RegistrationCounters>>,
}

/// A target that a thread of this process serves, until it is closed or dropped.
pub struct ServedTarget {
    owner: u32,
    address: SocketAddr,
    token: Token,
    regions: Vec<ServedRegion>,
    thread: Mutex<Option<JoinHandle<Result<(), EndpointError>>>>,
    commands: Mutex<Sender<Sender<TargetState>>>,
    signal: Arc<Signal>,
}

/// Wakes the thread of a target.
struct Signal {
    must_stop: AtomicBool,
    bell: OwnedFd,
}

impl Signal {
    fn ring(&self) {
        // Full only if it has been rung already.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

/// Time in which the thread answers a command.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

impl ServedTarget {
    /// Serves regions.
    ///
    /// # Errors
    /// If an option is invalid, an address is in use, or the endpoint cannot be opened. Over shared memory each initiator
    /// has an endpoint of its own, which only `shotline target --transport shm` serves.
    pub fn serve(regions: Vec<ServedRegion>, options: &TargetOptions) -> Result<Self, EndpointError> {
        let kind: ProviderKind = options.transport.parse().map_err(EndpointError::Invalid)?;
        let bind = options.bind.as_deref().map_or(Ok(LOOPBACK), local_address)?;
        match &kind {
            ProviderKind::Soft => Self::start(SoftEndpoint::udp(bind, UdpOptions::default())?, regions, options),
            ProviderKind::Ibverbs(choice) => Self::start(IbverbsEndpoint::open(choice)?, regions, options),
            ProviderKind::SpaceFibre(selector) if selector.carrier == CarrierKind::Udp => {
                Self::start(SpaceFibreEndpoint::udp(bind, selector)?, regions, options)
            }
            ProviderKind::Shm | ProviderKind::SpaceFibre(_) => Err(EndpointError::Invalid(format!(
                "{kind} is not served in this process: start `shotline target --transport {kind}`, or use soft"
            ))),
        }
    }

    fn start<P: Endpoint + Send + 'static>(
        provider: P,
        regions: Vec<ServedRegion>,
        options: &TargetOptions,
    ) -> Result<Self, EndpointError> {
        let token = match &options.token {
            Some(token) => token.parse()?,
            None => Token::random()?,
        };
        let mut exports = Exports::new(provider);
        exports.strict = options.strict_ib;
        for ServedRegion { name, memory, rights } in &regions {
            let name = Name::try_from(name.clone()).map_err(EndpointError::Invalid)?;
            let bytes = memory.exported(Reach::Network);
            exports.export(Export { name, region: Arc::clone(memory.region()), bytes, rights: *rights })?;
        }
        let listen = options.listen.as_deref().map_or(Ok(LOOPBACK), local_address)?;
        let limits = ControlLimits { sessions: options.initiators, ..ControlLimits::default() };
        let control = Control::listen(&ControlAddress::Tcp(listen), token, limits)
            .map_err(EndpointError::system("cannot listen for initiators"))?;
        let address = control.local_addr().unwrap_or(listen);
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(EndpointError::system("cannot create an event file descriptor; raise the limit (ulimit -n)"))?;
        let signal = Arc::new(Signal { must_stop: AtomicBool::new(false), bell });
        let (commands, received) = channel();
        let serving =
            Serving { target: Target::new(exports, control), commands: received, signal: Arc::clone(&signal) };
        let thread = std::thread::Builder::new()
            .name("shotline-target".into())
            .spawn(move || serving.run())
            .map_err(EndpointError::system("cannot start a thread"))?;
        Ok(Self {
            owner: std::process::id(),
            address,
            token,
            regions,
            thread: Mutex::new(Some(thread)),
            commands: Mutex::new(commands),
            signal,
        })
    }

    /// Returns the address of control connections.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
    /// Returns the token.
    pub fn token(&self) -> Token {
        self.token
    }
    /// Returns the regions.
    pub fn regions(&self) -> &[ServedRegion] {
        &self.regions
    }

    fn check_owner(&self) -> Result<(), EndpointError> {
        let found = std::process::id();
        if found == self.owner { Ok(()) } else { Err(EndpointError::Forked { owner: self.owner, found }) }
    }

    /// Returns the state.
    ///
    /// # Errors
    /// If the target is closed, or its thread has ended because its endpoint failed.
    pub fn state(&self) -> Result<TargetState, EndpointError> {
        self.check_owner()?;
        let (sender, receiver) = channel();
        let sent = self.commands.lock().unwrap_or_else(PoisonError::into_inner).send(sender);
        self.signal.ring();
        match sent.map(|()| receiver.recv_timeout(ANSWER_TIMEOUT)) {
            Ok(Ok(state)) => Ok(state),
            // It registers large regions for a new initiator, for example.
            Ok(Err(RecvTimeoutError::Timeout)) => {
                let late = std::io::Error::from(std::io::ErrorKind::TimedOut);
                Err(EndpointError::system("the target is busy and has not answered: try again")(late))
            }
            // The reason, if the thread has failed.
            Ok(Err(RecvTimeoutError::Disconnected)) | Err(_) => self.close().and(Err(EndpointError::Closed("target"))),
        }
    }

    /// Disconnects all initiators and ends the thread. A second call, or one in a child process, does nothing.
    ///
    /// # Errors
    /// If the endpoint has failed before.
    pub fn close(&self) -> Result<(), EndpointError> {
        if self.check_owner().is_err() {
            return Ok(());
        }
        self.signal.must_stop.store(true, Ordering::Release);
        self.signal.ring();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        match thread.map(JoinHandle::join) {
            Some(Ok(ended)) => ended,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(()),
        }
    }
}

impl Drop for ServedTarget {
    fn drop(&mut self) {
        // In a child process there is no such thread.
        let _ = self.close();
    }
}

/// Any port of this machine.
const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// What the thread owns.
struct Serving<P: Endpoint> {
    target: Target<P>,
    commands: Receiver<Sender<TargetState>>,
    signal: Arc<Signal>,
}

impl<P: Endpoint> Serving<P> {
    fn run(mut self) -> Result<(), EndpointError> {
        while !self.signal.must_stop.load(Ordering::Acquire) {
            if self.target.round(Some(self.signal.bell.as_fd()))? {
                let _ = rustix::io::read(&self.signal.bell, &mut [0; 8]);
            }
            while let Ok(answer) = self.commands.try_recv() {
                // The thread that asked may have given up.
                let _ = answer.send(self.state());
            }
        }
        self.target.close();
        Ok(())
    }

    fn state(&self) -> TargetState {
        let counters = self.target.counters();
        TargetState {
            initiators: self.target.sessions(),
            welcomed: counters.welcomed,
            wrong_token: counters.wrong_token,
            usage: self.target.exports().total_usage(),
        }
    }
}
