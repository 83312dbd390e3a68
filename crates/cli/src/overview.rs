//! `shotline` without arguments: what this machine has, and the commands that make sense next.

use crate::Result;
use crate::doctor::{self, State, size};
use crate::inspect::HDF5;
use crate::output::print_table_left;
use shotline_store::pcapng::is_capture;
use shotline_store::read::Recording;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Maximum number of directory entries that are examined.
const MAX_ENTRIES: usize = 4096;
/// Maximum number of files that are opened, the newest first.
const MAX_OPENED: usize = 3;

/// A file in the current folder that commands can read.
enum Found {
    Recording { is_finished: bool, rows: u64 },
    Capture,
}

/// Prints the overview.
pub fn run() -> Result {
    let checks = doctor::glance()?;
    let files = recent_files(Path::new("."));
    let newest = files.iter().take(MAX_OPENED).find_map(|file| Some((file, examine(file)?)));
    outln!("Shotline {}: every shot of a fast instrument, and every loss\n", env!("CARGO_PKG_VERSION"));
    outln!("This machine:");
    let mut rows: Vec<_> = checks.iter().map(|check| (check.name.to_owned(), check.found.clone())).collect();
    rows.push(("recordings here".into(), newest.as_ref().map_or("none".into(), |(file, found)| describe(file, found))));
    print_table_left(&rows);
    let flawed: Vec<_> = checks.iter().filter(|check| check.state != State::Ok).map(|check| check.name).collect();
    outln!("\nNext:");
    print_table_left(&suggestions(newest.as_ref().map(|(file, found)| (file.as_path(), found)), &flawed));
    outln!("\nshotline --help lists all commands, shotline COMMAND --help explains one.");
    Ok(())
}

/// Returns the files of a folder whose names are those of recordings or captures, the newest first.
fn recent_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().take(MAX_ENTRIES);
    let has_ending = |path: &Path| {
        path.extension().is_some_and(|ending| ["h5", "hdf5", "pcapng", "pcap"].iter().any(|known| ending == *known))
    };
    let mut files: Vec<_> = entries
        .filter(|entry| has_ending(&entry.path()))
        .filter_map(|entry| {
            let modified = entry.metadata().and_then(|metadata| metadata.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
            Some((modified, PathBuf::from(entry.path().file_name()?)))
        })
        .collect();
    files.sort_by(|a, b| b.cmp(a));
    files.into_iter().map(|(_, path)| path).collect()
}

/// Returns what a file is, if commands can read it.
fn examine(path: &Path) -> Option<Found> {
    let first = shotline_store::read_magic(path).ok()?;
    if is_capture(&first) {
        return Some(Found::Capture);
    }
    let recording = (first == HDF5).then(|| Recording::open(path).ok())??;
    let is_finished = recording.final_counters().is_ok_and(|counters| counters.is_some());
    Some(Found::Recording { is_finished, rows: recording.rows() })
}

fn describe(path: &Path, found: &Found) -> String {
    let bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    let what = match found {
        Found::Capture => "packet capture".to_owned(),
        Found::Recording { is_finished: true, rows } => format!("{rows} rows"),
        Found::Recording { is_finished: false, rows } => format!("{rows} rows, in progress or interrupted"),
    };
    format!("{} ({what}, {})", path.display(), size(bytes))
}

/// Returns commands and their purposes.
fn suggestions(newest: Option<(&Path, &Found)>, flawed: &[&str]) -> Vec<(String, String)> {
    let row = |command: String, purpose: &str| (command, purpose.to_owned());
    let mut rows = Vec::new();
    if let Some((path, found)) = newest {
        let path = quoted(path);
        rows.push(row(format!("shotline inspect {path}"), "what it contains"));
        match found {
            Found::Capture => {}
            Found::Recording { is_finished: true, .. } => {
                rows.push(row(format!("shotline verify {path}"), "check every sample, every loss, all counters"));
            }
            Found::Recording { is_finished: false, .. } => {
                rows.push(row(format!("shotline recover {path}"), "repair it, if no program writes it any more"));
            }
        }
    } else {
        rows.push(row("shotline demo".into(), "emulate a probe, record it, verify every sample and every loss"));
    }
    let mut names = (1..).map(|number: u32| if number == 1 { "run.h5".into() } else { format!("run-{number}.h5") });
    let out = names.find(|name| !Path::new(name).exists()).unwrap_or_default();
    rows.push(row(format!("shotline record --probe ADDRESS:47910 --out {out} --shots 1000"), "record a probe"));
    let doctor = match flawed {
        [] => "check this machine in detail".to_owned(),
        flawed => format!("how to improve: {}", flawed.join(", ")),
    };
    rows.push(("shotline doctor".into(), doctor));
    rows
}

/// Quotes a path for a shell, if it has other characters than those of usual names.
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_usual = |c: char| c.is_alphanumeric() || "._-+,:@%/".contains(c);
    let text = if text.starts_with('-') { format!("./{text}") } else { text };
    if text.chars().all(is_usual) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupted_recording_is_recovered_first() {
        let commands = |found: &Found| {
            let rows = suggestions(Some((Path::new("a run.h5"), found)), &["disk space"]);
            rows.into_iter().map(|(command, _)| command).collect::<Vec<_>>().join("\n")
        };
        let (finished, interrupted) = (true, false);
        let of = |is_finished| commands(&Found::Recording { is_finished, rows: 1 });
        assert!(of(finished).contains("verify 'a run.h5'") && !of(finished).contains("recover"));
        assert!(of(interrupted).contains("recover 'a run.h5'") && !of(interrupted).contains("verify"));
        assert!(!commands(&Found::Capture).contains("verify"));
    }

    #[test]
    fn suggested_paths_survive_a_shell() {
        for (path, word) in
            [("run-1.h5", "run-1.h5"), ("a b.h5", "'a b.h5'"), ("it's.h5", r"'it'\''s.h5'"), ("-x.h5", "./-x.h5")]
        {
            assert_eq!(quoted(Path::new(path)), word);
        }
    }
}
