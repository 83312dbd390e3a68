//! `shotline export`: a recording as other programs of the field read it.

use crate::Result;
use crate::output::print_table;
use crate::progress::Progress;
use crate::signals::stop_flag;
use clap::ValueEnum;
use serde::Serialize;
use shotline_store::export::{Array, Exported, Format, Radio, Selection, ZarrOptions, export};
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
  shotline export nvme:/dev/ng0n1/run-1 run.h5                   (a recording on a raw device, as it is)
  shotline export run.h5 run.zarr --zstd 3 --chunk 1,2000,96 --shard 64
  shotline export run.h5 s3://bucket/runs/7 --format zarr        (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, ...)

Reads the recording shot by shot and writes as it reads. The result has its name only when it is whole. What the
recording lacks is said in the format's own way: NaN in UFF, masks in zea and Zarr, gaps in Digital RF, captures and
annotations in SigMF (docs/formats.md).")]
pub struct Args {
    /// The recording: a file, or nvme:DEVICE/NAME
    file: PathBuf,
    /// Where to: a file, a folder (digital-rf, zarr), or s3://bucket/prefix (zarr)
    to: PathBuf,
    /// What it becomes [default: as the name ends: .uff, .sigmf-meta, .zarr, .pcapng, .h5]
    #[arg(long, value_enum)]
    format: Option<Name>,
    /// The first shot number
    #[arg(long, value_name = "NUMBER")]
    from: Option<u64>,
    /// Shots of each link, at most
    #[arg(long, value_name = "N")]
    shots: Option<u64>,
    /// Links, by their place in the recording [default: all]
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    links: Vec<usize>,
    /// Replace what is there
    #[arg(long)]
    force: bool,
    #[command(flatten, next_help_heading = "Ultrasound (uff, zea)")]
    array: ArrayArgs,
    #[command(flatten, next_help_heading = "Radio (digital-rf, sigmf)")]
    radio: RadioArgs,
    #[command(flatten, next_help_heading = "Zarr")]
    zarr: ZarrArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct ArrayArgs {
    /// Distance from element to element
    #[arg(long, value_name = "MM", default_value_t = 0.3, value_parser = positive)]
    pitch_mm: f64,
    /// Width of an element [default: nine tenths of the pitch]
    #[arg(long, value_name = "MM", value_parser = positive)]
    width_mm: Option<f64>,
    /// Height of an element
    #[arg(long, value_name = "MM", default_value_t = 5.0, value_parser = positive)]
    height_mm: f64,
    /// Speed of sound
    #[arg(long, value_name = "M/S", default_value_t = 1540.0, value_parser = positive)]
    sound_speed: f64,
    /// Angles of the plane waves in degrees, in the order of transmission: one shot is one of them, a frame is all
    #[arg(long, value_name = "DEG,DEG", value_delimiter = ',', allow_hyphen_values = true, default_value = "0", value_parser = angle)]
    angles: Vec<f64>,
    /// Time from the transmission to the first sample
    #[arg(long, value_name = "US", default_value_t = 0.0, allow_hyphen_values = true, value_parser = finite)]
    initial_us: f64,
}

#[derive(clap::Args)]
struct RadioArgs {
    /// Channels are pairs: in phase, then in quadrature
    #[arg(long)]
    iq: bool,
    /// Centre frequency; of ultrasound that of the pulse [default there: 5]
    #[arg(long, value_name = "MHZ", value_parser = positive)]
    centre_mhz: Option<f64>,
}

#[derive(clap::Args)]
struct ZarrArgs {
    /// Shape of a chunk [default: whole shots, some hundred kilobytes]
    #[arg(long, value_name = "SHOTS,SAMPLES,CHANNELS", value_delimiter = ',', num_args = 1)]
    chunk: Vec<u64>,
    /// Shots of a shard, which is one file or object [default: about 32 MiB]
    #[arg(long, value_name = "SHOTS", value_parser = clap::value_parser!(u64).range(1..))]
    shard: Option<u64>,
    /// Compress with Zstandard at this level
    #[arg(long, value_name = "LEVEL", value_parser = clap::value_parser!(i32).range(-7..=22), allow_hyphen_values = true)]
    zstd: Option<i32>,
}

/// Formats by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// Ultrasound File Format of the UltraSound ToolBox (HDF5)
    Uff,
    /// zea's HDF5 format
    Zea,
    /// A folder of Digital RF
    DigitalRf,
    /// NAME.sigmf-meta and NAME.sigmf-data
    Sigmf,
    /// Zarr version 3, in a folder or an object store
    Zarr,
    /// The packets that the shots came in, for Wireshark
    Pcapng,
    /// The recording as it is, from a raw device
    Hdf5,
}

