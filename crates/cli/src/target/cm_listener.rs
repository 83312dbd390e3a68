//! Listener for initiators that use the RDMA connection manager: unmodified `rping -c`, and `ib_write_bw -R` and
//! similar. They have no token, so the listener is opened only with `--rdma-cm`.
//!
//! Such an initiator has a protection domain, keys and queue pairs like any other. What its program expects of the
//! other side besides memory is served here. The program needs no configuration: each of its messages determines the
//! answer.
//!
//! The number of connections is limited, and any host may request one. A connection counts when its RTU arrives, which
//! proves its address. While the limit is reached, silent connections are probed, new requests wait, and the last
//! quarter of the connections is reserved for addresses that have none.

use super::cm_initiator::{CmInitiator, RECEIVES, Role};
use super::host::Listener;
use super::report::CmListenerCounters;
use crate::Result;
use crate::interop::local_endpoint::MAX_RD_ATOMIC;
use crate::interop::{oob, rping};
use shotline_transport::PacketIo;
use shotline_verbs::api::{Completion, Provider as _, Status};
use shotline_verbs::cm::message::{Bits24, Kind, Offer, PathMtu, Receives};
use shotline_verbs::cm::{Endpoint as _, EndpointCounters, Exports, Host as _, SessionId};
use shotline_verbs::rdma_cm::message::{REP_PRIVATE_BYTES, RdAtomicLimits, Reply, Request, reason, service_id};
use shotline_verbs::rdma_cm::{Connection, Event, Services};
use shotline_verbs::soft::SoftEndpoint;
use shotline_wire::udp::ROCE_PORT;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// Programs that are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Program {
    /// rping -c (librdmacm)
    Rping,
    /// ib_send_bw, ib_write_bw, ib_read_bw, ib_atomic_bw -R (perftest 4.5)
    Perftest,
}

/// A program and the port at which it connects: `rping`, `perftest:18516`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramPort {
    program: Program,
    port: u16,
}

impl FromStr for ProgramPort {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (name, port) = text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port)));
        let (program, default_port) = match name {
            "rping" => (Program::Rping, rping::PORT),
            "perftest" => (Program::Perftest, oob::PORT),
            _ => return Err(format!("expected rping or perftest, found {name}")),
        };
        let port =
            port.map_or(Ok(default_port), |port| port.parse().map_err(|_| format!("expected a port, found {port}")))?;
        Ok(Self { program, port })
    }
}

/// First session number of these initiators. Those of control connections count from 0.
const FIRST_SESSION: SessionId = 1 << 63;
/// Time of silence after which a connection is probed: usually, and while other requests wait.
const PROBE_AFTER: Duration = Duration::from_secs(60);
const PROBE_AFTER_IF_FULL: Duration = Duration::from_millis(250);
/// Maximum number of connection manager events in one round.
const MAX_EVENTS: usize = 256;
/// Time between two searches for silent connections.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);
/// Time that a request waits for a free connection. It is longer than a connection may take to answer a probe (7
/// retries, 3.5 s).
const PENDING_TIMEOUT: Duration = Duration::from_secs(6);

/// Listener of the connection manager.
pub struct CmListener {
    services: Services,
    programs: Vec<ProgramPort>,
    initiators: HashMap<Connection, CmInitiator>,
    /// Requests that wait for a free connection.
    pending: VecDeque<PendingRequest>,
    max_connections: usize,
    next_session: SessionId,
    last_probe: Instant,
    unresponsive: u64,
    rejected_near_limit: u64,
}

struct PendingRequest {
    connection: Connection,
    from: IpAddr,
    request: Box<Request>,
    until: Instant,
}

impl CmListener {
    /// Opens queue pair 1 for these programs. At most `max_connections` connections are served at once.
    pub fn open<P: PacketIo>(
        endpoint: &mut SoftEndpoint<P>,
        programs: &[ProgramPort],
        max_connections: usize,
    ) -> Result<Self> {
        let mut services = Services::open(endpoint)?;
        services.manager().0.set_max_established(max_connections);
        programs.iter().for_each(|program| services.manager().0.listen(service_id(program.port)));
        Ok(Self {
            services,
            programs: programs.to_vec(),
            initiators: HashMap::new(),
            pending: VecDeque::new(),
            max_connections,
            next_session: FIRST_SESSION,
            last_probe: Instant::now(),
            unresponsive: 0,
            rejected_near_limit: 0,
        })
    }

