//! Checks of the exported contents: received samples and losses.

use super::check::Check;
use super::stage::{Counts, Stage, proceed};
use crate::export::shots::Shots;
use crate::export::{Format, Losses, Selection};
use crate::import::{ImportOptions, ImportReport, import};
use crate::pcapng::{self, Datagram};
use crate::read::Recording;
use crate::verify::{VerifyOptions, verify};
use shotline_conformance::{Failure, Outcome, ensure, ensure_eq, failed};
use shotline_wire::framing::Kind;
use shotline_wire::roce::ICRC_LEN;
use std::collections::BTreeMap;
use std::path::Path;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "shot counts match the recording",
        proves: "the export reports as many complete, partial and lost shots as the recording has",
        run: shot_counts_match,
    },
    Check {
        name: "received samples are read back exactly",
        proves: "an importer, or a reader, finds every sample that was received, in order, and no other: no missing \
                 sample is read as a zero",
        run: samples_are_read_back,
    },
    Check {
        name: "missing samples are read back as missing",
        proves: "a format that marks missing samples gives the same number of partial and lost shots",
        run: losses_are_read_back,
    },
];

fn shot_counts_match(stage: &Stage<'_>) -> Result<Outcome, Failure> {
    let exported = stage.exported()?;
    let Counts { complete, partial, lost } = stage.fixture.counts();
    let links = exported.links as u64;
    let found = (exported.complete, exported.partial, exported.lost);
    let expected = (links * complete, links * partial, links * lost);
    ensure!(found == expected, "expected {expected:?} complete, partial and lost shots, found {found:?}");
    ensure!(
        (exported.missing_samples > 0) == (partial > 0),
        "the report has {} missing samples",
        exported.missing_samples
    );
    ensure!(
        exported.format == stage.format.name() && exported.to == stage.to(),
        "the report names another format or destination"
    );
    Ok(Outcome::Passed)
}

fn samples_are_read_back(stage: &Stage<'_>) -> Result<Outcome, Failure> {
    stage.exported()?;
    match stage.format {
        Format::Uff | Format::Zea | Format::DigitalRf | Format::SigMf | Format::Zarr => {
            let (again, _) = imported(stage)?;
            same_samples(&stage.recording, &again)?;
        }
        Format::Hdf5 => {
            verified(&stage.to())?;
            same_samples(&stage.recording, &Recording::open(&stage.to()).map_err(failed("open the export"))?)?;
        }
        Format::Pcapng => same_packets(stage)?,
    }
    Ok(Outcome::Passed)
}

fn losses_are_read_back(stage: &Stage<'_>) -> Result<Outcome, Failure> {
    let expected = stage.fixture.counts();
    let losses = stage.format.about().losses;
    ensure!(!losses.is_empty(), "the format does not mark missing samples");
    match stage.format {
        Format::Uff | Format::Zea | Format::SigMf | Format::Zarr => {
            stage.exported()?;
            let (_, ImportReport { complete, partial, lost, .. }) = imported(stage)?;
            let found = Counts { complete, partial, lost };
            ensure!(found == expected, "expected {expected:?}, found {found:?}");
            Ok(Outcome::Passed)
        }
        Format::DigitalRf | Format::Pcapng => {
            ensure!(losses == [Losses::Gap], "expected gaps");
            Ok(Outcome::not_run("a gap does not identify its shots"))
        }
        Format::Hdf5 => Ok(Outcome::not_run("it is the recording itself")),
    }
}

/// Imports an export and verifies the resulting recording.
fn imported(stage: &Stage<'_>) -> Result<(Recording, ImportReport), Failure> {
    let again = stage.fixture.folder()?.join("again.h5");
    let imported = import(&stage.to(), &again, &ImportOptions::default(), &proceed).map_err(failed("import"))?;
    ensure!(imported.format == stage.format.name(), "it is recognised as {}", imported.format);
    ensure!(imported.omitted_samples == 0, "{} samples are omitted", imported.omitted_samples);
    verified(&again)?;
    Ok((Recording::open(&again).map_err(failed("open the imported recording"))?, imported))
}