impl Name {
    fn of(to: &Path) -> Result<Self> {
        match to.extension().and_then(|extension| extension.to_str()) {
            Some("uff") => Ok(Self::Uff),
            Some("sigmf" | "sigmf-meta" | "sigmf-data") => Ok(Self::Sigmf),
            Some("zarr") => Ok(Self::Zarr),
            Some("pcapng") => Ok(Self::Pcapng),
            Some("h5") => Ok(Self::Hdf5),
            _ => {
                let to = to.display();
                Err(format!(
                    "the name {to} does not tell a format: add --format uff, zea, digital-rf, sigmf, zarr, pcapng or hdf5"
                )
                .into())
            }
        }
    }
}

#[derive(Serialize)]
struct Report<'a> {
    from: &'a Path,
    #[serde(flatten)]
    exported: &'a Exported,
}

/// Exports a recording.
pub fn run(args: &Args) -> Result {
    let format = format(args)?;
    let recording = Recording::open(&args.file)?;
    let selection = Selection { from: args.from, shots: args.shots, links: args.links.clone() };
    let stop = stop_flag()?;
    let bar = Progress::new("shots");
    let progress = |done, total| {
        bar.tell(done, total);
        if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let exported = export(&recording, &selection, &format, &args.to, args.force, &progress);
    drop(bar);
    let exported = exported?;
    if args.json {
        outln!("{}", serde_json::to_string(&Report { from: &args.file, exported: &exported })?);
    } else {
        print_table(&rows(&exported));
    }
    Ok(())
}

fn format(args: &Args) -> Result<Format> {
    let name = args.format.map_or_else(|| Name::of(&args.to), Ok)?;
    Ok(match name {
        Name::Uff => Format::Uff(array(args)),
        Name::Zea => Format::Zea(array(args)),
        Name::DigitalRf => Format::DigitalRf(radio(args)),
        Name::Sigmf => Format::SigMf(radio(args)),
        Name::Pcapng => Format::Pcapng,
        Name::Hdf5 => Format::Hdf5,
        Name::Zarr => {
            let chunk = match args.zarr.chunk[..] {
                [] => None,
                [shots, samples, channels] => Some([shots, samples, channels]),
                ref found => return Err(format!("--chunk: expected 3 numbers, found {}", found.len()).into()),
            };
            Format::Zarr(ZarrOptions { chunk, shard_shots: args.zarr.shard, zstd: args.zarr.zstd })
        }
    })
}

fn array(args: &Args) -> Array {
    let given = &args.array;
    let width_mm = given.width_mm.unwrap_or(given.pitch_mm * 0.9);
    Array {
        pitch_m: given.pitch_mm / 1e3,
        width_m: width_mm / 1e3,
        height_m: given.height_mm / 1e3,
        centre_hz: args.radio.centre_mhz.unwrap_or(5.0) * 1e6,
        sound_speed_m_s: given.sound_speed,
        angles_rad: given.angles.iter().map(|angle| angle.to_radians()).collect(),
        initial_time_s: given.initial_us / 1e6,
    }
}

fn finite(text: &str) -> std::result::Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| "expected a number".into())
}

/// A finite number above 0, of an option.
pub fn positive(text: &str) -> std::result::Result<f64, String> {
    let number = finite(text).ok().filter(|number| *number > 0.0);
    number.ok_or_else(|| "expected a number above 0".into())
}

fn angle(text: &str) -> std::result::Result<f64, String> {
    let number = finite(text).ok().filter(|degrees| (-90.0..=90.0).contains(degrees));
    number.ok_or_else(|| "expected -90 to 90 degrees".into())
}

fn radio(args: &Args) -> Radio {
    Radio { iq: args.radio.iq, centre_hz: args.radio.centre_mhz.map(|mhz| mhz * 1e6) }
}

fn rows(exported: &Exported) -> Vec<(String, String)> {
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
