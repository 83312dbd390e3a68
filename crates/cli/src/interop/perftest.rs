//! `ib_send_bw`, `ib_write_bw`, `ib_read_bw` and `ib_atomic_bw` (perftest).
//!
//! Over TCP both sides send, the client always first:
//!
//! - the version (16 bytes),
//! - the cycle buffer size and the cache line size (32 bits each, big-endian),
//! - the code of the MTU (a digit and NUL),
//! - three times their queue pair, key and address ([`PEER_INFO_BYTES`] bytes of text); the second and the third mean
//!   that they are ready.
//!
//! After the operations they send that text once more and, except for messages, their measurements; then the text once
//! more, and `done`.
//!
//! With `-R` a connection of the RDMA connection manager carries the same items, each in a message of its own, and the
//! text is replaced by [`CM_PEER_INFO_BYTES`] binary bytes. Before the three exchanges there are two more, without a
//! queue pair: between them the client requests the connection that is measured, at the same port. Neither side sends
//! `done`.

use super::cm;
use super::common::{Common, Plan, RunSummary, Verb};
use super::local_endpoint::{LocalEndpoint, MAX_RD_ATOMIC, MAX_WR, PeerQp};
use super::oob::{OobChannel, PORT, gid, ip};
use crate::Result;
use shotline_verbs::api::{CompletionKind, Mtu, Operation, Remote};
use std::time::{Duration, Instant};

/// Length of the peer information as text, in bytes.
const PEER_INFO_BYTES: usize = 108;
/// The version that is sent: that of Debian 12. Other versions from 5.70 on use the same protocol.
pub const VERSION: &[u8; 16] = b"6.06\0\0\0\0\0\0\0\0\0\0\0\0";
/// Oldest version of perftest with this protocol.
const MIN_VERSION: f64 = 5.70;

/// Length of the peer information over a connection of the connection manager, in bytes.
pub const CM_PEER_INFO_BYTES: usize = 56;

/// Peer information: what each side sends about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// The queue pair.
    pub peer: PeerQp,
    /// The memory.
    pub memory: Remote,
}

/// Runs a measurement. Operations are those that completed on this side.
pub(super) fn run(
    plan: &Plan,
    local: &mut LocalEndpoint,
    common: &Common,
    verb: Verb,
    rdma_cm: bool,
) -> Result<RunSummary> {
    let port = common.port.unwrap_or(PORT);
    let host = common.host.as_deref().filter(|_| rdma_cm);
    let mut oob = match host {
        Some(host) => OobChannel::connect_cm(host, port, local, plan.mtu)?,
        None => OobChannel::open(common, local)?,
    };
    let mtu = negotiate(&mut oob, local, plan)?;
    let plan = Plan { mtu, ..*plan };
    if plan.size > mtu.bytes() && common.qp == super::Service::Ud {
        return Err(format!("the other side's MTU is {} bytes: use --size up to that", mtu.bytes()).into());
    }
    let exchange_info = |oob: &mut OobChannel, local: &mut LocalEndpoint, own: &PeerInfo| -> Result<PeerInfo> {
        let theirs = match host {
            Some(_) => Some(PeerInfo::from_binary(&oob.exchange(local, &own.encode_binary())?)),
            None => PeerInfo::parse(&oob.exchange(local, &own.emit())?),
        };
        theirs.ok_or_else(|| "the other side does not use perftest's protocol".into())
    };
    let (rkey, address) = local.remote_memory();
    let own = PeerInfo { peer: local.own_qp(), memory: Remote { address, rkey } };
    let mut connection = None;
    if let Some(host) = host {
        exchange_info(&mut oob, local, &own)?;
        connection = Some(cm::connect(local, cm::address(host)?, port, mtu)?);
        exchange_info(&mut oob, local, &own)?;
    }
    let peer = exchange_info(&mut oob, local, &own)?;
    if host.is_none() {
        local.connect(&peer.peer, mtu)?;
    }
    exchange_info(&mut oob, local, &own)?;
    exchange_info(&mut oob, local, &own)?;
    let receives = verb == Verb::Send && !oob.is_client();
    if receives {
        for _ in 0..u64::from(MAX_WR).min(plan.count) {
            local.post_receive()?;
        }
    }
    if verb == Verb::Send {
        exchange_info(&mut oob, local, &own)?;
    }
    let start = Instant::now();
    let operations = match (oob.is_client(), receives) {
        (true, _) => initiate(&plan, local, common, verb, peer.memory)?,
        (false, true) => receive(&plan, local)?,
        (false, false) => 0, // the other side uses this side's memory, and the endpoint answers without this program
    };
    let elapsed = start.elapsed();
    if verb != Verb::Send {
        exchange_info(&mut oob, local, &own)?;
        for value in measurement(&plan, elapsed) {
            oob.exchange(local, &value)?;
        }
    }
    exchange_info(&mut oob, local, &own)?;
    if let Some(connection) = connection {
        local.manage()?.disconnect(connection);
        oob.disconnect(local)?;
        local.until_ended()?;
        local.until_ended()?;
    } else {
        oob.send(local, b"done\0")?;
        local.linger()?;
    }
    Ok(RunSummary { operations, mtu, elapsed })
}

