//! `shotline list`: lists the registries of this build.

use crate::Result;
use crate::output::columns;
use shotline_display::DisplayKind;
use shotline_memory::RegionKind;
use shotline_store::{export, import};
use shotline_transport::inproc::InprocIo;
use shotline_verbs::provider::ProviderKind;
use shotline_wire::framing;
use shotline_wire::framing::Kind;
use shotline_wire::shot::DropCause;
use std::collections::BTreeMap;

/// Arguments of `shotline list`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shotline list                            everything
  shotline list transports                 transports of this build and their capabilities
  shotline list drop-causes                why packets or shots are missing
  shotline list drop-causes --json | jq -r '.[\"drop-causes\"][].cause'")]
pub struct Args {
    /// What to list [default: everything]
    #[arg(value_enum)]
    what: Option<Registry>,
    /// Print one JSON object: an array of rows for each registry
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print a page of documentation
    #[arg(long)]
    markdown: bool,
}

/// A registry of this build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Registry {
    /// How packets identify the shot and the offset of their payload
    Framings,
    /// How packets are sent and received
    Transports,
    /// How endpoints access remote memory
    Providers,
    /// Backing memory of regions
    Regions,
    /// Where images are shown
    Displays,
    /// Formats that a recording can be exported to
    Exports,
    /// Formats that a recording can be imported from
    Imports,
    /// Why packets or shots are missing
    DropCauses,
    /// Conformance checks of the members of each registry
    Checks,
}

/// The members of a registry, as a table.
struct Table {
    /// Name of the registry on the command line.
    name: &'static str,
    title: &'static str,
    header: &'static [&'static str],
    /// One row for each member, as long as the header.
    rows: Vec<Vec<String>>,
}

impl Registry {
    /// Every registry, in the order of the documentation page.
    const ALL: [Self; 9] = [
        Self::Framings,
        Self::Transports,
        Self::Providers,
        Self::Regions,
        Self::Displays,
        Self::Exports,
        Self::Imports,
        Self::DropCauses,
        Self::Checks,
    ];

    fn table(self) -> Table {
        match self {
            Self::Framings => {
                let rows = Kind::ALL.map(|kind| kind.cells().map(|cell| cell.to_string()));
                Table::of("framings", "Framings", &Kind::HEADER, rows)
            }
            Self::Transports => {
                let rows = shotline_backends::rows();
                Table::of("transports", "Transports", &shotline_backends::HEADER, rows)
            }
            Self::Providers => {
                Table::of("providers", "Providers of endpoints", &ProviderKind::HEADER, ProviderKind::rows())
            }
            Self::Regions => Table::of("regions", "Kinds of regions", &RegionKind::HEADER, RegionKind::rows()),
            Self::Displays => Table::of("displays", "Displays", &DisplayKind::HEADER, DisplayKind::rows()),
            Self::Exports => Table::of("exports", "Export formats", &export::HEADER, export::rows()),
            Self::Imports => Table::of("imports", "Import formats", &import::HEADER, import::rows()),
            Self::DropCauses => {
                let rows = DropCause::ALL
                    .map(|cause| [(cause as u8).to_string(), cause.name().to_owned(), cause.meaning().to_owned()]);
                Table::of("drop-causes", "Drop causes", &["number", "cause", "meaning"], rows)
            }
            Self::Checks => Table::of("checks", "Conformance checks", &["registry", "check"], checks()),
        }
    }
}

impl Table {
    fn of<const N: usize>(
        name: &'static str,
        title: &'static str,
        header: &'static [&'static str; N],
        rows: impl IntoIterator<Item = [String; N]>,
    ) -> Self {
        Self { name, title, header, rows: rows.into_iter().map(Vec::from).collect() }
    }
}

/// Returns the checks of every conformance suite, in the order of the registries.
fn checks() -> Vec<[String; 2]> {
    let framings = framing::conformance::CHECKS.iter().map(|check| ("framings", check.name));
    let transports = shotline_transport::conformance::all::<InprocIo, InprocIo>();
    let transports = transports.iter().map(|check| ("transports", check.proves));
    let providers = shotline_verbs::conformance::all().map(|check| ("providers", check.name));
    let regions = shotline_memory::conformance::CHECKS.iter().map(|check| ("regions", check.name));
    let displays = shotline_display::conformance::CHECKS.iter().map(|check| ("displays", check.name));
    let exports = export::conformance::all().map(|check| ("exports", check.proves));
    let all = framings.chain(transports).chain(providers).chain(regions).chain(displays).chain(exports);
    all.map(|(suite, check)| [suite, check].map(str::to_owned)).collect()
}

/// Prints registries.
pub fn run(args: &Args) -> Result {
    let tables = Registry::ALL.into_iter().filter(|registry| args.what.is_none_or(|what| what == *registry));
    let tables: Vec<_> = tables.map(Registry::table).collect();
    match (args.json, args.markdown) {
        (true, _) => outln!("{}", json(&tables)?),
        (false, true) => outln!("{}", markdown(&tables)),
        (false, false) => print(&tables),
    }
    Ok(())
}

fn print(tables: &[Table]) {
    for (index, table) in tables.iter().enumerate() {
        outln!("{}{}:", if index > 0 { "\n" } else { "" }, table.title);
        columns(table.header, &table.rows);
    }
}

fn json(tables: &[Table]) -> Result<String> {
    let row = |table: &Table, row: &[String]| -> BTreeMap<&str, String> {
        table.header.iter().copied().zip(row.iter().cloned()).collect()
    };
    let rows = |table: &Table| table.rows.iter().map(|cells| row(table, cells)).collect::<Vec<_>>();
    let all: BTreeMap<_, _> = tables.iter().map(|table| (table.name, rows(table))).collect();
    Ok(serde_json::to_string(&all)?)
}

fn markdown(tables: &[Table]) -> String {
    let mut page =
        "# What this build can do\n\nThe output of `shotline list --markdown`; a test compares the two.".to_owned();
    for table in tables {
        let line = |cells: &[String]| format!("| {} |", cells.join(" | "));
        let header: Vec<_> = table.header.iter().map(|name| (*name).to_owned()).collect();
        let rule = vec!["---".to_owned(); header.len()];
        let lines: Vec<_> = [&header, &rule].into_iter().chain(&table.rows).map(|cells| line(cells)).collect();
        page += &format!("\n\n## {}\n\n{}", table.title, lines.join("\n"));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum as _;

    #[test]
    fn every_registry_is_listed_under_its_name() {
        assert_eq!(Registry::ALL.as_slice(), Registry::value_variants());
        for registry in Registry::ALL {
            let table = registry.table();
            assert_eq!(registry.to_possible_value().unwrap().get_name(), table.name);
            assert!(table.rows.iter().all(|row| row.len() == table.header.len()), "{}", table.name);
            assert!(!table.rows.is_empty() && table.rows.iter().flatten().all(|cell| !cell.contains(['|', '\n'])));
        }
    }
}
