//! `ib_send_bw`, `ib_write_bw`, `ib_read_bw` and `ib_atomic_bw` (perftest).
//!
//! Over TCP both sides say, the client always first: the version (16 bytes), what a buffer is walked through by and the
//! length of a cache line (32 bits each, big-endian), the code of the MTU (a digit and NUL), then three times their queue
//! pair, key and address ([`LEN`] bytes of text), the second and third time to say that they are ready. After the
//! operations once more, and except for messages both say what they have measured; once more, and `done`.
//!
//! With `-R` a connection of RDMA's connection manager carries the same, each thing in a message of its own, and the
//! introductions are [`MANAGED`] bytes of numbers. Before the three they introduce each other twice more, without a queue
//! pair yet: between the two the client asks for the one that is measured, at the same port. Nobody says `done`.

use super::common::{Common, Plan, Played, Verb};
use super::managed;
use super::side::{MOST, Peer, RD_ATOMIC, Side};
use super::talk::{PORT, Talk, gid, ip};
use crate::Result;
use shotline_verbs::api::{CompletionKind, Mtu, Operation, Remote};
use std::time::{Duration, Instant};

/// Bytes of an introduction.
const LEN: usize = 108;
/// What we say we are: the version of Debian 12. Others from 5.70 on say the same things.
pub const VERSION: &[u8; 16] = b"6.06\0\0\0\0\0\0\0\0\0\0\0\0";
const OLDEST: f64 = 5.70;

/// Bytes of an introduction over a connection of the connection manager.
pub const MANAGED: usize = 56;

/// What a side says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Introduction {
    /// Its queue pair.
    pub peer: Peer,
    /// Its memory.
    pub memory: Remote,
}

/// Plays to the end: operations are those that completed here.
pub(super) fn run(plan: &Plan, side: &mut Side, common: &Common, verb: Verb, rdma_cm: bool) -> Result<Played> {
    let port = common.port.unwrap_or(PORT);
    let host = common.host.as_deref().filter(|_| rdma_cm);
    let mut talk = match host {
        Some(host) => Talk::managed(host, port, side, plan.mtu)?,
        None => Talk::open(common, side)?,
    };
    let mtu = agree(&mut talk, side, plan)?;
    let plan = Plan { mtu, ..*plan };
    if plan.size > mtu.bytes() && common.qp == super::Service::Ud {
        return Err(format!("the other side's MTU is {} bytes: say a --size up to that", mtu.bytes()).into());
    }
    let introduce = |talk: &mut Talk, side: &mut Side, own: &Introduction| -> Result<Introduction> {
        let theirs = match host {
            Some(_) => Some(Introduction::from_numbers(&talk.swap(side, &own.numbers())?)),
            None => Introduction::parse(&talk.swap(side, &own.emit())?),
        };
        theirs.ok_or_else(|| "the other side does not speak as perftest does".into())
    };
    let (rkey, address) = side.window();
    let own = Introduction { peer: side.own(), memory: Remote { address, rkey } };
    let mut connection = None;
    if let Some(host) = host {
        introduce(&mut talk, side, &own)?;
        connection = Some(managed::connect(side, managed::address(host)?, port, mtu)?);
        introduce(&mut talk, side, &own)?;
    }
    let peer = introduce(&mut talk, side, &own)?;
    if host.is_none() {
        side.connect(&peer.peer, mtu)?;
    }
    introduce(&mut talk, side, &own)?;
    introduce(&mut talk, side, &own)?;
    let receives = verb == Verb::Send && !talk.is_client();
    if receives {
        for _ in 0..u64::from(MOST).min(plan.count) {
            side.post_receive()?;
        }
    }
    if verb == Verb::Send {
        introduce(&mut talk, side, &own)?;
    }
    let began = Instant::now();
    let operations = match (talk.is_client(), receives) {
        (true, _) => initiate(&plan, side, common, verb, peer.memory)?,
        (false, true) => receive(&plan, side)?,
        (false, false) => 0, // its memory is used, and it has nothing to do but to answer
    };
    let took = began.elapsed();
    if verb != Verb::Send {
        introduce(&mut talk, side, &own)?;
        for value in measured(&plan, took) {
            talk.swap(side, &value)?;
        }
    }
    introduce(&mut talk, side, &own)?;
    if let Some(connection) = connection {
        side.manage()?.disconnect(connection);
        talk.hang_up(side)?;
        side.until_ended()?;
        side.until_ended()?;
    } else {
        talk.say(side, b"done\0")?;
        side.linger()?;
    }
    Ok(Played { operations, mtu, took })
}

/// Versions, buffers and the MTU.
fn agree(talk: &mut Talk, side: &mut Side, plan: &Plan) -> Result<Mtu> {
    let version = talk.swap(side, VERSION)?;
    let version = String::from_utf8_lossy(&version);
    let number: f64 = version.trim_end_matches('\0').parse().unwrap_or(0.0);
    if number < OLDEST {
        return Err(format!("expected perftest {OLDEST} or newer, found {:?}", version.trim_end_matches('\0')).into());
    }
    talk.swap(side, &4096_u32.to_be_bytes())?;
    talk.swap(side, &64_u32.to_be_bytes())?;
    let theirs = mtu_of(talk.swap(side, &mtu_code(plan.mtu))?).ok_or("the other side has no known MTU")?;
    Ok(plan.mtu.min(theirs))
}

/// How an MTU is said: 1 is 256 bytes, and each of the next twice that.
pub fn mtu_code(mtu: Mtu) -> [u8; 2] {
    [Mtu::ALL.iter().position(|one| *one == mtu).unwrap_or(0) as u8 + b'1', 0]
}

/// The MTU that was said.
pub fn mtu_of([code, _]: [u8; 2]) -> Option<Mtu> {
    Mtu::ALL.get(usize::from(code.wrapping_sub(b'1'))).copied()
}

