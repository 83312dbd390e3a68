//! Initiators that come by RDMA's connection manager: `rping -c`, and `ib_write_bw -R` and its like, unmodified. They show
//! no token, so that this door is opened by name only (`--rdma-cm`).
//!
//! A guest is an initiator like any other, with a protection domain, keys and queue pairs of its own. What its program
//! expects of the other side besides memory is played here, by messages: nothing is known of the program before, and what
//! it says next says what to answer.
//!
//! Places are bounded, and anybody may ask for one. A connection takes its place when its RTU comes, which proves its
//! address. While there is none, those that are silent are asked whether they are there, who asks waits, and the last
//! quarter of the places goes to addresses that hold none.

use super::guest::{Guest, Part, RECEIVES};
use super::host::Door;
use super::report::GuestCounts;
use crate::Result;
use crate::interop::side::RD_ATOMIC;
use crate::interop::{rping, talk};
use shotline_transport::PacketIo;
use shotline_verbs::api::{Completion, Provider as _, Status};
use shotline_verbs::cm::message::{Bits24, Kind, Offer, PathMtu, Receives};
use shotline_verbs::cm::{Endpoint as _, Exports, Host as _, SessionId, EndpointCounters};
use shotline_verbs::rdma_cm::message::{REPLY_PRIVATE, RdAtomicLimits, Reply, Request, reason, service_id};
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
/// A guest that is silent for so long is asked whether it is there: usually, and while others wait for a place.
const SILENCE: Duration = Duration::from_secs(60);
const SILENCE_OF_FEW: Duration = Duration::from_millis(250);
/// Events after which everything else has its turn.
const EVENTS: usize = 256;
/// Time between two looks for the silent.
const LOOK: Duration = Duration::from_millis(100);
/// How long somebody waits for a place: longer than a guest may take to answer (7 repetitions, 3.5 s).
const WAIT: Duration = Duration::from_secs(6);

/// The door of the connection manager.
pub struct Guests {
    services: Services,
    wanted: Vec<Service>,
    guests: HashMap<Connection, Guest>,
    /// Who waits for a place, and until when.
    waiting: VecDeque<Waiting>,
    most: usize,
    next: SessionId,
    looked: Instant,
    silent: u64,
    crowded: u64,
}

struct Waiting {
    connection: Connection,
    from: IpAddr,
    request: Box<Request>,
    until: Instant,
}

impl Guests {
    /// Opens queue pair 1 for these programs; at most so many are served at once.
    pub fn open<P: PacketIo>(endpoint: &mut SoftEndpoint<P>, wanted: &[Service], most: usize) -> Result<Self> {
        let mut services = Services::open(endpoint)?;
        services.manager().0.set_max_established(most);
        wanted.iter().for_each(|service| services.manager().0.listen(service_id(service.port)));
        Ok(Self {
            services,
            wanted: wanted.to_vec(),
            guests: HashMap::new(),
            waiting: VecDeque::new(),
            most,
            next: FIRST,
            looked: Instant::now(),
            silent: 0,
            crowded: 0,
        })
    }

    fn happened<P: PacketIo>(&mut self, exports: &mut Exports<SoftEndpoint<P>>, event: Event) {
        match event {
            Event::Requested(connection, from, request) => {
                let until = Instant::now() + WAIT;
                self.waiting.push_back(Waiting { connection, from, request, until });
            }
            Event::Established(connection) => {
                // Several were let in for the last place, and another one was faster.
                let late = self.established() >= self.most;
                let Some(guest) = self.guests.get_mut(&connection) else { return };
                guest.established = true;
                if late || !self.measure(connection) {
                    self.crowded += 1;
                    self.dismiss(exports, connection);
                }
            }
            Event::Disconnected(connection)
            | Event::Unreachable(connection)
            | Event::Rejected(connection, _)
            | Event::Displaced(connection)
            | Event::DecisionTimedOut(connection) => {
                self.waiting.retain(|waiting| waiting.connection != connection);
                self.forget(exports, connection);
            }
            // Nobody is asked by this side.
            Event::Accepted(..) => {}
        }
    }

    /// Tells perftest's own connection which queue pair is measured: the first of its session whose address is proven.
    /// False for any other, which only asked in its name.
    fn measure(&mut self, connection: Connection) -> bool {
        let Some(guest) = self.guests.get(&connection).filter(|guest| matches!(guest.part, Part::Messages)) else {
            return true;
        };
        let (session, number) = (guest.session, guest.with.qp.0);
        let mut own = self.guests.values_mut().filter(|guest| guest.session == session);
        let none_yet = own.find_map(|guest| match &mut guest.part {
            Part::Introductions { measured: measured @ None, .. } => Some(measured),
            _ => None,
        });
        none_yet.map(|measured| *measured = Some(number)).is_some()
    }

    /// Places that are taken.
    fn established(&self) -> usize {
        self.guests.values().filter(|guest| guest.established).count()
    }

