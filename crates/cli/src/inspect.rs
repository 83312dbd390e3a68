//! `shotline inspect`: what is in a recording or a capture.

use crate::Result;
use crate::capture::{self, Capture};
use crate::output::print_table;
use serde::Serialize;
use shotline_store::Summary;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The first bytes of every HDF5 file of ours.
const HDF5: &[u8] = b"\x89HDF\r\n\x1a\n";
/// Losses and partial shots that are listed for people; `--json` has more.
const LISTED: usize = 10;

/// Arguments of `shotline inspect`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shotline inspect run.h5                        a recording, also while it runs
  shotline inspect run.h5 --json | jq .losses
  tcpdump -i eth0 -s 0 -w run.pcap udp port 4791
  shotline inspect run.pcap                      flows, opcodes, ICRC verdicts, shots and what they lack

Reads HDF5 recordings, pcap and pcapng.")]
pub struct Args {
    /// The recording or capture
    file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What the file turned out to be.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Found {
    Recording(Box<Summary>),
    Capture(Box<Capture>),
}

/// Inspects a file.
pub fn run(args: &Args) -> Result {
    let found = look(&args.file)?;
    if args.json {
        println!("{}", serde_json::to_string(&found)?);
        return Ok(());
    }
    match found {
        Found::Recording(summary) => print_table(&recording(&summary)),
        Found::Capture(capture) => print_capture(&capture),
    }
    Ok(())
}

fn look(path: &Path) -> Result<Found> {
    let mut first = Vec::new();
    File::open(path)
        .and_then(|file| file.take(8).read_to_end(&mut first))
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    if first == HDF5 {
        return Ok(Found::Recording(Box::new(shotline_store::inspect(path)?)));
    }
    if capture::is_capture(&first) {
        return Ok(Found::Capture(Box::new(capture::read(path)?)));
    }
    let hint = if first.starts_with(&[0x1F, 0x8B]) { "; it is compressed: gunzip it first" } else { "" };
    let found: String = first.iter().map(|byte| format!("{byte:02x} ")).collect();
    Err(format!(
        "{}: expected a recording (HDF5) or a capture (pcap, pcapng), found a file that begins with {}{hint}",
        path.display(),
        if found.is_empty() { "nothing: it is empty" } else { found.trim_end() }
    )
    .into())
}

fn recording(summary: &Summary) -> Vec<(String, String)> {
    let run = &summary.run;
    let utc = SystemTime::UNIX_EPOCH + Duration::from_nanos(run.start_utc_ns);
    let mut rows = vec![
        ("recording".to_owned(), summary.path.display().to_string()),
        ("from".into(), run.instrument.clone()),
        ("framing".into(), run.framing.clone()),
        ("begun".into(), humantime::format_rfc3339_seconds(utc).to_string()),
        ("made by".into(), run.software.clone()),
        ("ended in order".into(), crate::verify::yes(summary.finished)),
        ("bytes".into(), summary.file_bytes.to_string()),
        ("rows".into(), format!("{} of {} laid out", summary.rows, summary.laid_out)),
        ("time covered".into(), format!("{:.3} s", summary.seconds)),
    ];
    if let (Some(first), Some(last)) = (summary.first, summary.last) {
        rows.push(("shot numbers".into(), format!("{first} to {last}")));
    }
    for (link, info) in summary.links.iter().zip(&run.links) {
        let at = |what: &str| format!("stream {}: {what}", link.stream);
        let g = info.geometry;
        rows.push((
            at("shots of"),
            format!("{} channels x {} samples, {} bit, {} packets", g.channels(), g.samples(), g.bits(), g.packets()),
        ));
        rows.push((at("complete"), link.complete.to_string()));
        rows.push((at("partial"), link.partial.to_string()));
        rows.push((at("lost"), link.lost.to_string()));
        rows.extend(link.drops.iter().map(|(cause, count)| (at(&format!("packets {cause}")), count.to_string())));
    }
    rows.push(("runs of shots in no row".into(), summary.losses.len().to_string()));
    for loss in summary.losses.iter().take(LISTED) {
        let last = loss.first.saturating_add(loss.count.saturating_sub(1));
        let shots = if loss.count == 1 { loss.first.to_string() } else { format!("{} to {last}", loss.first) };
        rows.push((format!("stream {}: {}", loss.stream, loss.cause), shots));
    }
    rows
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
    for (what, n) in [("frames cut short", capture.cut_short), ("packets of further flows", capture.left_out)] {
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
        println!("\n{} -> {}, {to}", flow.source, flow.destination);
        print_table(&flow_rows(flow));
    }
    if let Some(damage) = &capture.damage {
        eprintln!("warning: {damage}; what stands before that is counted");
    }
    if capture.cut_short > 0 {
        eprintln!("warning: {} frames were cut short by the capture: capture with tcpdump -s 0", capture.cut_short);
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
        ("records that do not fit", shots.bad_record),
        ("duplicates", shots.duplicates),
        ("packets of no known shot", shots.unassigned),
    ] {
        if count > 0 {
            rows.push((what.into(), count.to_string()));
        }
    }
    for partial in shots.partial_shots.iter().take(LISTED) {
        let edge = if partial.at_edge { " (the capture's edge)" } else { "" };
        rows.push((format!("shot {} lacks packets{edge}", partial.shot), partial.missing.clone()));
    }
    rows
}
