//! What all handles of an initiator share: the provider, the control connection, and how threads take turns.

use super::error::EndpointError;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::Shutdown;
use shotline_memory::{Mr, Pd};
use shotline_verbs::api::{Cq, VerbsError};
use shotline_verbs::cm::message::Bits24;
use shotline_verbs::cm::{Client, ClientError, Endpoint};
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Time that a target has to confirm the end of the connection.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// An endpoint with its control connection.
pub(super) struct Shared {
    /// Process that opened it.
    owner: u32,
    state: Mutex<Option<Box<Open>>>,
    control: Mutex<Option<Client>>,
    /// Duplicate of the socket of the control connection.
    pub(super) control_socket: OwnedFd,
    /// A waiting thread has left, or an event has been taken.
    pub(super) changed: Condvar,
    is_closed: AtomicBool,
    /// Set when the target has ended.
    has_ended: AtomicBool,
    /// Threads that are about to lock the state.
    contenders: AtomicUsize,
    /// Waits of event loops on [`Self::epoll`].
    pub(super) loop_waits: AtomicUsize,
    /// The descriptor for event loops: the provider's, the control connection's, and the bell of event loops.
    epoll: OwnedFd,
    loop_bell: OwnedFd,
    /// Wakes the thread that sleeps on the descriptor.
    driver_bell: OwnedFd,
}

/// State of an endpoint that is not closed.
pub(super) struct Open {
    pub(super) provider: Box<dyn Endpoint + Send>,
    pub(super) pd: Pd,
    /// Local queue pairs, with the target's.
    pub(super) pairs: HashMap<u32, Bits24>,
    /// Queue pairs of the target whose local ends were dropped.
    pub(super) ended_peers: Vec<Bits24>,
    /// Registrations that a device still used when their handles were dropped.
    pub(super) used_registrations: Vec<Mr>,
    /// Completion queues that have lost completions.
    pub(super) overruns: Vec<Cq>,
    /// Time at which the end of the control connection was noticed.
    pub(super) disconnected_at: Option<Instant>,
    /// Time of the last check of the control connection.
    pub(super) checked_at: Instant,
    /// A thread sleeps on the descriptor.
    pub(super) has_driver: bool,
}

/// The state of an open endpoint, locked.
pub(super) struct Guard<'a>(MutexGuard<'a, Option<Box<Open>>>);

impl Deref for Guard<'_> {
    type Target = Open;
    fn deref(&self) -> &Open {
        self.0.as_deref().expect("a guard is made only of an open endpoint, and close needs the lock")
    }
}

impl DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut Open {
        self.0.as_deref_mut().expect("a guard is made only of an open endpoint, and close needs the lock")
    }
}

