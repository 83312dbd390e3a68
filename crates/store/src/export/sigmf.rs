//! SigMF 1.2: a pair of files per link, `NAME.sigmf-data` with the samples and `NAME.sigmf-meta` with the metadata.
//!
//! A capture segment begins at each discontinuity; `core:global_index` gives its position on the sender's sample
//! timeline, so lost shots are omitted from the data. Missing packets of a shot are zeros, marked by an annotation.
//! (<https://sigmf.org>, specification 1.2.)

use super::about::{FormatInfo, Losses, OptionKind, Target};
use super::destination::Destination;
use super::error::ExportError;
use super::options::{Options, Radio};
use super::shots::{Shots, missing, missing_instants};
use super::timeline::{Position, Timeline};
use crate::draft::Draft;
use crate::info::timestamp;
use crate::rows::{Row, State};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha512};
use shotline_wire::shot::{DropCause, Geometry, Packing};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

pub(super) const ABOUT: FormatInfo = FormatInfo {
    name: "sigmf",
    summary: "NAME.sigmf-meta and NAME.sigmf-data",
    extensions: &["sigmf-meta", "sigmf-data", "sigmf"],
    option_kind: OptionKind::Radio,
    target: Target::Pairs,
    losses: &[Losses::Gap, Losses::Mask],
    feature: None,
};
const FORMAT: &str = ABOUT.name;

pub(super) fn write(
    shots: &mut Shots<'_>,
    options: &Options,
    to: &Destination<'_>,
    notes: &mut Vec<String>,
) -> Result<u64, ExportError> {
    let radio = options.radio(&ABOUT)?;
    let links = shots.links().to_vec();
    let begin = |link: &usize| {
        let name = if links.len() == 1 { base(to.path) } else { suffixed(&base(to.path), &format!("-link{link}")) };
        let draft = |suffix| Destination { path: &suffixed(&name, suffix), ..*to }.draft();
        Ok((draft(".sigmf-data")?, draft(".sigmf-meta")?))
    };
    let (all_data, all_meta): (Vec<_>, Vec<_>) =
        links.iter().map(begin).collect::<Result<Vec<_>, ExportError>>()?.into_iter().unzip();
    for ((link, data), meta) in links.iter().zip(&all_data).zip(&all_meta) {
        write_link(shots, *link, radio, data.path(), meta.path(), notes)?;
    }
    let bytes = all_data.iter().chain(&all_meta).map(Draft::bytes).sum();
    // The metadata gets its name last, because SigMF readers start from the metadata.
    all_data.into_iter().chain(all_meta).try_for_each(Draft::finish)?;
    Ok(bytes)
}

