//! Endpoints that are connected to a target.

use super::bulk::Bulk;
use super::error::EndpointError;
use super::memory::{LocalRegion, Memory};
use super::queues::{CompletionQueue, QueuePair};
use super::remote::RemoteRegion;
use super::shared::Shared;
use rustix::fd::BorrowedFd;
use shotline_memory::{Access, Pd};
use shotline_verbs::api::{Mtu, QpConfig, QpType};
use shotline_verbs::cm::message::{Receives, Statistics, TargetRole, Welcome};
use shotline_verbs::cm::{ControlAddress, EndpointCounters, Opening, QpRequest, Token};
use shotline_verbs::provider::ProviderKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Options of a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct QueuePairOptions {
    /// Transport service: reliable or unreliable connection.
    pub service: QpType,
    /// Depth of the send queue.
    pub max_send_wr: u32,
    /// Depth of the receive queue.
    pub max_recv_wr: u32,
    /// Maximum elements of a request.
    pub max_sge: u32,
    /// Maximum inline bytes of a request.
    pub max_inline: u32,
    /// Receives that the target keeps posted, and bytes of each: messages are discarded, or sent back.
    pub receives: (u16, u32),
    /// The target sends each message back.
    pub echo: bool,
    /// Acknowledgement timeout before retransmission.
    pub timeout: Duration,
    /// Maximum retransmissions, 0 to 7.
    pub retry_cnt: u8,
    /// Service level; over SpaceFibre the virtual channel.
    pub service_level: u8,
    /// Maximum path MTU.
    pub mtu: Mtu,
}

impl Default for QueuePairOptions {
    fn default() -> Self {
        Self {
            service: QpType::Rc,
            max_send_wr: 128,
            max_recv_wr: 128,
            max_sge: 4,
            max_inline: 64,
            receives: (0, 0),
            echo: false,
            timeout: Duration::from_millis(67),
            retry_cnt: 7,
            service_level: 0,
            mtu: Mtu::MAX,
        }
    }
}

/// An endpoint that is connected to a target. Clones are the same endpoint.
#[derive(Clone)]
pub struct Initiator {
    pub(super) shared: Arc<Shared>,
    about: Arc<About>,
}

struct About {
    to: String,
    transport: ProviderKind,
    address: Option<SocketAddr>,
    welcome: Welcome,
    /// The target's regions, known since the first queue pair was connected.
    regions: OnceLock<Vec<RemoteRegion>>,
    /// What [`Initiator::read`] and [`Initiator::write`] use.
    bulk: Mutex<Option<Bulk>>,
}

impl Initiator {
    /// Opens an endpoint and connects it to a target.
    ///
    /// `to` is HOST:PORT, or the path of a socket; `transport` a provider as on a command line (`soft`, `shm`,
    /// `ibverbs:DEVICE`, `spacefibre:lanes=4`); `bind` the local address, with or without a port, if not that of the route.
    ///
    /// # Errors
    /// If an argument is invalid, the target cannot be reached or refuses the token, or the endpoint cannot be opened.
    pub fn connect(to: &str, token: &str, transport: &str, bind: Option<&str>) -> Result<Self, EndpointError> {
        let kind: ProviderKind = transport.parse().map_err(EndpointError::Invalid)?;
        let token: Token = token.parse()?;
        let address: ControlAddress = to.parse().map_err(EndpointError::Invalid)?;
        let bind = bind.map(local_address).transpose()?;
        let (provider, client) = kind.connect(&(address, token), bind)?;
        let about = About {
            to: to.to_owned(),
            transport: kind,
            address: provider.address(),
            welcome: client.welcome().clone(),
            regions: OnceLock::new(),
            bulk: Mutex::new(None),
        };
        Ok(Self { shared: Arc::new(Shared::new(provider, client)?), about: Arc::new(about) })
    }

