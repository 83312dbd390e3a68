//! Compressed runs, read by libhdf5, h5py with hdf5plugin, and both verifiers.

use crate::common::{self, Recording, needs_python, python, python_verdict, run, shot, small};
use serde_json::json;
use shotline_store::codec::Codec;
use shotline_store::info::RunInfo;
use shotline_store::recover::recover;
use shotline_store::rows::State;
use shotline_store::shot::{Loss, RunCounters};
use shotline_store::{VerifyOptions, inspect, read, verify};
use shotline_testing::or_skip;
use shotline_wire::shot::{DropCause, Geometry, PACKET_BYTES, Packing};
use std::path::Path;

const CODECS: [Codec; 2] = [Codec::Lz4, Codec::Zstd(1)];

fn compressed(codec: Codec, geometries: &[Geometry]) -> RunInfo {
    RunInfo { codec: Some(codec), ..run(geometries) }
}

/// Returns a compressible geometry. Test patterns are noise, but with 6 of 16 bits used, the other bit planes compress
/// well.
fn compressible() -> Geometry {
    Geometry::new(16, 1000, 6, Packing::Int16Le, 40_000_000).unwrap()
}

/// Returns a compressible geometry whose sample count is not a multiple of 8.
fn odd(packing: Packing, samples: u32) -> Geometry {
    let channels = if packing == Packing::Uint8 { 3 } else { 10 };
    Geometry::new(channels, samples, 4, packing, 0).unwrap()
}

/// Reads all slots.
fn slots(path: &Path) -> Vec<Vec<u8>> {
    let recording = read::Recording::open(path).unwrap();
    let mut slots = recording.slot_reader();
    let links = recording.run().links.len();
    let all = (0..recording.rows()).flat_map(|row| (0..links).map(move |link| (row, link)));
    all.map(|(row, link)| slots.read(row, link).unwrap().to_vec()).collect()
}

/// Asserts that h5py with hdf5plugin reads the same nonempty data from both files.
fn h5py_reads_the_same(path: &Path, other: &Path) {
    const SCRIPT: &str = "
import h5py, hdf5plugin
with h5py.File(args[0]) as a, h5py.File(args[1]) as b:
    for name in ['rf'] * ('rf' in a) + [f'link{i}/rf' for i in range(a.attrs['links'])]:
        assert a[name].shape == b[name].shape and a[name].size > 0 and (a[name][:] == b[name][:]).all(), name
";
    python(SCRIPT, json!([path, other]));
}

fn verified(path: &Path) {
    let verdict = verify(path, &VerifyOptions::default()).unwrap();
    assert!(verdict.verified && verdict.pattern, "{verdict:#?}");
    python_verdict(path, true);
}

#[test]
fn compressed_and_plain_runs_read_the_same() {
    or_skip!(needs_python());
    for (codec, geometry) in CODECS.into_iter().flat_map(|codec| {
        [compressible(), odd(Packing::Packed12, 3010), odd(Packing::Uint8, 10_001), small(Packing::Packed12)]
            .map(move |geometry| (codec, geometry))
    }) {
        let record = |run: RunInfo| {
            let mut recording = Recording::new(run, |config| config.rows = 100);
            (100..112).for_each(|number| recording.whole(number));
            recording.finish(&RunCounters::default())
        };
        let (path, report) = record(compressed(codec, &[geometry, geometry]));
        let (plain, _) = record(run(&[geometry, geometry]));
        let chunks = report.chunks.unwrap();
        assert_eq!(chunks.compressed + chunks.uncompressed, 24, "{report:?}");
        assert_eq!(chunks.bytes_raw, 24 * u64::from(geometry.slot_bytes()));
        assert_eq!((report.rows, report.complete, report.bytes), (12, 24, chunks.bytes_stored));
        if geometry != small(Packing::Packed12) {
            assert!(chunks.compressed > 0 && chunks.bytes_stored < chunks.bytes_raw, "{chunks:?}");
            assert!(path.metadata().unwrap().len() < plain.metadata().unwrap().len());
        }
        assert!(slots(&path) == slots(&plain), "{codec} {geometry:?}");
        h5py_reads_the_same(&path, &plain);
        verified(&path);
        let summary = inspect(&path).unwrap();
        assert_eq!((summary.run.codec, summary.totals["chunks_compressed"]), (Some(codec), chunks.compressed));
    }
}