/// Exchanges versions, buffer sizes and the MTU. Returns the smaller MTU.
fn negotiate(oob: &mut OobChannel, local: &mut LocalEndpoint, plan: &Plan) -> Result<Mtu> {
    let version = oob.exchange(local, VERSION)?;
    let version = String::from_utf8_lossy(&version);
    let number: f64 = version.trim_end_matches('\0').parse().unwrap_or(0.0);
    if number < MIN_VERSION {
        return Err(
            format!("expected perftest {MIN_VERSION} or newer, found {:?}", version.trim_end_matches('\0')).into()
        );
    }
    oob.exchange(local, &4096_u32.to_be_bytes())?;
    oob.exchange(local, &64_u32.to_be_bytes())?;
    let theirs =
        mtu_from_code(oob.exchange(local, &mtu_code(plan.mtu))?).ok_or("the other side sent an unknown MTU")?;
    Ok(plan.mtu.min(theirs))
}

/// Returns the code of an MTU: 1 is 256 bytes, and each further code doubles it.
pub fn mtu_code(mtu: Mtu) -> [u8; 2] {
    [Mtu::IBTA.iter().position(|one| *one == mtu).unwrap_or(0) as u8 + b'1', 0]
}

/// Returns the MTU of a code.
pub fn mtu_from_code([code, _]: [u8; 2]) -> Option<Mtu> {
    Mtu::IBTA.get(usize::from(code.wrapping_sub(b'1'))).copied()
}

