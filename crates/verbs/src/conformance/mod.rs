//! Conformance suite of the providers: named checks over any pair of endpoints, and a table of the results.
//!
//! A provider implements a [`Fixture`], which opens connected endpoints; [`run`] runs every check of [`all`] on fresh
//! ones. A check states its requirements on the provider's [`Capabilities`]; if they are not met, the check is skipped
//! and the table says so. [`page`] renders the outcomes as a page of the documentation.

mod atomics;
mod check;
mod errors;
mod harness;
mod messages;
mod one_sided;
mod queues;
mod remote_errors;
mod states;

pub use check::{Check, Needs};
pub use harness::{End, Fixture, Harness};

use crate::api::Capabilities;
use shotline_conformance::{Outcome, Report};
use std::fmt::Write;

/// Returns all checks, in the order of the table's rows.
pub fn all() -> impl Iterator<Item = Check> {
    let groups = [
        messages::CHECKS,
        one_sided::CHECKS,
        atomics::CHECKS,
        queues::CHECKS,
        states::CHECKS,
        errors::CHECKS,
        remote_errors::CHECKS,
    ];
    groups.into_iter().flatten().copied()
}

/// Capabilities that a provider reports, and the outcomes of its checks.
#[derive(Clone, Debug)]
pub struct Findings {
    /// Capabilities that the provider reports.
    pub capabilities: Capabilities,
    /// Outcome of each check, in the order of [`all`].
    pub report: Report,
}

/// Runs every check whose name contains `filter`, on fresh endpoints of a fixture.
///
/// # Panics
/// If the fixture cannot open endpoints for the capability query.
pub fn run(fixture: &dyn Fixture, filter: &str) -> Findings {
    let ends = fixture.open().unwrap_or_else(|reason| panic!("{}: cannot open endpoints: {reason}", fixture.name()));
    let capabilities = fixture.capabilities(&ends);
    let lacking = |check: &Check| check.needs.iter().find_map(|needs| needs.lacking(&capabilities, &ends));
    // Determined before these endpoints are dropped, which frees their addresses for others.
    let chosen: Vec<_> =
        all().filter(|check| check.name.contains(filter)).map(|check| (check, lacking(&check))).collect();
    drop(ends);
    let outcome = |(check, lacking): (Check, Option<&'static str>)| {
        let outcome = match (lacking, Harness::open(fixture)) {
            (Some(reason), _) => Outcome::not_run(reason),
            (None, Err(reason)) => Outcome::Failed(format!("cannot open endpoints: {reason}")),
            (None, Ok(mut harness)) => Outcome::of((check.run)(&mut harness)),
        };
        (check.name, outcome)
    };
    let outcomes = chosen.into_iter().map(outcome).collect();
    Findings { capabilities, report: Report { member: fixture.name().into(), outcomes } }
}

/// Returns the outcomes of one provider as a column of the table, in pairs of row title and cell.
pub fn column(findings: &Findings) -> Vec<(&'static str, String)> {
    let yes = |is_set: bool| String::from(if is_set { "yes" } else { "no" });
    let Findings { capabilities, report } = findings;
    let mut rows = vec![
        ("", report.member.clone()),
        ("---", "---".into()),
        ("unreliable datagrams (UD)", yes(capabilities.ud)),
        ("unreliable connections (UC)", yes(capabilities.uc)),
        ("reliable connections (RC)", yes(capabilities.rc)),
        ("the target's CPU is not involved", yes(capabilities.target_cpu_is_idle)),
        ("memory windows", yes(capabilities.windows)),
        ("maximum operation length", format!("{} MiB", capabilities.max_operation >> 20)),
    ];
    rows.extend(report.outcomes.iter().map(|(check, outcome)| {
        let cell = match outcome {
            Outcome::Passed => "yes".into(),
            Outcome::NotRun(reason) => format!("no: {reason}"),
            Outcome::Failed(_) => "**fails**".into(),
        };
        (*check, cell)
    }));
    rows
}

/// Returns a column as text, one row per line, to be stored for [`page`].
pub fn column_text(findings: &Findings) -> String {
    column(findings).iter().fold(String::new(), |text, (row, cell)| text + row + "\t" + cell + "\n")
}

/// Renders the outcomes of several providers as a page of the documentation, one column each; `others` are columns
/// written by [`column_text`]. A row that such a column lacks is empty.
pub fn page(findings: &[Findings], others: &[&str]) -> String {
    let mut out = String::from(INTRODUCTION);
    let columns: Vec<_> = findings.iter().map(column).collect();
    let others: Vec<Vec<_>> =
        others.iter().map(|text| text.lines().filter_map(|line| line.split_once('\t')).collect()).collect();
    let Some(first) = columns.first() else { return out };
    for (index, (name, _)) in first.iter().enumerate() {
        let ours = columns.iter().filter_map(|column| column.get(index)).map(|(_, cell)| cell.as_str());
        let theirs =
            others.iter().map(|column| column.iter().find(|(row, _)| row == name).map_or("", |(_, cell)| cell));
        let cells: String = ours.chain(theirs).map(|cell| format!(" {cell} |")).collect();
        _ = writeln!(out, "| {name} |{cells}");
    }
    out
}

const INTRODUCTION: &str = "\
# Capabilities of the providers

The verbs are the same with every provider. This table has the results of the conformance suite: a provider passes a
check, or lacks the capability that the check needs. *ibverbs, rxe* is Linux's software RoCE device, in a QEMU guest. A
test compares this page with the results; to update it:

```sh
UPDATE=1 pytest tests/test_guest_endpoints.py -k conforms_to_the_verbs    # the device's column
UPDATE=1 cargo test -p shotline-verbs conformance::
```

";
