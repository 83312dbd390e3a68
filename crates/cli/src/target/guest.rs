//! One connection of a guest, and the other side of its program.

use crate::Result;
use crate::interop::perftest::{Introduction, MANAGED, VERSION, mtu_code, mtu_of};
use crate::interop::rping;
use crate::interop::side::{Peer, RD_ATOMIC};
use shotline_memory::{Access, Addressing, Mr, Region};
use shotline_transport::PacketIo;
use shotline_verbs::api::{
    CompletionKind, Completion, Data, Element, Operation, Provider as _, RecvWr, Remote, SendWr, VerbsError,
};
use shotline_verbs::cm::message::{Cause, Refusal};
use shotline_verbs::cm::{Connected, Endpoint as _, Export, Exports, Reservation, SessionId};
use shotline_verbs::soft::SoftEndpoint;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Receives that a queue pair for messages keeps posted.
pub(super) const RECEIVES: u16 = 64;
/// A message is not longer.
const LONGEST: u64 = 64 << 20;
/// What a guest says, what it is told, and room for a text.
const ROOM: usize = 8192;
const TOLD: u64 = 256;
const TEXT: u64 = 4096;

/// The request that asks whether the other side is there.
const PROBE: u64 = u64::MAX;

/// One connection of a guest.
pub struct Guest {
    pub from: IpAddr,
    pub session: SessionId,
    pub with: Connected,
    pub part: Part,
    /// Whether its RTU has come: until then its address may be forged.
    pub established: bool,
    memory: Memory,
    /// Packets of it that had come when it was looked at last, and when they were more than before.
    heard: (u64, Instant),
    /// It was asked whether it is there, and has not answered.
    asked: bool,
}

/// What is written and read on behalf of a guest's messages.
struct Memory {
    mr: Mr,
    region: Arc<Region>,
    /// Bytes that a message may have.
    len: u32,
    /// Registered here: none for an exported region.
    own: Option<Reservation>,
}

/// What the other side of a program does next.
pub enum Part {
    /// `rping` is about to tell where its text is, or (with the text's size) where there is room for it.
    Rping { text: Option<u32> },
    /// perftest's own connection, with the queue pair that is measured, once there is one.
    Introductions { begun: bool, measured: Option<u32> },
    /// Takes messages into an exported region, and forgets them.
    Messages,
}

impl Guest {
    /// Of the program behind this queue pair, with the receives that it begins with.
    pub fn new<P: PacketIo>(
        exports: &mut Exports<SoftEndpoint<P>>,
        from: IpAddr,
        session: SessionId,
        qp: u32,
        part: Part,
    ) -> std::result::Result<Self, Refusal> {
        let with = exports.connected(session, qp).ok_or_else(|| failed(VerbsError::NoSuch("queue pair")))?;
        let (memory, receives) = match part {
            Part::Messages => Memory::exported(exports, session)?,
            _ => (Memory::room(exports, session, with)?, 1),
        };
        let heard = (0, Instant::now());
        let guest = Self { from, session, with, part, established: false, memory, heard, asked: false };
        match (0..receives).try_for_each(|_| guest.post_receive(exports.provider_mut())) {
            Ok(()) => Ok(guest),
            Err(error) => {
                guest.end(exports.provider_mut());
                Err(failed(error))
            }
        }
    }

    /// Gives its memory back; its queue pair is destroyed by its owner.
    pub fn end<P: PacketIo>(&self, provider: &mut SoftEndpoint<P>) {
        if self.memory.own.is_some() {
            let _ = provider.dereg_mr(&self.memory.mr);
        }
    }

    /// Asks whether the other side is there, if nothing has come of it for so long: by a WRITE without bytes, which needs
    /// no key and which every reliable connection acknowledges. The connection manager itself has no such message.
    pub fn look<P: PacketIo>(
        &mut self,
        exports: &mut Exports<SoftEndpoint<P>>,
        now: Instant,
        patience: Duration,
    ) -> std::result::Result<(), VerbsError> {
        let packets = exports.provider().qp_counters(self.with.qp).packets_in;
        if packets != self.heard.0 {
            (self.heard, self.asked) = ((packets, now), false);
        }
        if self.asked || now - self.heard.1 < patience {
            return Ok(());
        }
        self.asked = true;
        let nowhere = Operation::Write(Remote { address: 0, rkey: 0 });
        let probe = SendWr::new(PROBE, nowhere, Data::Elements(&[]));
        exports
            .provider_mut()
            .post_send(self.with.qp, &[probe])
            .map_err(|(_, error)| VerbsError::Invalid(error.to_string()))
    }

    /// Does what follows from a completion. An error is of the guest: it does not speak as its program does.
    pub fn completed<P: PacketIo>(
        &mut self,
        exports: &mut Exports<SoftEndpoint<P>>,
        completion: &Completion,
    ) -> Result {
        if completion.id == PROBE {
            return Ok(());
        }
        let came = completion.kind == CompletionKind::Recv;
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
            Part::Rping { .. } if matches!(completion.kind, CompletionKind::Read | CompletionKind::Write) => {
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
    fn room<P: PacketIo>(
        exports: &mut Exports<SoftEndpoint<P>>,
        session: SessionId,
        with: Connected,
    ) -> std::result::Result<Self, Refusal> {
        let loan = exports.account.reserve(session, ROOM as u64, "a program's messages")?;
        let region = Region::heap(ROOM).map_err(|error| failed(error.into()))?;
        let mr =
            exports.provider_mut().reg_mr(with.pd, &region, 0, ROOM as u64, Access::LOCAL_WRITE, Addressing::ZeroBased);
        Ok(Self { mr: mr.map_err(failed)?, region, len: TOLD as u32, own: Some(loan) })
    }

    /// The exported region, and how many messages it can take: none if nothing may be written there.
    fn exported<P: PacketIo>(
        exports: &Exports<SoftEndpoint<P>>,
        session: SessionId,
    ) -> std::result::Result<(Self, u16), Refusal> {
        let (export, mr) = open_one(exports, session).ok_or_else(|| failed(VerbsError::NoSuch("region")))?;
        let len = export.bytes.min(LONGEST) as u32;
        let receives = if export.rights.allows(Access::LOCAL_WRITE) { RECEIVES } else { 0 };
        Ok((Self { mr, region: Arc::clone(&export.region), len, own: None }, receives))
    }

    fn element(&self, at: u64, len: u32) -> Element {
        Element { address: self.mr.address + at, len, lkey: self.mr.lkey }
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

fn failed(error: VerbsError) -> Refusal {
    Refusal::new(Cause::Failed, error.to_string())
}
