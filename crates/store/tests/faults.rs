//! What is in the file when things go wrong: kills, a full disk, writes that fail.

mod common;

use common::{Recording, python_verdict, run, shot, small};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use shotline_store::recover::{Recovered, recover};
use shotline_store::shot::{Books, Loss};
use shotline_store::{Recorder, RecorderConfig, StoreError, VerifyOptions, inspect, layout, verify};
use shotline_wire::shot::{DropCause, Packing};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const CHILD: &str = "SHOTLINE_TEST_CHILD";
const ROWS: &str = "SHOTLINE_TEST_ROWS";
/// Rows of a run that is killed while it finishes.
const FINISHED: u64 = 60;

/// Not a test by itself: what those that kill it run.
#[test]
fn records_until_it_is_killed() {
    let Ok(child) = std::env::var(CHILD) else { return };
    let g = small(Packing::Packed12);
    let directory = tempfile::Builder::new().tempdir_in(&child).unwrap();
    let mut recording = Recording::at(directory, run(&[g, g]), |config| {
        config.rows = std::env::var(ROWS).map_or(50_000, |rows| rows.parse().unwrap());
        config.durable = child.ends_with("durable");
        config.commit_every = Duration::from_micros(300);
        config.commit_rows = 7;
    });
    if child.ends_with("finishing") {
        (0..FINISHED).for_each(|number| recording.whole(number));
        recording.settle();
        recording.finish(&Books::default());
        return;
    }
    let mut number = 0;
    loop {
        match number % 11 {
            3 => recording.event(number, |link, buffer| (link == 1).then(|| shot(buffer, 8, number, g, |_| true))),
            5 => recording.event(number, |link, buffer| Some(shot(buffer, 7 + link, number, g, |p| p != 1))),
            7 => {
                for stream in [7, 8] {
                    recording.recorder.loss(Loss { stream, cause: DropCause::NoBuffer, first: number, count: 1 });
                }
            }
            _ => recording.whole(number),
        }
        number += 1;
    }
}

