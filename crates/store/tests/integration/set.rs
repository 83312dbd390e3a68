//! Runs of several files: parts, stripes, failing drives, and recovery.

use crate::common::runs::{TestRun, WAIT, assert_verified, config, copied, files, numbers, two_links};
use crate::common::{Drive, needs_python, python_verdict, run, shot};
use shotline_store::info::RunInfo;
use shotline_store::read::Recording;
use shotline_store::set::{self, State};
use shotline_store::shot::Event;
use shotline_store::{RunRecorderConfig, StoreError, VerifyOptions, inspect, verify};
use shotline_testing::or_skip;
use shotline_wire::shot::{DropCause, Packing};
use std::path::PathBuf;

/// Records a finished run in parts of 10 shots.
fn recorded(shots: u64) -> (tempfile::TempDir, [PathBuf; 1]) {
    let folder = tempfile::tempdir().unwrap();
    let outs = [folder.path().join("a.h5")];
    let mut test_run = TestRun::new(&config(&outs, Some(10)));
    (0..shots).for_each(|number| test_run.event(number).unwrap());
    test_run.finish();
    (folder, outs)
}

#[test]
fn parts_on_three_drives_read_as_one_recording() {
    or_skip!(needs_python());
    let folder = tempfile::tempdir().unwrap();
    let outs: Vec<PathBuf> = ["a.h5", "b.h5", "c.h5"].map(|name| folder.path().join(name)).to_vec();
    let mut test_run = TestRun::new(&config(&outs, Some(7)));
    for number in 0..100 {
        if number % 9 == 4 { test_run.lose(number) } else { test_run.event(number).unwrap() }
    }
    let finished = test_run.finish();
    let verdict = assert_verified(&outs[0]);
    assert_eq!((verdict.rows, verdict.finished, finished.report.rows), (89, true, 89));
    assert_eq!(verdict.lost_shots, 22);
    assert_eq!(numbers(&outs[0]), (0..100).filter(|number| number % 9 != 4).collect::<Vec<_>>());
    let summary = inspect(&outs[0]).unwrap();
    assert_eq!(summary.parts.len(), 39, "13 parts on three drives: {:#?}", summary.parts);
    assert!(summary.parts.iter().all(|entry| entry.state == State::Ended));
    assert_eq!(summary.links[0].complete, 89);
    // Rows, slots and locations are accessible as in a single file.
    let recording = Recording::open(&outs[0]).unwrap();
    let mut slots = recording.slot_reader();
    for row in [88, 0, 45, 44, 13] {
        let entry = recording.row(row, 1).unwrap();
        let slot = slots.read(row, 1).unwrap().to_vec();
        let stored = recording.stored(row, 1).unwrap();
        let mut raw = vec![0; stored.bytes as usize];
        let file = std::fs::File::open(stored.path).unwrap();
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut raw, stored.offset).unwrap();
        assert!(raw == slot && entry.number == numbers(&outs[0])[row as usize]);
    }
    assert!(recording.row(89, 0).is_err() && recording.read_rows(0, 80..90).is_err());
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1 + 39, "the part prepared in advance is removed: {left:?}");
}

#[test]
fn a_run_of_one_file_has_no_master() {
    let folder = tempfile::tempdir().unwrap();
    let outs = [folder.path().join("a.h5")];
    let mut test_run = TestRun::new(&config(&outs, None));
    (0..10).for_each(|number| test_run.event(number).unwrap());
    test_run.finish();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    assert!(inspect(&outs[0]).unwrap().parts.is_empty());
    assert!(verify(&outs[0], &VerifyOptions::default()).unwrap().verified);
}

