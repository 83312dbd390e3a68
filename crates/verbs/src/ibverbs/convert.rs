//! Conversion between the verbs' types and the library's constants.

use super::sys::abi::*;
use crate::api::{CompletionKind, Operation, QpState, QpType, Status};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Returns `IBV_QPT_*` of a queue pair type.
pub(super) fn kind(kind: QpType) -> u32 {
    match kind {
        QpType::Rc => IBV_QPT_RC,
        QpType::Uc => IBV_QPT_UC,
        QpType::Ud => IBV_QPT_UD,
    }
}

/// Converts a queue pair state, `IBV_QPS_*`. The draining state, which is never requested here, counts as ready to
/// send.
pub(super) fn state(state: u32) -> QpState {
    match state {
        IBV_QPS_RESET => QpState::Reset,
        IBV_QPS_INIT => QpState::Init,
        IBV_QPS_RTR => QpState::ReadyToReceive,
        IBV_QPS_RTS | IBV_QPS_SQD => QpState::ReadyToSend,
        IBV_QPS_SQE => QpState::SendError,
        _ => QpState::Error,
    }
}

/// Converts a completion status, `IBV_WC_*`.
pub(super) fn status(status: u32, is_receive: bool) -> Status {
    match status {
        IBV_WC_SUCCESS => Status::Success,
        IBV_WC_LOC_LEN_ERR => Status::LocalLength,
        // A receive has no remote status, but Soft-RoCE reports a receive that was too short this way (rxe_resp.c).
        IBV_WC_REM_INV_REQ_ERR if is_receive => Status::LocalLength,
        IBV_WC_LOC_PROT_ERR | IBV_WC_LOC_ACCESS_ERR | IBV_WC_MW_BIND_ERR => Status::LocalProtection,
        IBV_WC_WR_FLUSH_ERR => Status::Flushed,
        IBV_WC_BAD_RESP_ERR => Status::BadResponse,
        IBV_WC_REM_INV_REQ_ERR => Status::RemoteInvalid,
        IBV_WC_REM_ACCESS_ERR => Status::RemoteAccess,
        IBV_WC_REM_OP_ERR | IBV_WC_REM_ABORT_ERR => Status::RemoteOperation,
        IBV_WC_RETRY_EXC_ERR | IBV_WC_RESP_TIMEOUT_ERR => Status::RetryExceeded,
        IBV_WC_RNR_RETRY_EXC_ERR => Status::RnrRetryExceeded,
        _ => Status::LocalOperation,
    }
}

/// Returns `true` if a queue pair type supports an operation.
pub(super) fn supports(kind: QpType, operation: &Operation) -> bool {
    match operation {
        Operation::Send | Operation::SendImm(_) => true,
        Operation::Write(_) | Operation::WriteImm(..) => kind != QpType::Ud,
        _ => kind == QpType::Rc,
    }
}

/// Returns the completion type of an operation.
pub(super) fn completion_kind(operation: &Operation) -> CompletionKind {
    match operation {
        Operation::Send | Operation::SendImm(_) | Operation::SendInvalidate(_) => CompletionKind::Send,
        Operation::Write(_) | Operation::WriteImm(..) => CompletionKind::Write,
        Operation::Read(_) => CompletionKind::Read,
        Operation::CompareSwap { .. } => CompletionKind::CompareSwap,
        Operation::FetchAdd { .. } => CompletionKind::FetchAdd,
    }
}

/// Returns the remote address of an operation; 0 for messages.
pub(super) fn remote(operation: &Operation) -> u64 {
    match operation {
        Operation::Send | Operation::SendImm(_) | Operation::SendInvalidate(_) => 0,
        Operation::Write(remote) | Operation::WriteImm(remote, _) | Operation::Read(remote) => remote.address,
        Operation::CompareSwap { remote, .. } | Operation::FetchAdd { remote, .. } => remote.address,
    }
}