/// Operations, as many under way as asked for.
fn initiate(plan: &Plan, side: &mut Side, common: &Common, verb: Verb, memory: Remote) -> Result<u64> {
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
            side.post(operation, plan.size)?;
            posted += 1;
            next = Instant::now() + pace;
        }
        if posted > done {
            side.next().map_err(|error| format!("{error} ({done} of {} done)", plan.count))?;
            done += 1;
        } else {
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }
    Ok(done)
}

/// Takes as many messages as will come.
fn receive(plan: &Plan, side: &mut Side) -> Result<u64> {
    for received in 0..plan.count {
        let completion = side.next().map_err(|error| format!("{error} ({received} of {} received)", plan.count))?;
        if completion.kind == CompletionKind::Recv {
            side.post_receive()?;
        }
    }
    Ok(plan.count)
}

/// What was measured: bytes of an operation, operations, then peak and average rates, in MiB/s and millions a second.
fn measured(plan: &Plan, took: Duration) -> [[u8; 8]; 5] {
    let rate = plan.count as f64 / took.as_secs_f64().max(1e-9);
    let mib = rate * f64::from(plan.size) / f64::from(1 << 20);
    let floats = [mib, mib, rate / 1e6].map(f64::to_be_bytes);
    [u64::from(plan.size).to_be_bytes(), plan.count.to_be_bytes(), floats[0], floats[1], floats[2]]
}

impl Introduction {
    /// `LID:reads:QPN:PSN:key:address:` and the bytes of the GID, then the number of a shared receive queue.
    fn emit(&self) -> [u8; LEN] {
        let Self { peer, memory } = self;
        let gid: String = gid(peer.ip).iter().map(|byte| format!("{byte:02x}:")).collect();
        let words = format!(
            "{:04x}:{:04x}:{:06x}:{:06x}:{:08x}:{:016x}:{gid}{:08x}:",
            0, peer.reads, peer.qp, peer.psn, memory.rkey, memory.address, 0
        );
        let mut bytes = [0; LEN];
        bytes[..words.len()].copy_from_slice(words.as_bytes()); // one byte is left
        bytes
    }

    /// The same as numbers, big-endian: LID, reads, QPN, PSN, key (32 bits each), 4 bytes of nothing, the address, the
    /// GID, the number of a shared receive queue, and an index of GIDs.
    pub fn numbers(&self) -> [u8; MANAGED] {
        let Self { peer, memory } = self;
        let mut bytes = [0; MANAGED];
        for (word, at) in [u32::from(peer.reads), peer.qp, peer.psn, memory.rkey].into_iter().zip((4..).step_by(4)) {
            bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
        bytes[24..32].copy_from_slice(&memory.address.to_be_bytes());
        bytes[32..48].copy_from_slice(&gid(peer.ip));
        bytes
    }

    fn from_numbers(bytes: &[u8; MANAGED]) -> Self {
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[32..48]);
        let reads = word(4).min(RD_ATOMIC.into()) as u8;
        let address = u64::from(word(24)) << 32 | u64::from(word(28));
        let peer = Peer { ip: ip(gid), qp: word(8), psn: word(12), reads };
        Self { peer, memory: Remote { address, rkey: word(16) } }
    }

    fn parse(bytes: &[u8; LEN]) -> Option<Self> {
        let words = std::str::from_utf8(bytes).ok()?;
        let mut fields = words.split(':').map(|field| u64::from_str_radix(field, 16).ok());
        let mut next = || fields.next().flatten();
        let _lid = next()?;
        let reads = next()?.min(RD_ATOMIC.into()) as u8;
        let mut bits24 = || next().and_then(|number| u32::try_from(number).ok()).filter(|number| *number < 1 << 24);
        let (qp, psn) = (bits24()?, bits24()?);
        let (rkey, address) = (u32::try_from(next()?).ok()?, next()?);
        let mut gid = [0; 16];
        for byte in &mut gid {
            *byte = u8::try_from(next()?).ok()?;
        }
        Some(Self { peer: Peer { ip: ip(gid), qp, psn, reads }, memory: Remote { address, rkey } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_introduction_has_perftest_s_length_and_comes_back_as_it_was() {
        let peer = Peer { ip: "fd77::2".parse().unwrap(), qp: 0x11, psn: 0xff_ffff, reads: 16 };
        let introduction = Introduction { peer, memory: Remote { address: 0x7f00_1234_5000, rkey: 0xa1b2_c3d4 } };
        let text = introduction.emit();
        assert_eq!(&text[..45], b"0000:0010:000011:ffffff:a1b2c3d4:00007f001234");
        assert_eq!(&text[LEN - 10..], b"00000000:\0");
        assert_eq!(Introduction::parse(&text), Some(introduction));
        let numbers = introduction.numbers();
        assert_eq!(numbers[4..20], [0, 0, 0, 16, 0, 0, 0, 0x11, 0, 0xff, 0xff, 0xff, 0xa1, 0xb2, 0xc3, 0xd4]);
        assert_eq!(numbers[24..32], [0, 0, 0x7f, 0, 0x12, 0x34, 0x50, 0]);
        assert_eq!(Introduction::from_numbers(&numbers), introduction);
    }

    #[test]
    fn what_is_no_introduction_is_refused() {
        let sound = Introduction {
            peer: Peer { ip: [10, 0, 0, 1].into(), qp: 1, psn: 2, reads: 3 },
            memory: Remote { address: 4, rkey: 5 },
        };
        for at in [10, 20, 50] {
            let mut text = sound.emit();
            text[at] = b'x';
            assert_eq!(Introduction::parse(&text), None);
        }
        assert_eq!(Introduction::parse(&[0; LEN]), None);
    }
}