    /// Returns the address of the target, as it was given.
    pub fn to(&self) -> &str {
        &self.about.to
    }
    /// Returns the provider.
    pub fn transport(&self) -> &ProviderKind {
        &self.about.transport
    }
    /// Returns the local address; `None` if it is not reached by IP.
    pub fn address(&self) -> Option<SocketAddr> {
        self.about.address
    }
    /// Returns the description of the target.
    pub fn welcome(&self) -> &Welcome {
        &self.about.welcome
    }
    /// Returns `true` after [`Self::close`].
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// Returns `true` if the control connection is open.
    ///
    /// # Errors
    /// If the endpoint is closed.
    pub fn is_connected(&self) -> Result<bool, EndpointError> {
        let open = self.shared.lock()?;
        Ok(open.disconnected_at.is_none() && !self.shared.has_lost_target())
    }

    /// Returns the target's regions.
    ///
    /// # Errors
    /// If the target does not answer, or refuses a queue pair.
    pub fn regions(&self) -> Result<&[RemoteRegion], EndpointError> {
        self.shared.check_owner()?;
        if self.about.regions.get().is_none() {
            self.with_bulk(|_| Ok(()))?;
        }
        Ok(self.about.regions.get().map_or(&[], Vec::as_slice))
    }

    /// Registers memory. `access`: rights of the target, which it needs only for roles in measurements.
    ///
    /// # Errors
    /// If the provider refuses the memory or the rights.
    pub fn register(&self, memory: Memory, access: Access) -> Result<LocalRegion, EndpointError> {
        LocalRegion::register(&self.shared, memory, access)
    }

    /// Creates a completion queue.
    ///
    /// # Errors
    /// If the provider does not support the depth.
    pub fn create_cq(&self, depth: u32) -> Result<CompletionQueue, EndpointError> {
        CompletionQueue::create(&self.shared, depth)
    }

    /// Creates a queue pair and connects it to a new one of the target.
    ///
    /// # Errors
    /// If the provider does not support an option, or the target refuses.
    pub fn create_qp(
        &self,
        send_cq: &CompletionQueue,
        recv_cq: &CompletionQueue,
        options: &QueuePairOptions,
    ) -> Result<QueuePair, EndpointError> {
        if options.service == QpType::Ud {
            return Err(EndpointError::Invalid("expected a service of rc or uc, found ud".into()));
        }
        if ![send_cq, recv_cq].iter().all(|queue| queue.is_of(&self.shared)) {
            let words = "expected completion queues of this endpoint, found one of another endpoint: create it here";
            return Err(EndpointError::Invalid(words.into()));
        }
        if options.retry_cnt > 7 {
            let found = options.retry_cnt;
            return Err(EndpointError::Invalid(format!("expected a retry count of 0 to 7, found {found}")));
        }
        let queues = [send_cq.clone(), recv_cq.clone()];
        let opening = {
            let mut open = self.shared.lock()?;
            let request = request(&open.pd, &queues, options);
            Opening::begin(&mut *open.provider, &request)?
        };
        // The target may take long to answer, and other threads use the provider meanwhile.
        let accepted = self.shared.call(|client| client.offer(&opening));
        let mut open = self.shared.lock()?;
        let accept = match accepted {
            Ok(accept) => accept,
            Err(error) => {
                opening.abandon(&mut *open.provider);
                return Err(error);
            }
        };
        let finished = opening.finish(&mut *open.provider, &accept);
        let qp = finished.inspect_err(|_| open.ended_peers.push(accept.qp))?;
        open.pairs.insert(qp.0, accept.qp);
        drop(open);
        self.about.regions.get_or_init(|| RemoteRegion::all(&accept));
        let pair = QueuePair::new(&self.shared, qp, accept.qp, queues);
        if options.echo {
            self.shared.call(|client| client.start_role(accept.qp, TargetRole::Echo))?;
        }
        Ok(pair)
    }

