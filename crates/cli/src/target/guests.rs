//! Initiators that come by RDMA's connection manager: `rping -c`, and `ib_write_bw -R` and its like, unmodified. They show
//! no token, so that this door is opened by name only (`--rdma-cm`).
//!
//! A guest is an initiator like any other, with a protection domain, keys and queue pairs of its own. What its program
//! expects of the other side besides memory is played here, by messages: nothing is known of the program before, and what
//! it says next says what to answer.

use super::host::Door;
use crate::Result;
use crate::interop::perftest::{Introduction, MANAGED, VERSION, mtu_code, mtu_of};
use crate::interop::side::{Peer, RD_ATOMIC};
use crate::interop::{rping, talk};
use shotline_memory::{Access, Addressing, Mr, Region};
use shotline_transport::PacketIo;
use shotline_verbs::api::{
    Completed, Completion, Data, Element, Operation, Provider as _, RecvWr, Remote, SendWr, Status, VerbsError,
};
use shotline_verbs::cm::message::{Bits24, Kind, Offer, PathMtu, Receives};
use shotline_verbs::cm::{Connected, Endpoint as _, Export, Exports, Host as _, SessionId, Tally};
use shotline_verbs::rdma_cm::message::{REPLY_PRIVATE, Reads, Reply, Request, reason, service_id};
use shotline_verbs::rdma_cm::{Connection, Event, Services};
use shotline_verbs::soft::SoftEndpoint;
use shotline_wire::udp::ROCE_PORT;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

/// Programs that are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Program {
    /// rping -c (librdmacm)
    Rping,
    /// ib_send_bw, ib_write_bw, ib_read_bw, ib_atomic_bw -R (perftest 4.5)
    Perftest,
}

/// A program and the port at which it looks for its other side: `rping`, `perftest:18516`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    program: Program,
    port: u16,
}

impl FromStr for Service {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (name, port) = text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port)));
        let (program, usual) = match name {
            "rping" => (Program::Rping, rping::PORT),
            "perftest" => (Program::Perftest, talk::PORT),
            _ => return Err(format!("expected rping or perftest, found {name}")),
        };
        let port = port.map_or(Ok(usual), |port| port.parse().map_err(|_| format!("expected a port, found {port}")))?;
        Ok(Self { program, port })
    }
}

/// Sessions from here on are guests': those of control connections count from 0.
const FIRST: SessionId = 1 << 63;
/// Receives that a queue pair for messages keeps posted.
const RECEIVES: u16 = 64;
/// A message is not longer.
const LONGEST: u64 = 64 << 20;
/// What a guest says, what it is told, and room for a text.
const ROOM: usize = 8192;
const TOLD: u64 = 256;
const TEXT: u64 = 4096;

/// The door of the connection manager.
pub struct Guests {
    services: Services,
    wanted: Vec<Service>,
    guests: HashMap<Connection, Guest>,
    most: usize,
    next: SessionId,
}

/// One connection of a guest.
struct Guest {
    from: IpAddr,
    session: SessionId,
    with: Connected,
    memory: Memory,
    part: Part,
    /// Nothing more is said to it until it is gone.
    failed: bool,
}

/// What is written and read on behalf of a guest's messages.
struct Memory {
    mr: Mr,
    region: Arc<Region>,
    /// Bytes that a message may have.
    len: u32,
    /// Registered here, and not one of the exports.
    own: bool,
}

/// What the other side of a program does next.
enum Part {
    /// `rping` is about to tell where its text is, or (with the text's size) where there is room for it.
    Rping { text: Option<u32> },
    /// perftest's own connection, with the queue pair that is measured, once there is one.
    Introductions { begun: bool, measured: Option<u32> },
    /// Takes messages into an exported region, and forgets them.
    Messages,
}

impl Guests {
    /// Opens queue pair 1 for these programs; at most so many are served at once.
    pub fn open<P: PacketIo>(endpoint: &mut SoftEndpoint<P>, wanted: &[Service], most: usize) -> Result<Self> {
        let mut services = Services::open(endpoint)?;
        wanted.iter().for_each(|service| services.manager().0.listen(service_id(service.port)));
        Ok(Self { services, wanted: wanted.to_vec(), guests: HashMap::new(), most, next: FIRST })
    }