#[test]
fn links_of_different_geometry_are_compressed_separately() {
    or_skip!(needs_python());
    let (a, b) = (compressible(), Geometry::new(3, 1000, 10, Packing::Int16Le, 0).unwrap());
    let record = |run: RunInfo| {
        let mut recording = Recording::new(run, |config| config.rows = 9);
        (0..9).for_each(|number| recording.whole(number));
        recording.finish(&RunCounters::default()).0
    };
    let (path, plain) = (record(compressed(Codec::Lz4, &[a, b])), record(run(&[a, b])));
    assert!(slots(&path) == slots(&plain));
    h5py_reads_the_same(&path, &plain);
    verified(&path);
}

#[test]
fn compressed_runs_keep_partial_and_lost_shots() {
    or_skip!(needs_python());
    let geometry = compressible();
    let record = |run: RunInfo| {
        let links = run.links.clone();
        let mut recording = Recording::new(run, |config| config.rows = 30);
        for number in 0..20 {
            recording.event(number, |link, buffer| {
                let stream = links[link as usize].stream;
                let keep =
                    |index: u32| !(number % 3 == 1 && index == 2 || number == 5 && index + 1 == geometry.packets());
                (number % 4 != 2 || link == 0).then(|| shot(buffer, stream, number, geometry, keep))
            });
        }
        recording.recorder.loss(Loss { stream: 7, cause: DropCause::SinkBusy, first: 20, count: 3 });
        recording.finish(&RunCounters::default())
    };
    let (path, report) = record(compressed(Codec::Zstd(1), &[geometry, geometry]));
    let (plain, other) = record(run(&[geometry, geometry]));
    assert_eq!((report.complete, report.partial, report.lost), (other.complete, other.partial, other.lost));
    assert!(report.partial > 0 && report.lost > 0);
    assert!(slots(&path) == slots(&plain));
    h5py_reads_the_same(&path, &plain);
    let recording = read::Recording::open(&path).unwrap();
    assert_eq!(recording.row(2, 1).unwrap().state, State::Lost);
    assert_eq!(recording.losses().unwrap().len(), 1);
    assert!(u64::from(geometry.packets()) * u64::from(PACKET_BYTES) >= u64::from(geometry.slot_bytes()));
    verified(&path);
}

#[test]
fn without_compression_threads_shots_are_stored_raw() {
    or_skip!(needs_python());
    let geometry = compressible();
    let mut recording = Recording::new(compressed(Codec::Lz4, &[geometry]), |config| {
        (config.rows, config.compress_threads) = (10, Some(0));
    });
    (0..10).for_each(|number| recording.whole(number));
    let (path, report) = recording.finish(&RunCounters::default());
    let chunks = report.chunks.unwrap();
    assert_eq!((chunks.compressed, chunks.uncompressed, chunks.bytes_stored), (0, 10, chunks.bytes_raw));
    let recording = read::Recording::open(&path).unwrap();
    assert!((0..10).all(|row| !recording.stored(row, 0).unwrap().compressed));
    verified(&path);
}

#[test]
fn compressed_and_raw_shots_share_a_file() {
    or_skip!(needs_python());
    let geometry = compressible();
    let run = RunInfo { pattern_period: None, ..compressed(Codec::Lz4, &[geometry]) };
    let mut recording = Recording::new(run, |config| config.rows = 40);
    for number in 0..40 {
        recording.event(number, |_, buffer| {
            let shot = shot(buffer, 7, number, geometry, |_| true);
            if number % 2 == 1 {
                // Noise in all 16 bits, with a valid record.
                let noise = Geometry::new(16, 1000, 16, Packing::Int16Le, 40_000_000).unwrap();
                let wide = common::shot(shot.buffer.clone(), 7, number, noise, |_| true);
                return Some(shotline_store::shot::Shot { meta: wide.meta, buffer: shot.buffer });
            }
            Some(shot)
        });
        recording.settle();
    }
    let (path, report) = recording.finish(&RunCounters::default());
    let chunks = report.chunks.unwrap();
    assert_eq!((chunks.compressed, chunks.uncompressed), (20, 20));
    let recording = read::Recording::open(&path).unwrap();
    assert!((0..40).all(|row| recording.stored(row, 0).unwrap().compressed == (row % 2 == 0)));
    h5py_reads_the_same(&path, &path);
}

#[test]
fn interrupted_runs_keep_visible_rows_and_free_the_rest() {
    or_skip!(needs_python());
    let geometry = compressible();
    let mut recording = Recording::new(compressed(Codec::Lz4, &[geometry, geometry]), |config| config.rows = 500);
    (0..60).for_each(|number| recording.whole(number));
    recording.settle();
    let Recording { directory, path, recorder, .. } = recording;
    drop(recorder);
    verified(&path);
    let before = path.metadata().unwrap().len();
    let recovered = recover(&path, false, &|_, _| ()).unwrap();
    assert_eq!((recovered.rows, recovered.released_rows), (60, 440));
    assert!(recovered.file_bytes < before / 4);
    verified(&path);
    drop(directory);
}

