//! What posting and completing cost the processor, apart from moving the bytes (paper 2: "the work performed by the
//! processor, for a single operation, is a copy of the descriptor to the work queue, a wait for the completion via
//! interrupt or polling, and a retrieval of the completion from the completion queue").
//!
//! Every operation completes visibly. Timed are the call that posts a group, and the calls that take its completions.
//! Not timed is what lies between, in which the provider moves bytes and packets, nor a poll that finds nothing, which
//! is waiting.

use super::args::Args;
use super::connection::{Connection, Need};
use super::drive::{elements, requests};
use super::point::{Point, Verb, rights};
use super::report::{Iteration, Row};
use super::times::Times;
use crate::Result;
use shotline_verbs::api::{Completion, SendWr, Status};
use shotline_verbs::cm::Endpoint;
use shotline_verbs::cm::message::Receives;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Completions taken at once.
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
    let lanes = connection.open(&Need {
        service: args.qp,
        pairs: 1,
        sends: group,
        receives: 1,
        target_receives: receives,
        target_sends: 0,
        completions: group,
        mtu: args.mtu,
        rights: rights(verb),
        bytes: if verb == Verb::Send { 0 } else { args.span(point) },
    })?;
    let elements = elements(connection, args.span(point), point.size);
    let mut requests: Vec<SendWr<'_>> = requests(&elements, &lanes, verb, point.size, point.group);
    requests.truncate(usize::from(point.group));
    requests.iter_mut().for_each(|request| request.signalled = true);
    let qp = lanes.all[0].qp;
    let mut row = Row::new(verb, args, point, connection.provider.capabilities().name);
    let mut done = [Completion::default(); BATCH];
    for _ in 0..point.iterations {
        let from = connection.moment(&lanes)?;
        let began = Instant::now();
        let (mut posting, mut completing, mut operations) = (Duration::ZERO, Duration::ZERO, 0);
        while began.elapsed() < point.seconds && !stop.load(Ordering::Relaxed) {
            let start = Instant::now();
            connection.provider.post_send(qp, &requests).map_err(|(_, error)| error)?;
            posting += start.elapsed();
            let (mut left, mut silent) = (requests.len(), 0);
            while left > 0 {
                while connection.provider.progress()? {}
                let start = Instant::now();
                let count = connection.provider.poll_cq(lanes.cq, &mut done)?;
                if count == 0 {
                    silent += 1;
                    if silent % 1024 == 0 {
                        connection.check()?;
                    }
                    continue;
                }
                completing += start.elapsed();
                if let Some(bad) = done[..count].iter().find(|completion| completion.status != Status::Success) {
                    return Err(connection.failed(bad));
                }
                left -= count;
            }
            operations += requests.len() as u64;
        }
        let took = began.elapsed();
        let to = connection.moment(&lanes)?;
        let each = |time: Duration| time.as_nanos() as f64 / operations.max(1) as f64;
        let mut iteration =
            Iteration::new(from, to, took, operations, operations * u64::from(point.size), Times::new());
        iteration.overhead_ns = Some((each(posting), each(completing)));
        row.iterations.push(iteration);
    }
    connection.close(lanes)?;
    row.sum_up();
    Ok(row)
}
