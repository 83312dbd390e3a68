//! A recorder and an emulator in one process, over UDP.

use shotline_acquire::config::{Bytes, Settings};
use shotline_acquire::run::Cause;
use shotline_instrument::probe::{Config, GivenShots};
use shotline_library::{Emulator, ErrorKind, Next, Recorder};
use shotline_store::read::Recording;
use shotline_wire::shot::Packing;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

fn emulator(config: Config) -> Emulator {
    Emulator::start(config, "[::1]:0".parse().unwrap()).unwrap()
}

/// Returns a probe of 8 channels that sends as fast as the receiver takes its packets.
fn small() -> Config {
    Config { links: 1, channels: 8, samples: Some(64), ..Config::default() }
}

fn settings(emulator: &Emulator) -> Settings {
    let bind: SocketAddr = "[::1]:0".parse().unwrap();
    let pool = Some(Bytes(16 << 20));
    Settings { probe: Some(emulator.address()), bind: Some(bind), rate_hz: Some(5000.0), pool, ..Settings::default() }
}

/// Takes all shots until the end, and returns their numbers.
fn take_all(recorder: &Recorder) -> Vec<u64> {
    let mut numbers = Vec::new();
    loop {
        match recorder.next(LONG).unwrap() {
            Next::Shots(lent) => numbers.push(lent.event().number),
            Next::Ended => return numbers,
            Next::TimedOut => panic!("nothing for a minute after {} shots", numbers.len()),
        }
    }
}

#[test]
fn a_program_takes_the_shots_of_a_probe() {
    let samples: Vec<i16> = (0..3 * 64 * 8).map(|i| (i % 4000 - 2000) as i16).collect();
    let given = Some(Arc::new(GivenShots::new(samples.clone(), (3, 64, 8), 12, Packing::Int16Le).unwrap()));
    let emulator = emulator(Config { given, packing: Packing::Int16Le, ..small() });
    let recorder = Recorder::start(Settings { shots: Some(300), samples: Some(64), ..settings(&emulator) }).unwrap();
    assert!(recorder.wait_started(LONG).unwrap());
    let mut numbers = BTreeSet::new();
    while let Next::Shots(lent) = recorder.next(LONG).unwrap() {
        let event = lent.event();
        let shot = event.shots[0].as_ref().unwrap();
        let mut bytes = vec![0; 64 * 8 * 2];
        shot.buffer.read(0, &mut bytes);
        let first = event.number as usize % 3 * samples.len() / 3;
        let expected = samples[first..][..64 * 8].iter().flat_map(|sample| sample.to_le_bytes());
        assert!(!shot.meta.is_complete() || bytes.iter().copied().eq(expected), "shot {}", event.number);
        numbers.insert(event.number);
    }
    let outcome = recorder.wait_ended(LONG).unwrap().unwrap();
    assert_eq!(outcome.end.cause, Cause::Shots);
    let lost = recorder.losses().unwrap().total();
    assert_eq!(numbers.len() as u64 + lost, 300, "{lost} lost");
    assert_eq!(emulator.close().unwrap().links[0].counters.shots, 300);
}

#[test]
fn a_program_beside_the_file_sees_what_is_recorded() {
    let (folder, emulator) = (tempfile::tempdir().unwrap(), emulator(small()));
    let out = folder.path().join("run.h5");
    let wanted = Settings { out: Some(vec![out.clone()]), shots: Some(200), ..settings(&emulator) };
    let recorder = Recorder::start(wanted).unwrap();
    let numbers = take_all(&recorder);
    let outcome = recorder.wait_ended(LONG).unwrap().unwrap();
    let recording = Recording::open(&out).unwrap();
    let rows: Vec<u64> = recording.read_rows(0, 0..recording.rows()).unwrap().iter().map(|row| row.number).collect();
    assert_eq!((outcome.rows, recorder.has_file()), (rows.len() as u64, true));
    let lost = recorder.losses().unwrap().total();
    assert!(numbers.iter().all(|number| rows.contains(number)), "{numbers:?} {rows:?}");
    assert_eq!(numbers.len() as u64 + lost, 200);
}

#[test]
fn a_recorder_that_is_closed_early_finishes_its_file() {
    let (folder, emulator) = (tempfile::tempdir().unwrap(), emulator(small()));
    let out = folder.path().join("run.h5");
    let recorder = Recorder::start(Settings { out: Some(vec![out.clone()]), ..settings(&emulator) }).unwrap();
    let Next::Shots(held) = recorder.next(LONG).unwrap() else { panic!("no shot in a minute") };
    recorder.close();
    recorder.close();
    let refused = recorder.next(LONG).unwrap_err();
    assert_eq!(
        (refused.kind, refused.to_string()),
        (ErrorKind::Closed, "this recorder is closed: open another".into())
    );
    let outcome = recorder.outcome().unwrap().unwrap();
    assert_eq!(outcome.end.cause, Cause::Signal);
    drop(recorder);
    assert_eq!(held.event().shots.len(), 1, "a shot outlives its run");
    assert!(Recording::open(&out).unwrap().final_counters().unwrap().is_some());
}

#[test]
fn a_program_that_keeps_every_shot_gets_the_rest_as_losses() {
    let emulator = emulator(small());
    let pool = Some(Bytes(4 << 20));
    let recorder = Recorder::start(Settings { shots: Some(2000), pool, ..settings(&emulator) }).unwrap();
    let mut kept = Vec::new();
    while let Next::Shots(lent) = recorder.next(LONG).unwrap() {
        kept.push(lent);
    }
    let outcome = recorder.wait_ended(LONG).unwrap().unwrap();
    let (taken, held, max) = recorder.held();
    assert_eq!((taken, held, held), (kept.len() as u64, kept.len(), max));
    let losses = recorder.losses().unwrap();
    assert_eq!(taken + losses.total(), 2000);
    assert!(losses.ranges.iter().any(|loss| loss.cause == shotline_wire::shot::DropCause::SinkBusy));
    outcome.total().balance().unwrap();
}

#[test]
fn a_run_that_cannot_begin_says_why() {
    let refused = Recorder::start(Settings::default()).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Invalid);
    assert!(!refused.to_string().contains("--"), "{refused}");
    let emulator = emulator(small());
    let pool = Some(Bytes(4096));
    let recorder = Recorder::start(Settings { pool, ..settings(&emulator) }).unwrap();
    let refused = recorder.wait_started(LONG).unwrap_err();
    assert!(refused.kind == ErrorKind::Invalid && refused.to_string().contains("use pool "), "{refused}");
    assert!(matches!(recorder.next(LONG), Ok(Next::Ended)));
    let refused = Emulator::start(small(), emulator.address()).unwrap_err();
    assert!(matches!(refused.kind, ErrorKind::Io(Some(_))), "{refused:?}");
}

#[test]
fn a_probe_that_vanishes_cuts_the_run_off() {
    let emulator = emulator(small());
    let recorder = Recorder::start(settings(&emulator)).unwrap();
    let Next::Shots(_) = recorder.next(LONG).unwrap() else { panic!("no shot in a minute") };
    emulator.close().unwrap();
    take_all(&recorder);
    let outcome = recorder.wait_ended(LONG).unwrap().unwrap();
    assert_eq!(outcome.end.cause, Cause::ProbeLost);
    let error = shotline_library::check_end(&outcome).unwrap_err();
    assert_eq!(error.kind, ErrorKind::CutOff);
}
