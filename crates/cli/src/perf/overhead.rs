//! Processor time of posting and completing, without moving the bytes (Gibson et al., see [`super::paper`]: "the work
//! performed by the processor, for a single operation, is a copy of the descriptor to the work queue, a wait for the
//! completion via interrupt or polling, and a retrieval of the completion from the completion queue").
//!
//! Every operation is signalled. The time of the call that posts a group is measured, and that of the calls that poll
//! its completions. The time between them, in which the provider moves bytes and packets, is not measured, nor is an
//! empty poll, which is waiting.

use super::args::Args;
use super::connection::{Connection, QpRequirements};
use super::histogram::Histogram;
use super::measure::{Poller, RunningIteration, repeat};
use super::pairs::QpSet;
use super::point::{Point, Verb, rights};
use super::rate::{elements, requests};
use super::report::{Iteration, Row};
use crate::Result;
use shotline_verbs::api::{Completion, SendWr};
use shotline_verbs::cm::Endpoint;
use shotline_verbs::cm::message::Receives;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Maximum number of completions polled at once.
const BATCH: usize = 128;

/// Measures the overhead.
pub fn measure<P: Endpoint>(
    connection: &mut Connection<P>,
    args: &Args,
    point: &Point,
    verb: Verb,
    stop: &AtomicBool,
) -> Result<Row> {
    let group = u32::from(point.group);
    let receives =
        if verb == Verb::Send { Receives { count: point.group, bytes: point.size } } else { Receives::default() };
    let qps = connection.open(&QpRequirements {
        service: args.qp,
        pairs: 1,
        sends: group,
        receives: 1,
        target_receives: receives,
        target_sends: 0,
        completions: group,
        mtu: args.mtu(),
        rights: rights(verb),
        bytes: if verb == Verb::Send { 0 } else { args.span(point) },
    })?;
    let elements = elements(connection, args.span(point), point.size);
    let mut requests: Vec<SendWr<'_>> = requests(&elements, &qps, verb, point.size, point.group);
    requests.truncate(usize::from(point.group));
    requests.iter_mut().for_each(|request| request.signalled = true);
    let row = Row::new(verb, args, point, connection.provider.capabilities().name);
    repeat(connection, qps, row, point, stop, |connection, qps| iterate(connection, qps, &requests, point, stop))
}

fn iterate<P: Endpoint>(
    connection: &mut Connection<P>,
    qps: &QpSet,
    requests: &[SendWr<'_>],
    point: &Point,
    stop: &AtomicBool,
) -> Result<Iteration> {
    let qp = qps.all[0].qp;
    let mut poller = Poller::new(false, 1024);
    let mut done = [Completion::default(); BATCH];
    let iteration = RunningIteration::open(connection, qps, point, stop)?;
    let (mut posting, mut completing, mut operations) = (Duration::ZERO, Duration::ZERO, 0);
    while !iteration.is_over(Instant::now()) {
        let start = Instant::now();
        connection.provider.post_send(qp, requests).map_err(|(_, error)| error)?;
        posting += start.elapsed();
        let mut outstanding = requests.len();
        while outstanding > 0 {
            while connection.provider.progress()? {}
            let start = Instant::now();
            let done = poller.poll(connection, qps, &mut done)?.len();
            if done > 0 {
                completing += start.elapsed();
                outstanding -= done;
            }
        }
        operations += requests.len() as u64;
    }
    let each = |time: Duration| time.as_nanos() as f64 / operations.max(1) as f64;
    let overhead = (each(posting), each(completing));
    let mut iteration = iteration.close(connection, qps, Instant::now(), operations, point.size, Histogram::new())?;
    iteration.overhead_ns = Some(overhead);
    Ok(iteration)
}
