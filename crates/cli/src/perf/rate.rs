//! Rates of groups of operations, with up to `depth` groups in flight.

use super::args::Args;
use super::connection::{Connection, QpRequirements};
use super::histogram::Histogram;
use super::measure::{Poller, RunningIteration, repeat};
use super::pairs::QpSet;
use super::point::{Point, Verb, operation, rights};
use super::report::{Iteration, Row};
use crate::Result;
use shotline_verbs::api::{Completion, Data, Element, Remote, SendWr};
use shotline_verbs::cm::Endpoint;
use shotline_verbs::cm::message::{MAX_RECEIVES, Receives, TargetRole};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Maximum number of completions polled at once.
const BATCH: usize = 64;
/// Number of empty polls between two checks of the clock and the control connection.
const IDLE_POLLS: u32 = 1024;
/// Memory for a target's receives, in bytes.
const RECEIVE_BYTES: u64 = 32 << 20;

/// Measures a rate.
pub fn measure<P: Endpoint>(
    connection: &mut Connection<P>,
    args: &Args,
    point: &Point,
    verb: Verb,
    stop: &AtomicBool,
) -> Result<Row> {
    let Point { size, group, .. } = *point;
    let in_flight = u32::from(group) * u32::from(args.depth);
    let span = args.span(point);
    // Twice the number in flight, so that sends do not wait for the target to repost.
    let receives =
        (RECEIVE_BYTES / u64::from(size.max(1))).clamp(1, u64::from(MAX_RECEIVES).min(2 * u64::from(in_flight)));
    let qps = connection.open(&QpRequirements {
        service: args.qp,
        pairs: args.queue_pairs,
        sends: in_flight,
        receives: 1,
        target_receives: match verb {
            Verb::Send => Receives { count: receives as u16, bytes: size },
            _ => Receives::default(),
        },
        target_sends: if args.bidirectional { group } else { 0 },
        // One completion per group, unless an operation fails.
        completions: u32::from(args.queue_pairs) * u32::from(args.depth) + 64,
        mtu: args.mtu(),
        rights: rights(verb),
        bytes: if verb == Verb::Send { 0 } else { span },
    })?;
    if args.bidirectional {
        let (read, memory) = (verb == Verb::Read, connection.own_key());
        for pair in &qps.all {
            connection.start_role(pair, TargetRole::Stream { read, bytes: size, group, memory })?;
        }
    }
    let row = Row::new(verb, args, point, connection.provider.capabilities().name);
    repeat(connection, qps, row, point, stop, |connection, qps| iterate(connection, qps, args, point, verb, stop))
}

fn iterate<P: Endpoint>(
    connection: &mut Connection<P>,
    qps: &QpSet,
    args: &Args,
    point: &Point,
    verb: Verb,
    stop: &AtomicBool,
) -> Result<Iteration> {
    let Point { size, group, .. } = *point;
    let elements: Vec<Element> = elements(connection, args.span(point), size);
    let requests: Vec<SendWr<'_>> = requests(&elements, qps, verb, size, group);
    let index_of: HashMap<u32, usize> = qps.all.iter().enumerate().map(|(index, pair)| (pair.qp.0, index)).collect();
    let mut next = vec![0; qps.all.len()];
    let mut times = Histogram::new();
    // Post times of the groups in flight, in the order of their completion.
    let mut in_flight = vec![VecDeque::with_capacity(args.depth.into()); qps.all.len()];

    let iteration = RunningIteration::open(connection, qps, point, stop)?;
    let (mut ended, mut over, mut groups, mut posted) = (iteration.start, false, 0_u64, 0_u64);
    let mut post = |connection: &mut Connection<P>, pair: usize| -> Result {
        let first: &mut usize = &mut next[pair];
        let group = &requests[*first..*first + usize::from(group)];
        connection.provider.post_send(qps.all[pair].qp, group).map_err(|(_, error)| error)?;
        *first = (*first + group.len()) % requests.len();
        Ok(())
    };
    for _ in 0..args.depth {
        for (pair, in_flight) in in_flight.iter_mut().enumerate() {
            in_flight.push_back(Instant::now());
            post(connection, pair)?;
            posted += 1;
        }
    }
    let mut poller = Poller::new(args.event, IDLE_POLLS);
    let mut done = [Completion::default(); BATCH];
    while groups < posted {
        let done = poller.poll(connection, qps, &mut done)?;
        if !done.is_empty() {
            // The clock is read once for a batch of completions and the groups that replace them.
            ended = Instant::now();
            over |= iteration.is_over(ended);
        } else if poller.checked {
            over |= iteration.is_over(Instant::now());
        }
        for completion in done {
            groups += 1;
            let pair = if index_of.len() == 1 { 0 } else { index_of.get(&completion.qp).copied().unwrap_or(0) };
            if let Some(since) = in_flight[pair].pop_front() {
                times.record(ended - since);
            }
            if !over {
                in_flight[pair].push_back(ended);
                post(connection, pair)?;
                posted += 1;
            }
        }
    }
    iteration.close(connection, qps, ended, groups * u64::from(group), size, times)
}

/// Returns one element for each operation of the span.
pub fn elements<P: Endpoint>(connection: &Connection<P>, span: u64, size: u32) -> Vec<Element> {
    let step = u64::from(size.max(8));
    let memory = connection.memory;
    let element = |index: u64| Element { address: memory.address + index * step, len: size, lkey: memory.lkey };
    (0..span / step).map(element).collect()
}

/// Returns one work request for each element. The last one of each group is signalled.
pub fn requests<'a>(elements: &'a [Element], qps: &QpSet, verb: Verb, size: u32, group: u16) -> Vec<SendWr<'a>> {
    let step = u64::from(size.max(8));
    let request = |(index, element): (usize, &'a Element)| {
        let remote = Remote { address: qps.key.address + index as u64 * step, rkey: qps.key.rkey };
        let signalled = (index + 1).is_multiple_of(usize::from(group));
        let data = Data::Elements(std::slice::from_ref(element));
        SendWr { signalled, destination: qps.to, ..SendWr::new(index as u64, operation(verb, remote), data) }
    };
    elements.iter().enumerate().map(request).collect()
}
