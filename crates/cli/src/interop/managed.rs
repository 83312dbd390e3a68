//! Connections that RDMA's connection manager makes for this side: how one is asked for, and the one over which
//! perftest's two sides introduce each other (`-R`).

use super::common::Service;
use super::side::{Peer, RD_ATOMIC, Side};
use crate::Result;
use shotline_memory::{Access, Mr, Region};
use shotline_verbs::api::{
    CompletionKind, Completion, Cq, Data, Element, Mtu, Operation, Provider as _, Qp, RecvWr, SendWr, Status,
};
use shotline_verbs::cm::message::Bits24;
use shotline_verbs::rdma_cm::message::{Addresses, REQUEST_PRIVATE, RdAtomicLimits, Reply, Request, reason, service_id};
use shotline_verbs::rdma_cm::{Connection, Event};
use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

/// The address of a host.
pub fn address(host: &str) -> Result<IpAddr> {
    let found = (host, 0).to_socket_addrs();
    let found = found.map_err(|error| format!("there is no host {host}: {error}"))?.next();
    Ok(found.ok_or_else(|| format!("there is no address of {host}"))?.ip())
}

/// Asks for a connection of `own`, until the other side agrees. Its queue pair is to be made ready, and then
/// [`confirm`]ed. There may be no program behind the other side yet.
pub fn ask(side: &mut Side, own: Peer, to: IpAddr, port: u16, mtu: Mtu) -> Result<(Connection, Box<Reply>)> {
    let path = [own.ip, to];
    let mut private = [0; REQUEST_PRIVATE];
    private[..Addresses::LEN].copy_from_slice(&Addresses { port: 0, of: path }.emit());
    let request = Request {
        service: service_id(port),
        qp: own.qp,
        psn: own.psn,
        reads: RdAtomicLimits { responder_resources: RD_ATOMIC, initiator_depth: RD_ATOMIC },
        mtu,
        retries: 7,
        rnr_retries: 7,
        path,
        private,
    };
    let mut end = side.deadline();
    let again = |side: &mut Side| -> Result {
        let (manager, now) = side.manage()?.manager();
        manager.connect(now, to, request.clone());
        Ok(())
    };
    again(side)?;
    loop {
        match side.next_event()? {
            Some(Event::Accepted(connection, reply)) => return Ok((connection, reply)),
            Some(Event::Rejected(_, reason::NO_SERVICE)) => {
                side.check(&mut end)
                    .map_err(|_| format!("{to} refuses the connection: no program is at port {port}"))?;
                std::thread::sleep(Duration::from_millis(200));
                again(side)?;
            }
            Some(Event::Rejected(_, reason::CONSUMER)) => return Err(format!("{to} refuses the connection").into()),
            Some(Event::Rejected(_, reason)) => {
                return Err(format!("{to} refuses the connection: reason {reason} of IBTA 12.6.7.2").into());
            }
            Some(Event::Unreachable(_)) => return Err(format!("{to} does not answer at queue pair 1").into()),
            _ => {}
        }
    }
}

/// Says that this side is ready.
pub fn confirm(side: &mut Side, connection: Connection) -> Result {
    let (manager, now) = side.manage()?.manager();
    manager.ready(now, connection);
    Ok(())
}

/// Connects this side's own queue pair: from the sequence number that the other side names, which is where it expects the
/// first packet.
pub fn connect(side: &mut Side, to: IpAddr, port: u16, mtu: Mtu) -> Result<Connection> {
    let own = side.own();
    let (connection, reply) = ask(side, own, to, port, mtu)?;
    let Reply { qp, psn, reads, .. } = *reply;
    let psn = side.begin_at(psn);
    side.connect(&Peer { ip: to, qp, psn, reads: reads.responder_resources }, mtu)?;
    side.post_receive()?;
    confirm(side, connection)?;
    Ok(connection)
}

/// Bytes of the longest thing that is said.
const LONGEST: u32 = 256;

/// A reliable connection over which the two sides talk, in turn, one message at a time.
pub struct Line {
    cq: Cq,
    qp: Qp,
    memory: Mr,
    region: Arc<Region>,
    connection: Connection,
    /// What has come before the acknowledgement of what it answers.
    early: Option<Completion>,
}

impl Line {
    /// Goes to the other side, where its program waits at this port.
    pub fn connect(side: &mut Side, to: IpAddr, port: u16, mtu: Mtu) -> Result<Self> {
        let psn = Bits24::random().ok_or("the operating system's random source cannot be read")?.get();
        let region = Region::heap(2 * LONGEST as usize)?;
        let (cq, qp, memory) = side.queue_pair(&region, Access::LOCAL_WRITE)?;
        let own = Peer { qp: qp.0, psn, ..side.own() };
        let (connection, reply) = ask(side, own, to, port, mtu)?;
        let line = Self { cq, qp, memory, region, connection, early: None };
        let peer = Peer { ip: to, qp: reply.qp, psn, reads: 0 };
        side.bring_up(qp, Service::Rc, &peer, reply.psn, mtu)?;
        line.post_receive(side)?;
        confirm(side, connection)?;
        Ok(line)
    }

    /// Says something.
    pub fn say(&mut self, side: &mut Side, bytes: &[u8]) -> Result {
        self.region.write(LONGEST as usize, bytes);
        let element = [self.element(LONGEST, bytes.len() as u32)];
        let request = SendWr::new(0, Operation::Send, Data::Elements(&element));
        side.provider().post_send(self.qp, &[request]).map_err(|(_, error)| error)?;
        self.wait_for(side, CompletionKind::Send)?;
        Ok(())
    }

    /// Hears `N` bytes.
    pub fn hear<const N: usize>(&mut self, side: &mut Side) -> Result<[u8; N]> {
        let heard = self.wait_for(side, CompletionKind::Recv)?.bytes as usize;
        if heard != N {
            return Err(format!("expected {N} bytes of the other side, found {heard}").into());
        }
        let mut bytes = [0; N];
        self.region.read(0, &mut bytes);
        self.post_receive(side)?;
        Ok(bytes)
    }

    /// Ends the connection.
    pub fn hang_up(&self, side: &mut Side) -> Result {
        side.manage()?.disconnect(self.connection);
        Ok(())
    }

    fn wait_for(&mut self, side: &mut Side, what: CompletionKind) -> Result<Completion> {
        let mut end = side.deadline();
        if let Some(early) = self.early.take_if(|early| early.kind == what) {
            return Ok(early);
        }
        loop {
            let mut done = [Completion::default()];
            if side.provider().poll_cq(self.cq, &mut done)? == 0 {
                side.turn(None)?;
                side.check(&mut end)?;
                continue;
            }
            match done[0] {
                Completion { status: Status::Success, kind: completed, .. } if completed == what => return Ok(done[0]),
                Completion { status: Status::Success, .. } => self.early = Some(done[0]),
                Completion { status, kind: completed, .. } => {
                    return Err(format!("{completed:?} ended with {status:?}").into());
                }
            }
        }
    }

    fn post_receive(&self, side: &mut Side) -> Result {
        let element = [self.element(0, LONGEST)];
        let posted = side.provider().post_recv(self.qp, &[RecvWr { id: 0, elements: &element }]);
        posted.map_err(|(_, error)| error.into())
    }

    fn element(&self, at: u32, len: u32) -> Element {
        Element { address: self.memory.address + u64::from(at), len, lkey: self.memory.lkey }
    }
}
