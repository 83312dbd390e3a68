//! `ibv_rc_pingpong`, `ibv_uc_pingpong` and `ibv_ud_pingpong` (rdma-core, libibverbs/examples).
//!
//! Over TCP each side sends `LID:QPN:PSN:GID` in hexadecimal digits, 52 bytes including a NUL, the client first. The
//! client ends with `done`. Then one message goes back and forth.

use super::common::{Common, Plan, RunSummary, Service};
use super::local_endpoint::{LocalEndpoint, PeerQp};
use super::oob::{OobChannel, gid, ip};
use crate::Result;
use shotline_verbs::api::{CompletionKind, Operation};
use std::time::Instant;

/// Length of the peer information, in bytes.
const PEER_INFO_BYTES: usize = 52;
/// Maximum number of posted receives.
const MAX_RECEIVES: u64 = 64;

/// Runs a ping-pong. Operations are messages received.
pub fn run(plan: &Plan, local: &mut LocalEndpoint, common: &Common) -> Result<RunSummary> {
    let mut oob = OobChannel::open(common, local)?;
    let client = oob.is_client();
    let own = peer_info(&local.own_qp());
    if client {
        oob.send(local, &own)?;
    }
    let peer = parse(&oob.receive::<PEER_INFO_BYTES>(local)?)
        .ok_or("the other side does not use the protocol of rdma-core's programs")?;
    local.connect(&peer, plan.mtu)?;
    for _ in 0..MAX_RECEIVES.min(plan.count) {
        local.post_receive()?;
    }
    if client {
        oob.send(local, b"done\0")?;
    } else {
        oob.send(local, &own)?;
        oob.receive::<1>(local)?;
    }
    let start = Instant::now();
    ping_pong(plan, local, client)?;
    let elapsed = start.elapsed();
    if common.qp != Service::Ud {
        local.linger()?;
    }
    Ok(RunSummary { operations: plan.count, mtu: plan.mtu, elapsed })
}

/// Sends one message back and forth `count` times.
fn ping_pong(plan: &Plan, local: &mut LocalEndpoint, client: bool) -> Result {
    let (mut posted, mut sent, mut received) = (0, 0, 0);
    while sent < plan.count || received < plan.count {
        // The client's first message does not answer another one.
        let may_send = received + u64::from(client) > posted;
        if may_send && sent == posted && posted < plan.count {
            local.post(Operation::Send, plan.size)?;
            posted += 1;
        }
        let completion = local.next().map_err(|error| format!("{error} ({sent} sent, {received} received)"))?;
        match completion.kind {
            CompletionKind::Recv => {
                received += 1;
                local.post_receive()?;
            }
            _ => sent += 1,
        }
    }
    Ok(())
}

fn peer_info(own: &PeerQp) -> [u8; PEER_INFO_BYTES] {
    let words = format!("{:04x}:{:06x}:{:06x}:{:032x}\0", 0, own.qp, own.psn, u128::from_be_bytes(gid(own.ip)));
    let mut bytes = [0; PEER_INFO_BYTES];
    bytes.copy_from_slice(words.as_bytes()); // the length is constant: all numbers fit their fields
    bytes
}

fn parse(bytes: &[u8; PEER_INFO_BYTES]) -> Option<PeerQp> {
    let words = std::str::from_utf8(bytes).ok()?.trim_end_matches('\0');
    let mut fields = words.split(':');
    let _lid = fields.next()?;
    let number = |field: &str| u32::from_str_radix(field, 16).ok().filter(|number| *number < 1 << 24);
    let (qp, psn) = (number(fields.next()?)?, number(fields.next()?)?);
    let gid = u128::from_str_radix(fields.next()?, 16).ok()?;
    Some(PeerQp { ip: ip(gid.to_be_bytes()), qp, psn, rd_atomic: 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_info_matches_rdma_core() {
        let written = *b"0000:000011:4bbf10:00000000000000000000ffff0a4d0002\0";
        let peer = PeerQp { ip: [10, 77, 0, 2].into(), qp: 0x11, psn: 0x4b_bf10, rd_atomic: 1 };
        assert_eq!(parse(&written), Some(peer));
        assert_eq!(peer_info(&peer), written);
    }

    #[test]
    fn malformed_peer_info_is_refused() {
        for wrong in [
            [0; PEER_INFO_BYTES],
            [0xff; PEER_INFO_BYTES],
            [b':'; PEER_INFO_BYTES],
            *b"0000:1000011:4bbf1:00000000000000000000ffff0a4d0002\0",
        ] {
            assert_eq!(parse(&wrong), None);
        }
    }
}
