//! `rping` (librdmacm/examples): the connection is made by connection managers, then the client tells where a text of its
//! own is, the server reads it, the client tells where there is room, and the server writes it back.
//!
//! What is told is 16 bytes, all numbers big-endian: address (64 bits), key and length (32 bits each). The server answers
//! each with a message of the same length, whose content means nothing.

use super::common::{Common, Plan, Played};
use super::managed;
use super::side::{Peer, RD_ATOMIC, Side};
use crate::Result;
use shotline_memory::Region;
use shotline_verbs::api::{CompletionKind, Mtu, Operation, Remote};
use shotline_verbs::rdma_cm::message::{REPLY_PRIVATE, RdAtomicLimits, Reply, Request, service_id};
use shotline_verbs::rdma_cm::{Connection, Event};
use std::time::Instant;

/// Where `rping` waits.
pub const PORT: u16 = 7174;
/// Bytes of what is told.
pub const INFO: u32 = 16;
/// Bytes of the longest text.
pub const LONGEST: u32 = 2048;
/// Where things are in this side's memory: what was told, what this side tells, the text, the room for it.
const HEARD: u64 = 0;
const TOLD: u64 = 256;
const TEXT: u64 = 4096;
const ROOM: u64 = TEXT + LONGEST as u64;

/// Plays to the end: operations are texts that went back and forth.
pub(super) fn run(plan: &Plan, side: &mut Side, common: &Common) -> Result<Played> {
    let port = common.port.unwrap_or(PORT);
    match &common.host {
        Some(host) => {
            let connection = managed::connect(side, managed::address(host)?, port, plan.mtu)?;
            let began = Instant::now();
            for number in 0..plan.count {
                ping(side, plan.size, number)?;
            }
            let took = began.elapsed();
            side.manage()?.disconnect(connection);
            side.until_ended()?;
            Ok(Played { operations: plan.count, mtu: plan.mtu, took })
        }
        None => {
            side.manage()?.manager().0.listen(service_id(port));
            errln!("waits on {}:{port}", common.bind.ip());
            let (connection, mtu) = accept(plan, side)?;
            let began = Instant::now();
            let operations = echo(side)?;
            let took = began.elapsed();
            side.manage()?.disconnect(connection);
            side.linger()?;
            Ok(Played { operations, mtu, took })
        }
    }
}

/// Accepts requests until one of them is followed by a connection. A request may be forged, or its sender gone.
fn accept(plan: &Plan, side: &mut Side) -> Result<(Connection, Mtu)> {
    loop {
        let own = side.own();
        let (connection, mtu) = agree(plan, side)?;
        // A first message says as much as an RTU, which may be lost or overtaken.
        match side.next_event()? {
            None | Some(Event::Established(_)) => return Ok((connection, mtu)),
            Some(event) => errln!("a connection was not made: {event}; waits for another"),
        }
        side.forget(&own)?;
    }
}

/// Agrees to what the next one asks for.
fn agree(plan: &Plan, side: &mut Side) -> Result<(Connection, Mtu)> {
    loop {
        if let Some(Event::Requested(connection, from, request)) = side.next_event()? {
            let Request { qp, psn, reads, mtu, .. } = *request;
            let (own, mtu) = (side.own(), mtu.min(plan.mtu));
            let psn = side.begin_at(psn);
            side.connect(&Peer { ip: from, qp, psn, reads: reads.responder_resources }, mtu)?;
            side.post_receive()?;
            // What the other side begins at once is what this one answers, and the other way round.
            let reads = RdAtomicLimits { responder_resources: reads.initiator_depth.min(RD_ATOMIC), initiator_depth: reads.responder_resources.min(RD_ATOMIC) };
            let reply = Reply { qp: own.qp, psn: own.psn, reads, rnr_retries: 7, private: [0; REPLY_PRIVATE] };
            let (manager, now) = side.manage()?.manager();
            manager.accept(now, connection, reply);
            return Ok((connection, mtu));
        }
    }
}

