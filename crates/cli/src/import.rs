//! `shotline import`: converts files of other programs to a recording.

use crate::Result;
use crate::output::{Rows, print_report};
use crate::progress::Progress;
use crate::signals::stop_flag;
use serde::Serialize;
use shotline_store::import::{Format, ImportOptions, ImportReport, import};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Arguments of `shotline import`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shotline import capture.sigmf-meta run.h5
  shotline import radio run.h5 --channel ch0              a folder of Digital RF
  shotline import picmus.uff run.h5
  shotline import run.zarr again.h5                       (or s3://bucket/prefix) an export, including its losses
  shotline import rf.npy run.h5 --sample-rate-hz 40000000   (shot, sample, channel)

Every shot gets a number, a timestamp and an end-of-shot record, so the recording can be verified, replayed and exported
like any other. Values that are not 16-bit integers are scaled, and the factor is stored. Gaps are losses, and an
incomplete shot before a gap is a partial shot (docs/formats.md).")]
pub struct Args {
    #[arg(help = source_help())]
    from: PathBuf,
    /// The recording to create
    to: PathBuf,
    /// Samples per shot, for sources without shots [default: a divisor of their number, up to 16384]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    samples: Option<u32>,
    /// Sample rate in Hz, for sources that do not specify it
    #[arg(long, value_name = "HZ")]
    sample_rate_hz: Option<u32>,
    /// Channel of a Digital RF folder with several channels
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
    /// Factor from source values to samples [default: 1 for integers that fit, else the factor that makes them fit]
    #[arg(long, value_name = "FACTOR", value_parser = crate::array::positive)]
    scale: Option<f64>,
    /// Treat gaps of a source without shots as pauses, not as losses
    #[arg(long)]
    pauses: bool,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    from: &'a Path,
    #[serde(flatten)]
    imported: &'a ImportReport,
}

impl Rows for Report<'_> {
    fn rows(&self) -> Vec<(String, String)> {
        let Self { imported, .. } = self;
        let mut rows = vec![
            ("imported to".to_owned(), imported.to.display().to_string()),
            ("format".into(), imported.format.into()),
        ];
        let shapes = imported.channels.iter().zip(&imported.samples);
        rows.extend(
            shapes.map(|(channels, samples)| ("shots of".into(), format!("{channels} channels x {samples} samples"))),
        );
        rows.extend([
            ("scale".into(), imported.scale.to_string()),
            ("shots complete".into(), imported.complete.to_string()),
            ("shots partial".into(), imported.partial.to_string()),
            ("shots lost".into(), imported.lost.to_string()),
            ("bytes".into(), imported.file_bytes.to_string()),
        ]);
        rows.extend(imported.notes.iter().map(|note| ("note".into(), note.clone())));
        rows
    }
}

fn source_help() -> String {
    let sources: Vec<_> = Format::ALL.iter().map(|format| format.about().source).collect();
    format!("What to import: {}; s3://bucket/prefix names an object store", sources.join(", "))
}

/// Imports a recording.
pub fn run(args: &Args) -> Result {
    let options = ImportOptions {
        samples: args.samples,
        sample_rate_hz: args.sample_rate_hz,
        channel: args.channel.clone(),
        scale: args.scale,
        pauses: args.pauses,
        overwrite: args.force,
    };
    let stop = stop_flag()?;
    let bar = Progress::new("shots");
    let progress = |done, total| {
        bar.update(done, total);
        if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let imported = import(&args.from, &args.to, &options, &progress);
    drop(bar);
    let imported = imported?;
    print_report(args.json, &Report { from: &args.from, imported: &imported })
}
