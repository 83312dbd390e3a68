//! Queue pairs: states and attributes.

use super::convert::{self, GRH_BYTES};
use super::queues::{ReceiveQueue, SendQueue};
use super::sys::abi::*;
use super::sys::{self, Mr, ah_attr};
use crate::api::{Modify, QpConfig, QpState, QpType, ReadyToReceive, ReadyToSend, VerbsError};
use shotline_memory::{Access, Region};
use shotline_wire::udp::ROCE_PORT;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Distance between the global route headers of two receives, in bytes: a cache line each.
const GRH_STRIDE: u64 = 64;

/// Buffers for the global route headers of datagrams, one for each receive, which contain the sender's address.
pub(super) struct GrhBuffers {
    region: Arc<Region>,
    mr: Mr,
}

impl GrhBuffers {
    pub(super) fn new(pd: &Arc<sys::Pd>, receives: u32) -> Result<Self, VerbsError> {
        let region = Region::heap((u64::from(receives) * GRH_STRIDE) as usize)?;
        let mr = Mr::new(pd, &region, 0, region.len() as u64, Access::LOCAL_WRITE)?;
        Ok(Self { region, mr })
    }
    #[inline]
    pub(super) fn element(&self, slot: u32) -> ibv_sge {
        ibv_sge { addr: self.mr.address() + u64::from(slot) * GRH_STRIDE, length: GRH_BYTES, lkey: self.mr.lkey() }
    }
    /// Returns the sender of the datagram in this receive.
    pub(super) fn sender(&self, slot: u32) -> Option<IpAddr> {
        let mut grh = [0; GRH_BYTES as usize];
        self.region.read((u64::from(slot) * GRH_STRIDE) as usize, &mut grh);
        convert::sender(&grh)
    }
}

/// Port and source address of an endpoint's packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Port {
    pub(super) number: u8,
    pub(super) gid_index: u8,
    /// Maximum number of outstanding READs and atomic operations of a queue pair.
    pub(super) max_rd_atomic: u8,
}

/// A queue pair with its outstanding requests.
pub(super) struct Pair {
    pub(super) qp: sys::Qp,
    pub(super) config: QpConfig,
    /// State as last requested, or as last queried from the device.
    pub(super) state: QpState,
    /// The error state was reported, or requested by the application.
    pub(super) failed: bool,
    pub(super) sends: SendQueue,
    /// Unused if it has a shared receive queue.
    pub(super) receives: ReceiveQueue,
    /// Only for datagrams.
    pub(super) grh: Option<GrhBuffers>,
}

impl Pair {
    /// Changes the state, if the transition is allowed (IBTA volume 1, clause 10.3.1).
    pub(super) fn modify(&mut self, change: &Modify, port: &Port, max_operation: u64) -> Result<(), VerbsError> {
        use QpState::{Error, Init, ReadyToReceive, ReadyToSend, Reset, SendError};
        let kind = self.config.kind;
        let (next, attributes, mask) = match (self.state, change) {
            (from, Modify::Error) => {
                if from == Reset {
                    // Devices have no direct transition.
                    let (attributes, mask) = init_attr(kind, Access::NONE, 0, port);
                    self.qp.modify(&attributes, mask)?;
                }
                (Error, state_attr(IBV_QPS_ERR), IBV_QP_STATE)
            }
            (_, Modify::Reset) => (Reset, state_attr(IBV_QPS_RESET), IBV_QP_STATE),
            (Reset | Init, Modify::Init { access, q_key }) => {
                let (attributes, mask) = init_attr(kind, *access, *q_key, port);
                (Init, attributes, mask)
            }
            (Init, Modify::ReadyToReceive(ready)) => {
                let (attributes, mask) = rtr_attr(&self.config, ready, port)?;
                self.sends.max_operation = if kind == QpType::Ud { ready.mtu.bytes().into() } else { max_operation };
                (ReadyToReceive, attributes, mask)
            }
            (ReadyToReceive | SendError, Modify::ReadyToSend(ready)) => {
                let (attributes, mask) = rts_attr(kind, ready, port, self.state == SendError);
                (ReadyToSend, attributes, mask)
            }
            (from, change) => {
                let to = change.state();
                return Err(VerbsError::Invalid(format!("a queue pair cannot change from state {from} to {to}")));
            }
        };
        self.qp.modify(&attributes, mask)?;
        (self.state, self.failed) = (next, next == Error);
        Ok(())
    }