impl Shared {
    pub(super) fn new(mut provider: Box<dyn Endpoint + Send>, client: Client) -> Result<Self, EndpointError> {
        let failed = |errno: rustix::io::Errno| {
            EndpointError::system("cannot create file descriptors; raise the limit (ulimit -n)")(errno)
        };
        let control_socket = rustix::io::fcntl_dupfd_cloexec(&client, 0).map_err(failed)?;
        let bell = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed);
        let (loop_bell, driver_bell) = (bell()?, bell()?);
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
        for fd in [provider.fd(), control_socket.as_fd(), loop_bell.as_fd()] {
            epoll::add(&epoll, fd, EventData::new_u64(0), EventFlags::IN).map_err(failed)?;
        }
        let pd = provider.alloc_pd()?;
        let open = Open {
            provider,
            pd,
            pairs: HashMap::new(),
            ended_peers: Vec::new(),
            used_registrations: Vec::new(),
            overruns: Vec::new(),
            disconnected_at: None,
            checked_at: Instant::now(),
            has_driver: false,
        };
        Ok(Self {
            owner: std::process::id(),
            state: Mutex::new(Some(Box::new(open))),
            control: Mutex::new(Some(client)),
            control_socket,
            changed: Condvar::new(),
            is_closed: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            contenders: AtomicUsize::new(0),
            loop_waits: AtomicUsize::new(0),
            epoll,
            loop_bell,
            driver_bell,
        })
    }

    /// Returns an error in a child process, before anything is touched that it shares with its parent.
    pub(super) fn check_owner(&self) -> Result<(), EndpointError> {
        let found = std::process::id();
        if found == self.owner { Ok(()) } else { Err(EndpointError::Forked { owner: self.owner, found }) }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Locks the state.
    pub(super) fn lock(&self) -> Result<Guard<'_>, EndpointError> {
        self.check_owner()?;
        self.contenders.fetch_add(1, Ordering::Relaxed);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.contenders.fetch_sub(1, Ordering::Relaxed);
        self.guard(state)
    }

    fn guard<'a>(&self, state: MutexGuard<'a, Option<Box<Open>>>) -> Result<Guard<'a>, EndpointError> {
        if state.is_none() || self.is_closed() {
            return Err(EndpointError::Closed("endpoint"));
        }
        Ok(Guard(state))
    }

    /// Releases the lock until a waiting thread leaves or takes an event, or the time is over.
    pub(super) fn wait_for_change<'a>(&self, guard: Guard<'a>, time: Duration) -> Result<Guard<'a>, EndpointError> {
        let (state, _) = self.changed.wait_timeout(guard.0, time).unwrap_or_else(PoisonError::into_inner);
        self.guard(state)
    }

    /// Lets other threads lock the state, for at most a few microseconds: a thread that polls would otherwise get the lock
    /// again before a thread that sleeps for it has woken.
    pub(super) fn hand_over(&self) {
        let began = Instant::now();
        while self.contenders.load(Ordering::Relaxed) > 0 && began.elapsed() < Duration::from_micros(100) {
            std::thread::yield_now();
        }
    }

    /// Calls the target over the control connection. The provider is not locked meanwhile.
    pub(super) fn call<T>(&self, call: impl FnOnce(&mut Client) -> Result<T, ClientError>) -> Result<T, EndpointError> {
        let ended = std::mem::take(&mut self.lock()?.ended_peers);
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        let client = control.as_mut().ok_or(if self.is_closed() {
            EndpointError::Closed("endpoint")
        } else {
            EndpointError::Disconnected
        })?;
        // The target may know them no longer.
        ended.into_iter().for_each(|peer| drop(client.disconnect(peer)));
        let called = call(client);
        let is_out_of_step = |error: &ClientError| {
            use ClientError::{Disconnected, Malformed, UnexpectedAnswer};
            matches!(error, Disconnected(_) | Malformed(_) | UnexpectedAnswer)
        };
        let is_lost = !client.is_connected();
        if called.as_ref().is_err_and(is_out_of_step) {
            // A late answer would be taken for that of the next request.
            let _ = rustix::net::shutdown(&self.control_socket, Shutdown::Both);
            *control = None;
        }
        called.map_err(|error| match error {
            _ if self.is_closed() => EndpointError::Closed("endpoint"),
            ClientError::Disconnected(_) if is_lost => EndpointError::Disconnected,
            error => error.into(),
        })
    }

    /// Returns `true` if the control connection has ended, as far as can be found without waiting.
    pub(super) fn has_lost_target(&self) -> bool {
        // A thread that waits for an answer notices the end itself, and the socket is also readable when there is an answer.
        match self.control.try_lock() {
            Ok(control) => control.as_ref().is_none_or(|client| !client.is_connected()),
            Err(TryLockError::Poisoned(_)) => true,
            Err(TryLockError::WouldBlock) => false,
        }
    }

    /// Returns the descriptor for event loops.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    pub(super) fn driver_bell(&self) -> BorrowedFd<'_> {
        self.driver_bell.as_fd()
    }

    /// Stops watching the control connection: after its end it would always be readable.
    pub(super) fn forget_control(&self) {
        let _ = epoll::delete(&self.epoll, &self.control_socket);
    }

    /// Wakes the thread that sleeps on the descriptor, and event loops.
    pub(super) fn ring(&self, driver: bool, loops: bool) {
        for (bell, _) in [(&self.driver_bell, driver), (&self.loop_bell, loops)].into_iter().filter(|(_, is)| *is) {
            // Full only if it has been rung already.
            let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
        }
    }

    /// Silences a bell after it has woken its sleeper. After the end it rings for ever; that of event loops also once the
    /// target has ended, because each of them must see it.
    pub(super) fn silence(&self, driver: bool) {
        let has_ended = || self.is_closed() || !driver && self.has_ended.load(Ordering::Acquire);
        if has_ended() {
            return;
        }
        let _ = rustix::io::read(if driver { &self.driver_bell } else { &self.loop_bell }, &mut [0; 8]);
        if has_ended() {
            self.ring(driver, !driver);
        }
    }

    /// Wakes all that wait, because the target has ended.
    pub(super) fn announce_end(&self) {
        self.has_ended.store(true, Ordering::Release);
        self.ring(true, true);
    }

    /// Ends the connection and closes the endpoint. Threads that wait return an error.
    pub(super) fn close(&self) {
        if self.check_owner().is_err() || self.is_closed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.ring(true, true);
        self.changed.notify_all();
        let mut control = match self.control.try_lock() {
            Ok(control) => control,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                // Ends the wait for an answer.
                let _ = rustix::net::shutdown(&self.control_socket, Shutdown::Both);
                self.control.lock().unwrap_or_else(PoisonError::into_inner)
            }
        };
        if let Some(client) = control.take().filter(Client::is_connected) {
            // A target that does not answer notices the end of the connection.
            let _ = client.goodbye_within(GOODBYE_TIMEOUT);
        }
        drop(control);
        // Also if handles that still exist keep the descriptor.
        let _ = rustix::net::shutdown(&self.control_socket, Shutdown::Both);
        let open = self.state.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.changed.notify_all();
        drop(open);
    }
}

impl Open {
    /// Deregisters memory; what a device still uses is deregistered later.
    pub(super) fn deregister(&mut self, mr: Mr) {
        self.used_registrations.push(mr);
        let Self { provider, used_registrations, .. } = self;
        used_registrations.retain(|mr| matches!(provider.dereg_mr(mr), Err(VerbsError::InUse { .. })));
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.check_owner().is_err() {
            // Sockets and queues are the parent's: an endpoint that is dropped sends packets, and changes what epoll watches.
            std::mem::forget(self.state.get_mut().unwrap_or_else(PoisonError::into_inner).take());
            std::mem::forget(self.control.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}