fn verified(path: &Path) -> Result<(), Failure> {
    let verdict = verify(path, &VerifyOptions::default()).map_err(failed("verify the imported recording"))?;
    ensure!(verdict.verified, "the imported recording is not valid: {verdict:?}");
    Ok(())
}

fn same_samples(recording: &Recording, again: &Recording) -> Result<(), Failure> {
    let (expected, found) = (received(recording)?, received(again)?);
    ensure!(expected.len() == found.len(), "expected {} samples, found {}", expected.len(), found.len());
    let other = expected.iter().zip(&found).position(|(expected, found)| expected != found);
    match other {
        Some(at) => Err(format!("sample {at} of link 0: expected {}, found {}", expected[at], found[at])),
        None => Ok(()),
    }
}

/// Returns the received samples of link 0, shot after shot.
fn received(recording: &Recording) -> Result<Vec<i16>, Failure> {
    let selection = Selection { links: vec![0], ..Selection::default() };
    let mut samples = Vec::new();
    let mut shots = Shots::new(recording, &selection, &proceed).map_err(failed("read the shots"))?;
    shots
        .each(0, |shot| {
            let mut next = 0;
            for missing in shot.missing {
                samples.extend(&shot.samples[next..missing.start]);
                next = missing.end;
            }
            samples.extend(&shot.samples[next..]);
            Ok(())
        })
        .map_err(failed("read the samples"))?;
    Ok(samples)
}

/// Fails unless a capture contains exactly the payloads of the received packets of each link, in order.
fn same_packets(stage: &Stage<'_>) -> Result<(), Failure> {
    let recording = &stage.recording;
    let kind: Kind = recording.run().framing.parse().map_err(failed("name the framing"))?;
    let framing = pcapng::framing(kind, &recording.run().links[0].geometry, 0, (0, 0));
    let icrc = if framing.has_icrc() { ICRC_LEN } else { 0 };
    // Packets by the sender's port: each link has its own, in the order of the links.
    let (mut found, mut unexpected) = (BTreeMap::<u16, Vec<Vec<u8>>>::new(), 0_u64);
    let damage = pcapng::for_each_frame(&stage.to(), |frame| match pcapng::datagram(&frame) {
        Ok(Datagram { source, payload, .. }) => {
            let (begin, end) = (framing.header_len(payload), payload.len().saturating_sub(icrc));
            found.entry(source.port()).or_default().push(payload.get(begin..end).unwrap_or_default().to_vec());
        }
        Err(_) => unexpected += 1,
    });
    ensure_eq!(damage.map_err(failed("read the capture"))?, None, "damage of the capture");
    ensure_eq!((unexpected, found.len()), (0, recording.run().links.len()), "frames that are not datagrams, and links");
    for (link, found) in found.values().enumerate() {
        let expected = payloads(recording, link)?;
        let same = expected.iter().zip(found).take_while(|(expected, found)| expected == found).count();
        let all_match = same == expected.len() && same == found.len();
        ensure!(
            all_match,
            "link {link}: the first {same} of {} packets match; the capture has {}",
            expected.len(),
            found.len()
        );
    }
    Ok(())
}

/// Returns the payloads of all received packets of a link.
fn payloads(recording: &Recording, link: usize) -> Result<Vec<Vec<u8>>, Failure> {
    let geometry = recording.run().links[link].geometry;
    let (mut out, mut slots) = (Vec::new(), recording.slot_reader());
    for row in 0..recording.rows() {
        let entry = recording.row(row, link).map_err(failed("read a row"))?;
        let bytes = slots.read(row, link).map_err(failed("read a slot"))?;
        for index in (0..geometry.packets()).filter(|index| entry.contains(*index)) {
            let (at, len) = (geometry.packet_offset(index) as usize, geometry.packet_bytes(index) as usize);
            out.push(bytes[at..at + len].to_vec());
        }
    }
    Ok(out)
}
