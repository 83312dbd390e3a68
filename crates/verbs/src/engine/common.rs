//! State common to all kinds of queue pairs (number, state, peer), and the checks that come before all others.

use super::refusal::Refusal;
use super::sends::SendQueue;
use super::{Context, IncomingPacket, QpCounters, Slot};
use crate::api::{
    Completion, CompletionKind, Modify, PostError, QpConfig, QpState, QpType, RemoteAccess, Status, VerbsError,
};
use shotline_memory::{Access, Grant};
use shotline_wire::bth::{DEFAULT_P_KEY, Service};
use std::net::SocketAddr;

/// Maximum payload bytes of an operation (IBTA volume 1, clause 9.7.6).
pub(super) const MAX_MESSAGE: u64 = 1 << 31;

#[derive(Debug)]
pub(super) struct Common {
    pub number: u32,
    pub config: QpConfig,
    pub state: QpState,
    /// Access rights of peers through this queue pair.
    pub access: Access,
    pub peer: Option<(SocketAddr, u32)>,
    /// UDP source port of the peer, once it is known.
    port: Option<u16>,
    /// Path MTU, in payload bytes.
    pub mtu: u32,
}

impl Common {
    pub fn new(number: u32, config: &QpConfig) -> Self {
        Self { number, config: *config, state: QpState::Reset, access: Access::NONE, peer: None, port: None, mtu: 256 }
    }

    /// Applies a state transition that the rules allow (IBTA volume 1, clause 10.3.1); the caller carries out its
    /// consequences.
    pub fn change(&mut self, change: &Modify) -> Result<(), VerbsError> {
        use QpState::{Error, Init, ReadyToReceive, ReadyToSend, Reset, SendError};
        self.state = match (self.state, change) {
            (_, Modify::Error) => Error,
            (_, Modify::Reset) => {
                (self.access, self.peer, self.port) = (Access::NONE, None, None);
                Reset
            }
            (Reset | Init, Modify::Init { access, .. }) => {
                self.access = *access;
                Init
            }
            (Init, Modify::ReadyToReceive(attributes)) => {
                let connected = self.config.kind != QpType::Ud;
                if connected && attributes.peer.is_none() {
                    return Err(VerbsError::Invalid("a connection needs the address of its peer".into()));
                }
                (self.peer, self.port) = (attributes.peer.filter(|_| connected), None);
                self.mtu = attributes.mtu.bytes();
                ReadyToReceive
            }
            (ReadyToReceive | SendError, Modify::ReadyToSend(_)) => ReadyToSend,
            (from, Modify::Init { .. } | Modify::ReadyToReceive(_) | Modify::ReadyToSend(_)) => {
                let to = change.state();
                return Err(VerbsError::Invalid(format!("a queue pair cannot change from state {from} to {to}")));
            }
        };
        Ok(())
    }

    /// Returns `true` if packets are received in this state.
    pub fn can_receive(&self) -> bool {
        matches!(self.state, QpState::ReadyToReceive | QpState::ReadyToSend | QpState::SendError)
    }

    /// Returns `true` if a packet from this address may come from the peer. The UDP source port only selects a path of
    /// the network (RoCEv2, IBTA annex A17.4.5.1), but one flow keeps one port so that its packets stay in order: Linux
    /// and devices derive it from the queue pairs' numbers. UD has no peer, so any sender is accepted.
    pub fn is_from_peer(&self, source: SocketAddr) -> bool {
        let ip = |address: SocketAddr| address.ip().to_canonical();
        self.peer.is_none_or(|(peer, _)| ip(peer) == ip(source)) && self.port.is_none_or(|port| port == source.port())
    }

    /// Learns the connection's source port from a packet that only the peer can have sent.
    pub fn learn_port(&mut self, source: SocketAddr) {
        if self.port.is_none() && self.peer.is_some() && !self.config.accept_any_source_port {
            self.port = Some(source.port());
        }
    }

