//! The table of all metrics in docs/metrics.md.

use super::{families, latencies};
use crate::metrics::{self, Format};
use crate::status::{Level, Phase, Status};
use shotline_acquire::ShotLatencies;
use shotline_acquire::align::LinkStatus;
use shotline_acquire::clock::Health;
use shotline_acquire::live::{Details, Live};
use shotline_acquire::run::stored_counter_names;
use shotline_store::recorder::WHOLE_RUN;
use shotline_store::shot::{RunCounters, StreamRunCounters};
use shotline_testing::is_update;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

const BEGIN: &str = "<!-- Generated: UPDATE=1 cargo test -p shotline-dashboard documented -->\n\n";
const END: &str = "\n<!-- End of the generated part -->";

/// Returns a state with every metric that a run can have.
fn with_everything() -> Status {
    let more = stored_counter_names().into_iter().map(|name| (name, 1)).collect();
    let streams = vec![
        StreamRunCounters { more, ..StreamRunCounters::default() },
        StreamRunCounters { stream: WHOLE_RUN, ..StreamRunCounters::default() },
    ];
    let details = Details {
        counters: RunCounters { streams },
        latencies: std::iter::once(ShotLatencies::default()).collect(),
        pool: (1, 2),
        clock: Health { locked: true, max_error_ns: 1, tai_minus_utc_s: 37 },
    };
    let live = Live::default();
    let mut link = LinkStatus::default();
    link.clock.at_ns = 1;
    let drive = Level { label: "Drive".into(), used: 1.0, capacity: 2.0, unit: "bytes".into(), high_is_bad: true };
    let families = [
        families::of_run(&live.read(), Some(&details)),
        families::of_links(&[link]),
        families::of_stages(&live.stages()),
        families::of_drives(&[("/data".into(), drive)]),
        families::of_progress(&live, Phase::Running, Some(0.5), 1.0),
    ];
    let families = families.into_iter().flatten().collect();
    Status { families, latencies: latencies(&details), ..Status::default() }
}

/// Returns the table of the metrics in a text of Prometheus' format.
fn table(text: &str) -> String {
    let mut labels = BTreeMap::<_, Vec<&str>>::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, rest) = line.split_once('{').unwrap_or((line, ""));
        let of_line = rest.split("\",").filter_map(|label| label.split_once("=\"")).map(|(label, _)| label);
        labels.insert(name.split(' ').next().unwrap_or_default(), of_line.filter(|label| *label != "le").collect());
    }
    let mut table = String::from("| metric | kind | labels | meaning |\n|---|---|---|---|\n");
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|line| line.split_once(' ')) else { continue };
        let kind = lines.next().and_then(|line| line.rsplit_once(' ')).map_or("", |(_, kind)| kind);
        let first = labels.get(name).or_else(|| labels.get(format!("{name}_bucket").as_str()));
        let words: Vec<_> = first.into_iter().flatten().map(|label| format!("`{label}`")).collect();
        let _ = writeln!(table, "| `{name}` | {kind} | {} | {help} |", words.join(", "));
    }
    table
}

#[test]
fn the_documented_metrics_are_those_of_a_run() {
    let text = metrics::text(with_everything().into(), "shotline 0.1.0", Format::Prometheus).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let document = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = document.split_once(BEGIN).expect("the table has a beginning");
    let (_, after) = rest.split_once(END).expect("the table has an end");
    let expected = [before, BEGIN, &table(&text), END, after].concat();
    if is_update() {
        std::fs::write(&path, expected).unwrap();
    } else {
        assert!(document == expected, "docs/metrics.md is old: UPDATE=1 cargo test -p shotline-dashboard documented");
    }
}

#[test]
fn every_name_and_help_follows_the_conventions() {
    let status = with_everything();
    for family in &status.families {
        let name = match family.unit {
            Some(unit) => format!("{}_{unit}", family.name),
            None => family.name.to_string(),
        };
        assert!(name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_'), "{name}");
        assert!(!["_total", "_count", "_sum", "_bucket", "_info"].iter().any(|end| name.ends_with(end)), "{name}");
        assert!(!["_ns", "_us", "_ms", "_gbps"].iter().any(|end| name.ends_with(end)), "base units only: {name}");
        assert!(family.help.len() > 12 && !family.help.ends_with('.'), "{name}: {}", family.help);
        assert!(!family.samples.is_empty(), "{name}");
        // Losses and other drops are two families.
        let same: Vec<_> = status.families.iter().filter(|other| other.name == family.name).collect();
        let is_apart = same.len() == 2 && same[0].is_loss != same[1].is_loss && same[0].help == same[1].help;
        assert!(same.len() == 1 || is_apart, "{name}");
    }
}
