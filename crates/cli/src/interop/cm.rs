//! Connections of the RDMA connection manager, among them the one over which perftest's two sides exchange parameters
//! (`-R`).

use super::common::Service;
use super::local_endpoint::{LocalEndpoint, MAX_RD_ATOMIC, PeerQp};
use crate::Result;
use shotline_memory::{Access, Mr, Region};
use shotline_verbs::api::{
    Completion, CompletionKind, Cq, Data, Element, Mtu, Operation, Provider as _, Qp, RecvWr, SendWr, Status,
};
use shotline_verbs::cm::message::Bits24;
use shotline_verbs::rdma_cm::message::{
    Addresses, REQ_PRIVATE_BYTES, RdAtomicLimits, Reply, Request, reason, service_id,
};
use shotline_verbs::rdma_cm::{Connection, Event};
use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

/// Resolves the address of a host.
pub fn address(host: &str) -> Result<IpAddr> {
    let found = (host, 0).to_socket_addrs();
    let found = found.map_err(|error| format!("cannot resolve host {host}: {error}"))?.next();
    Ok(found.ok_or_else(|| format!("host {host} has no address"))?.ip())
}

/// Requests a connection for `own` and retries until the other side accepts. The caller then moves the queue pair to
/// the ready-to-send state and calls [`confirm`]. The other side's program may not have started yet.
pub fn request_connection(
    local: &mut LocalEndpoint,
    own: PeerQp,
    to: IpAddr,
    port: u16,
    mtu: Mtu,
) -> Result<(Connection, Box<Reply>)> {
    let path = [own.ip, to];
    let mut private_data = [0; REQ_PRIVATE_BYTES];
    private_data[..Addresses::LEN].copy_from_slice(&Addresses { port: 0, ips: path }.emit());
    let request = Request {
        service: service_id(port),
        qp: own.qp,
        psn: own.psn,
        rd_atomic: RdAtomicLimits { responder_resources: MAX_RD_ATOMIC, initiator_depth: MAX_RD_ATOMIC },
        mtu,
        retry_cnt: 7,
        rnr_retry: 7,
        path,
        private_data,
    };
    let mut deadline = local.deadline();
    let request_again = |local: &mut LocalEndpoint| -> Result {
        let (manager, now) = local.manage()?.manager();
        manager.connect(now, to, request.clone());
        Ok(())
    };
    request_again(local)?;
    loop {
        match local.next_event()? {
            Some(Event::Accepted(connection, reply)) => return Ok((connection, reply)),
            Some(Event::Rejected(_, reason::NO_SERVICE)) => {
                local
                    .check(&mut deadline)
                    .map_err(|_| format!("{to} refused the connection: no program listens at port {port}"))?;
                std::thread::sleep(Duration::from_millis(200));
                request_again(local)?;
            }
            Some(Event::Rejected(_, reason::CONSUMER)) => return Err(format!("{to} refused the connection").into()),
            Some(Event::Rejected(_, reason)) => {
                return Err(format!("{to} refused the connection: reason {reason} of IBTA 12.6.7.2").into());
            }
            Some(Event::Unreachable(_)) => return Err(format!("{to} does not answer at queue pair 1").into()),
            _ => {}
        }
    }
}

/// Confirms that this side is ready.
pub fn confirm(local: &mut LocalEndpoint, connection: Connection) -> Result {
    let (manager, now) = local.manage()?.manager();
    manager.ready(now, connection);
    Ok(())
}

/// Connects this side's queue pair. Its first PSN is the one that the reply specifies, which the other side expects.
pub fn connect(local: &mut LocalEndpoint, to: IpAddr, port: u16, mtu: Mtu) -> Result<Connection> {
    let own = local.own_qp();
    let (connection, reply) = request_connection(local, own, to, port, mtu)?;
    let Reply { qp, psn, rd_atomic, .. } = *reply;
    let psn = local.replace_psn(psn);
    local.connect(&PeerQp { ip: to, qp, psn, rd_atomic: rd_atomic.responder_resources }, mtu)?;
    local.post_receive()?;
    confirm(local, connection)?;
    Ok(connection)
}