#[test]
fn impossible_bounds_are_refused_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let outs = [folder.path().join("a.h5")];
    let refused = |config: &RunRecorderConfig| TestRun::try_new(config, two_links()).err().unwrap().to_string();
    let small = refused(&RunRecorderConfig { keep: Some(1 << 20), ..config(&outs, Some(100)) });
    assert!(small.contains("--keep") && small.contains("1048576"), "{small}");
    let none = refused(&RunRecorderConfig { keep: Some(1 << 16), ..config(&outs, None) });
    assert!(none.contains("holds no shot"), "{none}");
    let large = refused(&RunRecorderConfig { keep: Some(1 << 50), ..config(&outs, Some(10)) });
    assert!(large.contains("free"), "{large}");
    let twice = refused(&config(&[outs[0].clone(), outs[0].clone()], None));
    assert!(twice.contains("twice"), "{twice}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn parts_of_an_earlier_run_need_overwrite() {
    or_skip!(needs_python());
    let folder = tempfile::tempdir().unwrap();
    let outs = [folder.path().join("a.h5")];
    let mut test_run = TestRun::new(&config(&outs, Some(3)));
    (0..20).for_each(|number| test_run.event(number).unwrap());
    test_run.finish();
    let before = std::fs::read_dir(folder.path()).unwrap().count();
    let away = folder.path().join("away");
    std::fs::rename(&outs[0], &away).unwrap();
    let mut replacing = config(&outs, Some(10));
    replacing.recorder.overwrite = true;
    // Without the master, the run of these parts is unknown.
    for config in [&config(&outs, Some(3)), &replacing] {
        let error = TestRun::try_new(config, two_links()).err().unwrap();
        assert!(error.to_string().contains("a-00000.h5"), "{error}");
        let is_foreign = error.to_string().contains("does not belong to the run that is replaced");
        assert!(matches!(&error, StoreError::Exists { .. }) || is_foreign, "{error}");
    }
    std::fs::rename(&away, &outs[0]).unwrap();
    // Another recording with the name of a part.
    let other = folder.path().join("a-20250101.h5");
    let mut single = TestRun::new(&config(std::slice::from_ref(&other), None));
    single.event(1).unwrap();
    single.finish();
    let error = TestRun::try_new(&replacing, two_links()).err().unwrap();
    assert!(matches!(&error, StoreError::Create { path, .. } if *path == other), "{error}");
    std::fs::remove_file(&other).unwrap();
    // Refused configurations leave the earlier run unchanged.
    let huge = RunRecorderConfig { keep: Some(1 << 50), ..replacing.clone() };
    let error = TestRun::try_new(&huge, two_links()).err().unwrap();
    assert!(matches!(&error, StoreError::KeepNoSpace { .. }), "{error}");
    let mut recycling = replacing.clone();
    recycling.recorder.recycle = true;
    let error = TestRun::try_new(&recycling, two_links()).err().unwrap().to_string();
    assert!(error.contains("--recycle"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), before);
    let mut test_run = TestRun::new(&replacing);
    (0..5).for_each(|number| test_run.event(number).unwrap());
    test_run.finish();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "the earlier run is removed");
    assert_verified(&outs[0]);
}

#[test]
fn compressed_runs_of_several_files_report_chunks() {
    or_skip!(needs_python());
    let folder = tempfile::tempdir().unwrap();
    let outs = [folder.path().join("a.h5"), folder.path().join("b.h5")];
    let geometry = shotline_wire::shot::Geometry::new(16, 1000, 6, Packing::Int16Le, 40_000_000).unwrap();
    let codec = Some(shotline_store::codec::Codec::Lz4);
    let compressed = RunInfo { codec, ..run(&[geometry, geometry]) };
    let mut test_run = TestRun::try_new(&config(&outs, Some(10)), compressed).unwrap();
    (0..45).for_each(|number| test_run.event(number).unwrap());
    let chunks = test_run.finish().report.chunks.unwrap();
    assert_eq!(
        (chunks.compressed + chunks.uncompressed, chunks.bytes_raw),
        (90, 90 * u64::from(geometry.slot_bytes()))
    );
    assert!(chunks.compressed > 0 && chunks.bytes_stored < chunks.bytes_raw, "{chunks:?}");
    let verdict = verify(&outs[0], &VerifyOptions::default()).unwrap();
    assert!(verdict.verified && verdict.rows == 45, "{verdict:#?}");
    files(&outs[0]).iter().for_each(|file| python_verdict(file, true));
    let totals = inspect(&outs[0]).unwrap().totals;
    assert_eq!(shotline_store::recorder::Chunks::of_totals(&totals), Some(chunks));
}

