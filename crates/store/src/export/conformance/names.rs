//! Checks of when the output appears under its name, and what it replaces.

use super::check::Check;
use super::stage::{Files, Stage, listed, proceed, stop};
use crate::StoreError;
use crate::export::{ExportError, Selection, Target};
use shotline_conformance::{Failure, Outcome, ensure, failed};
use std::cell::RefCell;
use std::fs;
use std::ops::ControlFlow;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "the output appears under its name when complete",
        proves: "no reader opens an incomplete export, and no other file is left next to it",
        run: appears_when_complete,
    },
    Check {
        name: "an existing name is refused",
        proves: "without --force nothing is replaced: the existing output stays as it was, byte for byte",
        run: existing_name_is_refused,
    },
    Check {
        name: "existing output is replaced on request",
        proves: "no file of the old export is left in the new one",
        run: replaced_on_request,
    },
    Check {
        name: "a stopped export leaves no output",
        proves: "an export that is stopped reports it and leaves no file, hidden ones included",
        run: stop_leaves_nothing,
    },
    Check {
        name: "a stopped export keeps the existing output",
        proves: "the old export is removed when the new one is complete, and not before",
        run: stop_leaves_the_old_one,
    },
    Check {
        name: "the recording itself is not replaced",
        proves: "--force replaces neither the recording that is read nor the folder that contains it",
        run: recording_stays,
    },
];

fn appears_when_complete(stage: &Stage<'_>) -> Result<Outcome, Failure> {
    let visible = RefCell::new(Vec::new());
    let look = |_, _| {
        let names = listed(&stage.folder).unwrap_or_default();
        visible.borrow_mut().extend(names.into_iter().filter(|name| !name.starts_with('.')));
        ControlFlow::Continue(())
    };
    stage.export(&stage.to(), false, &look).map_err(failed("export"))?;
    ensure!(visible.borrow().is_empty(), "visible before the end: {}", visible.borrow().join(", "));
    let names = listed(&stage.folder)?;
    ensure!(!names.is_empty(), "there is no output");
    let hidden: Vec<_> = names.into_iter().filter(|name| name.starts_with('.')).collect();
    ensure!(hidden.is_empty(), "left next to it: {}", hidden.join(", "));
    Ok(Outcome::Passed)
}

fn existing_name_is_refused(stage: &Stage<'_>) -> Result<Outcome, Failure> {
    stage.exported()?;
    let before = stage.files()?;
    match stage.export(&stage.to(), false, &proceed) {
        Err(ExportError::Exists { .. } | ExportError::Recording(StoreError::Exists { .. })) => {}
        other => return Err(format!("expected the error that it exists already, found {other:?}")),
    }
    ensure!(stage.files()? == before, "the existing output has changed");
    Ok(Outcome::Passed)
}

fn replaced_on_request(stage: &Stage<'_>) -> Result<Outcome, Failure> {
    stage.exported()?;
    let before = stage.files()?;
    match stage.format.about().target {
        Target::File | Target::Pairs => {
            for path in before.keys() {
                fs::write(stage.folder.join(path), "old").map_err(failed("write an old file"))?;
            }
            stage.export(&stage.to(), true, &proceed).map_err(failed("replace"))?;
            let after = stage.files()?;
            ensure!(after.keys().eq(before.keys()), "expected {:?}, found {:?}", before.keys(), after.keys());
            ensure!(after.values().all(|bytes| bytes != b"old"), "an old file is left");
        }
        Target::Folder | Target::FolderOrObjects => {
            let one = Selection { shots: Some(1), ..stage.selection() };
            let exported = stage.export_part(&one, &stage.to(), true, &proceed).map_err(failed("replace"))?;
            let counted = (exported.complete, exported.partial, exported.lost);
            ensure!(counted == (1, 0, 0), "expected one complete shot, counted {counted:?}");
            let bytes = |files: &Files| files.values().map(Vec::len).sum::<usize>();
            let after = stage.files()?;
            ensure!(bytes(&after) < bytes(&before), "one shot takes as many bytes as all of them");
            ensure!(listed(&stage.folder)?.len() == 1, "something is left next to it");
        }
    }
    Ok(Outcome::Passed)
}

fn stop_leaves_nothing(stage: &Stage<'_>) -> Result<Outcome, Failure> {
    let stopped = stage.export(&stage.to(), false, &stop);
    ensure!(matches!(stopped, Err(ExportError::Stopped)), "expected a stop, found {stopped:?}");
    stage.expect_nothing()?;
    Ok(Outcome::Passed)
}

fn stop_leaves_the_old_one(stage: &Stage<'_>) -> Result<Outcome, Failure> {
    stage.exported()?;
    let before = stage.files()?;
    let stopped = stage.export(&stage.to(), true, &stop);
    ensure!(matches!(stopped, Err(ExportError::Stopped)), "expected a stop, found {stopped:?}");
    ensure!(stage.files()? == before, "the existing output has changed");
    Ok(Outcome::Passed)
}

fn recording_stays(stage: &Stage<'_>) -> Result<Outcome, Failure> {
    let path = stage.recording.path();
    let Ok(before) = fs::read(path) else { return Ok(Outcome::not_run("it is on a raw device")) };
    for to in [Some(path), path.parent()].into_iter().flatten() {
        let refused = stage.export(to, true, &proceed);
        ensure!(refused.is_err(), "{} was replaced", to.display());
    }
    ensure!(fs::read(path).is_ok_and(|after| after == before), "the recording has changed");
    Ok(Outcome::Passed)
}