    /// Returns a descriptor for event loops. It is readable when [`Self::drive`] has work: for armed completion queues, at
    /// the end of the connection, and after [`Self::close`].
    ///
    /// # Errors
    /// [`EndpointError::Forked`] in a child process.
    pub fn fd(&self) -> Result<BorrowedFd<'_>, EndpointError> {
        self.shared.check_owner()?;
        Ok(self.shared.fd())
    }

    /// Does the work for which the descriptor is readable. Does not block.
    ///
    /// # Errors
    /// If the endpoint is closed or fails.
    pub fn drive(&self) -> Result<(), EndpointError> {
        self.shared.drive()
    }

    /// Counts an event loop that begins or ends to wait on the descriptor: it is woken also for events that another thread
    /// takes.
    pub fn count_loop(&self, begins: bool) {
        let waits = &self.shared.loop_waits;
        if begins {
            waits.fetch_add(1, Ordering::Relaxed);
        } else {
            waits.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Reads bytes of a target's region from an offset on. Blocks until they have arrived; `interrupted` is called several
    /// times a second, and ends the call if it returns `true`.
    ///
    /// # Errors
    /// [`EndpointError::Completion`] if the target refuses or does not answer, [`EndpointError::Invalid`] if the bytes are not
    /// inside the region.
    pub fn read(
        &self,
        from: &RemoteRegion,
        offset: u64,
        to: &mut [u8],
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<(), EndpointError> {
        from.check(offset, to.len())?;
        self.with_bulk(|bulk| bulk.read(from, offset, to, interrupted))
    }

    /// Writes bytes to a target's region from an offset on, as [`Self::read`] reads.
    ///
    /// # Errors
    /// As for [`Self::read`].
    pub fn write(
        &self,
        to: &RemoteRegion,
        offset: u64,
        from: &[u8],
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<(), EndpointError> {
        to.check(offset, from.len())?;
        self.with_bulk(|bulk| bulk.write(to, offset, from, interrupted))
    }

    /// Uses the queue pair of blocking transfers. After a failure it is opened again by the next one.
    fn with_bulk(&self, work: impl FnOnce(&mut Bulk) -> Result<(), EndpointError>) -> Result<(), EndpointError> {
        self.shared.check_owner()?;
        let mut bulk = self.about.bulk.lock().unwrap_or_else(PoisonError::into_inner);
        if bulk.is_none() {
            let cq = self.create_cq(Bulk::DEPTH)?;
            let options = QueuePairOptions { max_send_wr: Bulk::DEPTH, max_recv_wr: 1, ..QueuePairOptions::default() };
            let qp = self.create_qp(&cq, &cq, &options)?;
            *bulk = Some(Bulk::new(&self.shared, qp, cq));
        }
        let Some(open) = bulk.as_mut() else { return Ok(()) };
        let done = work(open);
        if done.is_err() {
            *bulk = None;
        }
        done
    }

    /// Returns the counters of the local endpoint.
    ///
    /// # Errors
    /// If the endpoint is closed.
    pub fn counters(&self) -> Result<EndpointCounters, EndpointError> {
        Ok(self.shared.lock()?.provider.total_counters())
    }

    /// Returns the counters of the target for this connection.
    ///
    /// # Errors
    /// If the target does not answer.
    pub fn statistics(&self) -> Result<Statistics, EndpointError> {
        self.shared.call(|client| client.statistics())
    }

    /// Ends the connection and closes the endpoint: its keys and queue pairs end at both ends. Threads that wait return
    /// [`EndpointError::Closed`]. A second call, or one in a child process, does nothing.
    pub fn close(&self) {
        self.shared.close();
    }
}

fn request(pd: &Pd, queues: &[CompletionQueue; 2], options: &QueuePairOptions) -> QpRequest {
    let (count, bytes) = options.receives;
    let config = QpConfig {
        max_send_wr: options.max_send_wr,
        max_recv_wr: options.max_recv_wr,
        max_sge: options.max_sge,
        max_inline: options.max_inline,
        service_level: options.service_level,
        ..QpConfig::new(options.service, *pd, queues[0].handle(), queues[1].handle())
    };
    QpRequest {
        access: Access::REMOTE_READ | Access::REMOTE_WRITE,
        receives: Receives { count, bytes },
        sends: if options.echo { count } else { 0 },
        mtu: options.mtu,
        timeout: options.timeout,
        retry_cnt: options.retry_cnt,
        ..QpRequest::new(config)
    }
}

/// Parses a local address, with or without a port.
pub(super) fn local_address(text: &str) -> Result<SocketAddr, EndpointError> {
    let alone = || text.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, 0));
    let expected = || format!("expected an address such as 127.0.0.2 or [::1]:4791, found {text}");
    text.parse().ok().or_else(alone).ok_or_else(|| EndpointError::Invalid(expected()))
}
