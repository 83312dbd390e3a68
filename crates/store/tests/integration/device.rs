//! Recordings on a raw device. The device is a plain file, so neither a drive nor privileges are needed; `tests/`
//! covers NVMe namespaces in a virtual machine.

use crate::common::{self, Recording, needs_python, python_verdict, run, shot, small};
use shotline_store::codec::Codec;
use shotline_store::export::{Format, Options, Selection};
use shotline_store::nvme::{Listing, Target, list};
use shotline_store::read::Recording as Reader;
use shotline_store::recover::recover;
use shotline_store::shot::RunCounters;
use shotline_store::{
    Recorder, RecorderConfig, StoreError, VerifyOptions, export, inspect, verify, verify_with_progress,
};
use shotline_testing::{Process, example, or_skip, wait_until_some};
use shotline_wire::shot::Packing;
use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// Creates a device of `mib` MiB of zeros.
fn device(mib: u64) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive");
    File::create(&path).unwrap().set_len(mib * MIB).unwrap();
    (folder, path)
}

fn named(device: &Path, run: &str) -> PathBuf {
    PathBuf::from(format!("block:{}/{run}", device.display()))
}

fn runs(device: &Path) -> Listing {
    let path = PathBuf::from(format!("block:{}", device.display()));
    list(&Target::of(&path).unwrap()).unwrap()
}

/// Records shots of two links, some partial and some lost, under a name on a device.
fn record(device: &Path, name: &str, numbers: std::ops::Range<u64>, configure: impl FnOnce(&mut RecorderConfig)) {
    let g = small(Packing::Packed12);
    let rows = numbers.end - numbers.start;
    let folder = tempfile::tempdir().unwrap();
    let mut recording = Recording::of(folder, named(device, name), run(&[g, g]), |config| {
        config.rows = 2 * rows;
        configure(config);
    });
    for number in numbers {
        match number % 10 {
            4 => recording.event(number, |_, _| None),
            7 => recording.event(number, |link, buffer| Some(shot(buffer, 7 + link, number, g, |p| p != 1))),
            _ => recording.whole(number),
        }
    }
    recording.finish(&RunCounters::default());
}

fn to_hdf5(from: &Path, to: &Path) {
    let recording = Reader::open(from).unwrap();
    let go_on = |_, _| ControlFlow::Continue(());
    let exported =
        export(&recording, &Selection::default(), (Format::Hdf5, &Options::Nothing), to, false, &go_on).unwrap();
    assert_eq!(exported.bytes, to.metadata().unwrap().len());
}

fn assert_verified(path: &Path) -> shotline_store::Verdict {
    let verdict = verify(path, &VerifyOptions::default()).unwrap();
    assert!(verdict.verified, "{verdict:#?}");
    verdict
}

#[test]
fn device_runs_read_like_files_and_export_to_files() {
    or_skip!(needs_python());
    let (folder, device) = device(64);
    record(&device, "first", 100..130, |_| {});
    record(&device, "second", 0..12, |config| config.durable = true);
    for (name, rows, complete) in [("first", 30, 48), ("second", 12, 20)] {
        let path = named(&device, name);
        let summary = inspect(&path).unwrap();
        assert_eq!((summary.rows, summary.finished, summary.links[0].complete * 2), (rows, true, complete));
        assert_eq!(assert_verified(&path).rows, rows);
        let copy = folder.path().join(format!("{name}.h5"));
        to_hdf5(&path, &copy);
        assert_verified(&copy);
        python_verdict(&copy, true);
    }
    let listing = runs(&device);
    let names: Vec<_> = listing.runs.iter().map(|run| run.name.as_str()).collect();
    assert_eq!((names, listing.serial.as_str()), (vec!["first", "second"], "drive"));
    assert_eq!(listing.runs[0].at, MIB, "after the directory");
    assert!(listing.runs[0].bytes < 2 * MIB, "space allocated for more rows is freed: {listing:?}");
}

#[test]
fn compressed_device_runs_export_to_files() {
    let (folder, device) = device(64);
    let g = small(Packing::Int16Le);
    let mut info = run(&[g]);
    info.codec = Some(Codec::Lz4);
    let path = named(&device, "small");
    let mut recording = Recording::of(tempfile::tempdir().unwrap(), path.clone(), info, |config| config.rows = 40);
    (0..25).for_each(|number| recording.whole(number));
    recording.finish(&RunCounters::default());
    assert_verified(&path);
    let copy = folder.path().join("copy.h5");
    to_hdf5(&path, &copy);
    assert_eq!(assert_verified(&copy).rows, 25);
}

