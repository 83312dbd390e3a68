//! Bounded runs (rings): the oldest parts are removed and their files reused.

use crate::common::runs::{TestRun, WAIT, assert_verified, config, copied, files, numbers, two_links};
use crate::common::{blocks, needs_python, python_verdict, run, small};
use shotline_store::info::RunInfo;
use shotline_store::read::Recording;
use shotline_store::{RunRecorderConfig, VerifyOptions, inspect, layout, set, verify};
use shotline_testing::or_skip;
use shotline_wire::shot::Packing;
use std::path::{Path, PathBuf};

#[test]
fn bounded_runs_keep_their_bound_and_report_removals() {
    or_skip!(needs_python());
    let folder = tempfile::tempdir().unwrap();
    let outs = [folder.path().join("a.h5"), folder.path().join("b.h5")];
    let keep = 6 << 20;
    let mut test_run = TestRun::new(&RunRecorderConfig { keep: Some(keep), ..config(&outs, Some(10)) });
    let mut max_used = 0;
    for number in 100..500 {
        if number % 7 == 0 {
            test_run.lose(number)
        } else {
            test_run.event(number).unwrap()
        }
        max_used = max_used.max(used(folder.path()));
    }
    let finished = test_run.finish();
    max_used = max_used.max(used(folder.path()));
    assert!(max_used <= keep, "{max_used} bytes of {keep}");
    assert!(max_used > keep / 2, "the bound is used: {max_used} bytes of {keep}");
    let verdict = assert_verified(&outs[0]);
    assert_eq!((finished.report.rows, finished.removed.first), (343, 100));
    assert_eq!(verdict.rows + finished.removed.rows, 343);
    let numbers = numbers(&outs[0]);
    assert!(numbers[0] > finished.removed.last && numbers.last() == Some(&499));
    assert_eq!(inspect(&outs[0]).unwrap().totals["ring_removed_rows"], finished.removed.rows);
}

fn used(folder: &Path) -> u64 {
    let bytes = |entry: std::io::Result<std::fs::DirEntry>| {
        let metadata = entry.ok()?.metadata().ok()?;
        Some(std::os::unix::fs::MetadataExt::blocks(&metadata) * 512)
    };
    std::fs::read_dir(folder).unwrap().filter_map(bytes).sum()
}

/// Records a ring of parts of ten rows that has wrapped around several times.
fn wrapped_ring(outs: &[PathBuf], run: RunInfo, keep: u64) -> TestRun {
    let mut test_run =
        TestRun::try_new(&RunRecorderConfig { keep: Some(keep), ..config(outs, Some(10)) }, run).unwrap();
    (0..95).for_each(|number| test_run.event(number).unwrap());
    while test_run.recorder.visible() < 95 {
        test_run.recorder.poll(WAIT).unwrap();
    }
    test_run
}

#[test]
fn files_of_removed_parts_are_reused() {
    or_skip!(needs_python());
    let folder = tempfile::tempdir().unwrap();
    let outs = [folder.path().join("a.h5"), folder.path().join("b.h5")];
    let mut test_run = TestRun::new(&RunRecorderConfig { keep: Some(6 << 20), ..config(&outs, Some(20)) });
    let mut inodes = std::collections::BTreeMap::new();
    for number in 0..300 {
        test_run.event(number).unwrap();
        // By name only, because open files are not reused.
        for entry in std::fs::read_dir(folder.path()).unwrap().flatten() {
            let (name, metadata) = (entry.file_name().to_string_lossy().into_owned(), entry.metadata());
            let Some(metadata) = metadata.ok().filter(|_| name.contains("-s") && !name.starts_with('.')) else {
                continue;
            };
            let inode = std::os::unix::fs::MetadataExt::ino(&metadata);
            inodes.entry(inode).or_insert((name.contains("-s1"), std::collections::BTreeSet::new())).1.insert(name);
        }
    }
    let names: std::collections::BTreeSet<_> = inodes.values().flat_map(|(_, names)| names).collect();
    assert_eq!(names.len(), 30, "15 parts on two drives");
    assert!(inodes.len() < 16, "all those in {} files", inodes.len());
    for (stripe, names) in inodes.values() {
        assert!(names.iter().all(|name| name.contains("-s1") == *stripe), "a file stays on its drive: {names:?}");
    }
    let finished = test_run.finish();
    assert!(finished.removed.parts > 5, "{finished:#?}");
    assert_eq!(assert_verified(&outs[0]).rows + finished.removed.rows, 300);
    assert_eq!(numbers(&outs[0]), (finished.removed.last + 1..300).collect::<Vec<_>>());
    assert!(inspect(&outs[0]).unwrap().totals["ring_reused_files"] > 10);
    for file in files(&outs[0]) {
        let position = Recording::open(&file).unwrap().run().part.unwrap();
        assert!(position.stale_to.is_some_and(|stale| stale < numbers(&file)[0]), "{position:?}");
    }
}