    /// Answers those who wait, as long as there are places.
    fn admit<P: PacketIo>(&mut self, exports: &mut Exports<SoftEndpoint<P>>) {
        let now = Instant::now();
        let taken = self.established();
        while self.waiting.front().is_some_and(|next| taken < self.most || now >= next.until) {
            let Some(Waiting { connection, from, request, .. }) = self.waiting.pop_front() else { break };
            let holds = self.guests.values().any(|guest| guest.established && guest.from == from);
            let crowded = holds && taken >= self.most - self.most / 4;
            self.crowded += u64::from(crowded && taken < self.most);
            let answer = if crowded || taken >= self.most {
                Err(reason::NO_RESOURCES)
            } else {
                self.take(exports, connection, from, &request)
            };
            let (manager, now) = self.services.manager();
            match answer {
                Ok(reply) => manager.accept(now, connection, reply),
                Err(reason) => manager.reject(now, connection, reason),
            }
        }
    }

    /// Looks which guests are silent, and asks them whether they are there.
    fn look<P: PacketIo>(&mut self, exports: &mut Exports<SoftEndpoint<P>>) {
        let now = Instant::now();
        if now - self.looked < LOOK {
            return;
        }
        self.looked = now;
        let patience = if self.waiting.is_empty() { SILENCE } else { SILENCE_OF_FEW };
        for guest in self.guests.values_mut().filter(|guest| guest.established) {
            // One with so much to do that there is no room for the question has an answer due anyway.
            let _ = guest.look(exports, now, patience);
        }
    }

    /// Ends a connection, and gives its place to others at once.
    fn dismiss<P: PacketIo>(&mut self, exports: &mut Exports<SoftEndpoint<P>>, connection: Connection) {
        self.services.disconnect(connection);
        self.forget(exports, connection);
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
        self.next += u64::from(known.is_none());
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
                (None, _) => exports.session_ended(session),
                (Some(_), Ok(number)) => drop(exports.disconnect(session, number)),
                (Some(_), Err(_)) => {}
            }
            return Err(reason::NO_RESOURCES);
        };
        let number = *number;
        self.guests.insert(connection, guest);
        // What the other side begins at once is what this one answers, and the other way round.
        let reads =
            RdAtomicLimits { responder_resources: request.reads.initiator_depth.min(RD_ATOMIC), initiator_depth: request.reads.responder_resources.min(RD_ATOMIC) };
        Ok(Reply { qp: number, psn: psn.get(), reads, rnr_retries: 7, private: [0; REPLY_PRIVATE] })
    }

    fn forget<P: PacketIo>(&mut self, exports: &mut Exports<SoftEndpoint<P>>, connection: Connection) {
        let Some(guest) = self.guests.remove(&connection) else { return };
        guest.end(exports.provider_mut());
        if self.guests.values().any(|other| other.session == guest.session) {
            let _ = exports.disconnect(guest.session, guest.with.qp.0);
        } else {
            exports.session_ended(guest.session);
        }
    }
}

impl<P: PacketIo> Door<SoftEndpoint<P>> for Guests {
    fn progress(&mut self, exports: &mut Exports<SoftEndpoint<P>>) -> Result<bool> {
        let mut busy = false;
        for _ in 0..EVENTS {
            let Some(event) = self.services.progress(exports.provider_mut())? else { break };
            self.happened(exports, event);
            busy = true;
        }
        self.admit(exports);
        self.look(exports);
        let mut over = Vec::new();
        for (connection, guest) in self.guests.iter_mut().filter(|(_, guest)| guest.established) {
            let mut done = [Completion::default(); 16];
            let count = exports.provider_mut().poll_cq(guest.with.cq, &mut done)?;
            busy |= count > 0;
            // An error is of the guest: it is gone, or does not speak as its program does.
            let failed = done[..count].iter().find_map(|completion| match completion.status {
                Status::Success => guest.completed(exports, completion).err().map(|_| Status::Success),
                status => Some(status),
            });
            over.extend(failed.map(|status| (*connection, status)));
        }
        for (connection, status) in over {
            self.silent += u64::from(status == Status::RetryExceeded);
            self.dismiss(exports, connection);
        }
        Ok(busy)
    }

    fn tally(&self, exports: &Exports<SoftEndpoint<P>>) -> EndpointCounters {
        exports.provider().qp_counters(self.services.qp())
    }

    fn counts(&self) -> GuestCounts {
        GuestCounts { requests: self.services.counts(), crowded: self.crowded, silent: self.silent }
    }

    fn close(&mut self, exports: &mut Exports<SoftEndpoint<P>>) -> Result {
        let connections: Vec<Connection> = self.guests.keys().copied().collect();
        for connection in connections {
            self.dismiss(exports, connection);
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
        max_dest_rd_atomic: request.reads.responder_resources,
        max_rd_atomic: request.reads.initiator_depth,
        receives: Receives { count: RECEIVES, bytes: 0 },
        sends: 4,
    };
    Some((offer, Bits24::new(request.psn)?))
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
