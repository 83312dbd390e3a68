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
pub use stage::{End, Failure, Fixture, Stage};

use crate::api::Capabilities;
use std::fmt::Write;

/// Every check by what it is about, in the order of the table.
pub const GROUPS: [(&str, &[Check]); 7] = [
    ("messages", messages::CHECKS),
    ("one-sided operations", one_sided::CHECKS),
    ("atomic operations", atomics::CHECKS),
    ("queues", queues::CHECKS),
    ("states", states::CHECKS),
    ("errors", errors::CHECKS),
    ("errors of the peer", remote_errors::CHECKS),
];

/// Every check, in the order of the table.
pub fn all() -> impl Iterator<Item = Check> {
    GROUPS.into_iter().flat_map(|(_, checks)| checks).copied()
}

/// What became of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The provider does it.
    Passed,
    /// The provider says that it cannot, and why.
    Cannot(&'static str),
    /// It does not.
    Failed(Failure),
}

/// The outcomes of one provider, in the order of [`all`].
#[derive(Clone, Debug)]
pub struct Report {
    /// The fixture's name.
    pub name: &'static str,
    /// What the provider says of itself.
    pub can: Capabilities,
    /// A check's name and what became of it.
    pub outcomes: Vec<(&'static str, Outcome)>,
}

impl Report {
    /// The checks that failed, one a line; empty if none did.
    pub fn failures(&self) -> String {
        let failed = self.outcomes.iter().filter_map(|(check, outcome)| match outcome {
            Outcome::Failed(why) => Some(format!("{}: {check}: {why}\n", self.name)),
            Outcome::Passed | Outcome::Cannot(_) => None,
        });
        failed.collect()
    }
}

/// Lets every check whose name contains `filter` act on fresh endpoints of a fixture.
///
/// # Panics
/// If the fixture opens no endpoints at all.
pub fn run(fixture: &dyn Fixture, filter: &str) -> Report {
    let ends = fixture.open().unwrap_or_else(|why| panic!("{}: cannot open endpoints: {why}", fixture.name()));
    let can = fixture.capabilities(&ends);
    let lacking = |check: &Check| check.needs.iter().find_map(|needs| needs.lacking(&can, &ends));
    // The lacks are looked for here, before these endpoints make room for others at the same addresses.
    let chosen: Vec<_> =
        all().filter(|check| check.name.contains(filter)).map(|check| (check, lacking(&check))).collect();
    drop(ends);
    let outcome = |(check, lacking): (Check, Option<&'static str>)| {
        let outcome = match (lacking, Stage::open(fixture)) {
            (Some(why), _) => Outcome::Cannot(why),
            (None, Err(why)) => Outcome::Failed(format!("cannot open endpoints: {why}")),
            (None, Ok(mut stage)) => (check.run)(&mut stage).map_or_else(Outcome::Failed, |()| Outcome::Passed),
        };
        (check.name, outcome)
    };
    Report { name: fixture.name(), can, outcomes: chosen.into_iter().map(outcome).collect() }
}

/// The outcomes of one provider as a column of the table: what a row is about, and what is in it.
pub fn column(report: &Report) -> Vec<(&'static str, String)> {
    let yes = |is_so: bool| String::from(if is_so { "yes" } else { "no" });
    let can = &report.can;
    let mut rows = vec![
        ("", report.name.into()),
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
pub fn column_text(report: &Report) -> String {
    column(report).iter().fold(String::new(), |text, (row, cell)| text + row + "\t" + cell + "\n")
}

/// The outcomes of several providers as a page of the book, one column each; `others` are columns as
/// [`column_text`] writes them. A row that such a column lacks is empty.
pub fn page(reports: &[Report], others: &[&str]) -> String {
    let mut out = String::from(INTRODUCTION);
    let columns: Vec<_> = reports.iter().map(column).collect();
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
