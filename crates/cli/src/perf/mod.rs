//! `shotline perf`: rates, latencies and processor time of one-sided operations and messages.

mod args;
mod connection;
mod histogram;
mod latency;
mod matrix;
mod measure;
mod overhead;
mod page;
mod pairs;
mod paper;
mod point;
mod rate;
mod report;
mod snapshot;

pub use args::Args;

use crate::child::ChildTarget;
use crate::serve::BoardPage;
use crate::{Result, interop, signals};
use connection::Connection;
use page::PerfPage;
use point::{Metric, Point};
use shotline_dashboard::BoardInfo;
use shotline_verbs::cm::{Client, Endpoint};
use shotline_verbs::connect::{ConnectError, Target, WithEndpoints};
use shotline_verbs::provider::ProviderKind;
use std::sync::Arc;
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
    let board = args.board(&stop)?;
    let page = PerfPage::new(board.board().cloned(), &plan);
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
            let client = args.transport.control(&to, Some(provider.address().ip()))?;
            measure(args, &plan, (client, provider), page, &stop)
        }
        transport => {
            let measure = Measure { args, plan: &plan, to, page, stop: &stop };
            transport.with_endpoints(args.bind, measure)
        }
    };
    let page = done?;
    child.map_or(Ok(()), ChildTarget::end)?;
    board.end(|| page.status(false), &stop);
    Ok(())
}

impl Args {
    /// Serves the page, if it is requested.
    fn board(&self, stop: &Arc<AtomicBool>) -> Result<BoardPage> {
        let to = self.to.as_deref().unwrap_or("a target in a child process");
        let settings: [(&'static str, String); 6] = [
            ("transport", self.transport.to_string()),
            ("service", page::service(self.qp).into()),
            ("queue pairs", self.queue_pairs.to_string()),
            ("depth", self.depth.to_string()),
            ("MTU", self.mtu().bytes().to_string()),
            ("completions", if self.event { "events" } else { "polling" }.into()),
        ];
        let info = BoardInfo {
            command: "perf".into(),
            title: format!("rates and latencies to {to}"),
            settings: settings.into_iter().map(|(name, value)| (name.into(), value)).collect(),
            stopping: "Ends the measurement: what was measured is reported.",
            ..BoardInfo::default()
        };
        self.page.board(info, Vec::new(), stop)
    }
}

/// The measurements of a target.
struct Measure<'a> {
    args: &'a Args,
    plan: &'a [Point],
    to: Target,
    page: PerfPage,
    stop: &'a AtomicBool,
}

impl WithEndpoints for Measure<'_> {
    type Output = Result<PerfPage>;
    fn with<P: Endpoint + Send + 'static>(
        self,
        connect: impl Fn(&Target) -> std::result::Result<(P, Client), ConnectError>,
    ) -> Result<PerfPage> {
        let (provider, client) = connect(&self.to)?;
        measure(self.args, self.plan, (client, provider), self.page, self.stop)
    }
}

fn measure<P: Endpoint>(
    args: &Args,
    plan: &[Point],
    (client, provider): (Client, P),
    page: PerfPage,
    stop: &AtomicBool,
) -> Result<PerfPage> {
    let mut rows = Vec::new();
    let span = plan.iter().map(|point| args.span(point)).max().unwrap_or(0);
    let mut connection = Connection::new(provider, client, args.region.as_deref(), &args.service_level, span, page)?;
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
                    connection.page.skip(point);
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
        connection.page.add_row(&row);
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