    fn handle_event<P: PacketIo>(&mut self, exports: &mut Exports<SoftEndpoint<P>>, event: Event) {
        match event {
            Event::Requested(connection, from, request) => {
                let until = Instant::now() + PENDING_TIMEOUT;
                self.pending.push_back(PendingRequest { connection, from, request, until });
            }
            Event::Established(connection) => {
                // Several requests were accepted for the last free connection, and another one was confirmed first.
                let late = self.established_count() >= self.max_connections;
                let Some(initiator) = self.initiators.get_mut(&connection) else { return };
                initiator.established = true;
                if late || !self.assign_measured_qp(connection) {
                    self.rejected_near_limit += 1;
                    self.disconnect(exports, connection);
                }
            }
            Event::Disconnected(connection)
            | Event::Unreachable(connection)
            | Event::Rejected(connection, _)
            | Event::Displaced(connection)
            | Event::DecisionTimedOut(connection) => {
                self.pending.retain(|pending| pending.connection != connection);
                self.remove(exports, connection);
            }
            // This side sends no requests.
            Event::Accepted(..) => {}
        }
    }

    /// Assigns a queue pair to perftest's control connection as the one that is measured: the first of its session
    /// whose address is proven. Returns `false` for any other queue pair, whose request may be forged with that
    /// address.
    fn assign_measured_qp(&mut self, connection: Connection) -> bool {
        let Some(initiator) = self.initiators.get(&connection).filter(|initiator| matches!(initiator.role, Role::Sink))
        else {
            return true;
        };
        let (session, number) = (initiator.session, initiator.connected.qp.0);
        let mut own = self.initiators.values_mut().filter(|initiator| initiator.session == session);
        let none_yet = own.find_map(|initiator| match &mut initiator.role {
            Role::PerftestControl { measured_qp: measured @ None, .. } => Some(measured),
            _ => None,
        });
        none_yet.map(|measured| *measured = Some(number)).is_some()
    }

    /// Returns the number of established connections.
    fn established_count(&self) -> usize {
        self.initiators.values().filter(|initiator| initiator.established).count()
    }

    /// Answers waiting requests while connections are free, and rejects those that have expired.
    fn admit<P: PacketIo>(&mut self, exports: &mut Exports<SoftEndpoint<P>>) {
        let now = Instant::now();
        let taken = self.established_count();
        while self.pending.front().is_some_and(|next| taken < self.max_connections || now >= next.until) {
            let Some(PendingRequest { connection, from, request, .. }) = self.pending.pop_front() else { break };
            let has_connection =
                self.initiators.values().any(|initiator| initiator.established && initiator.from == from);
            let is_near_limit = has_connection && taken >= self.max_connections - self.max_connections / 4;
            self.rejected_near_limit += u64::from(is_near_limit && taken < self.max_connections);
            let answer = if is_near_limit || taken >= self.max_connections {
                Err(reason::NO_RESOURCES)
            } else {
                self.accept(exports, connection, from, &request)
            };
            let (manager, now) = self.services.manager();
            match answer {
                Ok(reply) => manager.accept(now, connection, reply),
                Err(reason) => manager.reject(now, connection, reason),
            }
        }
    }

    /// Sends liveness probes to silent connections.
    fn probe_silent<P: PacketIo>(&mut self, exports: &mut Exports<SoftEndpoint<P>>) {
        let now = Instant::now();
        if now - self.last_probe < PROBE_INTERVAL {
            return;
        }
        self.last_probe = now;
        let max_silence = if self.pending.is_empty() { PROBE_AFTER } else { PROBE_AFTER_IF_FULL };
        for initiator in self.initiators.values_mut().filter(|initiator| initiator.established) {
            // An error means that the send queue is full, so an acknowledgement is outstanding anyway.
            let _ = initiator.probe_if_silent(exports, now, max_silence);
        }
    }

    /// Ends a connection, and frees its place at once.
    fn disconnect<P: PacketIo>(&mut self, exports: &mut Exports<SoftEndpoint<P>>, connection: Connection) {
        self.services.disconnect(connection);
        self.remove(exports, connection);
    }

    /// Creates a queue pair for a request. Returns the reply, or the reason of a rejection.
    fn accept<P: PacketIo>(
        &mut self,
        exports: &mut Exports<SoftEndpoint<P>>,
        connection: Connection,
        from: IpAddr,
        request: &Request,
    ) -> std::result::Result<Reply, u16> {
        let served = self.programs.iter().find(|program| service_id(program.port) == request.service);
        let program = served.ok_or(reason::NO_SERVICE)?.program;
        if request.mtu > exports.mtu {
            return Err(reason::INVALID_MTU);
        }
        let is_control = |initiator: &&CmInitiator| {
            initiator.from == from
                && matches!(initiator.role, Role::PerftestControl { is_ready: true, measured_qp: None })
        };
        let known = self
            .initiators
            .values()
            .find(is_control)
            .filter(|_| program == Program::Perftest)
            .map(|initiator| initiator.session);
        let session = known.unwrap_or(self.next_session);
        self.next_session += u64::from(known.is_none());
        let role = match (program, known) {
            (Program::Rping, _) => Role::Rping { text: None },
            (Program::Perftest, None) => Role::PerftestControl { is_ready: false, measured_qp: None },
            (Program::Perftest, Some(_)) => Role::Sink,
        };
        let psn = Bits24::random().ok_or(reason::NO_RESOURCES)?;
        let (offer, begin) = offer(from, request, psn).ok_or(reason::CONSUMER)?;
        let made = exports.connect_from(session, Some(from), &offer, begin).map(|accept| accept.qp.get());
        let initiator = made.as_ref().ok().map(|qp| CmInitiator::new(exports, from, session, *qp, role));
        let (Ok(number), Some(Ok(initiator))) = (&made, initiator) else {
            match (known, made) {
                (None, _) => exports.session_ended(session),
                (Some(_), Ok(number)) => drop(exports.disconnect(session, number)),
                (Some(_), Err(_)) => {}
            }
            return Err(reason::NO_RESOURCES);
        };
        let number = *number;
        self.initiators.insert(connection, initiator);
        // What the other side initiates is what this side answers, and vice versa.
        let rd_atomic = RdAtomicLimits {
            responder_resources: request.rd_atomic.initiator_depth.min(MAX_RD_ATOMIC),
            initiator_depth: request.rd_atomic.responder_resources.min(MAX_RD_ATOMIC),
        };
        Ok(Reply { qp: number, psn: psn.get(), rd_atomic, rnr_retry: 7, private_data: [0; REP_PRIVATE_BYTES] })
    }

