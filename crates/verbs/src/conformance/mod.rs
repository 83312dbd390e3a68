//! What every provider must do: named checks over any pair of endpoints, and the table of who passes which.
//!
//! A provider brings a [`Fixture`], which opens endpoints that reach each other; [`run`] lets every check of [`all`] act
//! on fresh ones. A check says what it needs of the provider's [`Capabilities`]; where those lack it, the check is not
//! run and the table says so. [`page`] renders the outcomes as a page of the book.

mod atomics;
mod check;
mod errors;
mod messages;
mod one_sided;
mod queues;
mod remote_errors;
mod stage;
mod states;

pub use check::{Check, Needs};
pub use stage::{End, Fixture, Stage};

use crate::api::Capabilities;
use shotline_conformance::{Outcome, Report};
use std::fmt::Write;

/// Every check, in the order of the table.
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

/// What a provider says of itself, and the outcomes of the checks.
#[derive(Clone, Debug)]
pub struct Findings {
    /// What the provider says of itself.
    pub can: Capabilities,
    /// The outcome of each check, in the order of [`all`].
    pub report: Report,
}

/// Lets every check whose name contains `filter` act on fresh endpoints of a fixture.
///
/// # Panics
/// If the fixture opens no endpoints at all.
pub fn run(fixture: &dyn Fixture, filter: &str) -> Findings {
    let ends = fixture.open().unwrap_or_else(|why| panic!("{}: cannot open endpoints: {why}", fixture.name()));
    let can = fixture.capabilities(&ends);
    let lacking = |check: &Check| check.needs.iter().find_map(|needs| needs.lacking(&can, &ends));
    // The lacks are looked for here, before these endpoints make room for others at the same addresses.
    let chosen: Vec<_> =
        all().filter(|check| check.name.contains(filter)).map(|check| (check, lacking(&check))).collect();
    drop(ends);
    let outcome = |(check, lacking): (Check, Option<&'static str>)| {
        let outcome = match (lacking, Stage::open(fixture)) {
            (Some(why), _) => Outcome::cannot(why),
            (None, Err(why)) => Outcome::Failed(format!("cannot open endpoints: {why}")),
            (None, Ok(mut stage)) => Outcome::of((check.run)(&mut stage)),
        };
        (check.name, outcome)
    };
    let outcomes = chosen.into_iter().map(outcome).collect();
    Findings { can, report: Report { member: fixture.name().into(), outcomes } }
}

/// The outcomes of one provider as a column of the table: what a row is about, and what is in it.
pub fn column(findings: &Findings) -> Vec<(&'static str, String)> {
    let yes = |is_so: bool| String::from(if is_so { "yes" } else { "no" });
    let Findings { can, report } = findings;
    let mut rows = vec![
        ("", report.member.clone()),
        ("---", "---".into()),
        ("unreliable datagrams (UD)", yes(can.ud)),
        ("unreliable connections (UC)", yes(can.uc)),
        ("reliable connections (RC)", yes(can.rc)),
        ("the target's processor may sleep", yes(can.target_sleeps)),
        ("memory windows", yes(can.windows)),
        ("longest operation", format!("{} MiB", can.max_operation >> 20)),
    ];
    rows.extend(report.outcomes.iter().map(|(check, outcome)| {
        let cell = match outcome {
            Outcome::Passed => "yes".into(),
            Outcome::Cannot(why) => format!("no: {why}"),
            Outcome::Failed(_) => "**fails**".into(),
        };
        (*check, cell)
    }));
    rows
}

/// A column as text, a row a line, for those who find it elsewhere.
pub fn column_text(findings: &Findings) -> String {
    column(findings).iter().fold(String::new(), |text, (row, cell)| text + row + "\t" + cell + "\n")
}

/// The outcomes of several providers as a page of the book, one column each; `others` are columns as
/// [`column_text`] writes them. A row that such a column lacks is empty.
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
# What the providers can do

The verbs are the same over every provider. This table is what the conformance suite found: every provider does every
check, but where it says by itself that it cannot. *ibverbs, rxe* is a device of Linux's own RDMA stack, in a QEMU
guest. A test keeps this page as the suite finds it; to write it anew:

```sh
UPDATE=1 pytest tests/test_guest_endpoints.py -k does_what_the_verbs_say    # the device's column
UPDATE=1 cargo test -p shotline-verbs conformance::
```

";
