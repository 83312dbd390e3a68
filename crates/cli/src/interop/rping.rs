//! `rping` (librdmacm/examples) over a connection of the RDMA connection manager. The client sends the location of a
//! text, the server reads the text, the client sends the location of a buffer, and the server writes the text there.
//!
//! A location is a message of 16 bytes, big-endian: address (64 bits), key and length (32 bits each). The server
//! answers each with a message of the same length, whose content is ignored.

use super::cm;
use super::common::{Common, Plan, RunSummary};
use super::local_endpoint::{LocalEndpoint, MAX_RD_ATOMIC, PeerQp};
use crate::Result;
use shotline_memory::Region;
use shotline_verbs::api::{CompletionKind, Mtu, Operation, Remote};
use shotline_verbs::rdma_cm::message::{REP_PRIVATE_BYTES, RdAtomicLimits, Reply, Request, service_id};
use shotline_verbs::rdma_cm::{Connection, Event};
use std::time::Instant;

/// Port at which `rping` listens.
pub const PORT: u16 = 7174;
/// Length of a location message, in bytes.
pub const LOCATION_BYTES: u32 = 16;
/// Maximum length of a text, in bytes.
pub const MAX_TEXT_BYTES: u32 = 2048;
/// Offsets in this side's memory: the received location, the location to send, the text, and the buffer that the
/// server writes it back to.
const RECV_OFFSET: u64 = 0;
const SEND_OFFSET: u64 = 256;
const TEXT_OFFSET: u64 = 4096;
const ECHO_OFFSET: u64 = TEXT_OFFSET + MAX_TEXT_BYTES as u64;

/// Runs `rping`. Operations are texts that went back and forth.
pub(super) fn run(plan: &Plan, local: &mut LocalEndpoint, common: &Common) -> Result<RunSummary> {
    let port = common.port.unwrap_or(PORT);
    match &common.host {
        Some(host) => {
            let connection = cm::connect(local, cm::address(host)?, port, plan.mtu)?;
            let start = Instant::now();
            for number in 0..plan.count {
                ping(local, plan.size, number)?;
            }
            let elapsed = start.elapsed();
            local.manage()?.disconnect(connection);
            local.until_ended()?;
            Ok(RunSummary { operations: plan.count, mtu: plan.mtu, elapsed })
        }
        None => {
            local.manage()?.manager().0.listen(service_id(port));
            errln!("listening on {}:{port}", common.bind.ip());
            let (connection, mtu) = accept(plan, local)?;
            let start = Instant::now();
            let operations = echo(local)?;
            let elapsed = start.elapsed();
            local.manage()?.disconnect(connection);
            local.linger()?;
            Ok(RunSummary { operations, mtu, elapsed })
        }
    }
}

/// Accepts requests until one of them is followed by a connection. A request may be forged, or its sender may have
/// ended.
fn accept(plan: &Plan, local: &mut LocalEndpoint) -> Result<(Connection, Mtu)> {
    loop {
        let own = local.own_qp();
        let (connection, mtu) = negotiate(plan, local)?;
        // A first message confirms the connection like an RTU, which may be lost or reordered.
        match local.next_event()? {
            None | Some(Event::Established(_)) => return Ok((connection, mtu)),
            Some(event) => errln!("a connection was not established: {event}; waiting for another"),
        }
        local.reset(&own)?;
    }
}

/// Accepts the next request.
fn negotiate(plan: &Plan, local: &mut LocalEndpoint) -> Result<(Connection, Mtu)> {
    loop {
        if let Some(Event::Requested(connection, from, request)) = local.next_event()? {
            let Request { qp, psn, rd_atomic, mtu, .. } = *request;
            let (own, mtu) = (local.own_qp(), mtu.min(plan.mtu));
            let psn = local.replace_psn(psn);
            local.connect(&PeerQp { ip: from, qp, psn, rd_atomic: rd_atomic.responder_resources }, mtu)?;
            local.post_receive()?;
            // What the other side initiates is what this side answers, and vice versa.
            let rd_atomic = RdAtomicLimits {
                responder_resources: rd_atomic.initiator_depth.min(MAX_RD_ATOMIC),
                initiator_depth: rd_atomic.responder_resources.min(MAX_RD_ATOMIC),
            };
            let reply =
                Reply { qp: own.qp, psn: own.psn, rd_atomic, rnr_retry: 7, private_data: [0; REP_PRIVATE_BYTES] };
            let (manager, now) = local.manage()?.manager();
            manager.accept(now, connection, reply);
            return Ok((connection, mtu));
        }
    }
}

