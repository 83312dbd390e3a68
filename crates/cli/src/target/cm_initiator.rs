//! One connection made by the connection manager, and the other side of its program.

use crate::Result;
use crate::interop::local_endpoint::{MAX_RD_ATOMIC, PeerQp};
use crate::interop::perftest::{CM_PEER_INFO_BYTES, PeerInfo, VERSION, mtu_code, mtu_from_code};
use crate::interop::rping;
use shotline_memory::{Access, Addressing, Mr, Region};
use shotline_transport::PacketIo;
use shotline_verbs::api::{
    Completion, CompletionKind, Data, Element, Operation, Provider as _, RecvWr, Remote, SendWr, VerbsError,
};
use shotline_verbs::cm::message::{Cause, Refusal};
use shotline_verbs::cm::{ConnectedQp, Endpoint as _, Export, Exports, Reservation, SessionId};
use shotline_verbs::soft::SoftEndpoint;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of posted receives of a queue pair for messages.
pub(super) const RECEIVES: u16 = 64;
/// Maximum length of a message, in bytes.
const MAX_MESSAGE_BYTES: u64 = 64 << 20;
/// Length of the memory of a connection, and offsets in it: the received message is at 0, then the message to send,
/// then the text of `rping`.
const MEMORY_BYTES: usize = 8192;
const SEND_OFFSET: u64 = 256;
const TEXT_OFFSET: u64 = 4096;

/// Work request identifier of a liveness probe.
const PROBE_ID: u64 = u64::MAX;

/// One connection of an initiator that uses the connection manager.
pub struct CmInitiator {
    pub from: IpAddr,
    pub session: SessionId,
    pub connected: ConnectedQp,
    pub role: Role,
    /// The RTU has arrived. Until then the address may be forged.
    pub established: bool,
    memory: Memory,
    /// Number of packets of the connection at the last change, and the time of that change.
    last_packets: (u64, Instant),
    /// A liveness probe was sent and has not been answered.
    is_probed: bool,
}

/// Memory that messages are written to and read from.
struct Memory {
    mr: Mr,
    region: Arc<Region>,
    /// Maximum length of a message, in bytes.
    len: u32,
    /// Memory charged to the initiator if it was registered here, or `None` for an exported region.
    reservation: Option<Reservation>,
}

/// What this side of a program does.
pub enum Role {
    /// Serves `rping`. The next message is the location of its text or, if the text's size is known, of the buffer for
    /// it.
    Rping { text: Option<u32> },
    /// Serves perftest's control connection, which needs the number of the queue pair that is measured, once there is
    /// one.
    PerftestControl { is_ready: bool, measured_qp: Option<u32> },
    /// Receives messages into an exported region and discards them.
    Sink,
}

impl CmInitiator {
    /// Serves the program on this queue pair, and posts its first receives.
    pub fn new<P: PacketIo>(
        exports: &mut Exports<SoftEndpoint<P>>,
        from: IpAddr,
        session: SessionId,
        qp: u32,
        role: Role,
    ) -> std::result::Result<Self, Refusal> {
        let connected = exports.connected(session, qp).ok_or_else(|| failed(VerbsError::NoSuch("queue pair")))?;
        let (memory, receives) = match role {
            Role::Sink => Memory::exported(exports, session)?,
            _ => (Memory::private(exports, session, connected)?, 1),
        };
        let last_packets = (0, Instant::now());
        let initiator =
            Self { from, session, connected, role, established: false, memory, last_packets, is_probed: false };
        match (0..receives).try_for_each(|_| initiator.post_receive(exports.provider_mut())) {
            Ok(()) => Ok(initiator),
            Err(error) => {
                initiator.deregister(exports.provider_mut());
                Err(failed(error))
            }
        }
    }

    /// Deregisters its memory. The queue pair is destroyed by its owner.
    pub fn deregister<P: PacketIo>(&self, provider: &mut SoftEndpoint<P>) {
        if self.memory.reservation.is_some() {
            let _ = provider.dereg_mr(&self.memory.mr);
        }
    }

    /// Sends a liveness probe if no packet has arrived for `max_silence`: a WRITE without bytes, which needs no key and
    /// which every reliable connection acknowledges. The connection manager has no such message.
    pub fn probe_if_silent<P: PacketIo>(
        &mut self,
        exports: &mut Exports<SoftEndpoint<P>>,
        now: Instant,
        max_silence: Duration,
    ) -> std::result::Result<(), VerbsError> {
        let packets = exports.provider().counters_of(self.connected.qp).packets_in;
        if packets != self.last_packets.0 {
            (self.last_packets, self.is_probed) = ((packets, now), false);
        }
        if self.is_probed || now - self.last_packets.1 < max_silence {
            return Ok(());
        }
        self.is_probed = true;
        let nowhere = Operation::Write(Remote { address: 0, rkey: 0 });
        let probe = SendWr::new(PROBE_ID, nowhere, Data::Elements(&[]));
        exports
            .provider_mut()
            .post_send(self.connected.qp, &[probe])
            .map_err(|(_, error)| VerbsError::Invalid(error.to_string()))
    }