    fn happened<P: PacketIo>(&mut self, exports: &mut Exports<SoftEndpoint<P>>, event: Event) {
        match event {
            Event::Asked(connection, from, request) => {
                let answer = self.take(exports, connection, from, &request);
                let (manager, now) = self.services.manager();
                match answer {
                    Ok(reply) => manager.accept(now, connection, reply),
                    Err(reason) => manager.reject(now, connection, reason),
                }
            }
            Event::Ended(connection) | Event::Silent(connection) | Event::Refused(connection, _) => {
                self.forget(exports, connection);
            }
            // Nobody is asked by this side, and what is asked is decided at once.
            Event::Established(_) | Event::Agreed(..) | Event::Lapsed(_) => {}
        }
    }

    /// Makes a queue pair for whoever asks for a connection, or says why not.
    fn take<P: PacketIo>(
        &mut self,
        exports: &mut Exports<SoftEndpoint<P>>,
        connection: Connection,
        from: IpAddr,
        request: &Request,
    ) -> std::result::Result<Reply, u16> {
        let wanted = self.wanted.iter().find(|service| service_id(service.port) == request.service);
        let program = wanted.ok_or(reason::NO_SERVICE)?.program;
        if request.mtu > exports.mtu {
            return Err(reason::INVALID_MTU);
        }
        let begun = |guest: &&Guest| {
            guest.from == from && matches!(guest.part, Part::Introductions { begun: true, measured: None })
        };
        let known =
            self.guests.values().find(begun).filter(|_| program == Program::Perftest).map(|guest| guest.session);
        let session = known.unwrap_or(self.next);
        if known.is_none() {
            if self.guests.len() >= self.most {
                return Err(reason::NO_RESOURCES);
            }
            self.next += 1;
        }
        let part = match (program, known) {
            (Program::Rping, _) => Part::Rping { text: None },
            (Program::Perftest, None) => Part::Introductions { begun: false, measured: None },
            (Program::Perftest, Some(_)) => Part::Messages,
        };
        let psn = Bits24::random().ok_or(reason::NO_RESOURCES)?;
        let (offer, begin) = offer(from, request, psn).ok_or(reason::CONSUMER)?;
        let made = exports.connect_from(session, Some(from), &offer, begin).map(|accept| accept.qp.get());
        let guest = made.as_ref().ok().map(|qp| Guest::new(exports, from, session, *qp, part));
        let (Ok(number), Some(Ok(guest))) = (&made, guest) else {
            match (known, made) {
                (None, _) => exports.left(session),
                (Some(_), Ok(number)) => drop(exports.disconnect(session, number)),
                (Some(_), Err(_)) => {}
            }
            return Err(reason::NO_RESOURCES);
        };
        let number = *number;
        self.guests.insert(connection, guest);
        for guest in self.guests.values_mut().filter(|guest| known == Some(guest.session)) {
            if let Part::Introductions { measured, .. } = &mut guest.part {
                *measured = Some(number);
            }
        }
        // What the other side begins at once is what this one answers, and the other way round.
        let reads =
            Reads { answers: request.reads.begins.min(RD_ATOMIC), begins: request.reads.answers.min(RD_ATOMIC) };
        Ok(Reply { qp: number, psn: psn.get(), reads, rnr_retries: 7, private: [0; REPLY_PRIVATE] })
    }

    fn forget<P: PacketIo>(&mut self, exports: &mut Exports<SoftEndpoint<P>>, connection: Connection) {
        let Some(guest) = self.guests.remove(&connection) else { return };
        guest.memory.end(exports.provider_mut());
        if self.guests.values().any(|other| other.session == guest.session) {
            let _ = exports.disconnect(guest.session, guest.with.qp.0);
        } else {
            exports.left(guest.session);
        }
    }
}

impl<P: PacketIo> Door<SoftEndpoint<P>> for Guests {
    fn progress(&mut self, exports: &mut Exports<SoftEndpoint<P>>) -> Result<bool> {
        let mut busy = false;
        while let Some(event) = self.services.progress(exports.provider_mut())? {
            self.happened(exports, event);
            busy = true;
        }
        for (connection, guest) in &mut self.guests {
            let mut done = [Completion::default(); 16];
            let count = exports.provider_mut().poll_cq(guest.with.cq, &mut done)?;
            busy |= count > 0;
            for completion in &done[..count] {
                if guest.failed {
                    break;
                }
                let done = completion.status == Status::Success && guest.completed(exports, completion).is_ok();
                if !done {
                    guest.failed = true;
                    self.services.disconnect(*connection);
                }
            }
        }
        Ok(busy)
    }