#[test]
fn an_abandoned_run_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let outs = [folder.path().join("a.h5"), folder.path().join("b.h5")];
    let test_run = TestRun::new(&config(&outs, Some(3)));
    test_run.recorder.abandon();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_failing_drive_loses_its_last_shots_and_is_left_out() {
    or_skip!(needs_python());
    let (folder, drive) = (tempfile::tempdir().unwrap(), or_skip!(Drive::new(32)));
    for roll in [None, Some(300)] {
        let _ = std::fs::remove_file(drive.filler());
        let name = format!("run{}.h5", roll.unwrap_or(0));
        let outs = [folder.path().join(&name), drive.path().join(&name)];
        let mut test_run = TestRun::new(&config(&outs, roll));
        (0..40).for_each(|number| test_run.event(number).unwrap());
        let failing = drive.path().join(name.replace(".h5", "-00000-s1.h5"));
        if roll.is_some() {
            // The next part is allocated on this drive before the drive is full.
            let next = drive.path().join(name.replace(".h5", "-00001-s1.h5"));
            while !inspect(&next).is_ok_and(|summary| summary.allocated_rows > 0) {
                test_run.recorder.poll(WAIT).unwrap();
            }
        }
        drive.deallocate(&failing, 60..u64::MAX);
        for number in 40..600 {
            if number % 50 == 0 { test_run.lose(number) } else { test_run.event(number).unwrap() }
        }
        let finished = test_run.finish();
        assert!(
            finished.report.warnings.iter().any(|text| text.contains("continues without drive 1")),
            "{finished:#?}"
        );
        let unrecorded: u64 = finished.unrecorded.iter().map(|shots| shots.complete).sum();
        assert!(finished.unrecorded.iter().all(|shots| shots.cause == DropCause::SinkError), "{finished:#?}");
        let verdict = assert_verified(&outs[0]);
        assert_eq!(verdict.links.iter().map(|link| link.complete + link.sink_error).sum::<u64>() + unrecorded, 2 * 589);
        let summary = inspect(&outs[0]).unwrap();
        let states: Vec<State> = summary.parts.iter().filter(|entry| entry.stripe == 1).map(|e| e.state).collect();
        assert_eq!(states, [State::Failed], "{:#?}", summary.parts);
        let all = numbers(&outs[0]);
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "rows are in the order of their numbers");
        assert!(all.contains(&599));
    }
}

#[test]
fn a_full_drive_gets_no_further_parts() {
    or_skip!(needs_python());
    let (folder, drive) = (tempfile::tempdir().unwrap(), or_skip!(Drive::new(8)));
    let outs = [folder.path().join("a.h5"), drive.path().join("a.h5")];
    let mut test_run = TestRun::new(&config(&outs, Some(40)));
    (0..30).for_each(|number| test_run.event(number).unwrap());
    drive.fill();
    (30..300).for_each(|number| test_run.event(number).unwrap());
    let finished = test_run.finish();
    assert!(finished.unrecorded.is_empty(), "{finished:#?}");
    assert!(finished.report.warnings.iter().any(|text| text.contains("continues without it")), "{finished:#?}");
    assert_eq!(assert_verified(&outs[0]).links[0].complete, 300);
    assert_eq!(numbers(&outs[0]), (0..300).collect::<Vec<_>>());
}