    /// Handles a completion. An error means that the initiator does not follow its program's protocol.
    pub fn completed<P: PacketIo>(
        &mut self,
        exports: &mut Exports<SoftEndpoint<P>>,
        completion: &Completion,
    ) -> Result {
        if completion.id == PROBE_ID {
            return Ok(());
        }
        let is_message = completion.kind == CompletionKind::Recv;
        if is_message {
            self.post_receive(exports.provider_mut())?;
        }
        match &mut self.role {
            Role::Rping { text } if is_message => {
                let mut info = [0; rping::LOCATION_BYTES as usize];
                if completion.bytes != rping::LOCATION_BYTES {
                    return Err("expected messages of 16 bytes from rping".into());
                }
                self.memory.region.read(0, &mut info);
                let (at, size) = rping::parse(&info)?;
                match text.take() {
                    None => {
                        *text = Some(size);
                        self.post(exports.provider_mut(), Operation::Read(at), TEXT_OFFSET, size)?;
                    }
                    Some(size) => {
                        let len = rping::text_length(&self.memory.region, TEXT_OFFSET, size);
                        self.post(exports.provider_mut(), Operation::Write(at), TEXT_OFFSET, len)?;
                    }
                }
            }
            // Only the arrival of these messages matters, not their content.
            Role::Rping { .. } if matches!(completion.kind, CompletionKind::Read | CompletionKind::Write) => {
                self.post(exports.provider_mut(), Operation::Send, SEND_OFFSET, rping::LOCATION_BYTES)?;
            }
            Role::PerftestControl { is_ready, measured_qp } if is_message => {
                let len = completion.bytes as usize;
                let mut bytes = [0; SEND_OFFSET as usize];
                self.memory.region.read(0, &mut bytes[..len.min(SEND_OFFSET as usize)]);
                match len {
                    2 => {
                        let theirs = mtu_from_code([bytes[0], 0]).ok_or("perftest sent an unknown MTU")?;
                        bytes[..2].copy_from_slice(&mtu_code(theirs.min(exports.mtu)));
                    }
                    4 | 8 => {} // buffer sizes, and measurements: they are returned unchanged
                    16 => bytes[..16].copy_from_slice(VERSION),
                    CM_PEER_INFO_BYTES => {
                        *is_ready = true;
                        let own = peer_info(exports, self.session, measured_qp.unwrap_or(0));
                        bytes[..CM_PEER_INFO_BYTES].copy_from_slice(&own.encode_binary());
                    }
                    _ => return Err(format!("perftest has no message of {len} bytes").into()),
                }
                self.memory.region.write(SEND_OFFSET as usize, &bytes[..len]);
                self.post(exports.provider_mut(), Operation::Send, SEND_OFFSET, len as u32)?;
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
        let posted = provider.post_send(self.connected.qp, &[SendWr::new(0, operation, Data::Elements(&element))]);
        posted.map_err(|(_, error)| VerbsError::Invalid(error.to_string()))
    }

    /// All receives share one buffer: either there is only one message at a time, or the messages are discarded.
    fn post_receive<P: PacketIo>(&self, provider: &mut SoftEndpoint<P>) -> std::result::Result<(), VerbsError> {
        let element = [self.memory.element(0, self.memory.len)];
        let posted = provider.post_recv(self.connected.qp, &[RecvWr { id: 0, elements: &element }]);
        posted.map_err(|(_, error)| VerbsError::Invalid(error.to_string()))
    }
}

impl Memory {
    /// Registers private memory.
    fn private<P: PacketIo>(
        exports: &mut Exports<SoftEndpoint<P>>,
        session: SessionId,
        connected: ConnectedQp,
    ) -> std::result::Result<Self, Refusal> {
        let reservation = exports.budget.reserve(session, MEMORY_BYTES as u64, "a program's messages")?;
        let region = Region::heap(MEMORY_BYTES).map_err(|error| failed(error.into()))?;
        let mr = exports.provider_mut().reg_mr(
            connected.pd,
            &region,
            0,
            MEMORY_BYTES as u64,
            Access::LOCAL_WRITE,
            Addressing::ZeroBased,
        );
        Ok(Self { mr: mr.map_err(failed)?, region, len: SEND_OFFSET as u32, reservation: Some(reservation) })
    }

    /// Returns the exported region and the number of receives for it, 0 if it cannot be written.
    fn exported<P: PacketIo>(
        exports: &Exports<SoftEndpoint<P>>,
        session: SessionId,
    ) -> std::result::Result<(Self, u16), Refusal> {
        let (export, mr) = measured_region(exports, session).ok_or_else(|| failed(VerbsError::NoSuch("region")))?;
        let len = export.bytes.min(MAX_MESSAGE_BYTES) as u32;
        let receives = if export.rights.allows(Access::LOCAL_WRITE) { RECEIVES } else { 0 };
        Ok((Self { mr, region: Arc::clone(&export.region), len, reservation: None }, receives))
    }

    fn element(&self, at: u64, len: u32) -> Element {
        Element { address: self.mr.address + at, len, lkey: self.mr.lkey }
    }
}

/// Returns the region that perftest uses, with the key of this session: the first that can be written, or else the
/// first.
fn measured_region<P: PacketIo>(exports: &Exports<SoftEndpoint<P>>, session: SessionId) -> Option<(&Export, Mr)> {
    let all = exports.exports();
    let index = all.iter().position(|export| export.rights.allows(Access::REMOTE_WRITE)).unwrap_or(0);
    Some((all.get(index)?, *exports.registrations(session).get(index)?))
}

fn peer_info<P: PacketIo>(exports: &Exports<SoftEndpoint<P>>, session: SessionId, qp: u32) -> PeerInfo {
    let memory = measured_region(exports, session).map(|(_, mr)| Remote { address: mr.address, rkey: mr.rkey });
    let ip = exports.provider().address().ip();
    let memory = memory.unwrap_or(Remote { address: 0, rkey: 0 });
    PeerInfo { peer: PeerQp { ip, qp, psn: 0, rd_atomic: MAX_RD_ATOMIC }, memory }
}

fn failed(error: VerbsError) -> Refusal {
    Refusal::new(Cause::Failed, error.to_string())
}
