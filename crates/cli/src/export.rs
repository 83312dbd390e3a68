//! `shotline export`: converts a recording to the formats of other programs.

use crate::Result;
use crate::array::{ArrayArgs, CentreArgs};
use crate::output::{Rows, print_report};
use crate::progress::Progress;
use crate::signals::stop_flag;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde::Serialize;
use shotline_compute::ultrasound::Array;
use shotline_store::export::{ExportReport, Format, OptionKind, Options, Radio, Selection, ZarrOptions, export};
use shotline_store::read::Recording;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Arguments of `shotline export`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shotline export run.h5 run.uff --pitch-mm 0.23 --centre-mhz 5.2 --angles=-12,0,12
  shotline export run.h5 run.hdf5 --format zea --links 0
  shotline export run.h5 run.sigmf-meta --iq --centre-mhz 1090
  shotline export run.h5 radio --format digital-rf --iq
  shotline export run.h5 run.pcapng
  shotline export nvme:/dev/ng0n1/run-1 run.h5                   (copy a recording from a raw device)
  shotline export run.h5 run.zarr --zstd 3 --chunk 1,2000,96 --shard 64
  shotline export run.h5 s3://bucket/runs/7 --format zarr        (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, ...)

Reads and writes shot by shot. The output gets its final name when it is complete. Missing samples are marked as the
format provides: NaN in UFF, masks in zea and Zarr, gaps in Digital RF, captures and annotations in SigMF
(docs/formats.md). If the probe described its array to the recording, that is the default for ultrasound.")]
pub struct Args {
    /// The recording: a file, or nvme:DEVICE/NAME
    file: PathBuf,
    /// Destination: a file, a folder (digital-rf, zarr), or s3://bucket/prefix (zarr)
    to: PathBuf,
    #[arg(long, help = format_help(), value_parser = format_parser())]
    format: Option<Format>,
    /// Number of the first shot
    #[arg(long, value_name = "NUMBER")]
    from: Option<u64>,
    /// Maximum number of shots of each link
    #[arg(long, value_name = "N")]
    shots: Option<u64>,
    /// Links, by index in the recording [default: all]
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    links: Vec<usize>,
    /// Replace an existing output
    #[arg(long)]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten, next_help_heading = "Ultrasound (uff, zea)")]
    array: ArrayArgs,
    #[command(flatten, next_help_heading = "Radio (digital-rf, sigmf)")]
    radio: RadioArgs,
    #[command(flatten, next_help_heading = "Ultrasound and radio (uff, zea, digital-rf, sigmf)")]
    centre: CentreArgs,
    #[command(flatten, next_help_heading = "Zarr")]
    zarr: ZarrArgs,
}

#[derive(clap::Args)]
struct RadioArgs {
    /// Channels are pairs: in-phase, then quadrature
    #[arg(long)]
    iq: bool,
}

#[derive(clap::Args)]
struct ZarrArgs {
    /// Shape of a chunk [default: complete shots, several hundred kilobytes]
    #[arg(long, value_name = "SHOTS,SAMPLES,CHANNELS", value_delimiter = ',', num_args = 1)]
    chunk: Vec<u64>,
    /// Shots per shard, which is one file or object [default: about 32 MiB]
    #[arg(long, value_name = "SHOTS", value_parser = clap::value_parser!(u64).range(1..))]
    shard: Option<u64>,
    /// Zstandard compression level
    #[arg(long, value_name = "LEVEL", value_parser = clap::value_parser!(i32).range(-7..=22), allow_hyphen_values = true)]
    zstd: Option<i32>,
}

#[derive(Serialize)]
struct Report<'a> {
    from: &'a Path,
    #[serde(flatten)]
    exported: &'a ExportReport,
}

impl Rows for Report<'_> {
    fn rows(&self) -> Vec<(String, String)> {
        let Self { exported, .. } = self;
        let mut rows = vec![
            ("exported to".to_owned(), exported.to.display().to_string()),
            ("format".into(), exported.format.into()),
            ("shots complete".into(), exported.complete.to_string()),
            ("shots partial".into(), exported.partial.to_string()),
            ("shots lost".into(), exported.lost.to_string()),
            ("samples missing in partial shots".into(), exported.missing_samples.to_string()),
            ("bytes".into(), exported.bytes.to_string()),
        ];
        rows.extend(exported.notes.iter().map(|note| ("note".into(), note.clone())));
        rows
    }
}