#[test]
fn interrupted_runs_are_readable_and_recovered() {
    or_skip!(needs_python());
    for rows in [1, 5, 23, 50] {
        let folder = tempfile::tempdir().unwrap();
        let outs = [folder.path().join("a.h5"), folder.path().join("b.h5")];
        let mut test_run = TestRun::new(&config(&outs, Some(20)));
        (0..rows).for_each(|number| test_run.event(number).unwrap());
        while test_run.recorder.visible() < rows {
            test_run.recorder.poll(WAIT).unwrap();
        }
        // State after a kill: no part has ended, and the part prepared in advance remains. One that is just being
        // created is not known as a part of the run, so recovery would leave it.
        let is_whole = |copy: &tempfile::TempDir| {
            std::fs::read_dir(copy.path()).unwrap().all(|file| inspect(&file.unwrap().path()).is_ok())
        };
        let copy = std::iter::repeat_with(|| copied(folder.path())).find(is_whole).unwrap();
        drop(test_run);
        let master = copy.path().join("a.h5");
        let broken = verify(&master, &VerifyOptions::default()).unwrap();
        assert!(broken.verified && !broken.finished && broken.rows == rows, "{broken:#?}");
        python_verdict(&master, true);
        let recovered = set::recover(&master, &[], false, &|_, _| ()).unwrap();
        assert_eq!((recovered.rows, recovered.rows_after_gaps), (rows, 0), "{recovered:#?}");
        let size: u64 = files(&master).iter().map(|file| file.metadata().unwrap().len()).sum();
        assert!(size < (rows + 20) * 40_000 + (1 << 20), "{size} bytes for {rows} rows");
        assert_eq!(assert_verified(&master).rows, rows);
        assert_eq!(numbers(&master), (0..rows).collect::<Vec<_>>());
        let left = std::fs::read_dir(copy.path()).unwrap().count();
        assert_eq!(left, 1 + files(&master).len(), "the part prepared in advance is removed");
        assert_eq!(set::recover(&master, &[], false, &|_, _| ()).unwrap().rows, rows, "a second time changes nothing");
    }
}

#[test]
fn recovery_skips_files_of_other_runs() {
    let (folder, outs) = recorded(35);
    let foreign = folder.path().join("a-00001.h5");
    std::fs::remove_file(&foreign).unwrap();
    let mut other = TestRun::new(&config(std::slice::from_ref(&foreign), None));
    other.event(3).unwrap();
    other.finish();
    let removed = folder.path().join("a-00002.h5");
    std::fs::remove_file(&removed).unwrap();
    // These files only have the name of a part.
    let (empty, alone) = (folder.path().join("a-00009.h5"), folder.path().join("a-20250101.h5"));
    std::fs::write(&empty, []).unwrap();
    std::fs::copy(&foreign, &alone).unwrap();
    let before = std::fs::read(&foreign).unwrap();
    let recovered = set::recover(&outs[0], &[], false, &|_, _| ()).unwrap();
    assert_eq!((recovered.skipped, recovered.files.len()), (vec![foreign.clone(), removed], 2));
    assert!(recovered.removed.is_empty(), "{:?}", recovered.removed);
    assert!(empty.exists() && alone.exists() && std::fs::read(&foreign).unwrap() == before);
}

#[test]
fn recovery_adds_parts_with_rows_but_not_removed_ones() {
    or_skip!(needs_python());
    let (folder, outs) = recorded(35);
    let mut master = set::Master::read(&outs[0]).unwrap().unwrap();
    master.files.pop();
    master.files.remove(0);
    master.removed = set::Removed { parts: 1, rows: 10, first: 0, last: 9 };
    master.counters.clear();
    master.files[1].rows += 3;
    master.write(&outs[0], true).unwrap();
    let recovered = set::recover(&outs[0], &[], false, &|_, _| ()).unwrap();
    // The file contains shots; only the master lists it as removed.
    assert_eq!((recovered.rows, recovered.unchanged), (25, vec![folder.path().join("a-00000.h5")]));
    assert!(recovered.removed.is_empty(), "{:?}", recovered.removed);
    assert!(verify(&folder.path().join("a-00000.h5"), &VerifyOptions::default()).unwrap().verified);
    assert_eq!(assert_verified(&outs[0]).rows, 25);
    assert_eq!(numbers(&outs[0]), (10..35).collect::<Vec<_>>());
}

