//! File contents after faults: kills, a full drive, failed writes.

use crate::common::{self, Drive, needs_python, python_verdict, run, shot, small};
use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use shotline_store::recover::{Recovered, recover};
use shotline_store::shot::{Event, RunCounters};
use shotline_store::{Recorder, RecorderConfig, StoreError, VerifyOptions, inspect, verify};
use shotline_testing::{Process, example, or_skip, seeds, wait_until_some};
use shotline_wire::shot::Packing;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// Rows allocated for a run that is killed.
const ROWS: u64 = 50_000;
/// Rows of a run that is killed while it finishes.
const FINISHED_ROWS: u64 = 60;

/// Recovers a file once it is unlocked: child processes of other tests briefly inherit libhdf5's descriptors and locks.
fn recover_when_free(path: &Path) -> Recovered {
    wait_until_some("the file is unlocked", || match recover(path, false, &|_, _| ()) {
        Err(StoreError::InUse { .. }) => None,
        other => Some(other.unwrap()),
    })
}

#[test]
fn visible_rows_are_valid_after_kill_9() {
    or_skip!(needs_python());
    for seed in seeds(0..6) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.h5");
        let kind = if seed % 2 == 0 { "durable" } else { "plain" };
        let mut child = Process::start(example("record_until_killed").arg(&path).args([&ROWS.to_string(), kind]));
        // The kill may come at any time after the file exists.
        let rows = seed * 37 % 200;
        wait_until_some("its rows are visible", || {
            assert_eq!(child.try_wait().unwrap(), None, "the child ended early");
            inspect(&path).ok().filter(|summary| summary.allocated_rows > 0 && summary.rows >= rows)
        });
        child.kill();

        let verdict = verify(&path, &VerifyOptions::default()).unwrap();
        assert!(verdict.verified && !verdict.finished && verdict.rows >= rows, "{verdict:#?}");
        let file = hdf5::File::open(&path).unwrap();
        for name in ["rf", "link0/rf", "link1/rf"] {
            assert_eq!(file.dataset(name).unwrap().shape()[0] as u64, verdict.rows, "{name}");
        }
        drop(file);
        let before = path.metadata().unwrap().len();
        let recovered = recover_when_free(&path);
        // Rows in flight at the time of the kill may be complete and are then recovered.
        assert_eq!((recovered.rows_before, recovered.rows + recovered.released_rows), (verdict.rows, ROWS));
        assert_eq!(recovered.rows, verdict.rows + recovered.adopted);
        assert!(path.metadata().unwrap().len() < before);
        let again = verify(&path, &VerifyOptions::default()).unwrap();
        assert!(again.verified && again.rows == recovered.rows, "{again:#?}");
        if seed == 2 {
            python_verdict(&path, true);
        }
    }
}