/// Builds a work request with the fields of its operation. `datagram` is the destination's queue pair number and Q_Key;
/// the caller sets the address handle.
pub(super) fn request(operation: &Operation, datagram: Option<(u32, u32)>) -> ibv_send_wr {
    let mut request = ibv_send_wr::default();
    let rdma =
        |remote: &crate::api::Remote| Remote { rdma: RemoteMemory { remote_addr: remote.address, rkey: remote.rkey } };
    let atomic = |remote: &crate::api::Remote, compare_add, swap| Remote {
        atomic: RemoteAtomic { remote_addr: remote.address, compare_add, swap, rkey: remote.rkey },
    };
    match operation {
        Operation::Send => request.opcode = IBV_WR_SEND,
        Operation::SendImm(imm) => (request.opcode, request.imm_data) = (IBV_WR_SEND_WITH_IMM, imm.to_be()),
        Operation::SendInvalidate(rkey) => (request.opcode, request.imm_data) = (IBV_WR_SEND_WITH_INV, *rkey),
        Operation::Write(remote) => (request.opcode, request.wr) = (IBV_WR_RDMA_WRITE, rdma(remote)),
        Operation::WriteImm(remote, imm) => {
            (request.opcode, request.imm_data) = (IBV_WR_RDMA_WRITE_WITH_IMM, imm.to_be());
            request.wr = rdma(remote);
        }
        Operation::Read(remote) => (request.opcode, request.wr) = (IBV_WR_RDMA_READ, rdma(remote)),
        Operation::CompareSwap { remote, compare, swap } => {
            (request.opcode, request.wr) = (IBV_WR_ATOMIC_CMP_AND_SWP, atomic(remote, *compare, *swap));
        }
        Operation::FetchAdd { remote, add } => {
            (request.opcode, request.wr) = (IBV_WR_ATOMIC_FETCH_AND_ADD, atomic(remote, *add, 0));
        }
    }
    if let Some((remote_qpn, remote_qkey)) = datagram {
        request.wr = Remote { ud: RemotePair { ah: std::ptr::null_mut(), remote_qpn, remote_qkey } };
    }
    request
}

/// Returns the code of an acknowledgement timeout, 4.096 us x 2^code, rounded up; 0 disables it.
pub(super) fn timeout(time: Duration) -> u8 {
    let fits = |code: &u8| Duration::from_nanos(4096 << code) >= time;
    if time.is_zero() { 0 } else { (1..31).find(fits).unwrap_or(31) }
}

/// Returns `IBV_MTU_*` of an MTU in bytes.
pub(super) fn mtu(bytes: u32) -> u32 {
    bytes.ilog2() - 7
}

/// Bytes before a datagram's payload: a global route header, or 20 unused bytes and an IPv4 header (RoCEv2, IBTA
/// annex A17.4.5.1).
pub(super) const GRH_BYTES: u32 = 40;

/// Returns the sender of a datagram. The first 20 bytes before an IPv4 header are undefined; if they look like IPv6,
/// the IPv4 header's checksum decides (as in rdma-core's `ibv_init_ah_from_wc`).
pub(super) fn sender(grh: &[u8; GRH_BYTES as usize]) -> Option<IpAddr> {
    let ipv4 = &grh[20..];
    let looks_like_ipv6 = grh[0] >> 4 == 6;
    let checksum_is_valid = || {
        let sum: u32 = ipv4.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        let folded = (sum & 0xFFFF) + (sum >> 16);
        (folded & 0xFFFF) + (folded >> 16) == 0xFFFF
    };
    if ipv4[0] == 0x45 && (!looks_like_ipv6 || checksum_is_valid()) {
        return ipv4[12..].first_chunk::<4>().map(|ip| Ipv4Addr::from(*ip).into());
    }
    let ipv6 = grh[8..].first_chunk::<16>().map(|ip| Ipv6Addr::from(*ip).to_canonical());
    ipv6.filter(|_| looks_like_ipv6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_rounded_up_to_a_power_of_two() {
        let codes = [0, 1, 4096 * 2, 4096 * 2 + 1, 67_108_864, u64::MAX].map(|ns| timeout(Duration::from_nanos(ns)));
        assert_eq!(codes, [0, 1, 1, 2, 14, 31]);
    }

    #[test]
    fn mtu_codes_match_the_c_header() {
        assert_eq!([256, 4096].map(mtu), [IBV_MTU_256, IBV_MTU_4096]);
    }

    #[test]
    fn sender_is_read_from_the_ip_header_with_a_valid_checksum() {
        let mut grh = [0xEE; GRH_BYTES as usize];
        grh[0] = 0x60; // undefined bytes that look like IPv6
        let header = [0x45, 0, 0, 84, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 77, 0, 2, 10, 77, 0, 1];
        grh[20..].copy_from_slice(&header);
        let sum = !header.chunks(2).fold(0_u32, |sum, two| sum + u32::from(two[0]) * 256 + u32::from(two[1]));
        grh[30..32].copy_from_slice(&(sum as u16).to_be_bytes());
        assert_eq!(sender(&grh), Some(Ipv4Addr::new(10, 77, 0, 2).into()));
        grh[30] ^= 1;
        grh[8..20].fill(0);
        let ipv6 = Ipv6Addr::from([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x45, 0, 0, 84]);
        assert_eq!(sender(&grh), Some(ipv6.into()), "the checksum is wrong");
        grh[0] = 0;
        assert_eq!(sender(&grh), Some(Ipv4Addr::new(10, 77, 0, 2).into()), "not IPv6, so the checksum is ignored");
        grh[20] = 0;
        assert_eq!(sender(&grh), None);
    }
}
