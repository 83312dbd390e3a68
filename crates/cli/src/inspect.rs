//! `shotline inspect`: shows what a recording or a capture contains.

use crate::Result;
use crate::array::ArrayReport;
use crate::capture::{self, Capture};
use crate::output::{Report, print_report, print_table};
use crate::plot;
use serde::Serialize;
use shotline_acquire::summary::chunk_rows;
use shotline_store::Summary;
use shotline_store::inspect::LossSummary;
use shotline_store::nvme::{self, Listing, Target};
use shotline_store::set::Removed;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Signature of an HDF5 file.
pub const HDF5: &[u8] = b"\x89HDF\r\n\x1a\n";
/// Maximum number of partial shots of a capture in the table; `--json` lists more.
const MAX_LISTED_SHOTS: usize = 10;
/// Maximum number of losses in the table; `--json` lists all.
const MAX_LISTED_LOSSES: usize = 40;

/// Arguments of `shotline inspect`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shotline inspect run.h5                        a recording, also while it runs
  shotline inspect run.h5 --json | jq .losses
  shotline inspect run.h5 --plot run.png         rate, drops, the first complete shot and its spectrum
  shotline inspect nvme:/dev/ng0n1               the recordings on a raw device
  tcpdump -i eth0 -s 0 -w run.pcap udp port 4791
  shotline inspect run.pcap                      flows, opcodes, ICRC verdicts, shots and missing packets
  shotline inspect run.pcap --roce-port 18515    RoCE to another port without valid ICRCs (with them it is detected)