/// Posts operations, with up to `depth` in flight.
fn initiate(plan: &Plan, local: &mut LocalEndpoint, common: &Common, verb: Verb, memory: Remote) -> Result<u64> {
    let operation = match verb {
        Verb::Send => Operation::Send,
        Verb::Write => Operation::Write(memory),
        Verb::Read => Operation::Read(memory),
        Verb::Atomic => Operation::FetchAdd { remote: memory, add: 1 },
    };
    let pace = Duration::from_micros(common.pace);
    let (mut posted, mut done, mut next) = (0, 0, Instant::now());
    while done < plan.count {
        while posted < plan.count && posted - done < u64::from(common.depth) && Instant::now() >= next {
            local.post(operation, plan.size)?;
            posted += 1;
            next = Instant::now() + pace;
        }
        if posted > done {
            local.next().map_err(|error| format!("{error} ({done} of {} done)", plan.count))?;
            done += 1;
        } else {
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }
    Ok(done)
}

/// Receives all messages.
fn receive(plan: &Plan, local: &mut LocalEndpoint) -> Result<u64> {
    for received in 0..plan.count {
        let completion = local.next().map_err(|error| format!("{error} ({received} of {} received)", plan.count))?;
        if completion.kind == CompletionKind::Recv {
            local.post_receive()?;
        }
    }
    Ok(plan.count)
}

/// Returns the measurement: bytes of an operation, operations, then peak and average rates in MiB/s and in millions per
/// second.
fn measurement(plan: &Plan, elapsed: Duration) -> [[u8; 8]; 5] {
    let rate = plan.count as f64 / elapsed.as_secs_f64().max(1e-9);
    let mib = rate * f64::from(plan.size) / f64::from(1 << 20);
    let floats = [mib, mib, rate / 1e6].map(f64::to_be_bytes);
    [u64::from(plan.size).to_be_bytes(), plan.count.to_be_bytes(), floats[0], floats[1], floats[2]]
}

impl PeerInfo {
    /// Formats `LID:reads:QPN:PSN:key:address:` and the bytes of the GID, then the number of a shared receive queue.
    fn emit(&self) -> [u8; PEER_INFO_BYTES] {
        let Self { peer, memory } = self;
        let gid: String = gid(peer.ip).iter().map(|byte| format!("{byte:02x}:")).collect();
        let words = format!(
            "{:04x}:{:04x}:{:06x}:{:06x}:{:08x}:{:016x}:{gid}{:08x}:",
            0, peer.rd_atomic, peer.qp, peer.psn, memory.rkey, memory.address, 0
        );
        let mut bytes = [0; PEER_INFO_BYTES];
        bytes[..words.len()].copy_from_slice(words.as_bytes()); // one byte of padding is left
        bytes
    }

    /// Emits the same in binary, big-endian: LID, reads, QPN, PSN, key (32 bits each), 4 bytes of padding, the address,
    /// the GID, the number of a shared receive queue, and a GID index.
    pub fn encode_binary(&self) -> [u8; CM_PEER_INFO_BYTES] {
        let Self { peer, memory } = self;
        let mut bytes = [0; CM_PEER_INFO_BYTES];
        for (word, at) in [u32::from(peer.rd_atomic), peer.qp, peer.psn, memory.rkey].into_iter().zip((4..).step_by(4))
        {
            bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
        bytes[24..32].copy_from_slice(&memory.address.to_be_bytes());
        bytes[32..48].copy_from_slice(&gid(peer.ip));
        bytes
    }

    fn from_binary(bytes: &[u8; CM_PEER_INFO_BYTES]) -> Self {
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[32..48]);
        let rd_atomic = word(4).min(MAX_RD_ATOMIC.into()) as u8;
        let address = u64::from(word(24)) << 32 | u64::from(word(28));
        let peer = PeerQp { ip: ip(gid), qp: word(8), psn: word(12), rd_atomic };
        Self { peer, memory: Remote { address, rkey: word(16) } }
    }

    fn parse(bytes: &[u8; PEER_INFO_BYTES]) -> Option<Self> {
        let words = std::str::from_utf8(bytes).ok()?;
        let mut fields = words.split(':').map(|field| u64::from_str_radix(field, 16).ok());
        let mut next = || fields.next().flatten();
        let _lid = next()?;
        let rd_atomic = next()?.min(MAX_RD_ATOMIC.into()) as u8;
        let mut bits24 = || next().and_then(|number| u32::try_from(number).ok()).filter(|number| *number < 1 << 24);
        let (qp, psn) = (bits24()?, bits24()?);
        let (rkey, address) = (u32::try_from(next()?).ok()?, next()?);
        let mut gid = [0; 16];
        for byte in &mut gid {
            *byte = u8::try_from(next()?).ok()?;
        }
        Some(Self { peer: PeerQp { ip: ip(gid), qp, psn, rd_atomic }, memory: Remote { address, rkey } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_info_round_trips_in_perftest_format() {
        let peer = PeerQp { ip: "fd77::2".parse().unwrap(), qp: 0x11, psn: 0xff_ffff, rd_atomic: 16 };
        let peer_info = PeerInfo { peer, memory: Remote { address: 0x7f00_1234_5000, rkey: 0xa1b2_c3d4 } };
        let text = peer_info.emit();
        assert_eq!(&text[..45], b"0000:0010:000011:ffffff:a1b2c3d4:00007f001234");
        assert_eq!(&text[PEER_INFO_BYTES - 10..], b"00000000:\0");
        assert_eq!(PeerInfo::parse(&text), Some(peer_info));
        let numbers = peer_info.encode_binary();
        assert_eq!(numbers[4..20], [0, 0, 0, 16, 0, 0, 0, 0x11, 0, 0xff, 0xff, 0xff, 0xa1, 0xb2, 0xc3, 0xd4]);
        assert_eq!(numbers[24..32], [0, 0, 0x7f, 0, 0x12, 0x34, 0x50, 0]);
        assert_eq!(PeerInfo::from_binary(&numbers), peer_info);
    }

    #[test]
    fn malformed_peer_info_is_refused() {
        let valid = PeerInfo {
            peer: PeerQp { ip: [10, 0, 0, 1].into(), qp: 1, psn: 2, rd_atomic: 3 },
            memory: Remote { address: 4, rkey: 5 },
        };
        for offset in [10, 20, 50] {
            let mut text = valid.emit();
            text[offset] = b'x';
            assert_eq!(PeerInfo::parse(&text), None);
        }
        assert_eq!(PeerInfo::parse(&[0; PEER_INFO_BYTES]), None);
    }
}