/// Client: sends a text there and back.
fn ping(local: &mut LocalEndpoint, size: u32, number: u64) -> Result {
    let mut text = format!("rdma-ping-{number}: ").into_bytes();
    text.extend((0..).map(|at: u64| b'A' + ((number + at) % 58) as u8).take(size as usize));
    text.truncate(size as usize - 1);
    text.push(0);
    local.memory().write(TEXT_OFFSET as usize, &text);
    local.memory().zero(ECHO_OFFSET as usize, size as usize);
    for offset in [TEXT_OFFSET, ECHO_OFFSET] {
        send_location(local, offset, size)?;
        receive_go_ahead(local)?;
    }
    let mut echoed = vec![0; size as usize];
    local.memory().read(ECHO_OFFSET as usize, &mut echoed);
    if echoed == text { Ok(()) } else { Err(format!("text {number} was changed when it came back").into()) }
}

/// Server: echoes texts until the client disconnects.
fn echo(local: &mut LocalEndpoint) -> Result<u64> {
    let mut pings = 0;
    loop {
        match local.next_event()? {
            Some(Event::Disconnected(_)) => return Ok(pings),
            Some(Event::Established(_)) => continue,
            Some(event) => return Err(format!("the connection broke: {event}").into()),
            // The acknowledgement of the last answer has arrived, which may be the end of the run.
            None => match local.next()? {
                sent if sent.kind == CompletionKind::Send => continue,
                received => check_length(received.bytes)?,
            },
        }
        let (text, size) = received_location(local)?;
        local.post_at(Operation::Read(text), TEXT_OFFSET, size)?;
        wait_for(local, CompletionKind::Read)?;
        send_go_ahead(local)?;
        wait_for(local, CompletionKind::Recv)?;
        let (buffer, _) = received_location(local)?;
        let len = text_length(local.memory(), TEXT_OFFSET, size);
        local.post_at(Operation::Write(buffer), TEXT_OFFSET, len)?;
        wait_for(local, CompletionKind::Write)?;
        send_go_ahead(local)?;
        pings += 1;
    }
}

/// Sends the location of a buffer.
fn send_location(local: &mut LocalEndpoint, offset: u64, size: u32) -> Result {
    let (rkey, address) = local.remote_memory();
    let mut info = [0; LOCATION_BYTES as usize];
    info[..8].copy_from_slice(&(address + offset).to_be_bytes());
    info[8..12].copy_from_slice(&rkey.to_be_bytes());
    info[12..].copy_from_slice(&size.to_be_bytes());
    local.memory().write(SEND_OFFSET as usize, &info);
    local.post_at(Operation::Send, SEND_OFFSET, LOCATION_BYTES)
}

/// Returns the location that the client has sent, and its length.
fn received_location(local: &mut LocalEndpoint) -> Result<(Remote, u32)> {
    let mut info = [0; LOCATION_BYTES as usize];
    local.memory().read(RECV_OFFSET as usize, &mut info);
    local.post_receive()?;
    parse(&info)
}

/// Parses a location message into a location and its length.
pub fn parse(info: &[u8; LOCATION_BYTES as usize]) -> Result<(Remote, u32)> {
    let word = |at: usize| u32::from_be_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
    let size = word(12);
    if !(1..=MAX_TEXT_BYTES).contains(&size) {
        return Err(format!("expected 1 to {MAX_TEXT_BYTES} bytes from the other side, found {size}").into());
    }
    Ok((Remote { address: u64::from(word(0)) << 32 | u64::from(word(4)), rkey: word(8) }, size))
}

/// Returns the number of bytes of a text of `size` that are written back: up to and including its NUL, if it has one.
pub fn text_length(region: &Region, offset: u64, size: u32) -> u32 {
    let mut text = vec![0; size as usize];
    region.read(offset as usize, &mut text);
    text.iter().position(|byte| *byte == 0).map_or(size, |end| end as u32 + 1)
}

/// Sends the message that lets the client continue.
fn send_go_ahead(local: &mut LocalEndpoint) -> Result {
    local.post_at(Operation::Send, SEND_OFFSET, LOCATION_BYTES)
}

/// Receives a message of the server.
fn receive_go_ahead(local: &mut LocalEndpoint) -> Result {
    wait_for(local, CompletionKind::Recv)?;
    local.post_receive()
}

/// Waits for a completion, and ignores completions of sends.
fn wait_for(local: &mut LocalEndpoint, what: CompletionKind) -> Result {
    loop {
        let completion = local.next()?;
        if completion.kind == what {
            return if what == CompletionKind::Recv { check_length(completion.bytes) } else { Ok(()) };
        }
        if completion.kind != CompletionKind::Send {
            return Err(format!("expected {what:?}, found {:?}", completion.kind).into());
        }
    }
}

/// Checks that a message has the length of a location.
fn check_length(bytes: u32) -> Result {
    if bytes == LOCATION_BYTES {
        Ok(())
    } else {
        Err(format!("expected a message of {LOCATION_BYTES} bytes, found {bytes}").into())
    }
}