Reads HDF5 recordings, raw devices with recordings, pcap and pcapng.")]
pub struct Args {
    /// Recording or capture
    file: PathBuf,
    /// Additional UDP port of RoCE in a capture, next to 4791, also with invalid ICRCs; may be repeated. Ports with a
    /// valid ICRC are detected
    #[arg(long, value_name = "PORT")]
    roce_port: Vec<u16>,
    /// Draw a recording into a PNG file: rate, drops, the first complete shot and its spectrum
    #[arg(long, value_name = "FILE.png")]
    plot: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Contents of the file.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Contents {
    Device(Box<Listing>),
    Recording(Box<Summary>),
    Capture(Box<Capture>),
}

impl Report for Contents {
    fn print(&self) -> Result {
        match self {
            Self::Device(listing) => print_device(listing),
            Self::Recording(summary) => {
                print_table(&recording(summary));
                print_losses(&summary.losses);
            }
            Self::Capture(capture) => print_capture(capture),
        }
        Ok(())
    }
}

/// Inspects a file.
pub fn run(args: &Args) -> Result {
    let found = read_contents(&args.file, &args.roce_port)?;
    if let Some(plot) = &args.plot {
        if !matches!(found, Contents::Recording(_)) {
            return Err(format!("expected a recording for --plot, found {}: omit --plot", args.file.display()).into());
        }
        refuse_to_overwrite_non_png(plot)?;
        plot::draw(&args.file, plot)?;
    }
    print_report(args.json, &found)
}

/// Refuses to overwrite a file that is not a PNG, so that swapped arguments cannot destroy a recording.
fn refuse_to_overwrite_non_png(path: &Path) -> Result {
    let mut first = Vec::new();
    let read = File::open(path).and_then(|file| file.take(8).read_to_end(&mut first));
    if read.is_ok() && first != *b"\x89PNG\r\n\x1a\n" {
        return Err(format!("{} exists and is not a PNG file: use another file for --plot", path.display()).into());
    }
    Ok(())
}

fn read_contents(path: &Path, roce_ports: &[u16]) -> Result<Contents> {
    if let Some(target) = Target::of(path) {
        return Ok(match target.run() {
            Some(_) => {
                crate::output::warn_of_device(path);
                Contents::Recording(Box::new(shotline_store::inspect(path)?))
            }
            None => Contents::Device(Box::new(nvme::list(&target)?)),
        });
    }
    let first = shotline_store::read_magic(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    if first == HDF5 {
        return Ok(Contents::Recording(Box::new(shotline_store::inspect(path)?)));
    }
    if shotline_store::pcapng::is_capture(&first) {
        return Ok(Contents::Capture(Box::new(capture::read(path, roce_ports)?)));
    }
    let hint = if first.starts_with(&[0x1F, 0x8B]) { "; it is compressed: gunzip it first" } else { "" };
    let found: String = first.iter().map(|byte| format!("{byte:02x} ")).collect();
    Err(format!(
        "{}: expected a recording (HDF5) or a capture (pcap, pcapng), found a file that starts with {}{hint}",
        path.display(),
        if found.is_empty() { "nothing: it is empty" } else { found.trim_end() }
    )
    .into())
}

fn print_device(listing: &Listing) {
    listing.warnings.iter().for_each(crate::output::warn);
    let mut rows = vec![
        ("device".to_owned(), listing.device.display().to_string()),
        ("serial number".into(), listing.serial.clone()),
        ("model".into(), listing.model.clone()),
        ("bytes".into(), listing.bytes.to_string()),
        ("bytes of a block".into(), listing.block_bytes.to_string()),
        ("bytes of a command".into(), listing.command_bytes.to_string()),
        ("volatile write cache".into(), crate::verify::yes_no(listing.volatile_cache)),
        ("largest free extent".into(), listing.largest_free_bytes.to_string()),
        ("runs".into(), listing.runs.len().to_string()),
    ];
    rows.retain(|(_, text)| !text.is_empty());
    print_table(&rows);
    for run in &listing.runs {
        let path = listing.device.join(&run.name);
        outln!();
        let mut rows = match shotline_store::inspect(&path) {
            Ok(summary) => vec![
                ("run".to_owned(), path.display().to_string()),
                ("from".into(), summary.run.instrument.clone()),
                ("ended cleanly".into(), crate::verify::yes_no(summary.finished)),
                ("rows".into(), format!("{} of {} allocated", summary.rows, summary.allocated_rows)),
            ],
            Err(error) => {
                vec![("run".to_owned(), path.display().to_string()), ("cannot be read".into(), error.to_string())]
            }
        };
        rows.push(("first byte".into(), run.at.to_string()));
        rows.push(("bytes".into(), run.bytes.to_string()));
        rows.retain(|(_, text)| !text.is_empty());
        print_table(&rows);
    }
}

fn recording(summary: &Summary) -> Vec<(String, String)> {
    let run = &summary.run;
    let utc = SystemTime::UNIX_EPOCH + Duration::from_nanos(run.start_utc_ns);
    let mut rows = vec![
        ("recording".to_owned(), summary.path.display().to_string()),
        ("from".into(), run.instrument.clone()),
        ("notes".into(), run.notes.clone()),
        ("by".into(), [run.operator.as_str(), run.host.as_str()].join(" on ").trim_start_matches(" on ").into()),
        ("run".into(), run.run_id.clone()),
        ("framing".into(), run.framing.clone()),
        ("started".into(), humantime::format_rfc3339_seconds(utc).to_string()),
        ("software".into(), run.software.clone()),
        ("ended cleanly".into(), crate::verify::yes_no(summary.finished)),
        ("bytes".into(), summary.file_bytes.to_string()),
        ("rows".into(), format!("{} of {} allocated", summary.rows, summary.allocated_rows)),
        ("time covered".into(), format!("{:.3} s", summary.seconds)),
    ];
    rows.extend(run.array.iter().flat_map(|array| ArrayReport::of(array).rows()));
    if let Some(codec) = run.codec {
        rows.push(("compression".into(), codec.to_string()));
        rows.extend(summary.chunks.iter().flat_map(chunk_rows));
    }
    if let Some(part) = run.part {
        let stripe =
            if part.stripes > 1 { format!(", drive {} of {}", part.stripe, part.stripes) } else { String::new() };
        rows.push(("part of a run".into(), format!("{}{stripe}", part.part)));
    }
    if !summary.parts.is_empty() {
        let parts = summary.parts.chunk_by(|a, b| a.part == b.part).count();
        rows.push(("files".into(), format!("{} of {parts} parts", summary.parts.len())));
        let failed = summary.parts.iter().filter(|file| file.state == shotline_store::set::State::Failed);
        rows.extend(failed.map(|file| ("failed drive".into(), file.file.clone())));
    }
    if summary.removed.rows > 0 {
        let Removed { rows: removed, first, last, .. } = summary.removed;
        rows.push(("rows removed".into(), format!("{removed}, shots {first} to {last}")));
    }
    rows.retain(|(_, text)| !text.is_empty());
    if let (Some(first), Some(last)) = (summary.first, summary.last) {
        rows.push(("shot numbers".into(), format!("{first} to {last}")));
    }
    for (link, info) in summary.links.iter().zip(&run.links) {
        let label = |what: &str| format!("stream {}: {what}", link.stream);
        let g = info.geometry;
        rows.push((
            label("shots of"),
            format!("{} channels x {} samples, {} bit, {} packets", g.channels(), g.samples(), g.bits(), g.packets()),
        ));
        rows.push((label("complete"), link.complete.to_string()));
        rows.push((label("partial"), link.partial.to_string()));
        rows.push((label("lost"), link.lost.to_string()));
        rows.extend(link.drops.iter().map(|(cause, count)| (label(&format!("packets {cause}")), count.to_string())));
    }
    rows.push(("shot ranges without a row".into(), summary.losses.len().to_string()));
    rows
}

/// Prints the ranges of shots that have no row, with their causes.
fn print_losses(losses: &[LossSummary]) {
    if losses.is_empty() {
        return;
    }
    let last = |loss: &LossSummary| loss.first.saturating_add(loss.count.saturating_sub(1));
    let row = |loss: &LossSummary| {
        [u64::from(loss.stream), loss.first, last(loss), loss.count].map(|number| number.to_string())
    };
    let shown = &losses[..losses.len().min(MAX_LISTED_LOSSES)];
    let names = ["stream", "first", "last", "shots"];
    let cause = shown.iter().map(|loss| loss.cause.len()).max().unwrap_or(0).max("cause".len());
    let width = |column: usize| shown.iter().map(|loss| row(loss)[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..4).map(|column| width(column).max(names[column].len())).collect();
    let print = |name: &str, cells: [String; 4]| {
        let cells: Vec<String> =
            cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}", width = *width)).collect();
        outln!("  {name:cause$}  {}", cells.join("  "));
    };
    outln!();
    print("cause", names.map(String::from));
    for loss in shown {
        print(loss.cause, row(loss));
    }
    if losses.len() > shown.len() {
        outln!("  and {} more: see --json", losses.len() - shown.len());
    }
}

fn print_capture(capture: &Capture) {
    let mut rows = vec![
        ("capture".to_owned(), capture.path.display().to_string()),
        ("frames".into(), capture.frames.to_string()),
        ("bytes on the wire".into(), capture.wire_bytes.to_string()),
        ("time covered".into(), format!("{:.6} s", capture.seconds)),
    ];
    let count = |name: String, count: &u64| (name, count.to_string());
    rows.extend(capture.other.iter().map(|(what, n)| count(format!("other: {what}"), n)));
    rows.extend(capture.malformed.iter().map(|(why, n)| count(format!("malformed: {why}"), n)));
    for (what, n) in
        [("frames truncated", capture.truncated_frames), ("packets of untracked flows", capture.untracked_packets)]
    {
        if n > 0 {
            rows.push(count(what.into(), &n));
        }
    }
    print_table(&rows);
    for flow in &capture.flows {
        let to = match (flow.dest_qp, flow.stream) {
            (Some(pair), _) => format!("queue pair {pair:#08x}"),
            (_, stream) => format!("stream {}", stream.unwrap_or(0)),
        };
        outln!("\n{} -> {}, {to}", flow.source, flow.destination);
        print_table(&flow_rows(flow));
    }
    if let Some(damage) = &capture.damage {
        crate::output::warn(format_args!("{damage}; only the preceding frames are counted"));
    }
    if capture.truncated_frames > 0 {
        crate::output::warn(format_args!(
            "{} frames were truncated by the capture: capture with tcpdump -s 0",
            capture.truncated_frames
        ));
    }
}

fn flow_rows(flow: &crate::capture::Flow) -> Vec<(String, String)> {
    let mut rows = vec![
        ("packets".to_owned(), flow.packets.to_string()),
        ("payload bytes".into(), flow.payload_bytes.to_string()),
    ];
    rows.extend(flow.opcodes.iter().map(|(name, count)| (name.clone(), count.to_string())));
    if flow.dest_qp.is_some() {
        rows.push(("ICRC good".into(), flow.icrc.good.to_string()));
        rows.push(("ICRC bad".into(), flow.icrc.bad.to_string()));
        if flow.icrc.unverified > 0 {
            rows.push(("ICRC unverified".into(), flow.icrc.unverified.to_string()));
        }
    }
    let (Some(framing), Some(shots)) = (flow.framing, &flow.shots) else { return rows };
    rows.push(("framing".into(), framing.into()));
    if let (Some(channels), Some(samples)) = (shots.channels, shots.samples) {
        rows.push(("shots of".into(), format!("{channels} channels x {samples} samples")));
    }
    if let Some(packets) = shots.packets_per_shot {
        rows.push(("packets per shot".into(), packets.to_string()));
    }
    rows.push(("shots complete".into(), shots.complete.to_string()));
    rows.push(("shots partial".into(), shots.partial.to_string()));
    rows.push(("packets missing".into(), shots.packets_missing.to_string()));
    for (what, count) in [
        ("end-of-shot records that do not match", shots.bad_record),
        ("duplicates", shots.duplicates),
        ("unassigned packets", shots.unassigned),
    ] {
        if count > 0 {
            rows.push((what.into(), count.to_string()));
        }
    }
    for partial in shots.partial_shots.iter().take(MAX_LISTED_SHOTS) {
        let edge = if partial.at_edge { " (at the edge of the capture)" } else { "" };
        rows.push((format!("shot {} lacks packets{edge}", partial.shot), partial.missing.clone()));
    }
    rows
}