#[test]
fn recovery_adds_missing_parts_in_order() {
    or_skip!(needs_python());
    let (folder, outs) = recorded(35);
    let mut master = set::Master::read(&outs[0]).unwrap().unwrap();
    let listed = master.files.clone();
    master.files.remove(1);
    master.write(&outs[0], true).unwrap();
    let parts: Vec<Vec<u8>> = files(&outs[0]).iter().map(|file| std::fs::read(file).unwrap()).collect();
    // Without the file, its numbers are not reported as lost, and the other parts are unchanged.
    let (lacking, away) = (folder.path().join("a-00001.h5"), folder.path().join("away"));
    std::fs::rename(&lacking, &away).unwrap();
    assert_eq!(set::recover(&outs[0], &[], false, &|_, _| ()).unwrap().rows, 25);
    std::fs::rename(&away, &lacking).unwrap();
    assert_eq!(set::recover(&outs[0], &[], false, &|_, _| ()).unwrap().rows, 35);
    assert_eq!(set::Master::read(&outs[0]).unwrap().unwrap().files, listed);
    assert_eq!(numbers(&outs[0]), (0..35).collect::<Vec<_>>());
    for (part, was) in [0, 2, 3].into_iter().zip(parts) {
        assert!(std::fs::read(folder.path().join(format!("a-0000{part}.h5"))).unwrap() == was, "part {part}");
    }
    assert_verified(&outs[0]);
}

#[test]
fn recovery_skips_a_file_that_is_another_part() {
    let (folder, outs) = recorded(35);
    let replaced = folder.path().join("a-00002.h5");
    std::fs::copy(folder.path().join("a-00001.h5"), &replaced).unwrap();
    // Extended, so that recovery would truncate it.
    std::fs::OpenOptions::new().write(true).open(&replaced).unwrap().set_len(9 << 20).unwrap();
    let before = std::fs::read(&replaced).unwrap();
    let listed = inspect(&outs[0]).unwrap().parts;
    let recovered = set::recover(&outs[0], &[], false, &|_, _| ()).unwrap();
    assert_eq!(inspect(&outs[0]).unwrap().parts, listed);
    assert_eq!((recovered.skipped, recovered.rewritten), (vec![replaced.clone()], false));
    assert!(std::fs::read(&replaced).unwrap() == before);
}

#[test]
fn recovery_follows_no_link_and_keeps_foreign_files() {
    let folder = tempfile::tempdir().unwrap();
    let (inside, precious) = (folder.path().join("run"), folder.path().join("precious"));
    std::fs::create_dir(&inside).unwrap();
    std::fs::write(&precious, "mine").unwrap();
    let outs = [inside.join("a.h5")];
    let mut test_run = TestRun::new(&config(&outs, Some(10)));
    (0..35).for_each(|number| test_run.event(number).unwrap());
    test_run.finish();
    let mut master = set::Master::read(&outs[0]).unwrap().unwrap();
    master.files[3].state = State::Live;
    master.write(&outs[0], true).unwrap();
    // Draft names of the master and of parts.
    let draft = inside.join(".a.h5.new");
    std::os::unix::fs::symlink(&precious, &draft).unwrap();
    let hidden = [4, 5, 6, 7].map(|part| inside.join(format!(".a-{part:05}.h5.new")));
    std::fs::write(&hidden[0], vec![0; 300_000]).unwrap();
    std::fs::write(&hidden[1], format!("half laid out: {}", master.run.run_id)).unwrap();
    std::fs::write(&hidden[2], "of another program").unwrap();
    std::os::unix::fs::symlink(&precious, &hidden[3]).unwrap();
    let dry = set::recover(&outs[0], &[], true, &|_, _| ()).unwrap();
    let recovered = set::recover(&outs[0], &[], false, &|_, _| ()).unwrap();
    assert!(recovered.rewritten && dry.rewritten);
    let removed = [draft, hidden[0].clone(), hidden[1].clone()];
    assert_eq!((recovered.removed.as_slice(), recovered.unchanged.as_slice()), (&removed[..], &hidden[2..]));
    assert_eq!((dry.removed, dry.unchanged), (recovered.removed, recovered.unchanged));
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "mine");
    assert!(hidden[..2].iter().all(|file| !file.exists()) && hidden[2..].iter().all(|file| file.exists()));
}

