//! Latency of single operations.

use super::args::Args;
use super::connection::{Connection, QpRequirements};
use super::histogram::Histogram;
use super::measure::{Poller, RESPONSE_TIMEOUT, RunningIteration, repeat};
use super::pairs::QpSet;
use super::point::{LatencyKind, Point, operation, rights};
use super::report::{Iteration, Row};
use crate::Result;
use shotline_memory::Access;
use shotline_verbs::api::{Completion, CompletionKind, Data, Element, RecvWr, Remote, SendWr};
use shotline_verbs::cm::Endpoint;
use shotline_verbs::cm::message::{Receives, RegisteredMemory, TargetRole};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Number of empty polls between two checks of the control connection. It is large, so that the checks do not affect
/// the measured times.
const IDLE_POLLS: u32 = 1 << 14;
/// Maximum length of inline data, in bytes: the default capability of queue pairs.
const MAX_INLINE_BYTES: u32 = 64;

/// Opens a queue pair for a latency measurement. Returns an error if the target does not take part.
pub fn open<P: Endpoint>(
    connection: &mut Connection<P>,
    args: &Args,
    point: &Point,
    kind: LatencyKind,
) -> Result<QpSet> {
    let size = point.size;
    if kind == LatencyKind::Ping && !(8..=MAX_INLINE_BYTES).contains(&size) {
        return Err(format!("a ping has 8 to {MAX_INLINE_BYTES} bytes, found {size}").into());
    }
    let target_sends = kind.is_halved();
    connection.open(&QpRequirements {
        service: args.qp,
        pairs: 1,
        sends: 16,
        receives: 4,
        target_receives: if kind == LatencyKind::Send {
            Receives { count: 4, bytes: size }
        } else {
            Receives::default()
        },
        target_sends: if target_sends { 16 } else { 0 },
        completions: 64,
        mtu: args.mtu(),
        rights: if kind == LatencyKind::Ping {
            Access::REMOTE_READ | Access::REMOTE_WRITE
        } else {
            rights(kind.verb())
        },
        bytes: if kind == LatencyKind::Send { 0 } else { u64::from(size) },
    })
}

/// Measures a latency.
pub fn measure<P: Endpoint>(
    connection: &mut Connection<P>,
    qps: QpSet,
    args: &Args,
    point: &Point,
    kind: LatencyKind,
    stop: &AtomicBool,
) -> Result<Row> {
    let size = point.size;
    let own = connection.own_key();
    let echo_bytes = u64::from(size.max(8));
    match kind {
        LatencyKind::Send => connection.start_role(&qps.all[0], TargetRole::Echo)?,
        LatencyKind::Ping => {
            let memory = RegisteredMemory { address: own.address + echo_bytes, bytes: echo_bytes, rkey: own.rkey };
            let region = qps.region_index as u16;
            connection.start_role(&qps.all[0], TargetRole::Ping { region, bytes: size, memory })?;
        }
        _ => {}
    }
    let row = Row::new(kind.verb(), args, point, connection.provider.capabilities().name);
    repeat(connection, qps, row, point, stop, |connection, qps| iterate(connection, qps, args, point, kind, stop))
}

fn iterate<P: Endpoint>(
    connection: &mut Connection<P>,
    qps: &QpSet,
    args: &Args,
    point: &Point,
    kind: LatencyKind,
    stop: &AtomicBool,
) -> Result<Iteration> {
    let size = point.size;
    let step = u64::from(size.max(8));
    let qp = qps.all[0].qp;
    let element = |index: u64| Element {
        address: connection.memory.address + index * step,
        len: size,
        lkey: connection.memory.lkey,
    };
    let (outgoing, incoming) = ([element(0)], [element(1)]);
    let remote = Remote { address: qps.key.address, rkey: qps.key.rkey };
    let mut message = [0; MAX_INLINE_BYTES as usize];
    let inline = size <= MAX_INLINE_BYTES && matches!(kind, LatencyKind::Write | LatencyKind::Send | LatencyKind::Ping);
    let mut times = Histogram::new();
    // A write of the target produces no completion event.
    let mut poller = Poller::new(args.event && kind != LatencyKind::Ping, IDLE_POLLS);
    let mut done = [Completion::default(); 16];

    let iteration = RunningIteration::open(connection, qps, point, stop)?;
    let (mut last, mut operations) = (iteration.start, 0_u64);
    while !iteration.is_over(last) {
        operations += 1;
        if kind == LatencyKind::Send {
            let receive = RecvWr { id: 0, elements: &incoming };
            connection.provider.post_recv(qp, &[receive]).map_err(|(_, error)| error)?;
        }
        if kind == LatencyKind::Ping {
            // A number that differs from the contents of both memories.
            let offset = size as usize - 8;
            message[offset..size as usize].copy_from_slice(&iteration.before.ping(operations).to_ne_bytes());
        }
        let data = if inline { Data::Inline(&message[..size as usize]) } else { Data::Elements(&outgoing) };
        let request = SendWr::new(operations, operation(kind.verb(), remote), data);
        connection.provider.post_send(qp, &[request]).map_err(|(_, error)| error)?;
        let expected = if kind == LatencyKind::Send { CompletionKind::Recv } else { kind.verb().completed() };
        let (mut acknowledged, mut answered) = (kind == LatencyKind::Send, kind != LatencyKind::Ping);
        let mut received = kind != LatencyKind::Send;
        while !(acknowledged && answered && received) {
            for completion in poller.poll(connection, qps, &mut done)? {
                received |= completion.kind == expected;
                acknowledged |= completion.kind == expected;
            }
            if !answered {
                let mut word = [0; 8];
                connection.region.read((step + u64::from(size)) as usize - 8, &mut word);
                answered = u64::from_ne_bytes(word) == iteration.before.ping(operations);
            }
            if poller.checked && last.elapsed() > RESPONSE_TIMEOUT {
                return Err("an operation was not answered: the target does not take part".into());
            }
        }
        let now = Instant::now();
        times.record(if kind.is_halved() { (now - last) / 2 } else { now - last });
        last = now;
    }
    iteration.close(connection, qps, last, operations, size, times)
}
