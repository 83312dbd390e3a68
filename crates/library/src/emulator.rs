//! An emulated probe in this process.

use crate::error::{Error, ErrorKind};
use crate::process::Owner;
use shotline_backends::{OpenedSender, Options, Sender, SenderParameters, Transport};
use shotline_instrument::probe::{Config, LinkRequest, LinkTransport, ProbeCounters, ProbeState, Server};
use shotline_memory::{Regions, Sge};
use shotline_transport::IoError;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

/// Name of the handle in messages.
const WHAT: &str = "emulator";

/// An emulated probe on a thread of its own, which receivers set up as a real one.
#[derive(Debug)]
pub struct Emulator {
    owner: Owner,
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    state: Arc<Mutex<ProbeState>>,
    thread: Mutex<Option<JoinHandle<Result<ProbeCounters, Error>>>>,
    result: Mutex<Option<Result<ProbeCounters, Error>>>,
}

impl Emulator {
    /// Starts a probe with its set-up port at `listen`; port 0 selects a free one.
    ///
    /// # Errors
    /// If the settings are invalid, their samples cannot be read, or the port cannot be opened.
    pub fn start(config: Config, listen: SocketAddr) -> Result<Self, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let (started, begun) = mpsc::sync_channel(1);
        let serve = {
            let stop = Arc::clone(&stop);
            move || serve(config, listen, &stop, &started)
        };
        let thread = std::thread::Builder::new().name("shotline-probe".into()).spawn(serve);
        let thread = thread.map_err(|error| {
            Error::new(ErrorKind::Io(error.raw_os_error()), format!("cannot start a thread: {error}"))
        })?;
        let Ok((address, state)) = begun.recv() else {
            let panicked = || Error::new(ErrorKind::Defect, "the probe's thread panicked: please report it");
            return Err(thread.join().map_or_else(|_| panicked(), |served| served.err().unwrap_or_else(panicked)));
        };
        let (thread, result) = (Mutex::new(Some(thread)), Mutex::new(None));
        Ok(Self { owner: Owner::this(), address, stop, state, thread, result })
    }

    /// Returns the address of the set-up port, for receivers.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the state of the probe, at most 100 ms old.
    ///
    /// # Errors
    /// In a child process.
    pub fn state(&self) -> Result<ProbeState, Error> {
        self.owner.check(WHAT)?;
        Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Returns `true` if the probe serves receivers.
    pub fn is_serving(&self) -> bool {
        let is_running = || {
            let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
            thread.as_ref().is_some_and(|thread| !thread.is_finished())
        };
        self.owner.is_this() && !self.stop.load(Ordering::Relaxed) && is_running()
    }

    /// Ends the probe. Returns what it has sent, also at later calls.
    ///
    /// # Errors
    /// If the probe has failed before, or in a child process.
    pub fn close(&self) -> Result<ProbeCounters, Error> {
        self.owner.check(WHAT)?;
        self.stop.store(true, Ordering::Relaxed);
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let mut result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            let panicked = || Err(Error::new(ErrorKind::Defect, "the probe's thread panicked: please report it"));
            *result = Some(thread.join().unwrap_or_else(|_| panicked()));
        }
        result.clone().unwrap_or_else(|| Err(Error::closed(WHAT)))
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

/// Serves receivers until `stop` is set. Sends the address and the state once the port is open.
fn serve(
    config: Config,
    listen: SocketAddr,
    stop: &AtomicBool,
    started: &mpsc::SyncSender<(SocketAddr, Arc<Mutex<ProbeState>>)>,
) -> Result<ProbeCounters, Error> {
    let server = Server::bind(config, listen, open)?;
    let address =
        server.local_addr().map_err(|error| Error::new(ErrorKind::Io(error.raw_os_error()), error.to_string()));
    let state = Arc::new(Mutex::new(server.state()));
    let _ = started.send((address?, Arc::clone(&state)));
    let mut publish = |now: &ProbeState| now.clone_into(&mut state.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(server.run_observed(stop, &mut publish)?)
}

/// Opens a UDP socket for a link, on the address that the route to the receiver has.
fn open(request: &LinkRequest, regions: &Regions) -> Result<LinkTransport<Sender>, IoError> {
    let LinkRequest { destination: to, sealed, .. } = *request;
    let sending = SenderParameters { source: None, to, sealed, frames: 0, scratch: Sge::EMPTY };
    let OpenedSender { io, source } = Transport::default().open_sender(&sending, &Options::default(), regions)?;
    Ok(LinkTransport::new(io, source))
}