/// Replaces the only occurrence of `from` in a file.
fn patch(path: &Path, from: &[u8], to: &[u8]) {
    let mut bytes = std::fs::read(path).unwrap();
    let matches: Vec<usize> = (0..bytes.len() - from.len()).filter(|at| bytes[*at..].starts_with(from)).collect();
    assert_eq!(matches.len(), 1, "{from:?}");
    bytes[matches[0]..matches[0] + to.len()].copy_from_slice(to);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn recovery_reports_torn_chunks_and_adopts_hidden_rows() {
    or_skip!(needs_python());
    let geometry = compressible();
    let mut recording = Recording::new(compressed(Codec::Lz4, &[geometry, geometry]), |config| config.rows = 100);
    (0..60).for_each(|number| recording.whole(number));
    recording.settle();
    let Recording { directory, path, recorder, .. } = recording;
    drop(recorder);
    let at = |row, link| read::Recording::open(&path).unwrap().stored(row, link).unwrap().offset;
    // A damaged chunk, and damaged index entries of a visible row and of one beyond the last visible row.
    let (damaged, torn) = (at(10, 0), at(20, 1));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[damaged as usize + 100..damaged as usize + 200].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    let entry = |row: u64, address: &[u8]| [&[row, 0, 16, 0].map(u64::to_le_bytes).concat()[..], address].concat();
    let beyond = torn + (1 << 40);
    patch(&path, &entry(20, &torn.to_le_bytes()), &entry(20, &beyond.to_le_bytes()));
    patch(&path, &entry(99, &[]), &entry(99, &[0xff; 8]));
    // The markers show ten rows less than were written.
    let extent = |rows: u64| [rows, 1000, 32].map(u64::to_le_bytes).concat();
    patch(&path, &extent(60), &extent(50));

    let dry = recover(&path, true, &|_, _| ()).unwrap();
    let recovered = recover(&path, false, &|_, _| ()).unwrap();
    assert_eq!((recovered.rows_before, recovered.rows, recovered.adopted), (50, 60, 10), "{recovered:?}");
    assert_eq!((recovered.complete, recovered.lost, recovered.partial), (118, 2, 0));
    assert_eq!(dry.incomplete, recovered.incomplete);
    let lost: Vec<_> = recovered.incomplete.iter().map(|run| (run.stream, run.cause, run.first, run.count)).collect();
    assert_eq!(lost, [(7, "power_cut", 10, 1), (8, "power_cut", 20, 1)]);
    verified(&path);
    let recording = read::Recording::open(&path).unwrap();
    assert_eq!((recording.row(10, 0).unwrap().state, recording.row(20, 1).unwrap().state), (State::Lost, State::Lost));
    h5py_reads_the_same(&path, &path);
    drop(directory);
}

#[test]
fn an_early_end_moves_the_index() {
    or_skip!(needs_python());
    let geometry = Geometry::new(2, 1000, 6, Packing::Int16Le, 0).unwrap();
    // A leaf of the index has 256 chunks; a row is two.
    for (rows, recorded) in [(1, 1), (140, 0), (140, 3), (140, 139), (300, 300)] {
        let mut recording = Recording::new(compressed(Codec::Lz4, &[geometry, geometry]), |config| config.rows = rows);
        (0..recorded).for_each(|number| recording.whole(number));
        let (path, report) = recording.finish(&RunCounters::default());
        assert_eq!(
            (report.rows, path.metadata().unwrap().len()),
            (recorded, report.file_bytes),
            "{rows} rows, {recorded} recorded"
        );
        verified(&path);
    }
}

#[test]
fn damaged_chunks_are_reported() {
    or_skip!(needs_python());
    let geometry = compressible();
    let mut recording = Recording::new(compressed(Codec::Lz4, &[geometry]), |config| config.rows = 4);
    (0..4).for_each(|number| recording.whole(number));
    let (path, _) = recording.finish(&RunCounters::default());
    let at = {
        let recording = read::Recording::open(&path).unwrap();
        let stored = recording.stored(2, 0).unwrap();
        assert!(stored.compressed);
        stored.offset
    };
    let mut bytes = std::fs::read(&*path).unwrap();
    bytes[at as usize + 12..at as usize + 16].fill(0xff);
    std::fs::write(&*path, bytes).unwrap();
    let verdict = verify(&path, &VerifyOptions::default()).unwrap();
    assert!(!verdict.verified && verdict.mismatches == 1, "{verdict:#?}");
    assert!(verdict.first_mismatches[0].contains("row 2 of link 0"), "{verdict:#?}");
    python_verdict(&path, false);
}
