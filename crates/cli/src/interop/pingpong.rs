//! `ibv_rc_pingpong` and its like (rdma-core, libibverbs/examples).
//!
//! Over TCP each side says `LID:QPN:PSN:GID` in hexadecimal digits, with a NUL 52 bytes, the client first; the client
//! ends with `done`. Then one message goes back and forth.

use super::common::{Common, Plan, Played, Service};
use super::side::{Peer, Side};
use super::talk::{Talk, gid, ip};
use crate::Result;
use shotline_verbs::api::{CompletionKind, Operation};
use std::time::Instant;

/// Bytes of an introduction.
const LEN: usize = 52;
/// Receives that are posted at once.
const RECEIVES: u64 = 64;

/// Plays to the end: operations are messages that came.
pub fn run(plan: &Plan, side: &mut Side, common: &Common) -> Result<Played> {
    let mut talk = Talk::open(common, side)?;
    let client = talk.is_client();
    let own = introduction(&side.own());
    if client {
        talk.say(side, &own)?;
    }
    let peer = parse(&talk.hear::<LEN>(side)?).ok_or("the other side does not speak as rdma-core's programs do")?;
    side.connect(&peer, plan.mtu)?;
    for _ in 0..RECEIVES.min(plan.count) {
        side.post_receive()?;
    }
    if client {
        talk.say(side, b"done\0")?;
    } else {
        talk.say(side, &own)?;
        talk.hear::<1>(side)?;
    }
    let began = Instant::now();
    exchange(plan, side, client)?;
    let took = began.elapsed();
    if common.qp != Service::Ud {
        side.linger()?;
    }
    Ok(Played { operations: plan.count, mtu: plan.mtu, took })
}

/// One message goes back and forth `count` times.
fn exchange(plan: &Plan, side: &mut Side, client: bool) -> Result {
    let (mut posted, mut sent, mut received) = (0, 0, 0);
    while sent < plan.count || received < plan.count {
        // The client's first has no message before it.
        let turn = received + u64::from(client) > posted;
        if turn && sent == posted && posted < plan.count {
            side.post(Operation::Send, plan.size)?;
            posted += 1;
        }
        let completion = side.next().map_err(|error| format!("{error} ({sent} sent, {received} received)"))?;
        match completion.kind {
            CompletionKind::Recv => {
                received += 1;
                side.post_receive()?;
            }
            _ => sent += 1,
        }
    }
    Ok(())
}

fn introduction(own: &Peer) -> [u8; LEN] {
    let words = format!("{:04x}:{:06x}:{:06x}:{:032x}\0", 0, own.qp, own.psn, u128::from_be_bytes(gid(own.ip)));
    let mut bytes = [0; LEN];
    bytes.copy_from_slice(words.as_bytes()); // three numbers that fit their places
    bytes
}

fn parse(bytes: &[u8; LEN]) -> Option<Peer> {
    let words = std::str::from_utf8(bytes).ok()?.trim_end_matches('\0');
    let mut fields = words.split(':');
    let _lid = fields.next()?;
    let number = |field: &str| u32::from_str_radix(field, 16).ok().filter(|number| *number < 1 << 24);
    let (qp, psn) = (number(fields.next()?)?, number(fields.next()?)?);
    let gid = u128::from_str_radix(fields.next()?, 16).ok()?;
    Some(Peer { ip: ip(gid.to_be_bytes()), qp, psn, reads: 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_introduction_is_what_rdma_core_writes_and_reads() {
        let written = *b"0000:000011:4bbf10:00000000000000000000ffff0a4d0002\0";
        let peer = Peer { ip: [10, 77, 0, 2].into(), qp: 0x11, psn: 0x4b_bf10, reads: 1 };
        assert_eq!(parse(&written), Some(peer));
        assert_eq!(introduction(&peer), written);
    }

    #[test]
    fn what_is_no_introduction_is_refused() {
        for wrong in [[0; LEN], [0xff; LEN], [b':'; LEN], *b"0000:1000011:4bbf1:00000000000000000000ffff0a4d0002\0"] {
            assert_eq!(parse(&wrong), None);
        }
    }
}