    /// Returns the current state of the queue pair in the device.
    pub(super) fn query_state(&self) -> Result<QpState, VerbsError> {
        // Only the other states can change without a request.
        if matches!(self.state, QpState::Reset | QpState::Init | QpState::Error) {
            return Ok(self.state);
        }
        Ok(convert::state(self.qp.query(IBV_QP_STATE)?.qp_state))
    }

    /// Makes the device flush requests posted in the error state. Some drivers (rxe) examine receives only when a
    /// packet arrives, or at a transition to the error state.
    pub(super) fn flush(&self) -> Result<(), VerbsError> {
        Ok(self.qp.modify(&state_attr(IBV_QPS_ERR), IBV_QP_STATE)?)
    }
}

fn state_attr(state: u32) -> ibv_qp_attr {
    ibv_qp_attr { qp_state: state, ..ibv_qp_attr::default() }
}

fn init_attr(kind: QpType, access: Access, q_key: u32, port: &Port) -> (ibv_qp_attr, u32) {
    let qp_access_flags = sys::flags(access);
    let attributes = ibv_qp_attr { port_num: port.number, qkey: q_key, qp_access_flags, ..state_attr(IBV_QPS_INIT) };
    let own = if kind == QpType::Ud { IBV_QP_QKEY } else { IBV_QP_ACCESS_FLAGS };
    (attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | own)
}

fn rtr_attr(config: &QpConfig, ready: &ReadyToReceive, port: &Port) -> Result<(ibv_qp_attr, u32), VerbsError> {
    if config.kind == QpType::Ud {
        return Ok((state_attr(IBV_QPS_RTR), IBV_QP_STATE));
    }
    let (address, number) =
        ready.peer.ok_or_else(|| VerbsError::Invalid("a connection needs the address of its peer".into()))?;
    let attributes = ibv_qp_attr {
        path_mtu: convert::mtu(ready.mtu.bytes()),
        rq_psn: ready.psn,
        dest_qp_num: number,
        ah_attr: ah_attr(check_port(address)?, port.number, port.gid_index, config.service_level),
        max_dest_rd_atomic: ready.max_dest_rd_atomic,
        min_rnr_timer: ready.min_rnr_timer.code(),
        ..state_attr(IBV_QPS_RTR)
    };
    let mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    let reliable = if config.kind == QpType::Rc { IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER } else { 0 };
    Ok((attributes, mask | reliable))
}

fn rts_attr(kind: QpType, ready: &ReadyToSend, port: &Port, is_recovery: bool) -> (ibv_qp_attr, u32) {
    let attributes = ibv_qp_attr {
        sq_psn: ready.psn,
        timeout: convert::timeout(ready.timeout),
        // Three bits each; 7 RNR retries mean unlimited.
        retry_cnt: ready.retry_cnt.min(7),
        rnr_retry: ready.rnr_retry.min(7),
        max_rd_atomic: ready.max_rd_atomic.min(port.max_rd_atomic),
        ..state_attr(IBV_QPS_RTS)
    };
    let reliable = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    let mask = match kind {
        // When recovering from a send error, the sequence continues.
        _ if is_recovery => 0,
        QpType::Rc => IBV_QP_SQ_PSN | reliable,
        QpType::Uc | QpType::Ud => IBV_QP_SQ_PSN,
    };
    (attributes, IBV_QP_STATE | mask)
}

/// Returns the IP address of a peer, if a device can send to its port.
pub(super) fn check_port(peer: SocketAddr) -> Result<IpAddr, VerbsError> {
    if peer.port() != ROCE_PORT {
        let message =
            format!("a device sends to UDP port {ROCE_PORT} only, and the peer is at {peer}: bind it there (--bind)");
        return Err(VerbsError::Invalid(message));
    }
    Ok(peer.ip())
}