    /// Checks state, sender and partition of a packet, before all other checks. A congestion notification is not part
    /// of a flow and may come from another port.
    pub fn admits(&self, packet: &IncomingPacket<'_>, counters: &mut QpCounters) -> bool {
        let source = match (packet.bth.opcode.service(), self.peer) {
            (Service::CongestionNotification, Some((peer, _))) => {
                SocketAddr::new(packet.source.ip(), self.port.unwrap_or(peer.port()))
            }
            _ => packet.source,
        };
        if !self.can_receive() {
            counters.drops.bad_state += 1;
        } else if !self.is_from_peer(source) {
            counters.drops.bad_source += 1;
        } else if (packet.bth.p_key ^ DEFAULT_P_KEY) & 0x7FFF != 0 {
            counters.drops.bad_partition += 1;
        } else {
            return true;
        }
        false
    }

    /// Checks that a send work request may be posted in this state. In an error state it may, and is flushed.
    pub fn check_can_post(&self) -> Result<(), PostError> {
        match self.state {
            QpState::ReadyToSend | QpState::SendError | QpState::Error => Ok(()),
            state => Err(PostError::State(state)),
        }
    }

    /// Checks that the queue pair grants this access to its peer, before any memory registration is checked.
    pub fn allows(&self, needed: Access) -> Result<(), Refusal> {
        if self.access.allows(needed) { Ok(()) } else { Err(Refusal::Access) }
    }

    /// Returns the memory that the peer addresses, if it has the needed access.
    pub fn remote(
        &self,
        ctx: &Context<'_>,
        rkey: u32,
        address: u64,
        len: u32,
        needed: Access,
    ) -> Result<Grant, Refusal> {
        let grant = ctx.protection.remote_for(self.config.pd, self.number, ctx.now, rkey, address, len, needed);
        grant.map_err(Refusal::Memory)
    }

    /// Returns the notice of a completed one-sided operation of the peer.
    pub fn remote_access(&self, grant: &Grant, kind: CompletionKind) -> RemoteAccess {
        RemoteAccess { qp: self.number, rkey: grant.key(), kind, address: grant.address, len: grant.sge.len }
    }

    /// Returns a completion without optional fields.
    pub fn completion(&self, id: u64, status: Status, kind: CompletionKind) -> Completion {
        let solicited = status != Status::Success;
        let (bytes, imm, invalidated, source) = (0, None, None, None);
        Completion { id, status, kind, qp: self.number, bytes, imm, invalidated, source, solicited }
    }

    /// Removes the oldest send request from its queue, and posts a completion if it is signalled or failed.
    pub fn retire(&self, ctx: &mut Context<'_>, sends: &mut SendQueue, status: Status) {
        let Some(request) = sends.retire(ctx.protection) else { return };
        if request.signalled || status != Status::Success {
            let bytes = if request.has_response() { request.len } else { 0 };
            let completion = Completion { bytes, ..self.completion(request.id, status, request.completion_kind()) };
            ctx.completions.push(self.config.send_cq, completion);
        }
    }

    /// Completes all send requests as flushed.
    pub fn flush_sends(&self, ctx: &mut Context<'_>, sends: &mut SendQueue) {
        while sends.first() < sends.end() {
            self.retire(ctx, sends, Status::Flushed);
        }
    }

    /// Releases all requests, and a receive in which a message had begun, without completing them.
    pub fn discard(&self, ctx: &mut Context<'_>, sends: &mut SendQueue, slot: Option<Slot>) {
        while sends.retire(ctx.protection).is_some() {}
        if let Some(slot) = slot {
            ctx.receives.finish(ctx.protection, slot);
        }
        if self.config.srq.is_none() {
            ctx.receives.flush(ctx.protection, |_| ());
        }
    }

    /// Completes a receive in which a message had begun, with a failure.
    pub fn fail_receive(&self, ctx: &mut Context<'_>, slot: Slot, status: Status) {
        let id = ctx.receives.finish(ctx.protection, slot);
        ctx.completions.push(self.config.recv_cq, self.completion(id, status, CompletionKind::Recv));
    }

    /// Completes the posted receives as flushed. Those of a shared queue remain for its other queue pairs.
    pub fn flush_receives(&self, ctx: &mut Context<'_>) {
        if self.config.srq.is_none() {
            let (completions, cq) = (&mut *ctx.completions, self.config.recv_cq);
            let flushed = |id| completions.push(cq, self.completion(id, Status::Flushed, CompletionKind::Recv));
            ctx.receives.flush(ctx.protection, flushed);
        }
    }
}
