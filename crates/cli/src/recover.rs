//! `shotline recover`: repairs recordings that were interrupted.

use crate::Result;
use crate::output::{Rows, print_report};
use crate::progress::Progress;
use shotline_store::recover::{Change, Recovered};
use shotline_store::set::{RecoveredRun, recover};
use std::path::PathBuf;

/// Maximum number of ranges of shots that are printed for one file; `--json` lists all.
const MAX_LISTED: usize = 20;

/// Arguments of `shotline recover`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shotline recover run.h5
  shotline recover run.h5 --dry-run          show which files would be changed, truncated or removed, and change nothing
  shotline recover run.h5 --drive /mnt/b     a run over several drives: the master's folder, and one more
  shotline recover *.h5 --json | jq .incomplete

A recording opens even if its recorder was interrupted. This command reports which of its shots are complete (the
CRC of the end-of-shot record matches all bytes), which are not, and why. Shots that were written but not yet visible
are made visible; incomplete shots become lost, with the cause power_cut; and space allocated for more shots is
released. Files of a run of several are searched in its master's folder and in those of --drive, regardless of the
paths in the master; no file that contains a shot is removed. Afterwards `shotline verify` reports no errors.")]
pub struct Args {
    /// Recordings; for a run of several files, its master
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Folder with files of a run over several drives, in addition to its master's folder (may be repeated)
    #[arg(long, value_name = "FOLDER")]
    drive: Vec<PathBuf>,
    /// Change nothing
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object for each file, and one for a run of several files
    #[arg(long)]
    json: bool,
}

/// Recovers each recording, until the first error.
pub fn run(args: &Args) -> Result {
    for path in &args.files {
        crate::output::warn_of_device(path);
        let run = {
            let bar = Progress::new("rows");
            recover(path, &args.drive, args.dry_run, &|done, all| bar.update(done, all))?
        };
        for file in &run.files {
            print_report(args.json, file)?;
        }
        if run.master.is_some() {
            print_report(args.json, &run)?;
        }
        if !run.skipped.is_empty() {
            return Err(format!("{} files of {} were skipped", run.skipped.len(), path.display()).into());
        }
    }
    Ok(())
}

impl Rows for RecoveredRun {
    fn rows(&self) -> Vec<(String, String)> {
        let mut rows = vec![("rows of the run".to_owned(), self.rows.to_string())];
        if self.rows_after_gaps > 0 {
            rows.push(("rows after a gap on another drive, not in the run".into(), self.rows_after_gaps.to_string()));
        }
        let done = |what: &str| if self.dry_run { format!("would be {what}") } else { what.to_owned() };
        let master = self.master.iter().filter(|_| self.rewritten).collect::<Vec<_>>();
        let lists = [
            (done("rewritten"), master),
            (done("removed: holds no shot of the run"), self.removed.iter().collect()),
            ("unchanged: not part of the run".into(), self.unchanged.iter().collect()),
            ("SKIPPED: missing, unreadable, or of another run".into(), self.skipped.iter().collect()),
        ];
        for (what, files) in lists {
            rows.extend(files.iter().map(|file| (what.clone(), file.display().to_string())));
        }
        rows
    }
}

/// Describes the changes to a file.
fn changes(recovered: &Recovered) -> String {
    let words = recovered.changes.iter().map(|change| match change {
        Change::Repaired => "repaired",
        Change::Truncated => "truncated",
    });
    let words = words.collect::<Vec<_>>().join(", ");
    if words.is_empty() { "nothing".into() } else { words }
}

impl Rows for Recovered {
    fn rows(&self) -> Vec<(String, String)> {
        let mut rows = vec![
            ("recording".to_owned(), self.path.display().to_string()),
            ("rows that were visible".into(), self.rows_before.to_string()),
            ("adopted: complete, but not visible".into(), self.adopted.to_string()),
            ("rows rebuilt from their shots".into(), self.rebuilt.to_string()),
            ("rows".into(), self.rows.to_string()),
            ("shots complete".into(), self.complete.to_string()),
            ("shots partial".into(), self.partial.to_string()),
            ("shots lost".into(), self.lost.to_string()),
        ];
        for run in self.incomplete.iter().take(MAX_LISTED) {
            let last = run.first + run.count - 1;
            let numbers =
                if run.count == 1 { format!("shot {last}") } else { format!("shots {} to {last}", run.first) };
            rows.push((format!("  stream {}, {numbers}: {}", run.stream, run.cause), run.count.to_string()));
        }
        if self.incomplete.len() > MAX_LISTED {
            rows.push(("  and further ranges (see --json)".into(), (self.incomplete.len() - MAX_LISTED).to_string()));
        }
        rows.push(("rows released".into(), self.released_rows.to_string()));
        rows.push(("bytes of the file".into(), self.file_bytes.to_string()));
        let changed = if self.dry_run { "would be changed" } else { "changed" };
        rows.push((changed.into(), changes(self)));
        rows
    }
}