    fn tally(&self, exports: &Exports<SoftEndpoint<P>>) -> Tally {
        exports.provider().tally(self.services.qp())
    }

    fn close(&mut self, exports: &mut Exports<SoftEndpoint<P>>) -> Result {
        let connections: Vec<Connection> = self.guests.keys().copied().collect();
        for connection in connections {
            self.services.disconnect(connection);
            self.forget(exports, connection);
        }
        while self.services.progress(exports.provider_mut())?.is_some() {}
        exports.provider_mut().progress()?;
        Ok(())
    }
}

/// A request as a control connection would have made it, and the sequence number that it wants to hear first. `psn` is
/// what it shall begin with.
fn offer(from: IpAddr, request: &Request, psn: Bits24) -> Option<(Offer, Bits24)> {
    let offer = Offer {
        kind: Kind::Rc,
        address: Some(SocketAddr::new(from, ROCE_PORT)),
        qp: Bits24::new(request.qp)?,
        psn,
        mtu: PathMtu(request.mtu),
        max_dest_rd_atomic: request.reads.answers,
        max_rd_atomic: request.reads.begins,
        receives: Receives { count: RECEIVES, bytes: 0 },
        sends: 4,
    };
    Some((offer, Bits24::new(request.psn)?))
}

impl Guest {
    fn new<P: PacketIo>(
        exports: &mut Exports<SoftEndpoint<P>>,
        from: IpAddr,
        session: SessionId,
        qp: u32,
        part: Part,
    ) -> std::result::Result<Self, VerbsError> {
        let with = exports.connected(session, qp).ok_or(VerbsError::NoSuch("queue pair"))?;
        let (memory, receives) = match part {
            Part::Messages => Memory::exported(exports, session)?,
            _ => (Memory::room(exports.provider_mut(), with)?, 1),
        };
        let guest = Self { from, session, with, memory, part, failed: false };
        match (0..receives).try_for_each(|_| guest.post_receive(exports.provider_mut())) {
            Ok(()) => Ok(guest),
            Err(error) => {
                guest.memory.end(exports.provider_mut());
                Err(error)
            }
        }
    }