#[test]
fn recovery_removes_only_blank_unlinked_hidden_files() {
    let (folder, outs) = recorded(25);
    let hidden = [5, 6, 7, 8].map(|part| folder.path().join(format!(".a-0000{part}.h5.new")));
    let [blank, late, linked, named] = &hidden;
    std::fs::write(blank, vec![0; 300_000]).unwrap();
    std::fs::write(late, [vec![0; 300_000], b"of another program".to_vec()].concat()).unwrap();
    std::fs::hard_link(folder.path().join("a-00001.h5"), linked).unwrap();
    std::os::unix::fs::symlink("a-00002.h5", named).unwrap();
    for dry_run in [true, false] {
        let recovered = set::recover(&outs[0], &[], dry_run, &|_, _| ()).unwrap();
        assert_eq!(recovered.removed, std::slice::from_ref(blank));
        assert_eq!(recovered.unchanged, [late.clone(), linked.clone(), named.clone()]);
    }
    assert!(!blank.exists());
    // A draft of the master of this run is removed, a file of another program is not.
    let draft = folder.path().join(".a.h5.new");
    std::fs::copy(&outs[0], &draft).unwrap();
    assert_eq!(set::recover(&outs[0], &[], false, &|_, _| ()).unwrap().removed, std::slice::from_ref(&draft));
    std::fs::write(&draft, "of another program").unwrap();
    assert!(set::recover(&outs[0], &[], false, &|_, _| ()).unwrap().unchanged.contains(&draft));
    std::fs::remove_file(&draft).unwrap();
    // A folder with the draft name of the master is refused before any change.
    std::fs::create_dir(&draft).unwrap();
    for dry_run in [true, false] {
        let error = set::recover(&outs[0], &[], dry_run, &|_, _| ()).unwrap_err();
        assert!(matches!(&error, StoreError::Create { path, .. } if *path == draft), "{error}");
    }
}

#[test]
fn discarded_events_become_losses_in_the_counters() {
    let folder = tempfile::tempdir().unwrap();
    for (name, roll) in [("a.h5", None), ("b.h5", Some(4))] {
        let outs = [folder.path().join(name)];
        let mut test_run = TestRun::new(&config(&outs, roll));
        for number in 0..30 {
            if number % 3 == 0 {
                test_run.event(number).unwrap();
                continue;
            }
            let links = test_run.run.links.clone();
            let shots = links.iter().map(|link| {
                Some(shot(test_run.pool.take().unwrap(), link.stream, number, link.geometry, |packet| {
                    number % 2 == 0 || packet > 0
                }))
            });
            let event = Event { number, shots: shots.collect() };
            test_run.recorder.discard(&event, DropCause::NotTriggered);
            test_run.seen += 1;
        }
        // The receiver has counted these shots as delivered.
        let mut counters = test_run.counters();
        for stream in &mut counters.streams {
            (stream.shots_complete, stream.shots_partial) = (test_run.seen - 10, 10);
            stream.shot_drops = Default::default();
        }
        test_run.recorder.finish(counters).unwrap();
        let verdict = verify(&outs[0], &VerifyOptions::default()).unwrap();
        assert!(verdict.verified && verdict.lost_shots == 40, "{verdict:#?}");
        assert_eq!(inspect(&outs[0]).unwrap().counters[&7]["shots_not_triggered"], 20);
    }
}