/// Maximum length of a message, in bytes.
const MAX_MESSAGE_BYTES: u32 = 256;

/// A reliable connection over which the two sides send messages, in turn and one at a time.
pub struct CmChannel {
    cq: Cq,
    qp: Qp,
    memory: Mr,
    region: Arc<Region>,
    connection: Connection,
    /// A completion of the other kind that was polled while this side waited for one.
    other: Option<Completion>,
}

impl CmChannel {
    /// Connects to the other side's program at this port.
    pub fn connect(local: &mut LocalEndpoint, to: IpAddr, port: u16, mtu: Mtu) -> Result<Self> {
        let psn = Bits24::random().ok_or("the operating system's random source cannot be read")?.get();
        let region = Region::heap(2 * MAX_MESSAGE_BYTES as usize)?;
        let (cq, qp, memory) = local.queue_pair(&region, Access::LOCAL_WRITE)?;
        let own = PeerQp { qp: qp.0, psn, ..local.own_qp() };
        let (connection, reply) = request_connection(local, own, to, port, mtu)?;
        let channel = Self { cq, qp, memory, region, connection, other: None };
        let peer = PeerQp { ip: to, qp: reply.qp, psn, rd_atomic: 0 };
        local.bring_up(qp, Service::Rc, &peer, reply.psn, mtu)?;
        channel.post_receive(local)?;
        confirm(local, connection)?;
        Ok(channel)
    }

    /// Sends a message and waits for its completion.
    pub fn send(&mut self, local: &mut LocalEndpoint, bytes: &[u8]) -> Result {
        self.region.write(MAX_MESSAGE_BYTES as usize, bytes);
        let element = [self.element(MAX_MESSAGE_BYTES, bytes.len() as u32)];
        let request = SendWr::new(0, Operation::Send, Data::Elements(&element));
        local.provider().post_send(self.qp, &[request]).map_err(|(_, error)| error)?;
        self.wait_for(local, CompletionKind::Send)?;
        Ok(())
    }

    /// Receives a message of `N` bytes.
    pub fn receive<const N: usize>(&mut self, local: &mut LocalEndpoint) -> Result<[u8; N]> {
        let len = self.wait_for(local, CompletionKind::Recv)?.bytes as usize;
        if len != N {
            return Err(format!("expected {N} bytes from the other side, found {len}").into());
        }
        let mut bytes = [0; N];
        self.region.read(0, &mut bytes);
        self.post_receive(local)?;
        Ok(bytes)
    }

    /// Ends the connection.
    pub fn disconnect(&self, local: &mut LocalEndpoint) -> Result {
        local.manage()?.disconnect(self.connection);
        Ok(())
    }

    fn wait_for(&mut self, local: &mut LocalEndpoint, what: CompletionKind) -> Result<Completion> {
        let mut deadline = local.deadline();
        if let Some(other) = self.other.take_if(|other| other.kind == what) {
            return Ok(other);
        }
        loop {
            let mut done = [Completion::default()];
            if local.provider().poll_cq(self.cq, &mut done)? == 0 {
                local.drive(None)?;
                local.check(&mut deadline)?;
                continue;
            }
            match done[0] {
                Completion { status: Status::Success, kind: completed, .. } if completed == what => return Ok(done[0]),
                Completion { status: Status::Success, .. } => self.other = Some(done[0]),
                Completion { status, kind: completed, .. } => {
                    return Err(format!("{completed:?} ended with {status:?}").into());
                }
            }
        }
    }

    fn post_receive(&self, local: &mut LocalEndpoint) -> Result {
        let element = [self.element(0, MAX_MESSAGE_BYTES)];
        let posted = local.provider().post_recv(self.qp, &[RecvWr { id: 0, elements: &element }]);
        posted.map_err(|(_, error)| error.into())
    }

    fn element(&self, offset: u32, len: u32) -> Element {
        Element { address: self.memory.address + u64::from(offset), len, lkey: self.memory.lkey }
    }
}