/// The client's part: a text there and back.
fn ping(side: &mut Side, size: u32, number: u64) -> Result {
    let mut text = format!("rdma-ping-{number}: ").into_bytes();
    text.extend((0..).map(|at: u64| b'A' + ((number + at) % 58) as u8).take(size as usize));
    text.truncate(size as usize - 1);
    text.push(0);
    side.memory().write(TEXT as usize, &text);
    side.memory().zero(ROOM as usize, size as usize);
    for at in [TEXT, ROOM] {
        tell(side, at, size)?;
        hear(side)?;
    }
    let mut back = vec![0; size as usize];
    side.memory().read(ROOM as usize, &mut back);
    if back == text { Ok(()) } else { Err(format!("text {number} came back changed").into()) }
}

/// The server's part, until the client ends it.
fn echo(side: &mut Side) -> Result<u64> {
    let mut pings = 0;
    loop {
        match side.next_event()? {
            Some(Event::Disconnected(_)) => return Ok(pings),
            Some(Event::Established(_)) => continue,
            Some(event) => return Err(format!("the connection broke: {event}").into()),
            // The last answer of the text before has arrived: that may have been the end.
            None => match side.next()? {
                sent if sent.kind == CompletionKind::Send => continue,
                heard => whole(heard.bytes)?,
            },
        }
        let (text, size) = told(side)?;
        side.post_at(Operation::Read(text), TEXT, size)?;
        wait_for(side, CompletionKind::Read)?;
        answer(side)?;
        wait_for(side, CompletionKind::Recv)?;
        let (room, _) = told(side)?;
        let len = length(side.memory(), TEXT, size);
        side.post_at(Operation::Write(room), TEXT, len)?;
        wait_for(side, CompletionKind::Write)?;
        answer(side)?;
        pings += 1;
    }
}

/// Tells where something is.
fn tell(side: &mut Side, at: u64, size: u32) -> Result {
    let (rkey, address) = side.window();
    let mut info = [0; INFO as usize];
    info[..8].copy_from_slice(&(address + at).to_be_bytes());
    info[8..12].copy_from_slice(&rkey.to_be_bytes());
    info[12..].copy_from_slice(&size.to_be_bytes());
    side.memory().write(TOLD as usize, &info);
    side.post_at(Operation::Send, TOLD, INFO)
}

/// What the client has told: where something is, and its length.
fn told(side: &mut Side) -> Result<(Remote, u32)> {
    let mut info = [0; INFO as usize];
    side.memory().read(HEARD as usize, &mut info);
    side.post_receive()?;
    parse(&info)
}

/// Where something is, and its length.
pub fn parse(info: &[u8; INFO as usize]) -> Result<(Remote, u32)> {
    let word = |at: usize| u32::from_be_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
    let size = word(12);
    if !(1..=LONGEST).contains(&size) {
        return Err(format!("the other side tells of {size} bytes; expected 1 to {LONGEST}").into());
    }
    Ok((Remote { address: u64::from(word(0)) << 32 | u64::from(word(4)), rkey: word(8) }, size))
}

/// Bytes of a text of `size` that are written back: with its NUL, if it has one.
pub fn length(region: &Region, at: u64, size: u32) -> u32 {
    let mut text = vec![0; size as usize];
    region.read(at as usize, &mut text);
    text.iter().position(|byte| *byte == 0).map_or(size, |end| end as u32 + 1)
}

/// Goes ahead.
fn answer(side: &mut Side) -> Result {
    side.post_at(Operation::Send, TOLD, INFO)
}

/// A message of the server.
fn hear(side: &mut Side) -> Result {
    wait_for(side, CompletionKind::Recv)?;
    side.post_receive()
}

/// Waits for a completion; sends complete in between.
fn wait_for(side: &mut Side, what: CompletionKind) -> Result {
    loop {
        let completion = side.next()?;
        if completion.kind == what {
            return if what == CompletionKind::Recv { whole(completion.bytes) } else { Ok(()) };
        }
        if completion.kind != CompletionKind::Send {
            return Err(format!("expected {what:?}, found {:?}", completion.kind).into());
        }
    }
}

/// That a message has the length of what is told.
fn whole(bytes: u32) -> Result {
    if bytes == INFO { Ok(()) } else { Err(format!("expected a message of {INFO} bytes, found {bytes}").into()) }
}
