//! Queue pairs: their states and attributes.

use super::queues::{Receives, Sends};
use super::sys::abi::*;
use super::sys::{self, Mr, way_to};
use super::words::{self, GRH};
use crate::api::{Modify, QpConfig, QpState, QpType, ReadyToReceive, ReadyToSend, VerbsError};
use shotline_memory::{Access, Region};
use shotline_wire::udp::ROCE_PORT;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Bytes from one receive's routing header to the next one's: a cache line each.
const STRIDE: u64 = 64;

/// Where the routing headers of datagrams land, one place for each receive, so that each says who sent it.
pub(super) struct Headers {
    region: Arc<Region>,
    mr: Mr,
}

impl Headers {
    pub(super) fn new(pd: &Arc<sys::Pd>, receives: u32) -> Result<Self, VerbsError> {
        let region = Region::heap((u64::from(receives) * STRIDE) as usize)?;
        let mr = Mr::new(pd, &region, 0, region.len() as u64, Access::LOCAL_WRITE)?;
        Ok(Self { region, mr })
    }
    #[inline]
    pub(super) fn element(&self, slot: u32) -> ibv_sge {
        ibv_sge { addr: self.mr.address() + u64::from(slot) * STRIDE, length: GRH, lkey: self.mr.lkey() }
    }
    /// Who sent the datagram of this receive.
    pub(super) fn sender(&self, slot: u32) -> Option<IpAddr> {
        let mut grh = [0; GRH as usize];
        self.region.read((u64::from(slot) * STRIDE) as usize, &mut grh);
        words::sender(&grh)
    }
}

/// Where an endpoint's packets leave the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Port {
    pub(super) number: u8,
    pub(super) gid_index: u8,
    /// The most that a queue pair may have unanswered.
    pub(super) max_rd_atomic: u8,
}

/// A queue pair.
pub(super) struct Pair {
    pub(super) qp: sys::Qp,
    pub(super) config: QpConfig,
    /// As it was asked for, or as the device was found last.
    pub(super) state: QpState,
    /// That it is in its error state was told, or asked for.
    pub(super) failed: bool,
    pub(super) sends: Sends,
    /// Unused where they come from a shared queue.
    pub(super) receives: Receives,
    /// Of datagrams.
    pub(super) headers: Option<Headers>,
}

impl Pair {
    /// Makes a change of state that the rules have (IBTA volume 1, clause 10.3.1).
    pub(super) fn modify(&mut self, change: &Modify, port: &Port, most: u64) -> Result<(), VerbsError> {
        use QpState::{Error, Init, ReadyToReceive, ReadyToSend, Reset, SendError};
        let kind = self.config.kind;
        let (next, attributes, mask) = match (self.state, change) {
            (from, Modify::Error) => {
                if from == Reset {
                    // Devices know no direct way.
                    let (attributes, mask) = init(kind, Access::NONE, 0, port);
                    self.qp.modify(&attributes, mask)?;
                }
                (Error, of(IBV_QPS_ERR), IBV_QP_STATE)
            }
            (_, Modify::Reset) => (Reset, of(IBV_QPS_RESET), IBV_QP_STATE),
            (Reset | Init, Modify::Init { access, q_key }) => {
                let (attributes, mask) = init(kind, *access, *q_key, port);
                (Init, attributes, mask)
            }
            (Init, Modify::ReadyToReceive(ready)) => {
                let (attributes, mask) = receive(kind, ready, port)?;
                self.sends.most = if kind == QpType::Ud { ready.mtu.bytes().into() } else { most };
                (ReadyToReceive, attributes, mask)
            }
            (ReadyToReceive | SendError, Modify::ReadyToSend(ready)) => {
                let (attributes, mask) = send(kind, ready, port, self.state == SendError);
                (ReadyToSend, attributes, mask)
            }
            (from, change) => {
                return Err(VerbsError::Invalid(format!("a queue pair in state {from:?} cannot do {change:?}")));
            }
        };
        self.qp.modify(&attributes, mask)?;
        (self.state, self.failed) = (next, next == Error);
        Ok(())
    }

    /// Its state as the device has it.
    pub(super) fn found(&self) -> Result<QpState, VerbsError> {
        // The device leaves only these by itself.
        if matches!(self.state, QpState::Reset | QpState::Init | QpState::Error) {
            return Ok(self.state);
        }
        Ok(words::state(self.qp.query(IBV_QP_STATE)?.qp_state))
    }

    /// What is posted in the error state is to be flushed. Some drivers (rxe) look at receives only when a packet comes,
    /// or when they are told of the error.
    pub(super) fn flush(&self) -> Result<(), VerbsError> {
        Ok(self.qp.modify(&of(IBV_QPS_ERR), IBV_QP_STATE)?)
    }
}

fn of(state: u32) -> ibv_qp_attr {
    ibv_qp_attr { qp_state: state, ..ibv_qp_attr::default() }
}

fn init(kind: QpType, access: Access, q_key: u32, port: &Port) -> (ibv_qp_attr, u32) {
    let qp_access_flags = sys::flags(access);
    let attributes = ibv_qp_attr { port_num: port.number, qkey: q_key, qp_access_flags, ..of(IBV_QPS_INIT) };
    let own = if kind == QpType::Ud { IBV_QP_QKEY } else { IBV_QP_ACCESS_FLAGS };
    (attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | own)
}

fn receive(kind: QpType, ready: &ReadyToReceive, port: &Port) -> Result<(ibv_qp_attr, u32), VerbsError> {
    if kind == QpType::Ud {
        return Ok((of(IBV_QPS_RTR), IBV_QP_STATE));
    }
    let (address, number) =
        ready.peer.ok_or_else(|| VerbsError::Invalid("a connection needs the address of its peer".into()))?;
    let attributes = ibv_qp_attr {
        path_mtu: words::mtu(ready.mtu.bytes()),
        rq_psn: ready.psn,
        dest_qp_num: number,
        ah_attr: way_to(reachable(address)?, port.number, port.gid_index),
        max_dest_rd_atomic: ready.max_dest_rd_atomic,
        min_rnr_timer: ready.min_rnr_timer.code(),
        ..of(IBV_QPS_RTR)
    };
    let mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    let reliable = if kind == QpType::Rc { IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER } else { 0 };
    Ok((attributes, mask | reliable))
}

fn send(kind: QpType, ready: &ReadyToSend, port: &Port, again: bool) -> (ibv_qp_attr, u32) {
    let attributes = ibv_qp_attr {
        sq_psn: ready.psn,
        timeout: words::timeout(ready.timeout),
        // Three bits each; 7 RNR retries are without end.
        retry_cnt: ready.retries.min(7),
        rnr_retry: ready.rnr_retries.min(7),
        max_rd_atomic: ready.max_rd_atomic.min(port.max_rd_atomic),
        ..of(IBV_QPS_RTS)
    };
    let reliable = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    let mask = match kind {
        // Back from a failed send, the sequence goes on.
        _ if again => 0,
        QpType::Rc => IBV_QP_SQ_PSN | reliable,
        QpType::Uc | QpType::Ud => IBV_QP_SQ_PSN,
    };
    (attributes, IBV_QP_STATE | mask)
}

/// The IP address of a peer, if a device can send there.
pub(super) fn reachable(peer: SocketAddr) -> Result<IpAddr, VerbsError> {
    if peer.port() != ROCE_PORT {
        let words =
            format!("a device sends to UDP port {ROCE_PORT} only, and the peer is at {peer}: bind it there (--bind)");
        return Err(VerbsError::Invalid(words));
    }
    Ok(peer.ip())
}