    fn remove<P: PacketIo>(&mut self, exports: &mut Exports<SoftEndpoint<P>>, connection: Connection) {
        let Some(initiator) = self.initiators.remove(&connection) else { return };
        initiator.deregister(exports.provider_mut());
        if self.initiators.values().any(|other| other.session == initiator.session) {
            let _ = exports.disconnect(initiator.session, initiator.connected.qp.0);
        } else {
            exports.session_ended(initiator.session);
        }
    }
}

impl<P: PacketIo> Listener<SoftEndpoint<P>> for CmListener {
    fn progress(&mut self, exports: &mut Exports<SoftEndpoint<P>>) -> Result<bool> {
        let mut busy = false;
        for _ in 0..MAX_EVENTS {
            let Some(event) = self.services.progress(exports.provider_mut())? else { break };
            self.handle_event(exports, event);
            busy = true;
        }
        self.admit(exports);
        self.probe_silent(exports);
        let mut failed_connections = Vec::new();
        for (connection, initiator) in self.initiators.iter_mut().filter(|(_, initiator)| initiator.established) {
            let mut done = [Completion::default(); 16];
            let count = exports.provider_mut().poll_cq(initiator.connected.cq, &mut done)?;
            busy |= count > 0;
            // An error means that the initiator is gone, or does not follow its program's protocol.
            let failed = done[..count].iter().find_map(|completion| match completion.status {
                Status::Success => initiator.completed(exports, completion).err().map(|_| Status::Success),
                status => Some(status),
            });
            failed_connections.extend(failed.map(|status| (*connection, status)));
        }
        for (connection, status) in failed_connections {
            self.unresponsive += u64::from(status == Status::RetryExceeded);
            self.disconnect(exports, connection);
        }
        Ok(busy)
    }

    fn qp_counters(&self, exports: &Exports<SoftEndpoint<P>>) -> EndpointCounters {
        exports.provider().counters_of(self.services.qp())
    }

    fn counters(&self) -> CmListenerCounters {
        CmListenerCounters {
            manager: self.services.counters(),
            rejected_near_limit: self.rejected_near_limit,
            unresponsive: self.unresponsive,
        }
    }

    fn close(&mut self, exports: &mut Exports<SoftEndpoint<P>>) -> Result {
        let connections: Vec<Connection> = self.initiators.keys().copied().collect();
        for connection in connections {
            self.disconnect(exports, connection);
        }
        while self.services.progress(exports.provider_mut())?.is_some() {}
        exports.provider_mut().progress()?;
        Ok(())
    }
}

/// Converts a request to the offer of a control connection and the sequence number that the initiator expects first.
/// `psn` is the first one that it sends.
fn offer(from: IpAddr, request: &Request, psn: Bits24) -> Option<(Offer, Bits24)> {
    let offer = Offer {
        kind: Kind::Rc,
        address: Some(SocketAddr::new(from, ROCE_PORT)),
        qp: Bits24::new(request.qp)?,
        psn,
        mtu: PathMtu(request.mtu),
        max_dest_rd_atomic: request.rd_atomic.responder_resources,
        max_rd_atomic: request.rd_atomic.initiator_depth,
        service_level: 0,
        receives: Receives { count: RECEIVES, bytes: 0 },
        sends: 4,
    };
    Some((offer, Bits24::new(request.psn)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_port_defaults_to_the_usual_one() {
        assert_eq!("rping".parse(), Ok(ProgramPort { program: Program::Rping, port: 7174 }));
        assert_eq!("perftest:18516".parse(), Ok(ProgramPort { program: Program::Perftest, port: 18516 }));
        for wrong in ["", "ucmatose", "rping:", "rping:70000", "perftest:x"] {
            assert!(wrong.parse::<ProgramPort>().is_err(), "{wrong}");
        }
    }
}