fn spawn(home: &Path, rows: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "records_until_it_is_killed"])
        .env(CHILD, home)
        .env(ROWS, rows.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Programs that other tests start inherit libhdf5's descriptors, and their locks, for a while.
fn recover_when_free(path: &Path) -> Recovered {
    loop {
        match recover(path, false, &|_, _| ()) {
            Err(StoreError::InUse { .. }) => std::thread::sleep(Duration::from_millis(20)),
            other => break other.unwrap(),
        }
    }
}

fn recording_below(directory: &Path) -> Option<PathBuf> {
    let inner = std::fs::read_dir(directory).ok()?.next()?.ok()?.path();
    Some(inner.join("a.h5")).filter(|path| path.exists())
}

#[test]
fn every_visible_row_is_right_after_kill_9() {
    let mut most = 0;
    for round in 0..14_u64 {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().join(if round % 2 == 0 { "durable" } else { "plain" });
        std::fs::create_dir(&home).unwrap();
        let mut child = spawn(&home, 50_000);
        let laid_out = |path: &PathBuf| inspect(path).is_ok_and(|summary| summary.laid_out > 0);
        let path = loop {
            match recording_below(&home).filter(laid_out) {
                Some(path) => break path,
                None => std::thread::sleep(Duration::from_millis(2)),
            }
            assert!(child.try_wait().unwrap().is_none(), "the child ended by itself");
        };
        std::thread::sleep(Duration::from_micros(round * round * 1700 + 131 * round));
        child.kill().unwrap();
        child.wait().unwrap();

        let verdict = verify(&path, &VerifyOptions::default()).unwrap();
        assert!(verdict.verified, "round {round}: {verdict:#?}");
        assert!(!verdict.finished);
        let file = hdf5::File::open(&path).unwrap();
        for name in ["rf", "link0/rf", "link1/rf"] {
            assert_eq!(file.dataset(name).unwrap().shape()[0] as u64, verdict.rows, "{name}");
        }
        drop(file);
        let before = path.metadata().unwrap().len();
        let recovered = recover_when_free(&path);
        // What was on its way when the kill came may be whole, and is not lost then.
        assert_eq!((recovered.rows_before, recovered.rows + recovered.shed), (verdict.rows, 50_000));
        assert_eq!(recovered.rows, verdict.rows + recovered.adopted);
        assert!(path.metadata().unwrap().len() < before);
        let again = verify(&path, &VerifyOptions::default()).unwrap();
        assert!(again.verified && again.rows == recovered.rows, "{again:#?}");
        if round == 5 {
            python_verdict(&path, true);
        }
        most = most.max(verdict.rows);
    }
    assert!(most > 20, "the kills came too early to prove anything: at most {most} rows");
}

#[test]
fn a_kill_while_the_run_finishes_costs_no_row() {
    let (mut broken_off, mut finished) = (0, 0);
    for round in 0..40_u64 {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().join("finishing");
        std::fs::create_dir(&home).unwrap();
        // With one slot too many the tail has to move twice.
        let mut child = spawn(&home, if round % 2 == 0 { FINISHED + 1 } else { 5_000 });
        let all = |path: &PathBuf| inspect(path).is_ok_and(|summary| summary.rows == FINISHED);
        let path = loop {
            match recording_below(&home).filter(all) {
                Some(path) => break Some(path),
                None if child.try_wait().unwrap().is_some() => break None,
                None => std::thread::yield_now(),
            }
        };
        let Some(path) = path else {
            finished += 1;
            continue;
        };
        let spoilt = path.with_extension("copy");
        std::thread::sleep(Duration::from_micros(137 * round));
        child.kill().unwrap();
        // The child's directory goes if it was quicker than the kill.
        if std::fs::rename(&path, &spoilt).is_err() {
            child.wait().unwrap();
            finished += 1;
            continue;
        }
        child.wait().unwrap();
        let verdict = verify(&spoilt, &VerifyOptions::default()).unwrap();
        assert!(verdict.verified && verdict.rows == FINISHED, "round {round}: {verdict:#?}");
        broken_off += u32::from(!verdict.finished);
        assert_eq!(recover_when_free(&spoilt).rows, FINISHED);
        let verdict = verify(&spoilt, &VerifyOptions::default()).unwrap();
        assert!(verdict.verified && verdict.rows == FINISHED, "round {round}: {verdict:#?}");
    }
    assert!(broken_off > 0, "every kill came too late to prove anything ({finished} after the end)");
}

/// A file system of a few bytes.
struct Tiny(tempfile::TempDir);

impl Tiny {
    fn new(mebibytes: u32) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let options = std::ffi::CString::new(format!("size={mebibytes}m")).unwrap();
        match mount("tmpfs", directory.path(), "tmpfs", MountFlags::empty(), options.as_c_str()) {
            Ok(()) => Some(Self(directory)),
            Err(errno) => {
                let _ = writeln!(std::io::stderr(), "skipped: cannot mount a small tmpfs ({errno}); run as root");
                None
            }
        }
    }
    fn path(&self) -> PathBuf {
        self.0.path().join("a.h5")
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        let _ = unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

#[test]
fn a_disk_that_is_too_small_is_told_before_the_run_with_both_numbers() {
    let Some(tiny) = Tiny::new(16) else { return };
    let g = small(Packing::Packed12);
    let (_, regions) = common::pool(2, g.slot_bytes());
    let error = Recorder::create(&tiny.path(), &RecorderConfig::new(10_000), &run(&[g]), &regions).unwrap_err();
    let StoreError::NoSpace { needed, free, rows, .. } = &error else { panic!("{error}") };
    assert!(*needed > 79 << 20 && *free <= 16 << 20 && *rows == 10_000, "{error}");
    assert!(!tiny.path().exists(), "what could not be finished is removed");
    drop(Recorder::create(&tiny.path(), &RecorderConfig::new(100), &run(&[g]), &regions).unwrap());
}

/// Takes the space of some rows away from a recording that is laid out, and gives it to another file.
fn steal(tiny: &Tiny, path: &Path, rows: std::ops::Range<u64>) {
    let (_, opened) = layout::open(path).unwrap();
    let (from, to) = (opened.layout.slot(rows.start, 0), opened.layout.slot(rows.end, 0));
    fallocate(opened.file.handle(), FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, from, to - from).unwrap();
    let thief = std::fs::File::create(tiny.0.path().join("thief")).unwrap();
    let free = rustix::fs::fstatvfs(&thief).map(|s| s.f_bavail * s.f_frsize).unwrap();
    fallocate(&thief, FallocateFlags::empty(), 0, free).unwrap();
}

#[test]
fn a_failed_write_loses_its_row_and_says_so_and_the_run_goes_on() {
    let Some(tiny) = Tiny::new(16) else { return };
    let g = small(Packing::Packed12);
    let (pool, regions) = common::pool(4, g.slot_bytes());
    let run = run(&[g]);
    let mut recorder = Recorder::create(&tiny.path(), &RecorderConfig::new(40), &run, &regions).unwrap();
    steal(&tiny, &tiny.path(), 10..20);
    for number in 0..40 {
        let buffer = loop {
            match pool.take() {
                Some(buffer) => break buffer,
                None => drop(recorder.poll(Some(Duration::from_millis(50))).unwrap()),
            }
        };
        let shots = [Some(shot(buffer, 7, number, g, |_| true))].into_iter().collect();
        assert!(recorder.offer(shotline_store::shot::Event { number, shots }).is_ok());
    }
    let report = recorder.finish(&Books::default()).unwrap();
    assert_eq!((report.rows, report.complete, report.lost, report.sink_error), (40, 30, 10, 10), "{report:#?}");
    assert_eq!(report.not_zeroed, 0);
    assert!(
        report.warnings.iter().any(|text| text.contains("row 10 of link 0") && text.contains("No space")),
        "{report:#?}"
    );
    assert_eq!(pool.available(), 4);
    let verdict = verify(&tiny.path(), &VerifyOptions::default()).unwrap();
    assert!(verdict.verified && verdict.links[0].sink_error == 10, "{verdict:#?}");
    python_verdict(&tiny.path(), true);
}

#[test]
fn a_run_whose_every_write_fails_ends_with_the_reason() {
    let Some(tiny) = Tiny::new(16) else { return };
    let g = small(Packing::Packed12);
    let (pool, regions) = common::pool(4, g.slot_bytes());
    let mut recorder = Recorder::create(&tiny.path(), &RecorderConfig::new(200), &run(&[g]), &regions).unwrap();
    steal(&tiny, &tiny.path(), 5..200);
    let mut number = 0;
    let error = loop {
        if let Some(buffer) = pool.take() {
            let shots = [Some(shot(buffer, 7, number, g, |_| true))].into_iter().collect();
            assert!(recorder.offer(shotline_store::shot::Event { number, shots }).is_ok());
            number += 1;
        }
        match recorder.poll(Some(Duration::from_millis(50))) {
            Ok(_) => assert!(number < 200),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::EveryWriteFails { count: 64.., .. }), "{error}");
    let report = recorder.finish(&Books::default()).unwrap();
    assert_eq!((report.complete, report.rows), (5, number));
    assert!(report.warnings.iter().any(|text| text.contains("could not be cut")), "{report:#?}");
    assert!(verify(&tiny.path(), &VerifyOptions::default()).unwrap().verified);
}