/// Returns the path without a SigMF extension.
fn base(to: &Path) -> PathBuf {
    let extension = to.extension().and_then(|extension| extension.to_str());
    if extension.is_some_and(|extension| ABOUT.extensions.contains(&extension)) {
        to.with_extension("")
    } else {
        to.to_owned()
    }
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn write_link(
    shots: &mut Shots<'_>,
    link: usize,
    radio: &Radio,
    data: &Path,
    meta: &Path,
    notes: &mut Vec<String>,
) -> Result<(), ExportError> {
    let g = shots.link(link).geometry;
    let rate = shots.rate(link, FORMAT)?;
    let channels = usize::from(g.channels());
    if radio.iq && channels % 2 == 1 {
        let why = format!("pairs of I and Q need an even number of channels, found {channels}: export without --iq");
        return Err(ExportError::Unsupported { format: FORMAT, why });
    }
    let mut out = BufWriter::new(File::create_new(data).map_err(ExportError::io("create", data))?);
    let mut hash = Sha512::new();
    let mut bytes = Vec::new();
    shots.each(link, |shot| {
        if shot.row.state == State::Lost {
            return Ok(());
        }
        bytes.clear();
        match g.packing() {
            Packing::Uint8 => bytes.extend(shot.samples.iter().map(|sample| *sample as u8)),
            _ => bytes.extend(shot.samples.iter().flat_map(|sample| sample.to_le_bytes())),
        }
        hash.update(&bytes);
        out.write_all(&bytes).map_err(ExportError::io("write", data))
    })?;
    out.into_inner().map_err(|error| ExportError::io("write", data)(error.into_error()))?;
    let sha512: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let timeline = || Timeline::new(rate, g.samples(), shots.tai_minus_utc_ns());
    let metadata = Metadata { shots, link, radio, g, timeline: &timeline };
    let overlaps = metadata.write(&sha512, meta)?;
    if overlaps > 0 {
        notes.push(format!(
            "{overlaps} shots overlap the previous one by their timestamps: they are placed directly after it"
        ));
    }
    Ok(())
}

/// Metadata of a link.
struct Metadata<'a, 'b, L> {
    shots: &'a Shots<'b>,
    link: usize,
    radio: &'a Radio,
    g: Geometry,
    timeline: &'a L,
}

impl<L: Fn() -> Timeline> Metadata<'_, '_, L> {
    /// Writes the metadata in two passes over the tables, one for captures and one for annotations. Returns the number
    /// of overlapping shots.
    fn write(&self, sha512: &str, path: &Path) -> Result<u64, ExportError> {
        let failed = || ExportError::io("write", path);
        let file = File::create_new(path).map_err(ExportError::io("create", path))?;
        let mut out = BufWriter::new(file);
        write!(out, "{{\n  \"global\": {},\n  \"captures\": [", self.global(sha512)).map_err(failed())?;
        let (mut first, mut overlaps) = (true, 0);
        self.each_recorded(|at, row, position, lost| {
            overlaps += u64::from(position.overlaps);
            if !position.continues || first {
                write_item(&mut out, first, &self.capture(at, row, position, lost)).map_err(failed())?;
                first = false;
            }
            Ok(())
        })?;
        write!(out, "\n  ],\n  \"annotations\": [").map_err(failed())?;
        let mut first = true;
        self.each_recorded(|at, row, _, lost| {
            for annotation in self.annotations(at, row, lost) {
                write_item(&mut out, first, &annotation).map_err(failed())?;
                first = false;
            }
            Ok(())
        })?;
        out.write_all(b"\n  ]\n}\n").map_err(failed())?;
        out.into_inner().map_err(|error| failed()(error.into_error()))?;
        Ok(overlaps)
    }

    /// Calls `each` for every shot in the data file, with its sample offset, row and position, and the number of lost
    /// shots before it.
    fn each_recorded(
        &self,
        mut each: impl FnMut(u64, &Row, Position, u64) -> Result<(), ExportError>,
    ) -> Result<(), ExportError> {
        let (mut timeline, mut at, mut next) = ((self.timeline)(), 0, None);
        let start_ns = self.shots.run().start_tai_ns;
        self.shots.each_row(self.link, |_, row| {
            let position = timeline.position(row, start_ns);
            if row.state == State::Lost {
                next = next.or(Some(row.number));
                return Ok(());
            }
            let lost = next.map_or(0, |next| row.number.saturating_sub(next));
            next = Some(row.number + 1);
            each(at, row, Position { continues: position.continues && lost == 0, ..position }, lost)?;
            at += u64::from(self.g.samples());
            Ok(())
        })
    }

    fn global(&self, sha512: &str) -> Value {
        let (run, link, g) = (self.shots.run(), self.shots.link(self.link), self.g);
        let kind = if self.radio.iq { 'c' } else { 'r' };
        let datatype = if g.packing() == Packing::Uint8 { "u8" } else { "i16_le" };
        let channels = if self.radio.iq { g.channels() / 2 } else { g.channels() };
        let mut global = json!({
            "core:version": "1.2.0",
            "core:datatype": format!("{kind}{datatype}"),
            "core:sample_rate": g.sample_rate_hz(),
            "core:num_channels": channels,
            "core:sha512": sha512,
            "core:recorder": run.software,
            "core:description": format!("link {} of a recording: samples of {} consecutive shots", self.link, link.name),
            "core:extensions": [{"name": "shotline", "version": "1.0.0", "optional": true}],
            "shotline:run_id": run.run_id,
            "shotline:stream": link.stream,
            "shotline:link": link.name,
            "shotline:samples_per_shot": g.samples(),
            "shotline:bits": g.bits(),
            "shotline:tai_minus_utc_s": self.shots.tai_minus_utc_ns() / 1_000_000_000,
        });
        if let (Some(global), false) = (global.as_object_mut(), run.instrument.is_empty()) {
            global.insert("core:hw".into(), run.instrument.clone().into());
        }
        global
    }

    fn capture(&self, at: u64, row: &Row, position: Position, lost: u64) -> Value {
        let mut capture = Map::new();
        capture.insert("core:sample_start".into(), at.into());
        capture.insert("core:global_index".into(), position.start.into());
        // From the shot's own timestamp, exact to the nanosecond; without one, exact to the sample.
        let stamp =
            (row.stamp_tai_ns > 0).then(|| row.stamp_tai_ns.saturating_add_signed(-self.shots.tai_minus_utc_ns()));
        let utc_ns = stamp.unwrap_or_else(|| (self.timeline)().utc_ns(position.start));
        capture.insert("core:datetime".into(), timestamp(utc_ns).into());
        if let Some(hz) = self.radio.centre_hz {
            capture.insert("core:frequency".into(), hz.into());
        }
        capture.insert("shotline:number".into(), row.number.into());
        if lost > 0 {
            capture.insert("shotline:lost_before".into(), lost.into());
        }
        capture.into()
    }

    /// Returns the annotations of a shot: lost shots before it, the shot itself, and missing samples.
    fn annotations(&self, at: u64, row: &Row, lost: u64) -> Vec<Value> {
        let mut out = Vec::new();
        if lost > 0 {
            out.push(json!({
                "core:sample_start": at,
                "core:sample_count": 0,
                "core:label": "lost",
                "core:comment": format!("{lost} shots before number {} are lost: they are not in the data", row.number),
                "shotline:lost": lost,
            }));
        }
        out.push(json!({
            "core:sample_start": at,
            "core:sample_count": self.g.samples(),
            "core:label": format!("shot {}", row.number),
            "shotline:number": row.number,
            "shotline:stamp_tai_ns": row.stamp_tai_ns,
            "shotline:state": row.state.name(),
        }));
        let causes = causes(row);
        for range in missing_instants(&missing(row, &self.g), usize::from(self.g.channels())) {
            out.push(json!({
                "core:sample_start": at + range.start as u64,
                "core:sample_count": range.len(),
                "core:label": "missing",
                "core:comment": format!("packets are missing ({causes}): some or all of these samples are zeros in place of missing data"),
            }));
        }
        out
    }
}

fn write_item(out: &mut impl Write, first: bool, value: &Value) -> std::io::Result<()> {
    write!(out, "{}\n    {value}", if first { "" } else { "," })
}

/// Returns the drop causes of a shot, such as `wire_gap 2, bad_icrc 1`.
fn causes(row: &Row) -> String {
    let named = DropCause::ALL.into_iter().zip(row.drops).filter(|(_, count)| *count > 0);
    let named: Vec<String> = named.map(|(cause, count)| format!("{cause} {count}")).collect();
    if named.is_empty() { "cause unknown".into() } else { named.join(", ") }
}