#[test]
fn readers_follow_a_live_device_run() {
    let (_folder, device) = device(64);
    let g = small(Packing::Packed12);
    let path = named(&device, "live");
    let mut recording = Recording::of(tempfile::tempdir().unwrap(), path.clone(), run(&[g]), |config| config.rows = 40);
    let mut reader = Reader::open(&path).unwrap();
    for rows in [3, 11] {
        (reader.rows()..rows).for_each(|number| recording.whole(number));
        recording.settle();
        assert_eq!(reader.refresh().unwrap(), rows);
        assert!(!assert_verified(&path).finished);
    }
    let refused =
        Recorder::create(&named(&device, "other"), &RecorderConfig::new(1), &run(&[g]), &common::pool(1, 4096).1);
    assert!(matches!(refused, Err(StoreError::InUse { .. })), "one recorder at a time: {refused:?}");
    recording.finish(&RunCounters::default());
}

/// Returns the error message of a refused recording.
fn refusal(device: &Path, name: &str, configure: impl FnOnce(&mut RecorderConfig)) -> String {
    let mut config = RecorderConfig::new(4);
    configure(&mut config);
    let run = run(&[small(Packing::Packed12)]);
    let refused = Recorder::create(&named(device, name), &config, &run, &common::pool(1, 16384).1);
    refused.map(drop).unwrap_err().to_string()
}

#[test]
fn foreign_data_is_kept_without_force_and_serial_number() {
    for (at, magic, found) in [
        (0x438, &b"\x53\xef"[..], "ext4"),
        (512, b"EFI PART", "GPT"),
        (0, b"XFSB", "XFS"),
        (0x10040, b"_BHRfS_M", "Btrfs"),
        (0, b"LUKS\xba\xbe", "LUKS"),
        (64 * MIB - 512, b"EFI PART", "backup of a GPT"),
        (777_777, b"\x01", "no known kind (the first at byte 777777)"),
        (64 * MIB - 1, b"\x01", "no known kind"),
    ] {
        let (_folder, device) = device(64);
        let file = File::options().read(true).write(true).open(&device).unwrap();
        file.write_all_at(magic, at).unwrap();
        let before = std::fs::read(&device).unwrap();
        for configure in [
            (|_: &mut RecorderConfig| ()) as fn(&mut RecorderConfig),
            |config| config.overwrite = true,
            |config| config.serial = Some("drive".into()),
        ] {
            let refused = refusal(&device, "a", configure);
            assert!(refused.contains(found) && refused.contains("--force --serial drive"), "{refused}");
        }
        let wrong = refusal(&device, "a", |config| {
            (config.overwrite, config.serial) = (true, Some("S123".into()));
        });
        assert!(wrong.contains("drive, not S123"), "{wrong}");
        assert!(std::fs::read(&device).unwrap() == before, "a refusal writes nothing");
        record(&device, "a", 0..5, |config| (config.overwrite, config.serial) = (true, Some("drive".into())));
        let mut there = [0; 1];
        file.read_exact_at(&mut there, at).unwrap();
        assert!(at < 1 << 19 || there == [0], "the signature is overwritten");
        assert_eq!(assert_verified(&named(&device, "a")).rows, 5);
    }
}

#[test]
fn a_file_system_over_recordings_is_detected() {
    for (at, magic, found) in
        [(0x438, &b"\x53\xef"[..], "ext4"), (0x10040, b"_BHRfS_M", "Btrfs"), (700_000, b"\x01", "kind")]
    {
        let (_folder, device) = device(64);
        record(&device, "a", 0..5, |_| {});
        let file = File::options().write(true).open(&device).unwrap();
        file.write_all_at(magic, at).unwrap();
        let refused = refusal(&device, "b", |_| {});
        assert!(refused.contains(found) && refused.contains("written over a Shotline directory"), "{refused}");
    }
}

#[test]
fn names_are_unique_and_full_devices_report_free_space() {
    let (_folder, device) = device(8);
    record(&device, "a", 0..20, |_| {});
    assert!(refusal(&device, "a", |_| {}).contains("exists already"));
    let full = refusal(&device, "b", |config| config.rows = 5000);
    assert!(full.contains("for 5000 rows, the largest free extent has 6"), "{full}");
    record(&device, "a", 50..53, |config| config.overwrite = true);
    let listing = runs(&device);
    assert_eq!(listing.runs.len(), 1);
    assert_eq!(assert_verified(&named(&device, "a")).rows, 3);
    // The old run is removed first, and its space is reused.
    record(&device, "a", 60..64, |config| (config.overwrite, config.recycle) = (true, true));
    assert_eq!(inspect(&named(&device, "a")).unwrap().first, Some(60));
    assert!(refusal(&device, "b\n", |_| {}).contains("without control characters"));
}