#[test]
fn compressed_rings_reuse_files() {
    or_skip!(needs_python());
    let folder = tempfile::tempdir().unwrap();
    let outs = [folder.path().join("a.h5")];
    let geometry = shotline_wire::shot::Geometry::new(16, 1000, 6, Packing::Int16Le, 40_000_000).unwrap();
    let codec = Some(shotline_store::codec::Codec::Lz4);
    wrapped_ring(&outs, RunInfo { codec, ..run(&[geometry, geometry]) }, 6 << 20).finish();
    let verdict = verify(&outs[0], &VerifyOptions::default()).unwrap();
    assert!(verdict.verified && inspect(&outs[0]).unwrap().totals["ring_reused_files"] > 0, "{verdict:#?}");
    files(&outs[0]).iter().for_each(|file| python_verdict(file, true));
    assert_eq!(numbers(&outs[0]).last(), Some(&94));
}

#[test]
fn parts_that_are_open_or_linked_are_not_reused() {
    or_skip!(needs_python());
    let folder = tempfile::tempdir().unwrap();
    let outs = [folder.path().join("a.h5")];
    let mut test_run = TestRun::new(&RunRecorderConfig { keep: Some(4 << 20), ..config(&outs, Some(10)) });
    (0..25).for_each(|number| test_run.event(number).unwrap());
    // The first part is open in a reader without a lock, the second has another hard link, and the third is moved and
    // replaced by a symbolic link.
    let (first, second) = (folder.path().join("a-00000.h5"), folder.path().join("a-00001.h5"));
    let (reading, kept) = (std::fs::File::open(&first).unwrap(), folder.path().join("kept"));
    std::fs::hard_link(&second, &kept).unwrap();
    while [&first, &kept].iter().any(|part| Recording::open(part).unwrap().final_counters().unwrap().is_none()) {
        test_run.recorder.poll(WAIT).unwrap();
    }
    let before = [std::fs::read(&first).unwrap(), std::fs::read(&kept).unwrap()];
    (25..35).for_each(|number| test_run.event(number).unwrap());
    let (third, moved) = (folder.path().join("a-00002.h5"), folder.path().join("moved"));
    while Recording::open(&third).unwrap().final_counters().unwrap().is_none() {
        test_run.recorder.poll(WAIT).unwrap();
    }
    std::fs::rename(&third, &moved).unwrap();
    std::os::unix::fs::symlink(&moved, &third).unwrap();
    let linked = std::fs::read(&moved).unwrap();
    (35..200).for_each(|number| test_run.event(number).unwrap());
    assert!(std::fs::read(&moved).unwrap() == linked && third.symlink_metadata().is_err());
    assert!(!first.exists() && !second.exists());
    let mut bytes = vec![0; before[0].len()];
    std::os::unix::fs::FileExt::read_exact_at(&reading, &mut bytes, 0).unwrap();
    assert!(bytes == before[0], "files open in a reader are unchanged");
    assert!(std::fs::read(&kept).unwrap() == before[1], "files with another link are unchanged");
    test_run.finish();
    assert_verified(&outs[0]);
    python_verdict(&kept, true);
}