/// Records a run in another process and kills it at system call `last` after it starts to finish, or lets it end if
/// `last` is `None`. Returns the number of system call entries and exits.
#[allow(clippy::zombie_processes, reason = "waitpid, which also reports system calls, reaps the child")]
fn finishes_until(path: &Path, laid_out: u64, last: Option<u64>) -> Result<u64, Errno> {
    let mut child = example("record_until_killed")
        .arg(path)
        .args([&laid_out.to_string(), "finish", &FINISHED_ROWS.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "recorded\n");
    let pid = Pid::from_raw(child.id() as i32);
    let traced = ptrace::seize(pid, ptrace::Options::PTRACE_O_TRACESYSGOOD | ptrace::Options::PTRACE_O_EXITKILL)
        .and_then(|()| ptrace::interrupt(pid));
    if let Err(errno) = traced {
        child.kill().unwrap();
        child.wait().unwrap();
        return Err(errno);
    }
    waitpid(pid, None).unwrap();
    writeln!(child.stdin.take().unwrap()).unwrap();
    let mut calls = 0;
    loop {
        if last == Some(calls) {
            child.kill().unwrap();
        } else {
            ptrace::syscall(pid, None).unwrap();
        }
        match waitpid(pid, None).unwrap() {
            WaitStatus::PtraceSyscall(_) => calls += 1,
            WaitStatus::Exited(_, 0) | WaitStatus::Signaled(_, Signal::SIGKILL, _) => return Ok(calls),
            WaitStatus::PtraceEvent(..) | WaitStatus::Stopped(..) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_kill_while_finishing_loses_no_row() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.h5");
    // With one unused row the tail has to move twice.
    let laid_out = [FINISHED_ROWS + 1, 5_000];
    let mut calls = [0; 2];
    for (calls, laid_out) in calls.iter_mut().zip(laid_out) {
        *calls = or_skip!(finishes_until(&path, laid_out, None).map_err(|errno| format!("no ptrace here: {errno}")));
        assert!(inspect(&path).unwrap().finished);
        std::fs::remove_file(&path).unwrap();
    }
    let (mut interrupted, mut all) = (0, 0);
    for seed in seeds(0..10) {
        let kind = seed as usize % 2;
        // Kills are spread over all system calls for any number of seeds.
        let at = (seed as f64 * 0.618_033_988_75).fract() * calls[kind] as f64;
        finishes_until(&path, laid_out[kind], Some(at as u64)).unwrap();
        let verdict = verify(&path, &VerifyOptions::default()).unwrap();
        assert!(verdict.verified && verdict.rows == FINISHED_ROWS, "{verdict:#?}");
        interrupted += u32::from(!verdict.finished);
        assert_eq!(recover_when_free(&path).rows, FINISHED_ROWS);
        let verdict = verify(&path, &VerifyOptions::default()).unwrap();
        assert!(verdict.verified && verdict.rows == FINISHED_ROWS, "{verdict:#?}");
        std::fs::remove_file(&path).unwrap();
        all += 1;
    }
    assert!(interrupted > 0 || all < 10, "every kill came too late to prove anything");
}

#[test]
fn a_small_drive_is_refused_with_needed_and_free_bytes() {
    let drive = or_skip!(Drive::new(16));
    let path = drive.path().join("a.h5");
    let g = small(Packing::Packed12);
    let (_, regions) = common::pool(2, g.slot_bytes());
    let error = Recorder::create(&path, &RecorderConfig::new(10_000), &run(&[g]), &regions).unwrap_err();
    let StoreError::NoSpace { needed, free, rows, .. } = &error else { panic!("{error}") };
    assert!(*needed > 79 << 20 && *free <= 16 << 20 && *rows == 10_000, "{error}");
    assert!(!path.exists(), "what could not be finished is removed");
    drop(Recorder::create(&path, &RecorderConfig::new(100), &run(&[g]), &regions).unwrap());
}

#[test]
fn a_failed_write_loses_one_row_and_the_run_continues() {
    or_skip!(needs_python());
    let drive = or_skip!(Drive::new(16));
    let path = drive.path().join("a.h5");
    let g = small(Packing::Packed12);
    let (pool, regions) = common::pool(4, g.slot_bytes());
    let run = run(&[g]);
    let mut recorder = Recorder::create(&path, &RecorderConfig::new(40), &run, &regions).unwrap();
    drive.deallocate(&path, 10..20);
    for number in 0..40 {
        let buffer = loop {
            match pool.take() {
                Some(buffer) => break buffer,
                None => drop(recorder.poll(Some(Duration::from_millis(50))).unwrap()),
            }
        };
        let shots = [Some(shot(buffer, 7, number, g, |_| true))].into_iter().collect();
        assert!(recorder.offer(Event { number, shots }).is_ok());
    }
    let report = recorder.finish(&RunCounters::default()).unwrap();
    assert_eq!((report.rows, report.complete, report.lost, report.sink_error), (40, 30, 10, 10), "{report:#?}");
    assert_eq!(report.not_zeroed, 0);
    assert!(
        report.warnings.iter().any(|text| text.contains("row 10 of link 0") && text.contains("No space")),
        "{report:#?}"
    );
    assert_eq!(pool.available(), 4);
    let verdict = verify(&path, &VerifyOptions::default()).unwrap();
    assert!(verdict.verified && verdict.links[0].sink_error == 10, "{verdict:#?}");
    python_verdict(&path, true);
}

#[test]
fn a_run_without_successful_writes_ends_with_the_error() {
    let drive = or_skip!(Drive::new(16));
    let path = drive.path().join("a.h5");
    let g = small(Packing::Packed12);
    let (pool, regions) = common::pool(4, g.slot_bytes());
    let mut recorder = Recorder::create(&path, &RecorderConfig::new(200), &run(&[g]), &regions).unwrap();
    drive.deallocate(&path, 5..200);
    let mut number = 0;
    let error = loop {
        if let Some(buffer) = pool.take() {
            let shots = [Some(shot(buffer, 7, number, g, |_| true))].into_iter().collect();
            assert!(recorder.offer(Event { number, shots }).is_ok());
            number += 1;
        }
        match recorder.poll(Some(Duration::from_millis(50))) {
            Ok(_) => assert!(number < 200),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::EveryWriteFails { count: 64.., .. }), "{error}");
    let report = recorder.finish(&RunCounters::default()).unwrap();
    assert_eq!((report.complete, report.rows), (5, number));
    assert!(report.warnings.iter().any(|text| text.contains("could not be truncated")), "{report:#?}");
    assert!(verify(&path, &VerifyOptions::default()).unwrap().verified);
}
