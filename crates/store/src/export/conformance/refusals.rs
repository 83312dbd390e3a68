//! Checks of refusals: invalid exports and destinations give an error and leave nothing.

use super::check::Check;
use super::stage::{Stage, listed, proceed};
use crate::export::{ExportError, OptionKind, Options, Selection, export};
use crate::read::Recording;
use shotline_conformance::{Failure, Outcome, ensure, failed};
use std::fs;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "an empty selection is refused",
        proves: "a selection without shots is an error, not empty output",
        run: empty_selection,
    },
    Check {
        name: "a recording without shots is refused",
        proves: "a run in which nothing was recorded is an error, not empty output",
        run: empty_recording,
    },
    Check {
        name: "options of another format are refused",
        proves: "no option is silently ignored",
        run: foreign_options,
    },
    Check {
        name: "a missing folder is named in the error",
        proves: "a wrong path is an error that contains the path, and no folder is created",
        run: no_folder,
    },
    Check {
        name: "a full drive is reported as such",
        proves: "incomplete output is removed, and existing files stay",
        run: full_drive,
    },
];

fn empty_selection(stage: &Stage<'_>) -> Result<Outcome, Failure> {
    for selection in
        [Selection { shots: Some(0), ..stage.selection() }, Selection { from: Some(u64::MAX), ..stage.selection() }]
    {
        let refused = stage.export_part(&selection, &stage.to(), false, &proceed);
        ensure!(
            matches!(refused, Err(ExportError::InvalidSelection(_))),
            "expected nothing to export, found {refused:?}"
        );
        stage.expect_nothing()?;
    }
    Ok(Outcome::Passed)
}

fn empty_recording(stage: &Stage<'_>) -> Result<Outcome, Failure> {
    let empty = Recording::open(&stage.fixture.empty(stage.format)?).map_err(failed("open the empty recording"))?;
    let what = (stage.format, &stage.options());
    let refused = export(&empty, &stage.selection(), what, &stage.to(), false, &proceed);
    ensure!(matches!(refused, Err(ExportError::InvalidSelection(_))), "expected nothing to export, found {refused:?}");
    stage.expect_nothing()?;
    Ok(Outcome::Passed)
}

fn foreign_options(stage: &Stage<'_>) -> Result<Outcome, Failure> {
    let expected = stage.format.about().option_kind;
    for kind in [OptionKind::Nothing, OptionKind::Array, OptionKind::Radio, OptionKind::Zarr]
        .into_iter()
        .filter(|kind| *kind != expected)
    {
        let what = (stage.format, &Options::of(kind));
        let refused = export(&stage.recording, &stage.selection(), what, &stage.to(), false, &proceed);
        ensure!(matches!(refused, Err(ExportError::Unsupported { .. })), "{}: found {refused:?}", kind.name());
        stage.expect_nothing()?;
    }
    Ok(Outcome::Passed)
}

fn no_folder(stage: &Stage<'_>) -> Result<Outcome, Failure> {
    let to = stage.name_in(&stage.folder.join("nowhere"));
    let Err(refused) = stage.export(&to, false, &proceed) else { return Err("a folder was created".into()) };
    ensure!(refused.to_string().contains("nowhere"), "it does not name the folder: {refused}");
    stage.expect_nothing()?;
    fs::write(stage.folder.join("nowhere"), "a file").map_err(failed("write a file"))?;
    let Err(refused) = stage.export(&to, true, &proceed) else { return Err("a file was taken for a folder".into()) };
    ensure!(refused.to_string().contains("nowhere"), "it does not name the file: {refused}");
    ensure!(listed(&stage.folder)? == ["nowhere"], "something is left");
    Ok(Outcome::Passed)
}

fn full_drive(stage: &Stage<'_>) -> Result<Outcome, Failure> {
    let folder = match stage.fixture.full() {
        Ok(folder) => folder,
        Err(why) => return Ok(Outcome::not_run(why)),
    };
    let before = listed(&folder)?;
    let Err(refused) = stage.export(&stage.name_in(&folder), false, &proceed) else {
        return Err("the export to a full drive succeeded".into());
    };
    let message = refused.to_string();
    ensure!(
        message.to_lowercase().contains("no space") || message.contains("allocate"),
        "it does not give the cause: {message}"
    );
    ensure!(listed(&folder)? == before, "files were left: {:?}", listed(&folder)?);
    Ok(Outcome::Passed)
}