#[test]
fn recovery_of_a_ring_ignores_stale_rows() {
    or_skip!(needs_python());
    let geometries = [small(Packing::Packed12), blocks()];
    for geometry in geometries {
        let folder = tempfile::tempdir().unwrap();
        let outs = [folder.path().join("a.h5")];
        let test_run = wrapped_ring(&outs, run(&[geometry, geometry]), 4 << 20);
        let copy = copied(folder.path());
        drop(test_run);
        let master = copy.path().join("a.h5");
        // As after a power cut, the markers of the live part claim all rows, but its tables have five.
        let live = files(&master).pop().unwrap();
        {
            let (info, opened) = layout::open(&live).unwrap();
            assert!(opened.layout.recycled && info.part.unwrap().stale_to.is_some(), "{info:?}");
            let tables = opened.layout.shots.iter();
            for table in tables.clone() {
                let rows = layout::table_rows(&opened.file, *table, 5..table.capacity, &live).unwrap();
                assert!(rows.iter().all(|byte| *byte == 0), "no row of the previous part is left");
            }
            let headers = tables.map(|table| table.header).chain(opened.layout.data.iter().map(|data| data.header));
            let headers = headers.chain(opened.layout.block_tables.iter().map(|table| table.header));
            for header in headers {
                opened.file.write_all(header.extent_at, &10_u64.to_le_bytes()).unwrap();
            }
        }
        let recovered = set::recover(&master, &[], false, &|_, _| ()).unwrap();
        assert_eq!(recovered.files.last().unwrap().rows, 5, "{recovered:#?}");
        assert_verified(&master);
        let numbers = numbers(&master);
        assert!(numbers.last() == Some(&94) && numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{numbers:?}");
    }
}

#[test]
fn shots_without_a_table_row_are_found_by_their_record() {
    or_skip!(needs_python());
    let folder = tempfile::tempdir().unwrap();
    let outs = [folder.path().join("a.h5")];
    let test_run = wrapped_ring(&outs, two_links(), 4 << 20);
    let copy = copied(folder.path());
    drop(test_run);
    let master = copy.path().join("a.h5");
    let live = files(&master).pop().unwrap();
    {
        // Two rows are visible, two more have table rows, and the fifth has only the shot.
        let (_, opened) = layout::open(&live).unwrap();
        for table in &opened.layout.shots {
            let row = vec![0; table.row_bytes as usize];
            opened.file.write_all(table.row_offset(4), &row).unwrap();
        }
        let headers = opened.layout.shots.iter().map(|table| table.header);
        for header in headers.chain(opened.layout.data.iter().map(|data| data.header)) {
            opened.file.write_all(header.extent_at, &2_u64.to_le_bytes()).unwrap();
        }
    }
    let recovered = set::recover(&master, &[], false, &|_, _| ()).unwrap();
    let last = recovered.files.last().unwrap();
    assert_eq!((last.rows_before, last.rows, last.rebuilt), (2, 5, 2), "{last:#?}");
    assert_verified(&master);
    assert_eq!(numbers(&master).last(), Some(&94));
}

#[test]
fn both_verifiers_find_stale_rows() {
    or_skip!(needs_python());
    let folder = tempfile::tempdir().unwrap();
    let outs = [folder.path().join("a.h5")];
    let mut test_run = TestRun::new(&RunRecorderConfig { keep: Some(4 << 20), ..config(&outs, Some(10)) });
    (0..15).for_each(|number| test_run.event(number).unwrap());
    let first_rows = |file: &Path| -> Vec<Vec<u8>> {
        let opened = std::fs::File::open(file).unwrap();
        let (_, layout) = layout::locate(file, &opened).unwrap();
        let tables = layout.shots.iter();
        tables.map(|table| layout::table_rows(&opened, *table, 0..1, file).unwrap()).collect()
    };
    let rows = first_rows(&folder.path().join("a-00000.h5"));
    (15..95).for_each(|number| test_run.event(number).unwrap());
    test_run.finish();
    let newest = files(&outs[0]).pop().unwrap();
    let (_, opened) = layout::open(&newest).unwrap();
    for (table, row) in opened.layout.shots.iter().zip(rows) {
        opened.file.write_all(table.row_offset(0), &row).unwrap();
    }
    drop(opened);
    for file in [&outs[0], &newest] {
        assert!(!verify(file, &VerifyOptions::default()).unwrap().verified);
        python_verdict(file, false);
    }
}