/// Exports a recording.
pub fn run(args: &Args) -> Result {
    let format = args.format.map_or_else(|| implied(&args.to), Ok)?;
    check_options(args, format)?;
    let recording = Recording::open(&args.file)?;
    let described = recording.run().array.map(Array::from).unwrap_or_default();
    let options = options(args, format, &described)?;
    let from = first_shot(args, format, &recording)?;
    let selection = Selection { from, shots: args.shots, links: args.links.clone() };
    let stop = stop_flag()?;
    let bar = Progress::new("shots");
    let progress = |done, total| {
        bar.update(done, total);
        if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let exported = export(&recording, &selection, (format, &options), &args.to, args.force, &progress);
    drop(bar);
    let exported = exported?;
    print_report(args.json, &Report { from: &args.file, exported: &exported })
}

/// Returns the number of the first shot to export: the given one, or the first of a whole frame if the recording
/// describes the plane waves and the format has frames.
fn first_shot(args: &Args, format: Format, recording: &Recording) -> Result<Option<u64>> {
    let run = recording.run();
    let is_known = format.about().option_kind == OptionKind::Array && !args.array.has_angles() && !run.by_stamp;
    let Some(array) = run.array.filter(|_| args.from.is_none() && is_known && recording.rows() > 0) else {
        return Ok(args.from);
    };
    // Rows without a number are at the end of the range of numbers, and have no next multiple.
    Ok(recording.row(0, 0)?.number.checked_next_multiple_of(array.waves.into()))
}

/// Joins names of formats: `uff, zea or zarr`.
fn names(formats: impl IntoIterator<Item = Format>) -> String {
    let names: Vec<_> = formats.into_iter().map(Format::name).collect();
    match &names[..] {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        names => names.concat(),
    }
}

fn format_help() -> String {
    let default = Format::ALL.iter().filter_map(|format| format.about().extensions.first());
    let default: Vec<_> = default.map(|ending| format!(".{ending}")).collect();
    format!("Output format [default: by the file name extension: {}]", default.join(", "))
}

fn format_parser() -> impl TypedValueParser<Value = Format> {
    let value = |format: &Format| PossibleValue::new(format.name()).help(format.about().summary);
    PossibleValuesParser::new(Format::ALL.iter().map(value))
        .try_map(|name| Format::named(&name).ok_or("expected the name of a format"))
}

fn implied(to: &Path) -> Result<Format> {
    Format::implied_by(to).ok_or_else(|| {
        let (to, all) = (to.display(), names(Format::ALL.iter().copied()));
        format!("the name {to} does not imply a format: add --format {all}").into()
    })
}

/// Returns the options that were given and that only some formats take, each with the kinds of formats that take it.
fn given(args: &Args) -> impl Iterator<Item = (&'static str, &'static [OptionKind])> {
    let RadioArgs { iq } = &args.radio;
    let ZarrArgs { chunk, shard, zstd } = &args.zarr;
    const ARRAY: &[OptionKind] = &[OptionKind::Array];
    const RADIO: &[OptionKind] = &[OptionKind::Radio];
    const ZARR: &[OptionKind] = &[OptionKind::Zarr];
    const BOTH: &[OptionKind] = &[OptionKind::Array, OptionKind::Radio];
    let all = [
        ("--iq", *iq, RADIO),
        ("--centre-mhz", args.centre.centre_mhz.is_some(), BOTH),
        ("--chunk", !chunk.is_empty(), ZARR),
        ("--shard", shard.is_some(), ZARR),
        ("--zstd", zstd.is_some(), ZARR),
    ];
    let others = all.into_iter().filter(|(_, given, _)| *given).map(|(name, _, kinds)| (name, kinds));
    args.array.given().map(|name| (name, ARRAY)).chain(others)
}

/// Checks that the format takes the given options.
fn check_options(args: &Args, format: Format) -> Result {
    let takes = format.about().option_kind;
    if let Some((option, kinds)) = given(args).find(|(_, kinds)| !kinds.contains(&takes)) {
        let supporting = names(kinds.iter().flat_map(|kind| Format::with_options(*kind)));
        return Err(format!("{} does not support {option}: omit it, or export to {supporting}", format.name()).into());
    }
    Ok(())
}

/// Returns the options of a format. What is not given of an array is as `described` by the recording.
fn options(args: &Args, format: Format, described: &Array) -> Result<Options> {
    Ok(match format.about().option_kind {
        OptionKind::Nothing => Options::Nothing,
        OptionKind::Array => Options::Array(args.array.array(&args.centre, described)),
        OptionKind::Radio => Options::Radio(radio(args)),
        OptionKind::Zarr => Options::Zarr(zarr(&args.zarr)?),
    })
}

fn zarr(given: &ZarrArgs) -> Result<ZarrOptions> {
    let chunk = match given.chunk[..] {
        [] => None,
        [shots, samples, channels] => Some([shots, samples, channels]),
        ref found => return Err(format!("--chunk: expected 3 numbers, found {}", found.len()).into()),
    };
    Ok(ZarrOptions { chunk, shard_shots: given.shard, zstd: given.zstd })
}

fn radio(args: &Args) -> Radio {
    Radio { iq: args.radio.iq, centre_hz: args.centre.hz() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    /// Every option that only some formats take, with a value and the kinds of formats that take it.
    const OPTIONS: [(&str, &[OptionKind]); 11] = [
        ("--pitch-mm=1", &[OptionKind::Array]),
        ("--width-mm=1", &[OptionKind::Array]),
        ("--height-mm=1", &[OptionKind::Array]),
        ("--sound-speed=1", &[OptionKind::Array]),
        ("--angles=1,2", &[OptionKind::Array]),
        ("--initial-us=0", &[OptionKind::Array]),
        ("--iq", &[OptionKind::Radio]),
        ("--centre-mhz=1", &[OptionKind::Array, OptionKind::Radio]),
        ("--chunk=1,1,1", &[OptionKind::Zarr]),
        ("--shard=1", &[OptionKind::Zarr]),
        ("--zstd=1", &[OptionKind::Zarr]),
    ];

    fn options_of(format: Format, more: &[&str]) -> Result<Options> {
        let words = ["export", "a.h5", "b", "--format", format.name()].into_iter().chain(more.iter().copied());
        let args = Cli::try_parse_from(words)?.args;
        check_options(&args, format)?;
        options(&args, format, &Array::default())
    }

    #[test]
    fn formats_refuse_options_of_other_formats() {
        for format in Format::ALL.iter().copied() {
            assert_eq!(options_of(format, &[]).unwrap().kind(), format.about().option_kind);
            for (option, kinds) in OPTIONS {
                match options_of(format, &[option]) {
                    Ok(options) => assert!(kinds.contains(&options.kind()), "{format:?} takes {option}"),
                    Err(refused) => {
                        assert!(!kinds.contains(&format.about().option_kind), "{format:?} refuses {option}: {refused}");
                        let takers = names(kinds.iter().flat_map(|kind| Format::with_options(*kind)));
                        let (name, option) = (format.name(), option.split('=').next().unwrap());
                        let expected = format!("{name} does not support {option}: omit it, or export to {takers}");
                        assert_eq!(refused.to_string(), expected);
                    }
                }
            }
        }
    }

    #[test]
    fn option_headings_name_their_formats() {
        let command = Cli::command();
        for argument in command.get_arguments().filter(|argument| argument.get_help_heading().is_some()) {
            let name = format!("--{}", argument.get_long().unwrap());
            let (_, kinds) = OPTIONS.iter().find(|(option, _)| option.split('=').next() == Some(&name)).unwrap();
            let heading = argument.get_help_heading().unwrap();
            let named = |kind: &OptionKind| {
                Format::with_options(*kind).all(|format| heading.to_lowercase().contains(format.name()))
            };
            assert!(kinds.iter().any(named), "{name}: {heading}");
        }
    }

    #[test]
    fn unknown_extension_lists_the_formats() {
        let refused = implied(Path::new("run.bin")).unwrap_err().to_string();
        assert!(refused.ends_with("add --format uff, zea, digital-rf, sigmf, zarr, pcapng or hdf5"), "{refused}");
    }

    #[test]
    fn array_options_override_the_defaults() {
        let Ok(Options::Array(array)) = options_of(Format::Uff, &["--pitch-mm=0.2"]) else { panic!("no array") };
        let default = Array::default();
        assert_eq!((array.pitch_m, array.width_m), (0.2e-3, 0.18e-3));
        assert_eq!((array.sound_speed_m_s, array.angles_rad), (default.sound_speed_m_s, default.angles_rad));
        let args = Cli::try_parse_from(["export", "a.h5", "b", "--angles=4"]).unwrap().args;
        let described = Array { pitch_m: 0.1e-3, width_m: 0.05e-3, angles_rad: vec![0.1, 0.2], ..Array::default() };
        let Options::Array(array) = options(&args, Format::Uff, &described).unwrap() else { panic!("no array") };
        assert_eq!(array, Array { angles_rad: vec![4_f64.to_radians()], ..described });
    }
}