    /// Does what follows from a completion. An error is of the guest: it does not speak as its program does.
    fn completed<P: PacketIo>(&mut self, exports: &mut Exports<SoftEndpoint<P>>, completion: &Completion) -> Result {
        let came = completion.completed == Completed::Recv;
        if came {
            self.post_receive(exports.provider_mut())?;
        }
        match &mut self.part {
            Part::Rping { text } if came => {
                let mut info = [0; rping::INFO as usize];
                if completion.bytes != rping::INFO {
                    return Err("rping says 16 bytes".into());
                }
                self.memory.region.read(0, &mut info);
                let (at, size) = rping::parse(&info)?;
                match text.take() {
                    None => {
                        *text = Some(size);
                        self.post(exports.provider_mut(), Operation::Read(at), TEXT, size)?;
                    }
                    Some(size) => {
                        let len = rping::length(&self.memory.region, TEXT, size);
                        self.post(exports.provider_mut(), Operation::Write(at), TEXT, len)?;
                    }
                }
            }
            // What is said does not matter, but that something is.
            Part::Rping { .. } if matches!(completion.completed, Completed::Read | Completed::Write) => {
                self.post(exports.provider_mut(), Operation::Send, TOLD, rping::INFO)?;
            }
            Part::Introductions { begun, measured } if came => {
                let len = completion.bytes as usize;
                let mut bytes = [0; TOLD as usize];
                self.memory.region.read(0, &mut bytes[..len.min(TOLD as usize)]);
                match len {
                    2 => {
                        let theirs = mtu_of([bytes[0], 0]).ok_or("there is no such MTU")?;
                        bytes[..2].copy_from_slice(&mtu_code(theirs.min(exports.mtu)));
                    }
                    4 | 8 => {} // lengths, and what was measured: as the other side has it
                    16 => bytes[..16].copy_from_slice(VERSION),
                    MANAGED => {
                        *begun = true;
                        let own = introduction(exports, self.session, measured.unwrap_or(0));
                        bytes[..MANAGED].copy_from_slice(&own.numbers());
                    }
                    _ => return Err(format!("perftest says nothing of {len} bytes").into()),
                }
                self.memory.region.write(TOLD as usize, &bytes[..len]);
                self.post(exports.provider_mut(), Operation::Send, TOLD, len as u32)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn post<P: PacketIo>(
        &self,
        provider: &mut SoftEndpoint<P>,
        operation: Operation,
        at: u64,
        len: u32,
    ) -> std::result::Result<(), VerbsError> {
        let element = [self.memory.element(at, len)];
        let posted = provider.post_send(self.with.qp, &[SendWr::new(0, operation, Data::Elements(&element))]);
        posted.map_err(|(_, error)| VerbsError::Invalid(error.to_string()))
    }

    /// Receives all have the same place: only one message is due at a time, or nobody reads them.
    fn post_receive<P: PacketIo>(&self, provider: &mut SoftEndpoint<P>) -> std::result::Result<(), VerbsError> {
        let element = [self.memory.element(0, self.memory.len)];
        let posted = provider.post_recv(self.with.qp, &[RecvWr { id: 0, elements: &element }]);
        posted.map_err(|(_, error)| VerbsError::Invalid(error.to_string()))
    }
}

impl Memory {
    /// Some of its own.
    fn room<P: PacketIo>(provider: &mut SoftEndpoint<P>, with: Connected) -> std::result::Result<Self, VerbsError> {
        let region = Region::heap(ROOM)?;
        let mr = provider.reg_mr(with.pd, &region, 0, ROOM as u64, Access::LOCAL_WRITE, Addressing::ZeroBased)?;
        Ok(Self { mr, region, len: TOLD as u32, own: true })
    }

    /// The exported region, and how many messages it can take: none if nothing may be written there.
    fn exported<P: PacketIo>(
        exports: &Exports<SoftEndpoint<P>>,
        session: SessionId,
    ) -> std::result::Result<(Self, u16), VerbsError> {
        let (export, mr) = open_one(exports, session).ok_or(VerbsError::NoSuch("region"))?;
        let len = export.bytes.min(LONGEST) as u32;
        let receives = if export.rights.allows(Access::LOCAL_WRITE) { RECEIVES } else { 0 };
        Ok((Self { mr, region: Arc::clone(&export.region), len, own: false }, receives))
    }

    fn element(&self, at: u64, len: u32) -> Element {
        Element { address: self.mr.address + at, len, lkey: self.mr.lkey }
    }

    fn end<P: PacketIo>(&self, provider: &mut SoftEndpoint<P>) {
        if self.own {
            let _ = provider.dereg_mr(&self.mr);
        }
    }
}

/// The region that perftest gets, with the key of this session: the first that can be written, else the first.
fn open_one<P: PacketIo>(exports: &Exports<SoftEndpoint<P>>, session: SessionId) -> Option<(&Export, Mr)> {
    let all = exports.exports();
    let place = all.iter().position(|export| export.rights.allows(Access::REMOTE_WRITE)).unwrap_or(0);
    Some((all.get(place)?, *exports.keys(session).get(place)?))
}

fn introduction<P: PacketIo>(exports: &Exports<SoftEndpoint<P>>, session: SessionId, qp: u32) -> Introduction {
    let memory = open_one(exports, session).map(|(_, mr)| Remote { address: mr.address, rkey: mr.rkey });
    let ip = exports.provider().address().ip();
    let memory = memory.unwrap_or(Remote { address: 0, rkey: 0 });
    Introduction { peer: Peer { ip, qp, psn: 0, reads: RD_ATOMIC }, memory }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_its_usual_port_unless_told_otherwise() {
        assert_eq!("rping".parse(), Ok(Service { program: Program::Rping, port: 7174 }));
        assert_eq!("perftest:18516".parse(), Ok(Service { program: Program::Perftest, port: 18516 }));
        for wrong in ["", "ucmatose", "rping:", "rping:70000", "perftest:x"] {
            assert!(wrong.parse::<Service>().is_err(), "{wrong}");
        }
    }
}