#[test]
fn unnamed_runs_are_numbered_and_the_last_is_the_default() {
    let (_folder, device) = device(64);
    for numbers in [0..3, 10..15] {
        let g = small(Packing::Packed12);
        let path = PathBuf::from(format!("block:{}", device.display()));
        let rows = numbers.end - numbers.start;
        let mut recording = Recording::of(tempfile::tempdir().unwrap(), path, run(&[g]), |config| config.rows = rows);
        numbers.for_each(|number| recording.whole(number));
        recording.finish(&RunCounters::default());
    }
    let any = PathBuf::from(format!("block:{}", device.display()));
    assert_eq!(inspect(&any).unwrap().first, Some(10));
    assert_eq!(inspect(&named(&device, "run-1")).unwrap().rows, 3);
    let none = inspect(&named(&device, "run-7")).unwrap_err().to_string();
    assert!(none.contains("expected a run run-7, found run-1, run-2"), "{none}");
}

#[test]
fn directory_survives_the_loss_of_either_copy() {
    for copy in [0, 512 << 10] {
        let (_folder, device) = device(64);
        record(&device, "a", 0..3, |_| {});
        record(&device, "b", 0..3, |_| {});
        let file = File::options().write(true).open(&device).unwrap();
        // A power cut during an update may leave one copy in any state; the other has the previous state.
        assert_eq!(runs(&device).warnings, Vec::<String>::new());
        file.write_all_at(&[0xFF; 64], copy + 64).unwrap();
        assert!(runs(&device).warnings[0].contains("one of the two copies"), "{:?}", runs(&device).warnings);
        let names: Vec<_> = runs(&device).runs.into_iter().map(|run| run.name).collect();
        assert_eq!(names, ["a", "b"], "copy at {copy}: the last change was b's length");
        record(&device, "c", 0..3, |_| {});
        assert_eq!(runs(&device).warnings, Vec::<String>::new(), "the damaged copy is the first to be written");
        for name in ["a", "b", "c"] {
            assert_eq!(assert_verified(&named(&device, name)).rows, 3);
        }
    }
}

#[test]
fn a_run_replaced_during_verification_is_not_verified() {
    let (_folder, device) = device(64);
    record(&device, "a", 0..3, |_| {});
    let replace = |done: u64, all: u64| {
        if done == all {
            record(&device, "a", 0..3, |config| config.overwrite = true);
        }
    };
    let verdict = verify_with_progress(&named(&device, "a"), &VerifyOptions::default(), &replace);
    assert!(verdict.unwrap_err().to_string().contains("found another run: verify again"));
    assert_eq!(assert_verified(&named(&device, "a")).rows, 3);
}

#[test]
fn a_killed_run_is_recovered_from_reused_space() {
    or_skip!(needs_python());
    let (folder, device) = device(256);
    // The space of the new run contains complete shots with other numbers.
    record(&device, "old", 5_000..5_400, |_| {});
    let bytes = std::fs::read(&device).unwrap();
    File::create(&device).unwrap().set_len(256 * MIB).unwrap();
    let file = File::options().write(true).open(&device).unwrap();
    file.write_all_at(&bytes[MIB as usize..4 * MIB as usize], MIB).unwrap();
    let edges = vec![0; MIB as usize];
    file.write_all_at(&edges, 0).unwrap();
    let path = named(&device, "killed");
    let mut child = Process::start(example("record_until_killed").arg(&path).args(["3000", "whole"]));
    let seen = wait_until_some("200 rows are visible", || {
        assert_eq!(child.try_wait().unwrap(), None, "the recorder ended early");
        Reader::open(&path).ok().map(|reader| reader.rows()).filter(|rows| *rows > 200)
    });
    child.kill();
    let before = inspect(&path).unwrap();
    assert!(!before.finished && before.rows >= seen);
    assert_verified(&path);
    let dry = recover(&path, true, &|_, _| ()).unwrap();
    let done = recover(&path, false, &|_, _| ()).unwrap();
    assert_eq!((dry.rows, dry.complete), (done.rows, done.complete));
    assert!(done.rows >= before.rows && done.lost == 0, "{done:?}");
    let verdict = assert_verified(&path);
    assert_eq!(verdict.rows, done.rows);
    let listing = runs(&device);
    assert!(listing.runs[0].bytes < 100 * MIB, "the rest is freed: {listing:?}");
    let copy = folder.path().join("copy.h5");
    to_hdf5(&path, &copy);
    assert_eq!(assert_verified(&copy).rows, done.rows);
    python_verdict(&copy, true);
    let again = recover(&path, false, &|_, _| ()).unwrap();
    assert_eq!((again.rows, again.adopted, again.released_rows), (done.rows, 0, 0));
}
