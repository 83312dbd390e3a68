//! `shotline perf`: rates, latencies and processor time of one-sided operations and messages.

mod args;
mod connection;
mod histogram;
mod latency;
mod matrix;
mod measure;
mod overhead;
mod paper;
mod point;
mod rate;
mod report;

pub use args::Args;

use crate::child::ChildTarget;
use crate::initiator::{self, Target, WithEndpoints};
use crate::{Result, interop, signals};
use connection::Connection;
use point::{Metric, Point};
use shotline_verbs::cm::{Client, Endpoint};
use shotline_verbs::provider::ProviderKind;
use std::sync::atomic::AtomicBool;

/// Runs all measurements.
pub fn run(args: &Args) -> Result {
    args.check()?;
    if let Some(program) = args.rdma_cm {
        args.cpu.map_or(Ok(()), shotline_acquire::cpu::pin)?;
        return interop::run(&args.interop_command(program)?);
    }
    let stop = signals::stop_flag()?;
    let plan = args.plan()?;
    let child = match &args.to {
        Some(_) => None,
        None => Some(ChildTarget::start(&args.transport, &args.target_arguments(&plan)?)?),
    };
    // Pinned only now, because the target would inherit it.
    args.cpu.map_or(Ok(()), shotline_acquire::cpu::pin)?;
    let to = match &child {
        Some(target) => (target.listen.clone(), target.token),
        None => (args.target()?, args.access.token()?),
    };
    let done = match &args.transport {
        // Its endpoint can lose packets on purpose.
        ProviderKind::Soft => {
            let provider = args.soft(&to.0)?;
            let client = initiator::connect(&args.transport, &to, Some(provider.address().ip()))?;
            measure(args, &plan, client, provider, &stop)
        }
        transport => initiator::with_endpoints(transport, args.bind, Measure { args, plan: &plan, to, stop: &stop }),
    };
    match (done, child) {
        (Ok(()), Some(target)) => target.end(),
        (done, _) => done,
    }
}

/// The measurements of a target.
struct Measure<'a> {
    args: &'a Args,
    plan: &'a [Point],
    to: Target,
    stop: &'a AtomicBool,
}

impl WithEndpoints for Measure<'_> {
    type Output = ();
    fn with<P: Endpoint + 'static>(self, connect: impl Fn(&Target) -> Result<(P, Client)>) -> Result {
        let (provider, client) = connect(&self.to)?;
        measure(self.args, self.plan, client, provider, self.stop)
    }
}

fn measure<P: Endpoint>(args: &Args, plan: &[Point], client: Client, provider: P, stop: &AtomicBool) -> Result {
    let mut rows = Vec::new();
    let span = plan.iter().map(|point| args.span(point)).max().unwrap_or(0);
    let mut connection = Connection::new(provider, client, args.region.as_deref(), &args.service_level, span)?;
    let mut last_error = None;
    for point in plan {
        if stop.load(std::sync::atomic::Ordering::Relaxed) {
            break;
        }
        let row = match point.metric {
            Metric::Rate(verb) => rate::measure(&mut connection, args, point, verb, stop)?,
            Metric::Latency(kind) => match latency::open(&mut connection, args, point, kind) {
                Ok(qps) => latency::measure(&mut connection, qps, args, point, kind, stop)?,
                Err(error) if args.operation.is_empty() => {
                    crate::output::warn(format_args!("{}: not measured: {error}", kind.name()));
                    last_error = Some(error);
                    continue;
                }
                Err(error) => return Err(error),
            },
            Metric::Overhead(verb) => overhead::measure(&mut connection, args, point, verb, stop)?,
        };
        if args.json {
            outln!("{}", serde_json::to_string(&row)?);
        } else {
            report::progress(&row);
        }
        rows.push(row);
    }
    if let Some(error) = last_error.filter(|_| rows.is_empty()) {
        return Err(error);
    }
    if !args.json {
        if args.matrix { matrix::print(&rows) } else { report::print(&rows) }
    }
    connection.end()
}
